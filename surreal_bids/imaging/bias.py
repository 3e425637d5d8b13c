"""Correction of the intensity inhomogeneity of a T1w image with N4 (Tustison et al., 2010)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nibabel.affines import voxel_sizes
from nibabel.orientations import (
    apply_orientation,
    axcodes2ornt,
    io_orientation,
    ornt_transform,
)
from numpy.typing import NDArray
from scipy.interpolate import make_interp_spline

from surreal_bids.exceptions import DataError
from surreal_bids.imaging.images import Image, like, same_grid

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

FEWEST_SAMPLES = 4
"""An axis keeps at least this many voxels: a cubic spline needs them."""

UPRIGHT = axcodes2ornt('RAS')
"""Axes to the right, to the front, and up."""

FEWEST_FOREGROUND = 100
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
        Least distance in mm of the voxels that N4 sees.
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
    if inside.sum() < FEWEST_FOREGROUND:
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
    most = np.array(image.shape) // FEWEST_SAMPLES
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
