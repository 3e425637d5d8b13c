"""Who cannot be used, and why: found in seconds, before anything long runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from surreal_bids.exceptions import DataError
from surreal_bids.text import name_some

Reasons = dict[str, str]
"""Why each visit is left out, by its name."""

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

FEWEST_TO_COMPARE = 20
"""Fewer people tell too little of the usual spread to call one of them unusual: of 5 sound people
with 139 simulated regions, one of them a patient, more than half would be left out; of 20 people,
1 in 300. Of 5 normal numbers, 1 in 100 is `IMPLAUSIBLE`."""

OFTEN_EMPTY = 0.05
"""A region that is empty in more people than this is not used; else the people are not."""


def missing_values(people: pd.DataFrame) -> Reasons:
    """People without a value in any of the columns."""
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
            raise DataError(
                f'column {name} holds numbers, but not for {name_some(wrong)}; correct this, or '
                'write n/a if it is not known'
            )


def implausible_values(people: pd.DataFrame) -> Reasons:
    """People with a number that can hardly be meant, such as the age 999.

    Fewer people than `FEWEST_TO_COMPARE` are not compared with each other; an impossible age is
    found all the same.
    """
    reasons: Reasons = {}
    for name in people.select_dtypes('number'):
        values = people[name]
        wrong = (robust_z(values).abs() > IMPLAUSIBLE) & (len(values) >= FEWEST_TO_COMPARE)
        if str(name).lower() == 'age':
            wrong |= ~values.between(*POSSIBLE_AGE)
        for visit in values.index[wrong & values.notna()]:
            reasons.setdefault(
                str(visit),
                f'{name} is {values[visit]:g}, far from everyone else (median '
                f'{values.median():g}); correct it if it is an error',
            )
    return reasons


def robust_z(values: pd.Series) -> pd.Series:
    """Distance from the median in robust standard deviations; 0 where half of all are the same."""
    distance = values - values.median()
    sd = NORMAL_SD_PER_MAD * distance.abs().median()
    return distance / sd if sd > 0 else distance * 0


def unusable_regions(features: pd.DataFrame) -> dict[str, str]:
    """Regions that are empty in many people, or the same in all, and why they are left out."""
    empty = ~(features > 0)
    reasons = {
        str(name): f'empty or missing in {share:.0%} of people'
        for name, share in empty.mean().items()
        if share > OFTEN_EMPTY
    }
    same = features.columns[features.nunique() < 2]
    return {str(name): 'the same in everyone' for name in same} | reasons


def empty_regions(features: pd.DataFrame) -> Reasons:
    """People with a region that has no volume, or whose volume is missing."""
    empty = ~(features > 0)
    return {
        str(visit): f'no volume of {name_some(features.columns[row])}; has the segmentation failed?'
        for visit, row in zip(features.index, empty.to_numpy())
        if row.any()
    }


def outlying_volumes(features: pd.DataFrame, is_patient: pd.Series) -> Reasons:
    """People so many of whose regions are unusual that the segmentation must have failed.

    Log volumes are compared with the median of the person's own group, so that disease is not
    taken for an error; the spread is that of all. Nobody is judged by fewer than
    `FEWEST_TO_COMPARE` people.

    Parameters
    ----------
    features : frame of shape (n_people, n_features)
        Volumes, all greater than 0.
    is_patient : Series of bool
        The group of each.
    """
    if len(features) < FEWEST_TO_COMPARE:
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
    """People of sites from whose controls nothing can be learned.

    Parameters
    ----------
    site : Series of str
        Site of each visit.
    teaches : Series of bool
        Whether it is the first visit of a control, which is what harmonization learns from.
    """
    known = set(site[teaches])
    return {
        str(visit): f'site {place} has no first visit of a control, so that it cannot be harmonized'
        for visit, place in site.items()
        if place not in known
    }


def summarise_reasons(reasons: Iterable[str], most: int = 3) -> str:
    """Say in one line how many were left out for which kind of reason."""
    kinds = pd.Series(list(reasons), dtype=object).value_counts()
    listed = [f'{count} for "{reason}"' for reason, count in kinds.head(most).items()]
    return ', '.join(listed) + (', ...' if len(kinds) > most else '')


def require_people(remaining: Sequence[object] | pd.Index, reasons: Reasons) -> None:
    """Refuse to go on with nobody."""
    if not len(remaining):
        raise DataError(
            f'everyone is excluded ({summarise_reasons(reasons.values())}); correct '
            'participants.tsv, the volumes, or the options'
        )
