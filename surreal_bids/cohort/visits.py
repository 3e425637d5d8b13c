"""Order of visits, and the years between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.bids.tabular import Table, prefix_errors, scan_time, session_values
from surreal_bids.cautions import PARTICIPANTS, Caution
from surreal_bids.cohort.reader import in_order
from surreal_bids.cohort.requirements import PreprocessingOptions
from surreal_bids.columns import column_of, columns_of, normalise_name
from surreal_bids.exceptions import DataError
from surreal_bids.names import CONTROL, PARTICIPANT, PATIENT, SESSION, Visit, visit_name
from surreal_bids.text import counted, list_briefly

DATE, AGE, NAME = 'date', 'age', 'name'
"""Orderings of visits; the first that distinguishes all visits of a participant is used."""

DAYS_PER_YEAR = 365.25
SECONDS_PER_DAY = 86_400

MAX_ZONE = 14 / 24 / DAYS_PER_YEAR
"""Greatest difference between local time and UTC, in years."""

BEFORE_ALL, AT_START, AFTER, LATER, AT_END = range(5)
STAGES = {
    'screening': BEFORE_ALL, 'screen': BEFORE_ALL, 'sc': BEFORE_ALL, 'scr': BEFORE_ALL,
    'baseline': AT_START, 'base': AT_START, 'bl': AT_START, 'pre': AT_START, 'before': AT_START,
    'initial': AT_START, 'test': AT_START, 'intake': AT_START, 'first': AT_START,
    'post': AFTER, 'after': AFTER, 'followup': LATER, 'fu': LATER, 'retest': LATER,
    'rescan': LATER, 'repeat': LATER, 'second': LATER, 'final': AT_END, 'last': AT_END,
}  # fmt: skip
"""Words of session labels, by their order in time; a number may follow, as in `post2`."""

MONTHS = {
    **dict.fromkeys(('m', 'mo', 'mon', 'month', 'months'), 1.0),
    **dict.fromkeys(('y', 'yr', 'year', 'years'), 12.0),
    **dict.fromkeys(('w', 'wk', 'week', 'weeks'), 12 * 7 / DAYS_PER_YEAR),
    **dict.fromkeys(('d', 'day', 'days'), 12 / DAYS_PER_YEAR),
}
"""Months per unit of time in session labels such as `m06`, `12mo` or `y2`."""


def order_visits(
    described: Table, visits: Mapping[str, Visit], bids_dir: Path | None
) -> pd.DataFrame:
    """Sort the visits of each participant by time.

    Visits are sorted by date if all visits of a participant have different dates; else by age, if
    all ages are different; else by session label: by its meaning if that is known (`pre` before
    `post`, `bl` before `m06`), else by name, with numbers sorted by value.

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

    Raises
    ------
    DataError
        Times with and without a time zone leave the order open.
    """
    names = {visit: name for name, visit in visits.items()}
    dates = _cells(described, column_of(described.columns, 'date'))
    # The age at baseline may be there too; it does not tell visits apart.
    ages = [_cells(described, name) for name in columns_of(described.columns, 'age')]
    rows = []
    for _, group in groupby(in_order(visits.values()), key=lambda visit: visit[0]):
        own = _by_meaning(list(group))
        labels = [names[visit] for visit in own]
        with prefix_errors(described.source):
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
    own = [cells.get(label) for label in labels]
    dates = [to_years(cell) for cell in own]
    if len(visits) > 1 and bids_dir is not None and not _tell_apart(dates):
        own = [scan_time(bids_dir, *visit) for visit in visits]
        dates = [to_years(cell) for cell in own]
    _refuse_mixed_zones(labels, own, dates)
    return dates


def _refuse_mixed_zones(
    labels: Sequence[str], cells: Sequence[str | None], dates: Sequence[float]
) -> None:
    """Refuse times of one day with and without a time zone, whose order is not known."""
    local = [np.isfinite(date) and _has_no_zone(cell) for cell, date in zip(cells, dates)]
    are_near = np.abs(np.subtract.outer(dates, dates)) < MAX_ZONE
    unclear = np.argwhere(are_near & np.not_equal.outer(local, local))
    if len(unclear):
        first, second = unclear[0]
        raise DataError(
            f'{labels[first]} ({cells[first]}) and {labels[second]} ({cells[second]}): one time '
            'has a time zone and the other has none; write both in the same way'
        )


def _has_no_zone(cell: str | None) -> bool:
    return datetime.fromisoformat(cell or '').tzinfo is None


def dataset_order(bids_dir: Path, visits: Iterable[Visit]) -> list[Visit]:
    """Sort the visits of a dataset as `order_visits` does, by its sessions.tsv and scans.tsv."""
    names = {visit_name(visit): visit for visit in visits}
    values = {name: session_values(bids_dir, *visit) for name, visit in names.items()}
    cells = pd.DataFrame.from_dict(values, orient='index', dtype=object).reindex(list(names))
    described = Table(bids_dir, cells.where(cells.notna(), None))
    return [names[name] for name in order_visits(described, names, bids_dir).index]


def _by_meaning(visits: Sequence[Visit]) -> Sequence[Visit]:
    """Sort visits of one participant by the meaning of their labels; as they are if unknown."""
    stages = [_stage(session or '') for _, session in visits]
    if not _are_understood(stages):
        return visits
    return [visit for _, visit in sorted(zip(stages, visits))]


def _stage(session: str) -> tuple[float, float, str]:
    """Return stage, number and scale of a session label, such as `LATER, 6, months` for `m06`.

    The scale is empty for words that can be compared with all others, and `?` if a label has no
    known meaning.
    """
    label = normalise_name(session)
    word, number = label.strip('0123456789'), ''.join(filter(str.isdecimal, label))
    if label not in (word + number, number + word):
        return LATER, 0, '?'
    if word in STAGES:
        return STAGES[word], float(number or 0), 'word' if STAGES[word] == LATER else ''
    if number:
        scale = 'months' if word in MONTHS else f'{word}#'
        return LATER, float(number) * MONTHS.get(word, 1), scale
    return (LATER, ord(word), 'letter') if len(word) == 1 else (LATER, 0, '?')


def _are_understood(stages: Sequence[tuple[float, float, str]]) -> bool:
    """Check whether all stages are known, different, and on one scale."""
    scales = {scale for _, _, scale in stages if scale}
    distinct = {stage[:2] for stage in stages}
    return len(scales) <= 1 and '?' not in scales and len(distinct) == len(stages)


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


def to_years(cell: str | None) -> float:
    """Convert a date to years since the year 1 in UTC; NaN if missing or not in BIDS format."""
    try:
        date = datetime.fromisoformat(cell or '')
        date = date if date.tzinfo is None else date.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
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


CONVERSION = [CONTROL, PATIENT]
"""Groups of a participant who became a patient after the first visit."""


def describe_order(visits: pd.DataFrame, learns: bool = True) -> list[str]:
    """Describe how the visits of participants with several visits are sorted.

    Parameters
    ----------
    visits
        Result of :func:`add_years`.
    learns
        Whether a model learns from these participants, at least their sites.
    """
    several = set(visits.loc[visits[PARTICIPANT].duplicated(), PARTICIPANT])
    if not several:
        return []
    first = visits[visits[PARTICIPANT].isin(several) & visits['is_first']]
    counts = first['order_by'].value_counts()
    how = ', '.join(f'by {by} in {counts[by]}' for by in (DATE, AGE, NAME) if by in counts)
    converted = [who for who, groups in _group_changes(visits) if groups == CONVERSION]
    return [
        f'Visits: {counted(len(several), "participant")} with several visits, sorted {how}'
        + ('; models learn from the first visit only' if learns else '')
        + (f'; {list_briefly(converted, 5)} became a patient after the first' if converted else '')
    ]


def _group_changes(visits: pd.DataFrame) -> Iterator[tuple[str, list[str]]]:
    """Yield each participant with the groups of the visits in order, without repeats."""
    if 'group' not in visits:
        return
    for who, groups in visits['group'].dropna().groupby(visits[PARTICIPANT], sort=False):
        yield str(who), groups[groups != groups.shift()].tolist()


SECRET_BEFORE, FIRST_MRI = 1925, 1970
"""Years: BIDS moves dates that must stay secret to before the first, and nobody was scanned before
the second."""


def warn_of_order(visits: pd.DataFrame, described: Table) -> Iterator[Caution]:
    """Warn of dates that cannot be right, and of visits whose order is not certain.

    Parameters
    ----------
    visits
        Result of :func:`add_years`.
    described
        Facts about visits.
    """
    several = visits[visits[PARTICIPANT].duplicated(keep=False)]
    cells = _cells(described, column_of(described.columns, 'date'))
    dates = {
        f'{name} ({cells[name]})': to_years(cells[name]) for name in visits.index if cells.get(name)
    }
    unread = [text for text, date in dates.items() if np.isnan(date)]
    if unread and len(several):
        yield Caution(
            f'Dates of {list_briefly(unread, 3)} are not written like 2019-03-31',
            'They were not used to sort visits, and the first visit may be another one',
            'Correct them',
            PARTICIPANTS,
        )
    impossible = [text for text, date in dates.items() if _is_impossible(date)]
    if impossible:
        yield Caution(
            f'Dates of {list_briefly(impossible, 3)} are in the future or before {FIRST_MRI}',
            'Visits may be in the wrong order, and changes per year wrong',
            'Correct them',
            PARTICIPANTS,
        )
    yield from _warn_of_groups(several)
    if SESSION in several:
        yield from _warn_of_labels(several)


def _warn_of_groups(several: pd.DataFrame) -> Iterator[Caution]:
    """Warn of patients who become controls."""
    changes = dict(_group_changes(several))
    reverted = [who for who, groups in changes.items() if groups not in ([groups[0]], CONVERSION)]
    if reverted:
        yield Caution(
            f'Diagnosis: {list_briefly(reverted, 5)} changed from patient to control between '
            'visits',
            'The group of the first visit is used, which may be wrong',
            'Correct the diagnosis or the order of visits if this is an error',
            PARTICIPANTS,
        )


def _warn_of_labels(several: pd.DataFrame) -> Iterator[Caution]:
    """Warn of session labels that do not show the order, or contradict dates or ages."""
    unclear: dict[Hashable, str] = {}
    opposite = []
    for who, own in several.groupby(PARTICIPANT, sort=False):
        stages = [_stage(str(label).removeprefix('ses-')) for label in own[SESSION]]
        if not _are_understood(stages):
            if own['order_by'].iloc[0] == NAME:
                unclear[who] = ', '.join(own[SESSION])
        elif stages != sorted(stages):
            opposite.append(who)
    if unclear:
        yield Caution(
            f'Visits of {list_briefly(unclear, 5)} are sorted by name '
            f'({next(iter(unclear.values()))})',
            'This may not be their order in time, and the first visit may be another one',
            'Add dates or ages (sessions.tsv)',
            PARTICIPANTS,
        )
    if opposite:
        yield Caution(
            f'Dates or ages of {list_briefly(opposite, 5)} are not in the order of the session '
            'labels',
            'The first visit may be another one',
            'Correct the dates, the ages or the labels',
            PARTICIPANTS,
        )


def _is_impossible(years: float) -> bool:
    """Check whether a scan cannot have this date, in years since the year 1."""
    tomorrow = to_years(datetime.now(UTC).isoformat()) + 1 / DAYS_PER_YEAR
    return SECRET_BEFORE <= years + 1 < FIRST_MRI or years > tomorrow


LONG_YEARS = 0.5
"""Time between visits after which an unchanged age must be wrong."""


def warn_of_ages(visits: pd.DataFrame, people: pd.DataFrame) -> Iterator[Caution]:
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
        return
    age = people[column].groupby(visits[PARTICIPANT])
    years = visits['years'].groupby(visits[PARTICIPANT]).max()
    unchanged = (age.max() == age.min()) & (age.size() > 1) & ~(years <= LONG_YEARS)
    falling = visits.loc[age.diff() < 0, PARTICIPANT].unique()
    if unchanged.any():
        who = list_briefly(unchanged.index[unchanged], 5)
        yield Caution(
            f'{column} is the same at all visits of {who}, although these are more than half a '
            'year apart or undated',
            'Ageing may look like disease',
            f'Add {column} of each visit (sessions.tsv)',
            PARTICIPANTS,
        )
    if len(falling):
        yield Caution(
            f'{column} decreases between visits of {list_briefly(falling, 5)}',
            'Dates or ages are wrong, and the first visit may be wrong too',
            'Correct them',
            PARTICIPANTS,
        )


MIN_ACROSS_SITES = 5
"""Participants seen at several sites that a comparison of sites within participants needs."""


def learns_from_visits(
    participant: pd.Series, people: pd.DataFrame, options: PreprocessingOptions
) -> bool:
    """Check whether enough participants came to several sites to compare sites within participants.

    Participants count if age is a covariate and differs between their visits: what changes with age
    would otherwise be taken for a difference between sites. Imputation knows the sites of first
    visits only.

    Parameters
    ----------
    participant : Series of shape (n_visits,)
        Who, of those that ComBat is fitted on.
    people : frame of shape (n_visits, n_columns)
        Their covariates and sites.
    options
        Columns, and how ComBat is fitted.
    """
    age = column_of(options.covariates, 'age')
    if age is None or options.site_column is None or options.impute:
        return False
    different = people.groupby(participant)[[age, options.site_column]].nunique().gt(1)
    return int(different.all(axis=1).sum()) >= MIN_ACROSS_SITES
