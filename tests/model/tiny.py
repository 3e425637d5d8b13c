"""Small samples and stacks that train in a second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surreal_bids.model.networks import hyperparameters
from surreal_bids.model.training import Sample, Stack, Training

CPU = torch.device('cpu')
N_REGIONS, N_PATTERNS, BATCH_SIZE = 12, 2, 8
ORTHO = (0.1, 0.2, 0.4)


def people(n: int, seed: int, n_regions: int = N_REGIONS, severity: float = 0.0) -> Tensor:
    """CN-normalised people (n, S); two patterns of atrophy, each in half of the regions."""
    rng = np.random.default_rng(seed)
    values = rng.normal(1, 0.1, (n, n_regions))
    for half in np.array_split(np.arange(n_regions), 2):
        values[:, half] -= severity * rng.uniform(size=(n, 1))
    return torch.from_numpy(values).float()


def tiny_sample(seed: int = 0, batch_size: int = BATCH_SIZE) -> Sample:
    """40 controls and 60 patients."""
    return Sample(people(40, 2 * seed), people(60, 2 * seed + 1, severity=0.4), batch_size)


def tiny_stack(
    ortho: Sequence[float] = ORTHO,
    preset: str = 'iclr2022',
    random_state: int = 0,
    device: torch.device = CPU,
    **changes: Any,
) -> Stack:
    """A fresh stack for the tiny sample."""
    hyper = hyperparameters(preset, **changes)
    return Stack(N_REGIONS, N_PATTERNS, ortho, hyper, random_state, device)


def tiny_training(
    iterations: int, checkpoint: Path | None = None, stack: Stack | None = None, **changes: Any
) -> Training:
    """Training of a tiny stack on the tiny sample; `changes` are hyper-parameters."""
    stack = stack or tiny_stack(**changes)
    return Training(stack, tiny_sample(), iterations, checkpoint)


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Every tensor, bit by bit (NaN equals NaN)."""
    assert set(actual) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name].numpy(), value.numpy(), err_msg=name)
