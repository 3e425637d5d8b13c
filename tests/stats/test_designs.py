import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.stats.glm import covariate_columns, make_design, pattern_designs

from .fields import simulate_people


@pytest.mark.parametrize('n_covariates', [0, 1, 4])
def test_columns_are_orthonormal_and_span_the_model(n_covariates):
    rng = np.random.default_rng(n_covariates)
    x, Z = rng.normal(size=12), 1e3 + rng.normal(size=(12, n_covariates))
    design = make_design('x', '', np.arange(12), x, Z)
    basis = np.column_stack([design.tested, design.nuisance])
    np.testing.assert_allclose(basis.T @ basis, np.eye(2 + n_covariates), atol=1e-12)
    model = np.column_stack([x, np.ones(12), Z])
    np.testing.assert_allclose(basis @ (basis.T @ model), model, rtol=1e-9)
    assert design.df == 12 - 2 - n_covariates


@pytest.mark.parametrize(
    'redundant',
    [
        lambda Z: np.column_stack([Z, Z[:, 0] * 3 + 2]),
        lambda Z: np.column_stack([Z, np.full(len(Z), 7.0)]),
        lambda Z: np.column_stack([Z, 1e6 * Z]),
    ],
    ids=['combination', 'constant', 'other units'],
)
def test_redundant_covariates_cost_no_degrees_of_freedom(redundant):
    rng = np.random.default_rng(1)
    x, Z = rng.normal(size=15), rng.normal(size=(15, 2))
    plain = make_design('x', '', np.arange(15), x, Z)
    other = make_design('x', '', np.arange(15), x, redundant(Z))
    assert other.df == plain.df
    np.testing.assert_allclose(other.tested, plain.tested, atol=1e-9)


@pytest.mark.parametrize(
    ('tested', 'columns', 'message'),
    [
        (np.arange(6.0), np.arange(6.0)[:, None] * 2 + 1, 'follows from the covariates'),
        (np.ones(6), np.empty((6, 0)), 'follows from the covariates'),
        (np.arange(6.0), np.eye(6)[:, :4], 'too few'),
    ],
    ids=['covariate', 'constant', 'too many columns'],
)
def test_what_cannot_be_estimated_is_refused(tested, columns, message):
    with pytest.raises(DataError, match=message):
        make_design('x', 'something', np.arange(6), tested, columns)


def test_text_becomes_indicators():
    table = pd.DataFrame({'age': [60, 70, 80], 'site': ['b', 'a', 'c'], 'ill': [True, False, True]})
    columns = covariate_columns(table)
    assert {tuple(column) for column in columns.T} == {
        (60.0, 70.0, 80.0),
        (1.0, 0.0, 0.0),
        (0.0, 0.0, 1.0),
        (1.0, 0.0, 1.0),
    }


@pytest.mark.parametrize(
    ('age', 'sex'),
    [
        ([60.0, np.nan], ['F', 'M']),
        ([60.0, np.inf], ['F', 'M']),
        ([60.0, 70.0], ['F', None]),
        (pd.array([60, None], 'Int64'), ['F', 'M']),
    ],
    ids=['number', 'infinite', 'text', 'nullable'],
)
def test_missing_covariates_are_refused(age, sex):
    table = pd.DataFrame({'age': age, 'sex': sex}, ['sub-01', 'sub-02'])
    with pytest.raises(DataError, match='sub-02'):
        covariate_columns(table)


def test_designs_compare_the_right_people():
    r_indices, is_control, covariates = simulate_people(np.random.default_rng(2))
    designs, skipped = pattern_designs(r_indices, is_control, covariates, minimum=2)
    assert not skipped
    by_name = {design.name: design for design in designs}
    assert list(by_name) == ['low', 'r1mid', 'r1high', 'r2mid', 'r2high', 'r1slope', 'r2slope']
    high = by_name['r1high']
    members = (r_indices['r1'] > 0.7) & (r_indices['r2'] < 0.4) & ~is_control
    np.testing.assert_array_equal(high.rows, np.flatnonzero(is_control | members))
    assert high.description.endswith(f'(n = {members.sum()}) against controls (n = 20)')
    np.testing.assert_array_equal(by_name['r2slope'].rows, np.flatnonzero(~is_control))
    assert by_name['r2slope'].df == 90 - 5


@pytest.mark.parametrize(
    ('n_controls', 'n_patients', 'minimum', 'expected'),
    [
        (0, 90, 5, 5),
        (4, 90, 5, 5),
        (20, 0, 5, 7),
        (20, 90, 30, 5),
        (20, 90, 1, 0),
    ],
    ids=['no CN', 'few CN', 'no PT', 'small subgroups', 'enough'],
)
def test_too_small_groups_are_reported_and_skipped(n_controls, n_patients, minimum, expected):
    people = simulate_people(np.random.default_rng(5), n_controls, n_patients)
    designs, skipped = pattern_designs(*people, minimum=minimum)
    assert (len(skipped), len(designs)) == (expected, 7 - expected)
    assert all(f'at least {minimum}' in one.reason for one in skipped)


def test_a_covariate_that_is_the_group_skips_the_comparison():
    r_indices, is_control, _ = simulate_people(np.random.default_rng(6))
    covariates = pd.DataFrame({'scanner': np.where(is_control, 'old', 'new')}, r_indices.index)
    designs, skipped = pattern_designs(r_indices, is_control, covariates, minimum=2)
    assert [design.name for design in designs] == ['r1slope', 'r2slope']
    assert all('follows from the covariates' in one.reason for one in skipped)


def test_tables_of_different_people_are_refused():
    r_indices, is_control, covariates = simulate_people(np.random.default_rng(7))
    with pytest.raises(DataError, match='same participants'):
        pattern_designs(r_indices, is_control, covariates.iloc[1:])
