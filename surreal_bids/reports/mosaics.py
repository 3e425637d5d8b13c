"""Mosaics of slices as JPEG files, and HTML viewers of maps.

Images may have any grid and orientation. Left in the figure is left in the head; positions are in
mm.
"""

from __future__ import annotations

import colorsys
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import matplotlib as mpl
import nibabel as nib
import numpy as np
from markupsafe import Markup
from matplotlib.colors import to_rgb
from nibabel.affines import apply_affine, rescale_affine, voxel_sizes
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont  # installed with matplotlib
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.files import atomic_path, write_text
from surreal_bids.imaging.quality import split_side
from surreal_bids.templates import builtin_template

AXES = {'z': (0, 1, 2), 'y': (0, 2, 1), 'x': (1, 2, 0)}
"""Axial, coronal and sagittal slices: world axes to the right, upwards and through the slice."""

COUNTS = {'z': 7, 'y': 7, 'x': 6}
FEWER = {'z': 5, 'y': 5, 'x': 4}
"""Number of slices per plane; rows have similar lengths. Fewer, larger slices for registration."""

ENDS = 0.14
"""Distance of the outermost slices from the ends of the brain, relative to its extent."""

MARGIN_MM = 5.0
STRIP, FOOT, GAP = 20, 38, 3
"""Pixels: height of the line of positions and of the legend, distance between slices."""

FAINT = '#b8c0cc'
MASK_COLOUR, LESION_COLOUR = '#ff5a5f', '#00e5ff'
TISSUE_COLOURS = {'GM': '#e69f00', 'WM': '#56b4e9', 'CSF': '#cc79a7'}
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""

CHANGE, CONTRIBUTION = 'RdBu_r', 'PuOr_r'
"""Colour maps of changes (blue: less than in controls) and of contributions to an R-index."""

GOLDEN_RATIO = (1 + 5**0.5) / 2
"""Multiples of it, modulo 1, spread hues evenly."""

VIEWER_MM = 2.0
"""Voxel size of viewers; their files grow with the number of voxels."""

LARGEST = 99.5
"""Percentile of the absolute values of a map that gets the last colour."""

Paint = Callable[[NDArray], NDArray]
"""Colours (rows, columns, 3) from 0 to 1 of a slice given by world coordinates."""


class Scale(NamedTuple):
    """Colour bar: name of the colour map, range of values, and what they are."""

    colours: str
    low: float
    high: float
    label: str

    def paint(self, values: NDArray) -> NDArray:
        """Return the colours of values."""
        shown = (values - self.low) / ((self.high - self.low) or 1.0)
        return np.asarray(mpl.colormaps[self.colours](shown))[..., :3]


class Tile(NamedTuple):
    """A slice: its position in words, and the world coordinates (rows, columns, 3) of pixels."""

    text: str
    world: NDArray


class Row(NamedTuple):
    """Slices side by side, painted alike; only the first may have a title."""

    tiles: Sequence[Tile]
    paint: Paint
    title: str = ''

    @property
    def size(self) -> tuple[int, int]:
        """Pixels: width of all slices side by side, and height of the first."""
        return sum(tile.world.shape[1] for tile in self.tiles), self.tiles[0].world.shape[0]


@dataclass(frozen=True, eq=False)
class Background:
    """Template that maps are drawn on: T1w image and brain mask."""

    t1w: nib.Nifti1Image
    mask: nib.Nifti1Image

    @classmethod
    def read(cls) -> Background:
        """Read the built-in template."""
        found = builtin_template()
        return cls(found.t1w, found.mask)

    @cached_property
    def coarse(self) -> nib.Nifti1Image:
        """The T1w image for viewers."""
        return _coarser(self.t1w, 1)

    @cached_property
    def tiles(self) -> dict[str, list[Tile]]:
        """Slices over the whole brain."""
        return slices(self.mask)

    @cached_property
    def grey(self) -> Paint:
        """Painter of the T1w image, dark enough for pale colours."""
        return grey(self.t1w, self.mask, 0.75)


def extent(mask: nib.Nifti1Image) -> tuple[NDArray, NDArray]:
    """Return the lowest and highest world coordinates (mm) of a mask."""
    inside = np.argwhere(np.asarray(mask.dataobj) > 0.5)
    if not len(inside):
        raise DataError('the brain mask is empty; check the mask')
    world = apply_affine(mask.affine, inside)
    return world.min(axis=0), world.max(axis=0)


def slices(
    mask: nib.Nifti1Image,
    counts: Mapping[str, int] = COUNTS,
    through: nib.Nifti1Image | None = None,
) -> dict[str, list[Tile]]:
    """Spread slices over a brain, by plane; the nearest ones go through the middle of `through`."""
    low, high = extent(mask)
    middle = None if through is None else np.mean(extent(through), axis=0)
    rows = {}
    for plane, count in counts.items():
        axis = AXES[plane][2]
        # Whole millimetres from the centre of a voxel: nothing is blurred at 1 mm.
        places = low[axis] + np.round(np.linspace(ENDS, 1 - ENDS, count) * (high - low)[axis])
        if middle is not None:
            places[np.abs(places - middle[axis]).argmin()] = middle[axis]
        rows[plane] = [_tile(plane, place, low, high) for place in places]
    return rows


def _tile(plane: str, position: float, low: NDArray, high: NDArray) -> Tile:
    across, up, through = AXES[plane]
    columns = np.arange(low[across] - MARGIN_MM, high[across] + MARGIN_MM + 1)
    rows = np.arange(low[up] - MARGIN_MM, high[up] + MARGIN_MM + 1)[::-1]
    world = np.empty((len(rows), len(columns), 3))
    world[..., across], world[..., up], world[..., through] = columns, rows[:, None], position
    return Tile(f'{plane} {position:+.0f}', world)


def sampler(image: nib.Nifti1Image, order: Literal[0, 1] = 1, dtype: type = np.float32) -> Paint:
    """Return a function that samples an image at world coordinates; 0 outside of it."""
    data: NDArray = np.asarray(image.dataobj, dtype)
    to_voxel = np.linalg.inv(image.affine)

    def sample(world: NDArray) -> NDArray:
        voxels = np.moveaxis(apply_affine(to_voxel, world), -1, 0)
        return ndimage.map_coordinates(data, voxels, order=order)

    return sample


def grey(image: nib.Nifti1Image, mask: nib.Nifti1Image, light: float = 1.0) -> Paint:
    """Paint an image in grey; its intensities in the mask set the window."""
    sample, brain = sampler(image), sampler(mask)
    points = np.concatenate(
        [tile.world[::3, ::3].reshape(-1, 3) for row in slices(mask).values() for tile in row]
    )
    inside = sample(points)[brain(points) > 0.5]
    if not inside.any():
        raise DataError(
            'the image is zero everywhere in the brain mask; check that both are in the same space'
        )
    low, high = np.percentile(inside, [0.5, 99.5])

    def paint(world: NDArray) -> NDArray:
        shade = light * ((sample(world) - low) / max(high - low, 1e-9)).clip(0, 1)
        return np.repeat(shade[..., None], 3, axis=-1)

    return paint


def outlined(under: Paint, image: nib.Nifti1Image, colour: str, width: int = 1) -> Paint:
    """Draw the outline of a mask or a probability."""
    sample = sampler(image)

    def paint(world: NDArray) -> NDArray:
        inside = sample(world) > 0.5
        edge = inside & ~ndimage.binary_erosion(inside, iterations=width)
        return np.where(edge[..., None], to_rgb(colour), under(world))

    return paint


def region_colour(index: int, name: str) -> tuple[float, float, float]:
    """Return the colour of a region; left and right of one name differ in lightness only."""
    side, structure = split_side(name)
    number = sum(place * ord(letter) for place, letter in enumerate(structure, 1)) or index
    return colorsys.hls_to_rgb(number * GOLDEN_RATIO % 1, 0.68 if side == 'L' else 0.52, 0.85)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(Path(mpl.get_data_path()) / 'fonts' / 'ttf' / 'DejaVuSans.ttf', size)


def save(
    path: Path,
    rows: Sequence[Row],
    legend: Mapping[str, str] = {},
    scale: Scale | None = None,
) -> Path:
    """Write rows of slices to a JPEG file.

    Parameters
    ----------
    path
        The file.
    rows
        From top to bottom; shorter rows are spread over the width of the longest.
    legend
        Names and their colours.
    scale
        Colour bar.
    """
    width = max(row.size[0] + GAP * (len(row.tiles) - 1) for row in rows)
    height = sum(row.size[1] + STRIP for row in rows) + FOOT * bool(legend or scale)
    picture = Image.new('RGB', (width, height))
    draw, top = ImageDraw.Draw(picture), 0
    for row in rows:
        _draw_row(picture, draw, row, top)
        top += row.size[1] + STRIP
    _draw_legend(draw, top + FOOT / 2, width, legend, scale)
    with atomic_path(path) as temporary:
        picture.save(temporary, 'JPEG', quality=82)
    return path


def _draw_row(picture: Image.Image, draw: ImageDraw.ImageDraw, row: Row, top: int) -> None:
    """Draw slices spread over the width of the picture, their positions, sides and the title."""
    spare = (picture.width - row.size[0]) / max(len(row.tiles) - 1, 1)
    left = 0.0
    for tile in row.tiles:
        tall, wide, _ = tile.world.shape
        pixels = (row.paint(tile.world).clip(0, 1) * 255).astype(np.uint8)
        picture.paste(Image.fromarray(pixels), (round(left), top))
        draw.text((left + wide / 2, top + tall), tile.text, FAINT, _font(14), anchor='ma')
        left += wide + spare
    tall, wide, _ = row.tiles[0].world.shape
    sides = 'PA' if row.tiles[0].text[0] == 'x' else 'LR'
    for side, place, anchor in zip(sides, (3, wide - 3), ('lm', 'rm')):
        draw.text((place, top + tall / 2), side, 'white', _font(16), anchor=anchor)
    draw.text((4, top + 4), row.title, 'white', _font(16))


def _draw_legend(
    draw: ImageDraw.ImageDraw,
    middle: float,
    width: int,
    legend: Mapping[str, str],
    scale: Scale | None,
) -> None:
    left = 8.0
    for name, colour in legend.items():
        draw.rectangle((left, middle - 5, left + 18, middle + 5), colour)
        draw.text((left + 24, middle), name, 'white', _font(15), anchor='lm')
        left += 40 + draw.textlength(name, _font(15))
    if scale is None:
        return
    right, length = width - 14, max(0.22 * width, 90)
    for place, colour in enumerate(scale.paint(np.linspace(scale.low, scale.high, int(length)))):
        at = right - length + place
        draw.line((at, middle - 12, at, middle - 3), tuple(round(255 * part) for part in colour))
    for value in sorted({scale.low, 0.0, scale.high}):
        tick = right - length * (scale.high - value) / (scale.high - scale.low)
        draw.text((tick, middle), f'{value:.2g}', 'white', _font(14), anchor='ma')
    draw.text((right - length - 26, middle), scale.label, 'white', _font(15), anchor='rm')


def mask_mosaic(
    path: Path, t1w: nib.Nifti1Image, mask: nib.Nifti1Image, lesion: nib.Nifti1Image | None = None
) -> Path:
    """Draw a T1w image with the outlines of its brain mask and of a lesion."""
    paint, legend = outlined(grey(t1w, mask), mask, MASK_COLOUR), {'brain mask': MASK_COLOUR}
    if lesion is not None:
        paint, legend['lesion'] = outlined(paint, lesion, LESION_COLOUR, 2), LESION_COLOUR
    tiles = slices(mask, through=lesion).values()
    return save(path, [Row(row, paint) for row in tiles], legend)


def tissue_mosaic(
    path: Path,
    t1w: nib.Nifti1Image,
    mask: nib.Nifti1Image,
    tissues: Mapping[str, nib.Nifti1Image],
) -> Path:
    """Draw probabilities of GM, WM and CSF, or some of them, over a T1w image."""
    under, samplers = grey(t1w, mask), {name: sampler(image) for name, image in tissues.items()}

    def paint(world: NDArray) -> NDArray:
        plain = colours = under(world)
        for name, sample in samplers.items():
            opacity = 0.55 * sample(world).clip(0, 1)[..., None]
            colours = colours + opacity * (np.array(to_rgb(TISSUE_COLOURS[name])) - plain)
        return colours

    legend = {name: TISSUE_COLOURS[name] for name in tissues}
    return save(path, [Row(row, paint) for row in slices(mask).values()], legend)


def label_mosaic(
    path: Path,
    t1w: nib.Nifti1Image,
    mask: nib.Nifti1Image,
    labels: nib.Nifti1Image,
    names: Mapping[int, str],
) -> Path:
    """Draw regions with strong borders over a T1w image; 0 is no region."""
    under, sample = grey(t1w, mask), sampler(labels, 0, np.int32)
    highest = int(np.asarray(labels.dataobj).max())
    hues = np.array([region_colour(index, names.get(index, '')) for index in range(highest + 1)])

    def paint(world: NDArray) -> NDArray:
        index = sample(world)
        edge = (index != np.roll(index, 1, 0)) | (index != np.roll(index, 1, 1))
        opacity = np.where(index > 0, np.where(edge, 0.95, 0.4), 0.0)[..., None]
        return (1 - opacity) * under(world) + opacity * hues[index]

    return save(path, [Row(row, paint) for row in slices(mask).values()])


def registration_pair(
    paths: tuple[Path, Path],
    warped: nib.Nifti1Image,
    template: nib.Nifti1Image,
    mask: nib.Nifti1Image,
    white_matter: nib.Nifti1Image,
) -> tuple[Path, Path]:
    """Draw the T1w image in template space and the template, to flicker between them.

    Both have the outlines of the template's brain mask and white matter.
    """
    tiles = slices(mask, FEWER)
    colours = {'brain mask of the template': MASK_COLOUR, 'WM': TISSUE_COLOURS['WM']}
    for path, image, title in zip(paths, (warped, template), ('participant', 'template')):
        paint = outlined(grey(image, mask), white_matter, TISSUE_COLOURS['WM'])
        rows = [Row(row, outlined(paint, mask, MASK_COLOUR), title) for row in tiles.values()]
        save(path, rows, colours)
    return paths


def ravens_mosaic(path: Path, ravens: nib.Nifti1Image, mask: nib.Nifti1Image) -> Path:
    """Draw a RAVENS map within the outline of the template's brain."""
    values = np.asarray(ravens.dataobj)
    highest = float(np.percentile(values[values > 0], 99)) if (values > 0).any() else 1.0
    scale = Scale('inferno', 0.0, highest, 'tissue volume per template volume')
    sample = sampler(ravens)
    paint = outlined(lambda world: scale.paint(sample(world)), mask, '#8a94a6')
    rows = [Row(row, paint) for row in slices(mask).values()]
    return save(path, rows, {'brain mask of the template': '#8a94a6'}, scale)


@dataclass(frozen=True, eq=False)
class StatisticalMap:
    """A map of positive and negative values.

    Attributes
    ----------
    image
        The map.
    title, label
        What it shows, and what its values are.
    threshold
        Values up to this size are not drawn.
    """

    image: nib.Nifti1Image
    title: str
    label: str
    threshold: float = 0.0

    @cached_property
    def limit(self) -> float:
        """Absolute value that gets the last colour."""
        values = np.abs(np.asarray(self.image.dataobj))
        values = values[values > self.threshold]
        return float(np.percentile(values, LARGEST)) if values.size else 1.0

    def draw(self, path: Path, background: Background) -> Path:
        """Draw slices of the map on a template."""
        # Nearest: between a voxel beyond the threshold and one at zero there is nothing.
        sample, scale = sampler(self.image, 0), Scale(CHANGE, -self.limit, self.limit, self.label)

        def paint(world: NDArray) -> NDArray:
            values = sample(world)
            shown = (np.abs(values) > self.threshold)[..., None]
            return np.where(shown, scale.paint(values), background.grey(world))

        rows = [Row(row, paint) for row in background.tiles.values()]
        return save(path, rows, scale=scale)

    def write_viewer(self, path: Path, background: Background, back: Path) -> Path:
        """Write a page to move through the map, which needs no network and links `back`."""
        from nilearn.plotting import view_img  # Takes seconds to import.

        with warnings.catch_warnings():
            # Nilearn reads the background through a masked array, of which numpy warns.
            warnings.simplefilter('ignore', UserWarning)
            viewer = view_img(
                _coarser(self.image, 0),
                bg_img=background.coarse,
                threshold=self.threshold or 1e-6 * self.limit,
                vmax=self.limit,
                cmap=CHANGE,
                black_bg=True,
                opacity=0.85,
                resampling_interpolation='nearest',
                title='',
                width_view=900,
            )
        head = Markup(
            '<body style="margin:1rem;background:#000;color:#eee;font-family:sans-serif">'
            '<h1 style="font-size:1.2rem">{} ({})</h1><p>Click a slice to move through the map. '
            '<a style="color:#7cc0f5" href="{}">Back to the report</a></p>'
        ).format(self.title, self.label, os.path.relpath(back, path.parent))
        title = Markup('<title>{}</title>').format(self.title)
        html = re.sub(r'<link\b[^>]*href="https?:[^>]*>', '', viewer.html)
        html = re.sub(r'<title>.*?</title>', lambda _: title, html, count=1, flags=re.DOTALL)
        return write_text(path, html.replace('<body>', head, 1))


def _coarser(image: nib.Nifti1Image, order: int) -> nib.Nifti1Image:
    """Return the image with voxels of `VIEWER_MM`, unless its own are larger."""
    from nibabel.processing import resample_from_to

    factors = voxel_sizes(image.affine) / VIEWER_MM
    if (factors > 0.99).all():
        return image
    shape = np.maximum(np.round(np.array(image.shape) * factors), 1).astype(int)
    affine = rescale_affine(image.affine, image.shape, (VIEWER_MM,) * 3, shape)
    single = nib.Nifti1Image(np.asarray(image.dataobj, dtype=np.float32), image.affine)
    return resample_from_to(single, (tuple(shape), affine), order=order)


class RegionPainter:
    """Draws values of regions on the template, for one pattern or participant after the other.

    Parameters
    ----------
    background
        The template.
    labels
        Index of the region of each voxel of the same space, 0 for none.
    """

    def __init__(self, background: Background, labels: nib.Nifti1Image) -> None:
        self._background, self._low_high = background, extent(background.mask)
        self._sample = sampler(labels, 0, np.int32)
        self._slices: dict[bytes, tuple[NDArray, NDArray]] = {}
        data = np.asarray(labels.dataobj, np.int32)[::2, ::2, ::2]
        self._length = int(data.max()) + 1
        voxels = np.argwhere(data)
        world, index = apply_affine(labels.affine, 2 * voxels), data[tuple(voxels.T)]
        self._places: dict[str, NDArray] = {}
        self._counts: dict[str, NDArray] = {}
        for plane, (_, _, axis) in AXES.items():
            edges = np.arange(self._low_high[0][axis], self._low_high[1][axis] + 2, 2.0)
            regions = np.arange(self._length + 1) - 0.5
            self._places[plane] = np.round(edges[:-1] + 1)
            self._counts[plane] = np.histogram2d(world[:, axis], index, (edges, regions))[0]

    def draw(self, path: Path, maps: Mapping[str, Mapping[int, float]], scale: Scale) -> Path:
        """Draw one row per map: its title, and values by index of the region.

        Slices go through the largest values; regions without a value stay grey.
        """
        rows = [
            Row(self._through(values), self._paint(values, scale), title)
            for title, values in maps.items()
        ]
        return save(path, rows, scale=scale)

    def _lookup(self, values: Mapping[int, float]) -> NDArray:
        table = np.full(self._length, np.nan)
        for index, value in values.items():
            if index < self._length:
                table[index] = value
        return table

    def _through(self, values: Mapping[int, float]) -> list[Tile]:
        """Return slices of each plane where most is coloured; two axial ones."""
        size = np.nan_to_num(np.abs(self._lookup(values)))
        tiles: list[Tile] = []
        taken = np.inf
        for plane in 'zzyx':
            places = self._places[plane]
            sums = self._counts[plane] @ size
            if plane == 'z' and tiles:
                sums = sums * (np.abs(places - taken) > 15)
            taken = float(places[sums.argmax()]) if sums.any() else float(np.median(places))
            tiles.append(_tile(plane, taken, *self._low_high))
        return tiles

    def _paint(self, values: Mapping[int, float], scale: Scale) -> Paint:
        table = self._lookup(values)
        colours = scale.paint(np.nan_to_num(table))

        def paint(world: NDArray) -> NDArray:
            # Slices are sampled once: reports of many participants show the same ones.
            key = world[0, 0].tobytes()
            if key not in self._slices:
                grey = self._background.grey(world)[..., :1].astype(np.float32)
                self._slices[key] = self._sample(world), grey
            index, shade = self._slices[key]
            return np.where(np.isfinite(table)[index][..., None], colours[index], shade)

        return paint
