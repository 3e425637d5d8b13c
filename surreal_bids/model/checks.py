"""Checks of a training table, before the long work starts.

Shapes: N people, S regions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal_bids.exceptions import DataError

FEWEST_PEOPLE = 8
"""Each group needs this many people: those of the smallest batch."""
FEWEST_FEATURES = 4
"""The smallest hidden layer has a quarter of the features."""
MEAN_TOLERANCE, SD_TOLERANCE = 0.02, 0.02
"""How far the controls' mean may be from 1 and their sd from 0.1."""
NAMES_SHOWN = 5

Floats = NDArray[np.floating]


def feature_matrix(X: Any) -> tuple[Floats, list[str] | None]:
    """Values (N, S) as float64 and, for a DataFrame, the names of its columns."""
    names = [str(name) for name in X.columns] if hasattr(X, 'columns') else None
    try:
        values = np.array(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f'the table holds something that is not a number: {error}') from error
    if values.ndim != 2:
        raise DataError(f'a table of people by features is needed, not an array {values.shape}')
    if names and len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(f'columns that occur more than once: {_some(twice)}; rename or drop them')
    bad = ~np.isfinite(values)
    if bad.any():
        rows, columns = np.nonzero(bad)
        where = names[columns[0]] if names else f'column {columns[0]}'
        raise DataError(
            f'{bad.sum()} values are missing or infinite, the first in row {rows[0]}, {where}; '
            'leave these people out, or impute'
        )
    return values, names


def check_training_sample(values: Floats, patient: NDArray[Any], names: list[str] | None) -> None:
    """Refuse what cannot be trained on, and say what to do."""
    if patient.dtype != np.bool_ or patient.shape != (len(values),):
        raise DataError(
            f'is_patient must hold True or False for each of {len(values)} people, '
            f'not {patient.dtype} of shape {patient.shape}'
        )
    counts = {'controls': int((~patient).sum()), 'patients': int(patient.sum())}
    for group, count in counts.items():
        if count < FEWEST_PEOPLE:
            raise DataError(f'{count} {group}, but training needs at least {FEWEST_PEOPLE}')
    if values.shape[1] < FEWEST_FEATURES:
        raise DataError(f'{values.shape[1]} features, but at least {FEWEST_FEATURES} are needed')
    labels = names or [f'column {k}' for k in range(values.shape[1])]
    sd = values[~patient].std(axis=0)
    constant = [name for name, value in zip(labels, sd) if value == 0]
    if constant:
        raise DataError(f'constant among the controls: {_some(constant)}; drop these columns')
    mean = values[~patient].mean(axis=0)
    off = (abs(mean - 1) > MEAN_TOLERANCE) | (abs(sd - 0.1) > SD_TOLERANCE)
    if off.any():
        k = int(np.flatnonzero(off)[0])
        raise DataError(
            f'controls must have mean 1 and sd 0.1 in every column, but {off.sum()} differ, such '
            f'as {labels[k]} (mean {mean[k]:.3g}, sd {sd[k]:.3g}); normalise first '
            '(surreal_bids.harmonization.covariates.CNNormaliser)'
        )


def _some(names: list[str]) -> str:
    more = f' and {len(names) - NAMES_SHOWN} more' if len(names) > NAMES_SHOWN else ''
    return ', '.join(names[:NAMES_SHOWN]) + more
