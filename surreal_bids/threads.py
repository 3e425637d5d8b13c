"""Threads of this process: how many there are, and work that they share.

Results do not depend on the number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

Item = TypeVar('Item')
Result = TypeVar('Result')


class _Threads:
    """Pool of threads of this process."""

    number = 1
    pool: ThreadPoolExecutor | None = None


def set_threads(number: int) -> None:
    """Set the number of threads; the default is one."""
    if _Threads.pool is not None:
        _Threads.pool.shutdown()
    _Threads.number, _Threads.pool = number, ThreadPoolExecutor(number) if number > 1 else None


def thread_count() -> int:
    """Return the number of threads."""
    return _Threads.number


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield what `work` returns for each item; this thread draws items as they are needed."""
    if _Threads.pool is None:
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
