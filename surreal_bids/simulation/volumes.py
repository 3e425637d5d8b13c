"""Volumes of labelled regions under a map: integrals of its Jacobian determinant.

A count of voxels after the labels were resampled cannot see shifts below a voxel; an integral can.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from nibabel.affines import apply_affine
from numpy.typing import NDArray
from scipy import sparse

from surreal_bids.simulation.templates import Template
from surreal_bids.simulation.warps import Field

NEGLIGIBLE_WEIGHT = 1e-6
"""Interpolation weights below this are rounding errors."""


class _AxisOperators(NamedTuple):
    """What brings one axis of the working grid to the label voxels.

    Attributes
    ----------
    span
        The part of the working grid that the labels need.
    mean, slope
        Mean and mean derivative over each label voxel, shape (label voxels, span).
    """

    span: slice
    mean: NDArray[np.float32]
    slope: NDArray[np.float32]


class RegionIntegrator:
    """Integrates the Jacobian determinant of a map over each region of a template.

    The map is linear between the points of the working grid. Its gradient, averaged over each
    voxel of the label map, is a product of one small matrix an axis; the determinant of that
    average times the volume of the voxel is the volume of the deformed voxel up to third-order
    terms, and the deformed voxels of a region add up to the region without gaps.

    Parameters
    ----------
    template
        Its labels and its working grid.
    """

    def __init__(self, template: Template) -> None:
        labels = template.labels
        self.voxel_volume = labels.voxel_volume
        self.n_regions = len(template.regions)
        flat = labels.data.ravel()
        self.row = np.searchsorted(template.regions['index'], flat)
        self.row[flat == 0] = self.n_regions
        to_grid = np.linalg.inv(template.affine) @ labels.affine
        self.axes = tuple(
            _axis_operators(n_labels, n_grid, to_grid[axis, axis], to_grid[axis, 3])
            for axis, (n_labels, n_grid) in enumerate(zip(labels.data.shape, template.shape))
        )

    def volumes(self, displacement: Field) -> NDArray[np.float64]:
        """Volume of each region after the map x + u(x), in mm3, in the order of the table."""
        gradients = [self._gradient(component) for component in displacement]
        (a, b, c), (d, e, f), (g, h, i) = gradients
        a, e, i = a + 1, e + 1, i + 1
        determinant = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
        sums = np.bincount(self.row, determinant, minlength=self.n_regions + 1)
        return sums[: self.n_regions].astype(np.float64) * self.voxel_volume

    def _gradient(self, component: Field) -> list[Field]:
        """Mean gradient of one component over each label voxel: three flat arrays."""
        x, y, z = self.axes
        needed = component[x.span, y.span, z.span]
        mean_z, slope_z = needed @ z.mean.T, needed @ z.slope.T
        products = (
            (x.slope, y.mean, mean_z),
            (x.mean, y.slope, mean_z),
            (x.mean, y.mean, slope_z),
        )
        return [_contract(along_x, along_y, along_z) for along_x, along_y, along_z in products]


def _contract(along_x: NDArray, along_y: NDArray, volume: NDArray) -> Field:
    """Apply a matrix along the second axis, then one along the first; flat result."""
    partial = np.matmul(along_y, volume)
    banded = sparse.csr_matrix(along_x)
    return (banded @ partial.reshape(len(partial), -1)).ravel()


def _axis_operators(n_labels: int, n_grid: int, step: float, start: float) -> _AxisOperators:
    """Operators of one axis; label voxel k is centred at `start + step * k` of the grid."""
    edges = start + step * (np.arange(n_labels + 1) - 0.5)
    lower = np.floor(edges).astype(int)
    span = slice(int(lower[0]), min(int(lower[-1]) + 2, n_grid))
    points = np.arange(span.start, span.stop)
    at_edges = np.maximum(1 - np.abs(edges[:, None] - points), 0).astype(np.float32)
    mean = (at_edges[1:] + at_edges[:-1]) / 2
    slope = (at_edges[1:] - at_edges[:-1]) / np.float32(step)
    return _AxisOperators(span, mean, slope)


def region_fractions(template: Template) -> sparse.csr_matrix:
    """Fraction of each voxel of the working grid that each region fills, (regions, X * Y * Z).

    Each label voxel gives its volume to the grid points around it, by linear weights.
    """
    labels = template.labels
    voxels = np.argwhere(labels.data)
    rows = np.searchsorted(template.regions['index'], labels.data[tuple(voxels.T)])
    position = apply_affine(np.linalg.inv(template.affine) @ labels.affine, voxels)
    lower = np.floor(position + NEGLIGIBLE_WEIGHT).astype(int)
    shape = (len(template.regions), int(np.prod(template.shape)))
    share = labels.voxel_volume / template.voxel_size**3
    entries = []
    for corner in np.ndindex(2, 2, 2):
        weight = np.prod(1 - np.abs(position - lower - corner), axis=1) * share
        used = weight > NEGLIGIBLE_WEIGHT
        columns = np.ravel_multi_index((lower[used] + corner).T, template.shape)
        entries.append((weight[used], rows[used], columns))
    values, row, column = (np.concatenate(parts) for parts in zip(*entries))
    return sparse.csr_matrix((values.astype(np.float32), (row, column)), shape)
