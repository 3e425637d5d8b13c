"""As many members as it takes: rounds of a few, until their consensus no longer changes.

Shapes: E members, N patients, M patterns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surreal_bids.model.agreement import Setting, compare_members, consensus_members, make_setting
from surreal_bids.model.ensemble import Stack, Start
from surreal_bids.model.factors import fit_nonempty_factors, member_weights
from surreal_bids.model.settings import HyperParameters
from surreal_bids.model.stability import draw_subsample

LOGGER = logging.getLogger(__name__)

Floats = NDArray[np.floating]

ROUND = 4
"""Members of each lambda that are trained together."""
MOST_ROUNDS = 5
SETTLED_CONSENSUS = 0.98
"""Training ends when the consensus agrees by this much with that of the round before."""
HOPELESS = 0.05
"""A lambda gets no further members when those that it has agree this much less than the best."""
_STREAM = 1
"""Keeps the random numbers of a start apart from those of random weights."""


class Trained(NamedTuple):
    """Some members of one lambda, after training."""

    weights: dict[str, Tensor]
    r_ENM: Floats
    """R-indices of the patients."""
    converged: list[bool]


@dataclass(frozen=True)
class Spent:
    """What training took."""

    members: int
    """Members trained, of all lambdas."""
    iterations: int
    """Iterations of all of them together."""
    reason: str
    """Why it ended."""


class TrainStack(NamedTuple):
    """How the caller trains a stack: members `first` to `first + count` of every lambda."""

    train: Callable[[tuple[float, ...], int, int], tuple[dict[float, Trained], int]]
    """Lambdas, first, count -> members of every lambda, and the iterations of each member."""
    hyper: HyperParameters


def start_members(stack: Stack, cn: Floats, pt: Floats) -> None:
    """Start every member at the sparse factors of its own subsample of participants."""
    starts = []
    for seed in stack.seeds:
        own = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, _STREAM))
        rng = np.random.default_rng(own)
        controls, patients = draw_subsample(len(cn), rng), draw_subsample(len(pt), rng)
        factors = fit_nonempty_factors(cn[controls], pt[patients], stack.n_patterns)
        weights = member_weights(factors, rng, stack.hyper.lipschitz)
        single = {name: value.astype(np.float32) for name, value in weights.items()}
        starts.append(Start(single, controls, patients))
    stack.start_from(starts)


def train_in_rounds(
    how: TrainStack, ortho: Sequence[float], repetitions: int | None
) -> tuple[list[Setting], Spent]:
    """Train rounds of members until the consensus has settled, or `repetitions` of each lambda."""
    members: dict[float, list[Trained]] = {value: [] for value in dict.fromkeys(ortho)}
    hopeful = tuple(members)
    most = ROUND * MOST_ROUNDS if repetitions is None else repetitions
    before: Floats | None = None
    n_members = n_iterations = 0
    reason = f'{most} members of each lambda, as many as asked for'
    for first in range(0, most, ROUND):
        trained, iterations = how.train(hopeful, first, min(ROUND, most - first))
        for value, some in trained.items():
            members[value].append(some)
            n_members += len(some.converged)
            n_iterations += iterations * len(some.converged)
        settings = {value: _setting(value, rounds) for value, rounds in members.items()}
        if repetitions is not None:
            continue
        best = max(settings.values(), key=lambda setting: _score(setting, how.hyper))
        now = _consensus(best, members[best.ortho], how.hyper)
        change = _agreement(before, now)
        if change is not None:
            LOGGER.info('%d members: consensus agrees at %.3f with the last', n_members, change)
        if change is not None and change >= SETTLED_CONSENSUS:
            reason = f'the consensus no longer changed (agreement {change:.3f} with the last round)'
            break
        reason = f'{most} members of each lambda, the most that are trained'
        before = now
        hopeful = _hopeful(settings, hopeful, how.hyper)
    return list(settings.values()), Spent(n_members, n_iterations, reason)


def _setting(ortho: float, rounds: list[Trained]) -> Setting:
    weights = {
        name: torch.cat([some.weights[name] for some in rounds]) for name in rounds[0].weights
    }
    r_ENM = np.concatenate([some.r_ENM for some in rounds])
    return make_setting(ortho, weights, r_ENM, [met for some in rounds for met in some.converged])


def _score(setting: Setting, hyper: HyperParameters) -> float:
    return setting.score(hyper.core_members) or 0.0


def _hopeful(
    settings: dict[float, Setting], still: tuple[float, ...], hyper: HyperParameters
) -> tuple[float, ...]:
    """Lambdas that get further members."""
    scores = {value: _score(settings[value], hyper) for value in still}
    hopeful = tuple(value for value in still if scores[value] >= max(scores.values()) - HOPELESS)
    for value in set(still) - set(hopeful):
        LOGGER.info('lambda %g ends: agreement %.2f', value, scores[value])
    return hopeful


def _consensus(setting: Setting, rounds: list[Trained], hyper: HyperParameters) -> Floats | None:
    """Mean R-indices (N, M) of the members that agree; None where no two are healthy."""
    if setting.agreement is None or len(setting.healthy) < 2:
        return None
    chosen = consensus_members(setting.agreement, hyper.core_members, hyper.consensus_tolerance)
    r_ENM = np.concatenate([some.r_ENM for some in rounds])[setting.healthy]
    match = setting.agreement.match_EEM
    return np.mean([r_ENM[e][:, match[e, chosen[0]]] for e in chosen], axis=0)


def _agreement(before: Floats | None, now: Floats | None) -> float | None:
    """Pattern-agr-index of two consensuses."""
    if before is None or now is None:
        return None
    return float(compare_members(np.stack([before, now])).index_EE[0, 1])
