"""ComBat takes frames or arrays, and names the participants and features that it lacks."""

import numpy as np
import pandas as pd
import pytest

from surreal_bids import ComBat
from surreal_bids.exceptions import DataError
from tests.harmonization.simulated_sites import simulate_sites


@pytest.fixture(scope='module')
def people():
    return simulate_sites(seed=5)


@pytest.fixture(scope='module')
def fitted(people):
    return ComBat().fit(*people)


def test_arrays_give_the_same_numbers_as_frames(people, fitted):
    X, site, covariates = people
    arrays = X.to_numpy(), site.to_numpy(), covariates.to_numpy()
    expected = fitted.transform(*people)
    by_row = ComBat().fit(*arrays)
    harmonized = by_row.transform(*arrays)
    assert isinstance(harmonized, np.ndarray)
    np.testing.assert_array_equal(harmonized, expected)
    # Arrays and frames may be mixed: an array has the rows of the frames.
    mixed = ComBat().fit(X.to_numpy(), site, covariates)
    np.testing.assert_array_equal(mixed.transform(X.to_numpy(), site, covariates), expected)
    again = fitted.transform(X.to_numpy(), list(site), covariates.to_numpy())
    np.testing.assert_array_equal(again, expected)
    numbered = X.set_axis(range(X.shape[1]), axis=1)
    np.testing.assert_array_equal(by_row.transform(numbered, *arrays[1:]), expected)


def test_arrays_of_a_new_site_are_added(people):
    X, site, covariates = people
    is_new = (site == 'Bern').to_numpy()
    combats = []
    for tables in (people, (X.to_numpy(), site.to_numpy(), covariates.to_numpy())):
        fitted = ComBat().fit(*(table[~is_new] for table in tables))
        combats.append(fitted.add_site(*(table[is_new] for table in tables)))
    np.testing.assert_array_equal(combats[0].shift_, combats[1].shift_)


def test_one_covariate_and_visits_may_be_arrays(people):
    X, site, covariates = people
    persons = pd.Series(np.arange(len(X)) // 2, X.index)
    of_frames = ComBat().fit(X, site, covariates[['age']], persons)
    of_arrays = ComBat().fit(X, site, covariates['age'].to_numpy(), persons.to_numpy())
    np.testing.assert_array_equal(of_frames.slopes_, of_arrays.slopes_)
    of_series = ComBat().fit(X, site, covariates['age'], persons)
    np.testing.assert_array_equal(of_frames.slopes_, of_series.slopes_)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda X, s, c: (X, s.iloc[3:], c), 'site: no row for 3 participants of X .sub-000, '),
        (lambda X, s, c: (X, s, c.iloc[:-1]), 'covariates: no row for 1 participant of X .sub-085'),
        (lambda X, s, c: (X, s.to_numpy()[1:], c), 'site: an array of shape .85,. for 86 part'),
        (lambda X, s, c: (X, s, c.to_numpy()[1:]), 'covariates: an array of shape .85, 2. for 86'),
        (lambda X, s, c: (X.iloc[:5], pd.concat([s, s]), c), 'site: several rows for sub-000'),
        (lambda X, s, c: (X, s, c[['age']]), 'covariates: no sex, which ComBat was fitted with'),
        (lambda X, s, c: (X, s, c['age'].to_numpy()), 'covariates: 1 column, .* with age, sex'),
        (lambda X, s, c: (X.drop(columns='roi3'), s, c), 'X: no feature roi3, which ComBat was'),
        (lambda X, s, c: (X.to_numpy()[:, 1:], s, c), 'X has 10 features, but ComBat was fitted'),
        (lambda X, s, c: (X['roi1'].to_numpy(), s, c), 'participants by features, not .* .86,.'),
        (lambda X, s, c: (X.assign(roi1='thick'), s, c), 'X: features must be numbers .*thick'),
        (lambda X, s, c: (pd.concat([X, X[['roi1']]], axis=1), s, c), 'X: roi1: several columns'),
    ],
)
def test_what_is_missing_is_named(people, fitted, change, message):
    with pytest.raises(DataError, match=message):
        fitted.transform(*change(*people))


def test_fit_names_participants_without_a_site(people):
    X, site, covariates = people
    with pytest.raises(DataError, match=r'site: no row for 76 participants of X .sub-010, '):
        ComBat().fit(X, site.iloc[:10], covariates)
