"""What a model is trained on: tables read, checked, and reduced to the people of both groups."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from surreal_bids.bids.participants import Table
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.tables import name_some
from surreal_bids.tables.features import (
    FeatureList,
    listed_features,
    read_features,
    remaining_features,
)
from surreal_bids.tables.groups import SAID_NOTHING, GroupLabels, Groups, find_groups
from surreal_bids.tables.people import PreprocessingOptions, read_person_columns, require_distinct
from surreal_bids.tables.reading import find_column, join_participants, person_key, read_people
from surreal_bids.tables.screening import require_numbers

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """People of both groups, in one order.

    Attributes
    ----------
    groups
        Who is a control and who is a patient.
    wanted
        The features, and how to find them in the next table.
    features : frame of shape (n_people, n_features)
        Features as measured, NaN where missing.
    people : frame of shape (n_people, n_columns)
        Covariates, ICV and site.
    """

    groups: Groups
    wanted: FeatureList
    features: pd.DataFrame
    people: pd.DataFrame


def read_training_table(
    table_path: Path,
    participants_path: Path | None,
    options: PreprocessingOptions,
    features: str | None = None,
    said: GroupLabels = SAID_NOTHING,
) -> TrainingTable:
    """Read and check everything that training needs, and take the people of the two groups.

    Parameters
    ----------
    table_path
        Table of the features.
    participants_path
        Table of what is known of people; None: that is in the first one too.
    options
        What preprocessing needs of people.
    features
        `muse72`, `muse139`, or a text file of column names; None: all columns not used otherwise.
    said
        What the user said of the groups; the rest is recognised.
    """
    table = read_people(table_path)
    participants = read_people(participants_path) if participants_path else None
    people = join_participants(table, participants)
    groups = find_groups(people, said)
    LOGGER.info('%s: %s', people.source, groups.describe())
    require_distinct(options, groups.column)
    if features is not None:
        wanted = listed_features(features)
    else:
        wanted = remaining_features(table, _person_columns(table, participants, groups, options))
    members = groups.is_patient.index
    _require_single_visits(table.source, members)
    described = read_person_columns(Table(people.source, people.text.loc[members]), options)
    require_numbers(described[list(options.covariates)])
    return TrainingTable(
        groups,
        wanted,
        read_features(Table(table.source, table.text.loc[members]), wanted),
        described,
    )


def _require_single_visits(source: Path, names: pd.Index) -> None:
    """Refuse several visits of one person, who would count as several people."""
    people = names.to_series().map(lambda name: person_key(str(name)).split('_ses-')[0])
    repeated = people[people.duplicated()].tolist()
    if repeated:
        raise DataError(
            f'{source}: several visits of {name_some(repeated)}; train with one visit of each '
            'person, and apply the model to all'
        )


def _person_columns(
    table: Table, participants: Table | None, groups: Groups, options: PreprocessingOptions
) -> list[str]:
    """Columns of the table that describe people: those in use, and those of the other table."""
    named = (groups.column, options.icv_column, *options.columns)
    used = [find_column(table.columns, name) for name in named if name is not None]
    return [*(name for name in used if name), *(participants.columns if participants else [])]
