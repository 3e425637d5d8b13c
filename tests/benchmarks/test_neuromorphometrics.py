"""A clone of hand-labelled brains becomes a folder of atlases, its white matter divided."""

import neuromorphometrics
import nibabel as nib
import numpy as np
import pytest
from muse_labels import (
    make_labels,
)
from neuromorphometrics import IMAGES, convert_clone

from surreal_bids.exceptions import DataError
from surreal_bids.images import load_image
from surreal_bids.imaging.atlas import read_atlas_set
from surreal_bids.regions import muse_table
from surreal_bids.templates import muse_labels
from tests.shared_data import shared_data

WHITE = range(81, 96)


def without_division(t1w, labels):
    """In place of the division, which takes seconds."""
    values = np.asarray(labels.dataobj).astype(np.uint8)
    return np.where(np.isin(values, [44, 45]), values + 37, 0).astype(np.uint8)


@pytest.fixture
def clone(tmp_path):
    """A clone of two tiny brains."""
    rng = np.random.default_rng(0)
    images = tmp_path / 'clone' / IMAGES
    images.mkdir(parents=True)
    (tmp_path / 'clone' / 'LICENSE').write_text('CC BY-NC\n')
    for name in ('1001', '1000'):
        labels = rng.choice([0, 44, 45, 63], (7, 8, 9)).astype(np.int16)
        t1w = nib.Nifti1Image((labels * 3).astype(np.int16), np.diag([-1.0, 1, 1, 1]))
        t1w.to_filename(images / f'{name}_SS.nii.gz')
        nib.Nifti1Image(labels, t1w.affine).to_filename(images / f'{name}_glm.nii.gz')
    return tmp_path / 'clone'


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(neuromorphometrics, 'divide_by_template', without_division)


@pytest.mark.usefixtures('quick')
def test_a_clone_becomes_a_set_that_the_app_reads(clone, tmp_path):
    folder = tmp_path / 'atlases'
    assert list(convert_clone(clone, folder)) == [('1000', True), ('1001', True)]
    assert list(convert_clone(clone, folder)) == [('1000', False), ('1001', False)]
    found = read_atlas_set(folder)
    assert [atlas.name for atlas in found.atlases] == ['1000', '1001']
    assert found.regions['index'].tolist() == muse_table()['index'].tolist()
    assert found.licence.endswith('CC BY-NC')
    assert 'Neuromorphometrics' in found.licence
    for atlas in found.atlases:
        source = clone / IMAGES / f'{atlas.name}_SS.nii.gz'
        np.testing.assert_array_equal(
            load_image(atlas.t1w).get_fdata(), load_image(source).get_fdata()
        )
    assert not list(folder.glob('.*'))


@pytest.mark.usefixtures('quick')
def test_clones_that_lack_something_are_refused(clone, tmp_path):
    path = clone / IMAGES / '1001_glm.nii.gz'
    image = nib.load(path)
    nib.Nifti1Image(np.asarray(image.dataobj)[:-1], image.affine).to_filename(path)
    with pytest.raises(DataError, match=r'1001_glm.*not on the grid'):
        list(convert_clone(clone, tmp_path / 'atlases'))
    assert not (tmp_path / 'atlases' / 'dseg.tsv').exists()
    path.unlink()
    with pytest.raises(DataError, match='1001 without its'):
        list(convert_clone(clone, tmp_path / 'atlases'))


@pytest.mark.slow
def test_real_hand_labels_are_divided_as_white_matter_usually_is(tmp_path):
    """Of a person of 75 years: all of it, both sides alike, and shares as DLMUSE finds them."""
    source, name = shared_data('oasis35'), '1122'
    images = tmp_path / 'clone' / IMAGES
    images.mkdir(parents=True)
    (tmp_path / 'clone' / 'LICENSE').write_text('CC BY-NC\n')
    for kind, ending in (('T1w', 'SS'), ('dseg', 'glm')):
        path = source / kind / f'{name}.nii.gz'
        (images / f'{name}_{ending}.nii.gz').symlink_to(path)
    assert list(convert_clone(tmp_path / 'clone', tmp_path / 'atlases')) == [(name, True)]
    (atlas,) = read_atlas_set(tmp_path / 'atlases').atlases
    divided = np.asarray(load_image(atlas.labels).dataobj)
    hand = np.asarray(load_image(source / 'dseg' / f'{name}.nii.gz').dataobj)
    np.testing.assert_array_equal(np.isin(divided, WHITE), np.isin(hand, [44, 45]))
    voxels = np.bincount(divided.ravel(), minlength=256)
    assert (voxels[list(muse_table()['index'])] > 0).all()
    right, left = voxels[81:95:2], voxels[82:95:2]
    assert (np.abs(right - left) / (right + left) < 0.2).all()
    ixi = [
        np.asarray(load_image(path).dataobj).ravel()
        for path in sorted((shared_data('ixi2mm') / 'dseg').iterdir())[:5]
    ]
    usual = np.bincount(np.concatenate(ixi), minlength=256)[81:96]
    ratio = voxels[81:96] / voxels[81:96].sum() / (usual / usual.sum())
    assert (np.abs(np.log(ratio[:8])) < np.log(1.3)).all(), 'lobes'
    assert (np.abs(np.log(ratio)) < np.log(2.2)).all(), 'tracts'


@pytest.mark.slow
def test_the_shipped_regions_of_the_template_are_made_by_this_code():
    made, shipped = make_labels(), muse_labels()
    np.testing.assert_array_equal(made.dataobj, shipped.dataobj)
    np.testing.assert_array_equal(made.affine, shipped.affine)
