"""How well patients are told from controls, and what else the two groups differ in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from scipy import stats
from statsmodels.stats.multitest import multipletests

from surreal_bids.cautions import SEPARATION, Caution
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.requirements import is_in_mm3
from surreal_bids.columns import means
from surreal_bids.stats.concordance import area_under_curve
from surreal_bids.text import plain_number

SUM_OF_INDICES = 'sum of R-indices'

PLUS_MINUS = ' \N{PLUS-MINUS SIGN} '
"""Between a mean and a standard deviation."""

SEPARATION_COLUMNS = ('index', 'controls', 'patients', 'auc', 'low', 'high')
DIFFERENCE_COLUMNS = ('covariate', 'controls', 'patients', 'test', 'p', 'p_corrected', 'in_words')


class _Differs(NamedTuple):
    """How two groups differ in a covariate: of each in short, the test, p, and both in words."""

    controls: str
    patients: str
    test: str
    p: float
    in_words: str


def separate(cohort: Cohort, indices: pd.DataFrame) -> pd.DataFrame:
    """Area under the curve of patients against controls, at first visits.

    Parameters
    ----------
    cohort
        Participants.
    indices
        Their R-indices, by models that were not trained on them.

    Returns
    -------
    DataFrame
        A row for each R-index, after one for their sum if there are several: how many `controls`
        and `patients`, `auc`, and its 95 % interval (`low` and `high`; Newcombe 2006, method 5).
        Empty with fewer than two of either group.
    """
    first = _in_groups(cohort)
    known = indices.loc[first.visits.index]
    scores = {str(name): known[name] for name in known}
    if len(scores) > 1:
        scores = {SUM_OF_INDICES: known.sum(axis=1, skipna=False), **scores}
    rows: list[tuple[object, ...]] = []
    for name, score in scores.items():
        own = score.dropna()
        is_patient = first.is_patient[own.index]
        counts = int((~is_patient).sum()), int(is_patient.sum())
        if min(counts) > 1:
            rows.append((name, *counts, *area_under_curve(own, is_patient)))
    return pd.DataFrame(rows, columns=list(SEPARATION_COLUMNS))


def _in_groups(cohort: Cohort) -> Cohort:
    """First visits of participants whose group is known."""
    first = cohort.first_visits()
    return first.select(first.groups.notna())


def compare_groups(cohort: Cohort) -> pd.DataFrame:
    """Whether patients and controls differ in age, sex, site or another covariate.

    Where they do, being told apart may be due to that: removing its effect as learned from
    controls, inside folds or not, does not undo it.

    Returns
    -------
    DataFrame
        One row per covariate: `controls` and `patients` (mean and sd, or shares of each value),
        the `test` (Welch's t, Fisher's exact test for two values, chi-squared for more), `p`,
        `p_corrected` for the number of covariates (Holm, 1979), and what differs `in_words`.
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
    table = pd.DataFrame(
        rows, columns=[each for each in DIFFERENCE_COLUMNS if each != 'p_corrected']
    )
    corrected = multipletests(table['p'], method='holm')[1] if rows else []
    return table.assign(p_corrected=corrected)[list(DIFFERENCE_COLUMNS)]


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
    if means(name, 'age'):
        return f'{low:.1f} to {high:.1f} years'
    return f'{plain_number(low)} to {plain_number(high)}'


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
    """Return mean and SD of each R-index in each group.

    Parameters
    ----------
    first
        First visits: `group` and R-indices.
    names
        Names of the R-indices.
    """
    rows = [
        {
            'R-index': name,
            'group': group,
            'participants': len(rows),
            'mean': rows[name].mean(),
            'sd': rows[name].std(),
        }
        for name in names
        for group, rows in first.groupby('group')
    ]
    return pd.DataFrame(rows)


DIFFERS = 0.05
"""Maximum corrected p at which groups are reported to differ in a covariate."""


def describe_areas(separation: pd.DataFrame) -> list[str]:
    """Return the area of each score as lines of text."""
    return [
        f'AUC of patients against controls, {row.index}: {row.auc:.2f} '
        f'(95% interval {row.low:.2f} to {row.high:.2f})'
        for row in separation.itertuples(index=False)
    ]


def warn_of_differences(differences: pd.DataFrame) -> list[Caution]:
    """Warn of covariates in which patients and controls differ (:func:`compare_groups`)."""
    differs = differences[differences['p_corrected'] < DIFFERS]
    if differs.empty:
        return []
    listed = '; '.join(
        f'{row.in_words} (p = {row.p_corrected:.2g})' for row in differs.itertuples()
    )
    return [
        Caution(
            f'The groups also differ in covariates: {listed}',
            'Part of the difference in R-indices may be due to these covariates, also in '
            'participants whom the model was not trained on',
            'Match the groups, or report these differences with the results',
            SEPARATION,
        )
    ]
