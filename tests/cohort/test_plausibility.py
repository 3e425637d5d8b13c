import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.facts import exchanged_sexes
from surreal_bids.cohort.plausibility import (
    check_head_size,
    empty_regions,
    implausible_values,
    missing_values,
    outlying_volumes,
    require_numbers,
    require_people,
    sites_without_controls,
    summarise_reasons,
    unusable_regions,
)
from surreal_bids.exceptions import DataError


def names(count):
    return [f'sub-{k}' for k in range(count)]


def healthy(n_people=80, n_regions=40, seed=0):
    """Log-normal volumes that share a head size."""
    rng = np.random.default_rng(seed)
    head = rng.normal(0, 0.08, (n_people, 1))
    logs = 7 + head + rng.normal(0, 0.1, (n_people, n_regions))
    return pd.DataFrame(np.exp(logs), names(n_people))


@pytest.mark.parametrize('seed', range(5))
def test_nobody_of_a_plain_population_is_left_out(seed):
    volumes = healthy(seed=seed)
    is_patient = pd.Series(np.arange(80) < 40, volumes.index)
    volumes.loc[is_patient] *= np.random.default_rng(seed).uniform(0.6, 1, (40, 1))
    assert outlying_volumes(volumes, is_patient) == {}
    ages = pd.DataFrame({'age': np.random.default_rng(seed).uniform(18, 90, 80)}, volumes.index)
    assert implausible_values(ages) == {}


@pytest.mark.parametrize('n_people', [3, 5, 8, 12])
@pytest.mark.parametrize('n_patients', [0, 1])
def test_few_people_do_not_make_each_other_unusual(n_people, n_patients):
    volumes = healthy(n_people)
    is_patient = pd.Series(np.arange(n_people) < n_patients, volumes.index)
    assert outlying_volumes(volumes, is_patient) == {}
    ages = pd.DataFrame({'age': [64.0, 64.1, 63.9, *range(70, 67 + n_people)]}, names(n_people))
    assert implausible_values(ages) == {}


def test_an_impossible_age_needs_no_comparison():
    ages = pd.DataFrame({'age': [64.0, 66.0, 999.0]}, names(3))
    assert list(implausible_values(ages)) == ['sub-2']


@pytest.mark.parametrize(
    'damage',
    [lambda v: v * 2.5, lambda v: v / 3, lambda v: np.where(np.arange(v.size) < 12, v / 4, v)],
    ids=['too large', 'too small', 'a third of the brain is missing'],
)
@pytest.mark.parametrize('who', [3, 60])
def test_failed_segmentations_are_found(damage, who):
    volumes = healthy()
    volumes.iloc[who] = damage(volumes.iloc[who].to_numpy())
    is_patient = pd.Series(np.arange(80) < 40, volumes.index)
    assert set(outlying_volumes(volumes, is_patient)) == {f'sub-{who}'}


@pytest.mark.parametrize(
    ('column', 'value', 'out'),
    [
        ('age', 999, True),
        ('age', -1, True),
        ('age', 95, False),
        ('icv', 3e6, True),
        ('sex', 1, False),
    ],
)
def test_numbers_that_cannot_be_meant(column, value, out):
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            'age': rng.normal(65, 10, 50),
            'icv': rng.normal(1.4e6, 1e5, 50),
            'sex': np.zeros(50),
            'site': 'a',
        },
        names(50),
    )
    people.loc['sub-7', column] = value
    assert list(implausible_values(people)) == (['sub-7'] if out else [])


@pytest.mark.parametrize(('scale', 'told'), [(1, '9,000,000 mm3'), (0.001, '9000')])
def test_head_sizes_are_told_in_mm3_without_exponents(scale, told):
    names = [f'sub-{k}' for k in range(30)]
    icv = pd.DataFrame({'icv': np.linspace(1.3e6, 1.6e6, 30) * scale}, index=names)
    icv.loc['sub-7', 'icv'] = 9e6 * scale
    (reason,) = implausible_values(icv, 'icv').values()
    assert f'icv is {told}, far' in reason
    assert 'e+' not in reason


def test_the_unit_of_head_sizes_is_told_without_exponents():
    icv = pd.Series([1400.0, 1500.0], name='eTIV')
    with pytest.raises(DataError, match='median of 1450, but 300,000 to 5,000,000 mm3 is expected'):
        check_head_size(icv, (3e5, 5e6))


@pytest.mark.parametrize(
    ('cells', 'bad'),
    [(['61', '89+'], True), (['61', None], False), (['F', 'M'], False), (['1', '2'], False)],
)
def test_text_among_numbers_is_refused(cells, bad):
    ages = pd.Series(cells, names(2), dtype=object, name='age')
    if bad:
        with pytest.raises(DataError, match=r'age holds numbers .* but text for sub-1 \("89\+"\)'):
            require_numbers(ages)
    else:
        require_numbers(ages)


def test_missing_values_are_named():
    people = pd.DataFrame({'age': [1, None, 3], 'site': ['a', None, None]}, names(3))
    assert missing_values(people) == {
        'sub-1': 'age, site is missing',
        'sub-2': 'site is missing',
    }


@pytest.mark.parametrize(('n_empty', 'region_is_dropped'), [(1, False), (30, True)])
@pytest.mark.parametrize('value', [0.0, np.nan])
def test_an_empty_region_costs_the_person_or_the_region(n_empty, region_is_dropped, value):
    volumes = healthy()
    volumes.iloc[:n_empty, 4] = value
    assert list(unusable_regions(volumes)) == (['4'] if region_is_dropped else [])
    kept = volumes.drop(columns=[4]) if region_is_dropped else volumes
    assert list(empty_regions(kept)) == ([] if region_is_dropped else ['sub-0'])


def test_sites_without_controls():
    site = pd.Series(['a', 'a', 'b', 'c', 'a', 'c', 'a'], names(7))
    teaches = pd.Series([True, True, False, True, False, True, True], names(7))
    assert list(sites_without_controls(site, teaches)) == ['sub-2', 'sub-3', 'sub-5']


def test_with_nobody_left_the_reasons_are_told():
    reasons = dict.fromkeys(names(3), 'age is missing') | {'sub-9': 'no volumes'}
    assert summarise_reasons(reasons.values()) == '3 for "age is missing", 1 for "no volumes"'
    with pytest.raises(
        DataError, match=r'all 4 participants were excluded: 3 for "age is missing"'
    ):
        require_people([], reasons)


@pytest.mark.parametrize(
    ('women', 'men', 'n', 'expected'),
    [(1.6, 1.4, 40, True), (1.4, 1.6, 40, False), (1.6, 1.4, 9, False), (1.4, 1.4, 40, False)],
)
def test_exchanged_sexes_are_noticed(women, men, n, expected):
    rng = np.random.default_rng(0)
    people = pd.DataFrame({'sex': ['female'] * n + ['Male'] * n}, names(2 * n))
    size = pd.Series(np.r_[rng.normal(women, 0.1, n), rng.normal(men, 0.1, n)], people.index)
    found = [*map(str, exchanged_sexes(people, size))]
    assert bool(found) == expected
    assert not expected or 'column sex' in found[0]


def test_codes_of_sex_have_no_meaning_of_their_own():
    people = pd.DataFrame({'sex': [0.0] * 20 + [1.0] * 20}, names(40))
    size = pd.Series(np.repeat([1.5, 1.3], 20), people.index)
    assert [*exchanged_sexes(people, size)] == []
