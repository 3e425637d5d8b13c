"""Planes through a head: the right place whatever the grid, and slices inside the brain."""

import nibabel as nib
import numpy as np
import pytest
from nilearn.image import resample_img

from surreal_bids.exceptions import DataError
from surreal_bids.reports.mosaics import (
    AXES,
    ENDS,
    MARGIN_MM,
    Slice,
    choose_slices,
    load_volume,
    sample,
)
from tests.reports.heads import (
    HALF_AXES,
    MARKER,
    draw_head,
    oblique_grid,
    oriented_grid,
    ras_grid,
)

GRIDS = {
    'RAS': ras_grid(),
    'LAS': oriented_grid('LAS'),
    'LPI': oriented_grid('LPI'),
    'PIR': oriented_grid('PIR'),
    'SLA': oriented_grid('SLA'),
    'thick slices': ras_grid((0.5, 1.0, 1.5)),
    'thick slices, ASR': oriented_grid('ASR', (0.5, 1.0, 1.5)),
    'oblique': oblique_grid(),
}


def slice_through(centre, plane):
    sideways, upwards, across = AXES[plane]
    box = (
        -HALF_AXES[sideways],
        HALF_AXES[sideways],
        -HALF_AXES[upwards],
        HALF_AXES[upwards],
    )
    return Slice(plane, centre[across], box)


@pytest.mark.parametrize('plane', AXES)
@pytest.mark.parametrize('grid', GRIDS.values(), ids=GRIDS.keys())
def test_marker_is_where_it_is(grid, plane):
    t1w, _ = draw_head(grid)
    where = slice_through(MARKER, plane)
    bright = sample(load_volume(t1w), where, 0.5) > 180
    rows, columns = np.nonzero(bright)
    sideways, upwards, _ = AXES[plane]
    found = (where.box[0] + columns.mean() / 2, where.box[2] + rows.mean() / 2)
    np.testing.assert_allclose(found, (MARKER[sideways], MARKER[upwards]), atol=0.4)


@pytest.mark.parametrize('plane', AXES)
def test_a_ball_is_round_in_voxels_of_any_shape(plane):
    t1w, _ = draw_head(ras_grid((0.5, 1.0, 1.5)))
    rows, columns = np.nonzero(sample(load_volume(t1w), slice_through(MARKER, plane), 0.25) > 180)
    assert np.ptp(rows) == pytest.approx(np.ptp(columns), rel=0.1)


@pytest.mark.parametrize('order', [0, 1])
def test_agrees_with_nilearn(order):
    t1w, _ = draw_head(oblique_grid())
    where = Slice('axial', 7.0, (-25.0, 25.0, -30.0, 32.0))
    affine = np.eye(4)
    affine[:3, 3] = (-25.0, -30.0, 7.0)
    theirs = resample_img(
        t1w,
        affine,
        (51, 63, 1),
        interpolation=('nearest', 'linear')[order],
        force_resample=True,
        copy_header=True,
    )
    ours = sample(load_volume(t1w), where, 1.0, order=order)
    np.testing.assert_allclose(ours, theirs.get_fdata()[..., 0].T, atol=1e-3)


@pytest.mark.parametrize('grid', [GRIDS['RAS'], GRIDS['PIR'], GRIDS['oblique']])
def test_slices_lie_in_the_brain(grid):
    _, mask = draw_head(grid)
    volume = load_volume(mask)
    slices = choose_slices(mask, {'axial': 5, 'coronal': 4, 'sagittal': 3})
    assert [len(each) for each in slices.values()] == [5, 4, 3]
    for plane, of_plane in slices.items():
        positions = [where.position for where in of_plane]
        assert positions == sorted(positions)
        half = HALF_AXES[AXES[plane][2]]
        assert positions[-1] == pytest.approx(half * (1 - 2 * ENDS), abs=2)
        for where in of_plane:
            assert (sample(volume, where, 2.0) > 0.5).any()


def test_box_holds_the_brain_with_a_margin():
    _, mask = draw_head(ras_grid((1.0, 1.0, 1.0)))
    where = choose_slices(mask)['axial'][0]
    x, y, _ = (half + MARGIN_MM for half in HALF_AXES)
    np.testing.assert_allclose(where.box, (-x, x, -y, y), atol=1.5)


def test_nothing_outside_of_the_image():
    t1w, _ = draw_head(ras_grid())
    assert not sample(load_volume(t1w), Slice('axial', 500.0, (-9, 9, -9, 9)), 1.0).any()


@pytest.mark.parametrize(
    ('shape', 'value', 'said'), [((4, 5, 6), 0, 'empty'), ((4, 5, 6, 2), 1, 'three dimensions')]
)
def test_refuses_what_cannot_be_drawn(shape, value, said):
    mask = nib.Nifti1Image(np.full(shape, value, dtype=np.uint8), np.eye(4))
    with pytest.raises(DataError, match=said):
        choose_slices(mask)
