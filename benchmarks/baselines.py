"""Methods that the paper compares Surreal-GAN with (section 4.2, appendix B.4), and ours.

Shape legend: N participants, S regions, M patterns.

OpNMF: Orthonormal projective non-negative matrix factorisation (Yang and Oja, IEEE TNN 2010).

Atrophy A (S, N) is projected on non-negative, orthonormal patterns W (S, M): minimise
||A - W W' A||^2 with W >= 0 and W'W = I. Orthogonal, non-negative patterns hardly overlap. The
multiplicative rule drives W'W towards I and reaches it if such patterns fit the data.

DNMF: Discriminant non-negative matrix factorisation: NMF that also separates controls and patients.

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

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import (
    NMF,
    FactorAnalysis,
    LatentDirichletAllocation,
    non_negative_factorization,
)

from surreal_bids.model.factors import fit_factors

Array = NDArray[np.float64]


class Baseline(TransformerMixin, BaseEstimator, ABC):
    """A method that gives each participant one number per pattern, higher with more atrophy.

    Parameters
    ----------
    n_patterns
        Number of patterns, M.
    random_state
        Seed, for methods with a random start.

    Attributes
    ----------
    cn_mean_, cn_sd_ : (S,) arrays
        Mean and standard deviation of each region in the controls.
    """

    def __init__(self, n_patterns: int = 3, random_state: int = 0) -> None:
        self.n_patterns = n_patterns
        self.random_state = random_state

    def fit(self, X: ArrayLike, is_patient: ArrayLike) -> Self:
        """Find the patterns.

        Parameters
        ----------
        X : (N, S)
            Volumes of controls and patients, CN-normalised (mean 1 and sd 0.1 in controls) or in
            any other unit: they are standardised against the controls.
        is_patient : (N,) of bool
            Who is a patient.
        """
        volumes, patients = np.asarray(X, dtype=np.float64), np.asarray(is_patient, dtype=bool)
        self.cn_mean_ = volumes[~patients].mean(axis=0)
        self.cn_sd_ = volumes[~patients].std(axis=0)
        self._fit(volumes, patients)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Expression (N, M) of each pattern in each participant."""
        return self._transform(np.asarray(X, dtype=np.float64))

    @abstractmethod
    def _fit(self, volumes: Array, patients: NDArray[np.bool_]) -> None:
        """Learn from checked volumes (N, S)."""

    @abstractmethod
    def _transform(self, volumes: Array) -> Array:
        """Score checked volumes (N, S)."""

    def _z_scores(self, volumes: Array) -> Array:
        """Standardise against the controls (B.4); (N, S)."""
        return (volumes - self.cn_mean_) / self.cn_sd_

    def _atrophy(self, volumes: Array) -> Array:
        """Reversed z-scores, zero where a region is larger than in controls (B.4); (N, S)."""
        return np.maximum(-self._z_scores(volumes), 0)


def patients_up(scores: Array, patients: NDArray[np.bool_]) -> Array:
    """Return signs (M,) that make scores (N, M) higher in patients than in controls.

    The sign of a factor is arbitrary; this fixes it without the truth.
    """
    difference = scores[patients].mean(axis=0) - scores[~patients].mean(axis=0)
    return np.where(difference < 0, -1.0, 1.0)


NMF_ITERATIONS = 1000


class NMFBaseline(Baseline):
    """Atrophy as a sum of non-negative patterns, each weighted by its expression.

    Attributes
    ----------
    factorisation_ : sklearn.decomposition.NMF
        Fitted to the reversed, positive z-scores of the patients (B.4).
    """

    def _fit(self, volumes: Array, patients: NDArray[np.bool_]) -> None:
        self.factorisation_ = NMF(
            n_components=self.n_patterns,
            init='nndsvda',
            max_iter=NMF_ITERATIONS,
            random_state=self.random_state,
        ).fit(self._atrophy(volumes[patients]))

    def _transform(self, volumes: Array) -> Array:
        return self.factorisation_.transform(self._atrophy(volumes))


WORDS_PER_SD = 10
"""A region is a word of the vocabulary; a z-score of -1 counts it ten times (B.4)."""

LDA_ITERATIONS = 30
LDA_DOCUMENT_ITERATIONS = 10
"""More of either changes the accuracy on the basic task less than another seed does."""


class LDABaseline(Baseline):
    """Each participant as a mixture of atrophy patterns, whose weights sum to 1.

    Attributes
    ----------
    allocation_ : sklearn.decomposition.LatentDirichletAllocation
        Fitted to the discretised atrophy of the patients.
    """

    def _fit(self, volumes: Array, patients: NDArray[np.bool_]) -> None:
        self.allocation_ = LatentDirichletAllocation(
            n_components=self.n_patterns,
            learning_method='batch',
            max_iter=LDA_ITERATIONS,
            max_doc_update_iter=LDA_DOCUMENT_ITERATIONS,
            random_state=self.random_state,
        ).fit(self._counts(volumes[patients]))

    def _transform(self, volumes: Array) -> Array:
        return self.allocation_.transform(self._counts(volumes))

    def _counts(self, volumes: Array) -> Array:
        """Atrophy in whole numbers, (N, S)."""
        return np.rint(WORDS_PER_SD * self._atrophy(volumes))


class FactorBaseline(Baseline):
    """Gaussian factors, each turned so that patients score higher than controls.

    Attributes
    ----------
    analysis_ : sklearn.decomposition.FactorAnalysis
        Fitted to the z-scores of the patients (B.4).
    signs_ : (M,) array
        1 or -1.
    """

    def _fit(self, volumes: Array, patients: NDArray[np.bool_]) -> None:
        scores = self._z_scores(volumes)
        self.analysis_ = FactorAnalysis(
            n_components=self.n_patterns, random_state=self.random_state
        ).fit(scores[patients])
        self.signs_ = patients_up(self.analysis_.transform(scores), patients)

    def _transform(self, volumes: Array) -> Array:
        return self.analysis_.transform(self._z_scores(volumes)) * self.signs_


class SparseFactorBaseline(Baseline):
    """Linear estimates of severity; see :mod:`surreal_bids.model.factors`.

    Attributes
    ----------
    factors_ : surreal_bids.model.factors.Factors
        Patterns and noise covariance.
    """

    def _fit(self, volumes: Array, patients: NDArray[np.bool_]) -> None:
        z = self._z_scores(volumes)
        self.factors_ = fit_factors(z[~patients], z[patients], self.n_patterns)

    def _transform(self, volumes: Array) -> Array:
        return self.factors_.severities(self._z_scores(volumes))


OPNMF_ITERATIONS = 50_000
OPNMF_TOLERANCE = 1e-5
"""Relative change of W in one iteration below which it counts as settled."""

OPNMF_SMALLEST = 1e-16
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
    W = np.maximum(W * gram_W / np.maximum(W @ (W.T @ gram_W), OPNMF_SMALLEST), OPNMF_SMALLEST)
    return W / np.linalg.norm(W, ord=2)


def factorise(data: Array, rank: int) -> Array:
    """Find the patterns W (S, M) of `data` (S, N), those that carry most of it first."""
    gram = data @ data.T
    W = nonnegative_svd(data, rank)
    for _ in range(OPNMF_ITERATIONS):
        previous, W = W, opnmf_update(W, gram)
        if np.linalg.norm(W - previous) < OPNMF_TOLERANCE * np.linalg.norm(previous):
            break
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


DNMF_ITERATIONS = 2000
DNMF_TOLERANCE = 1e-6
"""Relative decrease of F in one iteration below which it counts as settled."""

DNMF_SMALLEST = 1e-12
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
    return np.maximum(H * np.sqrt(less / more), DNMF_SMALLEST)


def update_patterns(
    X: Array, W: Array, H: Array, patients: NDArray[np.bool_], weights: tuple[float, float]
) -> Array:
    """Update W (S, M) with H fixed."""
    gamma, delta = weights
    within, between = scatter(H, patients)
    less = X @ H.T + delta * W * between
    more = W @ (H @ H.T) + gamma * W * within
    return np.maximum(W * np.sqrt(less / more), DNMF_SMALLEST)


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
        for _ in range(DNMF_ITERATIONS):
            H = update_expression(X, W, H, patients, weights)
            W = update_patterns(X, W, H, patients, weights)
            previous, value = value, objective(X, W, H, patients, weights)
            if previous - value < DNMF_TOLERANCE * abs(previous):
                break
        return W

    def _transform(self, volumes: Array) -> Array:
        """Expression of the patterns by non-negative least squares: no diagnosis is needed."""
        expression, _, _ = non_negative_factorization(
            self._scaled(volumes),
            H=self.patterns_.T.copy(),
            n_components=self.n_patterns,
            update_H=False,
            max_iter=DNMF_ITERATIONS,
        )
        return expression * self.signs_

    def _scaled(self, volumes: Array) -> Array:
        """Volumes (N, S) from 0 to 1 among the people fitted; smaller ones count as 0."""
        return np.maximum((volumes - self.low_) / self.range_, 0)


BASELINES: dict[str, type[Baseline]] = {
    'NMF': NMFBaseline,
    'LDA': LDABaseline,
    'FA': FactorBaseline,
    'OpNMF': OrthogonalProjectiveNMF,
    'DNMF': DiscriminantNMF,
    'sparse factors': SparseFactorBaseline,
}
"""The methods by the names, and in the order, of Table 1; the last is not in the paper."""
