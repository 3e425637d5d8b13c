"""Residualisation, normalisation and imputation against the authors' formulas and known truths."""

import logging

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.covariates import CNImputer, CNNormaliser, Residualiser, handle_icv
from tests.harmonization.simulated_sites import simulate_sites


@pytest.fixture
def cohort():
    """70 people, 7 regions, age, sex (text) and ICV; the last 30 are patients with less volume."""
    rng = np.random.default_rng(4)
    people = [f'sub-{number:02d}' for number in range(70)]
    covariates = pd.DataFrame(
        {
            'age': rng.uniform(45, 85, 70),
            'sex': rng.choice(['F', 'M'], 70),
            'icv': rng.normal(1.5e6, 1.2e5, 70),
        },
        index=people,
    )
    slope = rng.normal(0, 30, 7)
    volumes = 5000 + np.outer(covariates['age'], slope) + rng.normal(0, 200, (70, 7))
    volumes += 400 * (covariates['sex'] == 'M').to_numpy()[:, None]
    volumes += 1e-3 * covariates['icv'].to_numpy()[:, None]
    volumes[40:] -= 900
    X = pd.DataFrame(volumes, index=people, columns=[f'roi{number}' for number in range(7)])
    return X, covariates, pd.Series(np.arange(70) < 40, index=people)


def authors_preprocessing(X, columns, is_control):
    """`Covariate_correction` and `Data_normalization` of SurrealGAN 0.1.1, restated."""
    low, high = columns[is_control].min(axis=0), columns[is_control].max(axis=0)
    scaled = (columns - low) / (high - low)
    beta = LinearRegression().fit(scaled[is_control], X[is_control]).coef_.T
    corrected = X - scaled @ beta
    controls = corrected[is_control]
    return 1 + (corrected - controls.mean(axis=0)) / (10 * controls.std(axis=0))


@pytest.mark.parametrize('names', [['age'], ['age', 'sex'], ['icv', 'age', 'sex']])
@pytest.mark.parametrize('coding', ['text', 'numbers'])
def test_equals_the_authors_program(cohort, names, coding):
    X, covariates, is_control = cohort
    is_male = (covariates['sex'] == 'M').astype(int)
    numbers = covariates.assign(sex=is_male)[names]
    given = covariates[names] if coding == 'text' else numbers
    residualised = Residualiser().fit(X, given, is_control).transform(X, given)
    ours = CNNormaliser().fit(residualised, is_control).transform(residualised)
    theirs = authors_preprocessing(X.to_numpy(), numbers.to_numpy(float), is_control.to_numpy())
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_rows_are_matched_by_person(cohort):
    X, covariates, is_control = cohort
    shuffled = covariates.sample(frac=1, random_state=0)
    one = Residualiser().fit(X, covariates, is_control).transform(X, covariates)
    other = Residualiser().fit(X, shuffled, is_control).transform(X, shuffled)
    pd.testing.assert_frame_equal(one, other)


def break_constant(X, covariates, is_control):
    covariates.loc[is_control, 'sex'] = 'F'


def break_collinear(X, covariates, is_control):
    covariates['birth'] = 2000 - covariates['age']


def break_few(X, covariates, is_control):
    is_control.iloc[4:] = False


@pytest.mark.parametrize(
    ('damage', 'message'),
    [
        (break_constant, 'sex is the same'),
        (break_collinear, 'collinear.*birth'),
        (break_few, '4 CN for 3 covariate columns'),
    ],
)
def test_refuses_what_cannot_be_learned_from(cohort, damage, message):
    X, covariates, is_control = cohort
    damage(X, covariates, is_control)
    with pytest.raises(DataError, match=message):
        Residualiser().fit(X, covariates, is_control)


@pytest.mark.parametrize(
    ('column', 'value', 'message'),
    [
        ('sex', 'other', 'sex: unknown level other.*sub-60.*F, M'),
        ('age', 'old', 'age: numbers expected, found old'),
    ],
)
def test_refuses_people_it_cannot_place(cohort, column, value, message):
    X, covariates, is_control = cohort
    residualiser = Residualiser().fit(X, covariates, is_control)
    covariates[column] = covariates[column].astype(object)
    covariates.loc['sub-60', column] = value
    with pytest.raises(DataError, match=message):
        residualiser.transform(X, covariates.infer_objects())


def test_icv_as_covariate_or_proportion(cohort):
    X, covariates, _ = cohort
    icv = covariates.pop('icv')
    same, with_icv = handle_icv(X, covariates, icv, 'covariate')
    assert same.equals(X)
    assert list(with_icv) == ['age', 'sex', 'icv']
    shares, without = handle_icv(X, covariates, icv, 'proportion')
    np.testing.assert_allclose(shares.to_numpy() * icv.to_numpy()[:, None], X)
    assert without.equals(covariates)
    logs, with_log = handle_icv(X, covariates, icv, 'power')
    np.testing.assert_allclose(np.exp(logs), X)
    np.testing.assert_allclose(np.exp(with_log['log_icv']), icv)
    untouched, _ = handle_icv(X, covariates, icv, 'none')
    assert untouched.equals(X)


def test_refuses_an_impossible_volume_and_a_second_icv(cohort):
    X, covariates, _ = cohort
    icv = covariates['icv'].copy()
    with pytest.raises(DataError, match='twice'):
        handle_icv(X, covariates, icv, 'covariate')
    X.loc['sub-09', 'roi4'] = 0.0
    with pytest.raises(DataError, match='roi4 in sub-09'):
        handle_icv(X, covariates[['age']], icv, 'power')
    icv['sub-08'] = -3.0
    with pytest.raises(DataError, match='icv in sub-08'):
        handle_icv(X, covariates, icv, 'proportion')


@pytest.fixture
def sites():
    X, site, covariates = simulate_sites(seed=6)
    is_control = pd.Series(np.arange(len(X)) % 4 > 0, index=X.index)
    return X, covariates.assign(site=site), is_control


@pytest.mark.parametrize('columns', [['age'], ['age', 'sex'], ['age', 'sex', 'site']])
def test_predicts_as_a_linear_model_of_the_controls(sites, columns):
    X, covariates, is_control = sites
    truth = X.copy()
    X.iloc[3, 2] = X.iloc[8, 5] = X.iloc[9, 5] = np.nan
    filled = CNImputer().fit(X, covariates[columns], is_control).transform(X, covariates[columns])
    design = pd.get_dummies(covariates[columns]).astype(float)
    there = is_control & X['roi5'].notna()
    model = LinearRegression().fit(design[there], X.loc[there, 'roi5'])
    expected = model.predict(design.iloc[[8, 9]])
    np.testing.assert_allclose(filled['roi5'].iloc[[8, 9]], expected, rtol=1e-9)
    pd.testing.assert_frame_equal(filled[X.notna()], truth[X.notna()])


def test_imputation_logs_whose_and_which(sites, caplog):
    X, covariates, is_control = sites
    imputer = CNImputer().fit(X, covariates, is_control)
    X.loc['sub-013', 'roi7'] = np.nan
    with caplog.at_level(logging.INFO, 'surreal_bids'):
        imputer.transform(X, covariates)
    assert 'sub-013' in caplog.text
    assert 'roi7' in caplog.text


def test_refuses_what_cannot_be_imputed(sites):
    X, covariates, is_control = sites
    X['roi1'] = np.nan
    with pytest.raises(DataError, match='feature roi1 cannot be imputed: 0 CN'):
        CNImputer().fit(X, covariates, is_control)
