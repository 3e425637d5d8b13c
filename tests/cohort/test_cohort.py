from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError, NothingMatchedError
from surreal_bids.rindices.model import prepare
from surreal_bids.simulation.tables import simulate_table
from tests.analysis.group_study import make_config, with_sessions, write_dataset
from tests.cohort.study import REGIONS, make_study
from tests.shared_data import shared_data


def read(folder, study, **options):
    return read_cohort(*study.write(folder), CohortOptions(**options))


def requirements(cohort):
    return prepare(cohort).preprocessing.requirements


def test_everyone_of_a_good_study_is_in(tmp_path):
    study = make_study()
    cohort = read(tmp_path, study)
    assert cohort.counts == {'CN': 30, 'PT': 41}
    assert cohort.exclusions.empty
    assert cohort.apart is None
    assert list(cohort.people) == ['age', 'sex', 'icv', 'site']
    uses = cohort.uses.set_index('column')['taken_for']
    assert uses[['age', 'sex', 'icv', 'site']].tolist() == [
        'covariate age', 'covariate sex', 'head size', 'site'
    ]  # fmt: skip
    assert set(uses[REGIONS]) == {'region'}
    pd.testing.assert_frame_equal(
        cohort.features, study.features, check_index_type=False, check_names=False
    )


@pytest.mark.parametrize(
    ('options', 'expected'),
    [
        ({'covariates': ('none',)}, ['icv', 'site']),
        ({'covariates': ('age', 'icv')}, ['age', 'icv', 'site']),
        ({'icv': 'none'}, ['age', 'sex', 'site']),
        ({'site_column': 'none'}, ['age', 'sex', 'icv']),
    ],
)
def test_what_is_usual_is_used_unless_the_user_says_otherwise(tmp_path, options, expected):
    assert list(read(tmp_path, make_study(), **options).people) == expected


@pytest.mark.slow
@pytest.mark.parametrize('separator', ['\t', ';'])
def test_any_coding_and_format_give_the_same(tmp_path, separator):
    codings = [
        ({'CN': -1, 'PT': 1}, {}),
        ({'CN': 0, 'PT': 1}, {}),
        ({'CN': 'healthy', 'PT': 'ill'}, {}),
        ({'CN': 1, 'PT': 2}, {'control_label': ('1',)}),
        ({'CN': 'x', 'PT': 'y'}, {'control_label': ('x',), 'patient_label': ('y',)}),
    ]
    for coding, said in codings:
        study = make_study()
        study.people['diagnosis'] = study.people['diagnosis'].map(coding)
        cohort = read_cohort(*study.write(tmp_path, separator), CohortOptions(**said))
        assert cohort.is_patient.tolist() == make_study().is_patient.tolist()
        assert cohort.people['sex'].tolist() == study.people['sex'].tolist()


@pytest.mark.slow
def test_one_table_or_two_in_any_order_give_the_same_cohort(tmp_path):
    study = make_study()
    names = {n: f'Left-{n}' for n in REGIONS[1:]} | {REGIONS[0]: 'Left-Cerebellum-Cortex'}
    study.features = study.features.rename(columns=names)
    expected = read(tmp_path, study)
    study.people, study.features = study.people.iloc[::-1], study.features.iloc[::-1]
    assert read(tmp_path, study).fingerprint() == expected.fingerprint()
    study.people.join(study.features).to_csv(tmp_path / 'one.tsv', sep='\t')
    one = read_cohort(tmp_path / 'one.tsv')
    # Its volumes as measured have the covariates beside them.
    measured = one.measured[expected.measured.columns]
    assert replace(one, measured=measured).fingerprint() == expected.fingerprint()


def test_changes_of_excluded_participants_change_the_fingerprint(tmp_path):
    study = make_study()
    study.people.loc['sub-003', 'age'] = np.nan
    cohort = read(tmp_path, study)
    assert list(cohort.exclusions.index) == ['sub-003']
    study.features.loc['sub-003', REGIONS[0]] += 1.0
    changed_volume = read(tmp_path, study)
    assert changed_volume.fingerprint() != cohort.fingerprint()
    pd.testing.assert_frame_equal(changed_volume.features, cohort.features)
    other_reason = cohort.exclusions.assign(reason='rated as failed')
    assert replace(cohort, exclusions=other_reason).fingerprint() != cohort.fingerprint()


@pytest.mark.slow
def test_ids_are_written_as_in_the_tables(tmp_path):
    """Endings such as those of visits, and decimal places, are parts of ids."""
    for names in (
        [f'ADNI_{k:03}_S' for k in range(71)],
        [f'HC_M_{k:02}' for k in range(71)],
        [str(12 + k / 10) if k % 10 else str(12 + k // 10) for k in range(71)],
    ):
        study = make_study()
        index = pd.Index(names, name='MRID')
        study.people, study.features = study.people.set_axis(index), study.features.set_axis(index)
        assert set(read(tmp_path, study).visits['participant_id']) == set(names)


LONGITUDINAL = {
    'scan and base': lambda number, session: f'T{session}_{number}.long.{number}_base',
    'scan': lambda number, session: f'T{session}_{number}',
    'base': lambda number, session: f'{number}_base',
    'participant': lambda number, session: number,
}
"""What the table of participants may call a scan of FreeSurfer's longitudinal stream."""


@pytest.mark.parametrize(
    ('measured', 'described'),
    [*(('scan and base', name) for name in LONGITUDINAL), ('scan', 'scan and base')],
)
def test_visits_of_a_longitudinal_stream_are_of_one_participant(tmp_path, measured, described):
    study = make_study()
    numbers = [label.removeprefix('sub-') for label in study.features.index]
    volumes, people = [], []
    for session in (1, 2):
        scans = [LONGITUDINAL[measured](number, session) for number in numbers]
        rows = [LONGITUDINAL[described](number, session) for number in numbers]
        volumes.append((study.features + session).set_axis(scans))
        people.append(study.people.assign(age=study.people['age'] + session).set_axis(rows))
    study.features = pd.concat(volumes).rename_axis('ID')
    study.people = pd.concat(people).rename_axis('ID')
    study.people = study.people[~study.people.index.duplicated()]
    (tmp_path / 'poor.csv').write_text('ID\nT2_003\n')
    cohort = read(tmp_path, study, exclude=tmp_path / 'poor.csv')
    assert cohort.counts == {'CN': 30, 'PT': 41}
    assert len(cohort) == 141
    assert list(cohort.exclusions.index) == ['003_ses-T2']
    assert set(cohort.first_visits().visits['session_id']) == {'ses-T1'}


def test_the_column_of_ids_is_named_for_the_table_that_has_it(tmp_path):
    study = make_study()
    study.features = study.features.rename_axis('lh.aparc.volume')
    study.people = study.people.rename_axis('Code')
    assert len(read(tmp_path, study, id_column='Code')) == 71
    with pytest.raises(DataError, match=r'(?s)participants.tsv: no column Code2.*--id-column'):
        read(tmp_path, study, id_column='Code2')
    study.people = study.people.rename_axis('ID')
    with pytest.raises(DataError, match=r'volumes.tsv, .*: neither has the column Code of'):
        read(tmp_path, study, id_column='Code')


def test_participants_can_be_chosen(tmp_path):
    labels = tuple(f'{k:03}' for k in range(10, 70))
    assert len(read(tmp_path, make_study(), participant_label=labels)) == 60
    with pytest.raises(DataError, match=r'0 controls left of 2.*add participants'):
        read(tmp_path, make_study(), participant_label=('sub-001', '002'))
    for labels in ({'participant_label': ('001', '99')}, {'session_label': ('1', 'ses-99')}):
        with pytest.raises(NothingMatchedError, match=r'--(participant|session)-label .*99'):
            read(tmp_path, make_study(), **labels)


def test_groups_of_a_selection_are_those_of_the_whole_table(tmp_path):
    root = write_dataset(tmp_path)
    config = make_config(root)
    needs = requirements(read_cohort(config.roi_table, root / 'participants.tsv', config))
    config = replace(config, participant_label=('sub-060', '004'), control_label=('CN',))
    everyone = read_cohort(config.roi_table, root / 'participants.tsv', config, model=needs)
    foreseen = read_cohort(None, root / 'participants.tsv', config, model=needs)
    assert foreseen.counts == everyone.counts
    selected = everyone.of_participants(config.participant_label)
    assert list(selected.visits.index) == ['sub-004', 'sub-060']
    assert selected.visits['group'].tolist() == ['CN', 'PT']
    assert Cohort.load(selected.save(tmp_path / 'cohort')).has_enough_controls


def with_mci(study, n=6):
    study.people.loc[study.people.index[:n], 'diagnosis'] = 'MCI'
    return study


@pytest.mark.slow
def test_other_groups_are_kept_apart_and_stored(tmp_path):
    cohort = read(tmp_path, with_mci(make_study()), patient_label=('PT',))
    assert cohort.counts == {'CN': 24, 'PT': 41}
    assert cohort.exclusions.empty
    assert set(cohort.apart.visits['group']) == {'MCI'}
    assert len(cohort.apart) == 6
    assert any('MCI = other group' in note for note in cohort.notes)
    again = Cohort.load(cohort.save(tmp_path / 'cohort'))
    assert again.fingerprint() == cohort.fingerprint()
    assert list(again.apart.visits.index) == list(cohort.apart.visits.index)
    for labels in (['001', '060'], ['001']):
        assert list(cohort.of_participants(labels).apart.visits.index) == ['sub-001']
    without = make_study()
    without.people, without.features = without.people.iloc[6:], without.features.iloc[6:]
    pd.testing.assert_frame_equal(read(tmp_path, without).features, cohort.features)


def test_a_model_may_call_columns_otherwise(tmp_path):
    study = make_study()
    cohort = read(tmp_path, study)
    names = {'site': 'scanner', 'icv': 'DLICV', 'age': 'Age_at_scan', 'sex': 'PTGENDER'}
    study.people = study.people.rename(columns=names)
    found = read_cohort(*study.write(tmp_path), model=requirements(cohort))
    pd.testing.assert_frame_equal(found.people, cohort.people)


@pytest.mark.parametrize('groups', ['known', 'compared', 'controls'])
def test_a_model_can_be_applied_without_controls(tmp_path, groups):
    study = make_study()
    needs = requirements(read(tmp_path, study))
    study.people, study.features = study.people.iloc[30:], study.features.iloc[30:]
    tables = study.write(tmp_path)
    if groups == 'controls':
        with pytest.raises(DataError, match='--control-label'):
            read_cohort(*tables, model=needs, groups=groups)
        return
    cohort = read_cohort(*tables, model=needs, groups=groups, adapt=False)
    assert len(cohort) == 41
    assert not cohort.has_enough_controls
    assert any('not adapted' in text.found for text in cohort.warnings) == (groups == 'known')


@pytest.mark.parametrize(
    ('words', 'groups'),
    [
        (['AD'], {'PT': 12}),
        (['AD', 'FTD'], {'PT': 12}),
        (['AD', 'MCI'], {'PT': 6}),
        (['XYZ'], {}),
    ],
)
def test_patients_without_controls_keep_their_group(tmp_path, words, groups):
    needs = requirements(read(tmp_path, make_study()))
    study = make_study(n_cn=0, n_pt=12, seed=1)
    study.people['diagnosis'] = np.resize(words, 12)
    found = read_cohort(
        *study.write(tmp_path), CohortOptions(), model=needs, groups='compared', adapt=False
    )
    assert len(found) == 12
    assert found.groups.dropna().value_counts().to_dict() == groups
    assert any(note.startswith('Groups: ') for note in found.notes) == bool(groups)


def test_codes_of_sex_are_those_of_the_model(tmp_path):
    study = make_study()
    words = study.people['sex']
    study.people['sex'] = words.map({'F': 0, 'M': 1})
    needs = requirements(read(tmp_path, study))
    study.people['sex'] = words.map({'F': 1, 'M': 2})
    with pytest.raises(DataError, match='sex holds 1, 2; expected: 0, 1'):
        read_cohort(*study.write(tmp_path), model=needs)


def test_a_cohort_comes_back_from_files_as_it_was(tmp_path):
    study = make_study()
    study.people['site'] = study.people['site'].map({'site0': '1', 'site1': '02'})
    study.people['mmse'] = np.arange(71)[::-1]
    study.people['visit'] = 'baseline'
    cohort = read(tmp_path, study)
    again = Cohort.load(cohort.save(tmp_path / 'cohort'))
    assert again.fingerprint() == cohort.fingerprint()
    assert again.fingerprint(1) != cohort.fingerprint(2)
    np.testing.assert_array_equal(again.features, cohort.features)
    assert set(again.people['site']) == {'1', '02'}
    assert again.others['mmse'].tolist() == [str(k) for k in range(71)][::-1]
    assert again.options == cohort.options


@pytest.mark.parametrize('by_session', [True, False])
def test_other_measures_are_joined(tmp_path, by_session):
    root = write_dataset(tmp_path)
    with_sessions(make_study()).to_csv(tmp_path / 'volumes.tsv', sep='\t')
    lines = ['code\tsession_id\tscore', 'sub-001\tses-1\t5', 'sub-001\tses-2\t6']
    if not by_session:
        lines = ['code\tscore', 'sub-001\t5']
    (tmp_path / 'phenotype.tsv').write_text('\n'.join(lines) + '\n')
    for name in ('volumes.tsv', 'dataset/participants.tsv'):
        path = tmp_path / name
        path.write_text(path.read_text().replace('participant_id', 'code', 1))
    options = CohortOptions(phenotype=(tmp_path / 'phenotype.tsv',), id_column='code')
    cohort = read_cohort(tmp_path / 'volumes.tsv', root / 'participants.tsv', options)
    assert cohort.others.loc['sub-001_ses-1', 'score'] == '5'
    assert cohort.others.loc['sub-001_ses-2', 'score'] == ('6' if by_session else '5')
    assert cohort.others['score'].notna().sum() == 2
    (tmp_path / 'phenotype.tsv').write_text('code\tscore\nsub-999\t5\n')
    with pytest.raises(DataError, match='has none of the'):
        read_cohort(tmp_path / 'volumes.tsv', root / 'participants.tsv', options)


def test_ids_are_no_measures_and_codes_are_missing(tmp_path):
    study = make_study()
    study.people['PTID'] = np.arange(71) * 7
    study.people['ImageUID'] = np.arange(71) * 3
    study.people['mmse'] = [-9, 999, *np.arange(69) % 12 + 18]
    cohort = read(tmp_path, study)
    assert list(cohort.others) == ['mmse']
    assert cohort.others['mmse'].isna().tolist() == [True, True] + [False] * 69
    assert any(text.found.startswith('Codes read as missing') for text in cohort.warnings)
    assert cohort.uses.set_index('column').loc['PTID', 'taken_for'] == 'not used: id'


def test_regions_that_are_no_features_are_no_measures(tmp_path):
    simulated = simulate_table('basic', n_cn=20, n_pt=20, seed=0)
    table = simulated.participants.merge(simulated.volumes).assign(site='A', mmse=28)
    table['MUSE_4'] = 0.3 * table['MUSE_47']
    table.to_csv(tmp_path / 'one.tsv', sep='\t', index=False)
    (tmp_path / 'few.txt').write_text('\n'.join(simulated.volumes.columns[1:9]))
    cohort = Cohort.read(tmp_path / 'one.tsv', features=str(tmp_path / 'few.txt'))
    assert list(cohort.others) == ['site', 'mmse']


def test_tables_that_contradict_each_other_are_told(tmp_path):
    study = make_study()
    study.features['age'] = study.people['age'] + 3
    study.features['sex'] = study.people['sex'].map({'F': 'female', 'M': 'male'})
    warnings = read(tmp_path, study).warnings
    assert [w.found for w in warnings if 'disagree' in w.found] == [
        'age: participants.tsv and volumes.tsv disagree for 71 of 71 visits, such as sub-001'
    ]


CODED = {
    'codes': (lambda words: words.map({'CN': '0', 'PT': '1', 'F': '0', 'M': '1'}), 0),
    'the authors': (lambda words: words.map({'CN': '-1', 'PT': '1', 'F': '2', 'M': '1'}), 0),
    'other words': (lambda words: words.map({'CN': 'HC', 'PT': 'AD', 'F': 'Fem', 'M': 'Mas'}), 0),
    'divided': (lambda words: words + np.where(words.index > 'sub-050', '1', '2'), 0),
    'exchanged rows': (lambda words: words[::-1].to_numpy(), 2),
    'exchanged codes': (lambda words: words.map({'CN': 0, 'PT': 1, 'F': 0, 'M': 1})[::-1].array, 2),
    'exchanged words': (lambda words: words.map({'CN': 'PT', 'PT': 'CN', 'F': 'M', 'M': 'F'}), 2),
}  # fmt: skip


@pytest.mark.parametrize('name', CODED)
def test_other_codes_are_no_contradiction(tmp_path, name):
    change, n_warnings = CODED[name]
    study = make_study()
    for column in ('diagnosis', 'sex'):
        study.features[column] = change(study.people[column])
    found = [w.found for w in read(tmp_path, study).warnings if 'disagree' in w.found]
    assert len(found) == n_warnings


@pytest.mark.parametrize('columns', [['diagnosis', 'age', 'sex'], ['diagnosis', 'age', 'mmse']])
def test_exchanged_tables_are_named(tmp_path, columns):
    study = make_study()
    study.features, study.people = study.people.assign(mmse=28)[columns], study.features
    with pytest.raises(DataError, match=r'volumes.tsv: .*participants.tsv has 32; the tables seem'):
        read(tmp_path, study)


def test_one_head_size_is_listed(tmp_path):
    study = make_study()
    study.people['brainsize'] = study.people['icv'] * 0.8
    uses = read(tmp_path, study, icv_column='brainsize').uses.set_index('column')['taken_for']
    assert uses[['brainsize', 'icv']].tolist() == ['head size', 'not used: head size']


def test_a_covariate_is_the_column_that_is_used(tmp_path):
    """Neither a table of measures nor a second column replaces it; the age `89+` is 89."""
    study = make_study()
    months = pd.DataFrame({'age': study.people['age'] * 12})
    months.rename_axis('participant_id').to_csv(tmp_path / 'more.tsv', sep='\t')
    study.people['age_at_scan'] = study.people['age'] + 1
    used, measures = read(
        tmp_path, study, phenotype=(tmp_path / 'more.tsv',)
    ).covariates_and_measures()
    pd.testing.assert_series_equal(used['age'], study.people['age'], check_names=False)
    assert 'age_at_scan' not in [*used, *measures]
    study.people['age'] = ['89+', *study.people['age'].iloc[1:].astype(str)]
    used, _ = read(tmp_path, study, covariates=('sex',)).covariates_and_measures()
    assert used['age'].iloc[0] == 89


@pytest.mark.parametrize(
    ('change', 'options', 'notes'),
    [
        ({}, {}, None),
        ({'age': None, 'interview_age': 700}, {}, 'age (no column is called like age)'),
        ({'sex': 'F'}, {}, 'sex (sex has at most one value)'),
        ({'icv': None}, {}, 'head size (no column is called like head size)'),
        ({}, {'covariates': ('age', 'icv'), 'site_column': 'none'}, '--site-column none'),
        ({'site': 'A'}, {}, 'site (site has at most one value)'),
    ],
)
def test_what_is_not_corrected_is_told(tmp_path, change, options, notes):
    study = make_study()
    for name, value in change.items():
        study.people[name] = value
        study.people = study.people.drop(columns=[] if value else name)
    cohort = read(tmp_path, study, **options)
    told = dict(note.split(': ', 1) for note in cohort.notes)
    assert (notes or '') in told.get('Not corrected for', '')
    assert ('Not corrected for' in told) == (notes is not None)
    assert ('icv' in told['Corrected for']) == ('icv' not in change)
    warned = [w.found for w in cohort.warnings if w.found.startswith('Not corrected for')]
    assert len(warned) == bool({'age', 'icv'} & set(change))


def test_everything_that_stops_is_reported_together(tmp_path):
    study = make_study()
    study.people['age'] *= 12
    study.people['sex'] = ['x', *study.people['sex'][1:]]
    study.features['region_c'] *= -1
    with pytest.raises(DataError) as caught:
        read(tmp_path, study)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    for line, part in zip(lines, ('are negative', 'like months', 'sex of sub-001')):
        assert part in line
    study.features = study.features.astype({'region_c': object})
    study.features.iloc[3, 2] = 'big'
    with pytest.raises(DataError, match=r'(?s)has "big".*no column height'):
        read(tmp_path, study, covariates=('height',))


def test_sessions_that_do_not_match_are_named(tmp_path):
    study = make_study()
    study.features = study.features.assign(session_id='ses-1')
    study.people = study.people.assign(session_id='baseline')
    with pytest.raises(DataError, match=r'no row in participants.tsv for session 1; add it'):
        read(tmp_path, study)


def test_people_with_an_image_and_no_volumes_are_listed(tmp_path):
    tables = make_study().write(tmp_path)
    found = read_cohort(*tables, expected=[('001', None), ('x', '2')])
    assert found.exclusions['session_id'].tolist() == ['ses-2']
    with pytest.raises(DataError, match=r'not in .*volumes\.tsv'):
        found.of_participants(['sub-x'])


@pytest.mark.slow
def test_sites_are_learned_from_first_visits(tmp_path):
    study = make_study()
    root = write_dataset(tmp_path, study)
    with_sessions(study).to_csv(tmp_path / 'volumes.tsv', sep='\t')
    for name, place in study.people['site'].items():
        folder = root / name
        folder.mkdir()
        lines = ['session_id\tsite', f'ses-1\t{place}', 'ses-2\tnew']
        (folder / f'{name}_sessions.tsv').write_text('\n'.join(lines) + '\n')
    found = read_cohort(tmp_path / 'volumes.tsv', root / 'participants.tsv')
    assert set(found.visits['session_id']) == {'ses-1'}
    assert found.exclusions['reason'].str.startswith('site new has 0 controls').sum() == 71


def with_groups(table):
    return table.assign(diagnosis=np.where(np.arange(len(table)) % 2, 'CN', 'PT'))


@pytest.mark.slow
def test_a_real_table_of_muse_volumes(tmp_path):
    table = with_groups(pd.read_csv(shared_data('tables') / 'ixi_muse145.csv'))
    table.to_csv(tmp_path / 'ixi.csv', index=False)
    cohort = read_cohort(tmp_path / 'ixi.csv')
    assert len(cohort.wanted) == 139
    assert cohort.options.columns == ['Age', 'Sex', 'MUSE_702', 'SITE']
    assert len(cohort) == len(table) == 291
    assert cohort.visits.index[0] == 'IXI013-HH-1212-T1'


@pytest.mark.slow
def test_a_real_table_of_freesurfer(tmp_path):
    table = with_groups(pd.read_csv(shared_data('tables') / 'fcon1000.csv'))
    for change in (str, lambda n: n.replace('-', '.'), lambda n: n.lower().replace('-', '_')):
        table.rename(columns=change).to_csv(tmp_path / 'fcon.csv')
        cohort = read_cohort(tmp_path / 'fcon.csv')
        assert len(cohort) > 0.97 * len(table)
        assert cohort.people['age'].max() == table['age'].max() > 80
        names = [name.lower().replace('.', '-').replace('_', '-') for name in cohort.wanted.names]
        assert {'etiv', 'surfaceholes', '3rd-ventricle', 'sub-id', ''}.isdisjoint(names)
        assert {'left-hippocampus', 'left-cerebellum-cortex'} <= set(names)
        assert [name.lower() for name in cohort.options.columns] == ['age', 'sex', 'etiv', 'site']
        # One participant of this public table is in it under two names.
        reasons = cohort.exclusions['reason']
        assert reasons['ICBM_sub41546'].startswith('the same volumes as ICBM_sub10582')
    table.drop(columns='eTIV').to_csv(tmp_path / 'fcon.csv')
    assert 'eTIV' not in read_cohort(tmp_path / 'fcon.csv').people


@pytest.mark.slow
def test_the_sample_of_the_authors(tmp_path):
    path = shared_data('official') / 'sample_roi.csv'
    with pytest.raises(DataError, match=r'not regions of MUSE or FreeSurfer .*--features'):
        read_cohort(path)
    regions = tmp_path / 'regions.txt'
    regions.write_text('\n'.join(f'roi{k}' for k in range(100)))
    cohort = read_cohort(path, options=CohortOptions(features=str(regions)))
    assert len(cohort) == len(pd.read_csv(path))
    assert cohort.visits.index[0] == 'subject0'
    assert cohort.exclusions.empty


def test_ids_that_two_tables_do_not_share_are_told(tmp_path):
    study = make_study(40, 40)
    volumes, people = study.write(tmp_path)
    spelt = study.features.rename(lambda name: f'X{name}' if int(name[-1]) < 3 else name)
    spelt.to_csv(volumes, sep='\t')
    cohort = read_cohort(volumes, people)
    told = [caution.found for caution in cohort.warnings if 'only in' in caution.found]
    assert len(told) == 1
    assert told[0].count('of 80 ids only in') == 2
    # Participants without a scan alone are usual.
    study.features.iloc[10:].to_csv(volumes, sep='\t')
    assert not any('only in' in caution.found for caution in read_cohort(volumes, people).warnings)


def test_lost_controls_are_explained_by_their_ids(tmp_path):
    study = make_study(40, 40)
    volumes, people = study.write(tmp_path)
    spelt = [f'X{name}' if place < 40 else name for place, name in enumerate(study.features.index)]
    study.features.set_axis(pd.Index(spelt, name='participant_id')).to_csv(volumes, sep='\t')
    with pytest.raises(DataError, match=r'40 of 80 ids only in volumes\.tsv'):
        read_cohort(volumes, people)
