"""Covariates as numbers: a design matrix learned once and built again for new people."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.splines import SplineBasis
from surreal_bids.harmonization.tables import as_labels, name_some

LOGGER = logging.getLogger(__name__)


class CovariateEncoder:
    """Turn a table of covariates into the columns of a design matrix.

    Numbers stay one column; text (sex as F and M, diagnosis) becomes one column a level but the
    first in alphabetical order; a smooth covariate becomes the functions of a cubic spline.

    Parameters
    ----------
    smooth : sequence of str
        Numeric covariates to expand in splines.
    categorical : sequence of str
        Covariates whose numbers are names of levels (a scanner number), not amounts.
    n_functions : int
        Spline functions of each smooth covariate, counting the one left out.

    Attributes
    ----------
    levels_ : dict of str to list of str
        Levels of each categorical covariate, the reference level first.
    range_ : dict of str to (float, float)
        Smallest and largest value seen of each numeric covariate.
    splines_ : dict of str to SplineBasis
        Basis of each smooth covariate.
    covariates_ : list of str
        The covariates learned, in order.
    """

    def __init__(
        self,
        smooth: Sequence[str] = (),
        categorical: Sequence[str] = (),
        n_functions: int = 10,
    ) -> None:
        self.smooth = smooth
        self.categorical = categorical
        self.n_functions = n_functions

    def fit(self, covariates: pd.DataFrame) -> CovariateEncoder:
        """Learn levels, ranges and knots from `covariates`, which has no missing value.

        Raises
        ------
        DataError
            A covariate asked for is absent, has one value only, or is smooth but not numeric.
        """
        self.covariates_ = [str(name) for name in covariates.columns]
        table = covariates.set_axis(self.covariates_, axis=1)
        self._require_known(self.covariates_)
        text = {name for name in self.covariates_ if self._is_categorical(table[name])}
        for name in self.covariates_:
            if table[name].nunique() < 2:
                raise DataError(
                    f'covariate {name}: the {len(table)} people to learn from all have the same '
                    'value, so its effect cannot be estimated; leave it out'
                )
        self.levels_ = {name: np.unique(as_labels(table[name])).tolist() for name in sorted(text)}
        numbers = {name: _to_numbers(table[name]) for name in self.covariates_ if name not in text}
        self.range_ = {name: (float(x.min()), float(x.max())) for name, x in numbers.items()}
        self.splines_ = {name: self._spline(numbers, name) for name in self.smooth}
        return self

    def transform(self, covariates: pd.DataFrame) -> NDArray[np.float64]:
        """Build the columns (n, n_columns) for people without a missing covariate.

        Raises
        ------
        DataError
            A covariate or a level is not known, or a number is text.
        """
        table = self.select(covariates)
        blocks = [self._encode(table[name]) for name in self.covariates_]
        return np.hstack([np.empty((len(table), 0)), *blocks])

    def select(self, covariates: pd.DataFrame) -> pd.DataFrame:
        """Take the learned covariates out of a table that may hold more."""
        table = covariates.set_axis(covariates.columns.astype(str), axis=1)
        missing = [name for name in self.covariates_ if name not in table.columns]
        if missing:
            raise DataError(
                f'covariates missing from the table: {name_some(missing)}; '
                f'the model was learned with {name_some(self.covariates_)}'
            )
        return table.loc[:, self.covariates_]

    @property
    def column_names_(self) -> list[str]:
        """Names of the columns: `age`, `sex[M]`, `age[s1]`."""
        names: list[str] = []
        for name in self.covariates_:
            if name in self.levels_:
                names += [f'{name}[{level}]' for level in self.levels_[name][1:]]
            elif name in self.splines_:
                count = self.splines_[name].knots.size - 5
                names += [f'{name}[s{number}]' for number in range(1, count + 1)]
            else:
                names.append(name)
        return names

    @property
    def roughness_(self) -> list[NDArray[np.float64]]:
        """Penalty matrix (n_columns, n_columns) of each smooth covariate, zero off its columns."""
        names = self.column_names_
        matrices = []
        for name, basis in self.splines_.items():
            own = [number for number, column in enumerate(names) if column.startswith(f'{name}[s')]
            matrix = np.zeros((len(names), len(names)))
            matrix[np.ix_(own, own)] = basis.penalty()
            matrices.append(matrix)
        return matrices

    def warn_beyond_range(self, covariates: pd.DataFrame) -> None:
        """Log, for each numeric covariate, the people outside what was seen."""
        outside = self.beyond_range(covariates)
        for name in outside.columns[outside.any(axis=0)]:
            low, high = self.range_[name]
            people = name_some(outside.index[outside[name]])
            LOGGER.warning('%s beyond the %g to %g learned from: %s', name, low, high, people)

    def beyond_range(self, covariates: pd.DataFrame) -> pd.DataFrame:
        """Flag numeric covariates outside what was seen: booleans, people x numeric covariates."""
        table = self.select(covariates)
        flags = {}
        for name, (low, high) in self.range_.items():
            values = _to_numbers(table[name])
            flags[name] = (values < low) | (values > high)
        return pd.DataFrame(flags, index=table.index, columns=list(self.range_), dtype=bool)

    def to_json(self) -> dict[str, Any]:
        """Return what was asked and learned as plain JSON values."""
        return {
            'smooth': list(self.smooth),
            'categorical': list(self.categorical),
            'n_functions': int(self.n_functions),
            'covariates': list(self.covariates_),
            'levels': {name: list(levels) for name, levels in self.levels_.items()},
            'range': {name: list(bounds) for name, bounds in self.range_.items()},
            'knots': {name: basis.knots.tolist() for name, basis in self.splines_.items()},
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> CovariateEncoder:
        """Rebuild an encoder from `to_json`."""
        encoder = cls(tuple(state['smooth']), tuple(state['categorical']), state['n_functions'])
        encoder.covariates_ = list(state['covariates'])
        encoder.levels_ = {name: list(levels) for name, levels in state['levels'].items()}
        encoder.range_ = {name: (low, high) for name, (low, high) in state['range'].items()}
        encoder.splines_ = {
            name: SplineBasis(np.asarray(knots)) for name, knots in state['knots'].items()
        }
        return encoder

    def _is_categorical(self, values: pd.Series[Any]) -> bool:
        if str(values.name) in self.categorical:
            return True
        return bool(pd.to_numeric(values, errors='coerce').isna().any())

    def _require_known(self, names: Sequence[str]) -> None:
        unknown = [name for name in (*self.smooth, *self.categorical) if name not in names]
        if unknown:
            raise DataError(
                f'no such covariate: {name_some(unknown)}; the table has {name_some(names)}'
            )

    def _spline(self, numbers: Mapping[str, pd.Series[float]], name: str) -> SplineBasis:
        if name not in numbers:
            raise DataError(f'covariate {name}: a spline needs numbers, found text')
        return SplineBasis.at_quantiles(numbers[name], self.n_functions)

    def _encode(self, values: pd.Series[Any]) -> NDArray[np.float64]:
        name = str(values.name)
        if name in self.levels_:
            return _one_hot(values, self.levels_[name])
        numbers = np.asarray(_to_numbers(values), dtype=np.float64)
        if name in self.splines_:
            return self.splines_[name].evaluate(numbers)
        return numbers[:, None]


def missing_covariates(covariates: pd.DataFrame) -> NDArray[np.bool_]:
    """Say who lacks a covariate: booleans (n,); infinite numbers count as missing."""
    numbers = covariates.select_dtypes('number')
    infinite = np.isinf(numbers.to_numpy(dtype=np.float64)).any(axis=1)
    return covariates.isna().any(axis=1).to_numpy() | infinite


def require_covariates(covariates: pd.DataFrame) -> None:
    """Raise a DataError that names people and covariates where one is missing."""
    lacking = missing_covariates(covariates)
    if lacking.any():
        rows = covariates.loc[lacking]
        columns = [name for name in rows if missing_covariates(rows[[name]]).any()]
        raise DataError(
            f'covariates missing for {len(rows)} people ({name_some(rows.index)}) '
            f'in {name_some(columns)}; complete or exclude them'
        )


def _to_numbers(values: pd.Series[Any]) -> pd.Series[float]:
    numbers = pd.to_numeric(values, errors='coerce').astype(np.float64)
    text = values[numbers.isna() & values.notna()]
    if len(text):
        raise DataError(
            f'covariate {values.name}: numbers expected, found {name_some(text.unique().tolist())} '
            f'({name_some(text.index)}); code it as when the model was learned'
        )
    return numbers


def _one_hot(values: pd.Series[Any], levels: Sequence[str]) -> NDArray[np.float64]:
    text = as_labels(values)
    unknown = ~np.isin(text, levels)
    if unknown.any():
        found = np.unique(text[unknown]).tolist()
        raise DataError(
            f'covariate {values.name}: unknown level {name_some(found)} '
            f'({name_some(values.index[unknown])}); the model knows {name_some(levels)}'
        )
    return (text[:, None] == np.asarray(levels[1:])[None, :]).astype(np.float64)
