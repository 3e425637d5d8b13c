"""Simple heads whose every part has a known place, written on any grid."""

import nibabel as nib
import numpy as np
from nibabel.affines import apply_affine

HALF_AXES = (26.0, 33.0, 22.0)
"""Half-axes (mm) of the brain along x, y and z."""

MARKER = (-12.0, 13.0, 7.0)
"""A bright ball on the left, in front and above the centre; its radius is 6 mm."""

BRAIN, BRIGHT = 100.0, 250.0


def ras_grid(size=(1.0, 1.0, 1.0)):
    """Shape and affine of a grid around the head, with unequal numbers of voxels."""
    affine = np.diag([*size, 1.0])
    affine[:3, 3] = (-32, -40, -29)
    shape = tuple(int(extent / voxel) for extent, voxel in zip((65, 81, 59), size))
    return shape, affine


def oriented_grid(codes, size=(1.0, 1.0, 1.0)):
    """The same grid with its axes flipped and permuted, e.g. to ('P', 'I', 'R')."""
    shape, affine = ras_grid(size)
    image = nib.Nifti1Image(np.zeros(shape, dtype=np.uint8), affine)
    turned = image.as_reoriented(
        nib.orientations.ornt_transform(
            nib.io_orientation(affine), nib.orientations.axcodes2ornt(codes)
        )
    )
    return turned.shape, turned.affine


def oblique_grid(degrees=25.0):
    """A grid turned about the z axis and then the x axis, large enough for the head."""
    angle = np.deg2rad(degrees)
    cos, sin = np.cos(angle), np.sin(angle)
    about_z = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    about_x = np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]])
    affine = np.eye(4)
    affine[:3, :3] = about_x @ about_z
    shape = (88, 92, 84)
    affine[:3, 3] = -affine[:3, :3] @ (np.array(shape) - 1) / 2
    return shape, affine


def world_of(shape, affine):
    return np.moveaxis(apply_affine(affine, np.moveaxis(np.indices(shape), 0, -1)), -1, 0)


def draw_head(grid):
    """A T1w-like image and its brain mask on a grid: shape and affine."""
    shape, affine = grid
    world = world_of(shape, affine)
    radius = sum((axis / half) ** 2 for axis, half in zip(world, HALF_AXES))
    brain = radius < 1
    marker = sum((axis - centre) ** 2 for axis, centre in zip(world, MARKER)) < 6**2
    # A gradient, so that neighbouring slices differ and the window has something to stretch.
    values = np.where(brain, BRAIN + 0.3 * world[1], 0.0)
    values[marker] = BRIGHT
    return (
        nib.Nifti1Image(values.astype(np.float32), affine),
        nib.Nifti1Image(brain.astype(np.uint8), affine),
    )
