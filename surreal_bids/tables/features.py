"""Which numbers of a table are features, and how to find or sum them in the next table."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.bids.people import ID_COLUMNS, Table, about, find_column, letters, require_columns
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.regions import (
    DERIVED,
    FREESURFER,
    FREESURFER_REGION,
    VENTRICLES,
    Feature,
    build_features,
    feature_set,
    is_total,
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
     'sex', 'site', 'study', 'tiv', 'visit', 'weight', 'ageatscan', 'ageyears', 'agemonths', 'bmi',
     'cdr', 'cdrsum', 'date', 'dob', 'educ', 'euler', 'mrid', 'ptgender', 'ptid', 'r1', 'r2', 'r3',
     'rid', 'run', 'scandate', 'subjectid', 'viscode', 'yearsofeducation', *ID_COLUMNS}
)  # fmt: skip
"""Columns that are hardly meant as features: letters and digits of their names only."""


MOSTLY_NUMBERS = 0.5
"""A column of which a larger share begins like a number is meant to hold numbers."""

FEWEST_COUNTED = 5
"""Rows from which a column 1, 2, 3 ... is no coincidence."""


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


INDEX_COLUMNS = frozenset(
    {'', 'index', 'row', 'rows', 'rowname', 'rownames', 'x', 'unnamed0', 'rownumber'}
)
"""Columns that count rows, by the letters and digits of their names."""


def choose_features(table: Table, others: Iterable[str]) -> tuple[FeatureList, list[str]]:
    """Find the regions of a table: its features where none are named.

    Where most columns are regions of MUSE or FreeSurfer, these are, ventricles apart; else all
    columns of numbers that neither describe participants nor sum other columns.

    Parameters
    ----------
    table
        Volumes.
    others
        Columns that are used otherwise, or that the table of participants has too.

    Returns
    -------
    features, notes
        The features, and which columns are not among them.

    Raises
    ------
    DataError
        A column counts rows, or no region is left.
    """
    used = set(others)
    refuse_index_columns(table, used)
    columns = [name for name in table.columns if name not in used]
    freesurfer = any(FREESURFER.fullmatch(name) for name in columns)
    numbered = not freesurfer and _is_numbered_otherwise(columns)
    totals = [name for name in columns if is_total(name) and not (numbered and name.isdecimal())]
    columns = [name for name in columns if name not in totals]
    known = {name: 0 for name in columns if FREESURFER_REGION.fullmatch(name)}
    if not (freesurfer or numbered):
        with about(table.source):
            known = recognise(columns)
    if len(known) > len(columns) / 2:
        regions = [name for name, index in known.items() if index not in VENTRICLES]
    else:
        known = {n: 0 for n in columns if _some_numbers(table, n)}
        regions = [name for name in known if letters(name) not in PERSON_COLUMNS]
    rest = [name for name in columns if name not in regions]
    if not regions:
        raise DataError(
            f'{table.source}: no column holds regional volumes; there are '
            f'{name_some(table.columns) or "no others"}'
        )
    notes = [f'Sums or fluid, not used as features: {name_some(totals)}'] if totals else []
    if rest:
        notes.append(f'Columns not used as features (--features names them): {name_some(rest)}')
    return column_features(regions), notes


def refuse_index_columns(table: Table, used: Collection[str] = ()) -> None:
    """Refuse columns without a name, and columns that count rows."""
    for name in table.columns:
        if name in used:
            continue
        if letters(name) in INDEX_COLUMNS or name.startswith('Unnamed:') or _counts(table, name):
            shown = f'column {name}' if name else 'a column without a name'
            raise DataError(f'{table.source}: {shown} seems to count rows, not a region; drop it')


def _counts(table: Table, name: str) -> bool:
    """Tell whether a column holds 0, 1, 2 ... or 1, 2, 3 ..."""
    cells = table.text[name].tolist()
    steps = [str(k) for k in range(len(cells) + 1)]
    return len(cells) > FEWEST_COUNTED and cells in (steps[:-1], steps[1:])


def _is_numbered_otherwise(columns: Iterable[str]) -> bool:
    """Tell whether the names of columns are numbers that are not those of MUSE."""
    known = {*region_names(), *DERIVED}
    return any(int(name) not in known for name in columns if name.isdecimal())


def _some_numbers(table: Table, name: str) -> bool:
    """Tell whether a column is meant to hold numbers: half of what is in it are some, or nearly."""
    cells = table.text[name].dropna()
    return not len(cells) or bool(cells.str.match(r'[+-]?[.,]?\d').mean() > MOSTLY_NUMBERS)


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
