"""One-sided disease: how far the two sides of a pattern differ in each participant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm, t
from statsmodels.stats.proportion import proportion_confint

from surreal_bids.names import CONTROL, GROUP_NAMES
from surreal_bids.regions import FeatureList
from surreal_bids.sides import paired_structures

MIN_CONTROLS = 20
"""Controls from whom the usual difference between the sides is learned."""

USUAL = 0.95
"""Share of controls whose difference is not beyond the limit."""

LEFT_MORE, RIGHT_MORE, BOTH = 'left', 'right', 'both'
"""Where a pattern is expressed: more on one side than controls differ, or on both sides."""

SHARE_COLUMNS = ('index', 'group', 'beyond', 'n', 'share', 'low', 'high', 'n_controls')

DIFFERENCE, SIDE = '_left_right', '_side'
"""Ends of the names of columns."""


@dataclass(frozen=True, eq=False)
class Asymmetry:
    """Left-right differences along patterns.

    Attributes
    ----------
    table : frame
        For each visit and R-index `r1`, ...: `r1_left_right`, the difference in SD of controls, and
        `r1_side`, in words.
    shares : frame
        For each R-index (`index`) and group but controls: how many participants have a difference
        beyond the limit at the first visit (`beyond`, `n`, `share`), with a 95 % interval (`low`,
        `high`), and the number of controls from whom the limit was learned (`n_controls`).
    """

    table: pd.DataFrame
    shares: pd.DataFrame


def describe_asymmetry(
    z_scores: pd.DataFrame,
    patterns: pd.DataFrame,
    structures: FeatureList,
    groups: pd.Series,
    is_first: pd.Series,
) -> Asymmetry | None:
    """Compare the two sides of each pattern with those of controls.

    The difference is the mean of the differences of z-scores between the left and the right region
    of each structure, weighted with the change that the pattern makes there: positive if the
    pattern is expressed more on the left.

    Parameters
    ----------
    z_scores : frame of shape (n_visits, n_regions)
        z-scores of single regions; missing where they are not comparable.
    patterns
        The table of patterns, with one row for each pattern and structure, in order.
    structures
        Features of the model.
    groups, is_first
        Group of each visit, and whether it is the first of the participant.

    Returns
    -------
    Asymmetry or None
        None if too few controls have z-scores, or no structure has two sides.
    """
    pairs = paired_structures(structures)
    if not pairs or patterns.empty:
        return None
    is_control = (groups == CONTROL) & is_first
    columns: dict[str, pd.Series] = {}
    rows: list[dict[str, Any]] = []
    for name, of_pattern in patterns.groupby('pattern', sort=False):
        change = pd.Series(of_pattern['change_sd'].to_numpy(), structures.names)
        is_shown = of_pattern['shown'].to_numpy(bool)
        weights = change.where(is_shown, 0.0)[list(pairs)]
        # A region outside the pattern may be missing without consequence.
        weights = weights[weights != 0]
        difference = _weighted_difference(z_scores, weights, pairs)
        usual = difference[is_control].dropna()
        if len(usual) < MIN_CONTROLS:
            continue
        in_sd = (difference - usual.mean()) / usual.std(ddof=1)
        columns[f'{name}{DIFFERENCE}'] = in_sd
        columns[f'{name}{SIDE}'] = _sides(in_sd, len(usual))
        rows += _shares(str(name), in_sd[is_first], groups[is_first], len(usual))
    if not columns:
        return None
    return Asymmetry(pd.DataFrame(columns), pd.DataFrame(rows, columns=list(SHARE_COLUMNS)))


def _weighted_difference(
    z_scores: pd.DataFrame, weights: pd.Series, pairs: Mapping[str, tuple[str, str]]
) -> pd.Series:
    """Return the weighted sum of left minus right z-scores; missing without any weight.

    A loss on the left makes both the z-score and the weight negative, and the difference positive.
    """
    if weights.empty:
        return pd.Series(np.nan, z_scores.index)
    left = z_scores[[pairs[structure][0] for structure in weights.index]].to_numpy(np.float64)
    right = z_scores[[pairs[structure][1] for structure in weights.index]].to_numpy(np.float64)
    return pd.Series((left - right) @ weights.to_numpy(), z_scores.index)


def limit_of(n_controls: int) -> float:
    """Return the limit of the difference in SD of so many controls, which 95 % of others have."""
    return float(t.ppf((1 + USUAL) / 2, n_controls - 1) * np.sqrt(1 + 1 / n_controls))


def _sides(in_sd: pd.Series, n_controls: int) -> pd.Series:
    """Say on which side the pattern is expressed more; missing where it is not known."""
    limit = limit_of(n_controls)
    words = np.select(
        [in_sd > limit, in_sd < -limit, in_sd.notna()], [LEFT_MORE, RIGHT_MORE, BOTH], ''
    )
    return pd.Series(words, in_sd.index, dtype=object).where(in_sd.notna(), None)


def _shares(
    name: str, in_sd: pd.Series, groups: pd.Series, n_controls: int
) -> list[dict[str, Any]]:
    """Return the share of each group beyond the limit; that of controls is known beforehand."""
    rows = []
    limit = limit_of(n_controls)
    for group, of_group in in_sd.dropna().groupby(groups):
        if group == CONTROL:
            continue
        beyond = int((of_group.abs() > limit).sum())
        low, high = share_interval(beyond, len(of_group), n_controls)
        rows.append(
            {
                'index': name,
                'group': str(group),
                'beyond': beyond,
                'n': len(of_group),
                'share': beyond / len(of_group),
                'low': low,
                'high': high,
                'n_controls': n_controls,
            }
        )
    return rows


def share_interval(beyond: int, n: int, n_controls: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of n participants beyond a limit of few controls.

    Wilson's interval with fewer participants than there are: the limit has an error as well, which
    all of them share. The SD of n controls has the relative error 1 / sqrt(2 (n - 1)), and the
    share of a normal distribution beyond both limits changes with it by 2 limit density(limit).
    """
    limit = norm.ppf((1 + USUAL) / 2)
    of_limit = (2 * limit * norm.pdf(limit)) ** 2 / (2 * (n_controls - 1))
    # As if the true share were the expected one where nobody, or everybody, is beyond.
    share = np.clip(beyond / n, 1 - USUAL, USUAL)
    effective = share * (1 - share) / (share * (1 - share) / n + of_limit)
    low, high = proportion_confint(beyond / n * effective, effective, method='wilson')
    return float(low), float(high)


def in_words(found: Asymmetry) -> list[str]:
    """Return how many participants differ more between the sides than controls, as sentences."""
    sentences = []
    for name, rows in found.shares.groupby('index', sort=False):
        of_groups = []
        for row in rows.to_dict('records'):
            whose = GROUP_NAMES.get(row['group'], row['group'])
            of_groups.append(
                f'{row["beyond"]} of {row["n"]} {whose} ({row["share"]:.0%}; 95% interval '
                f'{row["low"]:.0%} to {row["high"]:.0%})'
            )
        sentences.append(
            f'In {name}, {", ".join(of_groups)} differ more between left and right than '
            f'{USUAL:.0%} of {rows["n_controls"].iloc[0]} controls; about {1 - USUAL:.0%} are '
            'expected.'
        )
    if sentences:
        sentences.append('With --sides apart, patterns are described by side.')
    return sentences
