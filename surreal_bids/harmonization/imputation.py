"""Missing feature values: what a control of the same covariates would have."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.encoding import CovariateEncoder, require_covariates
from surreal_bids.harmonization.regression import centred_slopes, require_estimable
from surreal_bids.harmonization.tables import (
    Table,
    as_covariates,
    as_features,
    as_mask,
    like,
    name_some,
    order_features,
)

LOGGER = logging.getLogger(__name__)


class CNImputer:
    """Replace a missing feature by the prediction of a linear regression among CN.

    Imputed patients look healthier than they are in the imputed region, so that this suits a few
    missing values, not a region that half the people lack. Before ComBat, put the site among the
    covariates: the value then carries the shift of its site, which ComBat will remove.

    Parameters
    ----------
    categorical : sequence of str
        Covariates whose numbers are names of levels. Text is categorical anyway.

    Attributes
    ----------
    features_ : list of str
        Features learned, in order.
    encoder_ : CovariateEncoder
        How covariates become columns.
    intercept_ : ndarray of shape (n_features,)
        Prediction where all columns are 0.
    coefficients_ : ndarray of shape (n_columns, n_features)
        Change of the prediction by unit of each column.
    """

    def __init__(self, categorical: Sequence[str] = ()) -> None:
        self.categorical = categorical

    def fit(
        self,
        X: pd.DataFrame | NDArray[Any],
        covariates: pd.DataFrame | ArrayLike,
        is_control: pd.Series[Any] | ArrayLike | None = None,
    ) -> CNImputer:
        """Learn each feature from the CN who have it.

        Parameters
        ----------
        X : frame or array of shape (n_people, n_features)
            Features, with missing values.
        covariates : frame or array of shape (n_people, n_covariates)
            Covariates, complete among CN.
        is_control : Series or array of bool of shape (n_people,), optional
            Who is CN; None says that all given are.

        Raises
        ------
        DataError
            Too few CN have a feature, or a covariate is missing.
        """
        table = as_features(X)
        rows = as_covariates(covariates, table.index)
        keep = np.ones(len(table), bool) if is_control is None else as_mask(is_control, table.index)
        table, rows = table.loc[keep], rows.loc[keep]
        require_covariates(rows)
        self.features_ = [str(name) for name in table.columns]
        self.encoder_ = CovariateEncoder(categorical=self.categorical).fit(rows)
        columns = self.encoder_.transform(rows)
        fitted = [self._fit_feature(columns, table[name]) for name in table.columns]
        self.intercept_ = np.array([intercept for intercept, _ in fitted])
        self.coefficients_ = np.array([slopes for _, slopes in fitted]).T
        return self

    def transform(self, X: Table, covariates: pd.DataFrame | ArrayLike) -> Table:
        """Fill missing values and log whose and which; the result has the type of `X`."""
        table = order_features(as_features(X), self.features_)
        missing = ~np.isfinite(table.to_numpy())
        lacking = missing.any(axis=1)
        values = table.to_numpy(copy=True)
        if lacking.any():
            rows = self.encoder_.select(as_covariates(covariates, table.index).loc[lacking])
            require_covariates(rows)
            expected = self.intercept_ + self.encoder_.transform(rows) @ self.coefficients_
            values[lacking] = np.where(missing[lacking], expected, values[lacking])
            LOGGER.warning(
                'imputed by CN regression: %d values of %s in %s',
                missing.sum(),
                name_some(table.index[lacking]),
                name_some(table.columns[missing.any(axis=0)]),
            )
        return like(values, X, table)

    def to_arrays(self) -> dict[str, Any]:
        """Return the state: `intercept` and `coefficients` are float64 arrays, the rest JSON."""
        return {
            'features': list(self.features_),
            'encoder': self.encoder_.to_json(),
            'intercept': self.intercept_,
            'coefficients': self.coefficients_,
        }

    @classmethod
    def from_arrays(cls, state: Mapping[str, Any]) -> CNImputer:
        """Rebuild a fitted imputer from `to_arrays`."""
        encoder = CovariateEncoder.from_json(state['encoder'])
        imputer = cls(encoder.categorical)
        imputer.features_, imputer.encoder_ = list(state['features']), encoder
        imputer.intercept_ = np.asarray(state['intercept'], dtype=np.float64)
        imputer.coefficients_ = np.asarray(state['coefficients'], dtype=np.float64)
        return imputer

    def _fit_feature(
        self, columns: NDArray[np.float64], feature: pd.Series[float]
    ) -> tuple[float, NDArray[np.float64]]:
        """Return intercept and slopes (n_columns,) from the people who have the feature."""
        there = np.isfinite(feature.to_numpy())
        try:
            require_estimable(columns[there], self.encoder_.column_names_)
        except DataError as error:
            raise DataError(f'feature {feature.name} cannot be imputed: {error}') from error
        center = columns[there].mean(axis=0)
        values = feature.to_numpy()[there]
        slopes = centred_slopes(columns[there] - center, values[:, None])[:, 0]
        return float(values.mean() - center @ slopes), slopes
