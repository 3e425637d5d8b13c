from functools import cache

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.images import like, load_image, same_grid
from surreal_bids.imaging.atlas import (
    ANTERIOR_LIMB,
    CEREBRAL_WHITE,
    CORPUS_CALLOSUM,
    FORNIX,
    LOBAR_WHITE,
    POSTERIOR_LIMB,
    default_atlas,
    divide_white_matter,
    muse_labels,
    muse_t1w,
    read_atlas_set,
    strip_atlases,
)
from surreal_bids.imaging.brain import stripped_body
from surreal_bids.regions import muse_table
from surreal_bids.simulation import cohort as dataset
from surreal_bids.simulation.cohort import CohortPlan, sample_people
from surreal_bids.templates import LABELS_FILE, TRACTS_FILE, read_labels
from tests.shared_data import shared_data

SHAPE = (7, 8, 9)
AFFINE = np.diag([2.0, 2.0, 2.0, 1.0])
REGIONS = pd.DataFrame({'index': [1, 2, 7], 'name': ['one', 'two', 'seven']})


def write_regions(folder, table=REGIONS):
    table.to_csv(folder / 'dseg.tsv', sep='\t', index=False)


def write_atlas(folder, name, labels=None, affine=AFFINE):
    rng = np.random.default_rng(0)
    t1w = rng.uniform(1, 100, SHAPE).astype(np.float32)
    labels = rng.choice([0, 1, 2, 7], SHAPE).astype(np.uint8) if labels is None else labels
    nib.Nifti1Image(t1w, AFFINE).to_filename(folder / f'{name}_T1w.nii.gz')
    nib.Nifti1Image(labels, affine).to_filename(folder / f'{name}_dseg.nii.gz')


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / 'my_atlases'
    folder.mkdir()
    write_regions(folder)
    for name in ('b', 'a'):
        write_atlas(folder, name)
    return folder


def test_a_set_is_read_in_order(folder):
    found = read_atlas_set(folder)
    assert found.name == 'myatlases', 'BIDS entities hold letters and digits only'
    assert [atlas.name for atlas in found.atlases] == ['a', 'b']
    assert found.atlases[0].t1w == folder / 'a_T1w.nii.gz'
    assert found.regions[['index', 'name']].equals(REGIONS)
    assert found.licence == 'not stated'


def test_what_another_process_is_writing_is_no_atlas(folder):
    (folder / '.0a1b2c3d.a_T1w.nii.gz').touch()
    assert [atlas.name for atlas in read_atlas_set(folder).atlases] == ['a', 'b']


def test_licence_and_further_columns_are_kept(folder):
    write_regions(folder, REGIONS.assign(tissue=['GM', 'WM', 'CSF'], hemisphere=['L', 'R', 'n/a']))
    (folder / 'LICENSE').write_text('CC0\n')
    found = read_atlas_set(folder)
    assert found.licence == 'CC0'
    assert found.regions['tissue'].tolist() == ['GM', 'WM', 'CSF']


@pytest.mark.parametrize('missing', ['a_T1w.nii.gz', 'a_dseg.nii.gz', 'dseg.tsv'])
def test_incomplete_sets_are_refused(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(DataError, match=missing.replace('.', r'\.')):
        read_atlas_set(folder)


@pytest.mark.parametrize('names', [(), ('dseg.tsv',)])
def test_folders_without_atlases_are_refused(tmp_path, names):
    folder = tmp_path / 'empty'
    if names:
        folder.mkdir()
        write_regions(folder)
    with pytest.raises(DataError, match=r'no atlas|no such folder'):
        read_atlas_set(folder)


@pytest.mark.parametrize(
    ('table', 'message'),
    [
        ({'label': [1, 2], 'name': ['one', 'two']}, 'no column index'),
        ({'index': [1, 2]}, 'no column name'),
        ({'index': ['1', 'two'], 'name': ['one', 'two']}, 'no whole number in column index: two'),
        ({'index': ['1', '2.5'], 'name': ['one', 'two']}, r'no whole number .*: 2\.5'),
        ({'index': [1, 1], 'name': ['one', 'two']}, 'duplicate index: 1'),
        ({'index': [1, 2], 'name': ['one', 'one']}, 'duplicate name: one'),
        ({'index': [1, 2], 'name': ['one', 'n/a']}, 'no name for index: 2'),
        ({'index': [0], 'name': ['background']}, 'no regions listed'),
    ],
)
def test_lists_of_regions_are_checked(folder, table, message):
    write_regions(folder, pd.DataFrame(table))
    with pytest.raises(DataError, match=message):
        read_atlas_set(folder)


@pytest.mark.parametrize(
    ('labels', 'affine', 'message'),
    [
        (np.full((7, 8, 8), 2) * np.eye(8, dtype=np.uint8), AFFINE, 'not on the grid of a_T1w'),
        (None, np.diag([2.0, 2.0, 2.1, 1.0]), 'not on the grid of a_T1w'),
        (np.linspace(0, 2, 504).reshape(SHAPE), AFFINE, 'nearest neighbours'),
        (np.arange(504).reshape(SHAPE) % 2 * -1, AFFINE, r'1 values are not labels \(-1'),
        (np.arange(504).reshape(SHAPE) % 9, AFFINE, 'labels 3, 4, 5, 6, 8 are not in dseg.tsv'),
    ],
)
def test_label_maps_are_checked(folder, labels, affine, message):
    labels = labels if labels is None else labels.astype(np.float32)
    write_atlas(folder, 'a', labels, affine)
    with pytest.raises(DataError, match=message):
        read_atlas_set(folder)


def some_voxels(image):
    """A mask of the first half of an image, in place of brain extraction."""
    half = np.zeros(image.shape, dtype=np.uint8)
    half[: image.shape[0] // 2] = 1
    return like(image, half, np.uint8), 'half'


def test_heads_are_cut_to_brain_and_labels_once(folder, tmp_path):
    cache = tmp_path / 'cache'
    original = read_atlas_set(folder)
    stripped = strip_atlases(original, cache, some_voxels)
    for before, after in zip(original.atlases, stripped.atlases):
        head, brain, labels = (
            np.asarray(load_image(path).dataobj) for path in (before.t1w, after.t1w, before.labels)
        )
        kept = (labels > 0) | (np.arange(SHAPE[0]) < SHAPE[0] // 2)[:, None, None]
        np.testing.assert_allclose(brain, np.where(kept, head, 0))
    times = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert strip_atlases(original, cache, some_voxels).atlases == stripped.atlases
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == times


def test_stripped_images_stay_as_they_are(folder, tmp_path):
    original = read_atlas_set(folder)
    kept = strip_atlases(original, tmp_path, lambda image: (image, 'stripped'))
    assert kept.atlases == original.atlases


@pytest.mark.slow
def test_the_default_atlas_is_written_once(tmp_path):
    first = default_atlas(tmp_path)
    assert first.name == 'muse'
    assert len(first.atlases) == 1
    assert first.regions['index'].tolist() == muse_table()['index'].tolist()
    assert 'Neuromorphometrics' in first.licence
    assert stripped_body(load_image(first.atlases[0].t1w)) is not None
    labels = first.atlases[0].labels
    written = labels.stat().st_mtime_ns
    assert default_atlas(tmp_path).atlases == first.atlases
    assert labels.stat().st_mtime_ns == written


def test_sets_are_found_where_simulated_cohorts_have_them(tmp_path):
    plan = CohortPlan(n_cn=1, n_pt=1, atlases=2)
    people = [person for person in sample_people(plan) if person.site is None]
    folder = tmp_path / dataset.ATLASES
    folder.mkdir(parents=True)
    write_regions(folder)
    for person in people:
        write_atlas(folder, person.label)
        assert dataset.t1w_path(tmp_path, person).is_file()
        assert dataset.truth_path(tmp_path, person, 'dseg.nii.gz').is_file()
        dataset.volumes_path(tmp_path, person).touch()
    found = read_atlas_set(folder)
    assert [atlas.name for atlas in found.atlases] == ['atlas-0001', 'atlas-0002']


def test_real_heads_become_a_set_of_brains(tmp_path):
    source = shared_data('ixi2mm')
    name = sorted(path.name for path in (source / 'T1w').iterdir())[0].removesuffix('.nii.gz')
    for kind in ('T1w', 'dseg'):
        (tmp_path / f'{name}_{kind}.nii.gz').symlink_to(source / kind / f'{name}.nii.gz')
    labels = np.unique(nib.load(source / 'dseg' / f'{name}.nii.gz').dataobj)[1:]
    write_regions(tmp_path, pd.DataFrame({'index': labels, 'name': [f'r{i}' for i in labels]}))
    found = read_atlas_set(tmp_path)
    brain = load_image(found.atlases[0].labels)
    found = strip_atlases(found, tmp_path / 'cache', lambda _: (brain, 'labels'))
    assert stripped_body(load_image(found.atlases[0].t1w)) is not None
    assert stripped_body(load_image(source / 'T1w' / f'{name}.nii.gz')) is None


FRONTAL_RIGHT, PARIETAL_RIGHT = 190, 198
"""Superior frontal gyrus and superior parietal lobule; the left ones follow."""

BEHIND_OTHER_CORTEX = {172, 173, 174, 175}
"""Posterior insula and parietal operculum: counted as frontal, but near other lobes."""

SMALL_LEFT_RIGHT = {49, 50}
"""Temporal horns: 0.2 and 0.1 ml in the template, and not symmetric."""


@cache
def muse():
    t1w = muse_t1w()
    return t1w, muse_labels(t1w)


def label_array():
    return np.asarray(muse()[1].dataobj)


def axes_mm(shape, affine):
    """World x, y and z along the axes of a grid that is not turned."""
    steps = np.ogrid[tuple(slice(n) for n in shape)]
    return [affine[k, k] * step + affine[k, 3] for k, step in enumerate(steps)]


@cache
def divided():
    """Neuromorphometrics labels as shipped, and with the white matter divided."""
    labels = read_labels(LABELS_FILE)
    data = np.asarray(labels.dataobj, dtype=np.uint8)
    tracts = np.asarray(read_labels(TRACTS_FILE).dataobj, dtype=np.uint8)
    return data, divide_white_matter(data, tracts, axes_mm(data.shape, labels.affine))


def touching(data, index):
    region = data == index
    return set(np.unique(data[ndimage.binary_dilation(region) & ~region]).tolist())


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
    result = divide_white_matter(labels, np.full_like(labels, 5), axes_mm(labels.shape, affine))
    assert set(np.unique(result[3:6, 28:35, 1:6])) == {LOBAR_WHITE['frontal', side]}
    assert set(np.unique(result[3:6, 5:10, 1:6])) == {LOBAR_WHITE['parietal', side]}
    unchanged = ~np.isin(labels, list(CEREBRAL_WHITE.values()))
    np.testing.assert_array_equal(result[unchanged], labels[unchanged])


@pytest.mark.slow
def test_every_region_is_there_and_lies_in_the_brain():
    t1w, labels = muse()
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
    t1w, _ = muse()
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


@pytest.mark.parametrize('seed', range(3))
def test_numbers_as_names_and_huge_labels_are_refused(folder, seed):
    rng = np.random.default_rng(seed)
    row = rng.integers(len(REGIONS))
    names = REGIONS['name'].copy()
    names[row] = f'{"" if seed else " "}{rng.integers(1, 300)}'
    write_regions(folder, REGIONS.assign(name=names))
    with pytest.raises(DataError, match=f'MUSE, as name: .*{names[row].strip()}'):
        read_atlas_set(folder)
    indices = REGIONS['index'].astype(str)
    indices[row] = '9' * int(rng.integers(10, 30))
    write_regions(folder, REGIONS.assign(index=indices))
    with pytest.raises(DataError, match=f'column index: {indices[row]}'):
        read_atlas_set(folder)
