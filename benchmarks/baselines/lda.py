"""Latent Dirichlet allocation (Blei et al. 2003) of atrophy, after Zhang et al. (PNAS 2016)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import LatentDirichletAllocation

from .base import Array, Baseline

WORDS_PER_SD = 10
"""A region is a word of the vocabulary; a z-score of -1 counts it ten times (B.4)."""

MAX_ITERATIONS = 30
MAX_DOCUMENT_ITERATIONS = 10
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
            max_iter=MAX_ITERATIONS,
            max_doc_update_iter=MAX_DOCUMENT_ITERATIONS,
            random_state=self.random_state,
        ).fit(self._counts(volumes[patients]))

    def _transform(self, volumes: Array) -> Array:
        return self.allocation_.transform(self._counts(volumes))

    def _counts(self, volumes: Array) -> Array:
        """Atrophy in whole numbers, (N, S)."""
        return np.rint(WORDS_PER_SD * self._atrophy(volumes))
