"""Order of visits, and the years between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pandas as pd

from surreal_bids.cautions import PARTICIPANTS, Caution
from surreal_bids.names import (
    CONTROL,
    PARTICIPANT,
    SESSION,
    Visit,
    columns_of,
    sex_of,
    visit_name,
)
from surreal_bids.tables import Table, read_participants, scan_time, to_numbers, with_sessions
from surreal_bids.text import counted, list_briefly

DATE, AGE, NAME = 'date', 'age', 'name'
"""Orderings of visits; the first that distinguishes all visits of a participant is used."""

DAYS_PER_YEAR = 365.25

LATER = 2
STAGES = {
    **dict.fromkeys(('screening', 'screen', 'sc'), 0),
    **dict.fromkeys(('baseline', 'base', 'bl', 'pre', 'before', 'test', 'first'), 1),
}
"""Words of session labels that come first, by their order in time; all other words come later."""

DAYS = {
    **dict.fromkeys(('w', 'wk', 'week', 'weeks'), 7.0),
    **dict.fromkeys(('m', 'mo', 'month', 'months'), DAYS_PER_YEAR / 12),
    **dict.fromkeys(('y', 'yr', 'year', 'years'), DAYS_PER_YEAR),
}
"""Days per unit of time in session labels such as `m06`, `12mo` or `y2`."""


def in_order(visits: Iterable[Visit]) -> list[Visit]:
    """Sort visits by participant and session: `bl` before `m06`, and numbers by value."""
    return sorted(visits, key=lambda visit: (_natural(visit[0]), _by_stage(visit[1] or '')))


@cache
def _natural(label: str) -> list[tuple[int, str]]:
    """Return a key that sorts `2` before `10`."""
    parts = re.findall(r'\d+|\D+', label)
    return [(int(part), '') if part.isdecimal() else (-1, part) for part in parts]


def _by_stage(session: str) -> tuple[int, float, list[tuple[int, str]]]:
    """Return a key that sorts `pre` before `post`, `M6` before `m12`, and both before `y2`."""
    stage, days = STAGES.get(_word(session), LATER), DAYS.get(_word(session), 0.0)
    number = re.search(r'\d+', session) if days else None
    return stage, days * int(number[0] if number else 0), _natural(session.casefold())


def _word(session: str) -> str:
    """Return the letters of a session label."""
    return re.sub(r'[\W\d_]', '', session.casefold())


def _are_in_order(own: pd.DataFrame) -> bool:
    """Check whether visits are sorted by time, or their labels by one word per stage or letters."""
    labels = own[SESSION].str.removeprefix('ses-').str.casefold()
    words = {'time' if word in DAYS else word for word in map(_word, labels)}
    stages = {STAGES.get(word, LATER) for word in words}
    are_told = len(stages) == len(words) or {*labels} <= set(ascii_lowercase)
    return are_told or NAME not in {*own['order_by']}


def visit_columns(visits: Iterable[Visit], prefix: str = 'sub-') -> pd.DataFrame:
    """Return `participant_id` and, if there are sessions, `session_id`, by the names of visits."""
    visits = list(visits)
    cells = [(f'{prefix}{who}', session and f'ses-{session}') for who, session in visits]
    names = [visit_name(visit, prefix) for visit in visits]
    columns = [PARTICIPANT, SESSION] if any(session for _, session in visits) else [PARTICIPANT]
    return pd.DataFrame(cells, names, [PARTICIPANT, SESSION])[columns]


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
    who = pd.Series({names[visit]: visit[0] for visit in in_order(names)}, dtype=object)
    columns = [*columns_of(described, 'date'), *columns_of(described, 'age')]
    facts = described[columns].loc[who.index]
    times = pd.DataFrame({'who': who, 'time': np.nan, 'order_by': NAME})
    for column in columns_of(facts, 'date'):
        _settle(times, facts[column].map(to_years).astype(float), DATE)
    if bids_dir is not None:
        unsettled = who.index[who.duplicated(keep=False) & (times['order_by'] == NAME)]
        dates = {name: to_years(scan_time(bids_dir, *visits[name])) for name in unsettled}
        _settle(times, pd.Series(dates, who.index, dtype=float), DATE)
    # The age at baseline may be there too; it does not tell visits apart.
    for column in columns_of(facts, 'age'):
        _settle(times, to_numbers(facts[column].str.removesuffix('+')), AGE)
    return times.drop(columns='who').iloc[np.lexsort((times['time'], pd.factorize(who)[0]))]


def _settle(times: pd.DataFrame, values: pd.Series, order_by: str) -> None:
    """Use values as the times of participants if they are known and tell all visits apart."""
    alike = pd.DataFrame({'who': times['who'], 'time': values}).duplicated(keep=False)
    unclear = (alike | ~np.isfinite(values)).groupby(times['who']).transform('any')
    chosen = ~unclear & (times['order_by'] == NAME)
    times.loc[chosen, 'time'] = values
    times.loc[chosen, 'order_by'] = order_by


def ages_and_sexes(
    bids_dir: Path, visits: Iterable[Visit]
) -> dict[Visit, tuple[float | None, str | None]]:
    """Read age in years and sex ('F' or 'M') at visits, in order of time; None if unknown."""
    names = {visit_name(visit): visit for visit in visits}
    path = bids_dir / 'participants.tsv'
    people = Table(path, pd.DataFrame(index=[*names]), [*names.values()])
    if path.is_file():
        people = read_participants(bids_dir)
    facts = with_sessions(people, names)
    age, sex = ((columns_of(facts, role) or [role])[0] for role in ('age', 'sex'))
    facts = facts.reindex(order_visits(facts, names, bids_dir).index, columns=[age, sex])
    return {
        names[name]: (years if np.isfinite(years) else None, sex_of(str(word)))
        for name, years, word in zip(facts.index, to_numbers(facts[age]).tolist(), facts[sex])
    }


def to_years(cell: str | None) -> float:
    """Convert a date to years since the year 1 in UTC; NaN if missing or not in BIDS format."""
    try:
        date = datetime.fromisoformat(cell or '')
    except ValueError:
        return np.nan
    since = date.replace(tzinfo=date.tzinfo or UTC) - datetime.min.replace(tzinfo=UTC)
    return since / timedelta(days=1) / DAYS_PER_YEAR


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
    who, known = visits[PARTICIPANT], times.reindex(visits.index)
    return visits.assign(
        is_first=~who.duplicated(),
        order_by=known['order_by'],
        years=known['time'] - known['time'].groupby(who).transform('first'),
    )


def describe_order(visits: pd.DataFrame) -> list[str]:
    """Describe how the visits of participants with several visits (`add_years`) are sorted."""
    first = visits[visits[PARTICIPANT].duplicated(keep=False) & visits['is_first']]
    how = [f'by {by} in {n}' for by, n in first['order_by'].value_counts().items()]
    return [
        f'Visits: {counted(len(first), "participant")} with several visits, sorted '
        f'{", ".join(how)}; models learn from the first visit only'
    ] * bool(how)


def warn_of_changed_groups(visits: pd.DataFrame) -> Iterator[Caution]:
    """Warn of participants whose diagnosis differs between visits: the first visit counts.

    Parameters
    ----------
    visits
        Result of :func:`add_years`, with the column `group`; None where it is not known.
    """
    if 'group' not in visits:
        return
    known = visits.dropna(subset='group')
    changes: list[str] = []
    n_controls = 0
    for participant, groups in known.groupby(PARTICIPANT, sort=False)['group']:
        stages = groups[groups != groups.shift()]
        if len(stages) > 1:
            changes.append(f'{participant} ({", then ".join(stages)})')
            n_controls += stages.iloc[0] == CONTROL
    if changes:
        consequence = 'Participants belong to the group of their first visit'
        if n_controls:
            count_as = 'counts as a control' if n_controls == 1 else 'count as controls'
            consequence += (
                f'; {n_controls} of them {count_as}, although they may be at an early stage of the '
                'disease'
            )
        yield Caution(
            f'The diagnosis of {counted(len(changes), "participant")} changes between visits: '
            f'{list_briefly(changes, 5)}',
            consequence,
            'Exclude them (--exclude), or give one diagnosis for all visits of a participant',
            PARTICIPANTS,
        )


LONG_YEARS = 0.5
"""Time between visits after which an unchanged age must be wrong."""


def warn_of_visits(
    visits: pd.DataFrame, described: pd.DataFrame, people: pd.DataFrame
) -> Iterator[Caution]:
    """Warn of visits whose order or age may be wrong.

    Parameters
    ----------
    visits
        Result of :func:`add_years`.
    described, people
        Facts about the same visits: all of them as text, and covariates.
    """
    several = visits[visits[PARTICIPANT].duplicated(keep=False)]
    dates = described.loc[several.index[several['order_by'] != DATE], columns_of(described, 'date')]
    is_unread = dates.notna() & dates.map(to_years).isna()
    unread = dates.index[is_unread.any(axis=1)]
    examples = []
    for column in dates:
        cells = dates[column][is_unread[column]]
        examples += [f'{column} of {name} is {cell}' for name, cell in cells.head(1).items()]
    cause = f' ({", ".join(examples)})' if examples else ''
    unclear = [
        f'{who} ({", ".join(own[SESSION])})'
        for who, own in several.groupby(PARTICIPANT, sort=False)
        if own.index.isin(unread).any() or not _are_in_order(own)
    ]
    if unclear:
        yield Caution(
            f'Visits of {list_briefly(unclear, 3)} are sorted without dates{cause}',
            'This may not be their order in time, and the first visit may be another one',
            'Add dates as in 2019-03-31, or ages (sessions.tsv)',
            PARTICIPANTS,
        )
    who, years = several[PARTICIPANT], several.groupby(PARTICIPANT)['years'].max()
    for column in columns_of(people, 'age'):
        ages = people.loc[several.index, column].groupby(who)
        same = (ages.max() == ages.min()) & ~(years <= LONG_YEARS)
        if same.any():
            yield Caution(
                f'{column} is the same at all visits of {list_briefly(same.index[same], 5)}, '
                'although these are more than half a year apart or undated',
                'Ageing may look like disease',
                f'Add {column} of each visit (sessions.tsv)',
                PARTICIPANTS,
            )
