"""Discriminant non-negative matrix factorisation: NMF that also separates controls and patients.

It adds the Fisher term of Zafeiriou et al. (IEEE TNN 2006) to the squared error of NMF: expression
should differ little within a group and much between the groups. With people in columns, X (S, N),
patterns W (S, M) and expression H (M, N), this minimises::

    F(W, H) = 1/2 ||X - W H||^2 + 1/2 sum_k ||w_k||^2 (gamma within_k - delta between_k)

where within_k = h_k (I - P) h_k' and between_k = h_k (P - J) h_k' are the scatter of row k of H
within and between groups; P averages over each group and J over everyone. The factor ||w_k||^2
makes F invariant to the scale that W and H share, and no normalisation is needed. F is bounded
below if delta < 1, and neither update below ever raises it (Ding, Li and Jordan, IEEE TPAMI 2010:
the square root of the ratio of the gradient's negative to its positive part).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import non_negative_factorization

from surreal_bids.exceptions import UsageError

from .base import Array, Baseline, patients_up

MAX_ITERATIONS = 2000
TOLERANCE = 1e-6
"""Relative decrease of F in one iteration below which it counts as settled."""

SMALLEST = 1e-12
"""Entries of W and H are kept at or above this, since a zero could never grow again."""


def group_means(H: Array, patients: NDArray[np.bool_]) -> Array:
    """Replace each person by the group mean: H P, (M, N)."""
    means = np.empty_like(H)
    for group in (patients, ~patients):
        means[:, group] = H[:, group].mean(axis=1, keepdims=True)
    return means


def scatter(H: Array, patients: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Scatter of each pattern's expression within and between the groups, (M,) each."""
    means = group_means(H, patients)
    within = ((H - means) ** 2).sum(axis=1)
    between = ((means - H.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return within, between


def objective(
    X: Array, W: Array, H: Array, patients: NDArray[np.bool_], weights: tuple[float, float]
) -> float:
    """F of the module's equation, with `weights` gamma and delta."""
    gamma, delta = weights
    within, between = scatter(H, patients)
    fisher = (W**2).sum(axis=0) @ (gamma * within - delta * between)
    return float(((X - W @ H) ** 2).sum() + fisher) / 2


def update_expression(
    X: Array, W: Array, H: Array, patients: NDArray[np.bool_], weights: tuple[float, float]
) -> Array:
    """Update H (M, N) with W fixed."""
    gamma, delta = weights
    size = (W**2).sum(axis=0)[:, None]
    less = W.T @ X + size * (gamma + delta) * group_means(H, patients)
    more = W.T @ W @ H + size * (gamma * H + delta * H.mean(axis=1, keepdims=True))
    return np.maximum(H * np.sqrt(less / more), SMALLEST)


def update_patterns(
    X: Array, W: Array, H: Array, patients: NDArray[np.bool_], weights: tuple[float, float]
) -> Array:
    """Update W (S, M) with H fixed."""
    gamma, delta = weights
    within, between = scatter(H, patients)
    less = X @ H.T + delta * W * between
    more = W @ (H @ H.T) + gamma * W * within
    return np.maximum(W * np.sqrt(less / more), SMALLEST)


class DiscriminantNMF(Baseline):
    """NMF of all people that uses their diagnosis.

    Parameters
    ----------
    n_patterns, random_state
        As for all methods; W and H start at random.
    within, between
        Weights gamma and delta of the Fisher term, relative to the squared error; `between` is less
        than 1.

    Attributes
    ----------
    low_, range_ : (S,) arrays
        Minimum of each region and its range; volumes are scaled to lie in 0 to 1 (B.4).
    patterns_ : (S, M) array
        W, with columns of unit length.
    signs_ : (M,) array
        -1 where patients express a pattern less than controls, as they mostly do since large
        volumes, not losses, are factorised.
    """

    def __init__(
        self,
        n_patterns: int = 3,
        random_state: int = 0,
        within: float = 0.1,
        between: float = 0.1,
    ) -> None:
        super().__init__(n_patterns, random_state)
        self.within = within
        self.between = between

    def _fit(self, volumes: Array, patients: NDArray[np.bool_]) -> None:
        if self.within < 0 or not 0 <= self.between < 1:
            raise UsageError(
                f'within={self.within} and between={self.between}; give within >= 0 and '
                '0 <= between < 1, else there is no minimum'
            )
        self.low_ = volumes.min(axis=0)
        self.range_ = volumes.max(axis=0) - self.low_
        W = self._factorise(self._scaled(volumes).T, patients)
        self.patterns_ = W / np.linalg.norm(W, axis=0)
        self.signs_ = np.ones(self.n_patterns)
        self.signs_ = patients_up(self._transform(volumes), patients)

    def _factorise(self, X: Array, patients: NDArray[np.bool_]) -> Array:
        weights = (self.within, self.between)
        rng = np.random.default_rng(self.random_state)
        scale = np.sqrt(X.mean() / self.n_patterns)
        W = scale * rng.uniform(0.5, 1.5, (X.shape[0], self.n_patterns))
        H = scale * rng.uniform(0.5, 1.5, (self.n_patterns, X.shape[1]))
        value = objective(X, W, H, patients, weights)
        for _ in range(MAX_ITERATIONS):
            H = update_expression(X, W, H, patients, weights)
            W = update_patterns(X, W, H, patients, weights)
            previous, value = value, objective(X, W, H, patients, weights)
            if previous - value < TOLERANCE * abs(previous):
                break
        return W

    def _transform(self, volumes: Array) -> Array:
        """Expression of the patterns by non-negative least squares: no diagnosis is needed."""
        expression, _, _ = non_negative_factorization(
            self._scaled(volumes),
            H=self.patterns_.T.copy(),
            n_components=self.n_patterns,
            update_H=False,
            max_iter=MAX_ITERATIONS,
        )
        return expression * self.signs_

    def _scaled(self, volumes: Array) -> Array:
        """Volumes (N, S) from 0 to 1 among the people fitted; smaller ones count as 0."""
        return np.maximum((volumes - self.low_) / self.range_, 0)
