"""RAVENS maps: tissue density in template space that preserves volume (Davatzikos et al., 2001).

A map is the tissue resampled on the template, multiplied by the Jacobian determinant of the
transform. Its integral over a region is the native volume of the tissue in that region.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch
from nibabel.affines import from_matvec
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor
from torch.nn import functional as F

from surreal_bids.cautions import FIGURES, Caution
from surreal_bids.exceptions import DataError
from surreal_bids.images import Image, like, require_same_grid
from surreal_bids.imaging.transforms import Transform, affine_part, sample, voxel_coordinates
from surreal_bids.parallel import PLANES, in_parts, with_neighbours

LOGGER = logging.getLogger(__name__)

FWHM_TO_SIGMA = 1 / np.sqrt(8 * np.log(2))
"""Standard deviation of a Gaussian with a full width at half maximum of 1."""

OCTANTS = from_matvec(np.diag([0.5] * 3), [-0.25] * 3)
"""Affine from indices of octants to voxels."""

MARGIN = 2
"""Margin around tissue in voxels, because octants lie half a voxel outside."""

FEW_FOLDS = 1e-4
"""Share of folded voxels below which there is no warning."""


def ravens_maps(tissues: Sequence[Image], to_template: Transform) -> list[Image]:
    r"""Resample tissues on the template and preserve their volumes.

    With the transform :math:`\phi` from template to native world, the map is
    :math:`\tau(\phi(x)) \det D\phi(x)`, averaged over the octants of each voxel. Between voxels
    :math:`\phi` is trilinear, and its derivative is that of the same function. Central differences
    would lose one percent of the fluid in narrow sulci.

    Parameters
    ----------
    tissues
        Probability or partial volume of each tissue in native space, 0 to 1, on one grid.
    to_template
        Transform with the template as fixed grid and the native image as moving image.

    Returns
    -------
    list of Nifti1Image
        For each tissue its native volume per template volume, float32, on the grid of the template.
        The sum times the voxel volume is the native volume of the tissue inside the template's
        field of view.
    """
    for tissue in tissues:
        require_same_grid(tissue, tissues[0], 'a tissue map', 'the first one')
    native_affine = tissues[0].affine
    native = torch.from_numpy(_blurred_to_octants(to_template, tissues))
    box, near = _occupied(native, native_affine, to_template)
    inner = _part(to_template, box)
    maps = np.zeros((len(tissues), *to_template.shape), np.float32)

    def fill(planes: slice) -> tuple[int, int]:
        """Fill some planes of the box around tissue; return the number of octants, and folded."""
        found = ndimage.find_objects(near[0, 0, planes].amax(dim=0).numpy().astype(np.uint8))
        if not found:
            return 0, 0
        part = (planes, *found[0])
        octants, own = _octants(inner, part)
        density = _jacobian_determinant(octants)[own].contiguous()
        folded = int((density < 0).sum())
        wanted = F.interpolate(near[:, :, *part], scale_factor=2.0, mode='nearest')
        (places,) = wanted.flatten().nonzero(as_tuple=True)
        points = torch.from_numpy(voxel_coordinates(octants, native_affine)[:, *own]).flatten(1)
        pulled = native.new_zeros(len(native), *density.shape)
        pulled.flatten(1).index_copy_(1, places, sample(native, points[:, places].T))
        amount = F.avg_pool3d(pulled.mul_(density.clamp_min_(0)), 2)
        maps[:, *box][:, *part] = amount.numpy()
        return density.numel(), folded

    octants, folded = np.sum(in_parts(fill, inner.shape[0], PLANES), axis=0)
    share = folded / max(octants, 1)
    if share > FEW_FOLDS:
        # Folded voxels count as empty.
        LOGGER.warning(
            Caution(
                f'the transform to the template folds in {100 * share:.2g}% of voxels',
                'RAVENS maps are 0 there',
                'Check the figure of the registration',
                FIGURES,
            )
        )
    grid = Image(maps[0], to_template.affine)
    return [like(grid, each, np.float32) for each in maps]


def _occupied(
    native: Tensor, native_affine: NDArray[np.float64], transform: Transform
) -> tuple[tuple[slice, ...], Tensor]:
    """Return the box of template voxels around all tissue, with a margin of `MARGIN` voxels.

    The second result, (1, 1, x, y, z), is 1 up to this margin around tissue in the box, else 0.
    """
    highest = native.amax(dim=0, keepdim=True)
    near = torch.zeros(1, *transform.shape)

    def mark(planes: slice) -> None:
        wider = slice(max(planes.start - MARGIN, 0), planes.stop + MARGIN)
        points = torch.from_numpy(voxel_coordinates(transform.planes(wider), native_affine))
        tissue = (sample(highest, points.movedim(0, -1)) > 0).float()
        for kernel, padding in zip(np.diag([2 * MARGIN] * 3) + 1, np.diag([MARGIN] * 3)):
            tissue = F.max_pool3d(tissue, kernel.tolist(), stride=1, padding=padding.tolist())
        start = planes.start - wider.start
        near[:, planes] = tissue[:, start : start + planes.stop - planes.start]

    in_parts(mark, transform.shape[0], PLANES)
    found = ndimage.find_objects(near[0].numpy().astype(np.uint8))
    if not found:
        raise DataError('no tissue overlaps the template; check the tissue maps and the transform')
    return found[0], near[0][found[0]][None, None]


def _part(transform: Transform, box: tuple[slice, ...]) -> Transform:
    """Return the transform on a box of its grid."""
    corner = from_matvec(np.eye(3), [side.start for side in box])
    return Transform(transform.field[box], transform.affine @ corner)


def _octants(transform: Transform, box: tuple[slice, ...]) -> tuple[Transform, tuple[slice, ...]]:
    """Return the transform at the octants of a box and its neighbours, and the place of the box."""
    near, own = zip(*(with_neighbours(side, n) for side, n in zip(box, transform.shape)))
    part = _part(transform, near)
    field = torch.from_numpy(np.moveaxis(part.field, -1, 0).copy())
    fine = F.interpolate(field[None], scale_factor=2, mode='trilinear', align_corners=False)[0]
    octants = Transform(fine.movedim(0, -1).numpy(), part.affine @ OCTANTS)
    return octants, tuple(slice(2 * side.start, 2 * side.stop) for side in own)


def _jacobian_determinant(octants: Transform) -> Tensor:
    """Compute the Jacobian determinant of the transform, which is trilinear between voxels."""
    # A: octant-to-world matrix; G: derivative by octant; det(I + G A^-1) = det(A + G) / det(A).
    axes = torch.from_numpy(octants.affine[:3, :3]).float()
    # Written out because torch.linalg.det and cross are many times slower.
    (a, b, c), (d, e, f), (g, h, i) = (
        [_slope(component, axis).add_(axes[row, axis]) for axis in range(3)]
        for row, component in enumerate(torch.from_numpy(octants.field).unbind(-1))
    )
    return (a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)) / torch.linalg.det(
        axes
    )


def _slope(field: Tensor, axis: int) -> Tensor:
    """Compute the difference of octants between the same two voxels; 0 beyond the last voxel."""
    inner = field.shape[axis] // 2 - 1
    pairs = field.narrow(axis, 1, 2 * inner).unflatten(axis, (inner, 2))
    slope = torch.zeros_like(field, memory_format=torch.contiguous_format)
    slope.narrow(axis, 1, 2 * inner).copy_(
        pairs.diff(dim=axis + 1).repeat_interleave(2, axis + 1).flatten(axis, axis + 1)
    )
    return slope


def _blurred_to_octants(to_template: Transform, tissues: Sequence[Image]) -> NDArray[np.float32]:
    """Blur tissues to the size of the octants of template voxels if these are larger.

    Without it, some native voxels would be skipped. The affine part of the transform defines the
    size of an octant along each native axis.
    """
    matrix = affine_part(to_template)
    to_voxel = np.linalg.inv(tissues[0].affine[:3, :3])
    edges = to_voxel @ (matrix @ to_template.affine @ OCTANTS)[:3, :3]
    covered = np.linalg.norm(edges, axis=1)
    sigma = np.sqrt(np.maximum(covered**2 - 1, 0)) * FWHM_TO_SIGMA
    values = np.stack([np.asarray(tissue.dataobj, dtype=np.float32) for tissue in tissues])
    # Reflection at the borders keeps the sum.
    return ndimage.gaussian_filter(values, (0, *sigma), mode='reflect') if sigma.any() else values
