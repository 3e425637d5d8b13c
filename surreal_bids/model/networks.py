"""The networks of Tables 3 and 4, for a whole stack of members at once.

Weights are plain tensors in a dictionary, with the members on the leading axis, so that every layer
is one batched matrix product. Bias-free layers and leaky-relu slopes are the paper's; where the
paper and the authors' program differ, the program counts: f gives the change, not the changed
person, and g2 ends in a linear layer.

Shapes: E ensemble members, B people, S regions, M patterns, K latent vectors a person,
H = S // 2 and Q = S // 4 hidden units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

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
