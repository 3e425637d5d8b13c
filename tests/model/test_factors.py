import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.covariance import ledoit_wolf
from sklearn.linear_model import Lasso, RidgeCV
from sklearn.model_selection import cross_val_predict

import surreal_bids.model.factors as em
from surreal_bids.exceptions import DataError
from surreal_bids.model.factors import (
    HIGHER_PENALTIES,
    Schedule,
    fit_factors,
    fit_known,
    fit_samples,
    log_evidence,
    make_samples,
    maximise,
    member_weights,
    rotated_starts,
    varimax,
)
from surreal_bids.model.networks import encode, r_indices, synthesise, weight_shapes
from surreal_bids.stats.concordance import pattern_c_index

N_REGIONS = 48


@pytest.fixture
def one_start(monkeypatch):
    """Factors from one start with one penalty, for tests that are not about their choice."""
    monkeypatch.setattr('surreal_bids.model.factors.ROTATIONS', 0)
    monkeypatch.setattr('surreal_bids.model.factors.HIGHER_PENALTIES', ())


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


@pytest.mark.slow
@pytest.mark.parametrize('n_patterns', [1, 3])
def test_the_true_regions_and_severities_are_found(n_patterns):
    cn, pt, severities, regions = cohort(n_patterns, size=0.35)
    factors = fit_factors(cn, pt, n_patterns)
    assert pattern_c_index(factors.severities(pt), severities) > 0.85
    found = {tuple(np.argsort(-np.abs(column))[:6]) for column in factors.patterns.T}
    assert {tuple(sorted(columns)) for columns in found} == {tuple(r) for r in regions}


@pytest.mark.slow
def test_the_order_of_regions_and_people_does_not_matter(one_start):
    cn, pt, *_ = cohort()
    rng = np.random.default_rng(1)
    columns, rows = rng.permutation(N_REGIONS), rng.permutation(len(pt))
    usual = fit_factors(cn, pt, 2).severities(pt)
    other = fit_factors(cn[:, columns], pt[rows][:, columns], 2).severities(pt[rows][:, columns])
    assert pattern_c_index(other, usual[rows]) > 0.999


def everyone(cn, pt):
    return np.arange(len(cn)), np.arange(len(pt))


def test_samples_side_by_side_are_those_alone():
    cn, pt, *_ = cohort(2)
    some = (np.arange(100), np.arange(50, 200))
    together = fit_samples(cn, pt, [everyone(cn, pt), some], 2)
    alone = fit_samples(cn[:100], pt[50:], [everyone(cn[:100], pt[50:])], 2)[0]
    np.testing.assert_allclose(together[1].patterns, alone.patterns, atol=1e-5)
    np.testing.assert_allclose(together[1].mean, cn[:100].mean(axis=0))


@pytest.mark.slow
def test_known_patterns_are_fitted_to_this_sample(one_start):
    """The start tells which patterns are meant, and in which order, not what they look like."""
    cn, pt, severities, _ = cohort(3, 90, 130, size=0.35)
    found = fit_factors(cn, pt, 3)
    rng = np.random.default_rng(0)
    turned = found.patterns[:, [2, 0, 1]]
    rough = turned * rng.uniform(0.5, 1.5, turned.shape) + rng.normal(0, 0.01, turned.shape)
    again = fit_known(cn, pt, rough, found.penalty)
    assert pattern_c_index(again.severities(pt), severities) > 0.8
    own, others = again.severities(pt), found.severities(pt)[:, [2, 0, 1]]
    correlation = np.corrcoef(own.T, others.T)[:3, 3:]
    assert np.diag(correlation).min() > 0.95


def mixed_cohort(seed, correlation=0.4, n_cn=300, n_pt=500):
    """Two dense patterns that share half of their regions, with correlated severities."""
    rng = np.random.default_rng(seed)
    cn, pt, *_ = cohort(0, n_cn, n_pt, seed)
    normal = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], size=n_pt)
    severities = norm.cdf(normal)
    losses = np.zeros((2, N_REGIONS))
    losses[0, :24], losses[1, 12:36] = rng.uniform(0.05, 0.3, size=(2, 24))
    return cn, pt - severities @ losses, severities


@pytest.mark.slow
def test_dense_overlapping_patterns_with_correlated_severities_are_told_apart():
    cn, pt, severities = mixed_cohort(0)
    factors = fit_factors(cn, pt, 2)
    found = factors.severities(pt)
    assert pattern_c_index(found, severities) > 0.87
    ridge = cross_val_predict(RidgeCV(np.logspace(-3, 3, 13)), 10 * (pt - 1), severities, cv=5)
    assert pattern_c_index(found, severities) > pattern_c_index(ridge, severities) - 0.02
    assert factors.correlation[0, 1] > 0.1


def test_penalties_within_a_standard_error_are_as_likely():
    rng = np.random.default_rng(0)
    best, noise = rng.normal(size=(2, 400))
    # Standard errors of the differences are 0.05: the second is worse by less, the third by more.
    left_out = {0.7: best, 1.0: best - 0.02 + noise - noise.mean(), 1.5: best - 0.1 + noise}
    assert em._as_likely(left_out) == [0.7, 1.0]
    assert em._as_likely({0.7: best - 1, 1.0: best}) == [1.0]


def focal_and_diffuse(seed, n=60):
    """A strong pattern of six regions, and a weak one of 36 others."""
    rng = np.random.default_rng(seed)
    cn, pt, *_ = cohort(0, n, n, seed)
    severities, losses = rng.uniform(size=(n, 2)), np.zeros((2, N_REGIONS))
    losses[0, :6], losses[1, -36:] = 0.4, rng.uniform(0.04, 0.12, size=36)
    return cn, pt - severities @ losses, severities


@pytest.mark.slow
def test_no_higher_penalty_is_taken_that_loses_a_diffuse_pattern():
    """With the highest one, which patients left out allow, the c-index is about 0.7."""
    cn, pt, severities = focal_and_diffuse(0)
    factors = fit_factors(cn, pt, 2)
    assert factors.penalty < max(HIGHER_PENALTIES)
    assert pattern_c_index(factors.severities(pt), severities) > 0.8


@pytest.mark.slow
def test_focal_patterns_are_sharpened():
    factors = fit_factors(*cohort(2, size=0.35)[:2], 2)
    assert factors.penalty in HIGHER_PENALTIES


def test_regions_may_grow_too(one_start):
    """Ventricles: what is larger in patients is part of a pattern, with the other sign."""
    cn, pt, severities, regions = cohort(2, size=0.35)
    pt[:, regions[0][:3]] += 0.7 * severities[:, [0]]
    patterns = fit_factors(cn, pt, 2).patterns
    of_first = patterns[:, np.abs(patterns[regions[0]]).sum(axis=0).argmax()]
    assert (of_first[regions[0][:3]] > 0.2).all()
    assert (of_first[regions[0][3:]] < -0.2).all()


def test_the_severities_are_the_posterior_means(one_start):
    """Against the joint normal distribution of severities and regions."""
    cn, pt, *_ = cohort()
    factors = fit_factors(cn, pt, 2)
    spread = factors.patterns @ factors.correlation / 12
    joint = spread @ factors.patterns.T + factors.covariance
    shift = pt - factors.mean - factors.patterns @ [0.5, 0.5]
    expected = 0.5 + shift @ np.linalg.solve(joint, spread)
    np.testing.assert_allclose(factors.severities(pt), expected, atol=1e-9)


def as_tensors(weights):
    return {name: torch.from_numpy(value)[None] for name, value in weights.items()}


@pytest.mark.slow
@pytest.mark.parametrize('n_patterns', [1, 5])
def test_a_member_starts_as_the_linear_estimate(one_start, n_patterns):
    cn, pt, *_ = cohort(n_patterns, size=0.35)
    factors = fit_factors(cn, pt, n_patterns)
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


def test_f_starts_as_a_sum_of_patterns(one_start):
    cn, pt, *_ = cohort(2, size=0.35)
    factors = fit_factors(cn, pt, 2)
    weights = as_tensors(member_weights(factors, np.random.default_rng(0), limit=0.5))
    z = torch.rand(1, 1, len(cn), 2, generator=torch.Generator().manual_seed(0)).double()
    change = synthesise(weights, encode(weights, torch.from_numpy(cn)[None]), z)[0, 0].numpy()
    expected = z[0, 0].numpy() @ factors.patterns.T
    assert np.corrcoef(change.ravel(), expected.ravel())[0, 1] > 0.98
    assert np.abs(change - expected).mean() < 0.1 * np.abs(factors.patterns).max()


@pytest.mark.slow
def test_patterns_that_no_penalty_can_tell_apart_are_refused():
    cn, *_ = cohort(0, 40, 40)
    with pytest.raises(DataError, match='3 patterns'):
        fit_factors(cn, cn.copy(), 3)


def samples_of(cn, pt, in_cn=None, in_pt=None):
    marks = (np.ones((1, len(cn))), np.ones((1, len(pt))))
    marks = marks if in_cn is None else (in_cn, in_pt)
    return make_samples(cn, pt, *marks, 'cpu')


def test_samples_are_summarised_as_their_own_tables_would_be():
    """Against NumPy and scikit-learn, for a sample of some participants."""
    cn, pt, *_ = cohort(2)
    rng = np.random.default_rng(0)
    in_cn, in_pt = rng.random((2, len(cn))) < 0.7, rng.random((2, len(pt))) < 0.7
    samples = samples_of(cn, pt, in_cn, in_pt)
    for row in range(2):
        controls, patients = cn[in_cn[row]], pt[in_pt[row]]
        change = patients - controls.mean(axis=0)
        covariance, _ = ledoit_wolf(controls)
        np.testing.assert_allclose(samples.mean[row], controls.mean(axis=0))
        np.testing.assert_allclose(samples.mean_change[row], change.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(samples.pt_scatter[row], change.T @ change, atol=1e-9)
        np.testing.assert_allclose(samples.covariance[row], covariance, atol=1e-9)


def test_varimax_undoes_a_rotation():
    simple = torch.from_numpy(np.kron(np.eye(3), np.ones((5, 1))))
    rotation = torch.from_numpy(np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0])
    found = varimax((simple @ rotation)[None])[0].abs().numpy()
    np.testing.assert_allclose(np.sort(found.sum(axis=0)), [5, 5, 5], atol=1e-3)
    np.testing.assert_allclose(found.max(axis=1), 1, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize('correlation', [0.0, 0.5])
def test_moments_in_the_box_are_those_of_a_fine_grid(correlation):
    """Severities of two patterns by numerical integration, with the density of the copula."""
    cn, pt, *_ = cohort(2, n_pt=40)
    samples = samples_of(cn, pt)
    patterns = rotated_starts(samples, [None], 2)[:1]
    precision = torch.linalg.inv(samples.covariance)
    r = torch.tensor([[[1, correlation], [correlation, 1]]], dtype=torch.float64)
    moments = em._box_moments(samples, patterns, precision, r)
    axis = (torch.arange(300, dtype=torch.float64) + 0.5) / 300
    grid = torch.cartesian_prod(axis, axis)
    normal = torch.special.ndtri(grid)
    copula = -((normal @ (torch.linalg.inv(r[0]) - torch.eye(2))) * normal).sum(dim=1) / 2
    away = samples.pt[:, None] - samples.mean[0] - (grid @ patterns[0].T)[None]
    log = copula - torch.einsum('nqs,st,nqt->nq', away, precision[0], away) / 2
    weights = torch.softmax(log, dim=1)
    away = (moments.mean[0] - weights @ grid).abs()
    assert away.mean() < 0.012
    assert away.max() < 0.06
    second = torch.einsum('nq,qm,qk->mk', weights, grid, grid)
    np.testing.assert_allclose(moments.second[0], second, rtol=0.03)


@pytest.mark.parametrize('sign', [1, -1])
def test_patterns_minimise_the_penalised_squares(sign):
    """Against scikit-learn's lasso, whose design is that of regions times patterns.

    Severities that oppose each other (-1) occur under the normal prior, which is not bounded.
    """
    rng = np.random.default_rng(0)
    n_regions, n_patterns = 12, 2
    root = rng.normal(size=(n_regions, n_regions)) + 2 * np.eye(n_regions)
    severities = rng.uniform(size=(50, n_patterns)) * [1, sign]
    truth = -np.abs(rng.normal(size=(n_regions, n_patterns))) * (rng.random((n_regions, 2)) < 0.5)
    change = severities @ truth.T + rng.normal(size=(50, n_regions)) @ np.linalg.inv(root)
    weight = 4.0
    design = np.kron(severities, root.T)
    lasso = Lasso(
        weight / len(design), fit_intercept=False, positive=True, tol=1e-12, max_iter=10**6
    )
    expected = -lasso.fit(-design, -(change @ root).ravel() * -1).coef_.reshape(n_patterns, -1).T
    start = torch.zeros(1, n_regions, n_patterns, dtype=torch.float64)
    arguments = [
        torch.from_numpy(values)[None]
        for values in (
            root @ root.T,
            severities.T @ severities,
            change.T @ severities,
            np.full((n_regions, n_patterns), weight),
            -np.ones(n_regions),
        )
    ]
    found = start
    for _ in range(40):
        found = em._descend(found, *arguments)
    np.testing.assert_allclose(found[0], expected, atol=1e-4)


def test_steps_are_short_enough_for_any_two_regions_that_determine_each_other():
    """A start that is nearly orthogonal to their difference would make the descent diverge."""
    n_regions = 145
    for first in range(0, n_regions - 17, 8):
        precision = torch.eye(n_regions, dtype=torch.float64)
        precision[first, first + 17] = precision[first + 17, first] = -0.8
        estimate = em._largest_eigenvalue(precision[None])
        assert 1.3 < estimate.item() < 2.0


def test_one_sample_that_is_not_finite_leaves_the_others_alone():
    rng = np.random.default_rng(1)
    severities = torch.from_numpy(rng.uniform(size=(2, 50, 3)))
    second, change = severities.mT @ severities, -severities.mT @ severities
    arguments = [
        torch.eye(3, dtype=torch.float64).expand(2, -1, -1),
        second,
        change,
        torch.ones(2, 3, 3, dtype=torch.float64),
        -torch.ones(2, 3, dtype=torch.float64),
    ]
    alone = em._descend(torch.zeros(2, 3, 3, dtype=torch.float64), *arguments)
    second[0] = torch.nan
    found = em._descend(torch.zeros(2, 3, 3, dtype=torch.float64), *arguments)
    torch.testing.assert_close(found[1], alone[1])


def test_evidence_is_higher_for_the_true_patterns_than_for_a_rotation():
    """The box tells them apart; all rotations of a normal prior are the same."""
    cn, pt, _, regions = cohort(2, n_pt=400, size=0.35)
    samples = samples_of(cn, pt).repeat(2)
    true = torch.zeros(pt.shape[1], 2, dtype=torch.float64)
    for k, columns in enumerate(regions):
        true[columns, k] = -0.35
    turn = torch.tensor([[0.8, 0.6], [-0.6, 0.8]], dtype=torch.float64)
    identity = torch.eye(2, dtype=torch.float64).expand(2, -1, -1)
    both = torch.stack([true, true @ turn])
    fits = em.Solutions(both, samples.covariance, identity)
    evidence = log_evidence(samples, fits).mean(dim=1)
    assert evidence[0] > evidence[1] + 0.1


def test_more_iterations_do_not_leave_the_truth():
    cn, pt, severities, _ = cohort(2, n_pt=300, size=0.35)
    samples = samples_of(cn, pt)
    start = torch.from_numpy(np.linalg.lstsq(severities, pt - cn.mean(axis=0), rcond=None)[0].T)
    penalty = torch.tensor([1.0], dtype=torch.float64)
    fits = maximise(samples, start[None], penalty, Schedule(60, 0))
    similarity = np.corrcoef(fits.patterns[0].numpy().T, start.numpy().T)[:2, 2:]
    assert np.diag(similarity).min() > 0.95


@pytest.mark.parametrize('empty', [False, True])
def test_the_precision_without_what_patterns_explain_is_the_inverse(empty):
    cn, pt, severities, _ = cohort(2)
    samples = samples_of(cn, pt)
    patterns = rotated_starts(samples, [None], 2)[:1]
    if empty:
        patterns[:, :, 1] = 0
    of_all = torch.from_numpy(severities)[None]
    explained = em.Explained(em._changes_along(samples, of_all), patterns, of_all.mT @ of_all)
    share, everyone = em._share(samples), em._of_everyone(samples)
    expected = torch.linalg.inv(everyone + share * explained.scatter)
    found = em._without(torch.linalg.inv(everyone), explained, share)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-6)
    left = pt - cn.mean(axis=0) - severities @ patterns[0].numpy().T
    scatter = samples.pt_scatter + explained.scatter
    np.testing.assert_allclose(scatter[0], left.T @ left, atol=1e-9)
