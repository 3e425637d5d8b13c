"""Non-negative matrix factorisation (Lee and Seung 1999) of patients' atrophy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import NMF

from .base import Array, Baseline

MAX_ITERATIONS = 1000


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
            max_iter=MAX_ITERATIONS,
            random_state=self.random_state,
        ).fit(self._atrophy(volumes[patients]))

    def _transform(self, volumes: Array) -> Array:
        return self.factorisation_.transform(self._atrophy(volumes))
