"""Brain extraction with deepbet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.images import Image, like, voxel_volume

MM3_PER_LITRE = 1e6

STRIPPED_LITRES = (0.8, 2.3)
"""Volume of the brain with its fluid in a skull-stripped image; heads have more than 3."""

LARGEST_BODY_SHARE = 0.98
"""Minimum share of non-zero voxels in the largest connected body of a skull-stripped image. In a
head with a black background, fluid and bone may separate brain and scalp, but the scalp is
large."""

EMPTY_SHARE = 0.2
"""Minimum share of zeros in a skull-stripped image; a box around a brain is half empty."""

MASK_LITRES = (0.6, 2.6)
"""Plausible volumes of a human brain mask."""


def brain_mask(image: Image, *, device: str = 'cpu') -> tuple[Image, str]:
    """Compute the brain mask of a T1w image.

    Parameters
    ----------
    image
        T1w image of a head or of a skull-stripped brain.
    device
        Device for torch.

    Returns
    -------
    mask : Nifti1Image
        1 in the brain, else 0; uint8, on the grid of the image.
    how : {'stripped', 'deepbet'}
        Whether the image was skull-stripped, or deepbet computed the mask.

    Raises
    ------
    DataError
        No brain was found, or its volume is not plausible.
    """
    body = stripped_body(image)
    if body is not None:
        return like(image, ndimage.binary_fill_holes(body), np.uint8), 'stripped'
    return extract_brain(image, device=device), 'deepbet'


def stripped_body(image: Image) -> NDArray[np.bool_] | None:
    """Return the brain (X, Y, Z) of a skull-stripped image; None for a head.

    A skull-stripped image has one connected body with the volume of a brain, surrounded by zeros.
    """
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


def extract_brain(image: Image, *, device: str = 'cpu') -> Image:
    """Compute the brain mask of a head with deepbet, on the grid of the image, uint8.

    deepbet reorients the image to RAS and rescales it, so images can have any orientation and voxel
    size.
    """
    # Imported here because deepbet imports torch, which takes seconds.
    from deepbet.bet import BrainExtraction

    network = BrainExtraction(no_gpu=True)
    network.model.to(device)
    network.bbox_model.to(device)
    try:
        _, mask, _ = network.run(like(image, np.asarray(image.dataobj), np.float32))
    except (AssertionError, ValueError) as error:
        # deepbet raises these if its first pass finds no brain.
        raise DataError(
            f'deepbet found no brain in this image ({error}); check the image, then provide a '
            'brain mask or exclude the image'
        ) from error
    inside = np.asarray(mask.dataobj) > 0
    check_mask_volume(inside.sum() * voxel_volume(image))
    return like(image, inside, np.uint8)


def check_mask_volume(volume: float) -> None:
    """Raise an error if the volume (mm3) of a brain mask is not plausible."""
    smallest, largest = MASK_LITRES
    litres = volume / MM3_PER_LITRE
    if not smallest <= litres <= largest:
        raise DataError(
            f'the volume of the brain mask is {litres:.2f} litres, expected {smallest:g} to '
            f'{largest:g}; check the voxel size in the header, and provide a brain mask or exclude '
            'this image'
        )
