"""What simulated studies have besides the paper's: a stronger side, MCI, a score and visits.

The functions take and return arrays and tables; :func:`surreal_bids.simulation.tables.
simulate_table` puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.names import CONTROL, PARTICIPANT, PATIENT, SESSION
from surreal_bids.regions import muse_indices, muse_table

Array = NDArray[np.float64]

MCI = 'MCI'
"""Label of the group with mild disease."""

MCI_SEVERITY = 0.5
"""Severities in MCI, as a share of those of patients."""

SHARED_DOMINANCE, OWN_DOMINANCE = 0.8, 0.6
"""Weights of what the patterns of a patient share of the dominance of a side, and of what each has
of its own; the squares add up to 1."""

LARGEST_DOMINANCE = 0.9
"""Largest dominance, at which one side loses 0.1 and the other 1.9 times the severity."""

LARGEST_LOSS = 0.7
"""Largest share of its volume that a region loses to one pattern where a side is stronger."""

SESSIONS = ('ses-1', 'ses-2')

SHARE_OF_SECOND_VISITS, FEWEST_SECOND_VISITS = 0.25, 20
"""Share of each group that comes twice. Limits of reliable change are learned from 15 controls with
two visits at least, and the tests of change need a few participants of each group."""

YEARS_BETWEEN = (1.2, 1.8)
"""Range of the years between two visits."""

PROGRESS_PER_YEAR = (0.02, 0.18)
"""Range of the severity that a patient gains per year in each pattern."""

RETEST_SD = 0.02
"""Standard deviation of the log volume of a region that is measured twice."""

MEMORY_MEAN, MEMORY_LOSS = 50.0, 25.0
"""T score of memory in controls, and what it loses at severity 1 of the first pattern."""

MEMORY_PERSON_SD, MEMORY_VISIT_SD = 8.0, 6.0
"""Standard deviations of memory between participants and between visits: 10 together."""


@dataclass(frozen=True)
class Course:
    """What a study has besides one visit of controls and patients; by default, nothing.

    Attributes
    ----------
    n_mci
        Number of participants with mild cognitive impairment: the same patterns, half as severe.
    side_dominance
        Standard deviation of the dominance d of a side in a patient. The left side loses severity
        times 1 + d, and the right side severity times 1 - d.
    memory
        Whether participants have a memory score, which falls with severity of the first pattern.
    visits
        1, or 2: a quarter of each group comes again after about 1.5 years.
    """

    n_mci: int = 0
    side_dominance: float = 0.0
    memory: bool = False
    visits: int = 1

    def __post_init__(self) -> None:
        if self.n_mci < 0:
            raise UsageError(f'--n-mci {self.n_mci}: use 0 or a positive number')
        if not 0 <= self.side_dominance <= 1:
            raise UsageError(f'--side-dominance {self.side_dominance:g}: use a number from 0 to 1')
        if self.visits not in (1, len(SESSIONS)):
            raise UsageError(f'--visits {self.visits}: use 1 or {len(SESSIONS)}')


NO_COURSE = Course()
"""Controls and patients of the paper, seen once."""


def label_groups(n_cn: int, n_pt: int, n_mci: int) -> NDArray[np.str_]:
    """Group of each participant, controls first and MCI last; (N,)."""
    return np.repeat([CONTROL, PATIENT, MCI], [n_cn, n_pt, n_mci])


def sample_dominance(n_people: int, n_patterns: int, sd: float, rng: np.random.Generator) -> Array:
    """Sample the dominance of the left side by participant and pattern; (N, M), 0 where `sd` is.

    It is mostly that of the participant, as in Alzheimer's disease, where all of a patient's
    patterns tend to be stronger on the same side.
    """
    shared = rng.standard_normal((n_people, 1))
    of_pattern = rng.standard_normal((n_people, n_patterns))
    dominance = sd * (SHARED_DOMINANCE * shared + OWN_DOMINANCE * of_pattern)
    return dominance.clip(-LARGEST_DOMINANCE, LARGEST_DOMINANCE)


def signs_of_sides() -> Array:
    """1 for the regions of the left side, -1 for those of the right, 0 for others; (S,)."""
    hemispheres = muse_table().set_index('index')['hemisphere'].loc[list(muse_indices())]
    return np.select([hemispheres == 'L', hemispheres == 'R'], [1.0, -1.0], default=0.0)


def choose_second_visits(groups: NDArray[np.str_], rng: np.random.Generator) -> NDArray[np.intp]:
    """Choose who comes twice: a quarter of each group, and 20 of small ones; rows, ascending."""
    chosen = []
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        wanted = max(FEWEST_SECOND_VISITS, round(SHARE_OF_SECOND_VISITS * members.size))
        chosen.append(rng.permutation(members)[:wanted])
    return np.sort(np.concatenate(chosen))


def sample_progress(
    severities: Array, groups: NDArray[np.str_], years: Array, rng: np.random.Generator
) -> Array:
    """Severities (N, M) after some years (N,): patients lose more, and those with MCI half that."""
    per_year = rng.uniform(*PROGRESS_PER_YEAR, size=severities.shape)
    per_year[groups == CONTROL] = 0
    per_year[groups == MCI] *= MCI_SEVERITY
    return np.minimum(severities + per_year * years[:, None], 1)


def add_years(ages: pd.Series, years: Array) -> pd.Series:
    """Ages at the second visits.

    Raises
    ------
    DataError
        An age is missing, so that the time between visits would be unknown.
    """
    if ages.isna().any():
        raise DataError(
            f'--visits 2: {ages.isna().sum()} of {len(ages)} participants have no age; complete '
            'the ages in the table of controls, or omit --visits 2 (resampled participants have '
            'none)'
        )
    return (ages + years).round(1)


def join_visits(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Put the rows of two visits together by participant, with their session."""
    labelled = []
    for session, table in zip(SESSIONS, (first, second)):
        table = table.copy()
        table.insert(1, SESSION, session)
        labelled.append(table)
    return pd.concat(labelled).sort_values([PARTICIPANT, SESSION]).reset_index(drop=True)


def sample_memory(severities: pd.DataFrame, rng: np.random.Generator) -> Array:
    """Memory at each visit: a T score that falls with severity of the first pattern, `r1`."""
    participants, position = np.unique(severities[PARTICIPANT], return_inverse=True)
    of_person = rng.normal(scale=MEMORY_PERSON_SD, size=len(participants))
    of_visit = rng.normal(scale=MEMORY_VISIT_SD, size=len(severities))
    expected = MEMORY_MEAN - MEMORY_LOSS * severities['r1'].to_numpy()
    return np.asarray((expected + of_person[position] + of_visit).round(1))
