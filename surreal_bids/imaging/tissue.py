"""Tissue classification with a mixture model of pure and partial-volume voxels.

The model follows Laidlaw et al. (IEEE Trans Med Imaging 17:74, 1998) and Tohka et al. (NeuroImage
23:84, 2004): a voxel contains one or two tissues, and the intensity of a mixed voxel lies between
those of its tissues.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal_bids.exceptions import DataError
from surreal_bids.images import Image, like, require_same_grid
from surreal_bids.parallel import in_parts
from surreal_bids.templates import TISSUES

CONTENTS = tuple(combinations_with_replacement(range(len(TISSUES)), 2))
"""Possible contents of a voxel: the tissues of its two halves, equal in a pure voxel."""

GREY, FLUID = TISSUES.index('GM'), TISSUES.index('CSF')

MIXED = (0.25, 0.75)
"""Range of the share of a tissue in a mixed voxel; outside, the voxel is pure."""

SPREAD = (MIXED[1] - MIXED[0]) ** 2 / 12
"""Variance that mixing adds, relative to the squared difference of the two means."""

SMALLEST_PRIOR = 0.02
"""Added to each prior, which then never excludes a tissue."""

SMALLEST_LIKELIHOOD = 1e-12
"""Added to each likelihood; if no tissue fits the intensity, the priors decide."""

SMALLEST_SD = 0.01
"""Minimum standard deviation of the noise, for intensities from 0 to 1."""

SAMPLED = 250_000
"""Means and noise are estimated from about this many voxels, evenly chosen; at 1 mm, a brain has 2
million."""

MOST_ITERATIONS = 30
TOLERANCE = 3e-4
"""Expectation-maximisation ends when all means change less, or after this many iterations."""

VOXELS = 1 << 17
"""Voxels that a thread works on at a time."""

CERTAINTY = 4
"""Exponent of the priors as weights of the initial means, which favours certain voxels."""

TRIMMED_PERCENT = 0.1
"""Percentage of intensities that is clipped at both ends: vessels, and skin inside the mask."""

FROM_DARK_TO_BRIGHT = ('CSF', 'GM', 'WM')
"""Order of intensities in a T1w image."""


class Tissues(NamedTuple):
    """Maps of the tissues, float32, which add up to 1 inside the mask and are 0 outside.

    Attributes
    ----------
    probabilities
        Voxels with grey matter and fluid count as grey matter unless three quarters are fluid, as
        in manual labels and DLMUSE.
    shares
        Partial-volume fractions, which RAVENS maps need to show narrow sulci.
    """

    probabilities: dict[str, Image]
    shares: dict[str, Image]


def classify_tissue(t1w: Image, mask: Image, priors: Mapping[str, Image]) -> Tissues:
    """Compute probabilities and partial-volume fractions of the tissues.

    Parameters
    ----------
    t1w
        T1w image without a bias field.
    mask
        The brain with its fluid, on the same grid.
    priors
        Prior probability of each of `TISSUES`, on the same grid.

    Raises
    ------
    DataError
        Grids differ, mask or image are empty, or the contrast is not that of a T1w image.
    """
    require_same_grid(mask, t1w, 'the brain mask')
    for name in TISSUES:
        require_same_grid(priors[name], t1w, f'the prior of {name}')
    inside = np.asarray(mask.dataobj) > 0
    if not inside.any():
        raise DataError(
            'tissue: the brain mask is empty; provide another mask or exclude this image'
        )
    places = np.flatnonzero(inside)
    values = np.asarray(t1w.dataobj, dtype=np.float32).ravel()[places]
    prior = _normalised_priors(
        np.stack([np.asarray(priors[name].dataobj).ravel()[places] for name in TISSUES])
    )
    scaled = _unit_range(values)
    contents = voxel_contents(scaled, prior)
    found = []
    for share_mixed in (False, True):
        posterior = _shares(scaled, *contents, share_mixed)
        _check_contrast(values, posterior)
        found.append({n: _paste(t1w, each, places) for n, each in zip(TISSUES, posterior)})
    return Tissues(*found)


def _normalised_priors(priors: NDArray) -> NDArray[np.float32]:
    """Return positive priors (tissues, N) that add up to 1."""
    raised = np.nan_to_num(priors.astype(np.float32)).clip(0) + np.float32(SMALLEST_PRIOR)
    return raised / raised.sum(axis=0)


def _unit_range(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale intensities to the range from 0 to 1."""
    low, high = np.percentile(values, [TRIMMED_PERCENT, 100 - TRIMMED_PERCENT])
    if low == high:
        raise DataError(
            f'tissue: nearly all voxels of the brain are {low:g}; check image and brain mask'
        )
    return (values.clip(low, high) - low) / (high - low)


def voxel_contents(
    values: NDArray[np.float32], priors: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Compute the probability of each of `CONTENTS` in each voxel.

    A voxel contains the tissues a and b with prior probability p_a^2 for a = b, and 2 p_a p_b
    otherwise. Its intensity is normal with mean (m_a + m_b) / 2 and variance
    s^2 + SPREAD (m_a - m_b)^2. Means m and noise s of pure voxels are estimated by
    expectation-maximisation.

    Parameters
    ----------
    values
        Intensities of N voxels, about 0 to 1.
    priors
        Of each tissue, shape (3, N); they add up to 1.

    Returns
    -------
    probability : ndarray, shape (6, N)
        They add up to 1.
    means : ndarray, shape (3,)
        Of the intensities of the tissues.
    """
    first, second = np.array(CONTENTS).T
    contents = priors[first] * priors[second] * np.where(first == second, 1, 2)[:, np.newaxis]
    pure = np.flatnonzero(first == second)
    some = slice(None, None, max(len(values) // SAMPLED, 1))
    seen = values[some]
    means, noise = _moments(seen, priors[:, some] ** CERTAINTY)
    for _ in range(MOST_ITERATIONS):
        probability = _probabilities(seen, contents[:, some], means, noise)
        before = means
        means, noise = _moments(seen, probability[pure])
        if np.abs(means - before).max() < TOLERANCE:
            break
    return _probabilities(values, contents, means, noise), means


def _shares(
    values: NDArray[np.float32],
    probability: NDArray[np.float32],
    means: NDArray[np.float64],
    share_mixed: bool,
) -> NDArray[np.float32]:
    """Compute the expected share of each tissue in each voxel, (3, N)."""
    shares = np.zeros((len(TISSUES), len(values)), dtype=np.float32)

    def add(voxels: slice) -> None:
        here = shares[:, voxels]
        for found, (a, b) in zip(probability[:, voxels], CONTENTS):
            if a == b:
                here[a] += found
                continue
            contrast = np.float32(means[a] - means[b]) or np.float32(SMALLEST_SD)
            of_first = ((values[voxels] - np.float32(means[b])) / contrast).clip(*MIXED)
            if (a, b) == (GREY, FLUID) and not share_mixed:
                of_first = (of_first > MIXED[0]).astype(np.float32)
            here[a] += found * of_first
            here[b] += found * (1 - of_first)

    in_parts(add, len(values), VOXELS)
    return shares


def _moments(
    values: NDArray[np.float32], weights: NDArray[np.float32]
) -> tuple[NDArray[np.float64], float]:
    """Compute the weighted mean intensity of each tissue and the pooled standard deviation."""
    totals = weights.sum(axis=1, dtype=float)
    means = weights.astype(float) @ values / totals
    squares = sum(
        float(weight @ (values - mean) ** 2) for weight, mean in zip(weights, means.tolist())
    )
    return means, max(float(np.sqrt(squares / totals.sum())), SMALLEST_SD)


def _probabilities(
    values: NDArray[np.float32],
    contents: NDArray[np.float32],
    means: NDArray[np.float64],
    noise: float,
) -> NDArray[np.float32]:
    """Compute the posterior probability of each of `CONTENTS` in each voxel, shape (6, N)."""
    probability = np.empty_like(contents)

    def compare(voxels: slice) -> None:
        here = probability[:, voxels]
        for row, prior, (a, b) in zip(here, contents[:, voxels], CONTENTS):
            sd = np.sqrt(noise**2 + SPREAD * (means[a] - means[b]) ** 2)
            z = (values[voxels] - np.float32((means[a] + means[b]) / 2)) / np.float32(sd)
            likelihood = np.exp(-(z**2) / 2) / np.float32(sd)
            row[:] = prior * (likelihood + np.float32(SMALLEST_LIKELIHOOD))
        here /= here.sum(axis=0)

    in_parts(compare, len(values), VOXELS)
    return probability


def _check_contrast(values: NDArray[np.float32], posterior: NDArray[np.float32]) -> None:
    """Raise an error if the mean intensities are not in the order of T1w contrast."""
    means = dict(zip(TISSUES, posterior.astype(float) @ values / posterior.sum(axis=1)))
    ordered = [means[name] for name in FROM_DARK_TO_BRIGHT]
    if not ordered[0] < ordered[1] < ordered[2]:
        found = ', '.join(f'{name} {means[name]:.4g}' for name in FROM_DARK_TO_BRIGHT)
        raise DataError(
            f'tissue: mean intensities are {found}, but in a T1w image CSF is darkest and WM '
            'brightest; check that this is a T1w image and that its brain mask fits, or exclude it'
        )


def _paste(reference: Image, values: NDArray[np.float32], places: NDArray[np.intp]) -> Image:
    """Insert values at some places of an image of zeros on the grid of the reference."""
    whole = np.zeros(reference.shape, dtype=np.float32)
    whole.ravel()[places] = values
    return like(reference, whole, np.float32)
