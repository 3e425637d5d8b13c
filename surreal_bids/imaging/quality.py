"""Quality of a T1w image and of its segmentation, and which volumes deserve a look.

Formulas of image quality are those of MRIQC (Esteban et al., PLoS ONE 12:e0184661, 2017). Tissue is
where its probability exceeds `PURE`, without the erosion of MRIQC, which leaves no cortex of 2 mm
voxels. Air and entropy are those of the image as acquired: a bias field that was estimated in the
brain means nothing around it. Volumes are compared with those of healthy people, left with right.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files as package_files
from typing import Any

import numpy as np
import pandas as pd
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.images import MM3_PER_ML, Image, voxel_volume
from surreal_bids.parallel import in_threads
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
    'cerebellum': 0.78,
    'left deep grey and white matter': 0.70,
    'left frontal lobe': 0.72,
    'left limbic lobe': 0.58,
    'left occipital lobe': 0.69,
    'left parietal lobe': 0.61,
    'left temporal lobe': 0.68,
    'right deep grey and white matter': 0.70,
    'right frontal lobe': 0.72,
    'right limbic lobe': 0.56,
    'right occipital lobe': 0.68,
    'right parietal lobe': 0.65,
    'right temporal lobe': 0.70,
    'ventricles': 0.54,
}
"""Overlap (Dice) of the network's regions with those of the registered template: 0.1 below the
lowest of the people behind the norms (`benchmarks/norms.py overlaps`), less 0.01 to 0.02 in cortex
and cerebellum, by which overlaps fell in four of them when regions of the template lost voxels that
are mostly fluid."""

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


PURE = 0.85
"""Probability above which a voxel counts as one tissue."""

FEWEST_VOXELS = 1000
"""Number of voxels of air below which the noise is not known."""

HEAD_SHARE = 0.15
"""Part of the intensity of white matter above which a voxel belongs to the head."""

AIR_DISTANCE_MM = 10.0
"""Minimum distance of air from the head, which motion blurs."""

LEAST_AIR = 1e-3
"""Part of the intensity of white matter below which air is what erasing left over."""

AIR_SPACING_MM = 3.0
"""Minimum distance between the voxels of air that are looked at."""

RAYLEIGH = np.sqrt(2 / (4 - np.pi))
"""Standard deviation of noise in tissue over that of its magnitude in air."""

NORMAL_MAD = 0.6744897501960817
"""Median absolute deviation of the standard normal distribution."""

BRIGHTEST = 99.95
"""Percentile that stands for the brightest voxel."""

Quality = dict[str, float | None]
"""Metrics by name; None where an image does not allow one."""


class Tissue:
    """Median, standard deviation (also the robust one) and number of the voxels of a tissue."""

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.n = len(values)
        self.median = float(np.median(values)) if self.n else np.nan
        self.sd = float(values.std()) if self.n else np.nan
        deviations = np.abs(values - self.median)
        self.mad = float(np.median(deviations)) / NORMAL_MAD if self.n else np.nan

    @property
    def snr(self) -> float:
        """Signal-to-noise ratio."""
        return _ratio(self.median, self.sd * np.sqrt(self.n / (self.n - 1)) if self.n > 1 else 0)


def image_quality(
    raw: Image, corrected: Image, mask: Image, tissues: Mapping[str, Image]
) -> Quality:
    """Measure signal, noise, contrast and intensity inhomogeneity.

    Parameters
    ----------
    raw
        T1w image as acquired, or as another program corrected it.
    corrected
        T1w image without its bias field.
    mask
        Brain mask.
    tissues
        Probabilities of GM, WM and CSF.
    """
    values, original = (np.asarray(each.dataobj, dtype=float) for each in (corrected, raw))
    places = {name: np.asarray(each.dataobj) > PURE for name, each in tissues.items()}
    found = {name: Tissue(values[place]) for name, place in places.items()}
    signal = {name: Tissue(original[place]).median for name, place in places.items()}
    measures: list[Callable[[], Any]] = [
        partial(_air, raw, signal['WM']),
        partial(entropy_focus, original),
        partial(_inhomogeneity, raw, corrected, mask),
        partial(np.percentile, values, BRIGHTEST),
    ]
    around, entropy, inhomogeneity, brightest = in_threads(lambda measure: measure(), measures)
    grey, white, air = found['GM'], found['WM'], Tissue(around)
    contrast = abs(white.median - grey.median)
    metrics = {
        **{f'snr_{name.lower()}': each.snr for name, each in found.items()},
        'snrd_total': _ratio(np.mean(list(signal.values())), air.mad * RAYLEIGH),
        'cnr': _ratio(contrast, np.sqrt(np.nansum([air.sd**2, white.sd**2, grey.sd**2]))),
        'cjv': _ratio(white.mad + grey.mad, contrast),
        'efc': entropy,
        'inu_range': inhomogeneity,
        'wm2max': _ratio(white.median, brightest),
        'mask_ml': np.sum(np.asarray(mask.dataobj) > 0) * voxel_volume(mask) / MM3_PER_ML,
        'voxel_mm': round(float(voxel_sizes(raw.affine).max()), 3),
    }
    return _known(metrics)


def _air(raw: Image, white: float) -> NDArray[np.float64]:
    """Sample intensities far from the head; none where air was erased."""
    steps = np.maximum(1, np.round(AIR_SPACING_MM / voxel_sizes(raw.affine))).astype(int)
    sampled = tuple(slice(None, None, step) for step in steps)
    values = np.asarray(raw.dataobj[sampled], dtype=float)
    bright = values > HEAD_SHARE * white
    if not bright.any():
        return np.empty(0)
    bodies = np.empty(bright.shape, dtype=np.int32)
    ndimage.label(bright, output=bodies)
    outside = bodies != 1 + np.bincount(bodies.ravel())[1:].argmax()
    distance: NDArray[np.float64] = np.empty(outside.shape)
    ndimage.distance_transform_edt(outside, voxel_sizes(raw.affine) * steps, distances=distance)
    air = values[(distance > AIR_DISTANCE_MM) & (values > 0)]
    is_air = len(air) >= FEWEST_VOXELS and np.median(air) > LEAST_AIR * white
    return air if is_air else np.empty(0)


def entropy_focus(values: NDArray[np.float64]) -> float:
    """Entropy focus criterion: ghosts and blur, as of motion, raise it; 1 if all are equal."""
    energy = np.sqrt(np.sum(values**2))
    if not energy:
        return np.nan
    share = np.abs(values[values != 0]) / energy
    most = np.sqrt(values.size) * np.log(np.sqrt(values.size))
    return float(-np.sum(share * np.log(share)) / most)


def _inhomogeneity(raw: Image, corrected: Image, mask: Image) -> float:
    """Range of the bias field (5th to 95th percentile) in the brain, where its mean is about 1."""
    inside = np.asarray(mask.dataobj) > 0
    before, after = (np.asarray(each.dataobj, dtype=float)[inside] for each in (raw, corrected))
    is_corrected = not np.array_equal(before, after)  # Not by another program.
    if not is_corrected or not (after > 0).any():
        return np.nan
    low, high = np.percentile(before[after > 0] / after[after > 0], [5, 95])
    return float(high - low)


def segmentation_quality(
    volumes: pd.DataFrame, overlaps: Mapping[str, float] | None = None
) -> Quality:
    """Summarise how certain the regions are, how symmetric, and how alike those of the template.

    Parameters
    ----------
    volumes
        One row a region: index, name, volume_mm3, and perhaps confidence.
    overlaps
        Overlap (Dice) of large regions with those of the template.
    """
    table = assess_volumes(volumes, Subject())
    certain = table['confidence'].notna().any()
    sizes = table['volume_mm3'].where(table['confidence'].notna())
    metrics = {
        'confidence': (table['confidence'] * sizes).sum() / sizes.sum() if certain else np.nan,
        'uncertain_regions': (table['confidence'] < UNCERTAIN).sum() if certain else np.nan,
        'empty_regions': (table['volume_mm3'] <= 0).sum(),
        'asymmetry': table['asymmetry'].abs().max(),
        'overlap': min(overlaps.values()) if overlaps else np.nan,
    }
    return _known(metrics)


def _ratio(above: float | np.floating, below: float | np.floating) -> float:
    return float(above / below) if below else np.nan


def _known(metrics: Mapping[str, float]) -> Quality:
    """Round metrics to six digits; None instead of NaN, which JSON does not have."""
    return {
        name: float(f'{value:.6g}') if np.isfinite(value) else None
        for name, value in metrics.items()
    }
