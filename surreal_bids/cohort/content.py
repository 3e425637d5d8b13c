"""What the numbers of a column can be: volumes of a region, or scores, codes, years and ids.

A column whose name says nothing is judged by its content. `what_it_holds` looks at a column alone,
`sums_of_others` and `unlike_others` compare it with the other columns of the table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.columns import Meaning, may_mean, meaning_of, sex_of
from surreal_bids.exceptions import DataError
from surreal_bids.text import list_briefly

MIN_VALUES = 10
"""Minimum number of values to judge a column by."""

MOSTLY = 0.5
"""Share of values above which they characterise a column."""

NEARLY_ALL = 0.9
"""Share of ids that end with the number of a column above which it repeats the ids."""

FEW_LEVELS = 5
"""Number of different values up to which a column holds levels."""

SMALL = 200
"""Number below which whole numbers, and halves, are scores; volumes in mm3 are larger, and
thicknesses have decimals."""

YEARS = (1900, 2035)

LARGEST = 1e7
"""Number above which whole numbers are ids; heads are smaller in mm3."""

OTHER_SCALE = 10.0
"""Gap between the medians of columns that shows another quantity. Of 139 MUSE regions, ordered by
size, the next one is at most twice as large."""

FEW_COLUMNS, FEW_OF_ALL = 3, 0.15
"""Number and share of columns up to which those of another scale are not regions. In a table of
cortical thicknesses and volumes, both are many."""

OFTEN_NEGATIVE = 0.05
WIDER = 2.5
"""Ratio to the upper quartile of the interquartile ranges, relative to the median, that is unusual
for regions. Their coefficients of variation are 0.06 to 0.29 in real tables."""

BY_CHANCE = 0.025
"""Probability that a column without any relation has a larger correlation with some other. Of MUSE
volumes in 291 participants, the least related one reaches 0.42, where 0.24 is expected."""

ROUNDING = 1e-3
"""Relative difference up to which a sum equals its parts."""

_DATE = r'\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(\D.*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})(\D.*)?'
_NUMBER = r"[+-]?[.,]?\d[\d.,' ]*([eE][+-]?\d+)?( ?(mm|cm|cc|ml)\S*|[^\w\s])?"


def what_it_holds(cells: pd.Series) -> str | None:
    """Say what a column of text holds if it cannot be volumes; None if it can.

    Parameters
    ----------
    cells : Series of text
        A column, indexed by the names of visits.
    """
    known = cells.dropna().astype(str)
    if known.empty:
        return None
    if known.str.fullmatch(_DATE).mean() > MOSTLY:
        return 'dates'
    if known.str.fullmatch(_NUMBER).mean() <= MOSTLY:
        return 'text'
    values = pd.to_numeric(known, errors='coerce')
    if len(known) < MIN_VALUES or values.isna().any():
        return None
    return _kind_of_numbers(values)


def _kind_of_numbers(values: pd.Series) -> str | None:
    """Say what numbers are if they cannot be volumes; one value in all rows can."""
    levels = values.nunique()
    if levels == 1:
        return None
    if levels <= FEW_LEVELS and levels <= len(values) / 2:
        return f'{levels} levels'
    if (2 * values % 1 == 0).all() and values.abs().max() < SMALL:
        return 'small whole numbers, like a score'
    return _kind_of_whole_numbers(values) if (values % 1 == 0).all() else None


def _kind_of_whole_numbers(values: pd.Series) -> str | None:
    if values.between(*YEARS).all():
        return 'years'
    if _are_days(values):
        return 'dates'
    ends = values.index.to_series().astype(str).str.extract(r'(\d{1,15})$')[0].astype(float)
    steps = values.diff().dropna()
    is_counted = (steps > 0).all() or (steps < 0).all()
    if is_counted or values.min() >= LARGEST or (ends == values).mean() > NEARLY_ALL:
        return 'ids'
    return None


def _are_days(values: pd.Series) -> bool:
    """Check whether whole numbers are days such as 20190302."""
    year, month, day = values // 10_000, values // 100 % 100, values % 100
    return bool((year.between(*YEARS) & month.between(1, 12) & day.between(1, 31)).all())


def may_hold(cells: pd.Series, meaning: Meaning) -> bool:
    """Check whether a column of text can be what its name says.

    Parameters
    ----------
    cells : Series of text
        A column.
    meaning
        Age, sex, site or head size.
    """
    known = cells.dropna()
    levels = known.nunique()
    if meaning == 'sex':
        return levels == 2
    if meaning == 'site':
        return 1 < levels <= max(len(known) / 2, 2)
    values = pd.to_numeric(known, errors='coerce').dropna()
    is_number = levels > 2 and len(values) > MOSTLY * len(known)
    return is_number and not (meaning == 'age' and looks_like_codes(values))


HEADS = (9e5, 2.2e6)
HEADS_VARY = (0.03, 0.25)
"""Range of median head sizes in mm3, and of their standard deviation relative to the median."""


def is_doubtful(cells: pd.Series, meaning: Meaning) -> bool:
    """Check whether a column may have a meaning, by its name and content or its content alone."""
    name = str(cells.name)
    if may_mean(name, meaning):
        return may_hold(cells, meaning)
    return meaning_of(name) is None and _seems_to_hold(cells, meaning)


def _seems_to_hold(cells: pd.Series, meaning: Meaning) -> bool:
    """Check whether content shows a meaning: sex or head size; others cannot be told by it."""
    known = cells.dropna()
    if len(known) < MIN_VALUES:
        return False
    if meaning == 'sex':
        return {sex_of(str(word)) for word in set(known)} == {'F', 'M'}
    if meaning != 'icv':
        return False
    values = pd.to_numeric(known, errors='coerce')
    middle = values.median()
    return bool(
        values.notna().all()
        and HEADS[0] <= middle <= HEADS[1]
        and HEADS_VARY[0] <= values.std() / middle <= HEADS_VARY[1]
    )


def looks_like_codes(values: pd.Series) -> bool:
    """Check whether numbers called ages are codes of age groups: 1, 2, 3 ..."""
    known = values.dropna()
    if len(known) < 2 * MIN_VALUES or (known % 1 != 0).any():
        return False
    return bool(known.min() in (0, 1) and known.max() < 10)


def refuse_codes(ages: pd.Series) -> None:
    """Refuse codes of age groups in a column of ages."""
    known = ages.dropna()
    if looks_like_codes(known):
        codes = list_briefly(f'{code:g}' for code in sorted(set(known)))
        raise DataError(
            f'column {ages.name} holds {codes}, like codes of age groups; write ages in years, or '
            'choose other --covariates'
        )


def sums_of_others(table: pd.DataFrame) -> dict[str, str]:
    """Find columns that are the sum or mean of two, or the sum of all others.

    Parameters
    ----------
    table
        Columns of numbers.

    Returns
    -------
    dict
        What each of these columns is.
    """
    complete = table.dropna()
    if len(complete) < MIN_VALUES or table.shape[1] < 3:
        return {}
    total = complete.sum(axis=1)
    found = {
        str(name): 'the sum of the other columns'
        for name in complete
        if _same(2 * complete[name], total)
    }
    return found | _sums_of_two(complete.drop(columns=list(found)))


def _same(first: ArrayLike, second: ArrayLike) -> bool:
    return bool(np.allclose(first, second, rtol=ROUNDING, atol=0))


def _sums_of_two(table: pd.DataFrame) -> dict[str, str]:
    """Find columns that are the sum or mean of two others, such as both sides of a region."""
    values = table.to_numpy()
    found = {}
    for place, name in enumerate(table):
        for what, column in (('sum', values[:, place]), ('mean', 2 * values[:, place])):
            pair = _adds_up(values, place, column)
            if pair:
                one, other = (table.columns[k] for k in pair)
                found[str(name)] = f'the {what} of {one} and {other}'
    return found


def _adds_up(values: NDArray[np.float64], place: int, column: NDArray[np.float64]) -> list[int]:
    """Find two columns, other than that at `place`, that add up to a column; empty if none do."""
    pairs = np.ones((values.shape[1],) * 2, dtype=bool)
    pairs[place], pairs[:, place] = False, False
    np.fill_diagonal(pairs, False)
    for row, whole in zip(values[:MIN_VALUES], column):
        if pairs.any():
            pairs &= np.abs(row[:, None] + row - whole) <= ROUNDING * abs(whole)
    for pair in np.argwhere(pairs).tolist():
        if _same(column, values[:, pair].sum(axis=1)):
            return list(pair)
    return []


MIN_REPEATED = 5
"""Minimum number of regions with several columns that shows a table to repeat regions."""

_TIME = (
    r'bl|baseline|screening|sc|pre|post|test|retest|follow-?up|[23][.-]0|i[23]|'
    r'(?:fu|m|mo|month|y|yr|year|w|wave|v|visit|t|tp|time|timepoint|ses|session)[-_]?\d+|'
    r'raw|norm\w*|adj\w*|corr\w*|res(?:id\w*)?|z|z-?score|pct|perc\w*|harmoni[sz]ed|combat'
)
_VARIANT = re.compile(
    rf'(?P<region>.+)[-_. ](?:{_TIME})|(?:{_TIME})[-_. ](?P<after>.+)', re.IGNORECASE
)
"""Names of columns that begin or end with a visit or correction: `hippocampus_m12`, `T2.insula`."""


def refuse_repeated(columns: Sequence[str]) -> None:
    """Refuse a table with the same regions of several visits, or corrected ones, side by side."""
    of_region: dict[str, list[str]] = {}
    for name in columns:
        mark = _VARIANT.fullmatch(name)
        region = name if mark is None else mark['region'] or mark['after']
        of_region.setdefault(region, []).append(name)
    repeated = [names for names in of_region.values() if len(names) > 1]
    if len(repeated) >= MIN_REPEATED and sum(map(len, repeated)) > MOSTLY * len(columns):
        first, second, *_ = repeated[0]
        raise DataError(
            f'columns {first} and {second} seem to hold one region twice '
            f'({len(repeated)} such regions). Write one row per visit with a column session_id, or '
            'list the regions to use in a file for --features'
        )


def unlike_others(table: pd.DataFrame) -> dict[str, str]:
    """Find columns that do not behave like the others, most of which are taken for regions.

    A column of another scale or with many negative values is found by that alone; otherwise, two
    of these signs are needed: whole numbers only, a wide distribution, and no relation to the
    others.

    Parameters
    ----------
    table
        Columns of numbers.

    Returns
    -------
    dict
        What is unusual about each of these columns.
    """
    table = table.dropna(axis=1, how='all')
    if len(table) < 2 * MIN_VALUES or table.shape[1] <= FEW_COLUMNS:
        return {}
    weak = [_only_whole(table), _wide(table), _unrelated(table)]
    strong = _of_other_scale(table) | _negative(table)
    found = {}
    for name in table:
        signs = [sign[name] for sign in weak if name in sign]
        if name in strong:
            found[str(name)] = strong[name]
        elif len(signs) > 1:
            found[str(name)] = ' and '.join(signs)
    return found


Signs = dict[object, str]


def _of_other_scale(table: pd.DataFrame) -> Signs:
    medians = table.abs().median()
    logs = np.log10(medians[medians > 0]).sort_values()
    if logs.empty:
        return {}
    clusters = (logs.diff() >= np.log10(OTHER_SCALE)).cumsum()
    sizes = clusters.value_counts()
    few = max(FEW_COLUMNS, FEW_OF_ALL * len(logs))
    small = sizes.index[(sizes <= few) & (sizes < sizes.max())]
    usual = 10 ** logs[clusters == sizes.idxmax()].median()
    return {
        name: f'its median is {medians[name]:.3g}, that of most others about {usual:.3g}'
        for name in logs.index[clusters.isin(small)]
    }


def _negative(table: pd.DataFrame) -> Signs:
    often = [name for name in table if (table[name] < 0).mean() > OFTEN_NEGATIVE]
    if len(often) > MOSTLY * table.shape[1]:
        return {}
    return dict.fromkeys(often, 'it has negative values')


def _only_whole(table: pd.DataFrame) -> Signs:
    whole = [name for name in table if (table[name].dropna() % 1 == 0).all()]
    if len(whole) > MOSTLY * table.shape[1]:
        return {}
    return dict.fromkeys(whole, 'it holds whole numbers')


def _wide(table: pd.DataFrame) -> Signs:
    low, middle, high = (table.quantile(share) for share in (0.25, 0.5, 0.75))
    variation = (high - low) / middle.abs()
    wide = variation.index[variation > WIDER * variation.quantile(0.75)]
    return dict.fromkeys(wide, 'it varies more than the others')


def _unrelated(table: pd.DataFrame) -> Signs:
    """Find columns that correlate with no other by more than chance, where most do."""
    ranks = table.rank()
    centred = (ranks - ranks.mean()).fillna(0).to_numpy()
    with np.errstate(invalid='ignore'):  # A constant column has no correlations.
        correlations = np.nan_to_num(np.corrcoef(centred, rowvar=False))
    np.fill_diagonal(correlations, 0)
    related = pd.Series(np.abs(correlations).max(axis=0), table.columns)
    chance = np.sqrt(2 * np.log(table.shape[1] / BY_CHANCE) / len(table))
    if related.median() < chance:
        return {}
    return dict.fromkeys(related.index[related < chance], 'it is not related to the others')
