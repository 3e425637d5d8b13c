"""Survey of a dataset before any processing: images and problems."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from nibabel.spatialimages import SpatialImage

from surreal_bids.bids.layout import (
    DESCRIPTION,
    T1wImage,
    find_t1w,
    labels_in,
    read_description,
    read_filters,
    select_participants,
    select_sessions,
)
from surreal_bids.cautions import FIGURES, Caution
from surreal_bids.config import AppConfig, flag_of
from surreal_bids.exceptions import DataError, NothingMatchedError, OutputError
from surreal_bids.files import read_file
from surreal_bids.images import load_image, open_image, read_qform, read_voxels, voxel_volume
from surreal_bids.names import Visit, is_label, visit_name, without_prefix
from surreal_bids.progress import with_bar
from surreal_bids.tables import read_participants
from surreal_bids.text import counted, list_briefly

IMAGES_AT_A_TIME = 8
"""Images that are read at once; each needs up to 1 GB."""

SMALLEST_VOXEL_MM, LARGEST_VOXEL_MM = 0.05, 20.0
"""Plausible voxel sizes; others are errors or in another unit."""

LEAST_POSITIVE = 0.02
"""Minimum share of positive voxels in an image with negative ones; a brain fills more."""

SMALLEST_RANGE, LARGEST_RANGE = 1e-3, 1e12
"""Range of intensities. The network divides by their spread in the brain, about a tenth of the
range, but not by less than 1e-5; squares beyond the second overflow in single precision."""

SLAB_MM, LARGEST_VIEW_MM = 60.0, 600.0
"""Fields of view shorter than the first show a part of a head; longer than the second, no head."""

WIDEST_TESTED_MM = 2.1
"""Cube root of the volume of a voxel above which network and registration were never tested."""


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
        Other findings: sessions without an image, participants without a folder or a row in the
        table, voxels that are not finite.
    expected
        Visits that should have outputs, with or without an image.
    other_sessions
        Images of the same participants in sessions that were not selected.
    """

    description: Mapping[str, Any]
    images: list[T1wImage]
    problems: list[Problem]
    notes: list[Caution]
    expected: list[Visit]
    other_sessions: Sequence[T1wImage] = ()


UNMATCHED = 'no T1w image matches {0}; change this file, or select others with --participant-label'
NO_IMAGE = (
    'no T1w image; expected sub-LABEL_T1w.nii.gz in the folder anat of the participant or of a '
    'session; add it, or select others with --participant-label'
)
NOT_SCANNED = Caution(
    'no T1w image of the sessions of --session-label',
    'The participant has no outputs',
    'Select other sessions if there should be some',
)
EMPTY_SESSION = Caution(
    'no T1w image of this session, or none that matches --bids-filter-file',
    'The session has no outputs',
    'Add an image if it should have some',
)
NO_ROW = Caution(
    'no row in participants.tsv',
    'The group level will exclude the participant',
    'Add a row',
)
NO_FOLDER = Caution(
    'listed in participants.tsv but has no folder',
    'The participant has no outputs',
    'Add the folder, or remove the row',
)


def survey_dataset(config: AppConfig) -> Survey:
    """Check a dataset; errors that concern all participants are raised at once."""
    description = read_description(config.bids_dir)
    check_output_folder(config.bids_dir, config.output_dir)
    check_work_folder(config.bids_dir, config.work_dir)
    participants, images, others = _select(config)
    is_read = 'participant' in config.analysis_levels and not config.skip_bids_validation
    problems, notes = check_images(images) if is_read else ([], [])
    found = {image.participant for image in images}
    lacking: list[Visit] = [(label, None) for label in participants if label not in found]
    if config.session_label:
        notes += _about(lacking, NOT_SCANNED)
        lacking = []
    reason = UNMATCHED.format(config.bids_filter_file) if config.bids_filter_file else NO_IMAGE
    problems += [Problem(visit_name(visit), reason) for visit in lacking]
    empty = _sessions_without_image(config, [*images, *others])
    notes += _about(empty, EMPTY_SESSION)
    if not config.participant_label:
        problems += _misnamed_folders(config.bids_dir)
    notes += _compare_with_table(config, participants)
    return Survey(
        description,
        images,
        sorted(problems, key=str),
        sorted(notes, key=str),
        [*(image.visit for image in images), *lacking, *empty],
        others,
    )


def _about(visits: Iterable[Visit], caution: Caution) -> list[Caution]:
    return [caution._replace(who=visit_name(visit)) for visit in visits]


def _select(config: AppConfig) -> tuple[list[str], list[T1wImage], list[T1wImage]]:
    """Return participants, their images, and images of sessions that were not selected."""
    filters = read_filters(config.bids_filter_file) if config.bids_filter_file else {}
    wanted = [without_prefix(label, 'sub') for label in config.participant_label]
    participants = select_participants(config.bids_dir, wanted)
    sessions = _wanted_sessions(config)
    if sessions:
        select_sessions(config.bids_dir, participants, sessions)
    # Without a selection, no path is compared with the labels of all participants.
    chosen = set(participants) if wanted else None
    everything = find_t1w(config.bids_dir, participants=chosen, filters=filters)
    images = [image for image in everything if not sessions or image.session in sessions]
    if not images:
        raise NothingMatchedError(
            f'{config.bids_dir}: no T1w image of {counted(len(participants), "participant")}'
            f'{_filtered_by(config)}'
        )
    visits = {image.visit for image in images}
    with_image = {image.participant for image in images}
    others = [
        image
        for image in everything
        if image.participant in with_image and image.visit not in visits
    ]
    return participants, images, others


def _filtered_by(config: AppConfig) -> str:
    """Name the options that may have excluded all images, or what is missing without any."""
    names = ('bids_filter_file', 'session_label', 'participant_label')
    given = [flag_of(name) for name in names if getattr(config, name)]
    if given:
        return f' matches {" and ".join(given)}; change this'
    return ' in the dataset; expected sub-LABEL[/ses-LABEL]/anat/*_T1w.nii.gz'


def _wanted_sessions(config: AppConfig) -> list[str]:
    return [without_prefix(label, 'ses') for label in config.session_label]


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
    return [
        Problem(
            path.relative_to(bids_dir).as_posix(),
            'not used because a label may only contain letters, digits and +; rename the folder '
            'and its files',
        )
        for path in (*bids_dir.glob('sub-*/'), *bids_dir.glob('sub-*/ses-*/'))
        if not is_label(path.name.partition('-')[2])
    ]


def _compare_with_table(config: AppConfig, participants: Sequence[str]) -> list[Caution]:
    """List participants without a row in `participants.tsv`, and rows without a folder."""
    if not (config.bids_dir / 'participants.tsv').is_file():
        return []
    listed = {label for label, _ in read_participants(config.bids_dir).visits}
    found = [NO_ROW._replace(who=f'sub-{label}') for label in set(participants) - listed]
    if not config.participant_label:
        found += [NO_FOLDER._replace(who=f'sub-{label}') for label in listed - set(participants)]
    return found


def check_output_folder(bids_dir: Path, output_dir: Path) -> None:
    """Check that the output folder is separate from the dataset and writable.

    Inside the dataset, only `derivatives/<name>` is allowed. Links are resolved.
    """
    source, target = bids_dir.resolve(), output_dir.resolve()
    remedy = f'use {bids_dir / "derivatives" / "surreal_bids"}, or a folder outside of it'
    if target == source:
        raise OutputError(f'{output_dir}: the output folder is the dataset itself; {remedy}')
    if target.is_relative_to(source) and source / 'derivatives' not in target.parents:
        raise OutputError(f'{output_dir}: the output folder is inside the dataset; {remedy}')
    if source.is_relative_to(target):
        raise OutputError(f'{output_dir}: the dataset is inside the output folder; {remedy}')
    _refuse_other_outputs(output_dir)
    _check_writable(output_dir)


def _refuse_other_outputs(output_dir: Path) -> None:
    """Refuse a folder with another dataset, or the outputs of another program.

    Their `dataset_description.json` would be replaced.
    """
    try:
        content = json.loads(read_file(output_dir / DESCRIPTION))
        programs = [str(each['Name']) for each in content.get('GeneratedBy', [])]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return
    if 'surreal_bids' not in programs:
        what = f'the outputs of {", ".join(programs)}' if programs else 'another dataset'
        raise OutputError(f'{output_dir}: holds {what}; choose another folder')


def check_work_folder(bids_dir: Path, work_dir: Path) -> None:
    """Check that the work folder is outside of the dataset; links are resolved."""
    if work_dir.resolve().is_relative_to(bids_dir.resolve()):
        raise OutputError(
            f'{work_dir}: the work folder is inside the dataset; choose another one with -w'
        )
    _check_writable(work_dir)


def _check_writable(folder: Path) -> None:
    existing = _nearest_existing(folder)
    if not existing.is_dir():
        what = '' if existing == folder.absolute() else f'{existing} '
        raise OutputError(f'{folder}: {what}is a file; choose another folder')
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(f'{folder}: {existing} is not writable; choose another folder')


def _nearest_existing(folder: Path) -> Path:
    target = folder.resolve()
    return next(each for each in [target, *target.parents] if each.exists())


def free_bytes(folder: Path) -> int:
    """Return the free space of the disk of a folder that may not exist yet."""
    return shutil.disk_usage(_nearest_existing(folder)).free


def check_images(images: Sequence[T1wImage]) -> tuple[list[Problem], list[Caution]]:
    """Read all images; return those that cannot be used, and warnings about others."""
    # Threads help because decompression, the slow part, releases the interpreter.
    with ThreadPoolExecutor(IMAGES_AT_A_TIME) as pool:
        seen = list(with_bar(pool.map(_look_at, images), 'Checking images', len(images)))
    problems = [each for each in seen if isinstance(each, Problem)]
    sound = {image: each for image, each in zip(images, seen) if not isinstance(each, Problem)}
    notes = [note._replace(who=image.name) for image, (_, notes) in sound.items() for note in notes]
    return [*problems, *_copies({image: digest for image, (digest, _) in sound.items()})], notes


def _look_at(image: T1wImage) -> tuple[str, list[Caution]] | Problem:
    try:
        return check_image(image.path)
    except DataError as error:
        return Problem(image.name, str(error))


def check_image(path: Path) -> tuple[str, list[Caution]]:
    """Read an image and check voxel size, sides and field of view.

    Returns a digest of the voxels, and warnings.

    Raises
    ------
    DataError
        The image cannot be read, or its header cannot be of a head.
    """
    notes: list[Caution] = []
    image = load_image(path, notes.append)
    sizes = nib.affines.voxel_sizes(image.affine)
    if not (sizes.min() >= SMALLEST_VOXEL_MM and sizes.max() <= LARGEST_VOXEL_MM):
        raise DataError(
            f'{path}: voxels of {" x ".join(f"{size:g}" for size in sizes)} mm; correct the '
            'header, or convert it again'
        )
    if min(image.shape) == 1:
        raise DataError(f'{path}: one slice ({image.shape}), expected 3 dimensions')
    values = np.asarray(image.dataobj)
    if values.min() < 0 and np.mean(values > 0) < LEAST_POSITIVE:
        raise DataError(
            f'{path}: voxels from {values.min():g} to {values.max():g}, hardly any is positive; '
            'intensities are shifted, so correct scl_inter or convert it again'
        )
    intensity_range = float(values.max()) - float(values.min())
    if not SMALLEST_RANGE <= intensity_range <= LARGEST_RANGE:
        raise DataError(
            f'{path}: voxels from {values.min():g} to {values.max():g}; volumes would be wrong, so '
            'correct scl_slope, or multiply the intensities by a constant'
        )
    _check_sides(path)
    notes += filter(None, [doubt_voxels(image)])
    # A copy with another type, byte order or scale has the same digest.
    digest = hashlib.sha256(str(image.shape).encode())
    digest.update(np.asarray(values, dtype='<f4', order='F').tobytes('F'))
    return digest.hexdigest(), notes


def _check_sides(path: Path) -> None:
    """Check that the two affines of a NIfTI header agree on which side is left."""
    image = open_image(path)
    if not isinstance(image, nib.Nifti1Image):
        return
    if 0 in (int(image.header[name]) for name in ('sform_code', 'qform_code')):
        return
    sform, qform = image.get_sform(), read_qform(path, image)
    if np.linalg.det(sform[:3, :3]) * np.linalg.det(qform[:3, :3]) < 0:
        raise DataError(
            f'{path}: sform and qform disagree on which side is left; convert it again, or correct '
            'the header'
        )


def doubt_voxels(image: SpatialImage) -> Caution | None:
    """Warn of a field of view that is not of a head, or of voxels larger than any tested."""
    edges = np.array(image.shape[:3]) * nib.affines.voxel_sizes(image.affine)
    if edges.min() < SLAB_MM < edges.max() / 2 or edges.max() > LARGEST_VIEW_MM:
        shown = ' x '.join(f'{edge:.0f}' for edge in edges)
        return Caution(
            f'{shown} mm is no field of view of a head',
            'The brain may be incomplete, or volumes scaled wrongly',
            'Check the image and its header',
            FIGURES,
        )
    size = voxel_volume(image) ** (1 / 3)
    if size > WIDEST_TESTED_MM:
        return Caution(
            f'voxels of {size:.1f} mm; network and registration were tested up to 2 mm',
            'Regions and registration may be wrong',
            'Use an image with smaller voxels, or check all figures',
            FIGURES,
        )
    return None


def is_blank(path: Path) -> bool:
    """Tell whether all voxels of an image are 0; those of a damaged image are not."""
    try:
        return not np.any(read_voxels(path, open_image(path)))
    except DataError:
        return False


def _copies(digests: Mapping[T1wImage, str]) -> list[Problem]:
    """Report images with identical voxels: at least one has the wrong name."""
    alike: dict[str, list[T1wImage]] = {}
    for image, digest in digests.items():
        alike.setdefault(digest, []).append(image)
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
