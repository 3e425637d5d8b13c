"""Process volumes in slabs, on one or more threads.

A slab fits in the cache of the processor. Slabs do not depend on the number of threads, so neither
do the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from surreal_bids.parallel import in_threads

if TYPE_CHECKING:
    from torch import Tensor

Result = TypeVar('Result')

PLANES = 16
"""Planes per slab on a CPU; on a GPU, a volume is one slab."""


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
