"""Checks of a study, in one list.

A check stops or excludes only if a value cannot be a measurement or the model cannot be fitted.
Everything that is only unlikely warns. All stops are reported together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.spatial import KDTree

from surreal_bids.cautions import HARMONIZATION, PARTICIPANTS, Caution
from surreal_bids.cohort.roles import Requirements
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.empirical_bayes import MIN_FOR_SCALE
from surreal_bids.harmonization.encoding import TOLERATED, is_clearly_outside
from surreal_bids.harmonization.options import PreprocessingOptions, learns_from_visits
from surreal_bids.model.networks import MIN_PEOPLE
from surreal_bids.names import CONTROL, PATIENT, SINGULAR, columns_of, means, sex_of
from surreal_bids.regions import FeatureList, muse_index, muse_table, region_names
from surreal_bids.stats.ridge import predictability
from surreal_bids.text import counted, list_briefly, plain_number

Floats = NDArray[np.float64]

Reasons = dict[str, str]
"""Reason for excluding each visit, by its name."""

NORMAL_SD_PER_MAD = 1.4826
"""Standard deviation of a normal distribution whose median absolute deviation is 1."""

POSSIBLE_AGE, OLDEST = (0.0, 120.0), 110.0
"""Range of ages in years, and an age that hardly anyone exceeds."""

OFTEN_WRONG = 0.2
"""Share of impossible ages above which a column does not hold ages in years."""

OTHER_UNIT, MOST_WRONG = 10.0, 0.05
"""Factor between volumes that shows different units, and share of visits in another unit above
which the table is wrong; below it, single visits are."""

USUAL_ICV_MM3, OTHER_HEAD = (3e5, 5e6), 2.5
"""Range of intracranial volumes in mm3, including those of children, and the largest plausible
ratio between a head size and the median."""

MM3 = 'mm3'
HEAD_UNITS = {MM3: 1.0, 'ml': 1e3, 'litres': 1e6}
"""Units of head sizes, in mm3."""

FAR_VOLUME = 10.0
"""Robust standard deviations from the median beyond which a volume is far."""

OUTLYING, OUTLYING_SHARE = 4.0, 1 / 3
"""Robust standard deviations from the median of the group beyond which a region is outlying, and
share of outlying regions above which a segmentation has failed: a wrong brain mask changes most."""

MIN_TO_SCALE, MIN_FOR_OUTLIERS = 5, 20
"""Minimum number of participants to estimate the scale of a region, and to call one unusual."""

MIN_ALIKE = 3
"""Minimum number of equal regions that shows two participants to be copies."""

NEAR, N_COMPARED, NEIGHBOURS = 0.002, 12, 5
"""Relative difference of all volumes below which two rows are of one scan: repeated scans differ by
1 % or more, and rounding by less. Number of regions by which such rows are looked for, and of
candidates for each row."""

NEAR_LOG = -np.log10(1 - NEAR)

MOST_FOR_PIVOTS = 2000
"""Rows from which these regions are chosen."""

CHANCE = 1e-3
"""Expected number of pairs of different participants that are as similar above which similar rows
mean nothing: the table has few regions, or they are rounded."""

MAX_LEVELS = 10
"""Number of levels that a category may have in any sample."""

MIN_AT_SITE = 3
"""Minimum number of controls per site: one or two would be moved to the overall mean."""

MOST_LEFT = 0.5
"""Share of a group that must remain."""

RELATED_SD, MIN_TO_RELATE = 1.96, 30
"""Standard deviations above 0 that one of two correlations of head size with volumes reaches in
sound tables, and minimum number of participants. Correlations of exchanged rows have a standard
deviation of 1 / sqrt(n - 1). In halves of the samples IXI, FCON 1000 and one of schizophrenia, with
30 to 300 participants, 4 to 139 regions and simulated atrophy in most, the warning comes in 0.4 %
of sound tables, in 2 % if the head size has an error of 10 %, and in 95 % of those with exchanged
rows. Of five limits, this one was chosen with all halves in view."""

FEW_CONTROLS, FEW_FOR_A_MODEL, FEW_AT_SITE = 30, 20, 10
"""Number of controls below which a warning is given: in a training sample, in a sample or at a site
that a model is adapted to, and at a site of a training sample. The mean R-index of a cohort has an
sd of about 0.02 over sets of 20 controls, and of 0.05 over sets of 3 (benchmarks/nulls.py); 20
controls remove 68 % of the effect of a new site, 10 remove 59 % (benchmarks/README.md)."""

MANY_OUTSIDE = 0.2
"""Share of participants outside a range of ages that causes a warning."""

MISSING_CODES = (-9999.0, -999.0, -99.0, -9.0, -8.0, -4.0, -1.0, 99.0, 999.0, 9999.0, 99999.0)
"""Numbers that stand for missing values."""

NUMBER = re.compile(r'\d[\d,.]*')

MAX_CODES = 5
"""Number of distinct values up to which a column holds codes, where -1 can be valid."""


@dataclass(frozen=True, eq=False)
class Study:
    """Visits with volumes, row by row.

    Attributes
    ----------
    features : frame of shape (n_visits, n_features)
        Volumes; no columns before they are measured.
    people : frame of shape (n_visits, n_columns)
        Covariates, head size and site.
    participant : Series of str
        Who.
    group : Series
        CN, PT, another group, or missing; all missing where groups do not matter.
    wanted, options
        Features, and how they are preprocessed.
    model
        Requirements of the model to apply; None: a model is trained.
    in_mm3
        Whether the unit of volumes is certain, since the participant level measured them.
    """

    features: pd.DataFrame
    people: pd.DataFrame
    participant: pd.Series
    group: pd.Series
    wanted: FeatureList
    options: PreprocessingOptions
    model: Requirements | None = None
    in_mm3: bool = False

    def without(self, names: Iterable[str]) -> Study:
        """Leave out some visits."""
        rows = ~self.features.index.isin(list(names))
        frames = ('features', 'people', 'participant', 'group')
        return replace(self, **{name: getattr(self, name)[rows] for name in frames})

    @property
    def icv(self) -> pd.Series | None:
        """Head size, if it is used."""
        return self.people[self.options.icv_column] if self.options.uses_icv else None

    @property
    def has_volumes(self) -> bool:
        """Whether features are volumes, not z-scores or other numbers of both signs."""
        return not self.wanted.are_z_scores and not self.features.empty

    @property
    def main(self) -> pd.Series:
        """Whether each visit is of a control or a patient since the first; all without groups."""
        of_two = self.group.isin((CONTROL, PATIENT))
        if not of_two.any():
            return ~of_two
        # Models learn from first visits: who was of another group then is scored only.
        return of_two & of_two.groupby(self.participant).transform('first')

    @property
    def controls(self) -> pd.Series:
        """Whether each visit is the first of a control, from which is learned."""
        return (self.group == CONTROL) & ~self.participant.duplicated()

    @cached_property
    def logs(self) -> pd.DataFrame:
        """Logarithms of volumes; missing where a volume is missing or 0."""
        volumes = self.features.to_numpy(np.float64)
        logs = np.log10(volumes, out=np.full(volumes.shape, np.nan), where=volumes > 0)
        return pd.DataFrame(logs, self.features.index, self.features.columns)


class Finding(NamedTuple):
    """What was found in the table, and what it means; or why visits are excluded, by name."""

    text: str = ''
    consequence: str = ''
    rows: Mapping[str, str] = {}


class Check(NamedTuple):
    """A check, what follows from its findings, what to do, and the section of the report."""

    find: Callable[[Study], Iterator[Finding]]
    severity: Literal['stop', 'exclude', 'warn']
    remedy: str
    about: str = PARTICIPANTS


def negative(study: Study) -> Iterator[Finding]:
    """Negative volumes in most rows: residuals or z-scores, accepted if nothing is corrected."""
    is_negative = (study.features < 0).any(axis=1)
    if study.has_volumes and is_negative.mean() > 0.5:
        yield Finding(f'volumes of {is_negative.sum()} of {len(is_negative)} visits are negative')


def other_unit(study: Study) -> Iterator[Finding]:
    """Volumes or head sizes in other or mixed units."""
    if study.has_volumes:
        scale = study.logs.mean(axis=1)
        distance = scale - float(scale.quantile(interpolation='lower'))
        far = distance[distance.abs() > np.log10(OTHER_UNIT)]
        if len(far) > MOST_WRONG * len(scale):
            listed, factor = list_briefly(far.index, 5), _factor(far.median())
            yield Finding(f'volumes of {listed} are about {factor} than those of others')
        if study.model is None or study.options.icv != 'proportion':
            yield from _unexpected(study)
    if study.icv is None:
        return
    yield from _mixed_units(study.icv)
    low, high = _usual_head_size(study)
    median = study.icv[study.icv > 0].median()
    if low <= median <= high or not np.isfinite(median):
        return
    if study.model is not None or _unit_of_head(median) is None:
        yield Finding(
            f'{study.icv.name} has a median of {plain_number(median)}, but '
            f'{plain_number(low)} to {plain_number(high)} mm3 is expected'
        )


def _mixed_units(sizes: pd.Series) -> Iterator[Finding]:
    """Find head sizes that are in another unit than most, unless they are few."""
    logs = np.log10(sizes[(sizes > 0) & ~missing_codes(sizes)])
    distance = logs - logs.quantile(interpolation='lower')
    other_unit = distance[distance.abs() > np.log10(OTHER_UNIT)]
    if len(other_unit) > MOST_WRONG * len(sizes):
        yield Finding(
            f'{sizes.name} of {list_briefly(other_unit.index, 5)} is about '
            f'{_factor(other_unit.median())} than that of others: units are mixed'
        )


def _unexpected(study: Study) -> Iterator[Finding]:
    """Compare medians with those of MUSE regions or of a model, as logarithms.

    A factor that all regions share is an error for a model only: a model in training has the unit
    of its sample.
    """
    ratio = _ratio_to_expected(study)
    overall = ratio.median()
    if study.model is not None and abs(overall) > np.log10(OTHER_UNIT):
        example = study.features[ratio.index[0]].median()
        yield Finding(
            f'volumes are about {_factor(overall)} than expected, for example '
            f'{example:.3g} for {ratio.index[0]}'
        )
    off = ratio.index[(ratio - overall).abs() > np.log10(OTHER_UNIT)]
    if len(off):
        factor = _factor(ratio[off[0]] - overall)
        yield Finding(f'{list_briefly(off)} is about {factor} than the other regions suggest')


def _ratio_to_expected(study: Study) -> pd.Series:
    """Return the median of each region relative to the usual one, as logarithms."""
    expected = _expected_volumes(study)
    return (study.logs.median() - np.log10(expected[expected > 0])).dropna()


def are_in_other_unit(study: Study) -> bool:
    """Check whether all volumes of a model in training share a factor, as in ml."""
    if study.model is not None or not study.has_volumes:
        return False
    return abs(_ratio_to_expected(study).median()) > np.log10(OTHER_UNIT)


def all_in_other_unit(study: Study) -> Iterator[Finding]:
    """All volumes of MUSE regions, or all head sizes beside them, in another unit than mm3."""
    harmless = 'R-indices do not depend on the unit'
    if are_in_other_unit(study):
        ratio = _ratio_to_expected(study)
        yield Finding(
            f'All volumes are about {_factor(ratio.median())} than in mm3, for example '
            f'{study.features[ratio.index[0]].median():.3g} for {ratio.index[0]}',
            harmless,
        )
    if study.model is not None or study.icv is None or not study.wanted.atlas:
        return
    median = study.icv[study.icv > 0].median()
    unit = _unit_of_head(median)
    if unit not in {None, MM3}:
        yield Finding(
            f'{study.icv.name} has a median of {plain_number(median)}, like {unit}', harmless
        )


def _unit_of_head(median: float) -> str | None:
    """Return the unit in which a head size is plausible; None: in none."""
    low, high = USUAL_ICV_MM3
    return next((unit for unit, mm3 in HEAD_UNITS.items() if low <= median * mm3 <= high), None)


def _expected_volumes(study: Study) -> pd.Series:
    """Return the usual values of features: those of a model, or of MUSE regions."""
    if study.model is not None:
        return study.model.mean_volumes
    usual = muse_table().set_index('index')['volume_mm3']
    features = () if study.in_mm3 else study.wanted.features
    known = {f.name: usual[list(f.indices)].sum() for f in features if f.indices}
    return pd.Series(known, dtype=np.float64)


def _usual_head_size(study: Study) -> tuple[float, float]:
    """Return the range of plausible median head sizes, for a model or for MUSE volumes."""
    if study.model is None:
        return USUAL_ICV_MM3 if study.wanted.atlas else (0.0, np.inf)
    low, high = study.model.ranges.get(str(study.options.icv_column), (0.0, np.inf))
    return low / OTHER_HEAD, high * OTHER_HEAD


def _factor(log: float) -> str:
    times = float(f'{10 ** abs(log):.2g}')
    return f'{times:,.0f} times {"smaller" if log < 0 else "larger"}'


def not_in_years(study: Study) -> Iterator[Finding]:
    """Birth years, months, days and centred ages."""
    for name in columns_of(study.people.select_dtypes('number'), 'age'):
        known = study.people[name].dropna()
        if (~known.between(POSSIBLE_AGE[0], OLDEST)).mean() > OFTEN_WRONG:
            median = known.median()
            like = 'months' if median < 1900 else 'birth years' if median < 2100 else 'days'
            like = 'centred ages' if (known < 0).mean() > OFTEN_WRONG else like
            yield Finding(f'{name} has a median of {median:g}, like {like}')


def levels(study: Study) -> Iterator[Finding]:
    """Categories with a level per participant, several spellings, or unknown codes."""
    for name in map(str, study.people):
        found = study.people[name].dropna()
        if pd.api.types.is_numeric_dtype(found):
            yield from _other_codes(found, study)
            continue
        if study.model is None and found.nunique() > max(MAX_LEVELS, len(found) / 2):
            yield Finding(f'{name} has {found.nunique()} levels among {len(found)} visits')
        spellings = found.drop_duplicates().sort_values()
        same = spellings.groupby(spellings.map(lambda level: ' '.join(level.casefold().split())))
        twice = [' = '.join(each) for _, each in same if len(each) > 1]
        if twice:
            yield Finding(f'{name} writes one level in several ways: {list_briefly(twice)}')
        words = found.map(sex_of)
        if means(name, 'sex') and words.isna().any() and words.notna().any():
            strange = words.isna() == (words.isna().mean() <= 0.5)
            who, others = found.index[strange][0], list_briefly(sorted(set(found[~strange])))
            yield Finding(f'{name} of {who} is {found[who]}; others are {others}')


def _other_codes(found: pd.Series, study: Study) -> Iterator[Finding]:
    """Find more than two codes of the sexes, or other codes than those of a model."""
    name, codes = str(found.name), sorted(set(found))
    known = tuple(study.model.ranges.get(name, ())) if study.model else ()
    if means(name, 'sex') and (not set(codes) <= set(known) if known else len(codes) > 2):
        listed, expected = (list_briefly(map('{:g}'.format, each)) for each in (codes, known))
        yield Finding(f'{name} holds {listed}; expected: {expected or "two codes, or F and M"}')


def same_as_group(study: Study) -> Iterator[Finding]:
    """Covariates that tell controls from patients by themselves."""
    known = study.group[study.main]
    if study.model is not None or known.nunique() < 2:
        return
    for name in study.options.covariates:
        values = study.people.loc[known.index, name]
        most = min(MAX_LEVELS, len(values) / 2)  # Ages of few people are different anyway.
        if 1 < values.nunique() <= most and known.groupby(values).nunique().max() == 1:
            yield Finding(f'covariate {name} has other values in controls than in patients')


def missing(study: Study) -> Iterator[Finding]:
    """Covariates, head size or site that are not known."""
    found = _where(study.people.isna())
    yield Finding(rows={row: f'{", ".join(names)} is missing' for row, names in found.items()})


def copies(study: Study) -> Iterator[Finding]:
    """Rows with the same numbers in all regions as an earlier row."""
    total = study.features.sum(axis=1)
    alike = study.features[(total != 0) & total.duplicated(keep=False)]
    if study.features.shape[1] < MIN_ALIKE or _may_be_alike(study.features):
        return
    first: dict[tuple[float, ...], str] = {}
    same = {n: first.setdefault(tuple(row), n) for n, row in zip(alike.index, alike.to_numpy())}
    yield Finding(rows={n: f'the same volumes as {one}' for n, one in same.items() if one != n})


def _may_be_alike(features: pd.DataFrame) -> bool:
    """Tell whether different participants may have the same numbers: few or rounded regions."""
    if len(features) < MIN_ALIKE:
        return False
    numbers = features.fillna(0.0).to_numpy(np.float64)
    columns = _independent_columns(numbers)
    return len(columns) >= MIN_ALIKE and _expected_by_chance(numbers[:, columns], 0.0) > CHANCE


def near_copies(study: Study) -> Iterator[Finding]:
    """Rows with almost the same volumes in all regions as another participant."""
    if not study.has_volumes or len(study.features) < 2:
        return
    logs = study.logs.fillna(-1.0).to_numpy()  # A missing volume is like another missing one.
    columns = _independent_columns(logs)
    if len(columns) < MIN_ALIKE or _expected_by_chance(logs[:, columns], NEAR_LOG) > CHANCE:
        return
    names, participants = study.logs.index, study.participant.to_numpy()
    compared = logs[:, columns]
    n_neighbours = min(NEIGHBOURS, len(logs))
    _, neighbours = KDTree(compared).query(
        compared, k=n_neighbours, p=np.inf, distance_upper_bound=NEAR_LOG
    )
    pairs = []
    for first, candidates in enumerate(np.asarray(neighbours)):
        # The number of rows stands for a neighbour that is too far.
        for second in candidates[candidates < len(logs)]:
            is_other = second > first and participants[first] != participants[second]
            if is_other and np.abs(logs[first] - logs[second]).max() <= NEAR_LOG:
                pairs.append(f'{names[first]} = {names[second]}')
    if pairs:
        yield Finding(
            f'Almost the same volumes in all regions (within {NEAR:.1%}) under different ids: '
            f'{list_briefly(pairs, 5)}',
            'One participant may count twice, and be in the training sample when held out',
        )


def _independent_columns(values: Floats) -> list[int]:
    """Choose regions that vary and tell much that the others do not: pivots of a QR decomposition.

    Left and right of a region, for example, are nearly the same.
    """
    centred = values - values.mean(axis=0)
    most = min(N_COMPARED, len(values) // 3, values.shape[1])
    rows = np.linspace(0, len(values) - 1, min(len(values), MOST_FOR_PIVOTS)).astype(int)
    _, triangle, pivots = qr(centred[rows], mode='economic', pivoting=True)
    varying = np.abs(np.diag(triangle)) > 0
    return pivots[: len(varying)][varying][:most].tolist()


def _expected_by_chance(values: Floats, limit: float) -> float:
    """Expect the number of pairs of rows that differ by at most `limit` in all columns.

    Per column, the share of such pairs is counted, which allows for rounding; it is at least that
    of a normal distribution. The density where all differences are 0 is that of independent columns
    divided by the root of the determinant of the correlations.
    """
    n_rows = len(values)
    n_pairs = n_rows * (n_rows - 1) / 2
    log_share = 0.0
    for column in np.sort(values, axis=0).T:
        n_near = (np.searchsorted(column, column + limit, 'right') - np.arange(n_rows) - 1).sum()
        if_normal = 2 * limit / (np.sqrt(4 * np.pi) * column.std())
        share = max(n_near / n_pairs, if_normal, 1 / n_pairs)
        log_share += np.log(min(1.0, share))
    correlations = np.corrcoef(values, rowvar=False)
    log_determinant = np.linalg.slogdet(correlations)[1]
    return float(np.exp(np.log(n_pairs) + log_share - log_determinant / 2))


def empty(study: Study) -> Iterator[Finding]:
    """Regions without a volume: missing, 0, or a code such as -9."""
    wrong = study.features.isna() & (not study.options.impute)
    wrong |= (study.features <= 0) & study.has_volumes
    found = {row: list_briefly(map(_called, names), 3) for row, names in _where(wrong).items()}
    yield Finding(
        rows={row: f'no volume of {names} (missing, 0 or negative)' for row, names in found.items()}
    )


def impossible(study: Study) -> Iterator[Finding]:
    """Impossible ages and head sizes, and codes for missing values such as -9 and 999."""
    for name in map(str, study.people.select_dtypes('number')):
        values = study.people[name]
        known = values[study.main]
        wrong = missing_codes(values)
        if means(name, 'age'):
            wrong |= ~values.between(*POSSIBLE_AGE)
        if name == study.options.icv_column:
            median = known[known > 0].median()
            wrong |= ~values.between(median / OTHER_HEAD, median * OTHER_HEAD)
        usual = plain_number(known.median(), 6)
        why = {str(row): plain_number(value, 6) for row, value in values[wrong].dropna().items()}
        yield Finding(rows={row: f'{name} is {v} (median {usual})' for row, v in why.items()})


def missing_codes(values: pd.Series) -> pd.Series:
    """Mark codes for missing values, which are far below or above all other values."""
    is_code = values.isin(MISSING_CODES)
    rest = values[~is_code].dropna()
    if not is_code.any() or rest.nunique() <= MAX_CODES:
        return is_code & False
    width = rest.max() - rest.min()
    isolated = ~values.between(rest.min() - width, rest.max() + width)
    return is_code & (isolated | ((values < 0) & (rest.min() >= 0)))


def far_volumes(study: Study) -> Iterator[Finding]:
    """Volumes ten times larger or smaller than those of others and beyond 10 robust SD."""
    if not study.has_volumes or study.main.sum() < MIN_TO_SCALE:
        return
    center = study.logs[study.main].median()
    distance = (study.logs - center).abs()
    spread = NORMAL_SD_PER_MAD * distance[study.main].median()
    far = (distance > np.log10(OTHER_UNIT)) & (distance > FAR_VOLUME * spread)
    reasons = {}
    for row, (name, *_) in _where(far).items():
        value, usual = study.features[name][row], 10 ** center[name]
        reasons[row] = f'{_called(name)} is {value:.10g}, but {usual:g} in others'
    yield Finding(rows=reasons)


def outlying(study: Study) -> Iterator[Finding]:
    """A third of the regions far from those of the group: the brain mask is wrong."""
    known = study.group.isin((CONTROL, PATIENT)) & study.features.notna().all(axis=1)
    if study.features.empty or known.sum() < MIN_FOR_OUTLIERS:
        return
    compared = (study.logs if study.has_volumes else study.features)[known]
    distance = (compared - compared.groupby(study.group[known]).transform('median')).abs()
    share = (distance > OUTLYING * NORMAL_SD_PER_MAD * distance.median()).mean(axis=1)
    wrong = share[share > OUTLYING_SHARE]
    yield Finding(rows={str(n): f'{x:.0%} of the regions are outlying' for n, x in wrong.items()})


def sites(study: Study) -> Iterator[Finding]:
    """Sites with too few controls for ComBat."""
    column = study.options.site_column
    is_control = study.group == CONTROL
    if column is None or not is_control.any():
        return
    site = study.people[column]
    counts = site[study.controls].value_counts()
    of_visits = site[is_control].value_counts()
    # Visits to sites that are excluded do not link other sites.
    left = is_control & site.isin(of_visits.index[of_visits >= MIN_AT_SITE])
    if study.model is None and learns_from_visits(
        study.participant[left], study.people[left], study.options
    ):
        counts = of_visits
    small = site[~site.isin(counts.index[counts >= MIN_AT_SITE])]
    has = {place: counted(int(counts.get(place, 0)), 'control') for place in set(small)}
    needed = f'at least {MIN_AT_SITE} are needed for harmonization'
    yield Finding(rows={str(n): f'site {s} has {has[s]}, {needed}' for n, s in small.items()})


def unrelated_size(study: Study) -> Iterator[Finding]:
    """Head sizes that may be of other participants."""
    first = ~study.participant.duplicated()
    if study.icv is None or not study.has_volumes or first.sum() < MIN_TO_RELATE:
        return
    if not study.wanted.scale_with_head:
        return
    # Disease and age shrink regions, not the head: the sum of volumes may hide what is related.
    compared = study.controls if study.controls.any() else first
    sums = study.features[compared].sum(axis=1)
    of_sums = float(study.icv[compared].rank().corr(sums.rank()))
    logs = study.logs[first]
    volumes = logs.fillna(logs.mean()).dropna(axis=1).to_numpy()
    of_regions = predictability(volumes, np.log10(study.icv[first].to_numpy(np.float64)))
    is_related = of_sums > _related_from(int(compared.sum()))
    if not is_related and not of_regions > _related_from(int(first.sum())):
        yield Finding(
            f'{study.icv.name} is hardly related to the volumes (correlation {of_regions:.2f})',
            'Rows may be exchanged and volumes corrected for the wrong head, or the volumes are '
            'corrected for head size already',
        )


def _related_from(n_participants: int) -> float:
    """Return the correlation with head size that exchanged rows hardly ever reach."""
    return RELATED_SD / np.sqrt(max(n_participants - 1, 1))


def constant(study: Study) -> Iterator[Finding]:
    """Numeric covariates and head sizes that are the same, or missing, in all controls."""
    known = study.people[study.controls].select_dtypes('number')
    if study.model is None and len(known) > 1:
        for name in known.columns[known.nunique() < 2]:
            is_known = known[name].notna().any()
            yield Finding(f'{name} is {"the same" if is_known else "missing"} in all controls')


def few_controls(study: Study) -> Iterator[Finding]:
    """Few controls in the sample."""
    n, advised = int(study.controls.sum()), FEW_CONTROLS if study.model is None else FEW_FOR_A_MODEL
    if 0 < n < advised:
        yield Finding(
            f'Few controls: {n}, at least {advised} are recommended',
            'Reference values are imprecise, which shifts the R-indices of all patients alike',
        )


def few_at_sites(study: Study) -> Iterator[Finding]:
    """Few controls at a site."""
    column = study.options.site_column
    if column is not None:
        sizes = study.people.loc[study.controls, column].value_counts()
        advised = FEW_AT_SITE if study.model is None else FEW_FOR_A_MODEL
        yield from _small_sites(sizes if len(sizes) > 1 else sizes[:0], advised)


def _small_sites(sizes: pd.Series, advised: int = FEW_FOR_A_MODEL) -> Iterator[Finding]:
    """Find sites with few controls."""
    small = sizes[sizes < advised].sort_index()
    if len(small):
        listed = list_briefly(f'{site} ({count})' for site, count in small.items())
        yield Finding(
            f'Few controls at sites: {listed}; at least {advised} are recommended',
            'Estimates of scanner effects are imprecise, which shifts the R-indices of all '
            'participants of a site alike',
        )


def warn_of_sites(sizes: pd.Series) -> Iterator[Caution]:
    """Warn of sites that a model has learned from few controls."""
    for found in _small_sites(sizes):
        yield Caution(*found[:2], FEW_AT_SITES.remedy, FEW_AT_SITES.about)


def ages_outside(study: Study) -> Iterator[Finding]:
    """Many patients outside the ages of the controls, or of the training sample of a model."""
    for name in columns_of(study.people.select_dtypes('number'), 'age')[:1]:
        ages = study.people.loc[~study.participant.duplicated(), name]
        group = study.group[ages.index]
        if study.model is None:
            controls, ages = ages[group == CONTROL], ages[group == PATIENT]
            low, high, whose = controls.min(), controls.max(), 'controls'
        else:
            low, high = study.model.ranges.get(name, (np.nan, np.nan))
            whose = 'the training sample'
        outside = ages.index[is_clearly_outside(ages, low, high)]
        if len(outside) > MANY_OUTSIDE * len(ages):
            yield Finding(
                f'{name} of {len(outside)} of {len(ages)} ({list_briefly(outside, 5)}) is more '
                f'than {TOLERATED:.0%} beyond the age range of {whose} ({low:.3g} to {high:.3g})',
                'The age correction is extrapolated',
            )


SEGMENTATION = 'check the segmentation'
FEW_AT_SITES = Check(
    few_at_sites, 'warn', 'Add controls, or do not compare these sites', HARMONIZATION
)

CHECKS = (
    Check(negative, 'stop', 'use volumes as measured, or add --covariates none --icv none'),
    Check(other_unit, 'stop', 'convert all to mm3, or to the unit of the model'),
    Check(constant, 'stop', 'correct it, or leave it out (--covariates, --icv none)'),
    Check(not_in_years, 'stop', 'write ages in years'),
    Check(levels, 'stop', 'correct the column, or use others (--covariates, --site-column)'),
    Check(same_as_group, 'stop', 'remove it from --covariates, as it would remove the disease'),
    Check(missing, 'exclude', 'add it, or go without the column'),
    Check(copies, 'exclude', 'keep one of them'),
    Check(empty, 'exclude', SEGMENTATION),
    Check(impossible, 'exclude', 'correct it if it is an error'),
    Check(far_volumes, 'exclude', SEGMENTATION),
    Check(outlying, 'exclude', SEGMENTATION),
    Check(sites, 'exclude', 'merge sites, or use --site-column none'),
    Check(all_in_other_unit, 'warn', 'Convert them to mm3 to compare them with other studies'),
    Check(few_controls, 'warn', 'Add controls, or compare patients with each other only'),
    FEW_AT_SITES,
    Check(ages_outside, 'warn', 'Add controls of these ages, or use a model trained on them'),
    Check(unrelated_size, 'warn', 'Check that rows belong to the same participants'),
    Check(near_copies, 'warn', 'Correct the ids, or exclude one of them (--exclude)'),
)
"""All checks, in order; docs/tables.md lists them by the first sentence of their docstrings."""


def run_checks(study: Study, source: str) -> tuple[Study, Reasons, list[Caution]]:
    """Run all checks; return who remains, why others are excluded, and warnings.

    Raises
    ------
    DataError
        Everything that stops, one finding per line.
    """
    stops: list[str] = []
    reasons: Reasons = {}
    cautions: list[Caution] = []
    for check in CHECKS:
        for found in check.find(study):
            if check.severity == 'stop':
                stops.append(f'{source}: {found.text}; {check.remedy}')
            elif check.severity == 'warn':
                cautions.append(Caution(*found[:2], check.remedy, check.about))
            else:
                reasons = {n: f'{why}; {check.remedy}' for n, why in found.rows.items()} | reasons
        if len(reasons) > 0 and check.severity == 'exclude':
            study = study.without(reasons)
    if stops:
        raise DataError('\n'.join(stops))
    return study, reasons, cautions


def require_groups(study: Study, reasons: Reasons, both: bool) -> None:
    """Refuse groups that are too small to train or to learn sites, or that lost most participants.

    Parameters
    ----------
    study
        Everyone with volumes, excluded or not.
    reasons
        Why visits are excluded.
    both
        Whether patients are needed.
    """
    left = ~study.group.index.isin(list(reasons))
    needed = {CONTROL: MIN_PEOPLE, PATIENT: MIN_PEOPLE * both}
    for name, minimum in (needed if study.model is None else {CONTROL: MIN_FOR_SCALE}).items():
        of_group = study.group == name
        n_all, n_left = (study.participant[of_group & rows].nunique() for rows in (True, left))
        if n_left < minimum or (study.model is None and n_left < MOST_LEFT * n_all):
            raise DataError(
                f'{counted(n_left, SINGULAR[name])} left of {n_all}, but at least {minimum}, and '
                f'half of all, are needed; excluded: {summarise_reasons(reasons.values())}. '
                'Correct the tables and labels, add participants, or go without a column '
                '(--covariates, --icv none, --site-column none)'
            )


def summarise_reasons(reasons: Collection[str], most: int = 5) -> str:
    """Count the exclusions for each of the most frequent reasons, in one line.

    Reasons that differ only in numbers are of one kind.
    """
    of_kind: dict[str, list[str]] = {}
    for reason in reasons:
        of_kind.setdefault(NUMBER.sub('0', reason), []).append(reason)
    kinds = sorted(of_kind.values(), key=len, reverse=True)
    listed = []
    for similar in kinds[:most]:
        like = 'for' if len(set(similar)) == 1 else 'for reasons like'
        listed.append(f'{len(similar)} {like} "{similar[0]}"')
    return ', '.join(listed) + ', ...' * (len(kinds) > most) or 'nobody'


def _where(wrong: pd.DataFrame) -> dict[str, list[str]]:
    """Return the wrong columns of each visit, if there are any."""
    found: dict[str, list[str]] = {}
    for row, column in np.argwhere(wrong.to_numpy()):
        found.setdefault(wrong.index[row], []).append(wrong.columns[column])
    return found


def _called(column: str) -> str:
    """Add the name of a MUSE region to its number."""
    index = muse_index(column)
    name = region_names().get(index or 0)
    return column if name is None or not column[-1].isdecimal() else f'{column} ({name})'
