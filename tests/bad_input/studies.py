"""Sound little studies on disk, and the commands that are run on them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd

from surreal_bids.cli.app import main as surreal_bids
from surreal_bids.cli.gan import main as surreal_gan
from surreal_bids.simulation.tables import simulate_table

N_CONTROLS, N_PATIENTS = 24, 24
N_REGIONS = 30
N_IMAGES = 20
SHAPE = (7, 8, 9)

TINY = ('--n-patterns', '2', '--ortho', '0.2', '--repetitions', '2', '--device', 'cpu')
ALONE = ('--nprocs', '1')
TRAINING = (*TINY, '--iterations', '20', '--folds', '0')
COLUMNS = ('--covariates', 'age', 'sex', '--site-column', 'site', '--icv-column', 'icv')


@dataclass
class Study:
    """A folder with a sound study in it; a case damages it.

    Attributes
    ----------
    folder
        Everything is below it.
    options
        What a damage adds to the command line.
    columns
        Options that name the columns in use; a damage may replace them.
    dataset, people, volumes, model, out, results, work
        Where inputs are and outputs go; a damage may move them.
    """

    folder: Path
    options: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=lambda: list(COLUMNS))

    def __post_init__(self) -> None:
        self.dataset = self.folder / 'dataset'
        self.people = self.dataset / 'participants.tsv'
        self.volumes = self.folder / 'volumes.tsv'
        self.model = self.folder / 'model'
        self.out = self.folder / 'out'
        self.results = self.folder / 'rindices.tsv'
        self.work = self.folder / 'work'

    def image(self, participant: str = '02') -> Path:
        name = f'sub-{participant}'
        return self.dataset / name / 'anat' / f'{name}_T1w.nii.gz'

    def edit(self, path: Path, change: Callable[[pd.DataFrame], pd.DataFrame | None]) -> None:
        """Change a table, its cells being text; the first column is the index."""
        table = pd.read_csv(path, sep='\t', dtype=str, keep_default_na=False, index_col=0)
        changed = change(table)
        (table if changed is None else changed).to_csv(path, sep='\t')

    def add(self, *words: object) -> None:
        """Add to the command line."""
        self.options += map(str, words)


def study_of(kind: str, folder: Path) -> Study:
    """The study of `tables` or `images` in a folder."""
    if kind == 'tables':
        return Study(folder)
    words = ['--segmentation', folder / 'atlas']
    return Study(folder, list(map(str, words)), columns=[])


def write_tables(folder: Path) -> None:
    """Write a dataset without images, and its volumes: MUSE regions in mm3, two sites."""
    simulated = simulate_table('basic', n_cn=N_CONTROLS, n_pt=N_PATIENTS, seed=3)
    study = Study(folder)
    _write_description(study.dataset)
    names = [f'sub-{k:03}' for k in range(1, N_CONTROLS + N_PATIENTS + 1)]
    sites = ['A', 'B'] * (len(names) // 2)
    people = simulated.participants.assign(participant_id=names, site=sites)
    volumes = simulated.volumes.iloc[:, : N_REGIONS + 1].round(1)
    people.to_csv(study.people, sep='\t', index=False)
    volumes.assign(participant_id=names).to_csv(study.volumes, sep='\t', index=False)


def write_images(folder: Path) -> None:
    """Write a dataset of 20 tiny heads and an atlas."""
    study = Study(folder)
    _write_description(study.dataset)
    labels = [f'{k:02}' for k in range(1, N_IMAGES + 1)]
    for seed, label in enumerate(labels):
        write_image(study.image(label), seed=seed)
    people = {'participant_id': [f'sub-{label}' for label in labels]}
    people |= {'diagnosis': ['CN', 'PT'] * 10, 'age': list(range(61, 81)), 'sex': list('FFMM') * 5}
    pd.DataFrame(people).to_csv(study.people, sep='\t', index=False)
    write_atlas(folder / 'atlas')


def _write_description(dataset: Path) -> None:
    dataset.mkdir(parents=True)
    description = {'Name': 'Tiny', 'BIDSVersion': '1.9.0'}
    (dataset / 'dataset_description.json').write_text(json.dumps(description))


def head(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).normal(100, 10, shape).astype(np.float32)


def write_image(
    path: Path, data: np.ndarray | None = None, affine: np.ndarray | None = None, seed: int = 0
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = np.diag([1.0, 1.1, 1.2, 1.0]) if affine is None else affine
    nib.Nifti1Image(head(seed) if data is None else data, affine).to_filename(path)
    return path


def write_atlas(folder: Path) -> None:
    labels = np.zeros(SHAPE, np.int16)
    labels[1:4, 1:-1, 1:-1], labels[4:-1, 1:-1, 1:-1] = 47, 48
    for seed, name in enumerate('ab'):
        write_image(folder / f'{name}_T1w.nii.gz', head(seed) * (labels > 0))
        write_image(folder / f'{name}_dseg.nii.gz', labels)
    (folder / 'dseg.tsv').write_text('index\tname\n47\tRight half\n48\tLeft half\n')


def fit(study: Study) -> list[str]:
    words = ['fit', study.volumes, '--participants', study.people, '--out', study.out]
    return _words(words, study.columns, TRAINING, study.options)


def apply(study: Study) -> list[str]:
    words = ['apply', study.volumes, '--participants', study.people, '--model', study.model]
    return _words(words, ['--out', study.results], study.options)


def add_site(study: Study) -> list[str]:
    words = ['add-site', study.model, study.volumes, study.out, '--participants', study.people]
    return _words(words, study.options)


def card(study: Study) -> list[str]:
    return _words(['card', study.model])


def group(study: Study) -> list[str]:
    words = [study.dataset, study.out, 'group', '--roi-table', study.volumes]
    return _words(words, ['-w', study.work], study.columns, TRAINING, ALONE, study.options)


def group_apply(study: Study) -> list[str]:
    words = [study.dataset, study.out, 'group', '--roi-table', study.volumes]
    return _words(words, ['-w', study.work, '--model', study.model], ALONE, study.options)


def participant(study: Study) -> list[str]:
    return _words([study.dataset, study.out, 'participant', '-w', study.work], study.options)


def both(study: Study) -> list[str]:
    levels = ['participant', 'group']
    return _words([study.dataset, study.out, *levels, '-w', study.work], TINY, study.options)


def _words(*parts: Any) -> list[str]:
    return [str(word) for part in parts for word in part]


@dataclass(frozen=True)
class Door:
    """A way in: the program, its command line, and what makes it stop before the long work."""

    main: Callable[[list[str]], int]
    words: Callable[[Study], list[str]]
    dry: tuple[str, ...] = ()


DOORS = {
    'fit': Door(surreal_gan, fit),
    'apply': Door(surreal_gan, apply),
    'add_site': Door(surreal_gan, add_site),
    'card': Door(surreal_gan, card),
    'group': Door(surreal_bids, group, ('--dry-run',)),
    'group_apply': Door(surreal_bids, group_apply, ('--dry-run',)),
    'participant': Door(surreal_bids, participant, ('--dry-run',)),
    'both': Door(surreal_bids, both, ('--dry-run',)),
}


def contents(folder: Path) -> dict[str, str]:
    """What every file below a folder holds, and where links lead; folders too."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place) / name
            found[os.path.relpath(path, folder)] = _content(path)
    return found


def _content(path: Path) -> str:
    if path.is_symlink():
        return f'link to {path.readlink()}'
    if path.is_dir():
        return 'folder'
    return hashlib.sha256(path.read_bytes()).hexdigest()


def copy_into(source: Path, folder: Path) -> None:
    shutil.copytree(source, folder, symlinks=True, dirs_exist_ok=True)
