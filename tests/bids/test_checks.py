import gzip
import os

import nibabel as nib
import numpy as np
import pytest

from surreal_bids.bids.layout import T1wImage, find_t1w
from surreal_bids.bids.survey import (
    Problem,
    check_image,
    check_images,
    check_output_folder,
    check_work_folder,
    missing_images,
)
from surreal_bids.exceptions import DataError, OutputError
from tests.conftest import write_t1w
from tests.shared_data import shared_data


@pytest.mark.parametrize('name', ['x_T1w.nii', 'x_T1w.nii.gz'])
@pytest.mark.parametrize('kind', [nib.Nifti1Image, nib.Nifti2Image])
@pytest.mark.parametrize('dtype', [np.uint8, np.int16, np.float32])
def test_a_good_image_passes(tmp_path, name, kind, dtype):
    kind(np.ones((7, 8, 9), dtype), np.eye(4)).to_filename(tmp_path / name)
    check_image(tmp_path / name)


def test_a_real_image_passes():
    check_image(shared_data('ds002748-subset/sub-01/anat/sub-01_T1w.nii.gz'))


def test_a_fourth_axis_of_one_volume_is_fine(tmp_path):
    path = tmp_path / 'x_T1w.nii.gz'
    nib.Nifti1Image(np.ones((7, 8, 9, 1), np.float32), np.eye(4)).to_filename(path)
    check_image(path)


@pytest.mark.parametrize('extension', ['nii', 'nii.gz'])
@pytest.mark.parametrize('shape', [(7, 8), (7, 8, 9, 2), (7, 8, 9, 1, 1), (7, 0, 9)])
def test_other_shapes_are_refused(tmp_path, extension, shape):
    path = tmp_path / f'x_T1w.{extension}'
    nib.Nifti1Image(np.ones(shape, np.float32), np.eye(4)).to_filename(path)
    expected = 'no voxels' if 0 in shape else f'{len(shape)} dimensions'
    with pytest.raises(DataError, match=f'{path}: {expected}'):
        check_image(path)


@pytest.mark.parametrize('value', [np.nan, np.inf, 0.0])
def test_an_unusable_affine_is_refused(tmp_path, value):
    image = nib.Nifti1Image(np.ones((7, 8, 9), np.float32), np.eye(4))
    image.header['srow_x'] = [value, 0, 0, 0]
    path = tmp_path / 'x_T1w.nii'
    path.write_bytes(image.header.binaryblock + bytes(4 + 4 * 7 * 8 * 9))
    with pytest.raises(DataError, match='the affine is not finite and invertible'):
        check_image(path)


@pytest.mark.parametrize('extension', ['nii', 'nii.gz'])
@pytest.mark.parametrize('kept', [0.05, 0.5, 0.999])
def test_a_truncated_image_is_refused(tmp_path, extension, kept):
    path = write_t1w(tmp_path / f'x_T1w.{extension}', (17, 18, 19))
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(DataError, match=r'x_T1w\.nii.*(truncated|no NIfTI header)'):
        check_image(path)


def test_a_whole_stream_of_half_an_image_is_refused(tmp_path):
    path = write_t1w(tmp_path / 'x_T1w.nii.gz')
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))
    with pytest.raises(DataError, match='promises 2368 bytes, there are 2367'):
        check_image(path)


def test_a_flipped_bit_is_found_by_the_checksum(tmp_path):
    path = write_t1w(tmp_path / 'x_T1w.nii.gz', (17, 18, 19))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match='truncated or damaged'):
        check_image(path)


@pytest.mark.parametrize('size', [500, 1000, 2000])
def test_a_stream_of_several_members_passes(tmp_path, size):
    path = write_t1w(tmp_path / 'x_T1w.nii.gz')
    content = gzip.decompress(path.read_bytes())
    parts = [content[start : start + size] for start in range(0, len(content), size)]
    path.write_bytes(b''.join(map(gzip.compress, parts)))
    check_image(path)


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (b'', 'the file is empty'),
        (b'version https://git-lfs.github.com/spec/v1', 'no NIfTI header'),
        (b'\x1f\x8b\x08\x00garbage', 'no NIfTI header'),
        (gzip.compress(b'short', mtime=0), 'no NIfTI header'),
    ],
)
@pytest.mark.parametrize('extension', ['nii', 'nii.gz'])
def test_a_file_that_is_no_image_is_refused(tmp_path, content, message, extension):
    path = tmp_path / f'x_T1w.{extension}'
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        check_image(path)


def test_an_image_whose_content_was_not_fetched(tmp_path):
    path = tmp_path / 'x_T1w.nii.gz'
    path.symlink_to('.git/annex/objects/none')
    with pytest.raises(DataError, match='datalad get'):
        check_image(path)


def test_one_bad_image_does_not_hide_the_others(make_dataset):
    root = make_dataset(*(f'sub-{i}/ses-1/anat/sub-{i}_ses-1_T1w.nii' for i in range(1, 5)))
    images = find_t1w(root)
    for bad in (0, 2):
        images[bad].path.write_bytes(b'')
    problems = check_images(images)
    assert [(p.participant, p.session) for p in problems] == [('1', '1'), ('3', '1')]
    assert str(problems[0]).startswith(f'sub-1 ses-1: {images[0].path}: the file is empty')


def test_participants_without_an_image_are_named(tmp_path):
    images = [T1wImage('01', None, None, tmp_path)]
    (problem,) = missing_images(['01', '02'], images)
    assert isinstance(problem, Problem)
    assert str(problem).startswith('sub-02: no T1w image passes the filters; use --bids-filter')


@pytest.mark.parametrize(
    'output',
    ['../out', 'derivatives/x', 'derivatives/x/y', '../dataset2', '../not/yet/there'],
)
def test_good_output_folders(make_dataset, output):
    root = make_dataset()
    check_output_folder(root, root / output)
    assert not (root / output).exists()


@pytest.mark.parametrize(
    ('output', 'message'),
    [
        ('.', 'is the dataset itself'),
        ('../dataset', 'is the dataset itself'),
        ('..', 'the dataset is inside the output folder'),
        ('out', 'is inside the dataset; use .*/derivatives/surreal_bids'),
        ('derivatives', 'is inside the dataset'),
        ('derivatives/../out', 'is inside the dataset'),
        ('sub-01/derivatives/x', 'is inside the dataset'),
        ('derivatives2/x', 'is inside the dataset'),
        ('link/x', 'is inside the dataset'),
        ('../file/x', 'file is a file'),
    ],
)
def test_bad_output_folders(make_dataset, output, message):
    root = make_dataset()
    (root / 'link').symlink_to(root)
    (root.parent / 'file').write_text('')
    with pytest.raises(OutputError, match=message):
        check_output_folder(root, root / output)


def test_an_unwritable_output_folder(make_dataset, monkeypatch):
    root = make_dataset()
    monkeypatch.setattr(os, 'access', lambda path, mode: path != root.parent)
    with pytest.raises(OutputError, match=f'{root.parent} is not writable'):
        check_output_folder(root, root.parent / 'out' / 'deep')


@pytest.mark.parametrize('name', ['work', 'derivatives/work', '.'])
def test_intermediate_results_stay_out_of_the_dataset(tmp_path, name):
    with pytest.raises(OutputError, match='inside the dataset; give another with -w'):
        check_work_folder(tmp_path / 'data', tmp_path / 'data' / name)
    check_work_folder(tmp_path / 'data', tmp_path / 'data2' / name)
