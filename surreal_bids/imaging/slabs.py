"""Work on volumes slab by slab, on as many threads as there are idle cores.

What a slab needs stays in the processor's cache, where whole volumes would pass through memory with
each operation. Slabs are the same however many threads share them, and so are the results.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Result = TypeVar('Result')

PLANES = 16
"""Of a slab, on a CPU; on a GPU a volume is one slab."""


class _Threads:
    """Threads that this process may use for slabs."""

    pool: ThreadPoolExecutor | None = None


def set_slab_threads(number: int) -> None:
    """Let this process work on so many slabs at once; without this, on one at a time."""
    if _Threads.pool is not None:
        _Threads.pool.shutdown()
    _Threads.pool = ThreadPoolExecutor(number) if number > 1 else None


def in_slabs(work: Callable[[slice], Result], volumes: Tensor, axis: int) -> list[Result]:
    """Call `work` with the slice of each slab along one of the last three axes of volumes."""
    size = volumes.shape[axis - 3]
    return in_parts(work, size, PLANES if volumes.device.type == 'cpu' else size)


def in_parts(work: Callable[[slice], Result], size: int, length: int) -> list[Result]:
    """Call `work` with slices of some length, the last one shorter, of `size` things."""
    parts = [slice(start, min(start + length, size)) for start in range(0, size, length)]
    return list((_Threads.pool.map if _Threads.pool else map)(work, parts))


def with_neighbours(slab: slice, size: int) -> tuple[slice, slice]:
    """A slab and the plane on each side of it, where there is one; and its place in these."""
    start, stop = max(slab.start - 1, 0), min(slab.stop + 1, size)
    return slice(start, stop), slice(slab.start - start, slab.stop - start)
