from pathlib import Path

import pandas as pd
import pytest

from surreal_bids.bids.tabular import Table
from surreal_bids.cohort.groups import GroupLabels, find_groups, names_no_controls
from surreal_bids.exceptions import DataError, UsageError


def people(*values: str | None, column: str = 'diagnosis') -> Table:
    index = [f'sub-{k}' for k in range(len(values))]
    return Table(Path('people.tsv'), pd.DataFrame({column: values}, index, dtype=object))


@pytest.mark.parametrize(
    ('control', 'patient'),
    [
        ('CN', 'PT'),
        ('cn', 'AD'),
        ('Control', 'Depressed'),
        ('HC', 'SZ'),
        ('healthy', 'patient'),
        ('0', '1'),
        ('0.0', '1.0'),
        ('-1', '1'),
        ('-1.0', '1.0'),
    ],
)
@pytest.mark.parametrize('column', ['diagnosis', 'Group', 'DX'])
def test_groups_are_recognised(control, patient, column):
    groups = find_groups(people(patient, control, control, column=column))
    assert groups.is_patient.tolist() == [True, False, False]
    assert groups.labels.tolist() == ['PT', 'CN', 'CN']
    assert groups.recognised
    assert 'detected automatically' in groups.describe()


@pytest.mark.parametrize(
    'said',
    [
        GroupLabels('diagnosis', ['b'], ['a']),
        GroupLabels('diagnosis', ['b', 'c'], ['a']),
        GroupLabels('DIAGNOSIS', ['c'], ['a', 'b']),
    ],
)
def test_what_is_said_counts(said):
    groups = find_groups(people('a', 'b', 'c', None), said)
    assert set(groups.control_labels) == set(said.controls)
    assert set(groups.patient_labels) == set(said.patients)
    assert not groups.recognised
    assert 'sub-3' in groups.left_out


@pytest.mark.parametrize('said', [GroupLabels(controls=['0']), GroupLabels(patients=['2'])])
def test_one_label_tells_the_other(said):
    groups = find_groups(people('0', '2', '2'), said)
    assert groups.is_patient.tolist() == [False, True, True]


def test_people_of_no_group_are_left_out_with_their_value():
    said = GroupLabels(controls=['CN'], patients=['AD'])
    groups = find_groups(people('CN', 'MCI', 'AD', None), said)
    assert groups.left_out == {'sub-1': 'MCI', 'sub-3': None}
    assert groups.is_patient.index.tolist() == ['sub-0', 'sub-2']


@pytest.mark.parametrize(
    ('values', 'said', 'message'),
    [
        (('AD', 'MCI'), GroupLabels(), 'holds AD, MCI in .*, and none .*--control-label'),
        (('1', '2'), GroupLabels(), 'holds 1, 2 in .*, and none .*--control-label'),
        (('CN', 'HC', 'AD'), GroupLabels(), 'more than one .*--control-label'),
        (('CN', 'MCI', 'AD'), GroupLabels(), r'besides CN \(AD, MCI\).*--patient-label'),
        (('CN', 'CN'), GroupLabels(), 'besides CN; no patients .*--group-column'),
        ((None, None), GroupLabels(), 'column diagnosis is empty.*--group-column'),
        (('CN', 'AD'), GroupLabels(controls=['HC']), 'the value HC .*there are: AD, CN'),
        (('CN', 'AD'), GroupLabels(controls=['CN'], patients=['CN']), 'CN as label of both'),
        (('CN', 'AD'), GroupLabels('status'), 'no column status; there are: diagnosis'),
    ],
)
def test_what_cannot_be_told_is_explained(values, said, message):
    with pytest.raises(DataError, match=message) as caught:
        find_groups(people(*values), said)
    assert 'people.tsv' in str(caught.value)


def test_no_column_of_the_diagnosis():
    with pytest.raises(DataError, match=r'--group-column .*there are: cohort'):
        find_groups(people('CN', 'PT', column='cohort'))


@pytest.mark.parametrize(
    ('values', 'said'),
    [
        (('CN', 'AD'), GroupLabels(controls=['AD'])),
        (('CN', 'AD'), GroupLabels(patients=['CN'])),
        (('control', 'patient'), GroupLabels('diagnosis', ['patient'], ['control'])),
        (('Patient', 'x'), GroupLabels('diagnosis', ['Patient'], ['x'])),
    ],
)
def test_names_that_mean_the_opposite_are_refused(values, said):
    with pytest.raises(DataError, match=r'look swapped.*--control-label'):
        find_groups(people(*values), said)


def test_patients_may_be_compared_with_patients():
    groups = find_groups(people('CN', 'MCI', 'AD'), GroupLabels('diagnosis', ['MCI'], ['AD']))
    assert groups.left_out == {'sub-0': 'CN'}


@pytest.mark.parametrize(
    'said', [GroupLabels(no_guess=True), GroupLabels('diagnosis', ['CN'], no_guess=True)]
)
def test_guesses_can_be_refused(said):
    with pytest.raises(UsageError, match=r'--no-guess: set .* recognised: diagnosis, CN and PT'):
        find_groups(people('CN', 'PT'), said)


@pytest.mark.parametrize(
    ('values', 'said', 'expected'),
    [
        (('AD',), GroupLabels(), True),
        (('AD', 'MCI', None), GroupLabels(), True),
        (('CN', 'AD'), GroupLabels(), False),
        (('CN', 'HC'), GroupLabels(), False),
        (('0', '1'), GroupLabels(), False),
        (('1', '1'), GroupLabels(), True),
        (('AD', 'b'), GroupLabels(controls=['b']), False),
        (('AD', 'b'), GroupLabels(patients=['AD']), False),
    ],
)
def test_whether_anything_means_controls(values, said, expected):
    assert names_no_controls(people(*values), said) == expected


def test_a_table_without_diagnoses_has_no_controls():
    table = people('AD', column='handedness')
    assert names_no_controls(table)
    assert not names_no_controls(table, GroupLabels(controls=['CN']))  # An error tells it.


@pytest.mark.parametrize(
    ('values', 'said', 'labels'),
    [
        (('CN', 'CN'), GroupLabels(), ['CN', 'CN']),
        (('AD', 'AD'), GroupLabels(patients=['AD']), ['PT', 'PT']),
        (('CN', 'AD'), GroupLabels(), ['CN', 'PT']),
    ],
)
def test_one_group_is_enough_where_a_model_is_applied(values, said, labels):
    groups = find_groups(people(*values), said, both=False)
    assert groups.labels.tolist() == labels
    assert ': ,' not in groups.describe()


def test_other_doubts_remain_where_one_group_is_enough():
    with pytest.raises(DataError, match=r'besides CN \(AD, MCI\)'):
        find_groups(people('CN', 'MCI', 'AD'), both=False)
