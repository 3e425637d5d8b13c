"""Words for messages: lists that stay readable, and what to offer for a wrong name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

LISTED = 10
"""How many names a message spells out before it only counts them."""

FEW = 12
"""How many alternatives an error lists in full before it names only the nearest."""


def list_briefly(names: Iterable[Any], most: int = LISTED) -> str:
    """Spell out the first names and count the rest, so that a message stays readable."""
    listed = [str(name) for name in names]
    shown = ', '.join(listed[:most])
    more = len(listed) - most
    return f'{shown} and {more} more' if more > 0 else shown


def counted(number: int, noun: str) -> str:
    """A number and a noun that is plural unless there is one: `1 participant`, `2 participants`."""
    return f'{number:,} {noun}' if number == 1 else f'{number:,} {noun}s'


def alternatives(wrong: Iterable[str], available: Iterable[str]) -> str:
    """Say what there is in place of what was asked: all of it when few, else the nearest."""
    available = list(available)
    if not available:
        return 'there are none'
    if len(available) <= FEW:
        return f'there are: {", ".join(available)}'
    nearest = dict.fromkeys(
        close for name in wrong for close in difflib.get_close_matches(name, available, 3)
    )
    if not nearest:
        return f'there are: {list_briefly(available)}'
    return f'the nearest of {len(available)} are: {", ".join(nearest)}'


def align(rows: Sequence[tuple[str, ...]]) -> str:
    """Write rows as text in columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ('  '.join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return '\n'.join(line.rstrip() for line in lines)
