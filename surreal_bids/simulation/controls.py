"""Healthy people to simulate disease in: read from a table, or drawn to resemble one.

Shape legend: N people, S = 139 regions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.covariance import LedoitWolf

from surreal_bids.exceptions import DataError
from surreal_bids.regions import Feature, build_features, muse_indices

PEOPLE_SPELLINGS = {
    'age': {'age', 'ageyears', 'ageatscan', 'ageatvisit'},
    'sex': {'sex', 'gender'},
    'site': {'site', 'siteid', 'scanner', 'center', 'centre'},
    'icv': {'icv', 'tiv', 'etiv', 'dlicv', 'muse702', 'dlmusevolume702', 'hmusevolume702', '702'},
}
"""Column spellings, in lower case and without separators, of what is known of a person."""

ID_SPELLINGS = {'id', 'participantid', 'subjectid', 'subject', 'mrid', 'ptid', 'rid'}
"""The same for the column that names the person."""

MIN_FITTED = 10
"""Fewest people whose volumes say anything about how regions vary together."""

SEX_WORDS = {'f': 'F', 'female': 'F', 'w': 'F', 'woman': 'F', 'm': 'M', 'male': 'M', 'man': 'M'}


@dataclass(frozen=True)
class Controls:
    """Healthy people: the volumes (N, S) in mm3, and their age, sex, site and icv, row by row."""

    volumes: pd.DataFrame
    people: pd.DataFrame


def volume_columns() -> list[str]:
    """Names of the 139 volume columns, ``MUSE_23`` to ``MUSE_207``."""
    return [f'MUSE_{index}' for index in muse_indices()]


def read_controls(path: str | Path) -> Controls:
    """Read healthy people from a CSV or TSV file, one row a person.

    Regions are recognised as :func:`surreal_bids.regions.recognise` says; all 139 are needed, and
    ventricles are left out. Age, sex, site and ICV are missing where there is no such column.

    Raises
    ------
    DataError
        If the file cannot be read, lacks a region, holds volumes that are missing or not positive,
        or has two rows for one person.
    """
    try:
        return controls_from_table(_read_table(Path(path)))
    except DataError as error:
        raise DataError(f'{path}: {error}') from error


def _read_table(path: Path) -> pd.DataFrame:
    separator = '\t' if path.suffix.lower() == '.tsv' else ','
    try:
        return pd.read_csv(path, sep=separator)
    except FileNotFoundError as error:
        raise DataError('there is no such file') from error
    except (OSError, pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(
            f'cannot be read as a table ({error}); give a .csv or .tsv file with a header'
        ) from error


def controls_from_table(table: pd.DataFrame) -> Controls:
    """Find the 139 regions and what is known of the people in a table; see `read_controls`."""
    table = table.rename(columns=str)
    _require_one_row_a_person(table)
    features = [Feature(f'MUSE_{index}', (index,)) for index in muse_indices()]
    volumes = build_features(table, features).reset_index(drop=True)
    _require_positive(volumes)
    return Controls(volumes, _known_of_people(table))


def _column_spelled(table: pd.DataFrame, spellings: set[str]) -> str | None:
    """Name of the first column that is spelled in one of these ways."""
    for column in table.columns:
        if re.sub(r'[^a-z0-9]', '', column.lower()) in spellings:
            return column
    return None


def _known_of_people(table: pd.DataFrame) -> pd.DataFrame:
    people = {}
    for name, spellings in PEOPLE_SPELLINGS.items():
        column = _column_spelled(table, spellings)
        people[name] = table[column].tolist() if column else [np.nan] * len(table)
    people['sex'] = [SEX_WORDS.get(str(sex).lower(), sex) for sex in people['sex']]
    return pd.DataFrame(people)


def _require_one_row_a_person(table: pd.DataFrame) -> None:
    column = _column_spelled(table, ID_SPELLINGS)
    if column is None:
        return
    repeated = table.loc[table[column].duplicated(), column].unique()
    if repeated.size:
        raise DataError(
            f'column {column!r} names {repeated[0]} more than once; keep one row a person, so that '
            'no one is both control and patient'
        )


def _require_positive(volumes: pd.DataFrame) -> None:
    bad = ~(volumes.to_numpy() > 0)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(
            f'{bad.any(axis=1).sum()} of {len(volumes)} rows hold a volume that is missing or not '
            f'positive, as {volumes.columns[column]} in row {row + 1}; leave these rows out'
        )


def resample_gaussian(controls: Controls, n_people: int, rng: np.random.Generator) -> Controls:
    """Draw people from a log-normal distribution fitted to the controls.

    Log volumes get the mean of the controls and their covariance as estimated by Ledoit and Wolf
    (2004), which is of full rank even where regions outnumber people. The people drawn are no one,
    so their age, sex, site and ICV are missing.
    """
    if len(controls.volumes) < MIN_FITTED:
        raise DataError(
            f'a distribution cannot be fitted to {len(controls.volumes)} people; '
            f'give {MIN_FITTED} or more'
        )
    log_volumes = np.log(controls.volumes.to_numpy())
    fitted = LedoitWolf().fit(log_volumes)
    drawn = rng.multivariate_normal(
        fitted.location_, fitted.covariance_, size=n_people, method='cholesky'
    )
    unknown = pd.DataFrame(np.nan, index=range(n_people), columns=controls.people.columns)
    return Controls(pd.DataFrame(np.exp(drawn), columns=controls.volumes.columns), unknown)
