"""Segmentation of the 145 MUSE regions in a T1w image with a network, without registration.

The image is reoriented to RAS and resampled to 1 or 2 mm for the network of
:mod:`surreal_bids.imaging.unet`. Its features are interpolated at the voxels of the image and
converted to probabilities there, so labels and volumes are on the grid of the image.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file
from importlib.resources import files as package_files
from pathlib import Path

import numpy as np
import torch
from nibabel.affines import voxel_sizes
from nibabel.orientations import apply_orientation, io_orientation, ornt_transform
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from scipy import ndimage
from torch import Tensor

from surreal_bids.cautions import FIGURES, Caution
from surreal_bids.exceptions import DataError
from surreal_bids.images import (
    UPRIGHT,
    Image,
    along_axes,
    like,
    require_same_grid,
    voxel_volume,
)
from surreal_bids.imaging.transforms import sample
from surreal_bids.imaging.unet import Architecture, RegionNet, standardise, to_coarse

LOGGER = logging.getLogger(__name__)

COARSE_MM = 2.0
"""Voxel size of the coarse grid of the network."""

FINE_BELOW_MM = 1.6
"""Images with smaller voxels (cube root of the volume) also use the fine grid of 1 mm."""

SAME_SIZE = 0.03
"""Relative difference of voxel sizes below which the image is not resampled."""

RIM_MM = 2.0
"""Rim around the mask that is segmented too, because brain masks cut off some cortex."""

MARGIN_MM = 4.0
"""Minimum distance from the brain to the border of the grid."""

USUAL_CONFIDENCE = 0.8
"""Mean confidence of all regions below which there is a warning; real heads have 0.84 to 0.87."""

REFINED_PLANES = 16
REACH = 2
"""Coarse planes that are refined at a time, and those on both sides that reach into them."""

CHUNK = 200_000
"""Voxels whose probabilities are computed at a time."""

FLUID_SHARE = 0.3
"""Cortex is darker than this only in sulci: intensity from that of the ventricles (0) to that of
cortex (1). DLMUSE at 2 mm, which the network was trained with, labels sulci as cortex. Chosen by
overlap with labels of IXI without sulci and with hand labels of OASIS (benchmarks/README.md)."""

FIRST_CORTEX, VENTRICLES = 100, (51, 52)
"""MUSE index from which regions are cortex, and indices of the lateral ventricles."""


@dataclass(frozen=True)
class Segmentation:
    """Regions of a brain.

    Attributes
    ----------
    labels
        The most probable label of each voxel, int16; 0 is background, and fluid in sulci.
    volumes
        Volume of each region in mm3: sum of its probabilities, times the volume of a voxel and the
        factor of the network.
    confidence
        Mean probability of each region in its voxels, sulci included; regions without are missing.
    """

    labels: Image
    volumes: dict[int, float]
    confidence: dict[int, float]


@dataclass(frozen=True)
class Grid:
    """Grid of the network: its voxel i is at start + i * step in voxels of the image.

    Attributes
    ----------
    starts, steps
        In voxels of the image, along each axis.
    shape
        Voxels along each axis.
    fine
        Whether these are voxels of 1 mm.
    """

    starts: tuple[float, ...]
    steps: tuple[float, ...]
    shape: tuple[int, ...]
    fine: bool

    @property
    def native(self) -> bool:
        """Whether its voxels are those of the image."""
        return all(step == 1 for step in self.steps)


@dataclass(frozen=True)
class TrainedNetwork:
    """A network with its weights.

    Attributes
    ----------
    module
        The network.
    indices
        MUSE index of each class after background.
    protocol
        Way of labelling.
    factors
        Factors of the volume of each region at 2 mm and at 1 mm, with which volumes are those of
        DLMUSE at 1 mm; 1 where the file has none.
    """

    module: RegionNet
    indices: tuple[int, ...]
    protocol: int
    factors: tuple[tuple[float, ...], tuple[float, ...]]


def segment_regions(
    t1w: Image, mask: Image, *, network: TrainedNetwork | None = None, device: str = 'cpu'
) -> Segmentation:
    """Segment the regions of a brain.

    Parameters
    ----------
    t1w
        T1w image of a head or a brain, corrected for inhomogeneity; any orientation and voxel size.
    mask
        Brain mask on the same grid. Non-zero voxels up to `RIM_MM` outside may also be labelled.
    network
        Network to use instead of the built-in one.
    device
        Device for torch.

    Raises
    ------
    DataError
        Grids differ, or the mask is empty.
    """
    require_same_grid(mask, t1w, 'the brain mask')
    network = network or builtin_network()
    orientation = io_orientation(t1w.affine)
    turned = t1w.as_reoriented(orientation)
    values = np.asarray(turned.dataobj, dtype=np.float32)
    inside = apply_orientation(np.asarray(mask.dataobj) > 0, orientation)
    if not inside.any():
        raise DataError(
            'regions: the brain mask is empty; provide another mask or exclude this image'
        )
    visible = _visible(values, inside, voxel_sizes(turned.affine))
    grid = choose_grid(inside, voxel_sizes(turned.affine), network.module.architecture.divisor)
    with torch.inference_mode():
        features = _features(values * visible, visible, grid, network.module.to(device), device)
        classes, sums, won = _classify(features, visible, grid, network)
    labels = np.zeros(visible.shape, np.int16)
    labels[visible] = np.array([0, *network.indices], np.int16)[classes]
    clear_sulci(labels, values)
    counts = np.bincount(classes, minlength=len(sums))
    back = apply_orientation(labels, ornt_transform(UPRIGHT, orientation))
    size = voxel_volume(t1w)
    pairs = list(enumerate(network.indices, start=1))
    factors = network.factors[grid.fine]
    confidence = {index: float(won[k] / counts[k]) for k, index in pairs if counts[k]}
    mean = sum(confidence.values()) / len(network.indices)
    if mean < USUAL_CONFIDENCE:
        LOGGER.warning(
            Caution(
                f'the network is uncertain about the regions (mean probability {mean:.3f}, usually '
                f'{USUAL_CONFIDENCE:.2f} or more)',
                'Volumes may be wrong',
                'Check the figure of the regions',
                FIGURES,
            )
        )
    return Segmentation(
        labels=like(t1w, back, np.int16),
        volumes={index: float(sums[k] * size * factors[k - 1]) for k, index in pairs},
        confidence=confidence,
    )


@cache
def builtin_network() -> TrainedNetwork:
    """Load the built-in network."""
    folder = package_files('surreal_bids') / 'data' / 'network'
    with as_file(folder / 'weights.safetensors') as path:
        return load_network(path)


def load_network(path: Path) -> TrainedNetwork:
    """Load a network from a safetensors file.

    Parameters
    ----------
    path
        safetensors with all weights, in half precision, and metadata: `architecture` (sizes),
        `indices` (of the classes after background), `protocol` and `factors` (of volumes at 2 and
        1 mm), as JSON.

    Raises
    ------
    DataError
        The file is damaged, or holds another network.
    """
    try:
        with safe_open(path, framework='pt') as stored:
            about = stored.metadata() or {}
            weights = {name: stored.get_tensor(name).float() for name in stored.keys()}  # noqa: SIM118
        sizes = json.loads(about['architecture'])
        architecture = Architecture(**{**sizes, 'widths': tuple(sizes['widths'])})
        indices = tuple(json.loads(about['indices']))
        coarse, fine = json.loads(about.get('factors', 'null')) or [[1.0] * len(indices)] * 2
        module = RegionNet(architecture)
        module.load_state_dict(weights)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f'{path}: not a valid network of regions ({error}); reinstall the package'
        ) from error
    if not len(indices) == len(coarse) == len(fine) == architecture.classes - 1:
        raise DataError(f'{path}: {len(indices)} regions do not fit; reinstall the package')
    module.eval().requires_grad_(requires_grad=False)
    factors = (tuple(coarse), tuple(fine))
    return TrainedNetwork(module, indices, int(about.get('protocol', 0)), factors)


def choose_grid(inside: NDArray[np.bool_], spacing: NDArray[np.float64], divisor: int) -> Grid:
    """Choose the grid of the network around a brain (X, Y, Z).

    Parameters
    ----------
    inside
        Brain mask in RAS orientation.
    spacing
        Voxel sizes in mm.
    divisor
        The size of the coarse grid is a multiple of this.
    """
    fine = bool(np.prod(spacing) ** (1 / 3) < FINE_BELOW_MM)
    wanted = COARSE_MM / 2 if fine else COARSE_MM
    steps = np.where(np.abs(spacing / wanted - 1) < SAME_SIZE, 1.0, wanted / spacing)
    unit = divisor * (2 if fine else 1)
    starts, shape = [], []
    for place, step in zip(ndimage.find_objects(inside.astype(np.uint8))[0], steps):
        needed = (place.stop - place.start) / step + 2 * MARGIN_MM / wanted
        size = int(np.ceil(needed / unit) * unit)
        start = (place.start + place.stop - 1 - (size - 1) * step) / 2
        starts.append(float(np.floor(start)) if step == 1 else float(start))
        shape.append(size)
    return Grid(tuple(starts), tuple(steps.tolist()), tuple(shape), fine)


def clear_sulci(labels: NDArray[np.int16], values: NDArray[np.float32]) -> None:
    """Set cortical labels (X, Y, Z) to 0 where the image is as dark as fluid."""
    cortex = labels >= FIRST_CORTEX
    fluid = values[np.isin(labels, VENTRICLES)]
    if not (cortex.any() and fluid.size):
        return
    dark, grey = np.median(fluid), np.median(values[cortex])
    if dark < grey:
        labels[cortex & (values < dark + FLUID_SHARE * (grey - dark))] = 0


def _visible(
    values: NDArray[np.float32], inside: NDArray[np.bool_], spacing: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return the mask with its rim, without the zeros around a skull-stripped brain."""
    thickness = max(1, round(RIM_MM / float(np.prod(spacing) ** (1 / 3))))
    wide = ndimage.binary_dilation(inside, iterations=thickness)
    return inside | (wide & (values != 0))


def _features(
    values: NDArray, visible: NDArray[np.bool_], grid: Grid, module: RegionNet, device: str
) -> Tensor:
    """Compute the features (F, X, Y, Z) on the grid."""
    image, shown = (
        torch.from_numpy(_regrid(each.astype(np.float32), grid)).to(device)[None]
        for each in (values, visible)
    )
    if not grid.fine:
        return module(standardise(image, shown >= 0.5)[:, None])[0]
    pooled = to_coarse(torch.stack([image, shown], dim=1))
    coarse = standardise(pooled[:, 0], pooled[:, 1] >= 0.5)[:, None]
    detail = standardise(image, shown >= 0.5)[:, None]
    return _refined(module, module(coarse), coarse, detail)


def _refined(module: RegionNet, features: Tensor, coarse: Tensor, detail: Tensor) -> Tensor:
    """Compute the features (F, X, Y, Z) on the fine grid, some planes at a time to save memory."""
    size = features.shape[2]
    weight, _ = module.head(0, fine=True)
    refined = features.new_empty(len(weight), *detail.shape[2:])
    for start in range(0, size, REFINED_PLANES):
        stop = min(start + REFINED_PLANES, size)
        first, last = max(start - REACH, 0), min(stop + REACH, size)
        found = module.refine(
            features[:, :, first:last],
            coarse[:, :, first:last],
            detail[:, :, 2 * first : 2 * last],
        )[0]
        refined[:, 2 * start : 2 * stop] = found[:, 2 * (start - first) : 2 * (stop - first)]
    return refined


def _regrid(values: NDArray[np.float32], grid: Grid) -> NDArray[np.float32]:
    """Resample an image along each axis, linearly or by averaging smaller voxels; 0 outside."""
    matrices = []
    for n, start, step, size in zip(values.shape, grid.starts, grid.steps, grid.shape):
        places = start + step * np.arange(size)
        # Weights of an endless row of voxels add up to 1; those beyond the image are dropped.
        first, last = (int(np.floor(end - step)) - 1 for end in (places[0], places[-1] + 2 * step))
        voxels = np.arange(min(first, 0), max(last + 2, n))
        weights = (1 - np.abs(places[:, np.newaxis] - voxels) / max(1.0, step)).clip(0)
        weights /= weights.sum(axis=1, keepdims=True)
        inside = (voxels >= 0) & (voxels < n)
        matrices.append(weights[:, inside].astype(np.float32))
    return np.ascontiguousarray(along_axes(values, matrices))


def _classify(
    features: Tensor, visible: NDArray[np.bool_], grid: Grid, network: TrainedNetwork
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Classify the visible voxels of the image.

    Returns
    -------
    classes
        Most probable class of each visible voxel.
    sums
        Sum of the probabilities of each class.
    won
        The same, over the voxels of which it is the most probable class.
    """
    weight, offset = network.module.head(network.protocol, fine=grid.fine)
    places = np.argwhere(visible)
    classes = np.empty(len(places), np.int64)
    sums, won = np.zeros(len(offset)), np.zeros(len(offset))
    for first in range(0, len(places), CHUNK):
        chunk = slice(first, first + CHUNK)
        logits = _at(features, places[chunk], grid).T @ weight + offset
        probable = logits.softmax(dim=1)
        best = probable.max(dim=1)
        classes[chunk] = best.indices.cpu().numpy()
        sums += probable.sum(dim=0).cpu().numpy()
        won += np.bincount(classes[chunk], best.values.cpu().numpy(), minlength=len(won))
    return classes, sums, won


def _at(features: Tensor, places: NDArray[np.int64], grid: Grid) -> Tensor:
    """Interpolate features (F, N) linearly at voxels of the image (N, 3)."""
    last = [size - 1 for size in grid.shape]
    points = ((places - grid.starts) / grid.steps).clip(0, last).astype(np.float32)
    if grid.native:
        i, j, k = torch.from_numpy(points.round().astype(np.int64)).to(features.device).T
        return features[:, i, j, k]
    return sample(features, torch.from_numpy(points).to(features.device), 'border')
