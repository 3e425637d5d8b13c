"""Work in parallel: threads of this process, worker processes, and devices of PyTorch.

Results do not depend on the number of threads.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from surreal_bids.exceptions import UsageError

if TYPE_CHECKING:
    from torch import Tensor

Item = TypeVar('Item')
Result = TypeVar('Result')


THREAD_NAME = 'surreal_bids'


class _Threads:
    """Pool of threads of this process."""

    number = 1
    pool: ThreadPoolExecutor | None = None


def set_threads(number: int) -> None:
    """Set the number of threads; the default is one."""
    if _Threads.pool is not None:
        _Threads.pool.shutdown()
    pool = ThreadPoolExecutor(number, THREAD_NAME) if number > 1 else None
    _Threads.number, _Threads.pool = number, pool


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield what `work` returns for each item; this thread draws items as they are needed."""
    if _Threads.pool is None or threading.current_thread().name.startswith(THREAD_NAME):
        # Threads that wait for others of their pool could wait for ever.
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(_Threads.pool.submit(work, item))
            if len(waiting) > 2 * _Threads.number:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # Nothing goes on behind the back of who needs no further results.
        wait([each for each in waiting if not each.cancel()])


PLANES = 16
"""Planes per slab on a CPU, which fit in its cache; on a GPU, a volume is one slab. Slabs do not
depend on the number of threads, so neither do results."""


def in_slabs(work: Callable[[slice], Result], volumes: Tensor, axis: int) -> list[Result]:
    """Call `work` with the slice of each slab along one of the last three axes."""
    size = volumes.shape[axis - 3]
    return in_parts(work, size, PLANES if volumes.device.type == 'cpu' else size)


def in_parts(work: Callable[[slice], Result], size: int, length: int) -> list[Result]:
    """Call `work` with consecutive slices of a length that cover `size` elements."""
    parts = [slice(start, min(start + length, size)) for start in range(0, size, length)]
    return list(in_threads(work, parts))


def with_neighbours(slab: slice, size: int) -> tuple[slice, slice]:
    """Return a slab with its neighbouring planes, and the place of the slab in it."""
    start, stop = max(slab.start - 1, 0), min(slab.stop + 1, size)
    return slice(start, stop), slice(slab.start - start, slab.stop - start)


THREAD_SETTINGS = (
    'OMP_NUM_THREADS',
    'MKL_NUM_THREADS',
    'OPENBLAS_NUM_THREADS',
    'ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS',
)
"""Environment variables that numerical libraries read when a process starts."""

SLOW_IMPORTS = (
    'surreal_bids.cli.execution',
    'surreal_bids.imaging.network',
    'surreal_bids.imaging.registration',
    'surreal_bids.reports.mosaics',
    'surreal_bids.reports.participant',
)
"""What steps import, which takes seconds. With one thread for libraries, importing them starts no
other, so forking is safe."""


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def limited_threads(number: int) -> AbstractContextManager[None]:
    """Limit the threads of each process that is started meanwhile."""
    return environment(**dict.fromkeys(THREAD_SETTINGS, str(number)))


def start_server() -> BaseContext:
    """Start the process that workers are forked from, unless it runs; return their context.

    It imports what steps need, once for all workers, while this process goes on. It keeps the
    environment that it was started with. Where it cannot be started, as with a path to the
    temporary folder that is too long for a socket, on macOS, where libraries do not survive a fork,
    and on Windows, which cannot fork, workers are spawned and import by themselves.
    """
    spawn = multiprocessing.get_context('spawn')
    if sys.platform != 'linux':
        return spawn
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(list(SLOW_IMPORTS))
    settings = {**dict.fromkeys(THREAD_SETTINGS, '1'), **_same_modules(), **_huge_pages()}
    with environment(**settings), suppress(OSError), _interruptions_held_back():
        forkserver.ensure_running()
        atexit.unregister(stop_server)
        atexit.register(stop_server)
        return context
    return spawn


@contextmanager
def _interruptions_held_back() -> Iterator[None]:
    """Hold back Ctrl-C here, and in processes that are started meanwhile."""
    resource_tracker.ensure_running()  # Starting it later would let interruptions through.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_server() -> None:
    """End the server, if it runs.

    It may still be importing, and would keep standard output open; workers that were asked for
    would not find the main process.
    """
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    if server is not None:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGTERM)


def _same_modules() -> dict[str, str]:
    """Variables with which a new Python imports from where this one does, and nowhere else."""
    folders = [folder or os.fspath(Path.cwd()) for folder in sys.path]
    return {'PYTHONPATH': os.pathsep.join(folders), 'PYTHONSAFEPATH': '1'}


def _huge_pages() -> dict[str, str]:
    """Variables with which memory comes in pages of 2 MB, where the kernel has any.

    Steps take large arrays many times; with pages of 4 kB, a fifth of their time went into that.
    """
    name, ours = 'GLIBC_TUNABLES', 'glibc.malloc.hugetlb'
    given = os.environ.get(name, '')
    return {} if ours in given else {name: ':'.join(filter(None, [given, f'{ours}=1']))}


def end_with_parent() -> None:
    """End this worker when the main process is killed, and silently when both are interrupted."""
    signal.signal(signal.SIGINT, lambda *_: sys.exit(1))  # Files that are half written are removed.
    if hasattr(signal, 'pthread_sigmask'):  # Not on Windows.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def in_workers(
    work: Callable[[Item], Result], items: Iterable[Item], count: int
) -> Iterator[Result]:
    """Yield what `work` returns for each item, from `count` processes if that is more than one."""
    if count <= 1:
        yield from map(work, items)
        return
    pool = ProcessPoolExecutor(count, mp_context=start_server(), initializer=end_with_parent)
    is_done = False
    try:
        yield from pool.map(work, items)
        is_done = True
    finally:
        for process in () if is_done else list(pool._processes or ()):
            os.kill(process, signal.SIGINT)  # Nobody needs what they compute any more.
        pool.shutdown(cancel_futures=True)


def find_device(name: str) -> str:
    """Return the name of the device for PyTorch.

    `auto` does not choose `mps`, the GPU of Apple: it has not been tried.
    """
    # Imported here because it is slow.
    import torch

    available = {
        'cpu': True,
        'cuda': torch.cuda.is_available(),
        'mps': torch.backends.mps.is_available(),
    }
    if name == 'auto':
        name = 'cuda' if available['cuda'] else 'cpu'
    if name not in available:
        raise UsageError(f'unknown device {name!r}; choose auto, {", ".join(available)}')
    if not available[name]:
        raise UsageError(f'no {name.upper()} device is available; choose device cpu or auto')
    return name
