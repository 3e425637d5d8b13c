"""Quality of a T1w image, with the definitions of MRIQC, and of its segmentation.

Esteban et al., PLoS ONE 12:e0184661, 2017. Tissue is where its probability exceeds `PURE`, without
the erosion of MRIQC, which leaves no cortex of 2 mm voxels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.images import Image, voxel_volume
from surreal_bids.imaging.norms import UNCERTAIN, Subject, assess_volumes

PURE = 0.85
"""Probability above which a voxel counts as one tissue."""

FEWEST_VOXELS = 1000
"""Number of voxels of air below which the noise is not known."""

HEAD_SHARE = 0.15
"""Part of the intensity of white matter above which a voxel belongs to the head."""

AIR_DISTANCE_MM = 10.0
"""Minimum distance of air from the head, which motion blurs."""

AIR_SPACING_MM = 3.0
"""Minimum distance between the voxels of air that are looked at."""

RAYLEIGH = np.sqrt(2 / (4 - np.pi))
"""Standard deviation of noise in tissue over that of its magnitude in air."""

BRIGHTEST = 99.95
"""Percentile that stands for the brightest voxel."""

MM3_PER_ML = 1000.0

Quality = dict[str, float | None]
"""Metrics by name; None where an image does not allow one."""


class Tissue:
    """Median, standard deviation and number of the voxels of a tissue."""

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.n = len(values)
        self.median = float(np.median(values)) if self.n else np.nan
        self.sd = float(values.std()) if self.n else np.nan

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
        T1w image as acquired.
    corrected
        T1w image without its bias field.
    mask
        Brain mask.
    tissues
        Probabilities of GM, WM and CSF.
    """
    values = np.asarray(corrected.dataobj, dtype=float)
    found = {
        name: Tissue(values[np.asarray(each.dataobj) > PURE]) for name, each in tissues.items()
    }
    grey, white = found['GM'], found['WM']
    air = _air(raw, corrected, white.median)
    noise = float(air.std()) if len(air) >= FEWEST_VOXELS else np.nan
    signal = float(np.mean([each.median for each in found.values()]))
    contrast = abs(white.median - grey.median)
    spread = np.sqrt(np.nansum([noise**2, white.sd**2, grey.sd**2]))
    metrics = {
        **{f'snr_{name.lower()}': each.snr for name, each in found.items()},
        'snrd_total': _ratio(signal, noise * RAYLEIGH),
        'cnr': _ratio(contrast, spread),
        'cjv': _ratio(white.sd + grey.sd, contrast),
        'efc': entropy_focus(np.asarray(raw.dataobj, dtype=float)),
        'inu_range': _inhomogeneity(raw, corrected, mask),
        'wm2max': _ratio(white.median, np.percentile(values, BRIGHTEST)),
        'mask_ml': np.sum(np.asarray(mask.dataobj) > 0) * voxel_volume(mask) / MM3_PER_ML,
        'voxel_mm': float(voxel_sizes(raw.affine).max()),
    }
    return _known(metrics)


def _air(raw: Image, corrected: Image, white: float) -> NDArray[np.float64]:
    """Some intensities far from the head, without zeros, where other programs erased it."""
    steps = np.maximum(1, np.round(AIR_SPACING_MM / voxel_sizes(raw.affine))).astype(int)
    some = tuple(slice(None, None, step) for step in steps)
    original, values = (np.asarray(each.dataobj[some], dtype=float) for each in (raw, corrected))
    bright = values > HEAD_SHARE * white
    if not bright.any():
        return np.empty(0)
    bodies = np.empty(bright.shape, dtype=np.int32)
    ndimage.label(bright, output=bodies)
    outside = bodies != 1 + np.bincount(bodies.ravel())[1:].argmax()
    distance: NDArray[np.float64] = np.empty(outside.shape)
    ndimage.distance_transform_edt(outside, voxel_sizes(raw.affine) * steps, distances=distance)
    return original[(distance > AIR_DISTANCE_MM) & (original > 0)]


def entropy_focus(values: NDArray[np.float64]) -> float:
    """Entropy focus criterion: ghosts and blur, as of motion, raise it; 1 if all are equal."""
    energy = np.sqrt(np.sum(values**2))
    if not energy:
        return np.nan
    share = np.abs(values[values != 0]) / energy
    most = np.sqrt(values.size) * np.log(np.sqrt(values.size))
    return float(-np.sum(share * np.log(share)) / most)


def _inhomogeneity(raw: Image, corrected: Image, mask: Image) -> float:
    """Range of the bias field (5th to 95th percentile) in the brain, relative to its median."""
    inside = np.asarray(mask.dataobj) > 0
    before, after = (np.asarray(each.dataobj, dtype=float)[inside] for each in (raw, corrected))
    if np.array_equal(before, after):  # Corrected by another program.
        return np.nan
    low, middle, high = np.percentile(before[after > 0] / after[after > 0], [5, 50, 95])
    return _ratio(high - low, middle)


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


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below else np.nan


def _known(metrics: Mapping[str, float]) -> Quality:
    """Round metrics to six digits; None instead of NaN, which JSON does not have."""
    return {
        name: float(f'{value:.6g}') if np.isfinite(value) else None
        for name, value in metrics.items()
    }
