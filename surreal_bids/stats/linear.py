"""Linear models: covariates as columns, regression on one of them, ranks, z-scores by controls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas.api.types import is_numeric_dtype
from scipy import stats

from surreal_bids.exceptions import DataError
from surreal_bids.text import counted

Floats = NDArray[np.float64]

DEPENDENT = 1e-7
"""A column counts as a combination of others if less than this part of its length is its own."""

CONSTANT = 1e-10
"""Values whose residuals are less than this part of their sum of squares count as constant."""

VALUES_AT_ONCE = 1 << 13
"""Values, such as voxels, that are computed at once in double precision."""

LARGEST_Z = 32.0
"""z-scores are limited to this: p values underflow soon after."""


def covariate_columns(covariates: pd.DataFrame) -> Floats:
    """Covariates of N participants as numbers (N, c): text becomes indicators of its levels.

    Raises
    ------
    DataError
        A value is missing or infinite.
    """
    if covariates.shape[1] == 0:
        return np.empty((len(covariates), 0))
    indicators = pd.get_dummies(covariates, drop_first=True, dtype=float)
    columns = indicators.to_numpy(np.float64, na_value=np.nan)
    lacking = covariates.isna().any(axis=1).to_numpy() | ~np.isfinite(columns).all(axis=1)
    if lacking.any():
        raise DataError(
            f'a covariate is missing in {counted(int(lacking.sum()), "participant")}, such as '
            f'{covariates.index[lacking][0]}; exclude these participants or the covariate'
        )
    return columns


class Regression(NamedTuple):
    """Least squares of V values on one tested column, others held fixed.

    Attributes
    ----------
    effect, t : (V,)
        Coefficient of the tested column, and the coefficient over its standard error. Both are 0
        where all participants have the same value.
    df
        Degrees of freedom of the residuals.
    """

    effect: Floats
    t: Floats
    df: int


def regress(values: NDArray, tested: ArrayLike, columns: Floats) -> Regression:
    """Regress values (N, V) on `tested` (N,), with a mean and `columns` (N, c) held fixed.

    Columns that repeat one another do no harm.

    Raises
    ------
    DataError
        `tested` follows from the columns, or participants are too few for them.
    """
    fixed, x = orthonormal(columns), np.asarray(tested, np.float64)
    x = x - x.mean()
    own = x - fixed @ (fixed.T @ x)
    length, df = np.linalg.norm(own), len(x) - fixed.shape[1] - 1
    if length <= DEPENDENT * np.linalg.norm(x):
        raise DataError('is determined by the covariates')
    if df < 1:
        raise DataError(
            f'{len(x)} participants are too few for {fixed.shape[1]} columns of mean and '
            'covariates; use fewer covariates'
        )
    effect, t = np.zeros((2, values.shape[1]))
    for start in range(0, values.shape[1], VALUES_AT_ONCE):
        part = slice(start, start + VALUES_AT_ONCE)
        y = values[:, part] - values[:, part].mean(axis=0, dtype=np.float64)
        squares = np.square(y).sum(axis=0)
        y -= fixed @ (fixed.T @ y)
        along = (own / length) @ y
        rest = np.square(y - np.outer(own / length, along)).sum(axis=0)
        varies = np.square(y).sum(axis=0) > CONSTANT * squares
        np.divide(along, np.sqrt(rest / df), out=t[part], where=varies & (rest > 0))
        effect[part] = np.where(varies, along / length, 0.0)
    return Regression(effect, t, df)


def orthonormal(columns: Floats) -> Floats:
    """Orthonormal basis (N, q) of a constant and these columns (N, c), the constant first."""
    mean = columns.mean(axis=0)
    centred = columns - mean
    length = np.linalg.norm(centred, axis=0)
    varies = length > DEPENDENT * np.abs(mean)
    left, sizes, _ = np.linalg.svd(centred[:, varies] / length[varies], full_matrices=False)
    constant = np.full((len(columns), 1), len(columns) ** -0.5)
    return np.hstack([constant, left[:, sizes > DEPENDENT]])


MINIMUM_PAIRS = 5
"""Minimum number of participants for a correlation, plus one per column of covariates."""

DETERMINED = 1e-10
"""A measure is determined by covariates if less than this share of its variance remains."""

SPEARMAN_VARIANCE = 1.06
"""Variance of Fisher's z of a rank correlation is this over n - 3 (Fieller, Hartley and Pearson,
1957, doi:10.1093/biomet/44.3-4.470)."""

NORMAL_95 = float(stats.norm.ppf(0.975))


def partial_correlation(
    x: pd.Series, y: pd.Series, covariates: pd.DataFrame
) -> dict[str, float] | str:
    """Partial rank correlation (Spearman) of those who have all numbers, or why there is none.

    Returns
    -------
    dict or str
        `estimate` with its 95 % interval (`low`, `high`), `p` of Student's t with n - 2 - k degrees
        of freedom for k columns of covariates, and number of participants `n`.
    """
    known = x.notna() & y.notna() & covariates.notna().all(axis=1)
    ranked = covariates[known].apply(lambda each: each.rank() if is_numeric_dtype(each) else each)
    n = int(known.sum())
    fixed = orthonormal(covariate_columns(ranked)) if n else np.empty((0, 1))
    needed = MINIMUM_PAIRS + fixed.shape[1] - 1
    if n < needed:
        have = 'participant has' if n == 1 else 'participants have'
        return f'only {n} {have} both; at least {needed} are needed'
    ranks = [stats.rankdata(values[known]) for values in (x, y)]
    if min(map(np.ptp, ranks)) == 0:
        return 'all participants with both have the same value'
    left = [values - fixed @ (fixed.T @ values) for values in ranks]
    if min(own @ own / (n * values.var()) for own, values in zip(left, ranks)) < DETERMINED:
        return 'it is determined by the covariates'
    size = np.sqrt((left[0] @ left[0]) * (left[1] @ left[1]))
    r = float(np.clip(left[0] @ left[1] / size, -1, 1))
    freedom = n - 1 - fixed.shape[1]
    t = r * np.sqrt(freedom / max(1 - r**2, np.finfo(float).eps))
    reach = NORMAL_95 * np.sqrt(SPEARMAN_VARIANCE / (freedom - 1))
    z = np.arctanh(np.clip(r, -1 + DETERMINED, 1 - DETERMINED))
    return {
        'estimate': r,
        'low': float(np.tanh(z - reach)),
        'high': float(np.tanh(z + reach)),
        'p': float(2 * stats.t.sf(abs(t), freedom)),
        'n': n,
    }


def t_to_z(t: ArrayLike, df: float | NDArray[np.integer]) -> Floats:
    """Normal deviates of the same p as t statistics, within +- `LARGEST_Z`."""
    z = np.minimum(stats.norm.isf(stats.t.sf(np.abs(t), df)), LARGEST_Z)
    return np.copysign(z, t)


class ControlModel:
    """Least squares of values on covariates, in controls, and z-scores by it.

    Everyone is measured against the prediction for a new person with the same covariates, whose
    error includes that of the coefficients. Controls are measured against the other controls, as if
    the model had been fitted without them (deleted residuals; Belsley, Kuh and Welsch 1980,
    section 2.1). The same share of healthy people is beyond a limit, controls or not.

    Parameters
    ----------
    columns : (N, c)
        Covariates of all N visits; a mean is added.
    fitted : (n,) array of int
        Visits that the model is fitted to, one for each control.
    own : (N,) array of int
        Of each visit of a control, the visit of the same person that the model is fitted to; -1 for
        all others.

    Attributes
    ----------
    n_columns, df : int
        Independent columns of mean and covariates, and degrees of freedom of the residuals.
    estimable : (N,) array of bool
        Who can be measured: not who has a site or a sex that no other control has.
    """

    def __init__(self, columns: ArrayLike, fitted: ArrayLike, own: ArrayLike) -> None:
        self.fitted, self.own = np.asarray(fitted, np.intp), np.asarray(own, np.intp)
        self._axes, outside = _axes_of(np.asarray(columns, np.float64), self.fitted)
        self.n_columns = self._axes.shape[1]
        self.df = self.fitted.size - self.n_columns
        is_control = self.own >= 0
        # What the other controls leave of a control's own axes: 0 if they cannot predict it.
        self._free = 1 - np.where(is_control, np.square(self._axes[self.own]).sum(axis=1), 0.0)
        self.estimable = ~outside & (self._free > DEPENDENT) & (self.df - is_control > 0)

    def z_scores(self, values: NDArray) -> Floats:
        """z-scores (N, V) of everyone, by the values (N, V) of the controls.

        They are normal deviates with the p value of t; missing for who is not estimable and where
        controls do not vary.
        """
        axes, is_control = self._axes, self.own >= 0
        y = values - values[self.fitted].mean(axis=0, dtype=np.float64)
        products = axes[self.fitted].T @ y[self.fitted]
        squares = np.square(y[self.fitted]).sum(axis=0)
        residual = y - axes @ products
        with np.errstate(divide='ignore', invalid='ignore'):
            # What a control itself adds to the fit is taken out again.
            shared = np.where(is_control, (axes * axes[self.own]).sum(axis=1), 0.0)
            pull = (shared / self._free)[:, np.newaxis]
            removed = np.where(is_control[:, np.newaxis], residual[self.own], 0.0)
            rest = squares - np.square(products).sum(axis=0)
            rest = rest - np.square(removed) / self._free[:, np.newaxis]
            leverage = np.square(axes).sum(axis=1) + shared * pull[:, 0]
            df = np.maximum(self.df - is_control, 1)[:, np.newaxis]
            known = self.estimable[:, np.newaxis] & (rest > CONSTANT * squares)
            spread = np.sqrt(np.where(known, rest, np.nan) / df * (1 + leverage[:, np.newaxis]))
            return t_to_z((residual + pull * removed) / spread, df)


def _axes_of(columns: Floats, fitted: NDArray[np.intp]) -> tuple[Floats, NDArray[np.bool_]]:
    """Mean and covariates on axes (N, q) that are orthonormal in controls; who is not on them."""
    mean = columns[fitted].sum(axis=0) / max(fitted.size, 1)
    centred = columns - mean
    length = np.linalg.norm(centred[fitted], axis=0)
    varies = length > DEPENDENT * np.maximum(np.abs(mean), 1)
    differs = np.abs(centred) > DEPENDENT * np.maximum(np.abs(mean), 1)
    unknown = (differs & ~varies).any(axis=1)
    scaled = centred[:, varies] / length[varies]
    _, sizes, directions = np.linalg.svd(scaled[fitted], full_matrices=False)
    directions, sizes = directions[sizes > DEPENDENT], sizes[sizes > DEPENDENT]
    along = scaled @ directions.T
    outside = np.linalg.norm(scaled - along @ directions, axis=1)
    unknown |= outside > DEPENDENT * (1 + np.linalg.norm(scaled, axis=1))
    constant = np.full((len(columns), 1), max(fitted.size, 1) ** -0.5)
    return np.hstack([constant, along / sizes]), unknown
