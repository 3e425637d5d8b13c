"""Mosaics of slices that show what was found in a head, as SVG files.

Each function takes nibabel images on any grids and in any orientation, and writes one file of less
than about 1.5 MB. The left of the head is on the left.
"""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import nibabel as nib
import numpy as np
from matplotlib.colors import Normalize, to_rgb
from numpy.typing import NDArray

from surreal_bids.exceptions import DataError
from surreal_bids.reports.canvas import PIXEL_MM, Outline, Painter, Row, Scale, save_mosaic
from surreal_bids.reports.outliers import split_side
from surreal_bids.reports.slices import (
    MASK_LEVEL,
    Plane,
    Slice,
    Slices,
    Volume,
    choose_slices,
    load_volume,
    sample,
)

WINDOW = (0.5, 99.5)
"""Percentiles of the intensities in the brain that are drawn black and white."""

TISSUE_COLOURS = {'GM': '#e69f00', 'WM': '#56b4e9', 'CSF': '#cc79a7'}
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""

MASK_COLOUR = '#ff5a5f'

TISSUE_OPACITY = 0.55
FILL_OPACITY, BORDER_OPACITY = 0.4, 0.95
"""How much a tissue, the inside of a region and its border cover the image."""

LIGHTNESS, LEFT_LIGHTNESS, SATURATION = 0.52, 0.68, 0.85
"""Of the colours of regions: midline and right, left, all."""

BACKGROUND_LIGHT = 0.75
"""Brightness of the template under a map, so that pale colours stand out."""

GOLDEN_RATIO = (1 + 5**0.5) / 2
"""Multiples of it, modulo 1, spread hues evenly, however many there are."""

FEWER_SLICES: dict[Plane, int] = {'axial': 5, 'coronal': 5, 'sagittal': 4}
"""Slices of each plane where two images are compared: larger, since details count."""

COARSE_MM = 2.5
"""Distance of the points from which the window is found."""

HIGHEST_PERCENTILE = 99.0
"""Percentile of a map that gets the last colour."""


def mask_mosaic(path: Path, t1w: nib.Nifti1Image, mask: nib.Nifti1Image) -> Path:
    """Draw a T1w image with the outline of its brain mask."""
    slices = choose_slices(mask)
    rows = _rows(slices, _grey(t1w, mask, slices))
    return save_mosaic(path, rows, outlines=[Outline(mask, 'brain mask', MASK_COLOUR)])


def tissue_mosaic(
    path: Path,
    t1w: nib.Nifti1Image,
    mask: nib.Nifti1Image,
    tissues: Mapping[str, nib.Nifti1Image],
) -> Path:
    """Draw tissue probabilities as colours over a T1w image.

    Parameters
    ----------
    path
        The file to write.
    t1w, mask
        The image, and its brain mask.
    tissues
        Probability of GM, WM and CSF, or of some of them.
    """
    slices = choose_slices(mask)
    grey = _grey(t1w, mask, slices)
    volumes = {name: load_volume(image) for name, image in tissues.items()}

    def paint(where: Slice) -> NDArray:
        plain = grey(where)
        colours = plain.copy()
        for name, volume in volumes.items():
            opacity = TISSUE_OPACITY * sample(volume, where, PIXEL_MM).clip(0, 1)[..., None]
            colours += opacity * (np.array(to_rgb(TISSUE_COLOURS[name])) - plain)
        return colours

    swatches = [(name, TISSUE_COLOURS[name]) for name in tissues]
    return save_mosaic(path, _rows(slices, paint), swatches=swatches)


def label_mosaic(
    path: Path,
    t1w: nib.Nifti1Image,
    mask: nib.Nifti1Image,
    labels: nib.Nifti1Image,
    names: Mapping[int, str],
) -> Path:
    """Draw regions as colours with strong borders over a T1w image.

    Parameters
    ----------
    path
        The file to write.
    t1w, mask
        The image, and its brain mask.
    labels
        Index of the region of each voxel, 0 for none.
    names
        Name of each region; left and right of one name get the same hue.
    """
    slices = choose_slices(mask)
    grey, volume = _grey(t1w, mask, slices), load_volume(labels, np.int32)
    indices = np.unique(volume.data)
    colour_of = np.zeros((indices.max() + 1, 3))
    for index in indices:
        colour_of[index] = region_colour(int(index), names.get(int(index), ''))

    def paint(where: Slice) -> NDArray:
        regions = sample(volume, where, PIXEL_MM, order=0)
        opacity = np.where(_borders(regions), BORDER_OPACITY, FILL_OPACITY)
        opacity = np.where(regions > 0, opacity, 0.0)[..., None]
        return (1 - opacity) * grey(where) + opacity * colour_of[regions]

    return save_mosaic(path, _rows(slices, paint))


def registration_mosaic(
    path: Path,
    warped: nib.Nifti1Image,
    template: nib.Nifti1Image,
    mask: nib.Nifti1Image,
    tissues: Mapping[str, nib.Nifti1Image],
) -> Path:
    """Draw a warped T1w image above the template, both with the template's outlines.

    Parameters
    ----------
    path
        The file to write.
    warped
        The T1w image of the participant in template space.
    template, mask, tissues
        The template, its brain mask, and the probabilities whose borders are drawn.
    """
    slices = choose_slices(mask, FEWER_SLICES)
    images = {'participant': warped, 'template': template}
    painters = {name: _grey(image, mask, slices) for name, image in images.items()}
    rows = [
        Row(of_plane, paint, name)
        for of_plane in slices.values()
        for name, paint in painters.items()
    ]
    outlines = [Outline(mask, 'brain mask of the template', MASK_COLOUR)]
    outlines += [
        Outline(image, f'{name} of the template', TISSUE_COLOURS[name])
        for name, image in tissues.items()
    ]
    return save_mosaic(path, rows, outlines=outlines)


def ravens_mosaic(path: Path, ravens: nib.Nifti1Image, mask: nib.Nifti1Image) -> Path:
    """Draw a RAVENS map within the outline of the template's brain."""
    slices, volume = choose_slices(mask), load_volume(ravens)
    inside = _inside(volume, mask, slices)
    highest = float(np.percentile(inside, HIGHEST_PERCENTILE)) or 1.0
    scale = Scale('inferno', 0.0, highest, 'tissue volume per template volume')

    def paint(where: Slice) -> NDArray:
        return _colours(sample(volume, where, PIXEL_MM), scale)

    outlines = [Outline(mask, 'brain mask of the template', '#8a94a6')]
    return save_mosaic(path, _rows(slices, paint), outlines=outlines, scale=scale)


def statistic_mosaic(
    path: Path,
    statistic: nib.Nifti1Image,
    background: nib.Nifti1Image,
    mask: nib.Nifti1Image,
    *,
    label: str,
    threshold: float = 0.0,
    limit: float | None = None,
) -> Path:
    """Draw a map of positive and negative values over the template.

    Parameters
    ----------
    path
        The file to write.
    statistic
        The map, e.g. of t values, or of regions that each hold their value.
    background, mask
        The template and its brain mask.
    label
        What the values are.
    threshold
        Values up to this size are not drawn.
    limit
        Size of the values that get the last colours; by default the greatest one's.
    """
    slices, volume = choose_slices(mask), load_volume(statistic)
    grey = _grey(background, mask, slices)
    largest = limit or float(np.abs(volume.data).max()) or 1.0
    scale = Scale('RdBu_r', -largest, largest, label)

    def paint(where: Slice) -> NDArray:
        # Nearest: between a voxel beyond the threshold and one at zero there is nothing to see.
        values = sample(volume, where, PIXEL_MM, order=0)
        shown = (np.abs(values) > threshold)[..., None]
        return np.where(shown, _colours(values, scale), BACKGROUND_LIGHT * grey(where))

    return save_mosaic(path, _rows(slices, paint), scale=scale)


def region_colour(index: int, name: str) -> tuple[float, float, float]:
    """Colour of a region, always the same: the hue by its name without side, or else its index.

    The left one of a pair is lighter than the right one.
    """
    side, structure = split_side(name)
    number = sum(position * ord(letter) for position, letter in enumerate(structure, 1)) or index
    lightness = LEFT_LIGHTNESS if side == 'L' else LIGHTNESS
    return colorsys.hls_to_rgb(number * GOLDEN_RATIO % 1, lightness, SATURATION)


def _rows(slices: Slices, paint: Painter) -> list[Row]:
    return [Row(of_plane, paint) for of_plane in slices.values()]


def _grey(image: nib.Nifti1Image, mask: nib.Nifti1Image, slices: Slices) -> Painter:
    """Painter of an image whose window is set by the intensities in the brain."""
    volume = load_volume(image)
    low, high = np.percentile(_inside(volume, mask, slices), WINDOW)
    span = max(float(high - low), np.finfo(np.float32).tiny)

    def paint(where: Slice) -> NDArray:
        grey = (sample(volume, where, PIXEL_MM) - low) / span
        return np.repeat(grey.clip(0, 1)[..., None], 3, axis=-1)

    return paint


def _inside(volume: Volume, mask: nib.Nifti1Image, slices: Slices) -> NDArray:
    """Values of an image in a mask, which may lie on another grid, at points of the slices."""
    brain = load_volume(mask)
    values = [
        sample(volume, where, COARSE_MM)[sample(brain, where, COARSE_MM) > MASK_LEVEL]
        for of_plane in slices.values()
        for where in of_plane
    ]
    inside = np.concatenate(values)
    if not inside.any():
        raise DataError('the image is zero all over the brain mask; check that both share a space')
    return inside


def _borders(regions: NDArray) -> NDArray[np.bool_]:
    """Pixels of a region that touch another one or none, on the side of the region."""
    border = np.zeros(regions.shape, dtype=bool)
    for axis in (0, 1):
        differs = np.diff(regions, axis=axis) != 0
        before = [slice(None)] * 2
        before[axis] = slice(0, -1)
        border[tuple(before)] |= differs
    return border


def _colours(values: NDArray, scale: Scale) -> NDArray:
    """Colours (rows, columns, 3) of the values of a map."""
    shades = mpl.colormaps[scale.colours](Normalize(scale.low, scale.high)(values))
    return np.asarray(shades)[..., :3]
