"""Names of columns, groups, participants and visits.

A column is recognised if its letters and digits are one of the names below: those of BIDS, NiChart,
FreeSurfer and ADNI, in English. Options name all other columns.
"""

from __future__ import annotations

import re

PARTICIPANT = 'participant_id'
SESSION = 'session_id'

SPREAD_SUFFIX = '_member_spread'
"""Suffix of standard deviations over ensemble members."""

TRAINED_ON_SUFFIX = '_trained_on'
"""Suffix of R-indices from a model that was trained on the participant."""

CONTROL, PATIENT = 'CN', 'PT'
"""Names of the two groups in outputs."""

SINGULAR = {CONTROL: 'control', PATIENT: 'patient'}
GROUP_NAMES = {group: f'{name}s' for group, name in SINGULAR.items()}
"""Nouns for a participant of each group, and for several."""

LABEL = re.compile(r'[0-9a-zA-Z+]+')
"""Labels of BIDS 1.10 and later; they contain no path separators."""

Visit = tuple[str, str | None]
"""Labels of a participant and a session; None without sessions."""


def is_label(value: object) -> bool:
    """Tell whether a value is a BIDS label: letters, digits and `+`, at least one."""
    return isinstance(value, str) and LABEL.fullmatch(value) is not None


def without_prefix(value: str, prefix: str) -> str:
    """Turn `sub-01` into `01` (for the prefix `sub`), and leave `01` as it is."""
    return value.removeprefix(f'{prefix}-')


def visit_name(visit: Visit, prefix: str = 'sub-') -> str:
    """Return the name of a visit: `sub-01` or `sub-01_ses-02`."""
    participant, session = visit
    return f'{prefix}{participant}' + (f'_ses-{session}' if session else '')
