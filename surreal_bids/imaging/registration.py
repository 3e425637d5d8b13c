"""Registration of two brains: affine, then diffeomorphic with one of several engines.

Every engine is given the fixed brain, cut out of its grid, and the moving brain brought onto the
same voxels by the affine map; it returns what remains to be displaced. `benchmarks/segmentation.py`
compares them. On three pairs of real heads `torch` overlapped better (Dice 0.71) than `syn` (0.63)
and `syn-cc` (0.69), in a ninth and a fortieth of their processor time, so it is the default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from nibabel.affines import from_matvec, voxel_sizes
from nibabel.nifti1 import Nifti1Image
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.imaging.affine import align_affine
from surreal_bids.imaging.diffeomorphic import Settings, deform
from surreal_bids.imaging.images import like, same_grid, to_ants, voxel_volume
from surreal_bids.imaging.transforms import (
    Transform,
    affine_transform,
    compose,
    identity_transform,
    invert,
    read_composite,
    resample,
)

DEFAULT = Settings()
"""Iterations beyond these add 0.002 to the overlap of regions."""

FAST = Settings(iterations=(30, 20, 10))
"""Half the work, for 0.005 less overlap."""

STIFF = Settings(elastic=0.8)
"""Better for what is deep, worse for the cortex. Where there is only one atlas, it is registered
with these as well as with DEFAULT, and both are fused: 0.005 more overlap than one alone."""

FLUID = Settings(iterations=(15, 15, 80), radius_mm=4.0, fluid=2.5, elastic=0.0)
"""Where the Jacobian determinant is what matters: without elastic smoothing, losses of regions are
seen at more of their size (`benchmarks/twins.py`). With less fluid smoothing, more iterations at
coarse levels, or smaller cubes, regions without a loss move more."""

BRIGHT_PERCENTILE = 98.0
"""This percentile of the brain's intensities becomes 1."""

BRIGHTEST = 1.3
"""Intensities are cut here: vessels and skin that a mask has left."""

MARGIN_MM = 10.0
"""Room around the fixed brain in which the displacement fades."""

Engine = Callable[[Nifti1Image, Nifti1Image, Settings, str], NDArray[np.float32]]

SYN_SAMPLING = {'mattes': 32, 'CC': 2}
"""Bins of the joint histogram, and radius of the cube in voxels."""

SYN_SEED = 1
"""Of ANTs' sampling, so that results repeat."""


@dataclass(frozen=True)
class Registration:
    """Two brains, each to be brought onto the other.

    Attributes
    ----------
    forward : Transform
        On the fixed grid: pulls the moving image onto the fixed one.
    moving_shape, moving_affine
        Grid of the moving image.
    """

    forward: Transform
    moving_shape: tuple[int, ...]
    moving_affine: NDArray[np.float64]

    @cached_property
    def inverse(self) -> Transform:
        """On the moving grid: pulls the fixed image onto the moving one. Computed on demand."""
        return invert(self.forward, self.moving_shape, self.moving_affine)


def register(
    fixed: Nifti1Image,
    moving: Nifti1Image,
    *,
    engine: str = 'torch',
    settings: Settings | None = None,
    fixed_mask: Nifti1Image | None = None,
    moving_mask: Nifti1Image | None = None,
    initial: Transform | None = None,
    device: str = 'cpu',
) -> Registration:
    """Find the transform between two brains.

    Parameters
    ----------
    fixed, moving : Nifti1Image
        T1w images on any grids, anywhere in space; skull-stripped, unless masks are given.
    engine : {'torch', 'syn', 'syn-cc'}
        Ours, or SyN of ANTs with mutual information or local correlation.
    settings : Settings, optional
        Of the torch engine; DEFAULT if not given.
    fixed_mask, moving_mask : Nifti1Image, optional
        Brain masks on the images' grids.
    initial : Transform, optional
        From fixed to moving, to be refined: no affine registration is done.
    device : str
        Where the torch engine runs: 'cpu', 'cuda', 'cuda:1'.
    """
    if engine not in ENGINES:
        raise UsageError(f'no registration engine {engine!r}; there are {", ".join(ENGINES)}')
    moving_brain = normalise_intensity(moving, moving_mask)
    box, place = cut_out(normalise_intensity(fixed, fixed_mask))
    if initial is None:
        initial = affine_transform(box.shape, box.affine, align_affine(box, moving_brain))
        start = initial
    else:
        start = compose(identity_transform(box.shape, box.affine), initial)
    aligned = resample(moving_brain, start, order=3)
    update = ENGINES[engine](box, aligned, settings or DEFAULT, device)
    forward = compose(Transform(_extended(update, place, fixed.shape), fixed.affine), initial)
    return Registration(forward, moving.shape[:3], moving.affine)


def normalise_intensity(image: Nifti1Image, mask: Nifti1Image | None = None) -> Nifti1Image:
    """Brain on a background of zero whose bright tissue has intensity 1, float32."""
    values = np.asarray(image.dataobj, dtype=np.float32)
    if mask is not None:
        if not same_grid(image, mask):
            raise DataError(
                f'a brain mask of {mask.shape} voxels was given for an image of {image.shape} '
                'voxels, or lies elsewhere; resample the mask onto the grid of the image'
            )
        values = np.where(np.asanyarray(mask.dataobj) > 0, values, 0)
    inside = values > 0
    if not inside.any():
        raise DataError('a brain to be registered has no voxel above zero; check its mask')
    scaled = np.clip(values / np.percentile(values[inside], BRIGHT_PERCENTILE), 0, BRIGHTEST)
    return like(image, scaled, np.float32)


def _extended(
    displacement: NDArray[np.float32], place: tuple[slice, ...], shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """A displacement (x, y, z, 3) of a box on the whole grid.

    Beyond the box it stays what it is at the edge, since a jump would fold space.
    """
    sides = zip(place, displacement.shape, shape)
    padding = [(side.start, whole - side.start - inner) for side, inner, whole in sides]
    return np.pad(displacement, [*padding, (0, 0)], mode='edge')


def cut_out(brain: Nifti1Image) -> tuple[Nifti1Image, tuple[slice, slice, slice]]:
    """The box around a brain, with `MARGIN_MM` of room, and its place in the whole array."""
    values = np.asanyarray(brain.dataobj)
    (found,) = ndimage.find_objects((values != 0).astype(np.uint8))
    margin = np.ceil(MARGIN_MM / voxel_sizes(brain.affine)).astype(int)
    x, y, z = (
        slice(max(0, side.start - room), side.stop + room) for side, room in zip(found, margin)
    )
    shift = from_matvec(np.eye(3), [x.start, y.start, z.start])
    return Nifti1Image(values[x, y, z], brain.affine @ shift), (x, y, z)


def _torch(
    fixed: Nifti1Image, moving: Nifti1Image, settings: Settings, device: str
) -> NDArray[np.float32]:
    """Displacement (X, Y, Z, 3) in mm, by the torch engine."""
    fixed_values, moving_values = (
        torch.from_numpy(np.ascontiguousarray(image.dataobj)).to(device)
        for image in (fixed, moving)
    )
    voxel_mm = float(np.cbrt(voxel_volume(fixed)))
    displacement = deform(fixed_values, moving_values, settings, voxel_mm).cpu().numpy()
    return np.moveaxis(displacement, 0, -1) @ fixed.affine[:3, :3].T.astype(np.float32)


def _syn(metric: str, iterations: tuple[int, ...]) -> Engine:
    """An engine that calls SyN of ANTs; the settings of the torch engine mean nothing to it."""

    def run(
        fixed: Nifti1Image, moving: Nifti1Image, _settings: Settings, _device: str
    ) -> NDArray[np.float32]:
        import ants  # takes seconds, which only those who choose it should pay

        with TemporaryDirectory() as folder:
            found = ants.registration(
                to_ants(fixed),
                to_ants(moving),
                'SyNOnly',
                syn_metric=metric,
                syn_sampling=SYN_SAMPLING[metric],
                reg_iterations=iterations,
                outprefix=str(Path(folder) / 'syn'),
                random_seed=SYN_SEED,
            )
            return read_composite(found['fwdtransforms'], fixed).field

    return run


ENGINES: dict[str, Engine] = {
    'torch': _torch,
    'syn': _syn('mattes', (100, 70, 50)),
    'syn-cc': _syn('CC', (100, 70, 20)),
}
"""Functions of the fixed and the aligned moving brain on one grid, settings and device."""
