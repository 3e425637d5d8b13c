"""What becomes a region in a table of an unknown atlas, and what does not."""

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.cohort import read_cohort
from surreal_bids.cohort.families import (
    are_thicknesses,
    is_anatomical,
    measures_by_name,
    sums_of_others,
)
from surreal_bids.cohort.roles import describe_uses
from surreal_bids.config import CohortOptions
from tests.shared_data import shared_data

N_PEOPLE = 60
RNG = np.random.default_rng(3)
SIZE = np.exp(RNG.normal(0, 0.1, N_PEOPLE))
PEOPLE = pd.DataFrame(
    {
        'participant_id': [f'sub-{k:02}' for k in range(N_PEOPLE)],
        'diagnosis': ['CN', 'PT'] * (N_PEOPLE // 2),
        'age': RNG.uniform(50, 80, N_PEOPLE).round(1),
        'sex': ['F', 'M', 'M'] * (N_PEOPLE // 3),
        'icv': (1.5e6 * SIZE).round(),
    }
)

SUBFIELDS = (
    'Hippocampal_tail', 'subiculum', 'CA1', 'presubiculum', 'parasubiculum', 'molecular_layer_HP',
    'GC-ML-DG', 'CA3', 'CA4', 'fimbria', 'HATA',
)  # fmt: skip
CORTEX = ('bankssts', 'cuneus', 'entorhinal', 'fusiform', 'insula', 'lingual', 'parahippocampal')
AAL = ('Precentral', 'Frontal_Sup', 'Rolandic_Oper', 'Supp_Motor_Area', 'Rectus', 'Insula')
MEASURES = {
    'MMSE': RNG.integers(18, 31, N_PEOPLE),
    'BMI': RNG.normal(26, 4, N_PEOPLE).round(1),
    'education_years': RNG.integers(6, 22, N_PEOPLE),
    'IQR': RNG.uniform(78, 92, N_PEOPLE).round(2),
    'QC': RNG.integers(0, 3, N_PEOPLE),
    'age_at_death': RNG.integers(55, 99, N_PEOPLE),
    'euler_number': -RNG.integers(10, 200, N_PEOPLE),
    'brainage_gap': RNG.normal(0, 5, N_PEOPLE).round(2),
    'scanner_serial': RNG.choice([40124, 35248, 41052], N_PEOPLE),
    'Digit_Sum': RNG.integers(3, 20, N_PEOPLE),
    'right_sided': RNG.integers(0, 2, N_PEOPLE) + 1,
    'fatigue': RNG.uniform(100, 200, N_PEOPLE),
    'lag': RNG.uniform(1e5, 2e5, N_PEOPLE),
    'drift': RNG.normal(0, 100, N_PEOPLE),
}


def both_sides(names, left='left_{}', right='right_{}'):
    return [side.format(name) for side in (left, right) for name in names]


def table(names, usual=(100, 900), spread=0.1):
    """Volumes that share a factor, like those of larger and smaller brains."""
    rng = np.random.default_rng(0)
    size = SIZE ** (10 * spread)
    medians = rng.uniform(*usual, len(names))
    volumes = medians * size[:, None] * np.exp(rng.normal(0, spread, (N_PEOPLE, len(names))))
    return pd.DataFrame(volumes.round(3), columns=list(names))


def thickness(names):
    """Cortical thickness, which is not related to the size of the head."""
    rng = np.random.default_rng(1)
    of_person = 1 + rng.normal(0, 0.03, (N_PEOPLE, 1))
    values = rng.uniform(1.8, 3.6, len(names)) * of_person
    values *= 1 + rng.normal(0, 0.05, (N_PEOPLE, len(names)))
    return pd.DataFrame(values.round(3), columns=list(names))


def read(folder, volumes, people=PEOPLE, **options):
    volumes = volumes.assign(participant_id=people['participant_id'])
    volumes.to_csv(folder / 'volumes.tsv', sep='\t', na_rep='n/a', index=False)
    people.to_csv(folder / 'people.tsv', sep='\t', na_rep='n/a', index=False)
    return read_cohort(folder / 'volumes.tsv', folder / 'people.tsv', CohortOptions(**options))


def warnings_of(cohort):
    return [each.found for each in cohort.warnings]


@pytest.mark.parametrize('measure', MEASURES)
def test_measures_in_a_table_of_volumes_are_no_regions(tmp_path, measure):
    regions = both_sides(SUBFIELDS)
    volumes = table(regions).assign(**{measure: MEASURES[measure]})
    cohort = read(tmp_path, volumes)
    assert cohort.wanted.names == regions
    assert cohort.exclusions.empty
    told = [each for each in cohort.warnings if 'may not be regions' in each.found]
    assert len(told) == 1
    assert f'{measure} (' in told[0].found
    assert '--features' in told[0].remedy


def test_a_column_that_is_used_without_a_family_is_named(tmp_path):
    volumes = table(both_sides(SUBFIELDS))
    cohort = read(tmp_path, volumes.assign(Zyx=volumes.mean(axis=1)))
    assert 'Zyx' in cohort.wanted.names
    told = next(each for each in cohort.warnings if 'may not be regions: Zyx' in each.found)
    assert told.consequence.startswith('They are used')


def test_all_columns_that_are_used_are_listed(tmp_path):
    regions = both_sides(SUBFIELDS)
    text = '\n'.join(describe_uses(read(tmp_path, table(regions)).uses))
    assert all(name in text for name in regions)


ATLASES = {
    'AAL': (*both_sides(AAL, '{}_L', '{}_R'), 'Vermis_1_2', 'Vermis_3'),
    'Schaefer': [f'7Networks_{h}_{n}_{k}' for h in ('LH', 'RH') for n in ('Vis', 'Cont')
                 for k in range(1, 6)],
    'numbered': [f'region_{k}' for k in range(1, 31)],
    'numbers': [str(k) for k in range(3001, 3031)],
    'one side': [f'lh_{name}' for name in CORTEX],
    'nuclei': both_sides(('AV', 'CeM', 'LGN', 'VPL', 'PuI', 'L-Sg'), 'Left-{}', 'Right-{}'),
    'CAT12': (*both_sides(('Acc', 'Amy', 'Hip', 'ThaPro', 'AntIns'), 'l{}', 'r{}'), 'Bst', 'OC'),
    'sums of sides': ('Hippocampus', 'Amygdala', 'Thalamus', 'Brain stem', 'Insula', 'V1'),
    'networks': ('Vis', 'SomMot', 'DorsAttn', 'Limbic', 'Cont', 'Default'),
    'scores of regions': [f'{name}_score' for name in both_sides(CORTEX)],
}  # fmt: skip


@pytest.mark.parametrize('name', ATLASES)
def test_regions_of_other_atlases_are_used_without_a_warning(tmp_path, name):
    cohort = read(tmp_path, table(ATLASES[name]))
    assert cohort.wanted.names == list(ATLASES[name])
    assert [text for text in warnings_of(cohort) if 'have a side' not in text] == []


@pytest.mark.parametrize(
    'name',
    [
        'Area Id1 (Insula)', 'Area Id10 (Insula)', 'GapMap Frontal-to-Occipital (GapMap)',
        'INS_dId', 'Mass_intermedia', 'mass-intermedia volume', 'Nucleus_SNr',
    ],
)  # fmt: skip
def test_short_words_in_names_of_regions_make_no_measures(name):
    assert measures_by_name([*both_sides(CORTEX), name]) == {}


@pytest.mark.parametrize(
    'name', ['ID_SN', 'IQ_ver', 'body_mass', 'QC_rating', 'hippocampus_suvr', 'tau', 'FD']
)
def test_measures_with_few_letters_of_anatomy_remain_measures(name):
    assert list(measures_by_name([*both_sides(CORTEX), name])) == [name]


@pytest.mark.parametrize(
    'name',
    [
        'Locus_coeruleus', 'locus ceruleus', 'Massa intermedia', 'VTA', 'Raphe_D', 'Zona incerta',
        'superior colliculus', 'PAG', 'Pedunculotegmental', 'Inferior_olive', 'Arcuate',
        'Preoptic area', 'paraventricular', 'tuberal region', 'Basal nucleus of Meynert',
        'Frontal_Inf_Oper', 'Area OP1 (POperc)', 'Area FG1 (FusG)', 'Area 4a (PreCG)',
        'Area hIP1 (IPS)', 'Reuniens', 'Red_Nucleus',
    ],
)  # fmt: skip
def test_words_of_anatomy_of_common_atlases(name):
    assert is_anatomical(name)


def test_areas_of_the_insula_are_used(tmp_path):
    """In the Julich atlas of one hemisphere, with the areas that are called Id."""
    areas = ('Area Id1 (Insula)', 'Area Id2 (Insula)', 'Area Ig1 (Insula)', 'Area OP1 (POperc)')
    names = [*areas, 'Area Fo1 (OFC)', 'Area 44 (IFG)', 'CA1 (Hippocampus)', 'Mass_intermedia']
    cohort = read(tmp_path, table(names))
    assert cohort.wanted.names == names
    assert warnings_of(cohort) == []


def test_thickness_is_recognised_by_its_values_and_by_enigma(tmp_path):
    """Its totals are totals, and participants without head size remain."""
    enigma = both_sides([f'{name}_thickavg' for name in CORTEX], 'L_{}', 'R_{}')
    for names in (enigma, both_sides(CORTEX, 'L{}', 'R{}')):
        volumes = thickness(names)
        totals = ('LThickness', 'RThickness', 'LSurfArea', 'RSurfArea')
        volumes = volumes.assign(**dict.fromkeys(totals, 2 * volumes.iloc[:, 0]))
        people = PEOPLE.assign(icv=PEOPLE['icv'].where(PEOPLE.index > 5))
        cohort = read(tmp_path, volumes, people)
        assert cohort.wanted.names == names
        assert cohort.wanted.noun == 'thicknesses'
        assert cohort.options.icv == 'none'
        assert len(cohort) == N_PEOPLE
        by_values = [text for text in warnings_of(cohort) if 'by their values alone' in text]
        assert warnings_of(cohort) == by_values
        assert len(by_values) == (names != enigma)


def test_small_volumes_in_cm3_are_corrected_for_head_size(tmp_path):
    """They have the values of thickness, but follow head size."""
    names = both_sides([name for name in AAL if name != 'Rectus'], '{}_L', '{}_R')
    volumes = table(names, (1.2, 5.8), 0.06)
    cohort = read(tmp_path, volumes)
    assert cohort.wanted.noun == 'volumes'
    assert cohort.options.icv == 'power'
    assert not any('thickness' in text for text in warnings_of(cohort))
    assert are_thicknesses(volumes)
    assert not are_thicknesses(volumes, PEOPLE['icv'])


def test_thickness_that_follows_head_size_is_recognised_by_name(tmp_path):
    names = both_sides([f'{name}_thickavg' for name in CORTEX], 'L_{}', 'R_{}')
    cohort = read(tmp_path, table(names, (1.8, 3.6), 0.05))
    assert cohort.wanted.noun == 'thicknesses'
    assert cohort.wanted.unit == 'mm'
    assert not any('thickness' in text for text in warnings_of(cohort))


@pytest.mark.parametrize('name_of_size', ['icv', 'skull'])
def test_thickness_by_values_is_told_with_the_way_out(tmp_path, name_of_size):
    people = PEOPLE.rename(columns={'icv': name_of_size})
    cohort = read(tmp_path, thickness(both_sides(CORTEX)), people)
    assert cohort.wanted.noun == 'thicknesses'
    told = next(each for each in cohort.warnings if 'by their values alone' in each.found)
    assert 'head size' in told.consequence
    assert 'Add "volume"' in told.remedy
    renamed = thickness(both_sides([f'{name}_volume' for name in CORTEX]))
    assert read(tmp_path, renamed, people).wanted.noun == 'volumes'


def test_named_head_size_tells_volumes_from_thickness(tmp_path):
    people = PEOPLE.rename(columns={'icv': 'skull'})
    cohort = read(tmp_path, table(both_sides(AAL), (1.2, 5.8), 0.06), people, icv_column='skull')
    assert cohort.wanted.noun == 'volumes'


def test_small_volumes_are_no_thickness():
    assert are_thicknesses(table(CORTEX, (1.8, 3.6), 0.05))
    assert not are_thicknesses(table(CORTEX, (1.8, 3.6), 0.15))
    assert not are_thicknesses(table([f'{name}_vol' for name in CORTEX], (1.8, 3.6), 0.05))
    assert not are_thicknesses(table(['Left_hippocampus', 'Left_amygdala'], (1.8, 3.6), 0.05))


def test_features_that_are_thickness_need_no_head_size(tmp_path):
    names = both_sides(CORTEX)
    (tmp_path / 'regions.txt').write_text('\n'.join(names))
    listed = str(tmp_path / 'regions.txt')
    cohort = read(tmp_path, thickness(names), features=listed)
    assert cohort.options.icv == 'none'


def test_sums_and_fluid_are_no_regions(tmp_path):
    regions = both_sides(SUBFIELDS)
    volumes = table(regions)
    totals = {
        'VOLUME': 1e6,
        'brain volume': 1e6,
        'left_hippocampal.fissure': volumes['left_CA1'] * 0.3,
        'left_Whole_hippocampus': volumes[regions[: len(SUBFIELDS)]].sum(axis=1),
    }
    cohort = read(tmp_path, volumes.assign(**totals))
    assert cohort.wanted.names == regions
    assert warnings_of(cohort) == []
    uses = cohort.uses.set_index('column')['taken_for']
    assert set(uses[list(totals)]) == {'not used: sum of regions or fluid'}


def test_a_whole_without_its_parts_is_a_region(tmp_path):
    names = both_sides(('Whole_hippocampus', 'Whole_amygdala', 'Thalamus'))
    assert read(tmp_path, table(names)).wanted.names == names


@pytest.mark.parametrize('n_regions', [4, 40])
def test_a_column_that_equals_a_sum_is_not_used(tmp_path, n_regions):
    """In small samples, sums of both sides and of names with a common word are found."""
    volumes = table(both_sides([f'Sub{k}_amygdala' for k in range(n_regions // 2)]))
    both = volumes['left_Sub0_amygdala'] + volumes['right_Sub0_amygdala']
    left = volumes.filter(like='left').sum(axis=1).round(1)
    cohort = read(tmp_path, volumes.assign(amygdala_zero=both, amygdala_one=left))
    assert cohort.wanted.names == list(volumes)
    told = next(text for text in warnings_of(cohort) if 'not used' in text)
    assert 'amygdala_zero (the sum or mean of left_Sub0' in told
    assert 'amygdala_one (the sum or mean of left_Sub0' in told


def test_any_sum_is_found_in_a_large_sample():
    volumes = table([f'region {letter}' for letter in 'abcdefghij'])
    total = volumes[['region b', 'region e', 'region h']].sum(axis=1)
    found = sums_of_others(volumes.assign(total=total))
    assert found == {'total': 'the sum or mean of region b, region e and 1 more'}
    assert sums_of_others(volumes.assign(total=total * 1.1)) == {}


def test_a_column_far_above_all_others_is_named(tmp_path):
    volumes = table(both_sides(SUBFIELDS))
    cohort = read(tmp_path, volumes.assign(hippocampus_and_more=volumes['left_CA1'] * 90))
    assert any('hippocampus_and_more (more than 10 times' in text for text in warnings_of(cohort))


def test_numbers_that_cannot_be_read_are_named(tmp_path):
    volumes = table(both_sides(SUBFIELDS))
    cohort = read(tmp_path, volumes.assign(left_CA1=volumes['left_CA1'].map('1 {:.1f} mm3'.format)))
    assert any('left_CA1 (no numbers, such as "1 ' in text for text in warnings_of(cohort))


@pytest.mark.parametrize('share', [0.02, 0.05, 0.1])
def test_an_absent_sulcus_excludes_nobody(tmp_path, share):
    names = [f'lh_{name}_volume' for name in (*CORTEX, 'S_interm_prim-Jensen', 'G_and_S_frontal')]
    volumes = table(names)
    volumes.loc[: N_PEOPLE * share - 1, names[-2]] = 0
    cohort = read(tmp_path, volumes)
    assert len(cohort) == N_PEOPLE
    assert cohort.wanted.names == [*names[:-2], names[-1]]
    assert any(f'not used: {names[-2]} (0 or no number in' in text for text in warnings_of(cohort))


def test_who_lacks_many_regions_or_the_only_one_who_lacks_one_is_excluded(tmp_path):
    names = both_sides(CORTEX)
    volumes = table(names)
    volumes.loc[3] = 0
    volumes.loc[5, names[1]] = np.nan
    cohort = read(tmp_path, volumes)
    assert list(cohort.exclusions.index) == ['sub-03', 'sub-05']
    assert cohort.wanted.names == names


@pytest.mark.slow
def test_a_real_table_of_thickness_in_other_words(tmp_path):
    """Destrieux thickness without the word, and a score beside it."""
    real = pd.read_csv(shared_data('tables') / 'lnm_two_visits.csv')
    real = real.drop_duplicates('sub_id').reset_index(drop=True)
    thick = real.filter(like='thickness').rename(columns=lambda name: name[: -len('_thickness')])
    thick = thick.copy()  # Consolidated.
    people = pd.DataFrame(
        {'participant_id': real['sub_id'], 'age': real['age'], 'sex': real['sex']}
    )
    people['diagnosis'] = np.where(real['group'] == real['group'].mode()[0], 'PT', 'CN')
    people['icv'] = real['EstimatedTotalIntraCranialVol']
    cohort = read(tmp_path, thick.assign(PANSS=real.index % 30), people)
    assert cohort.wanted.names == list(thick)
    assert cohort.wanted.noun == 'thicknesses'
    measure, by_values = (text for text in warnings_of(cohort) if 'regions' in text)
    assert measure == 'These columns may not be regions: PANSS (named like a measure)'
    assert 'by their values alone' in by_values
