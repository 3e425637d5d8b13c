import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.images import same_grid, voxel_volume
from surreal_bids.regions import muse_table
from surreal_bids.templates import (
    builtin_template,
    muse_labels,
    package_file,
    read_brain,
    read_template,
    resample,
    write_template,
)


@pytest.mark.parametrize(
    ('package', 'relative', 'message'),
    [
        ('no_such_package', 'x.nii', 'pip install no_such_package'),
        ('nibabel', 'no/such/file.nii', 'reinstall it'),
    ],
)
def test_a_missing_package_or_file_is_named_with_the_remedy(package, relative, message):
    with pytest.raises(DataError, match=message):
        package_file(package, relative)


def test_a_folder_without_the_template_says_how_to_write_it(tmp_path):
    with pytest.raises(DataError, match=r'no tpl-.*_T1w.nii.gz, .* 3 more; .*write_template'):
        read_template(tmp_path)


@pytest.mark.parametrize('orientation', ['RAS', 'LAS'])
def test_resampling_goes_by_the_affine_not_by_the_array(orientation):
    rng = np.random.default_rng(0)
    affine = np.diag([2.0, 2.0, 2.0, 1.0])
    affine[:3, 3] = (-7, 3, 5)
    image = nib.Nifti1Image(rng.random((7, 8, 9), dtype=np.float32), affine)
    turn = nib.orientations.ornt_transform(
        nib.io_orientation(affine), nib.orientations.axcodes2ornt(orientation)
    )
    turned = image.as_reoriented(turn)
    back = resample(np.asarray(turned.dataobj), turned.affine, affine, image.shape)
    np.testing.assert_allclose(back, image.get_fdata(), atol=1e-5)


def test_resampling_to_larger_voxels_keeps_the_integral():
    data = np.zeros((24, 26, 28), dtype=np.float32)
    data[9:15, 8:17, 10:17] = 1
    data = ndimage.gaussian_filter(data, 1.0)
    coarse = resample(data, np.eye(4), np.diag([2.0, 2.0, 2.0, 1.0]), (12, 13, 14))
    assert coarse.sum() * 8 == pytest.approx(data.sum(), rel=0.005)


@pytest.mark.slow
def test_the_builtin_template_is_one_brain():
    template = builtin_template(3.0)
    images = [template.t1w, template.mask, *template.priors.values()]
    assert all(same_grid(template.t1w, image) for image in images)
    mask = np.asarray(template.mask.dataobj) > 0
    total = sum(np.asarray(image.dataobj) for image in template.priors.values())
    np.testing.assert_allclose(total, mask, atol=1e-4)
    assert mask.sum() * voxel_volume(template.mask) == pytest.approx(1.887e6, rel=0.01)
    t1w = np.asarray(template.t1w.dataobj)
    assert not t1w[~mask].any()
    means = [t1w[np.asarray(template.priors[t].dataobj) > 0.9].mean() for t in ('CSF', 'GM', 'WM')]
    assert means == sorted(means)


@pytest.mark.slow
def test_the_builtin_template_is_written_once(tmp_path):
    folder = write_template(tmp_path / 'template', 4.0)
    expected, found = builtin_template(4.0), read_template(folder)
    for one, other in zip(
        (expected.t1w, expected.mask, *expected.priors.values()),
        (found.t1w, found.mask, *found.priors.values()),
    ):
        np.testing.assert_array_equal(one.dataobj, other.dataobj)
    times = [path.stat().st_mtime_ns for path in sorted(folder.iterdir())]
    write_template(folder, 4.0)
    assert [path.stat().st_mtime_ns for path in sorted(folder.iterdir())] == times


@pytest.mark.slow
def test_regions_of_the_template_are_those_of_muse_inside_its_brain_and_alike_on_both_sides():
    labels, (t1w, brain) = muse_labels(), read_brain()
    data, table = np.asarray(labels.dataobj), muse_table()
    assert same_grid(t1w, labels)
    assert set(np.unique(data)) == {0, *table['index']}
    assert not data[brain == 0].any()
    voxels = np.bincount(data.ravel(), minlength=256)
    right = table[(table['hemisphere'] == 'R') & (table['index'] != 49)]  # 0.2 and 0.1 ml.
    ratio = voxels[right['index']] / voxels[right['mate'].astype(int)]
    assert ratio.min() > 0.75
    assert ratio.max() < 1.33
    x = labels.affine[0, 0] * np.arange(len(data)) + labels.affine[0, 3]
    for index, side in zip(table['index'], table['hemisphere']):
        middle = np.average(x, weights=(data == index).sum(axis=(1, 2)))
        assert {'R': middle > 0, 'L': middle < 0}.get(side, True), index
