"""Tables about participants: read as text, typed, and joined with sessions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.columns import column_of, sex_of
from surreal_bids.exceptions import DataError, MissingColumnError
from surreal_bids.files import MISSING, read_file
from surreal_bids.names import PARTICIPANT, SESSION, Visit, is_label, without_prefix
from surreal_bids.text import alternatives, counted, list_briefly

MISSING_CELLS = frozenset({'', 'n/a', 'na', 'nan', 'null'})
"""Spellings of missing values in BIDS, R, numpy and databases, in lower case."""

SEPARATORS = ('\t', ',', ';')
"""Separators of cells; the first one that occurs in the header is used."""

MAGIC = {
    b'PK\x03\x04': 'an Excel or zip file; save the sheet as .csv or .tsv',
    b'\x1f\x8b': 'a compressed file; unpack it (gunzip)',
    b'\xff\xfe': 'text in UTF-16; save it as UTF-8',
    b'\xfe\xff': 'text in UTF-16; save it as UTF-8',
    b'version https://git-lfs': 'a git LFS pointer, not the file; fetch it (git lfs pull)',
    b'/annex/objects': 'a git-annex pointer, not the file; fetch it (datalad get)',
}
"""First bytes of files that are not tables, with the remedy."""

_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?', re.ASCII)
_PADDED = re.compile(r'0\d+')
_COMMA = re.compile(r'[+-]?\d+,\d+')
_WHOLE_NUMBER = re.compile(r'([+-]?\d+)\.0+')
_FREESURFER = re.compile(r'Measure:\w+|[lr]h\.\S+')


@dataclass(frozen=True)
class Table:
    """A table of text, with methods that convert columns to the needed type.

    The text is kept because `1` can be a number or the name of a site.

    Attributes
    ----------
    source
        File name, for messages.
    text
        Cells as text, None where missing. The index names the rows in messages.
    joined
        Files of the columns that come from another file than `source`.
    """

    source: Path
    text: pd.DataFrame
    joined: Mapping[str, Path] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.text)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.text.columns)

    @property
    def own_columns(self) -> list[str]:
        """Names of the columns that `source` contains, except sessions."""
        return [name for name in self.columns if name not in {SESSION, *self.joined}]

    @property
    def also_lacking(self) -> str:
        """Part of a message about a missing column: the other files."""
        files = dict.fromkeys(map(str, self.joined.values()))
        return f' (nor in {", ".join(files)})' if files else ''

    def source_of(self, name: str) -> Path:
        """Return the file that contains a column."""
        return self.joined.get(name, self.source)

    def rows(self, names: Sequence[str]) -> Table:
        """Keep these rows, in this order."""
        return replace(self, text=self.text.loc[list(names)])

    def require(self, names: Iterable[str]) -> None:
        """Raise an error if a column is missing."""
        missing = [name for name in names if name not in self.text]
        if missing:
            raise DataError(
                f'{self.source}: no column {", ".join(missing)}; '
                f'{alternatives(missing, self.columns)}'
            )

    def categories(self, name: str) -> pd.Series:
        """Return a column as text, None where missing."""
        self.require([name])
        return self.text[name]

    def numbers(self, name: str) -> pd.Series:
        """Return a column as floating-point numbers, NaN where missing."""
        cells = self.categories(name)
        values = _to_numbers(cells)
        wrong = cells.notna() & ~np.isfinite(values)
        if wrong.any():
            where = str(wrong.idxmax())
            remedy = f'correct it, or write {MISSING} if it is unknown'
            if _COMMA.fullmatch(cells[where]):
                remedy = 'use a decimal point and no thousands separators'
            raise DataError(
                f'{self.source_of(name)}: column {name} should hold numbers, but {where} has '
                f'"{cells[where]}"; {remedy}'
            )
        return values

    def typed(self) -> pd.DataFrame:
        """Return all columns, as numbers if every value is a number, else as text.

        Identifiers and whole numbers with leading zeros (`001`) stay text.
        """
        cells = {
            name: self.text[name] for name in self.columns if name not in (PARTICIPANT, SESSION)
        }
        numbers = {name: _to_numbers(column) for name, column in cells.items()}
        return self.text.assign(
            **{name: each for name, each in numbers.items() if _all_numbers(cells[name], each)}
        )


def _to_numbers(cells: pd.Series) -> pd.Series:
    """Convert cells with ASCII digits to numbers, possibly infinite; NaN for all others."""
    is_number = _NUMBER.fullmatch
    values = [
        float(cell) if isinstance(cell, str) and is_number(cell) else np.nan
        for cell in cells.to_numpy()
    ]
    return pd.Series(values, cells.index, dtype=np.float64, name=cells.name)


def _all_numbers(cells: pd.Series, values: pd.Series) -> bool:
    """Check whether a column holds only numbers, and no labels such as `001`."""
    known = cells.notna().to_numpy()
    if not known.any() or not np.isfinite(values.to_numpy()[known]).all():
        return False
    return not any(map(_PADDED.fullmatch, cells.to_numpy()[known]))


def read_table(path: Path) -> Table:
    """Read a table with a header; rows are indexed by their line.

    Cells are separated by tabs, commas or semicolons. They stay text, None where missing.

    Raises
    ------
    DataError
        The file cannot be read, is not a table in UTF-8, has rows of different lengths, or repeats
        a column.
    """
    rows = _read_rows(path)
    header = rows.pop(min(rows), None) if rows else None
    if header is None:
        raise DataError(f'{path}: the table is empty; it needs a header and rows below it')
    header, rows = _without_empty_columns(header, rows)
    _check_shape(path, header, rows)
    again = [line for line, row in rows.items() if row == header]
    if again:
        raise DataError(f'{path}: line {again[0]} repeats the header; remove it')
    cells = [[None if c.lower() in MISSING_CELLS else c for c in row] for row in rows.values()]
    return Table(path, pd.DataFrame(cells, [f'line {n}' for n in rows], header, dtype=object))


def _without_empty_columns(
    header: list[str], rows: dict[int, list[str]]
) -> tuple[list[str], dict[int, list[str]]]:
    """Remove columns at the end without a name and values, which spreadsheets add."""
    while (
        header
        and not header[-1]
        and all(len(r) == len(header) > 1 and not r[-1] for r in rows.values())
    ):
        header, rows = header[:-1], {line: row[:-1] for line, row in rows.items()}
    return header, rows


def _check_shape(path: Path, header: list[str], rows: dict[int, list[str]]) -> None:
    """Refuse repeated or broken column names, and rows of different lengths."""
    folded = [name.lower() for name in header]
    repeated = sorted({name for name in header if name and folded.count(name.lower()) > 1})
    if repeated:
        raise DataError(
            f'{path}: more than one column {list_briefly(repeated)}; rename or remove one'
        )
    if header.count('') > 1:
        raise DataError(f'{path}: {header.count("")} columns have no name; name or remove them')
    broken = [name for name in header if not name.isprintable()]
    if broken:
        raise DataError(
            f'{path}: the column name {broken[0]!r} holds control characters; remove them'
        )
    for line, row in rows.items():
        if len(row) != len(header):
            raise DataError(
                f'{path}: line {line} has {counted(len(row), "cell")}, but the header has '
                f'{len(header)}; write {MISSING} for a missing value, and quote cells that hold '
                'the separator'
            )


def _read_rows(path: Path) -> dict[int, list[str]]:
    """Read rows by line number; empty lines are skipped."""
    try:
        text = _decode(path, read_file(path))
        first = text.lstrip().partition('\n')[0]
        separator = next((mark for mark in SEPARATORS if mark in first), SEPARATORS[0])
        reader = csv.reader(io.StringIO(text, newline=''), delimiter=separator, strict=True)
        numbered = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
        if '\0' in text:
            raise DataError(f'{path}: holds bytes that are not text; save it again as .tsv or .csv')
    except OSError as error:
        raise DataError(f'{path}: cannot be read ({error.strerror})') from error
    except UnicodeDecodeError as error:
        raise DataError(
            f'{path}: not a table in UTF-8 text ({error}); save it as .tsv or .csv'
        ) from error
    except csv.Error as error:
        raise DataError(
            f'{path}: the table cannot be read ({error}); look for a quoted cell that does not end'
        ) from error
    return {line: row for line, row in numbered if any(row)}


def _decode(path: Path, content: bytes) -> str:
    """Decode a text file; refuse files that are known to be something else."""
    found = next((what for start, what in MAGIC.items() if content.startswith(start)), None)
    if found:
        raise DataError(f'{path}: this is {found}')
    return content.decode('utf-8-sig')


def find_id_column(table: Table, wanted: str | None = None) -> str:
    """Find the column of participant ids, by its name or as named by the user."""
    if wanted is not None:
        return require_columns(table, [wanted], '; correct --id-column')[wanted]
    if table.columns and _FREESURFER.fullmatch(table.columns[0]):
        return table.columns[0]
    found = column_of(table.columns, 'participant')
    if found is None:
        raise DataError(
            f'{table.source}: no column {PARTICIPANT}; name the column of ids with --id-column '
            f'({alternatives([PARTICIPANT], table.columns)})'
        )
    return found


def read_participants(bids_dir: Path) -> Table:
    """Read `participants.tsv`, with labels without `sub-` as `participant_id`."""
    path = bids_dir / 'participants.tsv'
    if not path.is_file():
        raise DataError(
            f'{path}: no such file; add it with a column {PARTICIPANT} and one row per participant'
        )
    return _with_labels(read_table(path), PARTICIPANT, 'sub')


def read_sessions(bids_dir: Path, participant: str) -> Table | None:
    """Read the `sessions.tsv` of a participant; None if there is none."""
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
            f'{prefix}-<label> with a label of letters and digits'
        )
    repeated = labels[labels.duplicated()].unique()
    if len(repeated):
        lines = labels.index[labels == repeated[0]]
        raise DataError(
            f'{table.source}: {len(lines)} rows have {name} {prefix}-{repeated[0]} '
            f'({", ".join(lines)}); keep one of them'
        )
    return Table(table.source, table.text.assign(**{name: labels}))


def read_visits(bids_dir: Path, visits: Sequence[Visit]) -> Table:
    """Read the columns of participants and sessions for each visit.

    If both files have a column, such as age, `sessions.tsv` takes precedence.

    Parameters
    ----------
    bids_dir
        Root of the dataset.
    visits
        Labels of participant and session; the result has one row for each, in this order.
    """
    participants = read_participants(bids_dir)
    rows = participants.text.set_index(PARTICIPANT)
    absent = list(dict.fromkeys(label for label, _ in visits if label not in rows.index))
    if absent:
        raise DataError(
            f'{participants.source}: no row for {", ".join(f"sub-{label}" for label in absent)}; '
            'add it, or select other participants with --participant-label'
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
    """Read the values of a session from `sessions.tsv`; empty if there is none."""
    table = read_sessions(bids_dir, participant) if session else None
    if table is None:
        return {}
    row = table.text[table.text[SESSION] == session]
    return {} if row.empty else row.iloc[0].drop(SESSION).dropna().to_dict()


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
    is_t1w = table.categories('filename').str.contains('_T1w.', regex=False, na=False)
    return min(table.categories('acq_time')[is_t1w].dropna(), default=None)


def age_and_sex(bids_dir: Path, visit: Visit) -> tuple[float | None, str | None]:
    """Read age in years and sex ('F' or 'M') at a visit; None if unknown."""
    try:
        row = read_visits(bids_dir, [visit]).text.iloc[0]
    except DataError:
        return None, None
    age, sex = (row.get(column_of(row.index, meaning)) for meaning in ('age', 'sex'))
    years = float(_to_numbers(pd.Series([age])).iloc[0])
    return (years if np.isfinite(years) else None), sex_of(sex or '')


def find_column(columns: Iterable[str], name: str) -> str | None:
    """Find a column by its exact name, else by the only name that differs in case alone."""
    columns = list(columns)
    if name in columns:
        return name
    similar = [column for column in columns if column.lower() == name.lower()]
    return similar[0] if len(similar) == 1 else None


def require_columns(table: Table, names: Iterable[str], remedy: str = '') -> dict[str, str]:
    """Find the column of each name as :func:`find_column` does, or raise an error.

    `remedy` ends the message.
    """
    found = {name: find_column(table.columns, name) for name in names}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise MissingColumnError(
            f'{table.source}: no column {list_briefly(missing)}{table.also_lacking}; '
            f'{alternatives(missing, table.own_columns)}{remedy}'
        )
    return {name: column for name, column in found.items() if column is not None}


def names(table: Table, column: str) -> pd.Series:
    """Return a column as names of groups or sites, None where missing; `3.0` becomes `3`.

    Programs that read names as numbers write `3.0` if any value is missing.
    """
    cells = table.categories(column)
    return pd.Series([_name(cell) for cell in cells], cells.index, dtype=object, name=column)


def _name(cell: str | None) -> str | None:
    whole = None if cell is None else _WHOLE_NUMBER.fullmatch(cell)
    return cell if whole is None else whole.group(1)


@contextmanager
def prefix_errors(source: Path | str) -> Iterator[None]:
    """Prefix DataErrors with a file, or what else they concern, unless they contain it."""
    try:
        yield
    except DataError as error:
        if str(source) in str(error):
            raise
        raise DataError(f'{source}: {error}') from error
