import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nipype import IdentityInterface, Node, Workflow

from surreal_bids.bids.derivatives import Reusable
from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.outputs import record_path, write_record
from surreal_bids.cli import participants
from surreal_bids.cli.app import main
from surreal_bids.cli.participants import ImageSteps
from surreal_bids.cli.plan import Job, Plan
from surreal_bids.cli.simulate import main as simulate
from surreal_bids.config import AppConfig
from surreal_bids.files import sole_use, write_image
from surreal_bids.reports.participant import ERRORS, read_parts
from tests.bids.test_outputs import validation_errors
from tests.cli.tiny_study import write_study
from tests.interfaces import phantom

pytestmark = pytest.mark.slow

RUN_PY = Path(__file__).resolve().parents[2] / 'run.py'
T1W = 'sub-{0}/anat/sub-{0}_T1w.nii.gz'
ANAT = [
    'desc-brain_mask.json',
    'desc-brain_mask.nii.gz',
    'desc-preproc_T1w.json',
    'desc-preproc_T1w.nii.gz',
    'desc-quality_T1w.json',
    'from-MNI152NLin2009cAsym_to-T1w_mode-image_xfm.nii.gz',
    'from-T1w_to-MNI152NLin2009cAsym_mode-image_xfm.nii.gz',
    *(f'label-{tissue}_probseg.nii.gz' for tissue in ('CSF', 'GM', 'WM')),
    *(f'seg-halves_dseg.{extension}' for extension in ('json', 'nii.gz', 'tsv')),
    *(
        f'space-MNI152NLin2009cAsym_label-{tissue}_ravens.{extension}'
        for tissue in ('CSF', 'GM', 'WM')
        for extension in ('json', 'nii.gz')
    ),
]


def _contents(root):
    """Voxels and tables of all outputs, in a form that can be compared."""
    content = {}
    for path in sorted(root.rglob('*')):
        if path.name.endswith('.nii.gz'):
            content[path.relative_to(root)] = nib.Nifti1Image.from_filename(path).get_fdata()
        elif path.suffix == '.tsv':
            content[path.relative_to(root)] = path.read_bytes()
    return content


def _times(root):
    outputs = (path for path in root.rglob('*') if path.is_file() and 'logs' not in path.parts)
    return {path: path.stat().st_mtime_ns for path in outputs if path.parent != root}


def _run_until(arguments, log, text):
    """Run the app in processes of its own, and kill them all once the log has a text."""
    process = subprocess.Popen([sys.executable, RUN_PY, *arguments], start_new_session=True)
    for _ in range(3000):
        if log.is_file() and text in log.read_text():
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_killed_in_the_middle_it_resumes_with_the_same_result(tmp_path, capsys):
    whole = write_study(tmp_path / 'whole', T1W.format('01'))
    assert main(whole) == 0
    assert '1 of 1 image done (1 now' in capsys.readouterr().out
    root = tmp_path / 'whole' / 'out'
    anat = root / 'sub-01' / 'anat'
    assert sorted(path.name for path in anat.iterdir()) == [f'sub-01_{name}' for name in ANAT]
    assert (root / 'sub-01.html').stat().st_size > 10_000
    before = _times(root)
    assert main(whole) == 0
    assert _times(root) == before, 'the second call does nothing'
    assert '1 of 1 image done (nothing to do); see' in capsys.readouterr().out
    assert main([*whole, '--dry-run']) == 0
    assert 'To process: 0 images; already done: 1\n' in capsys.readouterr().out

    killed = write_study(tmp_path / 'killed', T1W.format('01'))
    log = tmp_path / 'killed' / 'out' / 'logs' / 'sub-01.log'
    _run_until(killed, log, 'register_atlas[0]: started')
    assert not (tmp_path / 'killed' / 'out' / 'sub-01.html').exists()
    assert main(killed) == 0
    assert 'n4: ready' in log.read_text(), 'what was done is kept'
    expected, found = _contents(root), _contents(tmp_path / 'killed' / 'out')
    assert list(found) == list(expected)
    for name, content in expected.items():
        if isinstance(content, bytes):
            assert found[name] == content, name
        else:
            np.testing.assert_allclose(found[name], content, atol=1e-6, err_msg=str(name))
    assert validation_errors(root) == []


@pytest.fixture
def unfinished(monkeypatch):
    """Workflows that were to be run, but are not."""
    workflows = []
    monkeypatch.setattr(participants, 'run_workflows', lambda all_of, *_: workflows.extend(all_of))
    return workflows


@pytest.mark.usefixtures('unfinished')
def test_whoever_was_not_finished_is_told_even_without_a_crash(tmp_path, capsys):
    names = [f'sub-01_ses-{s}' for s in 'ab']
    images = [f'sub-01/ses-{s}/anat/sub-01_ses-{s}_T1w.nii.gz' for s in 'ab']
    assert main([*write_study(tmp_path, *images), '--clean-on-success']) == 1
    told = capsys.readouterr().out
    assert [line.split()[:2] for line in told.splitlines()[1:3]] == [[n, 'outputs'] for n in names]
    assert told.count('the run ended early; rerun the command') == 2
    page = (tmp_path / 'out' / 'sub-01.html').read_text()
    assert all(f'{name}, outputs' in page for name in names)


@pytest.fixture
def recorded(monkeypatch):
    """Images that were processed, in order, of runs that only write records; and what is called."""
    jobs, events = {}, SimpleNamespace(processed=[], before={})

    def plan_one(config, study, job):
        jobs[job.workflow_name] = job
        workflow = Workflow(job.workflow_name)
        workflow.add_nodes([Node(IdentityInterface(['x']), name='step')])
        return workflow

    def run_all(workflows, config, finished, *_):
        for first in workflows:
            workflow = first
            while workflow is not None:
                for name in (
                    workflow.list_node_names() if workflow.name == 'participants_wf' else ()
                ):
                    job = jobs[name.partition('.')[0]]
                    events.before.pop(job.participant, bool)()
                    path = record_path(config.output_dir, job.image.visit)
                    write_record(path, config.output_dir, job.made_from, [])
                    events.processed.append(job.image.name)
                workflow = finished(workflow, [])

    monkeypatch.setattr(participants, 'make_workflow', plan_one)
    monkeypatch.setattr(participants, 'run_workflows', run_all)
    monkeypatch.setattr(participants, 'write_citation', lambda *_: None)
    return events


def test_a_participant_in_use_does_not_stop_the_others(tmp_path, recorded, capsys):
    arguments = write_study(tmp_path, *map(T1W.format, ('01', '02', '03')))
    out = tmp_path / 'out'
    with sole_use('sub-02', out):
        assert main(arguments) == 1
    said = capsys.readouterr().out
    assert re.search(r'^sub-02 +lock +.*/out: another run is using it for sub-02; wait', said, re.M)
    assert '2 of 3 images done (2 now, 2 reports written)' in said
    assert 'Details are in' not in said, 'the log belongs to the other run'
    assert recorded.processed == ['sub-01', 'sub-03']
    assert not (out / 'logs' / 'sub-02.log').exists()
    lock = ExitStack()
    lock.enter_context(sole_use('sub-02', out))
    (out / 'logs' / 'sub-03_desc-outputs_record.json').unlink()
    recorded.before['03'] = lock.close
    assert main(arguments) == 0, 'it was free when the others were done'
    assert recorded.processed[2:] == ['sub-03', 'sub-02']


def test_two_runs_share_the_participants(tmp_path, recorded, capsys):
    """One starts while the other processes the second participant."""
    arguments, codes = write_study(tmp_path, *(T1W.format(f'{n:02}') for n in range(1, 7))), []
    recorded.before['02'] = lambda: codes.append(main([*arguments, '--nprocs', '1']))
    codes.append(main(arguments))
    assert codes == [1, 0], 'the second run ends before the second participant is done'
    assert sorted(recorded.processed) == [f'sub-{number:02}' for number in range(1, 7)]
    told = re.findall(r'(\d) of 6 images done \((\d) now', capsys.readouterr().out)
    assert told == [('5', '4'), ('6', '2')]


def test_a_log_does_not_follow_a_link(tmp_path):
    stored = tmp_path / 'annex' / 'log'
    stored.parent.mkdir()
    stored.write_text('stored')
    log = tmp_path / 'logs' / 'sub-01.log'
    log.parent.mkdir()
    log.symlink_to(stored)
    participants.append_to_log(log, 'began')
    assert log.read_text().endswith(' began\n')
    assert stored.read_text() == 'stored'


@pytest.mark.usefixtures('unfinished')
def test_a_run_tells_how_long_it_takes_and_logs_who_fails_the_check(tmp_path, capsys):
    runs = [f'sub-01/anat/sub-01_run-{number}_T1w.nii.gz' for number in (1, 2)]
    arguments = write_study(tmp_path, *runs, T1W.format('02'))
    for options, expected in (([], 1), (['-q'], 0), (['--reports-only'], 0)):
        assert main([*arguments, *options]) == 1
        assert capsys.readouterr().err.count('Processing 2 images. Estimate') == expected
    (tmp_path / 'dataset' / T1W.format('02')).write_bytes(b'')
    for name in ('sub-03', 'sub-0_4'):
        (tmp_path / 'dataset' / name).mkdir()
    assert main(arguments) == 1
    logs = tmp_path / 'out' / 'logs'
    assert capsys.readouterr().out.endswith(f'Details are in {logs}.\n')
    said = {path.stem: path.read_text() for path in logs.glob('*.log')}
    assert sorted(said) == ['sub-01', 'sub-02', 'sub-03']
    assert re.search(f'not the first image of the session: .*{runs[1]}', said['sub-01'])
    assert re.search('check: .*convert it again', said['sub-02'])
    assert 'check: no T1w image' in said['sub-03']
    assert main([*arguments, '--participant-label', '02']) == 1
    assert 'convert it again' in capsys.readouterr().out


@pytest.mark.usefixtures('unfinished')
def test_intermediate_results_of_another_image_are_not_used(tmp_path):
    """Another image with the same name, size and time."""
    arguments = write_study(tmp_path, T1W.format('01'))
    assert main(arguments) == 1
    (stored,) = tmp_path.rglob(participants.MADE_FROM)
    step = stored.with_name('step')
    crash = tmp_path / 'out' / 'logs' / 'sub-01_desc-n4_crash.txt'
    for each in (step, crash):
        each.touch()
    assert main(arguments) == 1
    assert (step.exists(), crash.exists()) == (True, False)
    image = tmp_path / 'dataset' / T1W.format('01')
    before, content = image.stat(), image.read_bytes()
    image.write_bytes(content[:5] + b'\1' + content[6:])
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert main(arguments) == 1
    assert not step.exists()


def test_atlases_may_be_called_as_participants_are(unfinished, tmp_path):
    arguments = write_study(tmp_path, T1W.format('01'), T1W.format('02'))
    for path in (tmp_path / 'halves').glob('a_*'):
        path.rename(path.with_name(path.name.replace('a_', 'sub-01_')))
    assert main(arguments) == 1
    for name, workflow in zip(('sub-01', 'sub-02'), unfinished):
        node = workflow.get_node(f'{name}.segmentation_wf.register_atlas')
        assert len(node.inputs.atlas_t1w) == 2


def test_reports_do_not_look_for_regions_that_were_not_made(tmp_path):
    options = {'segmentation': 'network', 'labels': 'files'}
    job = Job(T1wImage('01', None, None, Path('t1w')), Reusable(), {'options': options})
    config = AppConfig(tmp_path, tmp_path, ('participant',), reports_only=True)
    for changed, is_other in (({'labels': 'other files'}, False), ({'segmentation': 'muse'}, True)):
        made_from = {'version': '1', 'options': options | changed}
        write_record(record_path(tmp_path, ('01', None)), tmp_path, made_from, [])
        processing = participants.Processing(config, None, Plan([job], [], []))
        found = ['made with another segmentation' in each.reason for each in processing._problems]
        assert found == ([True] if is_other else [])
        assert processing._done('01') == ([] if is_other else [job])


def test_what_exists_is_used_and_bad_people_do_not_stop_others(tmp_path, capsys):
    names = [f'sub-01/ses-{s}/anat/sub-01_ses-{s}_T1w.nii.gz' for s in 'ab']
    arguments = write_study(tmp_path, *names, T1W.format('02'), T1W.format('03'))
    dataset, out = tmp_path / 'dataset', tmp_path / 'out'
    (dataset / T1W.format('02')).write_bytes((dataset / T1W.format('02')).read_bytes()[:2000])
    path = dataset / names[0]
    values = nib.Nifti1Image.from_filename(path).get_fdata(dtype=np.float32)
    values[0, 0, 0] = np.nan
    write_image(path, nib.Nifti1Image(values, phantom.AFFINE))
    blank = nib.Nifti1Image(np.pad(np.ones((2, 2, 2), np.int16), 10), phantom.AFFINE)
    write_image(dataset / T1W.format('03'), blank)
    for session in 'ab':
        folder = tmp_path / 'dlmuse' / 'sub-01' / f'ses-{session}' / 'anat'
        write_image(folder / f'sub-01_ses-{session}_dseg.nii.gz', phantom.labels())
    code = main([*arguments, '-d', f'dlmuse={tmp_path / "dlmuse"}', '--clean-on-success'])
    told = capsys.readouterr().out
    assert code == 1
    *table, done, _ = told.splitlines()
    failures = {line.split()[0]: line.split()[1] for line in table[1:]}
    assert failures == {'sub-02': 'check', 'sub-03': 'find_brain'}
    assert done.startswith('2 of ')
    assert (out / 'logs' / 'sub-03_desc-findbrain_crash.txt').is_file()
    work = tmp_path.glob('work/*/participants_wf/sub-*')
    assert [path.name for path in work] == ['sub-03']
    begun = datetime.fromisoformat((out / 'logs' / 'sub-03.log').read_text()[:19])
    report = (out / 'sub-01.html').stat().st_mtime
    assert begun.timestamp() >= int(report), 'sub-01 is finished and reported before sub-03 begins'
    for session in 'ab':
        stem = out / 'sub-01' / f'ses-{session}' / 'anat' / f'sub-01_ses-{session}'
        table = pd.read_csv(f'{stem}_seg-dlmuse_dseg.tsv', sep='\t').set_index('index')
        voxels = (np.asarray(phantom.labels().dataobj) == 47).sum()
        assert table.loc[47, 'volume_mm3'] == pytest.approx(64 * voxels)
        sidecar = json.loads(Path(f'{stem}_seg-dlmuse_dseg.json').read_text())
        assert sidecar['Sources'][0].startswith('bids:dlmuse:sub-01/ses-')
    assert 'ses-a' in (out / 'sub-01.html').read_text()
    assert validation_errors(out) == []
    (out / 'sub-01.html').unlink()
    again = [*arguments, '-d', f'dlmuse={tmp_path / "dlmuse"}', '--reports-only']
    assert main([*again, '--participant-label', '01', '03']) == 1
    assert 'sub-03' in capsys.readouterr().out
    (out / 'sub-01.html').unlink()
    assert main([*again, '--participant-label', '01', '--session-label', 'b']) == 0
    page = (out / 'sub-01.html').read_text()
    assert 'ses-a' in page, 'a session that was not asked for stays on the page'
    assert 'voxels are NaN or infinite' in page, 'warnings of steps are shown'


@pytest.fixture(scope='module')
def heads(tmp_path_factory):
    """A simulated head and two atlases; skull removed as the truth has it."""
    root = tmp_path_factory.mktemp('heads')
    simulated = ['cohort', str(root), '--n-cn', '1', '--n-pt', '0', '--atlases', '2']
    assert simulate([*simulated, '--voxel-size', '3', '--nprocs', '1']) == 0
    path = root / T1W.format('CN0001')
    truth = root / 'sourcedata' / 'truth' / 'sub-CN0001'
    mask = truth / 'sub-CN0001_desc-brain_mask.nii.gz'
    head, brain = (nib.Nifti1Image.from_filename(each) for each in (path, mask))
    values = np.asarray(head.dataobj) * (np.asarray(brain.dataobj) > 0)
    write_image(path, nib.Nifti1Image(values, head.affine, head.header))
    return root


def test_simulated_heads_from_start_to_end(heads, tmp_path, capsys):
    out, source = tmp_path / 'out', heads / 'sourcedata'
    options = ['--segmentation', source / 'atlases', '--template-resolution', 3, '--nprocs', 1]
    arguments = [heads, out, 'participant', *options, '-w', tmp_path / 'work']
    assert main(list(map(str, arguments))) == 0
    report = out / 'sub-CN0001.html'
    assert 'network and registration were tested up to 2 mm' in report.read_text()
    table = pd.read_csv(out / 'sub-CN0001/anat/sub-CN0001_seg-atlases_dseg.tsv', sep='\t')
    truth = pd.read_csv(source / 'truth' / 'volumes.tsv', sep='\t')
    truth = truth[truth['participant_id'] == 'sub-CN0001'].set_index('index')['achieved_mm3']
    ratio = (table.set_index('index')['volume_mm3'] / truth).dropna()
    assert len(ratio) > 120
    assert ratio.median() == pytest.approx(1, abs=0.05)
    # Not of small deep regions, which have few voxels of 3 mm, most of them mixed with others.
    assert ((ratio - 1).abs() < 0.15).mean() > 0.85
    t1w = nib.Nifti1Image.from_filename(heads / 'sub-CN0001/anat/sub-CN0001_T1w.nii.gz')
    corner = np.zeros(t1w.shape, np.uint8)
    corner[:2, :2, :2] = 1
    masks = tmp_path / 'masks'
    masks.mkdir()
    write_image(masks / 'sub-CN0001_label-lesion_mask.nii.gz', nib.Nifti1Image(corner, t1w.affine))
    assert main([*map(str, arguments), '-d', f'lesions={masks}']) == 1
    assert 'no voxel of the lesion mask is in the brain' in capsys.readouterr().out
    assert list(read_parts(out, 'CN0001')) == [ERRORS], 'results that are out of date are gone'


def test_images_that_are_done_or_failed_are_counted_as_they_end(tmp_path, monkeypatch):
    """A line said "1 of 14 done, 1 failed" while eight were complete."""
    logs = {name: tmp_path / 'logs' / f'{name}.log' for name in ('sub-01', 'sub-02')}
    workflow = Workflow('sub-01')
    workflow.add_nodes(
        [Node(IdentityInterface(['x']), name=n) for n in ('n4', 'mask', 'inputnode')]
    )
    progress = ImageSteps(logs)
    progress.expect('sub-01', workflow)
    told = []
    monkeypatch.setattr(participants, 'report', lambda *each: told.append(each))
    progress(('all', 'sub-01', 'n4'), 'start')
    progress(('all', 'sub-01', 'n4'), 'end')
    progress.finish('sub-01', failed=True)
    progress(('reports', 'elsewhere', 'report'), 'running')
    progress.finish('sub-02', failed=False)
    assert [each for *each, _ in told] == [[0, 2], [1 / 3, 2], [1, 2], [1, 2], [2, 2]]
    texts = ['0 of 2 images done'] * 2 + ['0 of 2 images done, 1 failed'] * 2
    assert [text for *_, text in told] == [*texts, '1 of 2 images done, 1 failed']
