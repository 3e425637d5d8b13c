"""Tables about participants: read as text, typed, joined, divided into controls and patients."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.bids.layout import Visit, is_label, without_prefix
from surreal_bids.exceptions import DataError, MissingColumnError, UsageError
from surreal_bids.files import MISSING
from surreal_bids.text import alternatives, list_briefly

PARTICIPANT = 'participant_id'
SESSION = 'session_id'
SPREAD_SUFFIX = '_member_spread'
"""Ends the names of standard deviations over members, which are no intervals."""
TRAINED_ON_SUFFIX = '_trained_on'
"""Ends the names of R-indices by a model that was trained on the participant."""

ID_COLUMNS = (
    'participantid', 'participant', 'mrid', 'subjectid', 'subject', 'subid', 'sub', 'subj', 'ptid',
    'rid', 'id',
)  # fmt: skip
"""Columns that name participants, the first of these that a table has: their letters and digits."""

GROUP_COLUMNS = ('diagnosis', 'group', 'dx')
"""Columns taken for the diagnosis, in this order and in any case, when none is named."""

AGE_COLUMNS, SEX_COLUMNS = ('age',), ('sex', 'gender')
"""Columns of a participant's age in years and of the sex, the first of these that a table has."""

SEXES = {
    'F': frozenset({'f', 'female', 'w', 'woman', 'women', 'females'}),
    'M': frozenset({'m', 'male', 'man', 'men', 'males'}),
}
"""Words for each sex, in any case."""

MISSING_CELLS = frozenset({'', 'n/a', 'na', 'nan', 'null'})
"""How BIDS, R, numpy and databases write that a value is missing, in any case."""

SEPARATORS = ('\t', ',', ';')
"""What may separate cells; the first of these that the header holds counts."""

MAGIC = {
    b'PK\x03\x04': 'an Excel or zip file; save the sheet as .csv or .tsv',
    b'\x1f\x8b': 'a compressed file; unpack it (gunzip)',
    b'\xff\xfe': 'text in UTF-16; save it as UTF-8',
    b'\xfe\xff': 'text in UTF-16; save it as UTF-8',
    b'version https://git-lfs': 'a pointer of git LFS, not the file; fetch it (git lfs pull)',
    b'/annex/objects': 'a pointer of git-annex, not the file; fetch it (datalad get)',
}
"""What files begin with that are no tables, and what to do about them."""

_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?', re.ASCII)
_COMMA = re.compile(r'[+-]?\d+,\d+')
_WHOLE_NUMBER = re.compile(r'([+-]?\d+)\.0+')
_FREESURFER = re.compile(r'Measure:\w+|[lr]h\.\S+')


@dataclass(frozen=True)
class Table:
    """A table as it was written, with methods that give a column the type one needs.

    Whether `1` is a number or the name of a site is for the reader to decide, not to be guessed
    from the cells, so the text is kept.

    Attributes
    ----------
    source
        The file, for messages.
    text
        Cells as text, None where missing. The index says where a row is from, for messages too.
    """

    source: Path
    text: pd.DataFrame

    def __len__(self) -> int:
        return len(self.text)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.text.columns)

    def rows(self, names: Sequence[str]) -> Table:
        """The same with some of the rows only, in this order."""
        return Table(self.source, self.text.loc[list(names)])

    def require(self, names: Iterable[str]) -> None:
        """Raise an error that lists the columns there are, unless all of these are there."""
        missing = [name for name in names if name not in self.text]
        if missing:
            raise DataError(
                f'{self.source}: no column {", ".join(missing)}; '
                f'{alternatives(missing, self.columns)}'
            )

    def categories(self, name: str) -> pd.Series:
        """Give a column as text: labels, sites, groups. None where missing."""
        self.require([name])
        return self.text[name]

    def numbers(self, name: str) -> pd.Series:
        """Give a column as floating-point numbers, NaN where missing."""
        cells = self.categories(name)
        values = _to_numbers(cells)
        wrong = cells.notna() & ~np.isfinite(values)
        if wrong.any():
            where = str(wrong.idxmax())
            remedy = f'correct it, or write {MISSING} if it is not known'
            if _COMMA.fullmatch(cells[where]):
                remedy = 'write a decimal point, and no separator of thousands'
            raise DataError(
                f'{self.source}: column {name} should hold numbers, but {where} has '
                f'"{cells[where]}"; {remedy}'
            )
        return values

    def typed(self, categorical: Iterable[str] = ()) -> pd.DataFrame:
        """Give all columns: numbers where every value is one, text elsewhere.

        Identifiers, the columns named in `categorical`, and whole numbers with leading zeros
        (`001`) stay text.
        """
        text = {PARTICIPANT, SESSION, *categorical}
        numeric = [n for n in self.columns if n not in text and all_numbers(self.text[n])]
        return self.text.assign(**{name: self.numbers(name) for name in numeric})


def _to_numbers(cells: pd.Series) -> pd.Series:
    """Numbers as written in ASCII digits, infinite ones among them; NaN where there is none."""
    values = [
        float(cell) if isinstance(cell, str) and _NUMBER.fullmatch(cell) else np.nan
        for cell in cells
    ]
    return pd.Series(values, cells.index, dtype=np.float64, name=cells.name)


def all_numbers(cells: pd.Series) -> bool:
    """Tell whether a column holds numbers, and nothing else, that are no labels such as `001`."""
    known = cells.dropna()
    padded = known.str.fullmatch(r'0\d+')
    return len(known) > 0 and not padded.any() and bool(np.isfinite(_to_numbers(known)).all())


def read_table(path: Path) -> Table:
    """Read a table with a header, its rows indexed by where they are in the file.

    Cells are separated by tabs, commas or semicolons, whichever the header has; a byte order mark
    and CRLF are no trouble. They stay text, None where missing.

    Raises
    ------
    DataError
        The file cannot be read, is no table in UTF-8, a row is too short or too long, or a column
        comes twice.
    """
    rows = _read_rows(path)
    header = rows.pop(min(rows), None) if rows else None
    if header is None:
        raise DataError(f'{path}: the table is empty; it needs a header and rows below it')
    _check_shape(path, header, rows)
    cells = [[None if c.lower() in MISSING_CELLS else c for c in row] for row in rows.values()]
    return Table(path, pd.DataFrame(cells, [f'line {n}' for n in rows], header, dtype=object))


def _check_shape(path: Path, header: list[str], rows: dict[int, list[str]]) -> None:
    """Refuse columns that come twice or have broken names, and rows of another length."""
    folded = [name.lower() for name in header]
    repeated = sorted({name for name in header if name and folded.count(name.lower()) > 1})
    if repeated:
        raise DataError(
            f'{path}: more than one column {list_briefly(repeated)}; rename or drop one'
        )
    broken = [name for name in header if not name.isprintable()]
    if broken:
        raise DataError(f'{path}: the column name {broken[0]!r} is broken; write it in one line')
    for line, row in rows.items():
        if len(row) != len(header):
            raise DataError(
                f'{path}: line {line} has {len(row)} cells, but the header has {len(header)}; '
                f'write {MISSING} for a missing value, and quote cells that hold the separator'
            )


def _read_rows(path: Path) -> dict[int, list[str]]:
    """The rows by the number of their line; empty lines are skipped."""
    try:
        content = path.read_bytes()
        found = next((what for start, what in MAGIC.items() if content.startswith(start)), None)
        if found:
            raise DataError(f'{path}: this is {found}')
        text = content.decode('utf-8-sig')
        first = text.lstrip().partition('\n')[0]
        separator = next((mark for mark in SEPARATORS if mark in first), SEPARATORS[0])
        reader = csv.reader(io.StringIO(text, newline=''), delimiter=separator, strict=True)
        numbered = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
        if '\0' in text:
            raise DataError(f'{path}: holds bytes that are no text; save it again as .tsv or .csv')
    except OSError as error:
        raise DataError(f'{path}: cannot be read ({error.strerror}); check the path') from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f'{path}: not a table in UTF-8 text ({error}); save it as .tsv or .csv'
        ) from error
    return {line: row for line, row in numbered if any(row)}


def normalise_name(name: str) -> str:
    """Lower-case letters and digits of a name, by which spellings are compared."""
    return re.sub('[^a-z0-9]', '', name.lower())


def find_id_column(table: Table, wanted: str | None = None) -> str:
    """Find the column that names participants, by the usual names or as wanted."""
    if wanted is not None:
        return require_columns(table, [wanted], '; correct --id-column')[wanted]
    if table.columns and _FREESURFER.fullmatch(table.columns[0]):
        return table.columns[0]
    by_letters = {normalise_name(name): name for name in reversed(table.columns)}
    found = next((by_letters[name] for name in ID_COLUMNS if name in by_letters), None)
    if found is None:
        raise DataError(
            f'{table.source}: no column {PARTICIPANT}; name the one of the ids with --id-column '
            f'({alternatives([PARTICIPANT], table.columns)})'
        )
    return found


def read_people(path: Path) -> Table:
    """Read a table with one row per participant, indexed by the ids as they are written."""
    table = read_table(path)
    column = find_id_column(table)
    ids = table.categories(column)
    if ids.isna().any():
        raise DataError(f'{path}: {ids.isna().idxmax()} has no {column}; add it')
    repeated = ids[ids.map(person_key).duplicated()].tolist()
    if repeated:
        raise DataError(
            f'{path}: more than one row for {list_briefly(repeated)}; keep one row each'
        )
    return Table(path, table.text.drop(columns=column).set_axis(pd.Index(ids, name=PARTICIPANT)))


def read_participants(bids_dir: Path) -> Table:
    """Read `participants.tsv`; `participant_id` becomes labels without `sub-`."""
    path = bids_dir / 'participants.tsv'
    if not path.is_file():
        raise DataError(
            f'{path}: no such file; add one with a column {PARTICIPANT} and one row per participant'
        )
    return _with_labels(read_table(path), PARTICIPANT, 'sub')


def read_sessions(bids_dir: Path, participant: str) -> Table | None:
    """Read a participant's `sessions.tsv`; None where there is none."""
    path = bids_dir / f'sub-{participant}' / f'sub-{participant}_sessions.tsv'
    return _with_labels(read_table(path), SESSION, 'ses') if path.is_file() else None


def _with_labels(table: Table, name: str, prefix: str) -> Table:
    written = table.categories(name)
    labels = written.map(lambda cell: without_prefix(cell or '', prefix))
    wrong = ~labels.map(is_label).astype(bool)
    if wrong.any():
        where = str(wrong.idxmax())
        raise DataError(
            f'{table.source}: {name} of {where} is "{written[where] or MISSING}"; expected '
            f'{prefix}-<label>, the label of letters and digits'
        )
    repeated = labels[labels.duplicated()].unique()
    if len(repeated):
        lines = labels.index[labels == repeated[0]]
        raise DataError(
            f'{table.source}: {name} {prefix}-{repeated[0]} is there {len(lines)} times '
            f'({", ".join(lines)}); keep one row for each'
        )
    return Table(table.source, table.text.assign(**{name: labels}))


def read_visits(bids_dir: Path, visits: Sequence[Visit]) -> Table:
    """Read what is known of each visit: the participant's columns, then those of the session.

    Where both files have a column, as age often is, a value of `sessions.tsv` counts.

    Parameters
    ----------
    bids_dir
        Root of the dataset.
    visits
        Labels of participant and session; one row for each, in this order.
    """
    participants = read_participants(bids_dir)
    rows = participants.text.set_index(PARTICIPANT)
    absent = list(dict.fromkeys(label for label, _ in visits if label not in rows.index))
    if absent:
        raise DataError(
            f'{participants.source}: no row for {", ".join(f"sub-{label}" for label in absent)}; '
            'add it, or leave them out with --participant-label'
        )
    records = [
        {
            PARTICIPANT: participant,
            SESSION: session,
            **rows.loc[participant],
            **session_values(bids_dir, participant, session),
        }
        for participant, session in visits
    ]
    names = [f'sub-{p}' + (f' ses-{s}' if s else '') for p, s in visits]
    columns = None if records else [PARTICIPANT, SESSION, *rows.columns]
    cells = pd.DataFrame(records, names, columns, dtype=object)
    return Table(participants.source, cells.where(cells.notna(), None))


def session_values(bids_dir: Path, participant: str, session: str | None) -> dict[Hashable, str]:
    """Read what `sessions.tsv` says of a session, if there is such a file."""
    table = read_sessions(bids_dir, participant) if session else None
    if table is None:
        return {}
    row = table.text[table.text[SESSION] == session]
    return {} if row.empty else row.iloc[0].drop(SESSION).dropna().to_dict()


def scan_time(bids_dir: Path, participant: str, session: str | None) -> str | None:
    """Read from `scans.tsv` when a T1w image was acquired: the earliest; None if it is not there.

    Only of sessions: without them, there is nothing to put in order.
    """
    if not (is_label(participant) and is_label(session)):
        return None
    visit = f'sub-{participant}_ses-{session}'
    path = bids_dir / f'sub-{participant}' / f'ses-{session}' / f'{visit}_scans.tsv'
    if not path.is_file():
        return None
    table = read_table(path)
    if not {'filename', 'acq_time'} <= set(table.columns):
        return None
    is_t1w = table.categories('filename').str.contains('_T1w.', regex=False, na=False)
    return min(table.categories('acq_time')[is_t1w].dropna(), default=None)


def age_and_sex(bids_dir: Path, visit: Visit) -> tuple[float | None, str | None]:
    """Age in years and sex ('F' or 'M') at a visit; None where the dataset does not say."""
    try:
        row = read_visits(bids_dir, [visit]).text.iloc[0]
    except DataError:
        return None, None
    age, sex = (
        next((row[found] for name in names if (found := find_column(row.index, name))), None)
        for names in (AGE_COLUMNS, SEX_COLUMNS)
    )
    years = float(_to_numbers(pd.Series([age])).iloc[0])
    return (years if np.isfinite(years) else None), sex_of(sex or '')


def sex_of(word: str) -> str | None:
    """'F' or 'M', where a word says so."""
    return next((sex for sex, words in SEXES.items() if word.lower() in words), None)


def find_group_column(table: Table) -> str | None:
    """Find the column of the diagnosis by its usual names; None if there is none."""
    by_name = {name.lower(): name for name in table.columns}
    return next((by_name[name] for name in GROUP_COLUMNS if name in by_name), None)


def person_key(person: str) -> str:
    """What two tables are joined by: `sub-01` and `01` are the same person."""
    return without_prefix(person, 'sub')


def find_column(columns: Iterable[str], name: str) -> str | None:
    """Find a column: by its exact name, or else by the only one that differs in case alone."""
    columns = list(columns)
    if name in columns:
        return name
    similar = [column for column in columns if column.lower() == name.lower()]
    return similar[0] if len(similar) == 1 else None


def require_columns(table: Table, names: Iterable[str], remedy: str = '') -> dict[str, str]:
    """Find columns as :func:`find_column` does: the column of each name, or an error.

    `remedy` ends the message: what to do about it.
    """
    found = {name: find_column(table.columns, name) for name in names}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        there = [name for name in table.columns if name != SESSION]
        raise MissingColumnError(
            f'{table.source}: no column {list_briefly(missing)}; '
            f'{alternatives(missing, there)}{remedy}'
        )
    return {name: column for name, column in found.items() if column is not None}


def names(table: Table, column: str) -> pd.Series:
    """A column as names of groups or sites, None where missing; `3.0` is the name `3`.

    A program that takes names for numbers writes them so as soon as one is missing.
    """
    cells = table.categories(column)
    return pd.Series([_name(cell) for cell in cells], cells.index, dtype=object, name=column)


def _name(cell: str | None) -> str | None:
    whole = None if cell is None else _WHOLE_NUMBER.fullmatch(cell)
    return cell if whole is None else whole.group(1)


@contextmanager
def prefix_errors(source: Path) -> Iterator[None]:
    """Put the name of a file before the DataErrors of a block that do not have it."""
    try:
        yield
    except DataError as error:
        if str(source) in str(error):
            raise
        raise DataError(f'{source}: {error}') from error


CONTROL, PATIENT = 'CN', 'PT'
"""What the two groups are called in outputs."""

CONTROL_WORDS = frozenset(
    {'cn', 'control', 'controls', 'con', 'ctl', 'ctrl', 'cu', 'hc', 'healthy', 'healthy control',
     'healthy_control', 'hv', 'nc', 'normal', 'td'}
)  # fmt: skip
"""Values of a diagnosis that mean a control, in any case."""

PATIENT_WORDS = frozenset({'pt', 'patient', 'patients', 'case', 'cases', 'diseased', 'affected'})
"""Values of a diagnosis that cannot mean a control, in any case."""

CODES = ({'0': CONTROL, '1': PATIENT}, {'-1': CONTROL, '1': PATIENT})
"""Numbers that stand for the groups; the second are those of the authors' program."""


@dataclass(frozen=True)
class GroupLabels:
    """What the user said of the groups.

    Attributes
    ----------
    column
        Column of the diagnosis; by default diagnosis, group or dx.
    controls, patients
        Its values for the two groups. Where only one is given, the only other value is the other
        group; where none is given, common words, 0 and 1, or -1 and 1 are recognised.
    no_guess
        Raise an error instead of recognising any of these.
    """

    column: str | None = None
    controls: Sequence[str] = ()
    patients: Sequence[str] = ()
    no_guess: bool = False

    @property
    def says_all(self) -> bool:
        """Whether nothing is left to be recognised."""
        return bool(self.column and self.controls and self.patients)


SAID_NOTHING = GroupLabels()


@dataclass(frozen=True, eq=False)
class Groups:
    """The two groups.

    Attributes
    ----------
    column
        Column of the diagnosis.
    control_labels, patient_labels
        Its values that mean a control and a patient.
    recognised
        Whether any of these was recognised rather than said by the user.
    is_patient
        One boolean for each person in either group.
    left_out
        Value of everyone else, None where it is missing.
    """

    column: str
    control_labels: tuple[str, ...]
    patient_labels: tuple[str, ...]
    recognised: bool
    is_patient: pd.Series
    left_out: dict[str, str | None]

    @property
    def labels(self) -> pd.Series:
        """CN or PT, for each person in either group."""
        return self.is_patient.map({False: CONTROL, True: PATIENT}).rename('group')

    def describe(self) -> str:
        """Say in one line who is what, and whether the user said so."""
        how = 'guessed: name them if this is wrong' if self.recognised else 'as given'
        groups = {'controls': self.control_labels, 'patients': self.patient_labels}
        who = [f'{group} are {", ".join(labels)}' for group, labels in groups.items() if labels]
        return f'column {self.column}: {", ".join(who)} ({how})'


def find_groups(people: Table, said: GroupLabels = SAID_NOTHING, both: bool = True) -> Groups:
    """Tell controls from patients.

    Parameters
    ----------
    people
        Table with a column of the diagnosis.
    said
        What the user said; the rest is recognised.
    both
        Whether there must be two groups; else there may be one of them.

    Raises
    ------
    DataError
        There is no such column or value, or groups cannot be recognised; the error says what there
        is and which option helps.
    """
    column = _group_column(people, said.column)
    values = names(people, column)
    present = sorted(set(values.dropna()))
    _require_labels(people, column, present, (*said.controls, *said.patients))
    try:
        controls, patients = _complete_labels(
            present, tuple(said.controls), tuple(said.patients), both
        )
    except DataError as error:
        raise DataError(f'{people.source}: column {column} {error}') from error
    _refuse_opposite(column, controls, patients)
    if said.no_guess and not said.says_all:
        raise UsageError(
            f'--no-guess: name --group-column, --control-label and --patient-label; the guess is '
            f'{column}, {" ".join(controls)} and {" ".join(patients)}'
        )
    in_group = values.isin((*controls, *patients))
    return Groups(
        column,
        controls,
        patients,
        not said.says_all,
        values[in_group].isin(patients),
        {str(person): value for person, value in values[~in_group].items()},
    )


def names_no_controls(people: Table, said: GroupLabels = SAID_NOTHING) -> bool:
    """Whether nothing in a table is said or known to mean controls."""
    column = said.column or find_group_column(people)
    if column is None or said.controls or said.patients:
        return column is None and not (said.controls or said.patients)
    present = set(names(people, require_columns(people, [column])[column]).dropna())
    is_code = any(present == set(codes) for codes in CODES)
    return not is_code and not any(value.lower() in CONTROL_WORDS for value in present)


def find_controls(people: Table, said: GroupLabels = SAID_NOTHING) -> pd.Series:
    """Who is a control, where patients may be absent: booleans (n_people,).

    Without a column of the diagnosis, everyone is.

    Raises
    ------
    DataError
        There is no such column or value, or its value for controls cannot be recognised.
    """
    if said.column is None and not said.controls and find_group_column(people) is None:
        return pd.Series(True, people.text.index)
    column = _group_column(people, said.column)
    values = names(people, column)
    present = sorted(set(values.dropna()))
    _require_labels(people, column, present, said.controls)
    try:
        controls = tuple(said.controls) or _recognised_controls(present)
    except DataError as error:
        raise DataError(f'{people.source}: column {column} {error}') from error
    return values.isin(controls)


def _group_column(people: Table, column: str | None) -> str:
    if column is not None:
        return require_columns(people, [column])[column]
    found = find_group_column(people)
    if found is None:
        raise MissingColumnError(
            f'{people.source}: no column {" or ".join(GROUP_COLUMNS)}; name that of the diagnosis '
            f'with --group-column ({alternatives(GROUP_COLUMNS, people.columns)})'
        )
    return found


def _require_labels(people: Table, column: str, present: list[str], labels: Sequence[str]) -> None:
    absent = [label for label in labels if label not in present]
    if absent:
        raise DataError(
            f'{people.source}: nobody has {list_briefly(absent)} in column {column}; '
            f'{alternatives(absent, present)}; correct --control-label or --patient-label'
        )


def _complete_labels(
    present: list[str], controls: tuple[str, ...], patients: tuple[str, ...], both: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels of the two groups, the missing ones recognised; of one, where that is enough."""
    same = set(controls) & set(patients)
    if same:
        raise DataError(
            f'cannot mean controls and patients at once by {list_briefly(sorted(same))}'
        )
    if controls and patients:
        return controls, patients
    if patients:
        return _only_other(present, patients, '--control-label', both), patients
    controls = controls or _recognised_controls(present)
    return controls, _only_other(present, controls, '--patient-label', both)


def _refuse_opposite(column: str, controls: Sequence[str], patients: Sequence[str]) -> None:
    """Refuse groups whose names mean the opposite."""
    wrong = [label for label in patients if label.lower() in CONTROL_WORDS]
    wrong += [label for label in controls if label.lower() in PATIENT_WORDS]
    if wrong:
        raise DataError(
            f'column {column}: controls would be {list_briefly(controls)} and patients '
            f'{list_briefly(patients)}, but {list_briefly(wrong)} means the opposite; correct '
            '--control-label and --patient-label, or rename the values'
        )


def _recognised_controls(present: list[str]) -> tuple[str, ...]:
    for codes in CODES:
        if set(present) == set(codes):
            return tuple(code for code, group in codes.items() if group == CONTROL)
    controls = tuple(value for value in present if value.lower() in CONTROL_WORDS)
    if len(controls) != 1:
        count = 'more than one' if controls else 'none'
        raise DataError(
            f'holds {list_briefly(present) or "nothing"}: {count} of these is known to mean '
            'controls; name it with --control-label'
        )
    return controls


def _only_other(
    present: list[str], known: tuple[str, ...], option: str, needed: bool
) -> tuple[str, ...]:
    others = tuple(value for value in present if value not in known)
    if len(others) > 1 or (needed and not others):
        raise DataError(
            f'holds {list_briefly(others) or "nothing"} beside {list_briefly(known)}; name the '
            'other '
            f'group with {option}'
        )
    return others
