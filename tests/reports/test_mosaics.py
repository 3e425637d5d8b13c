"""Mosaics: left is left on any grid, the same input gives the same file, files stay small."""

import nibabel as nib
import numpy as np
import pytest
from nilearn.image import resample_img
from PIL import Image
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.regions import region_mates, region_names
from surreal_bids.reports import mosaics
from surreal_bids.reports.mosaics import AXES, CHANGE, MARGIN_MM, Background, Scale, StatisticalMap
from tests.reports.heads import (
    HALF_AXES,
    MARKER,
    draw_head,
    oblique_grid,
    oriented_grid,
    ras_grid,
    world_of,
)
from tests.shared_data import shared_data

pytestmark = pytest.mark.drawn


def read_pixels(path):
    return np.asarray(Image.open(path).convert('RGB')).astype(int)


def part(mask, which):
    x, _, z = world_of(mask.shape, mask.affine)
    inside = np.asarray(mask.dataobj) > 0
    chosen = {'GM': x < 0, 'WM': (x >= 0) & (z > 0), 'CSF': (x >= 0) & (z <= 0)}[which]
    return nib.Nifti1Image((inside & chosen).astype(np.float32), mask.affine)


def draw_all(folder, grid):
    """Draw every kind of mosaic of the simple head."""
    t1w, mask = draw_head(grid)
    tissues = {tissue: part(mask, tissue) for tissue in mosaics.TISSUE_COLOURS}
    halves = nib.Nifti1Image(np.asarray(tissues['GM'].dataobj).astype(np.int16) * 48, mask.affine)
    background = Background(t1w, mask)
    painter = mosaics.RegionPainter(background, halves)
    scale = Scale(CHANGE, -2.0, 2.0, 'SD')
    return [
        mosaics.mask_mosaic(folder / 'mask.jpg', t1w, mask),
        mosaics.mask_mosaic(folder / 'lesion.jpg', t1w, mask, tissues['WM']),
        mosaics.tissue_mosaic(folder / 'tissue.jpg', t1w, mask, tissues),
        mosaics.label_mosaic(folder / 'labels.jpg', t1w, mask, halves, region_names()),
        *mosaics.registration_pair(
            (folder / 'moving.jpg', folder / 'fixed.jpg'), t1w, t1w, mask, tissues['WM']
        ),
        mosaics.ravens_mosaic(folder / 'ravens.jpg', tissues['GM'], mask),
        StatisticalMap(tissues['GM'], 'title', 't').draw(folder / 'map.jpg', background),
        painter.draw(folder / 'card.jpg', {'r1': {48: -1.5}}, scale),
    ]


@pytest.fixture(scope='module')
def usual(tmp_path_factory):
    return draw_all(tmp_path_factory.mktemp('usual'), ras_grid())


@pytest.mark.slow
@pytest.mark.parametrize('codes', ['RAS', 'LPI', 'PIR'])
def test_the_orientation_of_the_file_does_not_matter(tmp_path, usual, codes):
    turned = draw_all(tmp_path, oriented_grid(codes))
    for path, other in zip(usual, turned):
        assert path.stat().st_size < 3e5
        if codes == 'RAS':
            assert other.read_bytes() == path.read_bytes()
        pixels, others = read_pixels(path), read_pixels(other)
        assert pixels.shape == others.shape
        assert np.mean(np.abs(pixels - others) > 24) < 0.01, path.name


@pytest.mark.parametrize(
    'grid',
    [ras_grid(), oriented_grid('SLA'), oriented_grid('ASR', (0.5, 1.0, 1.5)), oblique_grid()],
    ids=['RAS', 'SLA', 'thick', 'oblique'],
)
def test_the_marker_is_where_it_is(grid):
    t1w, mask = draw_head(grid)
    sample = mosaics.sampler(t1w)
    low, high = mosaics.extent(mask)
    for plane, (across, up, through) in AXES.items():
        tile = mosaics._tile(plane, MARKER[through], low, high)
        bright = sample(tile.world) > 180
        for axis in (across, up):
            assert tile.world[..., axis][bright].mean() == pytest.approx(MARKER[axis], abs=0.5)
        assert np.all(np.diff(tile.world[0, :, across]) > 0)
        assert np.all(np.diff(tile.world[:, 0, up]) < 0)


@pytest.mark.parametrize('order', [0, 1])
def test_agrees_with_nilearn(order):
    t1w, _ = draw_head(oblique_grid())
    affine = np.eye(4)
    affine[:3, 3] = (-25.0, -30.0, 7.0)
    how = ('nearest', 'linear')[order]
    theirs = resample_img(
        t1w, affine, (51, 63, 1), interpolation=how, force_resample=True, copy_header=True
    )
    world = np.stack(np.meshgrid(np.arange(-25.0, 26), np.arange(-30.0, 33), 7.0), axis=-1)
    ours = mosaics.sampler(t1w, order)(world)[..., 0]
    np.testing.assert_allclose(ours, theirs.get_fdata()[..., 0].T, atol=1e-3)


@pytest.mark.parametrize('threshold', [1.0, 4.0])
def test_losses_are_blue_and_small_values_grey(tmp_path, threshold):
    t1w, mask = draw_head(ras_grid())
    x = world_of(mask.shape, mask.affine)[0]
    values = np.where(x < -4, -5.0, np.where(x > 4, 3.0, 0.5)) * np.asarray(mask.dataobj)
    image = nib.Nifti1Image(values.astype(np.float32), mask.affine)
    shown = StatisticalMap(image, 'title', 't', threshold)
    path = shown.draw(tmp_path / 's.jpg', Background(t1w, mask))
    tile = read_pixels(path)[: int(2 * HALF_AXES[1]), : int(2 * HALF_AXES[0])]
    blueness = tile[..., 2] - tile[..., 0]
    blue, red = np.nonzero(blueness > 60)[1], np.nonzero(blueness < -60)[1]
    assert len(blue) > 50
    assert (len(red) > 50) == (threshold < 3)
    if threshold < 3:
        assert blue.mean() + 8 < red.mean()


def test_slices_are_spread_over_the_brain_and_run_through_a_lesion():
    _, mask = draw_head(ras_grid())
    x, y, z = world_of(mask.shape, mask.affine)
    ball = (x + 20) ** 2 + (y - 20) ** 2 + (z - 5) ** 2 < 16
    lesion = nib.Nifti1Image(ball.astype(np.uint8), mask.affine)
    for through in (None, lesion):
        for plane, tiles in mosaics.slices(mask, through=through).items():
            axis = AXES[plane][2]
            places = [tile.world[0, 0, axis] for tile in tiles]
            assert places == sorted(places)
            assert max(np.abs(places)) < HALF_AXES[axis]
            if through is not None:
                assert min(abs(place - (-20, 20, 5)[axis]) for place in places) <= 1
    width = mosaics.slices(mask)['z'][0].world.shape[1]
    assert width == pytest.approx(2 * (HALF_AXES[0] + MARGIN_MM), abs=3)


def test_pairs_of_regions_share_a_hue_and_left_is_lighter():
    names = region_names()
    for index in (47, 31, 207):
        colours = {
            names[i].split()[0]: np.array(mosaics.region_colour(i, names[i]))
            for i in (index, region_mates()[index])
        }
        np.testing.assert_array_equal(*(np.argsort(colour) for colour in colours.values()))
        assert colours['Left'].sum() > colours['Right'].sum()
    assert len({mosaics.region_colour(index, '') for index in range(1, 200)}) == 199


def test_what_cannot_be_drawn_is_refused(tmp_path):
    t1w, mask = draw_head(ras_grid())
    elsewhere = nib.Nifti1Image(np.asarray(t1w.dataobj), t1w.affine + np.eye(4, k=3) * 900)
    with pytest.raises(DataError, match='same space'):
        mosaics.mask_mosaic(tmp_path / 'm.jpg', elsewhere, mask)
    nothing = nib.Nifti1Image(np.zeros(mask.shape, np.uint8), mask.affine)
    with pytest.raises(DataError, match='empty'):
        mosaics.mask_mosaic(tmp_path / 'm.jpg', t1w, nothing)
    assert not list(tmp_path.iterdir())


def test_real_heads_make_small_files(tmp_path):
    folder = shared_data('ixi2mm')
    t1w = nib.load(folder / 'T1w' / 'IXI105-HH-1471.nii.gz')
    labels = nib.load(folder / 'dseg' / 'IXI105-HH-1471.nii.gz')
    brain = ndimage.binary_closing(np.asarray(labels.dataobj) > 0, iterations=2)
    mask = nib.Nifti1Image(brain.astype(np.uint8), labels.affine)
    path = mosaics.label_mosaic(tmp_path / 'm.jpg', t1w, mask, labels, region_names())
    assert 5e4 < path.stat().st_size < 3e5
