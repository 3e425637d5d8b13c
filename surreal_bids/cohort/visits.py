"""When participants were seen: the order of their visits, and the years between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.bids.layout import Visit, visit_name
from surreal_bids.bids.tabular import PARTICIPANT, Table, scan_time, session_values
from surreal_bids.cohort.volumes import in_order
from surreal_bids.columns import Meaning, column_of
from surreal_bids.text import counted, list_briefly

DATE, AGE, NAME = 'date', 'age', 'name'
"""What orders the visits of a participant: the first of these that tells all of them apart."""

DAYS_PER_YEAR = 365.25
SECONDS_PER_DAY = 86_400


def order_visits(
    described: Table, visits: Mapping[str, Visit], bids_dir: Path | None
) -> pd.DataFrame:
    """Put the visits of each participant in the order in which they took place.

    By date, if all visits of the participant have one and no two are the same; else by age, on the
    same condition; else by the name of the session, numbers in it by their value.

    Parameters
    ----------
    described
        What is known of visits, indexed by their names: dates and ages, if there are any.
    visits
        Participant and session of each.
    bids_dir
        Where `scans.tsv` files may have the dates that `described` lacks, or has of one visit only;
        None: there are none.

    Returns
    -------
    DataFrame, indexed by the names of visits, in order
        `time` in years since some fixed day, or age; NaN where visits are ordered by name.
        `order_by`: date, age or name.
    """
    names = {visit: name for name, visit in visits.items()}
    dates, ages = _cells(described, 'date'), _cells(described, 'age')
    rows = []
    for _, group in groupby(in_order(visits.values()), key=lambda visit: visit[0]):
        own = list(group)
        by_date = [_years(dates.get(names[visit])) for visit in own]
        if len(own) > 1 and bids_dir is not None and not _tell_apart(by_date):
            by_date = [_years(scan_time(bids_dir, *visit)) for visit in own]
        by_age = [_number(ages.get(names[visit])) for visit in own]
        rows += _ordered([names[visit] for visit in own], {DATE: by_date, AGE: by_age})
    return pd.DataFrame(rows, columns=['visit', 'time', 'order_by']).set_index('visit')


def dataset_order(bids_dir: Path, visits: Iterable[Visit]) -> list[Visit]:
    """Visits of a dataset in the order of `order_visits`, as far as its own files tell.

    These are `sessions.tsv` and `scans.tsv`; without dates or ages, names of sessions count.
    """
    names = {visit_name(visit): visit for visit in visits}
    values = {name: session_values(bids_dir, *visit) for name, visit in names.items()}
    cells = pd.DataFrame.from_dict(values, orient='index', dtype=object).reindex(list(names))
    described = Table(bids_dir, cells.where(cells.notna(), None))
    return [names[name] for name in order_visits(described, names, bids_dir).index]


def _ordered(
    names: Sequence[str], times: Mapping[str, Sequence[float]]
) -> list[tuple[str, float, str]]:
    """Visits of one participant in order, with their times and where these are from."""
    for order_by, values in times.items():
        if _tell_apart(values):
            return [(name, time, order_by) for time, name in sorted(zip(values, names))]
    return [(name, np.nan, NAME) for name in names]


def _tell_apart(times: Sequence[float]) -> bool:
    """Whether all are known, and no two the same."""
    return bool(np.isfinite(times).all()) and len(set(times)) == len(times)


def _cells(described: Table, meaning: Meaning) -> Mapping[str, str | None]:
    """Return the cells of the column with a meaning, by visit; empty without such a column."""
    found = column_of(described.columns, meaning)
    return {} if found is None else dict(zip(described.text.index, described.categories(found)))


def _years(cell: str | None) -> float:
    """A date in years since the year 1; NaN where it is missing or not written as in BIDS."""
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
    """Add to visits that are in order which is the first, and the years since then.

    Parameters
    ----------
    visits
        One row per visit, with `participant_id`.
    times
        What :func:`order_visits` returned.

    Returns
    -------
    DataFrame
        `visits` with `is_first`; `order_by`; and `years`, missing where visits are ordered by name.
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
    """Say how the visits of participants with several are ordered, and which is learned from.

    Parameters
    ----------
    visits
        What :func:`add_years` returned.
    described
        What is known of visits, where dates that cannot be read are looked for.
    learns
        Whether anything is learned from these participants, be it only their sites.
    """
    several = set(visits.loc[visits[PARTICIPANT].duplicated(), PARTICIPANT])
    if not several:
        return []
    first = visits[visits[PARTICIPANT].isin(several) & visits['is_first']]
    counts = first['order_by'].value_counts()
    how = ', '.join(f'by {by} in {counts[by]}' for by in (DATE, AGE, NAME) if by in counts)
    notes = [
        f'Visits: {counted(len(several), "participant")} with several, ordered {how}'
        + ('; the first is learned from' if learns else '')
    ]
    dates = _cells(described, 'date')
    wrong = [f'{name} ({cell})' for name, cell in dates.items() if cell and np.isnan(_years(cell))]
    if wrong:
        notes.append(f'Dates not used, since not written as 2019-03-31: {list_briefly(wrong, 3)}')
    return notes


LONG_YEARS = 0.5
"""Time between visits after which an age that has not changed is that of another visit."""


def warn_of_ages(visits: pd.DataFrame, people: pd.DataFrame) -> list[str]:
    """Warn of ages that are the same at visits that may lie far apart, or fall from visit to visit.

    Of the former, later visits are compared with controls who are too young, and ageing passes for
    disease; of the latter, either the ages or the dates are wrong.

    Parameters
    ----------
    visits
        What :func:`add_years` returned.
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
            f'{column} is the same at all visits of {who}, which lie more than half a year apart, '
            f'or at times that are not known, so that ageing may look like disease; give {column} '
            'of each visit (sessions.tsv)'
        )
    if len(falling):
        warnings.append(
            f'{column} falls from one visit to a later one in {list_briefly(falling, 5)}: dates or '
            'ages are wrong, and with them perhaps which visit is the first; correct them'
        )
    return warnings
