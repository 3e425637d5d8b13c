"""Change per year of repeated measures, compared between two groups by a mixed model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from scipy.linalg import helmert
from statsmodels.regression.linear_model import OLS
from statsmodels.regression.mixed_linear_model import MixedLM

FEWEST_PARTICIPANTS = 5
"""Of each group, with two visits or more, that a comparison needs."""

FEWEST_FOR_SLOPES = 3
"""Visits of somebody that are needed to tell slopes of their own from noise."""

CONFIDENCE = 0.95

OWN_SLOPES, SAME_SLOPES = 'slopes differ', 'slopes alike'
"""Whether participants of a group have slopes of their own around that of the group."""

NO_VARIANCE = 1e-6
"""Variance of slopes, in residual variances, below which they are taken to be alike."""


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
        `OWN_SLOPES`, or `SAME_SLOPES` where slopes of their own cannot be told, or do not vary, in
        either group.
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
    whose errors are independent. Where slopes of their own cannot be told (nobody has three visits,
    or the fit fails) or do not vary, they are those of the group. Patients may differ from each
    other far more than controls do, so that each group has variances of its own. Slopes differ
    between participants: those of a group have as many degrees of freedom as it has participants,
    less 1, however many visits they have; those of the difference are Welch's (Biometrika 1947).

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
        if is_one.sum() < FEWEST_PARTICIPANTS:
            return (
                f'{int(is_one.sum())} {group} have R-indices at two visits of known dates; '
                f'{FEWEST_PARTICIPANTS} are needed'
            )
    contrasts = _contrasts(table)
    if not contrasts['value'].abs().max() > 0:
        return 'nothing changes'
    scale = float(np.sqrt(contrasts['value'].pow(2).mean()))
    scaled = contrasts.assign(value=contrasts['value'] / scale)
    patients, controls = scaled[scaled['patient']], scaled[~scaled['patient']]
    return _describe(_fit(controls), _fit(patients), scale)


class _Slope(NamedTuple):
    """Mean slope of a group, with its error and how many participants it is of."""

    value: float
    error: float
    n_people: int
    varies: bool


def _contrasts(table: pd.DataFrame) -> pd.DataFrame:
    """Visits of each participant without their mean, as orthonormal contrasts."""
    parts = []
    for who, own in table.groupby('who', sort=False):
        basis = helmert(len(own))
        parts.append(
            pd.DataFrame(
                {
                    'value': basis @ own['value'].to_numpy(),
                    'years': basis @ own['years'].to_numpy(),
                    'patient': own['patient'].iloc[0],
                    'who': who,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _fit(contrasts: pd.DataFrame) -> _Slope:
    """Mean slope of a group, whose participants have slopes of their own if these can be told."""
    value, years = contrasts['value'].to_numpy(), contrasts['years'].to_numpy()[:, np.newaxis]
    who = contrasts['who'].to_numpy()
    visits = contrasts.groupby('who').size()
    least = OLS(value, years).fit()
    alike = _Slope(float(least.params[0]), float(least.bse[0]), len(visits), varies=False)
    if visits.max() < FEWEST_FOR_SLOPES - 1 or not alike.error > 0:
        return alike
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try:
            fitted = MixedLM(value, years, who, years).fit(reml=True)
            error = float(np.asarray(fitted.bse_fe)[0])
        except (np.linalg.LinAlgError, ValueError):
            return alike
    variance = float(np.asarray(fitted.cov_re)[0, 0])
    is_sound = fitted.converged and np.isfinite(error) and error > 0
    if not is_sound or not variance > NO_VARIANCE * float(fitted.scale):
        return alike
    return _Slope(float(np.asarray(fitted.params)[0]), error, len(visits), varies=True)


def _describe(controls: _Slope, patients: _Slope, scale: float) -> Comparison:
    difference = patients.value - controls.value
    parts = np.array([each.error**2 for each in (controls, patients)])
    less_one = np.array([each.n_people - 1 for each in (controls, patients)])
    error = float(np.sqrt(parts.sum()))
    df = float(parts.sum() ** 2 / (parts**2 / less_one).sum()) if error > 0 else np.nan
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
        slopes=OWN_SLOPES if controls.varies or patients.varies else SAME_SLOPES,
    )
