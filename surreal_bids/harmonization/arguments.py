"""Tables as users give them to ComBat: frames, matched by index, or arrays, matched by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from surreal_bids.exceptions import DataError
from surreal_bids.text import counted, list_briefly

Rows = TypeVar('Rows', pd.DataFrame, 'pd.Series[Any]')


def features_frame(
    X: pd.DataFrame | ArrayLike, index_of: tuple[Any, ...], names: list[str] | None = None
) -> pd.DataFrame:
    """Make a frame of features; those of arrays are numbered, if they have no names yet.

    Parameters
    ----------
    X : frame or array of shape (n, n_features)
        Features.
    index_of
        Other tables of the same participants. An array has the index of the first frame or Series
        with as many rows.
    names
        Names of the features of a fitted model; None: `X` defines them.

    Raises
    ------
    DataError
        `X` is no table of numbers, or lacks a feature.
    """
    if isinstance(X, pd.DataFrame):
        table = X if all(isinstance(name, str) for name in X) else X.rename(columns=str)
    else:
        table = _from_array(np.asarray(X), index_of, names)
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()]
        raise DataError(f'X: {list_briefly(twice)}: several columns of this name; keep one')
    if names is not None:
        missing = [name for name in names if name not in table]
        if missing:
            raise DataError(f'X: no feature {list_briefly(missing)}, which ComBat was fitted on')
        table = table[names]
    try:
        table.to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f'X: features must be numbers ({error})') from error
    return table


def _from_array(
    values: np.ndarray, index_of: tuple[Any, ...], names: list[str] | None
) -> pd.DataFrame:
    if values.ndim != 2:
        raise DataError(
            f'X must be a table of participants by features, not an array of shape {values.shape}; '
            'reshape it'
        )
    if names is not None and values.shape[1] != len(names):
        raise DataError(
            f'X has {values.shape[1]} features, but ComBat was fitted on {len(names)}; give the '
            'same ones in the same order'
        )
    index: pd.Index = pd.RangeIndex(len(values))
    for other in index_of:
        if isinstance(other, pd.Series | pd.DataFrame) and len(other) == len(values):
            index = other.index
            break
    columns = names or [str(number) for number in range(values.shape[1])]
    return pd.DataFrame(values, index, columns)


def series_of(values: pd.Series[Any] | ArrayLike, index: pd.Index, what: str) -> pd.Series[Any]:
    """Make a Series of one value for each participant of `index`."""
    if isinstance(values, pd.Series):
        return rows_of(values, index, what)
    array = np.asarray(values)
    if array.shape != (len(index),):
        raise DataError(
            f'{what}: an array of shape {array.shape} for {counted(len(index), "participant")}; '
            'give one value each, in the order of X'
        )
    return pd.Series(array, index)


def covariates_frame(
    covariates: pd.DataFrame | pd.Series[Any] | ArrayLike,
    index: pd.Index,
    names: Sequence[str] = (),
) -> pd.DataFrame:
    """Make a frame of the covariates of each participant of `index`; arrays are numbered.

    Parameters
    ----------
    covariates : frame, Series or array of shape (n, n_covariates)
        Covariates.
    index
        Participants.
    names
        Names of the covariates of a fitted model; none: `covariates` defines them.

    Raises
    ------
    DataError
        A participant has no row, or a covariate of the model is missing.
    """
    if isinstance(covariates, pd.Series):
        covariates = covariates.to_frame()
    if isinstance(covariates, pd.DataFrame):
        table = rows_of(covariates, index, 'covariates').rename(columns=str)
        missing = [name for name in names if name not in table]
        if missing:
            raise DataError(f'covariates: no {list_briefly(missing)}, which ComBat was fitted with')
        return table
    array = np.asarray(covariates)
    if array.ndim not in (1, 2) or len(array) != len(index):
        raise DataError(
            f'covariates: an array of shape {array.shape} for '
            f'{counted(len(index), "participant")}; give one row each, in the order of X'
        )
    table = pd.DataFrame(array.reshape(len(index), -1), index).infer_objects()
    numbered = [f'covariate {number}' for number in range(1, table.shape[1] + 1)]
    if names and len(names) != len(numbered):
        raise DataError(
            f'covariates: {counted(len(numbered), "column")}, but ComBat was fitted with '
            f'{list_briefly(names)}; give the same ones in the same order'
        )
    return table.set_axis(list(names or numbered), axis=1)


def rows_of(table: Rows, index: pd.Index, what: str) -> Rows:
    """Return the rows of these participants.

    Raises
    ------
    DataError
        A participant has no row, or several.
    """
    if table.index.equals(index):
        return table
    absent = index[~index.isin(table.index)]
    if len(absent):
        raise DataError(
            f'{what}: no row for {counted(len(absent), "participant")} of X '
            f'({list_briefly(absent)}); add them, with the same index as X'
        )
    if not table.index.is_unique:
        twice = table.index[table.index.duplicated()].unique()
        raise DataError(
            f'{what}: several rows for {list_briefly(twice)}; give one row for each of X'
        )
    return table.loc[index]
