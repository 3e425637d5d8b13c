"""Tables of people: `participants.tsv` and `sessions.tsv`, typed only when a type is asked for."""

from __future__ import annotations

import csv
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.bids.labels import alternatives, is_label, without_prefix
from surreal_bids.exceptions import DataError
from surreal_bids.files import MISSING

PARTICIPANT = 'participant_id'
SESSION = 'session_id'

GROUP_COLUMNS = ('diagnosis', 'group', 'dx')
"""Columns taken for the diagnosis, in this order and in any case, when none is named."""

_MISSING_CELLS = frozenset({'', MISSING, MISSING.upper()})

Visit = tuple[str, str | None]
"""Labels of a participant and a session, the latter None where there are no sessions."""


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
