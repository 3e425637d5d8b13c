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
from surreal_bids.exceptions import DataError
from surreal_bids.files import MISSING
from surreal_bids.text import alternatives, name_some

PARTICIPANT = 'participant_id'
SESSION = 'session_id'

GROUP_COLUMNS = ('diagnosis', 'group', 'dx')
"""Columns taken for the diagnosis, in this order and in any case, when none is named."""

_MISSING_CELLS = frozenset({'', MISSING, MISSING.upper()})


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
        values = pd.to_numeric(cells, errors='coerce').astype(np.float64)
        wrong = cells.notna() & ~np.isfinite(values)
        if wrong.any():
            where = str(wrong.idxmax())
            raise DataError(
                f'{self.source}: column {name} should hold numbers, but {where} has '
                f'"{cells[where]}"; correct it, or write {MISSING} if it is not known'
            )
        return values

    def typed(self, categorical: Iterable[str] = ()) -> pd.DataFrame:
        """Give all columns: numbers where every value is one, text elsewhere.

        Identifiers, the columns named in `categorical`, and whole numbers with leading zeros
        (`001`) stay text.
        """
        text = {PARTICIPANT, SESSION, *categorical}
        numeric = [n for n in self.columns if n not in text and _all_numbers(self.text[n])]
        return self.text.assign(**{name: self.numbers(name) for name in numeric})


def _all_numbers(cells: pd.Series) -> bool:
    known = cells.dropna()
    padded = known.str.fullmatch(r'0\d+')
    values = pd.to_numeric(known, errors='coerce').astype(np.float64)
    return len(known) > 0 and not padded.any() and bool(np.isfinite(values).all())


def read_table(path: Path) -> Table:
    """Read a tab-separated file with a header; a byte order mark and CRLF are no trouble."""
    try:
        with path.open(encoding='utf-8-sig', newline='') as stream:
            reader = csv.reader(stream, delimiter='\t', strict=True)
            rows = {f'line {reader.line_num}': [cell.strip() for cell in row] for row in reader}
    except OSError as error:
        raise DataError(f'{path}: cannot be read ({error.strerror})') from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f'{path}: not a tab-separated UTF-8 table ({error}); save it so') from error
    rows = {line: row for line, row in rows.items() if any(row)}
    header = next(iter(rows.values()), None)
    if header is None:
        raise DataError(f'{path}: the table is empty; it needs a header and a row for each entry')
    _check_shape(path, rows, header)
    cells = [
        [None if cell in _MISSING_CELLS else cell for cell in row]
        for row in list(rows.values())[1:]
    ]
    return Table(path, pd.DataFrame(cells, list(rows)[1:], header, dtype=object))


def _check_shape(path: Path, rows: dict[str, list[str]], header: list[str]) -> None:
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise DataError(f'{path}: more than one column {", ".join(repeated)}; rename or drop one')
    for line, row in rows.items():
        if len(row) != len(header):
            raise DataError(
                f'{path}: {line} has {len(row)} cells, but the header has {len(header)}; '
                f'separate cells by one tab and write {MISSING} for a missing value'
            )


def read_participants(bids_dir: Path) -> Table:
    """Read `participants.tsv`; `participant_id` becomes labels without `sub-`."""
    path = bids_dir / 'participants.tsv'
    if not path.is_file():
        raise DataError(
            f'{path}: no such file; add one with a column {PARTICIPANT} and a row for each person'
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
            **_session_values(bids_dir, participant, session),
        }
        for participant, session in visits
    ]
    names = [f'sub-{p}' + (f' ses-{s}' if s else '') for p, s in visits]
    columns = None if records else [PARTICIPANT, SESSION, *rows.columns]
    cells = pd.DataFrame(records, names, columns, dtype=object)
    return Table(participants.source, cells.where(cells.notna(), None))


def _session_values(bids_dir: Path, participant: str, session: str | None) -> dict[Hashable, str]:
    table = read_sessions(bids_dir, participant) if session else None
    if table is None:
        return {}
    row = table.text[table.text[SESSION] == session]
    return {} if row.empty else row.iloc[0].drop(SESSION).dropna().to_dict()


def find_group_column(table: Table) -> str | None:
    """Find the column of the diagnosis by its usual names; None if there is none."""
    by_name = {name.lower(): name for name in table.columns}
    return next((by_name[name] for name in GROUP_COLUMNS if name in by_name), None)


MISSING_CELLS = frozenset({'', 'n/a', 'na', 'nan', 'null'})
"""How BIDS, R, numpy and databases write that a value is missing, in any case."""

SEPARATORS = ('\t', ',', ';')
"""What may separate cells; the first of these that the header holds counts."""

_WHOLE_NUMBER = re.compile(r'([+-]?\d+)\.0+')


def read_people(path: Path) -> Table:
    """Read a table with a header and one row a person, named in the column `participant_id`.

    Cells are separated by tabs, commas or semicolons, whichever the header has. They stay text,
    None where missing; the rows are indexed by `participant_id`.

    Raises
    ------
    DataError
        The file cannot be read, a row is too short or too long, a column or a person comes twice,
        or nobody is in it.
    """
    return _by_person(read_delimited(path))


def read_delimited(path: Path) -> Table:
    """Read a table with a header, its rows indexed by where they are in the file.

    Raises
    ------
    DataError
        The file cannot be read, a row is too short or too long, a column comes twice, or there is
        no row.
    """
    header, rows = _read_rows(path)
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise DataError(f'{path}: more than one column {name_some(repeated)}; rename or drop one')
    for line, row in rows.items():
        if len(row) != len(header):
            raise DataError(
                f'{path}: line {line} has {len(row)} cells, but the header has {len(header)}; '
                f'write {MISSING} for a missing value, and quote cells that hold the separator'
            )
    cells = [[_cell(cell) for cell in row] for row in rows.values()]
    return Table(path, pd.DataFrame(cells, [f'line {n}' for n in rows], header, dtype=object))


def _read_rows(path: Path) -> tuple[list[str], dict[int, list[str]]]:
    """The header, and the other rows by the number of their line; empty lines are skipped."""
    try:
        text = path.read_text(encoding='utf-8-sig')
        first = text.lstrip().partition('\n')[0]
        separator = next((mark for mark in SEPARATORS if mark in first), SEPARATORS[0])
        reader = csv.reader(io.StringIO(text), delimiter=separator, strict=True)
        numbered = ((reader.line_num, [cell.strip() for cell in row]) for row in reader)
        rows = {number: row for number, row in numbered if any(row)}
    except OSError as error:
        raise DataError(f'{path}: cannot be read ({error.strerror})') from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f'{path}: not a table in UTF-8 text ({error}); save it as .tsv or .csv'
        ) from error
    if len(rows) < 2:
        raise DataError(f'{path}: nobody in it; it needs a header and a row for each person')
    header = rows.pop(min(rows))
    return header, rows


def _cell(text: str) -> str | None:
    return None if text.lower() in MISSING_CELLS else text


def _by_person(table: Table) -> Table:
    """Index a table by `participant_id`, which each row must have and no two may share."""
    column = find_column(table.columns, PARTICIPANT)
    if column is None:
        raise DataError(
            f'{table.source}: no column {PARTICIPANT}; rename the one that names people to it '
            f'({alternatives([PARTICIPANT], table.columns)})'
        )
    people = table.categories(column)
    if people.isna().any():
        raise DataError(f'{table.source}: {people.isna().idxmax()} has no {PARTICIPANT}; add it')
    keys = people.map(person_key)
    repeated = people[keys.duplicated()].tolist()
    if repeated:
        raise DataError(
            f'{table.source}: more than one row for {name_some(repeated)}; keep one row a person '
            '(for several visits, give each a name of its own, such as sub-01_ses-2)'
        )
    text = table.text.drop(columns=column).set_axis(pd.Index(people, name=PARTICIPANT))
    return Table(table.source, text)


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
    """Find columns as :func:`find_column` does: the column of each name, or a DataError.

    `remedy` ends the message: what to do about it.
    """
    found = {name: find_column(table.columns, name) for name in names}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise DataError(
            f'{table.source}: no column {name_some(missing)}; '
            f'{alternatives(missing, table.columns)}{remedy}'
        )
    return {name: column for name, column in found.items() if column is not None}


def join_participants(table: Table, participants: Table | None) -> Table:
    """What is known of the people of `table`: the columns of `participants`, then its own.

    Where both have a column, that of `participants` counts.

    Raises
    ------
    DataError
        Somebody is not in `participants`.
    """
    if participants is None:
        return table
    rows = participants.text.set_axis(participants.text.index.map(person_key))
    keys = table.text.index.map(person_key)
    absent = table.text.index[~keys.isin(rows.index)]
    if len(absent):
        raise DataError(
            f'{participants.source}: no row for {len(absent)} of {len(table)} people of '
            f'{table.source}: {name_some(absent)}; add them, or take them out of the other table'
        )
    known = rows.loc[keys].set_axis(table.text.index)
    own = table.text.drop(columns=[name for name in table.columns if name in known])
    return Table(participants.source, pd.concat([known, own], axis=1))


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
def about(source: Path) -> Iterator[None]:
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
    """

    column: str | None = None
    controls: Sequence[str] = ()
    patients: Sequence[str] = ()

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
        how = 'recognised' if self.recognised else 'as given'
        return (
            f'column {self.column}: controls are {", ".join(self.control_labels)}, '
            f'patients are {", ".join(self.patient_labels)} ({how})'
        )


def find_groups(people: Table, said: GroupLabels = SAID_NOTHING) -> Groups:
    """Tell controls from patients.

    Parameters
    ----------
    people
        Table with a column of the diagnosis.
    said
        What the user said; the rest is recognised.

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
        controls, patients = _complete_labels(present, tuple(said.controls), tuple(said.patients))
    except DataError as error:
        raise DataError(f'{people.source}: column {column} {error}') from error
    in_group = values.isin((*controls, *patients))
    return Groups(
        column,
        controls,
        patients,
        not said.says_all,
        values[in_group].isin(patients),
        {str(person): value for person, value in values[~in_group].items()},
    )


def _group_column(people: Table, column: str | None) -> str:
    if column is not None:
        return require_columns(people, [column])[column]
    found = find_group_column(people)
    if found is None:
        raise DataError(
            f'{people.source}: no column {" or ".join(GROUP_COLUMNS)}; name that of the diagnosis '
            f'with --group-column ({alternatives(GROUP_COLUMNS, people.columns)})'
        )
    return found


def _require_labels(people: Table, column: str, present: list[str], labels: Sequence[str]) -> None:
    absent = [label for label in labels if label not in present]
    if absent:
        raise DataError(
            f'{people.source}: nobody has {name_some(absent)} in column {column}; '
            f'{alternatives(absent, present)}; correct --control-label or --patient-label'
        )


def _complete_labels(
    present: list[str], controls: tuple[str, ...], patients: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels of the two groups, the missing ones recognised."""
    both = set(controls) & set(patients)
    if both:
        raise DataError(f'cannot mean controls and patients at once by {name_some(sorted(both))}')
    if controls and patients:
        return controls, patients
    if patients:
        return _only_other(present, patients, '--control-label'), patients
    controls = controls or _recognised_controls(present)
    return controls, _only_other(present, controls, '--patient-label')


def _recognised_controls(present: list[str]) -> tuple[str, ...]:
    for codes in CODES:
        if set(present) == set(codes):
            return tuple(code for code, group in codes.items() if group == CONTROL)
    controls = tuple(value for value in present if value.lower() in CONTROL_WORDS)
    if len(controls) != 1:
        count = 'more than one' if controls else 'none'
        raise DataError(
            f'holds {name_some(present) or "nothing"}: {count} of these is known to mean '
            'controls; name it with --control-label'
        )
    return controls


def _only_other(present: list[str], known: tuple[str, ...], option: str) -> tuple[str, ...]:
    others = tuple(value for value in present if value not in known)
    if len(others) != 1:
        raise DataError(
            f'holds {name_some(others) or "nothing"} beside {name_some(known)}; name the other '
            f'group with {option}'
        )
    return others
