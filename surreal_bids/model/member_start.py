"""The start of a member: f, g1 and g2 in closed form from linear factors.

G = g2(g1(y)) is the linear estimate of the severities, and f(x, z) = sum_k z_k P_k.

Shapes: S regions, M patterns, H = S // 2 and Q = S // 4 hidden units.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surreal_bids.model.factors import Factors
from surreal_bids.model.networks import SLOPE, hidden_sizes

Floats = NDArray[np.floating]

JITTER = 0.003
"""Standard deviation of what is added to the weights of f and g2, so that units can diverge."""
GAIN, GATE, DECODER = 0.25, 0.45, 0.3
"""Usual largest weight of g2's first layer, and weights of f's gates and first decoder: below the
clip limit of 0.5, with room to train."""
LARGEST_START = 0.45
"""Largest weight of g2's first layer where hidden units are few."""
CODE = 2.0
"""Value of every unit of f's code for a mean control."""
CHORD = 0.6
"""f is exact at this z; a gate of sigmoids is nearly linear around it."""


def member_weights(factors: Factors, rng: np.random.Generator, limit: float) -> dict[str, Floats]:
    """Weights of f, g1 and g2 of one member, in closed form, none beyond plus or minus `limit`."""
    decomposer, gain = _decomposer(factors, limit)
    weights = {
        **decomposer,
        **_reconstructor(factors.patterns, gain, rng),
        **_mapper(factors.patterns, rng),
    }
    return {name: np.clip(value, -limit, limit) for name, value in weights.items()}


def _decomposer(factors: Factors, limit: float) -> tuple[dict[str, Floats], Floats]:
    """g1: block k is B_k P_k'; and by how much a block too large for the limit was reduced."""
    projector, offset = factors.projector()
    patterns = factors.patterns
    largest = np.maximum(np.abs(projector).max(axis=0), np.abs(offset))
    reduction = np.minimum(limit / (largest * np.abs(patterns).max(axis=0)), 1.0)
    reduced = patterns * reduction
    n_regions, n_patterns = patterns.shape
    weight = np.einsum('sm,tm->smt', projector, reduced).reshape(n_regions, -1)
    bias = (offset[:, None] * reduced.T).reshape(1, n_patterns * n_regions)
    return {'g1.weight': weight, 'g1.weight_bias': bias}, 1 / reduction


def _reconstructor(patterns: Floats, gain: Floats, rng: np.random.Generator) -> dict[str, Floats]:
    """g2: a change r_k P_k is taken to r_k, through pairs of units of opposite sign.

    leaky(x) - leaky(-x) = (1 + slope) x, so that such a pair is linear.
    """
    n_regions, n_patterns = patterns.shape
    hidden, quarter = hidden_sizes(n_regions)
    n1, n2 = hidden // (2 * n_patterns), quarter // (2 * n_patterns)
    readers = np.linalg.pinv(patterns).T * gain
    layers = [
        np.zeros((n_regions, hidden)),
        np.zeros((hidden, quarter)),
        np.zeros((quarter, n_patterns)),
    ]
    for k in range(n_patterns):
        largest = np.abs(readers[:, k]).max()
        needed = largest / (n1 * n2 * np.square(LARGEST_START * (1 + SLOPE)))
        gain_of_reader = np.clip(needed, GAIN, LARGEST_START)
        reader = readers[:, k] * gain_of_reader / largest
        weight = np.sqrt(largest / (gain_of_reader * n1 * n2)) / (1 + SLOPE)
        first = np.repeat([1.0, -1.0], n1)
        second = np.repeat([1.0, -1.0], n2)
        rows = slice(2 * n1 * k, 2 * n1 * (k + 1))
        columns = slice(2 * n2 * k, 2 * n2 * (k + 1))
        layers[0][:, rows] = np.outer(reader, first)
        layers[1][rows, columns] = weight * np.outer(first, second)
        layers[2][columns, k] = weight * second
    weights: dict[str, Floats] = {}
    for number, layer in enumerate(layers, start=1):
        weights[f'g2.layer{number}'] = layer + rng.normal(0, JITTER, layer.shape)
        weights[f'g2.layer{number}_bias'] = np.zeros((1, layer.shape[1]))
    return weights


def _mapper(patterns: Floats, rng: np.random.Generator) -> dict[str, Floats]:
    """f: the code of a control is the same everywhere; pairs of gates pass on z_k.

    sigmoid(a) - sigmoid(-a) = tanh(a / 2), nearly linear in z.
    """
    n_regions, n_patterns = patterns.shape
    hidden, quarter = hidden_sizes(n_regions)
    n_gates, n_units = quarter // (2 * n_patterns), hidden // n_patterns
    latent = np.zeros((n_patterns, quarter))
    decode1, decode2 = np.zeros((quarter, hidden)), np.zeros((hidden, n_regions))
    opened = np.tanh(GATE * CHORD / 2) / CHORD
    unit = n_gates * DECODER * CODE * opened
    before_leaky = np.where(patterns < 0, patterns / SLOPE, patterns)
    for k in range(n_patterns):
        sign = np.repeat([1.0, -1.0], n_gates)
        gates = slice(2 * n_gates * k, 2 * n_gates * (k + 1))
        units = slice(n_units * k, n_units * (k + 1))
        latent[k, gates] = GATE * sign
        decode1[gates, units] = DECODER * sign[:, None]
        decode2[units] = before_leaky[:, k] / (n_units * unit)
    jittered = {
        'f.encode1': np.full((n_regions, hidden), 1 / n_regions),
        'f.encode2': np.full((hidden, quarter), CODE / hidden),
        'f.latent': latent,
        'f.decode1': decode1,
    }
    return {
        **{name: value + rng.normal(0, JITTER, value.shape) for name, value in jittered.items()},
        'f.latent_bias': np.zeros((1, quarter)),
        'f.decode2': decode2,
    }
