"""Splines against scipy's own design matrix, numerical integration, and laws of B-splines."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.interpolate import BSpline

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.encoding import SplineBasis


@pytest.fixture
def ages():
    return np.random.default_rng(8).gamma(4, 8, 150) + 18


@pytest.mark.parametrize('n_functions', [5, 7, 10])
def test_equals_the_design_matrix_of_scipy(ages, n_functions):
    basis = SplineBasis.at_quantiles(ages, n_functions)
    theirs = BSpline.design_matrix(ages, basis.knots, 3).toarray()
    assert theirs.shape == (150, n_functions)
    np.testing.assert_allclose(basis.evaluate(ages), theirs[:, 1:], atol=1e-14)


def test_knots_are_quantiles_between_fourfold_ends(ages):
    basis = SplineBasis.at_quantiles(ages, 10)
    np.testing.assert_array_equal(basis.knots[:4], ages.min())
    np.testing.assert_array_equal(basis.knots[-4:], ages.max())
    np.testing.assert_allclose(basis.knots[4:-4], np.quantile(ages, np.arange(1, 7) / 7))


@pytest.mark.parametrize(('row', 'column'), [(0, 0), (2, 3), (4, 6), (8, 8)])
def test_penalty_is_the_integral_of_second_derivatives(ages, row, column):
    basis = SplineBasis.at_quantiles(ages, 10)

    def product(x):
        curvature = basis.evaluate([x], derivative=2)[0]
        return curvature[row] * curvature[column]

    pieces = [quad(product, a, b)[0] for a, b in zip(basis.knots[3:-4], basis.knots[4:-3])]
    assert basis.penalty()[row, column] == pytest.approx(sum(pieces), rel=1e-9, abs=1e-12)


def test_lines_cost_nothing(ages):
    basis = SplineBasis.at_quantiles(ages, 9)
    columns = np.column_stack([np.ones(150), basis.evaluate(ages)])
    line = np.linalg.lstsq(columns, 3 * ages - 7, rcond=None)[0][1:]
    bend = np.linalg.lstsq(columns, ages**2, rcond=None)[0][1:]
    assert line @ basis.penalty() @ line < 1e-9 * (bend @ basis.penalty() @ bend)


@pytest.mark.parametrize('outside', [0.0, 500.0])
def test_beyond_the_ends_nothing_changes(ages, outside):
    basis = SplineBasis.at_quantiles(ages, 8)
    end = basis.lower if outside < basis.lower else basis.upper
    np.testing.assert_array_equal(basis.evaluate([outside]), basis.evaluate([end]))


@pytest.mark.parametrize(
    ('x', 'message'),
    [
        (np.repeat([20.0, 30.0, 40.0], 30), '10 functions needs as many different values, found 3'),
        (np.append(np.full(90, 22.0), np.arange(23.0, 33.0)), 'share one value'),
    ],
)
def test_refuses_values_that_cannot_carry_a_spline(x, message):
    with pytest.raises(DataError, match=message):
        SplineBasis.at_quantiles(x, 10)
