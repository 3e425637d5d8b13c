"""Quality of a T1w image, with the formulas of MRIQC, and of its segmentation.

Esteban et al., PLoS ONE 12:e0184661, 2017. Tissue is where its probability exceeds `PURE`, without
the erosion of MRIQC, which leaves no cortex of 2 mm voxels. Air and entropy are those of the image
as acquired: a bias field that was estimated in the brain means nothing around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.images import MM3_PER_ML, Image, voxel_volume
from surreal_bids.imaging.norms import UNCERTAIN, Subject, assess_volumes
from surreal_bids.parallel import in_threads

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
