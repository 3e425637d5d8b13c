"""Which volumes are marked: beside healthy people, left beside right, and by confidence."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.imaging.quality import (
    LEAST_OVERLAP,
    NORM_AGES,
    RANGE_SD,
    Subject,
    assess_volumes,
    disagreements,
    large_regions,
    norms,
    region_overlaps,
    split_side,
    why_no_norms,
)
from surreal_bids.regions import muse_table, region_names
from tests.shared_data import shared_data

WOMAN = Subject(age=61.0, sex='F', icv_mm3=1_400_000.0)


def usual_volumes(subject):
    """Volumes that the norms expect, written out term by term."""
    usual, age = norms(), (subject.age - 50) / 10
    logs = usual['intercept'] + usual['age'] * age + usual['age_squared'] * age * age
    logs += usual['male'] * (subject.sex == 'M')
    logs += usual['log_icv'] * np.log(subject.icv_mm3 / 1.4e6)
    names = region_names()
    return pd.DataFrame(
        {
            'index': usual.index,
            'name': [names[index] for index in usual.index],
            'volume_mm3': np.exp(logs).to_numpy(),
            'confidence': 0.9,
        }
    )


def set_volume(volumes, index, volume):
    changed = volumes.copy()
    changed.loc[changed['index'] == index, 'volume_mm3'] = volume
    return changed


def row_of(assessed, index):
    return assessed.set_index('index').loc[index]


def pair(left, right, names=('Left thing', 'Right thing')):
    return pd.DataFrame({'index': [1, 2], 'name': names, 'volume_mm3': [left, right]})


@pytest.mark.parametrize('subject', [WOMAN, Subject(79.9, 'M', 1_600_000.0)])
def test_usual_volumes_are_usual(subject):
    assessed = assess_volumes(usual_volumes(subject), subject)
    assert (assessed['reason'] == '').all()
    np.testing.assert_allclose(assessed['deviation'], 0, atol=1e-9)


def test_a_sex_that_is_not_known_is_in_the_middle():
    volumes = usual_volumes(WOMAN)
    woman, man, unknown = (
        assess_volumes(volumes, replace(WOMAN, sex=sex))['deviation'] for sex in ('F', 'M', None)
    )
    np.testing.assert_allclose(unknown, (woman + man) / 2, atol=1e-9)
    assert man.abs().max() > 0.05


@pytest.mark.parametrize(
    ('k', 'reason'), [(-4.0, 'unusually small'), (-2.0, ''), (2.9, ''), (4.0, 'unusually large')]
)
def test_deviation_counts_standard_deviations(k, reason):
    index, volumes = 47, usual_volumes(WOMAN)
    volume = row_of(volumes, index)['volume_mm3'] * np.exp(k * norms().loc[index, 'sd'])
    row = row_of(assess_volumes(set_volume(volumes, index, volume), WOMAN), index)
    assert row['deviation'] == pytest.approx(k)
    assert reason in row['reason']
    assert ('unusually' in row['reason']) == (abs(k) > RANGE_SD)


@pytest.mark.parametrize(
    ('subject', 'change', 'why'),
    [
        (WOMAN, lambda table: table, ''),
        (replace(WOMAN, age=NORM_AGES[0] - 0.1), lambda table: table, '18 to 79 years'),
        (replace(WOMAN, age=NORM_AGES[1] + 1.0), lambda table: table, 'the age is 80'),
        (replace(WOMAN, age=None), lambda table: table, 'age is not known'),
        (replace(WOMAN, icv_mm3=None), lambda table: table, 'head size'),
        (WOMAN, lambda table: table.drop(columns='confidence'), 'built-in network'),
        (WOMAN, lambda table: table.assign(name='x'), 'built-in network'),
    ],
)
def test_where_there_are_no_norms_nothing_is_compared(subject, change, why):
    volumes = change(usual_volumes(WOMAN))
    assert why in why_no_norms(volumes, subject)
    assert bool(why_no_norms(volumes, subject)) == bool(why)
    assert assess_volumes(volumes, subject)['deviation'].isna().all() == bool(why)


@pytest.mark.parametrize(
    ('left', 'right', 'reason'),
    [
        (1300, 700, ''),
        (1310, 690, 'left much larger'),
        (690, 1310, 'right much larger'),
        (90, 30, ''),
        (0, 1000, 'no volume'),
    ],
)
def test_asymmetry(left, right, reason):
    assessed = assess_volumes(pair(left, right), WOMAN)
    assert assessed['reason'][0] == reason
    assert len(set(assessed['asymmetry'].fillna(0)[:2])) == 1
    assert assessed['deviation'].isna().all()


@pytest.mark.parametrize(
    'names',
    [
        ('Left-Inf-Lat-Vent', 'Right-Inf-Lat-Vent'),
        ('brain stem', 'third thing'),
    ],
)
def test_fluid_and_single_regions_are_not_compared(names):
    assessed = assess_volumes(pair(9000, 1000, names), WOMAN)
    assert assessed['asymmetry'].isna().all()
    assert (assessed['reason'] == '').all()


@pytest.mark.parametrize(
    ('name', 'side', 'rest'),
    [
        ('Left hippocampus', 'L', 'hippocampus'),
        ('Right-Hippocampus', 'R', 'hippocampus'),
        ('ctx-lh-insula', 'L', 'ctx insula'),
        ('hippocampus_R', 'R', 'hippocampus'),
        ('L AnG', 'L', 'ang'),
        ('Cerebellar vermal lobules I-V', None, 'cerebellar vermal lobules i v'),
    ],
)
def test_sides(name, side, rest):
    assert split_side(name) == (side, rest)


def test_overlaps_are_those_of_the_definition():
    rng = np.random.default_rng(6)
    regions = large_regions()
    one, other = (rng.choice([0, 35, *regions.index], (7, 8, 9)).astype(np.int16) for _ in range(2))
    found = region_overlaps(one, other)
    for name in set(regions):
        members = regions.index[regions == name]
        a, b = np.isin(one, members), np.isin(other, members)
        assert found[name] == pytest.approx(2 * (a & b).sum() / (a.sum() + b.sum()))


def test_exchanged_sides_disagree():
    """A head labelled upside down, or with its sides exchanged, is what the comparison is for."""
    regions = large_regions()
    labels = np.repeat(regions.index.to_numpy(np.int16), 12).reshape(-1, 3, 4)
    assert disagreements(region_overlaps(labels, labels)) == {}
    mates = muse_table().set_index('index')['mate'].dropna().astype(int)
    swapped = np.vectorize(lambda index: mates.get(index, index))(labels)
    found = disagreements(region_overlaps(labels, swapped))
    assert set(found) == set(LEAST_OVERLAP) - {'cerebellum', 'ventricles'}
    assert disagreements(region_overlaps(labels, np.zeros_like(labels))).keys() == set(
        LEAST_OVERLAP
    )


@pytest.mark.slow
def test_other_healthy_people_vary_as_the_norms_say():
    """DLMUSE's volumes of 194 people of two other scanners; it measures another head size, too."""
    table = pd.read_csv(shared_data('tables/ixi_muse145.csv'))
    table = table[(table['SITE'] != 'HH') & (table['Age'] < NORM_AGES[1] + 1)]
    found = []
    for person in table.to_dict('records'):
        volumes = usual_volumes(WOMAN)
        volumes['volume_mm3'] = [person[f'MUSE_{index}'] for index in volumes['index']]
        subject = Subject(person['Age'], person['Sex'], person['MUSE_702'])
        found.append(assess_volumes(volumes, subject)['deviation'].to_numpy())
    middle = np.mean(found, axis=0)
    assert np.median(np.abs(middle)) < 0.45
    assert 0.03 < np.mean(np.abs(found) > 1.96) < 0.08
    assert 0.85 < np.std(np.array(found) - middle) < 1.05
