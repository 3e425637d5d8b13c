"""Smooth invertible maps of space on a regular grid.

A map is stored as its displacement `u`, an array of shape (3, X, Y, Z) in voxels: point `x` of the
grid goes to `x + u(x)`. A *forward* map says where a piece of the template goes; an image is drawn
with its inverse, the *pull-back* map, which says where in the template to look. The volume of a
region after a forward map is the integral, over the region before it, of the Jacobian determinant.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from surreal_bids.exceptions import DataError

Field = NDArray[np.float32]
"""A scalar field (X, Y, Z), or a vector field (3, X, Y, Z) in voxels."""

LARGEST_STEP = 0.5
"""The first step of scaling and squaring moves no point further than this, in voxels."""

MOST_INVERSE_STEPS = 60
"""Steps after which inversion gives up; ours need about ten."""


def identity(shape: tuple[int, ...]) -> Field:
    """Give the voxel coordinates of every point of a grid, shape (3, X, Y, Z)."""
    return np.indices(shape, dtype=np.float32)


def interpolate(volumes: Field, points: Field) -> Field:
    """Interpolate linearly; outside the grid the value of the nearest edge is taken.

    Parameters
    ----------
    volumes
        Shape (C, X, Y, Z).
    points
        Voxel coordinates, shape (3, *P) with any P of one to three axes.

    Returns
    -------
    Values of shape (C, *P).
    """
    half_extent = (np.array(volumes.shape[1:], dtype=np.float32) - 1) / 2
    flat = points.reshape(3, 1, 1, -1) if points.ndim != 4 else points
    # grid_sample wants coordinates in [-1, 1], the fastest axis first.
    scaled = np.empty((1, *flat.shape[1:], 3), dtype=np.float32)
    for axis in range(3):
        scaled[0, ..., 2 - axis] = flat[axis] / half_extent[axis] - 1
    values = torch.nn.functional.grid_sample(
        torch.from_numpy(np.ascontiguousarray(volumes, dtype=np.float32))[None],
        torch.from_numpy(scaled),
        mode='bilinear',
        padding_mode='border',
        align_corners=True,
    )
    return values[0].numpy().reshape(len(volumes), *points.shape[1:])


def compose(outer: Field, inner: Field) -> Field:
    """Displacement of `outer` after `inner`: u(x) = inner(x) + outer(x + inner(x))."""
    return inner + interpolate(outer, identity(inner.shape[1:]) + inner)


def exponential(velocity: Field) -> Field:
    """Displacement of the flow of a stationary velocity field after unit time.

    Scaling and squaring (Arsigny et al., MICCAI 2006): a short step by the midpoint rule, composed
    with itself until it covers the unit time.
    """
    halvings = np.log2(max(float(np.abs(velocity).max()) / LARGEST_STEP, 1))
    squarings = max(1, int(np.ceil(halvings)))
    step = velocity / np.float32(2**squarings)
    midpoints = identity(step.shape[1:]) + step * np.float32(0.5)
    displacement = interpolate(step, midpoints)
    for _ in range(squarings):
        displacement = compose(displacement, displacement)
    return displacement


def pull_back(displacement: Field, points: Field, tolerance: float = 0.01) -> Field:
    """Find where each point came from: solve x + u(x) = y for x.

    The equation is solved at the points themselves, so that what is drawn there is the inverse of
    the forward map between grid points too. Plain fixed-point steps overshoot where the map
    stretches space to more than twice its length; there they are shortened.

    Parameters
    ----------
    displacement
        Forward map `u`, shape (3, X, Y, Z), in voxels.
    points
        Voxel coordinates `y`, shape (3, *P).
    tolerance
        Largest residual |x + u(x) - y| of a coordinate, in voxels.

    Returns
    -------
    Voxel coordinates `x`, shape (3, *P).
    """
    divergence = sum(np.gradient(displacement[axis], axis=axis) for axis in range(3))
    damping = 1 / (1 + np.maximum(divergence, 0) / 2)
    field = np.concatenate([displacement, damping[None]]).astype(np.float32)
    wanted = points.reshape(3, -1)
    source = wanted.copy()
    active = np.arange(source.shape[1])
    for _ in range(MOST_INVERSE_STEPS):
        *here, step = interpolate(field, source[:, active])
        residual = source[:, active] + here - wanted[:, active]
        error = np.abs(residual).max(axis=0)
        moving = error > tolerance
        active = active[moving]
        if not len(active):
            return source.reshape(points.shape)
        source[:, active] -= (step * residual)[:, moving]
    raise DataError(
        f'a simulated map could not be inverted: a point is still {error.max():.3g} voxels off; '
        'lower the amplitude of the anatomy or of the atrophy'
    )


def jacobian_determinant(displacement: Field) -> Field:
    """Local volume ratio of the map x + u(x): det(I + grad u) by central differences, (X, Y, Z)."""
    (a, b, c), (d, e, f), (g, h, i) = (np.gradient(component) for component in displacement)
    a, e, i = a + 1, e + 1, i + 1
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
