import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.tables.cohort import Cohort, read_cohort
from surreal_bids.tables.pipeline import prepare, split_halves
from tests.tables.group_study import make_config, with_sessions, write_dataset
from tests.tables.study import REGIONS, make_study


def gather(root, expected=(), **options):
    config = make_config(root, **options)
    return read_cohort(config.roi_table, root / 'participants.tsv', config, expected)


def reasons(gathered):
    return gathered.exclusions['reason'].to_dict()


def test_everyone_of_a_good_study_is_in(tmp_path):
    found = gather(write_dataset(tmp_path))
    cohort = found
    assert cohort.counts == {'CN': 30, 'PT': 41}
    assert cohort.wanted.names == REGIONS
    assert list(cohort.people) == ['age', 'sex', 'icv', 'site']
    assert reasons(found) == {}
    assert any('since none were named' in note for note in cohort.notes)
    pd.testing.assert_frame_equal(
        cohort.features, make_study().features, check_index_type=False, check_names=False
    )


def spoil(study, how):
    people, features = study.people, study.features
    changes = {
        'age missing': lambda: people.pipe(put, 'age', None),
        'age 999': lambda: people.pipe(put, 'age', 999),
        'other diagnosis': lambda: people.pipe(put, 'diagnosis', 'MCI'),
        'no diagnosis': lambda: people.pipe(put, 'diagnosis', None),
        'no row': lambda: people.drop(index='sub-004'),
        'no site': lambda: people.pipe(put, 'site', None),
        'lone site': lambda: people.assign(diagnosis=people['diagnosis']).pipe(lone_site),
    }
    if how in changes:
        study.people = changes[how]()
    elif how == 'no volumes':
        study.features = features.drop(index='sub-004')
    elif how == 'empty region':
        study.features = features.pipe(put, 'region_c', 0)
    elif how == 'outlier':
        study.features.loc['sub-004'] *= 4
    return study


def put(frame, column, value):
    frame = frame.astype({column: object}) if isinstance(value, str) else frame.copy()
    frame.loc['sub-004', column] = value
    return frame


def lone_site(people):
    people = people.copy()
    people.loc['sub-071', 'site'] = 'far'
    return people


@pytest.mark.parametrize(
    ('how', 'reason'),
    [
        ('age missing', 'age is missing'),
        ('age 999', 'age is 999'),
        ('other diagnosis', 'diagnosis is MCI: neither control nor patient'),
        ('no diagnosis', 'diagnosis is missing'),
        ('no row', 'no row in participants.tsv'),
        ('no site', 'site is missing'),
        ('no volumes', 'not in .*volumes.tsv'),
        ('empty region', 'no volume of region_c'),
        ('outlier', 'of the regions have volumes far'),
        ('lone site', 'site far has no first visit of a control'),
    ],
)
def test_each_reason_is_told(tmp_path, how, reason):
    found = gather(
        write_dataset(tmp_path, spoil(make_study(), how)),
        control_label=('CN',),
        patient_label=('PT',),
    )
    who = 'sub-071' if how == 'lone site' else 'sub-004'
    assert list(reasons(found)) == [who]
    assert pd.Series([reasons(found)[who]]).str.contains(reason).all()
    assert who not in found.visits.index
    assert len(found) == 70


def test_people_with_an_image_and_no_volumes_are_listed(tmp_path):
    found = gather(write_dataset(tmp_path), expected=[('001', None), ('x', '2')])
    assert list(reasons(found)) == ['sub-x_ses-2']
    assert found.exclusions['session_id'].tolist() == ['ses-2']


@pytest.mark.parametrize(
    ('change', 'options', 'message'),
    [
        (lambda p: p.assign(diagnosis='PT'), {}, 'known to mean controls'),
        (lambda p: p.assign(diagnosis='CN'), {}, 'name the other group with --patient-label'),
        (lambda p: p.drop(columns='diagnosis'), {}, '--group-column'),
        (lambda p: p.assign(diagnosis=['CN'] * 5 + ['PT'] * 66), {}, '5 controls are left'),
        (lambda p: p.assign(age=[None] * 60 + [50.0] * 11), {'covariates': ('age',)},
         '0 controls are left.*60 are excluded: 60 for "age is missing"'),
        (lambda p: p.assign(age=[None] * 71), {'covariates': ('age',)}, 'everyone is excluded'),
        (lambda p: p, {'site_column': 'scanner'}, 'no column scanner'),
        (lambda p: p, {'covariates': ('height',)}, 'no column height'),
        (lambda p: p, {'covariates': ('diagnosis',)}, 'cannot be a covariate'),
        (lambda p: p.assign(age=p['age'].astype(str).where(p.index != 'sub-003', '89+')), {},
         'age holds numbers, but not for sub-003'),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_an_error(tmp_path, change, options, message):
    study = make_study()
    study.people = change(study.people)
    with pytest.raises(DataError, match=message):
        gather(write_dataset(tmp_path, study), **options)


def test_without_participants_there_is_no_group(tmp_path):
    root = write_dataset(tmp_path)
    (root / 'participants.tsv').unlink()
    with pytest.raises(DataError, match=r'participants\.tsv: no such file'):
        gather(root)


@pytest.mark.parametrize(
    ('options', 'expected'),
    [
        ({}, ['age', 'sex', 'icv', 'site']),
        ({'covariates': ('none',)}, ['icv', 'site']),
        ({'covariates': ('age', 'icv')}, ['age', 'icv', 'site']),
        ({'icv': 'none'}, ['age', 'sex', 'site']),
        ({'site_column': 'none'}, ['age', 'sex', 'icv']),
    ],
)
def test_what_is_usual_is_used_unless_the_user_says_otherwise(tmp_path, options, expected):
    assert list(gather(write_dataset(tmp_path), **options).people) == expected


def test_one_site_is_not_harmonized(tmp_path):
    study = make_study(n_sites=1)
    cohort = gather(write_dataset(tmp_path, study), site_column='site')
    assert cohort.options.site_column is None
    assert any('one site only' in note for note in cohort.notes)


@pytest.mark.parametrize('wanted', [('sub-001', '002'), ()])
def test_participants_can_be_chosen(tmp_path, wanted):
    root = write_dataset(tmp_path)
    labels = wanted or [f'{k:03}' for k in range(10, 70)]
    if wanted:
        with pytest.raises(DataError, match=r'beside CN|controls are left'):
            gather(root, participant_label=labels)
    else:
        assert len(gather(root, participant_label=tuple(labels))) == 60


def test_of_several_visits_the_first_is_learned_from(tmp_path):
    root = write_dataset(tmp_path)
    with_sessions(make_study()).to_csv(tmp_path / 'volumes.tsv', sep='\t')
    cohort = gather(root)
    assert len(cohort) == 142
    assert cohort.counts == {'CN': 30, 'PT': 41}
    assert set(cohort.first_visits().visits['session_id']) == {'ses-1'}
    halves = split_halves(cohort, seed=1)
    assert halves.groupby(cohort.visits['participant_id']).nunique().eq(1).all()


def test_a_scanner_of_later_visits_only_cannot_be_learned(tmp_path):
    study = make_study()
    root = write_dataset(tmp_path, study)
    with_sessions(study).to_csv(tmp_path / 'volumes.tsv', sep='\t')
    for name, place in study.people['site'].items():
        folder = root / name
        folder.mkdir()
        lines = ['session_id\tsite', f'ses-1\t{place}', 'ses-2\tnew']
        (folder / f'{name}_sessions.tsv').write_text('\n'.join(lines) + '\n')
    found = gather(root)
    assert set(found.visits['session_id']) == {'ses-1'}
    assert set(reasons(found).values()) == {
        'site new has no first visit of a control, so that it cannot be harmonized'
    }
    assert len(reasons(found)) == 71


def test_a_model_may_call_columns_otherwise(tmp_path):
    study = make_study()
    cohort = gather(write_dataset(tmp_path, study))
    steps = prepare(cohort).preprocessing
    study.people = study.people.assign(scanner=study.people['site'], DLICV=study.people['icv'])
    other = tmp_path / 'other'
    other.mkdir()
    config = make_config(write_dataset(other, study), site_column='scanner', icv_column='DLICV')
    found = read_cohort(config.roi_table, other / 'dataset/participants.tsv', config, (), steps)
    assert list(found.people) == list(cohort.people)
    assert found.people['icv'].tolist() == cohort.people['icv'].tolist()


@pytest.mark.parametrize('options', [{'covariates': ('age',)}, {'icv': 'proportion'}])
def test_options_that_are_those_of_the_model_are_refused(tmp_path, options):
    config = make_config(write_dataset(tmp_path), **options)
    steps = prepare(gather(config.bids_dir)).preprocessing
    with pytest.raises(UsageError, match='are those of the model; leave'):
        read_cohort(config.roi_table, config.bids_dir / 'participants.tsv', config, (), steps)


@pytest.mark.parametrize('seed', range(4))
def test_halves_are_even_in_groups_and_sites(tmp_path, seed):
    cohort = gather(write_dataset(tmp_path))
    halves = split_halves(cohort, seed)
    counts = pd.crosstab([cohort.visits['group'], cohort.people['site']], halves)
    assert (counts[1] - counts[2]).abs().max() <= 1
    assert abs((halves == 1).sum() - (halves == 2).sum()) <= 1
    assert not halves.equals(split_halves(cohort, seed + 1))


def test_a_cohort_comes_back_from_files_as_it_was(tmp_path):
    study = make_study()
    study.people['site'] = study.people['site'].map({'site0': '1', 'site1': '02'})
    study.people['mmse'] = np.arange(71)
    study.people['visit'] = 'baseline'
    cohort = gather(write_dataset(tmp_path, study))
    again = Cohort.load(cohort.save(tmp_path / 'cohort'))
    assert again.fingerprint() == cohort.fingerprint()
    assert again.fingerprint(1) != cohort.fingerprint(2)
    np.testing.assert_array_equal(again.features, cohort.features)
    assert set(again.people['site']) == {'1', '02'}
    assert again.others['mmse'].tolist() == [str(k) for k in range(71)]
    assert again.options == cohort.options


@pytest.mark.parametrize('by_session', [True, False])
def test_other_measures_are_joined(tmp_path, by_session):
    root = write_dataset(tmp_path)
    with_sessions(make_study()).to_csv(tmp_path / 'volumes.tsv', sep='\t')
    lines = ['participant_id\tsession_id\tscore', 'sub-001\tses-1\t5', 'sub-001\tses-2\t6']
    if not by_session:
        lines = ['participant_id\tscore', 'sub-001\t5']
    (tmp_path / 'phenotype.tsv').write_text('\n'.join(lines) + '\n')
    others = gather(root, phenotype=(tmp_path / 'phenotype.tsv',)).others
    assert others.loc['sub-001_ses-1', 'score'] == '5'
    assert others.loc['sub-001_ses-2', 'score'] == ('6' if by_session else '5')
    assert others['score'].notna().sum() == 2


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('participant_id\tscore\nsub-999\t5\n', 'nobody in it is among'),
        ('participant_id\theight\nsub-001\t5\n', 'height is in another table too'),
    ],
)
def test_measures_of_nobody_or_twice_are_an_error(tmp_path, text, message):
    study = make_study()
    study.people['height'] = 170
    root = write_dataset(tmp_path, study)
    (tmp_path / 'phenotype.tsv').write_text(text)
    with pytest.raises(DataError, match=message):
        gather(root, phenotype=(tmp_path / 'phenotype.tsv',))
