"""Concordance of R-indices with the truth, with each other, or with the diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, linear_sum_assignment
from scipy.stats import kendalltau, norm, rankdata

from surreal_bids.exceptions import DataError

if TYPE_CHECKING:
    pass


def _tied_pairs(values: NDArray[np.generic]) -> int:
    """Count the pairs of equal values."""
    counts = np.unique(values, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def concordance_index(estimate: ArrayLike, truth: ArrayLike) -> float:
    """Harrell's c-index: how often two participants are ordered as they truly are.

    Of the pairs that differ in the truth, those in the same order count 1 and those tied in the
    estimate count 1/2. Kendall's tau-b, which scipy finds by sorting in O(N log N), holds the same
    counts: with C concordant and D discordant pairs among those untied in both, and n_e, n_t pairs
    untied in the estimate and in the truth, tau_b = (C - D) / sqrt(n_e n_t), and the c-index is
    1/2 + (C - D) / (2 n_t) = (1 + tau_b sqrt(n_e / n_t)) / 2.

    Parameters
    ----------
    estimate, truth : (N,)
        Numbers of the same participants. Only their order matters.

    Returns
    -------
    float
        1 for the same order, 0 for the reverse, 0.5 for chance or for a constant estimate.
    """
    estimate, truth = np.asarray(estimate), np.asarray(truth)
    _require_comparable(estimate, truth)
    n_pairs = truth.size * (truth.size - 1) // 2
    n_truth = n_pairs - _tied_pairs(truth)
    n_estimate = n_pairs - _tied_pairs(estimate)
    if n_truth == 0:
        raise DataError('the truth is the same for all participants: no pair can be compared')
    if n_estimate == 0:
        return 0.5
    tau = kendalltau(estimate, truth, method='asymptotic', variant='b').statistic
    return float((1 + tau * np.sqrt(n_estimate / n_truth)) / 2)


def _require_comparable(estimate: NDArray[np.generic], truth: NDArray[np.generic]) -> None:
    if estimate.shape != truth.shape or estimate.ndim != 1:
        raise DataError(
            f'c-index of arrays of shapes {estimate.shape} and {truth.shape}; '
            'give two vectors with one number per participant'
        )
    if np.isnan(estimate).any() or np.isnan(truth).any():
        raise DataError('c-index of numbers that are missing (NaN); exclude these participants')


def concordance_matrix(estimates: ArrayLike, truths: ArrayLike) -> NDArray[np.float64]:
    """c-index of each column of `estimates` (N, M) with each column of `truths` (N, M').

    Returns
    -------
    (M, M') array
        Entry (i, j) compares column i of the estimates with column j of the truths.
    """
    estimates, truths = np.asarray(estimates), np.asarray(truths)
    return np.array(
        [[concordance_index(estimate, truth) for truth in truths.T] for estimate in estimates.T]
    )


def match_patterns(similarity: ArrayLike) -> NDArray[np.intp]:
    """Pair patterns one to one so that the summed similarity is greatest.

    Parameters
    ----------
    similarity : (M, M')
        Similarity of estimated pattern i and true pattern j, with M >= M'.

    Returns
    -------
    (M',) array of int
        For each true pattern the estimated one: ``estimates[:, match]`` is in the truth's order.
    """
    similarity = np.asarray(similarity)
    if similarity.shape[0] < similarity.shape[1]:
        raise DataError(
            f'{similarity.shape[0]} estimated patterns cannot be matched to {similarity.shape[1]}'
        )
    return linear_sum_assignment(similarity.T, maximize=True)[1]


def pattern_c_index(estimates: ArrayLike, truths: ArrayLike) -> float:
    """Pattern-c-index (section 4.2): mean c-index over patterns, after the best matching.

    Parameters
    ----------
    estimates, truths : (N, M) and (N, M')
        R-indices and true severities of the same participants, patterns in any order, M >= M'.
        Between two models it is the pattern-agr-index.
    """
    similarity = concordance_matrix(estimates, truths)
    match = match_patterns(similarity)
    return float(similarity[match, np.arange(match.size)].mean())


class Area(NamedTuple):
    """Area under the curve with its 95 % interval."""

    value: float
    low: float
    high: float


def area_under_curve(scores: ArrayLike, is_patient: ArrayLike) -> Area:
    """Area under the receiver operating characteristic: the chance that a patient scores higher.

    Its interval is that of :func:`_with_interval`.

    Parameters
    ----------
    scores : (N,)
        Higher in patients.
    is_patient : (N,) of bool
        Two or more are, and two or more are not.
    """
    values, patient = np.asarray(scores, np.float64), np.asarray(is_patient, bool)
    m, n = int(patient.sum()), int((~patient).sum())
    if min(m, n) < 2 or np.isnan(values).any():
        raise DataError('an area under the curve needs scores of patients and of controls')
    area = float((rankdata(values)[patient].mean() - (m + 1) / 2) / n)
    return _with_interval(area, m * n, (m + n) / 2 - 1)


def _with_interval(area: float, n_pairs: float, shared: float) -> Area:
    """Add the 95 % interval of Newcombe (2006), method 5 (doi:10.1002/sim.2324).

    The limits are the areas A at whose standard error the estimate is 1.96 standard errors away, as
    in a score interval. Where a pair has its patient in common with `shared` other pairs, and its
    control with as many (both on average), the variance of Hanley and McNeil (1982) at A is

        A (1 - A) / n_pairs * (1 + shared ((1 - A) / (2 - A) + A / (1 + A))).

    Where each of m patients is compared with each of n controls, `shared` is (m + n) / 2 - 1.
    """
    return Area(
        area, _lower_limit(area, n_pairs, shared), 1 - _lower_limit(1 - area, n_pairs, shared)
    )


def _lower_limit(area: float, n_pairs: float, shared: float) -> float:
    if area == 0:
        return 0.0
    z = norm.ppf(0.975)

    def excess(limit: float) -> float:
        overlap = (1 - limit) / (2 - limit) + limit / (1 + limit)
        variance = limit * (1 - limit) / n_pairs * (1 + shared * overlap)
        return float(area - limit - z * np.sqrt(variance))

    return float(brentq(excess, 0, np.nextafter(area, 0)))
