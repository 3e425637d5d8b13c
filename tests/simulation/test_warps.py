import numpy as np
import pytest
from scipy import ndimage
from scipy.linalg import expm

from surreal_bids.exceptions import DataError
from surreal_bids.simulation.anatomy import (
    compose,
    exponential,
    identity,
    interpolate,
    jacobian_determinant,
    pull_back,
)

SHAPE = (17, 20, 23)
INTERIOR = np.s_[:, 5:-5, 5:-5, 5:-5]

MATRICES = {
    'scaling': np.diag([-0.15, 0.1, 0.2]),
    'rotation': np.array([[0, 0.12, 0], [-0.12, 0, 0], [0, 0, 0]]),
    'shear': np.array([[0, 0.1, 0.05], [0, 0, 0.1], [0, 0, 0]]),
}


def linear_field(matrix, shape=SHAPE):
    """Displacement matrix @ (x - centre), in voxels."""
    centred = identity(shape) - (np.array(shape).reshape(3, 1, 1, 1) - 1) / 2
    return np.tensordot(matrix, centred, axes=1).astype(np.float32)


def smooth_field(seed, amplitude, sigma=3.0, shape=SHAPE):
    noise = np.random.default_rng(seed).standard_normal((3, *shape))
    field = ndimage.gaussian_filter(noise, (0, sigma, sigma, sigma))
    return (amplitude * field / np.abs(field).max()).astype(np.float32)


@pytest.mark.parametrize('points_shape', [(50,), (6, 7), (4, 5, 6)])
@pytest.mark.parametrize('channels', [1, 3])
def test_interpolation_agrees_with_scipy(points_shape, channels):
    rng = np.random.default_rng(0)
    volumes = rng.standard_normal((channels, 7, 8, 9)).astype(np.float32)
    points = rng.uniform(-2, 11, (3, *points_shape)).astype(np.float32)
    expected = [ndimage.map_coordinates(v, points, order=1, mode='nearest') for v in volumes]
    np.testing.assert_allclose(interpolate(volumes, points), expected, atol=2e-5)


@pytest.mark.parametrize('kind', MATRICES)
def test_exponential_of_a_linear_field_is_the_matrix_exponential(kind):
    matrix = MATRICES[kind]
    expected = linear_field(expm(matrix) - np.eye(3))
    found = exponential(linear_field(matrix))
    np.testing.assert_allclose(found[INTERIOR], expected[INTERIOR], atol=2e-3)


@pytest.mark.parametrize('kind', MATRICES)
def test_jacobian_of_a_linear_map_is_its_determinant(kind):
    found = jacobian_determinant(linear_field(MATRICES[kind]))
    np.testing.assert_allclose(found, np.linalg.det(np.eye(3) + MATRICES[kind]), rtol=1e-5)


@pytest.mark.parametrize('seed', range(3))
def test_opposite_velocities_undo_each_other(seed):
    velocity = smooth_field(seed, 1.5)
    there_and_back = compose(exponential(-velocity), exponential(velocity))
    assert np.abs(there_and_back[INTERIOR]).max() < 0.05


def test_composition_applies_the_inner_map_first():
    shift = np.zeros((3, *SHAPE), dtype=np.float32)
    shift[0] = 2
    ramp = np.zeros((3, *SHAPE), dtype=np.float32)
    ramp[0] = 0.1 * identity(SHAPE)[0]
    x = identity(SHAPE)[0][2:-5]
    np.testing.assert_allclose(compose(ramp, shift)[0][2:-5], 2 + 0.1 * (x + 2), rtol=1e-5)
    np.testing.assert_allclose(compose(shift, ramp)[0][2:-5], 0.1 * x + 2, rtol=1e-5)


@pytest.mark.parametrize('stretch', [-0.6, -0.2, 0.5, 1.5])
def test_pull_back_inverts_strong_contraction_and_stretching(stretch):
    displacement = linear_field(np.diag([stretch, 0.1, 0]))
    origins = np.random.default_rng(0).uniform(5, 11, (3, 200)).astype(np.float32)
    points = origins + interpolate(displacement, origins)
    np.testing.assert_allclose(pull_back(displacement, points), origins, atol=0.05)


@pytest.mark.parametrize('seed', range(3))
def test_pull_back_inverts_a_flow_between_grid_points_too(seed):
    displacement = exponential(smooth_field(seed, 2.0))
    origins = np.random.default_rng(seed).uniform(4, 12, (3, 5, 6, 7)).astype(np.float32)
    points = origins + interpolate(displacement, origins)
    found = pull_back(displacement, points)
    assert found.shape == origins.shape
    assert np.abs(found - origins).max() < 0.05


def test_a_map_that_folds_is_not_inverted_in_silence():
    with pytest.raises(DataError, match='could not be inverted'):
        pull_back(smooth_field(0, 8.0, sigma=0.5), identity(SHAPE))


@pytest.mark.parametrize('seed', range(5))
def test_flows_never_fold(seed):
    assert jacobian_determinant(exponential(smooth_field(seed, 3.0))).min() > 0
