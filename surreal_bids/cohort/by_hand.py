"""Participants whom a user excludes, for example because their images failed quality control."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from surreal_bids.bids.tabular import Table, find_column, find_id_column, read_table
from surreal_bids.cohort.plausibility import Reasons
from surreal_bids.cohort.reader import own_id_column, parse_visit
from surreal_bids.columns import column_of
from surreal_bids.exceptions import DataError
from surreal_bids.names import Visit, visit_name
from surreal_bids.text import list_briefly

REASONS, RATING = ('reason', 'note'), 'rating'
"""Columns of a list of exclusions; of several reasons, the first counts."""

FAIL, RATINGS = 'fail', ('pass', 'unsure', 'fail')
"""Rating that excludes an image, and all ratings; reports of participants write them."""


def read_exclusions(
    path: Path,
    visits: Mapping[str, Visit],
    everyone: Collection[Visit],
    id_column: str | None = None,
    knows_sessions: bool = True,
) -> Reasons:
    """Read a list of exclusions.

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

    Returns
    -------
    dict
        Reasons by the name of the visit.

    Raises
    ------
    DataError
        The table cannot be read, or lists someone who is in no other table: a misspelt id would
        leave a participant in the analysis.
    """
    table = _failed(read_table(path))
    if not len(table):
        return {}
    listed = _listed_visits(table, id_column, any(session for _, session in everyone))
    _require_known(path, listed.values(), everyone, knows_sessions)
    reason_of = _reasons(table, listed)
    found = {
        name: reason_of.get(visit) or reason_of.get((visit[0], None))
        for name, visit in visits.items()
    }
    return {name: reason for name, reason in found.items() if reason is not None}


def _failed(table: Table) -> Table:
    """Keep the rows with the rating `fail`; all rows without a column of ratings."""
    column = find_column(table.columns, RATING)
    if column is None:
        return table
    ratings = table.categories(column).str.lower()
    other = ratings[~ratings.isin(RATINGS) & ratings.notna()]
    if len(other):
        raise DataError(
            f'{table.source}: {other.index[0]} has the {column} {other.iloc[0]!r}; use pass, '
            'unsure or fail (only fail excludes), or remove the column to exclude all rows'
        )
    return table.rows(list(ratings.index[ratings == FAIL]))


def _require_known(
    path: Path, listed: Iterable[Visit], everyone: Collection[Visit], knows_sessions: bool
) -> None:
    """Refuse visits that are in no other table."""
    known = {*everyone, *((participant, None) for participant, _ in everyone)}
    unknown = [
        visit_name(visit)
        for visit in listed
        if visit not in known and (knows_sessions or (visit[0], None) not in known)
    ]
    if unknown:
        raise DataError(
            f'{path}: {list_briefly(unknown)} is in none of the other tables; correct the id or '
            'session, or remove the row'
        )


def _reasons(table: Table, listed: Mapping[str, Visit]) -> dict[Visit, str]:
    """Return why each visit is excluded: the list, and what it says."""
    columns = [find_column(table.columns, name) for name in reversed(REASONS)]
    told: dict[Any, str] = {}
    for column in filter(None, columns):
        told |= table.categories(column).dropna().to_dict()
    return {
        visit: ': '.join(filter(None, (f'listed in {table.source.name}', told.get(row))))
        for row, visit in listed.items()
    }


def _listed_visits(table: Table, id_column: str | None, has_sessions: bool) -> dict[str, Visit]:
    """Return the visit of each row; a column such as `wave` counts where there are sessions."""
    ids = table.categories(find_id_column(table, own_id_column(table.source, id_column)))
    if ids.isna().any():
        raise DataError(f'{table.source}: {ids.index[ids.isna()][0]} has no {ids.name}; add it')
    column = column_of(table.columns, 'session')
    if column is None and has_sessions:
        column = column_of(table.columns, 'repeat')
    sessions = [None] * len(ids) if column is None else table.categories(column).tolist()
    return {str(row): parse_visit(*cells) for row, *cells in zip(ids.index, ids, sessions)}
