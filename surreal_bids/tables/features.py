"""Which numbers of a table are features, and how to find or sum them in the next table."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.bids.people import Table, about, find_column, require_columns
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.regions import (
    Feature,
    build_features,
    feature_set,
    muse_indices,
    recognise,
    region_names,
)
from surreal_bids.text import name_some

LOGGER = logging.getLogger(__name__)

NAMED_SETS = ('muse72', 'muse139')
"""Feature sets known by name: what the authors' checkpoints take, and all single regions."""

VOLUME_UNIT = 'mm3'
UNKNOWN_UNIT = 'as in the table'

PERSON_COLUMNS = frozenset(
    {'age', 'apoe', 'apoe4', 'diagnosis', 'dlicv', 'dx', 'education', 'etiv', 'gender', 'group',
     'handedness', 'height', 'icv', 'label', 'mmse', 'race', 'scanner', 'session', 'sessionid',
     'sex', 'site', 'study', 'tiv', 'visit', 'weight'}
)  # fmt: skip
"""Columns that are hardly meant as features: letters and digits of their names only."""


@dataclass(frozen=True)
class FeatureList:
    """The features of a model, in order.

    Attributes
    ----------
    name
        `muse72`, `muse139`, or `columns`: columns that the user chose.
    features
        Name of each, and the MUSE regions it sums; no region where it is no MUSE volume.
    unit
        Unit of the numbers.
    """

    name: str
    features: tuple[Feature, ...]
    unit: str

    def __len__(self) -> int:
        return len(self.features)

    @property
    def names(self) -> list[str]:
        """Names of the features, in order."""
        return [feature.name for feature in self.features]

    @property
    def atlas(self) -> str | None:
        """MUSE, if the features are its regions."""
        return 'MUSE' if all(feature.indices for feature in self.features) else None

    def to_json(self) -> dict[str, Any]:
        """Return name, unit and features as plain JSON values."""
        return {
            'name': self.name,
            'unit': self.unit,
            'features': [
                {'name': feature.name, 'muse_regions': list(feature.indices)}
                for feature in self.features
            ],
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> FeatureList:
        """Rebuild the list from `to_json`."""
        features = [Feature(f['name'], tuple(f['muse_regions'])) for f in state['features']]
        return cls(state['name'], tuple(features), state['unit'])


def named_features(name: str) -> FeatureList:
    """Look up `muse72` or `muse139`."""
    if name == 'muse139':
        regions = region_names()
        features = tuple(Feature(regions[index], (index,)) for index in muse_indices())
    else:
        features = feature_set(name)
    return FeatureList(name, features, VOLUME_UNIT)


def column_features(columns: Iterable[str]) -> FeatureList:
    """Features that are columns of a table; if all are MUSE regions, any spelling finds them."""
    columns = list(columns)
    regions = recognise(columns)
    if len(regions) == len(columns):
        features = tuple(Feature(column, (index,)) for column, index in regions.items())
        return FeatureList('columns', features, VOLUME_UNIT)
    return FeatureList('columns', tuple(Feature(name, ()) for name in columns), UNKNOWN_UNIT)


def listed_features(wanted: str) -> FeatureList:
    """Features that the user asked for: a named set, or a text file with one name a line."""
    if wanted in NAMED_SETS:
        return named_features(wanted)
    path = Path(wanted)
    try:
        lines = [line.strip() for line in path.read_text(encoding='utf-8-sig').splitlines()]
    except OSError as error:
        raise UsageError(
            f'--features {wanted}: neither {" nor ".join(NAMED_SETS)} nor a readable file '
            f'({error.strerror}); give a text file with one feature a line'
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f'{path}: not UTF-8 text; list one feature a line') from error
    names = [line for line in lines if line]
    if not names:
        raise DataError(f'{path}: the file is empty; list one feature a line')
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f'{path}: listed more than once: {name_some(repeated)}; list it once')
    with about(path):
        return column_features(names)


def remaining_features(table: Table, used: Iterable[str]) -> FeatureList:
    """All columns of a table that nothing else uses, for want of a list of features.

    Raises
    ------
    DataError
        One of them is hardly meant as a feature (age, sex), or none is left.
    """
    others = set(used)
    columns = [name for name in table.columns if name not in others]
    doubtful = [name for name in columns if re.sub('[^a-z0-9]', '', name.lower()) in PERSON_COLUMNS]
    if doubtful:
        raise DataError(
            f'{table.source}: is {name_some(doubtful)} a feature? If it describes people, name it '
            'with --covariates, --site-column, --icv-column or --group-column, drop it, or list '
            'the features with --features'
        )
    if not columns:
        raise DataError(f'{table.source}: no column is left to be a feature; add the regions')
    with about(table.source):
        return column_features(columns)


def read_features(table: Table, wanted: FeatureList) -> pd.DataFrame:
    """Numbers of the wanted features, (people, features), NaN where missing.

    Columns are found by name, in any order; MUSE regions in any usual spelling, and sums of
    regions are built where the table has the single ones.

    Raises
    ------
    DataError
        A column is missing (the nearest are named) or holds text (the person is named).
    """
    columns = {name: find_column(table.columns, name) for name in wanted.names}
    if None not in columns.values() or not wanted.features[0].indices:
        found = require_columns(table, wanted.names)
        return pd.DataFrame({name: table.numbers(column) for name, column in found.items()})
    needed = {index for feature in wanted.features for index in feature.indices}
    with about(table.source):
        regions = recognise(table.columns)
        volumes = {name: table.numbers(name) for name, index in regions.items() if index in needed}
        return build_features(pd.DataFrame(volumes, table.text.index), wanted.features)


def unused_columns(table: Table, wanted: FeatureList, used: Iterable[str]) -> list[str]:
    """Columns of a table that are neither features nor used otherwise."""
    known = {*wanted.names, *used}
    needed = {index for feature in wanted.features for index in feature.indices}
    known |= {name for name, index in recognise(table.columns).items() if index in needed}
    folded = {name.lower() for name in known}
    return [name for name in table.columns if name.lower() not in folded]
