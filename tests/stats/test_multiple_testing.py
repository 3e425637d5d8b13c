import mpmath
import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from surreal_bids.exceptions import DataError
from surreal_bids.stats.maps import (
    fdr_adjusted,
    fdr_discoveries,
    fdr_t_threshold,
    t_to_z,
    two_sided_p,
)


def precise_log_tail(t, df):
    """log P(T > t) with 60 digits."""
    with mpmath.workdps(60):
        half = mpmath.mpf(1) / 2
        x = df / (df + mpmath.mpf(t) ** 2)
        return mpmath.log(mpmath.betainc(df * half, half, 0, x, regularized=True) / 2)


@pytest.mark.parametrize('df', [3, 20, 500, 2500])
@pytest.mark.parametrize('t', [-6.0, -0.5, 0.0, 1e-4, 2.0, 15.0])
def test_z_has_the_p_of_t(t, df):
    z = t_to_z([t], df)[0]
    assert stats.norm.sf(z) == pytest.approx(stats.t.sf(t, df), rel=1e-9)


@pytest.mark.parametrize(('t', 'df'), [(60.0, 900), (-80.0, 500), (1e4, 120), (45.0, 5000)])
def test_z_stays_finite_and_right_where_p_underflows(t, df):
    z = t_to_z([t], df)[0]
    with mpmath.workdps(60):
        log_normal = mpmath.log(mpmath.erfc(mpmath.mpf(abs(z)) / mpmath.sqrt(2)) / 2)
    expected = float(precise_log_tail(abs(t), df))
    assert float(log_normal) == pytest.approx(expected, rel=1e-8)
    assert np.sign(z) == np.sign(t)


@pytest.mark.parametrize('level', [0.01, 0.05, 0.3])
@pytest.mark.parametrize('share', [0.0, 0.1, 0.9])
def test_discoveries_are_those_of_statsmodels(level, share):
    rng = np.random.default_rng(3)
    p = two_sided_p(rng.normal(size=(40, 50)) + 4 * (rng.uniform(size=(40, 50)) < share), 1e6)
    rejected, adjusted, *_ = multipletests(p.ravel(), level, 'fdr_bh')
    np.testing.assert_array_equal(fdr_discoveries(p, level).ravel(), rejected)
    np.testing.assert_allclose(fdr_adjusted(p.ravel()), adjusted)


@pytest.mark.parametrize('df', [12, 400])
def test_voxels_from_the_threshold_on_are_the_discoveries(df):
    t = np.random.default_rng(4).standard_t(df, 5000) + np.repeat([0, 5], [4000, 1000])
    found = np.abs(t) >= fdr_t_threshold(t, df)
    np.testing.assert_array_equal(found, fdr_discoveries(two_sided_p(t, df)))
    assert 800 < found.sum() < 1100


@pytest.mark.parametrize('t', [[], [0.1, -0.2, 0.3]])
def test_without_discoveries_the_threshold_is_infinite(t):
    assert fdr_t_threshold(t, 10) == np.inf


def test_p_that_underflows_is_a_discovery():
    assert fdr_t_threshold([1e3, 0.1], 2000) == 1e3


def test_missing_p_is_refused():
    with pytest.raises(DataError, match='NaN'):
        fdr_discoveries([0.1, np.nan])
