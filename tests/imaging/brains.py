"""Synthetic brains to be registered: shapes of three intensities in an ellipsoid, with labels."""

import numpy as np
from nibabel.affines import apply_affine
from nibabel.nifti1 import Nifti1Image
from scipy import ndimage

from surreal_bids.imaging.transforms import Transform, split_affine

SHAPE = (44, 52, 48)
AFFINE = np.array([[4.0, 0, 0, -88], [0, 4.0, 0, -104], [0, 0, 4.0, -96], [0, 0, 0, 1]])


def brain(seed: int = 0) -> tuple[Nifti1Image, Nifti1Image]:
    """A T1w image on a background of zero, and its labels (octants x tissues, 1 to 24)."""
    rng = np.random.default_rng(seed)
    texture = ndimage.gaussian_filter(rng.normal(size=SHAPE), 2.5)
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, size) for size in SHAPE), indexing='ij')
    inside = (x / 0.72) ** 2 + (y / 0.8) ** 2 + (z / 0.68) ** 2 + 0.2 * x * y < 1
    tissue = np.digitize(texture, np.quantile(texture[inside], [0.3, 0.65]))
    octant = 4 * (x > 0) + 2 * (y > 0.1) + (z > -0.05)
    labels = np.where(inside, 1 + tissue + 3 * octant, 0).astype(np.int16)
    image = np.where(inside, 300 + 250 * tissue + 12 * rng.normal(size=SHAPE), 0)
    image = ndimage.gaussian_filter(image, 0.6) * inside
    return Nifti1Image(image.astype(np.float32), AFFINE), Nifti1Image(labels, AFFINE)


def smooth_displacement(size: float, seed: int, sigma: float = 5.0) -> np.ndarray:
    """Random displacement (X, Y, Z, 3) in mm, `size` at most, which fades at the border."""
    rng = np.random.default_rng(seed)
    raw = ndimage.gaussian_filter(rng.normal(size=(*SHAPE, 3)), (sigma, sigma, sigma, 0))
    for axis, length in enumerate(SHAPE):
        window = np.hanning(length) ** 0.25
        raw *= window.reshape([-1 if axis == other else 1 for other in range(4)])
    return (raw * size / np.linalg.norm(raw, axis=-1).max()).astype(np.float32)


def mean_dice(a: Nifti1Image, b: Nifti1Image) -> float:
    """Overlap of two label images, averaged over the labels of the first."""
    first, second = np.asanyarray(a.dataobj), np.asanyarray(b.dataobj)
    scores = [
        2
        * np.sum((first == label) & (second == label))
        / (np.sum(first == label) + np.sum(second == label))
        for label in np.unique(first[first > 0])
    ]
    return float(np.mean(scores))


def compose(first: Transform, second: Transform) -> Transform:
    """The transform x -> second(first(x)) by SciPy; beyond a grid the affine part goes on."""
    matrix, residual = split_affine(second)
    here = apply_affine(first.affine, np.moveaxis(np.indices(first.shape), 0, -1))
    middle = here + first.field
    voxels = np.moveaxis(apply_affine(np.linalg.inv(second.affine), middle), -1, 0)
    for axis in range(3):
        middle[..., axis] += ndimage.map_coordinates(
            residual[..., axis], voxels, order=1, mode='nearest'
        )
    return Transform((apply_affine(matrix, middle) - here).astype(np.float32), first.affine)
