import struct

import nibabel as nib
import numpy as np
import pytest

from surreal_bids.bids.image_files import HDF5_SIGNATURE, check_image, check_transform
from surreal_bids.exceptions import DataError
from tests.conftest import write_t1w


def _hdf5(version, length):
    """First bytes of an HDF5 file of a length, by the format specification, and zeros."""
    addresses = struct.pack('<QQQQ', 0, 2**64 - 1, length, 2**64 - 1)
    if version >= 2:
        start = HDF5_SIGNATURE + bytes([version, 8, 8, 0]) + addresses
    else:
        sizes = struct.pack('<BBBBBBBHHI', 0, 0, 0, 0, 8, 8, 0, 4, 16, 0)
        start = HDF5_SIGNATURE + bytes([version]) + sizes + bytes(4 * version) + addresses
    return start.ljust(length, b'\0')


@pytest.mark.parametrize('version', range(4))
def test_composites_of_itk(tmp_path, version):
    rng = np.random.default_rng(version)
    path = tmp_path / 'x_xfm.h5'
    content = _hdf5(version, 3000)
    path.write_bytes(content)
    check_transform(path)
    path.write_bytes(content[: rng.integers(100, 3000)])
    with pytest.raises(DataError, match=f'{path}: truncated'):
        check_transform(path)
    path.write_bytes(rng.bytes(3000))
    with pytest.raises(DataError, match=f'{path}: not an HDF5 file'):
        check_transform(path)
    path.write_bytes(HDF5_SIGNATURE)
    with pytest.raises(DataError, match=f'{path}: not an HDF5 file'):
        check_transform(path)


@pytest.mark.parametrize(
    ('shape', 'fits'), [((7, 8, 9, 1, 3), True), ((7, 8, 9), False), ((7, 8, 9, 3), False)]
)
def test_displacement_fields(tmp_path, shape, fits):
    path = write_t1w(tmp_path / 'x_xfm.nii.gz', shape)
    if fits:
        check_transform(path)
        return
    with pytest.raises(DataError, match=f'{path}: .* displacement field'):
        check_transform(path)


@pytest.mark.parametrize('seed', range(4))
def test_a_copy_of_another_type_has_the_same_digest(tmp_path, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 100, (7, 8, 9))
    digests = set()
    for dtype in ('u1', '<i2', '>i4', 'f4', 'f8'):
        path = tmp_path / f'{dtype[-2:]}.nii.gz'
        nib.Nifti1Image(values.astype(dtype), np.eye(4)).to_filename(path)
        digests.add(check_image(path).digest)
    assert len(digests) == 1


def test_affines_that_disagree_on_left_and_right(tmp_path):
    image = nib.Nifti1Image(np.arange(504, dtype=np.int16).reshape(7, 8, 9), np.eye(4))
    image.set_sform(np.eye(4), 1)
    image.set_qform(np.diag([-1.0, 1, 1, 1]), 1)
    image.to_filename(tmp_path / 'x_T1w.nii')
    with pytest.raises(DataError, match=r'x_T1w.nii: sform and qform disagree'):
        check_image(tmp_path / 'x_T1w.nii')


def test_more_data_than_the_header_says(tmp_path):
    path = write_t1w(tmp_path / 'x_T1w.nii')
    path.write_bytes(path.read_bytes() + bytes(3 << 20))
    with pytest.raises(DataError, match=r'x_T1w.nii: much longer'):
        check_image(path)
