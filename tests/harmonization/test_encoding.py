"""Covariates as columns, and the regression on site and covariates against an explicit design."""

import numpy as np
import pytest

from surreal_bids.harmonization.encoding import CovariateEncoder, fit_site_regression, group_means
from tests.harmonization.simulated_sites import simulate_sites


def test_partialling_out_sites_changes_nothing():
    X, site, covariates = simulate_sites(seed=12, n_features=4)
    codes = np.unique(site, return_inverse=True)[1]
    columns = CovariateEncoder().fit(covariates).transform(covariates)
    site_means, slopes = fit_site_regression(X.to_numpy(), columns, codes)
    design = np.column_stack([np.eye(5)[codes], columns])
    whole = np.linalg.lstsq(design, X.to_numpy(), rcond=None)[0]
    np.testing.assert_allclose(site_means, whole[:5], rtol=1e-8)
    np.testing.assert_allclose(slopes, whole[5:], rtol=1e-5, atol=1e-7)


def test_numbers_may_be_names_of_levels():
    _, _, covariates = simulate_sites(seed=3)
    given = covariates[['age']].assign(scanner=np.arange(len(covariates)) % 3 + 1.0)
    encoder = CovariateEncoder(categorical=('scanner',)).fit(given)
    assert encoder.column_names_ == ['age', 'scanner[2]', 'scanner[3]']
    np.testing.assert_array_equal(encoder.transform(given)[:3, 1:], [[0, 0], [1, 0], [0, 1]])


@pytest.mark.parametrize('n_columns', [0, 1, 7])
def test_group_means(n_columns):
    rng = np.random.default_rng(n_columns)
    values = rng.normal(size=(30, n_columns))
    codes = rng.permutation(np.repeat([0, 1, 2], [5, 9, 16]))
    means = group_means(values, codes, 3)
    for number in range(3):
        np.testing.assert_allclose(means[number], values[codes == number].mean(axis=0))
