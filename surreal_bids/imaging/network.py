"""Regions by a network: the 145 of MUSE in a T1w image, without registration.

The image is turned by its affine so that its axes run to the right, to the front and up, brought
to voxels of 1 or 2 mm, and shown to the network of :mod:`surreal_bids.imaging.unet`. Its features
are interpolated at the voxels of the image and there turned into probabilities, so that labels
and volumes belong to the image's own grid.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file
from importlib.resources import files as package_files
from pathlib import Path

import numpy as np
import torch
from nibabel.affines import voxel_sizes
from nibabel.orientations import (
    apply_orientation,
    axcodes2ornt,
    io_orientation,
    ornt_transform,
)
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from scipy import ndimage
from torch import Tensor

from surreal_bids.exceptions import DataError
from surreal_bids.images import Image, like, same_grid, voxel_volume
from surreal_bids.imaging.transforms import sample
from surreal_bids.imaging.unet import Architecture, RegionNet, standardise, to_coarse

LOGGER = logging.getLogger(__name__)

COARSE_MM = 2.0
"""Voxel size of the grid on which the network sees a brain whole."""

FINE_BELOW_MM = 1.6
"""Images with smaller voxels (cube root of their volume) are also looked at with 1 mm."""

SAME_SIZE = 0.03
"""Voxels that differ by less than this share from the wanted ones are taken as they are."""

RIM_MM = 2.0
"""What is shown beyond the mask: masks of brains cut some cortex off."""

MARGIN_MM = 4.0
"""Least distance from the brain to the border of the grid."""

USUAL_CONFIDENCE = 0.8
"""Mean confidence of all regions below which the log warns; it was 0.84 to 0.87 in real heads."""

CHUNK = 200_000
"""Voxels whose probabilities are in memory at a time."""

UPRIGHT = axcodes2ornt('RAS')
"""Axes to the right, to the front, and up."""


@dataclass(frozen=True)
class Segmentation:
    """Regions of a brain.

    Attributes
    ----------
    labels
        The most probable label of each voxel, int16; 0 is background.
    volumes
        Volume of each region in mm3: sum of its probabilities, times the volume of a voxel.
    background
        Volume that was looked at and belongs to no region, mm3.
    confidence
        Mean probability of each region in the voxels that are labelled so; regions that won no
        voxel are missing.
    """

    labels: Image
    volumes: dict[int, float]
    background: float
    confidence: dict[int, float]


@dataclass(frozen=True)
class Grid:
    """Voxels of the network: voxel i along an axis lies at start + i * step of the image's.

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
    """A network with its weights, the MUSE index of each class, and the protocol to use."""

    module: RegionNet
    indices: tuple[int, ...]
    protocol: int


def segment_regions(
    t1w: Image, mask: Image, *, network: TrainedNetwork | None = None, device: str = 'cpu'
) -> Segmentation:
    """Label the regions of a brain.

    Parameters
    ----------
    t1w
        T1w image of a head or a brain, corrected for inhomogeneity; any orientation and voxel size.
    mask
        Its brain, on the same grid. Voxels up to `RIM_MM` beyond it may be labelled too, where the
        image is not 0.
    network
        What to use instead of the built-in weights.
    device
        Where torch works.

    Raises
    ------
    DataError
        Grids differ, or the mask is empty.
    """
    if not same_grid(t1w, mask):
        raise DataError(
            f'regions: the mask ({mask.shape}) is not on the grid of the T1w image ({t1w.shape}); '
            'resample it'
        )
    network = network or builtin_network()
    orientation = io_orientation(t1w.affine)
    turned = t1w.as_reoriented(orientation)
    values = np.asarray(turned.dataobj, dtype=np.float32)
    inside = apply_orientation(np.asarray(mask.dataobj) > 0, orientation)
    if not inside.any():
        raise DataError('regions: the brain mask is empty; give another mask or exclude this image')
    visible = _visible(values, inside, voxel_sizes(turned.affine))
    grid = choose_grid(inside, voxel_sizes(turned.affine), network.module.architecture.divisor)
    with torch.inference_mode():
        features = _features(values * visible, visible, grid, network.module.to(device), device)
        classes, sums, won = _classify(features, visible, grid, network)
    labels = np.zeros(visible.shape, np.int16)
    labels[visible] = np.array([0, *network.indices], np.int16)[classes]
    counts = np.bincount(classes, minlength=len(sums))
    back = apply_orientation(labels, ornt_transform(UPRIGHT, orientation))
    size = voxel_volume(t1w)
    pairs = list(enumerate(network.indices, start=1))
    confidence = {index: float(won[k] / counts[k]) for k, index in pairs if counts[k]}
    mean = sum(confidence.values()) / len(network.indices)
    if mean < USUAL_CONFIDENCE:
        LOGGER.warning(
            'The network is unsure of the regions (mean probability %.3f, usually %.2f or more); '
            'check them, and compare with --segmentation multi-atlas',
            mean,
            USUAL_CONFIDENCE,
        )
    return Segmentation(
        labels=like(t1w, back, np.int16),
        volumes={index: float(sums[k] * size) for k, index in pairs},
        background=float(sums[0] * size),
        confidence=confidence,
    )


@cache
def builtin_network() -> TrainedNetwork:
    """Load the network that comes with the package."""
    folder = package_files('surreal_bids') / 'data' / 'network'
    with as_file(folder / 'weights.safetensors') as path:
        return load_network(path)


def load_network(path: Path) -> TrainedNetwork:
    """Load weights, which safetensors keeps apart from code.

    Parameters
    ----------
    path
        safetensors with all weights, in half precision, and metadata: `architecture` (sizes),
        `indices` (of the classes after background) and `protocol`, as JSON.

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
        module = RegionNet(architecture)
        module.load_state_dict(weights)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f'{path}: no weights of a network of regions ({error}); install the package again'
        ) from error
    if len(indices) != architecture.classes - 1:
        raise DataError(
            f'{path}: {len(indices)} regions for {architecture.classes - 1} classes; install the '
            'package again'
        )
    if not all(bool(weight.isfinite().all()) for weight in weights.values()):
        raise DataError(f'{path}: weights that are not finite; install the package again')
    module.eval().requires_grad_(requires_grad=False)
    return TrainedNetwork(module, indices, int(about.get('protocol', 0)))


def choose_grid(inside: NDArray[np.bool_], spacing: NDArray[np.float64], divisor: int) -> Grid:
    """Find the network's grid around a brain (X, Y, Z) with voxels of some size in mm.

    Parameters
    ----------
    inside
        The brain, axes to the right, to the front and up.
    spacing
        Voxel sizes in mm.
    divisor
        The coarse grid gets a multiple of so many voxels.
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


def _visible(
    values: NDArray[np.float32], inside: NDArray[np.bool_], spacing: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """The mask and a rim around it, without the zeros around a stripped brain."""
    thickness = max(1, round(RIM_MM / float(np.prod(spacing) ** (1 / 3))))
    wide = ndimage.binary_dilation(inside, iterations=thickness)
    return inside | (wide & (values != 0))


def _features(
    values: NDArray, visible: NDArray[np.bool_], grid: Grid, module: RegionNet, device: str
) -> Tensor:
    """Features (F, X, Y, Z) on the grid."""
    image, shown = (
        torch.from_numpy(_regrid(each.astype(np.float32), grid)).to(device)[None]
        for each in (values, visible)
    )
    if not grid.fine:
        return module(standardise(image, shown >= 0.5)[:, None])[0]
    pooled = to_coarse(torch.stack([image, shown], dim=1))
    coarse = standardise(pooled[:, 0], pooled[:, 1] >= 0.5)[:, None]
    detail = standardise(image, shown >= 0.5)[:, None]
    return module.refine(module(coarse), coarse, detail)[0]


def _regrid(values: NDArray[np.float32], grid: Grid) -> NDArray[np.float32]:
    """Bring an image onto the grid, axis by axis: linearly, or by means where voxels are smaller.

    What lies beyond the image is 0.
    """
    for axis, (start, step, size) in enumerate(zip(grid.starts, grid.steps, grid.shape)):
        places = start + step * np.arange(size)
        # Weights of an endless row of voxels add up to 1; those beyond the image are dropped.
        first, last = (int(np.floor(end - step)) - 1 for end in (places[0], places[-1] + 2 * step))
        voxels = np.arange(min(first, 0), max(last + 2, values.shape[axis]))
        weights = (1 - np.abs(places[:, np.newaxis] - voxels) / max(1.0, step)).clip(0)
        weights /= weights.sum(axis=1, keepdims=True)
        inside = (voxels >= 0) & (voxels < values.shape[axis])
        weights = weights[:, inside].astype(np.float32)
        values = np.moveaxis(np.tensordot(weights, values, axes=(1, axis)), 0, axis)
    return np.ascontiguousarray(values)


def _classify(
    features: Tensor, visible: NDArray[np.bool_], grid: Grid, network: TrainedNetwork
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Decide at the visible voxels of the image.

    Returns
    -------
    classes
        Most probable class of each visible voxel.
    sums
        Sum of the probabilities of each class.
    won
        The same, over the voxels that it won.
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
        sums += probable.sum(dim=0, dtype=torch.float64).cpu().numpy()
        won += np.bincount(classes[chunk], best.values.cpu().numpy(), minlength=len(won))
    return classes, sums, won


def _at(features: Tensor, places: NDArray[np.int64], grid: Grid) -> Tensor:
    """Features (F, N) at voxels of the image (N, 3), linearly between those of the grid."""
    points = _grid_points(places, grid)
    if grid.native:
        i, j, k = torch.from_numpy(points.round().astype(np.int64)).to(features.device).T
        return features[:, i, j, k]
    return sample(features, torch.from_numpy(points).to(features.device), 'border')


def _grid_points(places: NDArray[np.int64], grid: Grid) -> NDArray[np.float32]:
    """Where voxels of the image (N, 3) lie on the grid, in voxels of it."""
    last: Sequence[int] = [size - 1 for size in grid.shape]
    return ((places - grid.starts) / grid.steps).clip(0, last).astype(np.float32)
