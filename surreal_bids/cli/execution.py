"""Run Nipype workflows depth first on this machine, or with a plugin of Nipype."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import format_exception, walk_tb
from typing import Any

from nipype.pipeline import plugins
from nipype.pipeline.engine import MapNode, Workflow
from nipype.pipeline.plugins.base import PluginBase
from nipype.pipeline.plugins.multiproc import process_initializer, run_node
from nipype.pipeline.plugins.tools import report_crash
from nipype.utils.profiler import get_system_total_memory_gb
from threadpoolctl import threadpool_limits

from surreal_bids.cli.main import log_from, log_level, usable_cores
from surreal_bids.cli.plan import steps_dir
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import SurrealError, UsageError
from surreal_bids.files import read_option_file
from surreal_bids.interfaces import ERROR
from surreal_bids.parallel import (
    THREAD_SETTINGS,
    end_with_parent,
    limited_threads,
    set_threads,
    start_server,
)

LOGGER = logging.getLogger(__name__)

LOCAL = 'MultiProc'
"""The plugin of Nipype that ours replaces: processes on this machine."""

BATCH_SYSTEMS = {
    'SLURM': ('sbatch', 'squeue', 'scancel'),
    'SGE': ('qsub', 'qstat', 'qdel'),
    'PBS': ('qsub', 'qstat', 'qdel'),
    'LSF': ('bsub', 'bjobs', 'bkill'),
}
"""Plugins of Nipype that submit each step as a job, and the programs that submit, list and cancel
jobs. Plugins that submit a whole graph return before it is done, and others need what this package
does not have."""

PLUGINS = (LOCAL, 'Linear', *BATCH_SYSTEMS)
"""Plugins that may be used."""

MEMORY_SHARE = 0.9
"""Default share of the memory of this machine that steps may use."""

POLL_SECONDS = '0.1'
"""Interval at which plugins of Nipype look for finished steps."""

SECONDS_BETWEEN_CALLS = 1.0
"""Maximum interval of status callbacks while steps run."""

DIED = (
    'RuntimeError: the process of this step was killed twice, probably for lack of memory; use '
    'fewer processes (--nprocs) or limit the memory (--mem-gb)\n'
)
"""Error of a step whose process was killed, as systems do when memory runs out."""

ERROR_LINE = re.compile(r'^\s*((?:\w+\.)*)(\w+(?:Error|Exception)): (.+)$', re.MULTILINE)
"""Line of a traceback that names an error: its module, type and message."""

PART = re.compile(r'^_(.+?)(\d+)$')
"""Name of the parts of a step that Nipype runs for each item of a list."""


@dataclass(frozen=True)
class Crash:
    """A step that failed.

    Attributes
    ----------
    hierarchy
        Names of the workflows around the step, outermost first.
    step
        Name of the node; `name[2]` is the third part of a step that runs for each item.
    reason
        Last line of the error, without its type if this package raised it.
    report
        Crash report of Nipype.
    exit_code
        Exit code of the error, if this package raised it.
    """

    hierarchy: tuple[str, ...]
    step: str
    reason: str
    report: str
    exit_code: int = SurrealError.exit_code


StatusCallback = Callable[[tuple[str, ...], str], None]
"""Called with the names of the workflows around a step and its own, and `start`, `end`, `ready`
(its results already exist), `exception`, or now and then `running`."""


Finished = Callable[[Workflow, list[Crash]], Workflow | None]
"""Called with each finished workflow and its failures; returns a workflow to run next, if any."""


def run_workflow(
    workflow: Workflow, config: AppConfig, status_callback: StatusCallback | None = None
) -> list[Crash]:
    """Run one workflow and return the steps that failed."""
    crashes: list[Crash] = []
    run_workflows([workflow], config, lambda _, found: crashes.extend(found), status_callback)
    return crashes


def run_workflows(
    workflows: Iterable[Workflow],
    config: AppConfig,
    finished: Finished,
    status_callback: StatusCallback | None = None,
) -> None:
    """Run workflows depth first: a workflow starts when earlier ones leave processes idle.

    A plugin of Nipype (`--use-plugin`) runs one workflow after the other.

    Parameters
    ----------
    workflows
        Created when they are needed; their folders are inside the work folder.
    config
        Processes, memory and plugin.
    finished
        Called as each workflow ends.
    status_callback
        Called as steps start and end.
    """
    _quieten(_log_level())
    with limited_threads(config.omp_nthreads):
        plugin = _make_plugin(config)
        if status_callback is not None:
            plugin._status_callback = partial(_report, status_callback, steps_dir(config))
        if isinstance(plugin, DepthFirstPlugin):
            prepared = (_prepare(workflow, config) for workflow in workflows)
            plugin.work(prepared, lambda *end: _prepare(finished(*end), config))
            return
        for workflow in workflows:
            following: Workflow | None = workflow
            while following is not None:
                crashes = _run_with_plugin(_prepare(following, config), plugin)
                following = finished(following, crashes)


def _run_with_plugin(workflow: Workflow, plugin: Any) -> list[Crash]:
    try:
        workflow.run(plugin=plugin)
    except RuntimeError:
        # Nipype raises it if steps failed, with a report of each. Other errors are fatal.
        if not crash_dir(workflow).is_dir():
            raise
    return collect_crashes(workflow)


def runs_here(config: AppConfig) -> bool:
    """Tell whether steps run in processes of this machine, depth first."""
    return config.use_plugin is None or read_plugin(config.use_plugin)['plugin'] == LOCAL


class DepthFirstPlugin(PluginBase):
    """A plugin of Nipype that runs many workflows in processes of this machine, depth first.

    A free process runs a step of the earliest workflow that is ready and fits into memory. The
    next workflow starts only when no step waits. Steps whose worker is killed run once more, each
    alone, and fail if they are killed again. Workers are forked from a process without threads: a
    fork of one with threads, such as those of torch, can hang.

    Parameters
    ----------
    plugin_args
        `n_procs` and `memory_gb` as MultiProc has them; `threads` of libraries in each process;
        `log_level` of Nipype's messages.
    """

    def __init__(self, plugin_args: dict[str, Any]) -> None:
        super().__init__(plugin_args=plugin_args)
        self.processors = int(plugin_args.get('n_procs') or usable_cores())
        self.memory_gb = float(
            plugin_args.get('memory_gb') or MEMORY_SHARE * get_system_total_memory_gb()
        )
        self._threads = int(plugin_args.get('threads', 1))
        self._graph: Any = None
        self._branches: list[_Branch] = []
        self._running: dict[Future, tuple[_Branch, Any, ProcessPoolExecutor | None]] = {}
        self._pool = self._make_pool(self.processors)
        self._to_retry: list[tuple[_Branch, Any]] = []

    def run(self, graph: Any, config: Any, updatehash: bool = False) -> None:
        """Store the steps that `Workflow.run` passes; :meth:`work` runs them."""
        self._graph = graph

    def work(self, workflows: Iterable[Workflow], finished: Finished) -> None:
        """Run all workflows, including those that `finished` returns."""
        waiting = enumerate(workflows)
        try:
            while True:
                self._retry()
                while self._may_start and (found := self._first_ready()):
                    self._start(*found)
                if self._close(finished):
                    continue
                if self._has_room and (following := next(waiting, None)):
                    self._open(*following)
                elif self._running:
                    self._collect()
                else:
                    return
        finally:
            alone = [pool for *_, pool in self._running.values() if pool is not None]
            for pool in (self._pool, *alone):
                pool.shutdown(cancel_futures=True)

    @property
    def _may_start(self) -> bool:
        """Whether steps may start: no step has to run alone."""
        return not (self._to_retry or any(alone for *_, alone in self._running.values()))

    @property
    def _has_room(self) -> bool:
        """Whether a processor is idle, and no step waits for memory or more processors."""
        busy = sum(step.n_procs for _, step, _ in self._running.values())
        return busy < self.processors and not any(branch.ready for branch in self._branches)

    def _open(self, order: int, workflow: Workflow) -> None:
        workflow.run(plugin=self)
        self._branches.append(_Branch(order, workflow, self._graph))
        self._branches.sort(key=lambda branch: branch.order)

    def _close(self, finished: Finished) -> bool:
        """Report finished workflows and open their successors; tell whether there are any."""
        opened = False
        for branch in [branch for branch in self._branches if branch.is_done]:
            self._branches.remove(branch)
            following = finished(branch.workflow, collect_crashes(branch.workflow))
            if following is not None:
                self._open(branch.order, following)
                opened = True
        return opened

    def _first_ready(self) -> tuple[_Branch, Any] | None:
        """Find the first step that can start now, in the earliest workflow."""
        for branch in self._branches:
            for step in branch.ready:
                if step.run_without_submitting or self._fits(step):
                    return branch, step
        return None

    def _fits(self, step: Any) -> bool:
        """Tell whether processors and memory suffice for a step in addition to those that run."""
        steps = [running for _, running, _ in self._running.values()]
        cores = sum(min(each.n_procs, self.processors) for each in (step, *steps))
        memory = sum(min(each.mem_gb, self.memory_gb) for each in (step, *steps))
        return cores <= self.processors and memory <= self.memory_gb

    def _start(self, branch: _Branch, step: Any) -> None:
        """Start a step; a step that runs for each item of a list is first replaced by its parts."""
        try:
            if isinstance(step, MapNode) and branch.expand(step):
                return
        except (OSError, EOFError, RuntimeError, ValueError) as error:
            branch.start(step)
            self._end(branch, step, format_exception(error), False)
            return
        branch.start(step)
        if step.run_without_submitting:
            self._end(branch, step, *run_step(step))
            return
        self._tell(step, 'start')
        try:
            future = self._pool.submit(run_step, step, self._threads_for(step))
        except BrokenProcessPool:
            self._pool = self._make_pool(self.processors)
            future = self._pool.submit(run_step, step, self._threads_for(step))
        self._running[future] = branch, step, None

    def _threads_for(self, step: Any) -> int:
        """Number of threads of a step: more than one if images are fewer than cores.

        Steps of the same kind, such as the registrations of several atlases to an image, share
        the cores. The result does not depend on the number of threads.
        """
        beside = [each for branch in self._branches for each in branch.at_hand]
        alike = sum(type(each.interface) is type(step.interface) for each in beside)
        return max(self.processors // (max(len(self._branches), alike) * step.n_procs), 1)

    def _collect(self) -> None:
        """Wait until steps end; steps whose worker was killed are queued for a second try."""
        ended = wait(self._running, SECONDS_BETWEEN_CALLS, FIRST_COMPLETED).done
        for _, step, _ in self._running.values() if not ended else ():
            self._tell(step, 'running')
        for future in ended:
            branch, step, own_pool = self._running.pop(future)
            if own_pool is not None:
                own_pool.shutdown()
            try:
                self._end(branch, step, *future.result())
            except BrokenProcessPool:
                if own_pool is None:
                    self._to_retry.append((branch, step))
                else:
                    self._end(branch, step, [DIED], False)

    def _retry(self) -> None:
        """Run a step whose worker was killed again, when nothing else runs.

        If one worker is killed, usually for lack of memory, all steps that ran in parallel are
        lost. Together they might not fit into memory again.
        """
        if self._to_retry and not self._running:
            branch, step = self._to_retry.pop(0)
            pool = self._make_pool(1)
            self._running[pool.submit(run_step, step)] = branch, step, pool

    def _end(self, branch: _Branch, step: Any, traceback: list[str] | None, ready: bool) -> None:
        if traceback is None:
            branch.end(step)
            self._tell(step, 'ready' if ready else 'end')
            return
        report_crash(step, traceback=traceback)
        branch.give_up(step)
        self._tell(step, 'exception')

    def _tell(self, step: Any, status: str) -> None:
        if self._status_callback:
            self._status_callback(step, status)

    def _make_pool(self, workers: int) -> ProcessPoolExecutor:
        of_nipype = self.plugin_args.get('log_level', logging.ERROR)
        return ProcessPoolExecutor(
            max_workers=workers,
            initializer=start_worker,
            initargs=(os.fspath(Path.cwd()), log_level(), of_nipype, self._threads),
            mp_context=start_server(),
        )


class _Branch:
    """Steps of one workflow: waiting, ready and running."""

    def __init__(self, order: int, workflow: Workflow, graph: Any) -> None:
        self.order, self.workflow, self.graph = order, workflow, graph
        self._needs = {step: set(graph.predecessors(step)) for step in graph}
        self._running: set[Any] = set()
        self._expanded: set[Any] = set()

    @property
    def ready(self) -> list[Any]:
        """Steps that can start."""
        return [step for step, needs in self._needs.items() if not needs]

    @property
    def at_hand(self) -> list[Any]:
        """Steps that run or can start."""
        return [*self._running, *self.ready]

    @property
    def is_done(self) -> bool:
        """Whether all steps are finished."""
        return not self._needs and not self._running

    def expand(self, step: Any) -> bool:
        """Insert the parts of a step before it, once; tell whether there are several."""
        if step in self._expanded:
            return False
        self._expanded.add(step)
        parts = step.get_subnodes()
        if len(parts) > 1:
            self.graph.add_edges_from((part, step) for part in parts)
            self._needs |= {**{part: set() for part in parts}, step: set(parts)}
        return len(parts) > 1

    def start(self, step: Any) -> None:
        """Mark a step as running."""
        del self._needs[step]
        self._running.add(step)

    def end(self, step: Any) -> None:
        """Release the steps that depend on a finished one."""
        self._running.remove(step)
        for later in self.graph.successors(step):
            if later in self._needs:
                self._needs[later].remove(step)

    def give_up(self, step: Any) -> None:
        """Remove all steps that depend on a failed one."""
        self._running.remove(step)
        lost = [step]
        while lost:
            later = self.graph.successors(lost.pop())
            lost += [step for step in later if self._needs.pop(step, None) is not None]


def run_step(step: Any, threads: int = 1) -> tuple[list[str] | None, bool]:
    """Run a step; return its traceback if it failed, and whether its results already existed."""
    set_threads(threads)
    results = Path(step.output_dir(), f'result_{step.name}.pklz')
    before = results.stat().st_mtime_ns if results.is_file() else None
    traceback = run_node(step, False, 0)['traceback']
    existed = traceback is None and results.is_file() and results.stat().st_mtime_ns == before
    return traceback, existed


def start_worker(folder: str, level: int, of_nipype: int, threads: int) -> None:
    """Prepare a worker process: its folder, log levels and threads."""
    end_with_parent()
    process_initializer(folder)
    os.environ.update(dict.fromkeys(THREAD_SETTINGS, str(threads)))
    threadpool_limits(threads)
    log_from(level)
    logging.getLogger('nipype').setLevel(of_nipype)
    _quieten(of_nipype)
    # PyTorch warns when a thread is the first to multiply matrices on a GPU, and goes on.
    warnings.filterwarnings('ignore', 'Attempting to run cuBLAS')


def _prepare(workflow: Workflow | None, config: AppConfig) -> Any:
    """Set the folders and settings of a workflow; None stays None."""
    if workflow is None:
        return None
    crashes = config.work_dir.absolute() / f'crashes-{secrets.token_hex(4)}'
    workflow.base_dir = os.fspath(steps_dir(config))
    workflow.config['execution'].update(
        {
            'crashdump_dir': os.fspath(crashes),
            'crashfile_format': 'txt',
            'create_report': 'false',
            'hash_method': 'timestamp',
            'poll_sleep_duration': POLL_SECONDS,
            'remove_unnecessary_outputs': 'false',
            'stop_on_first_crash': 'false',
        }
    )
    return workflow


def _report(callback: StatusCallback, base_dir: Path, node: Any, status: str) -> None:
    callback(step_names(node.output_dir(), base_dir), status)


def _log_level() -> int:
    """Log level of Nipype: its decisions are our details."""
    return logging.INFO if LOGGER.isEnabledFor(logging.DEBUG) else logging.CRITICAL


def _quieten(level: int) -> None:
    for name in ('nipype.workflow', 'nipype.interface', 'nipype.utils'):
        logging.getLogger(name).setLevel(level)


def _make_plugin(config: AppConfig) -> Any:
    """Create the plugin of `--use-plugin`, or ours with the given processes and memory."""
    resources: dict[str, Any] = {'n_procs': config.nprocs or usable_cores()}
    if config.mem_gb is not None:
        resources['memory_gb'] = config.mem_gb
    settings: dict[str, Any] = {'plugin': LOCAL}
    if config.use_plugin is not None:
        settings = read_plugin(config.use_plugin)
    arguments = {**resources, **settings.get('plugin_args', {})}
    if settings['plugin'] in BATCH_SYSTEMS:
        return _make_submitter(settings['plugin'], arguments)
    if settings['plugin'] != LOCAL:
        return getattr(plugins, f'{settings["plugin"]}Plugin')(plugin_args=arguments)
    about_run = {'threads': config.omp_nthreads, 'log_level': _log_level()}
    return DepthFirstPlugin(plugin_args=arguments | about_run)


def _make_submitter(system: str, arguments: dict[str, Any]) -> Any:
    """Create the plugin of a batch system; a failed submission is an error for users."""
    # Nipype takes the names of jobs from it without a default.
    os.environ.setdefault('LOGNAME', 'surreal_bids')
    nipype_plugin = getattr(plugins, f'{system}Plugin')
    kind = type(f'{system}Submitter', (_Submitter, nipype_plugin), {'system': system})
    return kind(plugin_args=arguments)


class _Submitter:
    """Part of a plugin that submits each step: cancels all jobs if one cannot be submitted.

    They would still be queued when the command is run again.
    """

    system: str
    _pending: dict[Any, str]

    def _submit_job(self, node: Any, updatehash: bool = False) -> Any:
        try:
            job = super()._submit_job(node, updatehash)  # type: ignore[misc]
        except (RuntimeError, OSError, ValueError, LookupError, AttributeError) as error:
            # The last three: the program has answered something else than the number of a job.
            self._cancel()
            raise self._explain(node, _answer_of_program(error)) from error
        if not job:  # As PBS of Nipype does.
            self._cancel()
            raise self._explain(node, 'it returned no number of a job')
        return job

    def _cancel(self) -> None:
        """Cancel all jobs that have not ended."""
        *_, cancel = BATCH_SYSTEMS[self.system]
        jobs = [str(job) for job in self._pending if job]
        if jobs:
            with suppress(OSError):
                # Numbers that the batch system gave itself.
                subprocess.run([cancel, *jobs], capture_output=True, check=False)  # noqa: S603

    def _explain(self, node: Any, reason: str) -> SurrealError:
        program, *_ = BATCH_SYSTEMS[self.system]
        return SurrealError(
            f'{program}: the step {node.fullname} could not be submitted ({reason}); correct the '
            'plugin_args of --use-plugin, and rerun the command to resume'
        )


def _answer_of_program(error: Exception) -> str:
    """Return what a program answered that has not submitted a job.

    Nipype looks for the number of the job without looking at the exit code, so that the answer is
    only in the frame where this failed.
    """
    for frame, _ in walk_tb(error.__traceback__):
        runtime = getattr(frame.f_locals.get('result'), 'runtime', None)
        if runtime is not None and (runtime.stderr or runtime.stdout):
            return ' '.join((runtime.stderr or runtime.stdout).split())
    return ' '.join(str(error).split())


def read_plugin(path: Path) -> dict[str, Any]:
    """Read a plugin file in the format of fMRIPrep: `plugin` and optional `plugin_args`."""
    import yaml  # type: ignore[import-untyped]

    text = read_option_file('--use-plugin', path)
    try:
        settings = yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(f'--use-plugin {path}: cannot be read as YAML ({error})') from error
    if not (
        isinstance(settings, dict)
        and isinstance(settings.get('plugin'), str)
        and isinstance(settings.get('plugin_args', {}), dict)
    ):
        raise UsageError(
            f'--use-plugin {path}: expected "plugin: NAME" and optional "plugin_args:"'
        )
    _require_usable(path, settings['plugin'])
    return settings


def _require_usable(path: Path, plugin: str) -> None:
    """Refuse plugins that do not work, and batch systems whose programs are not installed."""
    if plugin not in PLUGINS:
        raise UsageError(
            f'--use-plugin {path}: the plugin {plugin} is not supported; use one of '
            f'{", ".join(PLUGINS)}'
        )
    missing = [name for name in BATCH_SYSTEMS.get(plugin, ()) if shutil.which(name) is None]
    if missing:
        raise UsageError(
            f'--use-plugin {path}: {plugin} needs {", ".join(missing)}, not found on this machine; '
            f'run the command where jobs are submitted, or use {LOCAL}'
        )


def step_names(folder: str, base_dir: Path) -> tuple[str, ...]:
    """Derive the names of the workflows around a step and its own from its folder.

    Only the folder shows where a part belongs: `w/a/step/mapflow/_step2` becomes `w`, `a`,
    `step[2]`.
    """
    *hierarchy, name = Path(folder).relative_to(base_dir.resolve()).parts
    part = PART.match(name) if hierarchy[-1:] == ['mapflow'] else None
    if part is None:
        return (*hierarchy, name)
    return (*hierarchy[:-2], f'{part[1]}[{part[2]}]')


def crash_dir(workflow: Workflow) -> Path:
    """Return the folder of the crash reports of a workflow."""
    return Path(workflow.config['execution']['crashdump_dir'])


def collect_crashes(workflow: Workflow) -> list[Crash]:
    """Read and delete the crash reports of Nipype; their content is kept in the logs."""
    folder = crash_dir(workflow)
    reports = (path.read_text(encoding='utf-8') for path in folder.glob('crash-*'))
    crashes = [_read_crash(report, Path(workflow.base_dir)) for report in reports]
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
    """Find the last line that names an error, other than those of Nipype itself."""
    errors = [match for match in ERROR_LINE.finditer(report) if match[2] != 'NodeExecutionError']
    if not errors:
        return 'unknown; see the report'
    module, kind, message = errors[-1].groups()
    return message if module == 'surreal_bids.exceptions.' else f'{kind}: {message}'
