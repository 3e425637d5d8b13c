"""Check tables for training, and whether participants lie in the range of the training sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import LedoitWolf

from surreal_bids.exceptions import DataError
from surreal_bids.text import list_briefly

MIN_PEOPLE = 8
"""Minimum number of participants per group: the smallest batch."""
MIN_FEATURES = 4
"""Minimum number of features: the smallest hidden layer has a quarter of them."""
MEAN_TOLERANCE, SD_TOLERANCE = 0.02, 0.02
"""Tolerated deviation of the controls' mean from 1 and of their sd from 0.1."""

Floats = NDArray[np.floating]


def feature_matrix(X: Any) -> tuple[Floats, list[str] | None]:
    """Return values (N, S) as float64, and column names if all of them are text."""
    names = _column_names(X)
    try:
        values = np.array(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f'the table has a value that is not a number: {error}') from error
    if values.ndim != 2:
        raise DataError(
            f'X must be a table of participants by features, not an array of shape {values.shape}; '
            'reshape it'
        )
    bad = ~np.isfinite(values)
    if bad.any():
        rows, columns = np.nonzero(bad)
        where = names[columns[0]] if names else f'column {columns[0]}'
        raise DataError(
            f'{bad.sum()} values are missing or infinite, the first in row {rows[0]}, {where}; '
            'exclude these participants, or impute'
        )
    return values, names


def _column_names(X: Any) -> list[str] | None:
    """Return the names of the columns; None for arrays and for names that are not text."""
    names = list(getattr(X, 'columns', ()))
    text = [name for name in names if isinstance(name, str)]
    if text and len(text) < len(names):
        raise DataError('some column names are text and others are not; make all of them text')
    if len(set(text)) < len(text):
        twice = sorted({name for name in text if text.count(name) > 1})
        raise DataError(f'columns occur more than once: {list_briefly(twice)}; rename or drop them')
    return text or None


def check_training_sample(values: Floats, patient: NDArray[Any], names: list[str] | None) -> None:
    """Raise an error if the sample cannot be used for training."""
    if patient.dtype != np.bool_ or patient.shape != (len(values),):
        raise DataError(
            f'y must be True (patient) or False (control) for each of {len(values)} participants, '
            f'not {patient.dtype} of shape {patient.shape}'
        )
    counts = {'controls': int((~patient).sum()), 'patients': int(patient.sum())}
    for group, count in counts.items():
        if count < MIN_PEOPLE:
            raise DataError(f'found {count} {group}, but training needs at least {MIN_PEOPLE}')
    if values.shape[1] < MIN_FEATURES:
        raise DataError(
            f'found {values.shape[1]} features, but training needs at least {MIN_FEATURES}'
        )
    labels = names or [f'column {k}' for k in range(values.shape[1])]
    sd = values[~patient].std(axis=0)
    constant = [name for name, value in zip(labels, sd) if value == 0]
    if constant:
        raise DataError(
            f'columns are constant among the controls: {list_briefly(constant)}; drop them'
        )
    _check_scale(values[~patient], labels)


def _check_scale(controls: Floats, labels: list[str]) -> None:
    """Raise an error if controls do not have mean 1 and sd 0.1 in every column."""
    mean, sd = controls.mean(axis=0), controls.std(axis=0)
    off = (abs(mean - 1) > MEAN_TOLERANCE) | (abs(sd - 0.1) > SD_TOLERANCE)
    if off.any():
        k = int(np.flatnonzero(off)[0])
        raise DataError(
            f'controls must have mean 1 and sd 0.1 in every column, but {off.sum()} differ, such '
            f'as {labels[k]} (mean {mean[k]:.3g}, sd {sd[k]:.3g}); normalise first '
            '(surreal_bids.harmonization.covariates.CNNormaliser)'
        )


FOLDS = 5
COVERAGE = 0.995


@dataclass(frozen=True)
class Domain:
    """Range of the training sample: mean (S,), precision (S, S) and the largest distance."""

    mean: Floats
    precision: Floats
    limit: float

    def distances(self, X: Floats) -> Floats:
        """Compute the Mahalanobis distance (N,) of each participant."""
        centred = X - self.mean
        return np.sqrt(np.einsum('ns,st,nt->n', centred, self.precision, centred, optimize=True))

    def contains(self, X: Floats) -> NDArray[np.bool_]:
        """Check whether each participant (N,) lies in the range."""
        return self.distances(X) <= self.limit


def fit_domain(X: Floats, rng: np.random.Generator) -> Domain:
    """Estimate the range of a training sample (N, S) by cross-validation."""
    fold = rng.permutation(len(X)) % FOLDS
    held_out = np.empty(len(X))
    for k in range(FOLDS):
        held_out[fold == k] = _domain(X[fold != k], np.inf).distances(X[fold == k])
    return _domain(X, float(np.quantile(held_out, COVERAGE)))


def _domain(X: Floats, limit: float) -> Domain:
    fitted = LedoitWolf().fit(X)
    return Domain(fitted.location_, fitted.get_precision(), limit)


def check_batch_size(batch_size: int, smallest: int) -> None:
    """Raise an error for a batch larger than the smaller group that each member sees."""
    if batch_size > smallest:
        raise DataError(
            f'batch_size is {batch_size}, but each member sees only {smallest} participants of the '
            f'smaller group; set batch_size to at most {smallest}'
        )
