import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.templates import package_file, resample


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


@pytest.mark.parametrize('orientation', ['RAS', 'LAS', 'PSR'])
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
