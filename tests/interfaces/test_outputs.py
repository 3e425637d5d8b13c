import json
import logging
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nipype.interfaces.base import BaseInterfaceInputSpec

from surreal_bids.bids.outputs import (
    MASK_METHODS,
    Provenance,
    Record,
    VisitOutputs,
    describe_outputs,
)
from surreal_bids.cautions import Caution
from surreal_bids.files import write_image, write_tsv
from surreal_bids.imaging.transforms import affine_transform, write_transform
from surreal_bids.interfaces import Step
from surreal_bids.interfaces.anatomy import MeasureQuality
from surreal_bids.interfaces.outputs import SaveOutput, WriteRecord
from surreal_bids.templates import BUILTIN_LICENCE, MUSE_LABELS, TISSUES
from tests.interfaces import phantom

ENTITIES = {'participant': '01', 'session': None}
PROVENANCE = {
    't1w': ['bids:raw:sub-01/anat/sub-01_T1w.nii.gz'],
    'mask': ['bids:raw:sub-01/anat/sub-01_T1w.nii.gz'],
    'segmentation': [],
    'atlas': 'muse',
    'atlas_licence': 'free',
}


def _image(path):
    nib.Nifti1Image(np.arange(504, dtype=np.int16).reshape(7, 8, 9), np.eye(4)).to_filename(path)
    return path


def test_an_image_goes_to_its_place(tmp_path):
    source = _image(tmp_path / 'x.nii')
    save = SaveOutput(
        in_file=source,
        output_dir=str(tmp_path / 'out'),
        output_name='t1w',
        entities=ENTITIES,
        provenance=PROVENANCE,
        mask_method='stripped',
    )
    written = save.run(cwd=str(tmp_path)).outputs.out_files
    target = tmp_path / 'out' / 'sub-01' / 'anat' / 'sub-01_desc-preproc_T1w.nii.gz'
    assert written == [str(target), str(target.with_name('sub-01_desc-preproc_T1w.json'))]
    np.testing.assert_array_equal(
        nib.Nifti1Image.from_filename(target).get_fdata().ravel(), np.arange(504)
    )
    sidecar = json.loads(target.with_name('sub-01_desc-preproc_T1w.json').read_text())
    assert sidecar == {'SkullStripped': True, 'Sources': PROVENANCE['t1w']}
    assert not list(target.parent.glob('.*')), 'no temporary file stays'


NAN = Caution('voxels are NaN', 'they are 0', 'look')


class Warn(Step):
    """A step that warns twice of the same."""

    input_spec = BaseInterfaceInputSpec

    def _run_step(self, runtime):
        for _ in range(2):
            logging.getLogger('surreal_bids.imaging').warning(NAN)
        logging.getLogger('surreal_bids.imaging').info('nothing to worry about')
        return runtime


def test_the_record_has_the_warnings_of_all_steps(tmp_path):
    root, work = tmp_path / 'out', tmp_path / 'work' / 'sub-01'
    step, record = work / 'brain_wf' / 'warn', work / 'outputs_wf' / 'record'
    for folder in (root, step, record):
        folder.mkdir(parents=True)
    before = [*logging.getLogger('surreal_bids').handlers]
    Warn().run(cwd=str(step))
    WriteRecord(
        out_files=[_image(root / 'a.nii.gz')], output_dir=str(root), made_from={}, entities=ENTITIES
    ).run(cwd=str(record))
    assert SaveOutput().always_run
    assert WriteRecord().always_run
    record = Record.read(root, ('01', None))
    assert (record.warnings, list(record.outputs)) == ([NAN], ['a.nii.gz'])
    assert logging.getLogger('surreal_bids').handlers == before


def test_sidecars_tell_methods_sources_and_licences():
    for method, words in {**MASK_METHODS, 'fmriprep': 'Taken from fmriprep'}.items():
        found = describe_outputs(Provenance(**PROVENANCE), method)
        assert found['t1w']['SkullStripped'] is (method == 'stripped')
        assert found['t1w']['Sources'] == PROVENANCE['t1w']
        assert (found['brain_mask']['Method'], found['brain_mask']['Description']) == (
            method,
            words,
        )
        assert found['ravens']['TemplateLicense'] == BUILTIN_LICENCE
    for computed in (True, False):
        provenance = Provenance(**PROVENANCE, regions_computed=computed)
        sidecar = describe_outputs(provenance, 'deepbet')['segmentation_volumes']
        assert (sidecar['RegionsComputed'], sidecar['AtlasLicense']) == (computed, 'free')
        assert ('before the lesion' in sidecar['lesion_share']['Description']) == computed


@pytest.fixture
def shifted(tmp_path):
    """Outputs of a scan, and labels of a template whose world is 8 mm to the left of the scan's."""
    visit = VisitOutputs(tmp_path, '01', None, 'network')
    for name, image in (('t1w', phantom.t1w()), ('brain_mask', phantom.mask())):
        write_image(visit.path(name), image)
    for tissue, image in phantom.tissues().items():
        write_image(visit.path('tissue_probability', tissue=tissue), image)
    labels, shift = phantom.labels(), np.eye(4)
    shift[0, 3] = -8
    write_image(visit.path('segmentation'), labels)
    rows = {'index': [47, 48], 'name': 'x', 'volume_mm3': 9.0, 'confidence': 0.9}
    write_tsv(visit.path('segmentation_volumes'), pd.DataFrame(rows))
    transform = affine_transform(labels.shape, labels.affine, shift)
    write_transform(visit.path('transform_from_template'), transform)
    moved = nib.Nifti1Image(np.asarray(labels.dataobj), shift @ labels.affine)
    write_image(tmp_path / 'template' / MUSE_LABELS, moved)
    return visit, tmp_path / 'template'


def measured(visit, template_dir, tmp_path, **more):
    """The metrics that the step writes."""
    inputs = {
        't1w_file': visit.path('t1w'),
        'raw_file': visit.path('t1w'),
        'mask_file': visit.path('brain_mask'),
        'tpm_files': [visit.path('tissue_probability', tissue=each) for each in TISSUES],
        'dseg_file': visit.path('segmentation'),
        'volumes_file': visit.path('segmentation_volumes'),
        'xfm_file': visit.path('transform_from_template'),
        'template_dir': template_dir,
        **more,
    }
    cwd = tmp_path / 'step'
    cwd.mkdir(exist_ok=True)
    return json.loads(Path(MeasureQuality(**inputs).run(cwd=cwd).outputs.out_file).read_text())


def test_regions_are_compared_where_the_template_is_registered_to(shifted, tmp_path):
    visit, template = shifted
    found = measured(visit, template, tmp_path)
    sides = {'left deep grey and white matter', 'right deep grey and white matter'}
    assert {name for name, value in found['overlaps'].items() if value > 0} == sides
    assert all(found['overlaps'][side] == 1 for side in sides)
    assert found['confidence'] == 0.9
    write_image(template / MUSE_LABELS, phantom.labels())
    elsewhere = measured(visit, template, tmp_path)['overlaps']
    assert all(0.7 < elsewhere[side] < 0.95 for side in sides)


def test_the_volume_of_a_lesion_is_measured_where_there_is_one(shifted, tmp_path):
    assert 'lesion_ml' not in measured(*shifted, tmp_path)
    right = np.asarray(phantom.labels().dataobj) == 47
    image = nib.Nifti1Image(right.astype(np.uint8), phantom.AFFINE)
    lesion = write_image(tmp_path / 'lesion.nii.gz', image)
    found = measured(*shifted, tmp_path, lesion_file=lesion)
    assert found['lesion_ml'] == pytest.approx(0.064 * right.sum())
