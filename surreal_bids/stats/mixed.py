"""Repeated measures: change per year in two groups, and random intercepts of participants."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

MIN_PARTICIPANTS = 5
"""Of each group, with two visits or more, that a comparison needs."""

MIN_YEARS = 0.25
"""Between visits: over a shorter time, a change per year is mostly noise."""

DIFFERENCE = 'patients minus controls'

ROUNDING = 1e-12
"""A change that is a smaller share of the values than this is none."""


def slopes_of_participants(
    values: pd.Series, years: pd.Series, participant: pd.Series
) -> pd.Series:
    """Return the change per year of each participant: one least-squares slope.

    Parameters
    ----------
    values, years, participant : of shape (n_visits,)
        As of :func:`compare_change`.

    Returns
    -------
    Series of shape (n_participants,)
        By participant; all 0 where nothing changes but for rounding.
    """
    table = pd.DataFrame(
        {
            'value': values.to_numpy(np.float64),
            'years': years.to_numpy(np.float64),
            'who': participant.to_numpy(),
        }
    ).dropna()
    times = table.groupby('who')['years'].transform
    table = table[times('max') - times('min') >= MIN_YEARS]
    centred = table[['value', 'years']] - table.groupby('who')[['value', 'years']].transform('mean')
    products = centred.mul(centred['years'], axis=0).groupby(table['who']).sum()
    slopes = products['value'] / products['years']
    if centred['value'].abs().max() <= ROUNDING * table['value'].abs().max():
        return 0.0 * slopes
    return slopes


def compare_change(
    values: pd.Series,
    years: pd.Series,
    participant: pd.Series,
    is_patient: pd.Series,
    label: str = 'patients',
) -> dict[str, dict[str, float]] | str:
    """Compare the change per year of patients with that of controls.

    One least-squares slope per participant summarises the visits (Matthews et al., BMJ 1990). Mean
    slopes are compared by Welch's t-test: patients may differ from each other far more than
    controls do.

    Parameters
    ----------
    values, years, participant, is_patient : of shape (n_visits,)
        The measure; time since some visit; who; and of which group. Participants with one visit, or
        visits less than `MIN_YEARS` apart, are excluded.
    label
        What patients are called where they are too few.

    Returns
    -------
    dict or str
        Mean slopes (`estimate`) of `controls` and `patients`, and `DIFFERENCE` of these with its
        95 % interval (`low`, `high`) and two-sided `p`. The reason, where nothing can be compared.
    """
    slopes = slopes_of_participants(values, years, participant)
    of_visits = pd.Series(is_patient.to_numpy(bool), participant.to_numpy())
    is_patient = of_visits.groupby(level=0).first().reindex(slopes.index)
    for group, members in ((label, is_patient), ('controls', ~is_patient)):
        if members.sum() < MIN_PARTICIPANTS:
            return (
                f'{int(members.sum())} {group} have R-indices at two visits of known dates; '
                f'{MIN_PARTICIPANTS} are needed'
            )
    if slopes.eq(0).all():
        return 'nothing changes'
    patients, controls = slopes[is_patient], slopes[~is_patient]
    test = stats.ttest_ind(patients, controls, equal_var=False)
    interval = test.confidence_interval()
    difference = {
        'estimate': float(patients.mean() - controls.mean()),
        'low': float(interval.low),
        'high': float(interval.high),
        'p': float(test.pvalue),
    }
    means = {'controls': float(controls.mean()), 'patients': float(patients.mean())}
    return {DIFFERENCE: difference} | {name: {'estimate': mean} for name, mean in means.items()}


LEAST_RATIO, MOST_RATIO = 1e-6, 1e6
"""Between which the variance of random intercepts is looked for, in residual variances."""

NARROWED = 60
"""Steps of the golden section, which leave 1e-11 of the range of logarithms."""


class RandomIntercepts(NamedTuple):
    """Mixed models with one random intercept per participant, of several measures.

    Attributes
    ----------
    coefficients : (n_columns, n_measures)
        Fixed effects, by generalised least squares.
    sigma : (n_measures,)
        Residual standard deviation.
    intercepts : (n_visits, n_measures)
        Predicted random intercept of the participant of each visit (BLUP).
    covariance : (n_columns, n_columns)
        Covariance of the fixed effects, in residual variances; the mean of all measures.
    """

    coefficients: NDArray[np.float64]
    sigma: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    covariance: NDArray[np.float64]


def fit_random_intercepts(
    values: NDArray[np.float64], design: NDArray[np.float64], participant: NDArray[np.intp]
) -> RandomIntercepts:
    """Fit values = design beta + intercept of the participant + noise, to each measure.

    Restricted maximum likelihood. With r the ratio of the variances of intercepts and noise, visits
    have the covariance 1 + r Z Z' (in residual variances), whose inverse for a participant with k
    visits is 1 - r / (1 + r k) (Laird and Ware, Biometrics 1982). All else follows from r.

    Parameters
    ----------
    values : (n_visits, n_measures)
        What was measured.
    design : (n_visits, n_columns)
        Fixed effects, of full rank.
    participant : (n_visits,)
        Number of the participant of each visit; some have several visits.
    """
    start = np.linalg.lstsq(design, values, rcond=None)[0]
    rest = values - design @ start
    visits = np.bincount(participant)
    model = _Profile(design, rest, participant, visits)
    bounds = np.log([[LEAST_RATIO], [MOST_RATIO]]) * np.ones(values.shape[1])
    ratio = np.exp(_golden_section(model.deviance, bounds[0], bounds[1]))
    _, moved, gram, squares = model.solve(ratio)
    rest = rest - design @ moved.T
    sums = np.zeros((len(visits), values.shape[1]))
    np.add.at(sums, participant, rest)
    intercepts = sums * ratio / (1 + ratio * visits[:, np.newaxis])
    return RandomIntercepts(
        start + moved.T,
        np.sqrt(squares / (len(values) - design.shape[1])),
        intercepts[participant],
        np.linalg.inv(gram).mean(axis=0),
    )


class _Profile:
    """Restricted likelihood of the ratio of variances, with all other parameters at their best.

    Participants with the same number of visits have the same weight, so that sums over them are
    formed once.
    """

    def __init__(
        self,
        design: NDArray[np.float64],
        values: NDArray[np.float64],
        participant: NDArray[np.intp],
        visits: NDArray[np.intp],
    ) -> None:
        self.freedom = len(values) - design.shape[1]
        self.sizes, size_of = np.unique(visits, return_inverse=True)
        self.counts = np.bincount(size_of)
        x = np.zeros((len(visits), design.shape[1]))
        y = np.zeros((len(visits), values.shape[1]))
        np.add.at(x, participant, design)
        np.add.at(y, participant, values)
        of_sizes = [size_of == number for number in range(len(self.sizes))]
        self.xx = design.T @ design, np.array([x[own].T @ x[own] for own in of_sizes])
        self.xy = values.T @ design, np.array([y[own].T @ x[own] for own in of_sizes])
        self.yy = (values**2).sum(axis=0), np.array([(y[own] ** 2).sum(axis=0) for own in of_sizes])

    def solve(
        self, ratio: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Growth of variances (n_sizes, n_measures), coefficients, gram and weighted squares."""
        growth = 1 + ratio * self.sizes[:, np.newaxis]
        shared = ratio / growth
        gram = self.xx[0] - np.einsum('sm,spq->mpq', shared, self.xx[1])
        cross = self.xy[0] - np.einsum('sm,smp->mp', shared, self.xy[1])
        coefficients = np.linalg.solve(gram, cross[:, :, np.newaxis])[:, :, 0]
        squares = (
            self.yy[0] - (shared * self.yy[1]).sum(axis=0) - (cross * coefficients).sum(axis=1)
        )
        return growth, coefficients, gram, squares

    def deviance(self, log_ratio: NDArray[np.float64]) -> NDArray[np.float64]:
        """Minus twice the restricted log-likelihood (n_measures,), but for a constant."""
        growth, _, gram, squares = self.solve(np.exp(log_ratio))
        volume = self.counts @ np.log(growth) + np.linalg.slogdet(gram)[1]
        return np.asarray(volume + self.freedom * np.log(squares))


def _golden_section(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minima of functions of one variable each, between their bounds."""
    golden = (np.sqrt(5) - 1) / 2
    for _ in range(NARROWED):
        inner = right - golden * (right - left), left + golden * (right - left)
        is_left = function(inner[0]) < function(inner[1])
        left, right = np.where(is_left, left, inner[0]), np.where(is_left, inner[1], right)
    return (left + right) / 2
