"""Measures of harmonization: known shares of variance, known accuracy, real sites."""

import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.quality import assess_harmonization, classify_sites, site_variance
from tests.harmonization.simulated_sites import harmonize, simulate_sites
from tests.shared_data import shared_data


@pytest.mark.parametrize('share', [0.0, 0.3, 0.8])
def test_site_variance_finds_the_share_put_in(share):
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(4), 500)
    shift = np.array([-1.5, -0.5, 0.5, 1.5]) / np.sqrt(1.25)
    noise = rng.normal(size=(2000, 6))
    age = rng.uniform(20, 80, 2000)
    X = np.sqrt(share) * shift[codes][:, None] + np.sqrt(1 - share) * noise + 0.3 * age[:, None]
    found = site_variance(pd.DataFrame(X), pd.Series(codes), pd.DataFrame({'age': age}))
    np.testing.assert_allclose(found, share, atol=0.04)


def test_site_variance_without_covariates_is_eta_squared():
    X, site, covariates = simulate_sites(seed=2)
    between = (X.groupby(site).transform('mean') - X.mean()).pow(2).sum()
    expected = between / (X - X.mean()).pow(2).sum()
    np.testing.assert_allclose(site_variance(X, site, covariates[[]]), expected, rtol=1e-10)


@pytest.mark.parametrize('distance', [0.0, 3.0])
def test_classifier_guesses_at_chance_or_knows(distance):
    rng = np.random.default_rng(2)
    codes = np.repeat(np.arange(4), [30, 60, 90, 120])
    X = rng.normal(size=(300, 8)) + distance * rng.normal(size=(4, 8))[codes]
    table = pd.DataFrame(X).add_prefix('roi')
    score = classify_sites(table, pd.Series(codes), table[[]])
    assert score == pytest.approx(1.0 if distance else 0.25, abs=0.08)


def test_what_covariates_explain_is_not_held_against_a_site():
    rng = np.random.default_rng(7)
    site = pd.Series(np.repeat(['young', 'old'], 150))
    age = np.where(site == 'young', 30.0, 60.0) + rng.normal(0, 12, 300)
    X = pd.DataFrame(np.outer(age, [1.0, -2.0, 0.5]) + rng.normal(0, 4, (300, 3))).add_prefix('roi')
    covariates = pd.DataFrame({'age': age})
    assert classify_sites(X, site, covariates[[]]) > 0.8
    assert classify_sites(X, site, covariates) < 0.62


def test_tiny_sites_are_excluded():
    given = simulate_sites(seed=1, site_sizes={'a': 30, 'b': 8, 'c': 4})
    quality = assess_harmonization(given[0], *given)
    assert (quality.n_sites, quality.accuracy_held_out) == (2, None)
    X, site, covariates = (each[given[1] != 'b'] for each in given)
    with pytest.raises(DataError, match='two sites'):
        assess_harmonization(X, X, site, covariates)


def test_assessment_of_simulated_sites():
    sizes = {'a': 80, 'b': 60, 'c': 40}
    X, site, covariates = simulate_sites(seed=11, n_features=25, site_sizes=sizes)
    X['constant'] = 4.0
    after = harmonize(X, site, covariates)
    quality = assess_harmonization(X, after, site, covariates)
    assert 'constant' not in quality.features.index
    means = quality.features.mean()
    assert means['site_variance_before'] > 0.15
    assert means['site_variance_after'] < quality.site_variance_by_chance
    assert quality.accuracy_before > 0.9
    assert quality.accuracy_held_out < 0.45


def test_no_accuracy_after_harmonization_is_below_chance_by_construction():
    """Only participants whom ComBat has not seen are classified after it."""
    sites = simulate_sites(seed=0, n_features=25, site_sizes={'a': 30, 'b': 30, 'c': 30})
    quality = assess_harmonization(sites[0], harmonize(*sites), *sites[1:])
    assert min(quality.accuracy_before, quality.accuracy_held_out) > 1 / 3 - 0.12


@pytest.mark.slow
@pytest.mark.parametrize('which', ['all', 'volumes'])
def test_real_sites_can_no_longer_be_told_apart(which):
    """148 thicknesses and 45 volumes of 1078 people at 23 sites, with site and covariates."""
    table = pd.read_csv(shared_data('tables/fcon1000.csv'), index_col='sub_id')
    thickness = [name for name in table if name.endswith('_thickness') and 'Mean' not in name]
    volumes = list(table.loc[:, 'Left-Lateral-Ventricle':'CC_Anterior'])
    X = table[[*thickness, *volumes] if which == 'all' else volumes]
    site, covariates = table['site'], table[['age', 'sex']]
    quality = assess_harmonization(X, harmonize(X, site, covariates), site, covariates)
    chance = 1 / quality.n_sites
    assert quality.accuracy_before > chance + 0.4
    assert quality.accuracy_held_out == pytest.approx(chance, abs=0.05)
