"""Contributions of regions, against the R-indices that they add up to and against autograd."""

import numpy as np
import pytest
import torch

from surreal_bids.model.contributions import member_contributions
from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.networks import CN_MEAN, initial_weights, r_indices, relabel_patterns
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


def test_they_are_the_integrated_gradients_of_autograd():
    weights = make_weights(21, 2)
    x = 1 + 4 * (people(5, 2, 21) - 1)
    assert (x > 0).all()
    expected = integrated_gradients(weights, x)
    largest = expected.abs().max()
    error = {
        steps: (member_contributions(weights, x, steps).of_regions_ENMS - expected).abs().max()
        for steps in (1, 16, 256)
    }
    assert error[256] < 1e-3 * largest
    assert error[16] < 1e-2 * largest
    assert error[1] > 10 * error[256]


def test_a_region_that_the_network_does_not_see_contributes_nothing():
    weights = make_weights(12, 3)
    weights['g1.weight'][:, 4] = 0
    of_regions = member_contributions(weights, people(N_PEOPLE, 3)).of_regions_ENMS
    assert (of_regions[..., 4] == 0).all()
    assert (of_regions[..., 5] != 0).all()


def test_patterns_in_another_order_have_the_same_contributions():
    weights, x = make_weights(12, 3), people(N_PEOPLE, 3)
    order = torch.tensor([2, 0, 1]).expand(N_MEMBERS, -1)
    before = member_contributions(weights, x)
    after = member_contributions(relabel_patterns(weights, order), x)
    np.testing.assert_allclose(after.baseline_EM, before.baseline_EM[:, order[0]], atol=1e-12)
    expected = before.of_regions_ENMS[:, :, order[0]]
    np.testing.assert_allclose(after.of_regions_ENMS, expected, atol=1e-12)


@pytest.fixture(scope='module')
def gan():
    X = np.vstack([people(40, 0), people(60, 1, severity=0.4)])
    is_patient = np.arange(100) >= 40
    X = 1 + (X - X[:40].mean(axis=0)) / (10 * X[:40].std(axis=0))
    gan = SurrealGAN(
        2, ortho=0.2, repetitions=3, preset='iclr2022', iterations=100, device='cpu',
        hyperparameters={'lr': 0.01},
    )  # fmt: skip
    return gan.fit(X, is_patient), X


def test_those_of_the_consensus_add_up_to_what_transform_gives(gan):
    model, X = gan
    for n_people in (1, 300):
        some = np.resize(X, (n_people, X.shape[1]))
        baseline, of_regions = model.contributions(some)
        assert of_regions.shape == (n_people, 2, X.shape[1])
        total = baseline + of_regions.sum(-1)
        np.testing.assert_allclose(total, model.transform(some), atol=1e-5)
