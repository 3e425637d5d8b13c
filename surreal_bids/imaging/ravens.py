"""RAVENS maps: tissue in template space whose amount is preserved (Davatzikos et al., 2001).

A map is the tissue pulled onto the template times the Jacobian determinant of the whole transform,
so that its integral over any region is the native volume of the tissue that went there.
"""

from __future__ import annotations

import logging

import numpy as np
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.imaging.images import Image, like
from surreal_bids.imaging.transforms import Transform, jacobian_determinant, resample, split_affine

LOGGER = logging.getLogger(__name__)

FWHM_TO_SIGMA = 1 / np.sqrt(8 * np.log(2))
"""Standard deviation of a Gaussian with a full width at half maximum of 1."""


def ravens_map(tissue: Image, to_template: Transform, *, smoothing_fwhm: float = 0.0) -> Image:
    r"""Bring tissue to the template without changing its amount.

    With the transform :math:`\phi` from template to native world, the map is
    :math:`\tau(\phi(x)) \det D\phi(x)`. Pulling needs no inverse, and leaves no holes where the
    template has the smaller voxels, as pushing each native voxel to its place would.

    Parameters
    ----------
    tissue
        Probability or partial volume of a tissue in native space, 0 to 1.
    to_template
        Has the template as fixed grid and the native image as moving.
    smoothing_fwhm
        Full width at half maximum (mm) of a Gaussian that smooths the map; 0 for none.

    Returns
    -------
    Nifti1Image
        Native tissue volume per template volume, float32, on the grid of the template. The sum
        times the voxel volume is the native volume of the tissue, less what lies outside the
        template's field of view.
    """
    density = _folds_removed(np.asarray(jacobian_determinant(to_template).dataobj))
    warped = resample(_blurred_to(to_template, tissue), to_template)
    amount = np.asarray(warped.dataobj) * density
    sigma = smoothing_fwhm * FWHM_TO_SIGMA / voxel_sizes(to_template.affine)
    return like(warped, _smooth(amount, sigma), np.float32)


def _blurred_to(to_template: Transform, tissue: Image) -> Image:
    """Tissue blurred to the voxels of the template where these are larger, so that none is skipped.

    The affine part of the transform says what a template voxel covers along each native axis.
    """
    matrix = split_affine(to_template)[0]
    edges = np.linalg.inv(tissue.affine[:3, :3]) @ (matrix @ to_template.affine)[:3, :3]
    covered = np.linalg.norm(edges, axis=1)
    sigma = np.sqrt(np.maximum(covered**2 - 1, 0)) * FWHM_TO_SIGMA
    return like(tissue, _smooth(np.asarray(tissue.dataobj, dtype=np.float32), sigma), np.float32)


def _smooth(values: NDArray[np.float32], sigma_voxels: NDArray) -> NDArray[np.float32]:
    """Gaussian smoothing; reflection at the borders keeps the sum."""
    if not sigma_voxels.any():
        return values
    return ndimage.gaussian_filter(values, sigma_voxels, mode='reflect')


def _folds_removed(determinant: NDArray[np.float32]) -> NDArray[np.float32]:
    """Jacobian determinant without negative values: a fold holds no tissue."""
    folded = int((determinant < 0).sum())
    if folded:
        LOGGER.warning('The transform to the template folds in %d voxels', folded)
    return determinant.clip(min=0)
