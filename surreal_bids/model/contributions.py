"""What each region contributes to an R-index, relative to the mean control.

Integrated gradients (Sundararajan et al., ICML 2017): the gradient of the R-index is averaged along
the straight line from the mean control to the person, and multiplied by the distance. The line is
cut into steps. Within a step every leaky relu counts with its mean slope (the rescale rule of
DeepLIFT; Shrikumar et al., ICML 2017), so that contributions add up to the difference of the two
R-indices whatever the number of steps; with many, they are the integrated gradients.

Shapes: E members, N people, S regions, M patterns (P where it is the pattern that g1 assigns a
change to, M where it is the R-index), H and Q hidden units.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from surreal_bids.model.networks import CN_MEAN, SLOPE, Weights, network

STEPS = 16
"""Of the line. Contributions of a trained model change by less than 1e-4 with more of them."""


class Contributions(NamedTuple):
    """R-indices in parts: `baseline_EM[e, m] + of_regions_ENMS[e, n, m].sum()` is an R-index.

    Attributes
    ----------
    baseline_EM
        R-indices of the mean control.
    of_regions_ENMS
        What each region adds to the R-indices of each person.
    """

    baseline_EM: Tensor
    of_regions_ENMS: Tensor


class _Layers(NamedTuple):
    """R-indices as a sum over patterns of g2 after g1, where g1 and g2's first layer are one."""

    to_hidden_ESL: Tensor
    """L = P H: the first hidden units of g2 for the change of each pattern."""
    hidden_bias_EPH: Tensor
    layer2_EHQ: Tensor
    bias2_E1Q: Tensor
    layer3_EQM: Tensor
    bias3_EM: Tensor


def member_contributions(weights: Weights, people_NS: Tensor, steps: int = STEPS) -> Contributions:
    """Contributions by every member, in double precision.

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
    return Contributions(baseline_EM, gradient_ENMS * distance_NS[:, None])


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
    of_regions_NMS = torch.cat([each.of_regions_ENMS.mean(dim=0) for each in portions])
    return portions[0].baseline_EM.mean(dim=0), of_regions_NMS
