"""Run a Nipype workflow as the configuration says, and tell which steps failed and why."""

from __future__ import annotations

import gc
import json
import logging
import multiprocessing
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import nipype
from nipype.pipeline import engine as pe
from nipype.pipeline import plugins
from nipype.pipeline.engine import Workflow
from nipype.pipeline.engine.utils import generate_expanded_graph
from nipype.pipeline.plugins.multiproc import MultiProcPlugin, process_initializer, run_node
from tqdm import tqdm

from surreal_bids.cli.plan import steps_dir
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import SurrealError, UsageError
from surreal_bids.interfaces import ERROR

LOGGER = logging.getLogger(__name__)


DIED = (
    'RuntimeError: the process of this step was killed, twice; most likely there was not enough '
    'memory: use fewer processes (--nprocs), or tell how much there is (--mem-gb)\n'
)
"""Reported for a step whose process died: what a system without memory does to processes."""


def start_worker(folder: str, log_level: int) -> None:
    """Prepare a worker: its folder, no questions to servers, and no more log than was asked for."""
    process_initializer(folder)
    logging.getLogger('nipype').setLevel(log_level)
    for name in ('nipype.workflow', 'nipype.interface', 'nipype.utils'):
        logging.getLogger(name).setLevel(log_level)


class SturdyMultiProcPlugin(MultiProcPlugin):
    """MultiProc that runs a step again, alone, when a worker dies, and then gives only it up.

    Nipype's own waits forever for steps of a dead worker. Workers are started afresh, not forked:
    a fork of a process with threads, as torch has, can hang.

    Parameters
    ----------
    plugin_args
        As of MultiProc; `log_level` is that of Nipype's messages.
    """

    pool: ProcessPoolExecutor

    def __init__(self, plugin_args: dict[str, Any]) -> None:
        super().__init__(plugin_args=plugin_args)
        self._log_level = plugin_args.get('log_level', logging.ERROR)
        self._lone_pools: list[ProcessPoolExecutor] = []
        self.pool.shutdown()
        self.pool = self._make_pool(self.processors)

    def _make_pool(self, workers: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            max_workers=workers,
            initializer=start_worker,
            initargs=(os.fspath(self._cwd), self._log_level),
            mp_context=multiprocessing.get_context('spawn'),
        )

    def _submit_job(self, node: Any, updatehash: bool = False) -> int:
        self._taskid += 1
        job = (node, updatehash, self._taskid)
        try:
            future = self.pool.submit(run_node, *job)
        except BrokenProcessPool:
            self.pool = self._make_pool(self.processors)
            future = self.pool.submit(run_node, *job)
        future.add_done_callback(partial(self._collect, job, True))
        self._task_obj[self._taskid] = future
        return self._taskid

    def _collect(self, job: tuple[Any, bool, int], retry: bool, future: Future) -> None:
        """Keep the result of a step; if its worker died, try once more in a pool of its own."""
        if future.cancelled():
            return
        try:
            result = future.result()
        except BrokenProcessPool:
            if retry:
                self._run_alone(job)
                return
            result = {'result': None, 'traceback': [DIED], 'taskid': job[2]}
        self._taskresult[job[2]] = result

    def _run_alone(self, job: tuple[Any, bool, int]) -> None:
        pool = self._make_pool(1)
        self._lone_pools.append(pool)
        pool.submit(run_node, *job).add_done_callback(partial(self._collect, job, False))

    def _postrun_check(self) -> None:
        self.close()

    def close(self) -> None:
        """End all workers; steps that have not begun are dropped."""
        for pool in (self.pool, *self._lone_pools):
            pool.shutdown(cancel_futures=True)


def usable_cores() -> int:
    """Cores that this process may use, where the system tells, or else all."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


THREAD_SETTINGS = (
    'OMP_NUM_THREADS',
    'MKL_NUM_THREADS',
    'OPENBLAS_NUM_THREADS',
    'ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS',
)
"""Environment variables that numerical libraries read when a process starts."""

POLL_SECONDS = '0.1'
"""How long Nipype rests between looking for finished steps."""

ERROR_LINE = re.compile(r'^\s*((?:\w+\.)*)(\w+(?:Error|Exception)): (.+)$', re.MULTILINE)
"""Where a traceback names an error: its module, type and message."""

PART = re.compile(r'^_(.+?)(\d+)$')
"""How Nipype calls the parts of a step that is done for each of a list."""

StatusCallback = Callable[[tuple[str, ...], str], None]
"""Told the names of the workflows around a step and its own, and `start`, `end` or `exception`."""


@dataclass(frozen=True)
class Crash:
    """A step that failed.

    Attributes
    ----------
    hierarchy
        Names of the workflows around the step, outermost first.
    step
        Name of the node; `name[2]` is the third part of a step that is done for each of a list.
    reason
        Last line of the error, without its type where that is one of ours.
    report
        What Nipype wrote about it.
    exit_code
        Of its error, where that is one of ours.
    """

    hierarchy: tuple[str, ...]
    step: str
    reason: str
    report: str
    exit_code: int = SurrealError.exit_code


def run_workflow(
    workflow: Workflow, config: AppConfig, status_callback: StatusCallback | None = None
) -> list[Crash]:
    """Run a workflow to its end, whatever fails on the way.

    Parameters
    ----------
    workflow
        Its `base_dir` becomes a folder in the work folder of the configuration.
    config
        Processes, memory, plugin, and whether to stop at the first failure.
    status_callback
        Called in this process as steps start and end.

    Returns
    -------
    list of Crash
        Steps that failed; those that depend on them were not run.
    """
    crash_dir = config.work_dir.absolute() / f'crashes-{secrets.token_hex(4)}'
    workflow.base_dir = os.fspath(steps_dir(config))
    workflow.config['execution'].update(_execution_settings(config, crash_dir))
    _quieten(_log_level())
    if config.resource_monitor:
        _start_monitor()
    with limited_threads(config.omp_nthreads):
        plugin = _make_plugin(config)
        if status_callback is not None:
            plugin._status_callback = partial(_report, status_callback, steps_dir(config))
        # Nipype collects garbage whenever it looks for finished steps. What has been made so far,
        # mostly by imports, need not be looked at each time, which would keep a core busy.
        gc.freeze()
        try:
            workflow.run(plugin=plugin)
        except RuntimeError:
            # Nipype raises it when steps failed; their reports tell which. All else is fatal.
            if not crash_dir.is_dir():
                raise
        finally:
            gc.unfreeze()
            if isinstance(plugin, SturdyMultiProcPlugin):
                plugin.close()
    return _collect_crashes(crash_dir, steps_dir(config))


def _report(callback: StatusCallback, base_dir: Path, node: Any, status: str) -> None:
    callback(step_names(node.output_dir(), base_dir), status)


def step_names(folder: str, base_dir: Path) -> tuple[str, ...]:
    """Names of the workflows around a step and its own, from the folder in which it runs.

    Its parts have no other sign of where they belong: `w/a/step/mapflow/_step2` becomes
    `w`, `a`, `step[2]`.
    """
    *hierarchy, name = Path(folder).relative_to(base_dir.resolve()).parts
    part = PART.match(name) if hierarchy[-1:] == ['mapflow'] else None
    if part is None:
        return (*hierarchy, name)
    return (*hierarchy[:-2], f'{part[1]}[{part[2]}]')


def _execution_settings(config: AppConfig, crash_dir: Path) -> dict[str, str]:
    return {
        'crashdump_dir': os.fspath(crash_dir),
        'crashfile_format': 'txt',
        'create_report': 'false',
        'hash_method': 'content',
        'poll_sleep_duration': POLL_SECONDS,
        'remove_unnecessary_outputs': 'false',
        'stop_on_first_crash': str(config.stop_on_first_crash).lower(),
    }


def _log_level() -> int:
    """Nipype says what we say one level higher: its decisions are our details."""
    return logging.INFO if LOGGER.isEnabledFor(logging.DEBUG) else logging.CRITICAL


def _quieten(level: int) -> None:
    for name in ('nipype.workflow', 'nipype.interface', 'nipype.utils'):
        logging.getLogger(name).setLevel(level)


def _start_monitor() -> None:
    if find_spec('psutil') is None:
        raise UsageError('--resource-monitor: needs psutil; install it with "pip install psutil"')
    nipype.config.enable_resource_monitor()


@contextmanager
def limited_threads(number: int) -> Iterator[None]:
    """Let processes that are started meanwhile use this many threads each."""
    before = {name: os.environ.get(name) for name in THREAD_SETTINGS}
    os.environ.update(dict.fromkeys(THREAD_SETTINGS, str(number)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _make_plugin(config: AppConfig) -> Any:
    """The plugin of the file, or MultiProc with the processes and memory that were given."""
    resources: dict[str, Any] = {'n_procs': config.nprocs or usable_cores()}
    if config.mem_gb is not None:
        resources['memory_gb'] = config.mem_gb
    resources |= {'raise_insufficient': False, 'log_level': _log_level()}
    if config.use_plugin is None:
        return SturdyMultiProcPlugin(plugin_args=resources)
    settings = read_plugin(config.use_plugin)
    arguments = {**resources, **settings.get('plugin_args', {})}
    if settings['plugin'] == 'MultiProc':
        return SturdyMultiProcPlugin(plugin_args=arguments)
    return getattr(plugins, f'{settings["plugin"]}Plugin')(plugin_args=arguments)


def read_plugin(path: Path) -> dict[str, Any]:
    """Read a plugin file as fMRIPrep has it: `plugin`, and perhaps `plugin_args`."""
    import yaml  # type: ignore[import-untyped]

    try:
        settings = yaml.safe_load(path.read_text(encoding='utf-8'))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f'--use-plugin {path}: cannot be read as YAML ({error})') from error
    if not (isinstance(settings, dict) and isinstance(settings.get('plugin'), str)):
        raise UsageError(f'--use-plugin {path}: expected "plugin: NAME" and perhaps "plugin_args:"')
    if not isinstance(settings.get('plugin_args', {}), dict):
        raise UsageError(f'--use-plugin {path}: plugin_args must be names with values')
    if not hasattr(plugins, f'{settings["plugin"]}Plugin'):
        known = [name.removesuffix('Plugin') for name in dir(plugins) if name.endswith('Plugin')]
        raise UsageError(
            f'--use-plugin {path}: no plugin {settings["plugin"]}; there are: {", ".join(known)}'
        )
    return settings


def _collect_crashes(folder: Path, base_dir: Path) -> list[Crash]:
    """Read the reports of failed steps, and delete them: they are kept among the logs."""
    reports = (path.read_text(encoding='utf-8') for path in folder.glob('crash-*'))
    crashes = [_read_crash(report, base_dir) for report in reports]
    shutil.rmtree(folder, ignore_errors=True)
    return sorted(crashes, key=lambda crash: (crash.hierarchy, crash.step))


def _read_crash(report: str, base_dir: Path) -> Crash:
    match = re.search(r'^Working directory: (.+)$', report, re.MULTILINE)
    if match is None:
        return Crash((), 'unknown', _reason(report), report)
    *hierarchy, step = step_names(match[1], base_dir)
    record = Path(match[1]) / ERROR
    if not record.is_file():
        return Crash(tuple(hierarchy), step, _reason(report), report)
    error = json.loads(record.read_text(encoding='utf-8'))
    return Crash(tuple(hierarchy), step, error['message'], report, error['exit_code'])


def _reason(report: str) -> str:
    """The error itself: the last line that starts with the name of an error, but for Nipype's."""
    errors = [match for match in ERROR_LINE.finditer(report) if match[2] != 'NodeExecutionError']
    if not errors:
        return 'unknown; see the report'
    module, kind, message = errors[-1].groups()
    return message if module == 'surreal_bids.exceptions.' else f'{kind}: {message}'


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
