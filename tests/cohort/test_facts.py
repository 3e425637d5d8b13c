"""Ages, sexes and sites that are written in another way, or contradict each other."""

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.facts import (
    PLACEHOLDERS,
    disagreeing_columns,
    doubtful_numbers,
    refuse_placeholders,
    refuse_spellings,
    require_years,
)
from surreal_bids.columns import SEXES
from surreal_bids.exceptions import DataError
from tests.cohort.adni import REGIONS, make_table
from tests.shared_data import shared_data

SEEDS = range(6)


def some_ages(rng, n=60):
    """Ages of one of several studies, in whole or decimal years."""
    low = rng.choice([5, 18, 45, 60])
    return pd.Series(rng.uniform(low, low + rng.integers(12, 40), n).round(rng.integers(2)))


def named(ages, rng):
    """A frame with the ages under one of their names."""
    return pd.DataFrame({str(rng.choice(['age', 'AGE_AT_SCAN', 'f.21003.2.0'])): ages})


def filled_in(ages, rng):
    return ages.where(rng.permutation(len(ages)) % 4 > 0, rng.choice([99.0, 88.0, 33.3]))


OTHERWISE = {
    'decades': lambda ages, rng: ages // 10,
    'age groups': lambda ages, rng: ages // 5 * 5,
    'fractions': lambda ages, rng: ages / 100,
    'months': lambda ages, rng: pd.Series(rng.integers(84, 119, len(ages))),
    'filled in': filled_in,
}


@pytest.mark.parametrize('kind', OTHERWISE)
@pytest.mark.parametrize('seed', SEEDS)
def test_ages_in_another_unit_are_named(kind, seed):
    rng = np.random.default_rng(seed)
    ages = pd.Series(rng.uniform(20, 80, 60).round(1))
    people = named(OTHERWISE[kind](ages, rng), rng)
    warnings = [*map(str, doubtful_numbers(people))]
    assert any(people.columns[0] in text and kind in text for text in warnings)


@pytest.mark.parametrize('seed', range(20))
def test_ages_in_years_are_not(seed):
    rng = np.random.default_rng(seed)
    ages = some_ages(rng)
    require_years(ages.rename('age'))
    assert list(doubtful_numbers(named(ages, rng))) == []


@pytest.mark.parametrize('seed', SEEDS)
def test_centred_ages_are_refused(seed):
    ages = some_ages(np.random.default_rng(seed)).rename('age')
    with pytest.raises(DataError, match=r'age.*years'):
        require_years((ages - ages.mean()) / (ages.std() if seed % 2 else 1))


@pytest.mark.parametrize('seed', SEEDS)
def test_two_columns_of_one_meaning_must_agree(seed):
    rng = np.random.default_rng(seed)
    ages = pd.Series(rng.uniform(20, 80, 60).round(1))
    sexes = pd.Series(rng.choice(['F', 'M'], 60))
    people = pd.DataFrame({'age': ages, 'sex': sexes})
    words = sexes.map(lambda sex: rng.choice(sorted(SEXES[sex])))
    same = pd.DataFrame({'age_at_scan': (ages + 0.4).astype(str), 'gender': words})
    assert list(disagreeing_columns(people, same)) == []
    other = same.apply(lambda column: column.sample(frac=1, random_state=seed).to_numpy())
    warnings = [*map(str, disagreeing_columns(people, other))]
    assert [name for name in other if any(name in text for text in warnings)] == list(other)


@pytest.mark.parametrize('word', sorted(PLACEHOLDERS))
def test_a_word_for_missing_values_is_no_site(word):
    rng = np.random.default_rng(len(word))
    sites = pd.Series(rng.choice(['Oslo', 'Rome', 'None of these', 'Unknown Street'], 30))
    refuse_placeholders(sites.rename('site'))
    sites[7] = rng.choice([word, word.upper(), f'({word})'])
    with pytest.raises(DataError, match=r'site.* 7 .*n/a'):
        refuse_placeholders(sites.rename('site'))


@pytest.mark.parametrize('names', [('Zürich', 'Zurich'), ('Köln', 'Koeln'), ('Orléans', 'ORLEANS')])
def test_accents_do_not_make_another_site(names):
    with pytest.raises(DataError, match='site'):
        refuse_spellings(pd.Series([*names, 'Bern'], name='site'))


def read(tmp_path, table):
    table.to_csv(tmp_path / 't.csv', index=False)
    return Cohort.read(tmp_path / 't.csv')


@pytest.mark.parametrize(('column', 'option'), [('PTGENDER', '--covariates'), ('ICV', '--icv')])
@pytest.mark.parametrize('seed', SEEDS[:3])
def test_sex_and_head_size_are_not_lost_under_an_unknown_name(tmp_path, column, option, seed):
    rng = np.random.default_rng(seed)
    name = ''.join(rng.choice(list('bdghjkvzБДЖ海馬'), 5))
    with pytest.raises(DataError) as caught:
        read(tmp_path, make_table(seed).rename(columns={column: name}))
    assert all(word in str(caught.value) for word in (name, option, 't.csv'))


@pytest.mark.parametrize(
    'marks', [('_bl', '_m12'), ('.2.0', '.3.0'), ('_T1', '_T2'), ('', '_norm'), ('_raw', '_z')]
)
def test_one_region_has_one_column(tmp_path, marks):
    table = make_table()
    first, second = (table[list(REGIONS)].add_suffix(mark) for mark in marks)
    rest = table.drop(columns=list(REGIONS))
    assert len(read(tmp_path, rest.join(first)).wanted) == len(REGIONS)
    with pytest.raises(DataError, match=r't.csv.*Hippocampus.*session_id.*--features'):
        read(tmp_path, rest.join(first).join(second * 0.97 + 1))


def test_means_of_columns_are_no_regions(tmp_path):
    table = make_table()
    copied = table.assign(Mittel=table[['Insula', 'Amygdala']].mean(axis=1))
    cohort = read(tmp_path, copied)
    assert {*cohort.wanted.names} == {*REGIONS}
    why = cohort.uses.set_index('column')['why']
    assert 'Amygdala' in why['Mittel']


def test_facts_of_real_tables_raise_no_doubt():
    for name in ('ixi_muse145.csv', 'fcon1000.csv'):
        table = pd.read_csv(shared_data(f'tables/{name}'))
        people = table.rename(columns=str.lower)[['age', 'sex']]
        assert list(doubtful_numbers(people)) == []
