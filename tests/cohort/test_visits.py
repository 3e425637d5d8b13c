import re

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.cohort.visits import (
    add_years,
    ages_and_sexes,
    describe_order,
    order_visits,
    visit_columns,
    warn_of_visits,
)
from surreal_bids.config import CohortOptions
from tests.analysis.group_study import with_sessions, write_dataset
from tests.cohort.study import make_study


def order(tmp_path, cells, sessions=('1', '2', '10'), bids_dir=None):
    """Labels of the sessions of one participant in order, and the table of their times."""
    visits = {f'sub-a_ses-{session}': ('a', session) for session in sessions}
    described = pd.DataFrame(cells, list(visits), dtype=object)
    times = order_visits(described, visits, bids_dir)
    return [name.partition('ses-')[2] for name in times.index], times


@pytest.mark.parametrize(
    ('cells', 'expected', 'order_by'),
    [
        ({}, ['1', '2', '10'], 'name'),
        ({'acq_time': ['2012-05-01', '2010-05-01', '2011-05-01']}, ['2', '10', '1'], 'date'),
        (
            {'Scan-Date': ['1890-05-03T08:00:00.5', '1890-05-01T07:00:00Z', '1889-12-31 23:59']},
            ['10', '2', '1'],
            'date',
        ),
        ({'acq_time': ['2012-05-01', None, '2011-05-01']}, ['1', '2', '10'], 'name'),
        ({'acq_time': ['2012-05-01', '2012-05-01', '2011-05-01']}, ['1', '2', '10'], 'name'),
        ({'acq_time': ['05/01/12', '05/01/10', '05/01/11']}, ['1', '2', '10'], 'name'),
        ({'acq_time': ['10:30:00', '11:30:00', '12:30:00']}, ['1', '2', '10'], 'name'),
        ({'age': ['72.5', '70', '71']}, ['2', '10', '1'], 'age'),
        ({'age': ['72', '70', '70']}, ['1', '2', '10'], 'name'),
        ({'age': ['72', '89+', '70']}, ['10', '1', '2'], 'age'),
        (
            {'acq_time': ['2012-05-01', None, '2011-05-01'], 'age': ['70', '71', '69']},
            ['10', '1', '2'],
            'age',
        ),
    ],
)
def test_visits_are_in_the_order_of_what_tells_all_apart(tmp_path, cells, expected, order_by):
    found, times = order(tmp_path, cells)
    assert found == expected
    assert set(times['order_by']) == {order_by}
    assert times['time'].isna().all() == (order_by == 'name')


@pytest.mark.parametrize('cells', [{}, {'scan_date': ['2010-05-01'] * 3}])
@pytest.mark.parametrize('other', ['bold', 'T1w'])
def test_dates_may_be_in_scans_tables(tmp_path, other, cells):
    for session, date in (('1', '2012-05-01'), ('2', '2010-05-01T10:00:00'), ('10', '2011-05-01')):
        folder = tmp_path / 'sub-a' / f'ses-{session}'
        folder.mkdir(parents=True)
        lines = [
            'filename\tacq_time',
            f'func/sub-a_ses-{session}_{other}.nii.gz\t2013-01-01',
            f'anat/sub-a_ses-{session}_T1w.nii.gz\t{date}',
        ]
        (folder / f'sub-a_ses-{session}_scans.tsv').write_text('\n'.join(lines) + '\n')
    found, times = order(tmp_path, cells, bids_dir=tmp_path)
    assert found == ['2', '10', '1']
    assert np.ptp(times['time']) == pytest.approx(2, abs=0.01)


def test_sessions_of_a_dataset_are_in_order(tmp_path):
    visits = [('b', None), ('a', '10'), ('a', '2')]
    (tmp_path / 'sub-a').mkdir()
    lines = 'session_id\tacq_time\nses-2\t2012-01-01T00:00:00\nses-10\t2011-01-01T00:00:00\n'
    (tmp_path / 'sub-a' / 'sub-a_sessions.tsv').write_text(lines)
    assert list(ages_and_sexes(tmp_path, visits)) == [('a', '10'), ('a', '2'), ('b', None)]


def test_years_count_from_the_first_visit_that_is_there(tmp_path):
    _, times = order(tmp_path, {'acq_time': ['2012-05-01', '2010-05-01', '2011-05-01']})
    left = visit_columns([('a', '10'), ('a', '1')])
    found = add_years(left, times)
    assert found['is_first'].tolist() == [True, False]
    # 366 days, since February 2012 had 29.
    np.testing.assert_allclose(found['years'], [0, 366 / 365.25])


def test_what_orders_visits_is_said(tmp_path):
    _, times = order(tmp_path, {'acq_time': ['05/01/12', '05/01/10', '05/01/11']})
    visits = add_years(visit_columns([('a', '1'), ('a', '2')]), times)
    (said,) = describe_order(visits)
    assert said.startswith('Visits: 1 participant with several visits, sorted by name in 1; models')


def warnings_of(tmp_path, cells, sessions=('1', '2', '10'), ages=()):
    people = pd.DataFrame({'age': np.array(ages, float)} if len(ages) else {})
    people = people.reindex(range(len(sessions)))
    found, times = order(tmp_path, cells, sessions)
    visits = add_years(visit_columns([('a', session) for session in found]), times)
    names = [f'sub-a_ses-{session}' for session in sessions]
    described = pd.DataFrame(cells, names, dtype=object)
    return [*map(str, warn_of_visits(visits, described, people.set_axis(visits.index)))]


@pytest.mark.parametrize(
    ('cells', 'said'),
    [
        (
            {'acq_time': ['05/01/12', '05/01/10', '05/01/11']},
            [r'sub-a \(ses-1, ses-2, ses-10\) .*as in 2019-03-31'],
        ),
        (
            {'acq_time': ['2012-01-05', '13/02/2010', '2011-01-05']},
            [r'without dates \(acq_time of sub-a_ses-2 is 13/02/2010\)'],
        ),
        (
            {'acq_time': ['05/01/12', '05/01/10', '05/01/11'], 'age': ['72', '70', '71']},
            [r'sub-a \(ses-2, ses-10, ses-1\) are sorted without dates'],
        ),
        ({'acq_time': ['1901-05-01', '1903-05-01', '1905-05-01']}, []),
    ],
)
def test_doubtful_dates_are_told(tmp_path, cells, said):
    found = warnings_of(tmp_path, cells)
    assert len(found) == len(said)
    assert all(map(re.search, said, found))


@pytest.mark.parametrize(
    'labels',
    [
        ['pre', 'post'],
        ['screening', 'bl', 'M06', 'm12', 'y2', 'm30'],
        ['w2', 'm3', '6mo', '1yr'],
        ['test', 'retest'],
        ['pre', 'post', 'post2'],
        ['bl', 'v2', 'v10'],
        ['A', 'B', 'C'],
    ],
)
def test_labels_are_sorted_by_their_meaning(tmp_path, labels):
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(labels).tolist()
        assert order(tmp_path, {}, shuffled)[0] == labels
        assert warnings_of(tmp_path, {}, shuffled) == []


@pytest.mark.parametrize(
    'labels',
    [
        ['drug', 'placebo'],
        ['m06', 'v1'],
        ['pre', 'mid', 'post'],
        ['bl', 'fu', 'm06'],
    ],
)
def test_labels_without_a_known_order_are_told(tmp_path, labels):
    (said,) = warnings_of(tmp_path, {}, labels)
    assert 'sub-a' in said
    assert f'ses-{labels[0]}' in said
    assert warnings_of(tmp_path, {'age': ['70', '71', '72'][: len(labels)]}, labels) == []


@pytest.mark.parametrize('seed', range(5))
def test_time_zones_do_not_change_the_order(tmp_path, seed):
    rng = np.random.default_rng(seed)
    moments = pd.Timestamp('2020-03-01T12:00Z') + pd.to_timedelta(rng.permutation(40)[:3], 'h')
    zones = rng.integers(-11, 12, 3)
    cells = [
        moment.tz_convert(f'Etc/GMT{zone:+d}').isoformat() for moment, zone in zip(moments, zones)
    ]
    expected = [('1', '2', '10')[k] for k in np.argsort(moments)]
    assert order(tmp_path, {'acq_time': cells})[0] == expected


@pytest.mark.parametrize(
    ('cells', 'ages', 'warns'),
    [
        ({}, [70, 70, 70], True),
        ({}, [70, 71, 72], False),
        ({'acq_time': ['2010-05-01', '2010-06-01', '2010-07-01']}, [70, 70, 70], False),
        ({'acq_time': ['2010-05-01', '2011-05-01', '2012-05-01']}, [70, 70, 70], True),
    ],
)
def test_ages_that_do_not_change_are_told(tmp_path, cells, ages, warns):
    found = warnings_of(tmp_path, cells, ages=ages)
    assert [text.startswith('age is the same at all visits of sub-a') for text in found] == (
        [True] * warns
    )


def test_diagnoses_that_change_are_counted(tmp_path):
    """Such as controls who fall ill later: models learn from the first visit."""
    study = make_study()
    volumes = with_sessions(study)
    volumes['diagnosis'] = study.people['diagnosis'].reindex(volumes.index).to_numpy()
    study.people = study.people.drop(columns='diagnosis')
    later = volumes['session_id'] == 'ses-2'
    for who, diagnosis in (('sub-002', 'PT'), ('sub-003', 'MCI'), ('sub-040', 'CN')):
        volumes.loc[later & (volumes.index == who), 'diagnosis'] = diagnosis
    study.features = volumes
    cohort = read_cohort(*study.write(tmp_path), CohortOptions(patient_label=('PT',)))
    found = [each for each in cohort.warnings if 'The diagnosis of' in each.found]
    assert [each.found for each in found] == [
        'The diagnosis of 3 participants changes between visits: sub-002 (CN, then PT), '
        'sub-003 (CN, then MCI), sub-040 (PT, then CN)'
    ]
    assert found[0].consequence == (
        'Participants belong to the group of their first visit; 2 of them count as controls, '
        'although they may be at an early stage of the disease'
    )


@pytest.mark.slow
@pytest.mark.parametrize('where', ['sessions', 'scans', 'table'])
def test_the_earliest_visit_is_learned_from(tmp_path, where):
    root = write_dataset(tmp_path)
    table = with_sessions(make_study())
    earlier, later = '2010-02-01', '2012-02-01T09:30:00'
    if where == 'table':
        table['scan_date'] = table['session_id'].map({'ses-1': later, 'ses-2': earlier})
    table.to_csv(tmp_path / 'volumes.tsv', sep='\t')
    for name in set(table.index) if where != 'table' else ():
        for session, date in (('ses-1', later), ('ses-2', earlier)):
            folder = root / name / session
            folder.mkdir(parents=True)
            line = f'anat/{name}_{session}_T1w.nii.gz\t{date}\n'
            if where == 'scans':
                path = folder / f'{name}_{session}_scans.tsv'
                path.write_text(f'filename\tacq_time\n{line}')
        if where == 'sessions':
            path = root / name / f'{name}_sessions.tsv'
            path.write_text(f'session_id\tacq_time\nses-1\t{later}\nses-2\t{earlier}\n')
    cohort = read_cohort(tmp_path / 'volumes.tsv', root / 'participants.tsv', CohortOptions())
    assert set(cohort.first_visits().visits['session_id']) == {'ses-2'}
    assert set(cohort.visits['order_by']) == {'date'}
    assert not {'acq_time', 'scan_date'} & set(cohort.others)
    later_visits = cohort.visits[~cohort.visits['is_first']]
    np.testing.assert_allclose(later_visits['years'], 2, atol=0.01)
    assert any('sorted by date in 71' in note for note in cohort.notes)
    assert any(text.found.startswith('age is the same at all visits') for text in cohort.warnings)
    again = Cohort.load(cohort.save(tmp_path / 'saved'))
    pd.testing.assert_frame_equal(again.visits, cohort.visits)


def test_an_age_at_baseline_does_not_order_visits(tmp_path):
    """The first visit is that of the lowest age, whichever column tells the visits apart."""
    study = make_study()
    root = write_dataset(tmp_path, study)
    volumes = with_sessions(study)
    age = study.people.loc[volumes.index, 'age'] + np.where(volumes['session_id'] == 'ses-1', 2, 0)
    volumes.assign(age_at_scan=age).to_csv(tmp_path / 'volumes.tsv', sep='\t')
    options = CohortOptions(covariates=('age_at_scan', 'sex'))
    cohort = read_cohort(tmp_path / 'volumes.tsv', root / 'participants.tsv', options)
    first = cohort.first_visits()
    assert set(first.visits['session_id']) == {'ses-2'}
    assert set(cohort.visits['order_by']) == {'age'}
    assert cohort.column_of('age').name == 'age_at_scan'


def test_the_default_age_is_one_that_is_known(tmp_path):
    study = make_study()
    study.people['age_at_scan'] = study.people['age']
    study.people.loc[study.people.index[10:], 'age'] = None
    cohort = read_cohort(*study.write(tmp_path))
    assert cohort.options.covariates == ('age_at_scan', 'sex')
