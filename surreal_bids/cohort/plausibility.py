"""One screening for every table: what cannot be true is an error, who cannot be used is excluded.

It takes seconds and comes before anything long. A volume that cannot be one (negative, in other
units, a code for a missing value) is an error, since it says that the table is wrong; participants
with missing values, or with an age or head size that cannot be, are excluded with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from surreal_bids.bids.tabular import Table
from surreal_bids.cohort.requirements import Requirements
from surreal_bids.columns import SEXES, means, sex_of
from surreal_bids.exceptions import DataError
from surreal_bids.regions import FeatureList, muse_table
from surreal_bids.text import counted, list_briefly

Reasons = dict[str, str]
"""Why each visit is excluded, by its name."""

NORMAL_SD_PER_MAD = 1.4826
"""Standard deviation of a normal distribution whose median absolute deviation is 1."""

IMPLAUSIBLE = 6.0
"""A numeric covariate so many robust standard deviations from the median is taken for an error."""

POSSIBLE_AGE = (0.0, 120.0)
"""Ages in years outside of this are errors, however many there are."""

OUTLYING = 4.0
"""A region counts as outlying when its log volume is so many robust standard deviations from the
median of the person's group."""

OUTLYING_SHARE = 0.1
"""Someone with a larger share of outlying regions is taken for a failed segmentation: of normally
distributed volumes, 1 in 16,000 is outlying, whereas a wrong brain mask moves most of them."""

MIN_TO_COMPARE = 20
"""Fewer people tell too little of the usual spread to call one of them unusual: of 5 sound people
with 139 simulated regions, one of them a patient, more than half would be left out; of 20 people,
1 in 300. Of 5 normal numbers, 1 in 100 is `IMPLAUSIBLE`."""

OFTEN_EMPTY = 0.05
"""A region that is empty in more participants than this is not used; else they are not."""

OFTEN_WRONG = 0.2
"""A larger share of impossible ages means that the column holds something else."""

MOSTLY = 0.5
"""Share of participants from which something is the rule rather than an error."""

MOST_LEVELS = 10
"""A category may have so many levels, however few participants there are."""

MIN_ALIKE = 3
"""Regions of which it is no coincidence if they are the same in two participants."""

MIN_AT_SITE = 3
"""One or two controls of a site would be moved to the mean of all, whatever they are like."""

MIN_TO_SCALE = 5
"""Fewer participants say nothing of the scale of a region."""

OTHER_UNIT = 10.0
"""Volumes that differ by this factor are in other units, or no volumes."""

USUAL_ICV_MM3 = (3e5, 5e6)
"""Intracranial volumes in mm3, children included, lie between these."""

OTHER_HEAD = 2.5
"""No head is larger or smaller than the median one by this factor."""

MISSING_CODES = (-9999.0, -999.0, -99.0, -9.0, -8.0, -1.0, 0.0, 99.0, 999.0, 9999.0, 99999.0)
"""Numbers that are written for missing values."""

MIN_LEVELS = 5
"""A numeric covariate of so many values or fewer is a set of codes, in which 0 or -1 may be one."""

MIN_OF_A_SEX = 10
LEAST_OF_SEX = 0.02
CERTAIN = 4.0
"""Participants of each sex, relative difference of volumes in the model, and standard errors from
which a difference the other way round means that the codes are reversed."""

_THOUSANDS = re.compile(r'\d{1,3}(\.\d{3})*')


def missing_values(people: pd.DataFrame) -> Reasons:
    """Participants without a value in any of the columns."""
    lacking = people.isna()
    return {
        str(visit): f'{", ".join(people.columns[row])} is missing'
        for visit, row in zip(people.index, lacking.to_numpy(dtype=bool))
        if row.any()
    }


def require_numbers(people: pd.DataFrame) -> None:
    """Refuse text among numbers, which would turn every number into the name of a category.

    Raises
    ------
    DataError
        Some cells of a column are numbers and others are not, such as the age `89+`.
    """
    for name in people:
        cells = people[name].dropna()
        numeric = pd.to_numeric(cells, errors='coerce').notna()
        if numeric.any() and not numeric.all():
            wrong = [f'{visit} ("{cells[visit]}")' for visit in cells.index[~numeric]]
            some = list_briefly(dict.fromkeys(cells[numeric]), 3)
            raise DataError(
                f'column {name} holds numbers ({some}), but not for {list_briefly(wrong, 5)}; '
                'correct '
                'this, or write n/a if it is not known'
            )


def implausible_values(people: pd.DataFrame, icv_column: str | None = None) -> Reasons:
    """Participants with a number that can hardly be meant, such as the age 999.

    Fewer than `MIN_TO_COMPARE` are not compared with each other; codes for missing values, an
    impossible age or head size are found all the same.
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
        for visit in values.index[wrong & values.notna()]:
            reasons.setdefault(
                str(visit),
                f'{name} is {values[visit]:g}, far from everyone else (median '
                f'{values.median():g}); correct it if it is an error',
            )
    return reasons


def _isolated(values: pd.Series) -> pd.Series:
    """Whether each value is far from all others, not only from most: a few may be much older."""
    far = (robust_z(values).abs() > IMPLAUSIBLE) & (len(values) >= MIN_TO_COMPARE)
    rest = values[~far]
    width = rest.max() - rest.min()
    return far & ~values.between(rest.min() - width, rest.max() + width)


def _missing_codes(values: pd.Series) -> pd.Series:
    """Whether each value is a code for a missing one: far below or above all that are no code."""
    is_code = values.isin(MISSING_CODES)
    rest = values[~is_code].dropna()
    if rest.nunique() <= MIN_LEVELS:
        return is_code & False
    width = rest.max() - rest.min()
    below = (values < rest.min() - width) | ((values < 0) & (rest.min() >= 0))
    return is_code & (below | (values > rest.max() + width))


def require_years(ages: pd.Series) -> None:
    """Refuse ages that are birth years, months or days; single ones are left to the exclusions."""
    known = ages.dropna()
    if known.empty or (known > POSSIBLE_AGE[1]).mean() <= OFTEN_WRONG:
        return
    found = known.median()
    meant = 'days'
    if found < 1900:
        meant = 'months'
    elif found < 2100:
        meant = 'birth years'
    raise DataError(f'column {ages.name} has the median {found:g}: {meant}? Write ages in years')


def unify_sex(column: pd.Series, levels: Sequence[str] = ()) -> tuple[pd.Series, str | None]:
    """Write each sex in one way: as a model does, or F and M where a table mixes spellings.

    Parameters
    ----------
    column : Series of text
        A column; returned as it is unless it is called sex or gender.
    levels
        What a model calls the sexes.

    Returns
    -------
    column, note
        The column, and what was unified.

    Raises
    ------
    DataError
        Some values are words for a sex and others are not.
    """
    known = column.dropna()
    if not means(column.name, 'sex') or known.empty:
        return column, None
    if pd.api.types.is_numeric_dtype(known):
        _require_two_codes(known)
        return column, None
    meant = known.map(lambda word: sex_of(str(word)))
    if meant.isna().all():
        return column, None
    _require_one_coding(known, meant)
    names = {str(sex_of(level)): level for level in levels}
    return _rename_sexes(column, meant, names)


def _rename_sexes(
    column: pd.Series, meant: pd.Series, names: dict[str, str]
) -> tuple[pd.Series, str | None]:
    """Write sexes under these names, or F and M where there is more than one word for one."""
    spellings = {sex: sorted(set(column[meant.index][meant == sex])) for sex in SEXES}
    if not names and max(map(len, spellings.values())) < 2:
        return column, None
    unified = meant.map(names or {sex: sex for sex in SEXES}).reindex(column.index)
    unified = unified.where(unified.notna(), None).astype(object)
    listed = '; '.join(f'{", ".join(words)} = {sex}' for sex, words in spellings.items() if words)
    return unified, None if unified.equals(column) else f'{column.name}: {listed}'


def _require_two_codes(known: pd.Series) -> None:
    if known.nunique() > 2:
        codes = list_briefly(f'{code:g}' for code in sorted(set(known)))
        raise DataError(
            f'column {known.name} holds {codes}; write F and M, or n/a where it is not known'
        )


def _require_one_coding(known: pd.Series, meant: pd.Series) -> None:
    if meant.isna().any():
        who = str(meant.isna().idxmax())
        raise DataError(
            f'column {known.name} of {who} is {known[who]}, beside '
            f'{list_briefly(sorted(set(known) - {known[who]}))}; write F and M, or n/a'
        )


def refuse_other_codes(people: pd.DataFrame, model: Requirements, features: pd.DataFrame) -> None:
    """Refuse numbers for the sexes that a model does not know, or knows the other way round.

    The larger brains have to have the code that they had in training. Few participants, or a
    model in which head size explains the difference, cannot tell.

    Parameters
    ----------
    people, features : frames of the same rows
        Covariates, and volumes.
    model
        What a model was trained on.
    """
    for name, (low, high) in model.ranges.items():
        if not means(name, 'sex'):
            continue
        sex = people[name]
        strange = sex[sex.notna() & ~sex.isin((low, high))]
        if len(strange):
            raise DataError(
                f'column {name} of {strange.index[0]} is {strange.iloc[0]:g}, but the model knows '
                f'{low:g} and {high:g}; write the sexes as in training'
            )
        size = (features / model.mean_volumes.to_numpy()).mean(axis=1)
        expected = model.effects[name] * (high - low)
        _refuse_reversed(name, size[sex == low].dropna(), size[sex == high].dropna(), expected)


def _refuse_reversed(name: str, low: pd.Series, high: pd.Series, expected: float) -> None:
    """Refuse sizes of brains of two codes that differ the other way round than expected."""
    if min(len(low), len(high)) < MIN_OF_A_SEX or abs(expected) < LEAST_OF_SEX:
        return
    difference = high.mean() - low.mean()
    error = np.sqrt(low.var() / len(low) + high.var() / len(high))
    if difference * expected < 0 and abs(difference) > CERTAIN * error:
        raise DataError(
            f'column {name}: brains of the higher code are {abs(difference):.0%} '
            f'{"smaller" if difference < 0 else "larger"} than those of the lower one, and it was '
            'the other way round in training; are the codes reversed?'
        )


def exchanged_sexes(people: pd.DataFrame, size: pd.Series) -> list[str]:
    """Say where heads of women are larger than those of men: the words may be exchanged.

    Parameters
    ----------
    people
        Covariates; columns called sex or gender that hold words are looked at.
    size
        Head size, or the sum of all regions.
    """
    found = []
    for name in people.select_dtypes(exclude='number'):
        if not means(name, 'sex'):
            continue
        meant = people[name].map(lambda word: sex_of(str(word)), na_action='ignore')
        women, men = (size[meant == sex].dropna() for sex in SEXES)
        if min(len(women), len(men)) < MIN_OF_A_SEX:
            continue
        ratio = women.mean() / men.mean() - 1
        error = np.sqrt(women.var() / len(women) + men.var() / len(men)) / men.mean()
        if ratio > max(LEAST_OF_SEX, CERTAIN * error):
            found.append(
                f'Sex: heads of women are {ratio:.0%} larger than those of men; are the values of '
                f'column {name} exchanged?'
            )
    return found


def require_levels(people: pd.DataFrame) -> None:
    """Refuse categories that differ in case only, or that are nearly as many as participants."""
    for name in people.select_dtypes(exclude='number'):
        levels = sorted(set(people[name].dropna()))
        folded = [level.lower() for level in levels]
        same = [level for level in levels if folded.count(level.lower()) > 1]
        if same:
            raise DataError(
                f'column {name}: {list_briefly(same)} differ in case only; write them in one way'
            )
        if len(levels) > MOST_LEVELS and len(levels) > len(people) / 2:
            raise DataError(
                f'column {name} has {len(levels)} levels among {len(people)} visits '
                f'({list_briefly(levels, 3)}); it is not a category'
            )


def refuse_separators(table: Table, columns: Iterable[str]) -> None:
    """Refuse numbers with separators of thousands: `1.234` beside `987`."""
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
                f'{table.source}: column {name} has {cells[first]} of {first} beside '
                f'{cells[second]} of {second}: points separate thousands; write 1234 for 1.234'
            )


def far_volumes(features: pd.DataFrame) -> Reasons:
    """Participants with a region ten times larger or smaller than in others: volumes of our own."""
    logs = _logs(features)
    far = _far(logs)
    return {
        str(visit): f'{_first(features.loc[[visit]], far.loc[[visit]])}, far from the others; has '
        'the segmentation failed?'
        for visit in features.index[far.any(axis=1)]
    }


def _logs(features: pd.DataFrame) -> pd.DataFrame:
    """Logarithms of volumes; missing where there is none."""
    positive = features.where(features > 0).to_numpy(np.float64)
    return pd.DataFrame(np.log10(positive), features.index, features.columns)


def check_volumes(
    features: pd.DataFrame, expected: pd.Series, source: str, unit: str = 'mm3'
) -> None:
    """Refuse numbers that cannot be the volumes they should be.

    Parameters
    ----------
    features : frame of shape (n_visits, n_features)
        Volumes; missing and empty ones are left to the exclusions.
    expected : Series
        What some features should be like: mm3 of a MUSE region, or what a model has seen.
    source
        Where they are from, for messages.
    unit
        What they should be in, for messages.

    Raises
    ------
    DataError
        Negative or repeated volumes, or volumes in other or mixed units.
    """
    refuse_negative(features, source)
    _refuse_copies(features, source)
    logs = _logs(features)
    _refuse_mixed_units(logs.median(axis=1), source)
    _refuse_far_values(features, logs, source)
    _refuse_other_units(logs.median(), np.log10(expected[expected > 0]), source, unit)


def refuse_negative(features: pd.DataFrame, source: str) -> None:
    """Refuse volumes below 0."""
    negative = features < 0
    if not negative.any(axis=None):
        return
    remedy = 'a volume cannot be negative: correct it, or write n/a if it is missing'
    if negative.any(axis=1).mean() > MOSTLY:
        remedy = 'many are below 0: give volumes as measured, not z-scores or residuals'
    raise DataError(f'{source}: {_first(features, negative)}; {remedy}')


def _first(features: pd.DataFrame, wrong: pd.DataFrame) -> str:
    """Name the first wrong volume."""
    row, column = np.argwhere(wrong.to_numpy())[0]
    visit, region = features.index[row], features.columns[column]
    return f'{region} of {visit} is {features.iloc[row, column]:.10g}'


def _refuse_copies(features: pd.DataFrame, source: str) -> None:
    measured = features[features.notna().any(axis=1) & (features != 0).any(axis=1)]
    copies = measured.duplicated()
    if measured.shape[1] >= MIN_ALIKE and copies.any():
        copy = str(copies.idxmax())
        first = next(
            name for name in measured.index if measured.loc[name].equals(measured.loc[copy])
        )
        raise DataError(
            f'{source}: {first} and {copy} have the same volumes in all regions '
            f'({copies.sum()} such copies); keep one of them'
        )


def _refuse_mixed_units(scale: pd.Series, source: str) -> None:
    """Refuse participants whose volumes are all ten times larger or smaller than others'."""
    ordered = scale.dropna().sort_values()
    gaps = np.diff(ordered.to_numpy())
    if not len(gaps) or gaps.max() < np.log10(OTHER_UNIT):
        return
    split = int(gaps.argmax()) + 1
    small, large = ordered.index[:split], ordered.index[split:]
    fewer = small if len(small) <= len(large) else large
    raise DataError(
        f'{source}: the volumes of {list_briefly(sorted(fewer))} are about '
        f'{_factor(-gaps.max() if fewer is small else gaps.max())} than those of others: cm3 '
        'beside mm3? Write all in one unit'
    )


def _refuse_far_values(features: pd.DataFrame, logs: pd.DataFrame, source: str) -> None:
    """Refuse single volumes that are ten times larger or smaller than others of the region."""
    far = _far(logs)
    if far.any(axis=None):
        region = features.columns[np.argwhere(far.to_numpy())[0][1]]
        raise DataError(
            f'{source}: {_first(features, far)}, far from the others (median '
            f'{features[region].median():g}); correct it, or write n/a if it is missing'
        )


def _far(logs: pd.DataFrame) -> pd.DataFrame:
    """Whether each volume is ten times larger or smaller than others of the region."""
    distance = (logs - logs.median()).abs()
    spread = NORMAL_SD_PER_MAD * distance.median()
    far = (distance > np.log10(OTHER_UNIT)) & (distance > IMPLAUSIBLE * spread)
    return far & (len(logs) >= MIN_TO_SCALE)


def _refuse_other_units(found: pd.Series, expected: pd.Series, source: str, unit: str) -> None:
    """Refuse units that are not those of MUSE regions or of a model; logarithms of medians."""
    ratio = (found - expected).dropna()
    if ratio.empty:
        return
    overall = ratio.median()
    if abs(overall) > np.log10(OTHER_UNIT):
        raise DataError(
            f'{source}: volumes are about {_factor(overall)} than expected, such as '
            f'{10 ** found[ratio.index[0]]:.3g} for {ratio.index[0]}; give them in {unit}'
        )
    off = ratio.index[(ratio - overall).abs() > np.log10(OTHER_UNIT)]
    if len(off):
        raise DataError(
            f'{source}: {list_briefly(off)} is about {_factor(ratio[off[0]] - overall)} than '
            'expected '
            f'beside the other regions: another unit? Give all in {unit}'
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
        Between which its median lies, in mm3 or in the unit of a model.
    """
    median = icv[icv > 0].median()
    if median and not usual[0] <= median <= usual[1]:
        raise DataError(
            f'column {icv.name} has the median {median:.4g}, expected is {usual[0]:.3g} to '
            f'{usual[1]:.3g}; give head sizes in the unit of the volumes (mm3)'
        )


def robust_z(values: pd.Series) -> pd.Series:
    """Distance from the median in robust standard deviations; 0 where half of all are the same."""
    distance = values - values.median()
    sd = NORMAL_SD_PER_MAD * distance.abs().median()
    return distance / sd if sd > 0 else distance * 0


def unusable_regions(features: pd.DataFrame) -> dict[str, str]:
    """Regions that are empty in many participants, or the same in all, and why they are dropped."""
    empty = ~(features > 0)
    reasons = {
        str(name): f'empty or missing in {share:.0%} of participants'
        for name, share in empty.mean().items()
        if share > OFTEN_EMPTY
    }
    same = features.columns[features.nunique() < 2]
    return {str(name): 'the same in all participants' for name in same} | reasons


def empty_regions(features: pd.DataFrame) -> Reasons:
    """Participants with a region that has no volume, or whose volume is missing."""
    empty = ~(features > 0)
    return {
        str(
            visit
        ): f'no volume of {list_briefly(features.columns[row], 3)} (missing or 0); has the '
        'segmentation failed?'
        for visit, row in zip(features.index, empty.to_numpy())
        if row.any()
    }


def outlying_volumes(features: pd.DataFrame, is_patient: pd.Series) -> Reasons:
    """Participants so many of whose regions are unusual that the segmentation must have failed.

    Log volumes are compared with the median of their own group, so that disease is not
    taken for an error; the spread is that of all. Nobody is judged by fewer than
    `MIN_TO_COMPARE` participants.

    Parameters
    ----------
    features : frame of shape (n_visits, n_features)
        Volumes, all greater than 0.
    is_patient : Series of bool
        The group of each.
    """
    if len(features) < MIN_TO_COMPARE:
        return {}
    logs = features.transform('log')
    distance = logs - logs.groupby(is_patient).transform('median')
    sd = NORMAL_SD_PER_MAD * distance.abs().median()
    share = (distance.abs() > OUTLYING * sd).mean(axis=1)
    return {
        str(visit): f'{part:.0%} of the regions have volumes far from those of the group; look at '
        'the segmentation'
        for visit, part in share.items()
        if part > OUTLYING_SHARE
    }


def sites_without_controls(site: pd.Series, teaches: pd.Series) -> Reasons:
    """Participants of sites from whose controls nothing can be learned.

    Parameters
    ----------
    site : Series of str
        Site of each visit.
    teaches : Series of bool
        Whether it is the first visit of a control, which is what harmonization learns from.
    """
    counts = site[teaches].value_counts()
    known = set(counts.index[counts >= MIN_AT_SITE])
    return {
        str(visit): f'site {place} has {counted(int(counts.get(place, 0)), "control")} (first '
        f'visits), at least {MIN_AT_SITE} are needed to harmonize it'
        for visit, place in site.items()
        if place not in known
    }


def summarise_reasons(reasons: Iterable[str], most: int = 3) -> str:
    """Say in one line how many are excluded for which kind of reason."""
    kinds = pd.Series(list(reasons), dtype=object).value_counts()
    listed = [f'{count} for "{reason}"' for reason, count in kinds.head(most).items()]
    return ', '.join(listed) + (', ...' if len(kinds) > most else '')


def require_people(remaining: Sequence[object] | pd.Index, reasons: Reasons) -> None:
    """Refuse to go on with nobody."""
    if not len(remaining):
        raise DataError(
            f'everyone is excluded ({summarise_reasons(reasons.values())}); correct the tables or '
            'the options'
        )


def expected_volumes(wanted: FeatureList, model: Requirements | None) -> pd.Series:
    """What features should be like: as a model has seen them, or as MUSE regions are."""
    if model is not None:
        return model.mean_volumes
    usual = muse_table().set_index('index')['volume_mm3']
    known = {f.name: usual[list(f.indices)].sum() for f in wanted.features if f.indices}
    return pd.Series(known, dtype=np.float64)


def usual_head_size(
    column: str, wanted: FeatureList, model: Requirements | None
) -> tuple[float, float]:
    """Between which the median head size lies: as seen by a model, or in mm3 as MUSE volumes."""
    if model is not None:
        seen = model.ranges.get(column)
        return (seen[0] / OTHER_HEAD, seen[1] * OTHER_HEAD) if seen else (0.0, np.inf)
    return USUAL_ICV_MM3 if wanted.atlas else (0.0, np.inf)
