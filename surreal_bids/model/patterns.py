"""What each pattern changes: what the decomposer finds in people, region by region.

Shapes: E members, N people, S regions, M patterns.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surreal_bids.model.networks import Weights, decompose
from surreal_bids.model.train import PORTION


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
