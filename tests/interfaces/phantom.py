"""A tiny brain: fluid around grey matter around white matter, with structure to register."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from scipy import ndimage

from surreal_bids.files import write_image, write_tsv
from surreal_bids.templates import FILES, TISSUES

SHAPE = (40, 48, 36)
AFFINE = np.array([[-4.0, 0, 0, 80], [0, 4, 0, -95], [0, 0, 4, -70], [0, 0, 0, 1]])
INTENSITY = {'CSF': 30.0, 'GM': 70.0, 'WM': 110.0}


def _radius() -> np.ndarray:
    """Distance from the centre, 1 on the surface of the brain, with folds."""
    axes = np.meshgrid(*(np.linspace(-1, 1, n) for n in SHAPE), indexing='ij')
    x, y, z = (axis / size for axis, size in zip(axes, (0.8, 0.85, 0.8)))
    folds = 0.06 * np.sin(9 * x + 1) * np.sin(8 * y) * np.cos(7 * z)
    return np.sqrt(x**2 + y**2 + z**2) + folds


def tissues() -> dict[str, nib.Nifti1Image]:
    """Probability of each tissue."""
    radius = _radius()
    bounds = {'WM': (0.0, 0.6), 'GM': (0.6, 0.85), 'CSF': (0.85, 1.0)}
    inside = {name: (radius >= low) & (radius < high) for name, (low, high) in bounds.items()}
    return {name: nib.Nifti1Image(inside[name].astype(np.float32), AFFINE) for name in INTENSITY}


def mask() -> nib.Nifti1Image:
    return nib.Nifti1Image((_radius() < 1).astype(np.uint8), AFFINE)


def t1w(seed: int = 0) -> nib.Nifti1Image:
    """Skull-stripped T1w image with a little noise."""
    clean = sum(INTENSITY[name] * np.asarray(p.dataobj) for name, p in tissues().items())
    noise = np.random.default_rng(seed).normal(0, 1, SHAPE)
    values = ndimage.gaussian_filter(clean, 0.5) + noise
    return nib.Nifti1Image(
        np.where(np.asarray(mask().dataobj), values, 0).astype(np.float32), AFFINE
    )


def labels() -> nib.Nifti1Image:
    """Left and right half of the tissue: 47 and 48 of MUSE."""
    # The first axis grows to the left.
    left = np.arange(SHAPE[0])[:, None, None] >= SHAPE[0] // 2
    halves = np.where(left, 48, 47) * (_radius() < 0.85)
    return nib.Nifti1Image(halves.astype(np.int16), AFFINE)


def write_all(folder: Path) -> dict[str, Path]:
    """Write the brain, and a template of it."""
    images = {'t1w': t1w(), 'mask': mask(), 'labels': labels(), **tissues()}
    paths = {name: write_image(folder / f'{name}.nii.gz', img) for name, img in images.items()}
    template = write_template(folder / 'template')
    return {**paths, 'template': template, 'regions': _write_regions(folder / 'dseg.tsv')}


def write_template(folder: Path) -> Path:
    for name, image in zip(FILES, (t1w(1), mask(), *map(tissues().get, TISSUES))):
        write_image(folder / name, image)
    return folder


def _write_regions(path: Path) -> Path:
    names = {'index': [47, 48, 49], 'name': ['Right half', 'Left half', 'Absent']}
    return write_tsv(path, pd.DataFrame(names))
