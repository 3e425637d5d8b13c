"""The headline of a pattern: where in the brain it is, and on which side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from surreal_bids.cautions import PATTERNS, Caution
from surreal_bids.imaging.quality import split_side
from surreal_bids.lobes import MEDIAL_TEMPORAL, OCCIPITAL, PARIETAL, TEMPORAL, part_of_brain
from surreal_bids.regions import FeatureList
from surreal_bids.sides import SIDE_WORDS, put_sides_together

NAMED_SHARE, MOST_PARTS, LEAST_PART = 0.6, 3, 0.15
"""A headline names the parts of the brain with the largest changes until it has this share of all
change, at most so many, and none with less than the last share."""

WIDESPREAD_SHARE = 0.45
"""Share of all change below which these parts do not characterise a pattern."""

ONE_SIDED_SHARE = 0.7
"""Share of the regions of a pattern on one side from which the headline names the side."""

MIRRORED = 0.7
"""Correlation of a pattern with another one, after exchanging sides, from which both are taken for
the same disease on different sides."""


def headline(rows: pd.DataFrame) -> str:
    """Say where a pattern is, such as `Medial temporal` or `Posterior: parietal and occipital`.

    Parameters
    ----------
    rows : frame
        Rows of one pattern of the table of patterns, with `region`, `change_sd` and `shown`.

    Returns
    -------
    str
        Empty if no region is shown, or if the parts of the brain are not known by their names.

    Examples
    --------
    >>> rows = pd.DataFrame({'region': ['hippocampus'], 'change_sd': [-1.0], 'shown': [True]})
    >>> headline(rows)
    'Medial temporal'
    """
    shown = rows[rows['shown'].astype(bool)]
    parts = shown['region'].map(lambda region: part_of_brain(str(region)))
    size = shown['change_sd'].abs()
    if shown.empty or size[parts.notna()].sum() < size.sum() / 2:
        return ''
    share = (size.groupby(parts).sum() / size.sum()).sort_values(ascending=False)
    named = _largest_parts(share)
    # The region with the largest change is never hidden behind many others.
    largest = parts.iloc[int(size.to_numpy().argmax())]
    if pd.notna(largest) and largest not in named:
        named.append(str(largest))
    words = _join_parts(named)
    if share[named].sum() < WIDESPREAD_SHARE:
        words = f'widespread, mostly {words}'
    if (shown['change_sd'] > 0).mean() > 0.5:
        words = f'{words} (larger)'
    side = _describe_side(shown)
    text = f'{side[0]} {words}, {side[1]}' if side else words
    return f'{text[0].upper()}{text[1:]}'


def _largest_parts(share: pd.Series) -> list[str]:
    """Name the parts with the largest shares of all change, in descending order."""
    named: list[str] = []
    for part, of_part in share.items():
        is_enough = share[named].sum() >= NAMED_SHARE or len(named) == MOST_PARTS
        if is_enough or (named and of_part < LEAST_PART):
            break
        named.append(str(part))
    return named


def _join_parts(parts: Sequence[str]) -> str:
    """Join the names of parts of the brain, in the words of neurology."""
    if set(parts) == {MEDIAL_TEMPORAL, TEMPORAL}:
        return 'medial and lateral temporal'
    listed = ' and '.join((', '.join(parts[:-1]), parts[-1])) if len(parts) > 1 else parts[0]
    return f'posterior: {listed}' if {PARIETAL, OCCIPITAL} <= set(parts) else listed


def _describe_side(shown: pd.DataFrame) -> tuple[str, str] | None:
    """Return the side of most regions, and how many they are; None if both sides are affected."""
    sides = shown['region'].map(lambda region: split_side(str(region))[0])
    counts = sides.value_counts()
    # Structures with both sides, and midline ones, are no evidence for a side.
    if counts.empty or counts.iloc[0] < ONE_SIDED_SHARE * len(shown):
        return None
    word = SIDE_WORDS[str(counts.index[0])]
    return word, f'{counts.iloc[0]} of {len(shown)} regions {word}'


def warn_of_mirror_images(patterns: pd.DataFrame, regions: FeatureList) -> list[Caution]:
    """Warn of patterns of single regions that are the same after exchanging left and right.

    Parameters
    ----------
    patterns
        The table of patterns, with one row for each pattern and region of `regions`, in order.
    regions
        Features of the model.
    """
    structures = put_sides_together(regions).features
    pairs = [feature.columns for feature in structures if len(feature.columns) == 2]
    if len(pairs) < 2:
        return []
    left, right = ([columns[side] for columns in pairs] for side in (0, 1))
    change = {
        str(name): pd.Series(rows['change_sd'].to_numpy(), regions.names)
        for name, rows in patterns.groupby('pattern', sort=False)
    }
    cautions = []
    for first, second in combinations(change, 2):
        here = change[first][[*left, *right]]
        mirrored = np.corrcoef(here, change[second][[*right, *left]])[0, 1]
        as_it_is = np.corrcoef(here, change[second][[*left, *right]])[0, 1]
        # Two patterns that are alike on both sides are no mirror images.
        if mirrored > MIRRORED and mirrored > as_it_is:
            cautions.append(_mirror_images(first, second, float(mirrored)))
    return cautions


def _mirror_images(first: str, second: str, r: float) -> Caution:
    return Caution(
        f'{first} and {second} are mirror images: with left and right exchanged, their changes '
        f'correlate at {r:.2f}',
        'They show on which side the disease is stronger, not two diseases',
        'Train with --sides together, and see the left-right difference of each participant',
        PATTERNS,
    )


def differ_by_half(left: float, right: float) -> bool:
    """Check whether the changes of two sides differ by half of the larger one or more."""
    return abs(left - right) >= 0.5 * max(abs(left), abs(right))
