"""Patients who express one pattern and hardly any other (section 4.3, Fig. 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.exceptions import DataError

LOW = 0.4
"""Below it a pattern counts as hardly expressed (section 4.3)."""

HIGH = 0.7
"""Above it a pattern counts as strongly expressed (section 4.3)."""


@dataclass(frozen=True)
class Subgroup:
    """Some of the patients.

    Attributes
    ----------
    name
        Letters and digits only, so that it can be part of a BIDS file name: `low`, `r1mid`.
    pattern
        The pattern that varies; None for the patients who are low in all.
    description
        The rule, for people.
    members : (N,) array of bool
        Who of the N patients is in it.
    """

    name: str
    pattern: str | None
    description: str
    members: NDArray[np.bool_]

    @property
    def size(self) -> int:
        """Number of patients in it."""
        return int(self.members.sum())


def form_subgroups(r_indices: pd.DataFrame) -> list[Subgroup]:
    """Subgroups of patients along each pattern, the others being low.

    Section 4.3 has r_i < 0.4, 0.4 < r_i < 0.7 and r_i > 0.7, each with r_j < 0.4 for all j != i.
    The first is the same people for every i, so it comes once, as `low`. A value of exactly 0.4 or
    0.7 counts as in between.

    Parameters
    ----------
    r_indices : (N, M)
        R-indices of patients, a column a pattern.

    Returns
    -------
    list of 1 + 2 M Subgroup
        `low`, then `<pattern>mid` and `<pattern>high` of each pattern. They do not overlap; any
        may be empty.
    """
    values = r_indices.to_numpy(np.float64)
    if np.isnan(values).any():
        person = r_indices.index[np.isnan(values).any(axis=1)][0]
        raise DataError(f'{person} has no R-index; leave out people without')
    is_low = values < LOW
    subgroups = [Subgroup('low', None, f'all patterns < {LOW}', np.all(is_low, axis=1))]
    others = f', others < {LOW}' if values.shape[1] > 1 else ''
    for number, pattern in enumerate(map(str, r_indices.columns)):
        value = values[:, number]
        alone = np.delete(is_low, number, axis=1).all(axis=1)
        rules = {
            'mid': (f'{LOW} to {HIGH}', (value >= LOW) & (value <= HIGH)),
            'high': (f'> {HIGH}', value > HIGH),
        }
        subgroups += [
            Subgroup(f'{pattern}{level}', pattern, f'{pattern} {text}{others}', chosen & alone)
            for level, (text, chosen) in rules.items()
        ]
    return subgroups
