"""The brain mask (deepbet) and the correction of the bias field (N4)."""

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
    """Mask the brain of a T1w image.

    Parameters
    ----------
    image
        T1w image of a head, or of a brain: one that is skull-stripped already keeps its brain.
    device
        Where the network runs, as torch names it.

    Returns
    -------
    mask : Nifti1Image
        1 in the brain, else 0; uint8, on the grid of the image.
    how : {'stripped', 'deepbet'}
        Whether the image was stripped already, or deepbet found the brain.

    Raises
    ------
    DataError
        No brain is found, or one of an impossible size.
    """
    body = stripped_body(image)
    if body is not None:
        return like(image, ndimage.binary_fill_holes(body), np.uint8), 'stripped'
    return extract_brain(image, device=device), 'deepbet'


def stripped_body(image: Image) -> NDArray[np.bool_] | None:
    """The brain (X, Y, Z) of an image that is skull-stripped; None for a head.

    A stripped image shows one connected body of the size of a brain, and 0 around it.
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
    """Mask the brain of a whole head with deepbet, on the grid of the image, uint8.

    deepbet turns the image to RAS, stretches its field of view to a cube, finds the brain there,
    and does the same again with a box around it, so that neither orientation nor voxel size
    matters here.
    """
    # Importing deepbet imports torch, which takes seconds that not every caller should pay.
    from deepbet.bet import BrainExtraction

    network = BrainExtraction(no_gpu=True)
    network.model.to(device)
    network.bbox_model.to(device)
    try:
        _, mask, _ = network.run(like(image, np.asarray(image.dataobj), np.float32))
    except (AssertionError, ValueError) as error:
        # This is how deepbet reports that its first look at the image found nothing.
        raise DataError(
            f'deepbet finds no brain in this image ({error}); look at it, then give a brain mask '
            'or exclude the image'
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


GRID_SPACING_MM = 5.0
"""N4 sees voxels at least so far apart; the field varies over centimetres. Voxels 4 mm apart cost
twice as much, and correlate with a known field by 0.00 to 0.02 more."""

ITERATIONS = (50, 50, 50, 50)
"""Most iterations at each level; each level halves the distance of the spline's control points.
These are ANTs' own. (30, 20, 10) with a tolerance of 1e-3 take a quarter of the time, but on a real
head find fields of centimetres only in part: correlation 0.57 to 0.84 instead of 0.95 to 0.99."""

TOLERANCE = 1e-7
"""Change of the field (coefficient of variation) below which a level ends. See
`benchmarks/bias.py`."""

ROUNDING = 0.05
"""Part of a voxel by which the distance may be missed."""

MIN_SAMPLES = 4
"""An axis keeps at least this many voxels: a cubic spline needs them."""

UPRIGHT = axcodes2ornt('RAS')
"""Axes to the right, to the front, and up."""

MIN_FOREGROUND = 100
"""N4 needs a histogram: fewer voxels than this on the coarse grid are not worth one."""


def correct_bias(
    image: Image,
    mask: Image | None = None,
    *,
    grid_spacing: float = GRID_SPACING_MM,
    iterations: Sequence[int] = ITERATIONS,
    tolerance: float = TOLERANCE,
) -> Image:
    """Divide an image by its bias field; the mean intensity in the mask stays.

    Parameters
    ----------
    image
        T1w image.
    mask
        Where the field is estimated, on the grid of the image; without it, where the image is
        brighter than its mean. The field is smooth and divides the whole image.
    grid_spacing
        Minimum distance (mm) between the voxels that N4 sees.
    iterations
        Most iterations at each level of the spline.
    tolerance
        Change of the field below which a level ends.

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
    """Logarithm of the bias field, up to a constant, on the grid of the image (X, Y, Z).

    N4 sees single voxels a few millimetres apart, not means over blocks: means mix tissues, and
    N4 works by telling the peaks of the histogram apart. Its field, a cubic spline with control
    points some centimetres apart, is then interpolated by cubic splines. Which voxels are seen
    depends on where they are, not on how the image is stored. Parameters are those of
    `correct_bias`.
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
            f'bias field: {inside.sum()} voxels {grid_spacing:g} mm apart are positive and inside '
            'the mask, too few to estimate it; check image and mask, or exclude this image'
        )
    spacing = voxel_sizes(upright.affine) * steps
    log_field = np.log(_n4_field(values, inside, spacing, iterations, tolerance))
    fine = _refine(log_field, samples, upright.shape)
    return apply_orientation(fine, ornt_transform(UPRIGHT, orientation))


def _foreground(image: Image, mask: Image | None) -> NDArray[np.bool_]:
    """Voxels of the mask or, without one, those brighter than the mean."""
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
    """Voxels from one sample to the next, along each axis."""
    wanted = np.ceil(grid_spacing / voxel_sizes(image.affine) - ROUNDING)
    most = np.array(image.shape) // MIN_SAMPLES
    return np.clip(wanted, 1, np.maximum(most, 1)).astype(int).tolist()


def _n4_field(
    values: NDArray[np.float32],
    inside: NDArray[np.bool_],
    spacing: NDArray[np.float64],
    iterations: Sequence[int],
    tolerance: float,
) -> NDArray[np.float32]:
    """Bias field of a coarse image (X, Y, Z); orientation does not matter to N4, spacing does."""
    # Importing ants takes seconds, which only those who need it should pay.
    import ants

    image, mask = (
        ants.from_numpy(np.ascontiguousarray(array, dtype=np.float32), spacing=spacing.tolist())
        for array in (values, inside)
    )
    field = ants.n4_bias_field_correction(
        image,
        mask=mask,
        shrink_factor=1,
        convergence={'iters': list(iterations), 'tol': tolerance},
        return_bias_field=True,
    )
    return field.numpy()


def _refine(
    coarse: NDArray[np.float32], samples: Sequence[slice], shape: Sequence[int]
) -> NDArray[np.float32]:
    """Interpolate samples by cubic splines, axis by axis; beyond the outermost ones, hold them."""
    fine = coarse
    for axis, (sample, points) in enumerate(zip(samples, shape)):
        known = np.arange(points)[sample]
        wanted = np.arange(points).clip(known[0], known[-1])
        degree = min(3, len(known) - 1)
        weights = make_interp_spline(known, np.eye(len(known)), degree)(wanted).astype(np.float32)
        fine = np.moveaxis(np.tensordot(weights, fine, axes=(1, axis)), 0, axis)
    return fine
