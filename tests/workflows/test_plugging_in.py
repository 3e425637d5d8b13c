"""The example of the workflows in a small pipeline of somebody else's runs."""

import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.templates import T1W, read_template
from surreal_bids.workflows.anatomy import (
    init_quality_wf,
    init_registration_wf,
    init_tissue_wf,
)
from tests.interfaces import phantom

EXAMPLE = Path(__file__).resolve().parents[2] / 'docs' / 'plugging_in.py'
PAGE = EXAMPLE.with_suffix('.md')


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


@pytest.mark.slow
def test_the_page_says_how_to_write_the_template(tmp_path, monkeypatch):
    (block,) = re.findall(r'```python\n(.*?)```', PAGE.read_text(), flags=re.DOTALL)
    assert '`TEMPLATE_DIR`' in PAGE.read_text()
    monkeypatch.chdir(tmp_path)
    exec(compile(block.replace('1.0)', '4.0)'), PAGE.name, 'exec'), {})  # noqa: S102
    assert read_template(tmp_path / 'TEMPLATE_DIR').t1w.shape


def test_a_missing_folder_of_the_template_is_named(tmp_path):
    absent = tmp_path / 'template'
    for init_wf in (
        partial(init_tissue_wf, omp_nthreads=1),
        partial(init_registration_wf, device='cpu', omp_nthreads=1),
        init_quality_wf,
    ):
        with pytest.raises(DataError, match=r'template: no such folder; .*write_template'):
            init_wf(template_dir=absent)
