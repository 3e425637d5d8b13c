"""Mixed models of repeated measures: change per year in two groups, and random intercepts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.linalg import helmert
from statsmodels.regression.mixed_linear_model import MixedLM

MIN_PARTICIPANTS = 5
"""Of each group, with two visits or more, that a comparison needs."""

MIN_FOR_SLOPES = 3
"""Visits of somebody that are needed to tell slopes of their own from noise."""

CONFIDENCE = 0.95

RANDOM_SLOPES, SLOPE_OF_EACH = 'random slopes', 'one slope of each'
"""How the mean slope of a group was found: by a mixed model, or from one slope per participant."""

NO_VARIANCE = 1e-6
"""Variance of slopes, in residual variances, below which a mixed model cannot tell it from none."""


ROUNDING = 1e-12
"""A change that is a smaller share of the values than this is none."""


@dataclass(frozen=True)
class Comparison:
    """Change per year in two groups.

    Attributes
    ----------
    controls, patients
        Mean change per year of each group.
    difference, standard_error, low, high
        Patients less controls, with its 95 % interval.
    p
        Of no difference, two-sided.
    df
        Degrees of freedom of Student's t, by Welch.
    slopes
        `RANDOM_SLOPES`, or `SLOPE_OF_EACH` where a mixed model could be fitted to neither group.
    """

    controls: float
    patients: float
    difference: float
    standard_error: float
    low: float
    high: float
    p: float
    df: float
    slopes: str


def compare_change(
    values: pd.Series, years: pd.Series, participant: pd.Series, is_patient: pd.Series
) -> Comparison | str:
    """Compare the change per year of patients with that of controls.

    values ~ years * group, with an intercept of each participant and a random slope around that of
    the group (restricted maximum likelihood; Laird and Ware, Biometrics 1982). Intercepts are not
    estimated but taken away: of each participant there remain as many contrasts as visits less 1,
    whose errors are independent. Where a random slope cannot be told from noise (nobody has three
    visits, the fit fails, or finds no variance), the mean is of one slope per participant
    (:func:`_mean_of_slopes`), which does not take slopes to be alike. Patients may differ from each
    other far more than controls do, so that each group has variances of its own. Slopes differ
    between participants: those of a group have at most as many degrees of freedom as it has
    participants, less 1, however many visits they have; those of the difference are Welch's
    (Biometrika 1947).

    Parameters
    ----------
    values, years, participant, is_patient : of shape (n_visits,)
        The measure; time since some visit; who; and of which group. Participants with one visit
        say nothing of change and are left out.

    Returns
    -------
    Comparison or str
        The reason, where nothing can be compared.
    """
    table = pd.DataFrame(
        {
            'value': values.to_numpy(np.float64),
            'years': years.to_numpy(np.float64),
            'who': participant.to_numpy(),
            'patient': is_patient.to_numpy(bool),
        }
    ).dropna()
    table = table[table.groupby('who')['years'].transform('nunique') > 1]
    people = table.groupby('who')['patient'].first()
    for group, is_one in (('patients', people), ('controls', ~people)):
        if is_one.sum() < MIN_PARTICIPANTS:
            return (
                f'{int(is_one.sum())} {group} have R-indices at two visits of known dates; '
                f'{MIN_PARTICIPANTS} are needed'
            )
    contrasts = _contrasts(table)
    if contrasts['value'].abs().max() <= ROUNDING * table['value'].abs().max():
        return 'nothing changes'
    scale = float(np.sqrt(contrasts['value'].pow(2).mean()))
    scaled = contrasts.assign(value=contrasts['value'] / scale)
    patients, controls = scaled[scaled['patient']], scaled[~scaled['patient']]
    return _describe(_fit(controls), _fit(patients), scale)


class _Slope(NamedTuple):
    """Mean slope of a group, its error and degrees of freedom, and whether by a mixed model."""

    value: float
    error: float
    df: float
    is_mixed: bool


def _contrasts(table: pd.DataFrame) -> pd.DataFrame:
    """Visits of each participant without their mean, as orthonormal contrasts."""
    values, years, rows = [], [], []
    for own in table.groupby('who', sort=False).indices.values():
        basis = helmert(len(own))
        values.append(basis @ table['value'].to_numpy()[own])
        years.append(basis @ table['years'].to_numpy()[own])
        rows.append(own[1:])
    of_people = table[['patient', 'who']].iloc[np.concatenate(rows)].reset_index(drop=True)
    return of_people.assign(value=np.concatenate(values), years=np.concatenate(years))


def _fit(contrasts: pd.DataFrame) -> _Slope:
    """Mean slope of a group: by a mixed model, if that can be fitted."""
    value, years = contrasts['value'].to_numpy(), contrasts['years'].to_numpy()[:, np.newaxis]
    who = contrasts['who'].to_numpy()
    visits = contrasts.groupby('who').size()
    of_each = _mean_of_slopes(contrasts)
    if visits.max() < MIN_FOR_SLOPES - 1 or not of_each.error > 0:
        return of_each
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try:
            fitted = MixedLM(value, years, who, years).fit(reml=True)
            error = float(np.asarray(fitted.bse_fe)[0])
        except (np.linalg.LinAlgError, ValueError):
            return of_each
    variance = float(np.asarray(fitted.cov_re)[0, 0])
    is_sound = fitted.converged and np.isfinite(error) and error > 0
    if not is_sound or not variance > NO_VARIANCE * float(fitted.scale):
        return of_each
    return _Slope(float(np.asarray(fitted.params)[0]), error, len(visits) - 1, is_mixed=True)


def _mean_of_slopes(contrasts: pd.DataFrame) -> _Slope:
    """Mean of one least-squares slope per participant, each weighted by its sum of squared years.

    The error follows from how slopes differ between participants, for whatever reason, with the
    correction and the degrees of freedom of Bell and McCaffrey (Survey Methodology 2002). Where all
    have the same times, this is the plain mean, with the error and the degrees of freedom of
    Student's t.
    """
    products = contrasts.assign(
        square=contrasts['years'] ** 2, product=contrasts['years'] * contrasts['value']
    )
    sums = products.groupby('who')[['square', 'product']].sum()
    slopes, weights = (sums['product'] / sums['square']).to_numpy(), sums['square'].to_numpy()
    share = weights / weights.sum()
    mean = float(share @ slopes)
    inflated = share**2 / (1 - share)
    variance = float(inflated @ (slopes - mean) ** 2)
    # Degrees of freedom are those of slopes that differ by noise only, as weights take them to.
    # Of the matrix G = diag(inflated) (diag(1 / share) - 1) they are tr(G)^2 / tr(G^2).
    own = inflated * (1 / share - 1)
    others = inflated.sum() ** 2 - inflated @ inflated
    df = float(own.sum() ** 2 / (own @ own + others))
    return _Slope(mean, float(np.sqrt(variance)), df, is_mixed=False)


def _describe(controls: _Slope, patients: _Slope, scale: float) -> Comparison:
    difference = patients.value - controls.value
    parts = np.array([each.error**2 for each in (controls, patients)])
    of_each = np.array([each.df for each in (controls, patients)])
    error = float(np.sqrt(parts.sum()))
    df = float(parts.sum() ** 2 / (parts**2 / of_each).sum()) if error > 0 else np.nan
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, df)) * error
    return Comparison(
        controls=controls.value * scale,
        patients=patients.value * scale,
        difference=difference * scale,
        standard_error=error * scale,
        low=(difference - reach) * scale,
        high=(difference + reach) * scale,
        p=float(2 * stats.t.sf(abs(difference) / error, df)) if error > 0 else np.nan,
        df=df,
        slopes=RANDOM_SLOPES if controls.is_mixed or patients.is_mixed else SLOPE_OF_EACH,
    )


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
