"""Covariates as columns of a design matrix, and regressions on sites and covariates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.exceptions import DataError
from surreal_bids.stats.mixed import fit_random_intercepts
from surreal_bids.text import counted, list_briefly

TOLERATED = 0.05
"""How far a covariate may exceed its range in training, as a part of the range: without it, the
oldest control would be flagged whenever another fold is trained on."""

CONSTANT = 1e-10
"""A feature is constant if it varies by less than this share of its largest value."""

FILL_OR_EXCLUDE = 'complete the table, exclude these participants, or impute'
"""Remedies for missing feature values."""


def as_labels(values: pd.Series[Any] | ArrayLike) -> NDArray[np.str_]:
    """Read names of levels or sites as text.

    3 and 3.0 are the same name, because a column of integers with a missing value becomes float.
    """
    return np.array([_label(value) for value in np.asarray(values, dtype=object)], dtype=str)


def _label(value: Any) -> str:
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def require_finite(table: pd.DataFrame, what: str, remedy: str) -> None:
    """Raise an error that lists participants and columns with missing or infinite values."""
    wrong = ~np.isfinite(table.to_numpy(dtype=np.float64))
    if wrong.any():
        people = table.index[wrong.any(axis=1)]
        columns = table.columns[wrong.any(axis=0)]
        raise DataError(
            f'{what}: missing or infinite values for {counted(len(people), "participant")} '
            f'({list_briefly(people)}) in {list_briefly(columns)}; {remedy}'
        )


def is_clearly_outside(values: pd.Series, low: float, high: float) -> pd.Series:
    """Tell which values exceed a range by more than a small part of it; missing ones do not."""
    margin = TOLERATED * (high - low)
    return (values < low - margin) | (values > high + margin)


class CovariateEncoder:
    """Convert a table of covariates into the columns of a design matrix.

    A numeric covariate is one column. Text (sex as F and M, diagnosis) becomes one column per
    level except the first in alphabetical order.

    Parameters
    ----------
    categorical : sequence of str
        Numeric covariates that are categories, such as a scanner number.

    Attributes
    ----------
    levels_ : dict of str to list of str
        Levels of each categorical covariate, the reference level first.
    range_ : dict of str to (float, float)
        Minimum and maximum of each numeric covariate.
    covariates_ : list of str
        Names of the covariates in order.
    """

    def __init__(self, categorical: Sequence[str] = ()) -> None:
        self.categorical = categorical

    def fit(self, covariates: pd.DataFrame) -> CovariateEncoder:
        """Learn levels and ranges from `covariates`, which has no missing values.

        Raises
        ------
        DataError
            A covariate has one value only.
        """
        self.covariates_ = [str(name) for name in covariates.columns]
        table = covariates.set_axis(self.covariates_, axis=1)
        text = {name for name in self.covariates_ if self._is_categorical(table[name])}
        for name in self.covariates_:
            if table[name].nunique() < 2:
                raise DataError(
                    f'covariate {name} is the same in all {len(table)} participants used for '
                    'fitting, and its effect cannot be estimated; exclude it'
                )
        self.levels_ = {name: np.unique(as_labels(table[name])).tolist() for name in sorted(text)}
        numbers = {name: _to_numbers(table[name]) for name in self.covariates_ if name not in text}
        self.range_ = {name: (float(x.min()), float(x.max())) for name, x in numbers.items()}
        return self

    def transform(self, covariates: pd.DataFrame) -> NDArray[np.float64]:
        """Build the columns (n, n_columns) for participants without a missing covariate.

        Raises
        ------
        DataError
            A level is unknown, or a number is text.
        """
        blocks = [self._encode(covariates[name]) for name in self.covariates_]
        return np.hstack([np.empty((len(covariates), 0)), *blocks])

    @property
    def column_names_(self) -> list[str]:
        """Names of the columns, such as `age` and `sex[M]`."""
        return [
            column
            for name in self.covariates_
            for column in (
                [f'{name}[{level}]' for level in self.levels_[name][1:]]
                if name in self.levels_
                else [name]
            )
        ]

    def beyond_range(self, covariates: pd.DataFrame) -> pd.DataFrame:
        """Flag values clearly outside the training range.

        Returns
        -------
        DataFrame of booleans, participants x numeric covariates
            Whether a value exceeds the range by more than a small part of it (`TOLERATED`).
        """
        flags = {
            name: is_clearly_outside(_to_numbers(covariates[name]), low, high)
            for name, (low, high) in self.range_.items()
        }
        return pd.DataFrame(flags, covariates.index, list(self.range_), dtype=bool)

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {
            'categorical': list(self.categorical),
            'covariates': list(self.covariates_),
            'levels': {name: list(levels) for name, levels in self.levels_.items()},
            'range': {name: list(bounds) for name, bounds in self.range_.items()},
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> CovariateEncoder:
        """Rebuild an encoder from `to_json`."""
        encoder = cls(tuple(state['categorical']))
        encoder.covariates_ = list(state['covariates'])
        encoder.levels_ = {name: list(levels) for name, levels in state['levels'].items()}
        encoder.range_ = {name: (low, high) for name, (low, high) in state['range'].items()}
        return encoder

    def _is_categorical(self, values: pd.Series[Any]) -> bool:
        if str(values.name) in self.categorical:
            return True
        return bool(pd.to_numeric(values, errors='coerce').isna().any())

    def _encode(self, values: pd.Series[Any]) -> NDArray[np.float64]:
        name = str(values.name)
        if name in self.levels_:
            return _one_hot(values, self.levels_[name])
        return np.asarray(_to_numbers(values), dtype=np.float64)[:, None]


def missing_covariates(covariates: pd.DataFrame) -> NDArray[np.bool_]:
    """Mark participants with a missing or infinite covariate: booleans (n,)."""
    numbers = covariates.select_dtypes('number')
    infinite = np.isinf(numbers.to_numpy(dtype=np.float64)).any(axis=1)
    return covariates.isna().any(axis=1).to_numpy() | infinite


def _to_numbers(values: pd.Series[Any]) -> pd.Series[float]:
    numbers = pd.to_numeric(values, errors='coerce').astype(np.float64)
    text = values[numbers.isna() & values.notna()]
    if len(text):
        raise DataError(
            f'covariate {values.name}: numbers expected, found '
            f'{list_briefly(text.unique().tolist())} ({list_briefly(text.index)}); use the '
            'coding of the training sample'
        )
    return numbers


def _one_hot(values: pd.Series[Any], levels: Sequence[str]) -> NDArray[np.float64]:
    text = as_labels(values)
    unknown = ~np.isin(text, levels)
    if unknown.any():
        found = np.unique(text[unknown]).tolist()
        raise DataError(
            f'covariate {values.name}: unknown level {list_briefly(found)} '
            f'({list_briefly(values.index[unknown])}); the model has {list_briefly(levels)}'
        )
    return (text[:, None] == np.asarray(levels[1:])[None, :]).astype(np.float64)


COLLINEAR = 1e-8
"""Singular values of the scaled covariates below this share of the largest count as zero."""


def group_means(
    values: NDArray[np.float64], codes: NDArray[np.intp], n_groups: int
) -> NDArray[np.float64]:
    """Compute the mean of the rows of `values` (n, m) in each group: shape (n_groups, m).

    `codes` (n,) is the index of the group of each row. No group is empty.
    """
    order = np.argsort(codes, kind='stable')
    counts = np.bincount(codes, minlength=n_groups)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    sums = (
        np.add.reduceat(values[order], starts, axis=0) if values.size else np.zeros((n_groups, 0))
    )
    return sums / counts[:, None]


def fit_site_regression(
    X: NDArray[np.float64], columns: NDArray[np.float64], codes: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Regress features on site and covariates by ordinary least squares.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Features.
    columns : ndarray of shape (n, n_columns)
        Encoded covariates.
    codes : ndarray of shape (n,)
        Index of each participant's site.

    Returns
    -------
    site_means : ndarray of shape (n_sites, n_features)
        Value of each feature at each site if all covariate columns are 0.
    slopes : ndarray of shape (n_columns, n_features)
        Effects of the covariates, shared by all sites.
    """
    n_sites = int(codes.max()) + 1
    column_means = group_means(columns, codes, n_sites)
    feature_means = group_means(X, codes, n_sites)
    within, X_within = columns - column_means[codes], X - feature_means[codes]
    gram, cross = within.T @ within, within.T @ X_within
    # Columns are scaled first, because ICV is a million times sex.
    scale = np.sqrt(np.where(np.diag(gram) > 0, np.diag(gram), 1.0))
    scaled = np.linalg.solve(gram / np.outer(scale, scale), cross / scale[:, None])
    slopes: NDArray[np.float64] = scaled / scale[:, None]
    return feature_means - column_means @ slopes, slopes


class VisitRegression(NamedTuple):
    """Features regressed on site, covariates and participant.

    Attributes
    ----------
    site_means, slopes : ndarrays of shape (n_sites, n_features) and (n_columns, n_features)
        As of :func:`fit_site_regression`, by generalised least squares.
    sigma : ndarray of shape (n_features,)
        Residual standard deviation.
    intercepts : ndarray of shape (n, n_features)
        Random intercept of the participant of each row.
    shift_error : ndarray of shape (n_sites, n_sites)
        Variance of the difference of two site means, in residual variances; the mean of features.
    """

    site_means: NDArray[np.float64]
    slopes: NDArray[np.float64]
    sigma: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    shift_error: NDArray[np.float64]


def fit_visit_regression(
    X: NDArray[np.float64],
    columns: NDArray[np.float64],
    codes: NDArray[np.intp],
    participants: NDArray[np.intp],
) -> VisitRegression:
    """Regress features of visits on site and covariates, with a random intercept per participant.

    Parameters
    ----------
    X, columns, codes
        As of :func:`fit_site_regression`, one row per visit.
    participants : ndarray of shape (n,)
        Number of the participant of each visit.
    """
    n_sites = int(codes.max()) + 1
    # Columns are scaled first, because ICV is a million times sex.
    center, scale = columns.mean(axis=0), columns.std(axis=0)
    design = np.hstack([np.eye(n_sites)[codes], (columns - center) / scale])
    fitted = fit_random_intercepts(X, design, participants)
    slopes = fitted.coefficients[n_sites:] / scale[:, None]
    covariance = fitted.covariance[:n_sites, :n_sites]
    variance = np.diag(covariance)
    return VisitRegression(
        fitted.coefficients[:n_sites] - center @ slopes,
        slopes,
        fitted.sigma,
        fitted.intercepts,
        variance[:, None] + variance - 2 * covariance,
    )


def require_separable(
    columns: NDArray[np.float64],
    names: Sequence[str],
    codes: NDArray[np.intp],
    sites: Sequence[str],
) -> None:
    """Raise an error for covariates that are confounded with site.

    Raises
    ------
    DataError
        A covariate does not vary within any site, or covariates are collinear within sites.
    """
    within = columns - group_means(columns, codes, len(sites))[codes]
    spread = columns.std(axis=0)
    stuck = within.std(axis=0) <= COLLINEAR * spread
    for number in np.flatnonzero(stuck):
        means = group_means(columns[:, [number]], codes, len(sites))[:, 0]
        odd = [site for site, mean in zip(sites, means) if mean != np.median(means)]
        raise DataError(
            f'site and covariate {names[number]} are confounded: it does not vary within any site '
            f'(sites that differ: {", ".join(odd)}); drop the covariate or these sites'
        )
    scaled = within / spread
    if _rank(scaled) < len(names):
        raise DataError(
            f'covariates {", ".join(names)} are collinear within the sites '
            f'{", ".join(sites)}; exclude one'
        )


def require_estimable(columns: NDArray[np.float64], names: Sequence[str]) -> None:
    """Raise an error if the coefficients of columns (n, n_columns) cannot be estimated from CN.

    Raises
    ------
    DataError
        Too few CN, or collinear columns.
    """
    n_people, n_columns = columns.shape
    if n_people < n_columns + 2:
        raise DataError(
            f'{n_people} CN for {n_columns} covariate columns ({list_briefly(names)}); '
            f'at least {n_columns + 2} are needed: use fewer covariates'
        )
    spread = columns.std(axis=0)
    scaled = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if _rank(scaled) < n_columns:
        raise DataError(
            f'covariates are collinear among the CN: {list_briefly(names)}; exclude one'
        )


def centred_slopes(
    centred: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute least-squares coefficients (n_columns, n_features) of columns with mean 0.

    Columns are scaled first, because ICV is a million times sex.
    """
    scale = centred.std(axis=0)
    solution, *_ = np.linalg.lstsq(centred / scale, values - values.mean(axis=0), rcond=None)
    return solution / scale[:, None]


def _rank(scaled: NDArray[np.float64]) -> int:
    return int(np.linalg.matrix_rank(scaled, rtol=COLLINEAR)) if scaled.size else 0
