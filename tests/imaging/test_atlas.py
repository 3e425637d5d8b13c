import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.images import like, load_image
from surreal_bids.imaging import atlas
from surreal_bids.imaging.atlas import read_atlas_set, strip_atlases

SHAPE = (7, 8, 9)
AFFINE = np.diag([2.0, 2.0, 2.0, 1.0])
REGIONS = pd.DataFrame({'index': [1, 2, 7], 'name': ['one', 'two', 'seven'], 'tissue': 'GM'})


def write_regions(folder, table=REGIONS):
    table.to_csv(folder / 'dseg.tsv', sep='\t', index=False, encoding='latin-1')


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
    assert [each.name for each in found.atlases] == ['a', 'b']
    assert found.atlases[0].t1w == folder / 'a_T1w.nii.gz'
    assert found.regions.equals(REGIONS)
    assert found.licence == 'not stated'
    (folder / 'LICENSE').write_text('CC0\n')
    assert read_atlas_set(folder).licence == 'CC0'


@pytest.mark.parametrize('missing', ['a_T1w.nii.gz', 'a_dseg.nii.gz', 'dseg.tsv', '*.nii.gz'])
def test_incomplete_sets_are_refused(folder, missing):
    for path in folder.glob(missing):
        path.unlink()
    with pytest.raises(DataError, match=missing.replace('.', r'\.').replace('*', 'no atlas; .*')):
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
        ({'index': [1, 2], 'name': ['one', ' 47']}, 'MUSE, as name: .*47'),
        ({'index': ['1', '9' * 12], 'name': ['one', 'two']}, 'column index: 999999999999'),
        ({'index': [1], 'name': ['Ammonshörner']}, 'cannot be read as a table .* in UTF-8'),
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
        (np.linspace(0, 2, 504).reshape(SHAPE), AFFINE, 'values are not labels'),
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


def test_heads_are_cut_to_brain_and_labels_once(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(atlas, 'brain_mask', some_voxels)
    cache = tmp_path / 'cache'
    original = read_atlas_set(folder)
    stripped = strip_atlases(original, cache)
    for before, after in zip(original.atlases, stripped.atlases):
        head, brain, labels = (
            np.asarray(load_image(path).dataobj) for path in (before.t1w, after.t1w, before.labels)
        )
        kept = (labels > 0) | (np.arange(SHAPE[0]) < SHAPE[0] // 2)[:, None, None]
        np.testing.assert_allclose(brain, np.where(kept, head, 0))
    times = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert strip_atlases(original, cache).atlases == stripped.atlases
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == times


def test_stripped_images_stay_as_they_are(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(atlas, 'brain_mask', lambda image: (image, 'stripped'))
    original = read_atlas_set(folder)
    assert strip_atlases(original, tmp_path).atlases == original.atlases
