"""The page of a participant: numbers, marks, several sessions, hostile names, no network."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import lognorm

from surreal_bids.regions import muse_indices, muse_table, region_names
from surreal_bids.reports.methods import ImagingMethods, MethodsOptions
from surreal_bids.reports.mosaics import mask_mosaic
from surreal_bids.reports.pages import Figure
from surreal_bids.reports.participant import (
    ASYMMETRY,
    RANGE_SD,
    UNCERTAIN,
    ParticipantReport,
    SessionReport,
    assess_volumes,
    is_muse,
    norms,
    split_side,
    write_participant_report,
)
from surreal_bids.simulation.population import sample_controls
from tests.reports.heads import draw_head, ras_grid
from tests.reports.html_page import HOSTILE, Page, check_offline, check_structure
from tests.shared_data import shared_data


@pytest.fixture(scope='module')
def figure(tmp_path_factory):
    folder = tmp_path_factory.mktemp('out')
    path = mask_mosaic(folder / 'sub-01' / 'figures' / 'mask.svg', *draw_head(ras_grid((2, 2, 2))))
    return Figure(path, 'Brain mask', 'The line follows the brain.')


@pytest.fixture(scope='module')
def session(figure):
    return SessionReport(
        source='sub-01/anat/sub-01_T1w.nii.gz',
        mask_origin='deepbet',
        atlas='muse',
        template='MNI152NLin2009cAsym',
        volumes=muse_table()[['index', 'name', 'volume_mm3']],
        tissue_mm3={'GM': 600_000.0, 'WM': 500_000.0, 'CSF': 250_000.0},
        mask_mm3=1_400_000.0,
        figures=(figure,),
    )


def write(folder, *sessions, name='sub-01', configuration='atlas = "muse"'):
    methods = MethodsOptions('9.9', ImagingMethods())
    data = ParticipantReport(name, sessions, methods, '9.9', configuration)
    return Page(write_participant_report(folder / 'sub-01.html', data))


@pytest.fixture(scope='module')
def words(tmp_path_factory, session):
    return write(tmp_path_factory.mktemp('page'), session).words


def test_page_is_offline_and_well_built(tmp_path, session):
    page = write(tmp_path, session, replace(session, session='b'))
    check_offline(page)
    check_structure(page)


@pytest.mark.parametrize(
    'text',
    [
        '1,100 ml', '600 ml', '43% of the brain mask', '1,400 ml', 'found by deepbet',
        'none of the 145 volumes', '3.5 standard deviations', '60% of their mean',
        'All 145 volumes', 'Right hippocampus', 'N4 [', 'atlas = "muse"', 'surreal_bids 9.9',
        'Figure 1. Brain mask.',
    ],
)  # fmt: skip
def test_says(words, text):
    assert text in words


@pytest.mark.parametrize(
    ('index', 'factor', 'remark', 'n_marked'),
    [(47, 0.45, 'unusually small', 2), (35, 2.0, 'unusually large', 1), (47, 0.0, 'no volume', 2)],
)
def test_unusual_volumes_stand_out(tmp_path, session, index, factor, remark, n_marked):
    volumes = session.volumes.astype({'volume_mm3': float})
    volumes.loc[volumes['index'] == index, 'volume_mm3'] *= factor
    page = write(tmp_path, replace(session, volumes=volumes))
    marked = [attributes for attributes in page.of('tr') if attributes.get('class') == 'marked']
    assert remark in page.words
    assert f'{n_marked} of 145 volume' in page.words
    # Once among those to look at, once among all.
    assert len(marked) == 2 * n_marked


@pytest.mark.parametrize(
    ('change', 'said', 'unsaid'),
    [
        ({'tissue_mm3': {}, 'mask_mm3': None}, 'All regions', 'Grey matter 6'),
        ({'mask_origin': 'stripped'}, 'came without the skull', 'found by deepbet'),
        ({'mask_origin': 'drawn by hand'}, 'drawn by hand', 'found by deepbet'),
        ({'warnings': ('two runs',)}, 'two runs', 'nothing'),
        ({'reused': {'Transforms': 'fmriprep'}}, 'Transforms taken from', 'nothing'),
        ({'figures': ()}, 'Summary', 'Pictures'),
    ],
)
def test_shows_what_is_known(tmp_path, session, change, said, unsaid):
    words = write(tmp_path, replace(session, **change)).words
    assert said in words
    assert unsaid not in words


def test_other_atlases_have_no_range(tmp_path, session):
    volumes = pd.DataFrame(
        {'index': [17, 53], 'name': ['Left-Hippocampus', 'Right-Hippocampus'], 'volume_mm3': [9, 8]}
    )
    words = write(tmp_path, replace(session, volumes=volumes, atlas='aseg')).words
    assert 'standard deviations' not in words
    assert 'Deviation' not in words


@pytest.mark.parametrize('n_sessions', [1, 3])
def test_sessions(tmp_path, session, n_sessions):
    sessions = [replace(session, session=f's{k}') for k in range(n_sessions)]
    page = write(tmp_path, *sessions)
    assert len(page.of('svg')) == n_sessions
    assert ('ses-s0' in page.words) == (n_sessions > 1)
    assert f'{n_sessions} scan' in page.words


def test_hostile_names_are_text(tmp_path, session):
    volumes = session.volumes.assign(name=HOSTILE)
    hostile = replace(
        session, source=HOSTILE, mask_origin=HOSTILE, atlas=HOSTILE, template=HOSTILE,
        volumes=volumes, warnings=(HOSTILE,), reused={HOSTILE: HOSTILE},
        session=HOSTILE,
    )  # fmt: skip
    page = write(tmp_path, hostile, hostile, name=HOSTILE, configuration=HOSTILE)
    check_offline(page)
    check_structure(page)
    assert page.words.count(HOSTILE) > 2 * (145 + 8)


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


def test_uncertain_regions_are_marked():
    volumes = usual_volumes()
    assert assess_volumes(volumes)['confidence'].isna().all()
    volumes['confidence'] = 0.9
    volumes.loc[volumes['index'] == 47, 'confidence'] = UNCERTAIN - 0.01
    assessed = assess_volumes(volumes)
    assert row_of(assessed, 47)['reason'] == 'uncertain'
    assert 'uncertain' not in set(assessed.loc[assessed['index'] != 47, 'reason'])
