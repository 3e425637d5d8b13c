"""Operators that the cosine transform makes diagonal: fields on a box without flow through it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from surreal_bids.simulation.warps import Field


def solve_poisson(source: Field) -> Field:
    """Solve laplace(p) = source on a unit grid with no flow through its faces.

    The mean of the source, for which there is no solution, is left out.

    Parameters
    ----------
    source
        Shape (X, Y, Z).

    Returns
    -------
    The potential `p` with mean zero, same shape; the Laplacian is the seven-point one.
    """
    x, y, z = (2 * np.cos(angles) - 2 for angles in _angles(source.shape))
    laplacian = x + y + z
    laplacian[0, 0, 0] = np.inf
    return _multiply(source, 1 / laplacian)


def smooth(field: Field, sigma: float) -> Field:
    """Convolve with a Gaussian of standard deviation `sigma` (voxels), mirrored at the faces."""
    x, y, z = (np.exp(-((sigma * angles) ** 2) / 2) for angles in _angles(field.shape))
    return _multiply(field, x * y * z)


def _angles(shape: tuple[int, ...]) -> list[NDArray[np.float32]]:
    """Angular frequency of each cosine along each axis, in radians a voxel; they broadcast."""
    axes = (np.pi * np.arange(n, dtype=np.float32) / n for n in shape)
    return list(np.meshgrid(*axes, indexing='ij', sparse=True))


def _multiply(field: Field, factor: NDArray) -> Field:
    spectrum = fft.dctn(field, type=2, norm='ortho')
    spectrum *= factor
    return np.asarray(fft.idctn(spectrum, type=2, norm='ortho'), dtype=np.float32)
