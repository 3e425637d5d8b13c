"""Covariates, head size and missing values: all estimates come from controls (CN)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.encoding import (
    CONSTANT,
    FILL_OR_EXCLUDE,
    CovariateEncoder,
    Table,
    as_covariates,
    as_features,
    as_mask,
    as_vector,
    centred_slopes,
    like,
    order_features,
    require_covariates,
    require_estimable,
    require_finite,
)
from surreal_bids.text import list_briefly

LOGGER = logging.getLogger(__name__)

CN_MEAN = 1.0
"""Mean of every ROI among CN after normalisation (the authors' program, `Data_normalization`)."""

CN_SD = 0.1
"""Standard deviation (divided by n) of every ROI among CN after normalisation (same place)."""


class LearnedFromControls:
    """Base of the steps below: features and controls are checked, and the state is stored, here."""

    STORED: ClassVar[tuple[str, ...]]
    """Learned attributes without the trailing underscore: lists, numbers, arrays, the encoder."""
    features_: list[str]
    encoder_: CovariateEncoder

    def _controls(
        self,
        X: pd.DataFrame | NDArray[Any],
        covariates: pd.DataFrame | ArrayLike | None,
        is_control: pd.Series[Any] | ArrayLike | None,
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return features and covariates of the controls, who have all covariates."""
        table = as_features(X)
        self.features_ = [str(name) for name in table.columns]
        rows = as_covariates(covariates, table.index)
        if is_control is not None:
            keep = as_mask(is_control, table.index)
            table, rows = table.loc[keep], rows.loc[keep]
        if table.empty:
            raise DataError('the table has no controls (CN); name the control group')
        require_covariates(rows)
        return table, rows

    def _known_features(self, X: pd.DataFrame | NDArray[Any]) -> pd.DataFrame:
        """Return the features of `X` in the order of `fit`."""
        return order_features(as_features(X), self.features_)

    def _known_covariates(
        self, covariates: pd.DataFrame | ArrayLike, people: pd.Index[Any]
    ) -> NDArray[np.float64]:
        """Return the columns of the design matrix of these participants."""
        rows = self.encoder_.select(as_covariates(covariates, people))
        require_covariates(rows)
        return self.encoder_.transform(rows)

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
    features_ : list of str
        Names of the features in order.
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
        self,
        X: pd.DataFrame | NDArray[Any],
        covariates: pd.DataFrame | ArrayLike,
        is_control: pd.Series[Any] | ArrayLike | None = None,
    ) -> Residualiser:
        """Estimate the coefficients.

        Parameters
        ----------
        X : frame or array of shape (n, n_features)
            Regional volumes.
        covariates : frame or array of shape (n, n_covariates)
            One row per participant; frames are matched to `X` by participant.
        is_control : array or Series of bool, optional
            True for CN; None: all participants are CN.

        Returns
        -------
        Residualiser
            The fitted step.

        Raises
        ------
        DataError
            Missing values, too few CN for the covariates, or collinear covariates.
        """
        table, rows = self._controls(X, covariates, is_control)
        require_finite(table, 'features', FILL_OR_EXCLUDE)
        self.encoder_ = CovariateEncoder().fit(rows)
        columns = self.encoder_.transform(rows)
        require_estimable(columns, self.encoder_.column_names_)
        self.center_ = columns.mean(axis=0)
        self.coefficients_ = centred_slopes(columns - self.center_, table.to_numpy())
        self.n_controls_ = len(table)
        return self

    def transform(self, X: Table, covariates: pd.DataFrame | ArrayLike) -> Table:
        """Residualise participants; the result has the type and unit of `X`.

        Raises
        ------
        DataError
            Other features, missing values, or an unknown level.
        """
        table = self._known_features(X)
        require_finite(table, 'features', FILL_OR_EXCLUDE)
        away = self._known_covariates(covariates, table.index) - self.center_
        return like(table.to_numpy() - away @ self.coefficients_, X, table)

    def beyond_training_range(self, covariates: pd.DataFrame) -> pd.DataFrame:
        """Flag values outside the training range: booleans, participants x numeric covariates."""
        return self.encoder_.beyond_range(covariates)


class CNNormaliser(LearnedFromControls):
    """Scale each feature to mean 1 and sd 0.1 among CN: 1 + 0.1 (x - mean) / sd.

    Attributes
    ----------
    features_ : list of str
        Names of the features in order.
    mean_, sd_ : ndarray of shape (n_features,)
        Mean and population sd (divided by n, as the authors do) among CN, in the unit of `X`.
    n_controls_ : int
        Number of CN.
    """

    STORED = ('features', 'n_controls', 'mean', 'sd')

    def fit(
        self,
        X: pd.DataFrame | NDArray[Any],
        is_control: pd.Series[Any] | ArrayLike | None = None,
    ) -> CNNormaliser:
        """Estimate mean and sd from the CN of `X` (n, n_features); None: all are CN.

        Raises
        ------
        DataError
            Missing values, fewer than two CN, or features that do not vary among CN.
        """
        table, _ = self._controls(X, None, is_control)
        require_finite(table, 'features', FILL_OR_EXCLUDE)
        if len(table) < 2:
            raise DataError(
                f'the table has {len(table)} CN, but a standard deviation needs at least two'
            )
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

    def transform(self, X: Table) -> Table:
        """Scale participants; the result has the type of `X` and no unit."""
        table = self._known_features(X)
        require_finite(table, 'features', FILL_OR_EXCLUDE)
        return like(CN_MEAN + CN_SD * (table.to_numpy() - self.mean_) / self.sd_, X, table)


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
    features_ : list of str
        Names of the features in order.
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
        self,
        X: pd.DataFrame | NDArray[Any],
        covariates: pd.DataFrame | ArrayLike,
        is_control: pd.Series[Any] | ArrayLike | None = None,
    ) -> CNImputer:
        """Estimate the regression of each feature from the CN who have it.

        Parameters
        ----------
        X : frame or array of shape (n, n_features)
            Features with missing values.
        covariates : frame or array of shape (n, n_covariates)
            Covariates, complete among CN.
        is_control : Series or array of bool of shape (n,), optional
            True for CN; None: all participants are CN.

        Returns
        -------
        CNImputer
            The fitted step.

        Raises
        ------
        DataError
            Too few CN have a feature, or a covariate is missing.
        """
        table, rows = self._controls(X, covariates, is_control)
        self.encoder_ = CovariateEncoder(categorical=self.categorical).fit(rows)
        columns = self.encoder_.transform(rows)
        fitted = [self._fit_feature(columns, table[name]) for name in table.columns]
        self.intercept_ = np.array([intercept for intercept, _ in fitted])
        self.coefficients_ = np.array([slopes for _, slopes in fitted]).T
        return self

    def transform(self, X: Table, covariates: pd.DataFrame | ArrayLike) -> Table:
        """Fill missing values and log them; the result has the type of `X`."""
        table = self._known_features(X)
        missing = ~np.isfinite(table.to_numpy())
        lacking = missing.any(axis=1)
        values = table.to_numpy(copy=True)
        if lacking.any():
            rows = as_covariates(covariates, table.index).loc[lacking]
            columns = self._known_covariates(rows, rows.index)
            expected = self.intercept_ + columns @ self.coefficients_
            values[lacking] = np.where(missing[lacking], expected, values[lacking])
            LOGGER.info(
                '%d missing values were imputed by regression among CN: %s of %s',
                missing.sum(),
                list_briefly(table.columns[missing.any(axis=0)]),
                list_briefly(table.index[lacking]),
            )
        return like(values, X, table)

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
    X: pd.DataFrame,
    covariates: pd.DataFrame | None,
    icv: pd.Series[Any] | ArrayLike,
    how: ICVHandling,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Correct for head size, before harmonization and residualisation.

    Parameters
    ----------
    X : frame of shape (n, n_features)
        Regional volumes, mm3.
    covariates : frame of shape (n, n_covariates), optional
        Covariates.
    icv : Series or array of shape (n,)
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
        An ICV is missing or not positive, or a volume has no logarithm.
    """
    table = as_features(X)
    covariate_table = as_covariates(covariates, table.index)
    if how == 'none':
        return table, covariate_table
    if how not in get_args(ICVHandling):
        raise UsageError(f'unknown ICV handling {how!r}; use {", ".join(get_args(ICVHandling))}')
    volume = _positive(as_vector(icv, table.index, 'ICV'), table.index)
    if how == 'proportion':
        return table.div(volume, axis=0), covariate_table
    name = LOG_ICV if how == 'power' else ICV
    if name in covariate_table.columns:
        raise DataError(f'{name!r} is already a covariate and would be used twice; exclude it')
    if how == 'covariate':
        return table, covariate_table.assign(**{name: volume})
    return _logarithms(table), covariate_table.assign(**{name: np.log(volume)})


def _logarithms(table: pd.DataFrame) -> pd.DataFrame:
    """Compute natural logarithms of volumes; missing values stay missing."""
    wrong = table <= 0
    if wrong.any(axis=None):
        people, regions = table.index[wrong.any(axis=1)], table.columns[wrong.any(axis=0)]
        raise DataError(
            f'volumes of 0 or less cannot be corrected for head size with a log-log model: '
            f'{list_briefly(regions)} in {list_briefly(people)}; exclude the regions or the '
            'participants, impute (n/a for 0), or use --icv covariate'
        )
    return pd.DataFrame(np.log(table.to_numpy()), table.index, table.columns)


def _positive(icv: Any, people: pd.Index[Any]) -> Any:
    volume = np.asarray(icv, dtype=np.float64)
    wrong = ~(np.isfinite(volume) & (volume > 0))
    if wrong.any():
        raise DataError(
            f'ICV is missing or not positive in {list_briefly(people[wrong])}; complete the '
            'table or exclude these participants'
        )
    return volume
