"""Statistics of groups: separation, covariates, associations and change, as one tidy table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from scipy import stats
from statsmodels.stats.multitest import multipletests

from surreal_bids.cautions import BIASED, CONFOUNDED, PARTICIPANTS, Caution
from surreal_bids.cohort.checks import USUAL_ICV_MM3
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.names import CONTROL, GROUP_NAMES, PATIENT, means
from surreal_bids.stats.concordance import area_under_curve
from surreal_bids.stats.linear import partial_correlation
from surreal_bids.text import plain_number

SUM_OF_INDICES = 'sum of R-indices'

PLUS_MINUS = ' \N{PLUS-MINUS SIGN} '
"""Between a mean and a standard deviation."""

STATISTICS_COLUMNS = (
    *('analysis', 'index', 'measure', 'estimate', 'low', 'high', 'p', 'p_corrected', 'n'),
)
"""Columns of all parts of the table of statistics, which may have more."""

GATHERED_COLUMNS = ('analysis', 'group', *STATISTICS_COLUMNS[1:])
"""Columns of the table of all statistics."""


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
        A row for each R-index, after one for their sum if there are several: area (`estimate`)
        with its 95 % interval (`low` and `high`; Newcombe 2006, method 5), and number of
        participants. Empty with fewer than two of either group.
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
        if min(is_patient.sum(), (~is_patient).sum()) > 1:
            rows.append((name, 'AUC', *area_under_curve(own, is_patient), len(own)))
    return pd.DataFrame(rows, columns=['index', 'measure', 'estimate', 'low', 'high', 'n'])


def _in_groups(cohort: Cohort) -> Cohort:
    """First visits of controls and patients."""
    first = cohort.first_visits()
    return first.select(first.groups.isin([CONTROL, PATIENT]))


def compare_groups(cohort: Cohort) -> pd.DataFrame:
    """Whether patients and controls differ in age, sex, site or another covariate.

    Where they do, being told apart may be due to that: removing its effect as learned from
    controls, inside folds or not, does not undo it.

    Returns
    -------
    DataFrame
        One row per covariate (`measure`): `controls`, `patients` and other groups by their label
        (mean and sd, or shares of each value); `estimate`, patients minus controls (of means, or of
        the shares of the second of two values), with its 95 % interval for means; `p`,
        `p_corrected` for the number of covariates (Holm, 1979); number of participants `n`; the
        `test` (Welch's t, Fisher's exact test for two values, chi-squared for more), what
        differs `in_words`, and whether there is an `overlap` of the values of both groups.
    """
    first = _in_groups(cohort)
    patient = first.is_patient.to_numpy()
    rows = []
    covariates, _ = first.covariates_and_measures()
    everyone = cohort.first_visits()
    others = {
        str(label): everyone.select(everyone.groups == label).covariates_and_measures()[0]
        for label in sorted(set(everyone.groups.dropna()) - {CONTROL, PATIENT})
    }
    for name, values in covariates.items():
        both = values[~patient], values[patient]
        n_levels = values.nunique()
        if n_levels > 1 and all(map(len, both)):
            numeric = is_numeric_dtype(values) and n_levels > 2
            compare = _compare_numbers if numeric else _compare_categories
            texts = [_describe(str(name), each, numeric) for each in both]
            named = {'measure': name, 'controls': texts[0], 'patients': texts[1]}
            named |= {
                label: _describe(str(name), known[name], numeric)
                for label, known in others.items()
                if name in known
            }
            more = {'n': len(values), 'overlap': _overlap(*both, numeric)}
            rows.append(named | compare(str(name), *both) | more)
    columns = ['measure', 'controls', 'patients', *others, *STATISTICS_COLUMNS[3:]]
    columns += ['test', 'in_words', 'overlap']
    table = pd.DataFrame(rows, columns=columns)
    if rows:
        table['p_corrected'] = multipletests(table['p'], method='holm')[1]
    return table


def _describe(name: str, values: pd.Series, numeric: bool) -> str:
    """Return mean and SD, or the share of each value."""
    if numeric:
        return mean_and_sd(name, values.mean(), values.std())
    shares = values.value_counts(normalize=True).sort_index()
    return ', '.join(f'{level} {share:.0%}' for level, share in shares.items())


def _overlap(controls: pd.Series, patients: pd.Series, numeric: bool) -> bool:
    """Tell whether any value, or any part of the range of numbers, occurs in both groups."""
    if numeric:
        return bool(controls.max() >= patients.min() and patients.max() >= controls.min())
    return bool(set(controls) & set(patients))


def _compare_numbers(name: str, controls: pd.Series, patients: pd.Series) -> dict[str, object]:
    difference = patients.mean() - controls.mean()
    tested = stats.ttest_ind(patients, controls, equal_var=False)
    low, high = tested.confidence_interval()
    if means(name, 'age'):
        more = 'older' if difference > 0 else 'younger'
        words = f'patients are {abs(difference):.1f} years {more}'
    else:
        more = 'higher' if difference > 0 else 'lower'
        is_icv = is_icv_in_mm3(name, controls.mean())
        size = f'{abs(difference) / 1000:,.0f} ml' if is_icv else plain_number(abs(difference))
        words = f'{name} of patients is {size} {more}'
    found = {'estimate': difference, 'low': low, 'high': high}
    return found | {'test': 'Welch t', 'p': float(tested.pvalue), 'in_words': words}


def _compare_categories(name: str, controls: pd.Series, patients: pd.Series) -> dict[str, object]:
    values = pd.concat([controls, patients])
    group = np.repeat(['controls', 'patients'], [len(controls), len(patients)])
    counts = pd.crosstab(group, values.to_numpy())
    shares = counts.div(counts.sum(axis=1), axis=0)
    of_controls, of_patients = shares.to_numpy()
    most = int(np.abs(of_patients - of_controls).argmax())
    words = (
        f'{name} is {shares.columns[most]} in {of_patients[most]:.0%} of patients and '
        f'{of_controls[most]:.0%} of controls'
    )
    if counts.shape[1] == 2:
        p = float(stats.fisher_exact(counts.to_numpy()).pvalue)
        estimate = of_patients[1] - of_controls[1]
        return {'estimate': estimate, 'test': 'Fisher exact', 'p': p, 'in_words': words}
    p = float(stats.chi2_contingency(counts.to_numpy()).pvalue)
    return {'test': 'chi-squared', 'p': p, 'in_words': words}


def mean_and_sd(name: str, mean: float, sd: float) -> str:
    """Return mean and SD of a covariate with its unit: age in years, intracranial volume in ml."""
    if is_icv_in_mm3(name, mean):
        return f'{mean / 1000:,.0f}{PLUS_MINUS}{sd / 1000:,.0f} ml'
    unit = ' years' if means(name, 'age') else ''
    return f'{plain_number(mean)}{PLUS_MINUS}{plain_number(sd, 3)}{unit}'


def is_icv_in_mm3(name: str, value: float) -> bool:
    """Whether a value is an intracranial volume that can only be in mm3."""
    return means(name, 'icv') and USUAL_ICV_MM3[0] < value < USUAL_ICV_MM3[1]


def describe_indices(first: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return mean and SD of each R-index in each group.

    Parameters
    ----------
    first
        First visits: `group` and R-indices.
    names
        Names of the R-indices.
    """
    known = first.melt('group', names, var_name='R-index').groupby(['R-index', 'group'])['value']
    table = known.agg(participants='count', mean='mean', sd='std').reset_index()
    return table.replace({'group': GROUP_NAMES})


def warn_of_differences(differences: pd.DataFrame) -> list[Caution]:
    """Warn of covariates in which patients and controls differ (:func:`compare_groups`)."""
    differs = differences[differences['p_corrected'] < 0.05]
    overlap = differs['overlap'].astype(bool)
    cautions = []
    if not overlap.all():
        cautions.append(
            Caution(
                'Patients and controls do not overlap in covariates: '
                f'{_list_differences(differs[~overlap])}',
                'Effects of the disease cannot be told from effects of these covariates',
                'Do not interpret differences between the groups; add participants of both groups '
                'with the same values',
                PARTICIPANTS,
                severity=CONFOUNDED,
            )
        )
    if overlap.any():
        cautions.append(
            Caution(
                f'The groups also differ in covariates: {_list_differences(differs[overlap])}',
                'Part of any difference between the groups may be due to these covariates, also in '
                'participants whom the model was not trained on',
                'Match the groups, or report these differences with the results',
                PARTICIPANTS,
                severity=BIASED,
            )
        )
    return cautions


def _list_differences(differs: pd.DataFrame) -> str:
    """List differences between groups, with their p."""
    return '; '.join(f'{row.in_words} (p = {row.p_corrected:.2g})' for row in differs.itertuples())


def associate(
    clinical: pd.DataFrame, r_indices: pd.DataFrame, covariates: pd.DataFrame
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Compute partial rank correlations of clinical measures with R-indices.

    R-indices may retain residual effects of age or head size, because these were estimated from a
    limited number of controls, and clinical measures depend on them too. Ranks of both are
    therefore residualised on the ranks of the covariates.

    Parameters
    ----------
    clinical
        Clinical variables, one row per participant; NaN is missing. Columns of two values, words or
        numbers, are dichotomous; numbers written as text are numbers.
    r_indices, covariates
        R-indices, and age, sex, head size and site, of the same participants; covariates are
        numbers, or text for categories, which may be called 1, 2 and 3.

    Returns
    -------
    table
        One row per variable and pattern: the correlation (`estimate`) with its 95 % interval; p of
        Student's t with n - 2 - k degrees of freedom for k columns of covariates, and corrected for
        the false discovery rate over the whole table (Benjamini and Hochberg); number of
        participants; `higher_level` of variables with two values, at which a positive correlation
        means more of the pattern; and the covariates.
    untested
        Variables, or variable and pattern, that were not tested, and why.
    """
    rows: list[dict[str, object]] = []
    untested: dict[str, str] = {}
    adjusted = ', '.join(map(str, covariates.columns)) or None
    for name, column in clinical.items():
        known = _to_numbers(column)
        if isinstance(known, str):
            untested[str(name)] = known
            continue
        numbers, higher = known
        for pattern in r_indices:
            found = partial_correlation(numbers, r_indices[pattern], covariates)
            if isinstance(found, str):
                untested[f'{name} and {pattern}'] = found
            else:
                named = {'measure': str(name), 'index': str(pattern), 'adjusted_for': adjusted}
                rows.append({**named, 'higher_level': higher, **found})
    columns = [*STATISTICS_COLUMNS[1:], 'higher_level', 'adjusted_for']
    table = pd.DataFrame(rows, columns=columns)
    if rows:
        table['p_corrected'] = stats.false_discovery_control(table['p'])
    return table, untested


def _to_numbers(column: pd.Series) -> tuple[pd.Series, str | None] | str:
    """Numbers of a variable, and what 1 stands for if it has two values; or why it has none."""
    numbers = pd.to_numeric(column.astype(object), errors='coerce').astype(float)
    is_number = bool(np.isfinite(numbers[column.notna()]).all())
    # 0 and 0.0 are the same number, though not the same text.
    values = numbers if is_number else column.astype(object)
    levels = sorted(values.dropna().unique(), key=float if is_number else str)
    if len(levels) < 2:
        return 'all values are the same' if levels else 'all values are missing'
    if len(levels) == 2:
        upper = str(column[values == levels[1]].iloc[0])
        return values.map({levels[0]: 0.0, levels[1]: 1.0}), upper
    if not is_number:
        return f'text with {len(levels)} different values cannot be ranked'
    return numbers, None


def gather(tables: Mapping[str, pd.DataFrame | None]) -> pd.DataFrame:
    """Gather tables of statistics, by the name of the analysis, in one."""
    columns = list(GATHERED_COLUMNS)
    known = [
        table.assign(analysis=name).reindex(columns=columns)
        for name, table in tables.items()
        if table is not None and len(table)
    ]
    if not known:
        return pd.DataFrame(columns=columns)
    return pd.concat(known, ignore_index=True).astype({'n': 'Int64'})
