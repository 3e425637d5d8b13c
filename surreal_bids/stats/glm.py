"""Least squares at every voxel, for several designs in one pass over the images.

Images come compressed, so that reading one voxel costs as much as reading all. Hence each image is
read once, and all that is kept are sums of products, in double precision.

Shape legend: N people, B of them in a batch, V voxels, D designs, P columns of all designs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surreal_bids.stats.designs import Design

Floats = NDArray[np.float64]

SLAB = 1 << 15
"""Voxels handled at once, so that intermediate results stay in the processor's cache."""

CONSTANT = 1e-10
"""A voxel whose residuals are less than this part of its sum of squares counts as constant."""


@dataclass(frozen=True)
class Estimates:
    """What one design found in V voxels.

    Attributes
    ----------
    effect : (V,)
        beta: difference of means, or change per unit of the R-index, in units of the images.
    t : (V,)
        beta over its standard error.
    varies : (V,) array of bool
        Where there is something to test. Elsewhere, where all people of the design have the same
        value, effect and t are 0.
    df : int
        Degrees of freedom.
    """

    effect: Floats
    t: Floats
    varies: NDArray[np.bool_]
    df: int


class LinearModels:
    """Least squares of voxels on several designs, from batches of images that come once.

    With an orthonormal basis Q of a design, the residual sum of squares is y'y - |Q'y|^2. To keep
    that difference accurate, the first image is subtracted from all: every design has a mean, so
    that nothing but the mean changes.

    Parameters
    ----------
    designs
        The models; rows refer to people as numbered in `add`.
    n_people, n_voxels
        Sizes N and V.
    """

    def __init__(self, designs: Sequence[Design], n_people: int, n_voxels: int) -> None:
        self.designs = designs
        self._weights = _stack(designs, n_people)
        self._belongs = _memberships(designs, n_people)
        self._products = np.zeros((self._weights.shape[1], n_voxels))
        self._squares = np.zeros((len(designs), n_voxels))
        self._origin: NDArray | None = None

    @staticmethod
    def n_bytes(designs: Sequence[Design], n_voxels: int) -> int:
        """Memory that the sums take: a column's products with every voxel, and the squares."""
        n_sums = sum(2 + design.nuisance.shape[1] for design in designs)
        return n_sums * n_voxels * np.dtype(np.float64).itemsize

    def add(self, rows: NDArray[np.intp], values: NDArray) -> None:
        """Take in a batch: people (B,) and their voxels (B, V)."""
        if self._origin is None:
            self._origin = values[0].copy()
        weights, belongs = self._weights[rows].T, self._belongs[rows].T
        for slab in _slabs(values.shape[1]):
            y = values[:, slab].astype(np.float64) - self._origin[slab]
            self._products[:, slab] += weights @ y
            self._squares[:, slab] += belongs @ y**2

    def estimates(self) -> Iterator[Estimates]:
        """Results of each design, in order."""
        start = 0
        for number, design in enumerate(self.designs):
            stop = start + 1 + design.nuisance.shape[1]
            yield _estimate(design, self._products[start:stop], self._squares[number])
            start = stop


def _stack(designs: Sequence[Design], n_people: int) -> Floats:
    """Tested and nuisance columns of all designs side by side (N, P); 0 for who is not in one."""
    blocks = []
    for design in designs:
        block = np.zeros((n_people, 1 + design.nuisance.shape[1]))
        block[design.rows, 0] = design.tested
        block[design.rows, 1:] = design.nuisance
        blocks.append(block)
    return np.hstack(blocks)


def _memberships(designs: Sequence[Design], n_people: int) -> Floats:
    """1 where a person is in a design, else 0 (N, D)."""
    belongs = np.zeros((n_people, len(designs)))
    for number, design in enumerate(designs):
        belongs[design.rows, number] = 1
    return belongs


def _slabs(n_voxels: int) -> Iterator[slice]:
    for start in range(0, n_voxels, SLAB):
        yield slice(start, start + SLAB)


def _estimate(design: Design, products: Floats, squares: Floats) -> Estimates:
    """Effect and t from Q'y (1 + q, V), the tested column first, and y'y (V,)."""
    residual = squares - np.einsum('pv,pv->v', products, products)
    varies = residual > CONSTANT * squares
    sigma = np.sqrt(np.where(varies, residual, 1.0) / design.df)
    along = np.where(varies, products[0], 0.0)
    return Estimates(along / design.scale, along / sigma, varies, design.df)
