"""The template head on a working grid: T1 brain, tissue priors and region labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from nibabel.affines import apply_affine
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import UsageError
from surreal_bids.regions import muse_table
from surreal_bids.templates import muse_labels, read_brain, resample, tissue_fractions

BOX_ORIGIN_MM = (-96, -130, -96)
"""World coordinates of the first grid point; the box holds the head from the neck upwards."""

BOX_EXTENT_MM = (192, 240, 200)
"""Extent of the grid; its factors 2, 3 and 5 make Fourier transforms fast."""

VOXEL_SIZES_MM = (1.0, 2.0, 3.0, 4.0)
"""Voxel sizes of the working grid; the coarsest is for tests."""


def load_regions() -> pd.DataFrame:
    """List the labelled regions: index (MUSE numbering), name, hemisphere and tissue."""
    return muse_table()[['index', 'name', 'hemisphere', 'tissue']]


@dataclass(frozen=True)
class LabelMap:
    """Hard labels on their own 1 mm grid.

    Attributes
    ----------
    data
        MUSE indices, shape (X, Y, Z); 0 where there is no region.
    affine
        Voxel to world (mm), shape (4, 4).
    """

    data: NDArray[np.uint8]
    affine: NDArray[np.float64]

    @property
    def voxel_volume(self) -> float:
        """Volume of a voxel in mm3."""
        return float(abs(np.linalg.det(self.affine[:3, :3])))


@dataclass(frozen=True)
class HeadTemplate:
    """A template head on a working grid.

    Attributes
    ----------
    affine
        Voxel to world (mm) of the working grid: isotropic, RAS.
    t1
        T1-weighted brain, 0 outside, shape (X, Y, Z), in the units of the file (about 0 to 100).
    tissue
        Fractions of GM, WM and CSF, shape (3, X, Y, Z); they add up to `brain`.
    brain
        Fraction of each voxel that is brain, its fluid included.
    labels
        The regions at their native resolution.
    regions
        index, name, hemisphere and tissue of each region in `labels`.
    """

    affine: NDArray[np.float64]
    t1: NDArray[np.float32]
    tissue: NDArray[np.float32]
    brain: NDArray[np.float32]
    labels: LabelMap
    regions: pd.DataFrame

    @property
    def voxel_size(self) -> float:
        """Edge of a voxel of the working grid in mm."""
        return float(self.affine[0, 0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each axis of the working grid."""
        return self.t1.shape


def load_template(voxel_size: float = 2.0) -> HeadTemplate:
    """Load the template on the working grid of a voxel size in mm."""
    if voxel_size not in VOXEL_SIZES_MM:
        sizes = ', '.join(f'{size:g}' for size in VOXEL_SIZES_MM)
        raise UsageError(f'--voxel-size {voxel_size:g}: choose one of {sizes} mm')
    affine = np.diag([voxel_size] * 3 + [1.0])
    affine[:3, 3] = BOX_ORIGIN_MM
    shape = tuple(int(extent // voxel_size) for extent in BOX_EXTENT_MM)
    t1_image, brain = read_brain()
    t1 = np.asarray(t1_image.dataobj, dtype=np.float32)
    brain_on_grid = resample(brain, t1_image.affine, affine, shape).clip(0, 1)
    return HeadTemplate(
        affine=affine,
        t1=resample(t1, t1_image.affine, affine, shape).clip(0),
        tissue=tissue_fractions(affine, shape, brain_on_grid),
        brain=brain_on_grid,
        labels=load_labels(),
        regions=load_regions(),
    )


def load_labels() -> LabelMap:
    """Load the labels of the template."""
    labels = muse_labels()
    return LabelMap(*crop(np.asarray(labels.dataobj), labels.affine))


def labels_at(labels: LabelMap, affine: NDArray, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Resample labels on another grid in template space, by nearest neighbour."""
    to_label = np.linalg.inv(labels.affine) @ affine
    return np.asarray(
        ndimage.affine_transform(labels.data, to_label, output_shape=shape, order=0),
        dtype=np.uint8,
    )


def distance_to(mask: NDArray[np.bool_], voxel_size: float) -> NDArray[np.float32]:
    """Compute the distance (mm) of each voxel from a mask."""
    return np.asarray(ndimage.distance_transform_edt(~mask), dtype=np.float32) * voxel_size


def crop(data: NDArray, affine: NDArray) -> tuple[NDArray, NDArray]:
    """Crop a volume to its non-zero voxels and adapt the affine."""
    box = ndimage.find_objects((data > 0).astype(np.uint8))[0]
    cropped_affine = affine.copy()
    cropped_affine[:3, 3] = apply_affine(affine, [axis.start for axis in box])
    return np.ascontiguousarray(data[box]), cropped_affine
