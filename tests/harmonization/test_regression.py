"""The regression on site and covariates against the same with a column for each site."""

import numpy as np
import pytest

from surreal_bids.harmonization.encoding import (
    PENALTY_GRID,
    CovariateEncoder,
    fit_site_regression,
    group_means,
)
from tests.harmonization.simulated_sites import simulate_sites


@pytest.fixture
def cohort():
    """Arrays: features (86, 4), covariates, site numbers; and the encoders of both kinds."""
    X, site, covariates = simulate_sites(seed=12, n_features=4)
    codes = np.unique(site, return_inverse=True)[1]
    return X.to_numpy(), covariates, codes


def explicit(X, columns, codes, penalty):
    """Ridge regression with the whole design of sites and columns."""
    design = np.column_stack([np.eye(codes.max() + 1)[codes], columns])
    whole = np.zeros((design.shape[1],) * 2)
    whole[-len(penalty) :, -len(penalty) :] = penalty
    return np.linalg.solve(design.T @ design + whole, design.T @ X), design, whole


@pytest.mark.parametrize('weight', [None, 1.0, 2500.0])
def test_partialling_out_sites_changes_nothing(cohort, weight):
    X, covariates, codes = cohort
    encoder = CovariateEncoder(('age',) if weight else ()).fit(covariates)
    columns = encoder.transform(covariates)
    penalties = np.full((4, 1), weight) if weight else None
    ours = fit_site_regression(X, columns, codes, encoder.roughness_, penalties)
    penalty = 2 * weight * encoder.roughness_[0] if weight else np.zeros((2, 2))
    theirs, _, _ = explicit(X, columns, codes, penalty)
    np.testing.assert_allclose(ours.site_means, theirs[:5], rtol=1e-8)
    np.testing.assert_allclose(ours.slopes, theirs[5:], rtol=1e-5, atol=1e-7)


def test_penalties_minimise_generalised_cross_validation(cohort):
    X, covariates, codes = cohort
    encoder = CovariateEncoder(('age',)).fit(covariates)
    columns = encoder.transform(covariates)
    scores = []
    for weight in PENALTY_GRID:
        slopes, design, whole = explicit(X, columns, codes, 2 * weight * encoder.roughness_[0])
        hat = design @ np.linalg.solve(design.T @ design + whole, design.T)
        residual = ((X - design @ slopes) ** 2).sum(axis=0)
        scores.append(len(X) * residual / (len(X) - np.trace(hat)) ** 2)
    best = PENALTY_GRID[np.argmin(scores, axis=0)]
    ours = fit_site_regression(X, columns, codes, encoder.roughness_)
    np.testing.assert_array_equal(ours.penalties[:, 0], best)


def test_two_smooth_covariates_have_a_penalty_each(cohort):
    X, covariates, codes = cohort
    rng = np.random.default_rng(0)
    covariates['dose'] = rng.uniform(0, 9, len(X))
    encoder = CovariateEncoder(('age', 'dose')).fit(covariates)
    ours = fit_site_regression(X, encoder.transform(covariates), codes, encoder.roughness_)
    assert ours.penalties.shape == (4, 2)
    assert np.isin(ours.penalties, PENALTY_GRID).all()


@pytest.mark.parametrize('n_columns', [0, 1, 7])
def test_group_means(n_columns):
    rng = np.random.default_rng(n_columns)
    values = rng.normal(size=(30, n_columns))
    codes = rng.permutation(np.repeat([0, 1, 2], [5, 9, 16]))
    means = group_means(values, codes, 3)
    for number in range(3):
        np.testing.assert_allclose(means[number], values[codes == number].mean(axis=0))
