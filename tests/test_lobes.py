"""Parts of the brain by the names of regions."""

import pytest

from surreal_bids.lobes import part_of_brain
from surreal_bids.regions import muse_table

DESIKAN_KILLIANY = {
    'frontal': 'superiorfrontal caudalmiddlefrontal lateralorbitofrontal parsopercularis '
    'precentral paracentral frontalpole',
    'parietal': 'inferiorparietal superiorparietal supramarginal precuneus postcentral',
    'temporal': 'bankssts fusiform inferiortemporal transversetemporal temporalpole',
    'medial temporal': 'entorhinal parahippocampal',
    'occipital': 'cuneus lateraloccipital lingual pericalcarine',
    'cingulate': 'isthmuscingulate caudalanteriorcingulate',
    'insular': 'insula',
}
OTHER_ATLASES = {
    'rh_G_oc-temp_med-Parahip_thickness': 'medial temporal',
    'lh_S_oc_sup&transversal_thickness': 'occipital',
    'lh_G_pariet_inf-Angular_thickness': 'parietal',
    'Lhippo': 'medial temporal',
    'Rput': 'basal ganglia',
    'Left-Thalamus-Proper': 'thalamus',
    'CC_Mid_Anterior': 'deep white matter',
    'Brain-Stem': 'brain stem',
    'ctx-lh-cuneus': 'occipital',
    'Cerebellum_Crus1_L': 'cerebellum',
}


@pytest.mark.parametrize('part', DESIKAN_KILLIANY)
def test_regions_of_desikan_and_killiany(part):
    for name in DESIKAN_KILLIANY[part].split():
        assert part_of_brain(f'lh_{name}_thickness') == part, name


@pytest.mark.parametrize('name', OTHER_ATLASES)
def test_regions_of_other_atlases(name):
    assert part_of_brain(name) == OTHER_ATLASES[name]


def test_lobes_of_muse_are_those_of_its_table():
    table = muse_table()
    for lobe in ('occipital', 'parietal', 'temporal', 'cerebellum'):
        names = table.loc[table['lobe'] == lobe, 'name']
        assert {part_of_brain(name) for name in names} == {lobe}
    known = table[table['lobe'] != 'ventricle']['name'].map(part_of_brain)
    assert known.notna().all()
