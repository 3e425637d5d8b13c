"""What each pattern changes: what the decomposer finds in people, region by region.

Shapes: E members, N people, S regions, M patterns.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surreal_bids.model.networks import Weights, decompose, reconstruct
from surreal_bids.model.train import PORTION


def pattern_changes(weights: Weights, people_NS: Tensor) -> NDArray[np.float64]:
    """Change of each region as an R-index goes from 0 to 1, (E, M, S), by every member.

    It is the slope of the change that g1 assigns to pattern i (section 2.2.3) on R-index i, over
    these people, by least squares; in the unit of the network, of which 0.1 is a standard deviation
    of the controls.
    """
    portions = [_decompose(weights, portion) for portion in people_NS.split(PORTION)]
    q_EMNS = np.concatenate([q for q, _ in portions], axis=2)
    r_EMN = np.concatenate([r for _, r in portions], axis=2)
    r_EMN = r_EMN - r_EMN.mean(axis=2, keepdims=True)
    spread_EM = np.maximum((r_EMN**2).sum(axis=2), np.finfo(np.float64).tiny)
    return np.einsum('emn,emns->ems', r_EMN, q_EMNS, optimize=True) / spread_EM[..., None]


def _decompose(
    weights: Weights, people_NS: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Changes (E, M, N, S) and R-indices (E, M, N) of some people."""
    with torch.no_grad():
        changes = decompose(weights, people_NS.expand(len(weights['g1.weight']), -1, -1))
        r_ENM = reconstruct(weights, changes).sum(dim=1)
    return changes.double().numpy(), r_ENM.transpose(1, 2).double().numpy()
