"""Columns whose names say nothing, judged by what they hold."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surreal_bids.bids.tabular import Table, read_table
from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.cohort.content import (
    looks_like_codes,
    may_hold,
    sums_of_others,
    unlike_others,
    what_it_holds,
)
from surreal_bids.cohort.features import choose_features
from surreal_bids.cohort.uses import describe_uses
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError
from surreal_bids.regions import FREESURFER_OTHERS, FREESURFER_REGION, VENTRICLES, recognise
from tests.cohort.adni import REGIONS, make_table
from tests.shared_data import shared_data

N = 60


def some_name(rng):
    """A name that says nothing, in one of several scripts."""
    letters = [list('bdghjkvz'), list('БДЖЗЛФ'), list('海馬体積左右'), list('ÄÖÑÇ')][
        rng.integers(4)
    ]
    return ''.join(rng.choice(letters, 4)) + str(rng.integers(100))


def some_days(rng):
    """Year, month and day."""
    return rng.integers([1990, 1, 1], [2020, 13, 29], (N, 3))


SCORES = {
    'score': lambda rng: rng.integers(0, rng.integers(10, 31), N),
    'half points': lambda rng: rng.integers(0, 37, N) / 2,
    'code': lambda rng: rng.integers(0, rng.integers(2, 5), N),
    'level': lambda rng: rng.choice([0.25, 0.5, 1.75], N),
    'year': lambda rng: rng.integers(1920, 2021, N),
    'day': lambda rng: [f'{y}-{m:02}-{d:02}' for y, m, d in some_days(rng)],
    'day as a number': lambda rng: some_days(rng) @ [10_000, 100, 1],
    'counter': lambda rng: 1000 + np.cumsum(rng.integers(1, 9, N)),
    'long number': lambda rng: rng.integers(10**8, 10**9, N),
    'text': lambda rng: rng.choice(['left', 'right', 'both'], N),
}  # fmt: skip
"""What cannot be a volume."""

STRANGE = {
    'percentage': lambda rng: rng.uniform(0, 100, N),
    'z-score': lambda rng: rng.normal(0, 1, N),
    'biomarker': lambda rng: rng.lognormal(1, 0.5, N),
    'random id': lambda rng: rng.integers(1000, 90_000, N),
    'small fraction': lambda rng: rng.uniform(0, 1, N),
    'another unit': lambda rng: rng.normal(7, 0.5, N),
}
"""What may be a volume, but not beside those of a table in mm3."""


@pytest.mark.parametrize('kind', SCORES)
def test_what_cannot_be_a_volume_is_no_region_under_any_name(tmp_path, kind):
    rng = np.random.default_rng(len(kind))
    for seed in range(2):
        name = some_name(rng)
        table = make_table(seed, N).assign(**{name: SCORES[kind](rng)})
        if kind == 'counter':  # Rows are read in the order of the ids.
            table = table.assign(RID=sorted(table['RID']))
        table.sample(frac=1, axis=1, random_state=seed).to_csv(tmp_path / 't.csv', index=False)
        cohort = read_cohort(tmp_path / 't.csv')
        assert {*cohort.wanted.names} == {*REGIONS}
        uses = cohort.uses.set_index('column')
        assert uses.loc[name, 'taken_for'] == 'not used'
        assert uses.loc[name, 'why']


@pytest.mark.parametrize('kind', STRANGE)
def test_what_may_be_no_region_stops_and_names_the_column(tmp_path, kind):
    rng = np.random.default_rng(len(kind))
    name = some_name(rng)
    table = make_table(1, N).assign(**{name: STRANGE[kind](rng)})
    table.to_csv(tmp_path / 't.csv', index=False)
    with pytest.raises(DataError) as caught:
        read_cohort(tmp_path / 't.csv')
    assert all(word in str(caught.value) for word in (name, 't.csv', '--features'))
    listed = tmp_path / 'regions.txt'
    listed.write_text('\n'.join(REGIONS))
    assert len(read_cohort(tmp_path / 't.csv', None, CohortOptions(features=str(listed)))) > 50


def test_every_column_is_shown_once_and_survives_files(tmp_path):
    table = make_table().assign(age_at_visit=make_table()['AGE_AT_BASELINE'] + 1, ADAS=None)
    table.to_csv(tmp_path / 't.csv', index=False)
    cohort = read_cohort(tmp_path / 't.csv')
    assert cohort.uses['column'].tolist() == table.columns.tolist()
    taken = cohort.uses.set_index('column')['taken_for']
    assert taken[list(REGIONS)].unique().tolist() == ['region']
    assert taken[['RID', 'VISCODE', 'EXAMDATE', 'DX']].tolist() == [
        'id',
        'visit',
        'date',
        'diagnosis',
    ]
    assert taken[['PTGENDER', 'ICV']].tolist() == ['covariate sex', 'head size']
    assert taken[['PTEDUCAT', 'MMSE', 'CDRSB', 'moca', 'r4']].unique().tolist() == ['measure']
    assert taken['TBV'] == taken['AGE_AT_BASELINE'] == taken['ADAS'] == 'not used'
    assert 'age_at_visit' in cohort.uses.set_index('column').loc['AGE_AT_BASELINE', 'why']
    loaded = Cohort.load(cohort.save(tmp_path / 'saved'))
    assert loaded.uses.to_numpy().tolist() == cohort.uses.to_numpy().tolist()
    lines = list(describe_uses(loaded.uses))
    assert len(lines) < len(table.columns)
    assert any('region' in line and '8: Hippocampus' in line for line in lines)


def test_each_of_two_tables_and_of_measures_is_shown(tmp_path):
    table = make_table()
    files = {'v.csv': ['RID', *REGIONS, 'TBV'], 'p.csv': ['RID', 'DX', 'AGE_AT_BASELINE', 'ICV'],
             'm.csv': ['RID', 'MMSE']}  # fmt: skip
    for name, columns in files.items():
        table[columns].to_csv(tmp_path / name, index=False)
    options = CohortOptions(phenotype=(tmp_path / 'm.csv',))
    uses = read_cohort(tmp_path / 'v.csv', tmp_path / 'p.csv', options).uses
    assert {name: part['column'].tolist() for name, part in uses.groupby('table')} == files
    assert uses.set_index(['table', 'column'])['taken_for'][('m.csv', 'MMSE')] == 'measure'


@pytest.mark.parametrize(
    ('name', 'refused'),
    [('AGE_AT_BASELINE', True), ('PTGENDER', True), ('DX', True), ('EXAMDATE', True),
     ('yob', True), ('MMSE', False), ('ICV2', False)],
)  # fmt: skip
def test_listed_features_that_are_no_regions(tmp_path, name, refused):
    table = make_table()
    table['yob'] = pd.to_datetime(table['EXAMDATE']).dt.year - table['AGE_AT_BASELINE'].astype(int)
    table['ICV2'] = np.arange(60) % 7 / 2
    table.to_csv(tmp_path / 't.csv', index=False)
    (tmp_path / 'list.txt').write_text('\n'.join([*REGIONS, name]))
    options = CohortOptions(features=str(tmp_path / 'list.txt'), icv='none')
    if refused:
        with pytest.raises(DataError, match=f'--features.*{name}'):
            read_cohort(tmp_path / 't.csv', None, options)
        return
    table[name] += 1
    table.to_csv(tmp_path / 't.csv', index=False)
    assert any(
        name in text.found for text in read_cohort(tmp_path / 't.csv', None, options).warnings
    )


def test_sums_are_found_among_many_columns():
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.lognormal(8, 1, (50, 40))).rename(columns=str)
    assert sums_of_others(table) == {}
    table['both'] = (table['3'] + table['17']).round()
    table['all'] = table.drop(columns='both').sum(axis=1)
    found = sums_of_others(table.drop(columns='all'))
    assert found == {'both': 'the sum of 3 and 17'}
    assert list(sums_of_others(table.drop(columns='both'))) == ['all']


@pytest.mark.parametrize('scale', [1.0, 1e-3, 1e3])
@pytest.mark.parametrize('shared', [0.0, 0.1])
def test_regions_of_any_unit_and_relation_are_alike(scale, shared):
    rng = np.random.default_rng(5)
    for _ in range(10):
        common = rng.normal(0, shared, (N, 1))
        medians = scale * np.exp(rng.uniform(0, 5, 30))
        table = pd.DataFrame(medians * np.exp(common + rng.normal(0, 0.1, (N, 30))))
        assert unlike_others(table) == {}
        assert {what_it_holds(table[name].map(str)) for name in table} == {None}


def hidden(table: pd.DataFrame) -> Table:
    """A table whose names say nothing."""
    text = table.map(repr).astype(object)
    return Table('t.tsv', text.set_axis([f'q{k}z' for k in range(table.shape[1])], axis=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ('file', 'digits', 'share'),
    [('tables/ixi_muse145.csv', 0, 0.2), ('tables/ixi_muse145.csv', 6, 1.0),
     ('tables/fcon1000.csv', 6, 0.2), ('tables/fcon1000.csv', 2, 1.0),
     ('official/sample_roi.csv', 2, 0.1)],
)  # fmt: skip
def test_real_regions_are_regions_under_names_that_say_nothing(file, digits, share):
    table = read_table(shared_data(file)).typed()
    if 'ixi' in file:
        names = [name for name, index in recognise(table).items() if index not in VENTRICLES]
    elif 'fcon' in file:
        known = [name for name in table if FREESURFER_REGION.fullmatch(name)]
        names = [name for name in known if not FREESURFER_OTHERS.fullmatch(name)]
    else:
        names = [name for name in table if name.startswith('roi')]
    regions = table[names].round(digits).sample(frac=share, random_state=1)
    wanted, judged = choose_features(hidden(regions), [])
    assert (len(wanted), judged) == (len(names), {})


@pytest.mark.parametrize(
    ('values', 'expected'),
    [([1, 2] * 20, True), ([0, 1, 2, 3] * 10, True), ([20, 21, 22, 23] * 10, False),
     ([4, 5, 6, 7, 8] * 8, False), ([1, 2] * 3, False), ([0.5, 1.5] * 20, False)],
)  # fmt: skip
def test_codes_of_age_groups(values, expected):
    assert looks_like_codes(pd.Series(values, dtype=float)) == expected


@pytest.mark.parametrize(
    ('meaning', 'cells', 'expected'),
    [('sex', ['F', 'M'] * 5, True), ('sex', list('ABCDE'), False), ('site', list('aabbb'), True),
     ('site', list('abcdefgh'), False), ('age', ['61', '72.5', '80'], True),
     ('age', ['1', '2'] * 20, False), ('icv', ['x', 'y', 'z'], False)],
)  # fmt: skip
def test_content_fits_the_name(meaning, cells, expected):
    assert may_hold(pd.Series(cells, dtype=object), meaning) == expected


def test_columns_of_zeros_are_not_compared():
    empty = pd.DataFrame(np.zeros((30, 6)), columns=list('abcdef'))
    assert unlike_others(empty) == {}


@pytest.mark.parametrize(('name', 'is_region'), [('left_hippocampus', True), ('pat', False)])
def test_rows_may_be_sorted_by_a_region(name, is_region):
    rng = np.random.default_rng(0)
    columns = {f'r_{k}_gyrus': rng.normal(4000, 400, 30).round() for k in range(6)}
    table = pd.DataFrame(columns | {name: np.sort(rng.permutation(2000)[:30] + 3000)})
    wanted, _ = choose_features(Table(Path('volumes.tsv'), table.astype(str)), [])
    assert (name in wanted.names) == is_region
