"""The reader of tables: cells as text, one row per participant or visit."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from surreal_bids.exceptions import DataError
from surreal_bids.files import MISSING, read_file
from surreal_bids.names import (
    PARTICIPANT,
    SESSION,
    LongitudinalScan,
    Visit,
    column_of,
    is_label,
    letters_of,
    longitudinal_scan,
    means,
    read_visit_name,
    rest_of_scan,
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

SESSIONS = ('sessionid', 'session', 'sesid')
"""Names of columns that always hold sessions."""

UNNAMED = '(first column, without a name)'
"""What a first column of ids without a name is called where columns are listed."""

PADDED = re.compile(r'0\d+')
_WORD = re.compile(r'[^\W\d_]')
_PLAIN = re.compile('[-+.eE0-9]*')
_COMMA = re.compile(r'[+-]?\d+(,\d+)?([eE][+-]?\d+)?')
_POINT = re.compile(r'[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?')
_THOUSANDS = re.compile(r'[+-]?[1-9]\d{0,2}(,\d{3})+')  # 0,512 has a decimal comma.
_GROUPED = re.compile(r'[+-]?([1-9]\d{0,2}(,\d{3})+|\d+)(\.\d+)?')
_CLEARLY_GROUPED = re.compile(r'[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+|,\d{3})')
_GROUPED_BY_POINTS = re.compile(r'[+-]?([1-9]\d{0,2}(\.\d{3})+|\d+)(,\d+)?')
_CLEARLY_GROUPED_BY_POINTS = re.compile(r'[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+|\.\d{3})')
_NUMBERS = (_COMMA, _POINT, _GROUPED, _GROUPED_BY_POINTS)
_PAIR_OF_DIGITS = re.compile(r'\d,\d')  # Such as the alleles of APOE.
_WHOLE_NUMBER = re.compile(r'^([+-]?\d+)\.0+$')
_LABEL = rf'[^/\\\x00-\x1f\x7f]{{1,{MAX_LABEL}}}'
_ID = re.compile(rf'{_LABEL}(\.long\.{_LABEL})?')
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
    aliases
        Visits of FreeSurfer's longitudinal stream, by what other tables may call their scans.
    row_names
        Cells of a first column without a name, which R and pandas write; None: there is none.
    """

    source: Path
    text: pd.DataFrame
    visits: Sequence[Visit] = ()
    prefix: str = 'sub-'
    id_column: str = PARTICIPANT
    session_column: str | None = None
    joined: Mapping[str, Path] = field(default_factory=dict)
    known: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    aliases: Mapping[str, Visit] = field(default_factory=dict, repr=False)
    row_names: pd.Series | None = field(default=None, repr=False)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.text.columns)

    def source_of(self, name: str) -> Path:
        """Return the file that contains a column."""
        return self.joined.get(name, self.source)

    def rows(self, names: Iterable[str]) -> Table:
        """Keep these rows, in this order."""
        if list(names) == list(self.text.index):
            return self
        return replace(self, text=self.text.loc[list(names)], visits=(), known={})

    def of(self, visits: Mapping[str, Visit]) -> Table:
        """Return the rows of these visits; a row without a session is of all visits."""
        if list(visits.items()) == list(zip(self.text.index, self.visits)):
            return self
        of_visit = {visit: row for row, visit in enumerate(self.visits)}
        rows = [of_visit.get(v, of_visit.get((v[0], None), -1)) for v in visits.values()]
        cells, absent = self.text.to_numpy(object)[rows], np.array(rows, int) < 0
        cells[absent] = None
        text = pd.DataFrame(cells, list(visits), self.columns, dtype=object, copy=False)
        known = {name: np.where(absent, np.nan, v[rows]) for name, v in self.known.items()}
        return Table(self.source, text, known=known)

    def find(self, name: str) -> str:
        """Find a column by name, else by the first that differs in case; else raise an error."""
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
        names = [cell and _WHOLE_NUMBER.sub(r'\1', cell) for cell in cells]
        return pd.Series(names, cells.index, name=cells.name, dtype=object)

    def values(self, name: str) -> pd.Series:
        """Return a column as numbers, NaN where it is missing or text; converted once."""
        if name not in self.known:
            self.known[name] = to_numbers(self.text[name]).to_numpy()
        return pd.Series(self.known[name], self.text.index, name=name)

    def share_of_numbers(self, name: str) -> float:
        """Return the share of numbers among the cells of a column that are not missing."""
        values = self.values(name)
        return 1.0 if values.notna().all() else values.count() / max(1, self.text[name].count())

    def numbers(self, name: str) -> pd.Series:
        """Return a column as floating-point numbers, NaN where missing."""
        cells = self.categories(name)
        values = self.values(str(cells.name))
        wrong = cells[~np.isfinite(values)].dropna()
        if len(wrong):
            more = f' ({counted(len(wrong), "cell")})' if len(wrong) > 1 else ''
            raise DataError(
                f'{self.source_of(name)}: column {name} should hold numbers, but {wrong.index[0]} '
                f'has "{wrong.iloc[0]}"{more}; correct it, or write {MISSING} if it is unknown'
            )
        return values


def to_numbers(cells: pd.Series) -> pd.Series:
    """Convert cells to numbers, possibly infinite and exact to the last digit; NaN for others."""
    values = cells.to_numpy(object)
    with suppress(TypeError, ValueError):
        if '_' not in ''.join(filter(None, values)):  # 1_0 is 10 in Python.
            return pd.Series(values.astype(np.float64), cells.index, name=cells.name)
    return pd.to_numeric(cells, errors='coerce').astype(np.float64)


def find_column(columns: Iterable[str], name: str) -> str | None:
    """Find a column by its exact name, else by the first that differs in case alone."""
    columns = list(columns)
    similar = (column for column in columns if column.lower() == name.lower())
    return name if name in columns else next(similar, None)


@contextmanager
def prefix_errors(source: Path | str) -> Iterator[None]:
    """Prefix DataErrors with a file, or what else they concern, unless they contain it."""
    try:
        yield
    except DataError as error:
        if str(source) in str(error):
            raise
        raise DataError(f'{source}: {error}') from error


def read_table(path: Path, verbatim: Collection[str] = ()) -> Table:
    """Read a table with a header; rows are indexed by their line.

    Cells are separated by tabs, commas or semicolons; numbers may have decimal commas or thousands
    separators where these are clear. Cells stay text, None where missing.

    Parameters
    ----------
    path
        The table.
    verbatim
        Columns in which `NA` and `unknown` are names, not missing values.

    Raises
    ------
    DataError
        The file cannot be read, is not a table in UTF-8, has rows of different lengths, or repeats
        a column.
    """
    content = _read_text(path)
    separator = _separator(content)
    rows = _rows(path, content, separator)
    header = [' '.join(name.split()) for name in rows.pop(min(rows))]
    last = ''.join(row[-1] for row in rows.values()).strip()  # Empty if rows end in a separator.
    if last and {*map(len, rows.values())} == {len(header) + 1}:
        header = ['', *header]  # R writes the names of rows without a header.
    _check_shape(path, header, rows)
    cells = np.array([*rows.values()], object).reshape(len(rows), len(header))
    known: dict[str, np.ndarray] = {}
    for name, column in zip(header, cells.T):
        if name in verbatim:
            continue
        with suppress(ValueError):
            if _PLAIN.fullmatch(''.join(column)):
                known[name] = column.astype(np.float64)
                continue
        column[:] = [None if c.lower() in MISSING_CELLS else c for c in map(str.strip, column)]
        column[:] = _with_points(path, name, column.tolist(), separator)
    text = pd.DataFrame(cells, [*map('line {}'.format, rows)], header, dtype=object, copy=False)
    row_names = text.iloc[:, 0] if header[0] == '' else None
    return Table(path, text.drop(columns='', errors='ignore'), known=known, row_names=row_names)


def _rows(path: Path, text: str, separator: str) -> dict[int, list[str]]:
    """Return the cells of all lines that are not empty, by the number of the line."""
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
    return rows


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


def _check_shape(path: Path, header: list[str], rows: dict[int, list[str]]) -> None:
    """Refuse titles, cells separated by blanks, repeated columns, and rows of different lengths."""
    named = list(filter(None, header))
    width = max(map(len, rows.values()), default=1)
    if len(named) == 1 and width > 1:
        raise DataError(
            f'{path}: the first line holds only "{named[0]}", like a title; remove the lines above '
            'the names of columns'
        )
    if len(header) == width == 1 and len(header[0].split()) > 2:
        raise DataError(
            f'{path}: cells seem to be separated by blanks; save the table as .tsv or .csv'
        )
    folded = pd.Series(named, dtype=object).str.lower()
    if folded.duplicated().any():
        raise DataError(
            f'{path}: more than one column {list_briefly(folded[folded.duplicated()].unique())}; '
            'rename or remove one'
        )
    for line, row in rows.items():
        if row == header:
            raise DataError(f'{path}: line {line} repeats the header; remove it')
        if len(row) != len(header):
            raise DataError(
                f'{path}: line {line} has {counted(len(row), "cell")}, but the header has '
                f'{len(header)}; write {MISSING} for missing ones, and quote separators in cells'
            )


def _with_points(
    path: Path, name: str, cells: Sequence[str | None], separator: str
) -> Sequence[str | None]:
    """Write decimal points in place of decimal commas, and remove thousands separators.

    `1,234.5` and `1.234,5` are clear; `1,234` may be either, and is refused where others have no
    comma or commas separate cells. A column with decimal points and decimal commas is refused.
    """
    numbers = [cell for cell in cells if cell]
    with_comma = [cell for cell in numbers if ',' in cell]
    if not with_comma:
        return cells
    if _are_grouped_by_commas(numbers):
        return _replace_in(cells, {',': ''})
    if _are_grouped_by_points(numbers):
        return _replace_in(cells, {'.': '', ',': '.'})
    _refuse_mixed(path, name, numbers)
    if not all(map(_COMMA.fullmatch, numbers)):
        return cells
    is_doubtful = separator == ',' or len(with_comma) < len(numbers)
    if is_doubtful and all(map(_THOUSANDS.fullmatch, with_comma)):
        raise DataError(
            f'{path}: column {name} has {with_comma[0]}; use decimal points, and no thousands '
            'separators'
        )
    if separator == ',' and any(map(_PAIR_OF_DIGITS.fullmatch, with_comma)):
        return cells
    return _replace_in(cells, {',': '.'})


def _are_grouped_by_commas(numbers: Sequence[str]) -> bool:
    """Check whether commas separate thousands in all numbers, which at least one proves."""
    return all(map(_GROUPED.fullmatch, numbers)) and any(map(_CLEARLY_GROUPED.fullmatch, numbers))


def _are_grouped_by_points(numbers: Sequence[str]) -> bool:
    """Check whether points separate thousands in all numbers, which at least one proves.

    Without such proof, `2.345` beside `2,9` may be 2.345 or 2345.
    """
    is_grouped = all(map(_GROUPED_BY_POINTS.fullmatch, numbers))
    return is_grouped and any(map(_CLEARLY_GROUPED_BY_POINTS.fullmatch, numbers))


def _refuse_mixed(path: Path, name: str, cells: Sequence[str]) -> None:
    """Refuse a column of numbers in which some have a point and others a comma."""
    with_point = [cell for cell in cells if '.' in cell]
    with_comma = [cell for cell in cells if ',' in cell]
    if not with_point or not with_comma or not all(map(_is_number, cells)):
        return
    # Cells with one of the signs show the contradiction better than those with both.
    example = min(with_point, key=lambda cell: ',' in cell)
    counterexample = min(reversed(with_comma), key=lambda cell: '.' in cell)
    raise DataError(
        f'{path}: column {name} has {example} and {counterexample}, and the sign for decimals is '
        'not clear; use decimal points everywhere, and no thousands separators'
    )


def _is_number(cell: str) -> bool:
    """Check whether a cell is a number in any of the usual ways to write it."""
    return any(pattern.fullmatch(cell) for pattern in _NUMBERS)


def _replace_in(cells: Sequence[str | None], replaced: Mapping[str, str]) -> list[str | None]:
    """Replace single characters in all cells that have text."""
    table = str.maketrans(dict(replaced))
    return [cell.translate(table) if cell else cell for cell in cells]


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
    if table.text.index.empty:
        raise DataError(f'{path}: the table has no rows; add one row per participant')
    column, ids = _ids(table, id_column, named)
    _require_one_stream(table, ids)
    session = _session_column(table.columns, column, bool(ids.duplicated().any()))
    visits = _visits(table, ids, session)
    prefix = 'sub-' if ids.str.startswith('sub-').any() else ''
    names = pd.Index([visit_name(visit, prefix) for visit in visits])
    _require_distinct(table, visits, names)
    # Ids in a column without a name are no column of the table.
    own = [column, *filter(None, [session])]
    text = table.text.drop(columns=own, errors='ignore').set_axis(names)
    aliases = _aliases(ids)
    return Table(path, text, visits, prefix, column, session, known=table.known, aliases=aliases)


def _ids(table: Table, id_column: str | None, named: bool) -> tuple[str, pd.Series]:
    """Return the column of ids and the ids; refuse missing and unusable ones."""
    column, ids = _find_ids(table, id_column, named)
    if ids.notna().all() and ids.str.fullmatch(_WHOLE_NUMBER).all():
        ids = table.names(column)
    unusable = ids[~ids.str.fullmatch(_ID, na=False)]
    if len(unusable):
        found = 'no id' if unusable.isna().iloc[0] else f'the id {ascii(unusable.iloc[0])[1:21]}'
        raise DataError(
            f'{table.source}: {unusable.index[0]} has {found} in {column}; write an id of at most '
            f'{MAX_LABEL} characters, without slashes and control characters'
        )
    return column, ids


def _find_ids(table: Table, id_column: str | None, named: bool) -> tuple[str, pd.Series]:
    """Find the column of ids: as named, by a usual name, or the names of rows."""
    wanted = id_column or PARTICIPANT
    # The user's name for the column of this table leaves nothing to guess.
    may_guess = not (id_column and named)
    column = find_column(table.columns, wanted)
    if column is None and may_guess:
        of_freesurfer = filter(_FREESURFER_IDS.fullmatch, table.columns[:1])
        column = next(of_freesurfer, column_of(table.columns, 'participant'))
    if column is not None:
        return column, table.text[column]
    row_names = _row_names(table) if may_guess else None
    if row_names is None or not _are_unique_words(row_names):
        raise _no_ids(table, wanted, row_names)
    return str(row_names.name), row_names


def _row_names(table: Table) -> pd.Series | None:
    """Return the first column if it is called like the names of rows; None if it is not."""
    if table.row_names is not None:
        return table.row_names.rename(UNNAMED)
    first = table.columns[0] if table.columns else None
    return table.text[first] if first and means(first, 'index') else None


def _are_unique_words(cells: pd.Series) -> bool:
    """Tell ids from numbers of rows and from dates: all different, and none is a number."""
    words = cells.dropna().map(lambda cell: bool(_WORD.search(cell) or PADDED.fullmatch(cell)))
    return bool(cells.notna().all() and cells.is_unique and words.all())


def _no_ids(table: Table, wanted: str, row_names: pd.Series | None) -> DataError:
    """Say that there are no ids, and that they may be in a column without a name."""
    advice = 'name the column of ids with --id-column'
    if row_names is not None and row_names.name == UNNAMED:
        example = row_names.iloc[0] or MISSING
        advice = (
            f'the first column has no name and starts with {example}: call it {PARTICIPANT} if it '
            f'holds the ids, or {advice}'
        )
    return DataError(
        f'{table.source}: no column {wanted}; {advice} ({alternatives([wanted], table.columns)})'
    )


def _session_column(columns: Iterable[str], ids: str, needed: bool) -> str | None:
    """Find the column of sessions; `wave` or `ses` may be another fact if none is needed."""
    found = column_of([name for name in columns if name != ids], 'session')
    return found if found and (needed or letters_of(found) in SESSIONS) else None


def _visits(table: Table, ids: pd.Series, session: str | None) -> list[Visit]:
    """Return participant and session of each row; without a column, `sub-01_ses-2` has both."""
    sessions = table.names(session) if session else [None] * len(ids)
    visits = []
    for name, label in zip(ids, sessions):
        scan = longitudinal_scan(name)
        named: Visit = (name, None)
        if scan is not None:
            named = scan.visit
        elif not label:
            named = read_visit_name(name) or named
        participant, named_session = named
        session_label = without_prefix(label, 'ses') if label else named_session
        visits.append((without_prefix(participant, 'sub'), session_label))
    return visits


def _require_one_stream(table: Table, ids: Iterable[str]) -> None:
    """Refuse scans that are in both streams of FreeSurfer, bases, and participants in both."""
    names = list(ids)
    scans = {name: scan for name in names if (scan := longitudinal_scan(name)) is not None}
    if not scans:
        return
    of_scan: dict[str, str] = {}
    of_base: dict[str, str] = {}
    of_participant: dict[str, str] = {}
    for name, scan in scans.items():
        participant = scan.visit[0]
        first = of_base.setdefault(scan.base, name)
        if scans[first].visit[0] != participant:
            raise DataError(
                f'{table.source}: {first} and {name} have the same base, but seem to be of two '
                'participants; correct the ids'
            )
        if of_scan.setdefault(scan.scan, name) != name:
            raise DataError(
                f'{table.source}: {of_scan[scan.scan]} and {name} are the same scan with two '
                'bases; keep one of them'
            )
        of_participant.setdefault(participant, name)
    for name in names:
        if name not in scans:
            _require_other_participant(table, name, scans, (of_scan, of_base, of_participant))


def _require_other_participant(
    table: Table,
    name: str,
    scans: Mapping[str, LongitudinalScan],
    by: tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]],
) -> None:
    """Refuse an id without `.long.` that is one of these scans, a base or of the same participant.

    `by` has the id of a longitudinal scan by the id of the scan, of its base and participant.
    """
    of_scan, of_base, of_participant = by
    if name in of_scan:
        raise DataError(
            f'{table.source}: {name} and {of_scan[name]} are the same scan in both streams of '
            'FreeSurfer; keep the rows of one stream, with .long. or without'
        )
    if name in of_base:
        raise DataError(
            f'{table.source}: {name} is the base of {of_base[name]}, an average of scans; remove '
            'its row'
        )
    named = read_visit_name(name)
    parts = re.split('([_.-])', without_prefix(name, 'sub'))
    heads = [''.join(parts[:end]) for end in range(1, len(parts), 2)]
    tails = [''.join(parts[start:]) for start in range(2, len(parts), 2)]
    for participant in [named[0]] if named else [*heads, *tails]:
        other = of_participant.get(participant)
        if other is None:
            continue
        session = rest_of_scan(without_prefix(name, 'sub'), participant)
        other_session = rest_of_scan(without_prefix(scans[other].scan, 'sub'), participant)
        if named or _shape(session) == _shape(other_session):
            raise DataError(
                f'{table.source}: {name} and {other} are scans of one participant in different '
                'streams of FreeSurfer; keep the rows of one stream, with .long. or without'
            )


def _shape(label: str) -> str:
    """Replace numbers: `T1` and `T12` are alike."""
    return re.sub(r'\d+', '0', label)


def _aliases(ids: Iterable[str]) -> dict[str, Visit]:
    """Return what scans and bases of a longitudinal stream may be called in other tables."""
    aliases: dict[str, Visit] = {}
    for scan in map(longitudinal_scan, ids):
        if scan is not None:
            aliases[without_prefix(scan.scan, 'sub')] = scan.visit
            aliases[without_prefix(scan.base, 'sub')] = (scan.visit[0], None)
    return aliases


def with_aliases(table: Table, aliases: Mapping[str, Visit]) -> Table:
    """Give the rows of scans, as another table calls them, the names of its visits.

    The rows stay as they are if two of them would then be of one visit.
    """
    visits = [_visit_by_alias(visit, aliases) for visit in table.visits]
    if visits == list(table.visits) or len({*visits}) < len(visits):
        return table
    names = [visit_name(visit, table.prefix) for visit in visits]
    return replace(table, text=table.text.set_axis(names), visits=visits)


def _visit_by_alias(visit: Visit, aliases: Mapping[str, Visit]) -> Visit:
    """Return the visit that a participant id is another name for, else the visit itself."""
    participant, session = aliases.get(visit[0], visit)
    return participant, session or visit[1]


def _require_distinct(table: Table, visits: list[Visit], names: pd.Index) -> None:
    """Refuse two rows for one visit, and rows with and without a session."""
    if names.has_duplicates:
        repeated = list_briefly(names[names.duplicated()].unique())
        raise DataError(
            f'{table.source}: more than one row for {repeated}; keep one row each, with '
            f'regions as columns, or add a column {SESSION} that distinguishes visits'
        )
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
    for who in filter(is_label, dict.fromkeys(participants)):
        path = bids_dir / f'sub-{who}' / f'sub-{who}_sessions.tsv'
        if not path.is_file():
            continue
        table = read_table(path)
        labels = table.categories(SESSION)
        facts = table.text.drop(columns=labels.name)
        for label, (row, values) in zip(labels, facts.iterrows()):
            visit = who, without_prefix(label or '', 'ses')
            if visit in found or not is_label(visit[1]):
                raise DataError(
                    f'{path}: {SESSION} has {label or MISSING} in {row}; expected one row per '
                    'session, with a label of letters and digits'
                )
            found[visit] = values.dropna().to_dict()
    return found


def with_sessions(people: Table, visits: Mapping[str, Visit]) -> pd.DataFrame:
    """Return the rows of visits; values of `sessions.tsv` files take precedence."""
    known = people.of(visits).text
    values = read_sessions(people.source.parent, (who for who, label in visits.values() if label))
    rows = {name: values[visit] for name, visit in visits.items() if visit in values}
    found = pd.DataFrame.from_dict(rows, orient='index', dtype=object)
    joined = known.reindex(columns=[*dict.fromkeys([*known, *found])]).astype(object)
    joined.update(found)
    return joined.where(joined.notna(), None)


def scan_time(bids_dir: Path, participant: str, session: str | None) -> str | None:
    """Read the earliest acquisition time of the T1w images of a session from `scans.tsv`."""
    folder = bids_dir / f'sub-{participant}' / f'ses-{session}'
    path = folder / f'sub-{participant}_ses-{session}_scans.tsv'
    if not (is_label(participant) and is_label(session) and path.is_file()):
        return None
    scans = read_table(path).text.reindex(columns=['filename', 'acq_time'])
    is_t1w = scans['filename'].str.contains('_T1w.', regex=False, na=False)
    return min(scans['acq_time'][is_t1w].dropna(), default=None)


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
    aliases: Mapping[str, Visit] = MappingProxyType({}),
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
    aliases
        Visits by other names of their scans; see :class:`Table`.

    Raises
    ------
    DataError
        The table cannot be read, or lists someone who is in no other table: a misspelt id would
        leave a participant in the analysis.
    """
    table = _failed(read_table(path))
    column, ids = _ids(table, id_column, named=False)
    session = _session_column(table.columns, column, any(label for _, label in everyone))
    listed = [_visit_by_alias(visit, aliases) for visit in _visits(table, ids, session)]
    known = {*everyone, *((who, None) for who, _ in everyone)}
    unknown = [v for v in listed if (v if knows_sessions else (v[0], None)) not in known]
    if unknown:
        raise DataError(
            f'{path}: {list_briefly(map(visit_name, unknown))}: in none of the other tables; '
            'correct the id or session, or remove the row'
        )
    notes = table.text.loc[:, table.text.columns.str.lower().isin(REASONS)].to_numpy()
    reasons = {
        visit: ': '.join([f'listed in {path.name}', *filter(None, note)][:2])
        for visit, note in zip(listed, notes)
    }
    found = {n: reasons.get(v) or reasons.get((v[0], None)) for n, v in visits.items()}
    return {name: reason for name, reason in found.items() if reason}


def _failed(table: Table) -> Table:
    """Keep the rows with the rating `fail`; all rows without a column of ratings."""
    column = find_column(table.columns, RATING)
    for name in table.columns if column is None else ():
        words = set(table.text[name].dropna().str.lower())
        if words and words <= LIKE_RATINGS and not means(name, 'participant', 'session'):
            raise DataError(
                f'{table.source}: column {name} seems to rate images; call it {RATING} and write '
                'pass, unsure or fail (only fail excludes), or remove it to exclude all rows'
            )
    if column is None:
        return table
    rating = table.text[column].str.lower()
    other = rating[~rating.isin(RATINGS) & rating.notna()]
    if len(other):
        raise DataError(
            f'{table.source}: {other.index[0]} has the {column} {other.iloc[0]!r}; use pass, '
            'unsure or fail (only fail excludes), or remove the column to exclude all rows'
        )
    return table.rows(rating.index[rating == FAIL])
