import pytest

from surreal_bids.columns import (
    SPELLINGS,
    column_of,
    columns_of,
    describes_participants,
    means,
    normalise_name,
)


def test_no_spelling_has_two_meanings_and_all_are_normalised():
    everything = [name for spellings in SPELLINGS.values() for name in spellings]
    assert len(set(everything)) == len(everything)
    assert [normalise_name(name) for name in everything] == everything


@pytest.mark.parametrize('name', ['age', 'AGE', 'age_at_scan', 'Age (years)', 'ageAtScan'])
def test_ages(name):
    assert means(name, 'age')


@pytest.mark.parametrize('name', ['age_months', 'stage', 'percentage', 'unisex_toilet', 'age2'])
def test_a_part_of_a_name_means_nothing(name):
    assert not means(name, 'age', 'sex')


@pytest.mark.parametrize('name', ['年齢', 'возраст', 'ηλικία', 'Größe', '体积_左'])
def test_letters_of_all_scripts_count(name):
    assert normalise_name(name)
    assert not means(name, 'row number')
    assert not describes_participants(name)


@pytest.mark.parametrize('name', ['', '#', 'Unnamed: 0', 'row_number'])
def test_names_that_count_rows(name):
    assert means(name, 'row number')


def test_full_width_letters_are_letters():
    assert means('\uff21\uff27\uff25', 'age')


@pytest.mark.parametrize(
    ('columns', 'meaning', 'expected'),
    [
        (['age', 'Group'], 'diagnosis', 'Group'),
        (['group', 'diagnosis'], 'diagnosis', 'diagnosis'),
        (['DX', 'age'], 'diagnosis', 'DX'),
        (['age', 'sex'], 'diagnosis', None),
        (['age_at_scan', 'age'], 'age', 'age'),
        (['age_at_scan', 'age_months'], 'age', 'age_at_scan'),
        (['scanner', 'site'], 'site', 'site'),
    ],
)
def test_the_preferred_spelling_is_found_first(columns, meaning, expected):
    assert column_of(columns, meaning) == expected


@pytest.mark.parametrize(
    'name',
    ['ICV', 'eTIV', 'DL_ICV', 'EstimatedTotalIntraCranialVol', 'MUSE_702', 'H_MUSE_Volume_702'],
)
def test_head_sizes(name):
    assert columns_of(['MUSE_701', name, 'age'], 'icv') == [name]
