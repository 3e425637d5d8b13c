"""Simulated cohorts: who is in them, what is written, and how an interrupted one resumes."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.cli.simulate import main
from surreal_bids.exceptions import OutputError, UsageError
from surreal_bids.imaging.quality import NORM_AGES
from surreal_bids.simulation import cohort
from surreal_bids.simulation.cohort import (
    CohortPlan,
    Simulator,
    collect_volumes,
    participants_table,
    sample_people,
    severity_table,
    start_dataset,
    volumes_path,
    write_person,
    write_regions,
    write_tables,
)
from tests.simulation.phantom import phantom

PLAN = CohortPlan(n_cn=5, n_pt=7, sites=3, patterns=2, atlases=2, seed=3)


@pytest.mark.parametrize(
    'change',
    [{'n_cn': -1}, {'n_cn': 0, 'n_pt': 0}, {'sites': 0}, {'seed': -1}, {'atlases': 10_000}],
)
def test_impossible_plans_are_refused(change):
    with pytest.raises(UsageError, match='--'):
        replace(PLAN, **change)


def test_participants_are_described_and_atlases_are_none():
    table = participants_table(sample_people(PLAN))
    assert list(table) == ['participant_id', 'age', 'sex', 'diagnosis', 'site']
    assert table['diagnosis'].value_counts().to_dict() == {'PT': 7, 'CN': 5}
    assert set(table['site']) == {'site1', 'site2', 'site3'}
    assert table['participant_id'].is_unique
    assert table['age'].between(*NORM_AGES).all()


def test_only_patients_have_severities():
    people = sample_people(replace(PLAN, n_pt=400))
    table = severity_table(people).set_index('participant_id')
    patients = table.index.str.startswith('sub-PT')
    assert (table[~patients] == 0).all(axis=None)
    severities = table[patients].to_numpy()
    assert severities.min() >= 0
    assert severities.max() <= 1
    np.testing.assert_allclose(severities.mean(axis=0), 0.5, atol=0.05)
    np.testing.assert_allclose(severities.std(axis=0), np.sqrt(1 / 12), atol=0.03)
    assert abs(np.corrcoef(severities.T)[0, 1]) < 0.15


HEADS = CohortPlan(n_cn=1, n_pt=2, sites=2, patterns=1, voxel_size=2.0, atlases=1, seed=5)


@pytest.fixture(scope='module')
def phantom_simulator():
    return Simulator(phantom(2.0))


@pytest.fixture
def use_phantom(monkeypatch, phantom_simulator):
    monkeypatch.setattr(cohort, 'load_simulator', lambda voxel_size: phantom_simulator)


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob('*') if p.is_file()}


@pytest.mark.slow
@pytest.mark.usefixtures('use_phantom')
def test_people_are_written_with_their_truth(tmp_path):
    people = sample_people(HEADS)
    for person in people:
        write_person(tmp_path, HEADS, person)
    collect_volumes(tmp_path, people[:3])
    names = set(contents(tmp_path))
    assert {
        'sub-PT0001/anat/sub-PT0001_T1w.nii.gz',
        'sub-PT0001/anat/sub-PT0001_T1w.json',
        'sourcedata/truth/sub-PT0001/sub-PT0001_dseg.nii.gz',
        'sourcedata/truth/sub-PT0001/sub-PT0001_desc-brain_mask.nii.gz',
        'sourcedata/atlases/atlas-0001_T1w.nii.gz',
        'sourcedata/atlases/atlas-0001_dseg.nii.gz',
    } <= names
    volumes = pd.read_csv(tmp_path / 'sourcedata/truth/volumes.tsv', sep='\t')
    patients = volumes[volumes['participant_id'].str.startswith('sub-PT')]
    hippocampus = patients[patients['index'] == 47]
    assert (hippocampus['loss'] - hippocampus['prescribed_loss']).abs().max() < 0.001
    assert (volumes.query('participant_id == "sub-CN0001"')['loss'] == 0).all()


@pytest.mark.usefixtures('use_phantom')
def test_a_person_is_the_same_to_the_last_byte_in_any_cohort(tmp_path):
    person = sample_people(HEADS)[1]
    write_person(tmp_path / 'one', HEADS, person)
    write_person(tmp_path / 'other', replace(HEADS, n_cn=4, n_pt=5, atlases=0), person)
    assert contents(tmp_path / 'one') == contents(tmp_path / 'other')


@pytest.mark.usefixtures('use_phantom')
@pytest.mark.parametrize('stripped', [True, False])
def test_heads_have_a_skull_unless_they_are_stripped(tmp_path, stripped):
    write_person(tmp_path, replace(HEADS, stripped=stripped), sample_people(HEADS)[0])
    image, brain = (
        np.asarray(nib.load(tmp_path / path).dataobj)
        for path in (
            'sub-CN0001/anat/sub-CN0001_T1w.nii.gz',
            'sourcedata/truth/sub-CN0001/sub-CN0001_desc-brain_mask.nii.gz',
        )
    )
    assert (image[brain == 0] == 0).all() == stripped
    assert (image[brain > 0] > 0).mean() > 0.99
    described = json.loads((tmp_path / 'sub-CN0001/anat/sub-CN0001_T1w.json').read_text())
    assert described['SkullStripped'] == stripped


def test_tables_describe_their_columns(tmp_path):
    template = phantom(2.0)
    patterns = pd.DataFrame({'pattern': [1], 'pattern_name': 'x', 'index': 47, 'name': 'y'})
    write_tables(tmp_path, HEADS, sample_people(HEADS))
    write_regions(tmp_path, HEADS, template.labels, patterns)
    for table in ('participants', 'sourcedata/truth/severities', 'sourcedata/truth/regions'):
        columns = pd.read_csv(tmp_path / f'{table}.tsv', sep='\t').columns
        described = json.loads((tmp_path / f'{table}.json').read_text())
        assert set(columns) - {'participant_id'} <= set(described)
    regions = pd.read_csv(tmp_path / 'sourcedata/truth/regions.tsv', sep='\t').set_index('index')
    assert regions['adjacent_to'].to_dict()[51] == 1
    assert (tmp_path / 'sourcedata/atlases/dseg.tsv').is_file()


def test_the_same_plan_is_taken_up_again_and_leftovers_go(tmp_path):
    start_dataset(tmp_path / 'out', HEADS)
    leftover = tmp_path / 'out' / '.0a1b2c3d.sub-PT0001_T1w.nii.gz'
    leftover.write_bytes(b'half')
    start_dataset(tmp_path / 'out', HEADS)
    assert not leftover.exists()


def test_another_plan_in_the_folder_is_refused(tmp_path):
    start_dataset(tmp_path, HEADS)
    with pytest.raises(OutputError, match=r'n_cn 1 .* seed 5 \(now 6\)'):
        start_dataset(tmp_path, replace(HEADS, n_cn=3, seed=6))


def _kill_after_the_first_head(command: list[str], out: Path, plan: CohortPlan) -> None:
    process = subprocess.Popen(command, start_new_session=True)
    done = [volumes_path(out, person) for person in sample_people(plan)]
    try:
        while process.poll() is None and not any(path.exists() for path in done):
            time.sleep(0.1)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_a_killed_cohort_is_completed_and_valid(tmp_path):
    out = tmp_path / 'out'
    plan = CohortPlan(n_cn=1, n_pt=1, sites=2, patterns=2, voxel_size=4.0, atlases=1, seed=1)
    words = (
        '--n-cn 1 --n-pt 1 --sites 2 --patterns 2 --voxel-size 4 --atlases 1 --seed 1 --nprocs 1'
    )
    arguments = ['cohort', str(out), *words.split()]
    code = 'import sys; from surreal_bids.cli.simulate import main; sys.exit(main())'
    _kill_after_the_first_head([sys.executable, '-c', code, *arguments], out, plan)
    finished = {path: path.stat().st_mtime_ns for path in out.glob('sub-*/anat/*.nii.gz')}
    assert main(arguments) == 0
    people = sample_people(plan)
    assert all(volumes_path(out, person).is_file() for person in people)
    first = out / 'sub-CN0001/anat/sub-CN0001_T1w.nii.gz'
    assert first.stat().st_mtime_ns == finished[first], 'what was complete is kept'
    volumes = pd.read_csv(out / 'sourcedata/truth/volumes.tsv', sep='\t')
    atrophied = volumes[volumes['prescribed_loss'] > 0]
    assert (atrophied['loss'] - atrophied['prescribed_loss']).abs().max() < 0.005
    report = subprocess.run(
        [Path(sys.executable).with_name('bids-validator-deno'), '--format', 'json', out],
        capture_output=True,
        check=False,
    )
    issues = json.loads(report.stdout)['issues']['issues']
    assert [issue for issue in issues if issue['severity'] == 'error'] == []
