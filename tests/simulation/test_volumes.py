import numpy as np
import pytest
from scipy import ndimage

from surreal_bids.simulation.anatomy import (
    RegionIntegrator,
    identity,
    interpolate,
    jacobian_determinant,
    pull_back,
    region_fractions,
)
from tests.simulation.phantom import (
    BALL_CENTRE_MM,
    BALL_RADIUS_MM,
    HIPPOCAMPUS,
    phantom,
    row_of,
)

VOXEL_SIZES = [1.0, 2.0]


def world(template):
    return identity(template.shape) * template.voxel_size + template.affine[:3, 3].reshape(
        3, 1, 1, 1
    )


def counts(template):
    data = template.labels.data
    return np.array([(data == index).sum() for index in template.regions['index']])


def supersampled_volume(template, displacement, index, spacing):
    """Volume of a deformed region by counting points of a fine lattice that came from it."""
    axes = [np.arange(c - 14, c + 14, spacing) + spacing / 3 for c in BALL_CENTRE_MM]
    lattice = np.stack(np.meshgrid(*axes, indexing='ij')).reshape(3, -1)
    origin = template.affine[:3, 3][:, None]
    points = ((lattice - origin) / template.voxel_size).astype(np.float32)
    source = pull_back(displacement, points, tolerance=1e-3) * template.voxel_size + origin
    inside = source - template.labels.affine[:3, 3][:, None]
    found = ndimage.map_coordinates(template.labels.data, np.rint(inside), order=0)
    return (found == index).sum() * spacing**3


@pytest.mark.parametrize('voxel_size', VOXEL_SIZES)
def test_without_a_map_volumes_are_counts_of_label_voxels(voxel_size):
    template = phantom(voxel_size)
    still = np.zeros((3, *template.shape), dtype=np.float32)
    np.testing.assert_allclose(
        RegionIntegrator(template).volumes(still), counts(template), rtol=1e-6
    )


@pytest.mark.parametrize('voxel_size', VOXEL_SIZES)
@pytest.mark.parametrize('factor', [0.8, 1.0, 1.1])
def test_scaling_multiplies_all_volumes_and_a_shift_none(voxel_size, factor):
    template = phantom(voxel_size)
    displacement = ((factor - 1) * identity(template.shape) + 0.37).astype(np.float32)
    found = RegionIntegrator(template).volumes(displacement)
    np.testing.assert_allclose(found, counts(template) * factor**3, rtol=1e-4)


@pytest.mark.parametrize('voxel_size', VOXEL_SIZES)
def test_a_ball_that_shrinks_towards_its_centre_has_the_known_volume(voxel_size):
    template = phantom(voxel_size)
    offset = world(template) - BALL_CENTRE_MM.reshape(3, 1, 1, 1)
    shrinking = np.exp(-((np.linalg.norm(offset, axis=0) / 12) ** 4))
    displacement = (-0.1 * shrinking * offset / voxel_size).astype(np.float32)
    ratio = RegionIntegrator(template).volumes(displacement) / counts(template)
    edge = 1 - 0.1 * np.exp(-((BALL_RADIUS_MM / 12) ** 4))
    assert abs(ratio[row_of(template, HIPPOCAMPUS)] - edge**3) < 0.006


@pytest.mark.parametrize('seed', range(3))
def test_the_integral_agrees_with_a_finely_resampled_label_map(seed):
    template = phantom(2.0)
    noise = np.random.default_rng(seed).standard_normal((3, *template.shape))
    displacement = ndimage.gaussian_filter(noise, (0, 1.5, 1.5, 1.5)).astype(np.float32) * 2
    assert jacobian_determinant(displacement).std() > 0.1
    expected = supersampled_volume(template, displacement, HIPPOCAMPUS, 0.23)
    found = RegionIntegrator(template).volumes(displacement)[row_of(template, HIPPOCAMPUS)]
    assert abs(found / expected - 1) < 0.003


@pytest.mark.parametrize('voxel_size', VOXEL_SIZES)
def test_fractions_share_out_the_volume_of_each_region(voxel_size):
    template = phantom(voxel_size)
    fractions = region_fractions(template)
    volume = np.asarray(fractions.sum(axis=1)).ravel() * voxel_size**3
    np.testing.assert_allclose(volume, counts(template), rtol=1e-4)
    assert fractions.sum(axis=0).max() < 1 + 1e-5


def test_fractions_lie_where_the_region_lies():
    template = phantom(2.0)
    fractions = region_fractions(template)[[row_of(template, HIPPOCAMPUS)]].toarray().ravel()
    centre = (world(template).reshape(3, -1) * fractions).sum(axis=1) / fractions.sum()
    np.testing.assert_allclose(centre, BALL_CENTRE_MM, atol=0.01)


def test_a_smooth_field_is_interpolated_at_the_points_asked_for():
    template = phantom(2.0)
    points = (BALL_CENTRE_MM - template.affine[:3, 3]).reshape(3, 1).astype(np.float32) / 2
    np.testing.assert_allclose(
        interpolate(world(template).astype(np.float32), points).ravel(), BALL_CENTRE_MM, atol=1e-4
    )
