"""How well patients are told from controls, and what else the two groups differ in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from scipy import stats
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from surreal_bids.cautions import SEPARATION, Caution
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.requirements import is_in_mm3
from surreal_bids.columns import means
from surreal_bids.names import SPREAD_SUFFIX
from surreal_bids.rindices.crossfit import HELD_OUT, CrossFit
from surreal_bids.rindices.model import TableModel
from surreal_bids.rindices.preprocessing import COMPLETE
from surreal_bids.stats.concordance import area_under_curve, matched_area_under_curve
from surreal_bids.text import plain_number

SUM_OF_INDICES, ALL_REGIONS = 'sum of R-indices', 'all regions'

PLUS_MINUS = ' \N{PLUS-MINUS SIGN} '
"""Between a mean and a standard deviation."""

EVERYONE, SIMILAR_AGE = 'everyone', 'similar age'
YEARS = 3.0
"""Participants of similar age differ by no more than this."""
FEWEST_SIMILAR = 10
"""Controls, and patients, who need a participant of the other group with a similar age."""

GROUPS = ('patients', 'controls')

DIAGNOSIS_COLUMNS = ('by', 'among', 'controls', 'patients', 'auc', 'auc_low', 'auc_high')
DIFFERENCE_COLUMNS = ('covariate', 'controls', 'patients', 'test', 'p', 'in_words')


class _Differs(NamedTuple):
    """How two groups differ in a covariate: of each in short, the test, p, and both in words."""

    controls: str
    patients: str
    test: str
    p: float
    in_words: str


def diagnose(cohort: Cohort, fitted: CrossFit, names: list[str]) -> pd.DataFrame:
    """Area under the curve of patients against controls, in first visits of the held out.

    Parameters
    ----------
    cohort
        All participants.
    fitted
        Models of folds, and R-indices of the held out.
    names
        Names of the R-indices.

    Returns
    -------
    DataFrame
        Two rows each for the sum of the R-indices, in which nothing is learned, and for a linear
        discriminant of all regions (with the shrinkage of Ledoit and Wolf) that is learned, as all
        preprocessing is, without the fold: `among` everyone, and pairs of similar age, where ages
        are known; how many, `auc`, and its 95 % interval (Newcombe). Where too few have someone of
        similar age in the other group, it is missing.
    """
    first = cohort.first_visits()
    scores = {ALL_REGIONS: _discriminate(first, fitted)}
    if names:
        held_out = fitted.results.loc[first.visits.index, names]
        scores = {SUM_OF_INDICES: held_out.sum(axis=1, skipna=False), **scores}
    return _areas(first, scores)


def diagnose_applied(cohort: Cohort, indices: pd.DataFrame) -> pd.DataFrame:
    """Area under the curve of patients against controls by the R-indices of an applied model.

    As :func:`diagnose`, without a discriminant; if there are several R-indices, also by each.
    """
    first = _in_groups(cohort)
    known = indices.loc[first.visits.index]
    scores = {SUM_OF_INDICES: known.sum(axis=1, skipna=False)}
    if known.shape[1] > 1:
        scores |= {str(name): known[name] for name in known}
    return _areas(first, scores)


def _in_groups(cohort: Cohort) -> Cohort:
    """First visits of participants whose group is known."""
    first = cohort.first_visits()
    return first.select(first.groups.notna())


def _areas(first: Cohort, scores: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Area of each score, among everyone and at similar age."""
    ages = first.ages
    rows: list[tuple[object, ...]] = []
    for by, score in scores.items():
        known = score.dropna()
        is_patient = first.is_patient[known.index]
        counts = int((~is_patient).sum()), int(is_patient.sum())
        if min(counts) < 2:
            continue
        rows.append((by, EVERYONE, *counts, *area_under_curve(known, is_patient)))
        if ages.notna().any():
            rows.append((by, SIMILAR_AGE, *_at_similar_age(known, is_patient, ages[known.index])))
    return pd.DataFrame(rows, columns=list(DIAGNOSIS_COLUMNS))


def _at_similar_age(score: pd.Series, is_patient: pd.Series, ages: pd.Series) -> tuple[float, ...]:
    """Numbers of controls and patients with a counterpart, area and interval."""
    *counts, area = matched_area_under_curve(score, is_patient, ages, YEARS)
    if min(counts) < FEWEST_SIMILAR:
        return (*counts, np.nan, np.nan, np.nan)
    return (*counts, *area)


def _discriminate(first: Cohort, fitted: CrossFit) -> pd.Series:
    """Score of everyone by a discriminant of the others; missing where there is no model."""
    known = fitted.results.loc[first.visits.index, HELD_OUT].astype(bool)
    fold = fitted.folds.number[first.visits.index]
    scores = pd.Series(np.nan, first.visits.index)
    for number, model in fitted.models.items():
        held_out = first.select(known & (fold == number))
        if not len(held_out):
            continue
        others = first.select(fold != number)
        X, y = _normalised(model, others), others.is_patient
        # Equal priors: scores of all folds have the same zero.
        discriminant = LinearDiscriminantAnalysis(
            solver='lsqr', shrinkage='auto', priors=[0.5, 0.5]
        ).fit(X.to_numpy(), y[X.index])
        Z = _normalised(model, held_out)
        scores[Z.index] = discriminant.decision_function(Z.to_numpy())
    return scores


def _normalised(model: TableModel, cohort: Cohort) -> pd.DataFrame:
    """What the network sees of the participants for whom all could be done."""
    steps = model.preprocessing.with_unseen_site('skip')
    prepared = steps.transform(cohort.features, cohort.people)
    table = prepared.normalised
    return table[prepared.status[table.index] == COMPLETE]


def compare_groups(cohort: Cohort) -> pd.DataFrame:
    """Whether patients and controls differ in age, sex, site or another covariate.

    Where they do, being told apart may be due to that: removing its effect as learned from
    controls, inside folds or not, does not undo it.

    Returns
    -------
    DataFrame
        One row per covariate: `controls` and `patients` (mean and sd, or shares of each value),
        the `test` (Welch's t, Fisher's exact test for two values, chi-squared for more), `p`, and
        what differs `in_words`.
    """
    first = _in_groups(cohort)
    patient = first.is_patient.to_numpy()
    rows = []
    covariates, _ = first.covariates_and_measures()
    for name, values in covariates.items():
        both = values[~patient], values[patient]
        n_levels = values.nunique()
        if n_levels > 1 and all(map(len, both)):
            numeric = is_numeric_dtype(values) and n_levels > 2
            differs = _compare_numbers if numeric else _compare_categories
            rows.append((name, *differs(str(name), *both)))
    return pd.DataFrame(rows, columns=list(DIFFERENCE_COLUMNS))


def _compare_numbers(name: str, controls: pd.Series, patients: pd.Series) -> _Differs:
    difference = patients.mean() - controls.mean()
    p = float(stats.ttest_ind(patients, controls, equal_var=False).pvalue)
    if means(name, 'age'):
        more = 'older' if difference > 0 else 'younger'
        words = f'patients are {abs(difference):.1f} years {more}'
    else:
        more = 'higher' if difference > 0 else 'lower'
        is_icv = _is_icv_in_mm3(name, controls.mean())
        size = f'{abs(difference) / 1000:,.0f} ml' if is_icv else plain_number(abs(difference))
        words = f'{name} of patients is {size} {more}'
    short = [mean_and_sd(name, group.mean(), group.std()) for group in (controls, patients)]
    return _Differs(short[0], short[1], 'Welch t', p, words)


def _compare_categories(name: str, controls: pd.Series, patients: pd.Series) -> _Differs:
    values = pd.concat([controls, patients])
    group = np.repeat(['controls', 'patients'], [len(controls), len(patients)])
    counts = pd.crosstab(group, values.to_numpy())
    shares = counts.div(counts.sum(axis=1), axis=0)
    if counts.shape[1] == 2:
        test, p = 'Fisher exact', float(stats.fisher_exact(counts.to_numpy()).pvalue)
    else:
        test, p = 'chi-squared', float(stats.chi2_contingency(counts.to_numpy()).pvalue)
    of_controls, of_patients = shares.to_numpy()
    most = int(np.abs(of_patients - of_controls).argmax())
    words = (
        f'{name} is {shares.columns[most]} in {of_patients[most]:.0%} of patients and '
        f'{of_controls[most]:.0%} of controls'
    )
    short = [
        ', '.join(f'{level} {share:.0%}' for level, share in zip(shares.columns, each))
        for each in (of_controls, of_patients)
    ]
    return _Differs(short[0], short[1], test, p, words)


def mean_and_sd(name: str, mean: float, sd: float) -> str:
    """Return mean and SD of a covariate with its unit: age in years, intracranial volume in ml."""
    if _is_icv_in_mm3(name, mean):
        return f'{mean / 1000:,.0f}{PLUS_MINUS}{sd / 1000:,.0f} ml'
    unit = ' years' if means(name, 'age') else ''
    return f'{plain_number(mean)}{PLUS_MINUS}{plain_number(sd, 3)}{unit}'


def range_of(name: str, low: float, high: float) -> str:
    """Return the range of a covariate with its unit."""
    if _is_icv_in_mm3(name, low):
        return f'{low / 1000:,.0f} to {high / 1000:,.0f} ml'
    unit = ' years' if means(name, 'age') else ''
    return f'{plain_number(low)} to {plain_number(high)}{unit}'


def describe_column(name: str, values: Mapping[str, float]) -> str:
    """Return mean, SD and range of a covariate, or how often it has each value."""
    if set(values) == {'mean', 'std', 'min', 'max'}:
        middle = mean_and_sd(name, values['mean'], values['std'])
        return f'{name} {middle} ({range_of(name, values["min"], values["max"])})'
    return f'{name}: ' + ', '.join(f'{level} {count}' for level, count in values.items())


def with_unit(name: str, values: pd.Series) -> tuple[pd.Series, str]:
    """Return a covariate and its name with the unit: age in years, intracranial volume in ml."""
    if not is_numeric_dtype(values):
        return values, name
    if _is_icv_in_mm3(name, values.median()):
        return values / 1000, f'{name} (ml)'
    return values, f'{name} (years)' if means(name, 'age') else name


def _is_icv_in_mm3(name: str, value: float) -> bool:
    """Whether a value is an intracranial volume that can only be in mm3."""
    return means(name, 'icv') and is_in_mm3(value)


def describe_indices(first: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return mean, SD and mean spread over members of each R-index in each group.

    Parameters
    ----------
    first
        First visits: `group`, R-indices and their spreads.
    names
        Names of the R-indices.
    """
    nothing = pd.Series(dtype=float)
    rows = [
        {
            'R-index': name,
            'group': group,
            'participants': len(rows),
            'mean': rows[name].mean(),
            'sd': rows[name].std(),
            'spread over members': rows.get(f'{name}{SPREAD_SUFFIX}', nothing).mean(),
        }
        for name in names
        for group, rows in first.groupby('group')
    ]
    return pd.DataFrame(rows)


DIFFERS = 0.05
"""Maximum p at which groups are reported to differ in a covariate."""


def describe_areas(diagnosis: pd.DataFrame | None) -> list[str]:
    """Return the area of each score among everyone as lines of text."""
    if diagnosis is None:
        return []
    everyone = diagnosis[diagnosis['among'] == EVERYONE]
    return [
        f'AUC of patients against controls, {row.by}: {row.auc:.2f} '
        f'(95% interval {row.auc_low:.2f} to {row.auc_high:.2f})'
        for row in everyone.itertuples()
    ]


def warn_of_differences(
    differences: pd.DataFrame, diagnosis: pd.DataFrame | None = None
) -> list[Caution]:
    """Warn of covariates in which patients and controls differ (:func:`compare_groups`).

    Where they differ in age, `diagnosis` (:func:`diagnose`) tells what is left at similar age.
    """
    differs = differences[differences['p'] < DIFFERS] if len(differences) else differences
    if differs.empty:
        return []
    listed = '; '.join(f'{row.in_words} (p = {row.p:.2g})' for row in differs.itertuples())
    consequence = (
        'Part of the area under the curve may be due to these differences, also in participants '
        'whom the model was not trained on'
    )
    if any(means(str(name), 'age') for name in differs['covariate']) and diagnosis is not None:
        consequence += _left_at_similar_age(diagnosis)
    return [
        Caution(
            f'The groups also differ in covariates: {listed}',
            consequence,
            'Match the groups, or report these differences with it',
            SEPARATION,
        )
    ]


def _left_at_similar_age(diagnosis: pd.DataFrame) -> str:
    """Return what tells disease from age, the first row of similar age; empty without ages."""
    similar = diagnosis[diagnosis['among'] == SIMILAR_AGE]
    if similar.empty:
        return ''
    row = similar.iloc[0]
    everyone = diagnosis[(diagnosis['among'] == EVERYONE) & (diagnosis['by'] == row['by'])].iloc[0]
    if np.isnan(row['auc']):
        counts = ' and '.join(f'{row[who]} of {everyone[who]} {who}' for who in GROUPS)
        return (
            f'. {counts} have someone within {YEARS:g} years of age in the other group: too few to '
            'tell disease from age'
        )
    interval = f'{row["auc_low"]:.2f} to {row["auc_high"]:.2f}'
    return (
        f'. Among participants of similar age, the area of the {row["by"]} is {row["auc"]:.2f} '
        f'({interval}), among everyone {everyone["auc"]:.2f}'
    )
