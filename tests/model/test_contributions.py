"""Contributions of regions, against the R-indices that they add up to and against autograd."""

import numpy as np
import pytest
import torch

from surreal_bids.model.networks import (
    CN_MEAN,
    initial_weights,
    member_contributions,
    r_indices,
)
from tests.model.tiny import people

N_MEMBERS, N_PEOPLE = 4, 7


def make_weights(n_regions, n_patterns, seed=0):
    """Weights so large that lines from the mean control pass many bends."""
    seeds = np.random.SeedSequence(seed).spawn(N_MEMBERS)
    weights = initial_weights(n_regions, n_patterns, seeds)
    return {name: 3 * value if 'bias' not in name else value for name, value in weights.items()}


def integrated_gradients(weights, people_NS, points=1000):
    """The definition: autograd at the middle of each of many steps of the line."""
    weights = {name: value.double() for name, value in weights.items()}
    start = torch.full_like(people_NS, CN_MEAN).double()
    total = []
    for m in range(weights['g2.layer3'].shape[-1]):
        summed = torch.zeros((N_MEMBERS, *people_NS.shape), dtype=torch.float64)
        for point in (np.arange(points) + 0.5) / points:
            x = (start + point * (people_NS - start)).expand(N_MEMBERS, -1, -1)
            x = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(r_indices(weights, x)[..., m].sum(), x)
            summed += gradient
        total.append(summed / points * (people_NS - start))
    return torch.stack(total, dim=2)


@pytest.mark.parametrize(
    ('n_regions', 'n_patterns', 'steps'), [(12, 1, 1), (37, 3, 3), (139, 5, 16)]
)
def test_baseline_and_regions_add_up_to_the_r_index(n_regions, n_patterns, steps):
    weights = make_weights(n_regions, n_patterns)
    x = people(N_PEOPLE, 1, n_regions)
    x[0] *= -3
    x[1] = CN_MEAN
    baseline, of_regions = member_contributions(weights, x, steps)
    double = {name: value.double() for name, value in weights.items()}
    expected = r_indices(double, x.double().expand(N_MEMBERS, -1, -1))
    np.testing.assert_allclose(baseline[:, None] + of_regions.sum(-1), expected, atol=1e-9)
    assert (of_regions[:, 1] == 0).all()
    control = torch.ones((N_MEMBERS, 1, n_regions), dtype=torch.float64)
    np.testing.assert_allclose(baseline, r_indices(double, control)[:, 0], atol=1e-9)


@pytest.mark.slow
def test_they_are_the_integrated_gradients_of_autograd():
    weights = make_weights(21, 2)
    x = 1 + 4 * (people(5, 2, 21) - 1)
    assert (x > 0).all()
    expected = integrated_gradients(weights, x)
    largest = expected.abs().max()
    error = {
        steps: (member_contributions(weights, x, steps)[1] - expected).abs().max()
        for steps in (1, 16, 256)
    }
    assert error[256] < 1e-3 * largest
    assert error[16] < 1e-2 * largest
    assert error[1] > 10 * error[256]
