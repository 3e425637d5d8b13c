"""Other measures of people, which R-indices are compared with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import pandas as pd

from surreal_bids.bids.participants import Table, Visit
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.tables import name_some
from surreal_bids.tables.visits import read_roi_table, visit_name


def read_others(
    described: Table, used: Collection[str], files: Iterable[Path], visits: Sequence[Visit]
) -> pd.DataFrame:
    """Columns of `participants.tsv` that nothing else uses, then those of other tables, as text.

    Parameters
    ----------
    described
        `participants.tsv`, indexed by the names of visits.
    used
        Its columns that are diagnosis, covariates, ICV or site.
    files
        Tables with `participant_id`, perhaps `session_id`, and measures.
    visits
        Whose measures are wanted; one row for each, in this order.

    Raises
    ------
    DataError
        A table cannot be read, is of other people, or has a column that another one has too.
    """
    names = [visit_name(visit) for visit in visits]
    tables = [described.text.loc[names, [n for n in described.columns if n not in used]]]
    for path in files:
        measures = _read_measures(path, visits)
        twice = [name for table in tables for name in table if name in measures]
        if twice:
            raise DataError(f'{path}: {name_some(twice)} is in another table too; rename it in one')
        tables.append(measures)
    return pd.concat(tables, axis=1)


def _read_measures(path: Path, visits: Sequence[Visit]) -> pd.DataFrame:
    """Rows of a table for these visits; what it says of a person holds for all visits."""
    table = read_roi_table(path)
    of_visit = dict(zip(table.visits, table.table.text.index))
    rows = [of_visit.get(visit) or of_visit.get((visit[0], None)) for visit in visits]
    if not any(rows):
        raise DataError(
            f'{path}: nobody in it is among the {len(visits)} people of the analysis; name people '
            'as in participants.tsv'
        )
    text = table.table.text.reindex(pd.Index(rows, dtype=object))
    return text.set_axis([visit_name(visit) for visit in visits])
