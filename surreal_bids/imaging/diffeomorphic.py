"""Diffeomorphic registration in torch: greedy ascent of local correlation, coarse to fine.

Two images on one grid; the displacement u is sought such that moving(x + u(x)) looks like
fixed(x). Each iteration follows the gradient of the local normalised cross-correlation (Avants et
al., Med Image Anal 12:26, 2008), smooths the update as a viscous fluid would, composes it with u,
and may smooth u as an elastic body would. Elastic smoothing makes regions overlap better; what it
costs is that all local changes of volume are found too small.

Shapes: an image is (X, Y, Z); a displacement is (3, X, Y, Z), in voxels along the array's axes.
Filters are sums of shifted slices, which on a CPU take a tenth of the time of convolutions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

COARSEST_MM = 6.0
"""Levels are added until voxels of the coarsest are at least this wide."""

KERNEL_REACH = 2.5
"""Gaussian kernels end after so many standard deviations."""

FULL_STEP_SLOPE = 0.3
"""Slope of the correlation, per voxel of displacement, from which an update has its full length.
Brains that do not match yet have 0.2 to 0.7 where they are steepest; below, steps shrink in
proportion, so that equal images stay where they are."""


@dataclass(frozen=True)
class Settings:
    """How to register; lengths are in voxels of each level, unless they say otherwise.

    Attributes
    ----------
    iterations
        Per level, coarse to fine, each level having twice the resolution of the one before; the
        last is that of the images. Where COARSEST_MM asks for more levels, the first is repeated.
    radius
        Of the cube in which the correlation is computed.
    radius_mm
        The cube's radius is at least this, in mm. What is deep has little contrast: cubes of
        millimetres are too few voxels to tell it from noise.
    fluid
        Standard deviation of the smoothing of each update.
    elastic
        Standard deviation of the smoothing of the whole displacement, after each update. At 0 the
        displacement is free to follow the images, as a fluid.
    step
        Length of the longest vector of an update, while images do not match.
    noise
        Variance that counts as no signal, where the brain's bright tissue has intensity 1.
    """

    iterations: tuple[int, ...] = (60, 40, 20)
    radius: int = 2
    radius_mm: float = 0.0
    fluid: float = 1.0
    elastic: float = 0.5
    step: float = 0.7
    noise: float = 1e-4


class LocalCorrelation:
    """Correlation of two images in the cube around each voxel, and how to raise it.

    Parameters
    ----------
    fixed : Tensor, shape (X, Y, Z)
    radius : int
        Of the cube, in voxels.
    noise : float
        Added to both variances.
    """

    def __init__(self, fixed: Tensor, radius: int, noise: float) -> None:
        self.fixed = fixed
        self.radius = radius
        self.noise = noise
        self.mean, square = self._means(fixed, fixed * fixed)
        self.variance = self._variance(self.mean, square)

    def value(self, moving: Tensor) -> Tensor:
        """Correlation in the cube around each voxel, between -1 and 1."""
        _, variance, covariance = self._moments(moving)
        return covariance * torch.rsqrt(self.variance * variance)

    def slope(self, moving: Tensor) -> Tensor:
        """Derivative of each cube's correlation by the moving image's value at its centre.

        Up to the number of voxels in a cube: (f - f_mean) / sqrt(v_f v_m) minus
        covariance / v_m times the same of the moving image. Of the cubes that contain a voxel only
        its own is looked at, as in ANTs: sharper than the whole sum, and half the work.
        """
        mean, variance, covariance = self._moments(moving)
        slope = torch.addcmul(
            self.fixed - self.mean, covariance / variance, moving - mean, value=-1
        )
        return slope.mul_(torch.rsqrt(self.variance * variance))

    def _moments(self, moving: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance of the moving image, and its covariance with the fixed one."""
        mean, square, mixed = self._means(moving, moving * moving, self.fixed * moving)
        return mean, self._variance(mean, square), mixed.addcmul_(self.mean, mean, value=-1)

    def _means(self, *volumes: Tensor) -> Tensor:
        return box_sums(torch.stack(volumes), self.radius).div_((2 * self.radius + 1) ** 3)

    def _variance(self, mean: Tensor, square: Tensor) -> Tensor:
        return square.addcmul_(mean, mean, value=-1).clamp_min_(0).add_(self.noise)


def deform(fixed: Tensor, moving: Tensor, settings: Settings, voxel_mm: float) -> Tensor:
    """Find the displacement that makes the moving image look like the fixed one.

    Parameters
    ----------
    fixed, moving : Tensor, shape (X, Y, Z), float32
        On one grid and one device; bright tissue has intensity 1, the background 0.
    settings : Settings
    voxel_mm : float
        Size of a voxel, which decides the number of levels.

    Returns
    -------
    Tensor, shape (3, X, Y, Z)
        In voxels: the moving image is to be looked up at x + u(x).
    """
    schedule = level_iterations(settings.iterations, voxel_mm)
    pyramid = _pyramid(torch.stack([fixed, moving]), len(schedule))
    displacement = fixed.new_zeros(3, *pyramid[0].shape[1:])
    for level, (images, iterations) in enumerate(zip(pyramid, schedule), start=1):
        level_mm = voxel_mm * 2 ** (len(schedule) - level)
        radius = max(settings.radius, round(settings.radius_mm / level_mm))
        correlation = LocalCorrelation(images[0], radius, settings.noise)
        displacement = _refine(displacement, images.shape[1:])
        displacement = _ascend(correlation, images[1], displacement, iterations, settings)
    x, y, z = fixed.shape
    return displacement[:, :x, :y, :z]


def level_iterations(iterations: tuple[int, ...], voxel_mm: float) -> tuple[int, ...]:
    """Iterations of each level, coarse to fine, for images with voxels of this size."""
    levels = max(len(iterations), 1 + math.ceil(math.log2(COARSEST_MM / voxel_mm)))
    return (iterations[0],) * (levels - len(iterations)) + iterations


def pull(volumes: Tensor, displacement: Tensor, mode: str = 'bilinear') -> Tensor:
    """Look up volumes (C, X, Y, Z) at x + u(x); beyond the edge its value is repeated."""
    shape = displacement.shape[1:]
    points = displacement.new_empty(1, *shape, 3)
    for axis, size in enumerate(shape):
        # grid_sample wants coordinates in [-1, 1], the fastest axis first.
        line = torch.linspace(-1, 1, size, device=displacement.device)
        line = line.reshape([-1 if other == axis else 1 for other in range(3)])
        points[0, ..., 2 - axis] = line + displacement[axis] * (2 / (size - 1))
    return F.grid_sample(volumes[None], points, mode, padding_mode='border', align_corners=True)[0]


def box_sums(volumes: Tensor, radius: int) -> Tensor:
    """Sums over cubes of 2 radius + 1 voxels, with zeros beyond the edge; last three axes."""
    return _filter(volumes, [1.0] * (radius + 1))


def smooth(volumes: Tensor, sigma: float) -> Tensor:
    """Gaussian smoothing along the last three axes, with zeros beyond the edge."""
    if sigma == 0:
        return volumes
    weights = [
        math.exp(-0.5 * (offset / sigma) ** 2)
        for offset in range(math.ceil(KERNEL_REACH * sigma) + 1)
    ]
    total = 2 * sum(weights) - weights[0]
    return _filter(volumes, [weight / total for weight in weights])


def central_difference(volumes: Tensor, axis: int) -> Tensor:
    """Half the difference of the two neighbours along one of the last three axes; 0 at the edge."""
    axis -= 3
    inner = volumes.shape[axis] - 2
    difference = torch.zeros_like(volumes)
    torch.sub(
        volumes.narrow(axis, 2, inner),
        volumes.narrow(axis, 0, inner),
        out=difference.narrow(axis, 1, inner),
    )
    return difference.mul_(0.5)


def add_update(displacement: Tensor, update: Tensor) -> Tensor:
    """The displacement of x -> x + v(x) followed by u: u(x + v) + v, for v below one voxel.

    Along each axis u is looked up between the voxel and the neighbour that v points to. Of linear
    interpolation this leaves out what v has along two axes at once; it is as stable, gives the same
    registrations, and takes a quarter of the time.
    """
    composed = displacement + update
    for axis, along in enumerate(update):
        steps = displacement.diff(dim=axis + 1)
        gaps = steps.shape[axis + 1]
        ahead, behind = along.narrow(axis, 0, gaps), along.narrow(axis, 1, gaps)
        composed.narrow(axis + 1, 0, gaps).addcmul_(ahead.clamp_min(0), steps)
        composed.narrow(axis + 1, 1, gaps).addcmul_(behind.clamp_max(0), steps)
    return composed


def _ascend(
    correlation: LocalCorrelation,
    moving: Tensor,
    displacement: Tensor,
    iterations: int,
    settings: Settings,
) -> Tensor:
    """Iterate at one level."""
    for _ in range(iterations):
        warped = pull(moving[None], displacement)[0]
        slope = correlation.slope(warped)
        uphill = torch.stack([central_difference(warped, axis) * slope for axis in range(3)])
        update = smooth(uphill, settings.fluid)
        steepest = update.square().sum(0).max().sqrt()
        update.mul_(settings.step / steepest.clamp_min(FULL_STEP_SLOPE))
        displacement = smooth(add_update(displacement, update), settings.elastic)
    return displacement


def _pyramid(images: Tensor, levels: int) -> list[Tensor]:
    """Images (C, X, Y, Z), padded to be halved, at each level: coarse to fine, by averaging."""
    multiple = 2 ** (levels - 1)
    padding = [side for size in reversed(images.shape[1:]) for side in (0, -size % multiple)]
    pyramid = [F.pad(images, padding)]
    for _ in range(levels - 1):
        pyramid.insert(0, F.avg_pool3d(pyramid[0], 2))
    return pyramid


def _refine(displacement: Tensor, shape: torch.Size) -> Tensor:
    """A displacement at the resolution of the next level, which is twice its own or the same."""
    if displacement.shape[1:] == shape:
        return displacement
    finer = F.interpolate(displacement[None], shape, mode='trilinear', align_corners=False)
    return finer[0] * 2


def _filter(volumes: Tensor, half_kernel: list[float]) -> Tensor:
    """Convolve along the last three axes with a symmetric kernel, given from its middle on."""
    for axis in (-1, -2, -3):
        size = volumes.shape[axis]
        filtered = volumes * half_kernel[0]
        for offset, weight in enumerate(half_kernel[1:size], start=1):
            kept = size - offset
            ahead, behind = volumes.narrow(axis, offset, kept), volumes.narrow(axis, 0, kept)
            filtered.narrow(axis, offset, kept).add_(behind, alpha=weight)
            filtered.narrow(axis, 0, kept).add_(ahead, alpha=weight)
        volumes = filtered
    return volumes
