"""Sparse linear factors, from which members of the default preset start."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surreal_bids.model.factors import fit_factors

from .base import Array, Baseline


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
