"""Make the label map of the MUSE regions of the template, `surreal_bids/data/atlas/muse.nii.gz`.

    python benchmarks/muse_labels.py FILE

Labels are those of Neuromorphometrics; white matter is divided with the atlas of Mori.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.files import write_image
from surreal_bids.images import Image, like
from surreal_bids.regions import muse_table
from surreal_bids.templates import package_file, read_brain, tissue_fractions

LABELS_FILE = ('deepmriprep', 'data/templates/neuromorphometrics.nii.gz')
TRACTS_FILE = ('deepmriprep', 'data/templates/mori.nii.gz')
"""Labels of Neuromorphometrics and of Mori, on one grid of 1 mm."""

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

CSF_THRESHOLD = 0.5
"""Labelled tissue with more cerebrospinal fluid than this is sulcus and belongs to no region.

Volumes of the network are those of DLMUSE at 1 mm, where a voxel is cortex if most of it is.
Volumes of the cortex grow with this threshold: from 740 ml of tissue in the labels of the template,
788 ml are counted at 0.5 and 844 ml at 0.65.
"""


def read_labels(file: tuple[str, str]) -> nib.Nifti1Image:
    """Read a label map of the template space, reoriented to RAS."""
    return nib.as_closest_canonical(nib.Nifti1Image.from_filename(package_file(*file)))


def make_labels() -> Image:
    """Compute the label map of the 145 regions on the grid of the template's T1w image.

    The source labels of the cortex include sulci. Tissue labels are removed where the template
    priors are fluid and outside the brain.
    """
    image, filled = read_brain()
    t1w = like(image, np.asarray(image.dataobj) * filled, np.float32)
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


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('file', type=Path)
    write_image(parser.parse_args().file, make_labels(), level=9)
