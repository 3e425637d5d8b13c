"""Mosaics: left is left, the same input gives the same file, and files stay small."""

import nibabel as nib
import numpy as np
import pytest
from nibabel.affines import apply_affine
from nilearn.image import resample_img
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.regions import region_mates, region_names
from surreal_bids.reports.mosaics import (
    AXES,
    ENDS,
    MARGIN_MM,
    MASK_COLOUR,
    TISSUE_COLOURS,
    Row,
    Scale,
    Slice,
    choose_slices,
    label_mosaic,
    load_volume,
    mask_mosaic,
    ravens_mosaic,
    region_colour,
    registration_mosaic,
    sample,
    save_mosaic,
    statistic_mosaic,
    through_middle,
    tissue_mosaic,
)
from tests.reports.heads import (
    HALF_AXES,
    MARKER,
    draw_head,
    oblique_grid,
    oriented_grid,
    ras_grid,
    read_raster,
    world_of,
)
from tests.shared_data import shared_data

pytestmark = pytest.mark.drawn

LARGEST_FILE = 1.5e6


def halves(mask):
    """Labels 48 on the left and 47 on the right: the hippocampi of MUSE."""
    x = world_of(mask.shape, mask.affine)[0]
    labels = np.where(x < 0, 48, 47) * (np.asarray(mask.dataobj) > 0)
    return nib.Nifti1Image(labels.astype(np.int16), mask.affine)


def part(mask, which):
    x, _, z = world_of(mask.shape, mask.affine)
    inside = np.asarray(mask.dataobj) > 0
    chosen = {'GM': x < 0, 'WM': (x >= 0) & (z > 0), 'CSF': (x >= 0) & (z <= 0)}[which]
    return nib.Nifti1Image((inside & chosen).astype(np.float32), mask.affine)


def draw_each(name, folder, grid):
    """Draw a kind of mosaic of the simple head."""
    t1w, mask = draw_head(grid)
    path = folder / f'{name}.svg'
    tissues = {tissue: part(mask, tissue) for tissue in TISSUE_COLOURS}
    drawings = {
        'mask': lambda: mask_mosaic(path, t1w, mask),
        'tissue': lambda: tissue_mosaic(path, t1w, mask, tissues),
        'labels': lambda: label_mosaic(path, t1w, mask, halves(mask), region_names()),
        'lesion': lambda: mask_mosaic(path, t1w, mask, tissues['WM']),
        'registration': lambda: registration_mosaic(path, t1w, t1w, mask, {'WM': tissues['WM']}),
        'ravens': lambda: ravens_mosaic(path, tissues['GM'], mask),
        'statistic': lambda: statistic_mosaic(path, tissues['GM'], t1w, mask, label='t'),
    }
    return drawings[name]()


KINDS = ('mask', 'tissue', 'labels', 'lesion', 'registration', 'ravens', 'statistic')


@pytest.mark.parametrize('kind', KINDS)
def test_same_input_same_file(tmp_path, kind):
    first = draw_each(kind, tmp_path / 'a', ras_grid((2, 2, 2))).read_bytes()
    assert draw_each(kind, tmp_path / 'b', ras_grid((2, 2, 2))).read_bytes() == first
    assert b'<dc:date>' not in first
    assert len(first) < LARGEST_FILE


@pytest.mark.parametrize('centre', [(-20, 31, 12), (17, -26, 5)])
def test_slices_run_through_a_small_lesion(centre):
    _, mask = draw_head(ras_grid())
    world = apply_affine(mask.affine, np.moveaxis(np.indices(mask.shape), 0, -1))
    lesion = np.linalg.norm(world - centre, axis=-1) < 4
    image = nib.Nifti1Image(lesion.astype(np.uint8), mask.affine)
    usual, through = choose_slices(mask), through_middle(choose_slices(mask), image)
    for plane, slices in through.items():
        assert len(slices) == len(usual[plane])
        across = AXES[plane][2]
        assert min(abs(each.position - centre[across]) for each in slices) <= 1


@pytest.fixture(scope='module', params=['mask', 'labels'])
def usual(request, tmp_path_factory):
    """A kind of mosaic, and its raster for a head on the usual grid."""
    path = draw_each(request.param, tmp_path_factory.mktemp('usual'), ras_grid())
    return request.param, read_raster(path)


@pytest.mark.parametrize('codes', ['LAS', 'LPI', 'PIR', 'ASL'])
def test_orientation_of_the_file_does_not_matter(tmp_path, usual, codes):
    kind, usual = usual
    turned = read_raster(draw_each(kind, tmp_path, oriented_grid(codes)))
    assert turned.shape == usual.shape
    assert np.mean(np.abs(turned.astype(int) - usual) > 8) < 0.005


@pytest.mark.parametrize(
    'grid', [ras_grid(), oriented_grid('LPI'), oblique_grid()], ids=['RAS', 'LPI', 'oblique']
)
def test_left_is_on_the_left(tmp_path, grid):
    t1w, mask = draw_head(grid)
    path = label_mosaic(tmp_path / 'l.svg', t1w, mask, part(mask, 'GM'), {1: 'Left half'})
    raster = read_raster(path).astype(int)
    width = int(2 * (HALF_AXES[0] + MARGIN_MM))
    first_tile = raster[: int(2 * HALF_AXES[1]), :width]
    columns = np.nonzero(np.ptp(first_tile, axis=2) > 20)[1]
    assert len(columns) > 200
    assert columns.max() <= width / 2 + 1


@pytest.mark.parametrize('threshold', [1.0, 4.0])
def test_statistic_colours_and_places(tmp_path, threshold):
    t1w, mask = draw_head(ras_grid())
    x = world_of(mask.shape, mask.affine)[0]
    values = np.where(x < -4, -5.0, np.where(x > 4, 3.0, 0.5)) * np.asarray(mask.dataobj)
    image = nib.Nifti1Image(values.astype(np.float32), mask.affine)
    path = statistic_mosaic(tmp_path / 's.svg', image, t1w, mask, label='t', threshold=threshold)
    first_tile = read_raster(path)[: int(2 * HALF_AXES[1]), : int(2 * HALF_AXES[0])].astype(int)
    blueness = first_tile[..., 2] - first_tile[..., 0]
    blue, red = np.nonzero(blueness > 40)[1], np.nonzero(blueness < -40)[1]
    assert len(blue) > 50
    assert (len(red) > 50) == (threshold < 3)
    if len(red):
        assert blue.mean() + 8 < red.mean()


@pytest.mark.parametrize(
    ('kind', 'texts'),
    [
        ('mask', ['brain mask', '>L<', '>R<', '>P<', '>A<']),
        ('tissue', ['GM', 'WM', 'CSF']),
        ('registration', ['participant', 'template', 'WM of the template']),
        ('ravens', ['tissue volume per template volume']),
    ],
)
def test_says_what_it_shows(tmp_path, kind, texts):
    content = draw_each(kind, tmp_path, ras_grid((2, 2, 2))).read_text(encoding='utf-8')
    for text in texts:
        assert text in content


@pytest.mark.parametrize(('kind', 'at_least'), [('mask', 18), ('registration', 2 * 12)])
def test_outlines_are_vectors(tmp_path, kind, at_least):
    content = draw_each(kind, tmp_path, ras_grid((2, 2, 2))).read_text(encoding='utf-8')
    assert content.count(f'stroke="{MASK_COLOUR}"') >= at_least
    assert content.count('<image') == 1


@pytest.mark.parametrize('index', [47, 31, 207])
def test_pairs_share_a_hue_and_left_is_lighter(index):
    names, mate = region_names(), region_mates()[index]
    colours = {names[i].split()[0]: np.array(region_colour(i, names[i])) for i in (index, mate)}
    order = [np.argsort(colour) for colour in colours.values()]
    np.testing.assert_array_equal(*order)
    assert colours['Left'].sum() > colours['Right'].sum()


def test_regions_without_names_differ():
    colours = {region_colour(index, '') for index in range(1, 200)}
    assert len(colours) == 199


@pytest.mark.parametrize('widths', [(40, 40, 40), (60, 60)])
def test_rows_are_spread_over_the_width(tmp_path, widths):
    slices = tuple(Slice('axial', 0.0, (1.0, width, 1.0, 20.0)) for width in widths)
    long = tuple(Slice('axial', 0.0, (1.0, 80.0, 1.0, 30.0)) for _ in range(4))
    rows = [Row(each, lambda where: np.ones((*where.shape(1.0), 3))) for each in (long, slices)]
    raster = read_raster(save_mosaic(tmp_path / 'r.svg', rows, scale=Scale('magma', 0, 1, 'x')))
    second = raster[raster.shape[0] - 20, :, 0] > 0
    assert second[0]
    assert second[-1]
    assert second.sum() == sum(widths)


def test_refuses_images_of_different_spaces(tmp_path):
    t1w, mask = draw_head(ras_grid())
    elsewhere = nib.Nifti1Image(np.asarray(t1w.dataobj), t1w.affine + np.eye(4, k=3) * 900)
    with pytest.raises(DataError, match='same space'):
        mask_mosaic(tmp_path / 'm.svg', elsewhere, mask)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('kind', ['mask', 'labels'])
def test_real_heads_make_small_files(tmp_path, kind):
    folder = shared_data('ixi2mm')
    t1w = nib.load(folder / 'T1w' / 'IXI105-HH-1471.nii.gz')
    labels = nib.load(folder / 'dseg' / 'IXI105-HH-1471.nii.gz')
    brain = ndimage.binary_closing(np.asarray(labels.dataobj) > 0, iterations=2)
    mask = nib.Nifti1Image(brain.astype(np.uint8), labels.affine)
    path = tmp_path / 'm.svg'
    if kind == 'mask':
        mask_mosaic(path, t1w, mask)
    else:
        label_mosaic(path, t1w, mask, labels, region_names())
    assert 2e5 < path.stat().st_size < LARGEST_FILE


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
