"""Training of a stack of members at once (Algorithm 1): steps, stopping rules, checkpoints.

Members share nothing but the data: the loss of the stack is the sum of its members' losses, so each
gradient belongs to one member alone.

Shapes: E ensemble members, B people in a batch, N people, S regions, M patterns, K latent vectors a
person.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surreal_bids.files import remove_leftovers
from surreal_bids.model.agreement import compare_members
from surreal_bids.model.bundle import fingerprint, load_checkpoint, save_checkpoint
from surreal_bids.model.networks import (
    HyperParameters,
    Latents,
    Weights,
    adversarial_loss,
    as_critic_sees,
    cholesky_factor,
    copula_density,
    critic_loss,
    decompose,
    discriminate,
    divergence_from_independence,
    hidden_sizes,
    initial_copula,
    initial_weights,
    latents,
    network,
    r_indices,
    regularisers,
    step_latents,
    synthesise_patients,
)
from surreal_bids.progress import report

Floats = NDArray[np.floating]
Function = TypeVar('Function', bound=Callable)


CPU = torch.device('cpu')
WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORDS_PER_BLOCK = 4
LAMBDA_STEPS = 1_000_000
"""Lambdas are told apart to this part of 1."""
UNIFORM_BITS = 23
"""Uniforms have 23 random bits, so that (k + 1/2) / 2**23 is exact in float32 and inside (0, 1)."""


def member_seeds(
    random_state: int, n_patterns: int, ortho: Sequence[float], first: int = 0
) -> list[np.random.SeedSequence]:
    """One seed per member, given the lambda of each.

    It depends on M, on lambda and on how many members before it share that lambda, not on what
    else is in the stack: trying one more lambda changes none of the others. Of every lambda, the
    first `first` members are left to other stacks.
    """
    repetitions = Counter(dict.fromkeys(ortho, first))
    seeds = []
    for value in ortho:
        key = (n_patterns, round(value * LAMBDA_STEPS), repetitions[value])
        seeds.append(np.random.SeedSequence(entropy=random_state, spawn_key=key))
        repetitions[value] += 1
    return seeds


def member_keys(seeds: list[np.random.SeedSequence], device: torch.device) -> Tensor:
    """Philox keys, shape (E, 2), one per member."""
    words = np.stack([seed.generate_state(2, np.uint32) for seed in seeds]).astype(np.int64)
    return torch.from_numpy(words).to(device)


def _multiply(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """High and low word of a 32 x 32 bit product (int64 wraps, the mask takes the sign away)."""
    product = b * a
    return (product >> 32) & WORD, product & WORD


def philox(counter: tuple[Tensor, ...], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Philox4x32-10 on int64 tensors that hold 32-bit words; all inputs broadcast together."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = _multiply(MULTIPLIERS[0], c0)
        high1, low1 = _multiply(MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def random_words(keys_E2: Tensor, iterations: range, stream: int, n: int) -> Tensor:
    """32-bit words, shape (T, E, N), for these iterations of one named stream."""
    device = keys_E2.device
    blocks = torch.arange(-(-n // WORDS_PER_BLOCK), device=device)
    times_T11 = torch.arange(iterations.start, iterations.stop, device=device)[:, None, None]
    zero = torch.zeros_like(times_T11)
    counter = (blocks, times_T11, zero + stream, zero)
    words = philox(counter, (keys_E2[:, :1], keys_E2[:, 1:]))
    stacked = torch.stack(torch.broadcast_tensors(*words), dim=-1)
    return stacked.flatten(start_dim=2)[..., :n]


def uniforms(keys_E2: Tensor, iterations: range, stream: int, n: int) -> Tensor:
    """Float32 uniforms strictly inside (0, 1), shape (T, E, N)."""
    words = random_words(keys_E2, iterations, stream, n)
    return ((words >> (32 - UNIFORM_BITS)).float() + 0.5) / 2**UNIFORM_BITS


def batches(keys_E2: Tensor, iterations: range, stream: int, n: int, size: int) -> Tensor:
    """Row numbers of mini-batches, shape (T, E, size).

    Every epoch is a fresh permutation of the n rows cut into n // size batches; each member
    shuffles by itself.
    """
    per_epoch = n // size
    epochs = range(iterations.start // per_epoch, (iterations.stop - 1) // per_epoch + 1)
    order = random_words(keys_E2, epochs, stream, n).argsort(dim=-1, stable=True)
    cut = order[..., : per_epoch * size].unflatten(-1, (per_epoch, size))
    times = torch.arange(iterations.start, iterations.stop, device=keys_E2.device)
    return cut[times // per_epoch - epochs.start, :, times % per_epoch]


LOSSES = (
    'discriminator',
    'mapping',
    'change',
    'decomposition',
    'reconstruction',
    'orthogonality',
    'monotonicity',
    'cn',
)
"""What a training step reports, in this order."""


class Batch(NamedTuple):
    """What one training step sees.

    Attributes
    ----------
    x_EBS
        Controls.
    y_EBS
        Patients.
    coins
        Fair coin tosses (E, 3 B, hidden units) for the noise in D, or None.
    """

    x_EBS: Tensor
    y_EBS: Tensor
    latents: Latents
    coins: Tensor | None


class Stack:
    """Weights and optimisers of E members, each with its own seed and its own lambda.

    Parameters
    ----------
    n_regions, n_patterns
        S and M.
    ortho
        Lambda of each member; their number is E.
    hyper
        Everything else that shapes training.
    random_state
        Seed of the whole stack; each member's own seed follows from it (`member_seeds`).
    device
        Where the tensors live.
    first
        Number of the first member of every lambda: those before it are in other stacks.
    """

    def __init__(
        self,
        n_regions: int,
        n_patterns: int,
        ortho: Sequence[float],
        hyper: HyperParameters,
        random_state: int,
        device: torch.device,
        first: int = 0,
    ) -> None:
        seeds = member_seeds(random_state, n_patterns, ortho, first)
        self.seeds = seeds
        # Patterns of another model that members start from, by which a checkpoint is told apart.
        self.origin: Tensor | None = None
        self.rows: tuple[Tensor, Tensor] | None = None
        weights = initial_weights(n_regions, n_patterns, seeds)
        if hyper.alpha is not None:
            weights['copula.phi'] = initial_copula(len(ortho), n_patterns)
        self.n_patterns = n_patterns
        self.hyper = hyper
        self.device = device
        self.ortho = tuple(ortho)
        # Of the GPUs, only CUDA is known to multiply 64-bit integers exactly.
        self.keys_E2 = member_keys(seeds, device if device.type == 'cuda' else CPU)
        self.ortho_E = torch.tensor(ortho, dtype=torch.float32, device=device)
        self.weights = {name: value.to(device).requires_grad_() for name, value in weights.items()}
        self.optimisers = self._optimisers()
        self._synthesise = self._compiled(synthesise_patients)
        self._critic_loss = self._compiled(critic_loss)
        self._regularisers = self._compiled(regularisers)
        self._shorten = self._compiled(shorten)
        self._clip = self._compiled(clip_weights)

    def _compiled(self, function: Function) -> Function:
        """Compile a function for CUDA, where fused kernels save most of the traffic to memory.

        Few iterations do not repay what compilation takes. Without a compiler, the function itself.
        """
        tools = find_spec('triton') is not None and (shutil.which('gcc') or shutil.which('clang'))
        if self.device.type != 'cuda' or self.hyper.start != 'random' or not tools:
            return function
        return cast('Function', torch.compile(function))

    def _optimisers(self) -> dict[str, torch.optim.Adam]:
        hyper = self.hyper
        optimisers = {
            'mapper': self._adam(('f', 'g1', 'g2'), hyper.lr, hyper.weight_decay),
            'critic': self._adam(('D',), hyper.lr * hyper.discriminator_lr_ratio),
        }
        if hyper.alpha is not None:
            optimisers['copula'] = self._adam(('copula',), hyper.lr * hyper.copula_lr_ratio)
        return optimisers

    def _adam(
        self, networks: tuple[str, ...], rate: float, weight_decay: float = 0.0
    ) -> torch.optim.Adam:
        parameters = list(network(self.weights, *networks).values())
        optimiser = torch.optim.Adam(
            parameters,
            lr=torch.tensor(rate, device=self.device),
            betas=self.hyper.betas,
            weight_decay=weight_decay,
            fused=True,
            capturable=self.device.type == 'cuda',
        )
        optimiser.param_groups[0]['full_rate'] = rate
        for value in parameters:
            optimiser.state[value] = {
                'step': torch.zeros((), device=self.device),
                'exp_avg': torch.zeros_like(value),
                'exp_avg_sq': torch.zeros_like(value),
            }
        return optimiser

    def scale_learning_rates(self, factor: float) -> None:
        """Set all learning rates to a part of their full value, in place for captured graphs."""
        for optimiser in self.optimisers.values():
            group = optimiser.param_groups[0]
            group['lr'].fill_(group['full_rate'] * factor)

    def state(self) -> dict[str, Tensor]:
        """Every tensor that training changes, by name: the tensors themselves, not copies."""
        state = {f'weights/{name}': value for name, value in self.weights_now().items()}
        names = {id(value): name for name, value in self.weights.items()}
        for optimiser in self.optimisers.values():
            for value, moments in optimiser.state.items():
                for key, moment in moments.items():
                    state[f'adam/{key}/{names[id(value)]}'] = moment
        return state

    def start_from(
        self, weights: Sequence[dict[str, Floats]], rows: Sequence[tuple[NDArray, NDArray]]
    ) -> None:
        """Give every member weights, and rows of the controls and patients it is trained on."""
        with torch.no_grad():
            for e, member in enumerate(weights):
                for name, value in member.items():
                    self.weights[name][e] = torch.from_numpy(value.astype(np.float32))
        controls, patients = (
            torch.from_numpy(np.stack(group)).to(self.device) for group in zip(*rows)
        )
        self.rows = controls, patients

    def weights_now(self) -> dict[str, Tensor]:
        """The weights as they are, without their history."""
        return {name: value.detach() for name, value in self.weights.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Put back, in place, what `state` gave."""
        for name, value in self.state().items():
            value.copy_(state[name])

    def step(self, batch: Batch) -> Tensor:
        """Train every member on one batch; return its losses, (E, len(LOSSES))."""
        z_EKBM = step_latents(batch.latents)
        synthesised = self._synthesise(self.weights, batch.x_EBS, z_EKBM)
        density_EB = self._density(batch.latents.z)
        constant_EB = None if density_EB is None else density_EB.detach()
        critic_masks, mapper_masks = self._noise_masks(batch)
        scale = self.hyper.discriminator_scale

        people = torch.cat([batch.y_EBS, synthesised.fake_EBS.detach()], dim=1)
        critic_E = self._critic_loss(self.weights, people, scale, critic_masks, constant_EB)
        self._descend('critic', critic_E, clipped=network(self.weights, 'D'))

        frozen = {name: value.detach() for name, value in network(self.weights, 'D').items()}
        logits_EB2 = discriminate(frozen, as_critic_sees(synthesised.fake_EBS, scale), mapper_masks)
        terms = [
            adversarial_loss(logits_EB2, True, constant_EB),
            *self._regularisers(self.weights, synthesised, z_EKBM),
        ]
        if density_EB is not None:
            self._train_copula(logits_EB2.detach(), density_EB)
        self._descend('mapper', self._objective(terms, constant_EB), network(self.weights, 'f'))
        self._clip(network(self.weights, 'f', 'g1', 'g2'), self.hyper.lipschitz)
        return torch.stack([critic_E, *terms], dim=1).detach()

    def step_held(self, batch: Batch) -> Tensor:
        """Train g1, g2 and D on one batch, f held still; losses as in `step`, without mapping."""
        z_EKBM = step_latents(batch.latents)
        with torch.no_grad():
            synthesised = self._synthesise(self.weights, batch.x_EBS, z_EKBM)
        people = torch.cat([batch.y_EBS, synthesised.fake_EBS], dim=1)
        masks, _ = self._noise_masks(batch)
        critic_E = self._critic_loss(
            self.weights, people, self.hyper.discriminator_scale, masks, None
        )
        self._descend('critic', critic_E, clipped=network(self.weights, 'D'))
        terms = self._regularisers(self.weights, synthesised, z_EKBM)
        _, decomposition_E, reconstruction_E, *_ = terms
        loss_E = self.hyper.kappa * decomposition_E + self.hyper.zeta * reconstruction_E
        learning = network(self.weights, 'g1', 'g2')
        self._descend('mapper', loss_E, only=learning)
        self._clip(learning, self.hyper.lipschitz)
        return torch.stack([critic_E, torch.zeros_like(critic_E), *terms], dim=1).detach()

    def _objective(self, terms: list[Tensor], density_EB: Tensor | None) -> Tensor:
        """The full objective (eq. 11) of f, g1 and g2, (E,)."""
        hyper = self.hyper
        factors = [
            hyper.adversarial / (1.0 if density_EB is None else density_EB.mean(dim=1)),
            hyper.gamma,
            hyper.kappa,
            hyper.zeta,
            self.ortho_E,
            hyper.mu,
            hyper.eta,
        ]
        return torch.stack(
            [factor * term for factor, term in zip(factors, terms, strict=True)]
        ).sum(dim=0)

    def _train_copula(self, logits_EB2: Tensor, density_EB: Tensor) -> None:
        """One step of the copula: latent vectors that fool D become more likely."""
        prior_E = divergence_from_independence(cholesky_factor(self.weights['copula.phi']))
        weight = self.hyper.alpha or 0.0
        loss_E = adversarial_loss(logits_EB2, True, density_EB) + weight * prior_E
        self._descend('copula', loss_E)

    def _descend(
        self,
        name: str,
        loss_E: Tensor,
        clipped: Weights | None = None,
        only: Weights | None = None,
    ) -> None:
        """One step of one optimiser (`only`: on these weights) on the sum of members' losses."""
        optimiser = self.optimisers[name]
        parameters = list(only.values()) if only else optimiser.param_groups[0]['params']
        # A compiled step may give a gradient in another order of memory, which fused Adam refuses.
        found = torch.autograd.grad(loss_E.sum(), parameters)
        gradients = [gradient.contiguous() for gradient in found]
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient
        if clipped:
            named = dict(zip(map(id, parameters), gradients))
            self._shorten(
                [named[id(value)] for value in clipped.values()], self.hyper.max_gradient_norm
            )
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    def _density(self, z_EBM: Tensor) -> Tensor | None:
        if self.hyper.alpha is None:
            return None
        return copula_density(cholesky_factor(self.weights['copula.phi']), z_EBM)

    def _noise_masks(self, batch: Batch) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Masks of the hidden layers, for the step of D (two groups of people) and that of f."""
        if batch.coins is None:
            return (), ()
        n_people, n_regions = batch.x_EBS.shape[1:]
        kept = 1 + self.hyper.discriminator_noise * (2 * batch.coins.float() - 1)
        critic, mapper = kept.split([2 * n_people, n_people], dim=1)
        sizes = list(hidden_sizes(n_regions))
        return critic.split(sizes, dim=2), mapper.split(sizes, dim=2)


def shorten(gradients: Sequence[Tensor], longest: float) -> None:
    """Scale each member's gradients, in place, so that their joint norm is at most `longest`."""
    squares = [gradient.flatten(1).square().sum(dim=1) for gradient in gradients]
    norm_E = torch.stack(squares).sum(dim=0).sqrt()
    factor_E = (longest / (norm_E + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor_E[:, None, None])


@torch.no_grad()
def clip_weights(weights: Weights, limit: float) -> None:
    """Clip weights, in place, to [-limit, limit] for Lipschitz continuity (section 3.2)."""
    for value in weights.values():
        value.clamp_(-limit, limit)


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
        everyone = (torch.arange(len(group), device=stack.device)[None] for group in (cn, pt))
        self.rows = stack.rows or tuple(everyone)
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
            'controls': batches(keys, iterations, Stream.CONTROLS, self.rows[0].shape[1], size),
            'patients': batches(keys, iterations, Stream.PATIENTS, self.rows[1].shape[1], size),
            'latents': uniforms(keys, iterations, Stream.LATENTS, n_uniforms),
        }
        if self.stack.hyper.discriminator_noise:
            n_words = -(-self._n_coins() // WORD_BITS)
            words = random_words(keys, iterations, Stream.NOISE, n_words)
            drawn['noise'] = (words - 2**31).to(torch.int32)
        return {name: value.to(self.stack.device) for name, value in drawn.items()}

    def _people(self, group: int, rows_EB: Tensor) -> Tensor:
        """The participants (E, B, S) of a batch; rows count within a member's own subsample."""
        own = self.rows[group].expand(len(rows_EB), -1).gather(1, rows_EB)
        return (self.cn, self.pt)[group][own]

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
    """Where training stands; with the tensors of the stack, all that resuming needs.

    Attributes
    ----------
    done
        Members whose weights are final.
    converged
        Members that met the stopping rule of section 3.3.
    history
        One record per evaluation and lambda: mean losses and agreement.
    """

    done: list[bool]
    converged: list[bool]
    iteration: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


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
            if self.progress.iteration % self.evaluate_every == 0 or self._finished():
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

    def _mean_losses(self) -> Floats:
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
        finite = np.isfinite(losses_EL).all(axis=1) & np.isfinite(r_ENM).all(axis=(1, 2))
        diverged = np.asarray(~finite)
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

    def _record(self, ortho: float, losses_EL: Floats, r_ENM: Floats) -> None:
        self.progress.history.append(
            {
                'iteration': self.progress.iteration,
                'n_patterns': self.stack.n_patterns,
                'ortho': ortho,
                'agreement': compare_members(r_ENM).mean if len(r_ENM) > 1 else None,
                **dict(zip(LOSSES, losses_EL.mean(axis=0).tolist())),
            }
        )

    def _stop_converged(self, losses_EL: Floats) -> None:
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

    def _stop_settled(self, r_ENM: Floats, settled: float) -> None:
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
        self.progress = Progress(**progress)
        self.stack.restore(tensors)
        self.losses.copy_(tensors['losses'])
        self.seen = tensors['seen'].numpy()
        for name, value in self.final.items():
            value.copy_(tensors[f'final/{name}'])
        LOGGER.info('%s: resumed at iteration %d', self.checkpoint, self.progress.iteration)


def _correlations(a_ENM: Floats, b_ENM: Floats) -> Floats:
    """Correlation (E, M) of two sets of R-indices over people."""
    a, b = (values - values.mean(axis=1, keepdims=True) for values in (a_ENM, b_ENM))
    length = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return (a * b).sum(axis=1) / np.maximum(length, np.finfo(float).tiny)


def members_by_ortho(ortho: Sequence[float]) -> dict[float, NDArray[np.intp]]:
    """Positions of the members that share a lambda."""
    return {value: np.flatnonzero(np.equal(ortho, value)) for value in sorted(set(ortho))}


def members_r_indices(weights: Weights, people_NS: Tensor) -> Floats:
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
