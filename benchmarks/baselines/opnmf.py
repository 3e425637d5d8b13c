"""Orthonormal projective non-negative matrix factorisation (Yang and Oja, IEEE TNN 2010).

Atrophy A (S, N) is projected on non-negative, orthonormal patterns W (S, M): minimise
||A - W W' A||^2 with W >= 0 and W'W = I. Orthogonal, non-negative patterns hardly overlap. The
multiplicative rule drives W'W towards I and reaches it if such patterns fit the data.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .base import Array, Baseline

MAX_ITERATIONS = 50_000
TOLERANCE = 1e-5
"""Relative change of W in one iteration below which it counts as settled."""

SMALLEST = 1e-16
"""Entries of W are kept at or above this, since a zero could never grow again."""


def nonnegative_svd(data: Array, rank: int) -> Array:
    """Start of W (S, M) from the singular vectors of `data` (S, N).

    NNDSVD of Boutsidis and Gallopoulos (Pattern Recognition 2008): of each pair of singular
    vectors, the positive or the negative parts, whichever are larger.
    """
    left, values, right = np.linalg.svd(data, full_matrices=False)
    start = np.empty((data.shape[0], rank))
    for k in range(rank):
        u, v = left[:, k], right[k]
        parts = [(np.maximum(sign * u, 0), np.maximum(sign * v, 0)) for sign in (1, -1)]
        norms = [np.linalg.norm(u_part) * np.linalg.norm(v_part) for u_part, v_part in parts]
        larger = int(np.argmax(norms))
        unit = parts[larger][0] / np.linalg.norm(parts[larger][0])
        start[:, k] = np.sqrt(values[k] * norms[larger]) * unit
    return start


def opnmf_update(W: Array, gram: Array) -> Array:
    """Improve W once, then scale it to spectral norm 1.

    The multiplicative rule W <- W * (AA'W) / (W W'AA'W) for orthonormal patterns, with the
    stabilising normalisation of section III of Yang and Oja.

    Parameters
    ----------
    W : (S, M)
        Non-negative patterns.
    gram : (S, S)
        A A'.
    """
    gram_W = gram @ W
    W = np.maximum(W * gram_W / np.maximum(W @ (W.T @ gram_W), SMALLEST), SMALLEST)
    return W / np.linalg.norm(W, ord=2)


def factorise(data: Array, rank: int) -> Array:
    """Find the patterns W (S, M) of `data` (S, N), those that carry most of it first."""
    gram = data @ data.T
    W = nonnegative_svd(data, rank)
    for _ in range(MAX_ITERATIONS):
        previous, W = W, opnmf_update(W, gram)
        if np.linalg.norm(W - previous) < TOLERANCE * np.linalg.norm(previous):
            break
    else:
        warnings.warn(
            f'opNMF has not settled after {MAX_ITERATIONS} iterations',
            ConvergenceWarning,
            stacklevel=2,
        )
    carried = np.linalg.norm(W, axis=0) * np.linalg.norm(W.T @ data, axis=1)
    return W[:, np.argsort(-carried)]


class OrthogonalProjectiveNMF(Baseline):
    """Atrophy projected on non-negative patterns that do not overlap.

    Attributes
    ----------
    patterns_ : (S, M) array
        W, found from the reversed, positive z-scores of the patients (B.4). The start is fixed, so
        that `random_state` does not change it.
    """

    def _fit(self, volumes: Array, patients: NDArray[np.bool_]) -> None:
        self.patterns_ = factorise(self._atrophy(volumes[patients]).T, self.n_patterns)

    def _transform(self, volumes: Array) -> Array:
        return self._atrophy(volumes) @ self.patterns_
