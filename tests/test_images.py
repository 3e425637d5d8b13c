import logging

import nibabel as nib
import numpy as np
import pytest
from nibabel.affines import apply_affine
from scipy.spatial.transform import Rotation

from surreal_bids.exceptions import DataError
from surreal_bids.images import like, load_image, same_grid, to_ants, voxel_volume

SHAPE = (7, 8, 9)


def make_affine(zooms=(0.7, 1.2, 2.0), degrees=(10, -20, 30), shear=0.0, codes='RAS'):
    turn = Rotation.from_euler('xyz', degrees, degrees=True).as_matrix()
    affine = np.eye(4)
    affine[:3, :3] = turn @ (np.diag(zooms) + shear * np.eye(3, k=1))
    affine[:3, 3] = (-30, 12, 5)
    ornt = nib.orientations.axcodes2ornt(codes)
    return affine @ nib.orientations.inv_ornt_aff(ornt, SHAPE)


AFFINES = {
    'straight': make_affine(degrees=(0, 0, 0)),
    'flipped': make_affine(degrees=(0, 0, 0), codes='LAS'),
    'permuted': make_affine(degrees=(0, 0, 0), codes='PSR'),
    'oblique': make_affine(),
    'oblique, permuted, flipped': make_affine(codes='SLA'),
    'sheared': make_affine(shear=0.1),
}
each_affine = pytest.mark.parametrize('affine', AFFINES.values(), ids=AFFINES.keys())


def noise(shape=SHAPE, seed=0):
    return np.random.default_rng(seed).normal(100, 10, shape).astype(np.float32)


def write(path, array, affine=AFFINES['oblique']):
    nib.Nifti1Image(array, affine, dtype=array.dtype).to_filename(path)
    return path


@pytest.mark.parametrize('dtype', [np.uint8, np.int16, np.float64, np.int64])
def test_an_image_comes_back_as_it_was_written(tmp_path, dtype):
    array, affine = noise((*SHAPE, 1)).astype(dtype), AFFINES['oblique, permuted, flipped']
    nib.Nifti1Image(array, affine, dtype=dtype).to_filename(tmp_path / 'x.nii.gz')
    image = load_image(tmp_path / 'x.nii.gz')
    np.testing.assert_allclose(image.affine, affine, atol=1e-5)
    np.testing.assert_allclose(image.get_fdata(), array[..., 0], rtol=1e-6)
    shorter = {np.float64: np.float32, np.int64: np.int32}
    assert image.get_data_dtype() == shorter.get(dtype, dtype)


def test_scaled_integers_are_unscaled(tmp_path):
    stored = np.arange(np.prod(SHAPE)).reshape(SHAPE) % 200
    image = nib.Nifti1Image(stored.astype(np.int16), np.eye(4))
    image.header.set_slope_inter(0.25, -3)
    image.to_filename(tmp_path / 'x.nii')
    loaded = load_image(tmp_path / 'x.nii')
    assert loaded.get_data_dtype() == np.float32
    raw = np.asarray(nib.load(tmp_path / 'x.nii').dataobj.get_unscaled())
    np.testing.assert_allclose(loaded.get_fdata(), raw * 0.25 - 3, rtol=1e-6)


def test_an_mgh_image_is_placed_in_space(tmp_path):
    path = tmp_path / 'aseg.mgz'
    nib.MGHImage(noise(), AFFINES['oblique'].astype(np.float32)).to_filename(path)
    image = load_image(path)
    assert isinstance(image, nib.Nifti1Image)
    np.testing.assert_allclose(image.affine, AFFINES['oblique'], atol=1e-5)


def test_voxels_that_are_not_finite_become_background_and_are_counted(tmp_path, caplog):
    array = noise()
    array[0], array[1] = np.nan, -np.inf
    with caplog.at_level(logging.WARNING):
        image = load_image(write(tmp_path / 'x.nii.gz', array))
    assert 'x.nii.gz: 144 voxels' in caplog.text
    assert (image.get_fdata()[:2] == 0).all()
    np.testing.assert_array_equal(image.get_fdata()[2:], array[2:])


@pytest.mark.parametrize(
    ('array', 'message'),
    [
        (noise((*SHAPE, 2)), r'7 x 8 x 9 x 2 voxels, expected one 3-D volume'),
        (noise((7, 8)), 'one 3-D volume'),
        (np.zeros((7, 0, 9), np.float32), 'no voxels'),
        (np.zeros(SHAPE, np.float32), 'all voxels are 0'),
        (np.full(SHAPE, 5, np.uint8), 'all voxels are 5'),
        (np.full(SHAPE, np.nan, np.float32), 'all voxels are 0'),
        (noise().astype(np.complex64), 'voxels of type complex64'),
        (np.arange(24).reshape(2, 3, 4) * 2**40, 'integers beyond 32 bits'),
    ],
)
def test_what_is_no_volume_is_refused_by_name(tmp_path, array, message):
    with pytest.raises(DataError, match=f'x.nii: .*{message}'):
        load_image(write(tmp_path / 'x.nii', array))


@pytest.mark.parametrize('row', [np.zeros(4), np.full(4, np.nan)])
def test_an_affine_without_inverse_is_refused(tmp_path, row):
    path = write(tmp_path / 'x.nii', noise())
    # Changed in the file: nibabel would write the affine it has in memory.
    header = nib.Nifti1Header.from_fileobj(path.open('rb'))
    header['srow_z'] = row
    path.write_bytes(header.binaryblock + path.read_bytes()[len(header.binaryblock) :])
    with pytest.raises(DataError, match=r'x.nii: the affine is not finite and invertible'):
        load_image(path)


@pytest.mark.parametrize(
    ('sform_code', 'qform_code', 'scale', 'expected'),
    [
        (1, 1, 1.0, 'sform'),
        (2, 0, 1.0, 'sform'),
        (0, 1, 1.0, 'qform'),
        (4, 1, 1.0, 'sform'),
        (4, 1, 1.1, 'qform'),
        (4, 0, 1.1, 'sform'),
    ],
)
def test_sform_goes_before_qform_unless_it_stretches_voxels(
    tmp_path, caplog, sform_code, qform_code, scale, expected
):
    qform = AFFINES['oblique']
    sform = make_affine(zooms=np.multiply((0.7, 1.2, 2.0), scale), degrees=(5, 5, 0))
    image = nib.Nifti1Image(noise(), qform)
    image.set_qform(qform, qform_code)
    image.set_sform(sform, sform_code)
    image.to_filename(tmp_path / 'x.nii')
    loaded = load_image(tmp_path / 'x.nii')
    wanted = {'sform': sform, 'qform': qform}[expected]
    for affine in (loaded.affine, loaded.get_sform(), loaded.get_qform()):
        np.testing.assert_allclose(affine, wanted, atol=1e-5)
    assert ('scale of the sform' in caplog.text) == (scale != 1)


def test_missing_orientation_is_said(tmp_path, caplog):
    image = nib.Nifti1Image(noise(), None)
    image.header.set_zooms((0.7, 1.2, 2.0))
    image.to_filename(tmp_path / 'x.nii')
    assert voxel_volume(load_image(tmp_path / 'x.nii')) == pytest.approx(0.7 * 1.2 * 2)
    assert 'Left and right may be swapped' in caplog.text


@each_affine
def test_itk_reads_the_same_place_from_a_file_as_from_memory(tmp_path, affine):
    import ants

    path = write(tmp_path / 'x.nii.gz', noise(), affine)
    image = load_image(path)
    converted = to_ants(image)
    np.testing.assert_array_equal(converted.numpy(), image.get_fdata())
    if affine is AFFINES['sheared']:
        return
    read = ants.image_read(str(path))
    np.testing.assert_allclose(converted.direction, read.direction, atol=1e-5)
    np.testing.assert_allclose(converted.origin, read.origin, atol=1e-4)
    np.testing.assert_allclose(converted.spacing, read.spacing, atol=1e-5)


@each_affine
def test_itk_and_nibabel_agree_on_the_place_of_a_voxel(affine):
    import ants

    voxel = (1, 2, 3)
    lps = ants.transform_index_to_physical_point(to_ants(like_noise(affine)), voxel)
    np.testing.assert_allclose(
        np.multiply(lps, (-1, -1, 1)), apply_affine(affine, voxel), atol=1e-4
    )


def like_noise(affine):
    return nib.Nifti1Image(noise(), affine)


@pytest.mark.parametrize(
    ('shape', 'shift', 'turn', 'expected'),
    [
        (SHAPE, 0, 0, True),
        (SHAPE, 1e-4, 0, True),
        (SHAPE, 0.1, 0, False),
        (SHAPE, 0, 1.0, False),
        ((8, 7, 9), 0, 0, False),
    ],
)
def test_grids_are_the_same_up_to_rounding(shape, shift, turn, expected):
    other = make_affine(degrees=(10, -20, 30 + turn))
    other[0, 3] += shift
    a, b = nib.Nifti1Image(noise(), AFFINES['oblique']), nib.Nifti1Image(noise(shape), other)
    assert same_grid(a, b) is expected
    assert same_grid(b, a) is expected


@pytest.mark.parametrize(('dtype', 'code'), [(np.uint8, 1), (np.float32, 4)])
def test_a_new_image_takes_over_grid_and_space(tmp_path, dtype, code):
    reference = like_noise(AFFINES['oblique'])
    reference.set_sform(reference.affine, code)
    image = like(reference, noise(seed=1), dtype)
    image.to_filename(tmp_path / 'x.nii.gz')
    stored = nib.load(tmp_path / 'x.nii.gz')
    assert same_grid(stored, reference)
    assert stored.get_data_dtype() == dtype
    assert (int(stored.header['sform_code']), int(stored.header['qform_code'])) == (code, code)
    assert stored.header.get_xyzt_units()[0] == 'mm'
    np.testing.assert_allclose(stored.get_qform(), reference.affine, atol=1e-5)


def test_one_changed_bit_of_a_compressed_image_is_found(tmp_path):
    """The voxels are complete, and only the checksum at the end of the file is wrong."""
    values = np.random.default_rng(0).integers(0, 900, (17, 18, 19)).astype(np.int16)
    path = write(tmp_path / 'x.nii.gz', values)
    whole = path.read_bytes()
    for place in np.linspace(20, len(whole) - 1, 40).astype(int):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r'x\.nii\.gz: cannot be read as an image'):
            load_image(path)
    path.write_bytes(whole)
    np.testing.assert_array_equal(np.asarray(load_image(path).dataobj), values)
