"""Family-wise error control by permutation: Freedman and Lane's scheme with the largest t.

nilearn's `permuted_ols` does the same with all images in memory. Here voxels come in chunks from a
scratch file, all chunks see the same permutations, and the largest t of a permutation is taken over
all chunks, so that memory stays bounded. The tests hold both against each other.

References: Freedman and Lane (1983), J. Bus. Econ. Stat. 1, 292; Winkler et al. (2014),
NeuroImage 92, 381.

Shape legend: n people in a design, V voxels, K permutations, q nuisance columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surreal_bids.stats.designs import Design
from surreal_bids.stats.glm import CONSTANT

Floats = NDArray[np.float64]

CHUNK_BYTES = 1 << 25
"""Size, in double precision, of the voxels read from the scratch file at once."""

PERMUTATIONS_AT_ONCE = 32
"""Permutations that share a matrix product."""

TIE = 1e-5
"""Sizes of t that differ by this part are the same: the permuted ones are in single precision."""


@dataclass(frozen=True)
class ScratchMaps:
    """Voxels of many people in an uncompressed file, to be read by chunks of voxels.

    Attributes
    ----------
    path
        The file: N x V numbers in single precision, a person after another.
    shape
        N and V.
    """

    path: Path
    shape: tuple[int, int]

    def store(self, rows: NDArray[np.intp], values: NDArray) -> None:
        """Write the voxels (B, V) of some people (B,); those never written take no room."""
        self.path.touch()
        with self.path.open('r+b') as file:
            file.truncate(self._position(self.shape[0], 0))
            for row, voxels in zip(rows, values):
                file.seek(self._position(row, 0))
                file.write(np.ascontiguousarray(voxels, np.float32).data)

    def chunks(self, rows: NDArray[np.intp]) -> Iterator[NDArray[np.float32]]:
        """Voxels of some people (n, v), as many at a time as `CHUNK_BYTES` allows."""
        n_voxels = max(1, CHUNK_BYTES // (rows.size * np.dtype(np.float64).itemsize))
        with self.path.open('rb', buffering=0) as file:
            for start in range(0, self.shape[1], n_voxels):
                values = np.empty((rows.size, min(n_voxels, self.shape[1] - start)), np.float32)
                for row, voxels in zip(rows, values):
                    file.seek(self._position(row, start))
                    file.readinto(voxels.data)
                yield values

    def _position(self, row: int, voxel: int) -> int:
        """Where a number is in the file."""
        return (int(row) * self.shape[1] + voxel) * np.dtype(np.float32).itemsize


def draw_permutations(n_people: int, n_permutations: int, seed: int) -> NDArray[np.intp]:
    """Random orders (K, n) of n people."""
    rng = np.random.default_rng(seed)
    orders = np.tile(np.arange(n_people), (n_permutations, 1))
    return rng.permuted(orders, axis=1)


def largest_t(
    chunks: Iterable[NDArray], design: Design, permutations: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Largest size of t over all voxels, for each permutation (K,).

    Freedman and Lane permute the residuals of the nuisance model, E, and fit the whole model
    again. Permuting E against the columns x and Q of the model is the same as permuting these
    against E, which is cheaper: t = x'E / sqrt((|E|^2 - |Q'E|^2 - (x'E)^2) / df).

    Parameters
    ----------
    chunks
        Voxels (n, v) of the people of the design, in its order; together all V.
    design
        The model.
    permutations : (K, n)
        Orders of the people.
    """
    largest = np.zeros(len(permutations), np.float32)
    for values in chunks:
        residuals = _unit_residuals(np.asarray(values, np.float64), design)
        for start in range(0, len(permutations), PERMUTATIONS_AT_ONCE):
            part = slice(start, start + PERMUTATIONS_AT_ONCE)
            sizes = _largest_of_chunk(residuals, design, permutations[part])
            np.maximum(largest[part], sizes, out=largest[part])
    return largest


def _unit_residuals(values: Floats, design: Design) -> NDArray[np.float32]:
    """What nuisance leaves of each voxel that varies, scaled to length 1 (n, v' <= v)."""
    residuals = values - values[0]
    total = np.einsum('nv,nv->v', residuals, residuals)
    residuals -= design.nuisance @ (design.nuisance.T @ residuals)
    squares = np.einsum('nv,nv->v', residuals, residuals)
    varies = squares > CONSTANT * total
    lengths = np.sqrt(squares[varies]).astype(np.float32)
    return residuals[:, varies].astype(np.float32) / lengths


def _largest_of_chunk(
    residuals: NDArray[np.float32], design: Design, permutations: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Largest size of t in these voxels for a few permutations (k,).

    t grows with (x'E)^2 / (1 - |Q'E|^2). The constant column of Q, its first, is orthogonal to E
    in any order.
    """
    tested = design.tested.astype(np.float32)[permutations] @ residuals
    explained = np.zeros_like(tested)
    for column in design.nuisance.astype(np.float32).T[1:]:
        explained += (column[permutations] @ residuals) ** 2
    share = (tested**2 / (1 - explained)).max(axis=1, initial=0.0)
    return np.sqrt(design.df * share / (1 - share))


def family_wise_p(t: ArrayLike, largest: ArrayLike) -> Floats:
    """Family-wise corrected p values of t (V,) from the largest t of K permutations (K,).

    The share of permutations, the observed order counted as one, that reach a t of this size
    anywhere.
    """
    ordered = np.sort(np.asarray(largest, np.float64))
    below = np.searchsorted(ordered, np.abs(t) * (1 - TIE), side='left')
    return (1 + ordered.size - below) / (1 + ordered.size)
