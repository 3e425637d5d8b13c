"""A built-in healthy population: volumes of the 139 MUSE regions, age, sex, site and ICV.

The log of a volume is linear in the known variables and in a few hidden factors::

    log v_j = m_j + age_j (age - 58.5 y) / 10 y + male_j (male - 1/2)
              + icv_j log(ICV / 1.4 l) + site_j + sum_k L_jk f_k + u_j e_j

with f_k and e_j standard normal. The parameters (`benchmarks/population.py`) were chosen so that
the population resembles 291 healthy participants aged 40-86 years: coefficients of variation of
10-27 % (median 15 %); and, for log volumes, a mean absolute correlation of 0.49, a median
left-right correlation of 0.82 (quartiles 0.71 and 0.88), a first component that carries half of the
variance and 23 components that carry 80 %.

Shape legend: N participants, S = 139 regions, F factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import truncnorm
from sklearn.covariance import LedoitWolf

from surreal_bids.exceptions import DataError
from surreal_bids.names import Role, column_of, sex_of
from surreal_bids.regions import Feature, build_features, muse_indices
from surreal_bids.tables import read_table

KNOWN: tuple[Role, ...] = ('age', 'sex', 'site', 'icv')
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

STANDARD_AGE_RANGE = tuple((limit - AGE_MEAN) / AGE_SD for limit in AGE_RANGE)

ICV_MM3 = 1.4e6
"""Geometric mean of the intracranial volume of women and men."""

ICV_SEX_DIFFERENCE, ICV_SPREAD = 0.145, 0.085
"""Log ICV: men minus women, and the standard deviation among either."""

SITES = {'site1': 0.5, 'site2': 0.3, 'site3': 0.2}
"""Share of the participants scanned at each site."""


@dataclass(frozen=True)
class Population:
    """Parameters of the model at the top of this module, in natural logs of mm3.

    Attributes
    ----------
    log_mean
        m, (S,).
    known
        Effects of age (per decade), of being male and of log ICV, (3, S).
    sites
        Effect of each site, (number of sites, S).
    factors
        L, (F, S).
    unique
        u, (S,).
    """

    log_mean: Array
    known: Array
    sites: Array
    factors: Array
    unique: Array


@cache
def built_in_population() -> Population:
    """Load the parameters, which `benchmarks/population.py` makes."""
    path = package_files('surreal_bids') / 'data' / 'population.tsv'
    with path.open(encoding='utf-8') as file:
        table = pd.read_csv(file, sep='\t', dtype=str).astype(float)  # To the last digit.
    factors = table.columns[table.columns.str.startswith('factor')]
    return Population(
        log_mean=table['log_mean'].to_numpy(),
        known=np.column_stack([table[name] for name in ('age', 'male', 'icv')]).T,
        sites=np.array([table[site] for site in SITES]),
        factors=np.array([table[factor] for factor in factors]),
        unique=table['unique'].to_numpy(),
    )


def _sample_people(n_people: int, rng: np.random.Generator) -> pd.DataFrame:
    standard_age = truncnorm.rvs(*STANDARD_AGE_RANGE, size=n_people, random_state=rng)
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
