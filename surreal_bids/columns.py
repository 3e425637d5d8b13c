"""The vocabulary of table columns: every spelling under which a column is recognised.

Names are compared by their letters and digits, see :func:`normalise_name`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Iterable
from typing import Literal

Meaning = Literal[
    'participant', 'session', 'repeat', 'diagnosis', 'age', 'sex', 'site', 'icv', 'date', 'measure',
    'row number',
]  # fmt: skip
"""What a column can hold. `repeat` tells visits apart where the ids alone do not."""

SPELLINGS: dict[Meaning, tuple[str, ...]] = {
    'participant': (
        'participantid', 'participant', 'mrid', 'subjectid', 'subject', 'subid', 'sub', 'subj',
        'ptid', 'rid', 'id',
    ),
    'session': ('sessionid', 'session'),
    'repeat': ('visit', 'viscode', 'timepoint', 'wave'),
    'diagnosis': ('diagnosis', 'group', 'dx'),
    'age': ('age', 'ageatscan', 'ageyears', 'ageatvisit', 'ageatmri', 'ageinyears', 'ageyrs'),
    'sex': ('sex', 'gender', 'ptgender'),
    'site': ('site', 'scanner', 'siteid', 'center', 'centre'),
    'icv': (
        'icv', 'tiv', 'etiv', 'dlicv', 'estimatedtotalintracranialvol', 'intracranialvolume',
        'totalintracranialvolume', 'musevolume702', 'muse702', '702', 'dlmusevolume702',
        'hmusevolume702',
    ),
    'date': (
        'acqtime', 'acqdate', 'acquisitiondate', 'scandate', 'mridate', 'examdate', 'visitdate',
    ),
    'measure': (
        'agemonths', 'apoe', 'apoe4', 'bmi', 'cdr', 'cdrsum', 'date', 'dob', 'educ', 'education',
        'euler', 'handedness', 'height', 'label', 'mmse', 'r1', 'r2', 'r3', 'race', 'run', 'study',
        'weight', 'yearsofeducation',
    ),
    'row number': (
        '', 'index', 'row', 'rows', 'rowname', 'rownames', 'x', 'unnamed0', 'rownumber',
    ),
}  # fmt: skip
"""Normalised spellings of each meaning; where a table has several, the first takes precedence."""

SEXES = {
    'F': frozenset({'f', 'female', 'w', 'woman', 'women', 'females'}),
    'M': frozenset({'m', 'male', 'man', 'men', 'males'}),
}
"""Words for each sex, in lower case."""


def normalise_name(name: str) -> str:
    """Reduce a name to its lower-case letters and digits, of any script."""
    folded = unicodedata.normalize('NFKC', name).casefold()
    return ''.join(character for character in folded if character.isalnum())


def means(name: Hashable, *meanings: Meaning) -> bool:
    """Check whether the name of a column has one of these meanings."""
    normalised = normalise_name(str(name))
    return any(normalised in SPELLINGS[meaning] for meaning in meanings)


def columns_of(columns: Iterable[Hashable], meaning: Meaning) -> list[str]:
    """Find all columns with a meaning, those with the preferred spelling first."""
    found = [str(name) for name in columns if means(name, meaning)]
    return sorted(found, key=lambda name: SPELLINGS[meaning].index(normalise_name(name)))


def column_of(columns: Iterable[Hashable], meaning: Meaning) -> str | None:
    """Find the column with a meaning, by its preferred spelling; None if there is none."""
    return next(iter(columns_of(columns, meaning)), None)


def describes_participants(name: Hashable) -> bool:
    """Check whether a column is known to hold facts about participants, not volumes."""
    return means(name, *(meaning for meaning in SPELLINGS if meaning != 'row number'))


def sex_of(word: str) -> str | None:
    """Return 'F' or 'M' for a word that names a sex; None for any other word."""
    return next((sex for sex, words in SEXES.items() if word.lower() in words), None)
