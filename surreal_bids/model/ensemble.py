"""A stack of members and the step that trains all of them at once (Algorithm 1).

Members share nothing but the data: the loss of the stack is the sum of its members' losses, so each
gradient belongs to one member alone.

Shapes: E ensemble members, B people in a batch, S regions, M patterns, K latent vectors a person.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import surreal_bids.model.losses as losses
from surreal_bids.model.latent import (
    Latents,
    cholesky_factor,
    copula_density,
    divergence_from_independence,
    initial_copula,
    step_latents,
)
from surreal_bids.model.networks import (
    Weights,
    decompose,
    discriminate,
    encode,
    hidden_sizes,
    initial_weights,
    network,
    reconstruct,
    synthesise,
)
from surreal_bids.model.settings import HyperParameters

Function = TypeVar('Function', bound=Callable)


def _as_it_is(function: Function, device: torch.device) -> Function:
    """Leave a function uncompiled: few iterations do not repay what compilation takes."""
    del device
    return function


def fused(function: Function, device: torch.device) -> Function:
    """Compile a function for CUDA, where fused kernels save most of the traffic to memory.

    On other devices, and where what torch needs to compile is missing, the function itself.
    """
    tools = find_spec('triton') is not None and (shutil.which('gcc') or shutil.which('clang'))
    if device.type != 'cuda' or not tools:
        return function
    return cast('Function', torch.compile(function))


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
    words = fused(philox, device)(counter, (keys_E2[:, :1], keys_E2[:, 1:]))
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

CN_MEAN = 1.0
"""Every region of the controls has mean 1 (and sd 0.1)."""


class Batch(NamedTuple):
    """What one training step sees."""

    x_EBS: Tensor
    """Controls."""
    y_EBS: Tensor
    """Patients."""
    latents: Latents
    coins: Tensor | None
    """Fair coin tosses (E, 3 B, hidden units) for the noise in D, or None."""


class Start(NamedTuple):
    """Where one member starts."""

    weights: dict[str, NDArray[np.float32]]
    controls: NDArray[np.int64]
    """Rows of the controls that it is trained on."""
    patients: NDArray[np.int64]
    """The same of the patients."""


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
        compiled = fused if hyper.start == 'random' else _as_it_is
        self._synthesise = compiled(synthesise_patients, device)
        self._critic_loss = compiled(critic_loss, device)
        self._regularisers = compiled(regularisers, device)
        self._shorten = compiled(shorten, device)
        self._clip = compiled(clip_weights, device)

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

    def start_from(self, members: Sequence[Start]) -> None:
        """Give every member its start: weights, and the participants that it is trained on."""
        with torch.no_grad():
            for e, member in enumerate(members):
                for name, value in member.weights.items():
                    self.weights[name][e] = torch.from_numpy(value).to(torch.float32)
        controls, patients = (
            torch.from_numpy(np.stack(rows)).to(self.device)
            for rows in zip(*((member.controls, member.patients) for member in members))
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
            losses.adversarial(logits_EB2, True, constant_EB),
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
        loss_E = losses.adversarial(logits_EB2, True, density_EB) + weight * prior_E
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


class Synthesised(NamedTuple):
    """What f makes of a batch of controls."""

    fake_EBS: Tensor
    """Synthesised patients y' = x + sum of the patterns' changes."""
    total_EBS: Tensor
    """y' - x."""
    now_EMBS: Tensor
    """The change q_i of each pattern alone (section 2.2.3)."""
    later_EMBS: Tensor
    """The same with more severe latent vectors."""
    cn_EBS: Tensor
    """The change at latent vectors next to zero."""


def synthesise_patients(weights: Weights, x_EBS: Tensor, z_EKBM: Tensor) -> Synthesised:
    """Apply f with all latent vectors of a step; the code of x is shared by all of them."""
    m = z_EKBM.shape[-1]
    change_EKBS = synthesise(weights, encode(weights, x_EBS), z_EKBM)
    now, later, cn = change_EKBS.split([m, m, 1], dim=1)
    total = now.sum(dim=1)
    return Synthesised(x_EBS + total, total, now, later, cn.squeeze(1))


def as_critic_sees(people_EBS: Tensor, scale: float) -> Tensor:
    """What D is shown: people as they are, or their distance from the mean of the controls."""
    return people_EBS if scale == 1 else (people_EBS - CN_MEAN) * scale


def critic_loss(
    weights: Weights,
    people_EBS: Tensor,
    scale: float,
    masks: tuple[Tensor, ...],
    density_EB: Tensor | None,
) -> Tensor:
    """Loss of D on as many real as, behind them, synthesised people (Algorithm 1)."""
    logits = discriminate(weights, as_critic_sees(people_EBS, scale), masks)
    real, fake = logits.chunk(2, dim=1)
    on_real = losses.adversarial(real, True, density_EB)
    return 0.5 * (on_real + losses.adversarial(fake, False, density_EB))


def regularisers(weights: Weights, synthesised: Synthesised, z_EKBM: Tensor) -> list[Tensor]:
    """All losses that do not ask D, in the order of LOSSES."""
    fake, total, now, later, cn = synthesised
    decomposed = decompose(weights, fake)
    z_EMBM = z_EKBM[:, : now.shape[1]]
    return [
        losses.change(total),
        losses.decomposition(decomposed, now),
        losses.reconstruction(reconstruct(weights, decomposed), z_EMBM),
        losses.orthogonality((now.mean(dim=2) + later.mean(dim=2)) / 2),
        losses.monotonicity(now, later),
        losses.cn(cn),
    ]


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
