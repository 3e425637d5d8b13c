"""Text of messages: short lists, counts, suggestions and aligned columns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

LISTED = 10
"""Maximum number of names in a message; the others are counted."""

DECIMALS, MOST_DECIMALS = 2, 6
"""Decimals of a correlation, and at most so many beside another number."""

FEW = 12
"""Maximum number of alternatives in an error; beyond it, only similar names are listed."""


def list_briefly(names: Iterable[Any], most: int = LISTED) -> str:
    """List the first names and count the others."""
    listed = [str(name) for name in names]
    shown = ', '.join(listed[:most])
    more = len(listed) - most
    return f'{shown} and {more} more' if more > 0 else shown


def counted(number: int, noun: str) -> str:
    """Combine a number and a noun: `1 participant`, `2 participants`."""
    return f'{number:,} {noun}' if number == 1 else f'{number:,} {noun}s'


def plain_number(value: float, digits: int = 4) -> str:
    """Return a number to some digits, without an exponent if it is large."""
    return f'{value:.{digits}g}' if abs(value) < 10**digits - 0.5 else f'{value:,.0f}'


def decimals_apart(value: float, limit: float) -> int:
    """Return how many decimals show that a number differs from a limit.

    >>> decimals_apart(0.848, 0.85), decimals_apart(0.9, 0.85)
    (3, 2)
    """
    if value == limit:
        return DECIMALS
    for decimals in range(DECIMALS, MOST_DECIMALS):
        if f'{value:.{decimals}f}' != f'{limit:.{decimals}f}':
            return decimals
    return MOST_DECIMALS


def beside_limit(value: float, limit: float) -> str:
    """Write a number with enough decimals to show on which side of a limit it lies.

    >>> beside_limit(0.848, 0.85)
    '0.848'
    """
    return f'{value:.{decimals_apart(value, limit)}f}'


def alternatives(wrong: Iterable[str], available: Iterable[str]) -> str:
    """List the available names: all if they are few, otherwise those similar to the wrong ones."""
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
    """Format rows as aligned columns of text."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ('  '.join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return '\n'.join(line.rstrip() for line in lines)
