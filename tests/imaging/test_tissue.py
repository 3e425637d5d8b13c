from functools import cache
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.images import like, load_image
from surreal_bids.imaging.bias import correct_bias
from surreal_bids.imaging.deformation import FLUID
from surreal_bids.imaging.registration import register
from surreal_bids.imaging.tissue import CONTENTS, classify_tissue, voxel_contents
from surreal_bids.imaging.transforms import resample
from surreal_bids.templates import TISSUES, builtin_template
from tests.imaging.heads import affine_priors, dice, scan, true_tissue
from tests.shared_data import shared_data

SHAPE = (24, 28, 26)
INTENSITY = {'GM': 62, 'WM': 100, 'CSF': 18}


@cache
def ball():
    """Nested balls on unequal axes: fractions (tissues, X, Y, Z), and the mask that holds them."""
    axes = (np.arange(n) - n / 2 + 0.5 for n in SHAPE)
    radius = np.sqrt(sum(x**2 for x in np.meshgrid(*axes, indexing='ij')))
    white, brain_without_rim, brain = (np.clip(r - radius, 0, 1) for r in (6, 9, 11))
    grey, fluid = brain_without_rim - white, brain - brain_without_rim
    return np.stack([grey, white, fluid]), radius < 10.5


def make_image(array, dtype=np.float32):
    return nib.Nifti1Image(np.asarray(array, dtype), np.diag([2.0, 2.1, 1.9, 1.0]))


def ball_images(brightness=INTENSITY, noise=3.0, blur=0.3):
    """T1w image, mask and priors; the priors know the tissue only vaguely."""
    fractions, inside = ball()
    clean = np.tensordot([brightness[name] for name in TISSUES], fractions, axes=1)
    t1w = clean + np.random.default_rng(0).normal(0, noise, SHAPE)
    vague = (1 - blur) * fractions + blur / 3
    priors = {name: make_image(prior) for name, prior in zip(TISSUES, vague)}
    return make_image(t1w), make_image(inside, np.uint8), priors


def stack(images):
    return np.stack([images[name].get_fdata() for name in TISSUES])


def test_tissue_is_found_and_its_volume_kept():
    fractions, inside = ball()
    posterior = stack(classify_tissue(*ball_images()).shares)
    for found, truth in zip(np.eye(3)[posterior.argmax(0)].T, np.eye(3)[fractions.argmax(0)].T):
        assert dice((found.T > 0) & inside, (truth.T > 0) & inside) > 0.9
    np.testing.assert_allclose(
        posterior.sum(axis=(1, 2, 3)), fractions[:, inside].sum(axis=1), rtol=0.15
    )


@pytest.mark.parametrize(
    'brightness',
    [{'GM': 62, 'WM': 18, 'CSF': 100}, {'GM': 100, 'WM': 62, 'CSF': 18}],
    ids=['T2w', 'grey matter brightest'],
)
def test_other_contrasts_are_refused_with_what_was_found(brightness):
    for blur in (0.3, 0.97):  # With vague priors, the means do not converge.
        with pytest.raises(DataError, match=r'intensities are CSF \d+.*check that this is a T1w'):
            classify_tissue(*ball_images(brightness, blur=blur))


def test_empty_masks_and_images_are_refused():
    t1w, mask, priors = ball_images()
    with pytest.raises(DataError, match='mask is empty'):
        classify_tissue(t1w, like(mask, np.zeros(SHAPE), np.uint8), priors)
    with pytest.raises(DataError, match='nearly all voxels of the brain are 7;'):
        classify_tissue(like(t1w, np.full(SHAPE, 7.0), np.float32), mask, priors)


TRUE_MEANS = (0.6, 0.9, 0.2)


def sample_of_the_model(n_voxels, rng):
    """Voxels of two halves each: their contents, priors and intensities as the model has them."""
    means, noise = np.array(TRUE_MEANS), 0.04
    priors = rng.dirichlet([0.6, 0.6, 0.6], n_voxels).T.astype(np.float32)
    halves = np.sort(
        [[rng.choice(3, p=p / p.sum()) for _ in range(2)] for p in priors.T.astype(float)], axis=1
    )
    share = np.where(halves[:, 0] == halves[:, 1], 0.5, rng.uniform(0.25, 0.75, n_voxels))
    clean = share * means[halves[:, 0]] + (1 - share) * means[halves[:, 1]]
    values = (clean + rng.normal(0, noise, n_voxels)).astype(np.float32)
    return [CONTENTS.index(tuple(each)) for each in halves.tolist()], priors, values


@pytest.mark.slow
def test_contents_of_voxels_drawn_from_the_model_are_found_as_often_as_they_say():
    """Probabilities are calibrated: of all that are given with 0.7 to 0.9, so many are right."""
    rng = np.random.default_rng(0)
    truth, priors, values = sample_of_the_model(20_000, rng)
    found, means = voxel_contents(values, priors)
    np.testing.assert_allclose(means, TRUE_MEANS, atol=0.01)
    np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-5)
    right = np.eye(len(CONTENTS))[truth].T
    np.testing.assert_allclose(found.sum(axis=1), right.sum(axis=1), rtol=0.05)
    for low, high in ((0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.0)):
        some = (found > low) & (found <= high)
        assert right[some].mean() == pytest.approx(found[some].mean(), abs=0.03)


def test_what_grey_matter_and_fluid_share_is_shared_or_grey():
    t1w, mask, priors = ball_images(noise=1.0)
    both = classify_tissue(t1w, mask, priors)
    called, shared = (stack(maps).sum(axis=(1, 2, 3)) for maps in both)
    assert called[0] > 1.1 * shared[0]
    assert called[1] == pytest.approx(shared[1], rel=1e-5)
    assert called.sum() == pytest.approx(shared.sum(), rel=1e-5)


@pytest.mark.slow
def test_tissue_of_simulated_heads_is_found_better_than_the_priors_know_it():
    """Simulated tissue is the blurred one of the template: hardly a voxel is pure, unlike in heads.
    Priors are of the right pose and size, not of the right anatomy."""
    simulated = scan(0, 'PSR')
    truth = stack(true_tissue(simulated.t1w))
    priors = affine_priors(simulated.t1w)
    corrected = correct_bias(simulated.t1w, simulated.brain)
    called, shares = map(stack, classify_tissue(corrected, simulated.brain, priors))
    inside = np.asarray(simulated.brain.dataobj) > 0

    def overlaps(estimate):
        return [
            dice((estimate.argmax(0) == k) & inside, (truth.argmax(0) == k) & inside)
            for k in range(len(TISSUES))
        ]

    assert (np.array(overlaps(called)) > [0.89, 0.90, 0.75]).all()
    assert (np.array(overlaps(called)) > overlaps(stack(priors))).all()
    np.testing.assert_allclose(
        shares[:, inside].sum(axis=1), truth[:, inside].sum(axis=1), rtol=0.2
    )


@pytest.mark.slow
def test_tissue_of_a_real_head_is_that_of_the_regions_of_dlmuse():
    t1w = load_image(shared_data('ixi2mm/T1w/IXI051-HH-1328.nii.gz'))
    labels = load_image(shared_data('ixi2mm/dseg/IXI051-HH-1328.nii.gz'))
    inside = np.asarray(labels.dataobj) > 0
    mask = like(t1w, inside, np.uint8)
    corrected = correct_bias(t1w, mask)
    template = builtin_template(3.0)
    brain = like(t1w, corrected.get_fdata() * inside, np.float32)
    registration = register(template.t1w, brain, settings=FLUID, fixed_mask=template.mask)
    priors = {name: resample(template.priors[name], registration.inverse) for name in TISSUES}
    found = stack(classify_tissue(corrected, mask, priors).probabilities)
    neither = np.isin(labels.dataobj, STEM)
    for index, tissue in enumerate(('GM', 'WM')):
        theirs = np.isin(labels.dataobj, regions_of(tissue))
        assert dice((found.argmax(axis=0) == index) & inside, theirs) > 0.82
        assert found[index][inside & ~neither].sum() == pytest.approx(theirs.sum(), rel=0.06)


STEM = (35, 61, 62, 69)
"""Brain stem, ventral diencephalon and optic chiasm, of no tissue in MUSE."""


def regions_of(tissue):
    table = pd.read_csv(Path(shared_data('tables/muse_139.csv')))
    return table.loc[table['TISSUE_SEG'] == tissue, 'ROI_INDEX']
