"""ComBat: what it removes, what it keeps, and what it says when it cannot."""

import logging

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.combat import HARMONIZED, UNHARMONIZED, ComBat
from surreal_bids.harmonization.empirical_bayes import MOST_COVARYING
from tests.harmonization.simulated_sites import harmonize, simulate_sites


@pytest.fixture
def people():
    """Features, site and covariates of 86 people at five sites."""
    return simulate_sites(seed=5)


def residuals(X, covariates):
    """Features after regression on an intercept and the covariates, all people together."""
    design = np.column_stack([np.ones(len(X)), covariates.to_numpy(float)])
    return X - design @ np.linalg.lstsq(design, X.to_numpy(), rcond=None)[0]


@pytest.mark.slow
@settings(max_examples=8)
@given(seed=st.integers(0, 2**16))
def test_order_of_rows_and_columns_does_not_matter(seed):
    X, site, covariates = simulate_sites(seed=seed)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(X.index), rng.permutation(X.columns)
    straight = ComBat().fit(X, site, covariates)
    mixed = ComBat().fit(X.loc[rows, columns], site, covariates[['sex', 'age']])
    one = straight.transform(X, site, covariates)
    other = mixed.transform(X.loc[rows], site.loc[rows], covariates)
    assert list(other.columns) == list(columns)
    pd.testing.assert_frame_equal(other.loc[X.index, X.columns], one, rtol=1e-9)


@settings(max_examples=6)
@given(seed=st.integers(0, 2**16), shift=st.floats(-1e3, 1e3), unit=st.floats(1e-3, 1e3))
def test_a_change_of_unit_changes_nothing_else(seed, shift, unit):
    X, site, covariates = simulate_sites(seed=seed)
    one = harmonize(X, site, covariates)
    other = harmonize(X * unit + shift, site, covariates)
    np.testing.assert_allclose((other - shift) / unit, one, rtol=1e-6)


def test_one_site_is_returned_as_it_is(people, caplog):
    caplog.set_level(logging.INFO, 'surreal_bids')
    X, _, covariates = people
    site = pd.Series('only', X.index)
    combat = ComBat().fit(X, site, covariates)
    pd.testing.assert_frame_equal(combat.transform(X, site, covariates), X)
    assert 'one site (only)' in caplog.text
    with pytest.raises(DataError, match='one site only'):
        combat.add_site(X, site.replace('only', 'new'), covariates)


@pytest.mark.parametrize('size', [1, 2])
def test_a_tiny_site_is_shifted_but_not_scaled(caplog, size):
    caplog.set_level(logging.INFO, 'surreal_bids')
    X, site, covariates = simulate_sites(seed=3, site_sizes={'a': 30, 'b': 20, 'tiny': size})
    combat = ComBat().fit(X, site, covariates)
    harmonized = combat.transform(X, site, covariates)
    assert np.isfinite(harmonized.to_numpy()).all()
    number = combat.sites_.index('tiny')
    np.testing.assert_array_equal(combat.ratio_[number], 1)
    assert np.abs(combat.shift_[number]).max() > 0
    assert f'site tiny has only {size} participants' in caplog.text
    tiny = site == 'tiny'
    combat.add_site(X[tiny], site[tiny].replace('tiny', 'added'), covariates[tiny])
    np.testing.assert_array_equal(combat.ratio_[-1], 1)


def test_refuses_a_site_confounded_with_a_covariate(people):
    X, site, covariates = people
    covariates['diagnosis'] = np.where(site == 'Delft', 'AD', 'CN')
    with pytest.raises(DataError, match=r'site and covariate diagnosis.*Delft'):
        ComBat().fit(X, site, covariates)


def test_refuses_covariates_that_explain_each_other_within_sites(people):
    X, site, covariates = people
    covariates['months'] = 12 * covariates['age'] + 5 * (site == 'Bern')
    with pytest.raises(DataError, match='age, sex, months are collinear'):
        ComBat().fit(X, site, covariates)


@pytest.mark.parametrize('kind', ['everywhere', 'at each site'])
def test_constant_features_pass_through_and_are_listed(people, caplog, kind):
    caplog.set_level(logging.INFO, 'surreal_bids')
    X, site, covariates = people
    X['roi4'] = 7.5 if kind == 'everywhere' else site.map(len).astype(float)
    combat = ComBat().fit(X, site, covariates)
    harmonized = combat.transform(X, site, covariates)
    assert combat.constant_ == ['roi4']
    assert 'roi4' in caplog.text
    np.testing.assert_array_equal(harmonized['roi4'], X['roi4'])
    rest = harmonize(X.drop(columns='roi4'), site, covariates)
    pd.testing.assert_frame_equal(harmonized.drop(columns='roi4'), rest, rtol=1e-12)


@pytest.mark.parametrize('with_covariates', [True, False])
def test_a_feature_constant_at_one_site_explodes_nowhere(people, with_covariates):
    X, site, covariates = people
    X.loc[site == 'Bern', 'roi1'] = 1000 / 3
    harmonized = harmonize(X, site, covariates if with_covariates else covariates[[]])
    assert harmonized['roi1'].between(-1000, 3000).all()


def test_features_that_most_people_share_are_named(people, caplog):
    X, site, covariates = people
    X['lesions'] = np.where(np.arange(len(X)) % 5 == 0, X['roi0'], 0.0)
    ComBat().fit(X, site, covariates)
    assert 'same value in lesions' in caplog.text


@pytest.mark.parametrize('when', ['fit', 'transform'])
def test_a_missing_feature_covariate_or_site_is_an_error_that_names_it(people, when):
    X, site, covariates = people
    combat = ComBat().fit(X, site, covariates)
    X.loc['sub-012', 'roi3'] = np.nan
    with pytest.raises(DataError, match=r'sub-012.*roi3'):
        getattr(combat, when)(X, site, covariates)
    covariates.loc['sub-007', 'age'], site['sub-013'] = np.nan, None
    with pytest.raises(DataError, match='missing for sub-007, sub-013'):
        getattr(combat, when)(X.drop('sub-012'), site, covariates)


@pytest.mark.parametrize('convert', [int, float, str])
def test_sites_may_be_named_by_numbers(people, convert):
    X, site, covariates = people
    numbers = site.map({name: 10 - k for k, name in enumerate(sorted(site.unique()))})
    by_name = harmonize(X, site, covariates)
    by_number = ComBat().fit(X, numbers.astype(convert), covariates)
    assert sorted(by_number.sites_) == ['10', '6', '7', '8', '9']
    harmonized = by_number.transform(X, numbers.astype(float), covariates)
    pd.testing.assert_frame_equal(harmonized, by_name, rtol=1e-9)


def test_an_unseen_site_is_an_error_unless_skipped(people):
    X, site, covariates = people
    known = site != 'Evora'
    combat = ComBat().fit(X[known], site[known], covariates[known])
    with pytest.raises(DataError, match=r'unseen site Evora \(17 participants: sub-069'):
        combat.transform(X, site, covariates)
    combat.unseen_site = 'skip'
    harmonized = combat.transform(X, site, covariates)
    status = combat.status(X, site)
    pd.testing.assert_frame_equal(harmonized[~known], X[~known])
    assert (status[~known] == UNHARMONIZED).all()
    assert (status[known] == HARMONIZED).all()


def test_adding_a_site_freezes_all_else(people):
    X, site, covariates = people
    new = site == 'Cork'
    combat = ComBat().fit(X[~new], site[~new], covariates[~new])
    before = combat.transform(X[~new], site[~new], covariates[~new])
    combat.add_site(X[new], site[new], covariates[new])
    after = combat.transform(X[~new], site[~new], covariates[~new])
    pd.testing.assert_frame_equal(before, after)
    assert combat.site_sizes_[combat.sites_.index('Cork')] == 31


@pytest.mark.parametrize(('n_features', 'most'), [(30, 0.12), (MOST_COVARYING + 1, 0.2)])
def test_a_large_added_site_is_harmonized_as_if_learned_with_the_rest(n_features, most):
    sizes = {'a': 150, 'b': 150, 'c': 150, 'd': 150}
    X, site, covariates = simulate_sites(seed=4, n_features=n_features, site_sizes=sizes)
    new = site == 'd'
    added = ComBat().fit(X[~new], site[~new], covariates[~new])
    added.add_site(X[new], site[new], covariates[new])
    together = ComBat().fit(X, site, covariates).transform(X[new], site[new], covariates[new])
    apart = added.transform(X[new], site[new], covariates[new])
    offset = (apart - together).mean()
    assert ((apart - together - offset).std() / together.std()).max() < most


def test_refuses_more_unknowns_than_people(people):
    X, site, covariates = people
    few = site.groupby(site).cumcount() < 1
    with pytest.raises(DataError, match='5 participants for 5 sites and 2 covariate columns'):
        ComBat().fit(X[few], site[few], covariates[few])


def test_one_feature_has_the_mean_and_variance_of_the_others_without_shrinkage(people):
    X, site, covariates = people
    one = harmonize(X[['roi2']], site, covariates[[]])
    np.testing.assert_allclose(one.groupby(site).mean().std(), 0, atol=1e-9)
