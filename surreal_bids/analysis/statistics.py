"""Statistics of groups: separation, covariates, associations and change, as one tidy table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from scipy import stats
from statsmodels.stats.multitest import multipletests

from surreal_bids.cautions import SEPARATION, Caution
from surreal_bids.cohort.checks import is_in_mm3
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.names import CONTROL, GROUP_NAMES, PATIENT, means
from surreal_bids.stats.concordance import area_under_curve
from surreal_bids.text import counted, plain_number

SUM_OF_INDICES = 'sum of R-indices'

PLUS_MINUS = ' \N{PLUS-MINUS SIGN} '
"""Between a mean and a standard deviation."""

SEPARATION_COLUMNS = ('index', 'controls', 'patients', 'auc', 'low', 'high')
DIFFERENCE_COLUMNS = (
    *('covariate', 'controls', 'patients', 'estimate', 'low', 'high'),
    *('test', 'p', 'p_corrected', 'n', 'in_words'),
)
ASSOCIATION_COLUMNS = (
    *('variable', 'pattern', 'higher_level', 'adjusted_for', 'n'),
    *('r', 'r_low', 'r_high', 'p', 'p_fdr'),
)
STATISTICS_COLUMNS = (
    *('analysis', 'index', 'measure', 'estimate', 'low', 'high', 'p', 'p_corrected', 'n'),
)
"""Columns of the tables of this module; the last is written."""


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
        One row per covariate: `controls`, `patients` and other groups by their label (mean and sd,
        or shares of each value); `estimate`, patients minus controls (of means, or of the shares of
        the second of two values), with its 95 % interval for means; the `test` (Welch's t, Fisher's
        exact test for two values, chi-squared for more), `p`, `p_corrected` for the number of
        covariates (Holm, 1979), number of participants `n`, and what differs `in_words`.
    """
    first = _in_groups(cohort)
    patient = first.is_patient.to_numpy()
    rows = []
    covariates, _ = first.covariates_and_measures()
    others = _other_groups(cohort)
    for name, values in covariates.items():
        both = values[~patient], values[patient]
        n_levels = values.nunique()
        if n_levels > 1 and all(map(len, both)):
            numeric = is_numeric_dtype(values) and n_levels > 2
            compare = _compare_numbers if numeric else _compare_categories
            texts = [_describe(str(name), each, numeric) for each in both]
            named = {'covariate': name, 'controls': texts[0], 'patients': texts[1]}
            named |= {
                label: _describe(str(name), known[name], numeric)
                for label, known in others.items()
                if name in known
            }
            rows.append(named | compare(str(name), *both) | {'n': len(values)})
    columns = [*DIFFERENCE_COLUMNS[:3], *others, *DIFFERENCE_COLUMNS[3:]]
    table = pd.DataFrame(rows, columns=columns)
    if rows:
        table['p_corrected'] = multipletests(table['p'], method='holm')[1]
    return table


def _other_groups(cohort: Cohort) -> dict[str, pd.DataFrame]:
    """Return covariates of participants of other groups, at first visits, by label."""
    first = cohort.first_visits()
    labels = first.groups.dropna()
    return {
        str(label): first.select(first.groups == label).covariates_and_measures()[0]
        for label in sorted(set(labels) - {CONTROL, PATIENT})
    }


def _describe(name: str, values: pd.Series, numeric: bool) -> str:
    """Return mean and SD, or the share of each value."""
    if numeric:
        return mean_and_sd(name, values.mean(), values.std())
    shares = values.value_counts(normalize=True).sort_index()
    return ', '.join(f'{level} {share:.0%}' for level, share in shares.items())


def _compare_numbers(name: str, controls: pd.Series, patients: pd.Series) -> dict[str, object]:
    difference = patients.mean() - controls.mean()
    tested = stats.ttest_ind(patients, controls, equal_var=False)
    low, high = tested.confidence_interval()
    if means(name, 'age'):
        more = 'older' if difference > 0 else 'younger'
        words = f'patients are {abs(difference):.1f} years {more}'
    else:
        more = 'higher' if difference > 0 else 'lower'
        is_icv = _is_icv_in_mm3(name, controls.mean())
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
            'group': GROUP_NAMES.get(group, group),
            'participants': rows[name].count(),
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


MINIMUM_PAIRS = 5
"""Minimum number of participants for a correlation, plus one per covariate."""

DETERMINED = 1e-10
"""A measure is determined by covariates if less than this share of its variance remains."""

SPEARMAN_VARIANCE = 1.06
"""Variance of Fisher's z of a rank correlation is this over n - 3 (Fieller, Hartley and Pearson,
1957, doi:10.1093/biomet/44.3-4.470)."""

NORMAL_95 = float(stats.norm.ppf(0.975))


class _Variable(NamedTuple):
    """A variable as numbers; `higher_level` is what 1 stands for in one of two values."""

    numbers: pd.Series
    higher_level: str | None


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
        One row per variable and pattern: `higher_level` of variables with two values, at which a
        positive r means more of the pattern; the covariates; number of participants; r with its
        95 % interval; p of Student's t with n - 2 - k degrees of freedom for k columns of
        covariates; and p adjusted for the false discovery rate over the whole table (Benjamini and
        Hochberg).
    untested
        Variables, or variable and pattern, that were not tested, and why.
    """
    rows: list[dict[str, object]] = []
    untested: dict[str, str] = {}
    for name, column in clinical.items():
        variable = _to_numbers(column)
        if isinstance(variable, str):
            untested[str(name)] = variable
            continue
        for pattern in r_indices:
            found = _correlate(variable, r_indices[pattern], covariates)
            if isinstance(found, str):
                untested[f'{name} and {pattern}'] = found
            else:
                rows.append({'variable': str(name), 'pattern': str(pattern)} | found)
    table = pd.DataFrame(rows, columns=list(ASSOCIATION_COLUMNS))
    if rows:
        table['p_fdr'] = stats.false_discovery_control(table['p'])
    return table, untested


def _to_numbers(column: pd.Series) -> _Variable | str:
    """Numbers of a variable, or why it has none."""
    if column.empty:
        return 'there are no patients with R-indices'
    numbers = pd.to_numeric(column.astype(object), errors='coerce').astype(float)
    is_number = bool(np.isfinite(numbers[column.notna()]).all())
    # 0 and 0.0 are the same number, though not the same text.
    values = numbers if is_number else column.astype(object)
    levels = sorted(values.dropna().unique(), key=float if is_number else str)
    if len(levels) < 2:
        return 'all values are the same' if levels else 'all values are missing'
    if len(levels) == 2:
        upper = str(column[values == levels[1]].iloc[0])
        return _Variable(values.map({levels[0]: 0.0, levels[1]: 1.0}), upper)
    if not is_number:
        return f'text with {len(levels)} different values cannot be ranked'
    return _Variable(numbers, None)


def _correlate(
    variable: _Variable, index: pd.Series, covariates: pd.DataFrame
) -> dict[str, object] | str:
    """Partial rank correlation of those who have all numbers, or why there is none."""
    known = variable.numbers.notna() & index.notna() & covariates.notna().all(axis=1)
    if not known.any():
        return 'no participant has both'
    nuisance = _nuisance(covariates[known])
    x, y = (stats.rankdata(values[known]) for values in (variable.numbers, index))
    n, k = len(x), nuisance.shape[1] - 1
    if n < MINIMUM_PAIRS + k:
        have = 'has' if n == 1 else 'have'
        return (
            f'only {counted(n, "participant")} {have} both; at least {MINIMUM_PAIRS + k} are needed'
        )
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 'all participants with both have the same value'
    left_x, left_y = (values - nuisance @ (nuisance.T @ values) for values in (x, y))
    if min(left_x @ left_x / (n * x.var()), left_y @ left_y / (n * y.var())) < DETERMINED:
        return 'it is determined by the covariates'
    r = float(np.clip(left_x @ left_y / np.sqrt((left_x @ left_x) * (left_y @ left_y)), -1, 1))
    freedom = n - 2 - k
    t = r * np.sqrt(freedom / max(1 - r**2, np.finfo(float).eps))
    reach = NORMAL_95 * np.sqrt(SPEARMAN_VARIANCE / (freedom - 1))
    z = np.arctanh(np.clip(r, -1 + DETERMINED, 1 - DETERMINED))
    return {
        'higher_level': variable.higher_level,
        'adjusted_for': ', '.join(map(str, covariates.columns)) or None,
        'n': n,
        'r': r,
        'r_low': float(np.tanh(z - reach)),
        'r_high': float(np.tanh(z + reach)),
        'p': float(2 * stats.t.sf(abs(t), freedom)),
    }


def _nuisance(covariates: pd.DataFrame) -> NDArray[np.float64]:
    """Orthonormal columns (n, 1 + k): a constant, ranks of numbers, and levels of categories."""
    columns = [np.ones((len(covariates), 1))]
    for name, column in covariates.items():
        # Text of several values is a category, even if of digits.
        is_category = not is_numeric_dtype(column) and column.nunique() > 2
        variable = 'a category' if is_category else _to_numbers(column)
        if isinstance(variable, _Variable):
            columns.append(np.asarray(stats.rankdata(variable.numbers), np.float64)[:, None])
        else:
            columns.append(pd.get_dummies(covariates[name].astype(str)).to_numpy(float))
    centred = np.hstack([c - c.mean(axis=0) if j else c for j, c in enumerate(columns)])
    length = np.linalg.norm(centred, axis=0)
    basis, size, _ = np.linalg.svd(centred / np.where(length > 0, length, 1), full_matrices=False)
    return basis[:, size > DETERMINED**0.5]


def gather(
    separation: pd.DataFrame,
    differences: pd.DataFrame,
    associations: pd.DataFrame,
    change: pd.DataFrame | None,
) -> pd.DataFrame:
    """Gather all statistics of groups in one table, `STATISTICS_COLUMNS`.

    Parameters
    ----------
    separation, differences, associations
        Results of :func:`separate`, :func:`compare_groups` and :func:`associate`.
    change
        Change per year of groups; None where everyone has one visit.
    """
    parts = [
        separation.assign(
            analysis='separation',
            measure='AUC',
            estimate=separation['auc'],
            n=separation['controls'] + separation['patients'],
        ),
        differences.assign(analysis='group difference', measure=differences['covariate']),
        associations.rename(
            columns={
                'variable': 'measure',
                'pattern': 'index',
                'p_fdr': 'p_corrected',
                'r': 'estimate',
                'r_low': 'low',
                'r_high': 'high',
            }
        ).assign(analysis='association'),
    ]
    if change is not None:
        known = change.assign(n=change['controls'] + change['patients'], analysis='change per year')
        known = known.rename(columns={'r_index': 'index'})
        renamed = known.rename(columns={'difference': 'estimate', 'p_holm': 'p_corrected'})
        parts.append(renamed.assign(measure='patients minus controls'))
        for group in ('controls', 'patients'):
            rows = known.drop(columns=['low', 'high', 'p']).rename(
                columns={f'{group}_per_year': 'estimate'}
            )
            parts.append(rows.assign(measure=group, n=rows[group]))
    columns = list(STATISTICS_COLUMNS)
    known_parts = [part.reindex(columns=columns) for part in parts if len(part)]
    if not known_parts:
        return pd.DataFrame(columns=columns)
    return pd.concat(known_parts, ignore_index=True).astype({'n': 'Int64'})
