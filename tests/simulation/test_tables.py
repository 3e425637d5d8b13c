"""The semi-synthetic tasks of the paper, and the tables made of them."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_predict

from surreal_bids.exceptions import UsageError
from surreal_bids.regions import muse_indices, muse_table, recognise
from surreal_bids.simulation.anatomy import labels_at, load_labels
from surreal_bids.simulation.tables import (
    MAP_VOXEL_MM,
    MOST_PEOPLE,
    TABLE_5,
    TASKS,
    Controls,
    impose_atrophy,
    sample_controls,
    sample_severities,
    simulate_ravens,
    simulate_table,
    volume_columns,
    write_simulated_table,
)
from surreal_bids.stats.concordance import pattern_c_index
from tests.shared_data import shared_data

SHAPES = {'basic': (14, 4), 'overlap': (16, 8), 'scarce': (4, 0), 'noise': (14, 4), 'mild': (14, 4)}


@pytest.mark.parametrize(('name', 'n_regions', 'n_shared'), [(k, *v) for k, v in SHAPES.items()])
def test_tasks_are_those_of_the_paper(name, n_regions, n_shared):
    task = TASKS[name]
    assert task.noise_sd == (0.2 if name == 'noise' else 0.05)
    assert task.max_loss == (0.2 if name == 'mild' else 0.3)
    patterns = [set(pattern) for pattern in task.patterns]
    assert len(patterns) == 3
    for k, pattern in enumerate(patterns):
        others = set().union(*(patterns[j] for j in range(3) if j != k))
        assert len(TASKS[name].patterns[k]) == len(pattern) == n_regions
        assert len(pattern & others) == n_shared


def test_region_names_and_indices_agree():
    for structure, ((right, left), *_) in TABLE_5.items():
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


@pytest.mark.parametrize('name', TASKS)
def test_losses_follow_the_formula_region_by_region(name):
    task, rng = TASKS[name], np.random.default_rng(3)
    volumes, severities = rng.uniform(1, 2, (8000, 139)), sample_severities(8000, rng)
    kept = impose_atrophy(volumes, severities, task, rng) / volumes
    for position, index in enumerate(muse_indices()):
        patterns = [k for k in range(3) if index in task.patterns[k]]
        expected = np.prod(1 - task.max_loss * severities[:, patterns], axis=1)
        residual = kept[:, position] - expected
        assert abs(residual.mean()) < 2e-3
        if len(patterns) == 1:
            spread = task.max_loss * task.noise_sd * np.sqrt(1 / 3)
            assert residual.std() == pytest.approx(spread, rel=0.05)


TABLES = ('volumes', 'participants', 'severities')


@pytest.fixture(scope='module')
def real_people() -> Controls:
    """Thirty people, told apart by their age."""
    controls = sample_controls(30, np.random.default_rng(0))
    return Controls(controls.volumes, controls.people.assign(age=np.arange(40.0, 70.0)))


def test_people_are_the_same_in_the_three_tables():
    simulated = simulate_table('basic', n_cn=5, n_pt=8, seed=1)
    names = simulated.participants['participant_id'].tolist()
    assert names[0] == 'sub-0001'
    assert len(set(names)) == 13
    for table in TABLES:
        assert getattr(simulated, table)['participant_id'].tolist() == names
    assert simulated.participants['diagnosis'].tolist() == ['CN'] * 5 + ['PT'] * 8
    assert list(simulated.volumes.columns[1:]) == volume_columns()
    severities = simulated.severities[['r1', 'r2', 'r3']].to_numpy()
    assert (severities[:5] == 0).all()
    assert ((severities[5:] > 0) & (severities[5:] < 1)).all()


def test_the_same_seed_gives_the_same_tables():
    first, second, other = (simulate_table('noise', 4, 6, seed) for seed in (7, 7, 8))
    for table in TABLES:
        pd.testing.assert_frame_equal(getattr(first, table), getattr(second, table))
    assert not first.severities.equals(other.severities)


@pytest.mark.parametrize('task', ['overlap', 'scarce', 'noise', 'mild'])
def test_tasks_of_one_seed_differ_only_in_the_volumes_of_affected_regions(task):
    basic, other = (simulate_table(name, n_cn=4, n_pt=6, seed=2) for name in ('basic', task))
    pd.testing.assert_frame_equal(basic.participants, other.participants)
    pd.testing.assert_frame_equal(basic.severities, other.severities)
    changed = (basic.volumes[volume_columns()] != other.volumes[volume_columns()]).to_numpy()
    assert not changed[:4].any()
    affected = {i for name in ('basic', task) for pattern in TASKS[name].patterns for i in pattern}
    columns = {volume_columns()[k] for k in np.flatnonzero(changed.any(axis=0))}
    assert columns <= {f'MUSE_{index}' for index in affected}


def test_real_people_are_taken_once_each_and_controls_are_untouched(real_people):
    simulated = simulate_table('basic', n_cn=12, n_pt=18, seed=3, controls=real_people)
    ages = simulated.participants['age']
    assert sorted(ages) == real_people.people['age'].tolist()
    assert ages.tolist() != sorted(ages)
    original = real_people.volumes.iloc[(ages - 40).astype(int)].to_numpy()
    now = simulated.volumes[volume_columns()].to_numpy()
    np.testing.assert_array_equal(now[:12], original[:12])
    assert (now[12:] <= original[12:] * 1.0000001).all()
    assert (now[12:] < original[12:]).any(axis=1).all()


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'task': 'hard'}, 'unknown task'),
        ({'n_cn': 0}, '--n-cn 0'),
        ({'n_cn': MOST_PEOPLE}, f'at most {MOST_PEOPLE} participants'),
        ({'n_pt': -3}, '--n-pt -3'),
        ({'seed': -1}, '--seed -1'),
        ({'resample': 'gaussian'}, 'needs a table'),
    ],
)
def test_impossible_wishes_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        simulate_table(**{'task': 'basic', 'n_cn': 3, 'n_pt': 3, **options})


@pytest.mark.parametrize(
    ('task', 'expected'),
    [('basic', 0.90), ('overlap', 0.91), ('scarce', 0.87), ('noise', 0.90), ('mild', 0.86)],
)
def test_linear_regression_finds_severities_as_well_as_in_real_people(task, expected):
    """The ceiling of each task: supervised regression, as measured with controls of real people."""
    simulated = simulate_table(task, seed=0)
    patients = simulated.participants['diagnosis'] == 'PT'
    volumes = simulated.volumes.loc[patients, volume_columns()].to_numpy()
    truth = simulated.severities.loc[patients, ['r1', 'r2', 'r3']].to_numpy()
    estimate = cross_val_predict(LinearRegression(), volumes / volumes.mean(axis=0), truth, cv=5)
    assert pattern_c_index(estimate, truth) == pytest.approx(expected, abs=0.03)


LABELS = ('pattern', 'index')
"""Numbers that are names and have no unit."""


def test_written_tables_are_read_back_with_every_column_described(tmp_path):
    simulated = simulate_table('scarce', n_cn=3, n_pt=4, seed=5)
    written = write_simulated_table(tmp_path, simulated)
    assert [path.name for path in written] == [
        'participants.tsv',
        'roi_volumes.tsv',
        'severities.tsv',
        'patterns.tsv',
    ]
    assert len(list(tmp_path.iterdir())) == 8
    tables = (
        simulated.participants,
        simulated.volumes,
        simulated.severities,
        simulated.patterns,
    )
    for path, expected in zip(written, tables):
        table = pd.read_csv(path, sep='\t', na_values='n/a')
        pd.testing.assert_frame_equal(table, expected, check_dtype=False, atol=0.006, rtol=0)
        described = json.loads(path.with_suffix('.json').read_text())
        assert list(described) == list(table.columns)
        assert all(entry['Description'] for entry in described.values())
        numeric = [c for c in table.columns if pd.api.types.is_numeric_dtype(table[c])]
        assert all(described[column]['Units'] for column in numeric if column not in LABELS)


@pytest.mark.slow
def test_the_grey_matter_of_a_region_adds_up_to_its_volume():
    volumes = sample_controls(2, np.random.default_rng(0)).volumes
    first, second = simulate_ravens(volumes, np.random.default_rng(1))
    labels = labels_at(load_labels(), first.affine, first.shape)
    table = muse_table()
    regions = set(table.loc[table['tissue'] == 'GM', 'index']) & set(np.unique(labels))
    assert len(regions) > 90
    for image, (_, person) in zip((first, second), volumes.iterrows()):
        data = np.asarray(image.dataobj)
        assert np.isfinite(data).all()
        found = [data[labels == index].sum() * MAP_VOXEL_MM**3 for index in regions]
        assert found == pytest.approx([person[f'MUSE_{index}'] for index in regions], rel=1e-4)
