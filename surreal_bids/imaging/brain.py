"""Brain extraction (deepbet) and bias field correction (N4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nibabel.affines import voxel_sizes
from nibabel.orientations import apply_orientation, axcodes2ornt, io_orientation, ornt_transform
from numpy.typing import NDArray
from scipy import ndimage
from scipy.interpolate import make_interp_spline

from surreal_bids.exceptions import DataError
from surreal_bids.images import Image, like, same_grid, voxel_volume
from surreal_bids.imaging.n4 import n4_log_field

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


GRID_SPACING_MM = 5.0
"""Minimum distance between the voxels that N4 uses; the field varies over centimetres. A distance
of 4 mm nearly doubles the time and raises the correlation with a known field by at most 0.02."""

ITERATIONS = (50, 50, 50, 50)
"""Maximum number of iterations per level (defaults of ANTs); each level halves the distance of the
control points. (30, 20, 10) with a tolerance of 1e-3 take half the time, but the
correlation with known fields in a real head falls from 0.95-0.99 to 0.57-0.84."""

TOLERANCE = 1e-7
"""Change of the field (coefficient of variation) at which a level converges; see
`benchmarks/README.md`."""

ROUNDING = 0.05
"""Tolerance of the distance, in voxels."""

MIN_SAMPLES = 4
"""Minimum number of voxels along an axis, for a cubic spline."""

UPRIGHT = axcodes2ornt('RAS')
"""Orientation with axes to the right, front and top."""

MIN_FOREGROUND = 100
"""Minimum number of voxels for the histogram of N4."""


def correct_bias(
    image: Image,
    mask: Image | None = None,
    *,
    grid_spacing: float = GRID_SPACING_MM,
    iterations: Sequence[int] = ITERATIONS,
    tolerance: float = TOLERANCE,
) -> Image:
    """Divide an image by its bias field; the mean intensity in the mask is preserved.

    Parameters
    ----------
    image
        T1w image.
    mask
        Voxels in which the field is estimated, on the grid of the image; without a mask, voxels
        brighter than the mean.
    grid_spacing
        Minimum distance (mm) between the voxels that N4 uses.
    iterations
        Maximum number of iterations at each level of the spline.
    tolerance
        Change of the field at which a level converges.

    Returns
    -------
    Corrected image, float32.
    """
    log_field = log_bias_field(
        image, mask, grid_spacing=grid_spacing, iterations=iterations, tolerance=tolerance
    )
    values = np.asarray(image.dataobj, dtype=np.float32)
    inside = _foreground(image, mask)
    corrected = values * np.exp(-log_field)
    corrected *= values[inside].mean(dtype=float) / corrected[inside].mean(dtype=float)
    return like(image, corrected, np.float32)


def log_bias_field(
    image: Image,
    mask: Image | None = None,
    *,
    grid_spacing: float = GRID_SPACING_MM,
    iterations: Sequence[int] = ITERATIONS,
    tolerance: float = TOLERANCE,
) -> NDArray[np.float32]:
    """Compute the logarithm of the bias field, up to a constant, on the grid of the image.

    N4 uses single voxels a few millimetres apart. Block means would mix tissues and blur the peaks
    of the histogram that N4 sharpens. The field is then interpolated with cubic splines. The choice
    of voxels does not depend on the storage order. Parameters are those of `correct_bias`.
    """
    orientation = io_orientation(image.affine)
    upright = image.as_reoriented(orientation)
    steps = _steps(upright, grid_spacing)
    samples = tuple(slice(step // 2, None, step) for step in steps)
    values = np.asarray(upright.dataobj[samples], dtype=np.float32)
    foreground = apply_orientation(_foreground(image, mask), orientation)
    inside = foreground[samples] & (values > 0)
    if inside.sum() < MIN_FOREGROUND:
        raise DataError(
            f'bias field: only {inside.sum()} voxels at a distance of {grid_spacing:g} mm are '
            'positive and inside the mask; check image and mask, or exclude this image'
        )
    coarse = n4_log_field(values, inside, iterations=iterations, tolerance=tolerance)
    fine = _refine(coarse, samples, upright.shape)
    return apply_orientation(fine, ornt_transform(UPRIGHT, orientation))


def _foreground(image: Image, mask: Image | None) -> NDArray[np.bool_]:
    """Return the voxels of the mask or, without one, voxels brighter than the mean."""
    if mask is None:
        values = np.asarray(image.dataobj, dtype=np.float32)
        return values > values.mean(dtype=float)
    if not same_grid(image, mask):
        raise DataError(
            f'bias field: the mask ({mask.shape}) is not on the grid of the image '
            f'({image.shape}); resample it'
        )
    return np.asarray(mask.dataobj) > 0


def _steps(image: Image, grid_spacing: float) -> list[int]:
    """Return the number of voxels between samples along each axis."""
    wanted = np.ceil(grid_spacing / voxel_sizes(image.affine) - ROUNDING)
    most = np.array(image.shape) // MIN_SAMPLES
    return np.clip(wanted, 1, np.maximum(most, 1)).astype(int).tolist()


def _refine(
    coarse: NDArray[np.float32], samples: Sequence[slice], shape: Sequence[int]
) -> NDArray[np.float32]:
    """Interpolate samples with cubic splines along each axis; beyond the last sample, repeat it."""
    fine = coarse
    for axis, (sample, points) in enumerate(zip(samples, shape)):
        known = np.arange(points)[sample]
        wanted = np.arange(points).clip(known[0], known[-1])
        degree = min(3, len(known) - 1)
        weights = make_interp_spline(known, np.eye(len(known)), degree)(wanted).astype(np.float32)
        fine = np.moveaxis(np.tensordot(weights, fine, axes=(1, axis)), 0, axis)
    return fine
