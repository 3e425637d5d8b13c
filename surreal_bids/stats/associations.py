"""What R-indices go along with: clinical measures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from surreal_bids.exceptions import DataError
from surreal_bids.stats.glm import Skipped
from surreal_bids.stats.maps import fdr_adjusted

MINIMUM_PAIRS = 5
"""Participants with both numbers that a correlation needs."""

COLUMNS = (
    'variable',
    'pattern',
    'test',
    'higher_level',
    'n',
    'r',
    'r_low',
    'r_high',
    'p',
    'p_fdr',
)
"""Columns of the table of associations."""


class _Variable(NamedTuple):
    """A clinical variable as numbers; `higher_level` is what 1 stands for in one of two values."""

    numbers: pd.Series
    test: str
    higher_level: str | None


def associate(
    clinical: pd.DataFrame, r_indices: pd.DataFrame
) -> tuple[pd.DataFrame, list[Skipped]]:
    """Correlate every clinical column with each R-index, over the participants who have both.

    Parameters
    ----------
    clinical
        Clinical variables, one row per participant; NaN is missing. Columns of two values, words or
        numbers, are dichotomous; numbers written as text are numbers.
    r_indices
        R-indices, one row per participant (in the paper, patients), with the same kind of index.

    Returns
    -------
    table
        One row per variable and pattern: `test` (`pearson`, or `point_biserial` for dichotomous
        variables, where a positive r means more of the pattern at the `higher_level`), number of
        participants, r with its 95 % confidence interval, p, and p adjusted for the false
        discovery rate over the whole table (Benjamini and Hochberg).
    skipped
        Columns, or column and pattern, that were not tested, and why.
    """
    _require_unique(clinical, r_indices)
    people = r_indices.index.intersection(clinical.index)
    rows: list[dict[str, object]] = []
    skipped: list[Skipped] = []
    for name, column in clinical.loc[people].items():
        variable = _to_numbers(column)
        if isinstance(variable, str):
            skipped.append(Skipped(str(name), variable))
            continue
        for pattern in r_indices.columns:
            found = _correlate(variable, r_indices[pattern].loc[people])
            if isinstance(found, str):
                skipped.append(Skipped(f'{name} and {pattern}', found))
            else:
                rows.append({'variable': str(name), 'pattern': str(pattern)} | found)
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.assign(p_fdr=fdr_adjusted(table['p'])), skipped


def _require_unique(clinical: pd.DataFrame, r_indices: pd.DataFrame) -> None:
    for table in (clinical, r_indices):
        twice = table.index[table.index.duplicated()]
        if twice.size:
            raise DataError(f'{twice[0]} has several rows; give one row per participant')
    if len(r_indices) and r_indices.index.intersection(clinical.index).empty:
        raise DataError(
            'no one has both R-indices and clinical variables; '
            'check that both tables name participants alike'
        )


def _to_numbers(column: pd.Series) -> _Variable | str:
    """Numbers of a clinical variable, or why it has none."""
    numbers = pd.to_numeric(column.astype(object), errors='coerce').astype(float)
    is_number = bool(np.isfinite(numbers[column.notna()]).all())
    # 0 and 0.0 are the same number, though not the same text.
    values = numbers if is_number else column.astype(object)
    levels = sorted(values.dropna().unique(), key=float if is_number else str)
    if len(levels) < 2:
        return 'all who have a value have the same' if levels else 'no one has a value'
    if len(levels) == 2:
        upper = str(column[values == levels[1]].iloc[0])
        return _Variable(values.map({levels[0]: 0.0, levels[1]: 1.0}), 'point_biserial', upper)
    if not is_number:
        return f'text of {len(levels)} different values has no order'
    return _Variable(numbers, 'pearson', None)


def _correlate(variable: _Variable, index: pd.Series) -> dict[str, object] | str:
    """Correlation of those who have both numbers, or why there is none."""
    both = variable.numbers.notna() & index.notna()
    x, y = variable.numbers[both].to_numpy(float), index[both].to_numpy(float)
    if x.size < MINIMUM_PAIRS:
        return f'only {x.size} participants have both; at least {MINIMUM_PAIRS} are needed'
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 'all who have both have the same value'
    result = stats.pearsonr(x, y)
    interval = result.confidence_interval()
    return {
        'test': variable.test,
        'higher_level': variable.higher_level,
        'n': x.size,
        'r': result.statistic,
        'r_low': interval.low,
        'r_high': interval.high,
        'p': result.pvalue,
    }
