"""Simulated anatomy: flows, volumes by integration, and atrophy as prescribed."""

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage
from scipy.linalg import expm

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.regions import region_mates
from surreal_bids.simulation.anatomy import (
    DIVERGENCE_SD,
    PATTERNS,
    AtrophySolver,
    RegionIntegrator,
    adjacent_regions,
    compose,
    exponential,
    identity,
    load_regions,
    load_template,
    pattern_table,
    prescribed_losses,
    pull_back,
    region_fractions,
    sample_anatomy,
    sample_placement,
    sample_velocity,
    smooth,
    solve_poisson,
)
from surreal_bids.templates import muse_labels
from tests.simulation.phantom import (
    BALL_CENTRE_MM,
    BALL_RADIUS_MM,
    FAR_REGION,
    HIPPOCAMPUS,
    VENTRICLE,
    WHITE_MATTER,
    phantom,
    real_template,
    row_of,
)

SHAPE = (17, 20, 23)
INTERIOR = np.s_[:, 5:-5, 5:-5, 5:-5]


def determinant(displacement):
    """Local volume ratio of the map x + u(x), by central differences."""
    gradients = np.array([np.gradient(component) for component in displacement])
    return np.linalg.det(np.moveaxis(gradients, (0, 1), (-2, -1)) + np.eye(3))


def linear_field(matrix, shape=SHAPE):
    """Displacement matrix @ (x - centre), in voxels."""
    centred = identity(shape) - (np.array(shape).reshape(3, 1, 1, 1) - 1) / 2
    return np.tensordot(matrix, centred, axes=1).astype(np.float32)


def smooth_field(seed, amplitude, shape=SHAPE):
    noise = np.random.default_rng(seed).standard_normal((3, *shape))
    field = ndimage.gaussian_filter(noise, (0, 3, 3, 3))
    return (amplitude * field / np.abs(field).max()).astype(np.float32)


@pytest.mark.parametrize('voxel_size', [0.5, 1.5, 5.0])
def test_only_some_voxel_sizes_are_offered(voxel_size):
    with pytest.raises(UsageError, match='1, 2, 3, 4 mm'):
        load_template(voxel_size)


@pytest.mark.slow
def test_the_truth_is_labelled_as_the_template_is_measured():
    """One threshold of fluid: labels are those that heads are compared with."""
    template, shipped = real_template(2.0), muse_labels()
    assert template.regions['index'].tolist() == load_regions()['index'].tolist()
    counts = np.bincount(np.asarray(template.labels.dataobj).ravel(), minlength=256)
    expected = np.bincount(np.ravel(shipped.dataobj), minlength=256)
    np.testing.assert_array_equal(counts[1:], expected[1:])
    np.testing.assert_allclose(template.tissue.sum(axis=0), template.brain, atol=1e-5)
    for index, tissue in ((47, 0), (177, 0), (81, 1), (51, 2)):
        voxels = np.argwhere(np.asarray(template.labels.dataobj) == index)
        to_grid = np.linalg.inv(template.affine) @ template.labels.affine
        places = nib.affines.apply_affine(to_grid, voxels)
        assert ndimage.map_coordinates(template.tissue[tissue], places.T, order=1).mean() > 0.5


def test_the_velocity_has_the_divergence_asked_for():
    velocity = sample_velocity((48, 60, 50), 4.0, np.random.default_rng(0))
    divergence = sum(np.gradient(velocity[axis], axis=axis) for axis in range(3))
    assert divergence.std() == pytest.approx(np.linalg.norm(DIVERGENCE_SD), rel=0.15)


def test_anatomies_never_fold_and_come_back_with_their_seed():
    template = phantom(2.0)
    for seed in range(3):
        first, second = (sample_anatomy(template, 'F', np.random.default_rng(seed)) for _ in '12')
        assert determinant(first.displacement).min() > 0.2
        np.testing.assert_array_equal(first.displacement, second.displacement)
        np.testing.assert_array_equal(first.placement, second.placement)


@pytest.mark.parametrize(('sex', 'expected'), [('F', -0.278), ('M', -0.168)])
def test_heads_have_the_mean_volume_of_their_sex(sex, expected):
    rng = np.random.default_rng(1)
    placements = [sample_placement(sex, rng)[:3, :3] for _ in range(400)]
    log_volumes = np.log([np.linalg.det(each) for each in placements])
    assert log_volumes.mean() == pytest.approx(expected, abs=0.01)
    assert log_volumes.std() == pytest.approx(0.06, abs=0.01)
    scale = np.exp(log_volumes[0] * 2 / 3)
    np.testing.assert_allclose(placements[0] @ placements[0].T, np.eye(3) * scale, atol=1e-12)


def world(template):
    origin = template.affine[:3, 3].reshape(3, 1, 1, 1)
    return identity(template.shape) * template.voxel_size + origin


def counts(template):
    data = np.asarray(template.labels.dataobj)
    return np.array([(data == index).sum() for index in template.regions['index']])


def supersampled_volume(template, displacement, index, spacing=0.3):
    """Volume of a deformed region by counting points of a fine lattice that came from it."""
    axes = [np.arange(c - 14, c + 14, spacing) + spacing / 3 for c in BALL_CENTRE_MM]
    lattice = np.stack(np.meshgrid(*axes, indexing='ij')).reshape(3, -1)
    origin = template.affine[:3, 3][:, None]
    points = ((lattice - origin) / template.voxel_size).astype(np.float32)
    source = pull_back(displacement, points) * template.voxel_size + origin
    inside = source - template.labels.affine[:3, 3][:, None]
    found = ndimage.map_coordinates(np.asarray(template.labels.dataobj), np.rint(inside), order=0)
    return (found == index).sum() * spacing**3


@pytest.mark.parametrize('voxel_size', [1.0, 2.0])
def test_volumes_follow_maps_whose_volumes_are_known(voxel_size):
    template = phantom(voxel_size)
    integrator = RegionIntegrator(template)
    for factor in (0.8, 1.0, 1.1):
        displacement = ((factor - 1) * identity(template.shape) + 0.37).astype(np.float32)
        found = integrator.volumes(displacement)
        np.testing.assert_allclose(found, counts(template) * factor**3, rtol=1e-4)
    offset = world(template) - BALL_CENTRE_MM.reshape(3, 1, 1, 1)
    shrinking = np.exp(-((np.linalg.norm(offset, axis=0) / 12) ** 4))
    displacement = (-0.1 * shrinking * offset / voxel_size).astype(np.float32)
    ratio = integrator.volumes(displacement) / counts(template)
    edge = 1 - 0.1 * np.exp(-((BALL_RADIUS_MM / 12) ** 4))
    assert abs(ratio[row_of(template, HIPPOCAMPUS)] - edge**3) < 0.006


@pytest.mark.slow
def test_the_integral_agrees_with_a_finely_resampled_label_map():
    template = phantom(2.0)
    noise = np.random.default_rng(0).standard_normal((3, *template.shape))
    displacement = ndimage.gaussian_filter(noise, (0, 1.5, 1.5, 1.5)).astype(np.float32) * 2
    assert determinant(displacement).std() > 0.1
    expected = supersampled_volume(template, displacement, HIPPOCAMPUS)
    found = RegionIntegrator(template).volumes(displacement)[row_of(template, HIPPOCAMPUS)]
    assert abs(found / expected - 1) < 0.003


def test_fractions_share_out_the_volume_of_each_region_where_it_lies():
    template = phantom(2.0)
    fractions = region_fractions(template)
    np.testing.assert_allclose(np.ravel(fractions.sum(axis=1)) * 8, counts(template), rtol=1e-4)
    assert fractions.sum(axis=0).max() < 1 + 1e-5
    own = fractions[[row_of(template, HIPPOCAMPUS)]].toarray().ravel()
    centre = (world(template).reshape(3, -1) * own).sum(axis=1) / own.sum()
    np.testing.assert_allclose(centre, BALL_CENTRE_MM, atol=0.01)


def losses_of(template, losses):
    return template.regions['index'].map(losses).fillna(0.0).to_numpy()


@pytest.mark.parametrize(('loss', 'voxel_size'), [(0.05, 2.0), (0.3, 2.0)])
def test_a_ball_loses_what_is_prescribed_and_fluid_takes_up_the_space(loss, voxel_size):
    template = phantom(voxel_size)
    solver = AtrophySolver(template)
    still = np.zeros((3, *template.shape), dtype=np.float32)
    atrophy = solver.solve(still, losses_of(template, {HIPPOCAMPUS: loss}))
    assert abs(atrophy.loss[row_of(template, HIPPOCAMPUS)] - loss) < 0.001
    assert abs(atrophy.loss[row_of(template, FAR_REGION)]) < 0.005
    growth = determinant(atrophy.displacement) - 1
    assert growth.min() > -1
    taken_up = (growth * solver.fluid).sum() * voxel_size**3
    given_up = (atrophy.baseline - atrophy.achieved)[solver.controlled].sum()
    assert taken_up == pytest.approx(given_up, rel=0.2)


@pytest.mark.slow
def test_the_loss_is_there_in_a_finely_resampled_label_map():
    template = phantom(2.0)
    anatomy = sample_anatomy(template, 'F', np.random.default_rng(4)).displacement
    diseased = AtrophySolver(template).solve(anatomy, losses_of(template, {HIPPOCAMPUS: 0.3}))
    before, after = (
        supersampled_volume(template, displacement, HIPPOCAMPUS)
        for displacement in (anatomy, diseased.displacement)
    )
    assert abs(1 - after / before - 0.3) < 0.004


def test_without_a_loss_nothing_moves_and_a_loss_out_of_reach_is_an_error(monkeypatch):
    template = phantom(2.0)
    solver = AtrophySolver(template)
    anatomy = sample_anatomy(template, 'F', np.random.default_rng(0)).displacement
    assert solver.solve(anatomy, np.zeros(len(template.regions))).displacement is anatomy
    monkeypatch.setattr('surreal_bids.simulation.anatomy.MOST_ITERATIONS', 1)
    with pytest.raises(DataError, match='smaller'):
        solver.solve(anatomy, losses_of(template, {HIPPOCAMPUS: 0.3}))


def test_neighbours_are_the_regions_that_touch():
    labels = phantom(2.0).labels
    assert adjacent_regions(labels, (HIPPOCAMPUS,)) == {WHITE_MATTER, VENTRICLE}
    assert adjacent_regions(labels, (FAR_REGION,)) == {WHITE_MATTER}


def test_patterns_have_left_and_right_regions_of_tissue_that_lose_by_severity():
    regions = load_regions()
    tissue = regions.set_index('index')['tissue']
    for _, indices in PATTERNS:
        assert {region_mates()[index] for index in indices} == set(indices)
        assert (tissue[list(indices)] == 'GM').all()
    table = pattern_table(2, regions)
    assert table['index'].tolist() == [i for _, indices in PATTERNS[:2] for i in indices]
    with pytest.raises(UsageError, match='between 0 and 4'):
        pattern_table(len(PATTERNS) + 1, regions)
    losses = prescribed_losses(np.array([0.4, 0.5]), regions)
    first, second = (regions['index'].isin(indices) for _, indices in PATTERNS[:2])
    np.testing.assert_allclose(losses[first], 0.12)
    np.testing.assert_allclose(losses[second], 0.15)
    assert not losses[~first & ~second].any()


@pytest.mark.slow
def test_prescribed_losses_in_the_real_template():
    template = real_template(2.0)
    solver = AtrophySolver(template)
    anatomy = sample_anatomy(template, 'M', np.random.default_rng(7)).displacement
    losses = prescribed_losses(np.ones(len(PATTERNS)), template.regions)
    atrophy = solver.solve(anatomy, losses)
    error = np.abs(atrophy.loss - losses)
    assert error[losses > 0].max() < 0.005
    assert error[solver.controlled & (losses == 0)].max() < 0.01
    assert determinant(atrophy.displacement).min() > 0


@pytest.mark.parametrize(
    'matrix',
    [
        np.diag([-0.15, 0.1, 0.2]),
        np.array([[0, 0.12, 0], [-0.12, 0, 0], [0, 0, 0]]),
        np.array([[0, 0.1, 0.05], [0, 0, 0.1], [0, 0, 0]]),
    ],
)
def test_exponential_of_a_linear_field_is_the_matrix_exponential(matrix):
    expected = linear_field(expm(matrix) - np.eye(3))
    np.testing.assert_allclose(
        exponential(linear_field(matrix))[INTERIOR], expected[INTERIOR], atol=2e-3
    )


def test_flows_do_not_fold_and_opposite_velocities_undo_each_other():
    for seed in range(3):
        velocity = smooth_field(seed, 1.5)
        there_and_back = compose(exponential(-velocity), exponential(velocity))
        assert np.abs(there_and_back[INTERIOR]).max() < 0.05
        assert determinant(exponential(2 * velocity)).min() > 0


def test_poisson_and_smoothing_agree_with_scipy():
    field = np.random.default_rng(0).standard_normal((20, 13, 22)).astype(np.float32)
    potential = solve_poisson(field)
    back = ndimage.laplace(potential, mode='reflect')
    np.testing.assert_allclose(back, field - field.mean(), atol=1e-4)
    assert abs(potential.mean()) < 1e-5
    for sigma in (1.0, 5.0):
        expected = ndimage.gaussian_filter(field, sigma, mode='reflect', truncate=8)
        np.testing.assert_allclose(smooth(field, sigma), expected, atol=4e-3)
