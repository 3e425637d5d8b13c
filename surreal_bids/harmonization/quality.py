"""How well harmonization worked: what is left of sites among controls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.combat import ComBat
from surreal_bids.harmonization.covariates import Residualiser
from surreal_bids.harmonization.encoding import (
    CONSTANT,
    CovariateEncoder,
    as_labels,
    centred_slopes,
    group_means,
)

Floats = NDArray[np.float64]

N_FOLDS = 5
"""Folds of the site classifier; sites with fewer participants are excluded."""

ENOUGH_TO_REFIT = 2 * N_FOLDS
"""Participants that each site needs for ComBat to be learned again without a fold of them."""


@dataclass(frozen=True, eq=False)
class HarmonizationQuality:
    """Measures before and after.

    Attributes
    ----------
    features : frame of shape (n_features, 2)
        `site_variance_{before,after}`: share of variance that site explains beyond the covariates.
    accuracy_before : float
        Balanced accuracy of predicting the site from volumes as measured.
    accuracy_held_out : float or None
        From volumes harmonized by a model that has not seen the participants; None if a site has
        too few for that. Among participants that ComBat was fitted to, a classifier falls below
        chance by construction: the mean of their own site was removed.
    n_sites : int
        Sites that are large enough.
    site_variance_by_chance : float
        Share of variance that as many sites explain if they do not differ.
    """

    features: pd.DataFrame
    accuracy_before: float
    accuracy_held_out: float | None
    n_sites: int
    site_variance_by_chance: float


def assess_harmonization(
    before: pd.DataFrame,
    after: pd.DataFrame,
    site: pd.Series[Any],
    covariates: pd.DataFrame,
    random_state: int = 0,
    make_combat: Callable[[], ComBat] = ComBat,
) -> HarmonizationQuality:
    """Measure site effects before and after harmonization, at sites of `N_FOLDS` or more.

    Parameters
    ----------
    before, after : frames of shape (n, n_features)
        Features; constant ones are not assessed.
    site : Series of shape (n,)
        Site of each participant.
    covariates : frame of shape (n, n_covariates)
        Covariates that were kept.
    random_state : int
        Decides the folds.
    make_combat
        Makes a ComBat with the settings of the one that is assessed, which is fitted without each
        fold.

    Raises
    ------
    DataError
        Fewer than two sites are large enough.
    """
    sizes = site.map(site.value_counts())
    large = sizes >= N_FOLDS
    before, after, site, covariates = before[large], after[large], site[large], covariates[large]
    if site.nunique() < 2:
        raise DataError(f'site classification needs two sites with at least {N_FOLDS} participants')
    spread = before.std(ddof=0)
    varying = spread.index[spread > CONSTANT * before.abs().max()]
    before, after = before[varying], after[varying]
    features = pd.DataFrame(
        {
            'site_variance_before': site_variance(before, site, covariates),
            'site_variance_after': site_variance(after, site, covariates),
        }
    )
    n_columns = len(CovariateEncoder().fit(covariates).column_names_)
    return HarmonizationQuality(
        features,
        classify_sites(before, site, covariates, random_state=random_state),
        classify_sites(before, site, covariates, make_combat=make_combat, random_state=random_state)
        if sizes[large].min() >= ENOUGH_TO_REFIT
        else None,
        site.nunique(),
        (site.nunique() - 1) / (len(site) - 1 - n_columns),
    )


def site_variance(
    X: pd.DataFrame, site: pd.Series[Any], covariates: pd.DataFrame
) -> pd.Series[float]:
    """Share of each feature's variance that site explains beyond the covariates (partial eta^2).

    (RSS of covariates - RSS of covariates and site) / RSS of covariates, in 0 to 1. Sites that
    do not differ still explain (sites - 1) / (n - 1 - covariate columns) on average.
    """
    values = X.to_numpy(dtype=np.float64)
    columns = CovariateEncoder().fit(covariates).transform(covariates)
    codes = np.unique(as_labels(site), return_inverse=True)[1]
    without = _residual(values, columns, np.zeros_like(codes))
    with_site = _residual(values, columns, codes)
    share = 1 - (with_site**2).sum(axis=0) / (without**2).sum(axis=0)
    return pd.Series(share, index=X.columns, name='site_variance')


def _residual(values: Floats, columns: Floats, codes: NDArray[np.intp]) -> Floats:
    """Residual of a regression on group means and columns."""
    n_groups = int(codes.max()) + 1
    within = columns - group_means(columns, codes, n_groups)[codes]
    left = values - group_means(values, codes, n_groups)[codes]
    return left - within @ centred_slopes(within, left) if columns.shape[1] else left


def classify_sites(
    X: pd.DataFrame,
    site: pd.Series[Any],
    covariates: pd.DataFrame,
    *,
    make_combat: Callable[[], ComBat] | None = None,
    random_state: int = 0,
) -> float:
    """Balanced accuracy of classifying sites by the features, cross-validated over participants.

    Everything is learned inside the folds: ComBat (with `make_combat`), the covariates' effects,
    which are removed first (sites differ in age, and age is meant to stay), scaling and a linear
    discriminant with shrinkage.
    """
    labels = as_labels(site)
    model = make_pipeline(
        StandardScaler(), LinearDiscriminantAnalysis(solver='lsqr', shrinkage='auto')
    )
    guessed = np.empty_like(labels)
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=random_state)
    for train, test in folds.split(X, labels):
        parts = [X.iloc[part] for part in (train, test)]
        with without_warnings():
            if make_combat is not None:
                combat = make_combat().fit(parts[0], site, covariates)
                parts = [combat.transform(part, site, covariates) for part in parts]
            residualiser = Residualiser().fit(parts[0], covariates)
            seen = [residualiser.transform(part, covariates).to_numpy() for part in parts]
        guessed[test] = model.fit(seen[0], labels[train]).predict(seen[1])
    return float(balanced_accuracy_score(labels, guessed))


@contextmanager
def without_warnings(of: str | None = __package__) -> Iterator[None]:
    """Let a package be quiet about what it has already said of everyone, in every fold."""
    logger = logging.getLogger(of)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
