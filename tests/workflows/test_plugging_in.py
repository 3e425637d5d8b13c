"""The example of the workflows in a small pipeline of somebody else's runs."""

import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.templates import T1W
from tests.interfaces import phantom

EXAMPLE = Path(__file__).resolve().parents[2] / 'docs' / 'plugging_in.py'


@pytest.fixture
def atlas_dir(tmp_path):
    files = phantom.write_all(tmp_path / 'brain')
    folder = tmp_path / 'atlas'
    folder.mkdir()
    shutil.copy(files['t1w'], folder / 'one_T1w.nii.gz')
    shutil.copy(files['labels'], folder / 'one_dseg.nii.gz')
    regions = pd.read_csv(files['regions'], sep='\t').query('name != "Absent"')
    regions.to_csv(folder / 'dseg.tsv', sep='\t', index=False)
    return folder


@pytest.mark.slow
def test_the_example_runs(atlas_dir, tmp_path):
    brain = tmp_path / 'brain'
    arguments = [brain / 't1w.nii.gz', brain / 'mask.nii.gz', brain / 'template', atlas_dir]
    command = [sys.executable, EXAMPLE, *arguments, tmp_path / 'work']
    subprocess.run(command, check=True, cwd=tmp_path)
    (table,) = (tmp_path / 'work').glob('host_wf/segmentation_wf/fuse/*.tsv')
    found = pd.read_csv(table, sep='\t').set_index('index')['volume_mm3']
    labels = np.asarray(phantom.labels().dataobj)
    voxel = abs(np.linalg.det(phantom.AFFINE[:3, :3]))
    for index in (47, 48):
        assert found[index] == pytest.approx((labels == index).sum() * voxel, rel=0.05)
    maps = sorted((tmp_path / 'work').glob('host_wf/ravens_wf/**/*.nii.gz'))
    assert len(maps) == 3
    grid = nib.Nifti1Image.from_filename(brain / 'template' / T1W)
    assert all(nib.Nifti1Image.from_filename(path).shape == grid.shape for path in maps)
