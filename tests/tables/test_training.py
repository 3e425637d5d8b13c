import pandas as pd
import pytest

from surreal_bids.bids.people import GroupLabels
from surreal_bids.exceptions import DataError
from surreal_bids.tables.cohort import read_training_table
from surreal_bids.tables.preprocessing import PreprocessingOptions
from tests.tables.study import REGIONS, make_study

OPTIONS = PreprocessingOptions(('age', 'sex'), 'icv', 'covariate', 'site')


@pytest.mark.parametrize(
    ('coding', 'said'),
    [
        ({'CN': -1, 'PT': 1}, GroupLabels()),
        ({'CN': 0, 'PT': 1}, GroupLabels()),
        ({'CN': 'healthy', 'PT': 'ill'}, GroupLabels()),
        ({'CN': 1, 'PT': 2}, GroupLabels(controls=['1'])),
        ({'CN': 'x', 'PT': 'y'}, GroupLabels('diagnosis', ['x'], ['y'])),
    ],
)
@pytest.mark.parametrize('separator', ['\t', ','])
def test_any_coding_and_format_give_the_same(tmp_path, coding, said, separator):
    study = make_study()
    study.people['diagnosis'] = study.people['diagnosis'].map(coding)
    training = read_training_table(*study.write(tmp_path, separator), OPTIONS, said=said)
    pd.testing.assert_frame_equal(training.features, study.features, check_index_type=False)
    assert training.groups.is_patient.tolist() == make_study().is_patient.tolist()
    assert training.people['age'].tolist() == study.people['age'].tolist()
    assert training.people['sex'].tolist() == study.people['sex'].tolist()


@pytest.mark.parametrize('apart', [True, False])
def test_people_may_be_described_in_the_same_table_or_another(tmp_path, apart):
    study = make_study()
    volumes, people = study.write(tmp_path)
    if not apart:
        study.people.join(study.features).to_csv(volumes, sep='\t')
    training = read_training_table(volumes, people if apart else None, OPTIONS)
    assert training.wanted.names == REGIONS
    pd.testing.assert_frame_equal(training.features, study.features, check_index_type=False)


def test_columns_of_the_other_table_are_no_features(tmp_path):
    study = make_study()
    study.features = study.features.assign(age=1.0, handedness=2.0)
    study.people = study.people.assign(handedness='right')
    training = read_training_table(*study.write(tmp_path), OPTIONS)
    assert training.wanted.names == REGIONS
    assert training.people['age'].tolist() == study.people['age'].tolist()


def test_only_people_of_both_groups_are_read(tmp_path):
    study = make_study()
    study.people.loc['sub-003', 'diagnosis'] = 'other'
    study.features = study.features.astype(object)
    study.features.loc['sub-003', 'region_a'] = 'motion'
    said = GroupLabels(controls=['CN'], patients=['PT'])
    training = read_training_table(*study.write(tmp_path), OPTIONS, said=said)
    assert 'sub-003' not in training.features.index
    assert training.groups.left_out == {'sub-003': 'other'}


@pytest.mark.parametrize('listed', [['region_b', 'region_a'], ['region_c']])
def test_a_list_gives_features_and_their_order(tmp_path, listed):
    path = tmp_path / 'features.txt'
    path.write_text('\n'.join(listed))
    training = read_training_table(*make_study().write(tmp_path), OPTIONS, str(path))
    assert training.features.columns.tolist() == listed


def test_the_diagnosis_cannot_be_a_covariate(tmp_path):
    with pytest.raises(DataError, match='diagnosis is the diagnosis'):
        read_training_table(
            *make_study().write(tmp_path), PreprocessingOptions(('diagnosis', 'age'))
        )


def test_text_among_numbers_does_not_make_an_age_a_category(tmp_path):
    study = make_study()
    study.people['age'] = study.people['age'].astype(object)
    study.people.loc['sub-004', 'age'] = '89+'
    with pytest.raises(DataError, match=r'column age holds numbers, but not for .*89\+'):
        read_training_table(*study.write(tmp_path), OPTIONS)


def test_several_visits_of_a_person_are_not_several_people(tmp_path):
    study = make_study()
    names = study.people.index.tolist()
    names[:2] = ['sub-000_ses-1', 'sub-000_ses-2']
    study.people.index = study.features.index = pd.Index(names, name=study.people.index.name)
    with pytest.raises(DataError, match=r'several visits of 000; train with one visit'):
        read_training_table(*study.write(tmp_path), OPTIONS)
