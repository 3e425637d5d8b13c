"""Voxelwise maps: streamed images, t, z and effect, and corrections for multiple tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.spatialimages import SpatialImage
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats
from scipy.ndimage import gaussian_filter

from surreal_bids.exceptions import DataError
from surreal_bids.images import open_image, reading
from surreal_bids.stats.glm import CONSTANT, Design, Estimates, LinearModels

Floats32 = NDArray[np.float32]
Rows = NDArray[np.intp]

BATCH = 16
"""Number of images in memory at once."""

MASK_IMAGES = 200
"""Maximum number of images averaged for a mask, evenly spaced over the list."""

MASK_THRESHOLD = 0.1
"""Minimum mean tissue (probability times Jacobian) of tested voxels, as usual in VBM."""

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
        image = open_image(path)
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


def _spatial_shape(path: str | Path, image: SpatialImage) -> tuple[int, ...]:
    shape = tuple(image.shape)
    if len(shape) < 3 or any(size != 1 for size in shape[3:]):
        raise DataError(f'{path}: shape is {shape}, but a three-dimensional map is needed')
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
    image = open_image(path)
    found = Grid(_spatial_shape(path, image), image.affine)
    if not grid.matches(found):
        raise DataError(
            f'{path}: grid differs from the other images (shape {found.shape}, not {grid.shape}, '
            'or another affine); resample it to the same template'
        )
    with reading(path):
        data = image.get_fdata(dtype=np.float32, caching='unchanged').reshape(grid.shape, order='A')
    if not np.isfinite(data).all():
        raise DataError(f'{path}: has NaN or infinite values; recompute or exclude it')
    if fwhm > 0:
        return gaussian_filter(data, grid.sigmas(fwhm))
    return data


@dataclass(frozen=True)
class MapSeries:
    """Maps of N participants, and the voxels that are tested.

    Attributes
    ----------
    paths
        One file per participant.
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
            raise DataError('no images to test; give at least one map')
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
            raise DataError('the mask is empty; use a lower threshold')
        return cls(tuple(map(Path, paths)), grid, voxels, fwhm, n_threads)

    def read(self, row: int) -> Floats32:
        """Voxels (V,) of one participant."""
        return read_map(self.paths[row], self.grid, self.fwhm).ravel(order='F')[self.voxels]

    def batches(self, rows: ArrayLike) -> Iterator[tuple[Rows, Floats32]]:
        """Read voxels in batches: their rows (B,) and values (B, V)."""
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
    """Mask (uint8) of the voxels whose mean over participants exceeds `threshold`.

    Of more than `n_images`, as many evenly spread over the list count, so that the other images
    need to be read only once.
    """
    grid = Grid.of(paths[0])
    chosen = np.unique(np.linspace(0, len(paths) - 1, min(n_images, len(paths))).astype(int))
    total = np.zeros(grid.shape)
    for number in chosen:
        total += read_map(paths[number], grid, fwhm)
    mask = total > threshold * chosen.size
    if not mask.any():
        raise DataError(
            f'no voxel has a mean above {threshold:g} over {chosen.size} images, such as '
            f'{paths[0]}; use a lower threshold or a mask'
        )
    return grid.image(mask.astype(np.uint8))


Floats = NDArray[np.float64]

FDR_LEVEL = 0.05
"""False discovery rate (Fig. 3 of the paper)."""

SMALLEST_P = 1e-290
"""Below it, one-sided p values are handled by their logarithm, before they underflow."""


def two_sided_p(t: ArrayLike, df: float) -> Floats:
    """Two-sided p values of t statistics with `df` degrees of freedom."""
    return 2 * stats.t.sf(np.abs(t), df)


def t_to_z(t: ArrayLike, df: float) -> Floats:
    """Normal deviates of the same one-sided p as t statistics; finite for any finite t.

    Where p underflows, its logarithm comes from the incomplete beta function: with
    x = df / (df + t^2), the tail of the t distribution is I_x(df/2, 1/2) / 2.
    """
    t = np.asarray(t, np.float64)
    p = stats.t.sf(np.abs(t), df)
    tiny = p < SMALLEST_P
    z = stats.norm.isf(np.where(tiny, 0.5, p))
    z[tiny] = -special.ndtri_exp(_log_tail(t[tiny], df))
    return np.copysign(z, t)


def _log_tail(t: Floats, df: float) -> Floats:
    """Logarithm of P(T > |t|), accurate far out.

    I_x(a, b) = x^a (1 - x)^b F(a + b, 1; a + 1; x) / (a B(a, b)), DLMF 8.17.8.
    """
    a, b = df / 2, 0.5
    x = df / (df + t**2)
    log_beta = (
        a * np.log(x)
        + b * np.log1p(-x)
        + np.log(special.hyp2f1(a + b, 1, a + 1, x))
        - np.log(a)
        - special.betaln(a, b)
    )
    return log_beta - np.log(2)


def fdr_discoveries(p: ArrayLike, level: float = FDR_LEVEL) -> NDArray[np.bool_]:
    """Mark the discoveries at this false discovery rate (Benjamini and Hochberg, 1995)."""
    return fdr_adjusted(p) <= level


def fdr_t_threshold(t: ArrayLike, df: float, level: float = FDR_LEVEL) -> float:
    """Return the smallest |t| that is a discovery at this level; infinite if there is none."""
    size = np.abs(t)
    found = size[fdr_discoveries(two_sided_p(size, df), level)]
    return float(found.min()) if found.size else np.inf


def fdr_adjusted(p: ArrayLike) -> Floats:
    """Compute Benjamini-Hochberg adjusted p values, in the shape of `p`."""
    p = np.asarray(p, np.float64)
    if np.isnan(p).any():
        raise DataError('p values are missing (NaN); exclude what was not tested')
    return stats.false_discovery_control(p, axis=None).reshape(p.shape) if p.size else p


CHUNK_BYTES = 1 << 25
"""Size, in double precision, of the voxels read from the scratch file at once."""

PERMUTATIONS_AT_ONCE = 32
"""Permutations that share a matrix product."""

TIE = 1e-5
"""Sizes of t that differ by this part are the same: the permuted ones are in single precision."""


@dataclass(frozen=True)
class ScratchMaps:
    """Voxels of many participants in an uncompressed file, to be read by chunks of voxels.

    Attributes
    ----------
    path
        The file: N x V numbers in single precision, one participant after another.
    shape
        N and V.
    """

    path: Path
    shape: tuple[int, int]

    def store(self, rows: NDArray[np.intp], values: NDArray) -> None:
        """Write the voxels (B, V) of some participants (B,); those never written take no room."""
        self.path.touch()
        with self.path.open('r+b') as file:
            file.truncate(self._position(self.shape[0], 0))
            for row, voxels in zip(rows, values):
                file.seek(self._position(row, 0))
                file.write(np.ascontiguousarray(voxels, np.float32).data)

    def chunks(self, rows: NDArray[np.intp]) -> Iterator[NDArray[np.float32]]:
        """Voxels of some participants (n, v), as many at a time as `CHUNK_BYTES` allows."""
        n_voxels = max(1, CHUNK_BYTES // (rows.size * np.dtype(np.float64).itemsize))
        with self.path.open('rb', buffering=0) as file:
            for start in range(0, self.shape[1], n_voxels):
                values = np.empty((rows.size, min(n_voxels, self.shape[1] - start)), np.float32)
                for row, voxels in zip(rows, values):
                    file.seek(self._position(row, start))
                    file.readinto(voxels.data)
                yield values

    def _position(self, row: int, voxel: int) -> int:
        """Where a number is in the file."""
        return (int(row) * self.shape[1] + voxel) * np.dtype(np.float32).itemsize


def draw_permutations(n_participants: int, n_permutations: int, seed: int) -> NDArray[np.intp]:
    """Random orders (K, n) of n participants."""
    rng = np.random.default_rng(seed)
    orders = np.tile(np.arange(n_participants), (n_permutations, 1))
    return rng.permuted(orders, axis=1)


def largest_t(
    chunks: Iterable[NDArray], design: Design, permutations: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Largest size of t over all voxels, for each permutation (K,).

    Freedman and Lane permute the residuals of the nuisance model, E, and fit the whole model
    again. Permuting E against the columns x and Q of the model is the same as permuting these
    against E, which is cheaper: t = x'E / sqrt((|E|^2 - |Q'E|^2 - (x'E)^2) / df).

    Parameters
    ----------
    chunks
        Voxels (n, v) of the participants of the design, in its order; together all V.
    design
        The model.
    permutations : (K, n)
        Orders of the participants.
    """
    largest = np.zeros(len(permutations), np.float32)
    for values in chunks:
        residuals = _unit_residuals(np.asarray(values, np.float64), design)
        for start in range(0, len(permutations), PERMUTATIONS_AT_ONCE):
            part = slice(start, start + PERMUTATIONS_AT_ONCE)
            sizes = _largest_of_chunk(residuals, design, permutations[part])
            np.maximum(largest[part], sizes, out=largest[part])
    return largest


def _unit_residuals(values: Floats, design: Design) -> NDArray[np.float32]:
    """What nuisance leaves of each voxel that varies, scaled to length 1 (n, v' <= v)."""
    residuals = values - values[0]
    total = np.einsum('nv,nv->v', residuals, residuals)
    residuals -= design.nuisance @ (design.nuisance.T @ residuals)
    squares = np.einsum('nv,nv->v', residuals, residuals)
    varies = squares > CONSTANT * total
    lengths = np.sqrt(squares[varies]).astype(np.float32)
    return residuals[:, varies].astype(np.float32) / lengths


def _largest_of_chunk(
    residuals: NDArray[np.float32], design: Design, permutations: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Largest size of t in these voxels for a few permutations (k,).

    t grows with (x'E)^2 / (1 - |Q'E|^2). The constant column of Q, its first, is orthogonal to E
    in any order.
    """
    tested = design.tested.astype(np.float32)[permutations] @ residuals
    explained = np.zeros_like(tested)
    for column in design.nuisance.astype(np.float32).T[1:]:
        explained += (column[permutations] @ residuals) ** 2
    share = (tested**2 / (1 - explained)).max(axis=1, initial=0.0)
    return np.sqrt(design.df * share / (1 - share))


def family_wise_p(t: ArrayLike, largest: ArrayLike) -> Floats:
    """Family-wise corrected p values of t (V,) from the largest t of K permutations (K,).

    The share of permutations, the observed order counted as one, that reach a t of this size
    anywhere.
    """
    ordered = np.sort(np.asarray(largest, np.float64))
    below = np.searchsorted(ordered, np.abs(t) * (1 - TIE), side='left')
    return (1 + ordered.size - below) / (1 + ordered.size)


SUMS_BYTES = 2 << 30
"""Memory that the sums of designs which share one reading of the images may take."""


@dataclass(frozen=True)
class PatternMap:
    """Result of one design. Images are 0 outside the mask and where nothing varies.

    Attributes
    ----------
    design
        What was compared.
    t, z
        Test statistic, and the normal deviate of the same p.
    effect
        Difference of means, or change per unit of the R-index, in units of the images.
    n_tested
        Voxels tested: those in the mask that vary among the participants of the design.
    t_fdr
        Voxels of this size of t or more are discoveries at the false discovery rate; infinite if
        there are none. None, as the next two, where the design is no test.
    n_discoveries
        How many there are.
    log_p_fwe
        -log10 of the family-wise corrected p by permutation, if asked for.
    """

    design: Design
    t: nib.Nifti1Image
    z: nib.Nifti1Image
    effect: nib.Nifti1Image
    n_tested: int
    t_fdr: float | None
    n_discoveries: int | None
    log_p_fwe: nib.Nifti1Image | None = None


@dataclass(frozen=True)
class Permutation:
    """How the family-wise error is found.

    Attributes
    ----------
    n_permutations
        Random orders of participants; p cannot be below 1 / (1 + n_permutations).
    seed
        Of the random orders.
    scratch_dir
        Folder for a file of 4 bytes a voxel and participant, which is deleted in the end; None: the
        system's.
    """

    n_permutations: int = 1000
    seed: int = 0
    scratch_dir: Path | None = None


def compute_maps(
    series: MapSeries,
    designs: Sequence[Design],
    *,
    fdr_level: float = FDR_LEVEL,
    permutation: Permutation | None = None,
) -> list[PatternMap]:
    """Test every design at every voxel, reading each image once.

    Designs of so many columns that their sums would take more than `SUMS_BYTES` share as many
    readings as are needed.

    Parameters
    ----------
    series
        Maps of N participants, in the order that the designs' rows refer to. Those in no design are
        not read.
    designs
        What to compare, as `pattern_designs` makes them.
    fdr_level
        False discovery rate.
    permutation
        Ask for family-wise corrected p values too. Time grows with participants, voxels, covariates
        and permutations; the scratch file with participants and voxels.

    Raises
    ------
    DataError
        There is no design, or an image cannot be used; it is named.
    """
    if not designs:
        raise DataError('no comparison is possible; see the reasons for skipping each')
    n_needed = 1 + max(int(design.rows.max()) for design in designs)
    if n_needed > len(series.paths):
        raise DataError(
            f'{len(series.paths)} images for at least {n_needed} participants; give one per '
            'participant'
        )
    return [
        found
        for some in _passes(designs, series.voxels.size)
        for found in _one_pass(series, some, fdr_level, permutation)
    ]


def _passes(designs: Sequence[Design], n_voxels: int) -> Iterator[list[Design]]:
    """Designs whose sums fit into memory together; usually that is all of them."""
    some: list[Design] = []
    for design in designs:
        if some and LinearModels.n_bytes([*some, design], n_voxels) > SUMS_BYTES:
            yield some
            some = []
        some.append(design)
    yield some


def _one_pass(
    series: MapSeries,
    designs: Sequence[Design],
    fdr_level: float,
    permutation: Permutation | None,
) -> list[PatternMap]:
    """Read the images of all who are in these designs once, and test."""
    size = (len(series.paths), series.voxels.size)
    models = LinearModels(designs, *size)
    scratch_dir = None if permutation is None else permutation.scratch_dir
    with tempfile.TemporaryDirectory(dir=scratch_dir) as folder:
        scratch = ScratchMaps(Path(folder) / 'maps', size)
        for batch, values in series.batches(np.unique(np.hstack([d.rows for d in designs]))):
            models.add(batch, values)
            if permutation is not None:
                scratch.store(batch, values)
        return [
            _to_map(series, design, estimates, fdr_level, _permuted(permutation, scratch, design))
            for design, estimates in zip(designs, models.estimates())
        ]


def _permuted(
    permutation: Permutation | None, scratch: ScratchMaps, design: Design
) -> np.ndarray | None:
    """Largest t of each permutation (K,)."""
    if permutation is None or not design.is_test:
        return None
    orders = draw_permutations(design.rows.size, permutation.n_permutations, permutation.seed)
    return largest_t(scratch.chunks(design.rows), design, orders)


def _to_map(
    series: MapSeries,
    design: Design,
    estimates: Estimates,
    fdr_level: float,
    largest: np.ndarray | None,
) -> PatternMap:
    t = estimates.t[estimates.varies].astype(np.float32)  # as written, so that t_fdr fits the image
    t_fdr = fdr_t_threshold(t, design.df, fdr_level) if design.is_test else None
    log_p = None
    if largest is not None:
        log_p = series.to_image(-np.log10(family_wise_p(estimates.t, largest)))
    return PatternMap(
        design=design,
        t=series.to_image(estimates.t),
        z=series.to_image(t_to_z(estimates.t, design.df)),
        effect=series.to_image(estimates.effect),
        n_tested=t.size,
        t_fdr=t_fdr,
        n_discoveries=None if t_fdr is None else int((np.abs(t) >= t_fdr).sum()),
        log_p_fwe=log_p,
    )
