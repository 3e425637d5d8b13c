import logging
from dataclasses import replace

import pytest

from surreal_bids.bids.derivatives import record_path, write_record
from surreal_bids.bids.layout import find_t1w
from surreal_bids.cli.plan import plan_jobs, tell
from surreal_bids.config import AppConfig

NAMES = [f'sub-{label}/anat/sub-{label}_T1w.nii.gz' for label in ('01', '02', 'a+b')]
TEMPLATE = 'MNI152NLin2009cAsym'


@pytest.fixture
def config(make_dataset, tmp_path):
    return AppConfig(make_dataset(*NAMES), tmp_path / 'out', ('participant',))


def _plan(config, identity=None):
    return plan_jobs(config, TEMPLATE, identity or {'atlas': 'muse'}, find_t1w(config.bids_dir))


def _finish(config, job):
    path = record_path(config.output_dir, job.image.visit)
    write_record(path, config.output_dir, job.made_from, [])


def test_at_first_everyone_is_to_do(config):
    jobs, failures = _plan(config)
    assert failures == []
    assert [job.reason for job in jobs] == ['not processed yet'] * 3
    assert [job.workflow_name for job in jobs] == ['sub-01', 'sub-02', 'sub-a_plus_b']
    assert jobs[0].entities == {'participant': '01', 'session': None}


def test_who_is_done_is_left_alone(config, caplog):
    jobs, _ = _plan(config)
    _finish(config, jobs[1])
    jobs, _ = _plan(config)
    with caplog.at_level(logging.INFO, 'surreal_bids'):
        for job in jobs:
            tell(job)
    assert [bool(job.reason) for job in jobs] == [True, False, True]
    assert 'sub-02: outputs are complete and nothing changed' in caplog.text
    assert 'sub-01: to be processed (not processed yet)' in caplog.text


@pytest.mark.parametrize('what', ['options', 'inputs'])
def test_changes_are_noticed(config, what):
    jobs, _ = _plan(config)
    _finish(config, jobs[0])
    if what == 'inputs':
        (config.bids_dir / NAMES[0]).write_bytes(b'other voxels')
    jobs, _ = _plan(config, {'atlas': 'other'} if what == 'options' else None)
    assert jobs[0].reason == f'{what} changed since the outputs were made'


def test_what_is_reused_is_said_and_matters(config, tmp_path, caplog):
    before, _ = _plan(config)
    folder = tmp_path / 'dlmuse'
    folder.mkdir()
    (folder / 'sub-01_dseg.nii.gz').write_text('labels')
    jobs, _ = _plan(replace(config, derivatives=(f'dlmuse={folder}',)))
    with caplog.at_level(logging.INFO, 'surreal_bids'):
        tell(jobs[0])
    assert f'sub-01: segmentation taken from {folder / "sub-01_dseg.nii.gz"}' in caplog.text
    assert jobs[0].made_from != before[0].made_from
    assert jobs[1].made_from == before[1].made_from


def test_the_name_of_the_segmentation_matters(config, tmp_path):
    for name in ('dlmuse', 'muse2'):
        folder = tmp_path / name
        folder.mkdir()
        (folder / 'sub-01_dseg.nii.gz').write_text('labels')
        (folder / 'dseg.tsv').write_text('names')
    made_from = [
        _plan(replace(config, derivatives=(f'{name}={tmp_path / name}',)))[0][0].made_from
        for name in ('dlmuse', 'muse2')
    ]
    assert made_from[0]['inputs'] == made_from[1]['inputs']
    assert made_from[0] != made_from[1]


def test_one_who_cannot_be_planned_does_not_stop_the_others(config, tmp_path):
    folder = tmp_path / 'synthseg'
    folder.mkdir()
    (folder / 'sub-01_dseg.nii.gz').write_text('labels')
    jobs, failures = _plan(replace(config, derivatives=(f'synthseg={folder}',)))
    assert [job.image.name for job in jobs] == ['sub-02', 'sub-a+b']
    assert (failures[0].name, failures[0].step) == ('sub-01', 'plan')
    assert 'no table names its labels' in failures[0].reason
