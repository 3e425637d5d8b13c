import numpy as np
import pytest
from scipy import ndimage

from surreal_bids.simulation.anatomy import smooth, solve_poisson

SHAPES = [(7, 8, 9), (16, 12, 10), (11, 13, 5)]


def random_field(shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize('shape', SHAPES)
def test_the_laplacian_of_the_solution_is_the_source_without_its_mean(shape):
    source = random_field(shape)
    back = ndimage.laplace(solve_poisson(source), mode='reflect')
    np.testing.assert_allclose(back, source - source.mean(), atol=1e-4)


@pytest.mark.parametrize('shape', SHAPES)
def test_the_potential_has_mean_zero(shape):
    assert abs(solve_poisson(random_field(shape)).mean()) < 1e-5


@pytest.mark.parametrize('sigma', [1.0, 2.0, 5.0])
def test_smoothing_agrees_with_scipy(sigma):
    field = random_field((20, 24, 22))
    expected = ndimage.gaussian_filter(field, sigma, mode='reflect', truncate=8)
    np.testing.assert_allclose(smooth(field, sigma), expected, atol=4e-3)


@pytest.mark.parametrize('shape', SHAPES)
def test_smoothing_keeps_the_sum(shape):
    field = random_field(shape)
    np.testing.assert_allclose(smooth(field, 2.0).sum(), field.sum(), atol=1e-3)
