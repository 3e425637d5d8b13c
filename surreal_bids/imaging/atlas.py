"""Atlases: folders of labelled brains."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.exceptions import DataError
from surreal_bids.files import MISSING, write_image
from surreal_bids.images import like, load_image, require_same_grid
from surreal_bids.imaging.brain import brain_mask
from surreal_bids.text import list_briefly

T1W_ENDING = '_T1w.nii.gz'
LABELS_ENDING = '_dseg.nii.gz'
REGIONS_FILE = 'dseg.tsv'
LICENCE_FILE = 'LICENSE'

DIGEST_LENGTH = 12
"""Characters of a checksum in the names of cached files."""


@dataclass(frozen=True)
class Atlas:
    """Paths of the T1w image and the label map of a labelled brain."""

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
        `index` (label), `name` and, if known, `tissue` and `hemisphere`.
    licence
        Terms of use.
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
        Contains `<name>_T1w.nii.gz` and `<name>_dseg.nii.gz` on one grid for each atlas, and
        `dseg.tsv` with the columns `index`, `name` and, optionally, `tissue` and `hemisphere`.
        Terms of use are read from `LICENSE`. T1w images may show the whole head; see
        :func:`strip_atlases`.

    Raises
    ------
    DataError
        Files are missing, do not match, or have invalid labels.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f'{folder}: no such folder; give --segmentation a folder of atlases')
    regions = read_regions(folder / REGIONS_FILE)
    atlases = _pairs(folder)
    for atlas in atlases:
        _check_labels(atlas, regions)
    licence = folder / LICENCE_FILE
    return AtlasSet(
        name=''.join(filter(str.isalnum, folder.resolve().name)),
        atlases=atlases,
        regions=regions,
        licence=licence.read_text('utf-8', 'replace').strip()
        if licence.is_file()
        else 'not stated',
    )


def strip_atlases(atlas_set: AtlasSet, cache_dir: Path) -> AtlasSet:
    """Replace T1w images of whole heads with skull-stripped copies.

    The brain mask and all labelled voxels are kept, because labels alone may not cover the fluid or
    most of the brain. Skull-stripped images are not changed.

    Parameters
    ----------
    atlas_set
        Atlases as they were read.
    cache_dir
        Copies are written here once; their names contain a checksum.
    """
    return replace(atlas_set, atlases=tuple(_strip(each, cache_dir) for each in atlas_set.atlases))


def read_regions(path: Path) -> pd.DataFrame:
    """Read and check a table of regions with unique `index` and `name`.

    Parameters
    ----------
    path
        TSV file, such as `dseg.tsv` of BIDS. The background, index 0, is excluded.
    """
    if not path.is_file():
        raise DataError(
            f'{path}: not found; add a tab-separated table of the regions with the columns index '
            'and name'
        )
    missing_cells = [MISSING, '']
    try:
        table = pd.read_csv(
            path, sep='\t', dtype=str, keep_default_na=False, na_values=missing_cells
        )
    except (OSError, ValueError) as error:
        raise DataError(
            f'{path}: cannot be read as a table ({error}); save it as tab-separated text in UTF-8'
        ) from error
    missing = sorted({'index', 'name'} - set(table.columns))
    if missing:
        raise DataError(f'{path}: no column {" or ".join(missing)}; it has {list(table.columns)}')
    whole = table['index'].str.fullmatch(r'\d{1,9}').fillna(False).astype(bool)
    _refuse(path, table.loc[~whole, 'index'], 'no whole number in column index')
    table['index'] = table['index'].astype(int)
    table = table[table['index'] > 0].reset_index(drop=True)
    _refuse(path, table.loc[table['name'].isna(), 'index'], 'no name for index')
    numbers = table['name'].str.fullmatch(r'\s*\d+\s*')
    # A column 47 of the group level is a MUSE region.
    _refuse(path, table.loc[numbers, 'name'], 'numbers, which mean regions of MUSE, as name')
    for column in ('index', 'name'):
        _refuse(path, table.loc[table[column].duplicated(), column], f'duplicate {column}')
    if table.empty:
        raise DataError(f'{path}: no regions listed; add one row per region')
    return table


def _strip(atlas: Atlas, cache_dir: Path) -> Atlas:
    contents = atlas.t1w.read_bytes() + atlas.labels.read_bytes()
    digest = hashlib.sha256(contents).hexdigest()[:DIGEST_LENGTH]
    stripped = cache_dir / f'{atlas.name}_desc-{digest}{T1W_ENDING}'
    if not stripped.is_file():
        t1w = load_image(atlas.t1w)
        mask, how = brain_mask(t1w)
        if how == 'stripped':
            return atlas
        kept = (np.asarray(mask.dataobj) > 0) | (np.asarray(load_image(atlas.labels).dataobj) > 0)
        write_image(stripped, like(t1w, np.where(kept, t1w.dataobj, 0), np.float32))
    return replace(atlas, t1w=stripped)


def _refuse(path: Path, cells: pd.Series, problem: str) -> None:
    if len(cells):
        raise DataError(f'{path}: {problem}: {list_briefly(cells.tolist())}; correct the table')


def _pairs(folder: Path) -> tuple[Atlas, ...]:
    """List the atlases of a folder in alphabetical order.

    Hidden files are ignored.
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
            f'(incomplete: {list_briefly(alone)})'
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
    require_same_grid(labels, t1w, str(atlas.labels), atlas.t1w.name)
    values = np.unique(np.asarray(labels.dataobj))
    odd = values[(values != np.round(values)) | (values < 0)]
    if odd.size:
        raise DataError(
            f'{atlas.labels}: {odd.size} values are not labels ({list_briefly(odd.tolist())}); '
            'labels are integers from 0; resample the label map with nearest neighbours'
        )
    unknown = sorted(set(values.astype(int).tolist()) - {0, *regions['index'].tolist()})
    if unknown:
        raise DataError(
            f'{atlas.labels}: labels {list_briefly(unknown)} are not in {REGIONS_FILE}; add them'
        )
