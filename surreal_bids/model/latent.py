"""Latent vectors: how they are drawn (Algorithm 1) and how they may correlate.

Shapes: E ensemble members, B people, M patterns.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CN_RANGE = 0.05
"""Latent vectors of the cn loss are drawn from U(0, 0.05) (section 2.2.5)."""


class Latents(NamedTuple):
    """The three latent vectors of one training step, each (E, B, M)."""

    z: Tensor
    """U[0, 1]."""
    later: Tensor
    """U[z, 1]: the same patterns, further on."""
    cn: Tensor
    """U[0, 0.05]: next to no disease."""


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
