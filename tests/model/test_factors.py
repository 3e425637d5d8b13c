import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf

from surreal_bids.model.factors import (
    _of_all,
    compare_with,
    fit_factors,
    fit_nonempty_factors,
    member_weights,
    most_patterns,
    varimax,
)
from surreal_bids.model.networks import encode, r_indices, reconstruct, synthesise, weight_shapes
from surreal_bids.stats.concordance import pattern_c_index

N_REGIONS = 48


def cohort(n_patterns=2, n_cn=150, n_pt=200, seed=0, size=0.25):
    """Correlated regions; each pattern takes up to 2.5 sd from six regions of its own."""
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(3, N_REGIONS))
    people = rng.normal(size=(n_cn + n_pt, 3)) @ loadings + 2 * rng.normal(
        size=(n_cn + n_pt, N_REGIONS)
    )
    cn, pt = people[:n_cn], people[n_cn:]
    mean, sd = cn.mean(axis=0), cn.std(axis=0)
    cn, pt = 1 + (cn - mean) / (10 * sd), 1 + (pt - mean) / (10 * sd)
    severities = rng.uniform(size=(n_pt, n_patterns))
    regions = np.arange(6 * n_patterns).reshape(n_patterns, 6)
    for k, columns in enumerate(regions):
        pt[:, columns] -= size * severities[:, [k]]
    return cn, pt, severities, regions


@pytest.mark.parametrize('n_patterns', [1, 2, 4])
def test_the_true_regions_and_severities_are_found(n_patterns):
    cn, pt, severities, regions = cohort(n_patterns, size=0.35)
    factors = fit_factors(cn, pt, n_patterns)
    assert pattern_c_index(factors.severities(pt), severities) > 0.85
    found = {tuple(np.argsort(-np.abs(column))[:6]) for column in factors.patterns.T}
    assert {tuple(sorted(columns)) for columns in found} == {tuple(r) for r in regions}


def test_the_order_of_regions_and_people_does_not_matter():
    cn, pt, *_ = cohort()
    rng = np.random.default_rng(1)
    columns, rows = rng.permutation(N_REGIONS), rng.permutation(len(pt))
    usual = fit_factors(cn, pt, 2).severities(pt)
    other = fit_factors(cn[:, columns], pt[rows][:, columns], 2).severities(pt[rows][:, columns])
    assert pattern_c_index(other, usual[rows]) > 0.999


def test_patterns_that_are_not_there_lose_all_regions():
    cn, pt, *_ = cohort(1)
    assert not fit_factors(cn, pt, 1).has_empty
    assert fit_factors(cn, pt, 5).has_empty
    assert not fit_nonempty_factors(cn, pt, 5).has_empty


def test_the_severities_are_the_posterior_means():
    """Against the joint normal distribution of severities and regions."""
    cn, pt, *_ = cohort()
    factors = fit_factors(cn, pt, 2)
    joint = factors.patterns @ factors.patterns.T / 12 + factors.covariance
    shift = pt - factors.mean - factors.patterns @ [0.5, 0.5]
    expected = 0.5 + shift @ np.linalg.solve(joint, factors.patterns) / 12
    np.testing.assert_allclose(factors.severities(pt), expected, atol=1e-9)


def test_regions_that_do_not_correlate_are_treated_so():
    """The covariance of such controls is a multiple of the identity, also where N is small."""
    rng = np.random.default_rng(1)
    cn = 1 + 0.1 * rng.normal(size=(100, N_REGIONS))
    pt = 1 + 0.1 * rng.normal(size=(150, N_REGIONS))
    pt[:, :6] -= 0.3 * rng.uniform(size=(150, 1))
    covariance = fit_factors(cn, pt, 1).covariance
    off_diagonal = covariance[~np.eye(N_REGIONS, dtype=bool)]
    assert np.abs(off_diagonal).max() < 0.1 * np.diag(covariance).mean()


def test_the_shrinkage_of_controls_is_carried_over_to_everyone():
    """As Ledoit and Wolf find it in as many people: here, in four times as many."""
    rng = np.random.default_rng(0)
    people = rng.normal(size=(2000, 3)) @ rng.normal(size=(3, 40)) + 3 * rng.normal(size=(2000, 40))
    of_few, of_all = (ledoit_wolf(part)[1] for part in (people[:500], people))
    assert _of_all(of_few, people[:500], people[500:]) == pytest.approx(of_all, rel=0.15)


def test_varimax_undoes_a_rotation():
    simple = np.kron(np.eye(3), np.ones((5, 1)))
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    found = np.abs(varimax(simple @ rotation))
    np.testing.assert_allclose(np.sort(found.sum(axis=0)), [5, 5, 5], atol=1e-3)
    np.testing.assert_allclose(found.max(axis=1), 1, atol=1e-3)


def as_tensors(weights):
    return {name: torch.from_numpy(value)[None] for name, value in weights.items()}


@pytest.mark.parametrize('n_patterns', [1, 2, 5])
def test_a_member_starts_as_the_linear_estimate(n_patterns):
    cn, pt, *_ = cohort(n_patterns, size=0.35)
    factors = fit_nonempty_factors(cn, pt, n_patterns)
    weights = member_weights(factors, np.random.default_rng(0), limit=0.5)
    shapes = weight_shapes(N_REGIONS, n_patterns)
    assert {n: v.shape for n, v in weights.items()} == {
        name: shape for name, shape in shapes.items() if not name.startswith('D.')
    }
    assert max(np.abs(value).max() for value in weights.values()) <= 0.5
    r = r_indices(as_tensors(weights), torch.from_numpy(pt)[None])[0].numpy()
    linear = factors.severities(pt)
    for k in range(n_patterns):
        assert np.corrcoef(r[:, k], linear[:, k])[0, 1] > 0.99
    if n_patterns < 5:
        assert np.abs(r - linear).mean() < 0.05


def test_f_starts_as_a_sum_of_patterns():
    cn, pt, *_ = cohort(2, size=0.35)
    factors = fit_factors(cn, pt, 2)
    weights = as_tensors(member_weights(factors, np.random.default_rng(0), limit=0.5))
    z = torch.rand(1, 1, len(cn), 2, generator=torch.Generator().manual_seed(0)).double()
    change = synthesise(weights, encode(weights, torch.from_numpy(cn)[None]), z)[0, 0].numpy()
    expected = z[0, 0].numpy() @ factors.patterns.T
    assert np.corrcoef(change.ravel(), expected.ravel())[0, 1] > 0.98
    assert np.abs(change - expected).mean() < 0.1 * np.abs(factors.patterns).max()


def test_g2_tells_patterns_apart():
    cn, pt, *_ = cohort(2, size=0.35)
    factors = fit_factors(cn, pt, 2)
    weights = as_tensors(member_weights(factors, np.random.default_rng(0), limit=0.5))
    change = torch.from_numpy(factors.patterns.T[:, None])[None]
    read = reconstruct(weights, change)[0, :, 0].numpy()
    assert (np.diag(read) > 0.9).all()
    np.testing.assert_allclose(read[[0, 1], [1, 0]], 0, atol=0.1)


def test_eight_regions_are_needed_for_every_pattern():
    assert [most_patterns(n) for n in (7, 8, 47, 48, 139)] == [0, 1, 5, 6, 17]


def test_the_comparison_does_not_depend_on_the_order_of_patterns():
    cn, pt, *_ = cohort(2)
    factors = fit_factors(cn, pt, 2)
    linear = factors.severities(pt)
    same = compare_with(factors, pt, linear[:, ::-1])
    assert same == {'agreement': [1.0, 1.0], 'differing': [0.0, 0.0]}
    rng = np.random.default_rng(0)
    other = compare_with(factors, pt, np.stack([linear[:, 0], rng.normal(size=len(pt))], axis=1))
    assert other['agreement'][0] == 1
    assert other['agreement'][1] < 0.65
    assert other['differing'][1] > 0.3
