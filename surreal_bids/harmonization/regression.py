"""Least squares of features on covariates, with one mean for all or one for each site.

Site means are partialled out first (Frisch and Waugh), which leaves a small system in the
covariates alone: no matrix of people x sites is ever built.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.tables import name_some

PENALTY_GRID = np.logspace(0, 7, 11)
"""Weights of the roughness penalty that are tried, as in ComBat-GAM."""

COLLINEAR = 1e-8
"""A direction of the scaled covariates with less than this share of the largest is rounding."""


@dataclass(frozen=True, eq=False)
class SiteRegression:
    """Coefficients of the regression.

    Attributes
    ----------
    site_means : ndarray of shape (n_sites, n_features)
        Value of each feature at each site where all covariate columns are 0.
    slopes : ndarray of shape (n_columns, n_features)
        Effects of the covariates, shared by all sites.
    penalties : ndarray of shape (n_features, n_smooth)
        Roughness penalties used.
    """

    site_means: NDArray[np.float64]
    slopes: NDArray[np.float64]
    penalties: NDArray[np.float64]


def group_means(
    values: NDArray[np.float64], codes: NDArray[np.intp], n_groups: int
) -> NDArray[np.float64]:
    """Mean of the rows of `values` (n, m) in each group: shape (n_groups, m).

    `codes` (n,) numbers the groups; each has a row at least.
    """
    order = np.argsort(codes, kind='stable')
    counts = np.bincount(codes, minlength=n_groups)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    sums = (
        np.add.reduceat(values[order], starts, axis=0) if values.size else np.zeros((n_groups, 0))
    )
    return sums / counts[:, None]


def fit_site_regression(
    X: NDArray[np.float64],
    columns: NDArray[np.float64],
    codes: NDArray[np.intp],
    roughness: Sequence[NDArray[np.float64]] = (),
    penalties: ArrayLike | None = None,
) -> SiteRegression:
    """Regress features on site and covariates, with roughness penalties on smooth covariates.

    Parameters
    ----------
    X : ndarray of shape (n_people, n_features)
        Features.
    columns : ndarray of shape (n_people, n_columns)
        Encoded covariates.
    codes : ndarray of shape (n_people,)
        Number of each person's site.
    roughness : sequence of ndarray of shape (n_columns, n_columns)
        Penalty matrix of each smooth covariate; none gives ordinary least squares.
    penalties : array of shape (n_features, n_smooth), optional
        Penalty weights; None chooses each feature's from `PENALTY_GRID` by generalised
        cross-validation.
    """
    n_sites = int(codes.max()) + 1
    column_means = group_means(columns, codes, n_sites)
    feature_means = group_means(X, codes, n_sites)
    within, X_within = columns - column_means[codes], X - feature_means[codes]
    gram, cross = within.T @ within, within.T @ X_within
    if penalties is None and roughness:
        total = (X_within**2).sum(axis=0)
        penalties = _choose_penalties(gram, cross, total, roughness, (len(X), n_sites))
    weights = np.zeros((X.shape[1], 0)) if not roughness else np.asarray(penalties, dtype=float)
    slopes = _solve_by_weight(gram, cross, roughness, weights)
    return SiteRegression(feature_means - column_means @ slopes, slopes, weights)


def require_separable(
    columns: NDArray[np.float64],
    names: Sequence[str],
    codes: NDArray[np.intp],
    sites: Sequence[str],
) -> None:
    """Refuse covariates whose effect cannot be told from that of site.

    Raises
    ------
    DataError
        A covariate never varies within a site, or the covariates explain each other within sites.
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
            f'covariates {", ".join(names)} explain each other within the sites '
            f'{", ".join(sites)}; leave one out'
        )


def require_estimable(columns: NDArray[np.float64], names: Sequence[str]) -> None:
    """Refuse columns (n_people, n_columns) whose coefficients the CN do not determine.

    Raises
    ------
    DataError
        Too few CN, or columns that explain each other.
    """
    n_people, n_columns = columns.shape
    if n_people < n_columns + 2:
        raise DataError(
            f'{n_people} CN for {n_columns} covariate columns ({name_some(names)}); '
            f'{n_columns + 2} are needed at least: use fewer covariates'
        )
    spread = columns.std(axis=0)
    scaled = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if _rank(scaled) < n_columns:
        raise DataError(
            f'covariates explain each other among the CN: {name_some(names)}; leave one out'
        )


def centred_slopes(
    centred: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Least-squares coefficients (n_columns, n_features) of columns that have mean 0.

    Columns are scaled first, since ICV is a million times sex.
    """
    scale = centred.std(axis=0)
    solution, *_ = np.linalg.lstsq(centred / scale, values - values.mean(axis=0), rcond=None)
    return solution / scale[:, None]


def _rank(scaled: NDArray[np.float64]) -> int:
    return int(np.linalg.matrix_rank(scaled, rtol=COLLINEAR)) if scaled.size else 0


def _solve_by_weight(
    gram: NDArray[np.float64],
    cross: NDArray[np.float64],
    roughness: Sequence[NDArray[np.float64]],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Solve the penalised normal equations once for all features that share their weights."""
    slopes = np.empty_like(cross)
    distinct, member = np.unique(weights, axis=0, return_inverse=True)
    for number, weight in enumerate(distinct):
        mine = np.flatnonzero(member.ravel() == number)
        slopes[:, mine] = _solve(gram, cross[:, mine], _total_penalty(gram, roughness, weight))
    return slopes


def _total_penalty(
    gram: NDArray[np.float64],
    roughness: Sequence[NDArray[np.float64]],
    weight: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Sum the penalties; twice, as statsmodels defines its weights (`penalized_wls`)."""
    total = np.zeros_like(gram)
    for matrix, amount in zip(roughness, weight):
        total += 2 * amount * matrix
    return total


def _solve(
    gram: NDArray[np.float64], cross: NDArray[np.float64], penalty: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Solve (gram + penalty) slopes = cross, with columns scaled to one unit."""
    scale = np.sqrt(np.where(np.diag(gram) > 0, np.diag(gram), 1.0))
    unit = np.outer(scale, scale)
    return np.linalg.solve((gram + penalty) / unit, cross / scale[:, None]) / scale[:, None]


def _choose_penalties(
    gram: NDArray[np.float64],
    cross: NDArray[np.float64],
    total: NDArray[np.float64],
    roughness: Sequence[NDArray[np.float64]],
    n_people_sites: tuple[int, int],
) -> NDArray[np.float64]:
    """Minimise the generalised cross-validation score n RSS / (n - tr H)^2 of each feature."""
    n_people, n_sites = n_people_sites
    grid = np.array(list(itertools.product(PENALTY_GRID, repeat=len(roughness))))
    scores = np.empty((len(grid), cross.shape[1]))
    for number, weight in enumerate(grid):
        penalty = _total_penalty(gram, roughness, weight)
        slopes = _solve(gram, cross, penalty)
        residual = total - 2 * (slopes * cross).sum(axis=0) + (slopes * (gram @ slopes)).sum(axis=0)
        freedom = n_sites + np.trace(_solve(gram, gram, penalty))
        scores[number] = n_people * residual / (n_people - freedom) ** 2
    return grid[scores.argmin(axis=0)]
