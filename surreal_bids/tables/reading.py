"""Tables of people as users have them: TSV or CSV, columns in any order, people by their name."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from surreal_bids.bids.labels import alternatives, without_prefix
from surreal_bids.bids.participants import PARTICIPANT, Table
from surreal_bids.exceptions import DataError
from surreal_bids.files import MISSING
from surreal_bids.harmonization.tables import name_some

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
