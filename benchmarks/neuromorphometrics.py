"""Convert the brains that Neuromorphometrics labelled by hand for MICCAI 2012 to atlases.

    python benchmarks/neuromorphometrics.py CLONE FOLDER

CLONE is a clone of https://github.com/muschellij2/malf.templates with 35 labelled scans (CC BY-NC),
from which MUSE was also made. FOLDER can be used with `--segmentation`. The scans have one label
for the white matter of each hemisphere; it is divided into the regions of MUSE. Each brain takes
about 10 s of one core. Rerun the command to resume.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from muse_labels import CEREBRAL_WHITE, TRACTS_FILE, divide_white_matter, read_labels
from nibabel.affines import apply_affine, voxel_sizes
from nibabel.nifti1 import Nifti1Image
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

from surreal_bids import __version__
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_image, write_json, write_text, write_tsv
from surreal_bids.images import Image, like, load_image, same_grid
from surreal_bids.imaging.atlas import LABELS_ENDING, LICENCE_FILE, REGIONS_FILE, T1W_ENDING
from surreal_bids.imaging.registration import register
from surreal_bids.imaging.transforms import (
    Transform,
    affine_transform,
    resample,
    split_affine,
    voxel_coordinates,
)
from surreal_bids.regions import muse_table
from surreal_bids.templates import builtin_template
from surreal_bids.templates import resample as to_grid
from surreal_bids.text import list_briefly

IMAGES = 'inst/extdata'
BRAIN_ENDING = '_SS.nii.gz'
HAND_ENDING = '_glm.nii.gz'
"""Where a clone has its images, and how skull-stripped T1w images and hand labels are called."""

RECORD_ENDING = '_dseg.json'
"""What an atlas was made from; written last, it marks the atlas as complete."""

COARSE_MM = 2.0
"""Voxels in which the template is registered, since lobes need no more: 6 s of one core."""

LICENCE = """\
T1w images: OASIS project. Labels: provided by Neuromorphometrics, Inc. \
(http://neuromorphometrics.com) under academic subscription; white matter divided by surreal_bids \
with the tracts of Mori et al., NeuroImage 2008 \
(https://doi.org/10.1016/j.neuroimage.2007.12.035). \
The terms of the repository they are from:

"""


def convert_clone(clone: Path, folder: Path) -> Iterator[tuple[str, bool]]:
    """Turn a clone into a folder that :func:`surreal_bids.imaging.atlas.read_atlas_set` reads.

    Parameters
    ----------
    clone
        Holds `LICENSE`, and `NAME_SS.nii.gz` and `NAME_glm.nii.gz` in `inst/extdata`.
    folder
        To write to. Atlases that it has already, made from the same images, are kept.

    Yields
    ------
    name, is_new
        Of each atlas, when it is there.

    Raises
    ------
    DataError
        The clone lacks something, or its images do not fit together.
    """
    names = _names(clone)
    licence = clone / LICENCE_FILE
    if not licence.is_file():
        raise DataError(f'{licence}: not found; the terms of use go with the images: clone again')
    write_text(folder / LICENCE_FILE, LICENCE + licence.read_text('utf-8').strip() + '\n')
    for name in names:
        yield name, _convert(clone / IMAGES, folder, name)
    regions = muse_table()[['index', 'name', 'tissue', 'hemisphere']]
    write_tsv(folder / REGIONS_FILE, regions)  # last: it marks the folder as complete


def divide_by_template(t1w: Image, labels: Image) -> NDArray[np.uint8]:
    """Divide the white matter of a labelled brain into MUSE's regions, in its own space.

    Lobes are those of the nearest cortex, as it was labelled; tracts are brought over from the
    template. Labels that MUSE does not have (vessels, optic chiasm, ...) become background.

    Parameters
    ----------
    t1w
        Skull-stripped.
    labels
        Of Neuromorphometrics, on the same grid of cubic voxels.
    """
    to_template = register(coarse_brain(t1w), builtin_template(COARSE_MM).t1w).forward
    here = compose(affine_transform(t1w.shape, t1w.affine, np.eye(4)), to_template)
    tracts = np.asarray(resample(read_labels(TRACTS_FILE), here, order=0).dataobj, dtype=np.uint8)
    template_mm = voxel_coordinates(here, np.eye(4))
    values = np.asarray(labels.dataobj).astype(np.uint8)
    divided = divide_white_matter(values, tracts, list(template_mm))
    return np.where(np.isin(divided, muse_table()['index']), divided, np.uint8(0))


def compose(first: Transform, second: Transform) -> Transform:
    """The transform x -> second(first(x)) on the grid of `first`."""
    matrix, residual = split_affine(second)
    here = apply_affine(first.affine, np.moveaxis(np.indices(first.shape), 0, -1))
    middle = here + first.field
    voxels = np.moveaxis(apply_affine(np.linalg.inv(second.affine), middle), -1, 0)
    for axis in range(3):
        middle[..., axis] += map_coordinates(residual[..., axis], voxels, order=1, mode='nearest')
    return Transform((apply_affine(matrix, middle) - here).astype(np.float32), first.affine)


def _names(clone: Path) -> list[str]:
    """Names of the brains of a clone, each of which has both files."""
    images = clone / IMAGES
    brains, labelled = (
        {path.name.removesuffix(ending) for path in images.glob(f'[!.]*{ending}')}
        for ending in (BRAIN_ENDING, HAND_ENDING)
    )
    if (alone := sorted(brains ^ labelled)) or not brains:
        raise DataError(
            f'{images}: {list_briefly(alone)} without its NAME{BRAIN_ENDING} or NAME{HAND_ENDING}; '
            'clone again'
        )
    return sorted(brains)


def _convert(images: Path, folder: Path, name: str) -> bool:
    """Write one atlas, unless it is there; whether it was written."""
    brain, hand = images / f'{name}{BRAIN_ENDING}', images / f'{name}{HAND_ENDING}'
    made_from = {
        'Sources': [brain.name, hand.name],
        'SourcesDigest': hashlib.sha256(brain.read_bytes() + hand.read_bytes()).hexdigest()[:12],
        'GeneratedBy': {'Name': 'surreal_bids', 'Version': __version__},
    }
    record = folder / f'{name}{RECORD_ENDING}'
    if record.is_file() and json.loads(record.read_text('utf-8')) == made_from:
        return False
    t1w, labels = load_image(brain), load_image(hand)
    _check(t1w, labels, hand)
    record.unlink(missing_ok=True)
    write_image(folder / f'{name}{T1W_ENDING}', t1w)
    divided = divide_by_template(t1w, labels)
    write_image(folder / f'{name}{LABELS_ENDING}', like(t1w, divided, np.uint8))
    write_json(record, made_from)
    return True


def _check(t1w: Image, labels: Image, path: Path) -> None:
    if not same_grid(t1w, labels):
        raise DataError(
            f'{path}: {labels.shape} voxels, not on the grid of its T1w image, {t1w.shape}; '
            'clone again'
        )
    values = np.unique(np.asarray(labels.dataobj))
    if not set(CEREBRAL_WHITE.values()) <= set(values.tolist()):
        raise DataError(
            f'{path}: no cerebral white matter (labels 44 and 45) on both sides; these are other '
            'labels'
        )


def coarse_brain(t1w: Image) -> Image:
    """A brain in voxels of `COARSE_MM`."""
    factor = COARSE_MM / voxel_sizes(t1w.affine)
    affine = t1w.affine @ np.diag([*factor, 1.0])
    shape = tuple(int(n) for n in np.ceil(np.array(t1w.shape) / factor))
    values = np.asarray(t1w.dataobj, dtype=np.float32)
    inside = to_grid((values > 0).astype(np.float32), t1w.affine, affine, shape) > 0.5
    return Nifti1Image(to_grid(values, t1w.affine, affine, shape) * inside, affine)


def main() -> None:
    """Convert a clone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('clone', type=Path)
    parser.add_argument('folder', type=Path)
    arguments = parser.parse_args()
    for name, is_new in convert_clone(arguments.clone, arguments.folder):
        print(f'{name}: {"converted" if is_new else "kept"}', flush=True)


if __name__ == '__main__':
    main()
