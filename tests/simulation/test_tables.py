import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_predict

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.simulation.population import Controls, draw_controls, volume_columns
from surreal_bids.simulation.tables import TASKS, simulate_table, write_simulated_table
from surreal_bids.stats.concordance import pattern_c_index

TABLES = ('volumes', 'participants', 'severities')


@pytest.fixture(scope='module')
def real_people() -> Controls:
    """Thirty people, told apart by their age."""
    controls = draw_controls(30, np.random.default_rng(0))
    return Controls(controls.volumes, controls.people.assign(age=np.arange(40.0, 70.0)))


@pytest.mark.parametrize('task', TASKS)
def test_people_are_the_same_in_the_three_tables(task):
    simulated = simulate_table(task, n_cn=5, n_pt=8, seed=1)
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


@pytest.mark.parametrize('task', TASKS)
@pytest.mark.parametrize('seed', [0, 7])
def test_the_same_seed_gives_the_same_tables(task, seed):
    first, second = (simulate_table(task, n_cn=4, n_pt=6, seed=seed) for _ in range(2))
    other = simulate_table(task, n_cn=4, n_pt=6, seed=seed + 1)
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


def test_more_people_than_the_table_holds_are_refused_with_a_way_out(real_people):
    with pytest.raises(DataError, match=r'31 people .* has 30; .*--resample gaussian'):
        simulate_table('basic', n_cn=12, n_pt=19, controls=real_people)


def test_resampling_gives_any_number_of_people(real_people):
    simulated = simulate_table('basic', 20, 40, controls=real_people, resample='gaussian')
    assert len(simulated.volumes) == 60
    assert simulated.participants['age'].isna().all()


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'task': 'hard'}, 'no task'),
        ({'n_cn': 0}, '0 controls'),
        ({'n_pt': -3}, '-3 patients'),
        ({'seed': -1}, 'a seed of -1'),
        ({'resample': 'gaussian'}, 'needs a table'),
        ({'resample': 'bootstrap'}, "no resampling is called 'bootstrap'"),
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


def test_written_tables_are_read_back_with_every_column_described(tmp_path):
    simulated = simulate_table('scarce', n_cn=3, n_pt=4, seed=5)
    written = write_simulated_table(tmp_path, simulated)
    assert [path.name for path in written] == [
        'participants.tsv',
        'roi_volumes.tsv',
        'severities.tsv',
    ]
    assert len(list(tmp_path.iterdir())) == 6
    for path, expected in zip(
        written, (simulated.participants, simulated.volumes, simulated.severities)
    ):
        table = pd.read_csv(path, sep='\t', na_values='n/a')
        pd.testing.assert_frame_equal(table, expected, check_dtype=False, atol=0.006, rtol=0)
        described = json.loads(path.with_suffix('.json').read_text())
        assert list(described) == list(table.columns)
        assert all(entry['Description'] for entry in described.values())
        numeric = [c for c in table.columns if pd.api.types.is_numeric_dtype(table[c])]
        assert all(described[column]['Units'] for column in numeric)


def test_unknown_values_are_written_as_bids_wants_them(tmp_path, real_people):
    simulated = simulate_table('basic', 2, 2, controls=real_people, resample='gaussian')
    participants = write_simulated_table(tmp_path, simulated)[0]
    assert participants.read_text().splitlines()[1] == 'sub-0001\tCN' + '\tn/a' * 4
