import warnings

import numpy as np
import pytest
from baselines import opnmf
from baselines.opnmf import factorise, nonnegative_svd, opnmf_update
from sklearn.decomposition._nmf import _initialize_nmf
from sklearn.exceptions import ConvergenceWarning


def mixed_data(n_regions=17, n_people=40, rank=3, seed=0):
    """Non-negative data (S, N) near a product of `rank` patterns."""
    rng = np.random.default_rng(seed)
    data = rng.exponential(size=(n_regions, rank)) @ rng.exponential(size=(rank, n_people))
    return data + 0.3 * rng.uniform(size=data.shape)


def slow_update(W, data):
    """The rule of Yang and Oja entry by entry, from the data rather than their Gram matrix."""
    projected = W @ (W.T @ data)
    updated = np.empty_like(W)
    for i in range(W.shape[0]):
        for k in range(W.shape[1]):
            weight = W[:, k] @ data
            updated[i, k] = W[i, k] * (data[i] @ weight) / (projected[i] @ weight)
    return updated / np.linalg.svd(updated, compute_uv=False)[0]


@pytest.mark.parametrize('rank', [1, 3, 5])
def test_start_equals_that_of_scikit_learn(rank):
    data = mixed_data(rank=6)
    expected, _ = _initialize_nmf(data, rank, init='nndsvd', random_state=0)
    np.testing.assert_allclose(nonnegative_svd(data, rank), expected, atol=1e-6)


@pytest.mark.parametrize('rank', [2, 4])
def test_update_equals_the_slow_rule(rank):
    data = mixed_data()
    W = np.random.default_rng(1).uniform(0.1, 1, (17, rank))
    np.testing.assert_allclose(opnmf_update(W, data @ data.T), slow_update(W, data), rtol=1e-9)


def separate_data(sizes, noise, seed=2):
    """Patterns that do not overlap, of so many regions each, and data (S, N) near them."""
    rng = np.random.default_rng(seed)
    blocks = np.repeat(np.eye(len(sizes)), sizes, axis=0)
    data = blocks @ rng.exponential(size=(len(sizes), 30))
    return blocks / np.linalg.norm(blocks, axis=0), data + noise * rng.uniform(size=data.shape)


@pytest.mark.parametrize('sizes', [(5, 4), (5, 4, 3), (2, 8, 6, 3)])
def test_patterns_are_nonnegative_and_almost_orthonormal(sizes):
    _, data = separate_data(sizes, noise=0.1)
    W = factorise(data, len(sizes))
    assert (W >= 0).all()
    np.testing.assert_allclose(W.T @ W, np.eye(len(sizes)), atol=0.05)


@pytest.mark.parametrize('sizes', [(5, 4, 3), (2, 8, 6)])
def test_patterns_that_do_not_overlap_are_found(sizes, monkeypatch):
    monkeypatch.setattr(opnmf, 'TOLERANCE', 1e-6)
    patterns, data = separate_data(sizes, noise=0)
    W = factorise(data, 3)
    np.testing.assert_allclose(W @ (W.T @ data), data, atol=0.02)
    np.testing.assert_allclose(W, patterns[:, np.argmax(patterns.T @ W, axis=0)], atol=0.01)


def test_first_pattern_carries_most():
    data = mixed_data()
    carried = np.linalg.norm(factorise(data, 3).T @ data, axis=1)
    assert (np.diff(carried) <= 0).all()


def test_too_few_iterations_are_reported(monkeypatch):
    monkeypatch.setattr(opnmf, 'MAX_ITERATIONS', 2)
    with pytest.warns(ConvergenceWarning, match='2 iterations'):
        factorise(mixed_data(), 3)


@pytest.mark.parametrize('rank', [2, 3, 5])
def test_result_equals_that_of_the_package_opnmf(rank):
    package = pytest.importorskip('opnmf.opnmf', reason='opnmf 0.0.2 is not installed')
    data = mixed_data(rank=rank, seed=rank)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        expected, _, _ = package.opnmf(data, rank, tol=opnmf.TOLERANCE)
    np.testing.assert_allclose(factorise(data, rank), expected, atol=1e-6)
