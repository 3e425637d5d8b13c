"""A head around the template brain: fluid, skull, scalp, face and neck.

The packages carry a brain only. What surrounds it is drawn from distances to the brain and from a
few simple bodies in template coordinates, so that brain extraction has something to remove.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nibabel.affines import apply_affine
from numpy.typing import NDArray

from surreal_bids.simulation.atrophy import FLUID_RIM_MM
from surreal_bids.simulation.spectral import smooth
from surreal_bids.simulation.templates import Template, distance_to
from surreal_bids.simulation.warps import Field

MATERIALS = ('GM', 'WM', 'CSF', 'bone', 'marrow', 'fat', 'muscle', 'eye')
"""What a voxel may be made of; the rest of it is air."""

SKULL_LAYERS_MM = (
    ('bone', 8.2),
    ('marrow', 6.4),
    ('bone', 4.8),
    ('CSF', FLUID_RIM_MM),
)
"""Layers around the brain and the distance from it at which each ends, outermost first."""

SCALP_MM = 14.0
"""Distance of the skin from the brain."""

SKIN_FAT_MM = 3.5
"""Thickness of the bright layer under the skin."""

CLOSING_MM = 12.0
"""Clefts of the brain narrower than twice this do not show in the skull."""

BONE_SMOOTHNESS_MM = 2.0
"""Standard deviation of the Gaussian that smooths the surfaces of the skull."""

FACE = (
    ((0, 42, -62), (58, 52, 66)),
    ((0, 80, -62), (14, 27, 24)),
    ((0, -2, -92), (68, 66, 66)),
)
"""Centre and half-axes (mm) of the ellipsoids of the face: cheeks, nose, jaw."""

NECK = ((0, -42, -120), (56, 64, 95))
ORBITS = tuple(((x, 57, -36), (19, 24, 18)) for x in (-32, 32))
EYES = tuple(((x, 64, -36), (12, 12, 12)) for x in (-32, 32))
AIRWAYS = (
    ((0, 52, -56), (13, 30, 20)),
    ((-30, 48, -68), (12, 15, 14)),
    ((30, 48, -68), (12, 15, 14)),
    ((0, 10, -95), (9, 8, 38)),
)
"""Nose, maxillary sinuses and pharynx."""

SPINE = (('bone', (24, 24)), ('CSF', (9, 9)), ('WM', (5.5, 5.5)))
"""Vertebra, its canal and the cord: half-axes of upright cylinders below the brain stem."""

TEXTURE_SEED = 0
"""The texture of the soft tissue is the same in all heads before they are deformed."""

TEXTURE_MM = 3.0
TEXTURE_SD = 0.12
"""Smoothness and relative strength of that texture."""


def build_head(template: Template) -> Field:
    """Fraction of each material in each voxel of the working grid, (materials, X, Y, Z)."""
    world = _world(template)
    depth = _distance_from_brain(template)
    body = np.minimum.reduce([depth - SCALP_MM, *(ellipsoid(world, *e) for e in (*FACE, NECK))])
    fractions = np.zeros((len(MATERIALS), *template.shape), dtype=np.float32)

    def paint(material: str | None, distance: NDArray) -> None:
        """Fill the body where the signed distance (mm) is negative; edges are one voxel soft."""
        cover = np.clip(0.5 - distance / template.voxel_size, 0, 1).astype(np.float32)
        fractions[:] *= 1 - cover
        if material is not None:
            fractions[MATERIALS.index(material)] += cover

    paint('fat', body)
    paint('muscle', _signed_distance(body < -SKIN_FAT_MM, template.voxel_size))
    for cavity in AIRWAYS:
        paint(None, ellipsoid(world, *cavity))
    for material, bodies in (('fat', ORBITS), ('eye', EYES)):
        for each in bodies:
            paint(material, ellipsoid(world, *each))
    for material, radii in SPINE:
        paint(material, _spine(template, world, radii))
    for material, distance in SKULL_LAYERS_MM:
        paint(material, depth - distance)
    fractions *= 1 - template.brain
    fractions[:3] += template.tissue
    return fractions


def build_texture(template: Template) -> Field:
    """What the template's T1 shows beyond its tissue, relative to the contrast of WM to CSF."""
    inside = template.brain > 0.5
    design = template.tissue[:, inside].T
    means = np.linalg.lstsq(design, template.t1[inside], rcond=None)[0]
    residual = template.t1 - np.tensordot(means, template.tissue, axes=1)
    return (residual * template.brain / (means[1] - means[2])).astype(np.float32)


def soft_tissue_texture(template: Template) -> Field:
    """Factor with mean one that makes muscle, fat and marrow uneven, (X, Y, Z)."""
    rng = np.random.default_rng(TEXTURE_SEED)
    noise = rng.standard_normal(template.shape, dtype=np.float32)
    pattern = smooth(noise, TEXTURE_MM / template.voxel_size)
    return (1 + TEXTURE_SD * pattern / pattern.std()).clip(0).astype(np.float32)


def ellipsoid(world: NDArray, centre: Sequence[float], half_axes: Sequence[float]) -> NDArray:
    """Signed distance (mm, to first order) from an ellipsoid along the axes, negative inside."""
    scaled = (world - np.reshape(centre, (3, 1, 1, 1))) / np.reshape(half_axes, (3, 1, 1, 1))
    return (np.sqrt((scaled**2).sum(axis=0)) - 1) * min(half_axes)


def _world(template: Template) -> Field:
    """Template coordinates (mm) of each voxel, (3, X, Y, Z)."""
    voxels = np.moveaxis(np.indices(template.shape), 0, -1)
    return np.moveaxis(apply_affine(template.affine, voxels), -1, 0).astype(np.float32)


def _signed_distance(mask: NDArray, voxel_size: float) -> NDArray:
    """Distance (mm) from the border of a mask, negative inside."""
    half = voxel_size / 2
    outside, inside = distance_to(mask, voxel_size), distance_to(~mask, voxel_size)
    return np.where(mask, half - inside, outside - half)


def _distance_from_brain(template: Template) -> NDArray:
    """Distance (mm) from the brain with its clefts closed, smoothed as bone is."""
    brain = template.brain > 0.5
    dilated = distance_to(brain, template.voxel_size) < CLOSING_MM
    closed = (distance_to(~dilated, template.voxel_size) > CLOSING_MM) | brain
    distance = _signed_distance(closed, template.voxel_size)
    return smooth(distance, BONE_SMOOTHNESS_MM / template.voxel_size)


def _spine(template: Template, world: NDArray, radii: tuple[float, float]) -> NDArray:
    """Signed distance (mm) from an upright cylinder under the lowest part of the brain."""
    lowest = np.flatnonzero((template.brain > 0.5).any(axis=(0, 1)))[0]
    foot = np.argwhere(template.brain[:, :, lowest] > 0.5).mean(axis=0)
    x, y, z = apply_affine(template.affine, (*foot, lowest))
    beside = (np.hypot((world[0] - x) / radii[0], (world[1] - y) / radii[1]) - 1) * min(radii)
    return np.maximum(beside, world[2] - z)
