"""Progress of long computations: what is done of how much, and the time left."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta

PROGRESS = logging.getLogger('surreal_bids.progress')
"""Lines that are shown by default; see :func:`surreal_bids.cli.main.log_from`."""

DETAILS = logging.getLogger('surreal_bids.details')
"""Lines that are shown with `-v`."""

SECONDS_BETWEEN_LINES = 15.0
"""A computation shows at most one line in this time."""


class _Part:
    """A part of a computation, and when its last line was shown."""

    def __init__(self, name: str = '') -> None:
        self.prefix = f'{name}, ' if name else ''
        self.shown = -math.inf


_PART: ContextVar[_Part | None] = ContextVar('part', default=None)


@contextmanager
def progress_of(name: str) -> Iterator[None]:
    """Name the part that is computed meanwhile, such as `fold 2 of 5`, in all lines."""
    token = _PART.set(_Part(name))
    try:
        yield
    finally:
        _PART.reset(token)


class ProgressReport:
    """Reports the steps of one computation; all computations of a part share their lines.

    Parameters
    ----------
    what
        What is computed.
    total
        Number of steps.
    done
        Steps that were done before.
    """

    def __init__(self, what: str, total: float, done: float = 0) -> None:
        self._what, self._total, self._first = what, total, done
        self._part = _PART.get() or _Part()
        self._began = time.monotonic()
        self._is_new = True

    def step(self, done: float, text: str = '') -> None:
        """Show how much is done (`text`, or the number of steps) and the time left.

        Lines that come too early are dropped; the first one of a computation is shown with `-v`.
        """
        now = time.monotonic()
        is_due = now - self._part.shown >= SECONDS_BETWEEN_LINES
        if self._first < done < self._total and (is_due or self._is_new):
            left = (now - self._began) / (done - self._first) * (self._total - done)
            (PROGRESS if is_due else DETAILS).info(
                '%s%s: %s, about %s left',
                *(self._part.prefix, self._what, text or f'{done:g} of {self._total:g}'),
                timedelta(seconds=round(left)),
            )
        if is_due:
            self._part.shown = now
        self._is_new = False
