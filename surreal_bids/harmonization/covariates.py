"""Covariates, head size and missing values, all learned from controls."""

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


class Stored:
    """What is learned, as plain values and back: attributes that end in an underscore."""

    STORED: ClassVar[tuple[str, ...]]
    """Names of the attributes, less the underscore: lists, numbers, arrays, and the encoder."""

    def to_arrays(self) -> dict[str, Any]:
        """Return the state: float64 arrays and plain JSON values."""
        state = {name: getattr(self, f'{name}_') for name in self.STORED}
        if 'encoder' in state:
            state['encoder'] = state['encoder'].to_json()
        return state

    @classmethod
    def from_arrays(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild from `to_arrays`."""
        learned = cls()
        for name in cls.STORED:
            value = state[name]
            if name == 'encoder':
                value = CovariateEncoder.from_json(value)
            elif isinstance(value, np.ndarray):
                value = value.astype(np.float64, copy=False)
            setattr(learned, f'{name}_', value)
        return learned


class Residualiser(Stored):
    """Remove what covariates explain of each feature, with coefficients from CN only.

    The features become those of a participant with the mean covariates of CN,
    x - (c - mean(c)) beta, so that means and units stay. Coefficients are ordinary least squares
    with an intercept; up to a constant that CN normalisation removes, this is the authors'
    `Covariate_correction`.

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
            Who is CN; None: everyone.

        Raises
        ------
        DataError
            Missing values, too few CN for so many covariates, or covariates that explain each
            other.
        """
        table, covariate_table = _controls(X, covariates, is_control)
        self.features_ = [str(name) for name in table.columns]
        self.encoder_ = CovariateEncoder().fit(covariate_table)
        columns = self.encoder_.transform(covariate_table)
        require_estimable(columns, self.encoder_.column_names_)
        self.center_ = columns.mean(axis=0)
        self.coefficients_ = centred_slopes(columns - self.center_, table.to_numpy())
        self.n_controls_ = len(table)
        return self

    def transform(self, X: Table, covariates: pd.DataFrame | ArrayLike) -> Table:
        """Residualise participants, old or new; the result has the type and the unit of `X`.

        Raises
        ------
        DataError
            Other features, missing values, or an unknown level.
        """
        table = order_features(as_features(X), self.features_)
        require_finite(table, 'features', FILL_OR_EXCLUDE)
        covariate_table = self.encoder_.select(as_covariates(covariates, table.index))
        require_covariates(covariate_table)
        away = self.encoder_.transform(covariate_table) - self.center_
        return like(table.to_numpy() - away @ self.coefficients_, X, table)

    def beyond_training_range(self, covariates: pd.DataFrame) -> pd.DataFrame:
        """Flag participants for whom the coefficients are an extrapolation.

        Returns
        -------
        DataFrame of bool, participants x numeric covariates
            True where the value lies outside the training range.
        """
        return self.encoder_.beyond_range(covariates)


class CNNormaliser(Stored):
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

    STORED = ('features', 'n_controls', 'mean', 'sd')

    def fit(
        self,
        X: pd.DataFrame | NDArray[Any],
        is_control: pd.Series[Any] | ArrayLike | None = None,
    ) -> CNNormaliser:
        """Learn mean and sd from the CN among `X` (n, n_features); None: all are CN.

        Raises
        ------
        DataError
            Missing values, fewer than two CN, or features that do not vary among CN.
        """
        table, _ = _controls(X, None, is_control)
        if len(table) < 2:
            raise DataError(f'{len(table)} CN; the minimum to estimate a spread is two')
        values = table.to_numpy()
        self.features_ = [str(name) for name in table.columns]
        self.n_controls_ = len(table)
        self.mean_, self.sd_ = values.mean(axis=0), values.std(axis=0)
        constant = self.sd_ <= CONSTANT * np.abs(values).max(axis=0)
        if constant.any():
            raise DataError(
                f'the same in all {len(table)} CN: {list_briefly(table.columns[constant])}; '
                'exclude these features, which cannot be scaled'
            )
        return self

    def transform(self, X: Table) -> Table:
        """Scale participants, old or new; the result has the type of `X` and no unit."""
        table = order_features(as_features(X), self.features_)
        require_finite(table, 'features', FILL_OR_EXCLUDE)
        return like(CN_MEAN + CN_SD * (table.to_numpy() - self.mean_) / self.sd_, X, table)

    def inverse_transform(self, X: Table) -> Table:
        """Return normalised values to the unit they had."""
        table = order_features(as_features(X), self.features_)
        return like(self.mean_ + self.sd_ * (table.to_numpy() - CN_MEAN) / CN_SD, X, table)


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
        raise DataError('no CN to learn from; name the control group')
    require_finite(table, 'features', FILL_OR_EXCLUDE)
    require_covariates(covariate_table)
    return table, covariate_table


class CNImputer(Stored):
    """Replace a missing feature by the prediction of a linear regression among CN.

    Imputed patients look healthier than they are in the imputed region, so that this suits a few
    missing values, not a region that half the participants lack. Before ComBat, put the site among
    the covariates: the value then carries the shift of its site, which ComBat will remove.

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

    STORED = ('features', 'encoder', 'intercept', 'coefficients')

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
        X : frame or array of shape (n, n_features)
            Features, with missing values.
        covariates : frame or array of shape (n, n_covariates)
            Covariates, complete among CN.
        is_control : Series or array of bool of shape (n,), optional
            Who is CN; None: everyone.

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
            LOGGER.info(
                'imputed by CN regression: %d values of %s in %s',
                missing.sum(),
                list_briefly(table.index[lacking]),
                list_briefly(table.columns[missing.any(axis=0)]),
            )
        return like(values, X, table)

    def _fit_feature(
        self, columns: NDArray[np.float64], feature: pd.Series[float]
    ) -> tuple[float, NDArray[np.float64]]:
        """Return intercept and slopes (n_columns,) from the CN who have the feature."""
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
    """Account for head size, before harmonization and residualisation.

    Parameters
    ----------
    X : frame of shape (n, n_features)
        Regional volumes, mm3.
    covariates : frame of shape (n, n_covariates), optional
        Covariates so far.
    icv : Series or array of shape (n,)
        Intracranial volume in the unit of `X`.
    how : {'power', 'covariate', 'proportion', 'none'}
        Take logarithms of volumes and ICV, add ICV to the covariates, divide by it, or do nothing.
        With logarithms, a region goes with a power of the ICV that is learned (Liu et al. 2014,
        doi:10.3389/fnins.2014.00356), and all covariates and sites act by ratio: the same share is
        lost by a large head and by a small one, which a difference in mm3 would not say.

    Returns
    -------
    X, covariates : frames
        Features (logarithms with `power`, divided by ICV with `proportion`) and covariates (with
        `log_icv` for `power`, `icv` for `covariate`).

    Raises
    ------
    DataError
        An ICV is missing or not positive where it is used; a volume has no logarithm.
    """
    table = as_features(X)
    covariate_table = as_covariates(covariates, table.index)
    if how == 'none':
        return table, covariate_table
    if how not in get_args(ICVHandling):
        raise UsageError(f'ICV handling {how!r}: choose {", ".join(get_args(ICVHandling))}')
    volume = _positive(as_vector(icv, table.index, 'ICV'), table.index)
    if how == 'proportion':
        return table.div(volume, axis=0), covariate_table
    name = LOG_ICV if how == 'power' else ICV
    if name in covariate_table.columns:
        raise DataError(f'the covariates already hold {name!r}: ICV would count twice; exclude it')
    if how == 'covariate':
        return table, covariate_table.assign(**{name: volume})
    return _logarithms(table), covariate_table.assign(**{name: np.log(volume)})


def _logarithms(table: pd.DataFrame) -> pd.DataFrame:
    """Natural logarithms of volumes; missing ones stay missing."""
    wrong = table <= 0
    if wrong.any(axis=None):
        people, regions = table.index[wrong.any(axis=1)], table.columns[wrong.any(axis=0)]
        raise DataError(
            f'no volume (0 or less) of {list_briefly(regions)} in {list_briefly(people)}, so that '
            'head '
            'size cannot be removed by ratio; exclude the regions or the participants, impute (n/a '
            'for 0), or use --icv covariate'
        )
    return pd.DataFrame(np.log(table.to_numpy()), table.index, table.columns)


def _positive(icv: Any, people: pd.Index[Any]) -> Any:
    volume = np.asarray(icv, dtype=np.float64)
    wrong = ~(np.isfinite(volume) & (volume > 0))
    if wrong.any():
        raise DataError(
            f'ICV missing or not positive: {list_briefly(people[wrong])}; complete or exclude them'
        )
    return volume
