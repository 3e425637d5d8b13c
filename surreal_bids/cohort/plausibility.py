"""Screening of tables: impossible volumes raise an error, implausible participants are excluded.

Screening takes seconds and comes before all long computations. A volume that is negative, in
another unit or a code for a missing value is an error, because it shows that the table is wrong.
Participants with missing values, an impossible age or head size are excluded with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from surreal_bids.bids.tabular import Table
from surreal_bids.cohort.requirements import OTHER_HEAD, is_in_mm3
from surreal_bids.columns import means
from surreal_bids.exceptions import DataError
from surreal_bids.text import counted, list_briefly, plain_number

Reasons = dict[str, str]
"""Reason for excluding each visit, by its name."""

NORMAL_SD_PER_MAD = 1.4826
"""Standard deviation of a normal distribution whose median absolute deviation is 1."""

IMPLAUSIBLE = 6.0
"""Robust standard deviations from the median beyond which a covariate counts as an error."""

POSSIBLE_AGE = (0.0, 120.0)
"""Range of ages in years; ages outside it are errors."""

OUTLYING = 4.0
"""Robust standard deviations between a log volume and the median of the participant's group beyond
which a region counts as outlying."""

OUTLYING_SHARE = 0.1
"""Share of outlying regions above which a segmentation counts as failed. In normally distributed
volumes, 1 in 16,000 is outlying, whereas a wrong brain mask changes most of them."""

MIN_FOR_OUTLIERS = 20
"""Minimum number of participants to call one of them unusual. In 5 healthy participants with 139
simulated regions, one of them a patient, more than half would be excluded; in 20, 1 in 300 would.
Of 5 normal numbers, 1 in 100 is `IMPLAUSIBLE`."""

OFTEN_EMPTY = 0.05
"""Share of participants without a region above which the region is dropped; below it, they are."""

OFTEN_WRONG = 0.2
"""Share of impossible ages above which a column does not hold ages in years."""

MOSTLY_NEGATIVE = 0.5
"""Share of participants above which negative values are the rule."""

MIN_ALIKE = 3
"""Minimum number of equal regions that shows two participants to be copies."""

MIN_TO_AVERAGE, AVERAGED = 10, 1e-4
"""Minimum number of participants and regions to recognise an average, and the difference relative
to the median up to which volumes equal it."""

MIN_AT_SITE = 3
"""Minimum number of controls per site: one or two would be moved to the overall mean."""

MIN_TO_SCALE = 5
"""Minimum number of participants to estimate the scale of a region."""

OTHER_UNIT = 10.0
"""Factor between volumes that shows different units."""

MISSING_CODES = (-9999.0, -999.0, -99.0, -9.0, -8.0, -1.0, 0.0, 99.0, 999.0, 9999.0, 99999.0)
"""Numbers that stand for missing values."""

MAX_CODES = 5
"""Number of distinct values up to which a covariate holds codes, where 0 or -1 can be valid."""

_THOUSANDS = re.compile(r'\d{1,3}(\.\d{3})*')


def missing_values(people: pd.DataFrame) -> Reasons:
    """Return the reasons for excluding participants with missing values."""
    lacking = people.isna()
    return {
        str(visit): f'{", ".join(people.columns[row])} is missing'
        for visit, row in zip(people.index, lacking.to_numpy(dtype=bool))
        if row.any()
    }


def require_numbers(column: pd.Series) -> None:
    """Refuse text among numbers, which would turn all numbers into categories.

    Raises
    ------
    DataError
        The column mixes numbers and text, such as the age `89+`.
    """
    cells = column.dropna()
    numeric = pd.to_numeric(cells, errors='coerce').notna()
    if numeric.any() and not numeric.all():
        wrong = [f'{visit} ("{cells[visit]}")' for visit in cells.index[~numeric]]
        some = list_briefly(dict.fromkeys(cells[numeric]), 3)
        raise DataError(
            f'column {column.name} holds numbers ({some}) but text for {list_briefly(wrong, 5)}; '
            'correct it, or write n/a for unknown values'
        )


def implausible_values(people: pd.DataFrame, icv_column: str | None = None) -> Reasons:
    """Return the reasons for excluding participants with implausible numbers, such as age 999.

    Participants are compared with each other only if there are `MIN_FOR_OUTLIERS`; codes for
    missing values and impossible ages or head sizes are always found.
    """
    reasons: Reasons = {}
    for name in people.select_dtypes('number'):
        values = people[name]
        wrong = _missing_codes(values) | _isolated(values)
        if means(name, 'age'):
            wrong |= ~values.between(*POSSIBLE_AGE)
        if name == icv_column:
            median = values[values > 0].median()
            wrong |= ~values.between(median / OTHER_HEAD, median * OTHER_HEAD)
        unit = ' mm3' if name == icv_column and is_in_mm3(values.median()) else ''
        for visit in values.index[wrong & values.notna()]:
            reasons.setdefault(
                str(visit),
                f'{name} is {plain_number(values[visit], 6)}{unit}, far from all other '
                f'participants (median {plain_number(values.median(), 6)}{unit}); correct it if it '
                'is an error',
            )
    return reasons


def _isolated(values: pd.Series) -> pd.Series:
    """Mark values that are far from all others, not only from most of them."""
    far = (robust_z(values).abs() > IMPLAUSIBLE) & (len(values) >= MIN_FOR_OUTLIERS)
    rest = values[~far]
    width = rest.max() - rest.min()
    return far & ~values.between(rest.min() - width, rest.max() + width)


def _missing_codes(values: pd.Series) -> pd.Series:
    """Mark codes for missing values, which are far below or above all other values."""
    is_code = values.isin(MISSING_CODES)
    rest = values[~is_code].dropna()
    if rest.nunique() <= MAX_CODES:
        return is_code & False
    width = rest.max() - rest.min()
    below = (values < rest.min() - width) | ((values < 0) & (rest.min() >= 0))
    return is_code & (below | (values > rest.max() + width))


def refuse_separators(table: Table, columns: Iterable[str]) -> None:
    """Refuse numbers with thousands separators, such as `1.234` next to `987`."""
    for name in columns:
        cells = table.text[name].dropna()
        if not len(cells) or not cells.str.fullmatch(_THOUSANDS).all():
            continue
        with_point = cells.str.contains('.', regex=False)
        if with_point.all() or not with_point.any():
            continue
        numbers = cells.astype(float)
        if numbers[~with_point].median() > OTHER_UNIT * numbers[with_point].median():
            first, second = str(with_point.idxmax()), str(with_point.idxmin())
            raise DataError(
                f'{table.source}: column {name} has {cells[first]} for {first} but '
                f'{cells[second]} for {second}, so points seem to separate thousands; write 1234 '
                'instead of 1.234'
            )


def far_volumes(features: pd.DataFrame) -> Reasons:
    """Return the reasons for excluding participants with a region ten times too large or small."""
    logs = _logs(features)
    far = _far(logs)
    return {
        str(visit): f'{_first(features.loc[[visit]], far.loc[[visit]])}, far from all others; '
        'check the segmentation'
        for visit in features.index[far.any(axis=1)]
    }


def _logs(features: pd.DataFrame) -> pd.DataFrame:
    """Compute logarithms of volumes; missing where a volume is missing or 0."""
    positive = features.where(features > 0).to_numpy(np.float64)
    return pd.DataFrame(np.log10(positive), features.index, features.columns)


def check_volumes(
    features: pd.DataFrame, expected: pd.Series, source: str, unit: str = 'mm3'
) -> None:
    """Refuse impossible volumes.

    Parameters
    ----------
    features : frame of shape (n_visits, n_features)
        Volumes; visits with missing or empty ones are excluded later.
    expected : Series
        Usual values of some features: those of MUSE regions in mm3, or those of a model.
    source
        Name of the table, for messages.
    unit
        Expected unit, for messages.

    Raises
    ------
    DataError
        Negative or repeated volumes, or volumes in other or mixed units.
    """
    refuse_negative(features, source)
    refuse_copies(features, source)
    _refuse_averages(features, source)
    logs = _logs(features)
    _refuse_mixed_units(logs.median(axis=1), source)
    _refuse_far_values(features, logs, source)
    _refuse_other_units(logs.median(), np.log10(expected[expected > 0]), source, unit)


def refuse_negative(features: pd.DataFrame, source: str) -> None:
    """Refuse negative volumes."""
    negative = features < 0
    if not negative.any(axis=None):
        return
    remedy = 'volumes cannot be negative; correct it, or write n/a if it is missing'
    if negative.any(axis=1).mean() > MOSTLY_NEGATIVE:
        remedy = 'most participants have negative values; use volumes as measured, not residuals. '
        remedy += 'For z-scores, train a model with --features-kind zscore'
    raise DataError(f'{source}: {_first(features, negative)}; {remedy}')


def _first(features: pd.DataFrame, wrong: pd.DataFrame) -> str:
    """Name the first wrong volume."""
    row, column = np.argwhere(wrong.to_numpy())[0]
    visit, region = features.index[row], features.columns[column]
    return f'{region} of {visit} is {features.iloc[row, column]:.10g}'


def refuse_copies(features: pd.DataFrame, source: str) -> None:
    """Refuse participants with the same numbers in all regions."""
    measured = features[features.notna().any(axis=1) & (features != 0).any(axis=1)]
    copies = measured.duplicated()
    if measured.shape[1] >= MIN_ALIKE and copies.any():
        copy = str(copies.idxmax())
        first = next(
            name for name in measured.index if measured.loc[name].equals(measured.loc[copy])
        )
        raise DataError(
            f'{source}: {first} and {copy} have identical volumes in all regions '
            f'({counted(int(copies.sum()), "copied row")} in total); keep one of them'
        )


def _refuse_averages(features: pd.DataFrame, source: str) -> None:
    """Refuse a row with the mean or median of all others, which spreadsheets add."""
    if min(features.shape) < MIN_TO_AVERAGE:
        return
    mean = (features.sum() - features) / (len(features) - 1)
    for what, average in (('mean', mean), ('median', features.median())):
        near = ((features - average).abs() <= AVERAGED * features.median()).all(axis=1)
        if near.any():
            raise DataError(
                f'{source}: the volumes of {near.idxmax()} are the {what} of those of all others; '
                'remove this row'
            )


def _refuse_mixed_units(scale: pd.Series, source: str) -> None:
    """Refuse participants with volumes ten times larger or smaller than those of others."""
    ordered = scale.dropna().sort_values()
    gaps = np.diff(ordered.to_numpy())
    if not len(gaps) or gaps.max() < np.log10(OTHER_UNIT):
        return
    split = int(gaps.argmax()) + 1
    small, large = ordered.index[:split], ordered.index[split:]
    fewer = small if len(small) <= len(large) else large
    raise DataError(
        f'{source}: the volumes of {list_briefly(sorted(fewer))} are about '
        f'{_factor(-gaps.max() if fewer is small else gaps.max())} than those of others, as if '
        'cm3 and mm3 were mixed; use one unit'
    )


def _refuse_far_values(features: pd.DataFrame, logs: pd.DataFrame, source: str) -> None:
    """Refuse single volumes ten times larger or smaller than others of the same region."""
    far = _far(logs)
    if far.any(axis=None):
        region = features.columns[np.argwhere(far.to_numpy())[0][1]]
        raise DataError(
            f'{source}: {_first(features, far)}, far from all others (median '
            f'{features[region].median():g}); correct it, or write n/a if it is missing'
        )


def _far(logs: pd.DataFrame) -> pd.DataFrame:
    """Mark volumes ten times larger or smaller than others of the same region."""
    distance = (logs - logs.median()).abs()
    spread = NORMAL_SD_PER_MAD * distance.median()
    far = (distance > np.log10(OTHER_UNIT)) & (distance > IMPLAUSIBLE * spread)
    return far & (len(logs) >= MIN_TO_SCALE)


def _refuse_other_units(found: pd.Series, expected: pd.Series, source: str, unit: str) -> None:
    """Refuse units other than those of MUSE regions or of a model; log medians are compared."""
    ratio = (found - expected).dropna()
    if ratio.empty:
        return
    overall = ratio.median()
    if abs(overall) > np.log10(OTHER_UNIT):
        raise DataError(
            f'{source}: volumes are about {_factor(overall)} than expected, for example '
            f'{10 ** found[ratio.index[0]]:.3g} for {ratio.index[0]}; convert them to {unit}'
        )
    off = ratio.index[(ratio - overall).abs() > np.log10(OTHER_UNIT)]
    if len(off):
        raise DataError(
            f'{source}: {list_briefly(off)} is about {_factor(ratio[off[0]] - overall)} than '
            f'expected from the other regions; convert all regions to {unit}'
        )


def _factor(log: float) -> str:
    times = float(f'{10 ** abs(log):.2g}')
    return f'{times:,.0f} times {"smaller" if log < 0 else "larger"}'


def check_head_size(icv: pd.Series, usual: tuple[float, float]) -> None:
    """Refuse a column of intracranial volumes in another unit.

    Parameters
    ----------
    icv
        The column.
    usual
        Range of plausible medians, in mm3 or in the unit of a model.
    """
    median = icv[icv > 0].median()
    if median and not usual[0] <= median <= usual[1]:
        raise DataError(
            f'column {icv.name} has a median of {plain_number(median)}, but '
            f'{plain_number(usual[0])} to {plain_number(usual[1])} mm3 is expected; convert head '
            'sizes to mm3, the unit of the volumes'
        )


def require_varying(icv: pd.Series) -> None:
    """Refuse intracranial volumes that are the same in everyone, and have no effect to remove."""
    if icv.nunique() < 2:
        raise DataError(
            f'column {icv.name} is the same in all {counted(len(icv), "visit")}; correct it, '
            'choose another column with --icv-column, or use --icv none'
        )


def robust_z(values: pd.Series) -> pd.Series:
    """Compute distances from the median in robust standard deviations; 0 if these are 0."""
    distance = values - values.median()
    sd = NORMAL_SD_PER_MAD * distance.abs().median()
    return distance / sd if sd > 0 else distance * 0


def unusable_regions(features: pd.DataFrame) -> dict[str, str]:
    """Return the reasons for dropping regions that are often empty or do not vary."""
    empty = ~(features > 0)
    reasons = {
        str(name): f'0 or missing in {share:.0%} of participants'
        for name, share in empty.mean().items()
        if share > OFTEN_EMPTY
    }
    same = features.columns[features.nunique() < 2]
    return {str(name): 'the same in all participants' for name in same} | reasons


def empty_regions(features: pd.DataFrame) -> Reasons:
    """Return the reasons for excluding participants with an empty or missing region."""
    empty = ~(features > 0)
    return {
        str(visit): f'no volume of {list_briefly(features.columns[row], 3)} (missing or 0); check '
        'the segmentation'
        for visit, row in zip(features.index, empty.to_numpy())
        if row.any()
    }


def outlying_volumes(
    features: pd.DataFrame, is_patient: pd.Series, are_z_scores: bool = False
) -> Reasons:
    """Return the reasons for excluding participants with many outlying regions.

    Log volumes, or z-scores, are compared with the median of the own group, to keep patients with
    marked disease, and with the spread of all participants. At least `MIN_FOR_OUTLIERS`
    participants are needed.

    Parameters
    ----------
    features : frame of shape (n_visits, n_features)
        Volumes, all greater than 0, or z-scores.
    is_patient : Series of bool
        The group of each.
    are_z_scores
        Whether features are z-scores.
    """
    if len(features) < MIN_FOR_OUTLIERS:
        return {}
    compared = features if are_z_scores else features.transform('log')
    distance = compared - compared.groupby(is_patient).transform('median')
    sd = NORMAL_SD_PER_MAD * distance.abs().median()
    share = (distance.abs() > OUTLYING * sd).mean(axis=1)
    return {
        str(visit): f'{part:.0%} of the regions have volumes far from those of the group; check '
        'the segmentation'
        for visit, part in share.items()
        if part > OUTLYING_SHARE
    }


def sites_without_controls(site: pd.Series, is_learned_from: pd.Series) -> Reasons:
    """Return the reasons for excluding participants of sites with too few controls.

    Parameters
    ----------
    site : Series of str
        Site of each visit.
    is_learned_from : Series of bool
        Whether each visit is the first of a control; harmonization learns from these.
    """
    counts = site[is_learned_from].value_counts()
    known = set(counts.index[counts >= MIN_AT_SITE])
    return {
        str(visit): f'site {place} has {counted(int(counts.get(place, 0)), "control")}, at least '
        f'{MIN_AT_SITE} are needed for harmonization'
        for visit, place in site.items()
        if place not in known
    }


def summarise_reasons(reasons: Iterable[str], most: int = 3) -> str:
    """Count the exclusions for each of the most frequent reasons, in one line."""
    kinds = pd.Series(list(reasons), dtype=object).value_counts()
    listed = [f'{count} for "{reason}"' for reason, count in kinds.head(most).items()]
    return ', '.join(listed) + (', ...' if len(kinds) > most else '')


def require_people(remaining: Sequence[object] | pd.Index, reasons: Reasons) -> None:
    """Raise an error if everyone is excluded."""
    if not len(remaining):
        n = len({name.partition('_ses-')[0] for name in reasons})
        who = 'the only participant was' if n == 1 else f'all {n} participants were'
        raise DataError(
            f'{who} excluded: {summarise_reasons(reasons.values())}; correct the tables or the '
            'options'
        )
