import numpy as np
import pytest

from surreal_bids.model.estimator import Domain, fit_domain


@pytest.fixture(scope='module')
def sample():
    """1200 people, 7 regions that vary together, with unequal spread."""
    rng = np.random.default_rng(0)
    shared, own = rng.standard_normal((1200, 1)), rng.standard_normal((1200, 7))
    return 1 + np.linspace(0.5, 3, 7) * (shared + 0.5 * own)


def test_distances_are_mahalanobis():
    rng = np.random.default_rng(1)
    X, mean, factor = rng.random((5, 3)), rng.random(3), rng.random((3, 3))
    precision = factor @ factor.T + np.eye(3)
    expected = [np.sqrt((x - mean) @ precision @ (x - mean)) for x in X]
    np.testing.assert_allclose(Domain(mean, precision, 1.0).distances(X), expected)


def test_new_people_of_the_same_population_are_rarely_flagged(sample):
    domain = fit_domain(sample[:600], np.random.default_rng(0))
    assert 0.97 < domain.contains(sample[600:]).mean() <= 1


@pytest.mark.parametrize('region', range(7))
def test_an_unusual_combination_is_flagged_though_each_region_is_usual(sample, region):
    """Flip one region about its mean: its own distribution stays, its relation to others not."""
    domain = fit_domain(sample, np.random.default_rng(0))
    flipped = sample.copy()
    flipped[:, region] = 2 * sample[:, region].mean() - sample[:, region]
    assert domain.distances(flipped).mean() > 1.2 * domain.distances(sample).mean()


def test_far_away_people_are_flagged(sample):
    domain = fit_domain(sample, np.random.default_rng(0))
    assert not domain.contains(sample + 10 * sample.std(axis=0)).any()


def test_the_order_of_features_does_not_matter(sample):
    order = np.random.default_rng(2).permutation(7)
    one = fit_domain(sample, np.random.default_rng(0))
    other = fit_domain(sample[:, order], np.random.default_rng(0))
    np.testing.assert_allclose(one.distances(sample), other.distances(sample[:, order]))
    assert one.limit == pytest.approx(other.limit)
