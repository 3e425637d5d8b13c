import json
import logging

import nibabel as nib
import numpy as np
import pytest
from nipype.interfaces.base import BaseInterfaceInputSpec

from surreal_bids.bids.derivatives import MASK_METHODS, Record
from surreal_bids.exceptions import UsageError
from surreal_bids.interfaces.anatomy import Step
from surreal_bids.interfaces.outputs import DescribeOutputs, SaveOutput, WriteRecord

ENTITIES = {'participant': '01', 'session': None}
PROVENANCE = {
    't1w': ['bids:raw:sub-01/anat/sub-01_T1w.nii.gz'],
    'mask': ['bids:raw:sub-01/anat/sub-01_T1w.nii.gz'],
    'segmentation': [],
    'atlas': 'muse',
    'atlas_licence': 'free',
    'template': 'MNI152NLin2009cAsym',
    'template_licence': 'free',
}


def _image(path):
    nib.Nifti1Image(np.arange(504, dtype=np.int16).reshape(7, 8, 9), np.eye(4)).to_filename(path)
    return path


@pytest.mark.parametrize('name', ['x.nii.gz', 'x.nii'])
def test_an_image_goes_to_its_place(tmp_path, name):
    source = _image(tmp_path / name)
    save = SaveOutput(
        in_file=source,
        output_dir=str(tmp_path / 'out'),
        output_name='t1w',
        entities=ENTITIES,
        metadata={'SkullStripped': True},
    )
    written = save.run(cwd=str(tmp_path)).outputs.out_files
    target = tmp_path / 'out' / 'sub-01' / 'anat' / 'sub-01_desc-preproc_T1w.nii.gz'
    assert written == [str(target), str(target.with_name('sub-01_desc-preproc_T1w.json'))]
    np.testing.assert_array_equal(
        nib.Nifti1Image.from_filename(target).get_fdata().ravel(), np.arange(504)
    )
    assert json.loads(target.with_name('sub-01_desc-preproc_T1w.json').read_text()) == {
        'SkullStripped': True
    }
    assert not list(target.parent.glob('.*')), 'no temporary file stays'


def test_what_a_sidecar_must_have_is_checked(tmp_path):
    save = SaveOutput(
        in_file=_image(tmp_path / 'x.nii.gz'),
        output_dir=str(tmp_path / 'out'),
        output_name='brain_mask',
        entities=ENTITIES,
        metadata={'Type': 'Brain'},
    )
    with pytest.raises(UsageError, match='Sources is missing'):
        save.run(cwd=str(tmp_path))


def test_outputs_without_a_sidecar(tmp_path):
    save = SaveOutput(
        in_file=_image(tmp_path / 'x.nii.gz'),
        output_dir=str(tmp_path / 'out'),
        output_name='tissue_probability',
        entities={**ENTITIES, 'tissue': 'GM'},
    )
    assert len(save.run(cwd=str(tmp_path)).outputs.out_files) == 1


@pytest.mark.parametrize('interface', [SaveOutput, WriteRecord])
def test_what_someone_deleted_comes_back(interface):
    assert interface().always_run


def test_the_record_lists_all_outputs(tmp_path):
    root = tmp_path / 'out'
    root.mkdir()
    output = _image(root / 'a.nii.gz')
    interface = WriteRecord(
        out_files=[output], output_dir=str(root), made_from={'version': '1'}, entities=ENTITIES
    )
    folder = tmp_path / 'work' / 'sub-01' / 'outputs_wf' / 'record'
    folder.mkdir(parents=True)
    path = interface.run(cwd=str(folder)).outputs.out_file
    assert json.loads((root / 'logs' / 'sub-01_desc-outputs_record.json').read_text()) == {
        'made_from': {'version': '1'},
        'outputs': {'a.nii.gz': output.stat().st_size},
        'warnings': [],
    }
    assert path.endswith('sub-01_desc-outputs_record.json')


class Warn(Step):
    """A step that warns twice of the same."""

    input_spec = BaseInterfaceInputSpec

    def _run_step(self, runtime):
        for _ in range(2):
            logging.getLogger('surreal_bids.imaging').warning('voxels are %s', 'NaN')
        logging.getLogger('surreal_bids.imaging').info('nothing to worry about')
        return runtime


def test_the_record_has_the_warnings_of_all_steps(tmp_path):
    root, work = tmp_path / 'out', tmp_path / 'work' / 'sub-01'
    step, record = work / 'brain_wf' / 'warn', work / 'outputs_wf' / 'record'
    for folder in (root, step, record):
        folder.mkdir(parents=True)
    Warn().run(cwd=str(step))
    WriteRecord(
        out_files=[_image(root / 'a.nii.gz')], output_dir=str(root), made_from={}, entities=ENTITIES
    ).run(cwd=str(record))
    assert Record.read(root, ('01', None)).warnings == ['voxels are NaN']
    assert not logging.getLogger('surreal_bids').handlers


@pytest.mark.parametrize(
    ('method', 'stripped', 'words'),
    [
        ('stripped', True, MASK_METHODS['stripped']),
        ('deepbet', False, MASK_METHODS['deepbet']),
        ('fmriprep', False, 'Taken from fmriprep'),
    ],
)
def test_sidecars_say_how_the_brain_was_found(tmp_path, method, stripped, words):
    interface = DescribeOutputs(mask_method=method, provenance=PROVENANCE)
    outputs = interface.run(cwd=str(tmp_path)).outputs
    assert outputs.t1w['SkullStripped'] is stripped
    assert (outputs.brain_mask['Method'], outputs.brain_mask['Description']) == (method, words)
    assert outputs.segmentation_volumes['AtlasLicense'] == 'free'
    assert outputs.ravens['TemplateLicense'] == PROVENANCE['template_licence']
    assert outputs.t1w['Sources'] == PROVENANCE['t1w']
