import numpy as np
import pytest

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.regions import region_mates
from surreal_bids.simulation.anatomy import (
    PATTERNS,
    AtrophySolver,
    adjacent_regions,
    draw_anatomy,
    jacobian_determinant,
    pattern_table,
    prescribed_losses,
)
from surreal_bids.simulation.templates import load_regions
from tests.simulation.phantom import (
    FAR_REGION,
    HIPPOCAMPUS,
    VENTRICLE,
    WHITE_MATTER,
    phantom,
    real_template,
    row_of,
)
from tests.simulation.test_volumes import supersampled_volume

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


@pytest.mark.parametrize('voxel_size', [1.0, 2.0])
@pytest.mark.parametrize('loss', [0.0, 0.05, 0.1, 0.2, 0.3])
def test_a_ball_loses_what_is_prescribed(loss, voxel_size):
    template = phantom(voxel_size)
    losses = losses_of(template, {HIPPOCAMPUS: loss})
    atrophy = AtrophySolver(template).solve(still(template), losses)
    assert abs(atrophy.loss[row_of(template, HIPPOCAMPUS)] - loss) < 0.001
    assert abs(atrophy.loss[row_of(template, FAR_REGION)]) < 0.005
    assert jacobian_determinant(atrophy.displacement).min() > 0


@pytest.mark.parametrize('loss', [0.1, 0.3])
def test_the_loss_is_there_in_a_finely_resampled_label_map(loss):
    template = phantom(2.0)
    anatomy = draw_anatomy(template, 'F', np.random.default_rng(4)).displacement
    losses = losses_of(template, {HIPPOCAMPUS: loss})
    diseased = AtrophySolver(template).solve(anatomy, losses).displacement
    before, after = (
        supersampled_volume(template, displacement, HIPPOCAMPUS, 0.22)
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
    anatomy = draw_anatomy(template, 'F', np.random.default_rng(0)).displacement
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
@pytest.mark.parametrize('voxel_size', [2.0, 1.0])
def test_graded_losses_in_the_real_template(voxel_size):
    template = real_template(voxel_size)
    solver = AtrophySolver(template)
    anatomy = draw_anatomy(template, 'M', np.random.default_rng(7)).displacement
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
    anatomy = draw_anatomy(template, 'F', np.random.default_rng(0)).displacement
    losses = prescribed_losses(np.ones(len(PATTERNS)), template.regions)
    error = np.abs(solver.solve(anatomy, losses).loss - losses)
    assert error[losses > 0].max() < 0.005
    assert error[solver.controlled & (losses == 0)].max() < 0.01
