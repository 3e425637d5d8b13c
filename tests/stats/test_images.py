import nibabel as nib
import numpy as np
import pytest
from nilearn.image import smooth_img

from surreal_bids.exceptions import DataError
from surreal_bids.stats import maps as images
from surreal_bids.stats.maps import Grid, MapSeries, mean_mask, read_map

from .fields import AFFINE, SHAPE, smooth_fields, write_maps

FULL_MASK = nib.Nifti1Image(np.ones(SHAPE, np.uint8), AFFINE)


@pytest.fixture
def fields():
    return 5 + smooth_fields(np.random.default_rng(0), 5)


@pytest.fixture
def paths(tmp_path, fields):
    return write_maps(tmp_path, fields)


@pytest.mark.parametrize('n_threads', [1, 3])
@pytest.mark.parametrize('batch', [1, 2, 16])
def test_voxels_go_to_vectors_and_back(paths, fields, n_threads, batch, monkeypatch):
    monkeypatch.setattr(images, 'BATCH', batch)
    mask = np.random.default_rng(1).uniform(size=SHAPE) < 0.3
    series = MapSeries.open(
        paths, nib.Nifti1Image(mask.astype(np.uint8), AFFINE), n_threads=n_threads
    )
    read = list(series.batches([4, 0, 3]))
    assert np.concatenate([rows for rows, _ in read]).tolist() == [4, 0, 3]
    values = np.concatenate([part for _, part in read])
    image = series.to_image(values[0])
    np.testing.assert_array_equal(
        image.get_fdata(dtype=np.float32), np.where(mask, fields[4].astype(np.float32), 0)
    )
    np.testing.assert_array_equal(image.affine, AFFINE)


@pytest.mark.parametrize('fwhm', [3.0, 8.0])
def test_smoothing_is_nilearns(paths, fwhm):
    ours = read_map(paths[0], Grid.of(paths[0]), fwhm)
    np.testing.assert_allclose(ours, smooth_img(paths[0], fwhm).get_fdata(), rtol=1e-5)


@pytest.mark.parametrize('suffix', ['.nii', '.nii.gz'])
@pytest.mark.parametrize('extra', [(), (1,), (1, 1)])
def test_axes_of_length_one_are_dropped(tmp_path, fields, extra, suffix):
    (path,) = write_maps(tmp_path / 'more', fields[:1].reshape(1, *SHAPE, *extra), suffix=suffix)
    np.testing.assert_array_equal(read_map(path, Grid.of(path)), fields[0].astype(np.float32))


def test_scaled_integers_are_read_as_numbers(tmp_path, fields):
    image = nib.Nifti1Image(fields[0], AFFINE)
    image.set_data_dtype(np.int16)
    image.to_filename(tmp_path / 'scaled.nii.gz')
    read = read_map(tmp_path / 'scaled.nii.gz', Grid(SHAPE, AFFINE))
    np.testing.assert_allclose(read, fields[0], atol=1e-3)


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_refused(paths, fields, bad):
    fields[3, 0, 0, 0] = bad
    nib.Nifti1Image(fields[3].astype(np.float32), AFFINE).to_filename(paths[3])
    with pytest.raises(DataError, match=r'sub-003.*NaN'):
        list(MapSeries.open(paths, FULL_MASK).batches(range(5)))


@pytest.mark.parametrize(
    ('shape', 'affine'),
    [
        ((7, 9, 8), AFFINE),
        (SHAPE, AFFINE + 0.1 * np.eye(4)),
        ((7, 8), AFFINE),
        ((*SHAPE, 2), AFFINE),
    ],
    ids=['shape', 'affine', 'two axes', 'two volumes'],
)
def test_other_grids_are_refused(paths, shape, affine):
    nib.Nifti1Image(np.ones(shape, np.float32), affine).to_filename(paths[2])
    with pytest.raises(DataError, match='sub-002'):
        mean_mask(paths)


@pytest.mark.parametrize('damage', [b'', b'no image', None])
def test_damaged_files_are_named(paths, damage):
    content = paths[2].read_bytes()
    paths[2].write_bytes(content[: len(content) // 2] if damage is None else damage)
    with pytest.raises(DataError, match='sub-002'):
        mean_mask(paths)


def test_missing_files_are_named(paths):
    paths[2].unlink()
    with pytest.raises(DataError, match='sub-002'):
        mean_mask(paths)


@pytest.mark.parametrize('n_images', [2, 3, 100])
def test_mask_is_where_the_mean_is_high(paths, fields, n_images):
    chosen = {2: [0, 4], 3: [0, 2, 4], 100: range(5)}[n_images]
    mask = mean_mask(paths, threshold=5.0, n_images=n_images)
    expected = fields[list(chosen)].astype(np.float32).mean(axis=0) > 5
    np.testing.assert_array_equal(mask.get_fdata(), expected)


@pytest.mark.parametrize(
    ('mask', 'message'),
    [
        (np.zeros(SHAPE, np.uint8), 'empty'),
        (np.ones((9, 8, 7), np.uint8), r'mask has shape \(9, 8, 7\)'),
    ],
)
def test_useless_masks_are_refused(paths, mask, message):
    with pytest.raises(DataError, match=message):
        MapSeries.open(paths, nib.Nifti1Image(mask, AFFINE))


def test_empty_maps_make_no_mask(tmp_path):
    with pytest.raises(DataError, match='no voxel'):
        mean_mask(write_maps(tmp_path, np.zeros((2, *SHAPE))))


def test_no_images_are_refused():
    with pytest.raises(DataError, match='no images'):
        MapSeries.open([])
