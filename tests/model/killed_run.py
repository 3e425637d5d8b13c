"""A training run that kills itself (SIGKILL), in a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from surreal_bids.model import training
from tests.model.tiny import tiny_training

ITERATIONS = 30
BLOCK = 5
"""Iterations between evaluations, fewer than the usual 50."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_on_call(function: Callable[..., Any], call: int) -> Callable[..., Any]:
    """The function, which ends its process half-way through that call."""
    calls = iter(range(1, call + 1))

    def wrapped(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        if next(calls) == call:
            if isinstance(arguments[0], Path):
                os.truncate(arguments[0], arguments[0].stat().st_size // 2)
            die()
        return result

    return wrapped


def train_until_death(path: Path, moment: str) -> None:
    """Train with a checkpoint after every evaluation until death."""
    torch.set_num_threads(1)
    training.BLOCK = BLOCK
    training.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    if moment == 'training':
        training.Steps.run = killed_on_call(training.Steps.run, 4)  # type: ignore[method-assign]
    else:
        Path.write_bytes = killed_on_call(Path.write_bytes, 3)  # type: ignore[method-assign]
    tiny_training(ITERATIONS, path).run()
