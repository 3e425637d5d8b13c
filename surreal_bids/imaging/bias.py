"""Bias field correction with N4 (Tustison et al. 2010, IEEE Trans Med Imaging 29:1310).

The steps are those of ITK's filter, which ANTs runs. Logarithms of the fields agree to 1e-4 in the
mask. ITK works in single precision; its histogram loses the brightest voxel where it is rounded up.
B-splines are fitted to all voxels at once (Lee, Wolberg and Shin 1997, IEEE Trans Vis Comput Graph
3:228): on a grid the sums over voxels are products with a small matrix for each axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nibabel.affines import voxel_sizes
from nibabel.orientations import apply_orientation, io_orientation, ornt_transform
from numpy.typing import NDArray
from scipy import ndimage
from scipy.interpolate import make_interp_spline
from scipy.special import comb

from surreal_bids.exceptions import DataError
from surreal_bids.images import UPRIGHT, Image, along_axes, like, require_same_grid

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

MIN_FOREGROUND = 100
"""Minimum number of voxels for the histogram of N4."""


def correct_bias(image: Image, mask: Image | None = None) -> Image:
    """Divide an image by its bias field; the mean intensity in the mask is preserved.

    Parameters
    ----------
    image
        T1w image.
    mask
        Voxels in which the field is estimated, on the grid of the image; without a mask, voxels
        brighter than the mean.

    Returns
    -------
    Corrected image, float32.
    """
    log_field = log_bias_field(image, mask)
    values = np.asarray(image.dataobj, dtype=np.float32)
    inside = _foreground(image, mask)
    corrected = values * np.exp(-log_field)
    corrected *= values[inside].mean(dtype=float) / corrected[inside].mean(dtype=float)
    return like(image, corrected, np.float32)


def log_bias_field(image: Image, mask: Image | None = None) -> NDArray[np.float32]:
    """Compute the logarithm of the bias field, up to a constant, on the grid of the image.

    N4 uses single voxels a few millimetres apart. Block means would mix tissues and blur the peaks
    of the histogram that N4 sharpens. The field is then interpolated with cubic splines. The choice
    of voxels does not depend on the storage order.
    """
    orientation = io_orientation(image.affine)
    upright = image.as_reoriented(orientation)
    steps = _steps(upright)
    samples = tuple(slice(step // 2, None, step) for step in steps)
    values = np.asarray(upright.dataobj[samples], dtype=np.float32)
    foreground = apply_orientation(_foreground(image, mask), orientation)
    inside = foreground[samples] & (values > 0)
    if inside.sum() < MIN_FOREGROUND:
        raise DataError(
            f'bias field: only {inside.sum()} voxels at a distance of {GRID_SPACING_MM:g} mm are '
            'positive and inside the mask; check image and mask, or exclude this image'
        )
    coarse = n4_log_field(values, inside, iterations=ITERATIONS, tolerance=TOLERANCE)
    fine = _refine(coarse, samples, upright.shape)
    return apply_orientation(fine, ornt_transform(UPRIGHT, orientation))


def _foreground(image: Image, mask: Image | None) -> NDArray[np.bool_]:
    """Return the voxels of the mask or, without one, voxels brighter than the mean."""
    if mask is None:
        values = np.asarray(image.dataobj, dtype=np.float32)
        return values > values.mean(dtype=float)
    require_same_grid(mask, image, 'the brain mask')
    return np.asarray(mask.dataobj) > 0


def _steps(image: Image) -> list[int]:
    """Return the number of voxels between samples along each axis."""
    wanted = np.ceil(GRID_SPACING_MM / voxel_sizes(image.affine) - ROUNDING)
    most = np.array(image.shape) // MIN_SAMPLES
    return np.clip(wanted, 1, np.maximum(most, 1)).astype(int).tolist()


def _refine(
    coarse: NDArray[np.float32], samples: Sequence[slice], shape: Sequence[int]
) -> NDArray[np.float32]:
    """Interpolate samples with cubic splines along each axis; beyond the last sample, repeat it."""
    matrices = []
    for sample, points in zip(samples, shape):
        known = np.arange(points)[sample]
        wanted = np.arange(points).clip(known[0], known[-1])
        spline = make_interp_spline(known, np.eye(len(known)), min(3, len(known) - 1))
        matrices.append(spline(wanted).astype(np.float32))
    return along_axes(coarse, matrices)


Floats = NDArray[np.floating]

BINS = 200
"""Number of bins of the histogram."""

FIELD_FWHM = 0.15
"""Full width at half maximum of the log field's distribution, which is deconvolved."""

WIENER_NOISE = 0.01
"""Noise of the Wiener filter, relative to the signal."""

END_MARGIN = 1e-3
"""Distance (voxels) of the last voxel from the end of the spline, which is a half-open interval."""

NO_WEIGHT = 0.1 * np.finfo(np.float32).eps
"""Weight below which a control point is not updated."""


def n4_log_field(
    values: NDArray[np.floating],
    inside: NDArray[np.bool_],
    *,
    iterations: Sequence[int],
    tolerance: float,
) -> NDArray[np.float32]:
    """Compute the logarithm of the bias field.

    Parameters
    ----------
    values
        Intensities (X, Y, Z); positive inside.
    inside
        Voxels in which the field is estimated (X, Y, Z).
    iterations
        Maximum number of iterations per level. The cubic spline has one span per axis at the first
        level; each further level halves the spans.
    tolerance
        Change of the field (coefficient of variation) at which a level converges.

    Returns
    -------
    Logarithm of the field (X, Y, Z), extrapolated outside of the mask.
    """
    observed = np.log(values[inside], dtype=float)
    box = ndimage.find_objects(inside.astype(np.uint8))[0]
    lattice: Floats = np.zeros((4, 4, 4))
    for level, most in enumerate(iterations):
        if level > 0:
            lattice = _multiplied(lattice, [subdivision(points).T for points in lattice.shape])
        weights = [
            spline_weights(voxels, points)[part]
            for voxels, points, part in zip(inside.shape, lattice.shape, box)
        ]
        lattice = update(lattice, observed, inside[box], weights, most, tolerance)
    everywhere = map(spline_weights, inside.shape, lattice.shape)
    return _multiplied(lattice, [weight.T for weight in everywhere]).astype(np.float32)


def update(
    lattice: Floats,
    observed: Floats,
    inside: NDArray[np.bool_],
    weights: Sequence[Floats],
    most: int,
    tolerance: float,
) -> Floats:
    """Update the control points of a level until it converges.

    Parameters
    ----------
    lattice
        Control points (A, B, C).
    observed
        Logarithms of the intensities inside (N,).
    inside
        Voxels that are used (X, Y, Z).
    weights
        Weights of the control points, (X, A), (Y, B) and (Z, C).
    most
        Maximum number of iterations.
    tolerance
        Change of the field at which the level converges.
    """
    used = np.flatnonzero(inside)
    transposed, squares, cubes = zip(*((weight.T, weight**2, weight**3) for weight in weights))
    norm = np.einsum('x,y,z->xyz', *(square.sum(axis=1) for square in squares)).ravel()[used]
    evidence = _multiplied(inside.astype(float), squares)
    evidence[evidence < NO_WEIGHT] = np.inf
    residual = np.zeros(inside.shape)
    field = _multiplied(lattice, transposed).ravel()[used]
    for _ in range(most):
        uncorrected = observed - field
        residual.ravel()[used] = (uncorrected - sharpen(uncorrected)) / norm
        lattice = lattice + _multiplied(residual, cubes) / evidence
        before, field = field, _multiplied(lattice, transposed).ravel()[used]
        change = np.exp(before - field)
        if change.std(ddof=1) <= tolerance * change.mean():
            break
    return lattice


def sharpen(values: Floats) -> Floats:
    """Map each value to the value expected without the field."""
    low, high = values.min(), values.max()
    if low == high:
        return values
    slope = (high - low) / (BINS - 1)
    position = (values - low) / slope
    bins = np.minimum(position.astype(int), BINS - 2)
    share = position - bins
    histogram = np.bincount(bins, 1 - share, BINS) + np.bincount(bins + 1, share, BINS)
    expected = low + slope * expected_bin(histogram, FIELD_FWHM / slope)
    return expected[bins] + np.diff(expected)[bins] * share


def expected_bin(histogram: NDArray[np.number], fwhm: float) -> Floats:
    """Compute the bin expected before values were blurred by a Gaussian, for each bin."""
    size = 2 ** (int(np.ceil(np.log2(BINS))) + 1)
    start = (size - BINS) // 2
    distance = np.minimum(np.arange(size), size - np.arange(size))
    gauss = np.exp(-4 * np.log(2) * (distance / fwhm) ** 2) * 2 * np.sqrt(np.log(2) / np.pi) / fwhm
    blur = np.fft.rfft(gauss).real
    wiener = blur / (blur**2 + WIENER_NOISE)
    padded = np.pad(histogram, (start, size - BINS - start))
    sharp = np.fft.irfft(np.fft.rfft(padded) * wiener).clip(0)
    moments = np.stack([sharp, sharp * (np.arange(size) - start)])
    mass, moment = np.fft.irfft(np.fft.rfft(moments) * blur)[:, start : start + BINS]
    return np.divide(moment, mass, out=np.zeros(BINS), where=mass != 0)


def spline_weights(voxels: int, points: int) -> Floats:
    """Return the weights (voxels, points) of the control points of a uniform cubic B-spline."""
    spans = points - 3
    index = np.minimum(np.arange(voxels), voxels - 1 - END_MARGIN)
    position = index * spans / max(voxels - 1, 1)
    distance = np.abs(position[:, None] - (np.arange(points) - 1))
    near = 2 / 3 - distance**2 + distance**3 / 2
    return np.where(distance < 1, near, (2 - distance).clip(0) ** 3 / 6)


def subdivision(points: int) -> Floats:
    """Return the matrix (2 * points - 3, points) that halves the spans of a cubic B-spline."""
    fine, coarse = np.ogrid[: 2 * points - 3, :points]
    return comb(4, fine + 3 - 2 * coarse) / 8


def _multiplied(array: Floats, matrices: Sequence[Floats]) -> Floats:
    """Multiply each axis of the array (X, Y, Z) with its matrix (X, A), (Y, B) or (Z, C)."""
    for matrix in matrices:
        array = np.tensordot(array, matrix, axes=(0, 0))
    return array
