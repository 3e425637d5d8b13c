import numpy as np
import pytest
import statsmodels.api as sm
from nilearn.mass_univariate import permuted_ols
from scipy import stats

from surreal_bids.stats import glm
from surreal_bids.stats.glm import LinearModels, make_design
from surreal_bids.stats.maps import fdr_t_threshold

from .fields import smooth_fields


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
