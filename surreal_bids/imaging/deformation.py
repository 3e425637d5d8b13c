"""Diffeomorphic registration of two brains on one grid, by local correlation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from surreal_bids.parallel import in_parts, in_slabs, with_neighbours


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
        Length of the longest vectors of an update, while images do not match.
    gain
        Factor of all vectors; those longer than a step are then cut. Few are, so that a gain of
        1.4 needs 1/1.4 of the iterations.
    momentum
        Part of an update that the next one continues. At 0.7, 24 iterations see slightly more of a
        loss than 58 do without, and single regions without a loss move more (twins.py).
    noise
        Variance that counts as no signal, where the brain's bright tissue has intensity 1.
    """

    iterations: tuple[int, ...] = (60, 40, 20)
    radius: int = 2
    radius_mm: float = 0.0
    fluid: float = 1.0
    elastic: float = 0.5
    step: float = 0.7
    gain: float = 1.0
    momentum: float = 0.0
    noise: float = 1e-4


DEFAULT = Settings()
"""Iterations beyond these add 0.002 to the overlap of regions."""

FLUID = Settings(
    iterations=(10, 10, 24), radius_mm=4.0, fluid=2.5, elastic=0.0, gain=1.4, momentum=0.7
)
"""Where the Jacobian determinant is what matters: without elastic smoothing, losses of regions are
seen at more of their size (benchmarks/README.md). With less fluid smoothing, more iterations at
coarse levels, or smaller cubes, regions without a loss move more."""


COARSEST_MM = 6.0
"""Levels are added until voxels of the coarsest are at least this wide."""

KERNEL_REACH = 2.5
"""Gaussian kernels end after so many standard deviations."""

FULL_STEP_SLOPE = 0.3
"""Slope of the correlation, per voxel of displacement, from which an update has its full length.
Brains that do not match yet have 0.2 to 0.7 where they are steepest; below, steps shrink in
proportion, so that equal images stay where they are."""


LONGEST = 0.95
"""An update with momentum moves by less than a voxel along each axis, as `add_update` requires."""

LOOKED_UP = 2
"""Planes whose voxels are looked up at a time on a CPU, so that all steps stay in its cache."""


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
        self.noise = noise
        self._means = SymmetricFilter(fixed, [1 / (2 * radius + 1)] * (radius + 1))
        self.mean, square = (self._means(each) for each in (fixed, fixed * fixed))
        self.variance = self._variance(self.mean, square)

    def value(self, moving: Tensor) -> Tensor:
        """Correlation in the cube around each voxel, between -1 and 1."""

        def correlation(rows: slice, _: Tensor, variance: Tensor, covariance: Tensor) -> Tensor:
            return covariance * torch.rsqrt(self.variance[:, rows] * variance)

        return self._from_moments(moving, correlation)

    def slope(self, moving: Tensor) -> Tensor:
        """Derivative of each cube's correlation by the moving image's value at its centre.

        Up to the number of voxels in a cube: (f - f_mean) / sqrt(v_f v_m) minus
        covariance / v_m times the same of the moving image. Of the cubes that contain a voxel only
        its own is looked at, as in ANTs: sharper than the whole sum, and half the work.
        """

        def slope(rows: slice, mean: Tensor, variance: Tensor, covariance: Tensor) -> Tensor:
            of_fixed = self.fixed[:, rows] - self.mean[:, rows]
            of_moving = moving[:, rows] - mean
            found = of_fixed.addcmul_(covariance.div_(variance), of_moving, value=-1)
            return found.mul_(torch.rsqrt(self.variance[:, rows] * variance))

        return self._from_moments(moving, slope)

    def _from_moments(self, moving: Tensor, compute: Callable[..., Tensor]) -> Tensor:
        """What is computed, row by row, from moments of the images in the cubes.

        `compute` is given the rows, mean and variance of the moving image, and its covariance with
        the fixed one.
        """
        products = moving.new_empty(3, *moving.shape)
        result = torch.empty_like(moving)

        def multiply(planes: slice) -> None:
            own, other = moving[planes], self.fixed[planes]
            for values, place in zip((own, own * own, own * other), products):
                self._means.within_planes(values, out=place[planes])

        def finish(rows: slice) -> None:
            mean, square, mixed = (self._means.across_planes(each[:, rows]) for each in products)
            covariance = mixed.addcmul_(self.mean[:, rows], mean, value=-1)
            result[:, rows] = compute(rows, mean, self._variance(mean, square), covariance)

        in_slabs(multiply, moving, axis=0)
        in_slabs(finish, moving, axis=1)
        return result

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
    # Rounded, since affines are: all images of 1.5 mm are to have the same levels.
    levels = max(len(iterations), 1 + math.ceil(math.log2(COARSEST_MM / round(voxel_mm, 2))))
    return (iterations[0],) * (levels - len(iterations)) + iterations


def _ascend(
    correlation: LocalCorrelation,
    moving: Tensor,
    displacement: Tensor,
    iterations: int,
    settings: Settings,
) -> Tensor:
    """Iterate at one level."""
    smoothing = gaussian_filter(moving, settings.fluid)
    previous = None
    for _ in range(iterations):
        warped = pull(moving[None], displacement)[0]
        update = ascent(warped, correlation.slope(warped), smoothing)
        _scale(update, settings)
        if settings.momentum:
            _continue(update, previous, settings.momentum)
            previous = update
        displacement = smooth(add_update(displacement, update), settings.elastic)
    return displacement


def pull(volumes: Tensor, displacement: Tensor) -> Tensor:
    """Look up volumes (C, X, Y, Z) at x + u(x); beyond the edge its value is repeated."""
    pulled = torch.empty_like(volumes)
    flat = volumes.flatten(1)
    length = LOOKED_UP if volumes.device.type == 'cpu' else displacement.shape[1]

    def look_up(planes: slice) -> None:
        corners, weights = _corners(displacement[:, planes], planes.start, volumes.shape[1:])
        for volume, result in zip(flat, pulled):
            result[planes] = _between(volume, corners, *weights)

    in_parts(look_up, displacement.shape[1], length)
    return pulled


def _corners(u: Tensor, first: int, shape: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Places in a flat volume of the voxels around x + u(x), and the distances to the first.

    `u` belongs to planes from `first` on. Voxels are in pairs along the last axis, then along
    the one before, then along the first. On a CPU, `grid_sample` takes twice the time.
    """
    lowest, rests = [], []
    for axis, (along, size) in enumerate(zip(u, shape)):
        line = torch.arange(along.shape[axis], device=u.device, dtype=u.dtype)
        place = along + line.reshape([-1 if k == axis else 1 for k in range(3)])
        place.add_(0 if axis else first).clamp_(0, size - 1)
        low = place.to(torch.int32).clamp_max_(max(size - 2, 0))
        lowest.append(low)
        rests.append(place.sub_(low))
    index = lowest[0].mul_(shape[1]).add_(lowest[1]).mul_(shape[2]).add_(lowest[2])
    steps = (shape[1] * shape[2], shape[2], 1)
    x, y, z = ((0, step if size > 1 else 0) for step, size in zip(steps, shape))
    return [(index + sum(corner)).flatten() for corner in product(x, y, z)], rests


def _between(flat: Tensor, corners: list[Tensor], x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Interpolate linearly between eight voxels."""
    values = [flat.index_select(0, corner).view(x.shape) for corner in corners]
    for weight in (z, y, x):
        values = [torch.lerp(low, high, weight) for low, high in zip(values[::2], values[1::2])]
    return values[0]


def ascent(warped: Tensor, slope: Tensor, smoothing: SymmetricFilter) -> Tensor:
    """Gradient of an image, per voxel, times the slope, smoothed: (3, X, Y, Z)."""
    halfway = warped.new_empty(3, *warped.shape)
    update = torch.empty_like(halfway)

    def differ(planes: slice) -> None:
        near, own = with_neighbours(planes, len(warped))
        for axis, place in enumerate(halfway):
            difference = central_difference(warped[near], axis)[own]
            smoothing.within_planes(difference.mul_(slope[planes]), out=place[planes])

    def finish(rows: slice) -> None:
        for place, along in zip(halfway, update):
            along[:, rows] = smoothing.across_planes(place[:, rows])

    in_slabs(differ, warped, axis=0)
    in_slabs(finish, update[0], axis=1)
    return update


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
    composed = torch.empty_like(displacement)

    def compose(planes: slice) -> None:
        near, own = with_neighbours(planes, displacement.shape[1])
        old, new = displacement[:, near], update[:, near]
        both = old + new
        for axis, along in enumerate(new):
            gaps = along.shape[axis] - 1
            ahead = along.narrow(axis, 0, gaps).clamp_min(0)
            behind = along.narrow(axis, 1, gaps).clamp_max(0)
            for component, result in zip(old, both):
                steps = component.diff(dim=axis)
                result.narrow(axis, 0, gaps).addcmul_(ahead, steps)
                result.narrow(axis, 1, gaps).addcmul_(behind, steps)
        composed[:, planes] = both[:, own]

    in_slabs(compose, displacement, axis=0)
    return composed


def _scale(update: Tensor, settings: Settings) -> None:
    """Scale the vectors of an update (3, X, Y, Z) and cut those that are longer than a step."""
    lengths = torch.empty_like(update[0])

    def measure(planes: slice) -> Tensor:
        x, y, z = update[:, planes]
        torch.sqrt(x.square().addcmul_(y, y).addcmul_(z, z), out=lengths[planes])
        return lengths[planes].max()

    def shorten(planes: slice) -> None:
        update[:, planes] *= (settings.step / lengths[planes]).clamp_max_(factor)

    longest = torch.stack(in_slabs(measure, update, axis=0)).max()
    factor = settings.gain * settings.step / longest.clamp_min(FULL_STEP_SLOPE)
    in_slabs(shorten, update, axis=0)


def _continue(update: Tensor, previous: Tensor | None, momentum: float) -> None:
    """Add a part of the update before, if any, to this one, (3, X, Y, Z)."""
    if previous is None:
        return

    def add(planes: slice) -> None:
        update[:, planes].add_(previous[:, planes], alpha=momentum).clamp_(-LONGEST, LONGEST)

    in_slabs(add, update, axis=0)


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


def smooth(volumes: Tensor, sigma: float) -> Tensor:
    """Gaussian smoothing of volumes (C, X, Y, Z), with zeros beyond the edge."""
    if sigma == 0:
        return volumes
    smoothing = gaussian_filter(volumes[0], sigma)
    return torch.stack([smoothing(volume) for volume in volumes])


def gaussian_filter(volume: Tensor, sigma: float) -> SymmetricFilter:
    """Gaussian smoothing of volumes like this one."""
    weights = [
        math.exp(-0.5 * (offset / sigma) ** 2)
        for offset in range(math.ceil(KERNEL_REACH * sigma) + 1)
    ]
    total = 2 * sum(weights) - weights[0]
    return SymmetricFilter(volume, [weight / total for weight in weights])


FILTER_BLOCK = 64
"""Voxels along an axis that one matrix product filters."""


class SymmetricFilter:
    """Convolution along three axes with a symmetric kernel, with zeros beyond the edge.

    By products with band matrices, in blocks along an axis: in a third to a half of the time that
    shifted sums take, which go through all voxels for each weight of the kernel.

    Parameters
    ----------
    volume : Tensor, shape (X, Y, Z)
        One like those that will be filtered.
    half_kernel
        Weights, from the middle of the kernel on.
    """

    def __init__(self, volume: Tensor, half_kernel: list[float]) -> None:
        self._reach = len(half_kernel) - 1
        self._bands = [_band_matrix(volume, size, half_kernel) for size in volume.shape]

    def __call__(self, volume: Tensor) -> Tensor:
        """Filter a volume (X, Y, Z)."""
        halfway, filtered = torch.empty_like(volume), torch.empty_like(volume)

        def within(planes: slice) -> None:
            self.within_planes(volume[planes], out=halfway[planes])

        def across(rows: slice) -> None:
            filtered[:, rows] = self.across_planes(halfway[:, rows])

        in_slabs(within, volume, axis=0)
        in_slabs(across, volume, axis=1)
        return filtered

    def within_planes(self, planes: Tensor, out: Tensor) -> None:
        """Filter some planes (x, Y, Z) along their own two axes."""
        _, y, z = planes.shape
        along_z = torch.empty_like(planes, memory_format=torch.contiguous_format)
        for block, near in self._blocks(z):
            band = self._bands[2][near, block]
            torch.mm(planes.reshape(-1, z)[:, near], band, out=along_z.view(-1, z)[:, block])
        for block, near in self._blocks(y):
            torch.matmul(self._bands[1][block, near], along_z[:, near], out=out[:, block])

    def across_planes(self, rows: Tensor) -> Tensor:
        """Filter some rows of all planes, (X, y, Z), along the first axis."""
        filtered = torch.empty_like(rows, memory_format=torch.contiguous_format)
        for block, near in self._blocks(len(rows)):
            band = self._bands[0][block, near]
            torch.mm(band, rows.flatten(1)[near], out=filtered.flatten(1)[block])
        return filtered

    def _blocks(self, size: int) -> Iterator[tuple[slice, slice]]:
        """Blocks of a line of voxels, and each with the voxels that reach into it."""
        for start in range(0, size, FILTER_BLOCK):
            end = start + FILTER_BLOCK
            yield slice(start, end), slice(max(start - self._reach, 0), end + self._reach)


def _band_matrix(volume: Tensor, size: int, half_kernel: list[float]) -> Tensor:
    """The convolution of a line of `size` voxels as a matrix, zeros beyond its ends."""
    band = volume.new_zeros(size, size)
    for offset, weight in enumerate(half_kernel[:size]):
        band.diagonal(offset).fill_(weight)
        band.diagonal(-offset).fill_(weight)
    return band
