import nibabel as nib
import numpy as np
import pytest
from nibabel.affines import apply_affine
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.images import voxel_volume
from surreal_bids.imaging.ravens import ravens_maps
from surreal_bids.imaging.transforms import Transform, affine_transform

NATIVE_SHAPE = (62, 67, 65)
BALL_MM = 50.0
CENTRE = np.array([3.0, -2.0, 4.0])


def centred_affine(shape, voxel_size):
    affine = np.diag([*np.broadcast_to(voxel_size, 3), 1.0])
    affine[:3, 3] = CENTRE - np.diag(affine)[:3] * (np.array(shape) - 1) / 2
    return affine


def world_of(shape, affine):
    return apply_affine(affine, np.moveaxis(np.indices(shape), 0, -1))


def blobs(shape=NATIVE_SHAPE, voxel_size=2.0, seed=0):
    """Uneven tissue with partial volumes at its edges, 12 mm inside its image."""
    affine = centred_affine(shape, voxel_size)
    noise = np.random.default_rng(seed).standard_normal(shape)
    uneven = ndimage.gaussian_filter(noise, 3 / voxel_size) > 0
    inside = np.linalg.norm(world_of(shape, affine) - CENTRE, axis=-1) < BALL_MM
    soft = ndimage.gaussian_filter((uneven & inside).astype(np.float32), 0.5)
    return nib.Nifti1Image(soft, affine)


def mass(image):
    return float(np.asarray(image.dataobj, dtype=float).sum() * voxel_volume(image))


def ravens_map(tissue, transform):
    (only,) = ravens_maps([tissue], transform)
    return only


def wavy(shape, affine, amplitude):
    """Strong smooth warp, its determinant known only by its mean."""
    centred = world_of(shape, affine) - CENTRE
    phases = 2 * np.pi * centred[..., [1, 2, 0]] / np.array([44.0, 52.0, 60.0])
    return Transform((amplitude * np.sin(phases)).astype(np.float32), affine)


@pytest.mark.parametrize(
    ('native', 'shape', 'voxel_size', 'amplitude'),
    [
        ((), (54, 57, 55), 2.5, 0.0),
        ((), (54, 57, 55), 2.5, 7.0),
        ((), (80, 68, 53), (1.7, 2, 2.6), 4.0),
        pytest.param((), (96, 99, 97), 1.4, 7.0, marks=pytest.mark.slow),
        pytest.param(((124, 125, 126), 1.0), (62, 63, 61), 2.2, 4.0, marks=pytest.mark.slow),
    ],
)
def test_the_amount_of_tissue_is_preserved(native, shape, voxel_size, amplitude):
    tissue = blobs(*native)
    result = ravens_map(tissue, wavy(shape, centred_affine(shape, voxel_size), amplitude))
    assert result.shape == shape
    assert mass(result) == pytest.approx(mass(tissue), rel=0.002)


def test_the_identity_averages_over_each_voxel():
    tissue = blobs()
    result = ravens_map(tissue, affine_transform(tissue.shape, tissue.affine, np.eye(4)))
    expected = np.asarray(tissue.dataobj)
    for axis in range(3):
        expected = ndimage.convolve1d(expected, [1 / 8, 3 / 4, 1 / 8], axis)
    np.testing.assert_allclose(result.dataobj, expected, atol=1e-5)
    assert result.get_data_dtype() == np.float32


@pytest.mark.parametrize('scale', [(0.8, 1.1, 0.9)])
def test_an_affine_multiplies_by_its_determinant(scale):
    tissue = blobs()
    matrix = np.diag([*scale, 1.0])
    matrix[:3, 3] = CENTRE - np.array(scale) * CENTRE
    shape = (85, 86, 87)
    result = ravens_map(tissue, affine_transform(shape, centred_affine(shape, 2.0), matrix))
    solid = np.asarray(result.dataobj) > 0.99 * np.prod(scale)
    assert solid.sum() > 1000
    np.testing.assert_allclose(np.asarray(result.dataobj)[solid], np.prod(scale), rtol=0.011)
    assert mass(result) == pytest.approx(mass(tissue), rel=0.002)


def contracted(radius, strength):
    """Radius that a smooth radial contraction takes to its centre."""
    return radius * (1 - strength * np.exp(-((radius / 18.0) ** 4)))


@pytest.mark.parametrize(
    ('loss', 'voxel_size'), [(0.1, 2.0), pytest.param(0.3, 1.0, marks=pytest.mark.slow)]
)
def test_a_region_that_shrank_shows_its_loss(loss, voxel_size):
    region_mm = 12.0
    strength = (1 - (1 - loss) ** (1 / 3)) / np.exp(-((region_mm / 18.0) ** 4))
    shape = tuple(int(96 / voxel_size) + k for k in range(3))
    affine = centred_affine(shape, voxel_size)
    offset = world_of(shape, affine) - CENTRE
    radius = np.linalg.norm(offset, axis=-1)
    field = offset * (contracted(radius, strength) / np.maximum(radius, 1e-9) - 1)[..., None]
    native = nib.Nifti1Image(np.ones((70, 71, 72), np.float32), centred_affine((70, 71, 72), 2.0))
    result = np.asarray(ravens_map(native, Transform(field.astype(np.float32), affine)).dataobj)
    assert 1 - result[radius < region_mm].mean() == pytest.approx(loss, rel=0.05)
    np.testing.assert_allclose(result[(radius > 34) & (radius < 44)], 1.0, atol=0.01)


def test_folds_hold_no_tissue_and_are_reported(caplog):
    shape = (20, 21, 22)
    affine = centred_affine(shape, 2.0)
    field = -2.0 * (world_of(shape, affine) - CENTRE) * np.array([1, 0, 0])
    native = nib.Nifti1Image(np.ones(shape, np.float32), affine)
    result = ravens_map(native, Transform(field.astype(np.float32), affine))
    assert np.asarray(result.dataobj).min() == 0
    assert 'folds in' in caplog.text


def test_tissue_on_other_grids_or_elsewhere_is_refused():
    tissue = blobs()
    transform = affine_transform(tissue.shape, tissue.affine, np.eye(4))
    elsewhere = nib.Nifti1Image(np.asarray(tissue.dataobj), tissue.affine + 900 * np.eye(4, k=3))
    with pytest.raises(DataError, match='not on the grid of the first one'):
        ravens_maps([tissue, elsewhere], transform)
    with pytest.raises(DataError, match='no tissue overlaps the template'):
        ravens_maps([elsewhere], transform)
