from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.precomputed import Reusable
from surreal_bids.cli.costs import HEAD_VOXELS, SECONDS, estimate
from surreal_bids.cli.plan import Job
from surreal_bids.config import AppConfig
from surreal_bids.workflows.anatomy import ENSEMBLE

HERE = Path(__file__)


@pytest.fixture
def config(tmp_path):
    return AppConfig(tmp_path, tmp_path / 'out', ('participant',))


def _job(path, reusable=None):
    return Job(T1wImage('01', None, None, path), reusable or Reusable(), {}, 'not processed yet')


@pytest.fixture
def head(tmp_path):
    """An image with as many voxels as the head that was measured."""
    shape = (230, 250, 200)
    assert np.prod(shape) == HEAD_VOXELS
    path = tmp_path / 'head.nii.gz'
    nib.Nifti1Image(np.zeros(shape, np.uint8), np.eye(4)).to_filename(path)
    return path


def test_one_head_takes_what_was_measured(config, head):
    total = sum(SECONDS.values())
    without = total - SECONDS['register_atlas'] - SECONDS['fuse']
    found = estimate(config, [_job(head)], nprocs=1)
    assert found.cpu_seconds == pytest.approx(without)
    more = (len(ENSEMBLE) - 1) * SECONDS['register_atlas'] - SECONDS['label']
    found = estimate(replace(config, segmentation='multi-atlas'), [_job(head)], nprocs=1)
    assert found.cpu_seconds == pytest.approx(total + more)


@pytest.mark.parametrize(
    ('given', 'saved'),
    [
        ({'mask': HERE}, ['find_brain']),
        ({'t1w': HERE}, ['n4']),
        ({'tpms': (HERE,) * 3}, ['classify']),
        ({'anat2std_xfm': HERE, 'std2anat_xfm': HERE}, ['register_template']),
        ({'dseg': HERE}, ['label']),
    ],
)
def test_what_is_reused_costs_nothing(config, head, given, saved):
    full = estimate(config, [_job(head)], 1).cpu_seconds
    less = estimate(config, [_job(head, Reusable(**given))], 1).cpu_seconds
    assert full - less == pytest.approx(sum(SECONDS[step] for step in saved))


def test_costs_grow_with_images_and_atlases(config, head, tmp_path):
    atlas = tmp_path / 'atlas'
    atlas.mkdir()
    for name in 'abc':
        (atlas / f'{name}_dseg.nii.gz').touch()
    config = replace(config, segmentation='multi-atlas')
    one, two = (estimate(config, [_job(head)] * n, 2) for n in (1, 2))
    assert (two.cpu_seconds, two.output_gb) == (2 * one.cpu_seconds, 2 * one.output_gb)
    assert two.memory_gb == one.memory_gb
    three = estimate(replace(config, atlas=str(atlas)), [_job(head)], 2)
    assert three.cpu_seconds - one.cpu_seconds == pytest.approx(SECONDS['register_atlas'])
    assert three.work_gb > one.work_gb


def test_a_coarse_template_costs_less(config, head):
    fine, coarse = (
        estimate(replace(config, template_resolution=mm), [_job(head)], 1).cpu_seconds
        for mm in (1.0, 2.0)
    )
    assert fine - coarse == pytest.approx(SECONDS['register_template'] * 7 / 8)


def test_an_image_that_cannot_be_read_counts_as_one_head(config, head, tmp_path):
    bad = tmp_path / 'bad.nii.gz'
    bad.touch()
    assert estimate(config, [_job(bad)], 1) == estimate(config, [_job(head)], 1)


@pytest.mark.parametrize(('nprocs', 'n', 'text'), [(1, 1, ' min with 1'), (2, 100, ' h with 2')])
def test_estimates_in_words(config, head, nprocs, n, text):
    words = str(estimate(config, [_job(head)] * n, nprocs))
    assert text in words
    assert 'GB of memory' in words
