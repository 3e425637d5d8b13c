"""A run of experiments: its settings, its folder and its finished units."""

from __future__ import annotations

import itertools
import json
import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.files import write_json
from surreal_bids.simulation.population import Controls

from .people import People, simulate_people
from .plan import Plan, Schedule, Unit, preset_values
from .training import Recipe

LOGGER = logging.getLogger(__name__)
Work = Callable[['Study', Unit], dict[str, Any]]


@dataclass(frozen=True)
class Study:
    """Settings of a run, and the folder that keeps the result of every unit.

    A finished unit is never run again, and an interrupted run resumes; one that failed
    (`DataError`) is kept with the reason.
    """

    folder: Path
    plan: Plan
    preset: str
    seed: int
    device: str = 'auto'
    controls: Controls | None = None

    def open(self) -> None:
        """Claim the folder; one that holds results of other settings is refused."""
        path = self.folder / 'settings.json'
        own = json.loads(json.dumps(self.settings()))
        if not path.exists():
            write_json(path, own)
            return
        found = json.loads(path.read_text(encoding='utf-8'))
        other = [key for key in own if found.get(key) != own[key]]
        if other:
            raise UsageError(
                f'{self.folder} holds results of another run, with another {", ".join(other)}; '
                'give another folder, or the options it was begun with (settings.json)'
            )

    def settings(self) -> dict[str, Any]:
        """Settings that results depend on."""
        controls = 'built-in population'
        if self.controls is not None:
            total = float(self.controls.volumes.to_numpy().sum())
            controls = f'{len(self.controls.volumes)} people, {total:.6g} mm3 in all'
        return {
            'setting': self.plan.label,
            'preset': self.preset,
            'seed': self.seed,
            'controls': controls,
            'plan': asdict(self.plan),
        }

    def people(self, task: str) -> People:
        """The people of a task."""
        return simulate_people(task, self.plan.n_cn, self.plan.n_pt, self.seed, self.controls)

    def recipe(self, schedule: Schedule, unit: Unit, **changes: float) -> Recipe:
        """How to train in this run, with some hyper-parameters changed."""
        hyper = preset_values(self.preset, **self.plan.changes | changes)
        return Recipe(schedule, hyper, self.seed, self.device, self._checkpoint(unit))

    def result(self, unit: Unit) -> dict[str, Any] | None:
        """Return the result of a unit; None if it is unfinished or failed."""
        path = self._path(unit)
        if not path.exists():
            return None
        found = json.loads(path.read_text(encoding='utf-8'))
        return None if 'failed' in found else found

    def missing(self, units: Iterable[Unit]) -> list[Unit]:
        """Return the unfinished units."""
        return [unit for unit in units if not self._path(unit).exists()]

    def do(self, unit: Unit, work: Work) -> None:
        """Run a unit, and keep its result or the reason why it failed."""
        start = time.perf_counter()
        try:
            result = work(self, unit)
        except DataError as error:
            LOGGER.warning('%s could not be done: %s', unit.name, error)
            result = {'failed': str(error)}
        result['seconds'] = round(time.perf_counter() - start, 3)
        write_json(self._path(unit), result)
        self._checkpoint(unit).unlink(missing_ok=True)

    def _path(self, unit: Unit) -> Path:
        return self.folder / 'units' / f'{unit.name}.json'

    def _checkpoint(self, unit: Unit) -> Path:
        return self.folder / 'checkpoints' / f'{unit.name}.safetensors'


def run_units(
    study: Study, units: Iterable[Unit], work: Work, n_jobs: int, train_here: bool = False
) -> list[Unit]:
    """Run unfinished units in several processes; return them.

    With `train_here`, units that train do so one after another in this process, which has the GPU,
    while others run in parallel. Units that others depend on (`Unit.stage`) run first.
    """
    todo = study.missing(units)
    with tqdm(total=len(todo), unit='unit', disable=None) as bar:
        for _, stage in itertools.groupby(todo, key=lambda unit: unit.stage):
            for unit in _run_stage(study, list(stage), work, n_jobs, train_here):
                bar.set_description(unit.name)
                bar.update()
    return todo


def _run_stage(
    study: Study, units: list[Unit], work: Work, n_jobs: int, train_here: bool
) -> Iterator[Unit]:
    """Run independent units; yield each when it is finished."""
    here = [unit for unit in units if n_jobs == 1 or (train_here and unit.trains)]
    n_threads = max((os.cpu_count() or 1) // n_jobs, 1)
    processes = ProcessPoolExecutor(
        n_jobs, multiprocessing.get_context('spawn'), _use_threads, (n_threads,)
    )
    with processes:
        futures = {
            processes.submit(study.do, unit, work): unit for unit in units if unit not in here
        }
        for unit in here:
            study.do(unit, work)
            yield unit
        for future in as_completed(futures):
            future.result()
            yield futures[future]


def _use_threads(n_threads: int) -> None:
    """Limit a process to its share of the cores: torch, and the BLAS of numpy and scikit-learn."""
    torch.set_num_threads(n_threads)
    threadpool_limits(n_threads)
