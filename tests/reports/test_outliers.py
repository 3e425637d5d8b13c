"""The rules that mark volumes: known answers, laws, and how often they mark healthy people."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import lognorm

from surreal_bids.regions import muse_indices, muse_table, region_names
from surreal_bids.reports.participant import (
    ASYMMETRY,
    RANGE_SD,
    assess_volumes,
    is_muse,
    norms,
    split_side,
)
from surreal_bids.simulation.population import sample_controls
from tests.shared_data import shared_data


def usual_volumes():
    return muse_table()[['index', 'name', 'volume_mm3']].astype({'volume_mm3': float})


def set_volume(volumes, index, volume):
    changed = volumes.copy()
    changed.loc[changed['index'] == index, 'volume_mm3'] = volume
    return changed


def row_of(assessed, index):
    return assessed.set_index('index').loc[index]


def lognorm_spread(cv):
    """Log-scale standard deviation of the log-normal distribution with this variation."""
    return brentq(lambda s: lognorm.std(s) / lognorm.mean(s) - cv, 1e-3, 3)


def pair(left, right, names=('Left thing', 'Right thing')):
    return pd.DataFrame({'index': [1, 2], 'name': names, 'volume_mm3': [left, right]})


def test_usual_volumes_are_usual():
    assessed = assess_volumes(usual_volumes())
    assert (assessed['reason'] == '').all()
    assert assessed['deviation'].abs().max() < 0.5
    assert assessed['asymmetry'].abs().max() == 0


@pytest.mark.parametrize('factor', [0.6, 1.0, 1.7])
def test_head_size_does_not_matter(factor):
    volumes = set_volume(usual_volumes(), 47, 2500.0)
    larger = volumes.assign(volume_mm3=factor * volumes['volume_mm3'])
    np.testing.assert_allclose(
        assess_volumes(larger)['deviation'], assess_volumes(volumes)['deviation'], atol=1e-9
    )


@pytest.mark.parametrize(('factor', 'reason'), [(0.5, 'small'), (1.0, ''), (2.0, 'large')])
@pytest.mark.parametrize('index', [47, 35, 71])
def test_range(index, factor, reason):
    usual = row_of(usual_volumes(), index)['volume_mm3']
    row = row_of(assess_volumes(set_volume(usual_volumes(), index, factor * usual)), index)
    assert np.sign(row['deviation']) == np.sign(factor - 1) or factor == 1
    assert reason in row['reason']
    assert bool(row['reason']) == bool(reason)


@pytest.mark.parametrize('k', [-2.0, 1.0, 3.0])
def test_deviation_counts_standard_deviations(k):
    people = sample_controls(4000, np.random.default_rng(5)).volumes.set_axis(
        muse_indices(), axis=1
    )
    shares = np.log(people[47] / people.sum(axis=1))
    volumes = usual_volumes()
    tissue = volumes.loc[volumes['index'].isin(muse_indices()), 'volume_mm3'].sum()
    others = tissue - row_of(volumes, 47)['volume_mm3']
    share = np.exp(shares.mean() + k * shares.std())
    volume = others * share / (1 - share)
    row = row_of(assess_volumes(set_volume(volumes, 47, volume)), 47)
    assert row['deviation'] == pytest.approx(k, abs=0.2)


@pytest.mark.parametrize('factor', [0.5, 1.0, 2.0, 30.0])
def test_ventricles_are_log_normal(factor):
    usual = row_of(muse_table(), 4)
    spread = lognorm_spread(usual['cv'])
    volumes = set_volume(usual_volumes(), 4, factor * usual['volume_mm3'])
    row = row_of(assess_volumes(volumes), 4)
    assert row['deviation'] == pytest.approx(np.log(factor) / spread + spread / 2, abs=0.05)
    assert ('large' in row['reason']) == (factor == 30)


@pytest.mark.parametrize(
    ('left', 'right', 'reason'),
    [
        (1000, 1000, ''),
        (1300, 700, ''),
        (1310, 690, 'left much larger'),
        (690, 1310, 'right much larger'),
        (90, 30, ''),
        (0, 1000, 'no volume'),
    ],
)
def test_asymmetry(left, right, reason):
    assessed = assess_volumes(pair(left, right))
    assert assessed['reason'][0] == reason
    assert assessed['asymmetry'][0] == assessed['asymmetry'][1] or np.isnan(
        assessed['asymmetry'][0]
    )
    assert assessed['deviation'].isna().all()


@pytest.mark.parametrize(
    'names',
    [
        ('Left-Lateral-Ventricle', 'Right-Lateral-Ventricle'),
        ('Left-Inf-Lat-Vent', 'Right-Inf-Lat-Vent'),
        ('brain stem', 'third thing'),
    ],
)
def test_fluid_and_single_regions_are_not_compared(names):
    assessed = assess_volumes(pair(9000, 1000, names))
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
        ('Brain stem', None, 'brain stem'),
        ('Cerebellar vermal lobules I-V', None, 'cerebellar vermal lobules i v'),
    ],
)
def test_sides(name, side, rest):
    assert split_side(name) == (side, rest)


@pytest.mark.parametrize('missing', [0.0, np.nan])
def test_missing_regions_are_marked(missing):
    assessed = assess_volumes(set_volume(usual_volumes(), 47, missing))
    assert row_of(assessed, 47)['reason'] == 'no volume'
    assert row_of(assessed, 32)['reason'] == ''


@pytest.mark.parametrize(
    ('change', 'expected'),
    [
        (lambda table: table, True),
        (lambda table: table.iloc[:120], True),
        (lambda table: table.assign(name=table['name'].str.upper()), True),
        (lambda table: table.assign(index=table['index'] + 1), False),
        (lambda table: table.iloc[:0], False),
    ],
)
def test_recognises_muse(change, expected):
    assert is_muse(change(usual_volumes())) is expected


def test_keeps_the_rows_of_the_caller():
    volumes = usual_volumes().iloc[::-1]
    assessed = assess_volumes(volumes)
    assert assessed['index'].tolist() == volumes['index'].tolist()
    assert 'deviation' not in volumes


def test_the_norms_are_those_of_the_population():
    volumes = sample_controls(4000, np.random.default_rng(5)).volumes.set_axis(
        muse_indices(), axis=1
    )
    shares = np.log(volumes.div(volumes.sum(axis=1), axis=0))
    assert norms().index.tolist() == list(muse_indices())
    np.testing.assert_allclose(norms()['volume_mm3'], volumes.mean(), rtol=0.02)
    np.testing.assert_allclose(norms()['log_share_mean'], shares.mean(), atol=0.02)
    np.testing.assert_allclose(norms()['log_share_sd'], shares.std(), rtol=0.1)


@pytest.mark.parametrize('n_missing', [5, 20, 60])
def test_missing_regions_hardly_change_the_others(n_missing):
    volumes = set_volume(usual_volumes(), 47, 2500.0)
    missing = np.random.default_rng(n_missing).permutation(len(volumes))[:n_missing]
    there = ~volumes.index.isin(missing)
    fewer = volumes.assign(volume_mm3=volumes['volume_mm3'].where(there, 0.0))
    deviations = [assess_volumes(table)['deviation'][there] for table in (volumes, fewer)]
    np.testing.assert_allclose(*deviations, atol=0.2)


def test_healthy_people_are_rarely_marked():
    table = pd.read_csv(shared_data('tables/ixi_muse145.csv')).iloc[::10]
    names = region_names()
    n_range = n_pairs = 0
    for _, person in table.iterrows():
        volumes = pd.DataFrame(
            [(index, name, person[f'MUSE_{index}']) for index, name in names.items()],
            columns=['index', 'name', 'volume_mm3'],
        )
        assessed = assess_volumes(volumes)
        n_range += (assessed['deviation'].abs() > RANGE_SD).sum()
        n_pairs += (assessed['asymmetry'].abs() > ASYMMETRY).sum() / 2
    assert n_range / len(table) < 0.7
    assert n_pairs / len(table) < 0.5
