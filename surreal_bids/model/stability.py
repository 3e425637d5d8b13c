"""Choice of the number of patterns: as many as are reproduced in other participants.

Sparse factors are fitted to random subsamples of both groups. Up to the true number of patterns,
all fits give the patients the same severities; beyond it, at least one pattern is a different one
each time. The same is done after a permutation that leaves nobody ill, which shows how
stable patterns of no meaning are; where the data do no better, no pattern is supported. What was
learned from controls beforehand has to be learned again from the permuted ones (`Shuffle`).

And as many members as it takes: rounds of a few, each on a subsample of its own, until their
consensus no longer changes.

Shapes: N participants, S regions, M patterns, R subsamples, E members.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surreal_bids.model.agreement import Setting, compare_members, consensus_members, make_setting
from surreal_bids.model.ensemble import Stack, Start
from surreal_bids.model.expectation import one_thread
from surreal_bids.model.factors import (
    LEFT_OUT,
    USUAL_PENALTY,
    Factors,
    fit_samples,
    left_out_density,
    refit,
    spread_rows,
)
from surreal_bids.model.member_start import member_weights
from surreal_bids.model.settings import SMALLEST_BATCH, HyperParameters
from surreal_bids.model.train import Progress, Sample, Training, members_by_ortho, members_r_indices
from surreal_bids.parallel import in_threads, thread_count
from surreal_bids.progress import Report
from surreal_bids.stats.concordance import match_patterns
from surreal_bids.text import counted

LOGGER = logging.getLogger(__name__)

Floats = NDArray[np.floating]

Shuffle = Callable[[np.random.Generator], tuple[Floats, Floats]]
"""Draws controls and patients (N, S) as if nobody were ill."""

CANDIDATES = (1, 2, 3, 4, 5, 6)
"""Numbers of patterns that are tried where none is given."""
SHARE = 0.8
"""Part of each group in a subsample, but no fewer than the smallest batch."""
MOST_PEOPLE = 2000
"""Subsamples are of no more than this: with very many, small departures from the model become
stable too."""
SUBSAMPLES = 10
"""As many for permuted data: the most typical of more subsamples agrees better with the rest."""
PERMUTATIONS = 39
"""At most; the smallest possible p is 1/40."""
ENOUGH = 5
"""Permutations that do as well as the data, after which no more are tried."""
LEAST_STABILITY, LEAST_OF_SEVERAL = 0.85, 0.7
"""Minimum correlation of severities at which one pattern counts as reproduced, and the least of
several. The mean difference between two groups is similar in all subsamples even if it means
nothing, so one pattern reaches up to 0.8 by chance; several reach 0.5."""
LEAST_SPREAD = 0.08
"""A pattern whose severities have a smaller standard deviation than this, of the 0.29 of U[0, 1],
is not measured at all: a chance difference between the groups in a region or two."""
COMPARED_PATIENTS = 1000
REPRODUCTIONS = 20
"""Subsamples in which the patterns of a model are to be reproduced."""
_SUBSAMPLE, _PERMUTATION, _REPRODUCTION = 1, 2, 3
"""Streams of random numbers."""


def least_stability(n_patterns: int) -> float:
    """Return how well patterns have to be reproduced in subsamples, which share participants."""
    return LEAST_STABILITY if n_patterns == 1 else LEAST_OF_SEVERAL


@dataclass(frozen=True)
class Stability:
    """How well patterns are reproduced with one number of patterns."""

    n_patterns: int
    value: float
    """Correlation of the least stable pattern's severities between the most typical subsample and
    the others, the median over them."""
    null: tuple[float, ...] = ()
    """The same with permuted data, once for each permutation; empty where none was needed."""
    left_out: float | None = None
    """Mean log-density of patients who were left out, up to a constant."""

    @property
    def p_value(self) -> float | None:
        """How often permuted data would do as well; None where they were not tried.

        It is a sequential test (Besag and Clifford, Biometrika 78:301-304, 1991).
        """
        if not self.null:
            return None
        if self.is_settled:
            return ENOUGH / len(self.null)
        return (1 + self._as_good) / (1 + len(self.null))

    @property
    def is_settled(self) -> bool:
        """Whether further permutations are not needed."""
        return self._as_good == ENOUGH and self.null[-1] >= self.value

    @property
    def _as_good(self) -> int:
        return sum(value >= self.value for value in self.null)

    @property
    def is_supported(self) -> bool:
        """Whether all patterns are reproduced, and better than with any permutation."""
        least = least_stability(self.n_patterns)
        return self.value >= least and self.value > max(self.null, default=-1.0)


@dataclass(frozen=True)
class Number:
    """The chosen number of patterns, 0 where none is supported, and what it was chosen by."""

    n_patterns: int
    stabilities: tuple[Stability, ...]


def subsample_size(n_people: int) -> int:
    """How many of a group are in a random subsample."""
    return max(round(SHARE * n_people), min(n_people, SMALLEST_BATCH))


def draw_subsample(n_people: int, rng: np.random.Generator) -> NDArray:
    """Rows of a random subsample without replacement, in ascending order."""
    return np.sort(rng.permutation(n_people)[: subsample_size(n_people)])


def stability(
    cn: Floats, pt: Floats, n_patterns: int, seed: Sequence[int], device: str = 'cpu'
) -> float:
    """How well M patterns are reproduced in subsamples (`Stability.value`)."""
    cn, pt = (group[spread_rows(len(group), MOST_PEOPLE)] for group in (cn, pt))
    rng = np.random.default_rng([*seed, n_patterns])
    samples = [
        (draw_subsample(len(cn), rng), draw_subsample(len(pt), rng)) for _ in range(SUBSAMPLES)
    ]
    compared = pt[spread_rows(len(pt), COMPARED_PATIENTS)]
    fits = fit_samples(cn, pt, samples, n_patterns, device)
    unit_RNM = np.stack([_standardised(_severities_alone(fit, compared)) for fit in fits])
    similarity = np.einsum('anm,bnk->abmk', unit_RNM, unit_RNM, optimize=True)
    return _typical_agreement(similarity)


def _severities_alone(fit: Factors, pt: Floats) -> Floats:
    """Severities without their correlation, by which an empty pattern mirrors the others."""
    return replace(fit, correlation=np.eye(len(fit.correlation))).severities(pt)


def _standardised(severities: Floats) -> Floats:
    """Columns of mean 0 and length 1; a pattern that hardly varies becomes zero."""
    centred = severities - severities.mean(axis=0)
    spread = centred.std(axis=0)
    unit = centred / (np.maximum(spread, LEAST_SPREAD) * np.sqrt(len(centred)))
    return np.where(spread >= LEAST_SPREAD, unit, 0.0)


def _typical_agreement(similarity: Floats) -> float:
    """Take the least of the matched correlations, (R, R, M, M) in all.

    It is that between the most typical subsample and the median other one.
    """
    n_fits = len(similarity)
    least = np.ones((n_fits, n_fits))
    for a in range(n_fits):
        for b in range(a):
            order = match_patterns(similarity[a, b])
            least[a, b] = least[b, a] = similarity[a, b][order, np.arange(len(order))].min()
    others = least[~np.eye(n_fits, dtype=bool)].reshape(n_fits, n_fits - 1)
    return float(np.median(others, axis=1).max())


def reproduce(cn: Floats, pt: Floats, r_NM: Floats, random_state: int) -> Floats:
    """How well patterns are reproduced in subsamples, by fits that do not know them.

    Parameters
    ----------
    cn, pt : (N, S)
        Controls and patients.
    r_NM : (N, M)
        R-indices of the patients.
    random_state
        Seed of the subsamples.

    Returns
    -------
    (R, M) array
        Correlation of severities in each subsample with the R-indices.
    """
    kept = spread_rows(len(pt), MOST_PEOPLE)
    cn, pt, r_NM = cn[spread_rows(len(cn), MOST_PEOPLE)], pt[kept], r_NM[kept]
    rng = np.random.default_rng((random_state, _REPRODUCTION))
    samples = [
        (draw_subsample(len(cn), rng), draw_subsample(len(pt), rng)) for _ in range(REPRODUCTIONS)
    ]
    centred = r_NM - r_NM.mean(axis=0)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=0), np.finfo(float).tiny)
    found = []
    for fit in fit_samples(cn, pt, samples, r_NM.shape[1]):
        similarity = _standardised(_severities_alone(fit, pt)).T @ unit
        order = match_patterns(similarity)
        found.append(similarity[order, np.arange(len(order))])
    return np.array(found)


def shuffle_rows(cn: Floats, pt: Floats) -> Shuffle:
    """Shuffle labels among rows; right where nothing was learned from controls beforehand."""
    people = np.concatenate([cn, pt])

    def shuffle(rng: np.random.Generator) -> tuple[Floats, Floats]:
        shuffled = people[rng.permutation(len(people))]
        return shuffled[: len(cn)], shuffled[len(cn) :]

    return shuffle


def null_stability(
    shuffle: Shuffle, n_patterns: int, random_state: int, device: str = 'cpu'
) -> Iterator[float]:
    """Stability (up to `PERMUTATIONS` values) in data in which nobody is ill."""
    seeds = [(random_state, _PERMUTATION, k) for k in range(PERMUTATIONS)]
    drawn = ((*shuffle(np.random.default_rng(seed)), seed) for seed in seeds)

    def measure(data: tuple[Floats, Floats, Sequence[int]]) -> float:
        cn, pt, seed = data
        return stability(cn, pt, n_patterns, seed, device)

    with one_thread():
        yield from (in_threads if device == 'cpu' else map)(measure, drawn)


def choose_number(
    cn: Floats,
    pt: Floats,
    candidates: Sequence[int] = CANDIDATES,
    random_state: int = 0,
    report: Report = lambda *_: None,
    shuffle: Shuffle | None = None,
    device: str = 'cpu',
) -> Number:
    """Choose the largest number of patterns that are all reproduced; 0 where there is none.

    They also have to describe patients who were left out better than any smaller number does.

    Parameters
    ----------
    cn, pt : (N, S)
        Controls and patients.
    candidates
        Numbers of patterns to try.
    random_state
        Seed of the subsamples and of the permuted data.
    report
        Called after every step with the work done, all work as far as it is known, and a text.
    shuffle
        Draws both groups with permuted data; None: labels are shuffled among the rows.
    device
        Where to compute.
    """
    shuffle = shuffle or shuffle_rows(cn, pt)
    found, chosen = {}, 0
    numbers = sorted(set(candidates))
    done, total = 0.0, work_of_choice(numbers)
    for m in numbers:
        value = stability(cn, pt, m, (random_state, _SUBSAMPLE), device)
        density = float(left_out_density(cn, pt, m, [USUAL_PENALTY], device)[USUAL_PENALTY].mean())
        found[m] = Stability(m, value, left_out=density)
        LOGGER.info(
            'M=%d: stability %.2f, log-density of patients left out %.2f', m, value, density
        )
        done += _work(SUBSAMPLES + LEFT_OUT, m)
        report(done, total, f'M={m}')
    useful = [m for m in found if found[m].is_supported and _adds(found, m)]
    for m in dict.fromkeys([*reversed(useful), min(found)]):
        each = _work_of_permutations(m) / PERMUTATIONS
        total = done + PERMUTATIONS * each
        for value in null_stability(shuffle, m, random_state, device):
            found[m] = replace(found[m], null=(*found[m].null, value))
            done += each
            if found[m].is_settled:
                total = done
            report(done, total, f'M={m} with permuted data')
            if found[m].is_settled:
                break
        null = found[m].null
        LOGGER.info('M=%d: highest stability over %d permutations %.2f', m, len(null), max(null))
        if found[m].is_supported:
            chosen = m
            break
    return Number(chosen, tuple(found.values()))


def work_of_choice(candidates: Sequence[int]) -> float:
    """Relative time of `choose_number`, if it chooses one of the smaller numbers."""
    numbers = sorted(set(candidates))
    permuted = _work_of_permutations(numbers[(len(numbers) - 1) // 2])
    return sum(_work(SUBSAMPLES + LEFT_OUT, m) for m in numbers) + permuted


def _work_of_permutations(n_patterns: int) -> float:
    """Relative time of `null_stability`; threads wait for each other in a fifth of the work."""
    return _work(PERMUTATIONS * SUBSAMPLES, n_patterns) * (0.2 + 0.8 / thread_count())


def _work(n_fits: int, n_patterns: int) -> float:
    """Relative time of fits, as measured in 100 controls and 150 patients with 139 regions."""
    return n_fits * (5.0 + n_patterns**2)


def _adds(found: dict[int, Stability], n_patterns: int) -> bool:
    """Whether these patterns describe patients who were left out better than any fewer ones."""
    density = {m: -np.inf if each.left_out is None else each.left_out for m, each in found.items()}
    return all(density[m] < density[n_patterns] for m in found if m < n_patterns)


def any_pattern(number: Number) -> Stability | None:
    """The stability that tells whether there is any pattern: of the chosen number, or the least.

    None where permuted data were not tried.
    """
    tried = [each for each in number.stabilities if each.null]
    chosen = [each for each in tried if each.n_patterns == number.n_patterns]
    return min(chosen or tried, key=lambda each: each.n_patterns, default=None)


def stored_number(values: dict[str, Any] | None) -> Number | None:
    """The `Number` that a model's card holds."""
    if values is None:
        return None
    rows = [Stability(**{**row, 'null': tuple(row['null'])}) for row in values['stabilities']]
    return Number(values['n_patterns'], tuple(rows))


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


def start_members(
    stack: Stack, cn: Floats, pt: Floats, factors: Factors, device: str = 'cpu'
) -> None:
    """Start every member at the factors, fitted to its own subsample of participants."""
    rngs = [
        np.random.default_rng(
            np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, _STREAM))
        )
        for seed in stack.seeds
    ]
    rows = [(draw_subsample(len(cn), rng), draw_subsample(len(pt), rng)) for rng in rngs]
    own = refit(cn, pt, rows, factors.patterns, factors.penalty, device)
    starts = []
    for (controls, patients), fitted, rng in zip(rows, own, rngs):
        # A pattern that a small subsample has lost is that of everyone.
        start = factors if fitted.has_empty else fitted
        weights = member_weights(start, rng, stack.hyper.lipschitz)
        single = {name: value.astype(np.float32) for name, value in weights.items()}
        starts.append(Start(single, controls, patients))
    stack.start_from(starts)


def train_stack(
    stack: Stack, sample: Sample, iterations: int, checkpoint: Path | None
) -> tuple[dict[float, Trained], Progress]:
    """Train a stack; return its members by lambda, and the record of the training."""
    training = Training(stack, sample, iterations, checkpoint)
    weights = training.run()
    r_ENM = members_r_indices(weights, sample.pt)
    on_cpu = {name: tensor.cpu() for name, tensor in weights.items()}
    trained = {
        value: Trained(
            {name: tensor[rows.tolist()] for name, tensor in on_cpu.items()},
            r_ENM[rows],
            [training.progress.converged[row] for row in rows],
        )
        for value, rows in members_by_ortho(stack.ortho).items()
    }
    return trained, training.progress


def train_in_rounds(
    how: TrainStack, ortho: Sequence[float], repetitions: int | None
) -> tuple[list[Setting], Spent]:
    """Train rounds of members until the consensus has settled, or `repetitions` of each lambda."""
    members: dict[float, list[Trained]] = {value: [] for value in dict.fromkeys(ortho)}
    hopeful = tuple(members)
    most = ROUND * MOST_ROUNDS if repetitions is None else repetitions
    before: Floats | None = None
    n_members = n_iterations = 0
    reason = f'{counted(most, "member")} of each lambda, as many as asked for'
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
            LOGGER.info('%d members: agreement with the last consensus %.3f', n_members, change)
        if change is not None and change >= SETTLED_CONSENSUS:
            reason = f'the consensus no longer changed (agreement {change:.3f} with the last round)'
            break
        reason = f'{counted(most, "member")} of each lambda, the most that are trained'
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
        LOGGER.info('lambda %g: no further members, agreement %.2f', value, scores[value])
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
