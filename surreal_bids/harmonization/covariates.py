"""Covariates, head size and missing values: all estimates come from controls (CN)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.encoding import (
    CONSTANT,
    CovariateEncoder,
    centred_slopes,
    require_estimable,
)
from surreal_bids.text import list_briefly

LOGGER = logging.getLogger(__name__)

CN_MEAN = 1.0
"""Mean of every ROI among CN after normalisation (the authors' program, `Data_normalization`)."""

CN_SD = 0.1
"""Standard deviation (divided by n) of every ROI among CN after normalisation (same place)."""


class LearnedFromControls:
    """Base of the steps below. Tables are complete, and have the features in the same order."""

    STORED: ClassVar[tuple[str, ...]]
    """Learned attributes without the trailing underscore: lists, numbers, arrays, the encoder."""
    features_: list[str]

    def _controls(self, X: pd.DataFrame, is_control: ArrayLike | None) -> pd.DataFrame:
        """Return the features of the controls; None: all participants are controls."""
        self.features_ = [str(name) for name in X.columns]
        return X if is_control is None else X.loc[np.asarray(is_control, dtype=bool)]

    def to_arrays(self) -> dict[str, Any]:
        """Return the state as float64 arrays and plain JSON values."""
        state = {name: getattr(self, f'{name}_') for name in self.STORED}
        if 'encoder' in state:
            state['encoder'] = state['encoder'].to_json()
        return state

    @classmethod
    def from_arrays(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild a fitted step from `to_arrays`."""
        learned = cls()
        for name in cls.STORED:
            value = state[name]
            if name == 'encoder':
                value = CovariateEncoder.from_json(value)
            elif isinstance(value, np.ndarray):
                value = value.astype(np.float64, copy=False)
            setattr(learned, f'{name}_', value)
        return learned


class Residualiser(LearnedFromControls):
    """Remove the effects of covariates from each feature, with coefficients from CN only.

    x - (c - mean(c)) beta is the feature of a participant with the mean covariates of CN. Means
    and units are preserved. Coefficients are ordinary least squares with an intercept. This equals
    the authors' `Covariate_correction` up to a constant that CN normalisation removes.

    Attributes
    ----------
    encoder_ : CovariateEncoder
        Converts covariates into columns of the design matrix.
    coefficients_ : ndarray of shape (n_columns, n_features)
        Change of each feature per unit of each column.
    center_ : ndarray of shape (n_columns,)
        Mean of each column among CN.
    n_controls_ : int
        Number of CN used for the coefficients.
    """

    STORED = ('features', 'encoder', 'n_controls', 'coefficients', 'center')

    def fit(
        self, X: pd.DataFrame, covariates: pd.DataFrame, is_control: ArrayLike | None = None
    ) -> Residualiser:
        """Estimate the coefficients.

        Parameters
        ----------
        X : frame of shape (n, n_features)
            Regional volumes.
        covariates : frame of shape (n, n_covariates)
            One row per participant, matched to `X` by participant.
        is_control : array or Series of bool, optional
            True for CN; None: all participants are CN.

        Raises
        ------
        DataError
            Too few CN for the covariates, or collinear covariates.
        """
        table = self._controls(X, is_control)
        rows = covariates.loc[table.index]
        self.encoder_ = CovariateEncoder().fit(rows)
        columns = self.encoder_.transform(rows)
        require_estimable(columns, self.encoder_.column_names_)
        self.center_ = columns.mean(axis=0)
        self.coefficients_ = centred_slopes(columns - self.center_, table.to_numpy())
        self.n_controls_ = len(table)
        return self

    def transform(self, X: pd.DataFrame, covariates: pd.DataFrame) -> pd.DataFrame:
        """Residualise participants; the result has the unit of `X`.

        Raises
        ------
        DataError
            An unknown level of a covariate.
        """
        table = X[self.features_]
        away = self.encoder_.transform(covariates.loc[table.index]) - self.center_
        values = table.to_numpy() - away @ self.coefficients_
        return pd.DataFrame(values, table.index, table.columns)


class CNNormaliser(LearnedFromControls):
    """Scale each feature to mean 1 and sd 0.1 among CN: 1 + 0.1 (x - mean) / sd.

    Attributes
    ----------
    mean_, sd_ : ndarray of shape (n_features,)
        Mean and population sd (divided by n, as the authors do) among CN, in the unit of `X`.
    n_controls_ : int
        Number of CN.
    """

    STORED = ('features', 'n_controls', 'mean', 'sd')

    def fit(self, X: pd.DataFrame, is_control: ArrayLike | None = None) -> CNNormaliser:
        """Estimate mean and sd from the CN of `X` (n, n_features); None: all are CN.

        Raises
        ------
        DataError
            Features do not vary among CN.
        """
        table = self._controls(X, is_control)
        values = table.to_numpy()
        self.n_controls_ = len(table)
        self.mean_, self.sd_ = values.mean(axis=0), values.std(axis=0)
        constant = self.sd_ <= CONSTANT * np.abs(values).max(axis=0)
        if constant.any():
            raise DataError(
                f'all {len(table)} CN have the same value of '
                f'{list_briefly(table.columns[constant])}; exclude these features, because they '
                'cannot be scaled'
            )
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """Scale participants; the result has no unit."""
        table = X[self.features_]
        values = CN_MEAN + CN_SD * (table.to_numpy() - self.mean_) / self.sd_
        return pd.DataFrame(values, table.index, table.columns)


class CNImputer(LearnedFromControls):
    """Replace missing features by the predictions of a linear regression among CN.

    Imputed regions of patients look healthier than they are. Impute a few missing values, not a
    region that half the participants lack. Before ComBat, include the site in the covariates: the
    imputed value then contains the shift of its site, which ComBat removes.

    Parameters
    ----------
    categorical : sequence of str
        Numeric covariates that are categories, such as a scanner number. Text is always
        categorical.

    Attributes
    ----------
    encoder_ : CovariateEncoder
        Converts covariates into columns of the design matrix.
    intercept_ : ndarray of shape (n_features,)
        Prediction if all columns are 0.
    coefficients_ : ndarray of shape (n_columns, n_features)
        Change of the prediction per unit of each column.
    """

    STORED = ('features', 'encoder', 'intercept', 'coefficients')

    def __init__(self, categorical: Sequence[str] = ()) -> None:
        self.categorical = categorical

    def fit(
        self, X: pd.DataFrame, covariates: pd.DataFrame, is_control: ArrayLike | None = None
    ) -> CNImputer:
        """Estimate the regression of each feature from the CN who have it.

        Parameters
        ----------
        X : frame of shape (n, n_features)
            Features with missing values.
        covariates : frame of shape (n, n_covariates)
            Covariates, complete among CN.
        is_control : array or Series of bool, optional
            True for CN; None: all participants are CN.

        Raises
        ------
        DataError
            Too few CN have a feature.
        """
        table = self._controls(X, is_control)
        rows = covariates.loc[table.index]
        self.encoder_ = CovariateEncoder(categorical=self.categorical).fit(rows)
        columns = self.encoder_.transform(rows)
        fitted = [self._fit_feature(columns, table[name]) for name in table.columns]
        self.intercept_ = np.array([intercept for intercept, _ in fitted])
        self.coefficients_ = np.array([slopes for _, slopes in fitted]).T
        return self

    def transform(self, X: pd.DataFrame, covariates: pd.DataFrame) -> pd.DataFrame:
        """Fill missing values and log them."""
        table = X[self.features_]
        missing = ~np.isfinite(table.to_numpy())
        lacking = missing.any(axis=1)
        values = table.to_numpy(copy=True)
        if lacking.any():
            columns = self.encoder_.transform(covariates.loc[table.index].loc[lacking])
            expected = self.intercept_ + columns @ self.coefficients_
            values[lacking] = np.where(missing[lacking], expected, values[lacking])
            LOGGER.info(
                '%d missing values were imputed by regression among CN: %s of %s',
                missing.sum(),
                list_briefly(table.columns[missing.any(axis=0)]),
                list_briefly(table.index[lacking]),
            )
        return pd.DataFrame(values, table.index, table.columns)

    def _fit_feature(
        self, columns: NDArray[np.float64], feature: pd.Series[float]
    ) -> tuple[float, NDArray[np.float64]]:
        """Estimate intercept and slopes (n_columns,) from the CN who have the feature."""
        there = np.isfinite(feature.to_numpy())
        try:
            require_estimable(columns[there], self.encoder_.column_names_)
        except DataError as error:
            raise DataError(f'feature {feature.name} cannot be imputed: {error}') from error
        center = columns[there].mean(axis=0)
        values = feature.to_numpy()[there]
        slopes = centred_slopes(columns[there] - center, values[:, None])[:, 0]
        return float(values.mean() - center @ slopes), slopes


ICVHandling = Literal['power', 'covariate', 'proportion', 'none']

ICV, LOG_ICV = 'icv', 'log_icv'
"""Names of the covariates that `covariate` and `power` add."""


def handle_icv(
    X: pd.DataFrame, covariates: pd.DataFrame, icv: pd.Series[Any], how: ICVHandling
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Correct for head size, before harmonization and residualisation.

    Parameters
    ----------
    X : frame of shape (n, n_features)
        Regional volumes, mm3.
    covariates : frame of shape (n, n_covariates)
        Covariates.
    icv : Series of shape (n,)
        Intracranial volume in the unit of `X`.
    how : {'power', 'covariate', 'proportion', 'none'}
        Use an allometric (log-log) model, add ICV to the covariates, divide volumes by ICV, or do
        nothing. With `power`, volumes and ICV are log-transformed, and a region scales with a
        power of the ICV that is estimated (Liu et al. 2014, doi:10.3389/fnins.2014.00356).
        Covariates and sites then act as ratios: the same proportion of a volume is lost in large
        and in small heads.

    Returns
    -------
    X, covariates : frames
        Features (logarithms with `power`, divided by ICV with `proportion`) and covariates (with
        `log_icv` for `power`, `icv` for `covariate`).

    Raises
    ------
    DataError
        An ICV is not positive, or a volume has no logarithm.
    """
    if how == 'none':
        return X, covariates
    _require_positive(icv.to_frame(), 'complete the table or exclude these participants')
    if how == 'proportion':
        return X.div(icv, axis=0), covariates
    name = LOG_ICV if how == 'power' else ICV
    if name in covariates.columns:
        raise DataError(f'{name!r} is already a covariate and would be used twice; exclude it')
    if how == 'covariate':
        return X, covariates.assign(**{name: icv})
    _require_positive(
        X,
        'volumes cannot be corrected for head size with a log-log model: exclude the regions or '
        'the participants, impute (n/a for 0), or use --icv covariate',
    )
    logarithms = pd.DataFrame(np.log(X.to_numpy()), X.index, X.columns)
    return logarithms, covariates.assign(**{name: np.log(icv)})


def _require_positive(table: pd.DataFrame, remedy: str) -> None:
    """Raise an error that names volumes of 0 or less; missing values are allowed."""
    wrong = table <= 0
    if wrong.any(axis=None):
        people, columns = table.index[wrong.any(axis=1)], table.columns[wrong.any(axis=0)]
        raise DataError(
            f'volumes of 0 or less: {list_briefly(columns)} in {list_briefly(people)}; {remedy}'
        )
