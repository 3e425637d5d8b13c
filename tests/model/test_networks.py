import numpy as np
import pytest
import torch
from scipy import stats

from surreal_bids.model.networks import (
    decompose,
    discriminate,
    encode,
    hidden_sizes,
    initial_weights,
    network,
    r_indices,
    reconstruct,
    synthesise,
    weight_shapes,
)
from surreal_bids.model.training import member_seeds
from tests.model.reference import load_member, networks

E, K, B, S, M = 2, 4, 5, 13, 3

TABLES_3_AND_4 = {
    'f.encode1': (139, 69),
    'f.encode2': (69, 34),
    'f.latent': (3, 34),
    'f.latent_bias': (1, 34),
    'f.decode1': (34, 69),
    'f.decode2': (69, 139),
    'g1.weight': (139, 3 * 139),
    'g1.weight_bias': (1, 3 * 139),
    'g2.layer1': (139, 69),
    'g2.layer1_bias': (1, 69),
    'g2.layer2': (69, 34),
    'g2.layer2_bias': (1, 34),
    'g2.layer3': (34, 3),
    'g2.layer3_bias': (1, 3),
    'D.layer1': (139, 69),
    'D.layer1_bias': (1, 69),
    'D.layer2': (69, 34),
    'D.layer2_bias': (1, 34),
    'D.layer3': (34, 2),
    'D.layer3_bias': (1, 2),
}


def draw_weights(n_members=E, n_regions=S, n_patterns=M, random_state=0):
    seeds = member_seeds(random_state, n_patterns, (0.1,) * n_members)
    return initial_weights(n_regions, n_patterns, seeds)


def draw(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(1, 0.5, shape))


def double(weights):
    return {name: value.double() for name, value in weights.items()}


def plain_members(weights):
    members = []
    for member in range(E):
        members.append(networks(S, M))
        load_member(members[-1], weights, member)
    return members


def test_shapes_are_those_of_tables_3_and_4():
    assert hidden_sizes(139) == (69, 34)
    assert weight_shapes(139, 3) == TABLES_3_AND_4


@pytest.mark.parametrize('n_patterns', [1, 2, 5])
@pytest.mark.parametrize('n_regions', [12, 13, 15])
def test_weights_have_as_many_numbers_as_linear_layers(n_regions, n_patterns):
    weights = draw_weights(2, n_regions, n_patterns)
    plain = networks(n_regions, n_patterns)
    assert sum(v[0].numel() for v in weights.values()) == sum(
        parameter.numel() for parameter in plain.parameters()
    )
    assert all(value.dtype == torch.float32 for value in weights.values())


def test_f_equals_linear_layers():
    weights = double(draw_weights())
    x, z = draw(E, B, S), draw(E, K, B, M, seed=1)
    change = synthesise(weights, encode(weights, x), z)
    assert change.shape == (E, K, B, S)
    for e, plain in enumerate(plain_members(weights)):
        for k in range(K):
            torch.testing.assert_close(change[e, k], plain['f'](x[e], z[e, k]))


def test_g1_equals_a_linear_layer():
    weights = double(draw_weights())
    y = draw(E, B, S) - 1
    parts = decompose(weights, y)
    assert parts.shape == (E, M, B, S)
    for e, plain in enumerate(plain_members(weights)):
        torch.testing.assert_close(parts[e], torch.stack(plain['g1'](y[e])))


def test_g2_equals_linear_layers():
    weights = double(draw_weights())
    change = draw(E, M, B, S)
    z = reconstruct(weights, change)
    assert z.shape == (E, M, B, M)
    for e, plain in enumerate(plain_members(weights)):
        for pattern in range(M):
            torch.testing.assert_close(z[e, pattern], plain['g2'](change[e, pattern]))


@pytest.mark.parametrize('with_masks', [False, True])
def test_d_equals_linear_layers(with_masks):
    weights = double(draw_weights())
    y = draw(E, B, S)
    masks = tuple(draw(E, B, n, seed=n) for n in hidden_sizes(S)) if with_masks else ()
    logits = discriminate(weights, y, masks)
    assert logits.shape == (E, B, 2)
    for e, plain in enumerate(plain_members(weights)):
        factors = tuple(mask[e] for mask in masks) or None
        torch.testing.assert_close(logits[e], plain['D'](y[e], factors))


def test_r_indices_sum_what_g2_makes_of_the_parts():
    weights = double(draw_weights())
    y = draw(E, B, S)
    actual = r_indices(weights, y)
    assert actual.shape == (E, B, M)
    for e, plain in enumerate(plain_members(weights)):
        torch.testing.assert_close(actual[e], sum(plain['g2'](part) for part in plain['g1'](y[e])))


@pytest.mark.parametrize('order', [(1, 0, 2), (2, 0, 1)])
def test_permuting_members_permutes_outputs(order):
    weights = draw_weights(3)
    permuted = {name: value[list(order)] for name, value in weights.items()}
    y, z = draw(1, B, S).float().expand(3, B, S), draw(1, K, B, M).float().expand(3, K, B, M)
    for outputs in (
        lambda w: r_indices(w, y),
        lambda w: synthesise(w, encode(w, y), z),
        lambda w: discriminate(w, y),
    ):
        assert torch.equal(outputs(permuted), outputs(weights)[list(order)])


def test_inputs_are_left_as_they_are():
    weights = draw_weights()
    y, z = draw(E, B, S).float() - 1, draw(E, K, B, M).float()
    before = y.clone(), z.clone(), {name: value.clone() for name, value in weights.items()}
    r_indices(weights, y)
    synthesise(weights, encode(weights, y), z)
    discriminate(weights, y)
    assert torch.equal(y, before[0])
    assert torch.equal(z, before[1])
    assert all(torch.equal(value, before[2][name]) for name, value in weights.items())


@pytest.mark.parametrize('name', [name for name in TABLES_3_AND_4 if not name.endswith('_bias')])
def test_weights_start_normal_with_sd_a_tenth(name):
    values = draw_weights(20, 40)[name].flatten().numpy()
    assert stats.kstest(values, stats.norm(0, 0.1).cdf).pvalue > 1e-3


@pytest.mark.parametrize('name', [name for name in TABLES_3_AND_4 if name.endswith('_bias')])
def test_biases_start_as_those_of_linear_layers(name):
    n_inputs = draw_weights(1, 40)[name.removesuffix('_bias')].shape[1]
    theirs = torch.nn.Linear(n_inputs, 5000).bias.detach().abs().max().item()
    values = draw_weights(60, 40)[name].flatten().numpy()
    limit = n_inputs**-0.5
    assert theirs == pytest.approx(limit, rel=1e-2)
    assert stats.kstest(values, stats.uniform(-limit, 2 * limit).cdf).pvalue > 1e-3


@pytest.mark.parametrize('n_members', [1, 2, 4])
def test_a_member_starts_the_same_in_any_stack(n_members):
    large, small = draw_weights(5), draw_weights(n_members)
    assert all(torch.equal(large[name][:n_members], small[name]) for name in large)


@pytest.mark.parametrize('random_state', [0, 1])
def test_members_and_seeds_start_differently(random_state):
    weights, other = draw_weights(3), draw_weights(3, random_state=2)
    for name, value in draw_weights(3, random_state=random_state).items():
        assert torch.equal(value, weights[name]) == (random_state == 0)
        assert not torch.equal(value, other[name])
        assert len(np.unique(value.numpy(), axis=0)) == 3


@pytest.mark.parametrize(
    ('names', 'n_weights'), [(('f',), 6), (('g1', 'g2'), 8), (('D',), 6), (('g',), 0)]
)
def test_network_selects_by_the_first_part_of_the_name(names, n_weights):
    selected = network(draw_weights(), *names)
    assert len(selected) == n_weights
    assert {name.split('.')[0] for name in selected} <= set(names)
