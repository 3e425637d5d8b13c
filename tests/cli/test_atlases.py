"""`python -m surreal_bids atlases CLONE FOLDER`."""

import subprocess
import sys

import nibabel as nib
import numpy as np
import pytest

from surreal_bids.cli.atlases import main
from surreal_bids.imaging import neuromorphometrics
from surreal_bids.imaging.atlas import read_atlas_set


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone of one tiny brain, whose division takes no time."""
    images = tmp_path / 'clone' / 'inst' / 'extdata'
    images.mkdir(parents=True)
    (tmp_path / 'clone' / 'LICENSE').write_text('CC BY-NC\n')
    labels = np.random.default_rng(0).choice([0, 44, 45], (7, 8, 9)).astype(np.int16)
    for ending in ('SS', 'glm'):
        nib.Nifti1Image(labels, np.eye(4)).to_filename(images / f'1000_{ending}.nii.gz')
    monkeypatch.setattr(
        neuromorphometrics, 'divide_by_template', lambda *_: (labels + 37).clip(81) * (labels > 0)
    )
    return tmp_path / 'clone'


def test_a_clone_becomes_a_folder_and_again(clone, tmp_path, capsys):
    folder = tmp_path / 'atlases'
    assert main([str(clone), str(folder)]) == 0
    assert [atlas.name for atlas in read_atlas_set(folder).atlases] == ['1000']
    out = capsys.readouterr().out
    assert '1000: made' in out
    assert f'--atlas {folder}' in out
    assert str(folder / 'LICENSE') in out
    assert main([str(clone), str(folder)]) == 0
    assert '1000: kept' in capsys.readouterr().out
    assert not (folder / '.surreal_bids.lock').exists()


def test_a_folder_that_is_no_clone_is_bad_data(tmp_path, capsys):
    assert main([str(tmp_path), str(tmp_path / 'atlases')]) == 65
    assert 'give a clone of https://github.com/muschellij2' in capsys.readouterr().err
    assert not (tmp_path / 'atlases').exists()


@pytest.mark.parametrize(
    ('words', 'shown'),
    [
        (['atlases', '--help'], 'CLONE FOLDER'),
        (['--help'], '{participant,group}'),
    ],
)
def test_the_module_is_this_command_or_the_app(words, shown):
    done = subprocess.run(
        [sys.executable, '-m', 'surreal_bids', *words], capture_output=True, text=True, check=True
    )
    assert shown in ' '.join(done.stdout.split())
