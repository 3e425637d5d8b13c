import json
import re

import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.published import find_model
from surreal_bids.regions import (
    FREESURFER_KINDS,
    MIDLINE,
    VENTRICLES,
    build_features,
    feature_set,
    freesurfer_regions,
    label_table,
    muse_indices,
    muse_table,
    recognise,
    side_of,
    tissue_of,
)
from tests.shared_data import shared_data


def test_muse_table_has_145_regions_of_which_139_are_features():
    table = muse_table()
    assert table['index'].is_monotonic_increasing
    assert table['index'].is_unique
    assert table['name'].is_unique
    assert len(table) == 145
    assert len(muse_indices()) == 139
    assert set(table['index']) - set(muse_indices()) == set(VENTRICLES)
    assert set(table.loc[table['tissue'] == 'CSF', 'index']) == set(VENTRICLES)


@pytest.mark.parametrize(
    ('numbering', 'labels', 'expected'),
    [
        ('aparc.DKTatlas+aseg.deep', [], 95),
        ('synthseg', [2, 60], 32),
        ('synthseg', [2, 2035], 98),
        ('aparc+aseg', [], 111),
        ('muse', [], 145),
    ],
)
def test_as_many_labels_as_the_programs_document(numbering, labels, expected):
    table = label_table(numbering, labels)
    assert list(table) == ['index', 'name']
    assert len(table) == expected
    assert table['index'].is_unique
    assert table['name'].is_unique


@pytest.mark.parametrize(
    'names',
    [
        ['wm-lh-bankssts', 'wm-rh-bankssts', 'Left-UnsegmentedWhiteMatter'],
        ['ctx-lh-cuneus', 'ctx_rh_cuneus', 'ctx.lh.insula'],
        ['Left-Thalamus', 'Brain-Stem', 'CC_Central', 'EstimatedTotalIntraCranialVol'],
        ['Left-Hippocampus', 'Left-VentralDC', 'Brain-Stem'],
        ['Lthal', 'Rthal', 'Lhippo', 'L_bankssts_surfavg'],
    ],
)  # fmt: skip
def test_freesurfer_is_recognised_without_the_whole_table(names):
    regions = [name for name in names if not name.startswith('Estimated')]
    assert freesurfer_regions(names) == regions
    assert freesurfer_regions(['region_1', 'left_x', 'right_x']) == []


@pytest.mark.parametrize(('numbering', 'label'), [('aseg', 1024), ('aparc+aseg', 42)])
def test_a_cortex_that_is_not_divided_as_expected_is_refused(numbering, label):
    with pytest.raises(DataError, match=f'does not fit {re.escape(numbering)} of FreeSurfer'):
        label_table(numbering, [2, label])


LUT = {
    2: 'Left-Cerebral-White-Matter', 10: 'Left-Thalamus', 16: 'Brain-Stem', 17: 'Left-Hippocampus',
    26: 'Left-Accumbens-area', 28: 'Left-VentralDC', 31: 'Left-choroid-plexus', 43:
    'Right-Lateral-Ventricle', 47: 'Right-Cerebellum-Cortex', 49: 'Right-Thalamus', 53:
    'Right-Hippocampus', 54: 'Right-Amygdala', 58: 'Right-Accumbens-area', 63:
    'Right-choroid-plexus', 1002: 'ctx-lh-caudalanteriorcingulate', 1005: 'ctx-lh-cuneus', 1016:
    'ctx-lh-parahippocampal', 1024: 'ctx-lh-precentral', 1028: 'ctx-lh-superiorfrontal', 2013:
    'ctx-rh-lingual', 2025: 'ctx-rh-precuneus', 1034: 'ctx-lh-transversetemporal', 1035:
    'ctx-lh-insula',
}  # fmt: skip
"""Lines of FreeSurferColorLUT.txt, and of FastSurfer_ColorLUT.tsv."""


@pytest.mark.parametrize('numbering', [kind for kind in FREESURFER_KINDS if 'aparc' in kind])
def test_names_as_freesurfer_has_them(numbering):
    table = label_table(numbering).set_index('index')['name']
    assert {index: table[index] for index in LUT} == LUT
    right = table.str.replace('Left-', 'Right-').str.replace('ctx-lh-', 'ctx-rh-')
    assert set(right) <= set(table), 'every region of the left has one on the right'
    parcels = table[table.index >= 2000]
    assert (parcels.to_numpy() == right[parcels.index - 1000]).all()


def test_mates_are_mutual_and_lie_on_opposite_sides():
    table = muse_table().set_index('index')
    paired = table[table['mate'].notna()]
    mates = table.loc[paired['mate'].astype(int)]
    assert (mates['mate'].astype(int).to_numpy() == paired.index).all()
    assert (mates['hemisphere'].to_numpy() != paired['hemisphere'].to_numpy()).all()
    for column in ('tissue', 'lobe', 'abbreviation'):
        assert mates[column].tolist() == pytest.approx(paired[column].tolist(), nan_ok=True)
    assert set(table.index[table['mate'].isna()]) == {*MIDLINE, 4, 11}


def test_muse_table_agrees_with_the_dictionary_of_muse():
    official = pd.read_csv(shared_data('tables/muse_139.csv')).set_index('ROI_INDEX')
    ours = muse_table().set_index('index').loc[list(muse_indices())]
    assert official.index.tolist() == ours.index.tolist()
    assert recognise(official['ROI_NAME']) == dict(zip(official['ROI_NAME'], official.index))
    sides = official['HEMISPHERE'].replace('B', 'none')
    assert ours['hemisphere'].tolist() == sides.tolist()
    tissues = official['TISSUE_SEG'].fillna('none').replace('NONE', 'none')
    assert ours['tissue'].tolist() == tissues.tolist()


@pytest.mark.parametrize(
    ('spelling', 'index'),
    [
        ('MUSE_47', 47),
        ('DL_MUSE_Volume_47', 47),
        ('47', 47),
        ('Right Hippocampus', 47),
        ('HIPPOCAMPUS-R', 47),
        ('Left AnG   angular gyrus', 107),
        ('lh_AnG', 107),
        ('frontal lobe WM left', 82),
        ('Brain Stem', 35),
        ('corpus_callosum', 95),
        ('Cerebellar Vermal Lobules VI-VII', 72),
        ('3rd Ventricle', 4),
        ('Left Inf Lat Vent', 50),
    ],
)
def test_usual_spellings_are_recognised(spelling, index):
    assert recognise([spelling]) == {spelling: index}


@pytest.mark.parametrize(
    'column',
    ['MUSE_702', 'MUSE_601', '46', 'age', 'Hippocampus', 'ICV', 'MRID', 'r', '', 'r1', '4.0'],
)
def test_other_columns_are_left_out(column):
    assert recognise([column]) == {}


@pytest.mark.parametrize(
    ('name', 'side', 'tissue'),
    [
        ('ctx-lh-cuneus', 'L', 'GM'),
        ('Left-WM-hypointensities', 'L', 'none'),
    ],
)
def test_names_of_freesurfer_have_a_side_and_a_tissue(name, side, tissue):
    assert (side_of(name), tissue_of(name)) == (side, tissue)


def test_two_columns_for_one_region_are_refused():
    with pytest.raises(
        DataError, match="'MUSE_47' and 'Right Hippocampus' both hold MUSE region 47"
    ):
        recognise(['age', 'MUSE_47', 'Right Hippocampus'])


def test_muse72_covers_each_region_once_in_the_documented_order():
    features = feature_set('muse72')
    assert len(features) == 72
    assert sorted(index for feature in features for index in feature.indices) == list(
        muse_indices()
    )
    assert tuple(feature.indices[0] for feature in features[:5]) == MIDLINE
    smaller = [min(feature.indices) for feature in features[5:]]
    assert smaller == sorted(smaller)
    assert all(len(feature.indices) == 2 for feature in features[5:])
    assert len({feature.name for feature in features}) == 72


def single_regions(n_people: int) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    columns = [f'MUSE_{index}' for index in muse_indices()]
    return pd.DataFrame(rng.uniform(100, 900, (n_people, 139)), columns=columns)


def test_build_features_sums_left_and_right_whatever_the_column_order():
    table = single_regions(4)
    shuffled = table.iloc[:, ::-1].rename(columns={'MUSE_48': 48, 'MUSE_35': 'brain-stem'})
    shuffled.insert(7, 'age', 70.0)
    features = build_features(shuffled, feature_set('muse72'))
    expected = table['MUSE_47'] + table['MUSE_48']
    np.testing.assert_allclose(features['hippocampus'], expected)
    np.testing.assert_allclose(features.sum(axis=1), table.sum(axis=1))


def test_a_missing_volume_stays_missing_in_its_sum():
    table = single_regions(3)
    table.loc[1, 'MUSE_48'] = np.nan
    features = build_features(table, feature_set('muse72'))
    assert features['hippocampus'].isna().tolist() == [False, True, False]
    assert features.isna().to_numpy().sum() == 1


@pytest.mark.parametrize(
    ('spoil', 'message'),
    [
        (lambda table: table.drop(columns='MUSE_48'), r'region 48 \(Left hippocampus\)'),
        (lambda table: table.iloc[:, 10:], 'and 5 more'),
    ],
)
def test_build_features_names_what_is_wrong(spoil, message):
    with pytest.raises(DataError, match=message):
        build_features(spoil(single_regions(2)), feature_set('muse72'))


@pytest.mark.parametrize('name', ['ad', 'ageing'])
def test_muse72_matches_the_means_stored_by_the_authors(name):
    """Means after residualisation are near those of volumes: they span three decades."""
    card = json.loads((find_model(name) / 'model.json').read_text('utf-8'))
    stored = np.log([feature['CNMean'] for feature in card['FeatureDetails']])
    healthy = pd.read_csv(shared_data('tables/ixi_muse145.csv'))
    means = build_features(healthy, feature_set('muse72')).mean()
    by_index = build_features(
        healthy, sorted(feature_set('muse72'), key=lambda f: f.indices)
    ).mean()
    assert np.corrcoef(stored, np.log(means))[0, 1] >= 0.99
    assert np.corrcoef(stored, np.log(by_index))[0, 1] < 0.5
