"""Rows of slices put together to one picture, with outlines and text, as an SVG file.

The slices are one raster layer; outlines and text are vectors. Distances are in pixels of that
layer, counted from its upper left corner; a pixel is a point of the SVG, so that coordinates are
short numbers. The same input gives the same file, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import nibabel as nib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from surreal_bids.files import atomic_path
from surreal_bids.reports.slices import MASK_LEVEL, Plane, Slice, load_volume, sample

Painter = Callable[[Slice], NDArray]
"""Gives the colours of a slice, (upwards, sideways, 3), from 0 to 1."""

PIXEL_MM = 1.0
"""Edge of a pixel."""

COLOUR_LEVELS = 64
"""Shades of each colour: more would only make the files larger."""

GAP = 3
"""Least distance between two slices of a row."""

STRIP = 13
"""Height of the strip under each row that tells where its slices lie."""

FOOT = 32
"""Height of the legend under the slices."""

POINTS_PER_INCH = 72

STRAY = 0.15
"""A point of an outline may be dropped if it lies this close to the line between its neighbours."""

FEWEST_POINTS = 6
"""Outlines of fewer points are specks."""

INK, FAINT_INK = '#ffffff', '#b8c0cc'

SVG_SETTINGS: dict[Any, Any] = {'svg.hashsalt': 'surreal_bids', 'svg.fonttype': 'none'}
"""Names inside a file depend on its content only, and text stays text."""

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
    """A slice in its place: columns from `left`, rows from `top`, (height, width) pixels."""

    where: Slice
    paint: Painter
    top: int
    left: int
    height: int
    width: int
    title: str
    first: bool


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
    figure, axes = _empty_figure(height, width)
    axes.imshow(picture, extent=(0, width, height, 0), interpolation='nearest')
    for outline in outlines:
        _draw_outline(axes, tiles, outline)
    for tile in tiles:
        _annotate(axes, tile)
    lines = [(outline.name, outline.colour) for outline in outlines]
    _draw_legend(figure, lines, swatches)
    if scale is not None:
        _draw_scale(figure, scale)
    with mpl.rc_context(SVG_SETTINGS), atomic_path(path) as temporary:
        figure.savefig(temporary, format='svg', dpi=POINTS_PER_INCH, metadata={'Date': None})
    return path


def _place(rows: Sequence[Row]) -> Iterator[Tile]:
    """Give each slice its place; shorter rows are spread over the width of the longest."""
    shapes = [[where.shape(PIXEL_MM) for where in row.slices] for row in rows]
    total = max(sum(width for _, width in row) + GAP * (len(row) - 1) for row in shapes)
    top = 0
    for row, sizes in zip(rows, shapes):
        spare = total - sum(width for _, width in sizes)
        left = 0.0
        for number, (where, (height, width)) in enumerate(zip(row.slices, sizes)):
            first = number == 0
            title = row.title if first else ''
            yield Tile(where, row.paint, top, round(left), height, width, title, first)
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


def _empty_figure(height: int, width: int) -> tuple[Figure, Axes]:
    """A black figure whose axes, in pixels, fill all but its foot."""
    total = height + FOOT
    figure = Figure(figsize=(width / POINTS_PER_INCH, total / POINTS_PER_INCH), facecolor='black')
    FigureCanvasSVG(figure)
    axes = figure.add_axes((0, FOOT / total, 1, height / total))
    axes.set_axis_off()
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_autoscale_on(False)
    return figure, axes


def _draw_outline(axes: Axes, tiles: Sequence[Tile], outline: Outline) -> None:
    volume = load_volume(outline.image)
    for tile in tiles:
        values = sample(volume, tile.where, PIXEL_MM)
        if not values.min() < outline.level < values.max():
            continue
        columns = tile.left + np.arange(tile.width) + 0.5
        rows = tile.top + tile.height - np.arange(tile.height) - 0.5
        contour = axes.contour(columns, rows, values, levels=[outline.level])
        contour.remove()
        for curve in map(_thin, contour.allsegs[0]):
            if len(curve) >= FEWEST_POINTS:
                axes.plot(*curve.T, color=outline.colour, linewidth=1)


def _thin(curve: NDArray) -> NDArray:
    """Drop every other point of a curve (n, 2) where nobody would miss it; round the rest."""
    before, point, after = curve[:-2:2], curve[1:-1:2], curve[2::2]
    chord, offset = after - before, point - before
    area = np.abs(chord[:, 0] * offset[:, 1] - chord[:, 1] * offset[:, 0])
    keep = np.ones(len(curve), dtype=bool)
    keep[1:-1:2] = area > STRAY * np.hypot(*chord.T)
    return np.round(curve[keep], 1)


def _annotate(axes: Axes, tile: Tile) -> None:
    """Write the position and, on the first slice of a row, which side is which."""
    foot = tile.top + tile.height + STRIP / 2
    centre = tile.left + tile.width / 2
    position = f'{COORDINATE[tile.where.plane]} {tile.where.position:+.0f}'
    axes.text(centre, foot, position, color=FAINT_INK, fontsize=9, ha='center', va='center')
    if not tile.first:
        return
    left, right = SIDES[tile.where.plane]
    middle = tile.top + tile.height / 2
    axes.text(tile.left + 3, middle, left, color=INK, fontsize=12, weight='bold', va='center')
    axes.text(
        tile.left + tile.width - 3, middle, right,
        color=INK, fontsize=12, weight='bold', va='center', ha='right',
    )  # fmt: skip
    axes.text(tile.left + 4, tile.top + 4, tile.title, color=INK, fontsize=11, va='top')


def _draw_legend(
    figure: Figure, lines: Sequence[tuple[str, str]], swatches: Sequence[tuple[str, str]]
) -> None:
    handles: list[Artist] = [
        Line2D([], [], color=colour, linewidth=2, label=name) for name, colour in lines
    ]
    handles += [
        Line2D([], [], color=colour, linewidth=0, marker='s', markersize=9, label=name)
        for name, colour in swatches
    ]
    if handles:
        figure.legend(
            handles=handles, loc='lower left', ncols=len(handles), frameon=False,
            labelcolor=INK, fontsize=11, borderaxespad=0.2,
        )  # fmt: skip


def _draw_scale(figure: Figure, scale: Scale) -> None:
    """A colour bar on the right of the foot, its label beside it."""
    point = 1 / (POINTS_PER_INCH * figure.get_figheight())
    axes = figure.add_axes((0.7, 17 * point, 0.28, 9 * point))
    mappable = ScalarMappable(Normalize(scale.low, scale.high), scale.colours)
    bar = figure.colorbar(mappable, cax=axes, orientation='horizontal')
    bar.outline.set_visible(False)
    axes.tick_params(colors=INK, labelsize=9, length=2, pad=1)
    figure.text(0.69, 21 * point, scale.label, color=INK, fontsize=11, ha='right', va='center')
