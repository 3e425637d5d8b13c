"""Brain mask: deepbet (Fisch et al., 2024), or what an image that is stripped already shows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.imaging.images import Image, like, voxel_volume

MM3_PER_LITRE = 1e6

STRIPPED_LITRES = (0.8, 2.3)
"""Volume of the single body of a stripped image: a brain with its fluid. Heads have over 3."""

LARGEST_BODY_SHARE = 0.98
"""Share of the non-zero voxels of a stripped image that hang together. In a head with a black
background, fluid and bone may part brain from scalp, but the scalp is large."""

EMPTY_SHARE = 0.2
"""At least this share of a stripped image is exactly 0; a box around a brain is half empty."""

MASK_LITRES = (0.6, 2.6)
"""Volumes that a mask of a human brain can have, from a child's to a large one with its fluid."""


def brain_mask(image: Image, *, device: str = 'cpu') -> tuple[Image, str]:
    """Mask the brain of a T1w image, and say how: `stripped` or `deepbet`.

    An image that is stripped already keeps the brain it has.
    """
    body = _single_body(image)
    if body is not None:
        return like(image, ndimage.binary_fill_holes(body), np.uint8), 'stripped'
    return extract_brain(image, device=device), 'deepbet'


def is_stripped(image: Image) -> bool:
    """Tell whether an image shows a brain and nothing else: one body of its size, 0 around it."""
    return _single_body(image) is not None


def extract_brain(image: Image, *, device: str = 'cpu') -> Image:
    """Mask the brain of a whole head with deepbet, on the grid of the image, uint8.

    deepbet turns the image to RAS, stretches its field of view to a cube, finds the brain there,
    and does the same again with a box around it, so that neither orientation nor voxel size needs
    care here.

    Parameters
    ----------
    image
        T1w image of a head.
    device
        Where the network runs, as torch names it.

    Raises
    ------
    DataError
        No brain is found, or one of an impossible size.
    """
    # Importing deepbet imports torch, which takes seconds that not every caller should pay.
    from deepbet.bet import BrainExtraction

    network = BrainExtraction(no_gpu=True)
    network.model.to(device)
    network.bbox_model.to(device)
    try:
        _, mask, _ = network.run(like(image, np.asarray(image.dataobj), np.float32))
    except (AssertionError, ValueError) as error:
        # So deepbet tells that its first look at the image found nothing.
        raise DataError(
            f'deepbet finds no brain in this image ({error}); look at it: give a brain mask '
            'if the image is usable, exclude it if not'
        ) from error
    inside = np.asarray(mask.dataobj) > 0
    check_mask_volume(inside.sum() * voxel_volume(image))
    return like(image, inside, np.uint8)


def check_mask_volume(volume: float) -> None:
    """Refuse a brain mask of a volume (mm3) that no human brain has."""
    smallest, largest = MASK_LITRES
    litres = volume / MM3_PER_LITRE
    if not smallest <= litres <= largest:
        raise DataError(
            f'the brain mask holds {litres:.2f} litres, but a human brain has {smallest:g} to '
            f'{largest:g}; check the voxel size in the header, and give a brain mask or exclude '
            'this image'
        )


def _single_body(image: Image) -> NDArray[np.bool_] | None:
    """Largest connected body of non-zero voxels (X, Y, Z), if the image is stripped; else none."""
    shown = np.asarray(image.dataobj) != 0
    if np.mean(shown) > 1 - EMPTY_SHARE:
        return None
    bodies = np.empty(shown.shape, dtype=np.int32)
    ndimage.label(shown, output=bodies)
    sizes = np.bincount(bodies.ravel())[1:]
    litres = sizes.max() * voxel_volume(image) / MM3_PER_LITRE
    smallest, largest = STRIPPED_LITRES
    if not smallest <= litres <= largest or sizes.max() < LARGEST_BODY_SHARE * sizes.sum():
        return None
    return bodies == 1 + sizes.argmax()
