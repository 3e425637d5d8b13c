"""Who failed, where, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """A participant, perhaps in one session, who has no complete outputs, and why."""

    name: str
    step: str
    reason: str


def align(rows: Sequence[tuple[str, ...]]) -> str:
    """Write rows as text in columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ('  '.join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return '\n'.join(line.rstrip() for line in lines)


def failure_table(failures: Sequence[Failure]) -> str:
    """Participants, steps and reasons as text."""
    rows = [(failure.name, failure.step, failure.reason) for failure in failures]
    return align([('Participant', 'Step', 'Reason'), *rows])
