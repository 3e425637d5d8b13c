"""Progress of a command: which step of how many, time elapsed and left, and a figure of merit.

A command plans its stages and opens a :class:`Progress`, which shows them in one line: a bar on a
terminal, and at most one line per minute in a log. Computations call :func:`report`; those of
another process write to a file (:func:`reporting_to`), which the command reads.
"""

from __future__ import annotations

import io
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tqdm import tqdm

PROGRESS = logging.getLogger('surreal_bids.progress')
"""Shown unless a command is quiet; see :func:`surreal_bids.cli.main.set_up_logging`."""

SECONDS_BETWEEN_LINES = 60.0
"""Minimum interval of lines in a log ..."""

SECONDS_BETWEEN_UPDATES = 0.5
"""... of updates of a bar, and of the file of another process."""

MEASURED = 0.03
"""Part of all expected work that is measured before the time left is shown."""

STATUS = 'progress.json'
"""File in the folder of a step that runs in another process: work done, all work and a text."""

Report = Callable[[float, float, str], None]
"""Called with the work done, all work, and a short text with a figure of merit."""

Item = TypeVar('Item')

_REPORT: ContextVar[Report | None] = ContextVar('report', default=None)


def report(done: float, total: float, text: str = '') -> None:
    """Report how much work of the current step is done; nothing happens outside a step."""
    current = _REPORT.get()
    if current is not None:
        current(done, total, text)


@contextmanager
def _reports_go_to(target: Report | None) -> Iterator[None]:
    token = _REPORT.set(target)
    try:
        yield
    finally:
        _REPORT.reset(token)


@contextmanager
def portion(begin: float, size: float, total: float, text: str) -> Iterator[None]:
    """Let reports describe a portion of the current step, from `begin` to `begin + size`."""

    def scaled(done: float, of: float, more: str) -> None:
        if outer is not None:
            outer(begin + size * done / of, total, ', '.join(filter(None, (text, more))))

    outer = _REPORT.get()
    with _reports_go_to(scaled):
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


@dataclass
class Stage:
    """Steps of a command that are alike.

    Attributes
    ----------
    name
        What the steps are.
    count
        Number of steps.
    seconds
        Expected time for one unit of work. Until it is measured, it is multiplied by how much
        longer the other stages take than expected, which depends on the machine.
    size
        Expected work of each step.
    at_once
        Steps that run at the same time.
    kind
        Stages of the same kind take equally long per unit of work.
    warm_up
        Number of finished steps before measurement starts; 0: it starts with the first report.
    least
        Measured work from which the rest is predicted.
    predict
        Returns the time left, and whether enough is measured to show it, instead of all this.
    """

    name: str
    count: int = 1
    seconds: float = 1.0
    size: float = 1.0
    at_once: int = 1
    kind: str = ''
    warm_up: int = 0
    least: float = 0.1
    predict: Callable[[], tuple[float, bool]] | None = None
    _steps: dict[str, tuple[float, float]] = field(default_factory=dict)
    _mark: tuple[float, float] | None = None
    _updated: float = 0.0

    def update(self, now: float, step: str, done: float, total: float, measured: bool) -> None:
        """Set how much of a step is done; what took no time of its own is not `measured`."""
        before = self.work
        self._steps[step] = done, total
        self._updated = now
        if self._mark is not None and not measured:
            self._mark = self._mark[0], self._mark[1] + self.work - before
        elif self._mark is None and measured and done > 0 and self.finished >= self.warm_up:
            self._mark = now, self.work

    @property
    def work(self) -> float:
        """Work done."""
        return sum(done for done, _ in self._steps.values())

    @property
    def finished(self) -> int:
        """Number of finished steps, or of the finished units of steps that hold many."""
        return sum(int(done / self.size) for done, _ in self._steps.values())

    @property
    def updated(self) -> float:
        """Time of the last update."""
        return self._updated

    @property
    def _processes(self) -> int:
        return max(min(self.at_once, self.count), 1)

    def measured(self) -> tuple[float, float]:
        """Return the time of all processes that was measured, and the work done in it."""
        if self._mark is None:
            return 0.0, 0.0
        began, before = self._mark
        return (self._updated - began) * self._processes, max(self.work - before, 0.0)

    def time_left(self, seconds: float) -> float:
        """Return the time left if one process takes so many `seconds` for one unit of work."""
        running = [total - done for done, total in self._steps.values()]
        planned = self.count * self.size - sum(total for _, total in self._steps.values())
        if len(self._steps) >= self.count:
            planned = 0.0  # All have begun; some are smaller than expected.
        rounds = math.ceil(self.count / self._processes) / max(self.count, 1)
        shared = (sum(running) + max(planned, 0.0)) * rounds
        return max(shared, min(planned, self.size), *running, 0.0) * seconds


_CURRENT: ContextVar[Progress | None] = ContextVar('progress', default=None)


class Progress:
    """Shows the progress of a command in one line.

    Parameters
    ----------
    stages
        The plan: stages that run one after the other.
    title
        Which part of the command this is, if there are several.
    clock
        Returns the time in seconds.
    """

    def __init__(
        self, stages: Sequence[Stage], title: str = '', clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stages = {stage.name: stage for stage in stages}
        self._title, self._clock = title, clock
        self._began, self._shown = clock(), -math.inf
        self._stage: Stage | None = None
        self._text = ''
        self._open = ExitStack()
        self._bar: tqdm | None = None

    def __enter__(self) -> Self:
        disable = None if PROGRESS.isEnabledFor(logging.INFO) else True
        bar = tqdm(total=1.0, disable=disable, leave=False, dynamic_ncols=True, bar_format=BAR)
        if not bar.disable:
            self._bar = self._open.enter_context(bar)
            self._open.enter_context(_messages_above_bar())
        self._open.callback(_CURRENT.reset, _CURRENT.set(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    def update(
        self,
        stage: str,
        step: str,
        done: float,
        total: float = 1.0,
        text: str | None = None,
        measured: bool = True,
    ) -> None:
        """Set how much of a step is done and show it; without `text`, the last one stays."""
        if self.stages[stage] is not self._stage:
            self._text = ''
        self._stage = self.stages[stage]
        self._stage.update(self._clock(), step, done, total, measured)
        self._text = self._text if text is None else text
        self.show()

    @contextmanager
    def step(self, stage: str, step: str = '') -> Iterator[None]:
        """Run a step of a stage; what it reports is shown."""
        whole = self.stages[stage].size

        def advance(done: float, total: float, text: str) -> None:
            nonlocal whole
            whole = total
            self.update(stage, step, done, total, text)

        self.update(stage, step, 0.0, whole)
        measured = False
        try:
            with _reports_go_to(advance):
                yield
            measured = True
        finally:
            self.update(stage, step, whole, whole, measured=measured)

    def time_left(self) -> float | None:
        """Estimate the time left from measured work; None where too little is measured."""
        if not self._is_measured():
            return None
        updated = self._stage.updated if self._stage else self._began
        return max(self._expected() - (self._clock() - updated), 0.0)

    def _is_measured(self) -> bool:
        """Tell whether enough is measured to predict the rest."""
        measured = planned = 0.0
        for stage in self.stages.values():
            if stage.predict is not None:
                left, is_known = stage.predict()
                measured, planned = measured + left * is_known, planned + left
                continue
            work = stage.measured()[1]
            measured += stage.seconds * work if work >= stage.least else 0.0
            planned += stage.seconds * stage.size * stage.count
        return measured > 0 and measured >= MEASURED * planned

    def _expected(self) -> float:
        """Return the expected time of the remaining work."""
        left = 0.0
        for stage in self.stages.values():
            seconds = self._seconds_per_unit(stage)
            if stage.predict is not None:
                left += stage.predict()[0]
            elif seconds is None:
                left += stage.time_left(stage.seconds * self._slowness())
            else:
                left += stage.time_left(seconds)
        return left

    def _slowness(self) -> float:
        """Return how much longer measured work has taken than expected."""
        measured = [(stage.seconds, *stage.measured()) for stage in self.stages.values()]
        expected = sum(each * work for each, _, work in measured)
        return sum(seconds for _, seconds, _ in measured) / expected if expected else 1.0

    def _seconds_per_unit(self, stage: Stage) -> float | None:
        """Return the measured time of one unit of work of a stage, or of stages of its kind."""
        seconds, work = stage.measured()
        if work < 1:
            alike = [each for each in self.stages.values() if each.kind == stage.kind]
            own = [stage] if not stage.kind else alike
            seconds, work = map(sum, zip(*(each.measured() for each in own)))
        return seconds / work if work >= stage.least else None

    def show(self) -> None:
        """Show the line, if it is due."""
        now = self._clock()
        interval = SECONDS_BETWEEN_LINES if self._bar is None else SECONDS_BETWEEN_UPDATES
        if self._stage is None or now - self._shown < interval:
            return
        elapsed, left = now - self._began, self.time_left()
        if self._bar is None and left is None and elapsed < SECONDS_BETWEEN_LINES:
            return  # The first line of a log has an estimate, if there is one soon.
        self._shown = now
        times = f'{_duration(elapsed)} elapsed'
        if left is not None:
            times += f', about {_duration(left)} left'
        if self._bar is None:
            PROGRESS.info('%s; %s', self._describe(self._stage), times)
            return
        share = elapsed / max(elapsed + (self._expected() if left is None else left), 1e-9)
        self._bar.n = max(self._bar.n, share)
        # The times come first, because a narrow terminal cuts the end.
        self._bar.set_description_str(f'{times}; {self._describe(self._stage)}')

    def _describe(self, stage: Stage) -> str:
        number = [*self.stages].index(stage.name) + 1
        count = len(self.stages)
        where = [self._title, f'step {number} of {count}' if count > 1 else '']
        done = f'{stage.finished} of {stage.count} done' if stage.count > 1 else ''
        prefix = ', '.join(filter(None, where))
        what = ', '.join(filter(None, (stage.name, done, self._text)))
        line = f'{prefix}: {what}' if prefix else what
        return line[0].upper() + line[1:]


class _AboveBar(io.TextIOBase):
    """Writes to the standard error, above a bar."""

    def write(self, text: str) -> int:
        tqdm.write(text, sys.stderr, end='')
        return len(text)


@contextmanager
def _messages_above_bar() -> Iterator[None]:
    handlers = [
        (handler, handler.stream)
        for handler in logging.root.handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr
    ]
    for handler, _ in handlers:
        handler.setStream(_AboveBar())
    try:
        yield
    finally:
        for handler, stream in handlers:
            handler.setStream(stream)


BAR = '{percentage:3.0f}%|{bar:10}| {desc}'
"""Format of a bar: see tqdm."""


@contextmanager
def step(stage: str, name: str = '') -> Iterator[None]:
    """Run a step of the current command, if it has a plan; what is reported is shown."""
    current = _CURRENT.get()
    if current is None:
        yield
        return
    with current.step(stage, name):
        yield


def with_bar(items: Iterable[Item], what: str, count: int) -> Iterator[Item]:
    """Yield items, with a bar on a terminal unless the command is quiet."""
    disable = None if count and PROGRESS.isEnabledFor(logging.INFO) else True
    return iter(tqdm(items, what, count, leave=False, disable=disable))


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
