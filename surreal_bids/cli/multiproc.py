"""Nipype's MultiProc plugin, made to survive the death of a worker."""

from __future__ import annotations

import logging
import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any

from nipype.pipeline.plugins.multiproc import MultiProcPlugin, process_initializer, run_node

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
