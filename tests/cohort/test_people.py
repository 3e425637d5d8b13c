from pathlib import Path

import pandas as pd
import pytest

from surreal_bids.bids.tabular import Table
from surreal_bids.cohort.exclusions import Screen, screen_people
from surreal_bids.cohort.features import Choice
from surreal_bids.cohort.requirements import (
    PreprocessingOptions,
    read_person_columns,
    require_distinct,
)
from surreal_bids.exceptions import DataError, UsageError

PEOPLE = Table(
    Path('people.tsv'),
    pd.DataFrame(
        {
            'age': ['60', None, '71.5'],
            'sex': ['F', 'M', 'f'],
            'site': ['1.0', '2.0', None],
            'ICV': ['1400', '1500', '1600'],
        },
        ['sub-1', 'sub-2', 'sub-3'],
        dtype=object,
    ),
)


def test_numbers_categories_and_sites_are_told_apart():
    options = PreprocessingOptions(('age', 'sex'), 'icv', 'covariate', 'site')
    known = read_person_columns(PEOPLE, options)
    assert known['age'].isna().tolist() == [False, True, False]
    assert known['sex'].tolist() == ['F', 'M', 'f']
    assert known['site'].tolist() == ['1', '2', None]
    assert known['icv'].tolist() == [1400, 1500, 1600]


@pytest.mark.parametrize(
    ('cells', 'numbers'),
    [
        (['F', 'M', 'f'], [0, 1, 0]),
        (['male', '0', 'Female'], [1, 0, 0]),
        (['1', '0', '1.0'], [1, 0, 1]),
    ],
)
def test_sex_may_be_written_as_words_where_a_model_takes_numbers(cells, numbers):
    people = Table(PEOPLE.source, PEOPLE.text.assign(sex=cells))
    options = PreprocessingOptions(('sex',))
    assert (
        read_person_columns(
            people, options, [], {'sex': {'f': 0.0, 'female': 0.0, 'm': 1.0, 'male': 1.0}}
        )['sex'].tolist()
        == numbers
    )


@pytest.mark.parametrize(
    ('options', 'text', 'message'),
    [
        (PreprocessingOptions(('height',)), None, 'no column height; .*--participants'),
        (PreprocessingOptions(('sex',)), [], 'column sex should hold numbers, but sub-1 has "F"'),
        (PreprocessingOptions(site_column='scanner'), None, 'no column scanner'),
    ],
)
def test_what_is_missing_or_no_number_is_named(options, text, message):
    with pytest.raises(DataError, match=message):
        read_person_columns(PEOPLE, options, text)


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'icv': 'proportion'}, '--icv-column'),
        ({'covariates': ('age', 'icv'), 'icv_column': 'icv', 'icv': 'covariate'}, 'icv is both'),
        ({'covariates': ('site',), 'site_column': 'site'}, 'site is both'),
    ],
)
def test_contradictory_options_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        PreprocessingOptions(**given)


@pytest.mark.parametrize(
    ('icv', 'columns'),
    [
        ('none', ['age', 'site']),
        ('covariate', ['age', 'icv', 'site']),
        ('proportion', ['age', 'icv', 'site']),
    ],
)
def test_only_columns_in_use_are_needed(icv, columns):
    options = PreprocessingOptions(('age',), 'icv', icv, 'site')
    assert options.columns == columns
    assert PreprocessingOptions.from_json(options.to_json()) == options


def test_the_diagnosis_is_no_covariate():
    with pytest.raises(DataError, match='dx is the diagnosis'):
        require_distinct(PreprocessingOptions(('age', 'dx')), 'dx')


@pytest.mark.filterwarnings('error::pandas.errors.PerformanceWarning')
def test_a_site_is_added_to_a_fragmented_table():
    screen = Screen([(f'{k:02d}', None) for k in range(12)], 'sub-')
    pieces = [pd.DataFrame({f'x{k}': '1'}, screen.remaining, dtype=object) for k in range(150)]
    ages = pd.DataFrame({'age': [str(60 + k) for k in range(12)]}, screen.remaining, dtype=object)
    text = pd.concat([ages, *pieces], axis=1)
    options = PreprocessingOptions(covariates=('age',), site_column='site')
    choice = Choice(options, {'age': 'age'}, one_site=True)
    table, _ = screen_people(screen, Table(Path('table.tsv'), text), choice, None)
    assert table['site'].notna().all()
