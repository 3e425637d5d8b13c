"""Simulated anatomy: flows, volumes by integration, and atrophy as prescribed."""

import numpy as np
import pytest
from scipy import ndimage
from scipy.linalg import expm

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.regions import region_mates
from surreal_bids.simulation.anatomy import (
    DIVERGENCE_SD,
    PATTERNS,
    Anatomy,
    AtrophySolver,
    RegionIntegrator,
    adjacent_regions,
    compose,
    exponential,
    identity,
    interpolate,
    jacobian_determinant,
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
from surreal_bids.simulation.templates import load_regions
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


def test_the_velocity_has_the_divergence_asked_for():
    voxel_size = 4.0
    shape = tuple(int(extent / voxel_size) for extent in (192, 240, 200))
    velocity = sample_velocity(shape, voxel_size, np.random.default_rng(0))
    divergence = sum(np.gradient(velocity[axis], axis=axis) for axis in range(3))
    assert divergence.std() == pytest.approx(np.linalg.norm(DIVERGENCE_SD), rel=0.15)


@pytest.mark.parametrize('seed', range(3))
def test_anatomies_never_fold_and_come_back_with_their_seed(seed):
    template = phantom(2.0)
    first, second = (sample_anatomy(template, 'F', np.random.default_rng(seed)) for _ in range(2))
    assert jacobian_determinant(first.displacement).min() > 0.2
    np.testing.assert_array_equal(first.displacement, second.displacement)
    np.testing.assert_array_equal(first.placement, second.placement)


@pytest.mark.parametrize(('sex', 'expected'), [('F', -0.278), ('M', -0.168)])
def test_heads_have_the_mean_volume_of_their_sex(sex, expected):
    rng = np.random.default_rng(1)
    log_volumes = [np.log(np.linalg.det(sample_placement(sex, rng)[:3, :3])) for _ in range(400)]
    assert np.mean(log_volumes) == pytest.approx(expected, abs=0.01)
    assert np.std(log_volumes) == pytest.approx(0.06, abs=0.01)


def test_a_pose_does_not_change_volumes():
    placement = sample_placement('M', np.random.default_rng(2))
    matrix = placement[:3, :3]
    scale = Anatomy(np.zeros((3, 2, 2, 2), np.float32), placement).volume_scale
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3) * scale ** (2 / 3), atol=1e-12)


@pytest.mark.slow
def test_regional_volumes_vary_as_among_people():
    template = real_template(4.0)
    integrator = RegionIntegrator(template)
    tissue = (template.regions['tissue'] != 'CSF').to_numpy()
    volumes = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        anatomy = sample_anatomy(template, 'FM'[seed % 2], rng)
        volumes.append(integrator.volumes(anatomy.displacement) * anatomy.volume_scale)
    variation = (np.std(volumes, axis=0, ddof=1) / np.mean(volumes, axis=0))[tissue]
    assert 0.08 < np.median(variation) < 0.15
    assert variation.min() > 0.05
    assert variation.max() < 0.25


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


@pytest.mark.parametrize('seed', range(2))
def test_the_integral_agrees_with_a_finely_resampled_label_map(seed):
    template = phantom(2.0)
    noise = np.random.default_rng(seed).standard_normal((3, *template.shape))
    displacement = ndimage.gaussian_filter(noise, (0, 1.5, 1.5, 1.5)).astype(np.float32) * 2
    assert jacobian_determinant(displacement).std() > 0.1
    expected = supersampled_volume(template, displacement, HIPPOCAMPUS, 0.3)
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


GRADED_LOSSES = {
    47: 0.30,
    48: 0.05,
    102: 0.10,
    103: 0.20,
    168: 0.30,
    169: 0.02,
    36: 0.20,
    37: 0.30,
    198: 0.10,
    31: 0.30,
}
"""Losses of small and large, deep and superficial regions, next to each other and not."""


def losses_of(template, losses):
    return template.regions['index'].map(losses).fillna(0.0).to_numpy()


def still(template):
    return np.zeros((3, *template.shape), dtype=np.float32)


@pytest.mark.parametrize(('loss', 'voxel_size'), [(0.05, 2.0), (0.3, 2.0), (0.3, 1.0)])
def test_a_ball_loses_what_is_prescribed(loss, voxel_size):
    template = phantom(voxel_size)
    losses = losses_of(template, {HIPPOCAMPUS: loss})
    atrophy = AtrophySolver(template).solve(still(template), losses)
    assert abs(atrophy.loss[row_of(template, HIPPOCAMPUS)] - loss) < 0.001
    assert abs(atrophy.loss[row_of(template, FAR_REGION)]) < 0.005
    assert jacobian_determinant(atrophy.displacement).min() > 0


@pytest.mark.slow
def test_the_loss_is_there_in_a_finely_resampled_label_map():
    loss = 0.3
    template = phantom(2.0)
    anatomy = sample_anatomy(template, 'F', np.random.default_rng(4)).displacement
    losses = losses_of(template, {HIPPOCAMPUS: loss})
    diseased = AtrophySolver(template).solve(anatomy, losses).displacement
    before, after = (
        supersampled_volume(template, displacement, HIPPOCAMPUS, 0.3)
        for displacement in (anatomy, diseased)
    )
    assert abs(1 - after / before - loss) < 0.004


def test_fluid_takes_up_the_space():
    template = phantom(2.0)
    losses = losses_of(template, {HIPPOCAMPUS: 0.3})
    solver = AtrophySolver(template)
    atrophy = solver.solve(still(template), losses)
    growth = jacobian_determinant(atrophy.displacement) - 1
    taken_up = (growth * solver.fluid).sum() * template.voxel_size**3
    given_up = (atrophy.baseline - atrophy.achieved)[solver.controlled].sum()
    assert taken_up == pytest.approx(given_up, rel=0.2)


def test_without_a_loss_nothing_moves():
    template = phantom(2.0)
    anatomy = sample_anatomy(template, 'F', np.random.default_rng(0)).displacement
    atrophy = AtrophySolver(template).solve(anatomy, np.zeros(len(template.regions)))
    assert atrophy.displacement is anatomy
    assert atrophy.iterations == 0


def test_a_loss_that_is_not_reached_is_an_error(monkeypatch):
    monkeypatch.setattr('surreal_bids.simulation.anatomy.MOST_ITERATIONS', 1)
    template = phantom(2.0)
    losses = losses_of(template, {HIPPOCAMPUS: 0.3})
    with pytest.raises(DataError, match='smaller'):
        AtrophySolver(template).solve(still(template), losses)


@pytest.mark.parametrize(
    ('indices', 'expected'),
    [((HIPPOCAMPUS,), {WHITE_MATTER, VENTRICLE}), ((FAR_REGION,), {WHITE_MATTER})],
)
def test_neighbours_are_the_regions_that_touch(indices, expected):
    assert adjacent_regions(phantom(2.0).labels, indices) == expected


@pytest.mark.parametrize('pattern', range(len(PATTERNS)))
def test_patterns_have_left_and_right_regions_of_tissue(pattern):
    _, indices = PATTERNS[pattern]
    regions = load_regions().set_index('index')
    assert {region_mates()[index] for index in indices} == set(indices)
    assert (regions.loc[list(indices), 'tissue'] == 'GM').all()


@pytest.mark.parametrize('n_patterns', [-1, len(PATTERNS) + 1])
def test_only_defined_patterns_can_be_asked_for(n_patterns):
    with pytest.raises(UsageError, match='between 0 and 4'):
        pattern_table(n_patterns, load_regions())


@pytest.mark.parametrize('n_patterns', [0, 1, len(PATTERNS)])
def test_the_table_lists_the_regions_of_each_pattern(n_patterns):
    table = pattern_table(n_patterns, load_regions())
    assert len(table) == sum(len(indices) for _, indices in PATTERNS[:n_patterns])
    assert not table['index'].duplicated().any()


@pytest.mark.parametrize('severity', [0.0, 0.4, 1.0])
def test_losses_grow_with_severity(severity):
    regions = load_regions()
    losses = prescribed_losses(np.array([severity, 0.5]), regions)
    first, second = (regions['index'].isin(indices) for _, indices in PATTERNS[:2])
    np.testing.assert_allclose(losses[first], 0.3 * severity)
    np.testing.assert_allclose(losses[second], 0.15)
    assert not losses[~first & ~second].any()


@pytest.mark.slow
def test_graded_losses_in_the_real_template():
    template = real_template(2.0)
    solver = AtrophySolver(template)
    anatomy = sample_anatomy(template, 'M', np.random.default_rng(7)).displacement
    losses = losses_of(template, GRADED_LOSSES)
    atrophy = solver.solve(anatomy, losses)
    error = np.abs(atrophy.loss - losses)
    assert error[losses > 0].max() < 0.005
    assert error[solver.controlled & (losses == 0)].max() < 0.01
    assert jacobian_determinant(atrophy.displacement).min() > 0


@pytest.mark.slow
def test_all_patterns_at_full_severity_in_the_real_template():
    template = real_template(2.0)
    solver = AtrophySolver(template)
    anatomy = sample_anatomy(template, 'F', np.random.default_rng(0)).displacement
    losses = prescribed_losses(np.ones(len(PATTERNS)), template.regions)
    error = np.abs(solver.solve(anatomy, losses).loss - losses)
    assert error[losses > 0].max() < 0.005
    assert error[solver.controlled & (losses == 0)].max() < 0.01


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


@pytest.mark.parametrize('seed', range(3))
def test_flows_never_fold(seed):
    assert jacobian_determinant(exponential(smooth_field(seed, 3.0))).min() > 0


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
