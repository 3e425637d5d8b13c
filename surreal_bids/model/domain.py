"""The range of people a model was trained on, and who lies outside it.

The distance of a person from the training sample is Mahalanobis', with a Ledoit-Wolf covariance of
its ROI profiles. The limit is the 99.5th percentile of the distances that training people have from
a sample without them (five folds), so that about one in 200 people of the same population is
flagged.

Shapes: N people, S regions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import LedoitWolf

Floats = NDArray[np.floating]

FOLDS = 5
COVERAGE = 0.995


@dataclass(frozen=True)
class Domain:
    """Where training people lie: mean (S,), precision (S, S) and the largest usual distance."""

    mean: Floats
    precision: Floats
    limit: float

    def distances(self, X: Floats) -> Floats:
        """Mahalanobis distance (N,) of each person."""
        centred = X - self.mean
        return np.sqrt(np.einsum('ns,st,nt->n', centred, self.precision, centred, optimize=True))

    def contains(self, X: Floats) -> NDArray[np.bool_]:
        """Whether each person (N,) lies inside."""
        return self.distances(X) <= self.limit


def fit_domain(X: Floats, rng: np.random.Generator) -> Domain:
    """Learn the domain of a training sample (N, S)."""
    fold = rng.permutation(len(X)) % FOLDS
    held_out = np.empty(len(X))
    for k in range(FOLDS):
        held_out[fold == k] = _domain(X[fold != k], np.inf).distances(X[fold == k])
    return _domain(X, float(np.quantile(held_out, COVERAGE)))


def _domain(X: Floats, limit: float) -> Domain:
    fitted = LedoitWolf().fit(X)
    return Domain(fitted.location_, fitted.get_precision(), limit)
