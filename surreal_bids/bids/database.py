"""Keep the index of a dataset between calls, and never use one that is out of date.

An index is stored under a fingerprint of all it depends on: the dataset's place, what was
indexed, the version of pybids, and the state of every folder read. Adding, removing or renaming
a file changes the state of its folder, hence the fingerprint, hence a stale index is never found.
The folder may be shared with other programs (fMRIPrep keeps its own index in it): nothing but
our own files is read or written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bids
from bids import BIDSLayout

from surreal_bids.files import atomic_path

LOGGER = logging.getLogger(__name__)

DATABASE = 'layout_index.sqlite'
"""The name that pybids gives to its database."""

SETTLED_NS = 2_000_000_000
"""A folder changed less than this long ago (ns) may change again within one tick of its clock."""

FolderState = tuple[str, int, int, int]
"""Path below the root, inode, time of modification, time of change (ns)."""


def cached_layout(
    bids_dir: Path,
    scope: str,
    database_dir: Path,
    index: Callable[[Path, str], BIDSLayout],
) -> BIDSLayout:
    """Load the index of a dataset if a current one is stored, else make it and store it.

    Parameters
    ----------
    bids_dir
        Root of the dataset.
    scope
        What is indexed, as `index` understands it.
    database_dir
        Folder of stored indices.
    index
        Makes the index from `bids_dir` and `scope`.
    """
    now = time.time_ns()
    states = folder_states(bids_dir)
    entry = database_dir / f'surreal_bids-{_fingerprint(bids_dir, scope, states)}'
    if (entry / DATABASE).is_file():
        LOGGER.info('Using the index stored in %s', entry)
        return BIDSLayout(bids_dir, validate=False, database_path=entry)
    layout = index(bids_dir, scope)
    if max(max(state[2:]) for state in states) > now - SETTLED_NS:
        LOGGER.info('%s: changed just now, so its index is not stored', bids_dir)
    else:
        _store(layout, entry / DATABASE)
    return layout


def folder_states(bids_dir: Path) -> list[FolderState]:
    """State of each folder that an index of anatomical images depends on.

    The time of change is there besides that of modification since copying programs set the
    latter back (`rsync -a`, `tar`).
    """
    folders = sorted(_folders(bids_dir))
    return [(os.path.relpath(folder, bids_dir), *_state(folder)) for folder in folders]


def _folders(bids_dir: Path) -> Iterator[str]:
    """Yield the root, `sub-*`, `sub-*/ses-*`, and the `anat` of either."""
    yield str(bids_dir)
    for participant in _subfolders(bids_dir, 'sub-'):
        for parent in [participant, *_subfolders(participant, 'ses-')]:
            yield parent
            yield from _subfolders(parent, 'anat')


def _subfolders(folder: str | Path, prefix: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [e.path for e in entries if e.name.startswith(prefix) and e.is_dir()]


def _state(folder: str) -> tuple[int, int, int]:
    status = os.stat(folder)  # noqa: PTH116 (thousands of folders: a Path for each doubles the time)
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _fingerprint(bids_dir: Path, scope: str, states: list[FolderState]) -> str:
    content = json.dumps([str(bids_dir.absolute()), scope, bids.__version__, states])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _store(layout: BIDSLayout, database: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, atomic_path(database) as temporary:
        layout.save(folder, replace_connection=False)
        shutil.copyfile(Path(folder) / DATABASE, temporary)
    LOGGER.info('Stored the index in %s', database.parent)
