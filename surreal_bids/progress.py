"""Progress of a stage of a command, with the time left for it.

A command opens a :func:`stage`, which shows a bar on a terminal, and a line per minute in a
log. Computations call :func:`report`; those of another process write to a file
(:func:`reporting_to`), which the command reads.
"""

from __future__ import annotations

import io
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

PROGRESS = logging.getLogger('surreal_bids.progress')
"""Shown unless a command is quiet; see :func:`surreal_bids.cli.main.set_up_logging`."""

SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_UPDATES = 60.0, 0.5
"""Minimum interval of lines in a log, and of updates of a bar or of the file of another process."""

BAR = '{desc}: {percentage:3.0f}%|{bar:10}| {elapsed} elapsed, {remaining} left{postfix}'
LINE = '{percentage:.0f} %, {elapsed} elapsed, {remaining} left{postfix}'
"""Formats of tqdm for a bar and for a line of a log."""

STATUS = 'progress.json'
"""File in the folder of a step that runs in another process: work done, all work and a text."""

Report = Callable[[float, float, str], None]
"""Called with the work done, all work, and a short text with a figure of merit."""

Item = TypeVar('Item')

_REPORT: ContextVar[Report | None] = ContextVar('report', default=None)


def report(done: float, total: float, text: str = '') -> None:
    """Report how much work of the current stage is done; nothing happens outside a stage."""
    current = _REPORT.get()
    if current is not None:
        current(done, total, text)


@contextmanager
def _reports_go_to(target: Report) -> Iterator[None]:
    token = _REPORT.set(target)
    try:
        yield
    finally:
        _REPORT.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Show what is reported meanwhile, unless the command is quiet."""
    began = shown = time.monotonic()
    resumed, last = 0.0, math.inf

    def show(done: float, total: float, text: str) -> None:
        nonlocal began, shown, resumed, last
        now, share = time.monotonic(), min(done / total, 1.0) if total else 0.0
        if share < last:  # A part begins; what is done at once was done by an earlier run.
            if last <= 1:
                began = now
                bar.reset(1.0)
            resumed = share if now - began < 1 else 0.0
        last = share
        if now - shown < (SECONDS_BETWEEN_LINES if bar.disable else SECONDS_BETWEEN_UPDATES):
            return
        shown = now
        if bar.disable:
            line = tqdm.format_meter(
                share, 1.0, now - began, initial=resumed, postfix=text, bar_format=LINE
            )
            PROGRESS.info('%s: %s', name, line)
        else:
            bar.n, bar.initial = share, resumed
            bar.set_postfix_str(text)

    disable = None if PROGRESS.isEnabledFor(logging.INFO) else True
    bar = tqdm(
        total=1.0, desc=name, disable=disable, leave=False, dynamic_ncols=True, bar_format=BAR
    )
    with bar, _messages_above(bar), _reports_go_to(show):
        yield


@contextmanager
def reporting_to(path: Path) -> Iterator[None]:
    """Write reports to a file, for the process that shows them (:func:`read_status`)."""
    written = -math.inf

    def write(done: float, total: float, text: str) -> None:
        nonlocal written
        now = time.monotonic()
        if done < total and now - written < SECONDS_BETWEEN_UPDATES:
            return
        written = now
        with suppress(OSError):
            path.with_suffix('.new').write_text(json.dumps([done, total, text]), encoding='utf-8')
            path.with_suffix('.new').replace(path)

    path.unlink(missing_ok=True)
    with _reports_go_to(write):
        yield


def read_status(path: Path) -> tuple[float, float, str] | None:
    """Read what another process has reported; None where there is nothing yet."""
    try:
        done, total, text = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
    return done, total, text


class _AboveBar(io.TextIOBase):
    """Writes to the standard error, above a bar."""

    def write(self, text: str) -> int:
        tqdm.write(text, sys.stderr, end='')
        return len(text)


@contextmanager
def _messages_above(bar: tqdm) -> Iterator[None]:
    handlers = [
        (handler, handler.stream)
        for handler in logging.root.handlers
        if isinstance(handler, logging.StreamHandler)
        and handler.stream is sys.stderr
        and not bar.disable
    ]
    for handler, _ in handlers:
        handler.setStream(_AboveBar())
    try:
        yield
    finally:
        for handler, stream in handlers:
            handler.setStream(stream)


def with_bar(items: Iterable[Item], what: str, count: int) -> Iterator[Item]:
    """Yield items, and report how many were taken."""
    with stage(what):
        for number, item in enumerate(items, start=1):
            yield item
            report(number, count, f'{number} of {count}')
