"""Shrinkage against the formulas of the paper written out with lambda and theta."""

import numpy as np
import pytest
from scipy import integrate, stats

from surreal_bids.harmonization.empirical_bayes import (
    SitePrior,
    least_squares,
    moments_prior,
    posterior_ratio,
    posterior_shift,
    shrink,
)


def textbook_iteration(z, prior):
    """One feature after another, by equations 3.1 of Johnson et al., run until nothing moves."""
    variance, mean = prior.ratio_variance, prior.ratio_mean
    lambda_ = (2 * variance + mean**2) / variance
    theta = (mean * variance + mean**3) / variance
    n = len(z)
    answer = []
    for column in z.T:
        shift, ratio = column.mean(), column.var(ddof=1)
        for _ in range(500):
            shift = (n * prior.shift_variance * column.mean() + ratio * prior.shift_mean) / (
                n * prior.shift_variance + ratio
            )
            ratio = (theta + ((column - shift) ** 2).sum() / 2) / (n / 2 + lambda_ - 1)
        answer.append((shift, ratio))
    return np.array(answer).T


@pytest.mark.parametrize('n_people', [3, 12, 70])
def test_shrinks_as_the_paper_says(n_people):
    rng = np.random.default_rng(n_people)
    z = rng.normal(0.4, 1.3, (n_people, 9)) + rng.normal(0, 0.5, 9)
    prior = moments_prior(*least_squares(z))
    shift, ratio = shrink(z, prior)
    slow_shift, slow_ratio = textbook_iteration(z, prior)
    np.testing.assert_allclose(shift, slow_shift, atol=2e-4)
    np.testing.assert_allclose(ratio, slow_ratio, rtol=2e-4)


def test_moments_are_those_of_the_inverse_gamma():
    prior = SitePrior(0.0, 1.0, 1.2, 0.3)
    lambda_ = 2 + prior.ratio_mean**2 / prior.ratio_variance
    theta = prior.ratio_mean * (lambda_ - 1)
    density = stats.invgamma(lambda_, scale=theta)
    assert density.mean() == pytest.approx(1.2)
    assert density.var() == pytest.approx(0.3)
    assert posterior_ratio(np.array([0.0]), 0, prior)[0] == pytest.approx(1.2)


def test_posterior_shift_is_the_mean_of_prior_times_likelihood():
    prior = SitePrior(0.3, 0.5, 1.0, 0.1)
    x = np.array([0.9, 1.4, 0.2])

    def joint(g):
        likelihood = stats.norm(g, np.sqrt(0.8)).pdf(x).prod()
        return likelihood * stats.norm(0.3, np.sqrt(0.5)).pdf(g)

    mass = integrate.quad(joint, -8, 8)[0]
    mean = integrate.quad(lambda g: g * joint(g), -8, 8)[0] / mass
    ours = posterior_shift(np.array([x.mean()]), np.array([0.8]), 3, prior)
    assert ours[0] == pytest.approx(mean, rel=1e-8)


@pytest.mark.parametrize('n_people', [1, 2])
def test_too_few_people_have_no_variance_of_their_own(n_people):
    z = np.random.default_rng(0).normal(size=(n_people, 5))
    shift, ratio = least_squares(z)
    np.testing.assert_allclose(shift, z.mean(axis=0))
    np.testing.assert_array_equal(ratio, 1)


def test_equal_variances_make_no_nan():
    column = np.array([-1.0, 0.0, 1.0, 2.0])
    z = np.column_stack([column, column + 1, column - 3])
    shift, ratio = shrink(z, moments_prior(*least_squares(z)))
    assert np.isfinite(shift).all()
    np.testing.assert_allclose(ratio, column.var(ddof=1), rtol=1e-12)


def test_a_feature_that_stands_still_is_not_scaled():
    z = np.array([[0.5, 1.0], [0.5, -1.0], [0.5, 0.3]])
    assert least_squares(z)[1][0] == 1
