from functools import cache, partial

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.images import like
from surreal_bids.imaging.brain import correct_bias, log_bias_field
from surreal_bids.simulation.scanner import bias_field

SHAPE = (36, 40, 38)
VOXEL_SIZE = 4.0
SPACING = 8.0


@cache
def head():
    """Nested ellipsoids of three tissues, (X, Y, Z), and their mask: no bias field, some noise."""
    rng = np.random.default_rng(0)
    x, y, z = (np.linspace(-1, 1, n) for n in SHAPE)
    radius = np.sqrt(x[:, None, None] ** 2 + y[:, None] ** 2 + z**2)
    folds = ndimage.gaussian_filter(rng.standard_normal(SHAPE), 2)
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


@pytest.mark.parametrize('seed', [0, 1, 2])
@pytest.mark.parametrize('masked', [True, False])
def test_a_known_field_is_found(seed, masked):
    clean, inside = head()
    field = true_field(seed)
    mask = make_image(inside.astype(np.uint8)) if masked else None
    found = estimate(make_image(clean * field), mask)
    assert np.corrcoef(found[inside], np.log(field)[inside])[0, 1] > 0.95


@pytest.mark.slow
@pytest.mark.parametrize('seed', [0, 1])
def test_the_usual_settings_find_a_known_field(seed):
    clean, inside = head()
    field = true_field(seed)
    found = log_bias_field(make_image(clean * field), make_image(inside.astype(np.uint8)))
    assert np.corrcoef(found[inside], np.log(field)[inside])[0, 1] > 0.93


@pytest.mark.parametrize('seed', [0, 1])
def test_correction_makes_tissue_even(seed):
    clean, inside = head()
    biased = make_image(clean * true_field(seed))
    corrected = correct(biased, make_image(inside.astype(np.uint8)))
    white = clean > 90
    spread = [np.std(x[white]) / np.mean(x[white]) for x in (biased.dataobj, corrected.dataobj)]
    assert spread[1] < 0.5 * spread[0]


@pytest.mark.parametrize('orientation', ['LAS', 'PSR', 'SAL'])
@pytest.mark.parametrize('correct', [correct, partial(correct_bias, grid_spacing=SPACING)])
def test_storage_order_does_not_matter(correct, orientation):
    clean, inside = head()
    biased = clean * true_field()
    straight, turned = (
        nib.as_closest_canonical(
            correct(make_image(biased, order), make_image(inside.astype(np.uint8), order))
        ).get_fdata()
        for order in ('RAS', orientation)
    )
    np.testing.assert_allclose(turned[inside], straight[inside], rtol=1e-5)


@pytest.mark.parametrize('dtype', [np.uint8, np.int16, np.float32])
def test_grid_and_mean_stay_and_nothing_turns_negative(dtype):
    clean, inside = head()
    image = make_image((clean * true_field()).astype(dtype), 'PSR', (4.0, 3.5, 4.5))
    mask = make_image(inside.astype(np.uint8), 'PSR', (4.0, 3.5, 4.5))
    corrected = correct(image, mask)
    np.testing.assert_array_equal(corrected.affine, image.affine)
    assert corrected.get_data_dtype() == np.float32
    within = mask.get_fdata() > 0
    assert corrected.get_fdata()[within].mean() == pytest.approx(image.get_fdata()[within].mean())
    assert corrected.get_fdata().min() >= 0
    assert np.isfinite(corrected.get_fdata()).all()


@pytest.mark.parametrize('factor', [0.01, 1000.0])
def test_scale_of_intensities_does_not_matter(factor):
    clean, inside = head()
    mask = make_image(inside.astype(np.uint8))
    biased = clean * true_field()
    scaled = correct(make_image(biased * np.float32(factor)), mask).get_fdata()
    plain = correct(make_image(biased), mask).get_fdata()
    np.testing.assert_allclose(scaled[inside], factor * plain[inside], rtol=0.01)


def test_the_same_image_gives_the_same_field():
    clean, inside = head()
    image, mask = make_image(clean * true_field()), make_image(inside.astype(np.uint8))
    first, second = (correct(image, mask).get_fdata() for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
@pytest.mark.parametrize('spacing', [8.0, 12.0])
def test_a_coarse_grid_gives_the_field_of_the_full_one(spacing):
    clean, inside = head()
    image, mask = make_image(clean * true_field()), make_image(inside.astype(np.uint8))
    coarse, full = (
        log_bias_field(image, mask, **FEW_LEVELS | {'grid_spacing': mm})[inside]
        for mm in (spacing, VOXEL_SIZE)
    )
    assert np.corrcoef(coarse, full)[0, 1] > 0.97


def test_holes_of_zeros_inside_the_mask_change_little():
    clean, inside = head()
    biased = clean * true_field()
    holed = biased.copy()
    holed[15:18, 15:18, 15:18] = 0
    mask = make_image(inside.astype(np.uint8))
    fields = [estimate(make_image(array), mask)[inside] for array in (biased, holed)]
    assert np.corrcoef(*fields)[0, 1] > 0.98


@pytest.mark.parametrize(
    ('inside', 'message'),
    [(slice(0, 0), '0 voxels 8 mm apart'), (slice(0, 2), '19 voxels 8 mm apart')],
)
def test_too_small_a_mask_is_refused(inside, message):
    image = make_image(head()[0])
    mask = np.zeros(SHAPE, np.uint8)
    mask[inside, :2] = 1
    with pytest.raises(DataError, match=message):
        correct(image, like(image, mask, np.uint8))


def test_a_mask_on_another_grid_is_refused():
    clean, inside = head()
    mask = make_image(inside.astype(np.uint8), zooms=(1.0, 1.0, 1.0))
    with pytest.raises(DataError, match='not on the grid'):
        correct(make_image(clean), mask)
