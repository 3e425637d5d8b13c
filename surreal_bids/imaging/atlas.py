"""Atlas sets: folders of T1w images with label maps, and the one that is built in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.exceptions import DataError
from surreal_bids.files import MISSING, write_image, write_text, write_tsv
from surreal_bids.imaging.brain import brain_mask
from surreal_bids.imaging.images import Image, like, load_image, same_grid
from surreal_bids.imaging.muse_atlas import (
    MUSE_LICENCE,
    MUSE_SOURCES,
    muse_labels,
    muse_regions,
    muse_t1w,
)
from surreal_bids.templates import package_file

T1W_ENDING = '_T1w.nii.gz'
LABELS_ENDING = '_dseg.nii.gz'
REGIONS_FILE = 'dseg.tsv'
LICENCE_FILE = 'LICENSE'

DEFAULT_ATLAS = 'muse'
DIGEST_LENGTH = 12
"""Characters of a checksum that tell cached files of different content apart."""

LISTED = 5
"""As many examples are named in an error."""


@dataclass(frozen=True)
class Atlas:
    """A person, or template, whose regions are known: paths of the T1w image and the label map."""

    name: str
    t1w: Path
    labels: Path


@dataclass(frozen=True)
class AtlasSet:
    """Atlases that share one list of regions.

    Attributes
    ----------
    name
        Name of the set, as in `seg-<name>`.
    atlases
        At least one.
    regions
        `index` (label), `name`, and where they are known `tissue` and `hemisphere`.
    licence
        Terms of use, as the set states them.
    """

    name: str
    atlases: tuple[Atlas, ...]
    regions: pd.DataFrame
    licence: str


def read_atlas_set(folder: str | Path) -> AtlasSet:
    """Read and check a folder of atlases.

    Parameters
    ----------
    folder
        Holds `<name>_T1w.nii.gz` and `<name>_dseg.nii.gz` on one grid for each atlas, and
        `dseg.tsv` with the columns `index` and `name`, and perhaps `tissue` and `hemisphere`. Terms
        of use are taken from `LICENSE`. T1w images may show the whole head:
        see :func:`strip_atlases`.

    Raises
    ------
    DataError
        Something is missing, is given twice, does not fit together, or is no label.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f'{folder}: no such folder; --atlas takes a folder of atlases, or "muse"')
    regions = read_regions(folder / REGIONS_FILE)
    atlases = _pairs(folder)
    for atlas in atlases:
        _check_labels(atlas, regions)
    licence = folder / LICENCE_FILE
    return AtlasSet(
        name=''.join(filter(str.isalnum, folder.resolve().name)),
        atlases=atlases,
        regions=regions,
        licence=licence.read_text('utf-8').strip() if licence.is_file() else 'not stated',
    )


def default_atlas(cache_dir: Path) -> AtlasSet:
    """The built-in atlas of the 145 single MUSE regions, in MNI152NLin2009cAsym at 1 mm.

    Parameters
    ----------
    cache_dir
        The atlas is written into a folder of this one, once: its name tells versions of the
        sources and of this package apart. Several processes may do so at once.
    """
    sources = b''.join(package_file(*source).read_bytes() for source in MUSE_SOURCES)
    folder = cache_dir / f'{DEFAULT_ATLAS}-{_digest(sources)}'
    if not (folder / REGIONS_FILE).is_file():
        t1w = muse_t1w()
        write_image(folder / f'{DEFAULT_ATLAS}{T1W_ENDING}', t1w)
        write_image(folder / f'{DEFAULT_ATLAS}{LABELS_ENDING}', muse_labels(t1w))
        write_text(folder / LICENCE_FILE, MUSE_LICENCE + '\n')
        write_tsv(folder / REGIONS_FILE, muse_regions())  # last: it says that all is there
    return replace(read_atlas_set(folder), name=DEFAULT_ATLAS)


def strip_atlases(
    atlas_set: AtlasSet,
    cache_dir: Path,
    mask_of: Callable[[Image], tuple[Image, str]] = brain_mask,
) -> AtlasSet:
    """Replace T1w images of whole heads by copies that show the brain only.

    What is kept is what brain extraction finds, and all that is labelled: labels alone may leave
    out fluid or most of the brain. Images that are stripped already stay as they are.

    Parameters
    ----------
    atlas_set
        Atlases as they were read.
    cache_dir
        Copies are written here, once; their names tell contents apart.
    mask_of
        Gives the brain mask of a T1w image, and `'stripped'` if the image needs none.
    """
    atlases = tuple(_strip(atlas, cache_dir, mask_of) for atlas in atlas_set.atlases)
    return replace(atlas_set, atlases=atlases)


def _strip(atlas: Atlas, cache_dir: Path, mask_of: Callable[[Image], tuple[Image, str]]) -> Atlas:
    digest = _digest(atlas.t1w.read_bytes(), atlas.labels.read_bytes())
    stripped = cache_dir / f'{atlas.name}_desc-{digest}{T1W_ENDING}'
    if not stripped.is_file():
        t1w = load_image(atlas.t1w)
        mask, how = mask_of(t1w)
        if how == 'stripped':
            return atlas
        kept = (np.asarray(mask.dataobj) > 0) | (np.asarray(load_image(atlas.labels).dataobj) > 0)
        write_image(stripped, like(t1w, np.where(kept, t1w.dataobj, 0), np.float32))
    return replace(atlas, t1w=stripped)


def _digest(*contents: bytes) -> str:
    checksum = hashlib.sha256()
    for content in contents:
        checksum.update(content)
    return checksum.hexdigest()[:DIGEST_LENGTH]


def read_regions(path: Path) -> pd.DataFrame:
    """Read and check a list of regions: `index` and `name`, once each, and what else there is.

    Parameters
    ----------
    path
        Table of tab-separated values, such as `dseg.tsv` of BIDS. A region of index 0, the
        background, is left out.
    """
    if not path.is_file():
        raise DataError(
            f'{path}: not found; it lists the regions: columns index and name, tab-separated'
        )
    table = pd.read_csv(path, sep='\t', dtype=str, keep_default_na=False, na_values=[MISSING, ''])
    missing = sorted({'index', 'name'} - set(table.columns))
    if missing:
        raise DataError(f'{path}: no column {" or ".join(missing)}; it has {list(table.columns)}')
    whole = table['index'].str.fullmatch(r'\d+').fillna(False).astype(bool)
    _refuse(path, table.loc[~whole, 'index'], 'no whole number in column index')
    table['index'] = table['index'].astype(int)
    table = table[table['index'] > 0].reset_index(drop=True)
    _refuse(path, table.loc[table['name'].isna(), 'index'], 'no name for index')
    for column in ('index', 'name'):
        _refuse(path, table.loc[table[column].duplicated(), column], f'given twice as {column}')
    if table.empty:
        raise DataError(f'{path}: lists no region; add one line for each')
    return table


def _refuse(path: Path, cells: pd.Series, problem: str) -> None:
    if len(cells):
        raise DataError(f'{path}: {problem}: {_some(cells.tolist())}; correct the table')


def _some(values: Sequence[object]) -> str:
    more = f' and {len(values) - LISTED} more' if len(values) > LISTED else ''
    return ', '.join(map(str, values[:LISTED])) + more


def _pairs(folder: Path) -> tuple[Atlas, ...]:
    """Atlases of a folder, in alphabetical order.

    Hidden files are passed over: another process may be writing the same atlas just now.
    """
    names = {
        ending: {path.name.removesuffix(ending) for path in folder.glob(f'[!.]*{ending}')}
        for ending in (T1W_ENDING, LABELS_ENDING)
    }
    alone = sorted(names[T1W_ENDING] ^ names[LABELS_ENDING])
    if alone:
        lacks = T1W_ENDING if alone[0] in names[LABELS_ENDING] else LABELS_ENDING
        raise DataError(
            f'{folder}: {alone[0]}{lacks} is missing; each atlas has a T1w image and a label map '
            f'(incomplete: {_some(alone)})'
        )
    if not names[T1W_ENDING]:
        raise DataError(
            f'{folder}: no atlas; expected pairs <name>{T1W_ENDING} and <name>{LABELS_ENDING}'
        )
    return tuple(
        Atlas(name, folder / f'{name}{T1W_ENDING}', folder / f'{name}{LABELS_ENDING}')
        for name in sorted(names[T1W_ENDING])
    )


def _check_labels(atlas: Atlas, regions: pd.DataFrame) -> None:
    t1w, labels = load_image(atlas.t1w), load_image(atlas.labels)
    if not same_grid(t1w, labels):
        raise DataError(
            f'{atlas.labels}: {labels.shape} voxels, not on the grid of {atlas.t1w.name}, '
            f'{t1w.shape}; resample it with nearest neighbours'
        )
    values = np.unique(np.asarray(labels.dataobj))
    odd = values[(values != np.round(values)) | (values < 0)]
    if odd.size:
        raise DataError(
            f'{atlas.labels}: {odd.size} values are no labels ({_some(odd.tolist())}); labels are '
            'whole numbers from 0. Was it resampled without nearest neighbours?'
        )
    unknown = sorted(set(values.astype(int).tolist()) - {0, *regions['index'].tolist()})
    if unknown:
        raise DataError(
            f'{atlas.labels}: labels {_some(unknown)} are not in {REGIONS_FILE}; add them to it'
        )
