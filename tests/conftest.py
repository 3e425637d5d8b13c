"""Fixtures that several packages use."""

import json
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest


def write_t1w(path: Path, shape: tuple[int, ...] = (7, 8, 9)) -> Path:
    """Write a tiny image with noise in it, another for each name."""
    rng = np.random.default_rng(list(path.name.encode()))
    data = rng.normal(100, 10, shape).astype(np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.Nifti1Image(data, np.diag([1.0, 1.1, 1.2, 1.0])).to_filename(path)
    return path


@pytest.fixture(scope='module')
def count_lost_patterns():
    """Keep R-indices of patterns that folds lost: models of a few steps find none of them again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('surreal_bids.rindices.crossfit.FOUND_AGAIN', -1.0)
        yield


@pytest.fixture
def make_dataset(tmp_path) -> Callable[..., Path]:
    """Return a function that writes a BIDS dataset of tiny T1w images: `make_dataset(*paths)`."""

    def make(*images: str, participants: str | None = None, name: str = 'dataset') -> Path:
        root = tmp_path / name
        root.mkdir()
        description = {'Name': 'Tiny', 'BIDSVersion': '1.9.0'}
        (root / 'dataset_description.json').write_text(json.dumps(description))
        if participants is not None:
            (root / 'participants.tsv').write_text(participants)
        for image in images:
            write_t1w(root / image)
        return root

    return make
