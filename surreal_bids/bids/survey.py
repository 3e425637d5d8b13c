"""All that can be known of a dataset before any long work: images, groups, problems."""

from __future__ import annotations

import gzip
import logging
import os
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import nibabel as nib
import numpy as np
from nibabel.arrayproxy import ArrayProxy
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError
from tqdm import tqdm

from surreal_bids.bids.layout import (
    T1wImage,
    find_t1w,
    read_description,
    read_filters,
    select_participants,
    select_sessions,
    without_prefix,
)
from surreal_bids.bids.people import (
    PARTICIPANT,
    Table,
    find_group_column,
    read_participants,
    read_visits,
)
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import DataError, NothingMatchedError, OutputError
from surreal_bids.text import alternatives

LOGGER = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class Groups:
    """Who is in which group.

    Attributes
    ----------
    column
        The column that says so.
    of_visit
        Value of that column for each image, by the image's name; None where it is not known.
    """

    column: str
    of_visit: Mapping[str, str | None]


@dataclass(frozen=True)
class Survey:
    """What a dataset holds for one configuration.

    Attributes
    ----------
    description
        Content of `dataset_description.json`.
    images
        The T1w images to process, sound or not.
    problems
        Why some of them, or some participants, cannot be processed.
    groups
        None where the dataset has none and none are needed.
    damaged
        Names of images that cannot be read; the other problems are not the images'.
    other_sessions
        Images of the same people in sessions that were not asked for.
    """

    description: Mapping[str, Any]
    images: list[T1wImage]
    problems: list[Problem]
    groups: Groups | None
    damaged: frozenset[str] = frozenset()
    other_sessions: Sequence[T1wImage] = ()


def survey_dataset(config: AppConfig) -> Survey:
    """Check a dataset, cheap checks first; errors that concern everyone are raised at once."""
    description = read_description(config.bids_dir)
    check_output_folder(config.bids_dir, config.output_dir)
    check_work_folder(config.bids_dir, config.work_dir)
    participants, images, others = _select(config)
    groups = _read_groups(config, images)
    damaged = [] if config.skip_bids_validation else check_images(images)
    problems = [
        *missing_images(participants, images),
        *_without_group(config, images, groups),
        *damaged,
    ]
    bad = {(problem.participant, problem.session) for problem in damaged}
    names = frozenset(image.name for image in images if image.visit in bad)
    return Survey(description, images, sorted(problems, key=str), groups, names, others)


def _select(config: AppConfig) -> tuple[list[str], list[T1wImage], list[T1wImage]]:
    """Participants, their images, and those in sessions that were not asked for."""
    filters = read_filters(config.bids_filter_file) if config.bids_filter_file else {}
    wanted = [without_prefix(label, 'sub') for label in config.participant_label]
    participants = select_participants(config.bids_dir, wanted)
    sessions = [without_prefix(label, 'ses') for label in config.session_label]
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
            f'{config.bids_dir}: no T1w image of {len(participants)} participants passes the '
            'filters; loosen --bids-filter-file or --session-label'
        )
    people = {image.participant for image in images}
    others = [image for image in everything if image.participant in people and image not in images]
    return participants, images, others


def _read_groups(config: AppConfig, images: list[T1wImage]) -> Groups | None:
    needed = _groups_are_needed(config)
    if not needed and not (config.bids_dir / 'participants.tsv').is_file():
        return None
    people = read_participants(config.bids_dir)
    known = set(people.categories(PARTICIPANT))
    listed = [image for image in images if image.participant in known]
    visits = read_visits(config.bids_dir, [image.visit for image in listed])
    column = config.group_column or find_group_column(visits)
    if column is not None:
        of_visit = dict(zip([image.name for image in listed], visits.categories(column)))
        _check_labels(people, column, config, set(of_visit.values()))
        return Groups(column, of_visit)
    if needed:
        raise DataError(
            f'{people.source}: no column of the diagnosis is known; name one with '
            f'--group-column; {alternatives([], people.columns)}'
        )
    return None


def _groups_are_needed(config: AppConfig) -> bool:
    options = (config.group_column, config.control_label, config.patient_label)
    return 'group' in config.analysis_levels or any(options)


def _without_group(
    config: AppConfig, images: list[T1wImage], groups: Groups | None
) -> list[Problem]:
    """Name the participants who are not in the table; one whose group is `n/a` is no problem."""
    if groups is None:
        return []
    absent = dict.fromkeys(i.participant for i in images if i.name not in groups.of_visit)
    reason = 'no row in participants.tsv, so the group is not known; add one'
    if _groups_are_needed(config):
        return [Problem(label, None, reason) for label in absent]
    for label in absent:
        LOGGER.warning('sub-%s: %s before the group level', label, reason)
    return []


def _check_labels(people: Table, column: str, config: AppConfig, seen: set[str | None]) -> None:
    """Check that the names of the groups are values of the column, among all participants."""
    everyone = set(people.text[column]) if column in people.columns else set()
    values = sorted(value for value in seen | everyone if value)
    labels = (*config.control_label, *config.patient_label)
    wrong = [label for label in labels if label not in values]
    if wrong:
        raise DataError(
            f'{people.source}: no {", ".join(wrong)} in column {column}; '
            f'{alternatives(wrong, values)}; correct --control-label or --patient-label'
        )
