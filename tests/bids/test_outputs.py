import itertools
import json
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids import __version__
from surreal_bids.bids.outputs import (
    Record,
    digest_of_records,
    discard_outputs,
    fingerprint,
    link_to,
    other_source,
    output_names,
    output_path,
    record_path,
    sidecar_path,
    start_dataset,
    write_record,
    write_sidecar,
)
from surreal_bids.exceptions import UsageError
from surreal_bids.files import write_image, write_text, write_tsv

GOLDEN = Path(__file__).with_name('golden_outputs.txt')
EXAMPLES = {
    'participant': ['01'],
    'session': [None, 'pre'],
    'atlas': ['muse'],
    'contrast': ['r1'],
    'figure': ['brain'],
    'step': ['n4'],
}


def _entities(row):
    """Every combination of the values that a name's entities can take in this test."""
    choices = [row.allowed.get(entity) or EXAMPLES[entity] for entity in row.entities]
    for values in itertools.product(*choices):
        yield dict(zip(row.entities, values))


def _all_outputs(root):
    for name, row in output_names().items():
        for entities in _entities(row):
            yield name, row, output_path(root, name, **entities)


def test_golden_listing():
    listed = []
    for _, row, path in _all_outputs('.'):
        listed += [path, sidecar_path(path)] if row.metadata is not None else [path]
    names = sorted(set(map(str, listed)))
    assert names == GOLDEN.read_text().splitlines()


def test_each_row_is_sound():
    for name, row in output_names().items():
        assert row.level in {'dataset', 'participant', 'group'}
        assert row.content
        assert set(row.allowed) <= set(row.entities)
        if name != 'deviation_map':  # Of participants, by the group level.
            assert ('participant' in row.entities) == (row.level == 'participant')
        with pytest.raises(KeyError, match='colour'):
            output_path('.', name, colour='red')


def test_only_labels_are_values():
    for entity in ('participant', 'session', 'atlas'):
        for value in ('', '..', '../x', '/etc', 'a/b', 'a_b', 'a-b', 'a.b', 'a\n', 'ä', 'a\x00'):
            entities = {'participant': '01', 'session': '1', 'atlas': 'muse', entity: value}
            with pytest.raises(UsageError, match=f'{entity} .*use only letters'):
                output_path('.', 'segmentation', **entities)
    with pytest.raises(UsageError, match="tissue 'gm'"):
        output_path('.', 'tissue_probability', participant='01', tissue='gm')


def test_sidecars_are_beside_and_hold_what_they_must(tmp_path):
    assert sidecar_path('x.y/sub-01_dseg.nii.gz') == Path('x.y/sub-01_dseg.json')
    path = output_path(tmp_path, 'brain_mask', participant='01')
    with pytest.raises(KeyError, match='Sources'):
        write_sidecar('brain_mask', path, {'Type': 'Brain'})
    assert not list(tmp_path.iterdir())


def test_outputs_of_a_killed_group_run_are_deleted(tmp_path):
    """With half-written files and sidecars without a table; outputs of participants stay."""
    rindices = output_path(tmp_path, 'rindices')
    rindices.parent.mkdir()
    kept = tmp_path / 'sub-01.html'
    for path in (rindices.with_suffix('.json'), rindices.with_name('.0a1b2c3d.rindices.tsv'), kept):
        path.touch()
    discard_outputs(tmp_path)
    assert [path for path in tmp_path.rglob('*') if path.is_file()] == [kept]


def test_links_to_what_earlier_runs_used_stay(tmp_path):
    out = tmp_path / 'out'
    start_dataset(out, tmp_path, {}, {'fmriprep': tmp_path / 'fmriprep'})
    start_dataset(out, tmp_path / 'moved', {}, {'dlmuse': tmp_path / 'dlmuse'})
    links = json.loads((out / 'dataset_description.json').read_text())['DatasetLinks']
    names = {'raw': 'moved', 'fmriprep': 'fmriprep', 'dlmuse': 'dlmuse'}
    assert links == {name: f'../{folder}' for name, folder in names.items()}


def _described(root, source):
    start_dataset(root / 'out', root / 'raw', source)
    return json.loads((root / 'out' / 'dataset_description.json').read_text())


def test_description(tmp_path):
    description = _described(tmp_path, {'Name': 'Study', 'DatasetDOI': 'doi:10.0/x'})
    assert description['GeneratedBy'][0]['Version'] == __version__
    assert description['DatasetLinks'] == {'raw': '../raw'}
    assert description['SourceDatasets'] == [{'URL': '../raw', 'DOI': 'doi:10.0/x'}]
    assert 'DOI' not in _described(tmp_path, {})['SourceDatasets'][0]


def test_links_survive_a_move_of_both_datasets(tmp_path):
    for number, (source, outputs) in enumerate(
        [('study', 'study/derivatives/x'), ('my study', 'out'), ('100 % ä#?', 'b/c')]
    ):
        old, new = tmp_path / 'old place', tmp_path / f'new {number}'
        for name in (source, outputs):
            (old / name).mkdir(parents=True, exist_ok=True)
        start_dataset(old / outputs, old / source, {})
        old.rename(new)
        assert other_source(new / outputs, new / source) is None
        assert other_source(new / outputs, tmp_path) == link_to(new / source, new / outputs)
    assert link_to(Path('/nowhere/raw data'), tmp_path) == 'file:///nowhere/raw%20data'


def test_the_container_is_described(tmp_path, monkeypatch):
    tag = 'host.example/lab/surreal_bids:v1'
    monkeypatch.setenv('SURREAL_BIDS_IMAGE', tag)
    monkeypatch.setenv('SURREAL_BIDS_SOURCE', 'https://example.org/code')
    for kind in ('docker', 'singularity'):
        (made,) = _described(tmp_path, {})['GeneratedBy']
        assert made['CodeURL'] == 'https://example.org/code'
        assert made['Container'] == {'Type': kind, 'Tag': tag, 'URI': f'docker://{tag}'}
        monkeypatch.setenv('APPTAINER_CONTAINER', '/images/surreal_bids.sif')


METADATA = {
    't1w': {'SkullStripped': False},
    'brain_mask': {'Type': 'Brain', 'Sources': ['bids:raw:sub-01/anat/sub-01_T1w.nii.gz']},
}
TABLES = {
    'segmentation_volumes': {'index': [1], 'name': ['Left Thalamus'], 'volume_mm3': [7000.5]},
    'roi_volumes': {'participant_id': ['sub-01'], 'Thalamus': [7000.5]},
    'harmonized_volumes': {'participant_id': ['sub-01'], 'Thalamus': [7000.5]},
    'rindices': {
        'participant_id': ['sub-01', 'sub-01'],
        'session_id': ['ses-pre', 'ses-post'],
        'r1': [0.5, 0.6],
    },
    'changes': {'participant_id': ['sub-01', 'sub-01'], 'measure': ['r1', 'r2']},
    'contributions': {
        'participant_id': ['sub-01', 'sub-01'],
        'r_index': ['r1', 'r2'],
        'baseline': [0.1, 0.1],
        'Thalamus': [0.4, -0.2],
    },
    'deviations': {
        'participant_id': ['sub-01', 'sub-01'],
        'measure': ['z_controls', 'centile_controls'],
        'Thalamus': [0.0, 50.0],
    },
    'image_quality': {'participant_id': ['sub-01', 'sub-02'], 'cjv': [0.4, 0.5]},
    'associations': {'measure': ['age'], 'r1': [0.5]},
}


def _write_example(name, row, path):
    if path.name.endswith('.nii.gz'):
        image = nib.Nifti1Image(np.ones((7, 8, 9), np.uint8), np.eye(4))
        image.header.set_xyzt_units('mm', 'sec')
        write_image(path, image)
        metadata = METADATA.get(name, {})
    elif name in TABLES:
        write_tsv(path, pd.DataFrame(TABLES[name]))
        metadata = {column: {'Description': f'The {column}'} for column in TABLES[name]}
    else:
        write_text(path, '{}\n' if path.suffix == '.json' else 'text\n')
        metadata = {}
    if row.metadata is not None:
        old = sidecar_path(path)
        kept = json.loads(old.read_text()) if old.exists() else {}
        write_sidecar(name, path, {**kept, **metadata})


def validation_errors(root):
    validator = Path(sys.executable).with_name('bids-validator-deno')
    done = subprocess.run(
        [validator, '--format', 'json', str(root)], capture_output=True, check=False, text=True
    )
    issues = json.loads(done.stdout)['issues']['issues']
    return [issue for issue in issues if issue['severity'] == 'error']


@pytest.mark.slow
@pytest.mark.parametrize('sessions', [[None], ['pre', 'post']])
def test_the_validator_accepts_every_name_and_no_other(tmp_path, monkeypatch, sessions):
    monkeypatch.setitem(EXAMPLES, 'session', sessions)
    for name, row, path in _all_outputs(tmp_path):
        if name not in {'dataset_description', 'bidsignore'}:
            _write_example(name, row, path)
    monkeypatch.setenv('SURREAL_BIDS_IMAGE', 'host.example/lab/surreal_bids:v1')
    monkeypatch.setenv('SURREAL_BIDS_SOURCE', 'https://example.org/code')
    start_dataset(tmp_path, tmp_path.parent, {'Name': 'Study'})
    assert validation_errors(tmp_path) == []
    write_text(tmp_path / 'sub-01' / 'anat' / 'sub-01_colour-red_T1w.nii.gz', '')
    assert {issue['location'] for issue in validation_errors(tmp_path)} == {
        '/sub-01/anat/sub-01_colour-red_T1w.nii.gz'
    }


VISIT = ('01', None)


@pytest.fixture
def done(tmp_path):
    """A participant whose outputs are complete: root, path of the record, what they are from."""
    source = tmp_path / 'sub-01_T1w.nii.gz'
    source.write_bytes(b'voxels')
    root = tmp_path / 'out'
    output = root / 'sub-01' / 'anat' / 'x.nii.gz'
    output.parent.mkdir(parents=True)
    output.write_bytes(b'result')
    quality = write_text(output.with_name('sub-01_desc-quality_T1w.json'), '{}')
    path = record_path(root, VISIT)
    made_from = fingerprint([source], {'atlas': 'muse'})
    write_record(path, root, made_from, [output, quality])
    return root, path, made_from


def test_nothing_to_do_where_nothing_changed(done):
    root, _, made_from = done
    assert Record.read(root, VISIT).why_not_done(made_from) == ''
    assert made_from['version'] == __version__


def test_what_changed_or_is_damaged_is_named(done):
    root, path, made_from = done
    for part in made_from:
        reason = Record.read(root, VISIT).why_not_done({**made_from, part: 'other'})
        assert reason == f'{part} changed since the outputs were made'
    (root / 'sub-01' / 'anat' / 'x.nii.gz').write_bytes(b'half')
    reason = Record.read(root, VISIT).why_not_done(made_from)
    assert reason == 'sub-01/anat/x.nii.gz is missing or was changed'
    path.write_text('{')
    assert Record.read(root, VISIT).why_not_done(made_from) == 'not processed yet'


def test_the_digest_of_records_follows_corrected_ages(tmp_path):
    visits = [('01', None), ('02', 'a')]
    digests = {
        digest_of_records(tmp_path, dict.fromkeys(visits, known))
        for known in [(61.0, 'F'), (62.0, 'F'), (61.0, 'M'), (None, None)]
    }
    assert len(digests) == 4
    assert digest_of_records(tmp_path, dict.fromkeys(visits, (61.0, 'F'))) in digests
