"""Consistency of what is joined: rows of two tables, columns, and rows of different participants.

The checks use known relations: larger heads hold larger brains, men have larger heads than women,
volumes depend on age, and no two brains are alike. Limits were set on IXI, fcon1000 and simulated
tables, which all pass (benchmarks/false_alarms.py); other studies may differ more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from surreal_bids.bids.tabular import Table
from surreal_bids.cautions import PARTICIPANTS, Caution
from surreal_bids.cohort.plausibility import (
    MIN_FOR_OUTLIERS,
    OFTEN_WRONG,
    Reasons,
    robust_z,
)
from surreal_bids.cohort.visits import DATE, SECRET_BEFORE, to_years
from surreal_bids.columns import Meaning, column_of, columns_of, means, sex_of
from surreal_bids.exceptions import DataError
from surreal_bids.names import Visit
from surreal_bids.regions import FeatureList
from surreal_bids.text import counted, list_briefly

Array = NDArray[np.float64]


def compare_rows(
    features: pd.DataFrame,
    people: pd.DataFrame,
    icv: pd.Series | None,
    participant: Sequence[str],
    wanted: FeatureList,
) -> tuple[Reasons, list[Caution]]:
    """Compare the facts about participants with their volumes, in case rows were exchanged.

    Parameters
    ----------
    features, people, icv
        Volumes, covariates and, if known, head size; one row per visit in the order of the table.
    participant
        Participant of each row; the first row of each is compared with the other participants.
    wanted
        The features.

    Returns
    -------
    reasons, warnings
        Visits to exclude because their head size contradicts the volumes, and warnings.

    Raises
    ------
    DataError
        Rows are shifted, or head sizes are not those of the participants.
    """
    complete = (features > 0).all(axis=1)
    first = complete & ~pd.Series(participant, features.index)[complete].duplicated().reindex(
        features.index, fill_value=True
    )
    are_volumes = wanted.atlas is not None
    reasons: Reasons = {}
    warnings: list[Caution] = []
    if icv is not None:
        known = complete & (icv > 0)
        total = _comparable_size(features[known], icv[known], wanted)
        if total is not None:
            are_volumes = True
            warnings += refuse_other_rows(icv[known & first], total[first[known]])
            reasons, doubts = contradicted_sizes(icv[known], total, suspect=bool(warnings))
            warnings += doubts
        warnings += _changed_sizes(icv, pd.Series(participant, icv.index))
    warnings += refuse_other_facts(people[first], features[first], are_volumes)
    return reasons, warnings


def _changed_sizes(icv: pd.Series, person: pd.Series) -> list[Caution]:
    """Warn of head sizes that change between visits."""
    sizes = icv.groupby(person)
    ratio = sizes.max() / sizes.min()
    changed = [f'{who} ({part - 1:.0%})' for who, part in ratio[ratio > CHANGED_HEAD].items()]
    if not changed:
        return []
    return [
        Caution(
            f'{icv.name} changes between visits of {list_briefly(changed, 5)}',
            'Visits of different participants may be mixed, and changes wrong',
            'Check that the visits are of one participant',
            PARTICIPANTS,
        )
    ]


PART_OF_HEAD = (0.05, 1.0)
"""Range of the sum of all regions relative to head size in which the two are compared. The sum of
thicknesses or of overlapping regions is outside it."""

MIN_REGIONS = 10
"""Minimum number of regions without a known name that are compared with head size."""

LEAST_CORRELATION = 0.6
"""Correlation of head size with the sum of volumes that the tables exceed on which limits were set,
if regions are at least `PART_OF_HEAD`: 0.97 in IXI, 0.95 in simulated cohorts, 0.80 in fcon1000
(FreeSurfer), 0.68 in small sets of regions of the latter."""

SURELY, PROBABLY = 3.1, 2.0
"""Standard errors below `LEAST_CORRELATION` of a correlation that is an error or a warning."""

MAX_LAG = 3
"""Maximum number of rows by which a column is tested to be shifted."""

MOST_CORRELATED = 1 - 1e-9
"""Correlation of columns of the same order, which would gain an infinite likelihood."""

MIN_GAIN = 15.0
"""Log likelihood that a shift must gain, for shifts are tried at each row."""

IMPROVED = 0.6
"""Share of the moved rows that agree better above which a shift is told from single errors. If the
correlation is 0.7, a shift improves 68 % of the rows."""

MIN_SHIFTED = 4
"""Minimum number of moved rows."""

CONTRADICTED = 7.0
OTHER_RATIO, ODD_RATIO = 1.5, 1.2
"""Robust standard deviations, and factors between the median and the ratio of a participant's
volumes to head size, beyond which the participant is excluded or named in a warning. Severe atrophy
makes a factor of up to 1.4."""

MAX_SINGLE, MAX_SHARE = 2, 0.05
"""Number and share of participants with contradicting facts above which a column is wrong."""


def _comparable_size(
    features: pd.DataFrame, icv: pd.Series, wanted: FeatureList
) -> pd.Series | None:
    """Return the sum of all regions, if it can be compared with head size; else None."""
    total = features.sum(axis=1)
    share = (total / icv).median()
    low, high = PART_OF_HEAD
    if share > high and all(len(feature.indices) == 1 for feature in wanted.features):
        raise DataError(
            f'column {icv.name}: the regions of most participants sum to more than their head '
            f'size ({share:.0%}); check its unit and that it holds intracranial volumes, or choose '
            'another column with --icv-column'
        )
    is_brain = wanted.atlas is not None or len(wanted.features) >= MIN_REGIONS
    return total if is_brain and low <= share <= high else None


def contradicted_sizes(
    icv: pd.Series, total: pd.Series, suspect: bool = False
) -> tuple[Reasons, list[Caution]]:
    """Return the participants whose head size contradicts their volumes: excluded, and doubtful.

    Parameters
    ----------
    icv, total
        Head size and sum of all regions of each visit.
    suspect
        Whether head sizes are less related to volumes than they should be.

    Raises
    ------
    DataError
        They are many, or head sizes are suspect.
    """
    share = total / icv
    ratio = (share / share.median()).map(np.log)
    is_far = (robust_z(ratio).abs() > CONTRADICTED) & (len(ratio) >= MIN_FOR_OUTLIERS)
    wrong = (share > 1) | (is_far & (ratio.abs() > np.log(OTHER_RATIO)))
    odd = is_far & (ratio.abs() > np.log(ODD_RATIO)) & ~wrong
    reasons = {
        str(visit): f'regions sum to {share[visit]:.0%} of {icv.name}, to {share.median():.0%} in '
        f'others; correct {icv.name} or the volumes'
        for visit in share.index[wrong]
    }
    if len(reasons) > (0 if suspect else max(MAX_SINGLE, MAX_SHARE * len(share))):
        name, why = next(iter(reasons.items()))
        raise DataError(
            f'column {icv.name} contradicts the volumes of {len(reasons)} of '
            f'{counted(len(share), "visit")}, as if rows were exchanged; {name}: {why}'
        )
    if not odd.any():
        return reasons, []
    who = [f'{visit} ({share[visit]:.0%})' for visit in share.index[odd]]
    return reasons, [
        Caution(
            f'Head size: the regions of {list_briefly(who, 5)} sum to another share of {icv.name} '
            f'than those of others ({share.median():.0%})',
            'Their correction for head size may be wrong',
            f'Check that {icv.name} and the volumes are theirs',
            PARTICIPANTS,
        )
    ]


CHANGED_HEAD = 1.15
"""Ratio of head sizes of one participant at different visits that causes a warning. Scanners and
programs differ by a few per cent."""


class Shift(NamedTuple):
    """The best way to move the cells of a column from a row on."""

    lag: int
    start: int
    correlation: float
    gain: float
    """Log likelihood that the move gains."""

    def improves_most(self, moved: Array, fixed: Array) -> bool:
        """Check whether most moved rows agree better, not only single wrong ones."""
        rows = np.arange(max(self.start, -self.lag), len(moved) - max(self.lag, 0))
        there, own = (np.abs(moved[rows + lag] - fixed[rows]) for lag in (self.lag, 0))
        return bool((there < own).mean() > IMPROVED)


def find_shift(moved: Array, fixed: Array) -> Shift:
    """Find the rows by which a column must be moved to agree best with another one.

    Parameters
    ----------
    moved, fixed : (N,)
        Normal scores in the order of the rows of a table. Row i of `fixed` is compared with row i
        of `moved` before `start`, and with row i + lag from there on.
    """
    own = min(float(np.corrcoef(moved, fixed)[0, 1]), MOST_CORRELATED)
    best = Shift(0, 0, own, 0.0)
    rows = np.arange(len(moved))
    for lag in (lag for lag in range(-MAX_LAG, MAX_LAG + 1) if lag):
        inside = (rows + lag >= 0) & (rows + lag < len(rows))
        there = np.where(inside, np.roll(moved, -lag), 0)
        # Column k of the sums: rows before k as they are, the others moved.
        sums = [
            np.append(0, np.cumsum(before)) + np.append(np.cumsum(after[::-1])[::-1], 0)
            for before, after in (
                (np.ones_like(moved), inside.astype(float)),
                (moved, there),
                (fixed, fixed * inside),
                (moved**2, there**2),
                (fixed**2, fixed**2 * inside),
                (moved * fixed, there * fixed),
            )
        ]
        n, x, y, xx, yy, xy = (each[: len(rows) - MIN_SHIFTED] for each in sums)
        correlation = (n * xy - x * y) / np.sqrt((n * xx - x**2) * (n * yy - y**2))
        start = int(np.argmax(correlation))
        r = min(float(correlation[start]), MOST_CORRELATED)
        gain = len(rows) / 2 * np.log((1 - own**2) / (1 - r**2)) if r > max(own, 0) else 0.0
        best = max(best, Shift(lag, start, r, gain), key=lambda shift: shift.gain)
    return best


def normal_scores(values: pd.Series) -> Array:
    """Replace values by the normal quantiles of their ranks, so that single errors do not count."""
    scores: Array = stats.norm.ppf((stats.rankdata(values) - 0.5) / len(values))
    return scores


def refuse_other_rows(icv: pd.Series, total: pd.Series) -> list[Caution]:
    """Refuse head sizes that are not those of the participants of the volumes.

    Parameters
    ----------
    icv, total
        Head size and sum of all regions, one row per participant in the order of the table.

    Returns
    -------
    list of Caution
        A warning, if head size and volumes are less related than they should be.

    Raises
    ------
    DataError
        Head sizes are shifted by some rows, or unrelated to the volumes.
    """
    if len(icv) < MIN_FOR_OUTLIERS or icv.nunique() < 2:
        return []
    sizes, totals = normal_scores(icv), normal_scores(total)
    own = float(np.corrcoef(sizes, totals)[0, 1])
    shift = find_shift(sizes, totals)
    if (
        shift.gain > MIN_GAIN
        and shift.correlation > LEAST_CORRELATION
        and shift.improves_most(sizes, totals)
    ):
        rows = counted(abs(shift.lag), 'row')
        raise DataError(
            f'column {icv.name} seems shifted by {rows} from about {icv.index[shift.start]} on: it '
            f'agrees with the volumes {rows} {"above" if shift.lag > 0 else "below"} (correlation '
            f'{shift.correlation:.2f}, {own:.2f} as it is); correct the rows'
        )
    missing = (np.arctanh(LEAST_CORRELATION) - np.arctanh(own)) * np.sqrt(len(icv) - 3)
    text = f'{icv.name} is hardly related to the sum of volumes (correlation {own:.2f})'
    if missing > SURELY:
        raise DataError(
            f'column {text}, and at least {LEAST_CORRELATION} is expected; check that the rows of '
            'the tables belong to the same participants. If volumes are corrected for head size '
            'already, use --icv none'
        )
    if missing <= PROBABLY:
        return []
    return [Caution(f'Head size: {text}', OTHER_ROWS, CHECK_ROWS, PARTICIPANTS)]


OTHER_ROWS = 'Rows of the tables may be exchanged, and all R-indices wrong'
CHECK_ROWS = 'Check that the rows of the tables belong to the same participants'
"""Consequence and remedy where columns do not fit the volumes."""


N_COMPONENTS: Mapping[Meaning, int] = {'age': 15, 'sex': 1}
"""Number of components of volumes that a column is compared with; the first is their sum."""

MIN_RELATED: Mapping[Meaning, int] = {'age': 150, 'sex': 80}
"""Participants from which volumes are expected to be related to varying ages and to sex."""

MIN_FOR_SHIFT = 50
"""Participants from which rows nearby are compared."""

UNRELATED, RELATED = 0.02, 1e-7
"""p-values above which a column is not related to volumes, and below which it is, in other rows."""

VARYING_AGE = 8.0
"""Standard deviation of ages from which volumes are expected to depend on age."""


def refuse_other_facts(
    people: pd.DataFrame, features: pd.DataFrame, are_volumes: bool
) -> Iterator[Caution]:
    """Compare ages and sexes with the volumes.

    Parameters
    ----------
    people, features
        Covariates, and volumes greater than 0; one row per participant in the order of the table.
    are_volumes
        Whether features are known to be volumes, which differ between the sexes.

    Yields
    ------
    Caution
        A warning about a column that is not related to the volumes.

    Raises
    ------
    DataError
        A column agrees with the volumes of rows nearby, but not with its own.
    """
    if len(people) < MIN_FOR_SHIFT:
        return
    basis = _components(features)
    for meaning, fact in _facts(people, are_volumes):
        own_basis = basis[:, : N_COMPONENTS[meaning]]
        lags = range(-MAX_LAG, MAX_LAG + 1)
        p_values = {lag: _p_value(np.roll(fact, -lag), own_basis) for lag in lags}
        own, lag = p_values[0], min(lags, key=p_values.__getitem__)
        if own <= UNRELATED:
            continue
        if p_values[lag] < RELATED:
            raise DataError(
                f'column {fact.name} seems shifted by {counted(abs(lag), "row")}: it is related to '
                f'the volumes {"above" if lag > 0 else "below"} (p = {p_values[lag]:.0e}), but not '
                f'to those of its row (p = {own:.2f}); correct the rows'
            )
        if len(people) >= MIN_RELATED[meaning]:
            found = f'{fact.name} is not related to the volumes (p = {own:.2f})'
            yield Caution(found, OTHER_ROWS, CHECK_ROWS, PARTICIPANTS)


def _facts(people: pd.DataFrame, with_sex: bool) -> Iterator[tuple[Meaning, pd.Series]]:
    """Yield varying ages, and sex as a number."""
    for name, column in people.items():
        if means(name, 'age') and column.std() >= VARYING_AGE:
            yield 'age', column
        if with_sex and means(name, 'sex') and column.nunique() == 2:
            yield 'sex', (column == column.iloc[0]).astype(float)


def _components(features: pd.DataFrame) -> Array:
    """Compute an orthonormal basis (N, K) of log total and main components of log volumes."""
    logs = np.log(features.to_numpy(np.float64))
    logs -= logs.mean(axis=0)
    size = np.log(features.sum(axis=1).to_numpy(np.float64))[:, None]
    spread = logs.std(axis=0)
    scaled = logs[:, spread > 0] / spread[spread > 0]
    left = np.linalg.svd(scaled, full_matrices=False)[0]
    basis: Array = np.linalg.qr(
        np.hstack([size - size.mean(), left[:, : max(N_COMPONENTS.values()) - 1]])
    )[0]
    return basis


def _p_value(values: Array, basis: Array) -> float:
    """Compute the p-value of the regression of a column (N,) on components (N, K)."""
    centred = values - values.mean()
    explained = ((basis.T @ centred) ** 2).sum() / (centred**2).sum()
    n_components = basis.shape[1]
    rest = len(values) - n_components - 1
    return float(stats.f.sf(explained / (1 - explained) * rest / n_components, n_components, rest))


MIN_FOR_COPIES, MIN_FOR_NEAR_COPIES = 10, 20
"""Minimum number of regions to recognise rounded or scaled copies, and copies with noise."""

ROUNDED = 0.005
"""Standard deviation of log ratios between the regions of a copy that was rounded or scaled."""

NEAR = 0.35
"""Distance to the most similar participant, relative to the median of such distances, below which
two participants are the same one. It is above 0.65 in IXI and in simulated cohorts and 0.4 in
fcon1000, whereas noise of 3 % in a copy makes 0.3."""

CHUNK = 1000
"""Number of participants compared with all others at a time."""


def near_copies(features: pd.DataFrame, participant: Sequence[str]) -> Reasons:
    """Return the reasons for excluding participants with almost the volumes of another one.

    Parameters
    ----------
    features
        Volumes; visits with missing or empty ones are not compared.
    participant
        Participant of each visit; visits of one participant may be alike.

    Raises
    ------
    DataError
        The volumes of two participants differ by rounding or by a factor only.
    """
    positive = (features > 0).all(axis=1).to_numpy()
    names, who = features.index[positive], pd.factorize(np.asarray(participant)[positive])[0]
    shapes = _shapes(features[positive])
    if len(names) < 3 or shapes.shape[1] < MIN_FOR_COPIES:
        return {}
    other, distance = _nearest(shapes, who)
    near = distance < NEAR * np.median(distance)
    reasons = {}
    for row in np.flatnonzero(near):
        pair = features.loc[[names[row], names[other[row]]]].transform('log')
        ratio = pair.iloc[0] - pair.iloc[1]
        if ratio.std() < ROUNDED:
            raise DataError(
                f'{names[row]} and {names[other[row]]} have the same volumes, except for rounding '
                f'and a factor of {np.exp(ratio.mean()):.3g}; keep one of them'
            )
        if shapes.shape[1] >= MIN_FOR_NEAR_COPIES:
            reasons[str(names[row])] = (
                f'volumes are almost those of {names[other[row]]} (in the median they differ by '
                f'{np.expm1(ratio.abs().median()):.1%}), as if one were entered twice; keep one'
            )
    return reasons


def _shapes(features: pd.DataFrame) -> Array:
    """Compute log volumes relative to their mean in each row, in units of their spread."""
    logs = np.log(features.to_numpy(np.float64))
    logs -= logs.mean(axis=1, keepdims=True)
    logs -= np.median(logs, axis=0)
    spread = np.median(np.abs(logs), axis=0)
    shapes: Array = logs[:, spread > 0] / spread[spread > 0]
    return shapes


def _nearest(shapes: Array, who: NDArray[np.intp]) -> tuple[NDArray[np.intp], Array]:
    """Find the most similar other participant of each row, and the distance."""
    squares = (shapes**2).sum(axis=1)
    nearest, distances = [], []
    for start in range(0, len(shapes), CHUNK):
        rows = slice(start, start + CHUNK)
        squared = squares[rows, None] + squares - 2 * shapes[rows] @ shapes.T
        squared[who[rows, None] == who] = np.inf
        nearest.append(squared.argmin(axis=1))
        distances.append(np.sqrt(np.maximum(squared.min(axis=1), 0)))
    return np.concatenate(nearest), np.concatenate(distances)


MAX_YEARS_OFF = 1.5
"""Years by which ages and dates may disagree; ages are often rounded or as of the enrolment."""


def contradicting_visits(
    described: Table, visits: Mapping[str, Visit], times: pd.DataFrame
) -> Reasons:
    """Return the reasons for excluding participants whose visits contradict each other.

    Parameters
    ----------
    described
        Facts about visits.
    visits
        Participant and session of each visit, by name.
    times
        Result of :func:`~surreal_bids.cohort.visits.order_visits`.

    Raises
    ------
    DataError
        Many participants have contradicting ages and dates, so that a column is wrong.
    """
    table = described.rows(list(visits))
    person = pd.Series({name: visit[0] for name, visit in visits.items()})
    dates = times['time'].where(times['order_by'] == DATE).reindex(person.index)
    reasons = _changed_sexes(table, person)
    for column in columns_of(table.columns, 'age'):
        age = pd.to_numeric(table.text[column], errors='coerce')
        for found, n_compared in (
            _ages_against_dates(age, dates, person),
            _ages_against_birth(age, dates, table, person),
        ):
            n_wrong = person[list(found)].nunique()
            if n_wrong > max(MAX_SINGLE, OFTEN_WRONG * n_compared):
                name, why = next(iter(found.items()))
                raise DataError(
                    f'{table.source}: column {column} contradicts the dates of {n_wrong} of '
                    f'{counted(n_compared, "participant")}; {name}: {why}'
                )
            reasons = found | reasons
    return reasons


def _changed_sexes(table: Table, person: pd.Series) -> Reasons:
    column = column_of(table.columns, 'sex')
    if column is None:
        return {}
    words = table.text[column]
    meant = words.map(lambda word: sex_of(word) or word, na_action='ignore')
    changed = meant.groupby(person).transform('nunique') > 1
    return {
        str(name): f'{column} differs between visits '
        f'({", ".join(dict.fromkeys(words[person == person[name]].dropna()))}); correct it'
        for name in person.index[changed]
    }


def _ages_against_dates(age: pd.Series, dates: pd.Series, person: pd.Series) -> tuple[Reasons, int]:
    """Compare changes of age with the time between visits; unchanged ages are those at baseline."""
    off = (age - dates).groupby(person)
    known = (off.transform('count') > 1) & (age.groupby(person).transform('nunique') > 1)
    apart = off.transform('max') - off.transform('min')
    reasons = {
        str(name): f'{age.name} and the dates of visits disagree by {apart[name]:.1f} years; '
        'correct them'
        for name in person.index[known & (apart > MAX_YEARS_OFF)]
    }
    return reasons, person[known].nunique()


def _ages_against_birth(
    age: pd.Series, dates: pd.Series, table: Table, person: pd.Series
) -> tuple[Reasons, int]:
    """Compare ages with dates or years of birth.

    Dates moved to secret years are not compared, and neither are later visits of participants with
    one age, which is that at baseline.
    """
    column = column_of(table.columns, 'birth')
    if column is None:
        return {}, 0
    cells = table.text[column]
    # A year of birth stands for its middle.
    born = cells.map(lambda cell: to_years(f'{cell}-07-01' if len(cell) == 4 else cell), 'ignore')
    expected = dates.where(dates + 1 >= SECRET_BEFORE) - born.astype(float)
    is_first = dates == dates.groupby(person).transform('min')
    is_own = is_first | (age.groupby(person).transform('nunique') > 1)
    off = (age - expected).abs().where(is_own)
    allowed = MAX_YEARS_OFF + 0.5 * (cells.str.len() == 4)
    reasons = {
        str(name): f'{age.name} is {age[name]:g}, but {column} and the date of the visit make '
        f'{expected[name]:.1f}; correct them'
        for name in off.index[off > allowed]
    }
    return reasons, int(off.notna().sum())
