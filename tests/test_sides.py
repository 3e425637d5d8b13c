"""Left and right regions: how they are recognised and put together."""

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.roles import column_features, describe_sides, usable_sides
from surreal_bids.harmonization.options import PreprocessingOptions
from surreal_bids.regions import FeatureList, feature_set, muse_indices
from surreal_bids.sides import (
    APART,
    TOGETHER,
    Pair,
    adds_up,
    combine_sides,
    find_pairs,
    pair_sides,
    put_sides_together,
    without_partner,
)
from tests.shared_data import shared_data

SPELLINGS = {
    'MUSE by number': ('MUSE_48', 'MUSE_47'),
    'MUSE by name': ('Left hippocampus', 'Right hippocampus'),
    'aseg': ('Left-Hippocampus', 'Right-Hippocampus'),
    'Desikan-Killiany': ('lh_cuneus_thickness', 'rh_cuneus_thickness'),
    'aparc in R': ('lh.cuneus.volume', 'rh.cuneus.volume'),
    'Destrieux': ('lh_G&S_frontomargin_thickness', 'rh_G&S_frontomargin_thickness'),
    'DKT of FastSurfer': ('ctx-lh-cuneus', 'ctx-rh-cuneus'),
    'white matter': ('wm-lh-bankssts', 'wm-rh-bankssts'),
    'SynthSeg': ('left cerebral cortex', 'right cerebral cortex'),
    'ENIGMA, cortex': ('L_bankssts_thickavg', 'R_bankssts_thickavg'),
    'ENIGMA, deep': ('Lhippo', 'Rhippo'),
    'side last': ('hippocampus_left', 'hippocampus_right'),
    'AAL': ('Hippocampus_L', 'Hippocampus_R'),
    'CAT12': ('lHip', 'rHip'),
    'side in the middle': ('thickness.left.cuneus', 'thickness.right.cuneus'),
    'joined words': ('LeftHippocampus', 'RightHippocampus'),
    'joined at the end': ('hippocampusL', 'hippocampusR'),
    'brackets': ('Hippocampus (L)', 'Hippocampus (R)'),
}


@pytest.mark.parametrize('names', SPELLINGS.values(), ids=SPELLINGS)
def test_sides_are_recognised_in_every_spelling(names):
    left, right = names
    columns = ['Brain-Stem', right, 'Leftover', left, 'Lingual', 'left_handed']
    if left.startswith('MUSE'):
        columns = ['MUSE_35', right, 'MUSE_71', left]
    structures = put_sides_together(column_features(columns))
    paired = [feature.columns for feature in structures.features if len(feature.columns) == 2]
    assert paired == [(left, right)]
    assert len(structures) == len(columns) - 1


@pytest.mark.parametrize(
    'names',
    [
        ('left_handed', 'handed'),
        ('Leftover', 'Rightover'),
        ('lateral', 'rateral'),
        ('7Networks_LH_Vis_1', '7Networks_RH_Vis_1'),
        ('LH_Vis_1', 'RH_Vis_1'),
        ('7Networks.LH.Vis.8', '7Networks.RH.Vis.8'),
        ('LH.Cont.PFCl.2', 'RH.Cont.PFCl.2'),
        ('17networks_lh_default_pfc_2', '17networks_rh_default_pfc_2'),
        ('lh_DefaultA_PFCm_1_thickness', 'rh_DefaultA_PFCm_1_thickness'),
        ('lh_cuneus_thickness', 'rh_cuneus_volume'),
        ('L_a', 'L_b'),
        ('L1', 'R1'),
        ('region_k', 'region_l', 'region_q', 'region_r'),
    ],
)
def test_other_names_are_not_paired(names):
    assert find_pairs(names) == []


def test_structures_are_named_without_side():
    names = {name: find_pairs(pair) for name, pair in SPELLINGS.items() if 'MUSE' not in name}
    found = {name: pairs[0].structure for name, pairs in names.items()}
    assert found['aseg'] == found['joined words'] == found['brackets'].strip() == 'Hippocampus'
    assert found['DKT of FastSurfer'] == 'ctx-cuneus'
    assert found['side in the middle'] == 'thickness.cuneus'
    assert found['side last'] == 'hippocampus'
    assert found['ENIGMA, cortex'] == 'bankssts_thickavg'


def test_a_structure_may_stand_beside_its_sides():
    regions = column_features(['hippocampus', 'left_hippocampus', 'right_hippocampus'])
    names = put_sides_together(regions).names
    assert names == ['hippocampus', 'hippocampus (both sides)']


def test_two_pairs_with_one_name_are_two_structures():
    names = ['left.insulax', 'right.insulax', 'insulax_left', 'insulax_right']
    structures = put_sides_together(column_features(names)).features
    assert [structure.columns for structure in structures] == [tuple(names[:2]), tuple(names[2:])]
    assert len({structure.name for structure in structures}) == 2


def test_means_and_totals_beside_both_sides_leave_the_pair():
    names = ['L_cuneusx', 'R_cuneusx', 'M_cuneusx']
    assert find_pairs(names) == [Pair('cuneusx', 'L_cuneusx', 'R_cuneusx')]


def test_columns_beside_muse_regions_leave_their_pairs():
    columns = [*(f'MUSE_{index}' for index in muse_indices()), 'extra_L', 'extra_R', 'other']
    regions = column_features([f'MUSE_{index}' for index in muse_indices()]).features
    regions += column_features(columns[-3:]).features
    structures = put_sides_together(FeatureList('columns', regions, 'mm3'))
    assert len(structures) == 72 + 2
    assert ('extra_L', 'extra_R') in [structure.columns for structure in structures.features]


def test_muse_pairs_are_those_of_the_authors_models():
    regions = column_features([f'MUSE_{index}' for index in muse_indices()])
    ours = {frozenset(feature.indices) for feature in put_sides_together(regions).features}
    assert ours == {frozenset(feature.indices) for feature in feature_set('muse72')}


def test_sums_of_published_models_stay_as_they_are():
    published = FeatureList('muse72', feature_set('muse72'), 'mm3')
    assert pair_sides(published, TOGETHER) is None
    assert describe_sides(published, TOGETHER, TOGETHER)[0][0].startswith('Sides: together')


def test_volumes_are_added_and_thickness_is_averaged():
    rng = np.random.default_rng(0)
    names = ['lh_a_volume', 'rh_a_volume', 'lh_a_thickness', 'rh_a_thickness', 'Brain-Stem']
    values = pd.DataFrame(rng.uniform(1, 5, (6, 5)), columns=names)
    values.loc[2, 'rh_a_volume'] = np.nan
    combined = combine_sides(values, put_sides_together(column_features(names)))
    assert list(combined) == ['a_volume', 'a_thickness', 'Brain-Stem']
    # One side missing: the sum is missing.
    expected = values['lh_a_volume'] + values['rh_a_volume']
    pd.testing.assert_series_equal(combined['a_volume'], expected, check_names=False)
    assert np.isnan(combined.loc[2, 'a_volume'])
    assert np.allclose(combined['a_thickness'], values[names[2:4]].mean(axis=1))
    assert (combined['Brain-Stem'] == values['Brain-Stem']).all()


@pytest.mark.parametrize(
    ('name', 'adds'),
    [
        ('lh_a_area', True),
        ('Left-Putamen', True),
        ('L_a_thickavg', False),
        ('lh_a_meancurv', False),
    ],
)
def test_measures_that_add_up(name, adds):
    assert adds_up(name) == adds


def test_z_scores_are_averaged():
    regions = FeatureList('columns', column_features(['a_l', 'a_r']).features, 'z-score')
    values = pd.DataFrame({'a_l': [1.0, -2.0], 'a_r': [0.0, -1.0]})
    assert combine_sides(values, put_sides_together(regions))['a'].tolist() == [0.5, -1.5]


def test_structures_survive_the_card():
    structures = put_sides_together(column_features(['lh_a_thickness', 'rh_a_thickness', 'b']))
    assert FeatureList.from_json(structures.to_json()) == structures


def test_regions_without_a_partner_are_listed():
    regions = column_features(['left_a', 'right_a', 'left_b', 'Brain-Stem', 'Lingual'])
    assert without_partner(put_sides_together(regions)) == {'left_b': 'L'}
    notes, cautions = describe_sides(regions, TOGETHER, TOGETHER)
    assert '1 structure with both sides and 3 other regions' in notes[0]
    assert 'left_b (left only)' in cautions[0].found


def test_a_table_with_one_side_only_says_so():
    regions = column_features(['left_a', 'left_b', 'left_c', 'Brain-Stem'])
    notes, cautions = describe_sides(regions, TOGETHER, TOGETHER)
    assert notes == ['Sides: all regions that have a side are left ones; single regions are used']
    assert [caution.found for caution in cautions] == ['All regions that have a side are left ones']
    assert pair_sides(regions, TOGETHER) is None


def test_too_few_structures_keep_sides_apart_and_say_so():
    names = [f'{side}_{part}x' for part in range(7) for side in ('left', 'right')]
    regions = column_features(names)
    together = PreprocessingOptions(sides=TOGETHER)
    used = usable_sides(regions, together)
    assert used.sides == APART
    notes, cautions = describe_sides(regions, used.sides, TOGETHER)
    assert '7 structures, at least 8 needed' in notes[0]
    assert cautions == []
    more = column_features([*names, 'left_8x', 'right_8x'])
    assert usable_sides(more, together).sides == TOGETHER


def test_apart_is_a_note():
    notes, cautions = describe_sides(column_features(['left_a', 'right_a']), APART, APART)
    assert 'apart' in notes[0]
    assert cautions == []


def test_every_region_of_a_real_table_has_its_partner():
    columns = pd.read_csv(shared_data('tables/lnm_two_visits.csv'), nrows=1).columns
    thickness = [name for name in columns if name.endswith('_thickness')]
    pairs = find_pairs(thickness)
    assert len(pairs) == len(thickness) // 2
    assert Pair('G_cuneus_thickness', 'lh_G_cuneus_thickness', 'rh_G_cuneus_thickness') in pairs
