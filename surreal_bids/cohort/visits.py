"""Order of visits, and the years between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.bids.layout import Visit, visit_name
from surreal_bids.bids.tabular import PARTICIPANT, Table, scan_time, session_values
from surreal_bids.cohort.reader import in_order
from surreal_bids.columns import column_of, columns_of
from surreal_bids.text import counted, list_briefly

DATE, AGE, NAME = 'date', 'age', 'name'
"""Orderings of visits; the first that distinguishes all visits of a participant is used."""

DAYS_PER_YEAR = 365.25
SECONDS_PER_DAY = 86_400


def order_visits(
    described: Table, visits: Mapping[str, Visit], bids_dir: Path | None
) -> pd.DataFrame:
    """Sort the visits of each participant by time.

    Visits are sorted by date if all visits of a participant have different dates; else by age, if
    all ages are different; else by session label, with numbers in labels sorted by value.

    Parameters
    ----------
    described
        Facts about visits, such as dates and ages, indexed by the names of visits.
    visits
        Participant and session of each visit, by name.
    bids_dir
        Dataset with `scans.tsv` files, which are used if `described` lacks dates; None: there is
        no dataset.

    Returns
    -------
    DataFrame, indexed by the names of visits, in order
        `time` in years since a fixed day, or age; NaN if visits are sorted by name.
        `order_by`: date, age or name.
    """
    names = {visit: name for name, visit in visits.items()}
    dates = _cells(described, column_of(described.columns, 'date'))
    # The age at baseline may be there too; it does not tell visits apart.
    ages = [_cells(described, name) for name in columns_of(described.columns, 'age')]
    rows = []
    for _, group in groupby(in_order(visits.values()), key=lambda visit: visit[0]):
        own = list(group)
        labels = [names[visit] for visit in own]
        times = [(DATE, _dates(own, labels, dates, bids_dir))]
        times += [(AGE, [_number(cells.get(label)) for label in labels]) for cells in ages]
        rows += _ordered(labels, times)
    return pd.DataFrame(rows, columns=['visit', 'time', 'order_by']).set_index('visit')


def _dates(
    visits: Sequence[Visit],
    labels: Sequence[str],
    cells: Mapping[str, str | None],
    bids_dir: Path | None,
) -> list[float]:
    """Return the dates of a participant's visits: from a column, else from scans.tsv."""
    dates = [_years(cells.get(label)) for label in labels]
    if len(visits) > 1 and bids_dir is not None and not _tell_apart(dates):
        return [_years(scan_time(bids_dir, *visit)) for visit in visits]
    return dates


def dataset_order(bids_dir: Path, visits: Iterable[Visit]) -> list[Visit]:
    """Sort the visits of a dataset as `order_visits` does, by its sessions.tsv and scans.tsv."""
    names = {visit_name(visit): visit for visit in visits}
    values = {name: session_values(bids_dir, *visit) for name, visit in names.items()}
    cells = pd.DataFrame.from_dict(values, orient='index', dtype=object).reindex(list(names))
    described = Table(bids_dir, cells.where(cells.notna(), None))
    return [names[name] for name in order_visits(described, names, bids_dir).index]


def _ordered(
    names: Sequence[str], times: Sequence[tuple[str, Sequence[float]]]
) -> list[tuple[str, float, str]]:
    """Sort the visits of one participant; return name, time and ordering of each."""
    for order_by, values in times:
        if _tell_apart(values):
            return [(name, time, order_by) for time, name in sorted(zip(values, names))]
    return [(name, np.nan, NAME) for name in names]


def _tell_apart(times: Sequence[float]) -> bool:
    """Check whether all times are known and different."""
    return bool(np.isfinite(times).all()) and len(set(times)) == len(times)


def _cells(described: Table, column: str | None) -> Mapping[str, str | None]:
    """Return the cells of a column by visit; empty without a column."""
    return {} if column is None else dict(zip(described.text.index, described.categories(column)))


def _years(cell: str | None) -> float:
    """Convert a date to years since the year 1; NaN if it is missing or not in BIDS format."""
    try:
        date = datetime.fromisoformat(cell or '').replace(tzinfo=None)
    except ValueError:
        return np.nan
    return (date - datetime.min).total_seconds() / SECONDS_PER_DAY / DAYS_PER_YEAR


def _number(cell: str | None) -> float:
    try:
        return float(cell or 'nan')
    except ValueError:
        return np.nan


def add_years(visits: pd.DataFrame, times: pd.DataFrame) -> pd.DataFrame:
    """Mark the first visit of each participant, and add the years since then.

    Parameters
    ----------
    visits
        One row per visit in order of time, with `participant_id`.
    times
        Result of :func:`order_visits`.

    Returns
    -------
    DataFrame
        `visits` with `is_first`, `order_by`, and `years`, missing if visits are sorted by name.
    """
    is_first = ~visits[PARTICIPANT].duplicated()
    time = times['time'].reindex(visits.index)
    start = dict(zip(visits.loc[is_first, PARTICIPANT], time[is_first]))
    return visits.assign(
        is_first=is_first,
        order_by=times['order_by'].reindex(visits.index),
        years=time - visits[PARTICIPANT].map(start),
    )


def describe_order(visits: pd.DataFrame, described: Table, learns: bool = True) -> list[str]:
    """Describe how the visits of participants with several visits are sorted.

    Parameters
    ----------
    visits
        Result of :func:`add_years`.
    described
        Facts about visits, checked for dates that cannot be read.
    learns
        Whether a model learns from these participants, at least their sites.
    """
    several = set(visits.loc[visits[PARTICIPANT].duplicated(), PARTICIPANT])
    if not several:
        return []
    first = visits[visits[PARTICIPANT].isin(several) & visits['is_first']]
    counts = first['order_by'].value_counts()
    how = ', '.join(f'by {by} in {counts[by]}' for by in (DATE, AGE, NAME) if by in counts)
    notes = [
        f'Visits: {counted(len(several), "participant")} with several visits, sorted {how}'
        + ('; models learn from the first visit only' if learns else '')
    ]
    dates = _cells(described, column_of(described.columns, 'date'))
    wrong = [f'{name} ({cell})' for name, cell in dates.items() if cell and np.isnan(_years(cell))]
    if wrong:
        notes.append(
            f'Dates ignored because they are not written like 2019-03-31: {list_briefly(wrong, 3)}'
        )
    return notes


LONG_YEARS = 0.5
"""Time between visits after which an unchanged age must be wrong."""


def warn_of_ages(visits: pd.DataFrame, people: pd.DataFrame) -> list[str]:
    """Warn of ages that do not change between distant visits, or that decrease.

    If the age does not change, later visits are compared with younger controls, and ageing looks
    like disease. If it decreases, ages or dates are wrong.

    Parameters
    ----------
    visits
        Result of :func:`add_years`.
    people
        Covariates of the same visits.
    """
    column = column_of(people, 'age')
    if column is None:
        return []
    age = people[column].groupby(visits[PARTICIPANT])
    years = visits['years'].groupby(visits[PARTICIPANT]).max()
    unchanged = (age.max() == age.min()) & (age.size() > 1) & ~(years <= LONG_YEARS)
    falling = visits.loc[age.diff() < 0, PARTICIPANT].unique()
    warnings = []
    if unchanged.any():
        who = list_briefly(unchanged.index[unchanged], 5)
        warnings.append(
            f'{column} is the same at all visits of {who}, although these are more than half a '
            f'year apart or undated. Ageing may look like disease; add {column} of each visit '
            '(sessions.tsv)'
        )
    if len(falling):
        warnings.append(
            f'{column} decreases between visits of {list_briefly(falling, 5)}, which shows wrong '
            'dates or ages. The first visit may be wrong too; correct them'
        )
    return warnings
