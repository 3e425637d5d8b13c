"""Ages, sexes and sites: in years, in one coding, and in one spelling each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from surreal_bids.cautions import PARTICIPANTS, Caution
from surreal_bids.cohort.plausibility import OFTEN_WRONG, POSSIBLE_AGE
from surreal_bids.cohort.requirements import Requirements
from surreal_bids.columns import SEXES, column_of, columns_of, fold, means, sex_of
from surreal_bids.exceptions import DataError
from surreal_bids.text import counted, list_briefly

MAX_LEVELS = 10
"""Number of levels that a category may have in any sample."""

MIN_OF_A_SEX = 10
MIN_SEX_DIFFERENCE = 0.02
CERTAIN = 4.0
"""Minimum number of participants per sex, relative difference of volumes in the model, and standard
errors of an opposite difference to conclude that the codes are reversed."""

PLACEHOLDERS = frozenset(
    {'', '-', '--', '?', '??', 'unknown', 'unk', 'missing', 'none', 'not known', 'not available',
     'unbekannt', 'inconnu', 'desconocido', 'sconosciuto', 'onbekend', '不明', '#n/a', '#value!',
     '#ref!'}
)  # fmt: skip
"""Words for a missing value, which a table should write as n/a."""

MIN_TO_DOUBT = 20
"""Minimum number of participants to judge how numbers were written."""

OLDEST = 100.0
DECADES, FRACTIONS = 10, 1.5
"""Few participants are older than the first. If all ages are below the second (whole numbers) or
the third, they have another unit."""

AGE_STEP = 5
"""Years of which all ages are multiples if they are groups."""

FILLED_IN = 0.05
MORE_OFTEN = 3
"""Share of participants with one and the same number, and its ratio to the next most frequent one,
above which it seems filled in."""

YEARS_APART, OFTEN_OTHER = 1.0, 0.1
"""Years between two columns of ages, and share of participants with different values in two columns
of one meaning, that cause a warning."""


def require_years(ages: pd.Series) -> None:
    """Refuse birth years, months, days and centred ages; single wrong ages are excluded later."""
    known = ages.dropna()
    if (known < 0).mean() > OFTEN_WRONG:
        raise DataError(
            f'column {ages.name} is negative for {counted(int((known < 0).sum()), "visit")}, like '
            'centred ages or z-scores; write ages in years'
        )
    if known.empty or (known > POSSIBLE_AGE[1]).mean() <= OFTEN_WRONG:
        return
    found = known.median()
    meant = 'days'
    if found < 1900:
        meant = 'months'
    elif found < 2100:
        meant = 'birth years'
    raise DataError(
        f'column {ages.name} has a median of {found:g}, like {meant}; write ages in years'
    )


def unify_sex(column: pd.Series, levels: Sequence[str] = ()) -> tuple[pd.Series, str | None]:
    """Unify the words for each sex: those of a model, or F and M if a table mixes spellings.

    Parameters
    ----------
    column : Series of text
        A column; returned unchanged unless its name means sex.
    levels
        Words of a model for the sexes.

    Returns
    -------
    column, note
        The column, and the spellings that were unified.

    Raises
    ------
    DataError
        The column mixes words for a sex with other values.
    """
    known = column.dropna()
    if not means(column.name, 'sex') or known.empty:
        return column, None
    if pd.api.types.is_numeric_dtype(known):
        _require_two_codes(known)
        return column, None
    meant = known.map(lambda word: sex_of(str(word)))
    if meant.isna().all():
        _require_two_codes(known)
        return column, None
    _require_one_coding(known, meant)
    names = {str(sex_of(level)): level for level in levels}
    return _rename_sexes(column, meant, names)


def _rename_sexes(
    column: pd.Series, meant: pd.Series, names: dict[str, str]
) -> tuple[pd.Series, str | None]:
    """Rename the sexes to these names, or to F and M if a sex has more than one word."""
    spellings = {sex: sorted(set(column[meant.index][meant == sex])) for sex in SEXES}
    if not names and max(map(len, spellings.values())) < 2:
        return column, None
    unified = meant.map(names or {sex: sex for sex in SEXES}).reindex(column.index)
    unified = unified.where(unified.notna(), None).astype(object)
    listed = '; '.join(f'{", ".join(words)} = {sex}' for sex, words in spellings.items() if words)
    return unified, None if unified.equals(column) else f'{column.name}: {listed}'


def _require_two_codes(known: pd.Series) -> None:
    if known.nunique() > 2:
        codes = list_briefly(str(code).removesuffix('.0') for code in sorted(set(known)))
        raise DataError(
            f'column {known.name} holds {codes}; write F and M, or n/a for unknown values'
        )


def _require_one_coding(known: pd.Series, meant: pd.Series) -> None:
    if meant.isna().any():
        who = str(meant.isna().idxmax())
        raise DataError(
            f'column {known.name}: {who} has {known[who]}, others have '
            f'{list_briefly(sorted(set(known) - {known[who]}))}; write F and M, or n/a'
        )


def refuse_other_codes(sex: pd.Series, model: Requirements, features: pd.DataFrame) -> None:
    """Refuse numeric codes of the sexes that differ from those of a model.

    Reversed codes are detected from brain size, if there are enough participants and the model has
    a difference between the sexes that head size does not explain.

    Parameters
    ----------
    sex, features
        A numeric covariate of the model that means sex, and volumes in the same rows.
    model
        Requirements of a model.
    """
    name = str(sex.name)
    low, high = model.ranges[name]
    strange = sex[sex.notna() & ~sex.isin((low, high))]
    if len(strange):
        raise DataError(
            f'column {name}: {strange.index[0]} has {strange.iloc[0]:g}, but the model was '
            f'trained with {low:g} and {high:g}; use the codes of the training sample'
        )
    size = (features / model.mean_volumes.to_numpy()).mean(axis=1)
    expected = model.effects[name] * (high - low)
    _refuse_reversed(name, size[sex == low].dropna(), size[sex == high].dropna(), expected)


def _refuse_reversed(name: str, low: pd.Series, high: pd.Series, expected: float) -> None:
    """Refuse brain sizes of two codes that differ in the opposite direction than expected."""
    if min(len(low), len(high)) < MIN_OF_A_SEX or abs(expected) < MIN_SEX_DIFFERENCE:
        return
    difference = high.mean() - low.mean()
    error = np.sqrt(low.var() / len(low) + high.var() / len(high))
    if difference * expected < 0 and abs(difference) > CERTAIN * error:
        raise DataError(
            f'column {name}: brains of participants with the higher code are '
            f'{abs(difference):.0%} {"smaller" if difference < 0 else "larger"}, but the opposite '
            'was found in training; check whether the codes are reversed'
        )


def exchanged_sexes(people: pd.DataFrame, size: pd.Series) -> Iterator[Caution]:
    """Warn if women have larger heads than men, which suggests exchanged labels.

    Parameters
    ----------
    people
        Covariates; columns of sexes that hold words are checked.
    size
        Head size, or the sum of all regions.
    """
    for name in people.select_dtypes(exclude='number'):
        if not means(name, 'sex'):
            continue
        meant = people[name].map(lambda word: sex_of(str(word)), na_action='ignore')
        women, men = (size[meant == sex].dropna() for sex in SEXES)
        if min(len(women), len(men)) < MIN_OF_A_SEX:
            continue
        ratio = women.mean() / men.mean() - 1
        error = np.sqrt(women.var() / len(women) + men.var() / len(men)) / men.mean()
        if ratio > max(MIN_SEX_DIFFERENCE, CERTAIN * error):
            yield Caution(
                f'Sex: women have {ratio:.0%} larger heads than men',
                f'The values of column {name} may be exchanged, and sex corrected the wrong way',
                f'Check the codes of column {name}',
                PARTICIPANTS,
            )


def refuse_spellings(column: pd.Series) -> None:
    """Refuse categories written in several ways, such as `site1`, `SITE 1` and `Site-01`."""
    spellings: dict[str, list[str]] = {}
    for level in sorted(set(column.dropna())):
        spellings.setdefault(_spelling(level), []).append(level)
    same = [' = '.join(levels) for levels in spellings.values() if len(levels) > 1]
    if same:
        raise DataError(
            f'column {column.name}: {list_briefly(same)} (they differ only in case, spaces, '
            'accents, punctuation or zeros); use one spelling'
        )


def _spelling(level: str) -> str:
    """Reduce a name to what distinguishes it: `site1` for `Site-01`, but `1.1` is not `11`.

    Accents do not distinguish, nor does the `e` in place of an umlaut.
    """
    folded = re.sub('(?<=[aou])e', '', fold(level))
    named = re.sub(r'^(site|scanner|cent(re|er))(?=[\W_]*\d)', '', folded)
    parts = [part.lstrip('0') or '0' for part in re.findall(r'\d+|[^\W\d_]+|\+', named)]
    return re.sub(r'(?<=[^\d ]) | (?=[^\d ])', '', ' '.join(parts))


def refuse_placeholders(column: pd.Series) -> None:
    """Refuse words for a missing value among categories, where they would be a level."""
    known = column.dropna()
    unknown = known[known.map(lambda level: fold(str(level)).strip(' .<>()[]') in PLACEHOLDERS)]
    if len(unknown):
        raise DataError(
            f'column {column.name}: {unknown.index[0]} has "{unknown.iloc[0]}" '
            f'({counted(len(unknown), "visit")}); write the value, or n/a to exclude them'
        )


def require_levels(column: pd.Series, is_site: bool = False) -> None:
    """Refuse categories that have almost one level per participant."""
    other = 'another column' + is_site * ' with --site-column (none: do not harmonize)'
    levels = sorted(set(column.dropna()))
    if len(levels) > MAX_LEVELS and len(levels) > len(column) / 2:
        raise DataError(
            f'column {column.name} has {len(levels)} levels among {len(column)} visits '
            f'({list_briefly(levels, 3)}), too many for a category; correct it, or choose '
            f'{other}'
        )


def doubtful_numbers(people: pd.DataFrame) -> Iterator[Caution]:
    """Warn of ages that may have another unit, and of numbers that seem filled in.

    Parameters
    ----------
    people
        Covariates, one row per participant.
    """
    if len(people) < MIN_TO_DOUBT:
        return
    for name in people.select_dtypes('number'):
        values = people[name].dropna()
        like = _like_no_years(values) if means(name, 'age') else ''
        if like:
            yield Caution(
                f'{name} ({values.min():g} to {values.max():g}) looks like {like}',
                'Volumes would be corrected for another age',
                'Write exact ages in years, or ignore this if they are',
                PARTICIPANTS,
            )
        counts = values.value_counts()
        often = counts.iloc[0] if len(counts) > MAX_LEVELS else 0
        if often > max(MORE_OFTEN * counts.iloc[1:2].max(), FILLED_IN * len(values)):
            yield Caution(
                f'{name} is {counts.index[0]:g} for {often} of '
                f'{counted(len(values), "participant")}, as if it were filled in for missing '
                'values',
                'Volumes of these participants would be corrected for a wrong value',
                'Write n/a where it is not known',
                PARTICIPANTS,
            )


def _like_no_years(ages: pd.Series) -> str:
    """Say what ages look like; empty if they look like years."""
    is_whole = bool((ages % 1 == 0).all())
    signs = {
        'months': (ages > OLDEST).mean() > OFTEN_WRONG,
        'fractions of a century': ages.max() < FRACTIONS,
        'decades': is_whole and ages.max() < DECADES,
        'age groups': is_whole and bool((ages % AGE_STEP == 0).all()),
    }
    return next((what for what, is_found in signs.items() if is_found), '')


def disagreeing_columns(people: pd.DataFrame, others: pd.DataFrame) -> Iterator[Caution]:
    """Warn of ages and sexes that another column contradicts.

    Parameters
    ----------
    people, others
        Covariates that are used, and other columns as text; one row per participant.
    """
    for meaning in ('age', 'sex'):
        used = column_of(people, meaning)
        for other in columns_of(others, meaning) if used else ():
            differ = _differ(people[used], others[other])
            if len(differ) and differ.mean() > OFTEN_OTHER:
                who = differ.index[differ]
                yield Caution(
                    f'{used} and {other} disagree for {len(who)} of '
                    f'{counted(len(differ), "participant")}, such as {who[0]} '
                    f'({people.loc[who[0], used]} and {others.loc[who[0], other]})',
                    f'{used} is used and may be wrong',
                    'Correct or remove the wrong column',
                    PARTICIPANTS,
                )


def _differ(used: pd.Series, other: pd.Series) -> pd.Series:
    """Compare ages in years, else words for sexes; participants with both are compared."""
    if means(used.name, 'age'):
        apart = (used - pd.to_numeric(other, errors='coerce')).dropna()
        return apart.abs() > YEARS_APART
    words = pd.DataFrame(
        {k: column.astype(str).map(sex_of) for k, column in enumerate((used, other))}
    ).dropna()
    return words[0] != words[1]
