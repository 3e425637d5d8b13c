import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from nilearn.mass_univariate import permuted_ols
from scipy import stats

from surreal_bids.exceptions import DataError
from surreal_bids.stats import glm
from surreal_bids.stats.glm import (
    LinearModels,
    covariate_columns,
    form_subgroups,
    make_design,
    pattern_designs,
)
from surreal_bids.stats.maps import fdr_t_threshold

from .fields import simulate_people, smooth_fields


def fit(designs, Y, batch=4):
    """Fit designs to values (N, V) that come in batches."""
    models = LinearModels(designs, *Y.shape)
    for start in range(0, len(Y), batch):
        rows = np.arange(start, min(start + batch, len(Y)))
        models.add(rows, Y[rows])
    return list(models.estimates())


def simulate(rng, n_people=40, n_voxels=33, n_covariates=3, level=100.0):
    """A tested variable, covariates of different units, and voxels that depend on both."""
    x = rng.integers(0, 2, n_people).astype(float)
    Z = rng.normal(size=(n_people, n_covariates)) * 10.0 ** np.arange(n_covariates) + 50
    Y = level + rng.normal(size=(n_people, n_voxels)) + np.outer(x, rng.normal(size=n_voxels))
    return x, Z, Y + (Z / Z.std(axis=0)) @ rng.normal(size=(n_covariates, n_voxels))


@pytest.mark.parametrize('batch', [1, 7, 40])
@pytest.mark.parametrize('slab', [5, 1 << 15])
def test_t_and_effect_are_those_of_statsmodels(batch, slab, monkeypatch):
    monkeypatch.setattr(glm, 'SLAB', slab)
    x, Z, Y = simulate(np.random.default_rng(0))
    (found,) = fit([make_design('x', '', np.arange(40), x, Z)], Y, batch)
    models = [sm.OLS(y, np.column_stack([x, np.ones(40), Z])).fit() for y in Y.T]
    np.testing.assert_allclose(found.t, [model.tvalues[0] for model in models], rtol=1e-7)
    np.testing.assert_allclose(found.effect, [model.params[0] for model in models], rtol=1e-7)
    assert found.df == models[0].df_resid


@pytest.mark.parametrize('n_covariates', [1, 3])
def test_t_is_that_of_nilearn(n_covariates):
    x, Z, Y = simulate(np.random.default_rng(1), n_covariates=n_covariates)
    (found,) = fit([make_design('x', '', np.arange(40), x, Z)], Y)
    expected = permuted_ols(x[:, None], Y, Z, n_perm=0)['t'][0]
    np.testing.assert_allclose(found.t, expected, rtol=1e-5)


@pytest.mark.parametrize('level', [0.0, 1.0, 1e4])
def test_without_covariates_it_is_the_t_test_of_scipy(level):
    x, _, Y = simulate(np.random.default_rng(2), n_covariates=0, level=level)
    Y = Y.astype(np.float32)
    (found,) = fit([make_design('x', '', np.arange(40), x, np.empty((40, 0)))], Y)
    expected = stats.ttest_ind(Y[x == 1].astype(float), Y[x == 0].astype(float))
    np.testing.assert_allclose(found.t, expected.statistic, rtol=1e-7)


def test_a_regression_is_that_of_scipy():
    rng = np.random.default_rng(3)
    x, Y = rng.uniform(size=30), rng.normal(size=(30, 11))
    (found,) = fit([make_design('x', '', np.arange(30), x, np.empty((30, 0)))], Y)
    lines = [stats.linregress(x, y) for y in Y.T]
    np.testing.assert_allclose(found.effect, [line.slope for line in lines])
    np.testing.assert_allclose(found.t, [line.slope / line.stderr for line in lines])


def test_designs_together_give_what_each_gives_alone():
    rng = np.random.default_rng(4)
    x, Z, Y = simulate(rng)
    some = [np.arange(40), np.arange(5, 30), rng.permutation(40)[:18]]
    designs = [make_design(str(n), '', rows, x[rows], Z[rows, :n]) for n, rows in enumerate(some)]
    for design, together in zip(designs, fit(designs, Y)):
        alone = make_design(
            '', '', np.arange(design.rows.size), x[design.rows], Z[design.rows, : int(design.name)]
        )
        (expected,) = fit([alone], Y[design.rows])
        np.testing.assert_allclose(together.t, expected.t, rtol=1e-9)


@pytest.mark.parametrize('value', [0.0, 0.1, 1e5])
def test_constant_voxels_give_zero(value):
    x, Z, Y = simulate(np.random.default_rng(5))
    Y[:, 7] = value
    Y[:, 8] = value
    Y[0, 8] += 3
    rows = np.arange(1, 40)
    designs = [
        make_design('all', '', np.arange(40), x, Z),
        make_design('but one', '', rows, x[rows], Z[rows]),
    ]
    everyone, others = fit(designs, Y)
    assert np.flatnonzero(~everyone.varies).tolist() == [7]
    assert np.flatnonzero(~others.varies).tolist() == [7, 8]
    for found in (everyone, others):
        assert np.isfinite(found.t).all()
        assert not found.t[~found.varies].any()
        assert not found.effect[~found.varies].any()


@pytest.mark.slow
@pytest.mark.parametrize('sigma', [1.0, 3.0])
def test_false_discoveries_stay_at_the_nominal_rate(sigma):
    """Where nothing is to be found, some voxel is a discovery in 5 % of studies at most."""
    rng = np.random.default_rng([6, int(sigma)])
    n_people, n_repeats, level = 40, 100, 0.05
    found = 0
    for _ in range(n_repeats):
        Y = smooth_fields(rng, n_people, (17, 18, 19), sigma).reshape(n_people, -1)
        x, age = np.arange(n_people) < 12, rng.uniform(50, 90, (n_people, 1))
        (null,) = fit([make_design('null', '', np.arange(n_people), x, age)], Y.astype(np.float32))
        found += fdr_t_threshold(null.t, null.df, level) < np.inf
    assert found <= stats.binom.ppf(0.999, n_repeats, level)


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
        (np.arange(6.0), np.arange(6.0)[:, None] * 2 + 1, 'is determined by the covariates'),
        (np.ones(6), np.empty((6, 0)), 'is determined by the covariates'),
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
    assert list(by_name) == [
        *('patients', 'low', 'r1mid', 'r1high', 'r2mid', 'r2high', 'r1slope', 'r2slope')
    ]
    assert [name for name, design in by_name.items() if design.is_test] == ['patients']
    np.testing.assert_array_equal(by_name['patients'].rows, np.arange(110))
    high = by_name['r1high']
    members = (r_indices['r1'] > 0.7) & (r_indices['r2'] < 0.4) & ~is_control
    np.testing.assert_array_equal(high.rows, np.flatnonzero(is_control | members))
    assert high.description.endswith(f'(n = {members.sum()}) against controls (n = 20)')
    np.testing.assert_array_equal(by_name['r2slope'].rows, np.flatnonzero(~is_control))
    assert by_name['r2slope'].df == 90 - 5


@pytest.mark.parametrize(
    ('n_controls', 'n_patients', 'minimum', 'expected'),
    [
        (0, 90, 5, 6),
        (4, 90, 5, 6),
        (20, 0, 5, 8),
        (20, 90, 30, 6),
        (20, 90, 1, 0),
    ],
    ids=['no CN', 'few CN', 'no PT', 'small subgroups', 'enough'],
)
def test_too_small_groups_are_reported_and_skipped(n_controls, n_patients, minimum, expected):
    people = simulate_people(np.random.default_rng(5), n_controls, n_patients)
    designs, skipped = pattern_designs(*people, minimum=minimum)
    assert (len(skipped), len(designs)) == (expected, 8 - expected)
    assert all(f'at least {minimum}' in one.reason for one in skipped)


def test_a_covariate_that_is_the_group_skips_the_comparison():
    r_indices, is_control, _ = simulate_people(np.random.default_rng(6))
    covariates = pd.DataFrame({'scanner': np.where(is_control, 'old', 'new')}, r_indices.index)
    designs, skipped = pattern_designs(r_indices, is_control, covariates, minimum=2)
    assert [design.name for design in designs] == ['r1slope', 'r2slope']
    assert all('is determined by the covariates' in one.reason for one in skipped)


def test_tables_of_different_people_are_refused():
    r_indices, is_control, covariates = simulate_people(np.random.default_rng(7))
    with pytest.raises(DataError, match='same participants'):
        pattern_designs(r_indices, is_control, covariates.iloc[1:])


def table(*rows):
    values = np.array(rows, float)
    return pd.DataFrame(values, columns=[f'r{number + 1}' for number in range(values.shape[1])])


@pytest.mark.parametrize(
    ('r_indices', 'expected'),
    [
        ((0.1, 0.2), 'low'),
        ((0.39, 0.39), 'low'),
        ((0.4, 0.39), 'r1mid'),
        ((0.7, 0.0), 'r1mid'),
        ((0.71, 0.0), 'r1high'),
        ((1.3, -0.2), 'r1high'),
        ((0.1, 0.5), 'r2mid'),
        ((0.1, 0.9), 'r2high'),
        ((0.4, 0.4), None),
        ((0.9, 0.9), None),
    ],
)
def test_each_patient_is_in_one_subgroup_at_most(r_indices, expected):
    found = [group.name for group in form_subgroups(table(r_indices)) if group.members[0]]
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize('n_patterns', [1, 2, 4])
def test_the_rule_of_section_4_3(n_patterns):
    values = table(*np.random.default_rng(0).uniform(size=(300, n_patterns)))
    groups = {group.name: group for group in form_subgroups(values)}
    assert len(groups) == 1 + 2 * n_patterns
    for person in range(300):
        r = values.iloc[person]
        for i, pattern in enumerate(values.columns):
            alone = all(r.iloc[j] < 0.4 for j in range(n_patterns) if j != i)
            assert groups[f'{pattern}high'].members[person] == (r.iloc[i] > 0.7 and alone)
            assert groups[f'{pattern}mid'].members[person] == (0.4 <= r.iloc[i] <= 0.7 and alone)
    assert sum(group.size for group in groups.values()) <= 300


def test_descriptions_say_the_rule():
    low, mid, high, *_ = form_subgroups(table((0.1, 0.2)))
    assert low.description == 'all patterns < 0.4'
    assert low.pattern is None
    assert mid.description == 'r1 0.4 to 0.7, others < 0.4'
    assert (high.description, high.pattern, high.size) == ('r1 > 0.7, others < 0.4', 'r1', 0)


def test_people_without_r_indices_are_refused():
    with pytest.raises(DataError, match='1 has no R-index'):
        form_subgroups(table((0.1, 0.2), (np.nan, 0.3)))
