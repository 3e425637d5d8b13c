"""Tables with their JSON sidecars; `bids/columns.yaml` describes the columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from surreal_bids.analysis.change import FALSE_ALARMS, LEAST_YEARS
from surreal_bids.analysis.image_quality import FEWEST_IMAGES, OUTLYING
from surreal_bids.bids.outputs import Column, describe_columns
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.encoding import TOLERATED
from surreal_bids.imaging.norms import NORM_PEOPLE
from surreal_bids.model.number import LEAST_OF_SEVERAL, LEAST_STABILITY
from surreal_bids.names import TRAINED_ON_SUFFIX
from surreal_bids.regions import recognise, region_names
from surreal_bids.rindices.crossfit import MIN_REPRODUCED
from surreal_bids.rindices.intervals import INCLUDED
from surreal_bids.rindices.measurement_noise import describe_noise
from surreal_bids.rindices.preprocessing import NONE_BEYOND
from surreal_bids.rindices.uncertainty import AGE_RANGE, MIN_FOR_CENTILES, SHARE

EXCLUDED = 'excluded'
"""Status of a participant who was screened out."""

OWN_CONTROLS = (
    'the controls of this study, with the error of the prediction. Controls are compared with the '
    'other controls'
)
CONTROLS_OF_MODEL = (
    'the controls that the model learned from (this study has too few), without the error of the '
    'prediction'
)
"""Whom z-scores refer to."""

CONSTANTS = {
    'age_range': AGE_RANGE,
    'controls': OWN_CONTROLS,
    'false_alarms': FALSE_ALARMS,
    'fewest_images': FEWEST_IMAGES,
    'included': INCLUDED,
    'least_of_several': LEAST_OF_SEVERAL,
    'least_stability': LEAST_STABILITY,
    'min_correlation': MIN_REPRODUCED,
    'min_for_centiles': MIN_FOR_CENTILES,
    'min_years': LEAST_YEARS,
    'none_beyond': NONE_BEYOND,
    'noise': describe_noise(),
    'norm_people': NORM_PEOPLE,
    'outlying': OUTLYING,
    'share': SHARE,
    'tolerated': TOLERATED,
    'trained_on_suffix': TRAINED_ON_SUFFIX,
}
"""Values that descriptions of columns mention."""


HARMONIZED = ', after ComBat (if sites were harmonized); covariates not removed'


def write_described(name: str, path: Path, table: pd.DataFrame) -> dict[str, Column]:
    """Write a table and its JSON sidecar; returns the content of the sidecar.

    Parameters
    ----------
    name
        Name of the table in `columns.yaml`.
    path
        The TSV file; the sidecar has the same name with the extension `.json`.
    table
        Content of the table.
    """
    described = describe_table(name, table.columns)
    write_json(path.with_suffix('.json'), described)
    write_tsv(path, table)
    return described


def describe_table(name: str, columns: Iterable[str], **values: object) -> dict[str, Column]:
    """Return the sidecar of a table whose columns are all in `columns.yaml`.

    `values` replace some of `CONSTANTS`.
    """
    known = describe_columns(name, **CONSTANTS | values)
    return {str(column): known[str(column)] for column in columns}


def describe_results(
    columns: Iterable[str], pattern_names: Sequence[str], meanings: Mapping[str, str]
) -> dict[str, Column]:
    """Return the sidecar of a table of R-indices.

    Parameters
    ----------
    columns
        Columns of the table.
    pattern_names
        Names of the R-indices.
    meanings
        Meaning of R-indices by name, as far as the model tells.
    """
    known = describe_columns('rindices', **CONSTANTS)
    for pattern in pattern_names:
        known |= describe_columns('rindices_pattern', pattern=pattern, **CONSTANTS)
    for pattern, meaning in meanings.items():
        known[pattern] = {'LongName': meaning, **known[pattern]}
    return {column: known[column] for column in columns}


def describe_regions(table: str, columns: Iterable[str], **values: object) -> dict[str, Column]:
    """Return the sidecar of a table of contributions or deviations; see `describe_table`."""
    columns, known = list(columns), describe_columns(table, **CONSTANTS | values)
    names = _region_names(columns)
    for column in set(columns) - set(known):
        region = names.get(column, column)
        known |= describe_columns(f'{table}_region', column=column, region=region)
    return {column: known[column] for column in columns}


def describe_volumes(
    columns: Iterable[str], is_volume: bool = True, is_harmonized: bool = False
) -> dict[str, Column]:
    """Return the sidecar of a table of volumes.

    Parameters
    ----------
    columns
        Columns of the table.
    is_volume
        Whether the numbers are in mm3; else they are proportions of the intracranial volume.
    is_harmonized
        Whether they are harmonized, not as measured.
    """
    columns, known = list(columns), describe_columns('volumes')
    names = _region_names(columns)
    values = {'unit': 'mm^3' if is_volume else '1', 'steps': HARMONIZED if is_harmonized else ''}
    for column in set(columns) - set(known):
        kind = 'volumes_region' if column in names else 'volumes_other'
        known |= describe_columns(kind, column=column, region=names.get(column), **values)
    return {column: known[column] for column in columns}


def _region_names(columns: Sequence[str]) -> dict[str, str]:
    """Return the names of the regions that columns stand for, where they are recognised."""
    return {column: region_names()[index] for column, index in recognise(columns).items()}
