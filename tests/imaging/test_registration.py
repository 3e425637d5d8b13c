"""Registration finds transforms that are known, however images are stored and placed."""

import re

import numpy as np
import pytest
import torch
from nibabel.affines import apply_affine
from nibabel.nifti1 import Nifti1Image
from nibabel.orientations import axcodes2ornt
from scipy import ndimage
from scipy.spatial.transform import Rotation

from surreal_bids.exceptions import DataError
from surreal_bids.imaging.deformation import FLUID, Settings
from surreal_bids.imaging.ravens import ravens_maps
from surreal_bids.imaging.registration import align_affine, register
from surreal_bids.imaging.transforms import Transform, resample
from tests.imaging.brains import AFFINE, SHAPE, brain, compose, mean_dice, smooth_displacement

pytestmark = pytest.mark.slow

VOXEL_MM = 4.0


@pytest.fixture(scope='module')
def head() -> tuple[Nifti1Image, Nifti1Image]:
    return brain()


def placement(degrees=(0.0, 0.0, 0.0), shift=(0.0, 0.0, 0.0), scale=(1.0, 1.0, 1.0)) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler('xyz', degrees, degrees=True).as_matrix() @ np.diag(scale)
    matrix[:3, 3] = shift
    return matrix


def moved(image: Nifti1Image, matrix: np.ndarray) -> Nifti1Image:
    """The same voxels elsewhere in the world."""
    return Nifti1Image(np.asanyarray(image.dataobj), matrix @ image.affine)


def distances(image: Nifti1Image, found: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Distances (mm) between the places where two maps put the voxels of a brain."""
    points = apply_affine(image.affine, np.argwhere(np.asanyarray(image.dataobj) > 0))
    return np.linalg.norm(apply_affine(found, points) - apply_affine(matrix, points), axis=1)


@pytest.mark.parametrize(
    'matrix',
    [
        placement(),
        placement(degrees=(20, -10, 5), shift=(15, -8, 4)),
        placement(degrees=(-40, 0, 0)),
        placement(degrees=(0, 25, -35), shift=(250, -400, 120)),
        placement(scale=(1.2, 0.85, 1.1), shift=(-30, 0, 60)),
        placement(degrees=(0, -90, 0)) @ placement(degrees=(10, -5, 8), shift=(5, -3, 2)),
        placement(degrees=(180, 0, 90)) @ placement(degrees=(10, -5, 8), shift=(5, -3, 2)),
    ],
    ids=['same', 'tilted', 'chin-up', 'far', 'stretched', 'on its side', 'upside down'],
)
def test_affine_map_is_recovered(head, matrix):
    image, _ = head
    found = align_affine(image, moved(image, matrix))
    assert distances(image, found, matrix).max() < VOXEL_MM / 4


@pytest.mark.parametrize(('codes', 'zoom'), [('LPS', 1.0), ('PIR', 1.5)])
def test_affine_map_does_not_depend_on_how_the_image_is_stored(head, codes, zoom):
    image, _ = head
    matrix = placement(degrees=(12, 6, -9), shift=(20, 5, -10))
    stored = moved(image, matrix).as_reoriented(axcodes2ornt(codes))
    values = ndimage.zoom(
        np.asarray(stored.dataobj), (1, 1, 1 / zoom), order=1, mode='grid-constant', grid_mode=True
    )
    stretch = stored.shape[2] / values.shape[2]
    affine = stored.affine @ np.diag([1, 1, stretch, 1])
    affine[:3, 3] += stored.affine[:3, 2] * (stretch - 1) / 2
    found = align_affine(image, Nifti1Image(values, affine))
    assert distances(image, found, matrix).mean() < VOXEL_MM / 2


def test_brains_that_are_not_alike_are_reported_and_refused(head, caplog):
    image, _ = head
    cut = np.asarray(image.dataobj).copy()
    cut[:, :, :17] = 0
    align_affine(image, Nifti1Image(cut, image.affine))
    assert re.search(r'registration is poor: (1[5-9]|2\d)% of the variance', caplog.text)
    cut[:, :, : cut.shape[2] // 2] = 0
    cut[: cut.shape[0] // 2] = 0
    with pytest.raises(DataError, match=r'registration failed: \d+% of the variance'):
        align_affine(image, Nifti1Image(cut, image.affine))


def test_a_known_smooth_warp_is_recovered(head):
    image, labels = head
    truth = Transform(smooth_displacement(10.0, 1), AFFINE)
    fixed, fixed_labels = resample(image, truth), resample(labels, truth, order=0)
    found = register(fixed, image, settings=FLUID).forward
    inside = np.asarray(fixed_labels.dataobj) > 0
    errors = np.linalg.norm(found.field - truth.field, axis=-1)[inside]
    assert np.median(errors) < VOXEL_MM / 4
    assert mean_dice(fixed_labels, resample(labels, found, order=0)) > 0.9
    everything = Nifti1Image(np.ones(image.shape, np.float32), image.affine)
    volumes, true_volumes = (
        ndimage.gaussian_filter(np.asarray(ravens_maps([everything], one)[0].dataobj), 2)[inside]
        for one in (found, truth)
    )
    assert volumes.min() > 0
    assert np.corrcoef(volumes, true_volumes)[0, 1] > 0.9


def test_registration_works_from_one_grid_to_another(head):
    image, labels = head
    matrix = placement(degrees=(15, -10, 20), shift=(40, -90, 10), scale=(1.1, 0.95, 1.0))
    warp = Transform(smooth_displacement(8.0, 3), AFFINE)
    fixed, fixed_labels = resample(image, warp), resample(labels, warp, order=0)
    stored = moved(image, matrix).as_reoriented(axcodes2ornt('PIR'))
    stored_labels = moved(labels, matrix).as_reoriented(axcodes2ornt('PIR'))
    found = register(fixed, stored)
    assert mean_dice(fixed_labels, resample(stored_labels, found.forward, order=0)) > 0.88
    assert found.inverse.shape == stored.shape
    there_and_back = compose(found.forward, found.inverse).field[np.asarray(fixed.dataobj) > 0]
    assert np.percentile(np.linalg.norm(there_and_back, axis=-1), 95) < VOXEL_MM / 4


def test_masks_take_the_place_of_stripping(head):
    image, labels = head
    mask = Nifti1Image((np.asarray(labels.dataobj) > 0).astype(np.uint8), AFFINE)
    skull = np.where(np.asarray(mask.dataobj), np.asarray(image.dataobj), 400.0).astype(np.float32)
    brief = Settings(iterations=(5, 5, 2))
    masked = register(
        Nifti1Image(skull, AFFINE), image, settings=brief, fixed_mask=mask, moving_mask=mask
    )
    stripped = register(image, image, settings=brief)
    np.testing.assert_allclose(masked.forward.field, stripped.forward.field, atol=0.05)


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device here')
def test_cuda_gives_what_the_cpu_gives(head):
    fixed = resample(head[0], Transform(smooth_displacement(8.0, 6), AFFINE))
    brief = Settings(iterations=(10, 10, 5))
    here, there = (
        register(fixed, head[0], settings=brief, device=device).forward.field
        for device in ('cpu', 'cuda')
    )
    assert np.abs(here - there).max() < VOXEL_MM / 20


def test_an_empty_brain_is_refused(head):
    empty = Nifti1Image(np.zeros(SHAPE, np.float32), AFFINE)
    with pytest.raises(DataError, match='no positive voxel'):
        register(head[0], empty)
