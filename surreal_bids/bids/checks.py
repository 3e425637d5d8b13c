"""Checks that run before any long work, so that bad input is known in seconds and by name."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import nibabel as nib
import numpy as np
from nibabel.arrayproxy import ArrayProxy
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError
from tqdm import tqdm

from surreal_bids.bids.layout import T1wImage
from surreal_bids.exceptions import DataError, OutputError

CHUNK = 1 << 20
"""Bytes of an image held in memory at a time while it is decompressed."""


@dataclass(frozen=True)
class Problem:
    """Why a participant, in one session or altogether, cannot be processed."""

    participant: str
    session: str | None
    reason: str

    def __str__(self) -> str:
        session = f' ses-{self.session}' if self.session else ''
        return f'sub-{self.participant}{session}: {self.reason}'


def check_output_folder(bids_dir: Path, output_dir: Path) -> None:
    """Refuse an output folder that would mix with the input, or that cannot be written.

    Inside the dataset only `derivatives/<name>` is free, as BIDS reserves it. Links are resolved.
    """
    source, target = bids_dir.resolve(), output_dir.resolve()
    remedy = f'use {bids_dir / "derivatives" / "surreal_bids"}, or a folder outside'
    if target == source:
        raise OutputError(f'{output_dir}: the output folder is the dataset itself; {remedy}')
    if target.is_relative_to(source) and source / 'derivatives' not in target.parents:
        raise OutputError(f'{output_dir}: the output folder is inside the dataset; {remedy}')
    if source.is_relative_to(target):
        raise OutputError(f'{output_dir}: the dataset is inside the output folder; {remedy}')
    _check_writable(output_dir, target)


def check_work_folder(bids_dir: Path, work_dir: Path) -> None:
    """Refuse a folder for intermediate results inside the dataset; links are resolved."""
    if work_dir.resolve().is_relative_to(bids_dir.resolve()):
        raise OutputError(
            f'{work_dir}: the folder for intermediate results is inside the dataset; give another '
            'with -w'
        )


def _check_writable(output_dir: Path, target: Path) -> None:
    existing = next(folder for folder in [target, *target.parents] if folder.exists())
    if not existing.is_dir():
        raise OutputError(f'{output_dir}: {existing} is a file; choose another output folder')
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(f'{output_dir}: {existing} is not writable; choose another output folder')


def missing_images(participants: Iterable[str], images: Collection[T1wImage]) -> list[Problem]:
    """Name the participants for whom no T1w image was found."""
    found = {image.participant for image in images}
    reason = (
        'no T1w image passes the filters; use --bids-filter-file, '
        'or leave this participant out with --participant-label'
    )
    return [Problem(label, None, reason) for label in participants if label not in found]


def check_images(images: Sequence[T1wImage]) -> list[Problem]:
    """Check every image to its last byte; one bad image hides none of the others."""
    # Threads help: decompression, where the time goes, releases the interpreter.
    with ThreadPoolExecutor() as pool:
        found = tqdm(
            pool.map(_problem_of, images),
            desc='Checking images',
            total=len(images),
            disable=None,
        )
        return [problem for problem in found if problem]


def _problem_of(image: T1wImage) -> Problem | None:
    try:
        check_image(image.path)
    except DataError as error:
        return Problem(image.participant, image.session, str(error))
    return None


def check_image(path: Path) -> None:
    """Check that a file is a whole three-dimensional NIfTI image with a usable affine.

    A compressed image is decompressed to its end (0.25 s for 60 MB of voxels): nothing less proves
    that it is whole, since the length noted at the end of a stream is of no use once the end is
    missing, and its checksum covers all of it.
    """
    if not path.exists():
        raise DataError(f'{path}: the link leads nowhere; fetch the content (datalad get)')
    if path.stat().st_size == 0:
        raise DataError(f'{path}: the file is empty; copy or convert it again')
    image = _open(path)
    _check_geometry(path, image)
    _check_length(path, image)


def _open(path: Path) -> nib.Nifti1Image:
    try:
        image = nib.load(path)
    except (ImageFileError, HeaderDataError, OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(
            f'{path}: no NIfTI header can be read ({error}); copy or convert it again'
        ) from error
    if not isinstance(image, nib.Nifti1Image):
        raise DataError(f'{path}: {type(image).__name__}, not NIfTI; convert it to NIfTI')
    return image


def _check_geometry(path: Path, image: nib.Nifti1Image) -> None:
    shape = image.shape
    size = ' x '.join(map(str, shape))
    if len(shape) != 3 and not (len(shape) == 4 and shape[3] == 1):
        raise DataError(
            f'{path}: {len(shape)} dimensions ({size}), but a T1w image has 3; '
            'extract one volume, or choose another image with --bids-filter-file'
        )
    if min(shape) < 1:
        raise DataError(f'{path}: no voxels ({size}); convert it again')
    affine = image.affine
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < np.finfo(float).tiny:
        raise DataError(
            f'{path}: the affine is not finite and invertible, so voxels have no place in space; '
            f'convert it again. It is {np.array2string(affine[:3], separator=", ")}'
        )


def _check_length(path: Path, image: nib.Nifti1Image) -> None:
    voxels = int(np.prod(image.shape, dtype=np.int64))
    # The header in memory has its offset reset to 0; the array proxy keeps the one of the file.
    offset = cast(ArrayProxy, image.dataobj).offset
    expected = offset + voxels * image.get_data_dtype().itemsize
    try:
        length = _decompressed_length(path) if path.suffix == '.gz' else path.stat().st_size
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f'{path}: truncated or damaged ({error}); copy or convert it again'
        ) from error
    if length < expected:
        raise DataError(
            f'{path}: truncated: the header promises {expected} bytes, there are {length}; '
            'copy or convert it again'
        )


def _decompressed_length(path: Path) -> int:
    """Count the bytes of a gzip file; its end and its checksum are verified on the way."""
    with gzip.open(path) as stream:
        return sum(len(chunk) for chunk in iter(lambda: stream.read(CHUNK), b''))
