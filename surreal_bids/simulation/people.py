"""Who is in a cohort: everyone is drawn from a seed of their own.

A person depends on the seed of the cohort, the group and the number in the group, and not on how
many others there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.exceptions import UsageError

GROUPS = ('CN', 'PT', 'atlas')
"""Controls, patients, and healthy people for an atlas set; the position is part of the seed."""

SITE_STREAM = len(GROUPS)
"""Position of the sites in the tree of seeds."""

AGE_MEAN, AGE_SD = 68.0, 8.0
AGE_RANGE = (45, 89)
"""Years; the same in controls and patients."""

MOST_VARIATION = 1.2
"""Anatomies that vary more, relative to real ones, could not be inverted."""

MOST_PEOPLE = 9999
"""People a group that the labels have digits for."""


@dataclass(frozen=True)
class CohortPlan:
    """All that the content of a cohort depends on.

    Attributes
    ----------
    n_cn, n_pt
        Number of controls and of patients.
    sites
        Number of sites; the people of a group take turns.
    patterns
        Number of patterns of atrophy.
    voxel_size
        Of the working grid, in mm; sites scan at about this.
    atlases
        Number of healthy people in the atlas set.
    stripped
        Whether T1w images show the brain only.
    variation
        How much the anatomy of people differs, relative to that of real people.
    seed
        Of all draws.
    """

    n_cn: int = 20
    n_pt: int = 30
    sites: int = 2
    patterns: int = 2
    voxel_size: float = 2.0
    atlases: int = 0
    stripped: bool = False
    variation: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for option in ('n_cn', 'n_pt', 'atlases'):
            _require_range(option, getattr(self, option), 0, MOST_PEOPLE)
        if self.n_cn + self.n_pt == 0:
            raise UsageError('--n-cn 0 --n-pt 0: a cohort needs at least one person')
        _require_range('sites', self.sites, 1, MOST_PEOPLE)
        _require_range('seed', self.seed, 0, 2**63)
        _require_range('variation', self.variation, 0, MOST_VARIATION)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of people of each of `GROUPS`."""
        return dict(zip(GROUPS, (self.n_cn, self.n_pt, self.atlases)))


@dataclass(frozen=True)
class Person:
    """A simulated person.

    Attributes
    ----------
    group
        One of `GROUPS`.
    number
        Counted from 0 in the group.
    age, sex
        In years; F or M.
    site
        Counted from 0; None for an atlas, which is scanned without site effects.
    severities
        Severity of each pattern, 0 to 1; none in healthy people.
    """

    group: str
    number: int
    age: int
    sex: str
    site: int | None
    severities: tuple[float, ...]

    @property
    def label(self) -> str:
        """Name of the person in file names: sub-CN0001, sub-PT0001, atlas-0001."""
        prefix = 'atlas-' if self.group == 'atlas' else f'sub-{self.group}'
        return f'{prefix}{self.number + 1:04d}'


def _require_range(option: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:
        flag = option.replace('_', '-')
        raise UsageError(f'--{flag} {value}: give a number between {lowest} and {highest}')


def random_streams(plan: CohortPlan, group: str, number: int) -> list[np.random.Generator]:
    """Give a person three sources of randomness: for the person, the anatomy and the scan."""
    root = np.random.SeedSequence(plan.seed, spawn_key=(GROUPS.index(group), number))
    return [np.random.default_rng(child) for child in root.spawn(3)]


def site_stream(plan: CohortPlan, site: int) -> np.random.Generator:
    """Source of randomness of a site."""
    return np.random.default_rng(np.random.SeedSequence(plan.seed, spawn_key=(SITE_STREAM, site)))


def draw_person(plan: CohortPlan, group: str, number: int) -> Person:
    """Draw age, sex and severities of a person; severities are uniform on [0, 1]."""
    rng = random_streams(plan, group, number)[0]
    age = int(np.clip(np.rint(rng.normal(AGE_MEAN, AGE_SD)), *AGE_RANGE))
    sex = 'FM'[rng.integers(2)]
    severities: NDArray = rng.uniform(size=plan.patterns) * (group == 'PT')
    site = None if group == 'atlas' else number % plan.sites
    return Person(group, number, age, sex, site, tuple(severities.tolist()))


def draw_people(plan: CohortPlan) -> list[Person]:
    """Draw everyone: controls, patients, then the atlas set."""
    return [
        draw_person(plan, group, number)
        for group, size in plan.sizes.items()
        for number in range(size)
    ]


def participants_table(people: list[Person]) -> pd.DataFrame:
    """Describe the participants as BIDS does; people of the atlas set are none."""
    return pd.DataFrame(
        [
            (person.label, person.age, person.sex, person.group, f'site{person.site + 1}')
            for person in people
            if person.site is not None
        ],
        columns=['participant_id', 'age', 'sex', 'diagnosis', 'site'],
    )


def severity_table(people: list[Person]) -> pd.DataFrame:
    """True severities of the participants: participant_id, pattern_1, pattern_2, ..."""
    participants = [person for person in people if person.site is not None]
    table = pd.DataFrame(
        [person.severities for person in participants],
        columns=[f'pattern_{k + 1}' for k in range(len(participants[0].severities))],
    )
    table.insert(0, 'participant_id', [person.label for person in participants])
    return table
