"""Checks of a dataset before any processing: images, groups and problems."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import nibabel as nib
import numpy as np
from nibabel.arrayproxy import ArrayProxy
from tqdm import tqdm

from surreal_bids.bids.layout import (
    T1wImage,
    Visit,
    find_t1w,
    is_label,
    labels_in,
    read_description,
    read_filters,
    select_participants,
    select_sessions,
    visit_name,
    without_prefix,
)
from surreal_bids.bids.tabular import PARTICIPANT, read_participants, read_visits
from surreal_bids.columns import column_of
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import DataError, NothingMatchedError, OutputError
from surreal_bids.images import open_image
from surreal_bids.text import list_briefly


@dataclass(frozen=True)
class Problem:
    """The reason why a participant or session has no complete outputs.

    Attributes
    ----------
    name
        `sub-01`, `sub-01_ses-02`, or the name of a folder.
    reason
        What was found, where, and what to do.
    step
        `check` before any processing, or the step of the workflow that failed.
    """

    name: str
    reason: str
    step: str = 'check'

    def __str__(self) -> str:
        return f'{self.name}: {self.reason}'


@dataclass(frozen=True)
class GroupLabels:
    """Groups of the images.

    Attributes
    ----------
    column
        Name of the group column.
    of_visit
        Group of each image by the name of the image; None if unknown.
    """

    column: str
    of_visit: Mapping[str, str | None]


@dataclass(frozen=True)
class Survey:
    """Content of a dataset for one configuration.

    Attributes
    ----------
    description
        Content of `dataset_description.json`.
    images
        Selected T1w images, including damaged ones.
    problems
        Images and participants that cannot be processed, and why.
    notes
        Other findings: sessions without an image, participants without a folder, voxels that are
        not finite.
    expected
        Visits that should have outputs, with or without an image.
    groups
        Groups of the images; None without a group column.
    damaged
        Names of images that cannot be used.
    other_sessions
        Images of the same participants in sessions that were not selected.
    """

    description: Mapping[str, Any]
    images: list[T1wImage]
    problems: list[Problem]
    notes: list[Problem]
    expected: list[Visit]
    groups: GroupLabels | None
    damaged: frozenset[str] = frozenset()
    other_sessions: Sequence[T1wImage] = ()


NO_IMAGE = (
    'no T1w image matches the filters; change --bids-filter-file, or select other participants '
    'with --participant-label'
)
EMPTY_SESSION = 'no T1w image of this session matches the filters'


def survey_dataset(config: AppConfig) -> Survey:
    """Check a dataset; errors that concern all participants are raised at once."""
    description = read_description(config.bids_dir)
    check_output_folder(config.bids_dir, config.output_dir)
    check_work_folder(config.bids_dir, config.work_dir)
    participants, images, others = _select(config)
    groups = _read_groups(config, images)
    is_read = 'participant' in config.analysis_levels and not config.skip_bids_validation
    damaged, notes = check_images(images) if is_read else ([], [])
    lacking = _without_image(participants, images)
    problems = [*(Problem(visit_name(visit), NO_IMAGE) for visit in lacking), *damaged]
    empty = _sessions_without_image(config, [*images, *others])
    notes += [Problem(visit_name(visit), EMPTY_SESSION) for visit in empty]
    if not config.participant_label:
        problems += _misnamed_folders(config.bids_dir)
        notes += _without_folder(config.bids_dir, participants)
    absent = _without_group(images, groups)
    (problems if 'group' in config.analysis_levels else notes).extend(absent)
    return Survey(
        description,
        images,
        sorted(problems, key=str),
        sorted(notes, key=str),
        [*(image.visit for image in images), *lacking, *empty],
        groups,
        frozenset(problem.name for problem in damaged),
        others,
    )


def _select(config: AppConfig) -> tuple[list[str], list[T1wImage], list[T1wImage]]:
    """Return participants, their images, and images of sessions that were not selected."""
    filters = read_filters(config.bids_filter_file) if config.bids_filter_file else {}
    wanted = [without_prefix(label, 'sub') for label in config.participant_label]
    participants = select_participants(config.bids_dir, wanted)
    sessions = _wanted_sessions(config)
    if sessions:
        select_sessions(config.bids_dir, participants, sessions)
    everything = find_t1w(
        config.bids_dir,
        participants=set(participants),
        filters=filters,
        database_dir=config.bids_database_dir,
    )
    images = [image for image in everything if not sessions or image.session in sessions]
    if not images:
        raise NothingMatchedError(
            f'{config.bids_dir}: no T1w image of {len(participants)} participants matches the '
            'filters; change --bids-filter-file or --session-label'
        )
    known = {image.participant for image in images}
    others = [image for image in everything if image.participant in known and image not in images]
    return participants, images, others


def _wanted_sessions(config: AppConfig) -> list[str]:
    return [without_prefix(label, 'ses') for label in config.session_label]


def _without_image(participants: Iterable[str], images: Iterable[T1wImage]) -> list[Visit]:
    found = {image.participant for image in images}
    return [(label, None) for label in participants if label not in found]


def _sessions_without_image(config: AppConfig, images: Sequence[T1wImage]) -> list[Visit]:
    """List sessions without a T1w image of participants with an image in another session."""
    found = {image.visit for image in images}
    wanted = _wanted_sessions(config)
    return [
        (participant, session)
        for participant in dict.fromkeys(image.participant for image in images)
        for session in labels_in([config.bids_dir / f'sub-{participant}'], 'ses')
        if (participant, session) not in found and (not wanted or session in wanted)
    ]


def _misnamed_folders(bids_dir: Path) -> list[Problem]:
    """List folders of participants and sessions with invalid names."""
    participants = [path for path in bids_dir.glob('sub-*') if path.is_dir()]
    sessions = [path for p in participants for path in p.glob('ses-*') if path.is_dir()]
    return [
        Problem(
            path.relative_to(bids_dir).as_posix(),
            'not used because a label may only contain letters, digits and +; rename the folder '
            'and its files',
        )
        for path in (*participants, *sessions)
        if not is_label(path.name.partition('-')[2])
    ]


def _without_folder(bids_dir: Path, participants: Iterable[str]) -> list[Problem]:
    """List participants of `participants.tsv` without a folder."""
    if not (bids_dir / 'participants.tsv').is_file():
        return []
    known = set(participants)
    return [
        Problem(visit_name((label, None)), 'listed in participants.tsv but has no folder')
        for label in read_participants(bids_dir).categories(PARTICIPANT)
        if label not in known
    ]


def check_output_folder(bids_dir: Path, output_dir: Path) -> None:
    """Check that the output folder is separate from the dataset and writable.

    Inside the dataset, only `derivatives/<name>` is allowed. Links are resolved.
    """
    source, target = bids_dir.resolve(), _resolve(output_dir)
    remedy = f'use {bids_dir / "derivatives" / "surreal_bids"}, or a folder outside of it'
    _refuse_file(output_dir)
    if target == source:
        raise OutputError(f'{output_dir}: the output folder is the dataset itself; {remedy}')
    if target.is_relative_to(source) and source / 'derivatives' not in target.parents:
        raise OutputError(f'{output_dir}: the output folder is inside the dataset; {remedy}')
    if source.is_relative_to(target):
        raise OutputError(f'{output_dir}: the dataset is inside the output folder; {remedy}')
    _check_writable(output_dir)


def check_work_folder(bids_dir: Path, work_dir: Path) -> None:
    """Check that the work folder is outside of the dataset; links are resolved."""
    _refuse_file(work_dir)
    if _resolve(work_dir).is_relative_to(bids_dir.resolve()):
        raise OutputError(
            f'{work_dir}: the work folder is inside the dataset; choose another one with -w'
        )
    _check_writable(work_dir)


def _resolve(folder: Path) -> Path:
    """Resolve the links of a path to a folder that may not exist yet."""
    try:
        target = folder.resolve()
    except (OSError, RuntimeError):
        target = None
    if target is None or (folder.is_symlink() and not target.exists()):
        raise OutputError(f'{folder}: broken link; correct it or choose another folder')
    return target


def _nearest_existing(folder: Path) -> Path:
    target = _resolve(folder)
    return next(each for each in [target, *target.parents] if each.exists())


def free_bytes(folder: Path) -> int:
    """Return the free space of the disk of a folder that may not exist yet."""
    return shutil.disk_usage(_nearest_existing(folder)).free


def _refuse_file(folder: Path) -> None:
    existing = _nearest_existing(folder)
    if not existing.is_dir():
        what = '' if existing == folder.absolute() else f'{existing} '
        raise OutputError(f'{folder}: {what}is a file; choose another folder')


def _check_writable(folder: Path) -> None:
    existing = _nearest_existing(folder)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(f'{folder}: {existing} is not writable; choose another folder')


CHUNK = 1 << 20
"""Bytes of an image that are read at a time."""


SMALLEST_VOXEL_MM, LARGEST_VOXEL_MM = 0.05, 20.0
"""Plausible voxel sizes; others are errors or in another unit."""


@dataclass(frozen=True)
class Voxels:
    """Digest of the voxels of an image, and the number of voxels that are not finite."""

    digest: str
    not_finite: int


def check_images(images: Sequence[T1wImage]) -> tuple[list[Problem], list[Problem]]:
    """Read every image completely and report all that are damaged.

    Returns
    -------
    problems
        Images that cannot be used.
    notes
        Findings in other images.
    """
    # Threads help because decompression, the slow part, releases the interpreter.
    with ThreadPoolExecutor() as pool:
        seen = list(
            tqdm(
                pool.map(_look_at, images),
                desc='Checking images',
                total=len(images),
                disable=None,
            )
        )
    problems = [each for each in seen if isinstance(each, Problem)]
    sound = {image: each for image, each in zip(images, seen) if isinstance(each, Voxels)}
    notes = [
        Problem(
            image.name,
            f'{image.path}: {voxels.not_finite} voxels are NaN or infinite and will be set to 0',
        )
        for image, voxels in sound.items()
        if voxels.not_finite
    ]
    return [*problems, *_copies(sound)], notes


def _look_at(image: T1wImage) -> Voxels | Problem:
    try:
        return check_image(image.path)
    except DataError as error:
        return Problem(image.name, str(error))


def _copies(sound: Mapping[T1wImage, Voxels]) -> list[Problem]:
    """Report images with identical voxels: at least one has the wrong name."""
    alike: dict[str, list[T1wImage]] = {}
    for image, voxels in sound.items():
        alike.setdefault(voxels.digest, []).append(image)
    return [
        Problem(
            image.name,
            f'{image.path}: identical to {list_briefly(o.name for o in same if o != image)}; '
            'replace the copy, or exclude it with --participant-label or --session-label',
        )
        for same in alike.values()
        if len(same) > 1
        for image in same
    ]


def check_image(path: Path) -> Voxels:
    """Check that a file is a complete three-dimensional NIfTI image.

    A compressed image is decompressed to its end (0.25 s for 60 MB of voxels), because only the
    checksum at the end proves that it is complete.

    Raises
    ------
    DataError
        The file is missing, empty, truncated, damaged or no NIfTI image; it is not one volume of
        real numbers; its affine is not valid; or all voxels have the same value.
    """
    if not path.exists():
        raise DataError(f'{path}: broken link; fetch the content (datalad get)')
    try:
        if path.stat().st_size == 0:
            raise DataError(f'{path}: the file is empty; copy or convert it again')
        image = _open(path)
        _check_shape(path, image)
        _check_place(path, image)
        return _read_voxels(path, image)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f'{path}: truncated or damaged ({error}); copy or convert it again'
        ) from error


def _open(path: Path) -> nib.Nifti1Image:
    image = open_image(path)
    if not isinstance(image, nib.Nifti1Image):
        raise DataError(f'{path}: {type(image).__name__}, not NIfTI; convert it to NIfTI')
    return image


def _check_shape(path: Path, image: nib.Nifti1Image) -> None:
    shape = image.shape
    size = ' x '.join(map(str, shape))
    if len(shape) != 3 and not (len(shape) == 4 and shape[3] == 1):
        raise DataError(
            f'{path}: {len(shape)} dimensions ({size}), but a T1w image has 3; '
            'extract one volume, or choose another image with --bids-filter-file'
        )
    if min(shape) < 1:
        raise DataError(f'{path}: no voxels ({size}); convert it again')
    if min(shape[:3]) == 1:
        raise DataError(f'{path}: one slice ({size}), but a T1w image has 3 dimensions')
    if image.get_data_dtype().kind not in 'iuf':
        kind = image.header.get_value_label('datatype')
        raise DataError(f'{path}: voxels of type {kind}; store one real number per voxel')


def _check_place(path: Path, image: nib.Nifti1Image) -> None:
    affine = image.affine
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < np.finfo(float).tiny:
        raise DataError(
            f'{path}: the affine is not finite and invertible; convert the image again. The affine '
            f'is {np.array2string(affine[:3], separator=", ")}'
        )
    sizes = nib.affines.voxel_sizes(affine)
    if not (sizes.min() >= SMALLEST_VOXEL_MM and sizes.max() <= LARGEST_VOXEL_MM):
        raise DataError(
            f'{path}: voxels of {" x ".join(f"{size:g}" for size in sizes)} mm; correct the '
            'header, or convert it again'
        )


def _read_voxels(path: Path, image: nib.Nifti1Image) -> Voxels:
    """Read the stored voxels in chunks, without scaling."""
    dtype = image.get_data_dtype()
    # nibabel resets the offset in the header to 0; the array proxy keeps that of the file.
    proxy = cast(ArrayProxy, image.dataobj)
    offset = proxy.offset
    expected = int(np.prod(image.shape, dtype=np.int64)) * dtype.itemsize
    digest = hashlib.sha256(f'{dtype} {image.shape}'.encode())
    least, most, not_finite, length = np.inf, -np.inf, 0, 0
    with gzip.open(path) if path.suffix == '.gz' else path.open('rb') as stream:
        stream.read(offset)
        while chunk := stream.read(min(CHUNK, expected - length)):
            length += len(chunk)
            digest.update(chunk)
            values = np.frombuffer(chunk, dtype, len(chunk) // dtype.itemsize)
            finite = values[np.isfinite(values)]
            not_finite += len(values) - len(finite)
            if len(finite):
                least, most = min(least, float(finite.min())), max(most, float(finite.max()))
        while stream.read(CHUNK):
            # Read to the end of the stream, which contains the checksum.
            pass
    if length < expected:
        raise DataError(
            f'{path}: truncated: {offset + length} bytes instead of {offset + expected}; copy or '
            'convert it again'
        )
    if not least < most:
        shown = 'NaN or infinite' if least > most else f'{least:g}'
        raise DataError(f'{path}: all voxels are {shown}; convert it again, or exclude it')
    largest = max(abs(float(least)), abs(float(most))) * abs(float(proxy.slope))
    if largest > float(np.finfo(np.float32).max):
        raise DataError(
            f'{path}: voxels scaled by scl_slope {proxy.slope:g} exceed the range of float32; '
            'correct scl_slope, or convert it again'
        )
    return Voxels(digest.hexdigest(), not_finite)


def _read_groups(config: AppConfig, images: list[T1wImage]) -> GroupLabels | None:
    """Read the group of each image from `participants.tsv`, for display only."""
    if not (config.bids_dir / 'participants.tsv').is_file():
        return None
    known = set(read_participants(config.bids_dir).categories(PARTICIPANT))
    listed = [image for image in images if image.participant in known]
    visits = read_visits(config.bids_dir, [image.visit for image in listed])
    column = config.group_column or column_of(visits.columns, 'diagnosis')
    if column is None:
        return None
    return GroupLabels(
        column, dict(zip([image.name for image in listed], visits.categories(column)))
    )


def _without_group(images: list[T1wImage], groups: GroupLabels | None) -> list[Problem]:
    """List participants without a row in the table; a group of `n/a` is not reported."""
    if groups is None:
        return []
    absent = dict.fromkeys(i.participant for i in images if i.name not in groups.of_visit)
    reason = 'no row in participants.tsv; add one for the group level'
    return [Problem(visit_name((label, None)), reason) for label in absent]
