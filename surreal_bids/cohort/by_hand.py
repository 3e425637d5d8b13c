"""Participants whom a user excludes, for example because their images failed quality control."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from surreal_bids.bids.layout import Visit
from surreal_bids.bids.tabular import find_column, read_table
from surreal_bids.cohort.plausibility import Reasons
from surreal_bids.cohort.reader import own_id_column, read_visit_table
from surreal_bids.exceptions import DataError
from surreal_bids.text import list_briefly

REASON = 'reason'
"""Column of a list of exclusions."""


def read_exclusions(
    path: Path,
    visits: Mapping[str, Visit],
    everyone: Collection[Visit],
    id_column: str | None = None,
) -> Reasons:
    """Read a list of exclusions.

    Parameters
    ----------
    path
        Table with ids and, optionally, sessions and reasons. A row without a session excludes all
        visits of the participant.
    visits
        Visits that may be excluded, by name.
    everyone
        All visits of the other tables.
    id_column
        Column of the ids; by default it is found by its name.

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
    if not len(read_table(path)):
        return {}
    listed = read_visit_table(path, own_id_column(path, id_column))
    row_of = dict(zip(listed.visits, listed.table.text.index))
    known = {*everyone, *((participant, None) for participant, _ in everyone)}
    unknown = [row for visit, row in row_of.items() if visit not in known]
    if unknown:
        raise DataError(
            f'{path}: {list_briefly(unknown)} is in none of the other tables; correct the id or '
            'session, or remove the row'
        )
    column = find_column(listed.table.columns, REASON)
    told = {} if column is None else listed.table.categories(column).dropna().to_dict()
    rows = {
        name: row_of.get(visit) or row_of.get((visit[0], None)) for name, visit in visits.items()
    }
    return {
        name: ': '.join(filter(None, (f'listed in {path.name}', told.get(row))))
        for name, row in rows.items()
        if row is not None
    }
