"""Imputation by CN regression, against scikit-learn and a known truth."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.covariates import CNImputer
from tests.harmonization.simulated_sites import simulate_sites


@pytest.fixture
def people():
    X, site, covariates = simulate_sites(seed=6)
    is_control = pd.Series(np.arange(len(X)) % 4 > 0, index=X.index)
    return X, covariates.assign(site=site), is_control


@pytest.mark.parametrize('columns', [['age'], ['age', 'sex'], ['age', 'sex', 'site']])
def test_predicts_as_a_linear_model_of_the_controls(people, columns):
    X, covariates, is_control = people
    truth = X.copy()
    X.iloc[3, 2] = X.iloc[8, 5] = X.iloc[9, 5] = np.nan
    filled = CNImputer().fit(X, covariates[columns], is_control).transform(X, covariates[columns])
    design = pd.get_dummies(covariates[columns]).astype(float)
    there = is_control & X['roi5'].notna()
    model = LinearRegression().fit(design[there], X.loc[there, 'roi5'])
    expected = model.predict(design.iloc[[8, 9]])
    np.testing.assert_allclose(filled['roi5'].iloc[[8, 9]], expected, rtol=1e-9)
    pd.testing.assert_frame_equal(filled[X.notna()], truth[X.notna()])


def test_logs_whose_and_which(people, caplog):
    X, covariates, is_control = people
    imputer = CNImputer().fit(X, covariates, is_control)
    X.loc['sub-013', 'roi7'] = np.nan
    imputer.transform(X, covariates)
    assert 'sub-013' in caplog.text
    assert 'roi7' in caplog.text


def test_nothing_missing_nothing_changed(people, caplog):
    X, covariates, is_control = people
    filled = CNImputer().fit(X, covariates, is_control).transform(X, covariates)
    pd.testing.assert_frame_equal(filled, X)
    assert not caplog.text


def test_stored_and_applied(people):
    X, covariates, is_control = people
    imputer = CNImputer(categorical=('sex',)).fit(X, covariates, is_control)
    again = CNImputer.from_arrays(imputer.to_arrays())
    X.iloc[40, 4] = np.nan
    pd.testing.assert_frame_equal(again.transform(X, covariates), imputer.transform(X, covariates))


@pytest.mark.parametrize(
    ('feature', 'covariate', 'message'),
    [
        ('roi1', None, 'feature roi1 cannot be imputed: 0 CN'),
        (None, 'age', r'sub-001.*age'),
    ],
)
def test_refuses_what_cannot_be_learned_from(people, feature, covariate, message):
    X, covariates, is_control = people
    if feature:
        X[feature] = np.nan
    if covariate:
        covariates.loc['sub-001', covariate] = np.nan
    with pytest.raises(DataError, match=message):
        CNImputer().fit(X, covariates, is_control)
