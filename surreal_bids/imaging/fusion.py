"""Multi-atlas label fusion and volumes of regions.

Labels are decided by the votes of atlases and by intensities together, as in MUSE (Doshi et al.,
NeuroImage 127:186, 2016). Intensities prevent widened sulci from being labelled as cortex.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from surreal_bids.cautions import VOLUMES, Caution
from surreal_bids.exceptions import DataError
from surreal_bids.images import Image, like, voxel_volume
from surreal_bids.imaging.deformation import LocalCorrelation
from surreal_bids.imaging.registration import normalise_intensity
from surreal_bids.imaging.transforms import Transform, resample, voxel_coordinates
from surreal_bids.regions import DERIVED, region_names
from surreal_bids.text import list_briefly

LOGGER = logging.getLogger(__name__)

SLOTS = 12
"""Maximum number of different labels per voxel."""

POWER = 8.0
"""p: exponent of the local correlation."""

RADIUS = 2
"""Radius of the cube of voxels in which images are correlated."""

NOISE = 1e-4
"""Variance of the noise, relative to bright tissue with intensity 1."""

LEAST_CORRELATION = 0.1
"""Minimum correlation; where no atlas fits, all have the same weight."""

INT16_MAX = np.iinfo(np.int16).max

MUCH_EXCLUDED = 0.05
"""Share of a segmentation outside the listed regions that triggers a warning."""

INTENSITY_POWER = 0.5
"""Exponent of the likelihood of an intensity, because voxels are not independent and cortex is
mixed with fluid. In four real heads, 0.25 to 0.5 had the best overlap."""

WIDEST_VOXEL_MM = 3.0
"""Largest voxel size for the use of intensities. Larger voxels contain several tissues; at 4 mm,
intensities make volumes of simulated heads a third more noisy."""

INTENSITY_ITERATIONS = 3
"""Iterations of expectation-maximisation; twice as many change the overlap by at most 0.001."""

USUAL_SD = 0.08
USUAL_VOXELS = 20.0
"""Prior standard deviation of the intensities of a label, relative to bright tissue with intensity
1, and the weight of this prior in voxels."""

SMALLEST_SD = 0.04
SMALLEST_LIKELIHOOD = 1e-6
"""Minimum likelihood; if no label fits the intensity, the votes decide."""

EMPTY = -1
"""Label of a slot without votes."""


class Candidate(NamedTuple):
    """An atlas and its transform to the target.

    Attributes
    ----------
    t1w, labels : Image
        Images of the atlas on its own grid.
    transform : Transform
        Transform on the grid of the target.
    """

    t1w: Image
    labels: Image
    transform: Transform


class Fusion(NamedTuple):
    """A segmentation.

    Attributes
    ----------
    labels : Image
        The label with the largest share, int16 or int32; 0 outside the mask.
    volumes : dict
        Volume of each label in mm3: sum of its shares, times the volume of a voxel.
        0, the background, is excluded.
    """

    labels: Image
    volumes: dict[int, float]


class Votes:
    """Weighted votes at N voxels, for up to SLOTS labels each.

    Labels and weights have shape (SLOTS, N).
    """

    def __init__(self, n_voxels: int) -> None:
        self.labels = np.full((SLOTS, n_voxels), EMPTY, dtype=np.int32)
        self.weights = np.zeros((SLOTS, n_voxels), dtype=np.float32)

    def add(self, labels: NDArray[np.integer], weights: NDArray[np.float32]) -> None:
        """Count one vote per voxel.

        A label without a free slot replaces the one with the smallest weight if its own is larger.
        """
        late = np.flatnonzero(weights)
        for slot_labels, slot_weights in zip(self.labels, self.weights):
            kept = slot_labels[late]
            fits = (kept == labels[late]) | (kept == EMPTY)
            here = late[fits]
            slot_labels[here] = labels[here]
            slot_weights[here] += weights[here]
            late = late[~fits]
        weakest = self.weights[:, late].argmin(axis=0)
        stronger = self.weights[weakest, late] < weights[late]
        slots, places = weakest[stronger], late[stronger]
        self.labels[slots, places] = labels[places]
        self.weights[slots, places] = weights[places]

    def shares(self) -> NDArray[np.float32]:
        """Return the weights as shares of their sum at each voxel."""
        return self.weights / self.weights.sum(axis=0)


def fuse_labels(
    target: Image, candidates: Iterable[Candidate], mask: Image | None = None
) -> Fusion:
    """Segment an image by the votes of registered atlases and by its intensities.

    Intensities are not used if voxels are larger than WIDEST_VOXEL_MM.

    Parameters
    ----------
    target : Image
        T1w image; skull-stripped, unless a mask is given.
    candidates : iterable of Candidate, or of (t1w, labels, transform)
        Used one at a time, so a generator can load them.
    mask : Image, optional
        Voxels to label; by default, non-zero voxels of the target.
    """
    brain = normalise_intensity(target, mask)
    values = torch.from_numpy(np.asarray(brain.dataobj))
    inside = np.asanyarray((mask or brain).dataobj) > 0
    correlation = LocalCorrelation(values, RADIUS, NOISE)
    votes = Votes(int(inside.sum()))
    for t1w, atlas_labels, transform in candidates:
        atlas = resample(normalise_intensity(t1w), transform)
        similarity = correlation.value(torch.from_numpy(np.asarray(atlas.dataobj))).numpy()
        weights = similarity[inside].clip(LEAST_CORRELATION, 1) ** np.float32(POWER)
        for labels, shares in corner_labels(atlas_labels, transform, inside):
            votes.add(labels, weights * shares)
    if not votes.weights.any():
        raise DataError('no atlas was given for the segmentation; give at least one')
    shares = votes.shares()
    # Affines are rounded; without this, oblique images of 3 mm would be treated differently.
    if round(voxel_volume(target) ** (1 / 3), 2) <= WIDEST_VOXEL_MM:
        shares = shares_by_intensity(votes, np.asarray(brain.dataobj)[inside])
    return _count(brain, inside, votes.labels, shares)


def shares_by_intensity(votes: Votes, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute the shares of the labels at each voxel from votes and intensities.

    By Bayes' rule, a share is that of the votes times the likelihood of the intensity to the power
    INTENSITY_POWER. Intensities of each label and the background are normal; their means and
    variances are estimated in this image by expectation-maximisation.

    Parameters
    ----------
    votes
        At N voxels.
    values
        Intensity of each, shape (N,); bright tissue has about 1.

    Returns
    -------
    ndarray, shape (SLOTS, N)
        They add up to 1 at each voxel.
    """
    prior = votes.shares()
    shares = prior
    for _ in range(INTENSITY_ITERATIONS):
        means, sds = _intensities(votes.labels, shares, values)
        posterior = np.empty_like(prior)
        for after, before, label in zip(posterior, prior, votes.labels):
            z = (values - means[label]) / sds[label]
            likelihood = np.exp(-(z**2) / 2) / sds[label] + np.float32(SMALLEST_LIKELIHOOD)
            after[:] = before * likelihood ** np.float32(INTENSITY_POWER)
        shares = posterior / posterior.sum(axis=0)
    return shares


def _intensities(
    labels: NDArray[np.int32], shares: NDArray[np.float32], values: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Compute the weighted mean and standard deviation of the intensities of each label.

    The last element is for empty slots.
    """
    n_labels = int(labels.max()) + 2
    size, total, square = np.zeros((3, n_labels))
    for label, share in zip(labels % n_labels, shares):
        weighted = share * values
        size += np.bincount(label, share, n_labels)
        total += np.bincount(label, weighted, n_labels)
        square += np.bincount(label, weighted * values, n_labels)
    means = total / np.maximum(size, np.finfo(float).tiny)
    scatter = np.maximum(square - size * means**2, 0) + USUAL_VOXELS * USUAL_SD**2
    sds = np.sqrt(scatter / (size + USUAL_VOXELS)).clip(SMALLEST_SD)
    return means.astype(np.float32), sds.astype(np.float32)


def corner_labels(
    labels: Image, transform: Transform, inside: NDArray[np.bool_]
) -> Iterator[tuple[NDArray[np.integer], NDArray[np.float32]]]:
    """Yield the labels of the eight voxels around each point and their weights.

    Parameters
    ----------
    labels : Image
        Of the atlas, on its own grid.
    transform : Transform
        From the grid of the target.
    inside : ndarray, shape (X, Y, Z)
        Voxels of the target to label.

    Yields
    ------
    labels, shares : ndarray, shape (N,)
        One pair per corner; shares add up to 1. Points outside the grid are background.
    """
    values = np.pad(np.asanyarray(labels.dataobj), 1)
    points = voxel_coordinates(transform, labels.affine)[:, inside] + 1
    limits = np.array(values.shape)[:, np.newaxis] - 1
    lower = np.floor(points)
    fraction = points - lower
    for corner in product((0, 1), repeat=3):
        upper = np.array(corner)[:, np.newaxis]
        indices = np.clip(lower.astype(np.int64) + upper, 0, limits)
        shares = np.where(upper, fraction, 1 - fraction).prod(axis=0)
        yield values[tuple(indices)], shares


def _count(
    target: Image,
    inside: NDArray[np.bool_],
    labels: NDArray[np.int32],
    shares: NDArray[np.float32],
) -> Fusion:
    """Convert labels and shares, both (SLOTS, N), to a label map and volumes."""
    sums = np.bincount(labels.clip(0).ravel(), shares.ravel()) * voxel_volume(target)
    volumes = {int(label): float(sums[label]) for label in np.flatnonzero(sums) if label > 0}
    winners = np.zeros(inside.shape, np.int32)
    winners[inside] = np.take_along_axis(labels, shares.argmax(axis=0)[np.newaxis], axis=0)[0]
    stored = np.int16 if winners.max() <= INT16_MAX else np.int32
    return Fusion(like(target, winners, stored), volumes)


def volumes_of_labels(labels: Image) -> dict[int, float]:
    """Compute the volume (mm3) of each label of a label map; 0 is background.

    Parameters
    ----------
    labels
        Label map, e.g. one that another program made.
    """
    values, counts = np.unique(np.asarray(labels.dataobj), return_counts=True)
    if (values != np.round(values)).any() or values.min() < 0:
        raise DataError(
            f'the segmentation has values from {values.min():g} to {values.max():g} that are not '
            'all integers from 0; provide a label map, not probabilities'
        )
    size = voxel_volume(labels)
    return {int(v): float(n * size) for v, n in zip(values, counts) if v > 0}


def volume_table(volumes: Mapping[int, float], regions: pd.DataFrame) -> pd.DataFrame:
    """Arrange volumes in the order of the regions.

    Parameters
    ----------
    volumes
        Volume (mm3) of each label.
    regions
        Columns `index` and `name`, one row per region.

    Returns
    -------
    pandas.DataFrame
        `index`, `name` and `volume_mm3`. Missing regions have volume 0; labels that are not
        listed are excluded and logged, except those that MUSE adds to its regions, such as fluid.

    Raises
    ------
    DataError
        None of the labels is listed.
    """
    listed = regions['index'].tolist()
    if set(volumes).isdisjoint(listed):
        raise DataError(
            f'none of the labels {sorted(volumes)[:5]} is among the {len(listed)} regions of the '
            'atlas; give the table of regions of this segmentation'
        )
    expected = DERIVED if set(listed) == set(region_names()) else frozenset()
    others = sorted(set(volumes) - {*listed, *expected})
    if others:
        share = sum(volumes[label] for label in others) / (sum(volumes.values()) or 1.0)
        caution = Caution(
            f'labels {list_briefly(others)} ({share:.0%} of the volume) are not regions of the '
            'atlas',
            'They are excluded, and volumes of regions may be too small',
            'Check that the segmentation has the labels of its table of regions',
            VOLUMES,
        )
        LOGGER.log(logging.WARNING if share > MUCH_EXCLUDED else logging.INFO, caution)
    table = regions[['index', 'name']].reset_index(drop=True)
    return table.assign(volume_mm3=[float(volumes.get(index, 0.0)) for index in listed])
