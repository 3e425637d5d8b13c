"""Which volumes of a participant deserve a look: beside healthy people, left beside right."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.regions import muse_table, region_names

RANGE_SD = 3.0
"""Standard deviations beyond which a volume is marked."""

ASYMMETRY = 0.6
"""Difference of left and right, as a part of their mean, beyond which a pair is marked."""

UNCERTAIN = 0.65
"""Confidence of the network below which a region is marked: on the heads of `benchmarks/network.py`
its overlap with the truth was then below 0.45, and 0.8 above."""

SMALLEST_PAIR_MM3 = 100.0
"""Pairs with a smaller mean volume are not compared: a few voxels decide."""

MUSE_SHARE = 0.9
"""Minimum proportion of rows with an index and name of MUSE in a table of MUSE regions."""

NORM_AGES = (18, 79)
"""Ages of the people behind the norms, in full years."""

NORM_PEOPLE = '71 healthy people of IXI (40-79 years, 3 T) and 27 of OASIS (18-75 years, 1.5 T)'
"""Who they are."""

MIDDLE_AGE, DECADE, USUAL_ICV_MM3 = 50.0, 10.0, 1.4e6
"""Where age and head size are 0 in the norms, and the unit of age in years."""

LOBES = {
    'frontal': 'frontal lobe',
    'temporal': 'temporal lobe',
    'parietal': 'parietal lobe',
    'occipital': 'occipital lobe',
    'limbic': 'limbic lobe',
    'deep': 'deep grey and white matter',
    'cerebellum': 'cerebellum',
    'ventricle': 'ventricles',
}
"""Large regions, by the lobes of the table of MUSE regions, and their names."""

LEAST_OVERLAP = {
    'cerebellum': 0.80,
    'left deep grey and white matter': 0.70,
    'left frontal lobe': 0.73,
    'left limbic lobe': 0.59,
    'left occipital lobe': 0.71,
    'left parietal lobe': 0.63,
    'left temporal lobe': 0.70,
    'right deep grey and white matter': 0.70,
    'right frontal lobe': 0.72,
    'right limbic lobe': 0.57,
    'right occipital lobe': 0.70,
    'right parietal lobe': 0.66,
    'right temporal lobe': 0.71,
    'ventricles': 0.54,
}
"""Overlap (Dice) of the network's regions with those of the registered template: 0.1 below the
lowest of the people behind the norms (`benchmarks/norms.py overlaps`)."""

_SIDE = re.compile(r'(?<![a-z])(left|right|lh|rh|l|r)(?![a-z])', re.IGNORECASE)
_FLUID = re.compile(r'vent|csf|choroid', re.IGNORECASE)


@dataclass(frozen=True)
class Subject:
    """What the volumes of healthy people depend on.

    Attributes
    ----------
    age
        In years; None where it is not known.
    sex
        'F' or 'M'; None where it is not known.
    icv_mm3
        Volume of the brain mask, the proxy of the intracranial volume.
    """

    age: float | None = None
    sex: str | None = None
    icv_mm3: float | None = None

    @property
    def terms(self) -> dict[str, float]:
        """Values of the terms of the norms; of a sex that is not known, the middle."""
        if self.age is None or self.icv_mm3 is None:
            raise ValueError('reference values need age and head size')
        age = (self.age - MIDDLE_AGE) / DECADE
        return {
            'intercept': 1.0,
            'age': age,
            'age_squared': age**2,
            'male': {'F': 0.0, 'M': 1.0}.get(self.sex or '', 0.5),
            'log_icv': float(np.log(self.icv_mm3 / USUAL_ICV_MM3)),
        }


def assess_volumes(volumes: pd.DataFrame, subject: Subject) -> pd.DataFrame:
    """Say how usual each volume is, and which deserve a look.

    Parameters
    ----------
    volumes
        One row a region: index, name, volume_mm3, and perhaps confidence.
    subject
        Whose they are.

    Returns
    -------
    pandas.DataFrame
        The same rows and columns, and: ``deviation``, standard deviations of log volumes from what
        is usual (missing where `why_no_norms` says why); ``asymmetry``, (left - right) / mean, the
        same for both of a pair (missing where there is no pair); ``confidence``, missing where it
        was; ``reason``, why a region is marked, empty where it is not.
    """
    table = volumes[['index', 'name', 'volume_mm3']].reset_index(drop=True)
    known = not why_no_norms(volumes, subject)
    table['deviation'] = volume_deviations(table, subject) if known else np.nan
    table['asymmetry'] = _asymmetries(table)
    table['confidence'] = volumes.get('confidence', pd.Series(np.nan, volumes.index)).to_numpy()
    table['reason'] = [_reason(row) for row in table.to_dict('records')]
    return table


def why_no_norms(volumes: pd.DataFrame, subject: Subject) -> str:
    """Say why volumes cannot be compared with those of healthy people; empty where they can."""
    youngest, oldest = NORM_AGES
    if 'confidence' not in volumes or not is_muse(volumes):
        return 'reference values exist only for regions of the built-in network'
    if subject.age is None:
        return 'the age is not known (column age of participants.tsv or sessions.tsv)'
    if not youngest <= subject.age < oldest + 1:
        return f'reference values cover {youngest} to {oldest} years; the age is {subject.age:g}'
    return '' if subject.icv_mm3 else 'the head size is not known without a brain mask'


def volume_deviations(table: pd.DataFrame, subject: Subject) -> NDArray[np.float64]:
    """Standard deviations of each log volume from the usual one; missing where there is none.

    Parameters
    ----------
    table
        One row a region: index and volume_mm3.
    subject
        Whose they are; age and head size are known.
    """
    usual = norms().reindex(table['index'])
    mean = usual[list(subject.terms)].to_numpy() @ np.array(list(subject.terms.values()))
    volumes = table['volume_mm3'].where(table['volume_mm3'] > 0).to_numpy(dtype=float)
    return (np.log(volumes) - mean) / usual['sd'].to_numpy()


def large_regions() -> pd.Series:
    """Lobe, side and all, to which each MUSE region belongs, by index; brain stem and others: none.

    Cerebellum and ventricles have no sides here.
    """
    table = muse_table().set_index('index')
    table = table[table['lobe'].isin(LOBES)]
    sides = (
        table['hemisphere']
        .map({'L': 'left ', 'R': 'right '})
        .where(~table['lobe'].isin(['cerebellum', 'ventricle']), '')
    )
    return sides + table['lobe'].map(LOBES)


def region_overlaps(labels: NDArray, others: NDArray) -> dict[str, float]:
    """Overlap (Dice) of two label maps of MUSE regions (X, Y, Z), by large regions."""
    regions = large_regions()
    names = sorted(set(regions))
    codes = np.zeros(1 + max(regions.index.max(), labels.max(), others.max()), np.int64)
    codes[regions.index] = [1 + names.index(name) for name in regions]
    labelled = (labels > 0) | (others > 0)
    one, other = (codes[each[labelled].astype(np.int64)] for each in (labels, others))
    counts = [
        np.bincount(each, minlength=len(names) + 1)[1:] for each in (one, other, one[one == other])
    ]
    return dict(zip(names, (2 * counts[2] / np.maximum(counts[0] + counts[1], 1)).tolist()))


def disagreements(overlaps: Mapping[str, float]) -> dict[str, float]:
    """Large regions that overlap less, to two decimals as shown, than they do in healthy heads."""
    shown = {name: round(value, 2) for name, value in overlaps.items()}
    return {name: value for name, value in shown.items() if value < LEAST_OVERLAP[name]}


@cache
def norms() -> pd.DataFrame:
    """Coefficients of the log volume (mm3) of each MUSE region, by index, and the spread around it.

    `benchmarks/norms.py` makes them. `sd` is that of people on a scanner like, but not among, those
    behind the norms.
    """
    path = package_files('surreal_bids') / 'data' / 'norms.tsv'
    return pd.read_csv(io.StringIO(path.read_text(encoding='utf-8')), sep='\t', index_col='index')


def is_muse(volumes: pd.DataFrame) -> bool:
    """Whether index and name of a table are those of MUSE."""
    names = region_names()
    same = [
        _letters(names.get(index, '')) == _letters(name)
        for index, name in zip(volumes['index'], volumes['name'])
    ]
    return len(same) > 0 and float(np.mean(same)) >= MUSE_SHARE


def split_side(name: str) -> tuple[str | None, str]:
    """Separate the side of a region, 'L', 'R' or None, from the rest of its name."""
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
    if row['confidence'] < UNCERTAIN:
        reasons.append('uncertain')
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
