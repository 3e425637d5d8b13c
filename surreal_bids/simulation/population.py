"""A built-in healthy population: volumes of the 139 MUSE regions, age, sex, site and ICV.

The log of a volume is linear in the known variables and in a few hidden factors::

    log v_j = m_j + age_j (age - 58.5 y) / 10 y + male_j (male - 1/2)
              + icv_j log(ICV / 1.4 l) + site_j + sum_k L_jk f_k + u_j e_j

with f_k and e_j standard normal. Mean and spread of each region come from the region table (left
and right alike); the effects and the factors from the short rules below, chosen so that the
population resembles 291 healthy participants aged 40-86 years: coefficients of variation of 10-27 %
(median 15 %); and, for log volumes, a mean absolute correlation of 0.49, a median left-right
correlation of 0.82 (quartiles 0.71 and 0.88), a first component that carries half of the variance
and 23 components that carry 80 %.

Shape legend: N participants, S = 139 regions, F factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import truncnorm
from sklearn.covariance import LedoitWolf

from surreal_bids.bids.tabular import read_table
from surreal_bids.columns import Meaning, column_of, sex_of
from surreal_bids.exceptions import DataError
from surreal_bids.regions import Feature, build_features, muse_indices, muse_table, structure_of

KNOWN: tuple[Meaning, ...] = ('age', 'sex', 'site', 'icv')
"""What may be known of participants besides their volumes."""

MIN_FITTED = 10
"""Minimum number of participants to estimate how regions vary together."""


@dataclass(frozen=True)
class Controls:
    """Healthy participants: volumes (N, S) in mm3; age, sex, site and icv, row by row."""

    volumes: pd.DataFrame
    people: pd.DataFrame


def volume_columns() -> list[str]:
    """Names of the 139 volume columns, ``MUSE_23`` to ``MUSE_207``."""
    return [f'MUSE_{index}' for index in muse_indices()]


def read_controls(path: str | Path) -> Controls:
    """Read healthy participants from a CSV or TSV file, one row per participant.

    Regions are recognised as in :func:`surreal_bids.regions.recognise`; all 139 are needed, and
    ventricles are ignored. Age, sex, site and ICV are missing where there is no such column.

    Raises
    ------
    DataError
        If the file cannot be read, lacks a region, holds volumes that are missing or not positive,
        or has two rows for one participant.
    """
    table = read_table(Path(path)).typed()
    try:
        return controls_from_table(table)
    except DataError as error:
        raise DataError(f'{path}: {error}') from error


def controls_from_table(table: pd.DataFrame) -> Controls:
    """Find the 139 regions and the known variables in a table; see `read_controls`."""
    table = table.rename(columns=str)
    _require_one_row_each(table)
    features = [Feature(f'MUSE_{index}', (index,)) for index in muse_indices()]
    volumes = build_features(table, features).reset_index(drop=True)
    _require_positive(volumes)
    return Controls(volumes, _known_of_people(table))


def _known_of_people(table: pd.DataFrame) -> pd.DataFrame:
    people = {}
    for name in KNOWN:
        column = column_of(table.columns, name)
        people[name] = table[column].tolist() if column else [np.nan] * len(table)
    people['sex'] = [sex_of(str(sex)) or sex for sex in people['sex']]
    return pd.DataFrame(people)


def _require_one_row_each(table: pd.DataFrame) -> None:
    column = column_of(table.columns, 'participant')
    if column is None:
        return
    repeated = table.loc[table[column].duplicated(), column].unique()
    if repeated.size:
        raise DataError(
            f'column {column!r} has {repeated[0]} more than once; keep one row per participant'
        )


def _require_positive(volumes: pd.DataFrame) -> None:
    bad = ~(volumes.to_numpy() > 0)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(
            f'{bad.any(axis=1).sum()} of {len(volumes)} rows have a volume that is missing or not '
            f'positive, such as {volumes.columns[column]} in row {row + 1}; exclude these rows'
        )


def shrunk_covariance(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance (S, S) of columns of `values` (N, S), of full rank also where S exceeds N."""
    return np.asarray(LedoitWolf().fit(values).covariance_)


def resample_gaussian(controls: Controls, n_people: int, rng: np.random.Generator) -> Controls:
    """Sample participants from a log-normal distribution fitted to the controls.

    Log volumes get the mean of the controls and their covariance as estimated by Ledoit and Wolf
    (2004), which is of full rank even where regions outnumber participants. Age, sex, site and ICV
    of those sampled are missing.
    """
    if len(controls.volumes) < MIN_FITTED:
        raise DataError(
            f'a distribution cannot be fitted to {len(controls.volumes)} participants; provide at '
            f'least {MIN_FITTED}'
        )
    log_volumes = np.log(controls.volumes.to_numpy())
    drawn = rng.multivariate_normal(
        log_volumes.mean(axis=0), shrunk_covariance(log_volumes), size=n_people, method='cholesky'
    )
    unknown = pd.DataFrame(np.nan, index=range(n_people), columns=controls.people.columns)
    return Controls(pd.DataFrame(np.exp(drawn), columns=controls.volumes.columns), unknown)


Array = NDArray[np.float64]

AGE_MEAN, AGE_SD, AGE_RANGE = 58.5, 10.5, (40.0, 86.0)
"""Years: a normal distribution cut off at both ends."""

_STANDARD_AGE_RANGE = tuple((limit - AGE_MEAN) / AGE_SD for limit in AGE_RANGE)

ICV_MM3 = 1.4e6
"""Geometric mean of the intracranial volume of women and men."""

ICV_SEX_DIFFERENCE, ICV_SPREAD = 0.145, 0.085
"""Log ICV: men minus women, and the standard deviation among either."""

SITES = {'site1': 0.5, 'site2': 0.3, 'site3': 0.2}
"""Share of the participants scanned at each site."""

SITE_TISSUE_SHIFT = {
    'site1': {'GM': 0.0, 'WM': 0.0, 'none': 0.0},
    'site2': {'GM': -0.01, 'WM': 0.015, 'none': 0.03},
    'site3': {'GM': 0.04, 'WM': 0.0, 'none': 0.02},
}
"""Log volume that a scanner adds to all regions of a tissue (contrast moves the boundaries)."""

SITE_REGION_SHIFT = 0.04
"""Greatest log volume that a scanner adds to or takes from a single region on top of that."""


class Group(NamedTuple):
    """What regions of one lobe and tissue have in common (log volumes)."""

    family: str
    """Regions of a family share a factor: cortex, white matter, or the core of the brain."""
    age: float
    """Change per decade."""
    male: float
    """Men minus women of the same ICV."""
    icv: float
    """Exponent of the ICV: 1 scales with the head, less than 1 lags behind it."""


GROUPS = {
    ('frontal', 'GM'): Group('cortex', age=-0.050, male=-0.020, icv=0.95),
    ('temporal', 'GM'): Group('cortex', age=-0.045, male=-0.005, icv=0.95),
    ('parietal', 'GM'): Group('cortex', age=-0.040, male=-0.025, icv=0.95),
    ('limbic', 'GM'): Group('cortex', age=-0.030, male=-0.010, icv=0.90),
    ('occipital', 'GM'): Group('cortex', age=-0.015, male=0.005, icv=0.95),
    ('frontal', 'WM'): Group('white', age=-0.005, male=-0.020, icv=1.05),
    ('temporal', 'WM'): Group('white', age=0.0, male=0.0, icv=1.05),
    ('parietal', 'WM'): Group('white', age=0.0, male=-0.020, icv=1.05),
    ('occipital', 'WM'): Group('white', age=0.0, male=0.005, icv=1.05),
    ('deep', 'WM'): Group('white', age=-0.025, male=-0.010, icv=0.85),
    ('none', 'WM'): Group('white', age=-0.025, male=0.005, icv=1.00),
    ('deep', 'GM'): Group('core', age=-0.030, male=0.0, icv=0.70),
    ('none', 'none'): Group('core', age=-0.020, male=0.005, icv=0.80),
    ('cerebellum', 'GM'): Group('core', age=-0.025, male=0.015, icv=0.75),
    ('cerebellum', 'WM'): Group('core', age=-0.020, male=-0.005, icv=0.80),
}
"""Effects by lobe and tissue of the region table."""

FAMILY_SHARE = {'cortex': 0.08, 'white': 0.25, 'core': 0.20}
"""Of the variance left by the known effects, the share owed to the factor of the family."""

LOBE_SHARE = 0.12
"""The share owed to the factor of the lobe."""

PAIR_SHARE_RANGE = (0.14, 0.82)
"""Of what is then left, the share that left and right have in common, even over structures."""

N_WAVES = 22
"""Number of factors that hold what left and right have in common."""

GOLDEN_RATIO, SILVER_RATIO = (1 + np.sqrt(5)) / 2, 1 + np.sqrt(2)
"""Multiples of these, modulo 1, fill the unit interval evenly (Weyl sequences)."""


@dataclass(frozen=True)
class Population:
    """Parameters of the model at the top of this module, in natural logs of mm3."""

    log_mean: Array
    """m, (S,)."""
    known: Array
    """Effects of age (per decade), of being male and of log ICV, (3, S)."""
    sites: Array
    """Effect of each site, (number of sites, S)."""
    factors: Array
    """L, (F, S)."""
    unique: Array
    """u, (S,)."""


def _regions() -> pd.DataFrame:
    table = muse_table()
    table = table[table['index'].isin(muse_indices())].reset_index(drop=True)
    return table.assign(structure=table['name'].map(structure_of))


def _spread_evenly(codes: NDArray[np.intp], ratio: float | Array) -> Array:
    """Give each code a number in [0, 1) so that the numbers fill the interval evenly."""
    return np.asarray((codes + 1) * ratio % 1, dtype=np.float64)


def _wave_weights(structures: NDArray[np.intp]) -> Array:
    """Give unit weights (N_WAVES, S), the same left and right, else almost unrelated."""
    frequency = GOLDEN_RATIO * np.arange(1, N_WAVES + 1)[:, None]
    weights = np.cos(2 * np.pi * _spread_evenly(structures, frequency))
    return weights / np.linalg.norm(weights, axis=0)


def _indicators(codes: NDArray[np.intp]) -> Array:
    """One row per code, 1 where a region has it; (codes, S)."""
    return (codes == np.arange(codes.max() + 1)[:, None]).astype(float)


def _known_covariance() -> Array:
    """Covariance (3, 3) of age in decades, being male, and log ICV in the population."""
    age = truncnorm.var(*_STANDARD_AGE_RANGE, scale=AGE_SD / 10)
    return np.array(
        [
            [age, 0, 0],
            [0, 0.25, 0.25 * ICV_SEX_DIFFERENCE],
            [0, 0.25 * ICV_SEX_DIFFERENCE, 0.25 * ICV_SEX_DIFFERENCE**2 + ICV_SPREAD**2],
        ]
    )


def _site_effects(regions: pd.DataFrame, structures: NDArray[np.intp]) -> Array:
    """Effect of each site on each log volume, (number of sites, S), zero on average."""
    region_shift = [
        SITE_REGION_SHIFT * np.cos(2 * np.pi * _spread_evenly(structures, (k + 1) * SILVER_RATIO))
        for k in range(len(SITES))
    ]
    tissue_shift = [regions['tissue'].map(SITE_TISSUE_SHIFT[site]) for site in SITES]
    effects = np.array(tissue_shift) + np.array(region_shift)
    return effects - np.array(list(SITES.values())) @ effects


def _factor_weights(regions: pd.DataFrame, families: pd.Series) -> Array:
    """Correlation of each factor with what the known effects leave of each region, (F, S)."""
    lobes, structures = (pd.factorize(regions[column])[0] for column in ('lobe', 'structure'))
    family_share = families.map(FAMILY_SHARE).to_numpy()
    low, high = PAIR_SHARE_RANGE
    pair_share = low + (high - low) * _spread_evenly(structures, GOLDEN_RATIO)
    pair_share *= 1 - family_share - LOBE_SHARE
    return np.vstack(
        [
            _indicators(pd.factorize(families)[0]) * np.sqrt(family_share),
            _indicators(lobes) * np.sqrt(LOBE_SHARE),
            _wave_weights(structures) * np.sqrt(pair_share),
        ]
    )


@cache
def built_in_population() -> Population:
    """Build the parameters from the region table and the rules of this module."""
    regions = _regions()
    groups = [GROUPS[key] for key in zip(regions['lobe'], regions['tissue'])]
    known = np.array([(group.age, group.male, group.icv) for group in groups]).T
    sites = _site_effects(regions, pd.factorize(regions['structure'])[0])
    total = np.log1p(regions['cv'].to_numpy() ** 2)
    explained = np.einsum('is,ij,js->s', known, _known_covariance(), known)
    unexplained = total - explained - np.array(list(SITES.values())) @ sites**2
    weights = _factor_weights(regions, pd.Series([group.family for group in groups]))
    return Population(
        log_mean=np.log(regions['volume_mm3'].to_numpy()) - total / 2,
        known=known,
        sites=sites,
        factors=weights * np.sqrt(unexplained),
        unique=np.sqrt((1 - (weights**2).sum(axis=0)) * unexplained),
    )


def _sample_people(n_people: int, rng: np.random.Generator) -> pd.DataFrame:
    standard_age = truncnorm.rvs(*_STANDARD_AGE_RANGE, size=n_people, random_state=rng)
    male = rng.integers(2, size=n_people)
    log_icv = ICV_SEX_DIFFERENCE * (male - 0.5) + rng.normal(scale=ICV_SPREAD, size=n_people)
    return pd.DataFrame(
        {
            'age': np.round(AGE_MEAN + AGE_SD * standard_age, 1),
            'sex': np.where(male == 1, 'M', 'F'),
            'site': rng.choice(list(SITES), size=n_people, p=list(SITES.values())),
            'icv': np.round(ICV_MM3 * np.exp(log_icv)),
        }
    )


def _expected_log_volumes(people: pd.DataFrame, population: Population) -> Array:
    """Log volumes (N, S) expected at this age, sex, ICV and site."""
    known = np.column_stack(
        [
            (people['age'] - AGE_MEAN) / 10,
            (people['sex'] == 'M') - 0.5,
            np.log(people['icv'] / ICV_MM3),
        ]
    )
    site = pd.Categorical(people['site'], categories=list(SITES)).codes
    return population.log_mean + known @ population.known + population.sites[site]


def sample_controls(n_people: int, rng: np.random.Generator) -> Controls:
    """Sample healthy participants from the built-in population."""
    population = built_in_population()
    people = _sample_people(n_people, rng)
    n_factors, n_regions = population.factors.shape
    log_volumes = (
        _expected_log_volumes(people, population)
        + rng.normal(size=(n_people, n_factors)) @ population.factors
        + rng.normal(size=(n_people, n_regions)) * population.unique
    )
    return Controls(pd.DataFrame(np.exp(log_volumes), columns=volume_columns()), people)
