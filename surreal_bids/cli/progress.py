"""How far a run is: a bar for all, and a log for each participant."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from nipype.pipeline import engine as pe
from nipype.pipeline.engine.utils import generate_expanded_graph
from tqdm import tqdm


def append_to_log(path: Path, text: str) -> None:
    """Add a line with the time to a log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('a', encoding='utf-8') as stream:
        stream.write(f'{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} {text}\n')


class Progress:
    """Told by Nipype of each step that starts and ends; draws the bar and writes the logs.

    Parameters
    ----------
    workflow
        Of which each participant is a workflow.
    logs
        Log of each participant, by the name of its workflow.
    description
        What the bar is about.
    """

    def __init__(self, workflow: pe.Workflow, logs: Mapping[str, Path], description: str) -> None:
        self._logs = logs
        graph = generate_expanded_graph(workflow._create_flat_graph())
        self._waiting = {name: set[str]() for name in logs}
        for node in graph.nodes():
            _, participant, *steps = node.fullname.split('.')
            self._waiting[participant].add('.'.join(steps))
        self._started: dict[tuple[str, ...], float] = {}
        self._failed: set[tuple[str, ...]] = set()
        total = sum(map(len, self._waiting.values()))
        self._bar = tqdm(desc=description, total=total, unit='step', disable=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.close()

    def __call__(self, names: tuple[str, ...], status: str) -> None:
        """Take note of a step that started, ended, or failed."""
        participant, step = names[1], '.'.join(names[2:])
        if status == 'start':
            self._started[names] = time.monotonic()
            self._note(participant, f'{step}: started')
        elif status == 'exception':
            self._failed.add(names)
            self._note(participant, f'{step}: failed')
        elif names not in self._failed:
            self._finish(participant, step, self._started.get(names))

    def _finish(self, participant: str, step: str, begin: float | None) -> None:
        took = 'ready' if begin is None else f'done in {time.monotonic() - begin:.1f} s'
        self._note(participant, f'{step}: {took}')
        if step in self._waiting[participant]:
            self._waiting[participant].remove(step)
            self._bar.update()
        done = sum(not steps for steps in self._waiting.values())
        self._bar.set_postfix_str(f'{done} of {len(self._waiting)} participants')

    def _note(self, participant: str, text: str) -> None:
        append_to_log(self._logs[participant], text)
