"""Grey matter, white matter and fluid of a brain, by Atropos (Avants et al., 2011) with priors."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.images import Image, like, same_grid
from surreal_bids.templates import TISSUES

__all__ = ['TISSUES', 'classify_tissue']

PRIOR_WEIGHT = 0.5
"""Exponent of the priors against that of the likelihood, which is the rest to 1. On a simulated
head 0.4, 0.5 and 0.55 give 35, 13 and 1 % too much fluid, and -3, 4 and 7 % too much grey matter;
the overlap with the true tissue is best near 0.45 to 0.5."""

MRF_WEIGHT = 0.0
"""Weight of the Markov random field. On the same head 0.1 adds 0.005 to the overlap of grey and of
white matter and takes 0.004 from that of fluid, moves soft fractions further from the true ones,
and takes twice the time."""

ITERATIONS = 5
"""Most iterations; on the same head three gave the result of twelve."""

SMALLEST_PRIOR = 0.02
"""Added to each prior, so that none of them rules a tissue out."""

TRIMMED_PERCENT = 0.1
"""Intensities beyond this percentile at either end are cut: vessels, and skin left by the mask."""

FROM_DARK_TO_BRIGHT = ('CSF', 'GM', 'WM')
"""Order of intensities in a T1w image."""


def classify_tissue(t1w: Image, mask: Image, priors: Mapping[str, Image]) -> dict[str, Image]:
    """Probability of each tissue in each voxel of a brain.

    Parameters
    ----------
    t1w
        T1w image without a bias field.
    mask
        The brain with its fluid, on the same grid.
    priors
        Prior probability of each of `TISSUES`, on the same grid.

    Returns
    -------
    Posterior probability of each of `TISSUES`, float32: in each voxel of the mask they add up
    to 1, outside they are 0.

    Raises
    ------
    DataError
        Grids differ, mask or image are empty, or the contrast is not that of a T1w image.
    """
    _check_grids(t1w, {'mask': mask, **{f'prior of {name}': priors[name] for name in TISSUES}})
    inside = np.asarray(mask.dataobj) > 0
    if not inside.any():
        raise DataError('tissue: the brain mask is empty; give another mask or exclude this image')
    box = ndimage.find_objects(inside.astype(np.uint8))[0]
    inside = inside[box]
    values = np.asarray(t1w.dataobj[box], dtype=np.float32)
    prior = _normalised_priors(np.stack([priors[name].dataobj[box] for name in TISSUES]), inside)
    found = _atropos(_unit_range(values, inside), inside, prior, voxel_sizes(t1w.affine))
    posterior = _normalised(found, inside, otherwise=prior)
    _check_contrast(values, posterior)
    return {name: _paste(t1w, each, box) for name, each in zip(TISSUES, posterior)}


def _check_grids(t1w: Image, others: Mapping[str, Image]) -> None:
    for name, image in others.items():
        if not same_grid(t1w, image):
            raise DataError(
                f'tissue: the {name} ({image.shape}) is not on the grid of the T1w image '
                f'({t1w.shape}); resample it'
            )


def _normalised_priors(priors: NDArray, inside: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Priors (tissues, X, Y, Z) that rule nothing out and add up to 1 inside, 0 outside."""
    raised = np.nan_to_num(priors.astype(np.float32)).clip(0) + np.float32(SMALLEST_PRIOR)
    return raised / raised.sum(axis=0) * inside


def _normalised(
    posterior: NDArray[np.float32], inside: NDArray[np.bool_], otherwise: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Probabilities (tissues, X, Y, Z) that add up to 1 inside, 0 outside.

    Where an intensity is so far from every tissue that no probability is left, priors hold.
    """
    known = np.nan_to_num(posterior)
    total = known.sum(axis=0)
    lost = inside & ~(total > 0)
    known[:, lost] = otherwise[:, lost]
    return known / np.where(lost | ~inside, 1, total) * inside


def _unit_range(values: NDArray[np.float32], inside: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Intensities from 0 to 1: Atropos' smallest probabilities depend on their scale."""
    low, high = np.percentile(values[inside], [TRIMMED_PERCENT, 100 - TRIMMED_PERCENT])
    if low == high:
        raise DataError(
            f'tissue: nearly all voxels of the brain are {low:g}; check image and brain mask'
        )
    return (values.clip(low, high) - low) / (high - low)


def _atropos(
    values: NDArray[np.float32],
    inside: NDArray[np.bool_],
    priors: NDArray[np.float32],
    spacing: NDArray[np.float64],
) -> NDArray[np.float32]:
    """Posteriors by Atropos (tissues, X, Y, Z); it needs the spacing of the grid, not its place."""
    # Importing ants takes seconds, which only those who need it should pay.
    import ants

    image, mask, *prior_images = (
        ants.from_numpy(np.ascontiguousarray(array, dtype=np.float32), spacing=spacing.tolist())
        for array in (values, inside, *priors)
    )
    with _own_temporary_folder(), warnings.catch_warnings():
        warnings.filterwarnings('error', message='ERROR: Non-zero exit status')
        try:
            result = ants.atropos(
                a=image,
                x=mask,
                i=prior_images,
                m=f'[{MRF_WEIGHT},1x1x1]',
                c=f'[{ITERATIONS},0]',
                priorweight=PRIOR_WEIGHT,
            )
        except UserWarning as error:
            raise DataError('tissue: Atropos failed; check image, mask and priors') from error
    return np.stack([each.numpy() for each in result['probabilityimages']])


@contextmanager
def _own_temporary_folder() -> Iterator[None]:
    """Have temporary files made in a folder that is deleted: ants leaves its own behind."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before


def _check_contrast(values: NDArray[np.float32], posterior: NDArray[np.float32]) -> None:
    """Refuse an image whose tissues do not lie in the order of T1w contrast."""
    weights = posterior.reshape(len(TISSUES), -1).astype(float)
    means = dict(zip(TISSUES, weights @ values.ravel() / weights.sum(axis=1)))
    ordered = [means[name] for name in FROM_DARK_TO_BRIGHT]
    if not ordered[0] < ordered[1] < ordered[2]:
        found = ', '.join(f'{name} {means[name]:.4g}' for name in FROM_DARK_TO_BRIGHT)
        raise DataError(
            f'tissue: mean intensities are {found}, but in a T1w image CSF is darkest and WM '
            'brightest; check that this is a T1w image and that its brain mask fits, or exclude it'
        )


def _paste(reference: Image, cut: NDArray[np.float32], box: tuple[slice, ...]) -> Image:
    """Put what was cut out back on the grid of the reference, 0 around it."""
    whole = np.zeros(reference.shape, dtype=np.float32)
    whole[box] = cut
    return like(reference, whole, np.float32)
