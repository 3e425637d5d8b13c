"""Covariate residualisation and CN normalisation (section 4.3 of the Surreal-GAN paper).

Both learn from controls (CN) only and are applied to everyone, so that what the disease does to a
region is never mistaken for what age does. The state of each is a dict whose values are numpy
arrays or plain JSON values: it goes into a model bundle, and nothing is ever pickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.encoding import CovariateEncoder, require_covariates
from surreal_bids.harmonization.regression import centred_slopes, require_estimable
from surreal_bids.harmonization.tables import (
    CONSTANT,
    FILL_OR_EXCLUDE,
    Table,
    as_covariates,
    as_features,
    as_mask,
    like,
    name_some,
    order_features,
    require_finite,
)

CN_MEAN = 1.0
"""Mean of every ROI among CN after normalisation (the authors' program, `Data_normalization`)."""

CN_SD = 0.1
"""Standard deviation (divided by n) of every ROI among CN after normalisation (same place)."""


class Residualiser:
    """Remove what covariates explain of each feature, with coefficients from CN only.

    The features become those of a person with the mean covariates of CN: x - (c - mean(c)) beta,
    so that means and units stay. Coefficients are ordinary least squares with an intercept; up to
    a constant that CN normalisation removes, this is the authors' `Covariate_correction`.

    Parameters
    ----------
    smooth : sequence of str
        Covariates that act through a cubic regression spline instead of a line.
    categorical : sequence of str
        Covariates whose numbers are names of levels. Text is categorical anyway.
    n_functions : int
        Functions of each spline, counting the one left out; 5 have one knot, at the median.

    Attributes
    ----------
    features_ : list of str
        Features learned, in order.
    encoder_ : CovariateEncoder
        How covariates become columns.
    coefficients_ : ndarray of shape (n_columns, n_features)
        Change of each feature by unit of each column.
    center_ : ndarray of shape (n_columns,)
        Mean of each column among CN.
    n_controls_ : int
        CN the coefficients come from.
    """

    def __init__(
        self, smooth: Sequence[str] = (), categorical: Sequence[str] = (), n_functions: int = 5
    ) -> None:
        self.smooth = smooth
        self.categorical = categorical
        self.n_functions = n_functions

    def fit(
        self,
        X: pd.DataFrame | NDArray[Any],
        covariates: pd.DataFrame | ArrayLike,
        is_control: pd.Series[Any] | ArrayLike | None = None,
    ) -> Residualiser:
        """Estimate the coefficients.

        Parameters
        ----------
        X : frame or array of shape (n_people, n_features)
            Regional volumes.
        covariates : frame or array of shape (n_people, n_covariates)
            One row a person; frames are matched to `X` by person.
        is_control : array or Series of bool, optional
            Who is CN; None says that all given are.

        Raises
        ------
        DataError
            Missing values, too few CN for so many covariates, or covariates that explain each
            other.
        """
        table, covariate_table = _controls(X, covariates, is_control)
        self.features_ = [str(name) for name in table.columns]
        self.encoder_ = CovariateEncoder(self.smooth, self.categorical, self.n_functions)
        columns = self.encoder_.fit(covariate_table).transform(covariate_table)
        require_estimable(columns, self.encoder_.column_names_)
        self.center_ = columns.mean(axis=0)
        self.coefficients_ = centred_slopes(columns - self.center_, table.to_numpy())
        self.n_controls_ = len(table)
        return self

    def transform(self, X: Table, covariates: pd.DataFrame | ArrayLike) -> Table:
        """Residualise people, old or new; the result has the type of `X`, same unit.

        Raises
        ------
        DataError
            Other features, missing values (people and columns are named), or an unknown level.
        """
        table = order_features(as_features(X), self.features_)
        require_finite(table, 'features', FILL_OR_EXCLUDE)
        covariate_table = self.encoder_.select(as_covariates(covariates, table.index))
        require_covariates(covariate_table)
        self.encoder_.warn_beyond_range(covariate_table)
        away = self.encoder_.transform(covariate_table) - self.center_
        return like(table.to_numpy() - away @ self.coefficients_, X, table)

    def beyond_training_range(self, covariates: pd.DataFrame) -> pd.DataFrame:
        """Flag people for whom the coefficients are an extrapolation.

        Returns
        -------
        DataFrame of bool, people x numeric covariates
            True where the value lies outside what was seen among CN.
        """
        return self.encoder_.beyond_range(covariates)

    def to_arrays(self) -> dict[str, Any]:
        """Return the state: `coefficients` and `center` are float64 arrays, the rest is JSON."""
        return {
            'features': list(self.features_),
            'encoder': self.encoder_.to_json(),
            'n_controls': int(self.n_controls_),
            'coefficients': self.coefficients_,
            'center': self.center_,
        }

    @classmethod
    def from_arrays(cls, state: Mapping[str, Any]) -> Residualiser:
        """Rebuild a fitted residualiser from `to_arrays`."""
        encoder = CovariateEncoder.from_json(state['encoder'])
        residualiser = cls(encoder.smooth, encoder.categorical, encoder.n_functions)
        residualiser.features_ = list(state['features'])
        residualiser.encoder_ = encoder
        residualiser.n_controls_ = int(state['n_controls'])
        residualiser.coefficients_ = np.asarray(state['coefficients'], dtype=np.float64)
        residualiser.center_ = np.asarray(state['center'], dtype=np.float64)
        return residualiser


class CNNormaliser:
    """Scale every feature to mean 1 and sd 0.1 among CN: 1 + 0.1 (x - mean) / sd.

    Attributes
    ----------
    features_ : list of str
        Features learned, in order.
    mean_, sd_ : ndarray of shape (n_features,)
        Mean and population sd (divided by n, as the authors do) among CN, in the unit of `X`.
    n_controls_ : int
        CN they come from.
    """

    def fit(
        self,
        X: pd.DataFrame | NDArray[Any],
        is_control: pd.Series[Any] | ArrayLike | None = None,
    ) -> CNNormaliser:
        """Learn mean and sd from the CN among `X` (n_people, n_features); None: all are CN.

        Raises
        ------
        DataError
            Missing values, fewer than two CN, or features that do not vary among CN.
        """
        table, _ = _controls(X, None, is_control)
        if len(table) < 2:
            raise DataError(f'{len(table)} CN: a spread needs two at least')
        values = table.to_numpy()
        self.features_ = [str(name) for name in table.columns]
        self.n_controls_ = len(table)
        self.mean_, self.sd_ = values.mean(axis=0), values.std(axis=0)
        constant = self.sd_ <= CONSTANT * np.abs(values).max(axis=0)
        if constant.any():
            raise DataError(
                f'the same in all {len(table)} CN: {name_some(table.columns[constant])}; '
                'such features cannot be scaled, leave them out'
            )
        return self

    def transform(self, X: Table) -> Table:
        """Scale people, old or new; the result has the type of `X` and no unit."""
        table = order_features(as_features(X), self.features_)
        require_finite(table, 'features', FILL_OR_EXCLUDE)
        return like(CN_MEAN + CN_SD * (table.to_numpy() - self.mean_) / self.sd_, X, table)

    def inverse_transform(self, X: Table) -> Table:
        """Return normalised values to the unit they had."""
        table = order_features(as_features(X), self.features_)
        return like(self.mean_ + self.sd_ * (table.to_numpy() - CN_MEAN) / CN_SD, X, table)

    def to_arrays(self) -> dict[str, Any]:
        """Return the state: `mean` and `sd` are float64 arrays, the rest is JSON."""
        return {
            'features': list(self.features_),
            'n_controls': int(self.n_controls_),
            'mean': self.mean_,
            'sd': self.sd_,
        }

    @classmethod
    def from_arrays(cls, state: Mapping[str, Any]) -> CNNormaliser:
        """Rebuild a fitted normaliser from `to_arrays`."""
        normaliser = cls()
        normaliser.features_ = list(state['features'])
        normaliser.n_controls_ = int(state['n_controls'])
        normaliser.mean_ = np.asarray(state['mean'], dtype=np.float64)
        normaliser.sd_ = np.asarray(state['sd'], dtype=np.float64)
        return normaliser


def _controls(
    X: pd.DataFrame | NDArray[Any],
    covariates: pd.DataFrame | ArrayLike | None,
    is_control: pd.Series[Any] | ArrayLike | None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Keep the CN of features and covariates; neither may miss a value there."""
    table = as_features(X)
    covariate_table = as_covariates(covariates, table.index)
    if is_control is not None:
        keep = as_mask(is_control, table.index)
        table, covariate_table = table.loc[keep], covariate_table.loc[keep]
    if table.empty:
        raise DataError('no CN to learn from; say which group is the control group')
    require_finite(table, 'features', FILL_OR_EXCLUDE)
    require_covariates(covariate_table)
    return table, covariate_table
