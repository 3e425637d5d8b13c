"""Measures of harmonization: known shares of variance, known accuracy, real sites."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.combat import ComBat
from surreal_bids.harmonization.quality import (
    assess_harmonization,
    classify_sites,
    covariate_effect,
    site_variance,
)
from tests.harmonization.simulated_sites import simulate_sites
from tests.shared_data import shared_data


@pytest.mark.parametrize('share', [0.0, 0.3, 0.8])
def test_site_variance_finds_the_share_put_in(share):
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(4), 500)
    shift = np.array([-1.5, -0.5, 0.5, 1.5]) / np.sqrt(1.25)
    noise = rng.normal(size=(2000, 6))
    age = rng.uniform(20, 80, 2000)
    X = np.sqrt(share) * shift[codes][:, None] + np.sqrt(1 - share) * noise + 0.3 * age[:, None]
    found = site_variance(pd.DataFrame(X), codes, pd.DataFrame({'age': age}))
    np.testing.assert_allclose(found, share, atol=0.04)


def test_site_variance_without_covariates_is_eta_squared():
    X, site, _ = simulate_sites(seed=2)
    between = (X.groupby(site).transform('mean') - X.mean()).pow(2).sum()
    expected = between / (X - X.mean()).pow(2).sum()
    np.testing.assert_allclose(site_variance(X, site), expected, rtol=1e-10)


@pytest.mark.parametrize('slope', [-2.0, 0.0, 0.7])
def test_covariate_effect_is_the_slope_within_sites(slope):
    rng = np.random.default_rng(1)
    site = np.repeat(['a', 'b', 'c'], 300)
    age = rng.normal(50, 10, 900) + 15 * (site == 'b')
    X = pd.DataFrame({'roi': slope * age + 40 * (site == 'b') + rng.normal(0, 5, 900)})
    effect = covariate_effect(X, site, pd.DataFrame({'age': age}), 'age')
    assert effect.loc['roi', 'slope'] == pytest.approx(slope * age.std(), abs=0.8)
    expected = slope * 10 / np.hypot(slope * 10, 5)
    assert effect.loc['roi', 'correlation'] == pytest.approx(expected, abs=0.08)
    assert (effect.loc['roi', 'p'] < 0.01) == (slope != 0)


@pytest.mark.parametrize('distance', [0.0, 3.0])
def test_classifier_guesses_at_chance_or_knows(distance):
    rng = np.random.default_rng(2)
    codes = np.repeat(np.arange(4), [30, 60, 90, 120])
    X = rng.normal(size=(300, 8)) + distance * rng.normal(size=(4, 8))[codes]
    score = classify_sites(pd.DataFrame(X), codes)
    assert score.chance == 0.25
    assert score.n_people == 300
    expected = 1.0 if distance else 0.25
    assert score.balanced_accuracy == pytest.approx(expected, abs=0.08)


def test_what_covariates_explain_is_not_held_against_a_site():
    rng = np.random.default_rng(7)
    site = np.repeat(['young', 'old'], 150)
    age = np.where(site == 'young', 30.0, 60.0) + rng.normal(0, 12, 300)
    X = pd.DataFrame(np.outer(age, [1.0, -2.0, 0.5]) + rng.normal(0, 4, (300, 3)))
    covariates = pd.DataFrame({'age': age})
    assert classify_sites(X, site).balanced_accuracy > 0.8
    assert classify_sites(X, site, covariates).balanced_accuracy < 0.62


@pytest.mark.parametrize('size', [1, 4])
def test_tiny_sites_are_excluded(size):
    X, site, covariates = simulate_sites(seed=1, site_sizes={'a': 30, 'b': 20, 'c': size})
    score = classify_sites(X, site, covariates)
    assert (score.n_sites, score.n_people) == (2, 50)
    with pytest.raises(DataError, match='two sites'):
        classify_sites(X[site != 'b'], site[site != 'b'])


def test_assessment_of_simulated_sites():
    sizes = {'a': 80, 'b': 60, 'c': 40}
    X, site, covariates = simulate_sites(seed=11, n_features=25, site_sizes=sizes)
    X['constant'] = 4.0
    combat = ComBat()
    after = combat.fit_transform(X, site, covariates)
    quality = assess_harmonization(X, after, site, covariates, harmonizer=ComBat())
    assert 'constant' not in quality.features.index
    means = quality.features.mean()
    assert means['site_variance_before'] > 0.15
    assert means['site_variance_after'] < quality.site_variance_by_chance
    assert quality.classification_before.balanced_accuracy > 0.9
    assert quality.classification_after.balanced_accuracy < 0.38
    assert quality.classification_held_out.balanced_accuracy < 0.45
    assert quality.effect_kept() == pytest.approx(1, abs=0.1)
    assert not flipped(quality)


def flipped(quality) -> bool:
    """Whether a detectable effect changed its sign."""
    effects = quality.features[quality.features['detectable']]
    return bool((effects['effect_before'] * effects['effect_after'] < 0).any())


@pytest.fixture(scope='module')
def fcon1000():
    """148 thicknesses and 45 volumes of 1078 people at 23 sites, with site and covariates."""
    table = pd.read_csv(shared_data('tables/fcon1000.csv'), index_col='sub_id')
    thickness = [name for name in table if name.endswith('_thickness') and 'Mean' not in name]
    volumes = list(table.loc[:, 'Left-Lateral-Ventricle':'CC_Anterior'])
    assert (len(thickness), len(volumes), table['site'].nunique()) == (148, 45, 23)
    return table[thickness + volumes], volumes, table['site'], table[['age', 'sex']]


@pytest.mark.slow
@pytest.mark.parametrize('which', ['all', 'volumes'])
def test_real_sites_can_no_longer_be_told_apart(fcon1000, which):
    X, volumes, site, covariates = fcon1000
    X = X if which == 'all' else X[volumes]
    after = ComBat().fit_transform(X, site, covariates)
    quality = assess_harmonization(X, after, site, covariates, harmonizer=ComBat())
    chance = quality.classification_before.chance
    assert quality.classification_before.balanced_accuracy > chance + 0.4
    assert quality.classification_after.balanced_accuracy == pytest.approx(chance, abs=0.05)
    assert quality.classification_held_out.balanced_accuracy == pytest.approx(chance, abs=0.05)
    assert quality.effect_kept() > 0.9
    assert not flipped(quality)


@pytest.mark.slow
def test_a_forest_sees_sites_only_through_tied_features(fcon1000):
    X, volumes, site, covariates = fcon1000
    combat = ComBat()
    after = combat.fit_transform(X[volumes], site, covariates)
    assert combat.tied_ == ['5th-Ventricle', 'non-WM-hypointensities']
    forest = RandomForestClassifier(40, class_weight='balanced', random_state=0)
    with_ties = classify_sites(after, site, covariates, classifier=forest)
    without = classify_sites(after.drop(columns=combat.tied_), site, covariates, classifier=forest)
    assert with_ties.balanced_accuracy > 0.4
    assert without.balanced_accuracy == pytest.approx(without.chance, abs=0.05)
