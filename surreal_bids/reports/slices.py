"""Planes through a head in world millimetres: which to show, and what an image holds there.

Every image is sampled at world coordinates (RAS: x grows to the right, y to the front, z upwards),
so that flipped, permuted and oblique images, voxels of any size, and images on different grids all
come out alike, with the left of the head on the left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import nibabel as nib
import numpy as np
from nibabel.affines import apply_affine
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError

Plane = Literal['axial', 'coronal', 'sagittal']

AXES: dict[Plane, tuple[int, int, int]] = {
    'axial': (0, 1, 2),
    'coronal': (0, 2, 1),
    'sagittal': (1, 2, 0),
}
"""World axes of each plane: from left to right in the picture, from its foot to its top, across."""

SLICES: dict[Plane, int] = {'axial': 7, 'coronal': 7, 'sagittal': 6}
"""How many slices of each plane are shown; so many make rows of about the same length."""

MARGIN_MM = 5.0
"""What is shown around the brain."""

ENDS = 0.14
"""The first and the last slice lie this part of the brain's extent inside its ends."""

MASK_LEVEL = 0.5
"""A voxel belongs to a mask where its value is above this."""


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
            f'an image of shape {image.shape} cannot be drawn; give one with three dimensions'
        )
    return Volume(np.asarray(image.dataobj, dtype=dtype), np.linalg.inv(image.affine))


def choose_slices(mask: nib.Nifti1Image, counts: Mapping[Plane, int] = SLICES) -> Slices:
    """Spread slices evenly over a brain.

    Parameters
    ----------
    mask
        Above 0.5 inside the brain; any grid.
    counts
        Number of slices of each plane.

    Returns
    -------
    dict
        Slices of each plane from left to right, back to front or foot to top; those of one plane
        share a box that holds the brain with a margin.
    """
    low, high = _extent(mask)
    return {plane: _spread(plane, count, low, high) for plane, count in counts.items()}


def _extent(mask: nib.Nifti1Image) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """World limits (mm) of the centres of the voxels of a mask, each of shape (3,)."""
    voxels = np.argwhere(load_volume(mask).data > MASK_LEVEL)
    if len(voxels) == 0:
        raise DataError('the brain mask is empty, so there is nothing to draw; check the mask')
    world = apply_affine(mask.affine, voxels)
    return world.min(axis=0), world.max(axis=0)


def _spread(plane: Plane, count: int, low: NDArray, high: NDArray) -> tuple[Slice, ...]:
    sideways, upwards, across = AXES[plane]
    box = (
        float(low[sideways] - MARGIN_MM),
        float(high[sideways] + MARGIN_MM),
        float(low[upwards] - MARGIN_MM),
        float(high[upwards] + MARGIN_MM),
    )
    extent = high[across] - low[across]
    # Whole millimetres from a voxel's centre: nothing is blurred where voxels have that size.
    positions = low[across] + np.round(np.linspace(ENDS, 1 - ENDS, count) * extent)
    return tuple(Slice(plane, float(position), box) for position in positions)


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
