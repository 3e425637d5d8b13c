import re

import numpy as np
import pytest

from surreal_bids.exceptions import UsageError
from surreal_bids.regions import muse_indices, recognise
from surreal_bids.simulation.tables import (
    TABLE_5,
    TASKS,
    Task,
    draw_severities,
    find_task,
    impose_atrophy,
)
from tests.shared_data import shared_data

SHAPES = {'basic': (14, 4), 'overlap': (16, 8), 'scarce': (4, 0), 'noise': (14, 4), 'mild': (14, 4)}


@pytest.mark.parametrize(('name', 'n_regions', 'n_shared'), [(k, *v) for k, v in SHAPES.items()])
def test_each_pattern_has_and_shares_as_many_regions_as_the_paper_says(name, n_regions, n_shared):
    patterns = [set(pattern) for pattern in TASKS[name].patterns]
    assert len(patterns) == 3
    for k, pattern in enumerate(patterns):
        others = set().union(*(patterns[j] for j in range(3) if j != k))
        assert len(TASKS[name].patterns[k]) == len(pattern) == n_regions
        assert len(pattern & others) == n_shared


@pytest.mark.parametrize(
    ('name', 'noise_sd', 'max_loss'),
    [
        ('basic', 0.05, 0.3),
        ('overlap', 0.05, 0.3),
        ('scarce', 0.05, 0.3),
        ('noise', 0.2, 0.3),
        ('mild', 0.05, 0.2),
    ],
)
def test_noise_and_loss_of_section_4_2(name, noise_sd, max_loss):
    assert (find_task(name).noise_sd, find_task(name).max_loss) == (noise_sd, max_loss)


@pytest.mark.parametrize('structure', TABLE_5)
def test_region_names_and_indices_agree(structure):
    right, left = TABLE_5[structure][0]
    expected = {f'right {structure}': right, f'left {structure}': left}
    assert recognise(expected) == expected


def printed_ticks() -> dict[str, list[str]]:
    """Table 5 as printed: for each region the patterns ticked in its three columns of three."""
    text = shared_data('../paper/surreal-gan.tex').read_text()
    body = text.partition(r'\label{tab5}')[2].partition(r'\bottomrule')[0]
    ticks = {}
    for name, *cells in (row.split('&') for row in body.split(r'\\') if 'checkmark' in row):
        name = name.replace(r'\midrule', '').strip().lower()
        name = re.sub('^op of', 'opercular part of', re.sub('^tp of', 'triangular part of', name))
        cells = [r'\checkmark' in cell for cell in cells] + [False] * (9 - len(cells))
        ticks[name] = [
            ''.join(str(k + 1) for k in range(3) if cells[start + k]) for start in (0, 3, 6)
        ]
    return ticks


def test_ticks_are_those_printed_in_table_5():
    assert {name: list(row[1:]) for name, row in TABLE_5.items()} == printed_ticks()


def test_unknown_task_lists_the_known_ones():
    with pytest.raises(UsageError, match='basic, overlap, scarce, noise, mild'):
        find_task('hard')


def test_severities_are_uniform_and_independent():
    severities = draw_severities(20_000, np.random.default_rng(0))
    assert severities.shape == (20_000, 3)
    np.testing.assert_allclose(severities.mean(axis=0), 0.5, atol=0.01)
    np.testing.assert_allclose(np.cov(severities.T), np.eye(3) / 12, atol=2e-3)


@pytest.mark.parametrize('name', TASKS)
def test_without_severity_nothing_changes(name):
    volumes = np.random.default_rng(1).uniform(1, 2, (5, 139))
    after = impose_atrophy(volumes, np.zeros((5, 3)), TASKS[name], np.random.default_rng(2))
    np.testing.assert_array_equal(after, volumes)


@pytest.mark.parametrize('name', TASKS)
def test_losses_follow_the_formula_region_by_region(name):
    task, rng = TASKS[name], np.random.default_rng(3)
    volumes, severities = rng.uniform(1, 2, (8000, 139)), draw_severities(8000, rng)
    kept = impose_atrophy(volumes, severities, task, rng) / volumes
    for position, index in enumerate(muse_indices()):
        patterns = [k for k in range(3) if index in task.patterns[k]]
        expected = np.prod(1 - task.max_loss * severities[:, patterns], axis=1)
        residual = kept[:, position] - expected
        assert abs(residual.mean()) < 2e-3
        if len(patterns) == 1:
            spread = task.max_loss * task.noise_sd * np.sqrt(1 / 3)
            assert residual.std() == pytest.approx(spread, rel=0.05)


def test_noise_is_drawn_anew_for_each_person_and_region():
    task = Task('one', patterns=((31, 32),), noise_sd=0.2)
    rng = np.random.default_rng(4)
    kept = impose_atrophy(np.ones((4000, 139)), np.ones((4000, 1)), task, rng)
    left, right = kept[:, muse_indices().index(31)], kept[:, muse_indices().index(32)]
    assert abs(np.corrcoef(left, right)[0, 1]) < 0.05


def test_input_volumes_are_left_alone():
    volumes = np.ones((3, 139))
    impose_atrophy(volumes, np.ones((3, 3)), TASKS['basic'], np.random.default_rng(5))
    assert (volumes == 1).all()
