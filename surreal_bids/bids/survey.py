"""All that can be known of a dataset before any long work: images, groups, problems."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surreal_bids.bids.checks import (
    Problem,
    check_images,
    check_output_folder,
    check_work_folder,
    missing_images,
)
from surreal_bids.bids.labels import alternatives, without_prefix
from surreal_bids.bids.layout import (
    T1wImage,
    find_t1w,
    read_description,
    read_filters,
    select_participants,
    select_sessions,
)
from surreal_bids.bids.participants import (
    PARTICIPANT,
    Table,
    find_group_column,
    read_participants,
    read_visits,
)
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import DataError, NothingMatchedError

LOGGER = logging.getLogger(__name__)


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
    labels = (config.control_label, config.patient_label)
    wrong = [label for label in labels if label and label not in values]
    if wrong:
        raise DataError(
            f'{people.source}: no {", ".join(wrong)} in column {column}; '
            f'{alternatives(wrong, values)}; correct --control-label or --patient-label'
        )
