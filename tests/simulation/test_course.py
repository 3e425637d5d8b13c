"""Studies with a stronger side, MCI, a memory score and second visits."""

import hashlib

import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.names import CONTROL, PATIENT
from surreal_bids.regions import muse_indices, muse_table
from surreal_bids.simulation.course import MCI, Course, sample_dominance
from surreal_bids.simulation.tables import (
    TASKS,
    Controls,
    SimulatedTable,
    impose_atrophy,
    sample_controls,
    sample_severities,
    simulate_table,
    volume_columns,
    write_simulated_table,
)

PATTERNS = ['r1', 'r2', 'r3']

DIGESTS = {
    'participants.tsv': '5f4c51f5cb163d4d9acd8c714f2865a2bd5e32160f25ffa7c94bb0eeabe43194',
    'participants.json': 'a2c2e288bb665dd888553f0e90ad611179c58267bfdd5cdc083da60d5fc8ceea',
    'roi_volumes.tsv': '88839c6329f1d806ac402f47161f2a49c604239983e4ade87a947dafddbb73ff',
    'severities.tsv': '8b3c981d7d30b2a61b70fd3cba20963c5794e15e40bcc98ca04ea8f19f190949',
    'severities.json': '385ef2bdaf38ea27a9bc1fdc14067b03bdc35cacc6b9d4951daa30a8bb52a13d',
}
"""SHA-256 of the tables of 4 controls and 6 patients (seed 3) before there was a course."""


@pytest.mark.parametrize('course', [{}, {'course': Course(side_dominance=0.0)}])
def test_without_a_course_tables_are_those_of_before(tmp_path, course):
    write_simulated_table(tmp_path, simulate_table('basic', 4, 6, 3, **course))
    for name, digest in DIGESTS.items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize('task', TASKS)
def test_without_dominance_losses_are_the_same_to_the_last_bit(task):
    rng = np.random.default_rng(1)
    volumes, severities = rng.uniform(1, 2, (40, 139)), sample_severities(40, rng)
    dominance = sample_dominance(40, 3, 0.0, rng)
    before = impose_atrophy(volumes, severities, TASKS[task], np.random.default_rng(2))
    after = impose_atrophy(volumes, severities, TASKS[task], np.random.default_rng(2), dominance)
    np.testing.assert_array_equal(after, before)


def test_the_stronger_side_loses_as_much_more_as_the_other_loses_less():
    task, rng = TASKS['scarce'], np.random.default_rng(3)
    severities = sample_severities(4000, rng)
    dominance = sample_dominance(4000, 3, 0.3, rng)
    loss = 1 - impose_atrophy(np.ones((4000, 139)), severities, task, rng, dominance)
    hemispheres = muse_table().set_index('index')['hemisphere']
    for position, index in enumerate(muse_indices()):
        patterns = [k for k in range(3) if index in task.patterns[k]]
        if not patterns:
            assert not loss[:, position].any()
            continue
        (k,) = patterns
        sign = {'L': 1, 'R': -1}[hemispheres[index]]
        expected = task.max_loss * severities[:, k] * (1 + sign * dominance[:, k])
        error = loss[:, position] - expected
        assert abs(error.mean()) < 2e-3
        assert error.std() < 0.02


def test_dominance_is_mostly_shared_by_the_patterns_of_a_patient():
    dominance = sample_dominance(20_000, 2, 0.3, np.random.default_rng(4))
    assert dominance.std(axis=0) == pytest.approx([0.3, 0.3], rel=0.03)
    assert dominance.mean() == pytest.approx(0, abs=0.01)
    assert np.corrcoef(dominance.T)[0, 1] == pytest.approx(0.64, abs=0.03)


def test_no_volume_is_lost_altogether_where_one_side_is_much_stronger():
    volumes = np.ones((5000, 139))
    rng = np.random.default_rng(5)
    dominance = sample_dominance(5000, 3, 1.0, rng)
    assert np.abs(dominance).max() == 0.9
    shrunk = impose_atrophy(volumes, np.ones((5000, 3)), TASKS['noise'], rng, dominance)
    assert shrunk.min() > 0


def test_mci_is_a_third_group_with_half_the_severity():
    simulated = simulate_table('basic', 5, 400, seed=6, course=Course(n_mci=300))
    groups = simulated.participants['diagnosis']
    assert groups.tolist() == [CONTROL] * 5 + [PATIENT] * 400 + [MCI] * 300
    severities = simulated.severities[PATTERNS].to_numpy()
    assert not severities[groups == CONTROL].any()
    assert severities[groups == PATIENT].mean() == pytest.approx(0.5, abs=0.03)
    assert severities[groups == MCI].mean() == pytest.approx(0.25, abs=0.02)
    assert severities[groups == MCI].max() <= 0.5


def test_memory_falls_with_the_severity_of_the_first_pattern():
    simulated = simulate_table('basic', 400, 600, seed=7, course=Course(memory=True))
    known = simulated.participants.join(simulated.severities[PATTERNS])
    memory = known.groupby('diagnosis')['memory']
    assert memory.mean()[CONTROL] == pytest.approx(50, abs=1.5)
    assert memory.std()[CONTROL] == pytest.approx(10, rel=0.1)
    patients = known[known['diagnosis'] == PATIENT]
    correlation = patients[PATTERNS].corrwith(patients['memory'], method='spearman')
    assert correlation['r1'] < -0.5
    assert correlation[['r2', 'r3']].abs().max() < 0.12


GROUP_SIZES = {CONTROL: 120, PATIENT: 160, MCI: 30}


@pytest.fixture(scope='module')
def followed() -> SimulatedTable:
    course = Course(n_mci=GROUP_SIZES[MCI], memory=True, visits=2)
    return simulate_table('basic', GROUP_SIZES[CONTROL], GROUP_SIZES[PATIENT], 8, course=course)


def by_session(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of those with two visits, at the first and at the second."""
    table = table.set_index('participant_id')
    second = table[table['session_id'] == 'ses-2'].drop(columns='session_id')
    first = table[table['session_id'] == 'ses-1'].drop(columns='session_id')
    return first.loc[second.index], second


def test_a_quarter_of_each_group_comes_twice_and_at_least_twenty(followed):
    visits = followed.participants
    for table in (followed.volumes, followed.severities):
        pd.testing.assert_frame_equal(
            table[['participant_id', 'session_id']], visits[['participant_id', 'session_id']]
        )
    counts = pd.crosstab(visits['diagnosis'], visits['session_id'])
    assert counts['ses-1'].to_dict() == GROUP_SIZES
    assert counts['ses-2'].to_dict() == {CONTROL: 30, PATIENT: 40, MCI: 20}
    assert visits.equals(visits.sort_values(['participant_id', 'session_id']))


def test_second_visits_leave_the_first_ones_as_they_are(followed):
    once = simulate_table('basic', 120, 160, 8, course=Course(n_mci=30))
    for name in ('participants', 'volumes', 'severities'):
        table = getattr(followed, name)
        first = table[table['session_id'] == 'ses-1'].reset_index(drop=True)
        single = getattr(once, name)
        pd.testing.assert_frame_equal(first[single.columns], single)


def test_disease_progresses_and_controls_only_age(followed):
    first, second = by_session(followed.participants)
    years = second['age'] - first['age']
    assert years.between(1.15, 1.85).all()
    same = ['diagnosis', 'sex', 'site', 'icv']
    pd.testing.assert_frame_equal(first[same], second[same])
    before, after = by_session(followed.severities)
    gained = (after - before)[PATTERNS].groupby(first['diagnosis']).mean().mean(axis=1)
    assert gained[CONTROL] == 0
    assert gained[PATIENT] == pytest.approx(0.15, abs=0.03)
    assert gained[MCI] == pytest.approx(0.075, abs=0.02)
    assert after[PATTERNS].to_numpy().max() <= 1
    earlier, later = by_session(followed.volumes)
    controls = first.index[first['diagnosis'] == CONTROL]
    change = np.log(later.loc[controls] / earlier.loc[controls])
    assert change.std().mean() == pytest.approx(0.02, rel=0.1)
    assert -0.02 < change.mean().mean() < 0


def test_what_a_patient_loses_between_visits_is_the_severity_gained(followed):
    """Noise of the disease is that of the first visit, so only measurement adds to the change."""
    before, after = by_session(followed.severities)
    earlier, later = by_session(followed.volumes)
    only_third = set(TASKS['basic'].patterns[2]) - {
        index for pattern in TASKS['basic'].patterns[:2] for index in pattern
    }
    columns = [f'MUSE_{index}' for index in only_third]
    expected = np.log((1 - 0.3 * after['r3']) / (1 - 0.3 * before['r3']))
    change = np.log(later[columns] / earlier[columns]).mean(axis=1)
    controls = after[PATTERNS].sum(axis=1) == 0
    ageing = change[controls].mean()
    assert (change - ageing - expected).std() < 0.01


def test_rare_groups_all_come_twice():
    simulated = simulate_table('basic', 3, 4, seed=9, course=Course(visits=2))
    assert simulated.volumes['participant_id'].value_counts().eq(2).all()


def test_second_visits_need_ages():
    controls = sample_controls(20, np.random.default_rng(0))
    unknown = Controls(controls.volumes, controls.people.assign(age=np.nan))
    with pytest.raises(DataError, match='20 of 20 participants have no age'):
        simulate_table('basic', 10, 10, controls=unknown, course=Course(visits=2))


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'n_mci': -1}, '--n-mci -1'),
        ({'side_dominance': -0.1}, '--side-dominance -0.1'),
        ({'side_dominance': float('nan')}, '--side-dominance nan'),
        ({'visits': 3}, '--visits 3'),
    ],
)
def test_impossible_courses_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Course(**options)


def test_all_columns_are_simulated_in_mm3(followed):
    assert list(followed.volumes.columns[2:]) == volume_columns()
    assert (followed.volumes[volume_columns()] > 0).all(axis=None)
