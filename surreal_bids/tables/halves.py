"""Whether the same patterns are found in two halves of the people (section B.7)."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from surreal_bids.stats.reproducibility import pattern_reproducibility

Indices = Mapping[int, pd.DataFrame]
"""Everyone's R-indices by the model of each half, 1 and 2."""

OTHER = {1: 2, 2: 1}


def compare_halves(
    everyone: pd.DataFrame, of_half: Indices, halves: pd.Series, is_patient: pd.Series
) -> pd.DataFrame:
    """How alike patients are described by models that were trained on different people.

    Parameters
    ----------
    everyone : frame of shape (n_visits, M)
        R-indices by the model that was trained on all.
    of_half
        R-indices by the models of the halves.
    halves, is_patient : Series of shape (n_visits,)
        Half and group of each visit.

    Returns
    -------
    DataFrame
        `comparison`, `people` (how many patients), and the columns of
        :func:`~surreal_bids.stats.reproducibility.pattern_reproducibility`.
    """
    tables = [_compare('half 1 and half 2', of_half[1], of_half[2], is_patient)]
    for half, indices in of_half.items():
        unseen = is_patient & (halves == OTHER[half])
        title = f'half {half} and all, in people of half {OTHER[half]}'
        tables.append(_compare(title, everyone, indices, unseen))
    return pd.concat(tables, ignore_index=True)


def _compare(
    title: str, first: pd.DataFrame, second: pd.DataFrame, chosen: pd.Series
) -> pd.DataFrame:
    people = first.index[chosen & first.notna().all(axis=1) & second.notna().all(axis=1)]
    table = pattern_reproducibility(first.loc[people], second.loc[people])
    table.insert(0, 'comparison', title)
    table.insert(1, 'people', len(people))
    return table


def held_out_indices(
    everyone: pd.DataFrame, of_half: Indices, halves: pd.Series, is_patient: pd.Series
) -> pd.DataFrame:
    """R-indices of each person by the model that has not seen them, patterns in one order."""
    parts = []
    for half, indices in of_half.items():
        match = _compare('', everyone, indices, is_patient)
        ordered = indices[match['counterpart']].set_axis(match['pattern'].tolist(), axis=1)
        parts.append(ordered[halves == OTHER[half]])
    return pd.concat(parts).loc[everyone.index]
