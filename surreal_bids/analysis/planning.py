"""Number of participants that a study needs, from simulated studies of a user's own controls.

Healthy participants follow the law of the controls: log volumes are linear in covariates and head
size, and what these do not explain is normal. Patients lose volume in M patterns that overlap a
little, with severities from U[0, 1]. A study is preprocessed as data are, so that the cost of
covariates and of scanners counts.

Shapes: N participants, S regions, M patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import beta

from surreal_bids.bids.tabular import prefix_errors
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.plausibility import summarise_reasons
from surreal_bids.config import PLANNED_SIZES
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.covariates import ICVHandling
from surreal_bids.harmonization.empirical_bayes import MIN_FOR_SCALE
from surreal_bids.harmonization.quality import without_warnings
from surreal_bids.model.checks import MIN_PEOPLE
from surreal_bids.model.expectation import one_thread
from surreal_bids.model.factors import fit_samples, most_patterns
from surreal_bids.model.stability import Stability, stability
from surreal_bids.names import CONTROL, PARTICIPANT, PATIENT
from surreal_bids.parallel import in_threads
from surreal_bids.progress import report
from surreal_bids.rindices.model import prepare
from surreal_bids.rindices.preprocessing import (
    fit_preprocessing,
    is_complete,
    residuals_of_all,
)
from surreal_bids.simulation.population import shrunk_covariance
from surreal_bids.simulation.tables import MOST_PEOPLE, shrink_regions
from surreal_bids.stats.concordance import pattern_c_index
from surreal_bids.text import align, counted, list_briefly

Array = NDArray[np.float64]

MIN_CONTROLS = 20
"""Fewer controls say too little of how regions vary together."""

EXTENT = 0.1
"""Part of the regions in a pattern, where no number is given; 14 of 139, as in the paper."""

FEWEST, MOST, PRECISE = 8, 30, 0.03
"""Studies of each size: as many as make the standard error of reproducibility this small."""

STUDY_COST = 300
"""What a study costs beside its participants, in participants."""

SUFFICIENT = 0.8
"""Share of studies that must reproduce all patterns, the usual power of a study."""

SHARED_PART = 7
"""One in so many regions of a pattern is also one of the next pattern."""

LOSS_SD = 0.05
"""Standard deviation of the factor N(1, sd) by which losses vary within a pattern."""

MOST_LOSS = 0.8
"""Losses vary, and none may exceed the volume."""

PLAN_COLUMNS = [
    *('controls', 'patients', 'n_patterns', 'n_regions', 'loss', 'sites', 'studies'),
    *('reproducibility', 'reproducibility_se', 'c_index', 'c_index_se'),
    *('reproduced', 'reproduced_se'),
]
"""Columns of a plan."""

MOST_DRAWS = 1000
"""How often controls are drawn again where a category is rare."""

SITE = 'site'
"""Column of simulated scanners, where the controls have none."""

SITE_SHIFT = 0.04
"""Standard deviation of the log volume that a scanner adds to a region."""


@dataclass(frozen=True)
class Design:
    """A study that is planned.

    Attributes
    ----------
    n_patterns, n_regions
        Number of patterns, and of the regions of each.
    loss
        Share of the volume that a region of a pattern loses at severity 1.
    sites
        Number of scanners; each scans as many of either group.
    """

    n_patterns: int
    n_regions: int
    loss: float
    sites: int


def make_design(
    controls: Cohort,
    sizes: Sequence[tuple[int, int]],
    n_patterns: int,
    loss: float,
    sites: int | None = None,
    n_regions: int | None = None,
) -> Design:
    """Check a design; by default, it has as many sites as the controls, and a tenth of the regions.

    Raises
    ------
    UsageError
        A number is impossible.
    """
    column = controls.options.site_column
    if sites is None:
        sites = 1 if column is None else controls.people[column].nunique()
    if n_regions is None:
        n_regions = max(round(EXTENT * len(controls.wanted)), 1)
    for name, number in (('n-patterns', n_patterns), ('sites', sites), ('regions', n_regions)):
        if number < 1:
            raise UsageError(f'--{name} {number}: expected 1 or more')
    if not 0 < loss <= MOST_LOSS:
        raise UsageError(
            f'--loss {loss:g}: expected a share of the volume, above 0 and at most {MOST_LOSS:g}'
        )
    design = Design(n_patterns, n_regions, loss, sites)
    _require_possible(design, sizes, len(controls.wanted))
    return design


def describe_controls(controls: Cohort) -> str:
    """Say whom a plan is based on, and who else is in the table."""
    n_controls, n_regions = controls.counts[CONTROL], len(controls.wanted)
    used = f'{counted(n_controls, "control")}, {counted(n_regions, "region")}'
    others = summarise_reasons(controls.exclusions['reason'])
    return f'{used}; not used: {others or "none"}\n'


class Law(NamedTuple):
    """Healthy participants of one scanner.

    Attributes
    ----------
    controls
        Whose covariates and head sizes those who are drawn have.
    expected : (N, S)
        Log volumes expected of each.
    covariance : (S, S)
        Covariance of log volumes around these.
    """

    controls: Cohort
    expected: Array
    covariance: Array


def learn_law(controls: Cohort) -> Law:
    """Learn the law of controls, from the first visit of each; effects of their sites are removed.

    Raises
    ------
    DataError
        There are too few controls, or their features are no volumes.
    """
    first = controls.first_visits()
    first = first.select(is_complete(first.people, first.options))
    if len(first) < MIN_CONTROLS:
        raise DataError(
            f'{counted(len(first), "control")}, but a plan needs at least {MIN_CONTROLS}; add '
            'controls'
        )
    if first.wanted.are_z_scores:
        raise DataError('columns hold z-scores, but a plan needs volumes; give a table of volumes')
    healthy = pd.Series(True, first.features.index)
    steps, _ = fit_preprocessing(first.wanted, first.options, first.features, first.people, healthy)
    volumes = steps.harmonize(first.features, first.people)
    if first.options.icv == 'proportion':
        volumes = volumes.mul(first.people[first.options.icv_column], axis=0)
    not_positive = volumes.columns[volumes.le(0).any()]
    if len(not_positive):
        raise DataError(
            f'not positive, after harmonization, in some controls: {list_briefly(not_positive)}; '
            'exclude these regions (--features)'
        )
    by_ratio: ICVHandling = 'power' if first.options.uses_icv else 'none'
    options = replace(first.options, site_column=None, icv=by_ratio)
    values = volumes if first.options.uses_icv else volumes.transform(np.log)
    own, errors = residuals_of_all(replace(steps, options=options), values, first.people)
    sd = errors.std(axis=0)
    covariance = shrunk_covariance(errors / sd) * np.outer(sd, sd)
    return Law(first, np.log(volumes.to_numpy()) - own, covariance)


class Study(NamedTuple):
    """A simulated study, and the severities (N, M) of its patients."""

    cohort: Cohort
    severities: Array


def draw_study(law: Law, design: Design, size: tuple[int, int], rng: np.random.Generator) -> Study:
    """Simulate a study of so many controls and patients, who are alike in covariates."""
    (n_cn, n_pt), n_regions = size, len(law.covariance)
    number = np.concatenate([np.arange(n_cn), np.arange(n_pt)])
    is_patient = np.arange(n_cn + n_pt) >= n_cn
    rows = _draw_controls(law.controls, n_cn, rng)
    # Patients are like controls of the study, so that no category is theirs alone.
    rows = np.concatenate([rows, rng.choice(rows, n_pt)])
    errors = rng.multivariate_normal(
        np.zeros(n_regions), law.covariance, len(rows), method='cholesky'
    )
    shifts = rng.normal(0, SITE_SHIFT if design.sites > 1 else 0, (design.sites, n_regions))
    volumes = np.exp(law.expected[rows] + errors + shifts[number % design.sites])
    severities = rng.uniform(size=(n_pt, design.n_patterns))
    patterns = draw_patterns(law.covariance, design, rng)
    volumes[is_patient] = shrink_regions(
        volumes[is_patient], severities, patterns, design.loss, LOSS_SD, rng
    )
    return Study(
        _cohort(law.controls, rows, volumes, is_patient, number % design.sites), severities
    )


def _draw_controls(controls: Cohort, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw controls with replacement, again while a covariate is the same in all of them."""
    people = controls.people[list(controls.options.covariates)]
    rows = rng.integers(len(controls), size=size)
    for _ in range(MOST_DRAWS):
        if people.iloc[rows].nunique().gt(1).all():
            break
        rows = rng.integers(len(controls), size=size)
    return rows


def draw_patterns(
    covariance: Array, design: Design, rng: np.random.Generator
) -> list[NDArray[np.intp]]:
    """Regions of each pattern.

    They are a region at random and those that vary most with it, such as that of the other side
    and its neighbours: diseases affect regions that belong together. A seventh of them are those of
    the next pattern, as in the paper's tasks: patterns that overlap are harder to tell apart.
    """
    sd = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(sd, sd)
    n_shared = design.n_regions // SHARED_PART if design.n_patterns > 1 else 0
    is_free, own = np.ones(len(sd), dtype=bool), []
    for _ in range(design.n_patterns):
        seed = rng.choice(np.flatnonzero(is_free))
        nearest = np.argsort(-np.where(is_free, correlation[seed], -np.inf), kind='stable')
        own.append(nearest[: design.n_regions - n_shared])
        is_free[own[-1]] = False
    after = [*own[1:], own[0]]
    return [np.concatenate([new, other[:n_shared]]) for new, other in zip(own, after)]


def _cohort(
    like: Cohort, rows: NDArray, volumes: Array, is_patient: NDArray, site: NDArray
) -> Cohort:
    """Participants with the covariates of some of the controls."""
    names = pd.Index([f'sub-{k:06}' for k in range(len(rows))])
    group = np.where(is_patient, PATIENT, CONTROL)
    column = like.options.site_column or SITE
    has_sites = bool(site.any())
    people = like.people.iloc[rows].set_axis(names)
    return replace(
        like,
        visits=pd.DataFrame({PARTICIPANT: names, 'group': group, 'is_first': True}, names),
        features=pd.DataFrame(volumes, names, like.features.columns),
        people=people.assign(**{column: np.char.mod('site%d', site)}) if has_sites else people,
        others=pd.DataFrame(index=names),
        options=replace(like.options, site_column=column if has_sites else None),
    )


class Outcome(NamedTuple):
    """What a simulated study finds.

    Attributes
    ----------
    reproducibility
        Correlation of the least stable pattern's severities between subsamples.
    c_index
        How often two patients are ordered as their true severities are, mean over patterns.
    is_reproduced
        Whether all patterns count as reproduced.
    """

    reproducibility: float
    c_index: float
    is_reproduced: bool


class Seen(NamedTuple):
    """What a model sees of the controls and patients of a study, (N, S); the truth, and a seed."""

    cn: Array
    pt: Array
    severities: Array
    seed: Sequence[int]


def preprocess(study: Study, seed: Sequence[int]) -> Seen:
    """Preprocess a study as data are."""
    with without_warnings():
        X, is_patient = prepare(study.cohort).arrays
    values = X.to_numpy()
    return Seen(values[~is_patient], values[is_patient], study.severities, seed)


def examine(seen: Seen) -> Outcome:
    """Find the patterns of a study by linear factors, from which members start."""
    cn, pt, severities, seed = seen
    n_patterns = severities.shape[1]
    value = stability(cn, pt, n_patterns, seed)
    everyone = (np.arange(len(cn)), np.arange(len(pt)))
    (factors,) = fit_samples(cn, pt, [everyone], n_patterns)
    return Outcome(
        value,
        pattern_c_index(factors.severities(pt), severities),
        Stability(n_patterns, value).is_supported,
    )


def plan_study(
    law: Law, design: Design, sizes: Sequence[tuple[int, int]], random_seed: int = 0
) -> pd.DataFrame:
    """Simulate studies of several sizes, until the mean reproducibility of each is known well.

    Parameters
    ----------
    law
        Healthy participants.
    design
        Patterns and scanners.
    sizes
        Numbers of controls and patients.
    random_seed
        Seed of all random numbers; a size gives the same result beside any others.

    Returns
    -------
    DataFrame, one row per size
        `bids/columns.yaml` describes the columns.
    """
    ordered = sorted(set(sizes), key=lambda size: (sum(size), size))
    work = np.cumsum([0, *(STUDY_COST + sum(size) for size in ordered)])
    rows = []
    for number, size in enumerate(ordered):
        outcomes: list[Outcome] = []
        name = f'{size[0]} controls and {size[1]} patients'
        with prefix_errors(f'a simulated study of {name}'), one_thread():
            for outcome in in_threads(examine, _draw_studies(law, design, size, random_seed)):
                outcomes.append(outcome)
                done = np.interp(len(outcomes), (0, MOST), work[number : number + 2])
                report(float(done), float(work[-1]), name)
                if _is_enough(outcomes):
                    break
        rows.append(_describe(size, design, outcomes))
    return pd.DataFrame(rows, columns=PLAN_COLUMNS)


def _draw_studies(
    law: Law, design: Design, size: tuple[int, int], random_seed: int
) -> Iterator[Seen]:
    """Draw studies one after the other."""
    for number in range(MOST):
        seed = (random_seed, *size, number)
        yield preprocess(draw_study(law, design, size, np.random.default_rng(seed)), seed)


def _require_possible(design: Design, sizes: Sequence[tuple[int, int]], n_features: int) -> None:
    """Refuse more patterns than there are regions for, and sizes that cannot be trained on."""
    most = min(most_patterns(n_features), n_features // design.n_regions)
    if design.n_patterns > most:
        raise UsageError(
            f'--n-patterns {design.n_patterns} with {design.n_regions} regions each: the table has '
            f'{n_features} regions, enough for {most} such patterns; use fewer patterns or '
            '--regions'
        )
    least = _least_controls(design)
    for n_cn, n_pt in sizes:
        if n_cn < least or n_pt < MIN_PEOPLE:
            raise UsageError(
                f'--sizes {n_cn}+{n_pt}: at least {least} controls (three at each site) and '
                f'{MIN_PEOPLE} patients are needed'
            )
        if n_cn + n_pt > MOST_PEOPLE:
            raise UsageError(f'--sizes {n_cn}+{n_pt}: at most {MOST_PEOPLE} participants')


def _least_controls(design: Design) -> int:
    return max(MIN_PEOPLE, MIN_FOR_SCALE * design.sites)


def default_sizes(design: Design) -> list[tuple[int, int]]:
    """Return the usual sizes that have enough controls at each site, at least the largest."""
    enough = [size for size in PLANNED_SIZES if size[0] >= _least_controls(design)]
    return enough or [PLANNED_SIZES[-1]]


def _is_enough(outcomes: Sequence[Outcome]) -> bool:
    values = [each.reproducibility for each in outcomes]
    if len(outcomes) < FEWEST or standard_error(values) > PRECISE:
        return False
    share = float(np.mean([each.is_reproduced for each in outcomes]))
    return abs(share - SUFFICIENT) >= _error_of_share(share, len(outcomes))


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def _describe(size: tuple[int, int], design: Design, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """A row of the table."""
    values, c_indices, reproduced = zip(*outcomes)
    n, share = len(outcomes), float(np.mean(reproduced))
    return {
        'controls': size[0],
        'patients': size[1],
        **asdict(design),
        'studies': n,
        'reproducibility': float(np.mean(values)),
        'reproducibility_se': standard_error(values),
        'c_index': float(np.mean(c_indices)),
        'c_index_se': standard_error(c_indices),
        'reproduced': share,
        'reproduced_se': _error_of_share(share, n),
    }


def _error_of_share(share: float, n: int) -> float:
    """Standard error of a share, that of a beta distribution: not zero where all agree."""
    return float(beta(n * share + 1, n * (1 - share) + 1).std())


def summarise_plan(plan: pd.DataFrame, design: Design) -> str:
    """Say what was simulated, what was found, and how many participants suffice, in words."""
    planned = (
        f'Planned: {counted(design.n_patterns, "pattern")}, {counted(design.n_regions, "region")} '
        f'each, with a loss of up to {design.loss:.0%}; {counted(design.sites, "site")}'
    )
    header = ('controls', 'patients', 'reproducibility', 'c-index', 'reproduced')
    rows = [
        (
            f'{row.controls}',
            f'{row.patients}',
            f'{row.reproducibility:.2f} (SE {row.reproducibility_se:.2f})',
            f'{row.c_index:.2f} (SE {row.c_index_se:.2f})',
            f'{row.reproduced:.0%} of {row.studies}',
        )
        for row in plan.itertuples()
    ]
    return '\n'.join([planned, align([header, *rows]), verdict(plan)]) + '\n'


def verdict(plan: pd.DataFrame) -> str:
    """Say which size suffices: the smallest from which on all sizes do."""
    enough = plan['reproduced'].ge(SUFFICIENT)[::-1].cummin()[::-1]
    asked = f'all patterns reproduced in at least {SUFFICIENT:.0%} of simulated studies'
    if not enough.any():
        return f'No size that was tried suffices ({asked}). Try larger sizes (--sizes).'
    row = next(plan[enough].itertuples())
    smallest = ', the smallest size that was tried,' if enough.all() else ''
    return (
        f'{row.controls} controls and {row.patients} patients{smallest} suffice: {asked} '
        f'({row.reproduced:.0%} of {row.studies}). Plan with a margin: patterns of a disease may '
        'overlap more than simulated ones.'
    )
