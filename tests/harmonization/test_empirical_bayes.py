"""Shrinkage against the formulas of the paper written out with lambda and theta."""

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from surreal_bids.harmonization.empirical_bayes import (
    ShiftPrior,
    SitePrior,
    least_squares,
    moments_prior,
    pooled_prior,
    posterior_ratio,
    posterior_shift,
    shift_prior,
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


@pytest.mark.slow
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
    prior = moments_prior(*least_squares(z))
    shift, ratio = shrink(z, prior)
    assert np.isfinite(shift).all()
    all_steps = shrink(z, prior, tolerance=-1)  # It is never met.
    np.testing.assert_allclose(all_steps[0], shift, atol=1e-3)
    np.testing.assert_allclose(ratio, column.var(ddof=1), rtol=1e-12)


def test_a_feature_that_stands_still_is_not_scaled():
    z = np.array([[0.5, 1.0], [0.5, -1.0], [0.5, 0.3]])
    assert least_squares(z)[1][0] == 1


def covarying_sites(rng, n_features=12, n_sites=40, size=25):
    """Participants and shifts of sites, each with covariances of its own."""
    mixing = rng.normal(size=(n_features, n_features))
    within = mixing @ mixing.T / n_features + 0.2 * np.eye(n_features)
    between = 0.5 * np.outer(np.linspace(-1, 2, n_features), np.linspace(-1, 2, n_features))
    between += 0.05 * np.eye(n_features)
    shifts = rng.multivariate_normal(np.zeros(n_features), between, n_sites)
    people = rng.multivariate_normal(np.zeros(n_features), within, (n_sites, size))
    return within, between, shifts, people + shifts[:, None]


def test_shifts_are_the_posterior_mean_at_the_most_likely_scale():
    rng = np.random.default_rng(2)
    within, between, shifts, _ = covarying_sites(rng)
    n_people = 7
    mean = shifts[0] + rng.multivariate_normal(np.zeros(len(within)), within / n_people)

    def surprise(log_scale):
        total = np.exp(log_scale) * between + within / n_people
        return -stats.multivariate_normal(cov=total).logpdf(mean)

    scale = np.exp(optimize.minimize_scalar(surprise, bounds=(-5, 5), method='bounded').x)
    expected = scale * between @ np.linalg.solve(scale * between + within / n_people, mean)
    found = ShiftPrior(within, between).shrink(mean, n_people)
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(mean).max())
    everyone = ShiftPrior(within, between).shrink(mean, 10**7)
    np.testing.assert_allclose(everyone, mean, atol=1e-4)


def test_covariances_are_learned_and_bring_few_people_closer_to_the_truth():
    rng = np.random.default_rng(3)
    within, _, shifts, people = covarying_sites(rng)
    means, sizes = people.mean(axis=1), np.full(len(people), people.shape[1], dtype=float)
    residuals = (people - means[:, None]).reshape(-1, people.shape[2])
    prior = shift_prior(residuals, means, sizes)
    assert np.abs(prior.within - within).max() < 0.15 * np.abs(within).max()
    classical = pooled_prior([least_squares(site) for site in people])
    errors = {'mean': 0.0, 'pooled': 0.0, 'covarying': 0.0}
    for site, truth in zip(people, shifts):
        few = site[:4].mean(axis=0)
        found = {
            'mean': few,
            'pooled': posterior_shift(few, 1.0, 4, classical),
            'covarying': prior.shrink(few, 4),
        }
        for name, shift in found.items():
            errors[name] += ((shift - truth) ** 2).sum()
    assert errors['covarying'] < 0.8 * errors['pooled'] < 0.8 * errors['mean']


def test_sites_that_do_not_differ_leave_a_prior_that_works():
    rng = np.random.default_rng(4)
    z = rng.normal(size=(200, 5))
    prior = shift_prior(z, np.zeros((3, 5)), np.full(3, 60.0))
    shift = prior.shrink(np.full(5, 2.0), 30)
    assert np.abs(shift - 2).max() < 0.2
