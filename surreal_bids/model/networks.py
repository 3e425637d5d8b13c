"""Surreal-GAN as functions of tensors: settings, networks, losses, contributions of regions.

The networks are those of Tables 3 and 4, for a whole stack of members at once. Weights are plain
tensors in a dictionary, with the members on the leading axis, so that every layer is one batched
matrix product. Bias-free layers and leaky-relu slopes are the paper's; where the paper and the
authors' program differ, the program counts: f gives the change, not the changed person, and g2 ends
in a linear layer.

Shapes: E ensemble members, B people, S regions, M patterns, K latent vectors a person,
H = S // 2 and Q = S // 4 hidden units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from surreal_bids.exceptions import UsageError


@dataclass(frozen=True)
class HyperParameters:
    """Everything that shapes training, apart from M, lambda and the number of iterations.

    The defaults are those of section 3.3 of the paper and, where it is silent, of the authors'
    program.

    Attributes
    ----------
    adversarial
        Weight of what D says in the objective of f (eq. 1).
    gamma
        Weight of the change loss (eq. 4).
    kappa
        Weight of the decomposition loss (eq. 6).
    zeta
        Weight of the reconstruction loss (eq. 7).
    mu
        Weight of the monotonicity loss (eq. 9).
    eta
        Weight of the cn loss (eq. 10).
    alpha
        Weight of the prior on the copula's correlation; None: R-indices are independent.
    lr
        Learning rate of f, g1 and g2.
    discriminator_lr_ratio
        Learning rate of D, as a part of `lr`.
    copula_lr_ratio
        Learning rate of the copula's correlation, as a part of `lr`.
    betas
        Adam's decay rates.
    weight_decay
        L2 penalty on f, g1 and g2.
    lipschitz
        Weights of f, g1 and g2 are clipped to plus or minus this (section 3.2).
    max_gradient_norm
        A longer gradient of f or D is shortened to this, member by member.
    batch_size
        People per mini-batch and group; None: an eighth of the patients, and at least eight.
    reconstruction_threshold
        Training may end when the reconstruction loss is below this (section 3.3).
    monotonicity_threshold
        The same of the monotonicity loss; both have to be met.
    extra_iterations
        How long, as a part of `iterations`, a member may go on until it meets both.
    discriminator_scale
        D sees (y - 1) times this; 1 means that it sees y itself, as in the paper.
    discriminator_noise
        D's hidden units are multiplied by 1 plus or minus this at random; 1 drops half of them.
    decay_from
        Part of the iterations after which the learning rates fall linearly to a twentieth.
    core_members
        M, lambda and the reference member are chosen by agreement among a member and this many of
        its closest others; None: by agreement of all with all, as in section 4.3.
    start
        Where members start: at `random` weights, or at the sparse `factors` of their own subsample
        of participants, on which they are then trained.
    held_iterations
        First iterations, at most three quarters of all, in which f is held still and only g1, g2
        and D learn.
    settled
        A member ends, with f no longer held, when its R-indices correlate by this much with those
        of the evaluation before; None: after `iterations`, by both thresholds above.
    largest_batch
        Most participants of a mini-batch and group that are taken where `batch_size` is None.
    consensus_tolerance
        Members are averaged whose agreement with the reference is at most this much below that of
        its closest other.
    """

    adversarial: float = 1.0
    gamma: float = 6.0
    kappa: float = 80.0
    zeta: float = 80.0
    mu: float = 500.0
    eta: float = 6.0
    alpha: float | None = None
    lr: float = 2e-4
    discriminator_lr_ratio: float = 0.2
    copula_lr_ratio: float = 1 / 30
    betas: tuple[float, float] = (0.5, 0.999)
    weight_decay: float = 2.5e-3
    lipschitz: float = 0.5
    max_gradient_norm: float = 100.0
    batch_size: int | None = None
    reconstruction_threshold: float = 0.003
    monotonicity_threshold: float = 6e-4
    extra_iterations: float = 0.2
    discriminator_scale: float = 1.0
    discriminator_noise: float = 0.0
    decay_from: float = 1.0
    core_members: int | None = None
    start: str = 'random'
    held_iterations: int = 0
    settled: float | None = None
    largest_batch: int | None = None
    consensus_tolerance: float = 0.06


PRESETS: dict[str, HyperParameters] = {
    'sparse': HyperParameters(
        gamma=1.0,
        adversarial=0.25,
        discriminator_lr_ratio=1.0,
        discriminator_scale=10.0,
        discriminator_noise=1.0,
        decay_from=0.5,
        core_members=3,
        start='factors',
        held_iterations=1_500,
        settled=0.999,
        largest_batch=256,
        consensus_tolerance=0.15,
    ),
    'iclr2022': HyperParameters(),
    'correlated': HyperParameters(gamma=2.0, alpha=0.02, lr=8e-4, monotonicity_threshold=6e-5),
}
"""iclr2022: the paper. correlated: the authors' program 0.1.1, whose R-indices may correlate
(a learned Gaussian copula). sparse: members start from linear factors and need few iterations
(docs/paper.md)."""


PAPER_ORTHO = (0.1, 0.2, 0.4, 0.6, 0.8)
"""The values of lambda that the paper tries (sections 4.2 and 4.3)."""
RANDOM_CANDIDATES, RANDOM_REPETITIONS = (2, 3, 4), 10
"""Numbers of patterns, and members per setting, if members start from random weights."""
SPARSE_ORTHO = (0.4,)
"""Lambda if members start from factors; other values change the consensus by less than 0.001."""
RANDOM_ITERATIONS, SPARSE_ITERATIONS = 100_000, 2_000
"""Default number of iterations if members start from random weights, or from factors."""
MIN_FEATURES = 4
"""Minimum number of features: the smallest hidden layer has a quarter of them."""
BATCHES_PER_EPOCH = 8
"""The default batch size is an eighth of the patients (section 3.3)."""
MIN_PEOPLE = 8
"""Minimum number of participants per group, and default batch size."""


def hyperparameters(preset: str, **changes: Any) -> HyperParameters:
    """Return the values of a preset, with some of them changed."""
    if preset not in PRESETS:
        raise UsageError(f'unknown preset {preset!r}; choose one of {", ".join(PRESETS)}')
    known = [field.name for field in fields(HyperParameters)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise UsageError(
            f'unknown hyper-parameter {", ".join(unknown)}; choose from {", ".join(known)}'
        )
    return replace(PRESETS[preset], **changes)


Weights = Mapping[str, Tensor]
SLOPE = 0.2
"""Negative slope of every leaky relu."""
INITIAL_SD = 0.1
"""Weights start as N(0, 0.1), biases as torch's linear layers start theirs."""


class _ProductOnCPU(torch.autograd.Function):
    """Batched matrix product whose backward pass never multiplies by a transposed view.

    OpenBLAS on ARM spends half a millisecond on each such product, whatever its size; a copy of
    the weights costs a hundredth of that, and nothing to speak of elsewhere.
    """

    @staticmethod
    def forward(ctx: Any, x_EBI: Tensor, w_EIO: Tensor) -> Tensor:
        """Multiply, and keep both factors."""
        ctx.save_for_backward(x_EBI, w_EIO)
        return torch.bmm(x_EBI, w_EIO)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of both factors, where they are asked for."""
        x_EBI, w_EIO = ctx.saved_tensors
        (g_EBO,) = gradients
        to_x, to_w = ctx.needs_input_grad
        return (
            torch.bmm(g_EBO, w_EIO.transpose(1, 2).contiguous()) if to_x else None,
            torch.bmm(x_EBI.transpose(1, 2), g_EBO) if to_w else None,
        )


def product(x_EBI: Tensor, w_EIO: Tensor) -> Tensor:
    """Batched matrix product (E, B, I) x (E, I, O), differentiable."""
    return (
        _ProductOnCPU.apply(x_EBI, w_EIO) if x_EBI.device.type == 'cpu' else torch.bmm(x_EBI, w_EIO)
    )


def hidden_sizes(n_regions: int) -> tuple[int, int]:
    """H and Q: units of the two hidden layers."""
    return n_regions // 2, n_regions // 4


def weight_shapes(n_regions: int, n_patterns: int) -> dict[str, tuple[int, int]]:
    """Name and shape (inputs, outputs) of every weight of one member; a bias has one row.

    The first part of a name tells the network: f, g1, g2, D.
    """
    s, m = n_regions, n_patterns
    h, q = hidden_sizes(n_regions)
    return {
        'f.encode1': (s, h),
        'f.encode2': (h, q),
        'f.latent': (m, q),
        'f.latent_bias': (1, q),
        'f.decode1': (q, h),
        'f.decode2': (h, s),
        'g1.weight': (s, m * s),
        'g1.weight_bias': (1, m * s),
        **_perceptron_shapes('g2', (s, h, q, m)),
        **_perceptron_shapes('D', (s, h, q, 2)),
    }


def _perceptron_shapes(name: str, sizes: tuple[int, ...]) -> dict[str, tuple[int, int]]:
    shapes = {}
    for layer, (inputs, outputs) in enumerate(pairwise(sizes), start=1):
        shapes[f'{name}.layer{layer}'] = (inputs, outputs)
        shapes[f'{name}.layer{layer}_bias'] = (1, outputs)
    return shapes


def initial_weights(
    n_regions: int, n_patterns: int, seeds: Iterable[np.random.SeedSequence]
) -> dict[str, Tensor]:
    """Random weights, one member per seed, stacked on the leading axis."""
    shapes = weight_shapes(n_regions, n_patterns)
    members = [_initial_member(shapes, np.random.default_rng(seed)) for seed in seeds]
    return {name: torch.stack([member[name] for member in members]) for name in shapes}


def _initial_member(
    shapes: dict[str, tuple[int, int]], rng: np.random.Generator
) -> dict[str, Tensor]:
    weights = {}
    for name, shape in shapes.items():
        if name.endswith('_bias'):
            limit = shapes[name.removesuffix('_bias')][0] ** -0.5
            values = rng.uniform(-limit, limit, prod(shape))
        else:
            values = rng.normal(0, INITIAL_SD, prod(shape))
        weights[name] = torch.from_numpy(values.reshape(shape)).float()
    return weights


def network(weights: Weights, *names: str) -> dict[str, Tensor]:
    """The weights of the named networks, e.g. `network(weights, 'f', 'g1')`."""
    return {name: value for name, value in weights.items() if name.split('.')[0] in names}


def encode(weights: Weights, x_EBS: Tensor) -> Tensor:
    """First half of f: people -> (E, B, Q)."""
    hidden = F.leaky_relu(product(x_EBS, weights['f.encode1']), SLOPE, inplace=True)
    return F.leaky_relu(product(hidden, weights['f.encode2']), SLOPE, inplace=True)


def synthesise(weights: Weights, code_EBQ: Tensor, z_EKBM: Tensor) -> Tensor:
    """Second half of f: the change (E, K, B, S) that each latent vector imposes on each person."""
    z_EKB_M = z_EKBM.flatten(1, 2)
    gate = _logistic(_linear(weights, 'f.latent', z_EKB_M))
    gated = code_EBQ[:, None] * gate.unflatten(1, z_EKBM.shape[1:3])
    hidden = F.leaky_relu(product(gated.flatten(1, 2), weights['f.decode1']), SLOPE, inplace=True)
    change = F.leaky_relu(product(hidden, weights['f.decode2']), SLOPE, inplace=True)
    return change.unflatten(1, z_EKBM.shape[1:3])


def _logistic(x_E: Tensor) -> Tensor:
    """Logistic function; on a CPU, one member at a time.

    On x86, torch computes the last few elements of a tensor by other instructions than the rest, so
    that the last bits of a member would depend on how many others are in the stack.
    """
    if x_E.device.type != 'cpu':
        return torch.sigmoid(x_E)
    return torch.stack([torch.sigmoid(member) for member in x_E])


def decompose(weights: Weights, y_EBS: Tensor) -> Tensor:
    """g1: people -> the change (E, M, B, S) that belongs to each pattern."""
    out = _linear(weights, 'g1.weight', F.leaky_relu(y_EBS, SLOPE))
    return out.unflatten(-1, (-1, y_EBS.shape[-1])).transpose(1, 2)


def reconstruct(weights: Weights, change_EMBS: Tensor) -> Tensor:
    """g2: each pattern's change -> latent variables (E, M, B, M)."""
    flat = change_EMBS.flatten(1, 2)
    return _perceptron(weights, 'g2', flat, ()).unflatten(1, change_EMBS.shape[1:3])


def discriminate(weights: Weights, y_EBS: Tensor, masks: tuple[Tensor, ...] = ()) -> Tensor:
    """D: people -> logits (E, B, 2) of being real (0) or synthesised (1).

    Each mask multiplies the units of one hidden layer (dropout).
    """
    return _perceptron(weights, 'D', y_EBS, masks)


def _perceptron(weights: Weights, name: str, x: Tensor, masks: tuple[Tensor, ...]) -> Tensor:
    for layer in (1, 2):
        x = F.leaky_relu(_linear(weights, f'{name}.layer{layer}', x), SLOPE, inplace=True)
        if masks:
            x = x * masks[layer - 1]
    return _linear(weights, f'{name}.layer3', x)


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    return product(x, weights[name]).add_(weights[f'{name}_bias'])


def r_indices(weights: Weights, y_EBS: Tensor) -> Tensor:
    """G = g2 after g1: people -> R-indices (E, B, M) (section 2.4), summed over the patterns."""
    return reconstruct(weights, decompose(weights, y_EBS)).sum(dim=1)


def relabel_patterns(weights: Weights, order_EM: Tensor) -> dict[str, Tensor]:
    """The same members with their patterns in another order: R-indices become `r[:, order]`."""
    n_patterns = order_EM.shape[1]
    relabelled = dict(weights)
    relabelled['f.latent'] = weights['f.latent'].take_along_dim(order_EM[:, :, None], dim=1)
    for name in ('g1.weight', 'g1.weight_bias'):
        by_pattern = weights[name].unflatten(-1, (n_patterns, -1))
        relabelled[name] = by_pattern.take_along_dim(order_EM[:, None, :, None], dim=2).flatten(2)
    for name in ('g2.layer3', 'g2.layer3_bias'):
        relabelled[name] = weights[name].take_along_dim(order_EM[:, None, :], dim=2)
    return relabelled


CN_RANGE = 0.05
"""Latent vectors of the cn loss are drawn from U(0, 0.05) (section 2.2.5)."""


class Latents(NamedTuple):
    """The three latent vectors of one training step, each (E, B, M).

    Attributes
    ----------
    z
        U[0, 1].
    later
        U[z, 1]: the same patterns, further on.
    cn
        U[0, 0.05]: next to no disease.
    """

    z: Tensor
    later: Tensor
    cn: Tensor


def latents(u_EB3M: Tensor) -> Latents:
    """Turn uniforms, three for each pattern, into the three latent vectors."""
    z, step, cn = u_EB3M.chunk(3, dim=-1)
    return Latents(z, z + (1 - z) * step, CN_RANGE * cn)


def one_pattern_at_a_time(z_EBM: Tensor) -> Tensor:
    """The vectors a^i of section 2.2.3, (E, M, B, M): component i of z, all others zero."""
    return torch.diag_embed(z_EBM).transpose(1, 2)


def step_latents(drawn: Latents) -> Tensor:
    """All latent vectors that f meets in one step, (E, 2M + 1, B, M): a^i, later a^i, cn."""
    return torch.cat(
        [
            one_pattern_at_a_time(drawn.z),
            one_pattern_at_a_time(drawn.later),
            drawn.cn[:, None],
        ],
        dim=1,
    )


def initial_copula(n_members: int, n_patterns: int) -> Tensor:
    """Free parameters (E, M, M) of the copula, of which the lower triangle counts: independence."""
    return torch.eye(n_patterns).repeat(n_members, 1, 1)


def cholesky_factor(phi_EMM: Tensor) -> Tensor:
    """Lower-triangular L with unit rows and positive diagonal, so that L L' is a correlation."""
    lower = torch.nn.functional.normalize(phi_EMM.tril(), dim=-1)
    diagonal = lower.diagonal(dim1=-2, dim2=-1)
    return lower + torch.diag_embed(diagonal.abs() - diagonal)


def _solve_lower(factor_EMM: Tensor, right_EMN: Tensor) -> Tensor:
    """L^-1 right by forward substitution: M is small, and a CUDA graph can hold it."""
    rows: list[Tensor] = []
    for i in range(factor_EMM.shape[-1]):
        known = sum(
            (factor_EMM[:, i, j, None] * rows[j] for j in range(i)),
            start=torch.zeros_like(right_EMN[:, i]),
        )
        rows.append((right_EMN[:, i] - known) / factor_EMM[:, i, i, None])
    return torch.stack(rows, dim=1)


def copula_density(factor_EMM: Tensor, z_EBM: Tensor) -> Tensor:
    """Density (E, B) of the Gaussian copula with correlation L L' at z in (0, 1)^M."""
    normal_EMB = torch.special.ndtri(z_EBM).transpose(1, 2)
    white_EMB = _solve_lower(factor_EMM, normal_EMB)
    log_det = factor_EMM.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
    return torch.exp(0.5 * (normal_EMB.square() - white_EMB.square()).sum(1) - log_det)


def divergence_from_independence(factor_EMM: Tensor) -> Tensor:
    """KL( N(0, I) || N(0, L L') ), shape (E,)."""
    identity = torch.eye(factor_EMM.shape[-1], device=factor_EMM.device).expand_as(factor_EMM)
    trace = _solve_lower(factor_EMM, identity).square().sum((1, 2))
    log_det = 2 * factor_EMM.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return 0.5 * (trace - factor_EMM.shape[-1] + log_det)


SMALLEST_NORM = 1e-12
"""Guards the division by the length of a pattern that changes nothing."""


def mean_over_members(values: Tensor) -> Tensor:
    """Mean over everything but the leading axis of members."""
    return values.flatten(1).mean(dim=1)


def adversarial_loss(logits_EB2: Tensor, is_real: bool, density_EB: Tensor | None = None) -> Tensor:
    """Cross entropy of D's verdict (eq. 1), weighted by the copula's density where there is one."""
    real, fake = logits_EB2.unbind(-1)
    entropy = F.softplus(fake - real if is_real else real - fake)
    return mean_over_members(entropy if density_EB is None else entropy * density_EB)


def change_loss(change_EBS: Tensor) -> Tensor:
    """How far synthesised patients lie from the controls they come from (eq. 4)."""
    return mean_over_members(change_EBS.abs())


def decomposition_loss(decomposed_EMBS: Tensor, change_EMBS: Tensor) -> Tensor:
    """What g1 misses of each pattern's change (eq. 6)."""
    return mean_over_members((decomposed_EMBS - change_EMBS).square())


def reconstruction_loss(z_hat_EMBM: Tensor, z_EMBM: Tensor) -> Tensor:
    """What g2 misses of the latent variables, one pattern at a time (eq. 7)."""
    return mean_over_members((z_hat_EMBM - z_EMBM).square())


def orthogonality_loss(mean_change_EMS: Tensor) -> Tensor:
    """How much the patterns share regions (eq. 8), on changes averaged over the batch."""
    size = mean_change_EMS.abs()
    unit = size / size.norm(dim=-1, keepdim=True).clamp_min(SMALLEST_NORM)
    gram = torch.bmm(unit, unit.transpose(1, 2))
    return mean_over_members((gram - torch.eye(gram.shape[-1], device=gram.device)).square())


def monotonicity_loss(change_EMBS: Tensor, later_EMBS: Tensor) -> Tensor:
    """How much a region changes back while its pattern grows (eq. 9)."""
    return mean_over_members(F.relu(change_EMBS.abs() - later_EMBS.abs()).square())


def cn_loss(change_EBS: Tensor) -> Tensor:
    """How far people move whose latent vector is next to zero (eq. 10)."""
    return mean_over_members(change_EBS.abs())


CN_MEAN = 1.0
"""Every region of the controls has mean 1 (and sd 0.1)."""


class Synthesised(NamedTuple):
    """What f makes of a batch of controls.

    Attributes
    ----------
    fake_EBS
        Synthesised patients y' = x + sum of the patterns' changes.
    total_EBS
        y' - x.
    now_EMBS
        The change q_i of each pattern alone (section 2.2.3).
    later_EMBS
        The same with more severe latent vectors.
    cn_EBS
        The change at latent vectors next to zero.
    """

    fake_EBS: Tensor
    total_EBS: Tensor
    now_EMBS: Tensor
    later_EMBS: Tensor
    cn_EBS: Tensor


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
    on_real = adversarial_loss(real, True, density_EB)
    return 0.5 * (on_real + adversarial_loss(fake, False, density_EB))


def regularisers(weights: Weights, synthesised: Synthesised, z_EKBM: Tensor) -> list[Tensor]:
    """All losses that do not ask D, in the order of LOSSES."""
    fake, total, now, later, cn = synthesised
    decomposed = decompose(weights, fake)
    z_EMBM = z_EKBM[:, : now.shape[1]]
    return [
        change_loss(total),
        decomposition_loss(decomposed, now),
        reconstruction_loss(reconstruct(weights, decomposed), z_EMBM),
        orthogonality_loss((now.mean(dim=2) + later.mean(dim=2)) / 2),
        monotonicity_loss(now, later),
        cn_loss(cn),
    ]


STEPS = 16
"""Of the line. Contributions of a trained model change by less than 1e-4 with more of them."""


class _Layers(NamedTuple):
    """R-indices as a sum over patterns of g2 after g1, where g1 and g2's first layer are one."""

    to_hidden_ESL: Tensor
    """L = P H: the first hidden units of g2 for the change of each pattern."""
    hidden_bias_EPH: Tensor
    layer2_EHQ: Tensor
    bias2_E1Q: Tensor
    layer3_EQM: Tensor
    bias3_EM: Tensor


def member_contributions(
    weights: Weights, people_NS: Tensor, steps: int = STEPS
) -> tuple[Tensor, Tensor]:
    """What each region contributes to an R-index, relative to the mean control, by every member.

    Integrated gradients (Sundararajan et al., ICML 2017): the gradient of the R-index is averaged
    along the straight line from the mean control to the person, and multiplied by the distance. The
    line is cut into steps. Within a step every leaky relu counts with its mean slope (the rescale
    rule of DeepLIFT; Shrikumar et al., ICML 2017), so that contributions add up to the difference
    of the two R-indices whatever the number of steps; with many, they are the integrated gradients.

    The leaky relu in front of g1 acts on each region alone, so that the line is drawn behind it; in
    front of it is the same line unless a region is below zero (ten standard deviations of controls
    below their mean).

    Parameters
    ----------
    weights
        g1 and g2 of the members.
    people_NS
        People, normalised as in training.
    steps
        In how many the line is cut.

    Returns
    -------
    baseline_EM
        R-indices of the mean control.
    of_regions_ENMS
        What each region adds to the R-indices of each person, in double precision. P is the pattern
        that g1 assigns a change to, M the R-index.
    """
    layers = _join_layers(weights)
    distance_NS = F.leaky_relu(people_NS.double(), SLOPE) - CN_MEAN
    n_members, n_patterns, n_hidden = layers.hidden_bias_EPH.shape
    n_people = len(distance_NS)
    start_E1PH = (
        CN_MEAN * layers.to_hidden_ESL.sum(dim=1).unflatten(-1, (n_patterns, n_hidden))
        + layers.hidden_bias_EPH
    )[:, None]
    way_ENPH = (distance_NS @ layers.to_hidden_ESL).unflatten(-1, (n_patterns, n_hidden))
    hidden, inner = start_E1PH, _second_layer(layers, start_E1PH)
    baseline_EM = (F.leaky_relu(inner, SLOPE).sum(dim=(1, 2))[:, None] @ layers.layer3_EQM).squeeze(
        1
    ) + n_patterns * layers.bias3_EM
    # Matrix products of few large matrices: many small ones would take a hundred times as long.
    backward2_EQH = layers.layer2_EHQ.mT.contiguous()
    backward3_E1M1Q = layers.layer3_EQM.mT[:, None, :, None].contiguous()
    gradient_ENMPH = way_ENPH.new_zeros((n_members, n_people, n_patterns, n_patterns, n_hidden))
    for step in range(1, steps + 1):
        next_hidden = start_E1PH + way_ENPH * (step / steps)
        next_inner = _second_layer(layers, next_hidden)
        of_inner_ENMPQ = _mean_slope(inner, next_inner)[:, :, None] * backward3_E1M1Q
        of_hidden = torch.bmm(of_inner_ENMPQ.flatten(1, 3), backward2_EQH)
        slope = _mean_slope(hidden, next_hidden)[:, :, None]
        gradient_ENMPH += of_hidden.view_as(gradient_ENMPH) * slope
        hidden, inner = next_hidden, next_inner
    backward_ELS = layers.to_hidden_ESL.mT.contiguous()
    gradient_ENMS = torch.bmm(
        gradient_ENMPH.flatten(3).flatten(1, 2) / steps, backward_ELS
    ).unflatten(1, (n_people, n_patterns))
    return baseline_EM, gradient_ENMS * distance_NS[:, None]


def _join_layers(weights: Weights) -> _Layers:
    double = {name: value.double() for name, value in network(weights, 'g1', 'g2').items()}
    n_patterns = double['g2.layer3'].shape[-1]
    first_ESH, n_regions = double['g2.layer1'], double['g2.layer1'].shape[1]
    decomposer_ESPS = double['g1.weight'].unflatten(-1, (n_patterns, n_regions))
    joined = torch.bmm(decomposer_ESPS.flatten(1, 2), first_ESH)
    change_EPS = double['g1.weight_bias'].squeeze(1).unflatten(-1, (n_patterns, n_regions))
    return _Layers(
        joined.unflatten(1, (n_regions, n_patterns)).flatten(2),
        torch.bmm(change_EPS, first_ESH) + double['g2.layer1_bias'],
        double['g2.layer2'],
        double['g2.layer2_bias'],
        double['g2.layer3'],
        double['g2.layer3_bias'].squeeze(1),
    )


def _second_layer(layers: _Layers, hidden_ENPH: Tensor) -> Tensor:
    """Second hidden units of g2 before their leaky relu, (E, N, P, Q)."""
    rows = F.leaky_relu(hidden_ENPH, SLOPE).flatten(1, 2)
    inner = torch.bmm(rows, layers.layer2_EHQ) + layers.bias2_E1Q
    return inner.unflatten(1, hidden_ENPH.shape[1:3])


def _mean_slope(begin: Tensor, end: Tensor) -> Tensor:
    """Mean slope of the leaky relu between two points: 1, `SLOPE`, or between where 0 is passed."""
    low, high = torch.minimum(begin, end), torch.maximum(begin, end)
    passed = (high - SLOPE * low) / (high - low)
    return torch.where(low >= 0, 1.0, torch.where(high < 0, SLOPE, passed))


PARTICIPANTS_AT_ONCE = 128
"""Participants whose contributions are computed at once, to bound memory."""


def mean_contributions(weights: Weights, people_NS: Tensor) -> tuple[Tensor, Tensor]:
    """Average contributions over members: the baseline (M,), and those of regions (N, M, S)."""
    portions = [
        member_contributions(weights, portion) for portion in people_NS.split(PARTICIPANTS_AT_ONCE)
    ]
    baselines_EM, of_regions_ENMS = zip(*portions)
    return baselines_EM[0].mean(dim=0), torch.cat([each.mean(dim=0) for each in of_regions_ENMS])
