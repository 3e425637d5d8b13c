"""Hyper-parameters, by the paper's names, and the presets that fix them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from surreal_bids.exceptions import UsageError


@dataclass(frozen=True)
class HyperParameters:
    """Everything that shapes training, apart from M, lambda and the number of iterations.

    The defaults are those of section 3.3 of the paper and, where it is silent, of the authors'
    program.
    """

    adversarial: float = 1.0
    """Weight of what D says in the objective of f (eq. 1)."""
    gamma: float = 6.0
    """Weight of the change loss (eq. 4)."""
    kappa: float = 80.0
    """Weight of the decomposition loss (eq. 6)."""
    zeta: float = 80.0
    """Weight of the reconstruction loss (eq. 7)."""
    mu: float = 500.0
    """Weight of the monotonicity loss (eq. 9)."""
    eta: float = 6.0
    """Weight of the cn loss (eq. 10)."""
    alpha: float | None = None
    """Weight of the prior on the copula's correlation; None: R-indices are independent."""
    lr: float = 2e-4
    """Learning rate of f, g1 and g2."""
    discriminator_lr_ratio: float = 0.2
    """Learning rate of D, as a part of `lr`."""
    copula_lr_ratio: float = 1 / 30
    """Learning rate of the copula's correlation, as a part of `lr`."""
    betas: tuple[float, float] = (0.5, 0.999)
    """Adam's decay rates."""
    weight_decay: float = 2.5e-3
    """L2 penalty on f, g1 and g2."""
    lipschitz: float = 0.5
    """Weights of f, g1 and g2 are clipped to plus or minus this (section 3.2)."""
    max_gradient_norm: float = 100.0
    """A longer gradient of f or D is shortened to this, member by member."""
    batch_size: int | None = None
    """People per mini-batch and group; None: an eighth of the patients, and at least eight."""
    reconstruction_threshold: float = 0.003
    """Training may end when the reconstruction loss is below this (section 3.3) ..."""
    monotonicity_threshold: float = 6e-4
    """... and the monotonicity loss below this."""
    extra_iterations: float = 0.2
    """How long, as a part of `iterations`, a member may go on until it meets both."""
    discriminator_scale: float = 1.0
    """D sees (y - 1) times this; 1 means that it sees y itself, as in the paper."""
    discriminator_noise: float = 0.0
    """D's hidden units are multiplied by 1 plus or minus this at random; 1 drops half of them."""
    decay_from: float = 1.0
    """Part of the iterations after which the learning rates fall linearly to a twentieth."""
    core_members: int | None = None
    """M, lambda and the reference member are chosen by agreement among a member and this many of
    its closest others; None: by agreement of all with all, as in section 4.3."""
    start: str = 'random'
    """Where members start: at `random` weights, or at the sparse `factors` of their own subsample
    of participants, on which they are then trained."""
    held_iterations: int = 0
    """First iterations, at most three quarters of all, in which f is held still and only g1, g2
    and D learn."""
    settled: float | None = None
    """A member ends, with f no longer held, when its R-indices correlate by this much with those of
    the evaluation before; None: after `iterations`, by both thresholds above."""
    largest_batch: int | None = None
    """Most participants of a mini-batch and group that are taken where `batch_size` is None."""
    consensus_tolerance: float = 0.06
    """Members are averaged whose agreement with the reference is at most this much below that of
    its closest other."""


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
    'robust': HyperParameters(
        lr=8e-4,
        adversarial=0.25,
        discriminator_scale=10.0,
        discriminator_noise=1.0,
        decay_from=0.5,
        core_members=3,
    ),
}
"""iclr2022: the paper. correlated: the authors' program 0.1.1, whose R-indices may correlate
(a learned Gaussian copula). robust: what we found to train better (benchmarks/README.md).
sparse: members start from linear factors and need few iterations (docs/paper.md)."""


PAPER_ORTHO = (0.1, 0.2, 0.4, 0.6, 0.8)
"""The values of lambda that the paper tries (sections 4.2 and 4.3)."""
RANDOM_CANDIDATES, RANDOM_REPETITIONS = (2, 3, 4), 10
"""Numbers of patterns, and members per setting, if members start from random weights."""
SPARSE_ORTHO = (0.4,)
"""Lambda if members start from factors; other values change the consensus by less than 0.001."""
DEFAULT_ITERATIONS = {
    'iclr2022': 100_000,
    'correlated': 100_000,
    'robust': 20_000,
    'sparse': 2_000,
}
"""Default number of iterations of each preset."""
BATCHES_PER_EPOCH = 8
"""The default batch size is an eighth of the patients (section 3.3)."""
SMALLEST_BATCH = 8
"""Minimum default batch size; the paper's samples are too large to need one."""


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
