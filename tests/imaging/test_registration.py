"""Registration finds transforms that are known, however images are stored and placed."""

import numpy as np
import pytest
import torch
from nibabel.affines import apply_affine
from nibabel.nifti1 import Nifti1Image
from nibabel.orientations import axcodes2ornt
from scipy import ndimage
from scipy.spatial.transform import Rotation

from surreal_bids.exceptions import DataError
from surreal_bids.imaging.ravens import ravens_maps
from surreal_bids.imaging.registration import (
    FLUID,
    LocalCorrelation,
    Settings,
    add_update,
    align_affine,
    box_sums,
    central_difference,
    deform,
    level_iterations,
    normalise_intensity,
    pull,
    register,
    smooth,
)
from surreal_bids.imaging.transforms import Transform, compose, resample
from tests.imaging.brains import AFFINE, SHAPE, brain, mean_dice, smooth_displacement

VOXEL_MM = 4.0
SMALL = (7, 8, 9)


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


def brain_points(image: Nifti1Image) -> np.ndarray:
    return apply_affine(image.affine, np.argwhere(np.asanyarray(image.dataobj) > 0))


@pytest.mark.parametrize(
    'matrix',
    [
        placement(),
        placement(degrees=(20, -10, 5), shift=(15, -8, 4)),
        placement(degrees=(-40, 0, 0)),
        placement(degrees=(0, 25, -35), shift=(250, -400, 120)),
        placement(scale=(1.2, 0.85, 1.1), shift=(-30, 0, 60)),
    ],
    ids=['same', 'tilted', 'chin-up', 'far', 'stretched'],
)
def test_affine_map_is_recovered(head, matrix):
    image, _ = head
    found = align_affine(image, moved(image, matrix))
    points = brain_points(image)
    errors = np.linalg.norm(apply_affine(found, points) - apply_affine(matrix, points), axis=1)
    assert errors.max() < VOXEL_MM / 4


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
    points = brain_points(image)
    errors = np.linalg.norm(apply_affine(found, points) - apply_affine(matrix, points), axis=1)
    assert errors.mean() < VOXEL_MM / 2


@pytest.mark.slow
@pytest.mark.parametrize('degrees', [(0, -90, 0), (180, 0, 90)])
def test_headers_may_be_wrong_by_quarter_turns(head, degrees):
    image, _ = head
    matrix = placement(degrees=degrees) @ placement(degrees=(10, -5, 8), shift=(5, -3, 2))
    found = align_affine(image, moved(image, matrix))
    points = brain_points(image)
    errors = np.linalg.norm(apply_affine(found, points) - apply_affine(matrix, points), axis=1)
    assert errors.max() < VOXEL_MM / 4


@pytest.mark.slow
def test_brains_that_are_not_alike_are_refused(head):
    image, _ = head
    cut = np.asarray(image.dataobj).copy()
    cut[:, :, : cut.shape[2] // 2] = 0
    cut[: cut.shape[0] // 2] = 0
    with pytest.raises(DataError, match=r'could not be aligned: \d+% of the variance is left'):
        align_affine(image, Nifti1Image(cut, image.affine))


def test_affine_ignores_the_scale_of_intensities(head):
    image, _ = head
    matrix = placement(degrees=(5, 5, 5), shift=(3, 2, 1))
    brighter = Nifti1Image(np.asarray(image.dataobj) * 37, matrix @ image.affine)
    np.testing.assert_allclose(
        align_affine(image, brighter), align_affine(image, moved(image, matrix)), atol=1e-3
    )


@pytest.mark.parametrize('radius', [1, 2, 3])
def test_box_sums_are_those_of_scipy(radius):
    volume = np.random.default_rng(0).normal(size=SMALL).astype(np.float32)
    width = 2 * radius + 1
    expected = ndimage.uniform_filter(volume, width, mode='constant') * width**3
    seen = box_sums(torch.from_numpy(volume), radius).numpy()
    np.testing.assert_allclose(seen, expected, atol=1e-4)


@pytest.mark.parametrize('sigma', [0.0, 0.5, 1.5])
def test_smoothing_is_that_of_scipy(sigma):
    volumes = np.random.default_rng(0).normal(size=(3, *SMALL)).astype(np.float32)
    reach = max(1, int(np.ceil(2.5 * sigma)))
    expected = np.stack(
        [ndimage.gaussian_filter(v, sigma, mode='constant', radius=reach) for v in volumes]
    )
    seen = smooth(torch.from_numpy(volumes), sigma).numpy()
    np.testing.assert_allclose(seen, volumes if sigma == 0 else expected, atol=1e-5)


@pytest.mark.parametrize('shift', [(1, 0, 0), (0, -2, 0), (0, 1, 1)])
def test_pull_looks_up_displaced_voxels(shift):
    volume = torch.from_numpy(np.random.default_rng(0).normal(size=(1, *SMALL)))
    displacement = torch.tensor(shift, dtype=torch.float64).reshape(3, 1, 1, 1).expand(3, *SMALL)
    seen = pull(volume, displacement).numpy()[0]
    expected = np.roll(volume.numpy()[0], [-s for s in shift], axis=(0, 1, 2))
    np.testing.assert_allclose(seen[2:-2, 2:-2, 2:-2], expected[2:-2, 2:-2, 2:-2], atol=1e-5)


def test_local_correlation_is_pearsons_in_each_cube():
    rng = np.random.default_rng(0)
    fixed, other = rng.normal(size=(2, *SMALL))
    correlation = LocalCorrelation(torch.from_numpy(fixed), radius=1, noise=0.0)
    cube = (slice(2, 5), slice(3, 6), slice(4, 7))
    expected = np.corrcoef(fixed[cube].ravel(), other[cube].ravel())[0, 1]
    assert correlation.value(torch.from_numpy(other))[3, 4, 5].item() == pytest.approx(expected)


@pytest.mark.parametrize('radius', [1, 2])
def test_slope_is_the_derivative_of_the_local_correlation(radius):
    rng = np.random.default_rng(0)
    fixed, other = torch.from_numpy(rng.normal(size=(2, *SMALL)))
    correlation = LocalCorrelation(fixed, radius, noise=1e-3)
    place = (3, 4, 5)
    bump = torch.zeros_like(other)
    bump[place] = 1e-5
    rise = correlation.value(other + bump)[place] - correlation.value(other - bump)[place]
    slope = correlation.slope(other)[place] / (2 * radius + 1) ** 3
    assert slope.item() == pytest.approx(rise.item() / 2e-5, rel=1e-4)


@pytest.mark.parametrize('axis', [0, 1, 2])
def test_central_difference_is_that_of_numpy_inside(axis):
    volumes = np.random.default_rng(0).normal(size=(2, *SMALL))
    seen = central_difference(torch.from_numpy(volumes), axis).numpy()
    expected = np.gradient(volumes, axis=axis + 1)
    inner = (slice(None), slice(1, -1), slice(1, -1), slice(1, -1))
    np.testing.assert_allclose(seen[inner], expected[inner])


def test_small_updates_compose_as_interpolation_does():
    large = torch.from_numpy(np.moveaxis(smooth_displacement(3.0, 0), -1, 0).copy())
    update = torch.from_numpy(np.moveaxis(smooth_displacement(0.2, 1), -1, 0).copy())
    expected = pull(large, update) + update
    assert (add_update(large, update) - expected).abs().max() < 0.03


@pytest.mark.parametrize('axis', [0, 1, 2])
def test_updates_along_one_axis_compose_exactly(axis):
    rng = np.random.default_rng(axis)
    displacement = torch.from_numpy(rng.normal(size=(3, *SMALL)).astype(np.float32))
    update = torch.zeros_like(displacement)
    update[axis] = torch.from_numpy(rng.uniform(-1, 1, SMALL).astype(np.float32))
    expected = pull(displacement, update) + update
    np.testing.assert_allclose(add_update(displacement, update), expected, atol=1e-5)


@pytest.mark.parametrize(
    ('voxel_mm', 'expected'),
    [(0.7, (9, 9, 9, 5, 2)), (1.0, (9, 9, 5, 2)), (2.0, (9, 5, 2)), (4.0, (9, 5, 2))],
)
def test_small_voxels_get_more_levels(voxel_mm, expected):
    assert level_iterations((9, 5, 2), voxel_mm) == expected


@pytest.mark.slow
def test_a_known_smooth_warp_is_recovered(head):
    image, labels = head
    truth = Transform(smooth_displacement(10.0, 1), AFFINE)
    fixed, fixed_labels = resample(image, truth, order=3), resample(labels, truth, order=0)
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


@pytest.mark.slow
def test_registration_works_from_one_grid_to_another(head):
    image, labels = head
    matrix = placement(degrees=(15, -10, 20), shift=(40, -90, 10), scale=(1.1, 0.95, 1.0))
    warp = Transform(smooth_displacement(8.0, 3), AFFINE)
    fixed, fixed_labels = resample(image, warp, order=3), resample(labels, warp, order=0)
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


def test_nothing_moves_between_equal_images(head):
    image, _ = head
    found = register(image, image, settings=Settings(iterations=(5, 5, 5))).forward
    inside = np.asarray(image.dataobj) > 0
    assert np.abs(found.field[inside]).max() < VOXEL_MM / 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device here')
def test_cuda_gives_what_the_cpu_gives(head):
    image, _ = head
    fixed = resample(image, Transform(smooth_displacement(8.0, 6), AFFINE), order=3)
    tensors = [
        torch.from_numpy(np.asarray(normalise_intensity(one).dataobj)) for one in (fixed, image)
    ]
    brief = Settings(iterations=(10, 10, 5))
    here = deform(*tensors, brief, VOXEL_MM)
    there = deform(*(tensor.cuda() for tensor in tensors), brief, VOXEL_MM).cpu()
    assert (here - there).abs().max() < 0.05


@pytest.mark.parametrize('function', [align_affine, register])
def test_an_empty_brain_is_refused(head, function):
    empty = Nifti1Image(np.zeros(SHAPE, np.float32), AFFINE)
    with pytest.raises(DataError, match='no voxel above zero'):
        function(head[0], empty)


def test_a_mask_on_another_grid_is_refused(head):
    image, _ = head
    mask = Nifti1Image(np.ones((5, 6, 7), np.uint8), AFFINE)
    with pytest.raises(DataError, match='resample the mask'):
        normalise_intensity(image, mask)
