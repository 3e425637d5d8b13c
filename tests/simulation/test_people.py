from dataclasses import replace

import numpy as np
import pytest

from surreal_bids.exceptions import UsageError
from surreal_bids.simulation.cohort import (
    CohortPlan,
    draw_people,
    draw_person,
    participants_table,
    random_streams,
    severity_table,
)

PLAN = CohortPlan(n_cn=5, n_pt=7, sites=3, patterns=2, atlases=2, seed=3)


@pytest.mark.parametrize('change', [{'n_cn': 9}, {'n_pt': 1}, {'atlases': 0}, {'voxel_size': 1.0}])
def test_a_person_does_not_depend_on_who_else_there_is(change):
    other = replace(PLAN, **change)
    for group, number in (('CN', 2), ('PT', 0), ('atlas', 1)):
        assert draw_person(PLAN, group, number) == draw_person(other, group, number)


@pytest.mark.parametrize('stream', range(3))
def test_everyone_has_random_numbers_of_their_own(stream):
    first = [
        random_streams(PLAN, group, number)[stream].random()
        for group in ('CN', 'PT', 'atlas')
        for number in range(4)
    ]
    assert len(set(first)) == 12


@pytest.mark.parametrize(
    'change',
    [{'n_cn': -1}, {'n_cn': 0, 'n_pt': 0}, {'sites': 0}, {'seed': -1}, {'atlases': 10_000}],
)
def test_impossible_plans_are_refused(change):
    with pytest.raises(UsageError, match='--'):
        replace(PLAN, **change)


def test_participants_are_described_and_atlases_are_none():
    table = participants_table(draw_people(PLAN))
    assert list(table) == ['participant_id', 'age', 'sex', 'diagnosis', 'site']
    assert table['diagnosis'].value_counts().to_dict() == {'PT': 7, 'CN': 5}
    assert set(table['site']) == {'site1', 'site2', 'site3'}
    assert table['participant_id'].is_unique
    assert table['age'].between(45, 89).all()


def test_only_patients_have_severities():
    people = draw_people(replace(PLAN, n_pt=400))
    table = severity_table(people).set_index('participant_id')
    patients = table.index.str.startswith('sub-PT')
    assert (table[~patients] == 0).all(axis=None)
    severities = table[patients].to_numpy()
    assert severities.min() >= 0
    assert severities.max() <= 1
    np.testing.assert_allclose(severities.mean(axis=0), 0.5, atol=0.05)
    np.testing.assert_allclose(severities.std(axis=0), np.sqrt(1 / 12), atol=0.03)
    assert abs(np.corrcoef(severities.T)[0, 1]) < 0.15


def test_without_patterns_there_is_nothing_but_names():
    assert list(severity_table(draw_people(replace(PLAN, patterns=0)))) == ['participant_id']
