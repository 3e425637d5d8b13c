"""The people that ComBat learns from: who they are, where they were scanned, who is left out."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.encoding import missing_covariates
from surreal_bids.harmonization.regression import group_means
from surreal_bids.harmonization.tables import (
    CONSTANT,
    FILL_OR_EXCLUDE,
    as_covariates,
    as_labels,
    as_mask,
    as_vector,
    name_some,
    require_finite,
)

LOGGER = logging.getLogger(__name__)

MOSTLY = 0.5
"""Share of people with the same value from which a feature counts as tied."""

FitOn = Literal['all', 'controls']


@dataclass(frozen=True, eq=False)
class Cohort:
    """People with all that is needed, in one order.

    Attributes
    ----------
    features : frame of shape (n_people, n_features)
        No value is missing.
    covariates : frame of shape (n_people, n_covariates)
        No value is missing.
    sites : list of str
        Names of the sites, sorted.
    codes : ndarray of shape (n_people,)
        Number of each person's site among `sites`.
    excluded : list of str
        People left out for want of a site or a covariate.
    """

    features: pd.DataFrame
    covariates: pd.DataFrame
    sites: list[str]
    codes: NDArray[np.intp]
    excluded: list[str]

    @property
    def sizes(self) -> list[int]:
        """People of each site."""
        return np.bincount(self.codes, minlength=len(self.sites)).tolist()


def choose_people(
    people: pd.Index[Any], fit_on: FitOn, is_control: pd.Series[Any] | ArrayLike | None
) -> NDArray[np.bool_]:
    """Say who is learned from: booleans (n,)."""
    if fit_on == 'all':
        return np.ones(len(people), dtype=bool)
    if fit_on != 'controls':
        raise UsageError(f'fit_on {fit_on!r}: choose all or controls')
    if is_control is None:
        raise UsageError("fit_on='controls' needs is_control: say who is CN")
    return as_mask(is_control, people)


def gather(
    features: pd.DataFrame,
    site: pd.Series[Any] | ArrayLike,
    covariates: pd.DataFrame | ArrayLike | None,
    chosen: NDArray[np.bool_],
) -> Cohort:
    """Bring together the chosen people; those without site or covariate are left out and logged.

    Raises
    ------
    DataError
        Nobody is left, or a feature value is missing.
    """
    places = as_vector(site, features.index, 'site')
    covariate_table = as_covariates(covariates, features.index)
    lacking = missing_covariates(covariate_table) | pd.isna(places)
    excluded = features.index[chosen & lacking]
    if len(excluded):
        LOGGER.warning('left out, site or covariate missing: %s', name_some(excluded))
    kept = chosen & ~lacking
    if not kept.any():
        raise DataError('nobody to learn from: everyone lacks a site or a covariate, or is no CN')
    require_finite(features.loc[kept], 'features', FILL_OR_EXCLUDE)
    sites, codes = np.unique(as_labels(places[kept]), return_inverse=True)
    return Cohort(
        features.loc[kept],
        covariate_table.loc[kept],
        sites.tolist(),
        codes,
        [str(person) for person in excluded],
    )


def require_enough(cohort: Cohort, n_columns: int) -> None:
    """Refuse a regression on sites and covariate columns that would leave no residual."""
    needed = len(cohort.sites) + n_columns + 1
    if len(cohort.codes) < needed:
        raise DataError(
            f'{len(cohort.codes)} people for {len(cohort.sites)} sites and {n_columns} covariate '
            f'columns; {needed} are needed at least: use fewer covariates'
        )


def constant_features(cohort: Cohort) -> list[str]:
    """Name, and log, the features that do not vary within any site."""
    values = cohort.features.to_numpy()
    within = values - group_means(values, cohort.codes, len(cohort.sites))[cohort.codes]
    still = np.abs(within).max(axis=0) <= CONSTANT * np.abs(values).max(axis=0)
    names = [str(name) for name in cohort.features.columns[still]]
    if names:
        LOGGER.warning('do not vary within any site, passed through: %s', name_some(names))
    return names


def tied_features(cohort: Cohort) -> list[str]:
    """Name, and log, the varying features of which more than half the people share one value.

    Shifting a value that most people share (no lesion: 0) gives it another value at each site, by
    which a nonlinear model can tell the sites apart better than before.
    """
    values = cohort.features.to_numpy()
    shared = (values == np.median(values, axis=0)).mean(axis=0)
    tied = (shared > MOSTLY) & (np.ptp(values, axis=0) > 0)
    names = [str(name) for name in cohort.features.columns[tied]]
    if names:
        LOGGER.warning(
            'most people share one value, which will differ between sites once harmonized; '
            'better left out: %s', name_some(names),
        )  # fmt: skip
    return names
