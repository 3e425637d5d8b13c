"""Labels of participants, sessions and other entities, and what to offer for a wrong one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

LABEL = re.compile(r'[0-9a-zA-Z+]+')
"""What BIDS (1.10 and later) allows in a label; nothing in it can leave a folder."""

FEW = 12
"""How many alternatives an error lists in full before it names only the nearest."""


def is_label(value: object) -> bool:
    """Tell whether a value is a BIDS label: letters, digits and `+`, at least one."""
    return isinstance(value, str) and LABEL.fullmatch(value) is not None


def without_prefix(value: str, prefix: str) -> str:
    """Turn `sub-01` into `01` (for the prefix `sub`), and leave `01` as it is."""
    return value.removeprefix(f'{prefix}-')


def alternatives(wrong: Iterable[str], available: Iterable[str]) -> str:
    """Say what there is in place of what was asked: all of it when few, else the nearest."""
    available = list(available)
    if not available:
        return 'there are none'
    if len(available) <= FEW:
        return f'there are: {", ".join(available)}'
    nearest = dict.fromkeys(
        close for name in wrong for close in difflib.get_close_matches(name, available, 3, 0.5)
    )
    if not nearest:
        return f'there are {len(available)}, from {available[0]} to {available[-1]}'
    return f'the nearest of {len(available)} are: {", ".join(nearest)}'
