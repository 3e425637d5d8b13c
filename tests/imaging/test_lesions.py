"""A lesion painted into a simulated head: with its mask, the rest is as it was without it."""

from functools import cache

import nibabel as nib
import numpy as np
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.images import like
from surreal_bids.imaging.bias import log_bias_field
from surreal_bids.imaging.deformation import Settings
from surreal_bids.imaging.lesions import fill_lesion, lesion_ml, lesion_shares, without_lesion
from surreal_bids.imaging.registration import register
from surreal_bids.imaging.tissue import classify_tissue
from tests.imaging.heads import VOXEL_MM, affine_priors, scan
from tests.simulation.phantom import real_template

pytestmark = pytest.mark.slow

RADIUS_MM = 17.0
"""Radius of a lesion of 20 ml."""


def head():
    """A T1w image, its brain mask and its tissue."""
    return scan().t1w, scan().brain


def voxels(image):
    return np.asarray(image.dataobj) > 0


@cache
def lesion():
    """A ball of 20 ml in the right hemisphere, in the brain."""
    _, mask = head()
    places = nib.affines.apply_affine(mask.affine, np.argwhere(voxels(mask)))
    middle = places.mean(axis=0) + np.array([35, 10, 15])
    inside = np.zeros(mask.shape, np.uint8)
    inside[voxels(mask)] = np.linalg.norm(places - middle, axis=1) < RADIUS_MM
    return like(mask, inside, np.uint8)


def painted(intensity=0.2):
    """The head with a lesion as dark as fluid."""
    t1w, mask = head()
    values = np.array(t1w.dataobj, dtype=np.float32)
    values[voxels(lesion())] = intensity * np.median(values[voxels(mask)])
    return like(t1w, values, np.float32)


def test_a_lesion_is_filled_with_what_was_there():
    t1w, mask = head()
    filled = np.asarray(fill_lesion(painted(), mask, lesion()).dataobj)
    truth, damaged = np.asarray(t1w.dataobj, dtype=np.float32), voxels(lesion())
    np.testing.assert_array_equal(filled[~damaged], np.asarray(painted().dataobj)[~damaged])

    def error(values):
        return np.abs(values[damaged] - truth[damaged]).mean()

    assert error(filled) < 0.35 * error(np.asarray(painted().dataobj))
    assert np.corrcoef(filled[damaged], truth[damaged])[0, 1] > 0.5


def test_lesions_of_both_sides_are_filled_with_tissue_around_them():
    _, mask = head()
    both = voxels(lesion()) | voxels(lesion())[::-1]
    t1w = np.array(painted().dataobj)
    t1w[both] = 0
    filled = fill_lesion(like(mask, t1w, np.float32), mask, like(mask, both, np.uint8))
    assert (np.asarray(filled.dataobj)[both & voxels(mask)] > 0).mean() > 0.98


def _share_left(reference, without, with_mask, where):
    """Change of an array that is left when the mask is given."""
    changes = [np.abs(each - reference)[where].mean() for each in (with_mask, without)]
    return changes[0] / changes[1]


def test_the_bias_field_does_not_follow_the_lesion():
    t1w, mask = head()
    sound = without_lesion(mask, lesion())
    where = voxels(sound)
    fields = [
        log_bias_field(*each) for each in ((t1w, mask), (painted(), mask), (painted(), sound))
    ]
    centred = [field - field[where].mean() for field in fields]
    assert _share_left(*centred, where) < 0.7


def test_a_lesion_has_no_tissue_and_does_not_change_that_of_others():
    t1w, mask = head()
    sound, priors = without_lesion(mask, lesion()), affine_priors(t1w)
    found = [
        np.stack([np.asarray(each.dataobj) for each in tissues.probabilities.values()])
        for tissues in (
            classify_tissue(t1w, mask, priors),
            classify_tissue(painted(), mask, priors),
            classify_tissue(painted(), sound, priors),
        )
    ]
    assert found[2][:, voxels(lesion())].max() == 0
    np.testing.assert_allclose(found[2].sum(axis=0)[voxels(sound)], 1, rtol=1e-5)
    assert _share_left(*found, (slice(None), voxels(sound))) < 0.5


def test_registration_does_not_follow_the_lesion():
    t1w, mask = head()
    template = real_template(VOXEL_MM)
    fixed = nib.Nifti1Image(template.tissue[0] + 1.5 * template.tissue[1], template.affine)
    filled = fill_lesion(painted(), mask, lesion())
    fields = [
        register(fixed, each, settings=Settings(), moving_mask=mask).inverse.field
        for each in (t1w, painted(), filled)
    ]
    assert _share_left(*fields, voxels(mask)) < 0.5


def test_shares_of_regions():
    labels = np.zeros((7, 8, 9), np.int16)
    labels[:4], labels[4:] = 3, 8
    damaged = np.zeros(labels.shape, np.uint8)
    damaged[2:4] = 1
    affine = np.diag([2.0, 3.0, 4.0, 1.0])
    images = [nib.Nifti1Image(each, affine) for each in (labels, damaged)]
    assert lesion_shares(*images) == {3: 0.5, 8: 0.0}
    fine = nib.Nifti1Image(labels.repeat(2, 0), affine @ np.diag([0.5, 1, 1, 1]))
    fine.affine[0, 3] -= 0.5
    assert lesion_shares(fine, images[1]) == pytest.approx({3: 0.5, 8: 0.0}, abs=0.13)


def test_the_volume_of_a_lesion_is_that_in_the_brain(caplog):
    _, mask = head()
    volume = pytest.approx(4 / 3 * np.pi * RADIUS_MM**3 / 1000, rel=0.05)
    assert lesion_ml(lesion(), mask) == volume
    assert caplog.text == ''
    lesion_ml(like(mask, np.ones(mask.shape), np.uint8), mask)
    assert f'only {voxels(mask).mean():.0%} of the lesion mask is in the brain' in caplog.text


@pytest.mark.parametrize('use', [lesion_ml, lambda lesion, mask: without_lesion(mask, lesion)])
def test_a_lesion_wholly_outside_the_brain_is_an_error(use):
    _, mask = head()
    with pytest.raises(DataError, match=r'no voxel of the lesion mask is in the brain; overlay it'):
        use(like(mask, ~voxels(mask), np.uint8), mask)


def test_a_lesion_that_is_the_whole_brain_is_an_error():
    t1w, mask = head()
    with pytest.raises(DataError, match='the lesion is the whole brain'):
        fill_lesion(t1w, mask, mask)
