"""The brain mask, and the bias field: whole heads, stripped images, phantoms with known fields."""

import sys
from functools import cache, partial
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.images import like, load_image, same_grid
from surreal_bids.imaging.brain import (
    brain_mask,
    check_mask_volume,
    correct_bias,
    extract_brain,
    log_bias_field,
    stripped_body,
)
from surreal_bids.simulation.scanner import bias_field
from tests.imaging.heads import dice, scan
from tests.shared_data import shared_data


def ball(radius_mm, shape=(64, 70, 66), zooms=(3.0, 2.8, 3.1), centre=(0, 0, 0)):
    """Noise in a ball, 0 around it."""
    axes = ((np.arange(n) - n / 2) * zoom - middle for n, zoom, middle in zip(shape, zooms, centre))
    x, y, z = np.meshgrid(*axes, indexing='ij')
    rng = np.random.default_rng(0)
    values = rng.uniform(50, 100, shape) * (x**2 + y**2 + z**2 < radius_mm**2)
    return nib.Nifti1Image(values.astype(np.float32), np.diag([*zooms, 1.0]))


def is_stripped(image):
    return stripped_body(image) is not None


def stripped(image, brain):
    return like(image, np.asarray(image.dataobj) * (np.asarray(brain.dataobj) > 0), np.float32)


@pytest.mark.parametrize(('radius', 'expected'), [(40, False), (60, True), (80, True), (88, False)])
def test_a_single_body_is_a_brain_if_it_has_the_size_of_one(radius, expected):
    assert is_stripped(ball(radius)) is expected


@pytest.mark.slow
def test_a_simulated_head_is_stripped_only_after_stripping():
    t1w, brain = scan(0, 'PSR').t1w, scan(0, 'PSR').brain
    assert not is_stripped(t1w)
    assert is_stripped(stripped(t1w, brain))


@pytest.mark.slow
@pytest.mark.parametrize('threshold', [20, 150])
def test_a_head_with_a_black_background_is_not_stripped(threshold):
    t1w = scan(0, 'PSR').t1w
    values = np.asarray(t1w.dataobj)
    assert not is_stripped(like(t1w, np.where(values > threshold, values, 0), np.int16))


def test_a_tightly_cropped_brain_is_stripped():
    brain = ball(68).slicer[9:55, 10:60, 10:56]
    assert np.mean(brain.get_fdata() == 0) < 0.55
    assert is_stripped(brain)


def test_a_brain_with_a_scalp_around_it_is_not_stripped():
    head = ball(68).get_fdata() + ball(95).get_fdata() - ball(85).get_fdata()
    assert not is_stripped(like(ball(68), head, np.float32))


def test_the_mask_of_a_stripped_image_is_what_it_shows_without_holes_and_specks():
    image = ball(68)
    values = image.get_fdata().copy()
    expected = values > 0
    values[30:34, 33:36, 31:34] = 0
    values[1, 1, 1] = 7
    mask, how = brain_mask(like(image, values, np.float32))
    assert how == 'stripped'
    assert mask.get_data_dtype() == np.uint8
    np.testing.assert_array_equal(mask.get_fdata() > 0, expected)


@pytest.mark.parametrize('litres', [0.3, 3.0])
def test_masks_of_impossible_size_are_refused_with_the_remedy(litres):
    with pytest.raises(DataError, match=rf'{litres:.2f} litres.*provide a brain mask or exclude'):
        check_mask_volume(litres * 1e6)


@pytest.mark.parametrize('litres', [0.8, 1.5, 2.3])
def test_masks_of_usual_size_pass(litres):
    check_mask_volume(litres * 1e6)


def fake_deepbet(monkeypatch, run):
    """Put a network in the place of deepbet's."""
    network = SimpleNamespace(
        model=SimpleNamespace(to=str), bbox_model=SimpleNamespace(to=str), run=run
    )
    module = SimpleNamespace(BrainExtraction=lambda no_gpu: network)
    monkeypatch.setitem(sys.modules, 'deepbet.bet', module)


@pytest.mark.parametrize('error', [AssertionError('Not enough foreground'), ValueError('empty')])
def test_an_image_without_a_brain_is_refused(monkeypatch, error):
    def run(image):
        raise error

    fake_deepbet(monkeypatch, run)
    with pytest.raises(DataError, match=f'no brain in this image .{error}.'):
        extract_brain(ball(90))


@pytest.mark.parametrize(('radius', 'litres'), [(40, '0.27'), (90, '3.05')])
def test_a_mask_of_impossible_size_is_not_returned(monkeypatch, radius, litres):
    fake_deepbet(monkeypatch, lambda image: (image, ball(radius), 0.0))
    with pytest.raises(DataError, match=f'{litres} litres'):
        extract_brain(ball(90))


@pytest.mark.slow
def test_the_brain_of_a_simulated_head_is_found_in_any_orientation():
    simulated = scan(0, 'PSR')
    mask, how = brain_mask(simulated.t1w)
    assert how == 'deepbet'
    assert same_grid(mask, simulated.t1w)
    assert set(np.unique(mask.dataobj)) == {0, 1}
    assert dice(np.asarray(mask.dataobj) > 0, np.asarray(simulated.brain.dataobj) > 0) > 0.93


@pytest.mark.slow
def test_the_brain_of_a_real_head_is_that_of_dlmuse():
    image = load_image(shared_data('ixi2mm/T1w/IXI051-HH-1328.nii.gz'))
    labels = load_image(shared_data('ixi2mm/dseg/IXI051-HH-1328.nii.gz'))
    mask = np.asarray(extract_brain(image).dataobj) > 0
    assert dice(mask, np.asarray(labels.dataobj) > 0) > 0.97


@pytest.mark.slow
@pytest.mark.parametrize(
    ('pattern', 'expected'),
    [
        ('ds002748-subset/sub-*/anat/*_T1w.nii.gz', True),
        ('ixi2mm/T1w/*.nii.gz', False),
        ('wholehead/*.nii.gz', False),
    ],
)
def test_real_images_are_told_apart(pattern, expected):
    paths = sorted(shared_data().glob(pattern))[:6]
    assert paths
    assert {is_stripped(load_image(path)) for path in paths} == {expected}


SHAPE = (24, 27, 25)
VOXEL_SIZE = 6.0
SPACING = 12.0


@cache
def phantom():
    """Nested ellipsoids of three tissues, (X, Y, Z), and their mask: no bias field, some noise."""
    rng = np.random.default_rng(0)
    x, y, z = (np.linspace(-1, 1, n) for n in SHAPE)
    radius = np.sqrt(x[:, None, None] ** 2 + y[:, None] ** 2 + z**2)
    folds = ndimage.gaussian_filter(rng.standard_normal(SHAPE), 1.4)
    depth = radius + 0.2 * folds / folds.std()
    tissue = np.select([radius > 0.9, depth > 0.8, depth > 0.5], [0, 20, 60], 100)
    return (tissue + np.abs(rng.normal(0, 2, SHAPE))).astype(np.float32), radius < 0.9


# A phantom with few voxels, sampled sparsely, bears fewer levels of the spline than a head does.
FEW_LEVELS = {'grid_spacing': SPACING, 'iterations': (30, 20, 10), 'tolerance': 1e-3}
correct = partial(correct_bias, **FEW_LEVELS)
estimate = partial(log_bias_field, **FEW_LEVELS)


def make_image(array, orientation='RAS', zooms=(VOXEL_SIZE,) * 3):
    image = nib.Nifti1Image(array, np.diag([*zooms, 1.0]))
    wanted = nib.orientations.axcodes2ornt(orientation)
    return image.as_reoriented(nib.orientations.ornt_transform([[0, 1], [1, 1], [2, 1]], wanted))


def true_field(seed=0, sd=0.15):
    coefficients = np.random.default_rng(seed).standard_normal(9)
    return bias_field(SHAPE, coefficients / np.linalg.norm(coefficients) * sd)


@pytest.mark.parametrize(('seed', 'masked'), [(0, True), (1, False)])
def test_a_known_field_is_found(seed, masked):
    clean, inside = phantom()
    field = true_field(seed)
    mask = make_image(inside.astype(np.uint8)) if masked else None
    found = estimate(make_image(clean * field), mask)
    assert np.corrcoef(found[inside], np.log(field)[inside])[0, 1] > 0.95


@pytest.mark.slow
def test_the_usual_settings_find_a_known_field():
    clean, inside = phantom()
    field = true_field(0)
    found = log_bias_field(make_image(clean * field), make_image(inside.astype(np.uint8)))
    assert np.corrcoef(found[inside], np.log(field)[inside])[0, 1] > 0.93


def test_correction_makes_tissue_even():
    clean, inside = phantom()
    biased = make_image(clean * true_field())
    corrected = correct(biased, make_image(inside.astype(np.uint8)))
    white = clean > 90
    spread = [np.std(x[white]) / np.mean(x[white]) for x in (biased.dataobj, corrected.dataobj)]
    assert spread[1] < 0.5 * spread[0]


@pytest.mark.parametrize('orientation', ['LAS', 'PSR'])
def test_storage_order_does_not_matter(orientation):
    clean, inside = phantom()
    biased = clean * true_field()
    straight, turned = (
        nib.as_closest_canonical(
            correct(make_image(biased, order), make_image(inside.astype(np.uint8), order))
        ).get_fdata()
        for order in ('RAS', orientation)
    )
    np.testing.assert_allclose(turned[inside], straight[inside], rtol=1e-5)


@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
def test_grid_and_mean_stay_and_nothing_turns_negative(dtype):
    clean, inside = phantom()
    image = make_image((clean * true_field()).astype(dtype), 'PSR', (6.0, 5.5, 6.5))
    mask = make_image(inside.astype(np.uint8), 'PSR', (6.0, 5.5, 6.5))
    corrected = correct(image, mask)
    np.testing.assert_array_equal(corrected.affine, image.affine)
    assert corrected.get_data_dtype() == np.float32
    within = mask.get_fdata() > 0
    assert corrected.get_fdata()[within].mean() == pytest.approx(image.get_fdata()[within].mean())
    assert corrected.get_fdata().min() >= 0
    assert np.isfinite(corrected.get_fdata()).all()


@pytest.mark.parametrize('factor', [0.01, 1000.0])
def test_scale_of_intensities_does_not_matter(factor):
    clean, inside = phantom()
    mask = make_image(inside.astype(np.uint8))
    biased = clean * true_field()
    scaled = correct(make_image(biased * np.float32(factor)), mask).get_fdata()
    plain = correct(make_image(biased), mask).get_fdata()
    np.testing.assert_allclose(scaled[inside], factor * plain[inside], rtol=0.01)


def test_the_same_image_gives_the_same_field():
    clean, inside = phantom()
    image, mask = make_image(clean * true_field()), make_image(inside.astype(np.uint8))
    first, second = (correct(image, mask).get_fdata() for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_a_coarse_grid_gives_the_field_of_the_full_one():
    clean, inside = phantom()
    image, mask = make_image(clean * true_field()), make_image(inside.astype(np.uint8))
    coarse, full = (
        log_bias_field(image, mask, **FEW_LEVELS | {'grid_spacing': mm})[inside]
        for mm in (SPACING, VOXEL_SIZE)
    )
    assert np.corrcoef(coarse, full)[0, 1] > 0.97


def test_holes_of_zeros_inside_the_mask_change_little():
    clean, inside = phantom()
    biased = clean * true_field()
    holed = biased.copy()
    holed[10:12, 10:12, 10:12] = 0
    mask = make_image(inside.astype(np.uint8))
    fields = [estimate(make_image(array), mask)[inside] for array in (biased, holed)]
    assert np.corrcoef(*fields)[0, 1] > 0.98


@pytest.mark.parametrize(
    ('inside', 'message'),
    [(slice(0, 0), 'only 0 voxels'), (slice(0, 2), r'only \d+ voxels')],
)
def test_too_small_a_mask_is_refused(inside, message):
    image = make_image(phantom()[0])
    mask = np.zeros(SHAPE, np.uint8)
    mask[inside, :2] = 1
    with pytest.raises(DataError, match=message):
        correct(image, like(image, mask, np.uint8))


def test_a_mask_of_the_bias_field_on_another_grid_is_refused():
    clean, inside = phantom()
    mask = make_image(inside.astype(np.uint8), zooms=(1.0, 1.0, 1.0))
    with pytest.raises(DataError, match='not on the grid'):
        correct(make_image(clean), mask)
