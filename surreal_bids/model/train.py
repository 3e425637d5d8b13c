"""The training loop: evaluation, stopping rules, checkpoints, progress.

Shapes: E members, N people, S regions, M patterns.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surreal_bids.exceptions import DataError
from surreal_bids.files import remove_leftovers
from surreal_bids.model.agreement import compare_members
from surreal_bids.model.bundle import fingerprint, load_checkpoint, save_checkpoint
from surreal_bids.model.ensemble import LOSSES, Batch, Stack, batches, random_words, uniforms
from surreal_bids.model.latent import latents
from surreal_bids.model.networks import Weights, decompose, hidden_sizes, r_indices
from surreal_bids.progress import report

LOGGER = logging.getLogger(__name__)

BLOCK = 50
"""Iterations whose random numbers are drawn together."""
WARM_UP_STEPS = 3
"""Steps before capture, in which CUDA libraries set themselves up; they are undone."""
WORD_BITS = 32


class Stream(IntEnum):
    """Independent streams of random numbers of one member."""

    CONTROLS = 1
    PATIENTS = 2
    LATENTS = 3
    NOISE = 4


class Steps:
    """Runs training steps of a stack on one sample.

    Parameters
    ----------
    stack
        The members.
    cn, pt
        Controls and patients, (N, S), on the stack's device.
    batch_size
        B.
    """

    def __init__(self, stack: Stack, cn: Tensor, pt: Tensor, batch_size: int) -> None:
        self.stack, self.cn, self.pt, self.batch_size = stack, cn, pt, batch_size
        self.losses = torch.zeros(len(stack.ortho_E), len(LOSSES), device=stack.device)
        self.slot = torch.zeros(1, dtype=torch.int64, device=stack.device)
        self.drawn = self._draw(range(BLOCK))
        self._replay: dict[bool, Callable[[], None]] = {}

    def run(self, iterations: range, held: bool = False) -> Tensor:
        """Train over at most one block of iterations; the sum of the losses, (E, len(LOSSES)).

        With `held`, f stays as it is.
        """
        for name, fresh in self._draw(iterations).items():
            self.drawn[name][: len(iterations)].copy_(fresh)
        on_gpu = self.stack.device.type == 'cuda'
        step = self._captured_step(held) if on_gpu else partial(self._step, held)
        self.slot.zero_()
        self.losses.zero_()
        for _ in iterations:
            step()
        return self.losses.clone()

    def _draw(self, iterations: range) -> dict[str, Tensor]:
        """All random numbers of these iterations, each (T, E, ...)."""
        keys, size = self.stack.keys_E2, self.batch_size
        n_uniforms = size * 3 * self.stack.n_patterns
        drawn = {
            'controls': batches(keys, iterations, Stream.CONTROLS, self._n_people(0), size),
            'patients': batches(keys, iterations, Stream.PATIENTS, self._n_people(1), size),
            'latents': uniforms(keys, iterations, Stream.LATENTS, n_uniforms),
        }
        if self.stack.hyper.discriminator_noise:
            n_words = -(-self._n_coins() // WORD_BITS)
            words = random_words(keys, iterations, Stream.NOISE, n_words)
            drawn['noise'] = (words - 2**31).to(torch.int32)
        return {name: value.to(self.stack.device) for name, value in drawn.items()}

    def _n_people(self, group: int) -> int:
        """Participants of a group that one member is trained on."""
        if self.stack.rows is None:
            return len((self.cn, self.pt)[group])
        return self.stack.rows[group].shape[1]

    def _people(self, group: int, rows_EB: Tensor) -> Tensor:
        """The participants (E, B, S) of a batch; rows count within a member's own subsample."""
        if self.stack.rows is not None:
            rows_EB = self.stack.rows[group].gather(1, rows_EB)
        return (self.cn, self.pt)[group][rows_EB]

    def _n_coins(self) -> int:
        """Hidden units of D times people, for its own step (two groups) and that of f."""
        return 3 * self.batch_size * sum(hidden_sizes(self.cn.shape[1]))

    def _batch(self) -> Batch:
        """The batch of the current slot; the slot is a tensor, so that a graph can advance it."""
        now = {name: value.index_select(0, self.slot)[0] for name, value in self.drawn.items()}
        return Batch(
            self._people(0, now['controls']),
            self._people(1, now['patients']),
            latents(now['latents'].unflatten(1, (self.batch_size, -1))),
            self._coins(now['noise']) if 'noise' in now else None,
        )

    def _coins(self, words_EW: Tensor) -> Tensor:
        """Fair coin tosses (E, 3 B, hidden units): a word holds 32 of them."""
        shifts = torch.arange(WORD_BITS, dtype=torch.int32, device=words_EW.device)
        tosses = ((words_EW[..., None] >> shifts) & 1).flatten(1)[:, : self._n_coins()]
        return tosses.unflatten(1, (3 * self.batch_size, -1))

    def _step(self, held: bool) -> None:
        step = self.stack.step_held if held else self.stack.step
        self.losses += step(self._batch())
        self.slot += 1

    def _captured_step(self, held: bool) -> Callable[[], None]:
        """The step as a CUDA graph, captured on first use."""
        if held not in self._replay:
            with tensor_cores():
                self._replay[held] = self._capture(held)
        return self._replay[held]

    def _capture(self, held: bool) -> Callable[[], None]:
        """Warm up on a side stream, capture one step, and undo what warming up has trained."""
        before = {name: value.clone() for name, value in self.stack.state().items()}
        side = torch.cuda.Stream(self.stack.device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.slot.zero_()
            for _ in range(WARM_UP_STEPS):
                self._step(held)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(held)
        self.stack.restore(before)
        return graph.replay


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let matrix products use TF32 (10-bit mantissa), which training does not notice."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision('high')
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


EVALUATIONS = 20
"""How often losses and agreement are looked at in the course of `iterations`."""
MONITORED_PATIENTS = 300
"""Agreement is watched on this many patients; the final choice is made on all."""
MOST_HELD = 0.75
"""Part of the iterations in which f may be held still; it is trained in the others."""
SLOWEST_RATE = 0.05
"""Where learning rates decay, they end at this part of their full value."""
SECONDS_BETWEEN_CHECKPOINTS = 60.0
PORTION = 512
"""People whose R-indices are computed together."""
RECONSTRUCTION, MONOTONICITY = LOSSES.index('reconstruction'), LOSSES.index('monotonicity')


class Sample(NamedTuple):
    """CN-normalised people, (N, S) each, on the device that trains."""

    cn: Tensor
    pt: Tensor
    batch_size: int


@dataclass
class Progress:
    """Where training stands; with the tensors of the stack, all that resuming needs."""

    done: list[bool]
    """Members whose weights are final."""
    converged: list[bool]
    """Members that met the stopping rule of section 3.3."""
    iteration: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    """One record per evaluation and lambda: mean losses and agreement."""


class Training:
    """Train one stack of members on one sample.

    Parameters
    ----------
    stack
        Members, fresh from their seeds.
    sample
        Controls, patients and batch size.
    iterations
        The least number of iterations (section 3.3).
    checkpoint
        File to resume from and to save to, or None.
    """

    def __init__(
        self, stack: Stack, sample: Sample, iterations: int, checkpoint: Path | None = None
    ) -> None:
        n_members = len(stack.ortho)
        self.stack = stack
        self.sample = sample
        self.iterations = iterations
        self.checkpoint = checkpoint
        nobody = [False] * n_members
        self.progress = Progress(done=nobody, converged=nobody)
        self.losses = torch.zeros(n_members, len(LOSSES), device=stack.device)
        self.final = {name: value.clone() for name, value in stack.weights_now().items()}
        self.evaluate_every = max(round(iterations / EVALUATIONS / BLOCK), 1) * BLOCK
        longest_hold = round(MOST_HELD * iterations / BLOCK) * BLOCK
        self.held = min(stack.hyper.held_iterations, longest_hold)
        self.settings = members_by_ortho(stack.ortho)
        self.seen = members_r_indices(self.final, sample.pt[:MONITORED_PATIENTS])
        self.owner = fingerprint(
            stack.hyper,
            {
                'iterations': iterations,
                'n_patterns': stack.n_patterns,
                'ortho': stack.ortho,
                'keys': stack.keys_E2.tolist(),
                'batch_size': sample.batch_size,
            },
            *(sample.cn, sample.pt),
            *(() if stack.origin is None else (stack.origin,)),
        )

    @property
    def last_iteration(self) -> int:
        """When training ends even for members that have not met the stopping rule."""
        hyper = self.stack.hyper
        extra = hyper.extra_iterations if hyper.settled is None else 0.0
        return self.iterations + round(extra * self.iterations)

    def run(self) -> dict[str, Tensor]:
        """Train to the end, from the checkpoint if there is one; the final weights."""
        self._resume()
        steps = Steps(self.stack, *self.sample)
        saved = time.monotonic()
        while not self._finished():
            self._train_block(steps)
            if self._evaluation_is_due():
                self._evaluate()
            report(self.progress.iteration, self.last_iteration, self._agreement())
            if self._finished() or time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                self._save()
                saved = time.monotonic()
        return self.final

    def _agreement(self) -> str:
        """Name M, and the latest agreement of members once there is one."""
        agreed = [row['agreement'] for row in self.progress.history if row['agreement'] is not None]
        return f'M={self.stack.n_patterns}' + (f', agreement {agreed[-1]:.2f}' if agreed else '')

    def _finished(self) -> bool:
        return all(self.progress.done) or self.progress.iteration >= self.last_iteration

    def _train_block(self, steps: Steps) -> None:
        """Train over a block of iterations, which ends at an evaluation at the latest."""
        start = self.progress.iteration
        stop = min(start + BLOCK, self.last_iteration)
        self._schedule(start)
        if start < self.held:
            stop = min(stop, self.held)
        self.losses += steps.run(range(start, stop), held=start < self.held)
        self.progress.iteration = stop

    def _evaluation_is_due(self) -> bool:
        iteration = self.progress.iteration
        return iteration % self.evaluate_every == 0 or iteration == self.last_iteration

    def _mean_losses(self) -> NDArray[np.floating]:
        """Mean losses since the last evaluation, (E, len(LOSSES)); counting starts anew."""
        iteration = self.progress.iteration
        last_evaluation = (iteration - 1) // self.evaluate_every * self.evaluate_every
        mean = self.losses / (iteration - last_evaluation)
        self.losses.zero_()
        return mean.cpu().numpy()

    def _schedule(self, iteration: int) -> None:
        """Learning rates: full at first, then linearly down (`decay_from`)."""
        begin = self.stack.hyper.decay_from * self.iterations
        passed = 0.0
        if begin < min(iteration, self.iterations):
            passed = min((iteration - begin) / (self.iterations - begin), 1.0)
        self.stack.scale_learning_rates(1 - (1 - SLOWEST_RATE) * passed)

    def _evaluate(self) -> None:
        """Record losses and agreement, and decide which members are done."""
        losses_EL = self._mean_losses()
        r_ENM = members_r_indices(self.stack.weights_now(), self.sample.pt[:MONITORED_PATIENTS])
        diverged = ~(np.isfinite(losses_EL).all(axis=1) & np.isfinite(r_ENM).all(axis=(1, 2)))
        comparable = ~diverged & (np.ptp(r_ENM, axis=1) > 0).all(axis=1)
        for ortho, members in self.settings.items():
            if not diverged[members].all():
                alive, varied = members[~diverged[members]], members[comparable[members]]
                self._record(ortho, losses_EL[alive], r_ENM[varied])
        self._keep(diverged)
        if self.stack.hyper.settled is None:
            self._stop_converged(losses_EL)
        else:
            self._stop_settled(r_ENM, self.stack.hyper.settled)

    def _record(
        self, ortho: float, losses_EL: NDArray[np.floating], r_ENM: NDArray[np.floating]
    ) -> None:
        self.progress.history.append(
            {
                'iteration': self.progress.iteration,
                'n_patterns': self.stack.n_patterns,
                'ortho': ortho,
                'agreement': compare_members(r_ENM).mean if len(r_ENM) > 1 else None,
                **dict(zip(LOSSES, losses_EL.mean(axis=0).tolist())),
            }
        )

    def _stop_converged(self, losses_EL: NDArray[np.floating]) -> None:
        """Section 3.3: after `iterations`, members end when both losses are low."""
        if self.progress.iteration < self.iterations:
            return
        hyper = self.stack.hyper
        met = (
            (losses_EL[:, RECONSTRUCTION] < hyper.reconstruction_threshold)
            & (losses_EL[:, MONOTONICITY] < hyper.monotonicity_threshold)
            & ~np.array(self.progress.done)
        )
        self.progress.converged = (met | self.progress.converged).tolist()
        self._keep(met if self.progress.iteration < self.last_iteration else np.ones_like(met))

    def _stop_settled(self, r_ENM: NDArray[np.floating], settled: float) -> None:
        """Members end when their R-indices hardly change from one evaluation to the next."""
        settled_E = _correlations(self.seen, r_ENM).min(axis=1) >= settled
        self.seen = r_ENM
        if self.progress.iteration <= self.held + self.evaluate_every // 2:
            settled_E[:] = False
        self.progress.converged = (settled_E | self.progress.converged).tolist()
        ended = self.progress.iteration >= self.last_iteration
        self._keep(np.ones_like(settled_E) if ended else settled_E)

    def _keep(self, members_E: NDArray[np.bool_]) -> None:
        """Take the present weights of these members, where not done before, as their final ones."""
        fresh = members_E & ~np.array(self.progress.done)
        chosen = torch.from_numpy(fresh).to(self.stack.device)[:, None, None]
        for name, value in self.stack.weights_now().items():
            self.final[name].copy_(torch.where(chosen, value, self.final[name]))
        self.progress.done = (fresh | self.progress.done).tolist()

    def _save(self) -> None:
        if self.checkpoint is not None:
            final = {f'final/{name}': value for name, value in self.final.items()}
            seen = torch.from_numpy(self.seen)
            tensors = self.stack.state() | final | {'losses': self.losses, 'seen': seen}
            save_checkpoint(self.checkpoint, tensors, asdict(self.progress), self.owner)

    def _resume(self) -> None:
        if self.checkpoint is None:
            return
        remove_leftovers(self.checkpoint)
        if not self.checkpoint.exists():
            return
        tensors, progress = load_checkpoint(self.checkpoint, self.owner)
        try:
            self.progress = Progress(**progress)
        except TypeError as error:
            raise DataError(
                f'{self.checkpoint}: not a checkpoint of this version; delete it to start again'
            ) from error
        self.stack.restore(tensors)
        self.losses.copy_(tensors['losses'])
        self.seen = tensors['seen'].numpy()
        for name, value in self.final.items():
            value.copy_(tensors[f'final/{name}'])
        LOGGER.info('%s: resumed at iteration %d', self.checkpoint, self.progress.iteration)


def _correlations(a_ENM: NDArray[np.floating], b_ENM: NDArray[np.floating]) -> NDArray[np.floating]:
    """Correlation (E, M) of two sets of R-indices over people."""
    a, b = (values - values.mean(axis=1, keepdims=True) for values in (a_ENM, b_ENM))
    length = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return (a * b).sum(axis=1) / np.maximum(length, np.finfo(float).tiny)


def members_by_ortho(ortho: Sequence[float]) -> dict[float, NDArray[np.intp]]:
    """Positions of the members that share a lambda."""
    return {value: np.flatnonzero(np.equal(ortho, value)) for value in sorted(set(ortho))}


def members_r_indices(weights: Weights, people_NS: Tensor) -> NDArray[np.floating]:
    """R-indices (E, N, M) of these people by every member, in portions that bound memory."""
    n_members = len(weights['g1.weight'])
    with torch.no_grad():
        portions = [
            r_indices(weights, portion.expand(n_members, -1, -1))
            for portion in people_NS.split(PORTION)
        ]
    return torch.cat(portions, dim=1).cpu().double().numpy()


def pattern_changes(weights: Weights, people_NS: Tensor) -> NDArray[np.float64]:
    """Mean change that g1 (section 2.2.3) assigns to each pattern in these people, (E, M, S).

    It is in the unit of the network, of which 0.1 is a standard deviation of the controls. The mean
    is what tells the regions of a pattern: how the change varies with the R-index among patients
    follows the noise of their regions instead.
    """
    n_members = len(weights['g1.weight'])
    with torch.no_grad():
        sums = [
            decompose(weights, portion.expand(n_members, -1, -1)).double().sum(dim=2)
            for portion in people_NS.split(PORTION)
        ]
    return (torch.stack(sums).sum(dim=0) / len(people_NS)).numpy()


def mean_gradients(weights: Weights, people_NS: Tensor) -> NDArray[np.float64]:
    """How R-indices follow each region at these people, (N, M, S): the mean over members."""
    n_members, n_patterns = len(weights['g1.weight']), weights['g2.layer3'].shape[-1]
    portions = []
    for portion in people_NS.split(PORTION):
        inputs = portion.clone().requires_grad_()
        with torch.enable_grad():
            r_NM = r_indices(weights, inputs.expand(n_members, -1, -1)).mean(dim=0)
            # Nobody's R-indices depend on anybody else, so that those of all are taken at once.
            each = [
                torch.autograd.grad(r_NM[:, k].sum(), inputs, retain_graph=True)[0]
                for k in range(n_patterns)
            ]
        portions.append(torch.stack(each, dim=1))
    return torch.cat(portions).double().numpy()
