"""Train every lambda and repetition in one stack, and keep all members.

The estimator keeps only the members of its consensus; the paper's tables need all of them.

Shapes: E members, N people, S regions, M patterns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from surreal_bids.model.agreement import (
    Selection,
    Setting,
    choose_setting,
    form_consensus,
    make_setting,
)
from surreal_bids.model.networks import BATCHES_PER_EPOCH, HyperParameters
from surreal_bids.model.training import Sample, Stack, Training, members_by_ortho, members_r_indices
from surreal_bids.parallel import find_device
from surreal_bids.stats.concordance import pattern_c_index

from .plan import N_PATTERNS, Schedule

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Recipe:
    """How to train."""

    schedule: Schedule
    hyper: HyperParameters
    seed: int = 0
    device: str = 'auto'
    checkpoint: Path | None = field(default=None, compare=False)


def train(recipe: Recipe, X: Floats, is_patient: NDArray[np.bool_]) -> list[Setting]:
    """Train on CN-normalised people, (N, S); one setting with all its members for each lambda."""
    schedule, device = recipe.schedule, torch.device(find_device(recipe.device))
    ortho = [value for value in schedule.ortho for _ in range(schedule.repetitions)]
    tensor = torch.tensor(X, dtype=torch.float32, device=device)
    batch_size = max(int(is_patient.sum()) // BATCHES_PER_EPOCH, 1)
    sample = Sample(tensor[~is_patient], tensor[is_patient], batch_size)
    stack = Stack(X.shape[1], N_PATTERNS, ortho, recipe.hyper, recipe.seed, device)
    training = Training(stack, sample, schedule.iterations, recipe.checkpoint)
    weights = {name: value.cpu() for name, value in training.run().items()}
    r_ENM = members_r_indices(weights, sample.pt.cpu())
    converged = np.array(training.progress.converged)
    return [
        make_setting(
            value,
            {name: tensor[rows.tolist()] for name, tensor in weights.items()},
            r_ENM[rows],
            converged[rows].tolist(),
        )
        for value, rows in members_by_ortho(ortho).items()
    ]


@dataclass(frozen=True)
class Chosen:
    """The setting that agreement picks, and its consensus."""

    setting: Setting
    selection: Selection
    weights: dict[str, torch.Tensor]
    """Of the members of the consensus."""

    def consensus(self, X: Floats) -> Floats:
        """R-indices (N, M): the mean over the members of the consensus."""
        return members_r_indices(self.weights, _as_tensor(X)).mean(axis=0)


def choose(settings: list[Setting], hyper: HyperParameters) -> Chosen:
    """Pick lambda and form the consensus as the estimator does."""
    setting = choose_setting(settings, hyper)
    weights, selection, _ = form_consensus(setting, hyper)
    return Chosen(setting, selection, weights)


def member_accuracies(setting: Setting, X: Floats, severities: Floats) -> list[float]:
    """Pattern-c-index of every member that has not diverged, in order."""
    r_ENM = members_r_indices(setting.weights, _as_tensor(X))
    return [pattern_c_index(r_NM, severities) for r_NM in r_ENM if np.isfinite(r_NM).all()]


def _as_tensor(X: Floats) -> torch.Tensor:
    return torch.tensor(X, dtype=torch.float32)
