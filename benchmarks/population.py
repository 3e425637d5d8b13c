"""Make the parameters of the simulated population, `surreal_bids/data/population.tsv`.

    python benchmarks/population.py FILE

Mean and spread of each region come from the region table (left and right alike); the effects and
the factors from the short rules below, chosen so that the population resembles 291 healthy
participants of IXI aged 40-86 years; see :mod:`surreal_bids.simulation.tables`.

Shape legend: S = 139 regions, F factors.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import truncnorm

from surreal_bids.files import write_tsv
from surreal_bids.regions import muse_indices, muse_table, structure_of
from surreal_bids.simulation.tables import (
    AGE_SD,
    ICV_SEX_DIFFERENCE,
    ICV_SPREAD,
    SITES,
    STANDARD_AGE_RANGE,
    Population,
)

Array = NDArray[np.float64]

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
    age = truncnorm.var(*STANDARD_AGE_RANGE, scale=AGE_SD / 10)
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


def make_population() -> Population:
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


def table_of(population: Population) -> pd.DataFrame:
    """Arrange the parameters as they are stored: one row per region."""
    columns = {'index': list(muse_indices()), 'log_mean': population.log_mean}
    columns |= dict(zip(('age', 'male', 'icv'), population.known))
    columns |= dict(zip(SITES, population.sites))
    columns |= {f'factor{k}': each for k, each in enumerate(population.factors, start=1)}
    return pd.DataFrame(columns | {'unique': population.unique})


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('file', type=Path)
    write_tsv(parser.parse_args().file, table_of(make_population()))
