from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surreal_bids.bids.tabular import Table
from surreal_bids.cohort.features import (
    choose_features,
    column_features,
    listed_features,
    named_features,
    read_features,
    region_columns,
)
from surreal_bids.exceptions import DataError, MissingColumnError, UsageError
from surreal_bids.regions import FeatureList, label_table, muse_indices, region_names

SPELLINGS = {
    'index': lambda k: str(k),
    'MUSE': lambda k: f'MUSE_{k}',
    'DLMUSE': lambda k: f'DL_MUSE_Volume_{k}',
    'H_MUSE': lambda k: f'H_MUSE_Volume_{k}',
    'name': lambda k: region_names()[k],
    'words': lambda k: region_names()[k].lower().replace(' ', '_'),
}


def text_table(frame: pd.DataFrame) -> Table:
    return Table(Path('t.tsv'), frame.map(str).astype(object))


@pytest.fixture
def volumes() -> pd.DataFrame:
    values = np.random.default_rng(0).uniform(100, 900, (3, 139))
    return pd.DataFrame(values, ['sub-1', 'sub-2', 'sub-3'], list(muse_indices()))


@pytest.mark.parametrize('spelling', SPELLINGS)
@pytest.mark.parametrize('name', ['muse72', 'muse139'])
def test_muse_sets_are_built_from_single_regions_in_any_spelling(volumes, spelling, name):
    shuffled = volumes.sample(frac=1, axis=1, random_state=1).rename(columns=SPELLINGS[spelling])
    features = read_features(text_table(shuffled), named_features(name))
    assert features.shape == (3, int(name.removeprefix('muse')))
    for feature in named_features(name).features:
        expected = volumes[list(feature.indices)].sum(axis=1)
        assert features[feature.name].tolist() == pytest.approx(expected.tolist())


def test_a_table_that_has_the_sums_is_taken_as_it_is(volumes):
    wanted = named_features('muse72')
    sums = read_features(text_table(volumes.rename(columns=str)), wanted)
    again = read_features(text_table(sums.iloc[:, ::-1]), wanted)
    pd.testing.assert_frame_equal(sums, again)


@pytest.mark.parametrize('fitted', ['index', 'MUSE', 'name'])
@pytest.mark.parametrize('applied', ['DLMUSE', 'words', 'MUSE'])
def test_columns_that_are_muse_regions_are_found_in_another_spelling(volumes, fitted, applied):
    wanted = column_features([SPELLINGS[fitted](k) for k in volumes.columns])
    table = text_table(volumes.rename(columns=SPELLINGS[applied]))
    assert np.allclose(read_features(table, wanted), volumes)


def test_columns_of_another_atlas_are_found_by_name_only():
    wanted = column_features(['47', 'thickness'])
    assert [feature.indices for feature in wanted.features] == [(), ()]
    table = text_table(pd.DataFrame({'MUSE_47': [1.0], 'thickness': [2.0]}))
    with pytest.raises(DataError, match=r't\.tsv: no column 47; there are: MUSE_47, thickness'):
        read_features(table, wanted)


@pytest.mark.parametrize(
    ('drop', 'name', 'message'),
    [(47, 'muse139', r'MUSE region 47 \(Right'), (35, 'muse72', r'MUSE region 35 \(Brain stem')],
)
def test_a_missing_region_is_named(volumes, drop, name, message):
    table = text_table(volumes.drop(columns=drop).rename(columns=SPELLINGS['MUSE']))
    with pytest.raises(DataError, match=message) as caught:
        read_features(table, named_features(name))
    assert 't.tsv' in str(caught.value)


@pytest.mark.parametrize('numbering', ['aparc+aseg', 'aparc.DKTatlas+aseg.deep', 'synthseg'])
def test_regions_of_freesurfer_are_features_but_not_of_a_model_of_muse(numbering):
    names = label_table(numbering)['name'].tolist()
    values = np.random.default_rng(0).uniform(100, 900, (3, len(names)))
    table = text_table(pd.DataFrame(values, ['a', 'b', 'c'], names))
    features, _ = choose_features(table, [])
    fluid = ('Ventricle', 'Lat-Vent', 'CSF', 'vessel', 'choroid', 'hypointensities')
    tissue = [name for name in names if not any(word in name for word in fluid)]
    assert features.names == tissue
    assert read_features(table, features).shape == (3, len(tissue))
    with pytest.raises(DataError, match=r't.tsv: the model needs MUSE regions, and \d+'):
        read_features(table, named_features('muse139'))


def test_a_region_that_is_missing_is_not_looked_for_in_another_table():
    table = text_table(pd.DataFrame(1.0, ['sub-1'], ['a', 'c']))
    with pytest.raises(DataError, match='no column b') as error:
        read_features(table, column_features(['a', 'b']))
    assert not isinstance(error.value, MissingColumnError)


@pytest.mark.parametrize('name', ['muse72', 'muse139', 'columns'])
def test_lists_go_to_json_and_back(name):
    wanted = column_features(['a', 'b']) if name == 'columns' else named_features(name)
    assert FeatureList.from_json(wanted.to_json()) == wanted


@pytest.mark.parametrize(
    ('content', 'names'), [('b\na\n', ['b', 'a']), ('\ufeffb \n\n a', ['b', 'a'])]
)
def test_a_file_of_names_gives_their_order(tmp_path, content, names):
    path = tmp_path / 'list.txt'
    path.write_text(content, encoding='utf-8')
    assert listed_features(str(path)).names == names


@pytest.mark.parametrize(
    ('content', 'message'), [('', 'is empty'), ('a\nb\na', 'a is listed more than once')]
)
def test_a_bad_list_is_named(tmp_path, content, message):
    path = tmp_path / 'list.txt'
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        listed_features(str(path))


def test_neither_set_nor_file():
    with pytest.raises(UsageError, match='muse71: neither muse72 nor muse139'):
        listed_features('muse71')


@pytest.mark.parametrize(
    ('columns', 'used', 'names', 'note'),
    [
        (['a', 'b', 'age', 'MMSE'], ['age'], ['a', 'b'], 'MMSE'),
        (['a', 'b', 'DLICV', 'MUSE_701'], [], ['a', 'b'], 'DLICV, MUSE_701'),
        (['MUSE_47', 'MUSE_48', 'MUSE_4', 'euler'], [], ['MUSE_47', 'MUSE_48'], 'euler'),
        (['47', '48', '702', '601', '301'], [], ['47', '48'], '702, 601, 301'),
        (['0', '1', '2', '47', '48'], [], ['0', '1', '2', '47', '48'], None),
        (['Left-Hippocampus', 'Left-Cerebellum-Cortex', 'Brain-Stem', 'eTIV', 'CSF',
          'lhCortexVol', 'TotalGrayVol', 'BrainSegVolNotVent', 'MaskVol-to-eTIV', 'SurfaceHoles',
          'Left-Lateral-Ventricle', 'Left-WM-hypointensities', '3rd-Ventricle', 'CortexVol',
          'SupraTentorialVolNotVent', 'rhCerebralWhiteMatterVol', 'SubCortGrayVol'],
         [], ['Left-Hippocampus', 'Left-Cerebellum-Cortex', 'Brain-Stem'], 'eTIV, CSF'),
        (['lh_bankssts_thickness', 'lh_insula_thickness', 'lh_MeanThickness_thickness', 'eTIV'],
         [], ['lh_bankssts_thickness', 'lh_insula_thickness'], 'lh_MeanThickness_thickness, eTIV'),
        (['lh_G_cuneus_area', 'lh_WhiteSurfArea_area'], [], ['lh_G_cuneus_area'],
         'lh_WhiteSurfArea_area'),
    ],
)  # fmt: skip
def test_what_is_no_region_is_no_feature(columns, used, names, note):
    values = np.random.default_rng(0).uniform(100, 900, (3, len(columns)))
    wanted, judged = choose_features(text_table(pd.DataFrame(values, columns=columns)), used)
    assert wanted.names == names
    assert {*judged, *names, *used} == {*columns}
    assert {*(note or '').split(', ')} - {''} <= {*judged}


@pytest.mark.parametrize('name', ['', 'Unnamed: 0', 'index', 'X', 'row', 'number'])
def test_columns_that_count_rows_are_refused(name):
    table = pd.DataFrame({'roi': np.arange(8) / 7, name: range(8)})
    with pytest.raises(DataError, match='remove it'):
        choose_features(text_table(table), [])


def test_text_is_no_feature():
    table = Table(Path('t.tsv'), pd.DataFrame({'a': ['1', '2'], 'scan': ['x', 'y']}, dtype=object))
    wanted, judged = choose_features(table, [])
    assert wanted.names == ['a']
    assert judged == {'scan': 'text'}


@pytest.mark.parametrize('name', ['acq_time', 'scan_date', 'ExamDate'])
def test_dates_of_visits_are_no_feature(name):
    cells = pd.DataFrame({'a': ['1', '2'], name: ['2010-03-01', '2012-03-01']}, dtype=object)
    wanted, judged = choose_features(Table(Path('t.tsv'), cells), [])
    assert wanted.names == ['a']
    assert judged == {name: 'date'}


def test_nothing_left_to_be_a_feature():
    with pytest.raises(DataError, match='no column holds regional volumes'):
        choose_features(text_table(pd.DataFrame({'age': [2.0]})), ['age'])


def test_columns_of_regions_are_found_in_any_spelling():
    table = text_table(pd.DataFrame(1.0, ['sub-1'], ['MUSE_47', 'MUSE_4', 'Age', 'note']))
    assert region_columns(table, named_features('muse139')) == ['MUSE_47']
    assert region_columns(table, column_features(['NOTE'])) == ['note']


@pytest.mark.parametrize('seed', range(8))
def test_a_renamed_region_is_told(seed):
    """A letter of a name is lost, its words are in another order, or it has a unit."""
    rng = np.random.default_rng(seed)
    names = {index: region_names()[index] for index in muse_indices()}
    index = int(rng.choice(list(names)))
    words = names[index].split()
    words[-1] = words[-1][:-1]
    renamed = '_'.join([*rng.permutation(words), str(rng.choice(['vol', 'mm3', 'x']))])
    values = rng.uniform(100, 900, (3, len(names) + 1))
    columns = [renamed if key == index else name for key, name in names.items()]
    table = text_table(pd.DataFrame(values, columns=[*columns, 'scan quality']))
    _, judged = choose_features(table, (), None)
    assert names[index] in judged[renamed]
    assert 'rename' not in judged['scan quality']
