"""The page of a participant: numbers, marks, several sessions, hostile names, no network."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cautions import Caution
from surreal_bids.imaging.norms import LEAST_OVERLAP, Subject
from surreal_bids.reports.methods import ImagingMethods, MethodsOptions
from surreal_bids.reports.mosaics import mask_mosaic
from surreal_bids.reports.pages import Figure
from surreal_bids.reports.participant import (
    ParticipantReport,
    SessionReport,
    write_participant_report,
)
from tests.imaging.test_norms import WOMAN, usual_volumes
from tests.reports.heads import draw_head, ras_grid
from tests.reports.html_page import HOSTILE, Page, check_offline, check_structure

pytestmark = pytest.mark.drawn

OVERLAPS = dict.fromkeys(LEAST_OVERLAP, 0.95)


@pytest.fixture(scope='module')
def figure(tmp_path_factory):
    folder = tmp_path_factory.mktemp('out')
    path = mask_mosaic(folder / 'sub-01' / 'figures' / 'mask.jpg', *draw_head(ras_grid((2, 2, 2))))
    return Figure(path, 'Brain mask', 'The line follows the brain.')


@pytest.fixture(scope='module')
def session(figure):
    return SessionReport(
        source='sub-01/anat/sub-01_T1w.nii.gz',
        mask_origin='deepbet',
        atlas='muse',
        template='MNI152NLin2009cAsym',
        volumes=usual_volumes(WOMAN),
        subject=WOMAN,
        tissue_mm3={'GM': 600_000.0, 'WM': 500_000.0, 'CSF': 250_000.0},
        figures=(figure,),
    )


def write(folder, *sessions, name='sub-01', configuration='atlas = "muse"'):
    methods = MethodsOptions('9.9', ImagingMethods())
    data = ParticipantReport(name, sessions, methods, '9.9', configuration)
    return Page(write_participant_report(folder, data))


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
        '1,100 ml', '600 ml', '43% of the brain mask; tissue classification', '1,400 ml',
        'grey and white matter; tissue classification', '145 regions; segmentation: muse',
        'found by deepbet', 'None of the 145 regions', '3 standard deviations', 'exceeds 60%',
        'All 145 volumes', 'Right hippocampus', 'N4 [', 'atlas = "muse"', 'surreal_bids 9.9',
        'Figure 1. Brain mask.', '61 years, female',
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
    assert f'{n_marked} of 145 regions' in page.words
    # Once among those to look at, once among all.
    assert len(marked) == 2 * n_marked


@pytest.mark.parametrize(
    ('change', 'said', 'unsaid'),
    [
        ({'tissue_mm3': {}, 'subject': Subject()}, 'All regions', 'Grey matter 6'),
        ({}, 'age, sex and head size', 'not compared'),
        ({'voxels_mm': (1.0, 1.0, 5.999)}, '1 x 1 x 6 mm', 'not compared'),
        ({'subject': replace(WOMAN, sex=None)}, 'the sex is not known', 'not compared'),
        ({'subject': replace(WOMAN, sex=None)}, '61 years, sex not known', 'female'),
        ({'subject': replace(WOMAN, age=None)}, 'not compared with', 'Deviation (SD)'),
        ({'subject': replace(WOMAN, age=85.0)}, '18 to 79 years; the age is 85', 'Deviation (SD)'),
        ({'mask_origin': 'stripped'}, 'already skull-stripped', 'found by deepbet'),
        ({'mask_origin': 'drawn by hand'}, 'drawn by hand', 'found by deepbet'),
        ({'warnings': (Caution('two runs', 'b', 'c'),)}, 'two runs', 'nothing'),
        ({'reused': {'Transforms': 'fmriprep'}}, 'Transforms taken from', 'nothing'),
        (
            {'reused': {'GM map': 'fmriprep'}},
            'of the brain mask; tissue maps of another program',
            'tissue classification',
        ),
        ({'figures': ()}, 'Summary', 'Figures'),
        ({}, 'Summary', 'Overlap with'),
        ({}, 'Summary', 'Lesion'),
        ({'overlaps': OVERLAPS}, 'Dice 0.95 to 0.95 in 14 large regions', 'than in healthy heads'),
        (
            {'overlaps': {**OVERLAPS, 'left temporal lobe': 0.3}},
            'than in healthy heads: left temporal lobe (0.30, usually',
            'cerebellum (',
        ),
    ],
)
def test_shows_what_is_known(tmp_path, session, change, said, unsaid):
    words = write(tmp_path, replace(session, **change)).words
    assert said in words
    assert unsaid not in words


def test_a_lesion_is_shown(tmp_path, session):
    share = np.where(session.volumes['index'].isin([47, 48]), 0.25, 0.0)
    volumes = session.volumes.assign(lesion_share=share)
    known = {**session.quality, 'lesion_ml': 20.04}
    words = write(tmp_path, replace(session, volumes=volumes, quality=known)).words
    assert '20.0 ml: 25% of Right hippocampus, 25% of Left hippocampus' in words
    assert 'Lesion (%)' in words


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
    assert len(page.of('img')) == n_sessions
    assert ('ses-s0' in page.words) == (n_sessions > 1)
    assert f'{n_sessions} scan' in page.words


def test_hostile_names_are_text(tmp_path, session):
    volumes = session.volumes.assign(name=HOSTILE)
    hostile = replace(
        session, source=HOSTILE, mask_origin=HOSTILE, atlas=HOSTILE, template=HOSTILE,
        volumes=volumes, warnings=(Caution(HOSTILE, HOSTILE, HOSTILE),), reused={HOSTILE: HOSTILE},
        session=HOSTILE,
    )  # fmt: skip
    page = write(tmp_path, hostile, hostile, configuration=HOSTILE)
    check_offline(page)
    check_structure(page)
    assert page.words.count(HOSTILE) > 2 * (145 + 8)
