from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.cohort import Cohort, check_participants, read_cohort
from surreal_bids.cohort.reader import read_visit_table
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError, NothingMatchedError, UsageError
from surreal_bids.rindices.model import prepare
from tests.analysis.group_study import make_config, with_sessions, write_dataset
from tests.cohort.study import REGIONS, make_study
from tests.shared_data import shared_data


def gather(root, expected=(), model=None, **options):
    config = make_config(root, **options)
    return read_cohort(config.roi_table, root / 'participants.tsv', config, expected, model)


def reasons(gathered):
    return gathered.exclusions['reason'].to_dict()


def test_everyone_of_a_good_study_is_in(tmp_path):
    found = gather(write_dataset(tmp_path))
    cohort = found
    assert cohort.counts == {'CN': 30, 'PT': 41}
    assert cohort.wanted.names == REGIONS
    assert list(cohort.people) == ['age', 'sex', 'icv', 'site']
    assert reasons(found) == {}
    uses = cohort.uses.set_index('column')['taken_for']
    assert uses[['age', 'sex', 'icv', 'site']].tolist() == [
        'covariate age', 'covariate sex', 'head size', 'site'
    ]  # fmt: skip
    assert set(uses[REGIONS]) == {'region'}
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
        ('other diagnosis', 'diagnosis is MCI, which is neither control nor patient'),
        ('no diagnosis', 'diagnosis is missing'),
        ('no row', 'no row in participants.tsv'),
        ('no site', 'site is missing'),
        ('no volumes', 'not in .*volumes.tsv'),
        ('empty region', 'no volume of region_c'),
        ('outlier', 'of the regions have volumes far'),
        ('lone site', 'site far has 0 controls'),
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
        (lambda p: p.assign(diagnosis='CN'), {}, 'no patients were found'),
        (lambda p: p.drop(columns='diagnosis'), {}, '--group-column'),
        (lambda p: p.assign(diagnosis=['CN'] * 5 + ['PT'] * 66), {}, '5 controls left'),
        (lambda p: p.assign(age=[None] * 60 + [50.0] * 11), {'covariates': ('age',)},
         '0 controls left.*60 visits excluded: 60 for "age is missing"'),
        (lambda p: p.assign(age=[None] * 71), {'covariates': ('age',)}, 'were excluded'),
        (lambda p: p, {'site_column': 'scanner'}, 'no column scanner'),
        (lambda p: p, {'covariates': ('height',)}, 'no column height'),
        (lambda p: p, {'covariates': ('diagnosis',)}, 'cannot also be a covariate'),
        (lambda p: p.assign(age=p['age'].astype(str).where(p.index != 'sub-003', '89+')), {},
         'column age should hold numbers, but sub-003 has'),
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
    with pytest.raises(DataError, match=r'participants\.tsv: cannot be read'):
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
    assert any('only one site' in note for note in cohort.notes)


@pytest.mark.parametrize('wanted', [('sub-001', '002'), ()])
def test_participants_can_be_chosen(tmp_path, wanted):
    root = write_dataset(tmp_path)
    labels = wanted or [f'{k:03}' for k in range(10, 70)]
    if wanted:
        with pytest.raises(DataError, match=r'besides CN|controls left'):
            gather(root, participant_label=labels)
    else:
        assert len(gather(root, participant_label=tuple(labels))) == 60


@pytest.mark.parametrize('with_model', [False, True])
@pytest.mark.parametrize(
    'labels', [{'participant_label': ('001', '99', 'sub-x')}, {'session_label': ('1', 'ses-99')}]
)
def test_a_label_that_matches_nobody_is_named(tmp_path, labels, with_model):
    root = write_dataset(tmp_path)
    needs = prepare(gather(root)).preprocessing.requirements if with_model else None
    with pytest.raises(NothingMatchedError, match=r'--(participant|session)-label .*99'):
        gather(root, model=needs, **labels)


def test_groups_of_a_selection_are_those_of_the_whole_table(tmp_path):
    root = write_dataset(tmp_path)
    needs = prepare(gather(root)).preprocessing.requirements
    label = ('sub-060', '004')
    config = make_config(root, participant_label=label, control_label=('CN',))
    everyone = gather(root, model=needs, participant_label=label, control_label=('CN',))
    check_participants(root / 'participants.tsv', config, needs)
    selected = everyone.of_participants(label)
    assert everyone.counts == {'CN': 30, 'PT': 41}
    assert list(selected.visits.index) == ['sub-004', 'sub-060']
    assert selected.visits['group'].tolist() == ['CN', 'PT']
    assert selected.has_enough_controls
    assert Cohort.load(selected.save(tmp_path / 'cohort')).has_enough_controls


def test_other_spellings_of_age_and_sex_are_used_and_checked(tmp_path):
    study = make_study()
    study.people = study.people.rename(columns={'age': 'Age_at_scan', 'sex': 'PTGENDER'})
    cohort = gather(write_dataset(tmp_path, study))
    assert cohort.options.covariates == ('Age_at_scan', 'PTGENDER')
    study.people['Age_at_scan'] *= 12
    (tmp_path / 'months').mkdir()
    with pytest.raises(DataError, match=r'Age_at_scan .*months'):
        gather(write_dataset(tmp_path / 'months', study), covariates=('Age_at_scan',))


def test_of_several_visits_the_first_is_learned_from(tmp_path):
    root = write_dataset(tmp_path)
    with_sessions(make_study()).to_csv(tmp_path / 'volumes.tsv', sep='\t')
    cohort = gather(root)
    assert len(cohort) == 142
    assert cohort.counts == {'CN': 30, 'PT': 41}
    assert set(cohort.first_visits().visits['session_id']) == {'ses-1'}


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
        'site new has 0 controls, at least 3 are needed for harmonization'
    }
    assert len(reasons(found)) == 71


def test_a_model_may_call_columns_otherwise(tmp_path):
    study = make_study()
    cohort = gather(write_dataset(tmp_path, study))
    steps = prepare(cohort).preprocessing.requirements
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
    with pytest.raises(UsageError, match='remove --covariates and --icv'):
        read_cohort(config.roi_table, config.bids_dir / 'participants.tsv', config, (), steps)


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
        ('participant_id\tscore\nsub-999\t5\n', 'has none of the'),
        ('participant_id\theight\nsub-001\t5\n', r'height is also in .*participants\.tsv'),
    ],
)
def test_measures_of_nobody_or_twice_are_an_error(tmp_path, text, message):
    study = make_study()
    study.people['height'] = 170
    root = write_dataset(tmp_path, study)
    (tmp_path / 'phenotype.tsv').write_text(text)
    with pytest.raises(DataError, match=message):
        gather(root, phenotype=(tmp_path / 'phenotype.tsv',))


@pytest.mark.parametrize(
    ('coding', 'said'),
    [
        ({'CN': -1, 'PT': 1}, {}),
        ({'CN': 0, 'PT': 1}, {}),
        ({'CN': 'healthy', 'PT': 'ill'}, {}),
        ({'CN': 1, 'PT': 2}, {'control_label': ('1',)}),
        ({'CN': 'x', 'PT': 'y'}, {'control_label': ('x',), 'patient_label': ('y',)}),
    ],
)
@pytest.mark.parametrize('separator', ['\t', ';'])
def test_any_coding_and_format_give_the_same(tmp_path, coding, said, separator):
    study = make_study()
    study.people['diagnosis'] = study.people['diagnosis'].map(coding)
    cohort = read_cohort(*study.write(tmp_path, separator), CohortOptions(**said))
    pd.testing.assert_frame_equal(
        cohort.features, study.features, check_index_type=False, check_names=False
    )
    assert cohort.is_patient.tolist() == make_study().is_patient.tolist()
    assert cohort.people['sex'].tolist() == study.people['sex'].tolist()


@pytest.mark.parametrize('apart', [True, False])
@pytest.mark.parametrize('rows', [1, -1])
def test_one_table_or_two_in_any_order_give_the_same_cohort(tmp_path, apart, rows):
    study = make_study()
    expected = read_cohort(*study.write(tmp_path))
    study.people, study.features = study.people.iloc[::rows], study.features.iloc[::rows]
    volumes, people = study.write(tmp_path)
    if not apart:
        study.people.join(study.features).to_csv(volumes, sep='\t')
    cohort = read_cohort(volumes, people if apart else None)
    assert cohort.fingerprint() == expected.fingerprint()


def test_columns_of_the_other_table_are_no_features(tmp_path):
    study = make_study()
    study.features = study.features.assign(age=1.0, handedness=2.0)
    study.people = study.people.assign(handedness='right')
    cohort = read_cohort(*study.write(tmp_path))
    assert cohort.wanted.names == REGIONS
    assert cohort.people['age'].tolist() == study.people['age'].tolist()


@pytest.mark.parametrize('listed', [['region_b', 'region_a', 'region_d'], ['region_c']])
def test_a_list_gives_features_and_their_order(tmp_path, listed):
    path = tmp_path / 'features.txt'
    path.write_text('\n'.join(listed))
    cohort = read_cohort(*make_study().write(tmp_path), CohortOptions(features=str(path)))
    assert cohort.features.columns.tolist() == listed


def with_value(study, column, value, who='sub-004'):
    """A study with one other value, in the table that has the column."""
    name = 'people' if column in study.people else 'features'
    table = getattr(study, name).astype({column: object})
    table.loc[who, column] = value
    setattr(study, name, table)
    return study


@pytest.mark.parametrize(
    ('column', 'value', 'message'),
    [
        ('region_c', -999, 'region_c of sub-004 is -999; volumes cannot be negative'),
        ('region_c', 99999, r'region_c of sub-004 is 99999, far from all others \(median'),
        ('region_c', 0.3, 'region_c of sub-004 is 0.3, far from'),
        ('region_c', '1,234', 'sub-004 has "1,234"; use a decimal point'),
        ('sex', 'x', 'sex: sub-004 has x, others have F, M'),
        ('sex', '1', r'column sex holds numbers \(1\) but text for sub-001'),
        ('site', 'SITE0', 'SITE0 = site0'),
    ],
)
def test_what_cannot_be_true_is_an_error(tmp_path, column, value, message):
    with pytest.raises(DataError, match=message):
        read_cohort(*with_value(make_study(), column, value).write(tmp_path))


@pytest.mark.parametrize('factor', [0.001, 0.05, 20])
def test_a_failed_segmentation_of_our_own_is_excluded(tmp_path, factor):
    study = make_study()
    study.features.loc['sub-004'] *= factor
    table, participants = study.write(tmp_path)
    measured = replace(read_visit_table(table), source=tmp_path)
    cohort = read_cohort(measured, participants)
    assert list(cohort.exclusions.index) == ['sub-004']
    assert 'check the segmentation' in cohort.exclusions['reason'].iloc[0]


@pytest.mark.parametrize(
    ('column', 'value', 'reason'),
    [
        ('age', -9, 'age is -9'),
        ('age', 0, 'age is 0'),
        ('age', 1951, 'age is 1951'),
        ('icv', 90, 'icv is 90'),
        ('icv', -1, 'icv is -1'),
        ('region_c', None, 'no volume of region_c'),
    ],
)
def test_who_cannot_be_used_is_excluded(tmp_path, column, value, reason):
    cohort = read_cohort(*with_value(make_study(), column, value).write(tmp_path))
    assert list(cohort.exclusions.index) == ['sub-004']
    assert reason in cohort.exclusions['reason'].iloc[0]


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda s: s.people.assign(age=2020 - s.people['age'].round()), 'birth years'),
        (lambda s: s.people.assign(age=12 * s.people['age']), 'months'),
        (lambda s: s.people.assign(age=365 * s.people['age']), 'days'),
        (lambda s: s.people.assign(age='50-59'), 'age should hold numbers'),
        (lambda s: s.people.set_axis([f'sub-X{k}' for k in range(71)]).rename_axis('ID'),
         r'001, sub-002.*volumes\.tsv but not in .*participants\.tsv \(ids there: sub-X0'),
    ],
)  # fmt: skip
def test_columns_that_are_something_else_are_an_error(tmp_path, change, message):
    study = make_study()
    study.people = change(study)
    with pytest.raises(DataError, match=message):
        read_cohort(*study.write(tmp_path), CohortOptions(covariates=('age',)))


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda f: f - 300, 'For z-scores'),
        (lambda f: f.mul(np.where(np.arange(71) < 40, 1, 0.001), axis=0), 'cm3 and mm3'),
        (lambda f: f.assign(**{n: f[n].mask(f.index == 'sub-009', f[n]['sub-002']) for n in f}),
         'sub-002 and sub-009 have identical volumes'),
        (lambda f: f.map(lambda v: f'{10 * v:,.0f}'.replace(',', '.')), 'separate thousands'),
    ],
)  # fmt: skip
def test_volumes_that_cannot_be_are_an_error(tmp_path, change, message):
    study = make_study()
    study.features = change(study.features * (1 if 'z-scores' in message else 0.4))
    with pytest.raises(DataError, match=message):
        read_cohort(*study.write(tmp_path))


def test_spellings_of_one_sex_are_unified(tmp_path):
    study = make_study()
    words = np.where(np.arange(71) % 2, study.people['sex'], study.people['sex'].str.lower())
    expected = study.people['sex'].tolist()
    study.people['sex'] = words
    cohort = read_cohort(*study.write(tmp_path))
    assert cohort.people['sex'].tolist() == expected
    assert 'sex: F, f = F; M, m = M' in cohort.notes


def test_ids_are_written_as_in_the_tables(tmp_path):
    study = make_study()
    names = pd.Index([f'ADNI_{k:03}_S' for k in range(71)], name='MRID')
    study.people, study.features = study.people.set_axis(names), study.features.set_axis(names)
    volumes, people = study.write(tmp_path)
    assert read_cohort(volumes, people).visits['participant_id'].tolist() == list(names)


def muse_table_of(table, **columns):
    return table.copy().assign(diagnosis=np.where(np.arange(len(table)) % 2, 'CN', 'PT'), **columns)


@pytest.mark.parametrize('scale', [1, 1000])
def test_a_real_table_of_muse_volumes(tmp_path, scale):
    table = muse_table_of(pd.read_csv(shared_data('tables') / 'ixi_muse145.csv'))
    regions = [name for name in table if name.startswith('MUSE_')]
    table[regions] /= scale
    table.to_csv(tmp_path / 'ixi.csv', index=False)
    if scale > 1:
        with pytest.raises(DataError, match=r'about 1,000 times smaller .* convert them to mm3$'):
            read_cohort(tmp_path / 'ixi.csv')
        return
    cohort = read_cohort(tmp_path / 'ixi.csv')
    assert len(cohort.wanted) == 139
    assert cohort.options.columns == ['Age', 'Sex', 'MUSE_702', 'SITE']
    assert len(cohort) == len(table) == 291
    assert cohort.visits.index[0] == 'IXI013-HH-1212-T1'


def test_a_real_table_of_freesurfer(tmp_path):
    table = muse_table_of(pd.read_csv(shared_data('tables') / 'fcon1000.csv'))
    table.to_csv(tmp_path / 'fcon.csv', index=False)
    # One participant of this public table is in it under two names.
    with pytest.raises(DataError, match='ICBM_sub10582 and ICBM_sub41546 have identical volumes'):
        read_cohort(tmp_path / 'fcon.csv')
    table = table[table['sub_id'] != 'ICBM_sub41546']
    table.to_csv(tmp_path / 'fcon.csv', index=False)
    cohort = read_cohort(tmp_path / 'fcon.csv')
    assert len(cohort) > 0.97 * len(table)
    assert {'eTIV', 'SurfaceHoles', '3rd-Ventricle', 'sub_id'}.isdisjoint(cohort.wanted.names)
    assert 'Left-Hippocampus' in cohort.wanted.names
    assert cohort.options.columns == ['age', 'sex', 'eTIV', 'site']


def test_the_sample_of_the_authors(tmp_path):
    path = shared_data('official') / 'sample_roi.csv'
    cohort = read_cohort(path)
    assert len(cohort) == len(pd.read_csv(path))
    assert cohort.visits.index[0] == 'subject0'
    assert cohort.exclusions.empty


@pytest.mark.parametrize(
    ('codes', 'message'),
    [
        ({'F': 0, 'M': 1}, None),
        ({'F': 1, 'M': 0}, 'codes are reversed'),
        ({'F': 1, 'M': 2}, 'sub-001 has 2, but the model was trained with 0 and 1'),
    ],
)
def test_codes_of_sex_are_those_of_the_model(tmp_path, codes, message):
    study = make_study()
    study.features *= np.where(study.people['sex'] == 'M', 1.12, 1.0)[:, None]
    words = study.people['sex']
    study.people['sex'] = words.map({'F': 0, 'M': 1})
    steps = prepare(read_cohort(*study.write(tmp_path))).preprocessing.requirements
    study.people['sex'] = words.map(codes)
    tables = study.write(tmp_path)
    if message is None:
        assert len(read_cohort(*tables, model=steps)) == 71
    else:
        with pytest.raises(DataError, match=message):
            read_cohort(*tables, model=steps)
