import logging
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from surreal_bids.bids.outputs import output_path, record_path, write_record
from surreal_bids.bids.survey import survey_dataset
from surreal_bids.cli import plan
from surreal_bids.cli.plan import (
    CPU_SECONDS,
    PROCESS_GB,
    estimate,
    lacking_space,
    log_licence,
    log_reuse,
    make_plan,
    prepare_study,
    provenance_of,
    reuse_table,
    steps_dir,
    study_identity,
)
from surreal_bids.config import AppConfig
from surreal_bids.files import write_json
from surreal_bids.imaging.atlas import read_regions
from surreal_bids.templates import package_file

NAMES = [f'sub-{label}/anat/sub-{label}_T1w.nii.gz' for label in ('01', '02', 'a+b')]


@pytest.fixture
def config(make_dataset, tmp_path):
    return AppConfig(make_dataset(*NAMES), tmp_path / 'out', ('participant',))


@pytest.fixture(scope='module')
def coarse(tmp_path_factory):
    """A configuration whose template is written once, by the first test that needs it."""
    root = tmp_path_factory.mktemp('plan')
    config = AppConfig(root / 'dataset', root / 'out', ('participant',))
    return replace(config, work_dir=root / 'work', template_resolution=4.0)


def _segmented(folder, *labels):
    """Write segmentations of another program; the option that names them."""
    folder.mkdir()
    for label in labels:
        (folder / f'sub-{label}_dseg.nii.gz').write_text('labels')
    return f'{folder.name}={folder}'


def _plan(config):
    return make_plan(config, survey_dataset(config))


def finish(config, job):
    """Write the record of complete outputs, as far as a plan looks at them."""
    root, (participant, session) = config.output_dir, job.image.visit
    quality = output_path(root, 'quality', participant=participant, session=session)
    write_json(quality, {})
    write_record(record_path(root, job.image.visit), root, job.made_from, [quality])


def test_at_first_every_image_is_pending(config):
    found = _plan(config)
    assert found.problems == []
    assert found.pending == found.jobs
    assert [job.reason for job in found.jobs] == ['not processed yet'] * 3
    assert [job.workflow_name for job in found.jobs] == ['sub-01', 'sub-02', 'sub-a_plus_b']
    assert found.jobs[0].entities == {'participant': '01', 'session': None}


def test_what_is_done_is_left_alone(config):
    finish(config, _plan(config).jobs[1])
    assert [bool(job.reason) for job in _plan(config).jobs] == [True, False, True]


def test_images_that_cannot_be_used_are_not_planned(config):
    (config.bids_dir / NAMES[1]).write_bytes(b'')
    found = _plan(config)
    assert [job.image.name for job in found.jobs] == ['sub-01', 'sub-a+b']
    assert [(problem.name, problem.step) for problem in found.problems] == [('sub-02', 'check')]


def test_what_is_reused_matters(config, tmp_path):
    before = _plan(config).jobs
    derivatives = (_segmented(tmp_path / 'dlmuse', '01'),)
    jobs = _plan(replace(config, derivatives=derivatives)).jobs
    assert jobs[0].reusable.files == {'segmentation': tmp_path / 'dlmuse' / 'sub-01_dseg.nii.gz'}
    assert jobs[0].made_from != before[0].made_from
    assert jobs[1].made_from == before[1].made_from


@pytest.mark.slow
def test_a_segmentation_that_is_not_for_commercial_use_is_named_once(config, coarse, caplog):
    caplog.set_level(logging.INFO, 'surreal_bids.progress')
    jobs, study = _plan(config).jobs, prepare_study(coarse)
    licence = package_file('surreal_bids', 'data/atlas/LICENSE').read_text('utf-8')
    for each in (study, replace(study, atlas='muse', atlas_licence=licence)):
        log_licence(each, jobs)
    said = [message for message in caplog.messages if message.startswith('Licence')]
    assert [re.search(r'\((\w+)\)', message)[1] for message in said] == ['network', 'muse']
    assert all('commercial' in message for message in said)


def test_the_licence_of_what_is_not_used_is_not_logged(config, coarse, tmp_path, caplog):
    derivatives = (_segmented(tmp_path / 'dlmuse', '01', '02', 'a+b'),)
    jobs = _plan(replace(config, derivatives=derivatives)).jobs
    with caplog.at_level(logging.INFO, 'surreal_bids.progress'):
        log_licence(prepare_study(coarse), jobs)
    assert 'Licence' not in caplog.text


def test_only_regions_of_another_program_are_not_computed(config, coarse, tmp_path):
    config = replace(config, derivatives=(_segmented(tmp_path / 'dlmuse', '01'),))
    study = prepare_study(coarse)
    computed = [provenance_of(config, study, job).regions_computed for job in _plan(config).jobs]
    assert computed == [False, True, True]


def test_the_name_of_the_segmentation_matters(config, tmp_path):
    made_from = []
    for name in ('dlmuse', 'muse2'):
        derivatives = (_segmented(tmp_path / name, '01'),)
        (tmp_path / name / 'dseg.tsv').write_text('names')
        made_from.append(_plan(replace(config, derivatives=derivatives)).jobs[0].made_from)
    assert made_from[0]['inputs'] == made_from[1]['inputs']
    assert made_from[0] != made_from[1]


def test_other_weights_of_the_network_matter(config, monkeypatch):
    before = study_identity(config), steps_dir(config)
    monkeypatch.setattr(plan, '_network_digest', lambda: 'other')
    assert study_identity(config) != before[0]
    assert steps_dir(config) != before[1]


def test_the_network_needs_no_atlas(coarse):
    study = prepare_study(coarse)
    assert (study.settings.atlases, study.atlas) == ((), 'network')
    assert len(read_regions(study.settings.regions_file)) == 145
    assert not (coarse.work_dir / 'atlases').exists()


def _fmriprep(root, *labels):
    for label in labels:
        folder = root / f'sub-{label}' / 'anat'
        folder.mkdir(parents=True)
        (folder / f'sub-{label}_desc-preproc_T1w.nii.gz').write_text(label)
    root.mkdir(exist_ok=True)
    return f'fmriprep={root}'


def test_a_table_shows_for_how_many_images_results_were_found(config, tmp_path, caplog):
    config = replace(config, derivatives=(_fmriprep(tmp_path / 'fmriprep', '01', '02'),))
    jobs = _plan(config).jobs
    table = reuse_table(config, jobs)
    assert [line.rsplit('  ', 1)[1].strip() for line in table.splitlines()] == [
        'Images', '2 of 3', '0 of 3', '0 of 3', '0 of 3',
    ]  # fmt: skip
    log_reuse(config, jobs)
    assert 'fmriprep: T1w image found for 2 of 3 images' in caplog.text
    assert reuse_table(replace(config, derivatives=()), jobs) == ''


def test_what_is_refused_is_said(make_dataset, tmp_path, caplog):
    names = [f'sub-01/ses-{s}/anat/sub-01_ses-{s}_T1w.nii.gz' for s in 'ab']
    derivatives = (_fmriprep(tmp_path / 'fmriprep', '01'),)
    config = AppConfig(
        make_dataset(*names), tmp_path / 'out', ('participant',), derivatives=derivatives
    )
    log_reuse(config, _plan(config).jobs)
    assert 'sub-01_ses-b: existing result not used' in caplog.text


def test_one_who_cannot_be_planned_does_not_stop_the_others(config, tmp_path):
    found = _plan(replace(config, derivatives=(_segmented(tmp_path / 'other', '01'),)))
    assert [job.image.name for job in found.jobs] == ['sub-02', 'sub-a+b']
    assert (found.problems[0].name, found.problems[0].step) == ('sub-01', 'plan')
    assert 'dseg.tsv' in found.problems[0].reason


@pytest.mark.parametrize(
    ('changes', 'matters'),
    [
        ({'template_resolution': 2.0}, True),
        ({'nprocs': 3, 'mem_gb': 8.0, 'omp_nthreads': 2}, False),
        ({'random_seed': 5}, False),
        ({'n_patterns': (2,), 'covariates': ('age',)}, False),
    ],
)
def test_only_options_that_change_outputs_matter(config, changes, matters):
    before = study_identity(config)
    assert (study_identity(replace(config, **changes)) != before) == matters


def test_the_labelled_brains_matter(config, tmp_path):
    path = tmp_path / 'files' / 'dseg.tsv'
    path.parent.mkdir()
    path.write_text('one')
    changed = replace(config, segmentation=str(path.parent))
    before = study_identity(changed)
    assert before != study_identity(config)
    path.write_text('two')
    assert study_identity(changed) != before


def test_steps_of_other_programs_and_data_are_kept_apart(config, tmp_path, monkeypatch):
    other = replace(config, bids_dir=tmp_path / 'other')
    folders = [steps_dir(each) for each in (config, other)]
    folders.append(steps_dir(replace(config, output_dir=tmp_path / 'out2')))
    monkeypatch.setattr(plan, '__version__', '99')
    folders.append(steps_dir(config))
    assert len(set(folders)) == len(folders)
    assert steps_dir(replace(config, nprocs=7)) == folders[-1]


HEADS = Path(__file__).parents[2] / 'benchmarks' / 'results' / '2026-11-18_heads.tsv'


def test_one_head_takes_what_was_measured():
    measured = pd.read_csv(HEADS, sep='\t').query('heads == 1 and device == "cpu"').iloc[0]
    assert pytest.approx(measured['cpu_seconds'], rel=0.01) == CPU_SECONDS
    assert pytest.approx(measured['memory_gb'], rel=0.05) == PROCESS_GB


def test_estimates_in_words_and_what_the_disk_lacks(tmp_path, monkeypatch):
    config = AppConfig(tmp_path, tmp_path / 'out', ('participant',), nprocs=2)
    assert 'about 2 min on 2 cores, 6 GB of memory' in estimate(config, 2)
    assert 'about 1.4 h on 2 cores' in estimate(replace(config, nprocs=2), 100)
    monkeypatch.setattr(plan, 'free_bytes', lambda folder: 1e9)
    assert [each.found.split(':')[0] for each in lacking_space(config, 4)] == ['work']
    assert lacking_space(config, 2) == []
