"""Which regional volumes of one person deserve a look, by two rules that a page can state.

1. Range, for MUSE regions: the share of a region in the tissue of all regions, on the log scale,
   lies more than 3.5 standard deviations from what is usual in healthy people of 40 to 86 years.
   Shares, since head size would hide or feign what is unusual. For ventricles, which are no tissue,
   the volume relative to that tissue. Of 291 healthy people, this marks 0.3 to 0.4 regions each.
2. Asymmetry, for any atlas whose names tell left from right: the two sides differ by more than
   60 % of their mean. Ventricles, often asymmetric, and very small regions are left out. Of the
   same people, this marks 0.2 pairs each.

A region without volume is always marked.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.regions import VENTRICLES, muse_indices, muse_table, region_names
from surreal_bids.simulation.population import draw_controls

RANGE_SD = 3.5
"""Standard deviations beyond which a share is marked."""

ASYMMETRY = 0.6
"""Difference of left and right, as a part of their mean, beyond which a pair is marked."""

SMALLEST_PAIR_MM3 = 100.0
"""Pairs with a smaller mean volume are not compared: a few voxels decide."""

REFERENCE_PEOPLE = 2000
"""People drawn from the built-in population to learn what is usual."""

MUSE_SHARE = 0.9
"""A table is of MUSE regions if at least this part of its rows has MUSE's index and name."""

_SIDE = re.compile(r'(?<![a-z])(left|right|lh|rh|l|r)(?![a-z])', re.IGNORECASE)
_FLUID = re.compile(r'vent|csf|choroid', re.IGNORECASE)


def assess_volumes(volumes: pd.DataFrame) -> pd.DataFrame:
    """Say how usual each volume is, and which deserve a look.

    Parameters
    ----------
    volumes
        One row a region: index, name, volume_mm3.

    Returns
    -------
    pandas.DataFrame
        The same rows and columns, and: ``deviation``, standard deviations from what is usual, of
        log shares (missing where the atlas is not MUSE); ``asymmetry``, (left - right) / mean, the
        same for both of a pair (missing where there is no pair); ``reason``, why a region is
        marked, empty where it is not.
    """
    table = volumes[['index', 'name', 'volume_mm3']].reset_index(drop=True)
    table['deviation'] = _deviations(table)
    table['asymmetry'] = _asymmetries(table)
    table['reason'] = [_reason(row) for row in table.to_dict('records')]
    return table


def is_muse(volumes: pd.DataFrame) -> bool:
    """Whether index and name of a table are those of MUSE."""
    names = region_names()
    same = [
        _letters(names.get(index, '')) == _letters(name)
        for index, name in zip(volumes['index'], volumes['name'])
    ]
    return len(same) > 0 and float(np.mean(same)) >= MUSE_SHARE


def split_side(name: str) -> tuple[str | None, str]:
    """Tell the side of a region, 'L' or 'R', from the rest of its name; None without a side."""
    found = _SIDE.search(name)
    if found is None:
        return None, _letters(name)
    return found.group(1)[0].upper(), _letters(_SIDE.sub(' ', name, count=1))


def _letters(name: str) -> str:
    return ' '.join(re.findall(r'[a-z0-9]+', str(name).lower()))


def _reason(row: dict) -> str:
    """Why a region is marked, or nothing."""
    if not row['volume_mm3'] > 0:
        return 'no volume'
    reasons = []
    if abs(row['deviation']) > RANGE_SD:
        reasons.append('unusually large' if row['deviation'] > 0 else 'unusually small')
    if abs(row['asymmetry']) > ASYMMETRY:
        reasons.append('left much larger' if row['asymmetry'] > 0 else 'right much larger')
    return ', '.join(reasons)


def _asymmetries(table: pd.DataFrame) -> NDArray[np.float64]:
    """(left - right) / mean of each region's pair; missing for fluid, small or single regions."""
    sides = [split_side(name) for name in table['name']]
    volume_of = dict(zip(sides, table['volume_mm3']))
    return np.array([_asymmetry(volume_of, structure) for _, structure in sides], dtype=float)


def _asymmetry(volume_of: dict[tuple[str | None, str], float], structure: str) -> float:
    left, right = (volume_of.get((side, structure), np.nan) for side in 'LR')
    mean = (left + right) / 2
    if _FLUID.search(structure) or not mean >= SMALLEST_PAIR_MM3:
        return np.nan
    return (left - right) / mean


def _deviations(table: pd.DataFrame) -> NDArray[np.float64]:
    """Standard deviations of each log share from the usual one."""
    deviations = np.full(len(table), np.nan)
    if not is_muse(table):
        return deviations
    volumes = table['volume_mm3'].where(table['volume_mm3'] > 0).to_numpy(dtype=float)
    tissue = table['index'].isin(muse_indices()).to_numpy() & np.isfinite(volumes)
    fluid = table['index'].isin(VENTRICLES).to_numpy()
    people = _reference()[table.loc[tissue, 'index']]
    usual = people.sum(axis=1)
    total = volumes[tissue].sum()
    shares = np.log(people.div(usual, axis=0))
    deviations[tissue] = (np.log(volumes[tissue] / total) - shares.mean()) / shares.std()
    at_usual_size = volumes[fluid] * usual.mean() / total
    deviations[fluid] = _fluid_deviations(table.loc[fluid, 'index'], at_usual_size)
    return deviations


def _fluid_deviations(indices: pd.Series, volumes: NDArray) -> NDArray[np.float64]:
    """Standard deviations of log volumes (mm3) of ventricles from the usual ones."""
    usual = muse_table().set_index('index').loc[indices]
    spread = np.sqrt(np.log1p(usual['cv'].to_numpy() ** 2))
    middle = np.log(usual['volume_mm3'].to_numpy()) - spread**2 / 2
    return (np.log(volumes) - middle) / spread


@cache
def _reference() -> pd.DataFrame:
    """Volumes (mm3) of people of the built-in population, one column a MUSE index."""
    drawn = draw_controls(REFERENCE_PEOPLE, np.random.default_rng(0)).volumes
    return drawn.set_axis(list(muse_indices()), axis=1)
