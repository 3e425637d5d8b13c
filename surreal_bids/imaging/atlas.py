"""Atlases: folders of labelled brains, and the built-in MUSE atlas."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.files import MISSING, copy_file, write_image, write_tsv
from surreal_bids.images import Image, like, load_image, same_grid
from surreal_bids.imaging.brain import brain_mask
from surreal_bids.regions import muse_table
from surreal_bids.templates import (
    LABELS_FILE,
    PRIORS_FILE,
    T1_FILE,
    TRACTS_FILE,
    package_file,
    read_brain,
    read_labels,
    tissue_fractions,
)
from surreal_bids.text import list_briefly

T1W_ENDING = '_T1w.nii.gz'
LABELS_ENDING = '_dseg.nii.gz'
REGIONS_FILE = 'dseg.tsv'
LICENCE_FILE = 'LICENSE'
DEFAULT_ATLAS = 'muse'

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
        raise DataError(f'{folder}: no such folder; give --atlas a folder of atlases or "muse"')
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


def default_atlas(cache_dir: Path) -> AtlasSet:
    """Return the built-in atlas of 145 MUSE regions in MNI152NLin2009cAsym at 1 mm.

    Parameters
    ----------
    cache_dir
        The atlas is written once to a subfolder named by a checksum of its sources. Several
        processes may do so at once.
    """
    sources = b''.join(package_file(*source).read_bytes() for source in MUSE_SOURCES)
    folder = cache_dir / f'{DEFAULT_ATLAS}-{content_digest(sources)}'
    if not (folder / REGIONS_FILE).is_file():
        t1w = muse_t1w()
        write_image(folder / f'{DEFAULT_ATLAS}{T1W_ENDING}', t1w)
        write_image(folder / f'{DEFAULT_ATLAS}{LABELS_ENDING}', muse_labels(t1w))
        copy_file(package_file('surreal_bids', 'data/atlas/LICENSE'), folder / LICENCE_FILE)
        regions = muse_table()[['index', 'name', 'tissue', 'hemisphere']]
        write_tsv(folder / REGIONS_FILE, regions)  # last: it marks the folder as complete
    return replace(read_atlas_set(folder), name=DEFAULT_ATLAS)


def strip_atlases(
    atlas_set: AtlasSet,
    cache_dir: Path,
    mask_of: Callable[[Image], tuple[Image, str]] = brain_mask,
) -> AtlasSet:
    """Replace T1w images of whole heads with skull-stripped copies.

    The brain mask and all labelled voxels are kept, because labels alone may not cover the fluid or
    most of the brain. Skull-stripped images are not changed.

    Parameters
    ----------
    atlas_set
        Atlases as they were read.
    cache_dir
        Copies are written here once; their names contain a checksum.
    mask_of
        Returns the brain mask of a T1w image, and `'stripped'` for a skull-stripped image.
    """
    atlases = tuple(_strip(atlas, cache_dir, mask_of) for atlas in atlas_set.atlases)
    return replace(atlas_set, atlases=atlases)


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


def _strip(atlas: Atlas, cache_dir: Path, mask_of: Callable[[Image], tuple[Image, str]]) -> Atlas:
    digest = content_digest(atlas.t1w.read_bytes(), atlas.labels.read_bytes())
    stripped = cache_dir / f'{atlas.name}_desc-{digest}{T1W_ENDING}'
    if not stripped.is_file():
        t1w = load_image(atlas.t1w)
        mask, how = mask_of(t1w)
        if how == 'stripped':
            return atlas
        kept = (np.asarray(mask.dataobj) > 0) | (np.asarray(load_image(atlas.labels).dataobj) > 0)
        write_image(stripped, like(t1w, np.where(kept, t1w.dataobj, 0), np.float32))
    return replace(atlas, t1w=stripped)


def content_digest(*contents: bytes) -> str:
    """Return a checksum of the contents of files."""
    checksum = hashlib.sha256()
    for content in contents:
        checksum.update(content)
    return checksum.hexdigest()[:DIGEST_LENGTH]


def _refuse(path: Path, cells: pd.Series, problem: str) -> None:
    if len(cells):
        raise DataError(f'{path}: {problem}: {list_briefly(cells.tolist())}; correct the table')


def _pairs(folder: Path) -> tuple[Atlas, ...]:
    """List the atlases of a folder in alphabetical order.

    Hidden files are ignored because another process may be writing the same atlas.
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
    if not same_grid(t1w, labels):
        raise DataError(
            f'{atlas.labels}: the label map {labels.shape} is not on the grid of {atlas.t1w.name} '
            f'{t1w.shape}; resample it with nearest neighbours'
        )
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


MUSE_SOURCES = (
    T1_FILE,
    PRIORS_FILE,
    LABELS_FILE,
    TRACTS_FILE,
    ('surreal_bids', 'data/muse.tsv'),
    ('surreal_bids', 'templates.py'),
    ('surreal_bids', 'imaging/atlas.py'),
)
"""Packages and paths of the sources of the atlas, including this file."""

CEREBRAL_WHITE = {'R': 44, 'L': 45}
"""Neuromorphometrics labels that MUSE divides."""

FORNIX = {'R': 89, 'L': 90}
ANTERIOR_LIMB = {'R': 93, 'L': 94}
POSTERIOR_LIMB = {'R': 91, 'L': 92}
"""MUSE labels of the internal capsule.

The dictionary of MUSE calls 91 and 92 the anterior limbs, but in its label maps they lie between
thalamus and pallidum, and 93 and 94 between caudate and putamen. Tables and models go by number,
so numbers follow the label maps here.
"""

CORPUS_CALLOSUM = 95
LOBAR_WHITE = {
    ('frontal', 'R'): 81,
    ('frontal', 'L'): 82,
    ('occipital', 'R'): 83,
    ('occipital', 'L'): 84,
    ('parietal', 'R'): 85,
    ('parietal', 'L'): 86,
    ('temporal', 'R'): 87,
    ('temporal', 'L'): 88,
}

MORI_ANTERIOR_LIMB = (65, 66)
MORI_POSTERIOR_LIMB = (63, 64, 67, 68)
"""Posterior limbs and cerebral peduncles."""

MORI_CALLOSUM = (101, 102, 103, 104, 105, 106)
MORI_FORNIX = (99, 100)

CALLOSUM_HALF_WIDTH_MM = 10.0
"""MUSE counts the fibres further from the midline among the lobes."""

FORNIX_BOX_MM = ((-4.0, -26.0, 0.0), (4.0, 3.0, 22.0))
"""Lowest and highest x, y and z of the body and the columns of the fornix."""

LOBE_OF_LIMBIC = {
    100: 'frontal',
    138: 'frontal',
    166: 'parietal',
    116: 'temporal',
    170: 'temporal',
    47: 'temporal',
    31: 'temporal',
    174: 'parietal',
}
"""Lobes whose white matter is next to right regions that MUSE counts elsewhere.

Anterior, middle and posterior cingulate, entorhinal area, parahippocampal gyrus, hippocampus,
amygdala, and the parietal operculum, which MUSE counts with the frontal insula.
"""

NO_LOBE = (102, 172)
"""The insula, right: white matter near it belongs to the lobes around it."""

CSF_THRESHOLD = 0.65
"""Labelled tissue with more cerebrospinal fluid than this is sulcus and belongs to no region.

On real heads, overlap with DLMUSE is best from 0.65 to 0.8; volumes of the cortex grow with it.
"""


def muse_t1w() -> Image:
    """Return the T1w brain of the template at 1 mm, 0 outside."""
    image, brain = read_brain()
    return like(image, np.asarray(image.dataobj) * brain, np.float32)


def muse_labels(t1w: Image) -> Image:
    """Compute the label map of the 145 regions on the grid of :func:`muse_t1w`.

    The source labels of the cortex include sulci. Tissue labels are removed where the template
    priors are fluid and outside the brain.
    """
    labels = _on_grid(read_labels(LABELS_FILE), t1w)
    tracts = _on_grid(read_labels(TRACTS_FILE), t1w)
    (box,) = ndimage.find_objects(((labels != 0) | (tracts != 0)).astype(np.uint8))
    regions = np.zeros_like(labels)
    regions[box] = divide_white_matter(labels[box], tracts[box], _axes(t1w.slicer[box]))
    brain = np.asarray(t1w.dataobj) > 0
    fluid = tissue_fractions(t1w.affine, t1w.shape, brain.astype(np.float32))[2]
    table = muse_table()
    ventricles = np.isin(regions, table.loc[table['tissue'] == 'CSF', 'index'])
    known = np.isin(regions, table['index'])
    kept = known & brain & (ventricles | (fluid <= CSF_THRESHOLD))
    return like(t1w, np.where(kept, regions, 0), np.uint8)


def divide_white_matter(
    labels: NDArray[np.uint8], tracts: NDArray[np.uint8], template_mm: Sequence[NDArray]
) -> NDArray[np.uint8]:
    """Divide cerebral white matter (44, 45) into the MUSE regions 81 to 95.

    Parameters
    ----------
    labels, tracts
        Neuromorphometrics and Mori labels on one grid of cubic voxels, shape (X, Y, Z).
    template_mm
        Where each voxel lies in the template, mm: x, y and z, which broadcast to (X, Y, Z).

    Returns
    -------
    ndarray
        `labels` with no voxel left at 44 or 45; all others are as they were.
    """
    white = np.isin(labels, list(CEREBRAL_WHITE.values()))
    fornix = white & np.isin(tracts, (0, *MORI_FORNIX)) & _inside(FORNIX_BOX_MM, template_mm)
    nearest_tract = _nearest(np.where(fornix, MORI_FORNIX[0], tracts).astype(np.uint8))
    width = ((-CALLOSUM_HALF_WIDTH_MM, -np.inf, -np.inf), (CALLOSUM_HALF_WIDTH_MM, np.inf, np.inf))
    callosum = np.isin(nearest_tract, MORI_CALLOSUM) & _inside(width, template_mm) & ~fornix
    divided = labels.copy()
    for side, label in CEREBRAL_WHITE.items():
        here = labels == label
        divided[here] = _nearest_lobe(labels, side)[here]
        divided[here & np.isin(tracts, MORI_ANTERIOR_LIMB)] = ANTERIOR_LIMB[side]
        divided[here & np.isin(tracts, MORI_POSTERIOR_LIMB)] = POSTERIOR_LIMB[side]
        divided[here & callosum] = CORPUS_CALLOSUM
        divided[here & fornix] = FORNIX[side]
    return divided


def _on_grid(labels: Image, grid: Image) -> NDArray[np.uint8]:
    """Copy labels to a grid of the same voxels whose field of view holds theirs."""
    to_grid = np.linalg.inv(grid.affine) @ labels.affine
    first = np.round(to_grid[:3, 3]).astype(int)
    copied = np.zeros(grid.shape, dtype=np.uint8)
    box = tuple(slice(start, start + n) for start, n in zip(first, labels.shape))
    copied[box] = labels.dataobj
    return copied


def _axes(grid: Image) -> list[NDArray[np.float64]]:
    """World x, y and z (mm) of the voxels of a grid without rotation, which broadcast to it."""
    steps = np.ogrid[tuple(slice(n) for n in grid.shape)]
    return [grid.affine[k, k] * step + grid.affine[k, 3] for k, step in enumerate(steps)]


def _inside(box_mm: tuple, position_mm: Sequence[NDArray]) -> NDArray[np.bool_]:
    """Positions that lie in a box along the axes."""
    x, y, z = ((low <= axis) & (axis <= high) for axis, low, high in zip(position_mm, *box_mm))
    return x & y & z


def _nearest(labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Label of the nearest labelled voxel."""
    indices = ndimage.distance_transform_edt(
        labels == 0, return_distances=False, return_indices=True
    )
    return labels[tuple(indices)]


def _nearest_lobe(labels: NDArray[np.uint8], side: str) -> NDArray[np.uint8]:
    """Label of the white matter of the lobe whose cortex is nearest, on one side."""
    white_of = np.zeros(256, dtype=np.uint8)
    for index, lobe in _lobes(side).items():
        white_of[index] = LOBAR_WHITE[lobe, side]
    return _nearest(white_of[labels])


def _lobes(side: str) -> dict[int, str]:
    """Lobe of each region of a side whose neighbouring white matter is of that lobe."""
    table = muse_table()
    table = table[table['hemisphere'] == side]
    right = table['index'] if side == 'R' else table['mate']
    lobes = right.map(LOBE_OF_LIMBIC).fillna(table['lobe'])
    chosen = ~right.isin(NO_LOBE) & lobes.isin(['frontal', 'occipital', 'parietal', 'temporal'])
    chosen &= table['tissue'] == 'GM'
    return dict(zip(table.loc[chosen, 'index'].tolist(), lobes[chosen].tolist()))
