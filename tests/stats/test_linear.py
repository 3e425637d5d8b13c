"""Regression and z-scores by a linear model of controls, beside statsmodels."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from surreal_bids.exceptions import DataError
from surreal_bids.stats.linear import (
    LARGEST_Z,
    ControlModel,
    covariate_columns,
    regress,
    t_to_z,
)

N_CONTROLS, N_ALL, N_VALUES = 24, 40, 5


def simulate(rng, n_values=N_VALUES):
    """Age and sex of all, and values that depend on them; controls come first."""
    columns = np.column_stack([rng.normal(60, 8, N_ALL), rng.integers(0, 2, N_ALL)])
    values = 3 + columns @ rng.normal(0, 0.1, (2, n_values)) + rng.normal(0, 1, (N_ALL, n_values))
    own = np.where(np.arange(N_ALL) < N_CONTROLS, np.arange(N_ALL), -1)
    return columns, values, own


def fit(columns, values, rows):
    return sm.OLS(values[rows], sm.add_constant(columns)[rows]).fit()


@pytest.mark.parametrize(
    'redundant',
    [
        lambda Z: Z,
        lambda Z: np.column_stack([Z, Z[:, 0] * 3 + 2, np.full(len(Z), 7.0), 1e6 * Z]),
    ],
    ids=['plain', 'redundant'],
)
def test_effect_and_t_are_those_of_statsmodels(redundant):
    columns, values, _ = simulate(np.random.default_rng(0))
    x = np.random.default_rng(1).normal(size=N_ALL)
    values[:, 1] = 0.1
    found = regress(values.astype(np.float32), x, redundant(columns))
    for number in (0, 2, 3, 4):
        y = values[:, number].astype(np.float32).astype(float)
        expected = sm.OLS(y, sm.add_constant(np.column_stack([x, columns]))).fit()
        assert found.t[number] == pytest.approx(expected.tvalues[1], rel=1e-6)
        assert found.effect[number] == pytest.approx(expected.params[1], rel=1e-6)
        assert found.df == expected.df_resid
    assert (found.t[1], found.effect[1]) == (0, 0)


@pytest.mark.parametrize(
    ('tested', 'columns', 'message'),
    [
        (np.arange(6.0), np.arange(6.0)[:, None] * 2 + 1, 'is determined by the covariates'),
        (np.ones(6), np.empty((6, 0)), 'is determined by the covariates'),
        (np.arange(6.0), np.eye(6)[:, :4], 'too few'),
    ],
)
def test_what_cannot_be_estimated_is_refused(tested, columns, message):
    with pytest.raises(DataError, match=message):
        regress(np.random.default_rng(0).normal(size=(6, 2)), tested, columns)


def test_text_becomes_indicators_and_missing_covariates_are_named():
    table = pd.DataFrame({'age': [60, 70, 80], 'site': ['b', 'a', 'c'], 'ill': [True, False, True]})
    expected = {(60.0, 70.0, 80.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 1.0)}
    assert {tuple(column) for column in covariate_columns(table).T} == expected
    for age in ([60.0, np.nan], [60.0, np.inf], pd.array([60, None], 'Int64')):
        with pytest.raises(DataError, match='sub-02'):
            covariate_columns(pd.DataFrame({'age': age}, ['sub-01', 'sub-02']))


def test_z_has_the_p_of_t_and_stays_finite():
    t = np.array([-6.0, -0.5, 0.0, 1e-4, 2.0, 15.0])
    for df in (3, 20, 2500):
        np.testing.assert_allclose(stats.norm.sf(t_to_z(t, df)), stats.t.sf(t, df), rtol=1e-9)
    np.testing.assert_array_equal(t_to_z([-1e4, 1e4], 900), [-LARGEST_Z, LARGEST_Z])


def test_others_are_measured_by_prediction_errors():
    columns, values, own = simulate(np.random.default_rng(0))
    z = ControlModel(columns, np.arange(N_CONTROLS), own).z_scores(values)
    for number in range(N_VALUES):
        model = fit(columns, values[:, number], np.arange(N_CONTROLS))
        predicted = model.get_prediction(sm.add_constant(columns)[N_CONTROLS:])
        error = np.sqrt(predicted.var_pred_mean + model.scale)
        t = (values[N_CONTROLS:, number] - predicted.predicted_mean) / error
        np.testing.assert_allclose(z[N_CONTROLS:, number], t_to_z(t, model.df_resid), rtol=1e-9)


def test_controls_are_measured_by_deleted_residuals():
    columns, values, own = simulate(np.random.default_rng(1))
    values[:, 3] = 2
    z = ControlModel(columns, np.arange(N_CONTROLS), own).z_scores(values)
    model = fit(columns, values[:, 2], np.arange(N_CONTROLS))
    t = model.get_influence().resid_studentized_external
    np.testing.assert_allclose(z[:N_CONTROLS, 2], t_to_z(t, model.df_resid - 1), rtol=1e-9)
    assert np.isnan(z[:, 3]).all()


def test_a_later_visit_of_a_control_is_measured_without_the_first():
    columns, values, own = simulate(np.random.default_rng(2))
    own[N_CONTROLS] = 4
    z = ControlModel(columns, np.arange(N_CONTROLS), own).z_scores(values)
    alone = own.copy()
    alone[[4, N_CONTROLS]] = -1
    others = np.delete(np.arange(N_CONTROLS), 4)
    expected = ControlModel(columns, others, alone).z_scores(values)
    np.testing.assert_allclose(z[[4, N_CONTROLS]], expected[[4, N_CONTROLS]], rtol=1e-9)


def test_who_cannot_be_predicted_has_no_z_score():
    columns, values, own = simulate(np.random.default_rng(3))
    at_other_site, at_own_site = np.zeros((2, N_ALL))
    at_other_site[30] = 1
    at_own_site[[3, 31]] = 1
    columns = np.column_stack([columns, at_other_site, at_own_site])
    z = ControlModel(columns, np.arange(N_CONTROLS), own).z_scores(values)
    assert np.flatnonzero(np.isnan(z).any(axis=1)).tolist() == [3, 30]


@pytest.mark.parametrize('n_controls', [12, 24])
def test_one_in_twenty_healthy_values_is_beyond_1_96(n_controls):
    """As often in controls as in others, however few the controls are."""
    columns, values, _ = simulate(np.random.default_rng(5), 20_000)
    own = np.where(np.arange(N_ALL) < n_controls, np.arange(N_ALL), -1)
    z = ControlModel(columns, np.arange(n_controls), own).z_scores(values)
    for each in (z[:n_controls], z[n_controls:]):
        assert (np.abs(each) > stats.norm.isf(0.025)).mean() == pytest.approx(0.05, abs=0.004)
