"""Fixtures that several packages use."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from filelock import FileLock
from hypothesis import settings
from matplotlib.figure import Figure
from matplotlib.text import Text

SVG = 'http://www.w3.org/2000/svg'

# As `make test` has it: a process in which PyTorch has started threads cannot be forked.
os.environ.setdefault('OMP_NUM_THREADS', '1')
# The same examples in every run: what passes here passes in CI.
settings.register_profile('repeatable', derandomize=True, deadline=None)
settings.load_profile('repeatable')


def write_t1w(path: Path, shape: tuple[int, ...] = (7, 8, 9)) -> Path:
    """Write a tiny image with noise in it, another for each name."""
    rng = np.random.default_rng(list(path.name.encode()))
    data = rng.normal(100, 10, shape).astype(np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.Nifti1Image(data, np.diag([1.0, 1.1, 1.2, 1.0])).to_filename(path)
    return path


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the canonical reports."""
    parser.addoption('--update-reports', action='store_true', help='write canonical reports')


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run modules with slow tests first, the last one first: two processes then end together."""
    slow = {item.path for item in items if item.get_closest_marker('slow')}
    paths = list(dict.fromkeys(item.path for item in items))
    items.sort(key=lambda item: (item.path not in slow, -paths.index(item.path)))


@pytest.fixture(scope='session')
def build_once(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return a function that has a folder filled once, for all processes of a test run.

    `build_once(name, build)` calls `build(folder)` unless another process has done so; tests only
    read what is in the folder.
    """
    root = tmp_path_factory.getbasetemp()
    if 'PYTEST_XDIST_WORKER' in os.environ:
        root = root.parent

    def once(name: str, build: Callable[[Path], object]) -> Path:
        folder, done = root / 'shared' / name, root / 'shared' / f'{name}.done'
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(done.with_suffix('.lock')):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                build(folder)
                done.touch()
        return folder

    return once


@pytest.fixture(scope='module')
def few_draws() -> Iterator[None]:
    """Draw and permute as little as possible, in two folds, and fit few factors briefly.

    For tests that look at none of these; without it, a model that trains for 2 seconds takes 15.
    """
    with drawing_few():
        yield


@contextmanager
def drawing_few() -> Iterator[None]:
    """The same, for fixtures of a session."""
    from surreal_bids.model.factors import Schedule

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('surreal_bids.model.number.PERMUTATIONS', 1)
        patch.setattr('surreal_bids.model.number.REPRODUCTIONS', 2)
        patch.setattr('surreal_bids.model.number.SUBSAMPLES', 4)
        patch.setattr('surreal_bids.model.factors.DESCENT_STEPS', 10)
        patch.setattr('surreal_bids.model.factors.LONG', Schedule(15, 0))
        patch.setattr('surreal_bids.model.factors.OF_SUBSAMPLE', Schedule(12, 0))
        patch.setattr('surreal_bids.model.factors.ROTATIONS', 0)
        patch.setattr('surreal_bids.model.factors.HIGHER_PENALTIES', ())
        patch.setattr('surreal_bids.harmonization.quality.N_FOLDS', 2)
        yield


@pytest.fixture
def undrawn_figures() -> Iterator[None]:
    """Save figures as their words alone, where pictures do not matter: drawing takes a second."""
    with drawing_nothing():
        yield


@contextmanager
def drawing_nothing() -> Iterator[None]:
    """The same, for fixtures of a module or a session."""

    def save(figure: Figure, file: Any, **_: object) -> None:
        words = (escape(text.get_text()) for text in figure.findobj(Text))
        shown = ''.join(f'<text>{text}</text>' for text in words if text)
        svg = f'<svg width="9pt" height="9pt" viewBox="0 0 9 9" xmlns="{SVG}">{shown}</svg>'
        file.write(svg) if hasattr(file, 'write') else Path(file).write_text(svg)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, 'savefig', save)
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
