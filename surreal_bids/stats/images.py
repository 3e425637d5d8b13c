"""Maps of many people on one grid, read a few at a time as vectors of the voxels in a mask.

Shape legend: V voxels in the mask.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import SpatialImage
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter

from surreal_bids.exceptions import DataError

Floats32 = NDArray[np.float32]
Rows = NDArray[np.intp]

BATCH = 16
"""Images held in memory at once."""

MASK_IMAGES = 200
"""A mask is made from the mean of at most so many images, evenly spread over the list."""

MASK_THRESHOLD = 0.1
"""Mean tissue (probability times Jacobian) a voxel needs to be tested, as usual in VBM."""

AFFINE_TOLERANCE = 1e-3
"""Grids whose affines differ by less (mm) are the same."""

FWHM_PER_SIGMA = float(np.sqrt(8 * np.log(2)))
"""Full width at half maximum of a Gaussian of standard deviation 1."""


@dataclass(frozen=True)
class Grid:
    """Shape and affine that all images share."""

    shape: tuple[int, ...]
    affine: NDArray[np.float64]

    @classmethod
    def of(cls, path: str | Path) -> Grid:
        """Grid of an image, from its header."""
        image = _load(path)
        return cls(_spatial_shape(path, image), image.affine)

    def matches(self, other: Grid) -> bool:
        """Whether voxels of both grids are at the same places."""
        return self.shape == other.shape and np.allclose(
            self.affine, other.affine, rtol=0, atol=AFFINE_TOLERANCE
        )

    def image(self, array: NDArray) -> nib.Nifti1Image:
        """Array of this shape as an image; units are mm."""
        image = nib.Nifti1Image(array, self.affine)
        image.header.set_xyzt_units('mm')
        return image

    def sigmas(self, fwhm: float) -> NDArray[np.float64]:
        """Standard deviations, in voxels along each axis, of a Gaussian of this width (mm)."""
        return fwhm / FWHM_PER_SIGMA / nib.affines.voxel_sizes(self.affine)


def _load(path: str | Path) -> SpatialImage:
    try:
        image = nib.load(path)
    except (OSError, ImageFileError) as error:
        raise DataError(
            f'{path}: cannot be read as an image ({error}); make it again, or leave it out'
        ) from error
    if not isinstance(image, SpatialImage):
        raise DataError(f'{path}: not a volume; give NIfTI images')
    return image


def _spatial_shape(path: str | Path, image: SpatialImage) -> tuple[int, ...]:
    shape = tuple(image.shape)
    if len(shape) < 3 or any(size != 1 for size in shape[3:]):
        raise DataError(f'{path}: shape {shape}; one three-dimensional map is needed')
    return shape[:3]


def read_map(path: str | Path, grid: Grid, fwhm: float = 0.0) -> Floats32:
    """Read one map, check it, and smooth it.

    Parameters
    ----------
    path
        Image file of one volume.
    grid
        The grid it must have.
    fwhm
        Full width at half maximum (mm) of a Gaussian to smooth with, as nilearn does it.

    Raises
    ------
    DataError
        It cannot be read, is on another grid, or holds NaN or infinity.
    """
    image = _load(path)
    found = Grid(_spatial_shape(path, image), image.affine)
    if not grid.matches(found):
        raise DataError(
            f'{path}: another grid than the other images (shape {found.shape}, not {grid.shape}, '
            'or another affine); resample it to the same template'
        )
    try:
        data = image.get_fdata(dtype=np.float32, caching='unchanged').reshape(grid.shape, order='A')
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f'{path}: the file is damaged ({error}); make it again, or leave it out'
        ) from error
    if not np.isfinite(data).all():
        raise DataError(f'{path}: holds NaN or infinite values; make it again, or leave it out')
    if fwhm > 0:
        return gaussian_filter(data, grid.sigmas(fwhm))
    return data


@dataclass(frozen=True)
class MapSeries:
    """The maps of N people, and which voxels of them are looked at.

    Attributes
    ----------
    paths
        One file a person.
    grid
        Grid of all of them.
    voxels : (V,) array of int
        Positions of the voxels in an array raveled in Fortran order, as nibabel reads it.
    fwhm
        Smoothing (mm).
    n_threads
        Files decompressed at once.
    """

    paths: tuple[Path, ...]
    grid: Grid
    voxels: Rows
    fwhm: float = 0.0
    n_threads: int = 1

    @classmethod
    def open(
        cls,
        paths: Sequence[str | Path],
        mask: nib.Nifti1Image | None = None,
        *,
        fwhm: float = 0.0,
        n_threads: int = 1,
    ) -> MapSeries:
        """Open maps that are on the grid of the first, within a mask or `mean_mask` of them."""
        if not paths:
            raise DataError('no images were given')
        grid = Grid.of(paths[0])
        if mask is None:
            mask = mean_mask(paths, fwhm=fwhm)
        if not grid.matches(Grid(tuple(mask.shape), mask.affine)):
            raise DataError(
                f'the mask has shape {mask.shape} and {paths[0]} has {grid.shape}, or their '
                'affines differ; resample the mask to the template'
            )
        voxels = np.flatnonzero(np.asanyarray(mask.dataobj).ravel(order='F') > 0)
        if voxels.size == 0:
            raise DataError('the mask is empty: there is nothing to test; use a lower threshold')
        return cls(tuple(map(Path, paths)), grid, voxels, fwhm, n_threads)

    def read(self, row: int) -> Floats32:
        """Voxels (V,) of one person."""
        return read_map(self.paths[row], self.grid, self.fwhm).ravel(order='F')[self.voxels]

    def batches(self, rows: ArrayLike) -> Iterator[tuple[Rows, Floats32]]:
        """Read people's voxels in batches: their rows (B,) and values (B, V)."""
        rows = np.asarray(rows, np.intp)
        with ThreadPoolExecutor(self.n_threads) as pool:
            for start in range(0, rows.size, BATCH):
                batch = rows[start : start + BATCH]
                values = np.empty((batch.size, self.voxels.size), np.float32)
                for position, voxels in enumerate(pool.map(self.read, batch)):
                    values[position] = voxels
                yield batch, values

    def to_image(self, values: ArrayLike) -> nib.Nifti1Image:
        """Values (V,) of the voxels as an image, single precision; 0 outside the mask."""
        flat = np.zeros(int(np.prod(self.grid.shape)), np.float32)
        flat[self.voxels] = values
        return self.grid.image(flat.reshape(self.grid.shape, order='F'))


def mean_mask(
    paths: Sequence[str | Path],
    *,
    threshold: float = MASK_THRESHOLD,
    fwhm: float = 0.0,
    n_images: int = MASK_IMAGES,
) -> nib.Nifti1Image:
    """Mask (uint8) of the voxels whose mean over people exceeds `threshold`.

    Of more than `n_images` people, as many evenly spread over the list have a say: so the other
    images need to be read only once.
    """
    grid = Grid.of(paths[0])
    chosen = np.unique(np.linspace(0, len(paths) - 1, min(n_images, len(paths))).astype(int))
    total = np.zeros(grid.shape)
    for number in chosen:
        total += read_map(paths[number], grid, fwhm)
    mask = total > threshold * chosen.size
    if not mask.any():
        raise DataError(
            f'no voxel has a mean above {threshold:g} over {chosen.size} images, {paths[0]} the '
            'first; give a lower threshold or a mask'
        )
    return grid.image(mask.astype(np.uint8))
