"""Lesions: tissue that replaces them, and their share of each region.

A lesion is filled with the tissue of the other hemisphere, as in enantiomorphic normalisation
(Nachev et al., NeuroImage 39:1215, 2008), so that registration and network see a brain without it.
Other fillings changed volumes of regions without a lesion more (`benchmarks/README.md`).
"""

from __future__ import annotations

import logging

import numpy as np
from nibabel.affines import apply_affine, voxel_sizes
from nibabel.nifti1 import Nifti1Image
from nibabel.processing import resample_from_to
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.cautions import FIGURES, Caution
from surreal_bids.exceptions import DataError
from surreal_bids.images import (
    MM3_PER_ML,
    Image,
    like,
    require_same_grid,
    same_grid,
    voxel_volume,
)
from surreal_bids.imaging.registration import align_affine, normalise_intensity

LOGGER = logging.getLogger(__name__)

MIRROR = np.diag([-1.0, 1.0, 1.0, 1.0])
"""Exchanges left and right of the world."""

SOUND = 0.99
"""Minimum share of brain without lesion in the voxels that a filling is interpolated from."""

LEAST_IN_BRAIN = 0.5
"""Share of a lesion in the brain mask below which there is a warning."""


def fill_lesion(t1w: Image, mask: Image, lesion: Image) -> Image:
    """Replace a lesion by the tissue of the other hemisphere.

    The brain is aligned with its mirror image. Where the other side is a lesion too, or outside the
    brain, the nearest voxel of the brain is used; outside the brain mask, nothing is replaced then.

    Parameters
    ----------
    t1w
        T1w image of a head or a brain.
    mask, lesion
        Brain mask and lesion mask on the same grid.

    Returns
    -------
    Image, float32.

    Raises
    ------
    DataError
        Grids differ, or the lesion is the whole brain.
    """
    brain, damaged = _voxels(mask, t1w, 'brain mask'), _voxels(lesion, t1w, 'lesion mask')
    sound = brain & ~damaged
    if not sound.any():
        raise DataError('the lesion is the whole brain; check the lesion mask')
    filled = _fill_nearest(t1w, sound, damaged & brain)
    whole = normalise_intensity(like(t1w, np.where(brain, filled, 0), np.float32))
    mirrored = Nifti1Image(np.asarray(whole.dataobj), MIRROR @ t1w.affine)
    to_mirror = np.linalg.inv(mirrored.affine) @ align_affine(whole, mirrored) @ t1w.affine
    places = np.argwhere(damaged)
    others = apply_affine(to_mirror, places).T
    usable = ndimage.map_coordinates(sound.astype(np.float32), others, order=1) > SOUND
    values = ndimage.map_coordinates(filled, others[:, usable], order=3, mode='nearest')
    filled[tuple(places[usable].T)] = values
    return like(t1w, filled, np.float32)


def _fill_nearest(
    t1w: Image, sound: NDArray[np.bool_], damaged: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Replace damaged voxels by the nearest sound ones."""
    values = np.array(t1w.dataobj, dtype=np.float32)
    nearest: NDArray[np.int32] = np.empty((3, *sound.shape), np.int32)
    ndimage.distance_transform_edt(
        ~sound,
        voxel_sizes(t1w.affine),
        return_distances=False,
        return_indices=True,
        indices=nearest,
    )
    values[damaged] = values[tuple(nearest[:, damaged])]
    return values


def without_lesion(mask: Image, lesion: Image) -> Image:
    """Return a brain mask without the voxels of a lesion."""
    inside = np.asarray(mask.dataobj) > 0
    return like(mask, inside & ~_damaged_brain(lesion, mask), np.uint8)


def lesion_shares(labels: Image, lesion: Image) -> dict[int, float]:
    """Return the share of each region that is lesion.

    Parameters
    ----------
    labels
        Label map on any grid; 0 is background.
    lesion
        Lesion mask in the same space.
    """
    if not same_grid(labels, lesion):
        lesion = resample_from_to(lesion, (labels.shape, labels.affine), order=0)
    numbers = np.asarray(labels.dataobj).astype(np.int64).ravel()
    damaged = np.asarray(lesion.dataobj).ravel() > 0
    sizes = np.bincount(numbers)
    shares = np.bincount(numbers, damaged) / np.maximum(sizes, 1)
    return {int(index): float(shares[index]) for index in np.flatnonzero(sizes) if index}


def lesion_ml(lesion: Image, mask: Image) -> float:
    """Return the volume of a lesion in the brain; warn if most of it is elsewhere."""
    inside = int(np.sum(_damaged_brain(lesion, mask)))
    share = inside / int(np.sum(np.asarray(lesion.dataobj) > 0))
    if share < LEAST_IN_BRAIN:
        LOGGER.warning(
            Caution(
                f'only {share:.0%} of the lesion mask is in the brain mask',
                'One of the masks is wrong, and volumes may be wrong too',
                'Check the figures of brain mask and regions',
                FIGURES,
            )
        )
    return float(inside * voxel_volume(lesion) / MM3_PER_ML)


def _damaged_brain(lesion: Image, mask: Image) -> NDArray[np.bool_]:
    damaged = _voxels(lesion, mask, 'lesion mask') & (np.asarray(mask.dataobj) > 0)
    if not damaged.any():
        raise DataError(
            'no voxel of the lesion mask is in the brain; overlay it on the T1w image, and move, '
            'flip or remove it'
        )
    return damaged


def _voxels(mask: Image, reference: Image, name: str) -> NDArray[np.bool_]:
    require_same_grid(mask, reference, f'the {name}')
    return np.asarray(mask.dataobj) > 0
