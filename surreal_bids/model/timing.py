"""How long training will take on this machine, from a few iterations of it."""

from __future__ import annotations

import time

import torch

from surreal_bids.model.ensemble import Stack
from surreal_bids.model.steps import Steps
from surreal_bids.model.train import Sample

WARM_UP, TIMED = 3, 10
"""Iterations before the clock starts, in which memory is found and code compiled, and after."""


def time_iteration(stack: Stack, sample: Sample) -> float:
    """Seconds that one iteration of a whole stack takes; the stack is of no other use after it."""
    steps = Steps(stack, *sample)
    steps.run(range(WARM_UP))
    _wait(stack.device)
    begin = time.perf_counter()
    steps.run(range(WARM_UP, WARM_UP + TIMED))
    _wait(stack.device)
    return (time.perf_counter() - begin) / TIMED


def _wait(device: torch.device) -> None:
    """Let a GPU finish what it was given."""
    if device.type == 'cuda':
        torch.cuda.synchronize(device)


def longest_first(seconds: list[float], at_once: int) -> float:
    """Time until all jobs are done when `at_once` of them run side by side, longest first."""
    busy = [0.0] * max(at_once, 1)
    for job in sorted(seconds, reverse=True):
        earliest = busy.index(min(busy))
        busy[earliest] += job
    return max(busy)
