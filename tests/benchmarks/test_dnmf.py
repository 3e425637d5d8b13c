import numpy as np
import pytest
from baselines.dnmf import (
    DiscriminantNMF,
    objective,
    scatter,
    update_expression,
    update_patterns,
)

from surreal_bids.exceptions import UsageError
from tests.benchmarks.data import easy_data

WEIGHTS = [(0.0, 0.0), (0.5, 0.0), (0.0, 0.9), (0.3, 0.6), (2.0, 0.99)]


def problem(seed, n_regions=9, n_people=14, n_patterns=3):
    rng = np.random.default_rng(seed)
    sizes = [(n_regions, n_people), (n_regions, n_patterns), (n_patterns, n_people)]
    X, W, H = (rng.uniform(0.05, 1, size) for size in sizes)
    return X, W, H, np.arange(n_people) >= 5


def test_scatter_within_and_between_adds_up_to_the_total():
    _, _, H, patients = problem(0)
    within, between = scatter(H, patients)
    total = H.var(axis=1) * H.shape[1]
    np.testing.assert_allclose(within + between, total)
    groups = [H[:, patients], H[:, ~patients]]
    np.testing.assert_allclose(within, sum(g.var(axis=1) * g.shape[1] for g in groups))


@pytest.mark.parametrize('weights', WEIGHTS)
@pytest.mark.parametrize('seed', range(4))
def test_no_update_ever_raises_the_objective(weights, seed):
    X, W, H, patients = problem(seed)
    values = [objective(X, W, H, patients, weights)]
    for _ in range(40):
        H = update_expression(X, W, H, patients, weights)
        values.append(objective(X, W, H, patients, weights))
        W = update_patterns(X, W, H, patients, weights)
        values.append(objective(X, W, H, patients, weights))
    assert (np.diff(values) <= 1e-10 * np.abs(values[0])).all()
    assert values[-1] < values[0]


@pytest.mark.parametrize('weights', WEIGHTS)
def test_updates_stand_still_only_where_the_gradient_vanishes(weights):
    """Each factor is sqrt(1 - gradient / positive part), by finite differences of the objective."""
    X, W, H, patients = problem(5)
    new_W = update_patterns(X, W, H, patients, weights)
    new_H = update_expression(X, W, H, patients, weights)
    step = 1e-6
    for i, k in [(0, 0), (4, 1), (8, 2)]:
        bump = np.zeros_like(W)
        bump[i, k] = step
        slope = objective(X, W + bump, H, patients, weights) - objective(
            X, W - bump, H, patients, weights
        )
        assert np.sign(new_W[i, k] - W[i, k]) == -np.sign(slope)
    for k, j in [(0, 0), (1, 6), (2, 13)]:
        bump = np.zeros_like(H)
        bump[k, j] = step
        slope = objective(X, W, H + bump, patients, weights) - objective(
            X, W, H - bump, patients, weights
        )
        assert np.sign(new_H[k, j] - H[k, j]) == -np.sign(slope)


@pytest.mark.parametrize('scale', [0.1, 20.0])
def test_objective_is_blind_to_the_shared_scale(scale):
    X, W, H, patients = problem(6)
    value = objective(X, W, H, patients, (0.3, 0.6))
    scaled = objective(X, W * scale, H / scale, patients, (0.3, 0.6))
    assert scaled == pytest.approx(value)


def test_the_fisher_term_separates_the_groups():
    volumes, is_patient, _ = easy_data(n_people=150)

    def separation(weight):
        fitted = DiscriminantNMF(within=weight, between=weight).fit(volumes, is_patient)
        scores = fitted.transform(volumes)
        gap = scores[is_patient].mean(axis=0) - scores[~is_patient].mean(axis=0)
        return (gap / scores[~is_patient].std(axis=0)).max()

    assert separation(0.5) > separation(0.0)


@pytest.mark.parametrize(('within', 'between'), [(-0.1, 0.1), (0.1, 1.0), (0.1, -0.1)])
def test_weights_without_a_minimum_are_refused(within, between):
    volumes, is_patient, _ = easy_data()
    with pytest.raises(UsageError, match='no minimum'):
        DiscriminantNMF(within=within, between=between).fit(volumes, is_patient)


def test_patterns_have_unit_length_and_smaller_brains_can_be_scored():
    volumes, is_patient, _ = easy_data()
    fitted = DiscriminantNMF().fit(volumes, is_patient)
    np.testing.assert_allclose(np.linalg.norm(fitted.patterns_, axis=0), 1)
    assert np.isfinite(fitted.transform(volumes - 5)).all()
