import json
import os
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.precomputed import Reusable
from surreal_bids.bids.preflight import survey_dataset
from surreal_bids.cli import slurm
from surreal_bids.cli.app import main
from surreal_bids.cli.config_file import read_options
from surreal_bids.cli.costs import Estimate
from surreal_bids.cli.plan import Job, make_plan
from surreal_bids.cli.slurm import (
    Needs,
    as_time,
    estimate_task,
    participants_per_task,
    write_jobs,
    write_slurm,
)
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import UsageError
from tests.cli.test_plan import finish

NEEDS = Needs(cores=2, memory_gb=6, time='01:00:00')
GROUP = Needs(cores=8, memory_gb=16, time='1-00:00:00')
IMAGES = [f'sub-{label}/anat/sub-{label}_T1w.nii.gz' for label in ('01', '02', '03')]

STAND_IN = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ['CALLS'], 'a') as calls:
    calls.write(json.dumps(sys.argv) + '\\n')
"""
"""In place of a program: notes how it was called."""


@pytest.fixture
def config(tmp_path):
    (tmp_path / 'data set').mkdir()
    return AppConfig(
        bids_dir=tmp_path / 'data set',
        output_dir=tmp_path / 'out',
        analysis_levels=('participant', 'group'),
        write_slurm=tmp_path / 'jobs of 50%',
        work_dir=tmp_path / 'work',
    )


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Make a program of a name that notes its arguments; give a function that reads them."""

    def make(name):
        folder = tmp_path / 'bin'
        folder.mkdir(exist_ok=True)
        program = folder / name
        program.write_text(STAND_IN)
        program.chmod(0o755)
        monkeypatch.setenv('PATH', f'{folder}{os.pathsep}{os.environ["PATH"]}')
        monkeypatch.setenv('CALLS', str(tmp_path / 'calls'))
        return program

    return make


def _calls(tmp_path):
    lines = (tmp_path / 'calls').read_text().splitlines()
    return [json.loads(line) for line in lines]


def _run(script, task=None):
    environment = os.environ | {'SLURM_CPUS_PER_TASK': '2'}
    if task is not None:
        environment['SLURM_ARRAY_TASK_ID'] = str(task)
    return subprocess.run(
        ['bash', str(script)], env=environment, check=True, capture_output=True, text=True
    )


def _directives(script):
    lines = [line for line in script.read_text().splitlines() if line.startswith('#SBATCH')]
    return dict(shlex.split(line)[1].removeprefix('--').split('=', 1) for line in lines)


@pytest.mark.parametrize(
    ('seconds', 'expected'),
    [
        (1, '00:01:00'),
        (60, '00:01:00'),
        (61, '00:02:00'),
        (3600, '01:00:00'),
        (86400 + 2 * 3600 + 1800, '1-02:30:00'),
    ],
)
def test_times_are_whole_minutes(seconds, expected):
    assert as_time(seconds) == expected


@pytest.mark.parametrize(
    ('levels', 'labels', 'names'),
    [
        (['participant'], ['01', '02'], {'participant.sbatch', 'participants.txt'}),
        (['group'], [], {'group.sbatch'}),
        (
            ['participant', 'group'],
            ['01', '02'],
            {'participant.sbatch', 'participants.txt', 'group.sbatch'},
        ),
    ],
)
def test_only_what_was_asked_for_is_written(config, levels, labels, names):
    written = write_jobs(replace(config, analysis_levels=tuple(levels)), labels, NEEDS, GROUP)
    assert {path.name for path in written} == names | {'submit.sh', 'options.toml'}
    assert written[0].name == 'submit.sh'


def test_what_a_job_asks_for(config):
    write_jobs(replace(config, slurm_partition='long'), ['01', '02', '03'], NEEDS, GROUP)
    participant = _directives(config.write_slurm / 'participant.sbatch')
    assert participant == {
        'job-name': 'surreal_participant',
        'cpus-per-task': '2',
        'mem': '6G',
        'time': '01:00:00',
        'output': f'{config.write_slurm}/logs/participant-%A_%a.log'.replace('50%', '50%%'),
        'partition': 'long',
        'array': '1-3',
    }
    group = _directives(config.write_slurm / 'group.sbatch')
    assert (group['cpus-per-task'], group['mem'], group['time']) == ('8', '16G', '1-00:00:00')


@pytest.mark.parametrize(('device', 'asked'), [('cuda', True), ('cpu', False), ('auto', False)])
def test_a_gpu_is_asked_for_with_cuda(config, device, asked, tmp_path):
    sif = tmp_path / 'app.sif'
    sif.touch()
    config = replace(config, device=device, slurm_container=sif)
    write_jobs(config, ['01'], NEEDS, GROUP)
    script = config.write_slurm / 'participant.sbatch'
    assert (_directives(script).get('gres') == 'gpu:1') is asked
    assert ('--nv' in script.read_text()) is asked


@pytest.mark.parametrize('n_participants', [1, 7, 1000, 1001, 2500])
def test_every_participant_is_in_one_task(config, n_participants, stand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, 'argv', [str(stand_in('app'))])
    monkeypatch.setattr(slurm, 'MOST_TASKS', n_participants if n_participants < 8 else 5)
    labels = [f'{number:04}' for number in range(n_participants)]
    write_jobs(config, labels, NEEDS, GROUP)
    script = config.write_slurm / 'participant.sbatch'
    first, last = map(int, _directives(script)['array'].split('-'))
    for task in range(first, last + 1):
        _run(script, task)
    given = [call[call.index('--participant-label') + 1 :] for call in _calls(tmp_path)]
    assert sorted(label for labels in given for label in labels) == labels
    assert max(map(len, given)) - min(map(len, given)) <= 1


@pytest.mark.parametrize(
    ('n_participants', 'people'), [(0, 1), (1, 1), (1000, 1), (1001, 2), (2500, 3)]
)
def test_large_datasets_have_several_people_a_task(n_participants, people):
    assert participants_per_task(n_participants) == people


def _estimate(config, jobs, nprocs):
    return Estimate(len(jobs), 1200.0 * len(jobs), nprocs, 3.0 * nprocs, 0.0, 0.0)


def _job(participant, session=None):
    return Job(T1wImage(participant, session, None, Path('T1w.nii.gz')), Reusable(), {})


@pytest.mark.parametrize(
    ('options', 'people', 'expected'),
    [
        ({}, 1, Needs(2, 6, '01:00:00')),
        ({}, 3, Needs(2, 6, '03:00:00')),
        ({'nprocs': 4}, 1, Needs(4, 12, '01:00:00')),
        ({'slurm_time': '10', 'slurm_memory': 9}, 3, Needs(2, 9, '10')),
    ],
)
def test_needs_follow_the_estimate_of_a_dry_run(config, options, people, expected, monkeypatch):
    monkeypatch.setattr(slurm, 'estimate', _estimate)
    assert estimate_task(replace(config, **options), [_job('01')], people) == expected


def test_all_sessions_of_a_person_are_one_task(config, monkeypatch):
    monkeypatch.setattr(slurm, 'estimate', _estimate)
    jobs = [_job('01', session) for session in 'abc'] + [_job('02', 'a')]
    assert estimate_task(config, jobs, per_task=1) == Needs(2, 6, '03:00:00')


def test_nobody_to_process_still_gives_needs(config):
    assert estimate_task(config, [], 1) == Needs(2, 6, '00:30:00')


def test_a_plain_job_calls_this_program(config, stand_in, tmp_path, monkeypatch):
    program = stand_in('run me.py')
    monkeypatch.setattr(sys, 'argv', [str(program)])
    write_jobs(config, ['01', '02'], NEEDS, GROUP)
    _run(config.write_slurm / 'participant.sbatch', task=2)
    _run(config.write_slurm / 'group.sbatch')
    options = ['--config-file', str(config.write_slurm / 'options.toml'), '--nprocs', '2']
    start = [str(program), str(config.bids_dir), str(config.output_dir)]
    assert _calls(tmp_path) == [
        [*start, 'participant', *options, '--mem-gb', '6', '--participant-label', '02'],
        [*start, 'group', *options, '--mem-gb', '16'],
    ]


@pytest.mark.parametrize('program', ['apptainer', 'singularity'])
def test_a_container_sees_what_it_needs_and_no_more(config, program, stand_in, tmp_path):
    stand_in(program)
    sif = tmp_path / 'app.sif'
    atlas = tmp_path / 'atlas'
    atlas.mkdir()
    sif.touch()
    config = replace(config, slurm_container=sif, atlas=str(atlas), derivatives=(f'x={atlas}',))
    config = replace(config, model=Path('ad'))  # published models are in the container
    write_jobs(config, ['01'], NEEDS, GROUP)
    _run(config.write_slurm / 'participant.sbatch', task=1)
    (call,) = _calls(tmp_path)
    before, after = call[: call.index(str(sif))], call[call.index(str(sif)) + 1 :]
    binds = [value for option, value in pairwise(before) if option == '-B']
    assert binds[0].endswith(':/tmp')
    assert binds[1:] == [
        *(f'{p}:{p}:ro' for p in (config.bids_dir, config.write_slurm, atlas)),
        *(f'{p}:{p}' for p in (config.output_dir, config.work_dir)),
    ]
    assert before[1:4] == ['run', '--containall', '--cleanenv']
    assert after[:3] == [str(config.bids_dir), str(config.output_dir), 'participant']
    assert config.work_dir.is_dir(), 'a folder that is bound has to be there'


def test_options_are_those_of_the_configuration(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'seg').mkdir()
    config = replace(
        config,
        covariates=('age', 'sex'),
        phenotype=(tmp_path.relative_to(tmp_path) / 'scores.tsv',),
        derivatives=('synthseg=seg',),
        model=Path('ageing'),
        atlas='seg',
        nprocs=4,
        slurm_time='04:00:00',
    )
    write_jobs(config, ['01'], NEEDS, GROUP)
    path = config.write_slurm / 'options.toml'
    options = AppConfig(**read_options(path))
    assert options.phenotype == (tmp_path / 'scores.tsv',)
    assert options.derivatives == (f'synthseg={tmp_path / "seg"}',)
    assert options.derivatives_optional, 'one participant may have nothing there'
    assert options.atlas == str(tmp_path / 'seg')
    assert options.model == Path('ageing')
    assert options.template == config.template
    assert options.covariates == config.covariates
    assert not [name for name in tomllib.loads(path.read_text()) if 'slurm' in name]
    assert options.nprocs is None, 'the scheduler tells'


def test_submission_makes_the_group_wait_for_everyone(config, stand_in, tmp_path):
    stand_in('sbatch').write_text(STAND_IN + "print('17;lab')\n")
    write_jobs(config, ['01'], NEEDS, GROUP)
    shown = subprocess.run(
        [config.write_slurm / 'submit.sh', '--account=me'], check=True, capture_output=True
    ).stdout.decode()
    assert [call[1:] for call in _calls(tmp_path)] == [
        ['--parsable', '--account=me', 'participant.sbatch'],
        ['--parsable', '--dependency=afterany:17', '--account=me', 'group.sbatch'],
    ]
    assert shown == 'participant level: job 17\ngroup level: job 17\n'


@pytest.mark.parametrize(
    ('wrong', 'message'),
    [
        ({'use_plugin': 'plugin.yml'}, '--use-plugin'),
        ({'slurm_time': 'soon'}, '--slurm-time soon'),
        ({'slurm_container': 'none.sif'}, 'none.sif: no such file'),
    ],
)
def test_what_cannot_work_is_said(config, wrong, message, tmp_path):
    paths = ('use_plugin', 'slurm_container')
    options = {n: tmp_path / value if n in paths else value for n, value in wrong.items()}
    with pytest.raises(UsageError, match=message):
        write_slurm(replace(config, **options), None)
    assert not config.write_slurm.exists()


def test_a_path_that_apptainer_cannot_bind(config, tmp_path):
    (tmp_path / 'app.sif').touch()
    config = replace(config, slurm_container=tmp_path / 'app.sif', output_dir=tmp_path / 'out:put')
    with pytest.raises(UsageError, match='out:put: apptainer cannot bind'):
        write_jobs(config, ['01'], NEEDS, GROUP)


@pytest.fixture
def dataset(make_dataset):
    rows = [f'sub-{number:02}\t{"PT" if number % 2 else "CN"}' for number in range(1, 21)]
    root = make_dataset(*IMAGES, participants='\n'.join(['participant_id\tdiagnosis', *rows, '']))
    (root / IMAGES[1]).write_bytes(b'no image')
    return root


@pytest.mark.parametrize('levels', [['participant'], ['participant', 'group'], ['group']])
def test_the_command_writes_jobs_and_runs_nothing(dataset, tmp_path, levels, capsys):
    jobs = tmp_path / 'jobs'
    code = main([str(dataset), str(tmp_path / 'out'), *levels, '--write-slurm', str(jobs)])
    shown = capsys.readouterr().out
    assert code == 0
    assert ('This will fail: sub-02' in shown) == ('participant' in levels)
    assert shown.endswith(f'Submit with {jobs / "submit.sh"}\n')
    assert not (tmp_path / 'out').exists()
    if 'participant' in levels:
        assert (jobs / 'participants.txt').read_text() == '01\n02\n03\n'
    else:
        assert not (jobs / 'participant.sbatch').exists()


def test_who_is_done_or_has_no_image_is_not_in_the_jobs(dataset, tmp_path, capsys):
    (dataset / 'sub-04').mkdir()
    table = dataset / 'participants.tsv'
    table.write_text(table.read_text().replace('sub-01', 'sub-77'))
    config = AppConfig(dataset, tmp_path / 'out', ('participant', 'group'))
    job = make_plan(config, survey_dataset(config)).jobs[0]
    finish(config, job)
    words = ['participant', 'group', '--write-slurm', str(tmp_path / 'jobs')]
    assert main([str(dataset), str(tmp_path / 'out'), *words]) == 0
    out, err = capsys.readouterr()
    assert (tmp_path / 'jobs' / 'participants.txt').read_text() == '02\n03\n'
    assert 'This will fail: sub-02' in out
    assert 'Not in the jobs: sub-04: no T1w image' in out
    assert 'sub-01' not in out
    assert 'sub-01: no row in participants.tsv' in err


@pytest.mark.parametrize('levels', [['participant'], ['participant', 'group']])
def test_a_dry_run_that_would_write_jobs_is_refused(dataset, tmp_path, levels, capsys):
    words = [*levels, '--write-slurm', str(tmp_path / 'jobs'), '--dry-run']
    assert main([str(dataset), str(tmp_path / 'out'), *words]) == 2
    assert '--write-slurm writes scripts of jobs; remove one' in capsys.readouterr().err
    assert not (tmp_path / 'jobs').exists()


def test_no_jobs_are_written_where_the_group_level_could_not_run(dataset, tmp_path, capsys):
    (dataset / 'participants.tsv').unlink()
    words = ['participant', 'group', '--write-slurm', str(tmp_path / 'jobs')]
    assert main([str(dataset), str(tmp_path / 'out'), *words]) == 65
    assert 'participants.tsv: no such file' in ''.join(capsys.readouterr())
    assert not (tmp_path / 'jobs').exists()


def test_a_table_needs_no_images(make_dataset, tmp_path, capsys):
    rng = np.random.default_rng(0)
    names = [f'sub-{number:02}' for number in range(40)]
    groups = [f'{name}\t{"CN" if n % 2 else "PT"}' for n, name in enumerate(names)]
    root = make_dataset(participants='\n'.join(['participant_id\tdiagnosis', *groups, '']))
    volumes = pd.DataFrame(rng.normal(3500, 300, (40, 4)), names, [47, 48, 23, 30])
    volumes.to_csv(tmp_path / 'volumes.tsv', sep='\t', index_label='participant_id')
    options = [
        '--roi-table',
        str(tmp_path / 'volumes.tsv'),
        '--write-slurm',
        str(tmp_path / 'jobs'),
    ]
    assert main([str(root), str(tmp_path / 'out'), 'group', *options]) == 0
    assert 'group.sbatch' in {path.name for path in (tmp_path / 'jobs').iterdir()}
    assert capsys.readouterr().out == f'Submit with {tmp_path / "jobs" / "submit.sh"}\n'


EXAMPLE = Path(__file__).resolve().parents[2] / 'singularity' / 'slurm'


@pytest.mark.parametrize('name', ['participant.sbatch', 'group.sbatch', 'submit.sh'])
def test_the_example_is_what_the_program_writes(name, tmp_path):
    config = AppConfig(
        bids_dir=Path('/data/study'),
        output_dir=Path('/data/derivatives/surreal_bids'),
        analysis_levels=('participant', 'group'),
        work_dir=Path('/scratch/surreal_bids'),
        write_slurm=tmp_path,
        slurm_partition='normal',
        slurm_container=Path('/images/surreal_bids.sif'),
    )
    write_jobs(config, ['01', '02', '03'], Needs(2, 6, '00:30:00'), slurm.GROUP_NEEDS)
    written = (tmp_path / name).read_text().replace(str(tmp_path), '/data/jobs')
    assert written == (EXAMPLE / name).read_text()
