"""Results of the group level in their places: tables that BIDS knows, and the model."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.bids.derivatives import output_path, write_sidecar
from surreal_bids.bids.participants import PARTICIPANT, SESSION
from surreal_bids.files import atomic_path, write_tsv
from surreal_bids.model.bundle import CARD, TENSORS
from surreal_bids.regions import recognise
from surreal_bids.tables.cohort import Cohort
from surreal_bids.tables.results import DECIMALS, describe_results
from surreal_bids.tables.visits import ICV, describe_volumes

VOLUME_DECIMALS = 2
"""Volumes of regions that are known are written to 0.01 mm3; the unit of others is not known."""


def publish_volumes(
    output_dir: Path, name: str, visits: pd.DataFrame, volumes: pd.DataFrame, cohort: Cohort
) -> Path:
    """Write a table of volumes and its description.

    Parameters
    ----------
    output_dir
        Root of the outputs.
    name
        `roi_volumes` or `harmonized_volumes`.
    visits : frame
        `participant_id`, and `session_id` if there are sessions, of each row.
    volumes : frame of the same rows
        Volumes, or, where they were divided by the ICV, proportions.
    cohort
        Tells what the regions are called.
    """
    is_volume = name == 'roi_volumes' or cohort.options.icv != 'proportion'
    known = {*recognise(volumes.columns), ICV}
    decimals = {column: VOLUME_DECIMALS for column in volumes if is_volume and column in known}
    table = pd.concat([visits, volumes.round(decimals)], axis=1)
    path = write_tsv(output_path(output_dir, name), table)
    write_sidecar(name, path, describe_volumes(table.columns, is_volume))
    return path


def publish_r_indices(
    output_dir: Path, cohort: Cohort, results: pd.DataFrame, pattern_names: list[str]
) -> Path:
    """Write everyone's R-indices and their description.

    Parameters
    ----------
    output_dir
        Root of the outputs.
    cohort
        Whose they are.
    results
        What `TableModel.apply` returned.
    pattern_names
        Names of the R-indices.
    """
    table = results.round(DECIMALS)
    if 'in_range' in table:
        table['in_range'] = table['in_range'].map(str, na_action='ignore').str.lower()
    table = pd.concat([identifiers(cohort.visits), cohort.visits['group'], table], axis=1)
    path = write_tsv(output_path(output_dir, 'rindices'), table)
    write_sidecar('rindices', path, describe_results(table.columns, pattern_names))
    return path


def identifiers(visits: pd.DataFrame) -> pd.DataFrame:
    """The columns that say whose visit it is."""
    return visits[[name for name in (PARTICIPANT, SESSION) if name in visits]]


def publish_model(output_dir: Path, model_dir: Path) -> None:
    """Copy a model; the card comes last, so that a folder with a card is complete."""
    output_path(output_dir, 'model_card').unlink(missing_ok=True)
    for name, file in (('model_weights', TENSORS), ('model_card', CARD)):
        with atomic_path(output_path(output_dir, name)) as temporary:
            shutil.copyfile(model_dir / file, temporary)


def publish_agreement(output_dir: Path, card: Mapping[str, Any]) -> None:
    """Write the table that M and lambda were chosen from, if the model was chosen from several."""
    if card['Agreement']:
        write_tsv(output_path(output_dir, 'agreement'), pd.DataFrame(card['Agreement']))
