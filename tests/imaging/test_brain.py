"""The brain mask: whole heads and stripped images."""

import sys
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.images import like, load_image, same_grid
from surreal_bids.imaging.brain import (
    brain_mask,
    check_mask_volume,
    extract_brain,
    stripped_body,
)
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


@pytest.mark.parametrize(('radius', 'expected'), [(40, False), (60, True), (80, True), (88, False)])
def test_a_single_body_is_a_brain_if_it_has_the_size_of_one(radius, expected):
    assert is_stripped(ball(radius)) is expected


@pytest.mark.slow
def test_a_head_with_a_black_background_is_not_stripped():
    t1w = scan(0, 'PSR').t1w
    values = np.asarray(t1w.dataobj)
    assert not is_stripped(like(t1w, np.where(values > 150, values, 0), np.int16))


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
    check_mask_volume(1.5e6)
    with pytest.raises(DataError, match=rf'{litres:.2f} litres.*provide a brain mask or exclude'):
        check_mask_volume(litres * 1e6)


def fake_deepbet(monkeypatch, run):
    """Put a network in the place of deepbet's."""
    network = SimpleNamespace(
        model=SimpleNamespace(to=str), bbox_model=SimpleNamespace(to=str), run=run
    )
    module = SimpleNamespace(BrainExtraction=lambda no_gpu: network)
    monkeypatch.setitem(sys.modules, 'deepbet.bet', module)


def test_an_image_without_a_brain_is_refused(monkeypatch):
    error = AssertionError('Not enough foreground')

    def run(image):
        raise error

    fake_deepbet(monkeypatch, run)
    with pytest.raises(DataError, match=f'no brain in this image .{error}.'):
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
