"""Associations of R-indices with clinical measures, adjusted for covariates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from scipy import stats

from surreal_bids.exceptions import DataError
from surreal_bids.text import counted

Floats = NDArray[np.float64]

MINIMUM_PAIRS = 5
"""Minimum number of participants for a correlation, plus one per covariate."""

DETERMINED = 1e-10
"""A measure is determined by covariates if less than this share of its variance remains."""

SPEARMAN_VARIANCE = 1.06
"""Variance of Fisher's z of a rank correlation is this over n - 3 (Fieller, Hartley and Pearson,
1957, doi:10.1093/biomet/44.3-4.470)."""

NORMAL_95 = float(stats.norm.ppf(0.975))

COLUMNS = (
    'variable',
    'pattern',
    'test',
    'higher_level',
    'adjusted_for',
    'n',
    'r',
    'r_low',
    'r_high',
    'p',
    'p_fdr',
)
"""Columns of the table of associations."""


class _Variable(NamedTuple):
    """A variable as numbers; `higher_level` is what 1 stands for in one of two values."""

    numbers: pd.Series
    higher_level: str | None


class Skipped(NamedTuple):
    """Something that was not tested, and why."""

    name: str
    reason: str


def associate(
    clinical: pd.DataFrame, r_indices: pd.DataFrame, covariates: pd.DataFrame | None = None
) -> tuple[pd.DataFrame, list[Skipped]]:
    """Compute partial rank correlations of clinical measures with R-indices.

    R-indices may retain residual effects of age or head size, because these were estimated from a
    limited number of controls, and clinical measures depend on them too. Ranks of both are
    therefore residualised on the ranks of the covariates.

    Parameters
    ----------
    clinical
        Clinical variables, one row per participant; NaN is missing. Columns of two values, words or
        numbers, are dichotomous; numbers written as text are numbers.
    r_indices
        R-indices, one row per participant (in the paper, patients), with the same kind of index.
    covariates
        Age, sex, head size, site; numbers, or text for categories, which may be called 1, 2 and 3.

    Returns
    -------
    table
        One row per variable and pattern: `test`; `higher_level` of variables with two values, at
        which a positive r means more of the pattern; the covariates; number of participants; r with
        its 95 % confidence interval; p of Student's t with n - 2 - k degrees of freedom for k
        columns of covariates; and p adjusted for the false discovery rate over the whole table
        (Benjamini and Hochberg).
    skipped
        Columns, or column and pattern, that were not tested, and why.
    """
    _require_unique(clinical, r_indices)
    people = r_indices.index.intersection(clinical.index)
    fixed = pd.DataFrame(index=people) if covariates is None else covariates.loc[people]
    rows: list[dict[str, object]] = []
    skipped: list[Skipped] = []
    for name, column in clinical.loc[people].items():
        variable = _to_numbers(column)
        if isinstance(variable, str):
            skipped.append(Skipped(str(name), variable))
            continue
        for pattern in r_indices.columns:
            found = _correlate(variable, r_indices[pattern].loc[people], fixed)
            if isinstance(found, str):
                skipped.append(Skipped(f'{name} and {pattern}', found))
            else:
                rows.append({'variable': str(name), 'pattern': str(pattern)} | found)
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    p = table['p'].to_numpy(np.float64)
    return table.assign(p_fdr=stats.false_discovery_control(p) if p.size else p), skipped


def _require_unique(clinical: pd.DataFrame, r_indices: pd.DataFrame) -> None:
    for table in (clinical, r_indices):
        twice = table.index[table.index.duplicated()]
        if twice.size:
            raise DataError(f'{twice[0]} has several rows; keep one row per participant')
    if len(r_indices) and r_indices.index.intersection(clinical.index).empty:
        raise DataError(
            'no participant has both R-indices and clinical variables; '
            'use the same participant labels in both tables'
        )


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


def _covariate_to_numbers(column: pd.Series) -> _Variable | str:
    """The same of a covariate, where text of several values is a category, even if of digits."""
    if not is_numeric_dtype(column) and column.nunique() > 2:
        return 'a category'
    return _to_numbers(column)


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
        'test': 'spearman',
        'higher_level': variable.higher_level,
        'adjusted_for': ', '.join(map(str, covariates.columns)) or None,
        'n': n,
        'r': r,
        'r_low': float(np.tanh(z - reach)),
        'r_high': float(np.tanh(z + reach)),
        'p': float(2 * stats.t.sf(abs(t), freedom)),
    }


def _nuisance(covariates: pd.DataFrame) -> Floats:
    """Orthonormal columns (n, 1 + k): a constant, ranks of numbers, and levels of categories."""
    columns = [np.ones((len(covariates), 1))]
    for name in covariates:
        variable = _covariate_to_numbers(covariates[name])
        if isinstance(variable, _Variable):
            columns.append(np.asarray(stats.rankdata(variable.numbers), np.float64)[:, None])
        else:
            columns.append(pd.get_dummies(covariates[name].astype(str)).to_numpy(float))
    centred = np.hstack([c - c.mean(axis=0) if j else c for j, c in enumerate(columns)])
    length = np.linalg.norm(centred, axis=0)
    basis, size, _ = np.linalg.svd(centred / np.where(length > 0, length, 1), full_matrices=False)
    return basis[:, size > DETERMINED**0.5]
