"""Spatial transforms as dense displacement fields in world space (RAS, millimetres).

A transform belongs to a grid, that of the fixed image: for each of its voxels it says where in the
world of the moving image to look. It therefore pulls moving images onto the fixed grid. The affine
part is included, so that one field, one interpolation and one Jacobian determinant say everything.

On disk a transform is an ITK displacement field, which `antsApplyTransforms` takes as it is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from nibabel.affines import from_matvec
from nibabel.nifti1 import Nifti1Image
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F

from surreal_bids.exceptions import DataError
from surreal_bids.files import write_image
from surreal_bids.images import to_ants
from surreal_bids.parallel import PLANES, in_parts, in_threads

RAS_TO_LPS = np.array([-1.0, -1.0, 1.0], dtype=np.float32)
"""ITK's world differs from that of NIfTI in the sign of the first two axes."""

WRITTEN_MM = np.float32(2**-12)
"""Displacements in files are multiples of this: they compress to two thirds, in less time."""

VECTOR_INTENT = 1007
"""NIfTI intent code of a vector at each voxel, which ITK expects of a displacement field."""

FIT_POINTS = 4000
"""About so many voxels decide the affine part of a field."""

INVERSION_ITERATIONS = 30
INVERSION_TOLERANCE = 0.01
"""A point is inverted when it is wrong by less than this (voxels), or after so many iterations."""

NEWTON_DISTANCE = 0.5
"""Distance (voxels) over which derivatives are taken."""

SMALLEST_VOLUME = 0.01
"""Jacobian determinant below which Newton's method is not used."""


@dataclass(frozen=True)
class Transform:
    """Where each voxel of a fixed grid lies in the world of the moving image.

    Attributes
    ----------
    field : ndarray, shape (X, Y, Z, 3), float32
        RAS displacement in mm, affine part included: moving world = fixed world + field.
    affine : ndarray, shape (4, 4)
        Voxel-to-world matrix of the fixed grid.
    """

    field: NDArray[np.float32]
    affine: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Size of the fixed grid."""
        x, y, z = self.field.shape[:3]
        return x, y, z

    def planes(self, planes: slice) -> Transform:
        """The same on some planes of the grid."""
        return Transform(self.field[planes], self.affine @ _shift(planes))


def affine_transform(shape: Sequence[int], affine: ArrayLike, matrix: ArrayLike) -> Transform:
    """The transform x -> matrix @ x, from fixed to moving world, on a grid."""
    grid_affine = np.asarray(affine, dtype=np.float64)
    still = np.zeros((*shape, 3), dtype=np.float32)
    return Transform(_plus_affine(still, grid_affine, matrix), grid_affine)


def then_affine(transform: Transform, matrix: ArrayLike) -> Transform:
    """The transform followed by an affine map of the moving world: x -> matrix @ transform(x)."""
    linear = np.asarray(matrix, dtype=np.float32)[:3, :3]
    turned = transform.field @ linear.T
    return Transform(_plus_affine(turned, transform.affine, matrix), transform.affine)


def _plus_affine(
    field: NDArray[np.float32], affine: NDArray[np.float64], matrix: ArrayLike
) -> NDArray[np.float32]:
    """Add the displacement of an affine map, from fixed to moving world, to a field, in place."""
    displacement = (np.asarray(matrix, dtype=np.float64) - np.eye(4)) @ affine

    def add(planes: slice) -> None:
        part = field[planes]
        part += np.moveaxis(_map_indices(part.shape[:3], displacement @ _shift(planes)), 0, -1)

    in_parts(add, len(field), PLANES)
    return field


def invert(transform: Transform, shape: Sequence[int], affine: ArrayLike) -> Transform:
    """The inverse, on a grid of the moving image (`shape`, `affine`).

    The transform is split as M(x + e(x)) with M affine. Voxels of its own grid, taken where it puts
    them, say where those near by come from; Newton's method does the rest. The usual fixed-point
    iteration x <- M^-1 y - e(x) fails where the transform stretches much: it was off by more than
    1 mm in 8 % of the voxels of real brains.
    """
    grid_affine = np.asarray(affine, dtype=np.float64)
    matrix, field = split_affine(transform)
    to_start = np.linalg.inv(matrix)
    from_moving = np.linalg.inv(transform.affine) @ to_start @ grid_affine
    linear = transform.affine[:3, :3].astype(np.float32)
    residual = torch.from_numpy(field @ np.linalg.inv(linear).T).movedim(-1, 0).contiguous()
    guess = _scattered(residual, from_moving, shape)
    offsets = np.empty((*shape, 3), dtype=np.float32)

    def solve(planes: slice) -> None:
        start = _doubled(guess, planes, shape)
        wanted = torch.from_numpy(_map_indices(start.shape[1:], from_moving @ _shift(planes)))
        found = solve_offsets(residual, wanted.flatten(1), start.flatten(1)).view(start.shape)
        offsets[planes] = found.movedim(0, -1).numpy() @ linear.T

    in_parts(solve, shape[0], PLANES)
    return Transform(_plus_affine(offsets, grid_affine, to_start), grid_affine)


def _scattered(residual: Tensor, from_moving: NDArray[np.float64], shape: Sequence[int]) -> Tensor:
    """Guess d with d = -e(y + d), (3, x, y, z), at every second voxel of a moving grid.

    The mean of -e(x) over the voxels x that the transform puts near by; where there are none, that
    of a wider neighbourhood.
    """
    half = [size // 2 + 1 for size in shape]
    to_half = np.linalg.inv(from_moving @ np.diag([2, 2, 2, 1])).astype(np.float32)
    cells = np.full(residual.shape[1:], np.prod(half), dtype=np.int64)

    def find_cells(planes: slice) -> None:
        here = residual[:, planes].numpy()
        places = _map_indices(here.shape[1:], to_half @ _shift(planes))
        places += np.tensordot(to_half[:3, :3], here, axes=1)
        i, j, k = places = np.rint(places, out=places).astype(np.int32)
        inside = np.all([(at >= 0) & (at < size) for at, size in zip(places, half)], axis=0)
        np.copyto(cells[planes], (i * half[1] + j) * half[2] + k, where=inside)

    in_parts(find_cells, len(cells), PLANES)

    def added_up(values: NDArray[np.float32] | None) -> NDArray[np.float32]:
        sums = np.bincount(cells.ravel(), values, minlength=int(np.prod(half)) + 1)
        return sums[:-1].astype(np.float32).reshape(half)

    *sums, counts = in_threads(added_up, [*(-residual).flatten(1).numpy(), None])
    return _filled(torch.from_numpy(np.stack(sums)), torch.from_numpy(counts)[None])


def _filled(sums: Tensor, counts: Tensor) -> Tensor:
    """Means (C, X, Y, Z) of cells; those of empty ones are taken from cells twice as large."""
    means = sums / counts.clamp_min(1)
    if bool(counts.all()) or max(sums.shape[1:]) == 1:
        return means
    padding = [side for size in reversed(sums.shape[1:]) for side in (0, size % 2)]
    larger = [8 * F.avg_pool3d(F.pad(each, padding), 2) for each in (sums, counts)]
    around = F.interpolate(_filled(*larger)[None], scale_factor=2.0)[0]
    x, y, z = sums.shape[1:]
    return torch.where(counts > 0, means, around[:, :x, :y, :z])


def _doubled(coarse: Tensor, planes: slice, shape: Sequence[int]) -> Tensor:
    """Some planes, from an even one on, of a grid whose every second voxel is known."""
    used = coarse[:, planes.start // 2 : planes.stop // 2 + 1]
    sizes = [2 * size - 1 for size in used.shape[1:]]
    doubled = F.interpolate(used[None], sizes, mode='trilinear', align_corners=True)[0]
    return doubled[:, : planes.stop - planes.start, : shape[1], : shape[2]]


def solve_offsets(residual: Tensor, wanted: Tensor, start: Tensor) -> Tensor:
    """Solve d + e(y + d) = 0 by Newton's method at points y (3, N); all in voxels of e."""
    solved = start.clone()
    points, offsets = wanted, start
    error = offsets + _vectors(residual, points + offsets)
    share = torch.ones(wanted.shape[1])
    places = torch.arange(wanted.shape[1])
    for _ in range(INVERSION_ITERATIONS):
        (left,) = (error.abs().amax(dim=0) > INVERSION_TOLERANCE).nonzero(as_tuple=True)
        if len(left) == 0:
            break
        points, offsets, error = (each.index_select(1, left) for each in (points, offsets, error))
        places, share = places[left], share[left]
        step = share * _newton_step(residual, points + offsets, error - offsets, error)
        remaining = offsets + step + _vectors(residual, points + offsets + step)
        better = remaining.square().sum(dim=0) < error.square().sum(dim=0)
        share = torch.where(better, 2 * share, share / 4).clamp_max_(1)
        offsets = torch.where(better, offsets + step, offsets)
        error = torch.where(better, remaining, error)
        solved.index_copy_(1, places, offsets)
    return solved


def _newton_step(residual: Tensor, points: Tensor, vectors: Tensor, error: Tensor) -> Tensor:
    """Step (3, N) that would make an error zero if e were linear; `vectors` are those of e."""
    columns = []
    for unit in torch.eye(3)[:, :, None]:
        beyond = _vectors(residual, points + NEWTON_DISTANCE * unit)
        columns.append(unit + (beyond - vectors) / NEWTON_DISTANCE)
    a, b, c = columns
    normals = _cross(b, c), _cross(c, a), _cross(a, b)
    volume = (a * normals[0]).sum(dim=0)
    step = torch.stack([(error * normal).sum(dim=0) for normal in normals]) / volume
    return -torch.where(volume > SMALLEST_VOLUME, step, error)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    """Cross product of vectors (3, N); that of PyTorch takes many times as long."""
    return a.roll(-1, 0) * b.roll(-2, 0) - a.roll(-2, 0) * b.roll(-1, 0)


def _vectors(field: Tensor, voxels: Tensor) -> Tensor:
    """Vectors of a field (3, X, Y, Z) at points (3, N); beyond the grid, those at its edge."""
    return sample(field, voxels.T, 'border')


def affine_part(transform: Transform) -> NDArray[np.float64]:
    """The affine map (4, 4), from fixed to moving world, that fits a transform best."""
    stride = max(1, round((np.prod(transform.shape) / FIT_POINTS) ** (1 / 3)))
    sparse = Transform(
        transform.field[::stride, ::stride, ::stride],
        transform.affine @ np.diag([stride, stride, stride, 1]),
    )
    points = _map_indices(sparse.shape, sparse.affine).reshape(3, -1).T.astype(np.float64)
    vectors = sparse.field.reshape(-1, 3).astype(np.float64)
    centre, shift = points.mean(axis=0), vectors.mean(axis=0)
    # Of the smallest slopes, where a grid is one voxel thick.
    slopes = np.linalg.lstsq(points - centre, vectors - shift, rcond=None)[0].T
    return from_matvec(np.eye(3) + slopes, shift - slopes @ centre)


def split_affine(transform: Transform) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Divide a transform into M(x + e(x)), M the affine map that fits it best.

    Returns
    -------
    matrix : ndarray, shape (4, 4)
        M, from fixed to moving world.
    residual : ndarray, shape (X, Y, Z, 3)
        e, in mm, at the voxels of the grid.
    """
    matrix = affine_part(transform)
    back = np.linalg.inv(matrix)
    linear = back[:3, :3].astype(np.float32)
    residual = np.empty((3, *transform.shape), dtype=np.float32)

    def straighten(planes: slice) -> None:
        part = transform.planes(planes)
        residual[:, planes] = _map_indices(part.shape, (back - np.eye(4)) @ part.affine)
        residual[:, planes] += np.moveaxis(part.field @ linear.T, -1, 0)

    in_parts(straighten, transform.shape[0], PLANES)
    return matrix, np.moveaxis(residual, 0, -1)


def resample(image: Nifti1Image, transform: Transform, *, order: Literal[0, 1] = 1) -> Nifti1Image:
    """Pull an image onto the fixed grid of a transform; what lies outside it is zero.

    Parameters
    ----------
    image : Nifti1Image
        In the moving world, on any grid.
    transform : Transform
    order : {0, 1}
        0 (nearest voxel) for labels, which keeps their data type, or 1 (linear), which gives
        float32.
    """
    if order == 1:
        return resample_all([image], transform)[0]
    values = np.asanyarray(image.dataobj)
    return Nifti1Image(_nearest(values, transform, image.affine), transform.affine)


def resample_all(images: Sequence[Nifti1Image], transform: Transform) -> list[Nifti1Image]:
    """Pull images that share a grid onto that of a transform, linearly."""
    moving_affine = images[0].affine
    # Stacked, since an image that was turned may be stored backwards, which PyTorch refuses.
    volumes = torch.from_numpy(
        np.stack([np.asarray(image.dataobj, dtype=np.float32) for image in images])
    )
    resampled = np.empty((len(images), *transform.shape), dtype=np.float32)

    def look_up(planes: slice) -> None:
        points = torch.from_numpy(voxel_coordinates(transform.planes(planes), moving_affine))
        resampled[:, planes] = sample(volumes, points.movedim(0, -1)).numpy()

    in_parts(look_up, transform.shape[0], PLANES)
    return [Nifti1Image(each, transform.affine) for each in resampled]


def _nearest(values: NDArray, transform: Transform, moving_affine: NDArray) -> NDArray:
    """Pull the nearest voxels of an array; zero outside."""
    resampled = np.zeros(transform.shape, dtype=values.dtype)

    def look_up(planes: slice) -> None:
        places = voxel_coordinates(transform.planes(planes), moving_affine)
        places = np.floor(places + np.float32(0.5), out=places).astype(np.int32)
        inside = np.all([(i >= 0) & (i < size) for i, size in zip(places, values.shape)], axis=0)
        resampled[planes][inside] = values[tuple(places[:, inside])]

    in_parts(look_up, transform.shape[0], PLANES)
    return resampled


def voxel_coordinates(
    transform: Transform, moving_affine: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Where each fixed voxel lies, in voxels of a moving grid: shape (3, X, Y, Z)."""
    to_voxel = np.linalg.inv(moving_affine)
    coordinates = _map_indices(transform.shape, to_voxel @ transform.affine)
    coordinates += np.moveaxis(transform.field @ to_voxel[:3, :3].T.astype(np.float32), -1, 0)
    return coordinates


def sample(
    volumes: Tensor, voxels: Tensor, padding: Literal['zeros', 'border'] = 'zeros'
) -> Tensor:
    """Values of volumes at points, linearly between voxels.

    Parameters
    ----------
    volumes : Tensor, shape (C, X, Y, Z)
    voxels : Tensor, shape (..., 3)
        The points, in voxels.
    padding : {'zeros', 'border'}
        What lies beyond the outermost voxels: nothing, or their values for ever.

    Returns
    -------
    Tensor, shape (C, ...)
    """
    # grid_sample wants coordinates in [-1, 1], the fastest axis first.
    sizes = torch.tensor(volumes.shape[1:], device=voxels.device).clamp_min(2)
    grid = voxels.mul(2 / (sizes - 1)).sub_(1).flip(-1).reshape(1, 1, 1, -1, 3)
    sampled = F.grid_sample(volumes[None], grid, padding_mode=padding, align_corners=True)
    return sampled.reshape(len(volumes), *voxels.shape[:-1])


def write_transform(path: str | Path, transform: Transform) -> Path:
    """Write an ITK displacement field (5-D NIfTI, LPS vectors), rounded to `WRITTEN_MM`."""
    # In the order of the file, which is that of the axes of a NIfTI image.
    vectors = np.empty((*transform.shape, 1, 3), dtype=np.float32, order='F')

    def round_off(planes: slice) -> None:
        steps = np.rint(transform.field[planes] * (RAS_TO_LPS / WRITTEN_MM))
        np.multiply(steps, WRITTEN_MM, out=vectors[planes, :, :, 0])

    in_parts(round_off, transform.shape[0], PLANES)
    image = Nifti1Image(vectors, transform.affine)
    image.header.set_intent(VECTOR_INTENT)
    image.header.set_xyzt_units('mm')
    image.set_qform(transform.affine, code='aligned')
    image.set_sform(transform.affine, code='aligned')
    return write_image(path, image)


def read_transform(path: str | Path) -> Transform:
    """Read an ITK displacement field."""
    image = Nifti1Image.from_filename(path)
    if image.ndim != 5 or image.shape[3:] != (1, 3):
        raise DataError(
            f'{path}: its size is {image.shape}, where a displacement field has (X, Y, Z, 1, 3); '
            'give the field that write_transform or ITK has written'
        )
    vectors = np.asarray(image.dataobj, dtype=np.float32)[:, :, :, 0]
    return Transform(vectors * RAS_TO_LPS, image.affine)


def read_composite(path: str | Path, reference: Nifti1Image) -> Transform:
    """Read any transform of ITK (.h5, .mat, .txt, field) as a displacement field.

    Parameters
    ----------
    path
        For example the `_xfm.h5` of fMRIPrep.
    reference : Nifti1Image
        Its grid becomes the fixed grid: for `from-T1w_to-MNI` files, the template.
    """
    import ants  # takes seconds, and few runs need it

    image = to_ants(reference)
    with tempfile.TemporaryDirectory() as folder:
        composed = str(Path(folder) / 'field_')
        field = ants.apply_transforms(image, image, [str(path)], compose=composed)
        return read_transform(field)


def _map_indices(shape: Sequence[int], matrix: NDArray) -> NDArray[np.float32]:
    """`matrix` applied to the index of each voxel: shape (3, X, Y, Z)."""
    i, j, k = np.ogrid[: shape[0], : shape[1], : shape[2]]
    mapped = np.empty((3, *shape[:3]), dtype=np.float32)
    for row, out in zip(matrix, mapped):
        np.add(row[0] * i + row[1] * j, row[2] * k + row[3], out=out, casting='same_kind')
    return mapped


def _shift(planes: slice) -> NDArray[np.float64]:
    """From indices of voxels in some planes of a grid to those in the whole grid."""
    return from_matvec(np.eye(3), [planes.start, 0, 0])
