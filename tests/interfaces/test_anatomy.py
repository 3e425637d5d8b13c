from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nipype.interfaces.base import SimpleInterface

from surreal_bids.exceptions import DataError
from surreal_bids.files import write_image, write_tsv
from surreal_bids.imaging.transforms import (
    Transform,
    affine_transform,
    read_transform,
    write_transform,
)
from surreal_bids.interfaces import Step, anatomy, group, outputs
from surreal_bids.interfaces.anatomy import (
    FuseLabels,
    LabelRegions,
    MeasureSegmentation,
    RegisterAtlas,
    RegisterTemplate,
    filled,
    load_brain,
    sound_part,
    torch_device,
)
from surreal_bids.regions import muse_table
from tests.interfaces import phantom


def test_every_step_keeps_its_error_for_the_exit_code():
    modules = (anatomy, group, outputs)
    steps = [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, SimpleInterface)
    ]
    assert {FuseLabels, LabelRegions} <= set(steps)
    assert {each._run_interface for each in steps} == {Step._run_interface}


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    return phantom.write_all(tmp_path_factory.mktemp('phantom'))


@pytest.fixture
def identity(tmp_path):
    return write_transform(
        tmp_path / 'identity.nii.gz', affine_transform(phantom.SHAPE, phantom.AFFINE, np.eye(4))
    )


@pytest.fixture
def shifted(tmp_path, files):
    """The brain, 6 mm to the left of where it was, and further up."""
    image = nib.Nifti1Image.from_filename(files['t1w'])
    affine = phantom.AFFINE.copy()
    affine[:3, 3] += (-6, 0, 4)
    return write_image(tmp_path / 'shifted.nii.gz', nib.Nifti1Image(image.get_fdata(), affine))


def _run(interface, tmp_path):
    result = interface.run(cwd=str(tmp_path))
    return result.outputs


def _field(path, inside):
    transform: Transform = read_transform(path)
    return transform.field[inside]


@pytest.mark.slow
def test_registration_undoes_a_shift(files, shifted, tmp_path):
    moved = nib.Nifti1Image.from_filename(shifted)
    mask = write_image(
        tmp_path / 'm.nii.gz',
        nib.Nifti1Image((moved.get_fdata() > 0).astype(np.uint8), moved.affine),
    )
    outputs = _run(
        RegisterTemplate(t1w_file=shifted, mask_file=mask, template_dir=files['template']), tmp_path
    )
    inside = np.asarray(phantom.mask().dataobj) > 0
    forward, inverse = (
        _field(path, inside) for path in (outputs.anat2std_xfm, outputs.std2anat_xfm)
    )
    np.testing.assert_allclose(np.median(forward, axis=0), (-6, 0, 4), atol=1)
    np.testing.assert_allclose(np.median(inverse, axis=0), (6, 0, -4), atol=1)


@pytest.mark.slow
def test_an_atlas_is_brought_to_the_brain(files, shifted, tmp_path):
    interface = RegisterAtlas(t1w_file=files['t1w'], mask_file=files['mask'], atlas_t1w=shifted)
    inside = np.asarray(phantom.mask().dataobj) > 0
    found = np.median(_field(_run(interface, tmp_path).xfm_file, inside), axis=0)
    np.testing.assert_allclose(found, (-6, 0, 4), atol=1)


def test_labels_of_an_atlas_in_place_are_kept(files, identity, tmp_path):
    outputs = _run(
        FuseLabels(
            t1w_file=files['t1w'],
            mask_file=files['mask'],
            atlas_t1ws=[files['t1w']] * 2,
            atlas_labels=[files['labels']] * 2,
            xfm_files=[identity] * 2,
            regions_file=files['regions'],
        ),
        tmp_path,
    )
    fused = np.asarray(nib.Nifti1Image.from_filename(outputs.dseg_file).dataobj)
    truth = np.asarray(phantom.labels().dataobj)
    assert (fused != truth).mean() < 0.001
    volumes = pd.read_csv(outputs.volumes_file, sep='\t').set_index('index')['volume_mm3']
    for index in (47, 48):
        assert volumes[index] == pytest.approx((truth == index).sum() * 64, rel=1e-3)
    assert volumes[49] == 0
    assert outputs.atlases == [Path(files['labels']).name] * 2


@pytest.mark.parametrize(
    ('with_table', 'names'), [(True, 'Right half'), (False, 'Right hippocampus')]
)
def test_an_existing_segmentation_is_measured(files, tmp_path, with_table, names):
    interface = MeasureSegmentation(
        in_file=files['labels'], t1w_file=files['t1w'], mask_file=files['mask']
    )
    if with_table:
        interface.inputs.regions_file = files['regions']
    table = pd.read_csv(_run(interface, tmp_path).volumes_file, sep='\t').set_index('index')
    assert table.loc[47, 'name'] == names
    expected = (np.asarray(phantom.labels().dataobj) == 47).sum() * 64
    assert table.loc[47, 'volume_mm3'] == pytest.approx(expected)


def _conformed(values, affine):
    """Labels in the orientation of FreeSurfer (LIA), around the same brain."""
    image = nib.Nifti1Image(values.astype(np.int32), affine)
    source = nib.orientations.io_orientation(affine)
    turned = image.as_reoriented(
        nib.orientations.ornt_transform(source, nib.orientations.axcodes2ornt('LIA'))
    )
    return nib.MGHImage(np.asarray(turned.dataobj), turned.affine)


def test_volumes_of_freesurfer_are_of_its_own_voxels(files, tmp_path):
    halves = np.asarray(phantom.labels().dataobj)
    values = np.select([halves == 47, halves == 48], [1024, 17], 0)
    # Each voxel becomes eight: volumes stay, and the grid is another one.
    fine = values.repeat(2, 0).repeat(2, 1).repeat(2, 2)
    affine = phantom.AFFINE @ np.diag([0.5, 0.5, 0.5, 1])
    affine[:3, 3] -= 0.25 * phantom.AFFINE[:3, :3].sum(axis=1)
    path = tmp_path / 'aparc+aseg.mgz'
    nib.save(_conformed(fine, affine), path)
    step = MeasureSegmentation(
        in_file=path,
        t1w_file=files['t1w'],
        mask_file=files['mask'],
        numbering='aparc+aseg',
    )
    outputs = _run(step, tmp_path)
    table = pd.read_csv(outputs.volumes_file, sep='\t').set_index('name')['volume_mm3']
    assert table['ctx-lh-precentral'] == pytest.approx((halves == 47).sum() * 64)
    assert table['Left-Hippocampus'] == pytest.approx((halves == 48).sum() * 64)
    assert table.drop(['ctx-lh-precentral', 'Left-Hippocampus']).eq(0).all()
    assert nib.load(outputs.dseg_file).shape == (80, 72, 96)


@pytest.mark.parametrize(('shift_mm', 'fits'), [(8, True), (30, False)])
def test_a_segmentation_that_lies_elsewhere_is_refused(files, tmp_path, shift_mm, fits):
    labels = phantom.labels()
    affine = labels.affine.copy()
    affine[0, 3] += shift_mm
    path = write_image(
        tmp_path / 'moved.nii.gz', nib.Nifti1Image(np.asarray(labels.dataobj), affine)
    )
    step = MeasureSegmentation(in_file=path, t1w_file=files['t1w'], mask_file=files['mask'])
    if fits:
        _run(step, tmp_path)
    else:
        with pytest.raises(DataError, match=r'moved.nii.gz: only \d+% of the segmentation'):
            _run(step, tmp_path)


@pytest.mark.slow
def test_regions_of_the_network_are_saved_with_their_confidence(files, tmp_path):
    regions = muse_table()[['index', 'name']]
    table = write_tsv(tmp_path / 'regions.tsv', regions)
    step = LabelRegions(t1w_file=files['t1w'], mask_file=files['mask'], regions_file=table)
    found = step.run(cwd=tmp_path).outputs
    dseg = nib.load(found.dseg_file)
    assert dseg.shape == phantom.SHAPE
    assert set(np.unique(dseg.dataobj)) <= {0, *regions['index']}
    volumes = pd.read_csv(found.volumes_file, sep='\t')
    assert volumes.columns.tolist() == ['index', 'name', 'volume_mm3', 'confidence']
    labelled = volumes['index'].isin(np.unique(dseg.dataobj))
    assert volumes.loc[labelled, 'confidence'].between(0, 1).all()
    assert volumes.loc[~labelled & (volumes['index'] < 100), 'confidence'].isna().all()


def test_devices():
    assert torch_device('auto') in {'cpu', 'cuda'}
    assert (torch_device('cuda'), torch_device('mps')) == ('cuda', 'cpu')


@pytest.fixture
def lesion(tmp_path):
    """The right half of a slab through the brain."""
    values = np.zeros(phantom.SHAPE, np.uint8)
    values[8 : phantom.SHAPE[0] // 2, 20:24] = np.asarray(phantom.mask().dataobj)[
        8 : phantom.SHAPE[0] // 2, 20:24
    ]
    return write_image(tmp_path / 'lesion.nii.gz', nib.Nifti1Image(values, phantom.AFFINE))


def test_the_share_of_a_lesion_is_measured_in_each_region(files, lesion, tmp_path):
    brain = {'t1w_file': files['t1w'], 'mask_file': files['mask']}
    step = MeasureSegmentation(in_file=files['labels'], regions_file=files['regions'], **brain)
    without = pd.read_csv(_run(step, tmp_path).volumes_file, sep='\t')
    assert 'lesion_share' not in without
    step.inputs.lesion_file = lesion
    table = pd.read_csv(_run(step, tmp_path).volumes_file, sep='\t')
    pd.testing.assert_frame_equal(table.drop(columns='lesion_share'), without)
    right = np.asarray(phantom.labels().dataobj) == 47
    damaged = np.asarray(nib.Nifti1Image.from_filename(lesion).dataobj) > 0
    expected = [round(damaged[right].mean(), 4), 0, 0]
    assert table['lesion_share'].tolist() == expected


@pytest.mark.slow
def test_a_brain_is_read_with_its_lesion_filled(files, lesion):
    damaged = np.asarray(nib.Nifti1Image.from_filename(lesion).dataobj) > 0
    before, mask = load_brain(str(files['t1w']), str(files['mask']))
    after, _ = load_brain(str(files['t1w']), str(files['mask']), anatomy.load_image(lesion))
    changed = np.asarray(before.dataobj) != np.asarray(after.dataobj)
    assert changed[damaged].mean() > 0.9
    assert not changed[~damaged].any()
    assert filled(before, mask, None) is before
    assert sound_part(mask, None) is mask
