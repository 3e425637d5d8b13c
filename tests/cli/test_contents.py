"""Results in `--derivatives` are read and compared before any work; the bad ones are named."""

import shutil
from itertools import pairwise

import nibabel as nib
import numpy as np
import pytest

from surreal_bids.bids.survey import survey_dataset
from surreal_bids.cli.plan import gaps, make_plan, without_bad_results
from surreal_bids.config import AppConfig
from surreal_bids.files import write_image
from tests.bids.fmriprep_trees import IMAGES, write_json
from tests.interfaces import phantom

pytestmark = pytest.mark.slow

LABELS = ('01', '02', '03')
TABLE = (
    'index\tname\n1\tLeft cortex\n2\tRight cortex\n3\tLeft white matter\n4\tRight white matter\n'
)


def _rolled(image, number):
    """Each participant has the brain elsewhere, so that no two files are the same."""
    return nib.Nifti1Image(np.roll(np.asarray(image.dataobj), number, 1), image.affine)


def _dseg():
    tissues = {name: np.asarray(image.dataobj) > 0 for name, image in phantom.tissues().items()}
    right = np.arange(phantom.SHAPE[0])[:, None, None] < phantom.SHAPE[0] // 2
    values = (tissues['GM'] + 3 * tissues['WM'] + right) * (tissues['GM'] | tissues['WM'])
    return nib.Nifti1Image(values.astype(np.int16), phantom.AFFINE)


@pytest.fixture(scope='module')
def sound(tmp_path_factory):
    """Three participants with results of fMRIPrep and of a segmentation."""
    root = tmp_path_factory.mktemp('sound')
    write_json_in(root / 'raw', {'Name': 'Tiny', 'BIDSVersion': '1.9.0'})
    for number, label in enumerate(LABELS):
        name = f'sub-{label}/anat/sub-{label}'
        t1w = _rolled(phantom.t1w(number), number)
        write_image(root / 'raw' / f'{name}_T1w.nii.gz', t1w)
        images = {'t1w': t1w, 'mask': _rolled(phantom.mask(), number)}
        images |= {tissue: _rolled(each, number) for tissue, each in phantom.tissues().items()}
        for key, ending in IMAGES.items():
            write_image(root / 'fmriprep' / f'{name}_{ending}.nii.gz', images[key])
        write_image(root / 'halves' / f'{name}_dseg.nii.gz', _rolled(_dseg(), number))
    (root / 'halves' / 'dseg.tsv').write_text(TABLE)
    return root


def write_json_in(folder, description):
    folder.mkdir(parents=True)
    write_json(folder / 'dataset_description.json', description)


def _checked(root, *more):
    config = AppConfig(
        root / 'raw',
        root / 'out',
        ('participant',),
        work_dir=root / 'work',
        derivatives=(f'fmriprep={root / "fmriprep"}', f'halves={root / "halves"}', *more),
    )
    return without_bad_results(make_plan(config, survey_dataset(config)))


def _changed(path, change):
    """Write an image again with other voxels or another affine."""
    image = nib.Nifti1Image.from_filename(path)
    values, affine = change(image.get_fdata(dtype=np.float32), image.affine.copy())
    write_image(path, nib.Nifti1Image(values, affine))


def truncated(path, rng):
    path.write_bytes(path.read_bytes()[: int(rng.uniform(0.2, 0.99) * path.stat().st_size)])


def far_away(path, rng):
    def change(values, affine):
        affine[int(rng.integers(3)), 3] += 500
        return values, affine

    _changed(path, change)


def fractions(path, rng):
    _changed(path, lambda v, a: (v * np.float32(rng.uniform(1.3, 1.6)), a))


def broken_link(path, _):
    path.unlink()
    path.symlink_to('nowhere.nii.gz')


def other_axis(path, _):
    _changed(path, lambda v, a: (v.transpose(1, 0, 2), a))


FILES = {'mask': 'fmriprep', 'GM': 'fmriprep', 'dseg': 'halves', 't1w': 'fmriprep'}


def _path(root, key, label):
    ending = IMAGES.get(key, 'dseg')
    return root / FILES[key] / f'sub-{label}' / 'anat' / f'sub-{label}_{ending}.nii.gz'


def test_sound_results_are_used(sound, caplog):
    plan = _checked(sound)
    assert plan.problems == []
    assert len(plan.jobs) == len(LABELS)
    assert caplog.messages == []


def test_one_damaged_file_excludes_one_participant(sound, tmp_path):
    for number, damage in enumerate((truncated, far_away, broken_link, other_axis, fractions)):
        rng = np.random.default_rng(list(damage.__name__.encode()))
        root = shutil.copytree(sound, tmp_path / f'{number}', symlinks=True)
        key = 'dseg' if damage is fractions else str(rng.choice(list(FILES)))
        label = str(rng.choice(LABELS))
        path = _path(root, key, label)
        damage(path, rng)
        plan = _checked(root)
        assert [problem.name for problem in plan.problems] == [f'sub-{label}'], damage
        assert str(path) in plan.problems[0].reason
        assert len(plan.jobs) == len(LABELS) - 1


def _lesion(root, values, affine=phantom.AFFINE):
    path = root / 'raw' / 'sub-02' / 'anat' / 'sub-02_label-lesion_mask.nii.gz'
    return write_image(path, nib.Nifti1Image(values.astype(np.float32), affine))


BLOCK = np.zeros(phantom.SHAPE)
BLOCK[10:14, 20:24, 15:19] = 1

BAD_LESIONS = {
    'all voxels are 1.0; convert it again or exclude it': 0 * BLOCK + 1,
    'or more than two values; a lesion mask is 0 outside': BLOCK
    * np.arange(phantom.SHAPE[0])[:, None, None],
    'values between 0 and 1': 0.37 * BLOCK,
    'not on the grid of the T1w image in use ((39, 48, 36) instead of (40, 48, 36) voxels)': BLOCK[
        :-1
    ],
    'litres are larger than a hemisphere': 1 - BLOCK,
}


def test_bad_lesion_masks(sound, tmp_path):
    root = shutil.copytree(sound, tmp_path / 'study')
    for reason, values in BAD_LESIONS.items():
        path = _lesion(root, values)
        plan = _checked(root)
        assert [problem.name for problem in plan.problems] == ['sub-02']
        assert str(path) in plan.problems[0].reason
        assert reason in plan.problems[0].reason


def test_a_new_lesion_mask_processes_one_participant_again(sound, tmp_path):
    root = shutil.copytree(sound, tmp_path / 'study')
    seen = []
    for factor in (None, 0, 1, 2):  # An empty mask is no lesion.
        if factor is not None:
            _lesion(root, factor * BLOCK)
        plan = _checked(root)
        assert plan.problems == []
        seen.append({job.participant: job.made_from for job in plan.jobs})
    for label in LABELS:
        changes = [a[label] != b[label] for a, b in pairwise(seen)]
        assert changes == ([False, True, True] if label == '02' else [False] * 3)


def test_participants_without_a_lesion_mask_are_no_gap(sound, tmp_path):
    folder = tmp_path / 'masks'
    write_image(
        folder / 'sub-01_label-lesion_mask.nii.gz',
        nib.Nifti1Image(BLOCK.astype(np.uint8), phantom.AFFINE),
    )
    config = AppConfig(
        sound / 'raw',
        tmp_path / 'out',
        ('participant',),
        work_dir=tmp_path / 'work',
        derivatives=(f'lesions={folder}',),
    )
    plan = without_bad_results(make_plan(config, survey_dataset(config)))
    assert [job.participant for job in plan.jobs if job.reusable.lesion] == ['01']
    assert gaps(config, plan.jobs) == []
