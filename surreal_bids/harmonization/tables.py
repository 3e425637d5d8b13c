"""Tables of people: from frames or arrays to aligned frames, and back to what the caller gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.exceptions import DataError

Table = TypeVar('Table', pd.DataFrame, NDArray[Any])

LISTED = 10
"""How many names an error or a log line spells out before it only counts them."""

CONSTANT = 1e-10
"""A feature that varies by less than this share of its largest value is constant up to rounding."""

FILL_OR_EXCLUDE = 'complete the table, exclude these people, or impute'
"""What to do about missing feature values."""


def name_some(names: Sequence[Any] | pd.Index[Any]) -> str:
    """Spell out the first names and count the rest, so that a message stays readable."""
    shown = ', '.join(str(name) for name in names[:LISTED])
    more = len(names) - LISTED
    return f'{shown} and {more} more' if more > 0 else shown


def as_features(X: pd.DataFrame | NDArray[Any]) -> pd.DataFrame:
    """Read features as a float frame of people x features; an array gets numbered names.

    Raises
    ------
    DataError
        A person or a feature is named twice, or a value is not a number.
    """
    table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.atleast_2d(np.asarray(X)))
    _require_unique(table.index, 'person')
    _require_unique(table.columns, 'feature')
    try:
        return table.astype(np.float64)
    except (TypeError, ValueError) as error:
        text = [name for name in table.columns if _holds_text(table[name])]
        raise DataError(
            f'features hold text, not numbers: {name_some(text)}; leave these columns out'
        ) from error


def as_covariates(
    covariates: pd.DataFrame | ArrayLike | None, people: pd.Index[Any]
) -> pd.DataFrame:
    """Read covariates as a frame with one row for each of `people`, in that order.

    Frames are matched by name when theirs are the same people, whatever the order; arrays are
    matched by position. None stands for no covariates at all.

    Raises
    ------
    DataError
        The covariates are about other people than the features.
    """
    if covariates is None:
        return pd.DataFrame(index=people)
    if not isinstance(covariates, pd.DataFrame):
        covariates = _from_array(np.asarray(covariates), people)
    _require_unique(covariates.index, 'person')
    return covariates.loc[_same_people(covariates.index, people, 'covariates')]


def as_vector(values: pd.Series[Any] | ArrayLike, people: pd.Index[Any], name: str) -> NDArray[Any]:
    """Read one value a person (site, is-control, ICV), in the order of `people`."""
    if isinstance(values, pd.Series):
        _require_unique(values.index, 'person')
        return values.loc[_same_people(values.index, people, name)].to_numpy()
    array = np.asarray(values)
    if array.shape != (len(people),):
        raise DataError(f'{name}: {array.shape} values for {len(people)} people; give one each')
    return array


def as_labels(values: pd.Series[Any] | ArrayLike) -> NDArray[np.str_]:
    """Read names of levels or sites as text.

    3 and 3.0 are the same name, since a column of numbers becomes floats where one is missing.
    """
    return np.array([_label(value) for value in np.asarray(values, dtype=object)], dtype=str)


def _label(value: Any) -> str:
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def as_mask(
    is_control: pd.Series[Any] | ArrayLike, people: pd.Index[Any], name: str = 'is_control'
) -> NDArray[np.bool_]:
    """Read a True/False value a person; anything else than booleans or 0/1 is refused."""
    values = as_vector(is_control, people, name)
    if not np.isin(values, [True, False]).all():
        raise DataError(f'{name}: values other than True and False (or 1 and 0)')
    return values.astype(bool)


def order_features(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Put the columns in the learned order; refuse a table with other features.

    A table read from an array has no names of its own: its columns are taken by position.
    """
    unnamed = isinstance(table.columns, pd.RangeIndex) and table.shape[1] == len(names)
    if unnamed:
        return table.set_axis(list(names), axis=1)
    have = table.set_axis(table.columns.astype(str), axis=1)
    missing = [name for name in names if name not in have.columns]
    surplus = [name for name in have.columns if name not in set(names)]
    if missing or surplus:
        raise DataError(
            f'features differ from those learned: missing [{name_some(missing)}], '
            f'not known [{name_some(surplus)}]; give the same regions'
        )
    return have.loc[:, list(names)]


def require_finite(table: pd.DataFrame, what: str, remedy: str) -> None:
    """Raise a DataError that names people and columns where a number is missing or infinite."""
    wrong = ~np.isfinite(table.to_numpy(dtype=np.float64))
    if wrong.any():
        people = table.index[wrong.any(axis=1)]
        columns = table.columns[wrong.any(axis=0)]
        raise DataError(
            f'{what}: missing or infinite values for {len(people)} people '
            f'({name_some(people)}) in {name_some(columns)}; {remedy}'
        )


def like(values: NDArray[np.float64], given: Table, table: pd.DataFrame) -> Table:
    """Return `values` as the caller gave the features: a frame for a frame, an array for one."""
    if isinstance(given, pd.DataFrame):
        return pd.DataFrame(values, index=table.index, columns=table.columns)
    return values


def _holds_text(values: pd.Series[Any]) -> bool:
    numbers = pd.to_numeric(values, errors='coerce')
    return bool((numbers.isna() & values.notna()).any())


def _from_array(values: NDArray[Any], people: pd.Index[Any]) -> pd.DataFrame:
    columns = values.reshape(len(values), -1)
    if len(columns) != len(people):
        raise DataError(f'covariates: {len(columns)} rows for {len(people)} people; give one each')
    names = [f'covariate_{number}' for number in range(columns.shape[1])]
    return pd.DataFrame(columns, index=people, columns=names)


def _same_people(have: pd.Index[Any], people: pd.Index[Any], what: str) -> pd.Index[Any]:
    missing = people.difference(have)
    if len(missing):
        raise DataError(
            f'{what}: nothing for {len(missing)} people ({name_some(missing)}); '
            'index both tables by the same person names'
        )
    return people


def _require_unique(names: pd.Index[Any], what: str) -> None:
    if names.has_duplicates:
        twice = names[names.duplicated()].unique()
        raise DataError(f'the same {what} more than once: {name_some(twice)}; keep one row each')
