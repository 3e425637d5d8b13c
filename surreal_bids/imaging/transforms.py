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
from scipy import ndimage
from torch import Tensor
from torch.nn import functional as F

from surreal_bids.exceptions import DataError
from surreal_bids.files import write_image
from surreal_bids.images import to_ants
from surreal_bids.imaging.slabs import PLANES, in_parts

Order = Literal[0, 1, 2, 3, 4, 5]
"""Of the spline that interpolates."""

RAS_TO_LPS = np.array([-1.0, -1.0, 1.0], dtype=np.float32)
"""ITK's world differs from that of NIfTI in the sign of the first two axes."""

WRITTEN_MM = np.float32(2**-12)
"""Displacements in files are multiples of this: they compress to two thirds, in less time."""

VECTOR_INTENT = 1007
"""NIfTI intent code of a vector at each voxel, which ITK expects of a displacement field."""

FIT_POINTS = 4000
"""About so many voxels decide the affine part of a field."""

INVERSION_ITERATIONS = 50
INVERSION_TOLERANCE = 0.01
"""A point is inverted when it moves by less than this (mm), or after so many iterations."""

SMALLEST_GRID = 16
"""Grids with more voxels along each axis are inverted at half the resolution first."""

UNDAMPED_ITERATIONS = 10
"""Points that still move after so many go half the way, which ends oscillation."""


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


def identity_transform(shape: Sequence[int], affine: ArrayLike) -> Transform:
    """The transform that moves nothing."""
    return affine_transform(shape, affine, np.eye(4))


def affine_transform(shape: Sequence[int], affine: ArrayLike, matrix: ArrayLike) -> Transform:
    """The transform x -> matrix @ x, from fixed to moving world, on a grid."""
    grid_affine = np.asarray(affine, dtype=np.float64)
    displacement = (np.asarray(matrix, dtype=np.float64) - np.eye(4)) @ grid_affine
    return Transform(np.moveaxis(_map_indices(shape, displacement), 0, -1), grid_affine)


def then_affine(transform: Transform, matrix: ArrayLike) -> Transform:
    """The transform followed by an affine map of the moving world: x -> matrix @ transform(x)."""
    linear = np.asarray(matrix, dtype=np.float32)[:3, :3]
    field = affine_transform(transform.shape, transform.affine, matrix).field
    field += transform.field @ linear.T
    return Transform(field, transform.affine)


def invert(transform: Transform, shape: Sequence[int], affine: ArrayLike) -> Transform:
    """The inverse, on a grid of the moving image (`shape`, `affine`).

    The transform is split as M(x + e(x)) with M affine; the fixed-point iteration
    x <- M^-1 y - e(x) (Chen et al., Med Phys 35:81, 2008) then converges whatever M rotates. It
    starts from the inverse on a grid of half the resolution, which leaves few iterations.
    """
    grid_affine = np.asarray(affine, dtype=np.float64)
    matrix, field = split_affine(transform)
    to_start = np.linalg.inv(matrix)
    to_voxel = np.linalg.inv(transform.affine)
    offsets = _invert_residual(_volumes(field), to_voxel, shape, to_start @ grid_affine)
    offsets += affine_transform(shape, grid_affine, to_start).field
    return Transform(offsets, grid_affine)


def _invert_residual(
    residual: Tensor, to_voxel: NDArray, shape: Sequence[int], affine: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Offsets d (X, Y, Z, 3) that solve d(y) = -e(y + d(y)) at the voxels y of a grid."""
    offsets = np.zeros((*shape, 3), dtype=np.float32)
    if min(shape) > SMALLEST_GRID:
        half = [size // 2 + 1 for size in shape]
        coarse = _invert_residual(residual, to_voxel, half, affine @ np.diag([2, 2, 2, 1]))
        _double(coarse, offsets)

    def solve(planes: slice) -> None:
        places = _grid_points(offsets[planes].shape, affine @ _shift(planes)).reshape(-1, 3)
        found = offsets[planes].reshape(-1, 3)
        moving = np.arange(len(places))
        for iteration in range(INVERSION_ITERATIONS):
            old = found[moving]
            change = -_sample_vectors(residual, to_voxel, places[moving] + old) - old
            found[moving] += change if iteration < UNDAMPED_ITERATIONS else change / 2
            moving = moving[np.abs(change).max(axis=1) > INVERSION_TOLERANCE]
            if len(moving) == 0:
                break

    in_parts(solve, shape[0], PLANES)
    return offsets


def _double(coarse: NDArray[np.float32], fine: NDArray[np.float32]) -> None:
    """Fill a grid from every second of its voxels, linearly between them."""
    sizes = [2 * size - 1 for size in coarse.shape[:3]]
    x, y, z = fine.shape[:3]
    doubled = F.interpolate(_volumes(coarse)[None], sizes, mode='trilinear', align_corners=True)
    fine[:] = doubled[0].movedim(0, -1).numpy()[:x, :y, :z]


def split_affine(transform: Transform) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Divide a transform into M(x + e(x)), M the affine map that fits it best.

    Returns
    -------
    matrix : ndarray, shape (4, 4)
        M, from fixed to moving world.
    residual : ndarray, shape (X, Y, Z, 3)
        e, in mm, at the voxels of the grid.
    """
    points = _grid_points(transform.shape, transform.affine)
    moved = points + transform.field
    stride = max(1, round((np.prod(transform.shape) / FIT_POINTS) ** (1 / 3)))
    sparse = (slice(None, None, stride),) * 3
    sources = points[sparse].reshape(-1, 3).astype(np.float64)
    design = np.column_stack([sources, np.ones(len(sources))])
    solution = np.linalg.lstsq(design, moved[sparse].reshape(-1, 3), rcond=None)[0]
    matrix = np.eye(4)
    matrix[:3] = solution.T
    back = np.linalg.inv(matrix)
    straightened = moved @ back[:3, :3].T.astype(np.float32) + back[:3, 3].astype(np.float32)
    return matrix, straightened - points


def resample(image: Nifti1Image, transform: Transform, *, order: Order = 1) -> Nifti1Image:
    """Pull an image onto the fixed grid of a transform; what lies outside it is zero.

    Parameters
    ----------
    image : Nifti1Image
        In the moving world, on any grid.
    transform : Transform
    order : {0, 1, 2, 3, 4, 5}
        Of the spline; 0 (nearest voxel) for labels, which keeps their data type. Other orders
        give float32.
    """
    if order == 1:
        return resample_all([image], transform)[0]
    values = np.asanyarray(image.dataobj)
    if order == 0:
        return Nifti1Image(_nearest(values, transform, image.affine), transform.affine)
    coordinates = voxel_coordinates(transform, image.affine)
    resampled = ndimage.map_coordinates(
        values.astype(np.float32, copy=False), coordinates, order=order, mode='grid-constant'
    )
    return Nifti1Image(resampled, transform.affine)


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
    steps = np.rint(transform.field * (RAS_TO_LPS / WRITTEN_MM))
    vectors = (steps * WRITTEN_MM)[:, :, :, np.newaxis, :]
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


def read_composite(paths: str | Path | Sequence[str | Path], reference: Nifti1Image) -> Transform:
    """Read any transform of ITK (.h5, .mat, .txt, field) as a displacement field.

    Parameters
    ----------
    paths : path, or several
        For example the `_xfm.h5` of fMRIPrep. Of several, the last is applied first to images, as
        ANTs lists them.
    reference : Nifti1Image
        Its grid becomes the fixed grid: for `from-T1w_to-MNI` files, the template.
    """
    import ants  # takes seconds, and few runs need it

    names = [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    image = to_ants(reference)
    with tempfile.TemporaryDirectory() as folder:
        field = ants.apply_transforms(image, image, names, compose=str(Path(folder) / 'field_'))
        return read_transform(field)


def _map_indices(shape: Sequence[int], matrix: NDArray) -> NDArray[np.float32]:
    """`matrix` applied to the index of each voxel: shape (3, X, Y, Z)."""
    i, j, k = np.ogrid[: shape[0], : shape[1], : shape[2]]
    rows = [row[0] * i + row[1] * j + (row[2] * k + row[3]) for row in matrix[:3]]
    return np.stack([row.astype(np.float32) for row in rows])


def _shift(planes: slice) -> NDArray[np.float64]:
    """From indices of voxels in some planes of a grid to those in the whole grid."""
    return from_matvec(np.eye(3), [planes.start, 0, 0])


def _grid_points(shape: Sequence[int], affine: NDArray[np.float64]) -> NDArray[np.float32]:
    """World position of each voxel: shape (X, Y, Z, 3), mm."""
    return np.moveaxis(_map_indices(shape, affine), 0, -1)


def _volumes(field: NDArray[np.float32]) -> Tensor:
    """The components of a field (X, Y, Z, 3) one after the other, (3, X, Y, Z)."""
    return torch.from_numpy(field).movedim(-1, 0).contiguous()


def _sample_vectors(
    field: Tensor, to_voxel: NDArray, points: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Vectors of a field (3, X, Y, Z) at world points, linearly between voxels.

    Beyond the grid they are those at its edge.
    """
    matrix = to_voxel.astype(np.float32)
    voxels = torch.from_numpy(points @ matrix[:3, :3].T + matrix[:3, 3])
    sampled = sample(field, voxels, 'border')
    return sampled.movedim(0, -1).contiguous().numpy()
