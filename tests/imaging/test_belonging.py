"""Results of the same head pass; those of another head, mirrored or moved ones are refused."""

from contextlib import nullcontext

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nibabel.affines import apply_affine
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.images import load_image
from surreal_bids.imaging.belonging import (
    check_known,
    check_mask,
    check_same_head,
    check_segmentation,
    check_tissue_maps,
    require_overlap,
)
from surreal_bids.regions import label_table, muse_table, structure_of
from tests.imaging import heads
from tests.shared_data import shared_data

WHITE_OF_HAND_LABELS = pd.DataFrame(
    {'index': [44, 45], 'name': ['Right white matter', 'Left white matter']}
)
MUSE_REGIONS = pd.concat([label_table('muse'), WHITE_OF_HAND_LABELS])


def _moved(image, shift):
    affine = image.affine.copy()
    affine[:3, 3] += shift
    return nib.Nifti1Image(np.asarray(image.dataobj), affine)


def _rolled(image, shift, axis):
    """Move the voxels of an image along an axis."""
    return nib.Nifti1Image(np.roll(np.asarray(image.dataobj), shift, axis), image.affine)


def _centre(image):
    return apply_affine(image.affine, np.argwhere(np.asarray(image.dataobj) > 0)).mean(axis=0)


def _direction(rng):
    vector = rng.normal(size=3)
    return vector / np.linalg.norm(vector)


@pytest.mark.slow
def test_simulated_heads():
    rng = np.random.default_rng(0)
    scan, other = heads.scan(0), heads.scan(1)
    maps = list(heads.true_tissue(scan.t1w, 0).values())
    check_segmentation(scan.labels, MUSE_REGIONS, scan.t1w)
    sideless = MUSE_REGIONS.assign(name=MUSE_REGIONS['name'].map(structure_of))
    assert check_segmentation(scan.labels, sideless, scan.t1w) == ''
    check_tissue_maps(maps, scan.t1w)
    check_mask(scan.brain, scan.t1w)
    check_same_head(scan.t1w, scan.t1w)
    moved = _moved(scan.labels, rng.uniform(12, 20) * _direction(rng))
    centred = _moved(other.labels, _centre(scan.labels) - _centre(other.labels))
    for wrong in (moved, centred):
        with pytest.raises(DataError, match='white and grey matter'):
            check_segmentation(wrong, MUSE_REGIONS, scan.t1w)
    with pytest.raises(DataError, match='field of view'):
        check_segmentation(_moved(scan.labels, 500 * _direction(rng)), MUSE_REGIONS, scan.t1w)
    axis, shift = rng.integers(3), rng.integers(4, 8) * rng.choice([-1, 1])
    with pytest.raises(DataError, match='better 4 mm away'):
        check_mask(_rolled(scan.brain, shift, axis), scan.t1w)
    with pytest.raises(DataError, match='white and grey matter'):
        check_tissue_maps([_rolled(each, shift, axis) for each in maps], scan.t1w)
    with pytest.raises(DataError, match='are not probabilities'):
        check_tissue_maps([scan.t1w, *maps[1:]], scan.t1w)
    values = np.asarray(scan.t1w.dataobj)
    inverted = nib.Nifti1Image(values.max() + 1 - values, scan.t1w.affine)
    for wrong in (other.t1w, inverted, _moved(scan.t1w, 500 * _direction(rng))):
        with pytest.raises(DataError, match='raw T1w image'):
            check_same_head(wrong, scan.t1w)


@pytest.mark.parametrize(
    ('share', 'axes', 'message'),
    [
        (1.0, [0, 1, 2, 3], 'left and right are exchanged'),
        (0.4, [0, 1, 2, 3], 'on the other side'),
        (0.0, [1, 0, 2, 3], 'not along the x axis'),
    ],
)
def test_sides(share, axes, message):
    rng = np.random.default_rng(0)
    scan = heads.scan(0)
    labels, t1w = (
        nib.Nifti1Image(np.asarray(each.dataobj), np.eye(4)[axes] @ each.affine)
        for each in (scan.labels, scan.t1w)
    )
    sides = {'Left': 'Right', 'Right': 'Left'}
    words = MUSE_REGIONS['name'].str.split(' ', n=1)
    exchanged = [f'{sides.get(side, side)} {rest}' for side, rest in words]
    structures = MUSE_REGIONS['name'].map(structure_of)
    chosen = {each for each in structures.unique() if rng.random() < share}
    names = MUSE_REGIONS['name'].mask(structures.isin(chosen), exchanged)
    with pytest.raises(DataError, match=message):
        check_segmentation(labels, MUSE_REGIONS.assign(name=names), t1w)


@pytest.mark.parametrize(
    ('values', 'message'),
    [
        (lambda m: m * np.linspace(0.5, 1, m.shape[0])[:, None, None], 'more than two values'),
        (lambda m: np.pad(np.ones((1, 1, 1)), [(0, n - 1) for n in m.shape]), 'litres'),
        (lambda m: np.where(np.arange(m.shape[0])[:, None, None] > 0, 1, 0 * m), 'litres'),
        (lambda m: m[1:], 'the brain mask is not on the grid'),
    ],
)
def test_masks_that_are_none(values, message):
    t1w, mask = heads.scan(0).t1w, heads.scan(0).brain
    changed = nib.Nifti1Image(values(np.asarray(mask.dataobj, np.float32)), mask.affine)
    with pytest.raises(DataError, match=message):
        check_mask(changed, t1w)


def test_labels_that_the_table_does_not_know():
    regions = label_table('muse')
    assert '1 of 145 regions' in check_known({47: 60.0, 999: 40.0}, regions)
    assert check_known(dict.fromkeys(regions['index'], 1.0), regions) == ''
    with pytest.raises(DataError, match=r'only 40% .* 999'):
        check_known({47: 40.0, 999: 60.0}, label_table('muse'))


def _real(folder, name):
    root = shared_data(folder)
    return load_image(root / f'T1w/{name}'), load_image(root / f'dseg/{name}')


@pytest.mark.slow
@pytest.mark.parametrize(
    ('folder', 'names'),
    [
        ('ixi2mm', ('IXI012-HH-1211.nii.gz', 'IXI612-HH-2688.nii.gz')),
        ('oasis35', ('1000.nii.gz', '1128.nii.gz')),
    ],
)
def test_labels_of_real_heads(folder, names):
    (t1w, own), (_, other) = (_real(folder, name) for name in names)
    check_segmentation(own, MUSE_REGIONS, t1w)
    with pytest.raises(DataError, match='white and grey matter'):
        check_segmentation(_moved(other, _centre(own) - _centre(other)), MUSE_REGIONS, t1w)


@pytest.mark.parametrize('name', ['IXI256-HH-1723.nii.gz', 'IXI438-HH-2155.nii.gz'])
def test_real_labels_on_the_wrong_side(name):
    t1w, dseg = _real('ixi2mm_more', name)
    with pytest.raises(DataError, match='on the other side'):
        check_segmentation(dseg, MUSE_REGIONS, t1w)


def _bias(shape, rng):
    """A smooth field that changes by up to a factor of four."""
    axes = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing='ij')
    return np.exp(sum(rng.uniform(-0.35, 0.35) * axis for axis in axes))


def test_real_heads_with_bias_noise_and_coarse_labels_are_accepted():
    rng = np.random.default_rng(0)
    t1w, labels = _real('ixi2mm', 'IXI012-HH-1211.nii.gz')
    values, numbers = (np.asarray(each.dataobj) for each in (t1w, labels))
    noise = rng.normal(0, 0.5 * values[numbers > 0].std(), values.shape)
    changed = nib.Nifti1Image(values * _bias(values.shape, rng) + noise, t1w.affine)
    every_third = labels.affine @ np.array([[3, 0, 0, 1], [0, 3, 0, 1], [0, 0, 3, 1], [0, 0, 0, 1]])
    coarse = nib.Nifti1Image(numbers[1::3, 1::3, 1::3], every_third)
    assert check_segmentation(labels, MUSE_REGIONS, changed) == ''
    assert check_segmentation(coarse, MUSE_REGIONS, changed) == ''


def test_images_in_which_white_matter_is_dark():
    t1w, labels = _real('ixi2mm', 'IXI012-HH-1211.nii.gz')
    dark = nib.Nifti1Image(4000 - np.asarray(t1w.dataobj, np.float32), t1w.affine)
    with pytest.raises(DataError, match='darker'):
        check_segmentation(labels, MUSE_REGIONS, dark)


def test_smooth_tissue_maps_are_in_doubt():
    t1w, labels = _real('ixi2mm', 'IXI105-HH-1471.nii.gz')
    tissues = muse_table().set_index('index')['tissue']
    numbers = np.asarray(labels.dataobj)
    maps = [
        nib.Nifti1Image(
            ndimage.gaussian_filter(
                np.isin(numbers, tissues.index[tissues == tissue]).astype(float), 1.0
            ),
            t1w.affine,
        )
        for tissue in ('GM', 'WM', 'CSF')
    ]
    assert 'only roughly' in check_tissue_maps(maps, t1w)


@pytest.mark.parametrize(('label', 'fits'), [(24, True), (3, False)])
def test_csf_around_the_brain_may_be_outside_the_mask(label, fits):
    axes = (np.arange(size) - size // 2 for size in (40, 42, 44))
    radius = np.sqrt(sum(np.square(axis) for axis in np.meshgrid(*axes, indexing='ij')))
    mask = nib.Nifti1Image((radius < 14).astype(np.int16), np.eye(4))
    labels = np.where(radius < 14, 2, np.where(radius < 16, label, 0)).astype(np.int16)
    expected = nullcontext() if fits else pytest.raises(DataError, match='brain mask')
    with expected:
        require_overlap(nib.Nifti1Image(labels, np.eye(4)), mask, label_table('synthseg'))
