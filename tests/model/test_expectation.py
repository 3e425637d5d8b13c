import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf
from sklearn.linear_model import Lasso

from surreal_bids.model import expectation
from surreal_bids.model.factors import (
    Schedule,
    log_evidence,
    make_samples,
    maximise,
    rotated_starts,
    varimax,
)
from tests.model.test_factors import cohort


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


def test_the_shrinkage_of_controls_is_carried_over_to_everyone():
    """As Ledoit and Wolf find it in as many participants: here, in four times as many."""
    rng = np.random.default_rng(0)
    people = rng.normal(size=(2000, 3)) @ rng.normal(size=(3, 40)) + 3 * rng.normal(size=(2000, 40))
    of_all = ledoit_wolf(people)[1]
    assert float(samples_of(people[:500], people[500:]).shrinkage) == pytest.approx(
        of_all, rel=0.15
    )


def test_varimax_undoes_a_rotation():
    simple = torch.from_numpy(np.kron(np.eye(3), np.ones((5, 1))))
    rotation = torch.from_numpy(np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0])
    found = varimax((simple @ rotation)[None])[0].abs().numpy()
    np.testing.assert_allclose(np.sort(found.sum(axis=0)), [5, 5, 5], atol=1e-3)
    np.testing.assert_allclose(found.max(axis=1), 1, atol=1e-3)


@pytest.mark.parametrize('correlation', [0.0, 0.5])
def test_moments_in_the_box_are_those_of_a_fine_grid(correlation):
    """Severities of two patterns by numerical integration, with the density of the copula."""
    cn, pt, *_ = cohort(2, n_pt=40)
    samples = samples_of(cn, pt)
    patterns = rotated_starts(samples, [None], 2)[:1]
    precision = torch.linalg.inv(samples.covariance)
    r = torch.tensor([[[1, correlation], [correlation, 1]]], dtype=torch.float64)
    moments = expectation._box_moments(samples, patterns, precision, r)
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
        found = expectation._descend(found, *arguments)
    np.testing.assert_allclose(found[0], expected, atol=1e-4)


def test_steps_are_short_enough_for_any_two_regions_that_determine_each_other():
    """A start that is nearly orthogonal to their difference would make the descent diverge."""
    n_regions = 145
    for first in range(0, n_regions - 17, 8):
        precision = torch.eye(n_regions, dtype=torch.float64)
        precision[first, first + 17] = precision[first + 17, first] = -0.8
        estimate = expectation._largest_eigenvalue(precision[None])
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
    alone = expectation._descend(torch.zeros(2, 3, 3, dtype=torch.float64), *arguments)
    second[0] = torch.nan
    found = expectation._descend(torch.zeros(2, 3, 3, dtype=torch.float64), *arguments)
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
    fits = expectation.Solutions(both, samples.covariance, identity)
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
    explained = expectation.Explained(
        expectation._changes_along(samples, of_all), patterns, of_all.mT @ of_all
    )
    share, everyone = expectation._share(samples), expectation._of_everyone(samples)
    expected = torch.linalg.inv(everyone + share * explained.scatter)
    found = expectation._without(torch.linalg.inv(everyone), explained, share)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-6)
    left = pt - cn.mean(axis=0) - severities @ patterns[0].numpy().T
    scatter = samples.pt_scatter + explained.scatter
    np.testing.assert_allclose(scatter[0], left.T @ left, atol=1e-9)
