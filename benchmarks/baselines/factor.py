"""Factor analysis of patients' z-scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import FactorAnalysis

from .base import Array, Baseline, patients_up


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
