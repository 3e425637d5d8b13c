"""Base class of the compared methods, with the preprocessing of appendix B.4.

Shape legend: N participants, S regions, M patterns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from surreal_bids.exceptions import DataError

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
        volumes = check_array(X, dtype=np.float64)
        patients = np.asarray(is_patient, dtype=bool)
        _require_groups(volumes, patients)
        _require_enough(self.n_patterns, volumes[patients])
        self.cn_mean_ = volumes[~patients].mean(axis=0)
        self.cn_sd_ = volumes[~patients].std(axis=0)
        _require_variation(self.cn_sd_)
        self._fit(volumes, patients)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Expression (N, M) of each pattern in each participant."""
        check_is_fitted(self)
        volumes = check_array(X, dtype=np.float64)
        if volumes.shape[1] != self.cn_mean_.size:
            raise DataError(
                f'{volumes.shape[1]} regions given, but {self.cn_mean_.size} were fitted; '
                'give the same regions in the same order'
            )
        return self._transform(volumes)

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


def _require_groups(volumes: Array, patients: NDArray[np.bool_]) -> None:
    if patients.shape != (len(volumes),):
        raise DataError(
            f'is_patient has shape {patients.shape} for {len(volumes)} participants; '
            'give one value each'
        )
    if patients.all() or not patients.any():
        raise DataError(
            f'{(~patients).sum()} controls and {patients.sum()} patients; both groups are needed'
        )


def _require_enough(n_patterns: int, volumes: Array) -> None:
    if not 1 <= n_patterns <= min(volumes.shape):
        raise DataError(
            f'{n_patterns} patterns asked of {volumes.shape[0]} patients and {volumes.shape[1]} '
            'regions; ask for at least one and at most as many as there are of either'
        )


def _require_variation(cn_sd: Array) -> None:
    constant = np.flatnonzero(cn_sd == 0)
    if constant.size:
        raise DataError(
            f'region {constant[0]} (counted from 0) is the same in all controls; exclude it'
        )
