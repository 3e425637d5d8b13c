from functools import cache

import numpy as np
import pytest
from scipy import ndimage

from surreal_bids.images import same_grid
from surreal_bids.imaging.atlas import (
    ANTERIOR_LIMB,
    CEREBRAL_WHITE,
    CORPUS_CALLOSUM,
    FORNIX,
    LOBAR_WHITE,
    POSTERIOR_LIMB,
    divide_white_matter,
    muse_labels,
    muse_regions,
    muse_t1w,
)
from surreal_bids.regions import muse_table
from surreal_bids.templates import LABELS_FILE, TRACTS_FILE, read_labels

FRONTAL_RIGHT, PARIETAL_RIGHT = 190, 198
"""Superior frontal gyrus and superior parietal lobule; the left ones follow."""

BEHIND_OTHER_CORTEX = {172, 173, 174, 175}
"""Posterior insula and parietal operculum: counted as frontal, but near other lobes."""

SMALL_LEFT_RIGHT = {49, 50}
"""Temporal horns: 0.2 and 0.1 ml in the template, and not symmetric."""


@cache
def atlas():
    t1w = muse_t1w()
    return t1w, muse_labels(t1w)


def label_array():
    return np.asarray(atlas()[1].dataobj)


@cache
def divided():
    """Neuromorphometrics labels as shipped, and with the white matter divided."""
    labels = read_labels(LABELS_FILE)
    data = np.asarray(labels.dataobj, dtype=np.uint8)
    tracts = np.asarray(read_labels(TRACTS_FILE).dataobj, dtype=np.uint8)
    return data, divide_white_matter(data, tracts, labels.affine)


def touching(data, index):
    region = data == index
    return set(np.unique(data[ndimage.binary_dilation(region) & ~region]).tolist())


def test_the_list_has_all_regions_of_muse():
    regions = muse_regions()
    assert regions['index'].tolist() == muse_table()['index'].tolist()
    assert len(regions) == 145
    assert set(regions['tissue']) == {'GM', 'WM', 'CSF', 'none'}


@pytest.mark.parametrize('side', ['R', 'L'])
def test_white_matter_goes_to_the_nearest_lobe_of_its_side(side):
    """A bar of white matter between two lobes; cortex of the other side is nearer, and ignored."""
    labels = np.zeros((9, 40, 7), dtype=np.uint8)
    labels[3:6, 5:35] = CEREBRAL_WHITE[side]
    own = 0 if side == 'R' else 1
    labels[3:6, 30:35, 0] = FRONTAL_RIGHT + own
    labels[3:6, 5:8, 0] = PARIETAL_RIGHT + own
    labels[3:6, 5:35, 6] = FRONTAL_RIGHT + 1 - own
    affine = np.eye(4)
    affine[:3, 3] = (30, -20, 60)
    result = divide_white_matter(labels, np.full_like(labels, 5), affine)
    assert set(np.unique(result[3:6, 28:35, 1:6])) == {LOBAR_WHITE['frontal', side]}
    assert set(np.unique(result[3:6, 5:10, 1:6])) == {LOBAR_WHITE['parietal', side]}
    unchanged = ~np.isin(labels, list(CEREBRAL_WHITE.values()))
    np.testing.assert_array_equal(result[unchanged], labels[unchanged])


@pytest.mark.slow
def test_every_region_is_there_and_lies_in_the_brain():
    t1w, labels = atlas()
    assert same_grid(t1w, labels)
    assert set(np.unique(label_array())) == {0, *muse_table()['index']}
    assert not label_array()[np.asarray(t1w.dataobj) == 0].any()


@pytest.mark.slow
def test_division_keeps_the_cerebral_white_matter():
    before, after = divided()
    white = np.isin(before, list(CEREBRAL_WHITE.values()))
    parts = np.isin(after, range(81, 96))
    np.testing.assert_array_equal(white, parts)
    np.testing.assert_array_equal(before[~white], after[~white])


@pytest.mark.slow
def test_sides_are_alike():
    table = muse_table().dropna(subset='mate')
    table = table[(table['hemisphere'] == 'R') & ~table['index'].isin(SMALL_LEFT_RIGHT)]
    voxels = np.bincount(label_array().ravel(), minlength=256)
    ratio = voxels[table['index']] / voxels[table['mate'].astype(int)]
    assert ratio.min() > 0.75
    assert ratio.max() < 1.33


@pytest.mark.slow
@pytest.mark.parametrize('side', ['R', 'L'])
def test_regions_lie_on_their_side(side):
    t1w, _ = atlas()
    world_x = t1w.affine[0, 0] * np.arange(t1w.shape[0]) + t1w.affine[0, 3]
    table = muse_table()
    sign = 1 if side == 'R' else -1
    for index in table.loc[table['hemisphere'] == side, 'index']:
        across = (label_array() == index).sum(axis=(1, 2))
        assert sign * np.average(world_x, weights=across) > 0, index


@pytest.mark.slow
@pytest.mark.parametrize(('lobe', 'side'), list(LOBAR_WHITE))
def test_lobar_white_matter_touches_its_lobe(lobe, side):
    table = muse_table()
    cortex = table[(table['lobe'] == lobe) & (table['hemisphere'] == side)]
    cortex = cortex.loc[cortex['tissue'] == 'GM', 'index']
    assert set(cortex) <= touching(divided()[1], LOBAR_WHITE[lobe, side]) | BEHIND_OTHER_CORTEX


@pytest.mark.slow
@pytest.mark.parametrize(
    ('index', 'neighbours'),
    [
        (POSTERIOR_LIMB['R'], {59, 55}),
        (POSTERIOR_LIMB['L'], {60, 56}),
        (ANTERIOR_LIMB['R'], {36, 57}),
        (ANTERIOR_LIMB['L'], {37, 58}),
        (CORPUS_CALLOSUM, {51, 52, 100, 101, 81, 82}),
        (FORNIX['R'], {CORPUS_CALLOSUM, 59}),
        (FORNIX['L'], {CORPUS_CALLOSUM, 60}),
    ],
)
def test_deep_white_matter_touches_what_it_should(index, neighbours):
    assert neighbours <= touching(divided()[1], index)
