"""A study of tiny brains that runs from start to end in seconds a step."""

import json
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np

from surreal_bids.cli.plan import steps_dir
from surreal_bids.config import AppConfig
from surreal_bids.files import write_image
from surreal_bids.templates import MUSE_LABELS, TEMPLATE_SPACE
from tests.interfaces import phantom


def write_study(root: Path, *names: str) -> list[str]:
    """Write a dataset and two atlases; return the command line that runs them.

    A tiny template is put where the command writes the built-in one, unless it is there.

    Parameters
    ----------
    root
        Where to.
    *names
        T1w images, such as `sub-01/anat/sub-01_T1w.nii.gz`.
    """
    dataset = root / 'dataset'
    dataset.mkdir(parents=True)
    description = {'Name': 'Tiny brains', 'BIDSVersion': '1.9.0'}
    (dataset / 'dataset_description.json').write_text(json.dumps(description))
    (dataset / 'README').write_text('Tiny brains, made for a test.\n')
    for seed, name in enumerate(names):
        image = phantom.t1w(seed)
        scaled = (10 * np.asarray(image.dataobj)).round().astype(np.int16)
        write_image(dataset / name, nib.Nifti1Image(scaled, image.affine))
    files = phantom.write_all(root / 'files')
    atlas = root / 'halves'
    for number, place in enumerate(('a', 'b')):
        write_image(atlas / f'{place}_T1w.nii.gz', phantom.t1w(10 + number))
        write_image(atlas / f'{place}_dseg.nii.gz', phantom.labels())
    shutil.copy(files['regions'], atlas / 'dseg.tsv')
    folders = {'segmentation': str(atlas), 'work_dir': root / 'work'}
    config = AppConfig(dataset, root / 'out', ('participant',), **folders)
    template = steps_dir(config) / 'templates' / f'{TEMPLATE_SPACE}_1mm'
    phantom.write_template(template)
    write_image(template / MUSE_LABELS, phantom.labels())
    options = ['--segmentation', str(atlas), '-w', str(root / 'work'), '--nprocs', '1']
    return [str(dataset), str(root / 'out'), 'participant', *options]
