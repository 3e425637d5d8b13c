"""The reader of tables: cells as text, one row per participant or visit."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.exceptions import DataError
from surreal_bids.files import MISSING, read_file
from surreal_bids.names import (
    PARTICIPANT,
    SESSION,
    Visit,
    column_of,
    is_label,
    letters_of,
    means,
    sex_of,
    visit_name,
    without_prefix,
)
from surreal_bids.text import alternatives, counted, list_briefly

MISSING_CELLS = frozenset(
    {'', 'n/a', 'na', 'nan', 'null', '<na>', '.', '-', '--', '?', 'unknown', 'unk', 'missing',
     'not available', '#n/a', '#value!', '#ref!', '#div/0!'}
)  # fmt: skip
"""Spellings of missing values in BIDS, R, numpy, databases and spreadsheets, in lower case."""

SEPARATORS = ('\t', ',', ';')
"""Separators of cells; the most frequent one in the header is used."""

TOP_LINES = 5
"""Lines among which the header is looked for, to tell the separator."""

MAGIC = {
    b'PK\x03\x04': 'an Excel or zip file; save the sheet as .csv or .tsv',
    b'\x1f\x8b': 'a compressed file; unpack it (gunzip)',
    b'\xff\xfe': 'text in UTF-16; save it as UTF-8',
    b'\xfe\xff': 'text in UTF-16; save it as UTF-8',
    b'version https://git-lfs': 'a git LFS pointer, not the file; fetch it (git lfs pull)',
    b'/annex/objects': 'a git-annex pointer, not the file; fetch it (datalad get)',
}
"""First bytes of files that are not tables, with the remedy."""

MAX_LABEL = 64
"""Maximum length of an id or session: names of files hold both."""

LONG_FORMAT = frozenset({'region', 'regionname', 'roi', 'roiname', 'structure', 'structname'})
"""Columns of tables with one row per region."""

SESSIONS = ('sessionid', 'session', 'sesid')
"""Names of columns that always hold sessions."""

PADDED = re.compile(r'0\d+')
_COMMA = re.compile(r'[+-]?\d+(,\d+)?([eE][+-]?\d+)?')
_THOUSANDS = re.compile(r'\d{1,3}(,\d{3})+')
_WHOLE_NUMBER = re.compile(r'^([+-]?\d+)\.0+$')
_NAMED_VISIT = re.compile(r'(.+)_ses-([A-Za-z0-9+]+)')
_ID = re.compile(rf'[^/\\\x00-\x1f\x7f]{{1,{MAX_LABEL}}}')
_FREESURFER_IDS = re.compile(r'Measure:\w+|[lr]h\.\S+')


@dataclass(frozen=True, eq=False)
class Table:
    """A table of text, with methods that convert columns to the needed type.

    The text is kept because `1` can be a number or the name of a site.

    Attributes
    ----------
    source
        File or folder, for messages.
    text
        Cells as text, None where missing. The index names the rows in messages; in a table of
        participants, it has the names of visits, and ids and sessions are no columns.
    visits
        Participant and session of each row of a table of participants; the session is None where
        there are no sessions.
    prefix
        `sub-`, or empty if ids are written without it.
    id_column, session_column
        Columns of the ids, and of the sessions if there are any.
    joined
        Files of the columns that come from another file than `source`.
    known
        Columns that are already converted to numbers.
    """

    source: Path
    text: pd.DataFrame
    visits: Sequence[Visit] = ()
    prefix: str = 'sub-'
    id_column: str = PARTICIPANT
    session_column: str | None = None
    joined: Mapping[str, Path] = field(default_factory=dict)
    known: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.text)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.text.columns)

    def source_of(self, name: str) -> Path:
        """Return the file that contains a column."""
        return self.joined.get(name, self.source)

    def rows(self, names: Sequence[str]) -> Table:
        """Keep these rows, in this order."""
        if list(names) == list(self.text.index):
            return self
        rows = self.text.index.get_indexer(pd.Index(list(names)))
        known = {name: values[rows] for name, values in self.known.items()}
        return Table(self.source, self.text.iloc[rows], joined=self.joined, known=known)

    def of(self, visits: Mapping[str, Visit]) -> Table:
        """Return the rows of these visits; a row without a session is of all visits."""
        if list(visits.items()) == list(zip(self.text.index, self.visits)):
            return self
        of_visit = {visit: row for row, visit in enumerate(self.visits)}
        rows = [of_visit.get(v, of_visit.get((v[0], None), -1)) for v in visits.values()]
        cells = self.text.to_numpy(object)[rows]
        absent = np.array(rows) < 0
        cells[absent] = None
        known = {n: np.where(absent, np.nan, values[rows]) for n, values in self.known.items()}
        text = pd.DataFrame(cells, list(visits), self.columns, dtype=object)
        return Table(self.source, text, known=known)

    def find(self, name: str) -> str:
        """Find a column by name, else by the only one that differs in case; else raise an error."""
        found = find_column(self.columns, name)
        if found is None:
            raise DataError(
                f'{self.source}: no column {name}; {alternatives([name], self.columns)}'
            )
        return found

    def categories(self, name: str) -> pd.Series:
        """Return a column as text, None where missing."""
        return self.text[self.find(name)]

    def names(self, name: str) -> pd.Series:
        """Return a column as names of groups or sites; `3.0` becomes `3`.

        Programs that read names as numbers write `3.0` if any value is missing.
        """
        cells = self.categories(name)
        names = [cell and _WHOLE_NUMBER.sub(r'\1', cell) for cell in cells.tolist()]
        return pd.Series(names, cells.index, name=cells.name, dtype=object)

    def values(self, name: str) -> pd.Series:
        """Return a column as numbers, NaN where it is missing or text; converted once."""
        if name not in self.known:
            self.known[name] = to_numbers(self.text[name]).to_numpy()
        return pd.Series(self.known[name], self.text.index, name=name, copy=False)

    def numbers(self, name: str) -> pd.Series:
        """Return a column as floating-point numbers, NaN where missing."""
        cells = self.categories(name)
        values = self.values(str(cells.name))
        wrong = ~np.isfinite(values)
        wrong &= wrong.any() and cells.notna()
        if wrong.any():
            where = str(wrong.idxmax())
            more = f' ({counted(int(wrong.sum()), "cell")})' if wrong.sum() > 1 else ''
            raise DataError(
                f'{self.source_of(name)}: column {name} should hold numbers, but {where} has '
                f'"{cells[where]}"{more}; correct it, or write {MISSING} if it is unknown'
            )
        return values

    def typed(self) -> pd.DataFrame:
        """Return all columns, as numbers if every value is a number, else as text.

        Identifiers and whole numbers with leading zeros (`001`) stay text.
        """
        columns = {}
        for name in self.columns:
            cells, values = self.text[name], self.values(name)
            strange = cells[~np.isfinite(values)].notna().any()
            is_text = strange or values.isna().all() or name in (PARTICIPANT, SESSION)
            is_text = is_text or any(map(PADDED.fullmatch, cells[values % 1 == 0]))
            columns[name] = cells if is_text else values
        return pd.DataFrame(columns, index=self.text.index)


def to_numbers(cells: pd.Series) -> pd.Series:
    """Convert cells to numbers, possibly infinite; NaN for all others."""
    numbers = pd.to_numeric(cells, errors='coerce').astype(np.float64)
    values = _plain_numbers(cells[numbers.notna()].tolist())  # Exact to the last digit.
    if values is not None:
        numbers[numbers.notna()] = values
    return numbers


def _plain_numbers(cells: Sequence[str]) -> np.ndarray | None:
    """Convert cells to finite numbers, several times faster than one by one; else None."""
    try:
        values = np.array(cells, object).astype(np.float64)
    except ValueError:
        return None
    is_plain = np.isfinite(values).all() and '_' not in ''.join(cells)  # 1_0 is 10 in Python.
    return values if is_plain else None


def find_column(columns: Iterable[str], name: str) -> str | None:
    """Find a column by its exact name, else by the only name that differs in case alone."""
    columns = list(columns)
    if name in columns:
        return name
    similar = [column for column in columns if column.lower() == name.lower()]
    return similar[0] if len(similar) == 1 else None


@contextmanager
def prefix_errors(source: Path | str) -> Iterator[None]:
    """Prefix DataErrors with a file, or what else they concern, unless they contain it."""
    try:
        yield
    except DataError as error:
        if str(source) in str(error):
            raise
        raise DataError(f'{source}: {error}') from error


def read_table(path: Path) -> Table:
    """Read a table with a header; rows are indexed by their line.

    Cells are separated by tabs, commas or semicolons; numbers may have decimal commas, unless
    commas separate cells. Cells stay text, None where missing.

    Raises
    ------
    DataError
        The file cannot be read, is not a table in UTF-8, has rows of different lengths, or repeats
        a column.
    """
    text = _read_text(path)
    separator = _separator(text)
    reader = csv.reader(io.StringIO(text, newline=''), delimiter=separator, strict=True)
    try:
        numbered = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise DataError(
            f'{path}: the table cannot be read ({error}); look for a quoted cell that does not end'
        ) from error
    rows = {line: row for line, row in numbered if any(map(str.strip, row))}
    if not rows:
        raise DataError(f'{path}: the table is empty; it needs a header and rows below it')
    header = [' '.join(name.split()) for name in rows.pop(min(rows))]
    _refuse_other_layouts(path, header, rows)
    if rows and all(len(row) == len(header) + 1 for row in rows.values()):
        header = ['', *header]  # R writes the names of rows without a header.
    _check_shape(path, header, rows)
    columns: dict[str, Sequence[str | None]] = {}
    known, has_blanks = {}, ' ' in text
    for name, column in zip(header, zip(*rows.values()) if rows else [()] * len(header)):
        if not name and columns:
            continue
        values = None if has_blanks else _plain_numbers(column)
        if values is not None:
            columns[name], known[name] = column, values
        else:
            columns[name] = _cells(path, name, column, separator)
    lines = pd.DataFrame(columns, [f'line {n}' for n in rows], dtype=object)
    return Table(path, lines, known=known)


def _separator(text: str) -> str:
    """Return the separator of cells: the most frequent one in the header, outside of quotes."""
    lines = [re.sub('"[^"]*"', '', line) for line in text.lstrip().splitlines()[:TOP_LINES]]
    named = next((line for line in lines if any(map(line.count, SEPARATORS))), '')
    return max(SEPARATORS, key=named.count)


def _read_text(path: Path) -> str:
    try:
        content = read_file(path)
        found = next((what for start, what in MAGIC.items() if content.startswith(start)), None)
        if found or b'\0' in content:
            what = found or 'not text; save it again as .tsv or .csv'
            raise DataError(f'{path}: this is {what}')
        return content.decode('utf-8-sig')
    except OSError as error:
        raise DataError(f'{path}: cannot be read ({error.strerror})') from error
    except UnicodeDecodeError as error:
        raise DataError(
            f'{path}: not a table in UTF-8 text ({error}); save it as .tsv or .csv'
        ) from error


def _refuse_other_layouts(path: Path, header: list[str], rows: dict[int, list[str]]) -> None:
    """Refuse a title above the header, and cells that are separated by blanks."""
    width = max(map(len, rows.values()), default=1)
    if len(list(filter(None, header))) == 1 and width > 1:
        raise DataError(
            f'{path}: the first line holds only "{header[0] or header[-1]}", like a title; remove '
            'the lines above the names of columns'
        )
    if len(header) == width == 1 and len(header[0].split()) > 2:
        raise DataError(
            f'{path}: cells seem to be separated by blanks; save the table as .tsv or .csv'
        )


def _check_shape(path: Path, header: list[str], rows: dict[int, list[str]]) -> None:
    """Refuse repeated column names, and rows of different lengths."""
    folded = pd.Series([name.lower() for name in header if name])
    if folded.duplicated().any():
        raise DataError(
            f'{path}: more than one column {list_briefly(folded[folded.duplicated()].unique())}; '
            'rename or remove one'
        )
    for line, row in rows.items():
        if len(row) != len(header) or row == header:
            what = (
                f'has {counted(len(row), "cell")}, but the header has {len(header)}; write '
                f'{MISSING} for a missing value, and quote cells that hold the separator'
            )
            same = 'repeats the header; remove it'
            raise DataError(f'{path}: line {line} {same if row == header else what}')


def _cells(path: Path, name: str, column: Iterable[str], separator: str) -> list[str | None]:
    """Mark missing cells, and write decimal points in place of decimal commas."""
    cells = [None if c.lower() in MISSING_CELLS else c for c in map(str.strip, column)]
    known = [cell for cell in cells if cell is not None]
    with_comma = [cell for cell in known if separator != ',' and ',' in cell]
    if not with_comma or not all(map(_COMMA.fullmatch, known)):
        return cells
    if len(with_comma) < len(known) and all(map(_THOUSANDS.fullmatch, with_comma)):
        raise DataError(
            f'{path}: column {name} has {with_comma[0]}; use decimal points, and no thousands '
            'separators'
        )
    return [cell and cell.replace(',', '.') for cell in cells]


def parse_visit(participant: str, session: str | None) -> Visit:
    """Parse the labels of `sub-01`, `01`, `sub-01_ses-2`, or of two cells."""
    named = _NAMED_VISIT.fullmatch(participant)
    if named and session is None:
        return without_prefix(named[1], 'sub'), named[2]
    return without_prefix(participant, 'sub'), without_prefix(session, 'ses') if session else None


def read_visit_table(path: Path, id_column: str | None = None, named: bool = True) -> Table:
    """Read a table with one row per participant or visit.

    Parameters
    ----------
    path
        Table with a column of ids and, optionally, one of sessions.
    id_column
        Column of the ids; by default it is found by its name.
    named
        Whether the table must have `id_column`; else it is used if the table has it.

    Raises
    ------
    DataError
        The table cannot be read, has no ids, or has two rows for one visit.
    """
    table = read_table(path)
    column, ids = _ids(table, id_column, named)
    if not len(table):
        raise DataError(f'{path}: the table has no rows; add one row per participant')
    session = _session_column(table.columns, column, bool(ids.duplicated().any()))
    sessions = table.names(session).tolist() if session else [None] * len(ids)
    visits = [parse_visit(*cells) for cells in zip(ids, sessions)]
    prefix = 'sub-' if ids.str.startswith('sub-').any() else ''
    names = pd.Index([visit_name(visit, prefix) for visit in visits])
    _require_distinct(table, visits, names)
    unused = [c for c in table.columns if c in (column, session) or not c]
    text = table.text.drop(columns=unused).set_axis(names)
    return Table(path, text, visits, prefix, column, session, known=table.known)


def _session_column(columns: Iterable[str], ids: str, needed: bool) -> str | None:
    """Find the column of sessions; `wave` or `ses` may be another fact if none is needed."""
    found = column_of([name for name in columns if name != ids], 'session')
    return found if found and (needed or letters_of(found) in SESSIONS) else None


def _ids(table: Table, id_column: str | None, named: bool) -> tuple[str, pd.Series]:
    """Return the column of ids and the ids; refuse missing and unusable ones."""
    column = id_column and find_column(table.columns, id_column)
    if column is None and id_column and named:
        raise DataError(
            f'{table.source}: no column {id_column}; {alternatives([id_column], table.columns)}; '
            'correct --id-column'
        )
    if column is None and table.columns and _FREESURFER_IDS.fullmatch(table.columns[0]):
        column = table.columns[0]
    column = column or column_of(table.columns, 'participant')
    if column is None:
        raise DataError(
            f'{table.source}: no column {PARTICIPANT}; name the column of ids with --id-column '
            f'({alternatives([PARTICIPANT], filter(None, table.columns))})'
        )
    ids = table.text[column]
    if len(ids) and ids.notna().all() and all(map(_WHOLE_NUMBER.fullmatch, ids)):
        ids = ids.str.partition('.')[0]
    for line, name in ids.items():
        if name is None:
            raise DataError(f'{table.source}: {line} has no {column}; add it')
        if not _ID.fullmatch(name):
            raise DataError(
                f'{table.source}: {line} has the id {ascii(name)[1:21]}; use at most {MAX_LABEL} '
                'characters, without slashes and control characters'
            )
    return column, ids


def _require_distinct(table: Table, visits: list[Visit], names: pd.Index) -> None:
    """Refuse two rows for one visit, and rows with and without a session."""
    if names.has_duplicates:
        repeated = list_briefly(names[names.duplicated()].unique())
        by_region = [c for c in table.columns if letters_of(c) in LONG_FORMAT]
        remedy = f'keep one row each, or add a column {SESSION} that distinguishes visits'
        if by_region:
            remedy = (
                f'the table has one row per {by_region[0]}; write one row per participant, with '
                'the regions as columns'
            )
        raise DataError(f'{table.source}: more than one row for {repeated}; {remedy}')
    with_session = {participant for participant, label in visits if label}
    both = [name for name, (who, label) in zip(names, visits) if not label and who in with_session]
    if both:
        raise DataError(
            f'{table.source}: {list_briefly(both)} has rows with and without a session; add the '
            'session of every visit'
        )


def read_participants(bids_dir: Path) -> Table:
    """Read `participants.tsv` of a BIDS dataset."""
    path = bids_dir / 'participants.tsv'
    if not path.is_file():
        raise DataError(
            f'{path}: no such file; add it with a column {PARTICIPANT} and one row per participant'
        )
    people = read_visit_table(path)
    wrong = [who for who, _ in people.visits if not is_label(who)]
    if wrong:
        raise DataError(
            f'{path}: {PARTICIPANT} {wrong[0]}; expected sub-<label> with a label of letters and '
            'digits'
        )
    return people


def read_sessions(bids_dir: Path, participants: Iterable[str]) -> dict[Visit, dict[Hashable, str]]:
    """Read the `sessions.tsv` files of participants: the known values of each session."""
    found: dict[Visit, dict[Hashable, str]] = {}
    for who in dict.fromkeys(participants):
        path = bids_dir / f'sub-{who}' / f'sub-{who}_sessions.tsv'
        if not (is_label(who) and path.is_file()):
            continue
        table = read_table(path)
        labels = table.categories(SESSION).map(lambda cell: without_prefix(cell or '', 'ses'))
        wrong = [f'"{label}"' for label in labels if not is_label(label)]
        repeated = [f'two rows for ses-{label}' for label in labels[labels.duplicated()]]
        if wrong or repeated:
            raise DataError(
                f'{path}: {SESSION} has {(*wrong, *repeated)[0]}; expected one row per session '
                'and labels of letters and digits'
            )
        for row, label in labels.items():
            values = table.text.loc[str(row)].drop([c for c in table.columns if c in (SESSION, '')])
            found[who, label] = values.dropna().to_dict()
    return found


def with_sessions(people: Table, visits: Mapping[str, Visit]) -> pd.DataFrame:
    """Return the rows of visits; values of `sessions.tsv` files take precedence."""
    known = people.of(visits).text
    asked = [who for who, session in visits.values() if session]
    values = read_sessions(people.source.parent, asked)
    rows = {name: values.get(visit, {}) for name, visit in visits.items()}
    found = pd.DataFrame.from_dict(rows, orient='index', dtype=object)
    if found.empty:
        return known
    columns = [*known, *(name for name in found if name not in known)]
    joined = found.reindex(index=known.index).combine_first(known)[columns].astype(object)
    return joined.where(joined.notna(), None)


def ages_and_sexes(
    bids_dir: Path, visits: Iterable[Visit]
) -> dict[Visit, tuple[float | None, str | None]]:
    """Read age in years and sex ('F' or 'M') at each visit; None if unknown."""
    names = {visit_name(visit): visit for visit in visits}
    try:
        text = with_sessions(read_participants(bids_dir), names)
    except DataError:
        return dict.fromkeys(names.values(), (None, None))
    age, sex = (column_of(text.columns, role) for role in ('age', 'sex'))
    years = to_numbers(text[age]) if age else pd.Series(np.nan, text.index)
    words = text[sex].fillna('') if sex else pd.Series('', text.index)
    return {
        visit: (float(years[name]) if np.isfinite(years[name]) else None, sex_of(words[name]))
        for name, visit in names.items()
    }


def scan_time(bids_dir: Path, participant: str, session: str | None) -> str | None:
    """Read the earliest acquisition time of the T1w images of a session from `scans.tsv`."""
    if not (is_label(participant) and is_label(session)):
        return None
    visit = f'sub-{participant}_ses-{session}'
    path = bids_dir / f'sub-{participant}' / f'ses-{session}' / f'{visit}_scans.tsv'
    if not path.is_file():
        return None
    table = read_table(path)
    if not {'filename', 'acq_time'} <= set(table.columns):
        return None
    is_t1w = table.text['filename'].str.contains('_T1w.', regex=False, na=False)
    return min(table.text['acq_time'][is_t1w].dropna(), default=None)


REASONS, RATING = ('reason', 'note'), 'rating'
"""Columns of a list of exclusions; of several reasons, the first counts."""

FAIL, RATINGS = 'fail', ('pass', 'unsure', 'fail')
"""Rating that excludes an image, and all ratings; reports of participants write them."""

LIKE_RATINGS = frozenset({*RATINGS, '0', '1', 'yes', 'no', 'true', 'false', 'ok', 'good', 'bad'})
"""Values of a column that seems to rate images under another name."""


def read_exclusions(
    path: Path,
    visits: Mapping[str, Visit],
    everyone: Set[Visit],
    id_column: str | None = None,
    knows_sessions: bool = True,
) -> dict[str, str]:
    """Read a list of exclusions; returns reasons by the name of the visit.

    Parameters
    ----------
    path
        Table with ids and, optionally, sessions, reasons and ratings. A row without a session
        excludes all visits of the participant. With ratings, only rows with `fail` count.
    visits
        Visits that may be excluded, by name.
    everyone
        All visits of the other tables.
    id_column
        Column of the ids; by default it is found by its name.
    knows_sessions
        Whether `everyone` has the sessions of all participants.

    Raises
    ------
    DataError
        The table cannot be read, or lists someone who is in no other table: a misspelt id would
        leave a participant in the analysis.
    """
    table = _failed(read_table(path))
    if not len(table):
        return {}
    column, ids = _ids(table, id_column, named=False)
    session = _session_column(table.columns, column, any(label for _, label in everyone))
    sessions = table.names(session).tolist() if session else [None] * len(ids)
    listed = [parse_visit(*cells) for cells in zip(ids, sessions)]
    participants = {participant for participant, _ in everyone}
    unknown = [
        visit_name(visit)
        for visit in listed
        if visit[0] not in participants or (visit[1] and knows_sessions and visit not in everyone)
    ]
    if unknown:
        raise DataError(
            f'{path}: {list_briefly(unknown)} is in none of the other tables; correct the id or '
            'session, or remove the row'
        )
    told = [table.text[c].tolist() for n in REASONS if (c := find_column(table.columns, n))]
    reasons = {
        visit: ': '.join([f'listed in {path.name}', *filter(None, notes)][:2])
        for visit, *notes in zip(listed, *told)
    }
    found = {n: reasons.get(visit) or reasons.get((visit[0], None)) for n, visit in visits.items()}
    return {name: reason for name, reason in found.items() if reason is not None}


def _failed(table: Table) -> Table:
    """Keep the rows with the rating `fail`; all rows without a column of ratings."""
    column = find_column(table.columns, RATING)
    if column is None:
        facts = [n for n in table.columns if not means(n, 'participant', 'session')]
        words = {name: set(table.text[name].dropna().str.lower()) for name in facts}
        ratings = [name for name in facts if words[name] and words[name] <= LIKE_RATINGS]
        if ratings:
            raise DataError(
                f'{table.source}: column {ratings[0]} seems to rate images; call it {RATING} and '
                'write pass, unsure or fail (only fail excludes), or remove it to exclude all rows'
            )
        return table
    rating = table.text[column].str.lower()
    other = rating[~rating.isin(RATINGS) & rating.notna()]
    if len(other):
        raise DataError(
            f'{table.source}: {other.index[0]} has the {column} {other.iloc[0]!r}; use pass, '
            'unsure or fail (only fail excludes), or remove the column to exclude all rows'
        )
    return table.rows(list(rating.index[rating == FAIL]))
