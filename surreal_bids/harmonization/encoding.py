"""Read features and covariates as arrays and design matrices, and regress on them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.cautions import HARMONIZATION, Caution
from surreal_bids.exceptions import CovariateError, DataError
from surreal_bids.stats.mixed import fit_random_intercepts
from surreal_bids.text import counted, list_briefly

LOGGER = logging.getLogger(__name__)

Table = TypeVar('Table', pd.DataFrame, NDArray[Any])

TOLERATED = 0.05
"""How far a covariate may exceed its range in training, as a part of the range: without it, the
oldest control would be flagged whenever another fold is trained on."""

CONSTANT = 1e-10
"""A feature is constant if it varies by less than this share of its largest value."""

FILL_OR_EXCLUDE = 'complete the table, exclude these participants, or impute'
"""Remedies for missing feature values."""


def as_features(X: pd.DataFrame | NDArray[Any]) -> pd.DataFrame:
    """Read features as a float frame of participants x features; columns of arrays are numbered.

    Raises
    ------
    DataError
        A participant or feature is repeated, or a value is not a number.
    """
    table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.atleast_2d(np.asarray(X)))
    _require_unique(table.index, 'participant')
    _require_unique(table.columns, 'feature')
    try:
        return table.astype(np.float64)
    except (TypeError, ValueError) as error:
        text = [name for name in table.columns if _holds_text(table[name])]
        raise DataError(
            f'features must be numbers, but these contain text: {list_briefly(text)}; exclude them'
        ) from error


def as_covariates(
    covariates: pd.DataFrame | ArrayLike | None, people: pd.Index[Any]
) -> pd.DataFrame:
    """Read covariates as a frame with one row for each of `people`, in that order.

    Frames are matched by participant, arrays by position. None means no covariates.

    Raises
    ------
    DataError
        A participant has no row in the covariates.
    """
    if covariates is None:
        return pd.DataFrame(index=people)
    if not isinstance(covariates, pd.DataFrame):
        covariates = _from_array(np.asarray(covariates), people)
    _require_unique(covariates.index, 'participant')
    return covariates.loc[_same_people(covariates.index, people, 'covariates')]


def as_vector(values: pd.Series[Any] | ArrayLike, people: pd.Index[Any], name: str) -> NDArray[Any]:
    """Read one value per participant (site, is-control, ICV), in the order of `people`."""
    if isinstance(values, pd.Series):
        _require_unique(values.index, 'participant')
        return values.loc[_same_people(values.index, people, name)].to_numpy()
    array = np.asarray(values)
    if array.shape != (len(people),):
        raise DataError(
            f'{name} has shape {array.shape}, but there are {len(people)} participants; '
            'give one value per participant'
        )
    return array


def as_labels(values: pd.Series[Any] | ArrayLike) -> NDArray[np.str_]:
    """Read names of levels or sites as text.

    3 and 3.0 are the same name, because a column of integers with a missing value becomes float.
    """
    return np.array([_label(value) for value in np.asarray(values, dtype=object)], dtype=str)


def _label(value: Any) -> str:
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def as_mask(is_control: pd.Series[Any] | ArrayLike, people: pd.Index[Any]) -> NDArray[np.bool_]:
    """Read one boolean (or 0/1) per participant."""
    values = as_vector(is_control, people, 'is_control')
    if not np.isin(values, [True, False]).all():
        raise DataError('is_control has values other than True and False (or 1 and 0)')
    return values.astype(bool)


def order_features(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Put the columns in the order of `names`; raise an error for other features.

    Columns of a table without names, which was an array, are matched by position.
    """
    # A selection of unnamed columns has a RangeIndex too, but of another order.
    unnamed = isinstance(table.columns, pd.RangeIndex) and table.columns.equals(
        pd.RangeIndex(len(names))
    )
    if unnamed:
        return table.set_axis(list(names), axis=1)
    have = table.set_axis(table.columns.astype(str), axis=1)
    missing = [name for name in names if name not in have.columns]
    surplus = [name for name in have.columns if name not in set(names)]
    if missing or surplus:
        raise DataError(
            f'features differ from those of the model: missing [{list_briefly(missing)}], '
            f'unknown [{list_briefly(surplus)}]; use the same regions'
        )
    return have.loc[:, list(names)]


def require_finite(table: pd.DataFrame, what: str, remedy: str) -> None:
    """Raise an error that lists participants and columns with missing or infinite values."""
    wrong = ~np.isfinite(table.to_numpy(dtype=np.float64))
    if wrong.any():
        people = table.index[wrong.any(axis=1)]
        columns = table.columns[wrong.any(axis=0)]
        raise DataError(
            f'{what}: missing or infinite values for {counted(len(people), "participant")} '
            f'({list_briefly(people)}) in {list_briefly(columns)}; {remedy}'
        )


def like(values: NDArray[np.float64], given: Table, table: pd.DataFrame) -> Table:
    """Return `values` in the type of `given`: a frame or an array."""
    if isinstance(given, pd.DataFrame):
        return pd.DataFrame(values, index=table.index, columns=table.columns)
    return values


def _holds_text(values: pd.Series[Any]) -> bool:
    numbers = pd.to_numeric(values, errors='coerce')
    return bool((numbers.isna() & values.notna()).any())


def _from_array(values: NDArray[Any], people: pd.Index[Any]) -> pd.DataFrame:
    columns = values.reshape(len(values), -1)
    if len(columns) != len(people):
        raise DataError(
            f'covariates have {len(columns)} rows for {len(people)} participants; give one row each'
        )
    names = [f'covariate_{number}' for number in range(columns.shape[1])]
    return pd.DataFrame(columns, index=people, columns=names)


def _same_people(have: pd.Index[Any], people: pd.Index[Any], what: str) -> pd.Index[Any]:
    missing = people.difference(have)
    if len(missing):
        raise DataError(
            f'{what} are missing for {counted(len(missing), "participant")} '
            f'({list_briefly(missing)}); index both tables by the same participant labels'
        )
    return people


def _require_unique(names: pd.Index[Any], what: str) -> None:
    if names.has_duplicates:
        twice = names[names.duplicated()].unique()
        raise DataError(f'the same {what} more than once: {list_briefly(twice)}; keep one of each')


def is_clearly_outside(values: pd.Series, low: float, high: float) -> pd.Series:
    """Tell which values exceed a range by more than a small part of it; missing ones do not."""
    margin = TOLERATED * (high - low)
    return (values < low - margin) | (values > high + margin)


class CovariateEncoder:
    """Convert a table of covariates into the columns of a design matrix.

    A numeric covariate is one column. Text (sex as F and M, diagnosis) becomes one column per
    level except the first in alphabetical order.

    Parameters
    ----------
    categorical : sequence of str
        Numeric covariates that are categories, such as a scanner number.

    Attributes
    ----------
    levels_ : dict of str to list of str
        Levels of each categorical covariate, the reference level first.
    range_ : dict of str to (float, float)
        Minimum and maximum of each numeric covariate.
    covariates_ : list of str
        Names of the covariates in order.
    """

    def __init__(self, categorical: Sequence[str] = ()) -> None:
        self.categorical = categorical

    def fit(self, covariates: pd.DataFrame) -> CovariateEncoder:
        """Learn levels and ranges from `covariates`, which has no missing values.

        Raises
        ------
        DataError
            A covariate in `categorical` is absent, or a covariate has one value only.
        """
        self.covariates_ = [str(name) for name in covariates.columns]
        table = covariates.set_axis(self.covariates_, axis=1)
        self._require_known(self.covariates_)
        text = {name for name in self.covariates_ if self._is_categorical(table[name])}
        for name in self.covariates_:
            if table[name].nunique() < 2:
                raise CovariateError(
                    f'covariate {name} is the same in all {len(table)} participants used for '
                    'fitting, and its effect cannot be estimated; exclude it',
                    name,
                )
        self.levels_ = {name: np.unique(as_labels(table[name])).tolist() for name in sorted(text)}
        numbers = {name: _to_numbers(table[name]) for name in self.covariates_ if name not in text}
        self.range_ = {name: (float(x.min()), float(x.max())) for name, x in numbers.items()}
        return self

    def transform(self, covariates: pd.DataFrame) -> NDArray[np.float64]:
        """Build the columns (n, n_columns) for participants without a missing covariate.

        Raises
        ------
        DataError
            A covariate or level is unknown, or a number is text.
        """
        table = self.select(covariates)
        blocks = [self._encode(table[name]) for name in self.covariates_]
        return np.hstack([np.empty((len(table), 0)), *blocks])

    def select(self, covariates: pd.DataFrame) -> pd.DataFrame:
        """Select the covariates of the model from a table that may have more columns."""
        table = covariates.set_axis(covariates.columns.astype(str), axis=1)
        missing = [name for name in self.covariates_ if name not in table.columns]
        if missing:
            raise DataError(
                f'covariates missing from the table: {list_briefly(missing)}; '
                f'the model uses {list_briefly(self.covariates_)}'
            )
        return table.loc[:, self.covariates_]

    @property
    def column_names_(self) -> list[str]:
        """Names of the columns, such as `age` and `sex[M]`."""
        return [
            column
            for name in self.covariates_
            for column in (
                [f'{name}[{level}]' for level in self.levels_[name][1:]]
                if name in self.levels_
                else [name]
            )
        ]

    def beyond_range(self, covariates: pd.DataFrame) -> pd.DataFrame:
        """Flag values clearly outside the training range.

        Returns
        -------
        DataFrame of booleans, participants x numeric covariates
            Whether a value exceeds the range by more than a small part of it (`TOLERATED`).
        """
        table = self.select(covariates)
        flags = {}
        for name, (low, high) in self.range_.items():
            flags[name] = is_clearly_outside(_to_numbers(table[name]), low, high)
        return pd.DataFrame(flags, index=table.index, columns=list(self.range_), dtype=bool)

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {
            'categorical': list(self.categorical),
            'covariates': list(self.covariates_),
            'levels': {name: list(levels) for name, levels in self.levels_.items()},
            'range': {name: list(bounds) for name, bounds in self.range_.items()},
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> CovariateEncoder:
        """Rebuild an encoder from `to_json`."""
        encoder = cls(tuple(state['categorical']))
        encoder.covariates_ = list(state['covariates'])
        encoder.levels_ = {name: list(levels) for name, levels in state['levels'].items()}
        encoder.range_ = {name: (low, high) for name, (low, high) in state['range'].items()}
        return encoder

    def _is_categorical(self, values: pd.Series[Any]) -> bool:
        if str(values.name) in self.categorical:
            return True
        return bool(pd.to_numeric(values, errors='coerce').isna().any())

    def _require_known(self, names: Sequence[str]) -> None:
        unknown = [name for name in self.categorical if name not in names]
        if unknown:
            raise DataError(
                f'no such covariate: {list_briefly(unknown)}; the table has {list_briefly(names)}'
            )

    def _encode(self, values: pd.Series[Any]) -> NDArray[np.float64]:
        name = str(values.name)
        if name in self.levels_:
            return _one_hot(values, self.levels_[name])
        return np.asarray(_to_numbers(values), dtype=np.float64)[:, None]


def missing_covariates(covariates: pd.DataFrame) -> NDArray[np.bool_]:
    """Mark participants with a missing or infinite covariate: booleans (n,)."""
    numbers = covariates.select_dtypes('number')
    infinite = np.isinf(numbers.to_numpy(dtype=np.float64)).any(axis=1)
    return covariates.isna().any(axis=1).to_numpy() | infinite


def require_covariates(covariates: pd.DataFrame) -> None:
    """Raise an error that lists participants and their missing covariates."""
    lacking = missing_covariates(covariates)
    if lacking.any():
        rows = covariates.loc[lacking]
        columns = [name for name in rows if missing_covariates(rows[[name]]).any()]
        raise DataError(
            f'covariates are missing for {counted(len(rows), "participant")} '
            f'({list_briefly(rows.index)}) in {list_briefly(columns)}; complete the table or '
            'exclude these participants'
        )


def _to_numbers(values: pd.Series[Any]) -> pd.Series[float]:
    numbers = pd.to_numeric(values, errors='coerce').astype(np.float64)
    text = values[numbers.isna() & values.notna()]
    if len(text):
        raise CovariateError(
            f'covariate {values.name}: numbers expected, found '
            f'{list_briefly(text.unique().tolist())} ({list_briefly(text.index)}); use the '
            'coding of the training sample',
            str(values.name),
        )
    return numbers


def _one_hot(values: pd.Series[Any], levels: Sequence[str]) -> NDArray[np.float64]:
    text = as_labels(values)
    unknown = ~np.isin(text, levels)
    if unknown.any():
        found = np.unique(text[unknown]).tolist()
        raise CovariateError(
            f'covariate {values.name}: unknown level {list_briefly(found)} '
            f'({list_briefly(values.index[unknown])}); the model has {list_briefly(levels)}',
            str(values.name),
        )
    return (text[:, None] == np.asarray(levels[1:])[None, :]).astype(np.float64)


COLLINEAR = 1e-8
"""Singular values of the scaled covariates below this share of the largest count as zero."""


def group_means(
    values: NDArray[np.float64], codes: NDArray[np.intp], n_groups: int
) -> NDArray[np.float64]:
    """Compute the mean of the rows of `values` (n, m) in each group: shape (n_groups, m).

    `codes` (n,) is the index of the group of each row. No group is empty.
    """
    order = np.argsort(codes, kind='stable')
    counts = np.bincount(codes, minlength=n_groups)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    sums = (
        np.add.reduceat(values[order], starts, axis=0) if values.size else np.zeros((n_groups, 0))
    )
    return sums / counts[:, None]


def fit_site_regression(
    X: NDArray[np.float64], columns: NDArray[np.float64], codes: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Regress features on site and covariates by ordinary least squares.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Features.
    columns : ndarray of shape (n, n_columns)
        Encoded covariates.
    codes : ndarray of shape (n,)
        Index of each participant's site.

    Returns
    -------
    site_means : ndarray of shape (n_sites, n_features)
        Value of each feature at each site if all covariate columns are 0.
    slopes : ndarray of shape (n_columns, n_features)
        Effects of the covariates, shared by all sites.
    """
    n_sites = int(codes.max()) + 1
    column_means = group_means(columns, codes, n_sites)
    feature_means = group_means(X, codes, n_sites)
    within, X_within = columns - column_means[codes], X - feature_means[codes]
    gram, cross = within.T @ within, within.T @ X_within
    # Columns are scaled first, because ICV is a million times sex.
    scale = np.sqrt(np.where(np.diag(gram) > 0, np.diag(gram), 1.0))
    scaled = np.linalg.solve(gram / np.outer(scale, scale), cross / scale[:, None])
    slopes: NDArray[np.float64] = scaled / scale[:, None]
    return feature_means - column_means @ slopes, slopes


class VisitRegression(NamedTuple):
    """Features regressed on site, covariates and participant.

    Attributes
    ----------
    site_means, slopes : ndarrays of shape (n_sites, n_features) and (n_columns, n_features)
        As of :func:`fit_site_regression`, by generalised least squares.
    sigma : ndarray of shape (n_features,)
        Residual standard deviation.
    intercepts : ndarray of shape (n, n_features)
        Random intercept of the participant of each row.
    shift_error : ndarray of shape (n_sites, n_sites)
        Variance of the difference of two site means, in residual variances; the mean of features.
    """

    site_means: NDArray[np.float64]
    slopes: NDArray[np.float64]
    sigma: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    shift_error: NDArray[np.float64]


def fit_visit_regression(
    X: NDArray[np.float64],
    columns: NDArray[np.float64],
    codes: NDArray[np.intp],
    participants: NDArray[np.intp],
) -> VisitRegression:
    """Regress features of visits on site and covariates, with a random intercept per participant.

    Parameters
    ----------
    X, columns, codes
        As of :func:`fit_site_regression`, one row per visit.
    participants : ndarray of shape (n,)
        Number of the participant of each visit.
    """
    n_sites = int(codes.max()) + 1
    # Columns are scaled first, because ICV is a million times sex.
    center, scale = columns.mean(axis=0), columns.std(axis=0)
    design = np.hstack([np.eye(n_sites)[codes], (columns - center) / scale])
    fitted = fit_random_intercepts(X, design, participants)
    slopes = fitted.coefficients[n_sites:] / scale[:, None]
    covariance = fitted.covariance[:n_sites, :n_sites]
    variance = np.diag(covariance)
    return VisitRegression(
        fitted.coefficients[:n_sites] - center @ slopes,
        slopes,
        fitted.sigma,
        fitted.intercepts,
        variance[:, None] + variance - 2 * covariance,
    )


def require_separable(
    columns: NDArray[np.float64],
    names: Sequence[str],
    codes: NDArray[np.intp],
    sites: Sequence[str],
) -> None:
    """Raise an error for covariates that are confounded with site.

    Raises
    ------
    DataError
        A covariate does not vary within any site, or covariates are collinear within sites.
    """
    within = columns - group_means(columns, codes, len(sites))[codes]
    spread = columns.std(axis=0)
    stuck = within.std(axis=0) <= COLLINEAR * spread
    for number in np.flatnonzero(stuck):
        means = group_means(columns[:, [number]], codes, len(sites))[:, 0]
        odd = [site for site, mean in zip(sites, means) if mean != np.median(means)]
        raise DataError(
            f'site and covariate {names[number]} are confounded: it does not vary within any site '
            f'(sites that differ: {", ".join(odd)}); drop the covariate or these sites'
        )
    scaled = within / spread
    if _rank(scaled) < len(names):
        raise DataError(
            f'covariates {", ".join(names)} are collinear within the sites '
            f'{", ".join(sites)}; exclude one'
        )


def require_estimable(columns: NDArray[np.float64], names: Sequence[str]) -> None:
    """Raise an error if the coefficients of columns (n, n_columns) cannot be estimated from CN.

    Raises
    ------
    DataError
        Too few CN, or collinear columns.
    """
    n_people, n_columns = columns.shape
    if n_people < n_columns + 2:
        raise DataError(
            f'{n_people} CN for {n_columns} covariate columns ({list_briefly(names)}); '
            f'at least {n_columns + 2} are needed: use fewer covariates'
        )
    spread = columns.std(axis=0)
    scaled = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if _rank(scaled) < n_columns:
        raise DataError(
            f'covariates are collinear among the CN: {list_briefly(names)}; exclude one'
        )


def centred_slopes(
    centred: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute least-squares coefficients (n_columns, n_features) of columns with mean 0.

    Columns are scaled first, because ICV is a million times sex.
    """
    scale = centred.std(axis=0)
    solution, *_ = np.linalg.lstsq(centred / scale, values - values.mean(axis=0), rcond=None)
    return solution / scale[:, None]


def _rank(scaled: NDArray[np.float64]) -> int:
    return int(np.linalg.matrix_rank(scaled, rtol=COLLINEAR)) if scaled.size else 0


@dataclass(frozen=True, eq=False)
class SiteSample:
    """Participants used for fitting, in one order, without missing values.

    Attributes
    ----------
    features, covariates : frames of shape (n, n_features) and (n, n_covariates)
    sites : list of str
        Names of the sites, sorted.
    codes : ndarray of shape (n,)
        Index of each participant's site in `sites`.
    excluded : list of str
        Participants without a site or a covariate.
    participants : ndarray of shape (n,), or None
        Number of the participant of each row, where rows are visits and some have several.
    """

    features: pd.DataFrame
    covariates: pd.DataFrame
    sites: list[str]
    codes: NDArray[np.intp]
    excluded: list[str]
    participants: NDArray[np.intp] | None = None

    @property
    def sizes(self) -> list[int]:
        """Participants of each site."""
        return np.bincount(self.codes, minlength=len(self.sites)).tolist()


def gather_sites(
    features: pd.DataFrame,
    site: pd.Series[Any] | ArrayLike,
    covariates: pd.DataFrame | ArrayLike | None,
    chosen: NDArray[np.bool_],
    participants: pd.Series[Any] | ArrayLike | None = None,
) -> SiteSample:
    """Gather the chosen participants; exclude those without a site or covariate."""
    places = as_vector(site, features.index, 'site')
    covariate_table = as_covariates(covariates, features.index)
    lacking = missing_covariates(covariate_table) | pd.isna(places)
    excluded = features.index[chosen & lacking]
    if len(excluded):
        LOGGER.info(
            'ComBat: %s excluded from fitting because the site or a covariate is missing: %s',
            counted(len(excluded), 'participant'),
            list_briefly(excluded),
        )
    kept = chosen & ~lacking
    if not kept.any():
        raise DataError(
            'no participants left to fit ComBat: each one lacks a site or a covariate, or is not '
            'a control; complete the table'
        )
    require_finite(features.loc[kept], 'features', FILL_OR_EXCLUDE)
    sites, codes = np.unique(as_labels(places[kept]), return_inverse=True)
    names = [str(person) for person in excluded]
    who = None
    if participants is not None:
        known = as_labels(as_vector(participants, features.index, 'participants')[kept])
        people, who = np.unique(known, return_inverse=True)
        who = None if len(people) == len(who) else who
    return SiteSample(
        *(features.loc[kept], covariate_table.loc[kept], sites.tolist(), codes, names, who)
    )


MOSTLY_TIED = 0.5
"""A feature is tied if more than this share of the participants have the same value."""


def constant_features(sample: SiteSample) -> list[str]:
    """List and log the features that do not vary within any site."""
    values = sample.features.to_numpy()
    within = values - group_means(values, sample.codes, len(sample.sites))[sample.codes]
    still = np.abs(within).max(axis=0) <= CONSTANT * np.abs(values).max(axis=0)
    names = [str(name) for name in sample.features.columns[still]]
    if names:
        LOGGER.info(
            'ComBat: features that are constant within every site are returned unchanged: %s',
            list_briefly(names),
        )
    return names


def tied_features(sample: SiteSample) -> list[str]:
    """List and log the varying features with the same value in more than half the participants.

    Harmonizing such a value (no lesion: 0) gives it another value at each site. A nonlinear model
    can then distinguish the sites better than before.
    """
    values = sample.features.to_numpy()
    shared = (values == np.median(values, axis=0)).mean(axis=0)
    tied = (shared > MOSTLY_TIED) & (np.ptp(values, axis=0) > 0)
    names = [str(name) for name in sample.features.columns[tied]]
    if names:
        LOGGER.warning(
            Caution(
                f'ComBat: most participants have the same value in {list_briefly(names)}',
                'Harmonization makes this value differ between sites',
                'Exclude these features (--features)',
                HARMONIZATION,
            )
        )
    return names
