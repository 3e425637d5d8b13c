import gzip
import json
import os
from contextlib import nullcontext
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest

from surreal_bids.bids.image_files import check_image
from surreal_bids.bids.layout import find_t1w
from surreal_bids.bids.preflight import (
    check_images,
    check_output_folder,
    check_work_folder,
    survey_dataset,
)
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import DataError, OutputError
from tests.conftest import write_t1w
from tests.shared_data import shared_data


def _ramp(shape, dtype):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


@pytest.mark.parametrize('name', ['x_T1w.nii', 'x_T1w.nii.gz'])
@pytest.mark.parametrize('kind', [nib.Nifti1Image, nib.Nifti2Image])
@pytest.mark.parametrize('dtype', [np.uint8, np.int16, np.float32])
def test_a_good_image_passes(tmp_path, name, kind, dtype):
    kind(_ramp((7, 8, 9), dtype), np.eye(4)).to_filename(tmp_path / name)
    assert check_image(tmp_path / name).not_finite == 0


def test_a_real_image_passes():
    check_image(shared_data('ds002748-subset/sub-01/anat/sub-01_T1w.nii.gz'))


def test_a_fourth_axis_of_one_volume_is_fine(tmp_path):
    path = tmp_path / 'x_T1w.nii.gz'
    nib.Nifti1Image(_ramp((7, 8, 9, 1), np.float32), np.eye(4)).to_filename(path)
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
    with pytest.raises(DataError, match=r'x_T1w\.nii.*(truncated|cannot be read as an image)'):
        check_image(path)


def test_a_whole_stream_of_half_an_image_is_refused(tmp_path):
    path = write_t1w(tmp_path / 'x_T1w.nii.gz')
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))
    with pytest.raises(DataError, match='truncated: 2367 bytes instead of 2368'):
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
        (b'version https://git-lfs.github.com/spec/v1', 'cannot be read as an image'),
        (b'\x1f\x8b\x08\x00garbage', 'cannot be read as an image'),
        (gzip.compress(b'short', mtime=0), 'cannot be read as an image'),
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


@pytest.mark.parametrize('extension', ['nii', 'nii.gz'])
@pytest.mark.parametrize(
    ('values', 'message'),
    [
        (np.zeros((7, 8, 9), np.int16), 'all voxels are 0'),
        (np.full((7, 8, 9), 3.5, np.float32), 'all voxels are 3.5'),
        (np.full((7, 8, 9), np.nan, np.float32), 'all voxels are NaN or infinite'),
        (np.ones((7, 8, 9), np.complex64), 'voxels of type complex64'),
        (np.ones((7, 8, 9), [('R', 'u1'), ('G', 'u1'), ('B', 'u1')]), 'voxels of type RGB'),
        (_ramp((7, 8, 1), np.int16), 'one slice'),
    ],
    ids=['zero', 'constant', 'nan', 'complex', 'rgb', 'slice'],
)
def test_images_that_show_no_head_are_refused(tmp_path, extension, values, message):
    path = tmp_path / f'x_T1w.{extension}'
    nib.Nifti1Image(values, np.eye(4)).to_filename(path)
    with pytest.raises(DataError, match=f'{path}: {message}'):
        check_image(path)


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_voxels_that_are_not_finite_are_counted(tmp_path, value):
    path = tmp_path / 'x_T1w.nii.gz'
    values = _ramp((70, 80, 90), np.float32)
    values[0, 0, 0] = values[-1, -1, -1] = value
    nib.Nifti1Image(values, np.eye(4)).to_filename(path)
    assert check_image(path).not_finite == 2


@pytest.mark.parametrize('dtype', ['>i2', '<i2', '>f4', 'i1'])
def test_byte_order_does_not_matter(tmp_path, dtype):
    path = tmp_path / 'x_T1w.nii'
    image = nib.Nifti1Image(_ramp((7, 8, 9), dtype), np.eye(4))
    nib.Nifti1Image(image.dataobj, image.affine, image.header.as_byteswapped('>')).to_filename(path)
    check_image(path)


def test_one_bad_image_does_not_hide_the_others(make_dataset):
    root = make_dataset(*(f'sub-{i}/ses-1/anat/sub-{i}_ses-1_T1w.nii' for i in range(1, 5)))
    images = find_t1w(root)
    for bad in (0, 2):
        images[bad].path.write_bytes(b'')
    problems, notes = check_images(images)
    assert [problem.name for problem in problems] == ['sub-1_ses-1', 'sub-3_ses-1']
    assert str(problems[0]).startswith(f'sub-1_ses-1: {images[0].path}: the file is empty')
    assert notes == []


def test_the_same_image_under_two_names(make_dataset):
    """Even if the files differ: here one is compressed."""
    root = make_dataset(*(f'sub-{i}/anat/sub-{i}_T1w.nii' for i in range(1, 4)))
    content = (root / 'sub-1/anat/sub-1_T1w.nii').read_bytes()
    (root / 'sub-3/anat/sub-3_T1w.nii').unlink()
    (root / 'sub-3/anat/sub-3_T1w.nii.gz').write_bytes(gzip.compress(content))
    problems, _ = check_images(find_t1w(root))
    assert [problem.name for problem in problems] == ['sub-1', 'sub-3']
    assert 'identical to sub-3; replace the copy' in problems[0].reason


TABLE = 'participant_id\nsub-1\nsub-2\nsub-3\nsub-ghost\n'


def test_nobody_vanishes(make_dataset, tmp_path):
    names = ['sub-1/ses-a/anat/sub-1_ses-a_T1w.nii', 'sub-2/anat/sub-2_T1w.nii']
    root = make_dataset(*names, participants=TABLE)
    for folder in ('sub-1/ses-b', 'sub-1/ses-c d', 'sub-3/anat', 'sub-a b', 'sub-x_y'):
        (root / folder).mkdir(parents=True)
    config = AppConfig(root, tmp_path / 'out', ('participant',))
    survey = survey_dataset(config)
    assert {problem.name: problem.reason[:20] for problem in survey.problems} == {
        'sub-1/ses-c d': 'not used because a l',
        'sub-3': 'no T1w image matches',
        'sub-a b': 'not used because a l',
        'sub-x_y': 'not used because a l',
    }
    assert {note.who: note.found for note in survey.notes} == {
        'sub-1_ses-b': 'no T1w image of this session matches the filters',
        'sub-ghost': 'listed in participants.tsv but has no folder',
    }
    assert survey.expected == [('1', 'a'), ('2', None), ('3', None), ('1', 'b')]
    survey = survey_dataset(replace(config, participant_label=('2',)))
    assert survey.problems == survey.notes == []


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
    with pytest.raises(OutputError, match='inside the dataset; choose'):
        check_work_folder(tmp_path / 'data', tmp_path / 'data' / name)
    check_work_folder(tmp_path / 'data', tmp_path / 'data2' / name)


@pytest.mark.parametrize(
    ('more', 'found'),
    [
        ({'GeneratedBy': [{'Name': 'fMRIPrep'}]}, 'outputs of fMRIPrep'),
        ({'GeneratedBy': [{'Name': 'surreal_bids'}]}, None),
        ({'BIDSVersion': '1.8.0', 'DatasetType': 'raw'}, 'another dataset'),
        ({'PipelineDescription': {'Name': 'fMRIPrep'}}, 'another dataset'),
    ],
)
def test_other_datasets_and_outputs_are_left_alone(tmp_path, more, found):
    out = tmp_path / 'out'
    out.mkdir()
    text = json.dumps({'Name': 'x', **more})
    (out / 'dataset_description.json').write_text(text)
    with pytest.raises(OutputError, match=found) if found else nullcontext():
        check_output_folder(tmp_path / 'bids', out)
    assert (out / 'dataset_description.json').read_text() == text


@pytest.mark.parametrize('seed', range(4))
def test_slabs_huge_views_wide_voxels_and_headers_without_orientation_are_noted(tmp_path, seed):
    rng = np.random.default_rng(seed)
    edges = rng.uniform(130, 260, 3)
    sizes = {
        'slab': edges.copy(),
        'huge': 6 * edges,
        'lost': edges,
        'coarse': edges,
        'sound': edges,
    }
    sizes['slab'][rng.integers(3)] = rng.uniform(8, 50)
    doubts = {}
    for name, size in sizes.items():
        voxels = np.ceil(size / 2).astype(int) if name == 'sound' else np.array([19, 20, 21])
        scale = 20 if name == 'huge' else 1
        shape = np.ceil(size / 20).astype(int) if scale > 1 else voxels
        steps = [20.0] * 3 if scale > 1 else (size / voxels).tolist()
        image = nib.Nifti1Image(_ramp(shape, np.int16), np.diag([*steps, 1.0]))
        if name == 'lost':
            image.set_sform(None, 0)
            image.set_qform(None, 0)
        path = tmp_path / f'{name}.nii.gz'
        image.to_filename(path)
        doubts[name] = str(check_image(path).doubt or '')
    assert 'field of view' in doubts['slab']
    assert 'field of view' in doubts['huge']
    assert 'orientation' in doubts['lost']
    assert 'network and registration were tested up to 2 mm' in doubts['coarse']
    assert doubts['sound'] == ''
