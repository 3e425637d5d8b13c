import numpy as np
import pytest

from surreal_bids.simulation.anatomy import (
    DIVERGENCE_SD,
    Anatomy,
    RegionIntegrator,
    draw_anatomy,
    draw_placement,
    draw_velocity,
    jacobian_determinant,
)
from tests.simulation.phantom import phantom, real_template


@pytest.mark.parametrize('voxel_size', [2.0, 4.0])
def test_the_velocity_has_the_divergence_asked_for(voxel_size):
    shape = tuple(int(extent / voxel_size) for extent in (192, 240, 200))
    velocity = draw_velocity(shape, voxel_size, np.random.default_rng(0))
    divergence = sum(np.gradient(velocity[axis], axis=axis) for axis in range(3))
    assert divergence.std() == pytest.approx(np.linalg.norm(DIVERGENCE_SD), rel=0.15)


@pytest.mark.parametrize('seed', range(6))
def test_anatomies_never_fold_and_come_back_with_their_seed(seed):
    template = phantom(2.0)
    first, second = (draw_anatomy(template, 'F', np.random.default_rng(seed)) for _ in range(2))
    assert jacobian_determinant(first.displacement).min() > 0.2
    np.testing.assert_array_equal(first.displacement, second.displacement)
    np.testing.assert_array_equal(first.placement, second.placement)


@pytest.mark.parametrize(('sex', 'expected'), [('F', -0.278), ('M', -0.168)])
def test_heads_have_the_mean_volume_of_their_sex(sex, expected):
    rng = np.random.default_rng(1)
    log_volumes = [np.log(np.linalg.det(draw_placement(sex, rng)[:3, :3])) for _ in range(400)]
    assert np.mean(log_volumes) == pytest.approx(expected, abs=0.01)
    assert np.std(log_volumes) == pytest.approx(0.06, abs=0.01)


def test_a_pose_does_not_change_volumes():
    placement = draw_placement('M', np.random.default_rng(2))
    matrix = placement[:3, :3]
    scale = Anatomy(np.zeros((3, 2, 2, 2), np.float32), placement).volume_scale
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3) * scale ** (2 / 3), atol=1e-12)


@pytest.mark.slow
def test_regional_volumes_vary_as_among_people():
    template = real_template(2.0)
    integrator = RegionIntegrator(template)
    tissue = (template.regions['tissue'] != 'CSF').to_numpy()
    volumes = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        anatomy = draw_anatomy(template, 'FM'[seed % 2], rng)
        volumes.append(integrator.volumes(anatomy.displacement) * anatomy.volume_scale)
    variation = (np.std(volumes, axis=0, ddof=1) / np.mean(volumes, axis=0))[tissue]
    assert 0.08 < np.median(variation) < 0.15
    assert variation.min() > 0.05
    assert variation.max() < 0.25


@pytest.mark.parametrize('variation', [0.0, 0.5])
def test_people_differ_as_much_as_is_asked_for(variation):
    template = phantom(2.0)
    full, less = (
        draw_anatomy(template, 'F', np.random.default_rng(3), each) for each in (1.0, variation)
    )
    np.testing.assert_array_equal(less.placement, full.placement)
    spread = [np.log(jacobian_determinant(each.displacement)).std() for each in (full, less)]
    assert spread[1] == pytest.approx(variation * spread[0], rel=0.1, abs=1e-6)
