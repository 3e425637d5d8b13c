"""Order of visits, and the years between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.cautions import PARTICIPANTS, Caution
from surreal_bids.names import (
    CONTROL,
    PARTICIPANT,
    PATIENT,
    SESSION,
    Visit,
    column_of,
    columns_of,
    letters_of,
    visit_name,
)
from surreal_bids.tables import read_sessions, scan_time
from surreal_bids.text import counted, list_briefly

DATE, AGE, NAME = 'date', 'age', 'name'
"""Orderings of visits; the first that distinguishes all visits of a participant is used."""

DAYS_PER_YEAR = 365.25
SECONDS_PER_DAY = 86_400

BEFORE_ALL, AT_START, AFTER, LATER = range(4)
STAGES = {
    **dict.fromkeys(('screening', 'screen', 'sc'), BEFORE_ALL),
    **dict.fromkeys(('baseline', 'base', 'bl', 'pre', 'before', 'test', 'first'), AT_START),
    **dict.fromkeys(('post', 'after'), AFTER),
    **dict.fromkeys(('followup', 'fu', 'retest', 'rescan', 'repeat', 'second'), LATER),
}
"""Words of session labels, by their order in time; a number may follow, as in `post2`."""

MONTHS = {
    **dict.fromkeys(('m', 'mo', 'month', 'months'), 1.0),
    **dict.fromkeys(('y', 'yr', 'year', 'years'), 12.0),
    **dict.fromkeys(('w', 'wk', 'week', 'weeks'), 12 * 7 / DAYS_PER_YEAR),
    **dict.fromkeys(('d', 'day', 'days'), 12 / DAYS_PER_YEAR),
}
"""Months per unit of time in session labels such as `m06`, `12mo` or `y2`."""


def in_order(visits: Iterable[Visit]) -> list[Visit]:
    """Sort visits by participant and session; numbers in labels are sorted by value."""
    return sorted(visits, key=lambda visit: (_natural(visit[0]), _natural(visit[1] or '')))


@cache
def _natural(label: str) -> list[tuple[int, str]]:
    """Return a key that sorts `2` before `10`."""
    parts = re.findall(r'\d+|\D+', label)
    return [(int(part), '') if part.isdecimal() else (-1, part) for part in parts]


def visit_columns(visits: Iterable[Visit], prefix: str = 'sub-') -> pd.DataFrame:
    """Return `participant_id` and, if there are sessions, `session_id`, by the names of visits."""
    visits = list(visits)
    columns: dict[str, list[str | None]] = {
        PARTICIPANT: [f'{prefix}{participant}' for participant, _ in visits]
    }
    if any(session for _, session in visits):
        columns[SESSION] = [f'ses-{session}' if session else None for _, session in visits]
    return pd.DataFrame(columns, index=[visit_name(visit, prefix) for visit in visits])


def of_sessions(visits: Iterable[Visit], labels: Iterable[str]) -> list[Visit]:
    """Keep visits of these sessions and visits without a session, each once; no label: all."""
    wanted = {label.removeprefix('ses-') for label in labels}
    return [visit for visit in dict.fromkeys(visits) if not wanted or visit[1] in {None, *wanted}]


def order_visits(
    described: pd.DataFrame, visits: Mapping[str, Visit], bids_dir: Path | None
) -> pd.DataFrame:
    """Sort the visits of each participant by time.

    Visits are sorted by date if all visits of a participant have different dates; else by age, if
    all ages are different; else by session label: by its meaning if that is known (`pre` before
    `post`, `bl` before `m06`), else by name, with numbers sorted by value.

    Parameters
    ----------
    described
        Facts about visits, such as dates and ages, as text by the names of visits.
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
    dates = _cells(described, column_of(described, 'date'))
    # The age at baseline may be there too; it does not tell visits apart.
    ages = [_cells(described, name) for name in columns_of(described, 'age')]
    rows = []
    for _, group in groupby(in_order(visits.values()), key=lambda visit: visit[0]):
        own = _by_meaning(list(group))
        labels = [names[visit] for visit in own]
        when = [to_years(dates.get(label)) for label in labels]
        if len(own) > 1 and bids_dir is not None and not _tell_apart(when):
            when = [to_years(scan_time(bids_dir, *visit)) for visit in own]
        times = [(DATE, when)]
        times += [(AGE, [_number(cells.get(label)) for label in labels]) for cells in ages]
        rows += _ordered(labels, times)
    return pd.DataFrame(rows, columns=['visit', 'time', 'order_by']).set_index('visit')


def dataset_order(bids_dir: Path, visits: Iterable[Visit]) -> list[Visit]:
    """Sort the visits of a dataset as `order_visits` does, by its sessions.tsv and scans.tsv."""
    names = {visit_name(visit): visit for visit in visits}
    values = read_sessions(bids_dir, (who for who, session in names.values() if session))
    rows = {name: values.get(visit, {}) for name, visit in names.items()}
    cells = pd.DataFrame.from_dict(rows, orient='index', dtype=object).reindex(list(names))
    ordered = order_visits(cells.where(cells.notna(), None), names, bids_dir)
    return [names[name] for name in ordered.index]


def _by_meaning(visits: Sequence[Visit]) -> Sequence[Visit]:
    """Sort visits of one participant by the meaning of their labels; as they are if unknown."""
    stages = [_stage(session or '') for _, session in visits]
    if len(visits) < 2 or not _are_understood(stages):
        return visits
    return [visit for _, visit in sorted(zip(stages, visits))]


def _stage(session: str) -> tuple[float, float, str]:
    """Return stage, number and scale of a session label, such as `LATER, 6, months` for `m06`.

    The scale is empty for words that can be compared with all others, and `?` if a label has no
    known meaning.
    """
    label = letters_of(session)
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
    return all(map(np.isfinite, times)) and len(set(times)) == len(times)


def _cells(described: pd.DataFrame, column: str | None) -> Mapping[str, str | None]:
    """Return the cells of a column by visit; empty without a column."""
    return {} if column is None else dict(zip(described.index, described[column]))


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
        return float((cell or 'nan').removesuffix('+'))
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


def describe_order(visits: pd.DataFrame) -> list[str]:
    """Describe how the visits of participants with several visits (`add_years`) are sorted."""
    several = visits.loc[visits[PARTICIPANT].duplicated(), PARTICIPANT]
    first = visits[visits[PARTICIPANT].isin(several) & visits['is_first']]
    how = [f'by {by} in {n}' for by, n in first['order_by'].value_counts().items()]
    return [
        f'Visits: {counted(len(first), "participant")} with several visits, sorted '
        f'{", ".join(how)}; models learn from the first visit only'
    ] * bool(how)


LONG_YEARS = 0.5
"""Time between visits after which an unchanged age must be wrong."""


def warn_of_visits(
    visits: pd.DataFrame, described: pd.DataFrame, people: pd.DataFrame
) -> Iterator[Caution]:
    """Warn of visits whose order, group or age may be wrong.

    Parameters
    ----------
    visits
        Result of :func:`add_years`.
    described, people
        Facts about the same visits: all of them as text, and covariates.
    """
    several = visits[visits[PARTICIPANT].duplicated(keep=False)]
    dates = _cells(described, column_of(described, 'date'))
    unread = {n: dates[n] for n in several.index if dates.get(n) and np.isnan(to_years(dates[n]))}
    if unread:
        listed = list_briefly((f'{name} ({date})' for name, date in unread.items()), 3)
        yield Caution(
            f'Dates of {listed} are not written like 2019-03-31',
            'They were not used to sort visits, and the first visit may be another one',
            'Correct them',
            PARTICIPANTS,
        )
    yield from _doubtful_order(several)
    column = column_of(people, 'age')
    if column is not None:
        yield from _unchanged_age(several, people.loc[several.index, column])


def _doubtful_order(several: pd.DataFrame) -> Iterator[Caution]:
    """Warn of visits in the order of labels without a known meaning, and of cured patients."""
    unclear = {}
    for who, own in several.groupby(PARTICIPANT, sort=False) if SESSION in several else ():
        stages = [_stage(str(label).removeprefix('ses-')) for label in own[SESSION]]
        if own['order_by'].iloc[0] == NAME and not _are_understood(stages):
            unclear[who] = ', '.join(own[SESSION])
    if unclear:
        labels = next(iter(unclear.values()))
        yield Caution(
            f'Visits of {list_briefly(unclear, 5)} are sorted by name ({labels})',
            'This may not be their order in time, and the first visit may be another one',
            'Add dates or ages (sessions.tsv)',
            PARTICIPANTS,
        )
    group = several.get('group', pd.Series(dtype=object)).dropna()
    before = group.groupby(several[PARTICIPANT].reindex(group.index)).shift()
    recovered = group.index[(before == PATIENT) & (group == CONTROL)]
    wrong = several.loc[recovered, PARTICIPANT].unique()
    if len(wrong):
        yield Caution(
            f'Diagnosis: {list_briefly(wrong, 5)} changed from patient to control between visits',
            'The group of the first visit is used, which may be wrong',
            'Correct the diagnosis or the order of visits if this is an error',
            PARTICIPANTS,
        )


def _unchanged_age(several: pd.DataFrame, age: pd.Series) -> Iterator[Caution]:
    """Warn of ages that do not change: ageing between visits looks like disease."""
    who = several[PARTICIPANT]
    ages, years = age.groupby(who), several['years'].groupby(who).max()
    same = (ages.max() == ages.min()) & ~(years <= LONG_YEARS)
    if same.any():
        yield Caution(
            f'{age.name} is the same at all visits of {list_briefly(same.index[same], 5)}, '
            'although these are more than half a year apart or undated',
            'Ageing may look like disease',
            f'Add {age.name} of each visit (sessions.tsv)',
            PARTICIPANTS,
        )
