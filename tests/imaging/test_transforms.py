"""Laws of transforms: identity, inverse, composition; and the same answers as ITK's."""

import nibabel as nib
import numpy as np
import pytest
import torch
from nibabel.nifti1 import Nifti1Image
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.imaging.transforms import (
    WRITTEN_MM,
    Transform,
    affine_transform,
    invert,
    read_composite,
    read_transform,
    resample,
    sample,
    split_affine,
    then_affine,
    voxel_coordinates,
    write_transform,
)
from tests.imaging.brains import compose

SHAPE = (21, 26, 23)
TENTH_OF_A_VOXEL = 0.2


def rotation(degrees: float, axis: int) -> np.ndarray:
    angle = np.deg2rad(degrees)
    matrix = np.eye(4)
    i, j = (other for other in range(3) if other != axis)
    matrix[i, i] = matrix[j, j] = np.cos(angle)
    matrix[i, j], matrix[j, i] = -np.sin(angle), np.sin(angle)
    return matrix


def grid_affine(kind: str) -> np.ndarray:
    """Voxel-to-world matrices, as scanners and converters write them."""
    affine = np.diag([2.0, 2.0, 2.0, 1.0])
    affine[:3, 3] = (-19.0, -26.0, -21.0)
    if kind == 'anisotropic':
        affine[2, 2] = 3.0
    elif kind == 'flipped':
        affine[0] *= -1
    elif kind == 'permuted':
        affine[:3, :3] = [[0, 0, 2], [-2, 0, 0], [0, 2, 0]]
        affine[:3, 3] = (-20, 19, -24)
    elif kind == 'oblique':
        affine = rotation(17, 0) @ rotation(-9, 2) @ affine
    return affine


KINDS = ['plain', 'anisotropic', 'flipped', 'permuted', 'oblique']
MATRIX = rotation(12, 2) @ rotation(-20, 0) @ np.diag([1.1, 0.9, 1.05, 1.0])
MATRIX[:3, 3] = (4.0, -3.0, 6.0)


def smooth_field(shape: tuple[int, ...], size: float, seed: int = 0) -> np.ndarray:
    """A smooth random displacement whose largest component is `size` mm and which ends in zero."""
    rng = np.random.default_rng(seed)
    raw = ndimage.gaussian_filter(rng.normal(size=(*shape, 3)), (4, 4, 4, 0))
    window = np.ones(())
    for length in shape:
        window = np.multiply.outer(window, np.hanning(length))
    raw *= window[..., np.newaxis]
    return (raw * size / np.abs(raw).max()).astype(np.float32)


def warp(kind: str = 'plain', size: float = 2.0, seed: int = 0) -> Transform:
    """MATRIX after a smooth displacement."""
    return then_affine(Transform(smooth_field(SHAPE, size, seed), grid_affine(kind)), MATRIX)


def world(shape: tuple[int, ...], affine: np.ndarray) -> np.ndarray:
    return nib.affines.apply_affine(affine, np.moveaxis(np.indices(shape), 0, -1))


def picture(shape: tuple[int, ...], affine: np.ndarray) -> Nifti1Image:
    """A smooth function of world position, the same on every grid."""
    x, y, z = np.moveaxis(world(shape, affine), -1, 0)
    values = np.exp(-((x + 3) ** 2 + (y - 4) ** 2 + 1.5 * z**2) / 60)
    return Nifti1Image(values.astype(np.float32), affine)


def inner(array: np.ndarray, margin: int = 4) -> np.ndarray:
    return array[margin:-margin, margin:-margin, margin:-margin]


@pytest.mark.parametrize('kind', KINDS)
def test_affine_displacement_is_the_matrix_applied_to_world_points(kind):
    affine = grid_affine(kind)
    points = world(SHAPE, affine)
    moved = points + affine_transform(SHAPE, affine, MATRIX).field
    np.testing.assert_allclose(moved, nib.affines.apply_affine(MATRIX, points), atol=1e-4)


@pytest.mark.parametrize('kind', KINDS)
def test_composition_with_the_inverse_is_the_identity(kind):
    transform = warp(kind)
    moving_affine = MATRIX @ grid_affine('plain')
    back = invert(transform, (24, 30, 27), moving_affine)
    there_and_back = compose(transform, back)
    assert np.abs(inner(there_and_back.field)).max() < TENTH_OF_A_VOXEL
    back_and_there = compose(back, transform)
    assert np.abs(inner(back_and_there.field)).max() < TENTH_OF_A_VOXEL


@pytest.mark.parametrize('stretch', [1.5, 4.0, 8.0])
def test_inverse_where_lengths_are_multiplied(stretch):
    affine = grid_affine('plain')
    points = world(SHAPE, affine) - affine[:3, 3] - 0.5 * np.array(SHAPE) @ affine[:3, :3].T
    radii = np.linalg.norm(points, axis=-1, keepdims=True)
    field = (stretch - 1) * points / np.maximum(1, radii / 3)  # constant from 3 mm on
    transform = Transform(field.astype(np.float32), affine)
    there_and_back = compose(invert(transform, SHAPE, affine), transform)
    assert np.abs(inner(there_and_back.field)).max() < TENTH_OF_A_VOXEL


@pytest.mark.parametrize('degrees', [0, 90, 180])
def test_inverse_of_an_affine_map_is_exact_however_far_it_turns(degrees):
    matrix = rotation(degrees, 1) @ MATRIX
    affine = grid_affine('plain')
    inverse = invert(affine_transform(SHAPE, affine, matrix), SHAPE, grid_affine('oblique'))
    expected = affine_transform(SHAPE, grid_affine('oblique'), np.linalg.inv(matrix))
    np.testing.assert_allclose(inverse.field, expected.field, atol=1e-3)


def test_affine_maps_follow_as_matrices_do():
    first = affine_transform(SHAPE, grid_affine('oblique'), MATRIX)
    expected = affine_transform(SHAPE, grid_affine('oblique'), rotation(30, 2) @ MATRIX)
    seen = then_affine(first, rotation(30, 2))
    np.testing.assert_allclose(seen.field, expected.field, atol=1e-4)


def test_split_affine_finds_matrix_and_residual():
    transform = warp(size=1.0)
    matrix, residual = split_affine(transform)
    assert np.abs(matrix - MATRIX).max() < 0.2
    assert np.abs(residual).max() < 1.5
    points = world(SHAPE, transform.affine)
    rebuilt = nib.affines.apply_affine(matrix, points + residual)
    np.testing.assert_allclose(rebuilt, points + transform.field, atol=1e-3)


@pytest.mark.parametrize('padding', ['zeros', 'border'])
def test_samples_are_those_of_scipy(padding):
    rng = np.random.default_rng(0)
    volumes = rng.standard_normal((2, 5, 6, 7)).astype(np.float32)
    voxels = rng.uniform(-2, 8, (3, 40, 3)).astype(np.float32)
    mode = {'zeros': 'grid-constant', 'border': 'nearest'}[padding]
    expected = [
        ndimage.map_coordinates(volume, np.moveaxis(voxels, -1, 0), order=1, mode=mode)
        for volume in volumes
    ]
    found = sample(torch.from_numpy(volumes), torch.from_numpy(voxels), padding)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_labels_keep_their_values_and_type():
    labels = np.random.default_rng(0).integers(0, 207, SHAPE).astype(np.int16)
    moved = resample(Nifti1Image(labels, grid_affine('plain')), warp('oblique'), order=0)
    values = np.asanyarray(moved.dataobj)
    assert values.dtype == np.int16
    coordinates = voxel_coordinates(warp('oblique'), grid_affine('plain'))
    expected = ndimage.map_coordinates(labels, coordinates, order=0, mode='grid-constant')
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize('kind', KINDS)
def test_files_come_back_as_written(tmp_path, kind):
    transform = warp(kind)
    again = read_transform(write_transform(tmp_path / 'to-x_xfm.nii.gz', transform))
    np.testing.assert_allclose(again.field, transform.field, atol=WRITTEN_MM / 2)
    np.testing.assert_allclose(again.affine, transform.affine, atol=1e-5)


def test_a_file_that_is_no_field_is_refused(tmp_path):
    path = tmp_path / 'image.nii.gz'
    picture(SHAPE, np.eye(4)).to_filename(path)
    with pytest.raises(DataError, match='displacement field'):
        read_transform(path)


@pytest.mark.parametrize('kind', KINDS)
def test_itk_resamples_as_we_do(tmp_path, kind):
    ants = pytest.importorskip('ants')
    transform = warp(kind)
    moving = picture((24, 25, 26), grid_affine('oblique'))
    fixed = picture(SHAPE, grid_affine(kind))
    moving.to_filename(tmp_path / 'moving.nii.gz')
    fixed.to_filename(tmp_path / 'fixed.nii.gz')
    field = write_transform(tmp_path / 'field.nii.gz', transform)
    theirs = ants.apply_transforms(
        ants.image_read(str(tmp_path / 'fixed.nii.gz')),
        ants.image_read(str(tmp_path / 'moving.nii.gz')),
        [str(field)],
    )
    ours = resample(moving, transform).get_fdata()
    np.testing.assert_allclose(inner(theirs.numpy()), inner(ours), atol=1e-3)


@pytest.mark.parametrize('kind', ['plain', 'oblique'])
def test_composites_of_itk_are_read(tmp_path, kind):
    pytest.importorskip('ants')
    transform = warp(kind)
    field = write_transform(tmp_path / 'field.nii.gz', transform)
    reference = picture((15, 16, 17), transform.affine)
    again = read_composite(field, reference)
    np.testing.assert_allclose(again.field, transform.field[:15, :16, :17], atol=1e-3)
