"""Mosaics of slices of images, as SVG files.

Functions take nibabel images on any grid and in any orientation, and write one file of less than
about 1.5 MB. Left in the figure is left in the head.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import nibabel as nib
import numpy as np
from contourpy import contour_generator  # installed with matplotlib
from matplotlib.colors import Normalize, to_hex, to_rgb
from nibabel.affines import apply_affine
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.files import write_text
from surreal_bids.imaging.norms import split_side
from surreal_bids.reports.canvas import Canvas

Plane = Literal['axial', 'coronal', 'sagittal']

AXES: dict[Plane, tuple[int, int, int]] = {
    'axial': (0, 1, 2),
    'coronal': (0, 2, 1),
    'sagittal': (1, 2, 0),
}
"""World axes of each plane: from left to right in the picture, from its foot to its top, across."""

SLICES: dict[Plane, int] = {'axial': 7, 'coronal': 7, 'sagittal': 6}
"""Number of slices of each plane; these numbers give rows of similar length."""

MARGIN_MM = 5.0
"""Margin around the brain."""

ENDS = 0.14
"""Distance of the first and last slice from the ends of the brain, relative to its extent."""

MASK_LEVEL = 0.5
"""Value above which a voxel belongs to a mask."""


@dataclass(frozen=True)
class Volume:
    """An image in memory: values, and the way from world (mm) to voxels."""

    data: NDArray
    to_voxel: NDArray[np.float64]


@dataclass(frozen=True)
class Slice:
    """A rectangle across the head.

    Attributes
    ----------
    plane
        Its direction.
    position
        World coordinate (mm) along the axis across it.
    box
        World coordinates (mm) of the centres of the outermost pixels: left, right, foot and top.
    """

    plane: Plane
    position: float
    box: tuple[float, float, float, float]

    def shape(self, pixel_mm: float) -> tuple[int, int]:
        """Number of pixels, upwards and sideways."""
        left, right, foot, top = self.box
        return round((top - foot) / pixel_mm) + 1, round((right - left) / pixel_mm) + 1


Slices = dict[Plane, tuple[Slice, ...]]
"""The slices of each plane."""


def load_volume(image: nib.Nifti1Image, dtype: type = np.float32) -> Volume:
    """Read the values of a three-dimensional image."""
    if len(image.shape) != 3:
        raise DataError(
            f'an image of shape {image.shape} cannot be drawn; images must have three dimensions'
        )
    return Volume(np.asarray(image.dataobj, dtype=dtype), np.linalg.inv(image.affine))


def choose_slices(
    mask: nib.Nifti1Image, counts: Mapping[Plane, int] = SLICES, ends: float = ENDS
) -> Slices:
    """Spread slices evenly over a brain.

    Parameters
    ----------
    mask
        Above 0.5 inside the brain; any grid.
    counts
        Number of slices of each plane.
    ends
        How far the first and the last slice lie inside the brain's ends, as a part of its extent.

    Returns
    -------
    dict
        Slices of each plane from left to right, back to front or foot to top; those of one plane
        share a box that holds the brain with a margin.
    """
    low, high = _extent(mask)
    return {plane: _spread(plane, count, low, high, ends) for plane, count in counts.items()}


def _extent(mask: nib.Nifti1Image) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """World limits (mm) of the centres of the voxels of a mask, each of shape (3,)."""
    inside = load_volume(mask).data > MASK_LEVEL
    rows = np.argwhere(inside.any(axis=2))
    if len(rows) == 0:
        raise DataError('the brain mask is empty; check the mask')
    # The ends of each row of voxels are its extremes along any direction.
    own = inside[tuple(rows.T)]
    ends = (own.argmax(axis=1), own.shape[1] - 1 - own[:, ::-1].argmax(axis=1))
    world = apply_affine(mask.affine, np.concatenate([np.column_stack([rows, e]) for e in ends]))
    return world.min(axis=0), world.max(axis=0)


def _spread(
    plane: Plane, count: int, low: NDArray, high: NDArray, ends: float
) -> tuple[Slice, ...]:
    sideways, upwards, across = AXES[plane]
    box = (
        float(low[sideways] - MARGIN_MM),
        float(high[sideways] + MARGIN_MM),
        float(low[upwards] - MARGIN_MM),
        float(high[upwards] + MARGIN_MM),
    )
    extent = high[across] - low[across]
    # Whole millimetres from a voxel's centre: nothing is blurred where voxels have that size.
    positions = low[across] + np.round(np.linspace(ends, 1 - ends, count) * extent)
    return tuple(Slice(plane, float(position), box) for position in positions)


def through_middle(slices: Slices, part: nib.Nifti1Image) -> Slices:
    """Move the nearest slice of each plane to the middle of a mask."""
    middle = np.mean(_extent(part), axis=0)
    moved = dict(slices)
    for plane, row in slices.items():
        position = float(middle[AXES[plane][2]])
        nearest = min(row, key=lambda each: abs(each.position - position))
        moved[plane] = tuple(
            replace(each, position=position) if each is nearest else each for each in row
        )
    return moved


def sample(volume: Volume, where: Slice, pixel_mm: float, *, order: Literal[0, 1] = 1) -> NDArray:
    """Values of an image on a slice.

    Parameters
    ----------
    volume
        The image.
    where
        The slice.
    pixel_mm
        Edge of a pixel.
    order
        1: linear, for intensities and probabilities; 0: nearest, for labels.

    Returns
    -------
    array of shape (upwards, sideways)
        The first row is the foot of the picture; 0 outside of the image.
    """
    sideways, upwards, across = AXES[where.plane]
    n_rows, n_columns = where.shape(pixel_mm)
    world = np.empty((n_rows, n_columns, 3))
    world[..., across] = where.position
    world[..., sideways] = where.box[0] + np.arange(n_columns) * pixel_mm
    world[..., upwards] = where.box[2] + np.arange(n_rows)[:, None] * pixel_mm
    voxels = np.moveaxis(apply_affine(volume.to_voxel, world), -1, 0)
    return ndimage.map_coordinates(volume.data, voxels, order=order, mode='constant')


Painter = Callable[[Slice], NDArray]
"""Gives the colours of a slice, (upwards, sideways, 3), from 0 to 1."""

PIXEL_MM = 1.0
"""Edge of a pixel."""

COLOUR_LEVELS = 64
"""Shades of each colour; more would only make the files larger."""

GAP = 3
"""Minimum distance between two slices of a row."""

STRIP = 13
"""Height of the strip under each row with the positions of its slices."""

FOOT = 32
"""Height of the legend under the slices."""

STRAY = 0.15
"""A point of an outline may be dropped if it lies this close to the line between its neighbours."""

MIN_POINTS = 6
"""Outlines of fewer points are specks."""

LIGHT, FAINT = '#ffffff', '#b8c0cc'
"""Colours of text on black."""

LETTER = 0.62
"""About the width of a letter, relative to its size."""

SIDES: dict[Plane, tuple[str, str]] = {
    'axial': ('L', 'R'),
    'coronal': ('L', 'R'),
    'sagittal': ('P', 'A'),
}
"""What is on the left and on the right of a picture."""

COORDINATE: dict[Plane, str] = {'axial': 'z', 'coronal': 'y', 'sagittal': 'x'}


@dataclass(frozen=True)
class Outline:
    """A contour over all slices: where an image passes a level, e.g. the border of a mask."""

    image: nib.Nifti1Image
    name: str
    colour: str
    level: float = MASK_LEVEL
    width: float = 1


@dataclass(frozen=True)
class Row:
    """Slices of one plane side by side, painted alike."""

    slices: tuple[Slice, ...]
    paint: Painter
    title: str = ''


@dataclass(frozen=True)
class Scale:
    """What the colours of a map mean."""

    colours: str
    low: float
    high: float
    label: str


@dataclass(frozen=True)
class Tile:
    """A slice in its place: columns from `left`, rows from `top`, (height, width) pixels.

    Only the first slice of a row has a title, which may be empty.
    """

    where: Slice
    paint: Painter
    top: int
    left: int
    height: int
    width: int
    title: str | None


def save_mosaic(
    path: Path,
    rows: Sequence[Row],
    *,
    outlines: Sequence[Outline] = (),
    swatches: Sequence[tuple[str, str]] = (),
    scale: Scale | None = None,
) -> Path:
    """Draw rows of slices and write them to an SVG file.

    Parameters
    ----------
    path
        The file to write.
    rows
        What to draw, from top to bottom.
    outlines
        Contours over every slice; named in the legend.
    swatches
        Names and colours that the legend explains besides.
    scale
        Draws a colour bar into the legend.
    """
    tiles = list(_place(rows))
    picture = _paint(tiles)
    height, width = picture.shape[:2]
    has_legend = bool(outlines or swatches or scale)
    canvas = Canvas(height + FOOT * has_legend, width, ink=LIGHT, paper='black')
    canvas.image(0, 0, picture)
    for outline in outlines:
        _draw_outline(canvas, tiles, outline)
    for tile in tiles:
        _annotate(canvas, tile)
    foot = height + FOOT / 2
    _draw_legend(canvas, foot, [(each.name, each.colour) for each in outlines], swatches)
    if scale is not None:
        _draw_scale(canvas, foot, width, scale)
    return write_text(path, str(canvas))


def _place(rows: Sequence[Row]) -> Iterator[Tile]:
    """Give each slice its place; shorter rows are spread over the width of the longest."""
    shapes = [[where.shape(PIXEL_MM) for where in row.slices] for row in rows]
    total = max(sum(width for _, width in row) + GAP * (len(row) - 1) for row in shapes)
    top = 0
    for row, sizes in zip(rows, shapes):
        spare = total - sum(width for _, width in sizes)
        left = 0.0
        for number, (where, (height, width)) in enumerate(zip(row.slices, sizes)):
            title = None if number else row.title
            yield Tile(where, row.paint, top, round(left), height, width, title)
            left += width + spare / max(len(sizes) - 1, 1)
        top += max(height for height, _ in sizes) + STRIP


def _paint(tiles: Sequence[Tile]) -> NDArray[np.uint8]:
    """Paint all slices into one raster, (rows from the top, columns, 3); black between them."""
    height = max(tile.top + tile.height for tile in tiles) + STRIP
    width = max(tile.left + tile.width for tile in tiles)
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    for tile in tiles:
        levels = np.round(tile.paint(tile.where).clip(0, 1) * (COLOUR_LEVELS - 1))
        colours = np.round(levels * (255 / (COLOUR_LEVELS - 1))).astype(np.uint8)
        rows = slice(tile.top, tile.top + tile.height)
        picture[rows, tile.left : tile.left + tile.width] = colours[::-1]
    return picture


def _draw_outline(canvas: Canvas, tiles: Sequence[Tile], outline: Outline) -> None:
    volume = load_volume(outline.image)
    for tile in tiles:
        values = sample(volume, tile.where, PIXEL_MM)
        if not values.min() < outline.level < values.max():
            continue
        columns = tile.left + np.arange(tile.width) + 0.5
        rows = tile.top + tile.height - np.arange(tile.height) - 0.5
        curves = contour_generator(columns, rows, values).lines(outline.level)
        for curve in map(_thin, map(np.asarray, curves)):
            if len(curve) >= MIN_POINTS:
                canvas.line(*curve.ravel(), colour=outline.colour, width=outline.width)


def _thin(curve: NDArray) -> NDArray:
    """Drop every other point of a curve (n, 2) where nobody would miss it; round the rest."""
    before, point, after = curve[:-2:2], curve[1:-1:2], curve[2::2]
    chord, offset = after - before, point - before
    area = np.abs(chord[:, 0] * offset[:, 1] - chord[:, 1] * offset[:, 0])
    keep = np.ones(len(curve), dtype=bool)
    keep[1:-1:2] = area > STRAY * np.hypot(*chord.T)
    return np.round(curve[keep], 1)


def _annotate(canvas: Canvas, tile: Tile) -> None:
    """Write the position and, on the first slice of a row, which side is which."""
    foot = tile.top + tile.height + STRIP / 2
    centre = tile.left + tile.width / 2
    position = f'{COORDINATE[tile.where.plane]} {tile.where.position:+.0f}'
    canvas.words(centre, foot, position, 'middle', colour=FAINT)
    if tile.title is None:
        return
    left, right = SIDES[tile.where.plane]
    middle = tile.top + tile.height / 2
    canvas.words(tile.left + 3, middle, left, size=14)
    canvas.words(tile.left + tile.width - 3, middle, right, 'end', size=14)
    if tile.title:
        canvas.words(tile.left + 4, tile.top + 10, tile.title, size=11)


def _draw_legend(
    canvas: Canvas,
    middle: float,
    lines: Sequence[tuple[str, str]],
    swatches: Sequence[tuple[str, str]],
) -> None:
    """Explain lines and colours from the left of the foot."""
    left, size = 8.0, 11
    for thickness, entries in ((2, lines), (9, swatches)):
        for name, colour in entries:
            canvas.box(left, middle - thickness / 2, 18, thickness, colour)
            canvas.words(left + 24, middle, name, size=size)
            left += 40 + LETTER * size * len(name)


def _draw_scale(canvas: Canvas, middle: float, width: float, scale: Scale) -> None:
    """Draw a colour bar on the right of the foot, its label beside it."""
    left, right, height = 0.7 * width, 0.98 * width, 9
    shades = map_colours(np.linspace(scale.low, scale.high, COLOUR_LEVELS), scale)
    for number, shade in enumerate(shades):
        # Each reaches to the end, where later ones cover it, so that no gap is seen.
        begin = left + (right - left) * number / len(shades)
        canvas.box(begin, middle - height, right - begin, height, to_hex(shade))
    canvas.scale(middle, scale.low, scale.high, left, right)
    canvas.words(left - 8, middle - height / 2, scale.label, 'end', size=11)


WINDOW = (0.5, 99.5)
"""Percentiles of the intensities in the brain that are drawn black and white."""

TISSUE_COLOURS = {'GM': '#e69f00', 'WM': '#56b4e9', 'CSF': '#cc79a7'}
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""

MASK_COLOUR = '#ff5a5f'
LESION_COLOUR, LESION_WIDTH = '#00e5ff', 2.5

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


def mask_mosaic(
    path: Path,
    t1w: nib.Nifti1Image,
    mask: nib.Nifti1Image,
    lesion: nib.Nifti1Image | None = None,
) -> Path:
    """Draw a T1w image with the outlines of its brain mask and of a lesion mask.

    Some slices run through the middle of the lesion.
    """
    slices, outlines = choose_slices(mask), [Outline(mask, 'brain mask', MASK_COLOUR)]
    if lesion is not None:
        slices = through_middle(slices, lesion)
        outlines.append(Outline(lesion, 'lesion', LESION_COLOUR, width=LESION_WIDTH))
    return save_mosaic(path, _rows(slices, grey_painter(t1w, mask, slices)), outlines=outlines)


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
    grey = grey_painter(t1w, mask, slices)
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
    grey, volume = grey_painter(t1w, mask, slices), load_volume(labels, np.int32)
    indices = np.flatnonzero(np.bincount(volume.data.ravel()))
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
    painters = {name: grey_painter(image, mask, slices) for name, image in images.items()}
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
        return map_colours(sample(volume, where, PIXEL_MM), scale)

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
    (slices, grey), volume = _shaded(background, mask), load_volume(statistic)
    largest = limit or float(np.abs(volume.data).max()) or 1.0
    scale = Scale('RdBu_r', -largest, largest, label)

    def paint(where: Slice) -> NDArray:
        # Nearest: between a voxel beyond the threshold and one at zero there is nothing to see.
        values = sample(volume, where, PIXEL_MM, order=0)
        shown = (np.abs(values) > threshold)[..., None]
        return np.where(shown, map_colours(values, scale), grey[where])

    return save_mosaic(path, _rows(slices, paint), scale=scale)


@lru_cache(maxsize=1)
def _shaded(
    background: nib.Nifti1Image, mask: nib.Nifti1Image
) -> tuple[Slices, dict[Slice, NDArray]]:
    """Return slices of a template and their pictures, on which one map after the other is drawn."""
    slices = choose_slices(mask)
    grey = grey_painter(background, mask, slices)
    of_all = [where for of_plane in slices.values() for where in of_plane]
    return slices, {where: BACKGROUND_LIGHT * grey(where) for where in of_all}


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


def grey_painter(image: nib.Nifti1Image, mask: nib.Nifti1Image, slices: Slices) -> Painter:
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
        raise DataError(
            'the image is zero everywhere in the brain mask; check that both are in the same space'
        )
    return inside


def _borders(regions: NDArray) -> NDArray[np.bool_]:
    """Pixels of a region that touch another one or none, on the side of the region."""
    border = np.zeros(regions.shape, dtype=bool)
    border[:-1] |= regions[:-1] != regions[1:]
    border[:, :-1] |= regions[:, :-1] != regions[:, 1:]
    return border


def map_colours(values: NDArray, scale: Scale) -> NDArray:
    """Colours (rows, columns, 3) of the values of a map."""
    shades = mpl.colormaps[scale.colours](Normalize(scale.low, scale.high)(values))
    return np.asarray(shades)[..., :3]
