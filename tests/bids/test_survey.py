import gzip
import json
import os
from contextlib import nullcontext
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest

from surreal_bids.bids.layout import T1wImage, find_t1w
from surreal_bids.bids.survey import (
    check_image,
    check_images,
    check_output_folder,
    check_work_folder,
    survey_dataset,
)
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import DataError, OutputError
from tests.conftest import write_t1w


def _ramp(shape, dtype=np.float32):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def test_copies_of_an_image_of_any_type_and_byte_order_have_one_digest(tmp_path):
    values, digests = np.random.default_rng(0).integers(0, 100, (7, 8, 9)), set()
    for number, dtype in enumerate(('u1', '<i2', '>i4', 'f4', 'f8')):
        for name in (f'{number}.nii', f'{number}.nii.gz'):
            nib.Nifti1Image(values.astype(dtype), np.eye(4)).to_filename(tmp_path / name)
            digest, notes = check_image(tmp_path / name)
            assert notes == []
            digests.add(digest)
    assert len(digests) == 1


def test_files_that_are_damaged_or_no_image_are_refused(tmp_path):
    for extension in ('nii', 'nii.gz'):
        whole = write_t1w(tmp_path / f'whole_T1w.{extension}', (17, 18, 19)).read_bytes()
        path = tmp_path / f'x_T1w.{extension}'
        for content in (
            *(whole[: int(kept * len(whole))] for kept in (0, 0.05, 0.5, 0.99)),
            b'version https://git-lfs.github.com/spec/v1',
            gzip.compress(b'short', mtime=0),
        ):
            path.write_bytes(content)
            with pytest.raises(DataError, match=f'{path}: cannot be read as an image'):
                check_image(path)
    path = tmp_path / 'link_T1w.nii.gz'
    path.symlink_to('.git/annex/objects/none')
    with pytest.raises(DataError, match='datalad get'):
        check_image(path)


def test_intensities_that_are_shifted_below_zero_are_refused(tmp_path):
    values = np.random.default_rng(0).integers(0, 900, (7, 8, 9)).astype(np.int16)
    nib.Nifti1Image(values - np.int16(1024), np.eye(4)).to_filename(tmp_path / 'x.nii')
    with pytest.raises(DataError, match=r'voxels from -\d+ .* hardly any is positive'):
        check_image(tmp_path / 'x.nii')


@pytest.mark.parametrize(
    ('scale', 'is_good'), [(1e-12, False), (1e-6, False), (1e-3, True), (1e6, True), (1e30, False)]
)
def test_intensities_beyond_single_precision_are_refused(tmp_path, scale, is_good):
    """The network standardises them; probabilities and MP2RAGE images lie between 0 and 1."""
    nib.Nifti1Image(scale * _ramp((7, 8, 9)), np.eye(4)).to_filename(tmp_path / 'x.nii')
    expected = nullcontext() if is_good else pytest.raises(DataError, match='volumes would be wr')
    with expected:
        check_image(tmp_path / 'x.nii')


def test_headers_that_cannot_be_of_a_head_are_refused(tmp_path):
    path = tmp_path / 'x_T1w.nii'
    nib.Nifti1Image(_ramp((7, 8, 1)), np.eye(4)).to_filename(path)
    with pytest.raises(DataError, match='one slice'):
        check_image(path)
    image = nib.Nifti1Image(_ramp((7, 8, 9)), np.eye(4))
    image.header['srow_x'] = [np.nan, 0, 0, 0]
    path.write_bytes(image.header.binaryblock + bytes(4) + _ramp((7, 8, 9)).tobytes())
    with pytest.raises(DataError, match='the affine is not finite and invertible'):
        check_image(path)
    nib.Nifti1Image(_ramp((7, 8, 9)), np.diag([25.0, 25, 25, 1])).to_filename(path)
    with pytest.raises(DataError, match='voxels of 25 x 25 x 25 mm'):
        check_image(path)
    image = nib.Nifti1Image(_ramp((7, 8, 9)), np.eye(4))
    image.set_sform(np.eye(4), 1)
    image.set_qform(np.diag([-1.0, 1, 1, 1]), 1)
    image.to_filename(path)
    with pytest.raises(DataError, match=r'x_T1w.nii: sform and qform disagree'):
        check_image(path)


def _with_quaternion(path, length, sform_mm=1.0):
    """Write an image whose qform is half a turn, with a quaternion of this length."""
    image = nib.Nifti1Image(length * _ramp((70, 80, 90)), np.eye(4))
    image.set_qform(np.diag([-1.0, -1, 1, 1]), 1)
    image.set_sform(np.diag([-sform_mm, -sform_mm, sform_mm, 1]), 1)
    image.header['quatern_d'] = length
    path.write_bytes(image.header.binaryblock + bytes(4) + image.dataobj.tobytes('F'))


@pytest.mark.parametrize('sform_mm', [1.0, 1.1])
def test_a_qform_that_is_no_rotation_is_named(make_dataset, sform_mm):
    """The sform is checked against the qform, which also replaces one that is not to scale."""
    root = make_dataset(*(f'sub-{i}/anat/sub-{i}_T1w.nii' for i in range(1, 4)))
    images = find_t1w(root)
    _with_quaternion(images[0].path, 1.5, sform_mm)
    _with_quaternion(images[2].path, 1.00002, sform_mm)
    problems, _ = check_images(images)
    assert [problem.name for problem in problems] == ['sub-1'], 'another one is only rounded'
    assert 'the qform of the header is no rotation' in problems[0].reason


def test_doubtful_images_are_noted(tmp_path):
    """Slabs, huge views, wide voxels, headers without orientation and voxels without a value."""
    nan = _ramp((70, 80, 90))
    nan[0, 0, 0] = nan[-1, -1, -1] = np.nan
    images = {
        'x is no field of view': (_ramp((80, 90, 12)), 2.0),
        'y is no field of view': (_ramp((40, 40, 40)), 19.0),
        'network and registration were tested up to 2 mm': (_ramp((70, 70, 60)), 3.0),
        '2 voxels are NaN or infinite': (nan, 2.0),
        'no orientation in the header': (_ramp((140, 150, 160), np.uint8), 1.0),
    }
    for expected, (values, size) in images.items():
        image = nib.Nifti1Image(values, np.diag([size, size, size, 1]))
        if 'orientation' in expected:
            image.set_sform(None, 0)
            image.set_qform(None, 0)
        image.to_filename(tmp_path / 'x.nii')
        _, (note,) = check_image(tmp_path / 'x.nii')
        assert expected.partition(' ')[2] in str(note)


def test_one_bad_image_does_not_hide_the_others(make_dataset):
    root = make_dataset(*(f'sub-{i}/ses-1/anat/sub-{i}_ses-1_T1w.nii' for i in range(1, 5)))
    images = find_t1w(root)
    for bad in (0, 2):
        images[bad].path.write_bytes(b'')
    problems, notes = check_images(images)
    assert [problem.name for problem in problems] == ['sub-1_ses-1', 'sub-3_ses-1']
    assert str(problems[0]).startswith(f'sub-1_ses-1: {images[0].path}: cannot be read')
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
        'sub-3': 'no T1w image; expect',
        'sub-a b': 'not used because a l',
        'sub-x_y': 'not used because a l',
    }
    assert {note.who: note.found for note in survey.notes} == {
        'sub-1_ses-b': 'no T1w image of this session, or none that matches --bids-filter-file',
        'sub-ghost': 'listed in participants.tsv but has no folder',
    }
    assert survey.expected == [('1', 'a'), ('2', None), ('3', None), ('1', 'b')]
    survey = survey_dataset(replace(config, participant_label=('2',)))
    assert survey.problems == survey.notes == []


def test_images_of_other_sessions_are_told_by_their_names(make_dataset, tmp_path, monkeypatch):
    """Comparisons of all images with all others took half a minute for 8,000."""
    labels = [(person, session) for person in '123' for session in 'ab']
    root = make_dataset(*(f'sub-{p}/ses-{s}/anat/sub-{p}_ses-{s}_T1w.nii' for p, s in labels))
    config = AppConfig(root, tmp_path / 'out', ('participant',), session_label=('b',))
    monkeypatch.setattr(T1wImage, '__eq__', lambda *_: pytest.fail('images were compared'))
    survey = survey_dataset(config)
    assert [image.visit for image in survey.images] == [(person, 'b') for person in '123']
    assert [image.visit for image in survey.other_sessions] == [(person, 'a') for person in '123']


def test_output_and_work_folders_are_outside_of_the_dataset_and_writable(make_dataset, monkeypatch):
    root = make_dataset()
    (root / 'link').symlink_to(root)
    (root.parent / 'file').write_text('')
    for output in ('../out', 'derivatives/x/y', '../dataset2', '../not/yet/there'):
        check_output_folder(root, root / output)
        assert not (root / output).exists()
    for output, message in [
        ('.', 'is the dataset itself'),
        ('..', 'the dataset is inside the output folder'),
        ('out', 'is inside the dataset; use .*/derivatives/surreal_bids'),
        ('derivatives', 'is inside the dataset'),
        ('derivatives/../out', 'is inside the dataset'),
        ('derivatives2/x', 'is inside the dataset'),
        ('link/x', 'is inside the dataset'),
        ('../file/x', 'file is a file'),
    ]:
        with pytest.raises(OutputError, match=message):
            check_output_folder(root, root / output)
    for name in ('work', 'derivatives/work', '.'):
        with pytest.raises(OutputError, match='inside the dataset; choose'):
            check_work_folder(root, root / name)
    check_work_folder(root, root.parent / 'work')
    monkeypatch.setattr(os, 'access', lambda path, mode: path != root.parent)
    with pytest.raises(OutputError, match=f'{root.parent} is not writable'):
        check_output_folder(root, root.parent / 'out' / 'deep')


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
