"""The loss terms, one function each, with the number of the paper's equation.

Every function returns one value per member, (E,). Norms are means over all elements (mean absolute
or mean squared difference), as in the authors' program: the weights of section 3.3 belong to these.

Shapes: E ensemble members, M patterns, B people, S regions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST_NORM = 1e-12
"""Guards the division by the length of a pattern that changes nothing."""


def mean_over_members(values: Tensor) -> Tensor:
    """Mean over everything but the leading axis of members."""
    return values.flatten(1).mean(dim=1)


def adversarial(logits_EB2: Tensor, is_real: bool, density_EB: Tensor | None = None) -> Tensor:
    """Cross entropy of D's verdict (eq. 1), weighted by the copula's density where there is one."""
    real, fake = logits_EB2.unbind(-1)
    entropy = F.softplus(fake - real if is_real else real - fake)
    return mean_over_members(entropy if density_EB is None else entropy * density_EB)


def change(change_EBS: Tensor) -> Tensor:
    """How far synthesised patients lie from the controls they come from (eq. 4)."""
    return mean_over_members(change_EBS.abs())


def decomposition(decomposed_EMBS: Tensor, change_EMBS: Tensor) -> Tensor:
    """What g1 misses of each pattern's change (eq. 6)."""
    return mean_over_members((decomposed_EMBS - change_EMBS).square())


def reconstruction(z_hat_EMBM: Tensor, z_EMBM: Tensor) -> Tensor:
    """What g2 misses of the latent variables, one pattern at a time (eq. 7)."""
    return mean_over_members((z_hat_EMBM - z_EMBM).square())


def orthogonality(mean_change_EMS: Tensor) -> Tensor:
    """How much the patterns share regions (eq. 8), on changes averaged over the batch."""
    size = mean_change_EMS.abs()
    unit = size / size.norm(dim=-1, keepdim=True).clamp_min(SMALLEST_NORM)
    gram = torch.bmm(unit, unit.transpose(1, 2))
    return mean_over_members((gram - torch.eye(gram.shape[-1], device=gram.device)).square())


def monotonicity(change_EMBS: Tensor, later_EMBS: Tensor) -> Tensor:
    """How much a region changes back while its pattern grows (eq. 9)."""
    return mean_over_members(F.relu(change_EMBS.abs() - later_EMBS.abs()).square())


def cn(change_EBS: Tensor) -> Tensor:
    """How far people move whose latent vector is next to zero (eq. 10)."""
    return mean_over_members(change_EBS.abs())
