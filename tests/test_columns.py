import numpy as np
import pytest

from surreal_bids.columns import (
    SPELLINGS,
    column_of,
    columns_of,
    may_mean,
    meaning_of,
    means,
    normalise_name,
)
from surreal_bids.regions import label_table, region_names


def test_no_spelling_has_two_meanings_and_all_are_normalised():
    everything = [name for spellings in SPELLINGS.values() for name in spellings]
    assert len(set(everything)) == len(everything)
    assert [normalise_name(name) for name in everything] == everything


WRITTEN = {
    'age': ['age', 'age at scan', 'age at baseline', 'scan age', 'pt age', 'age in years',
            'alter', 'edad', 'age at mri', 'patient age', 'alter in jahren'],
    'sex': ['sex', 'biological sex', 'sex at birth', 'pt gender', 'gender', 'geschlecht', 'sexe',
            'sexo', 'is female', 'patient sex'],
    'site': ['site', 'scanner id', 'scanner model', 'manufacturer', 'site name', 'centre',
             'imaging site', 'device serial number', 'institution name'],
    'birth': ['birth year', 'year of birth', 'yob', 'date of birth', 'dob'],
    'participant': ['participant id', 'subject no', 'record id', 'patient number', 'subject code'],
    'measure': ['mmse total', 'moca', 'cdrsb', 'pteducat', 'years of education', 'age at onset',
                'age group', 'brain age', 'sex hormone', 'bmi', 'dosage', 'family id',
                'mmse bl', 'apoe', 'scanner upgrade', 'mother age', 'birth weight'],
    'icv': ['icv', 'intracranial volume', 'icv bl', 'total intracranial volume', 'tiv'],
    'total': ['tbv', 'total brain volume', 'brain volume', 'whole brain', 'total gray matter'],
    'fluid': ['ventricles', 'csf volume', 'left lateral ventricle'],
    'date': ['scan date', 'date of scan', 'mri date', 'visit date', 'acquisition date'],
    'diagnosis': ['diagnosis', 'dx bl', 'baseline diagnosis', 'clinical diagnosis', 'study group'],
    'repeat': ['visit', 'visit no', 'visit code', 'timepoint'],
    'session': ['session', 'session id', 'session number'],
    None: ['unisex toilet', 'image', 'page', 'average', 'stage', 'percentage', 'opposite',
           'hippocampus', 'entorhinal', 'left white matter', 'brain stem', 'composite', 'sussex',
           'hippocampus icv', 'icv ratio hippocampus', 'roi', 'region', 'message', 'sausage',
           'candidate', 'update', 'website', 'language', 'heritage', 'coverage'],
}  # fmt: skip
"""Names as words, by their meaning."""


def spelled(words: str, rng: np.random.Generator) -> str:
    """Write words in one of the ways in which tables do."""
    parts = words.split()
    cased = [
        [part.lower() for part in parts],
        [part.upper() for part in parts],
        [part.title() for part in parts],
        [parts[0], *(part.title() for part in parts[1:])],
    ][rng.integers(4)]
    separator = ['_', ' ', '.', '-', '', '__'][rng.integers(6)]
    return separator.join(cased) + ['', '_', ' '][rng.integers(3)]


@pytest.mark.parametrize('meaning', WRITTEN)
def test_words_have_one_meaning_in_any_spelling(meaning):
    rng = np.random.default_rng(26)
    names = [spelled(words, rng) for words in WRITTEN[meaning] for _ in range(12)]
    wrong = {name: meaning_of(name) for name in names if meaning_of(name) != meaning}
    assert wrong == {}


@pytest.mark.parametrize('word', ['age', 'sex', 'site', 'date', 'icv'])
def test_letters_inside_a_word_mean_nothing(word):
    rng = np.random.default_rng(len(word))
    letters = list('bdghjkvz')
    for _ in range(200):
        before, after = (''.join(rng.choice(letters, rng.integers(1, 4))) for _ in range(2))
        assert meaning_of(f'{before}{word}') is None
        assert meaning_of(f'{word}{after}') is None


@pytest.mark.parametrize(
    ('name', 'meaning'), [('age_zurich', 'age'), ('sex_ukb', 'sex'), ('icv_foo', 'icv')]
)
def test_a_name_with_an_unknown_word_is_doubtful(name, meaning):
    assert may_mean(name, meaning)
    assert not means(name, meaning)


@pytest.mark.parametrize('name', ['age_at_onset', 'age', 'hippocampus_icv', 'BrainSegVol-to-eTIV'])
def test_a_name_that_is_known_is_not_doubtful(name):
    assert not may_mean(name, 'age')
    assert not may_mean(name, 'icv')


def test_no_region_is_taken_for_something_else():
    names = [*region_names().values(), *label_table('aparc.DKTatlas+aseg.deep')['name']]
    strange = {name: meaning_of(name) for name in names if meaning_of(name) is not None}
    assert set(strange.values()) == {'fluid'}
    assert all('Vent' in name.title() or name == 'CSF' for name in strange)


@pytest.mark.parametrize(
    'name', ['容積', 'объём', 'όγκος', 'Größe', '体积_左', '海馬', 'ปริมาตร', 'حجم']
)
def test_letters_of_all_scripts_count(name):
    assert normalise_name(name)
    assert meaning_of(name) is None


@pytest.mark.parametrize(
    ('name', 'meaning'),
    [('年齢', 'age'), ('Возраст', 'age'), ('Âge', 'age'), ('Edad_años', 'age'), ('性別', 'sex')],
)
def test_words_of_other_languages(name, meaning):
    assert means(name, meaning)


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
