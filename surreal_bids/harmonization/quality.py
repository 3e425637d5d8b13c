"""How well harmonization worked: what is left of site, and what is kept of age."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.base import ClassifierMixin, clone
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
    as_covariates,
    as_features,
    as_labels,
    as_vector,
    centred_slopes,
    group_means,
    require_covariates,
)
from surreal_bids.text import list_briefly

LOGGER = logging.getLogger(__name__)

N_FOLDS = 5
"""Folds of the site classifier; sites with fewer participants are excluded."""

DETECTABLE = 0.05
"""An effect with a smaller p before harmonization is one whose sign can be kept."""


@dataclass(frozen=True)
class SiteClassification:
    """How well a classifier tells sites apart.

    Attributes
    ----------
    balanced_accuracy : float
        Mean over sites of the share of participants assigned to the right site.
    chance : float
        What guessing attains: 1 / number of sites.
    n_sites, n_people : int
        Sites and participants classified.
    """

    balanced_accuracy: float
    chance: float
    n_sites: int
    n_people: int


@dataclass(frozen=True, eq=False)
class HarmonizationQuality:
    """Measures before and after.

    Attributes
    ----------
    features : frame of shape (n_features, 5)
        `site_variance_{before,after}`: share of variance that site explains beyond the
        covariates. `effect_{before,after}`: change, per sd of the covariate of interest, in sd
        that the feature had before. `detectable`: whether the effect before differs from zero at
        p < 0.05.
    classification_before, classification_after : SiteClassification
        Of the participants that the harmonization was learned from.
    classification_held_out : SiteClassification or None
        Of participants harmonized by a model that has not seen them.
    covariate : str
        The covariate of interest.
    site_variance_by_chance : float
        Share of variance that as many sites explain if they do not differ.
    """

    features: pd.DataFrame
    classification_before: SiteClassification
    classification_after: SiteClassification
    classification_held_out: SiteClassification | None
    covariate: str
    site_variance_by_chance: float

    def effect_kept(self) -> float:
        """Mean size of the effect after, relative to before."""
        before, after = self.features['effect_before'], self.features['effect_after']
        return float(after.abs().mean() / before.abs().mean())


def assess_harmonization(
    before: pd.DataFrame,
    after: pd.DataFrame,
    site: pd.Series[Any] | ArrayLike,
    covariates: pd.DataFrame,
    *,
    covariate: str = 'age',
    harmonizer: ComBat | None = None,
    random_state: int = 0,
) -> HarmonizationQuality:
    """Measure site and covariate effects before and after harmonization.

    Parameters
    ----------
    before, after : frames of shape (n, n_features)
        Features; constant ones are not assessed.
    site : Series or array of shape (n,)
        Site of each participant.
    covariates : frame of shape (n, n_covariates)
        Covariates that were kept.
    covariate : str
        The one whose effect is followed; numeric.
    harmonizer : ComBat, optional
        Refitted in each fold, to classify participants it has not seen.
    random_state : int
        Decides the folds.
    """
    spread = before.std(ddof=0)
    varying = spread.index[spread > CONSTANT * before.abs().max()]
    before, after, spread = before[varying], after[varying], spread[varying]
    labels = as_labels(as_vector(site, before.index, 'site'))
    rows = as_covariates(covariates, before.index)
    classify = partial(classify_sites, site=labels, covariates=rows, random_state=random_state)
    held_out = None if harmonizer is None else classify(before, harmonizer=harmonizer)
    old, new = (covariate_effect(X, labels, rows, covariate) for X in (before, after))
    features = pd.DataFrame(
        {
            'site_variance_before': site_variance(before, labels, rows),
            'site_variance_after': site_variance(after, labels, rows),
            'effect_before': old['slope'] / spread,
            'effect_after': new['slope'] / spread,
            'detectable': old['p'] < DETECTABLE,
        }
    )
    by_chance = _variance_by_chance(labels, rows)
    return HarmonizationQuality(
        features, classify(before), classify(after), held_out, covariate, by_chance
    )


def site_variance(
    X: pd.DataFrame, site: ArrayLike, covariates: pd.DataFrame | None = None
) -> pd.Series[float]:
    """Share of each feature's variance that site explains beyond the covariates (partial eta^2).

    (RSS of covariates - RSS of covariates and site) / RSS of covariates, in 0 to 1. Sites that
    do not differ still explain (sites - 1) / (n - 1 - covariate columns) on average.
    """
    values, columns, codes = _prepare(X, site, covariates)
    without = _residual(values, columns, np.zeros_like(codes))
    with_site = _residual(values, columns, codes)
    share = 1 - (with_site**2).sum(axis=0) / (without**2).sum(axis=0)
    return pd.Series(share, index=X.columns, name='site_variance')


def covariate_effect(
    X: pd.DataFrame, site: ArrayLike, covariates: pd.DataFrame, covariate: str
) -> pd.DataFrame:
    """Effect of one numeric covariate within sites, given the other covariates.

    Returns
    -------
    frame of shape (n_features, 3)
        `slope`: change of the feature, in its unit, per sd of the covariate; `correlation`:
        partial correlation given site and the other covariates; `p`: of its two-sided t test.
    """
    others = covariates.drop(columns=covariate)
    values, columns, codes = _prepare(X, site, others)
    of_interest = covariates[[covariate]].to_numpy(dtype=np.float64)
    x = _residual(of_interest, columns, codes)[:, 0]
    y = _residual(values, columns, codes)
    cross, spread = x @ y, x @ x
    slope = cross / spread * of_interest.std()
    correlation = cross / np.sqrt(spread * (y**2).sum(axis=0))
    freedom = len(x) - int(codes.max()) - columns.shape[1] - 2
    t = correlation * np.sqrt(freedom / (1 - correlation**2))
    p = 2 * stats.t.sf(np.abs(t), freedom)
    return pd.DataFrame({'slope': slope, 'correlation': correlation, 'p': p}, index=X.columns)


def classify_sites(
    X: pd.DataFrame,
    site: ArrayLike,
    covariates: pd.DataFrame | None = None,
    *,
    harmonizer: ComBat | None = None,
    classifier: ClassifierMixin | None = None,
    random_state: int = 0,
) -> SiteClassification:
    """Classify sites by the features, cross-validated over participants.

    Everything is learned inside the folds: the covariates' effects, which are removed first (sites
    differ in age, and age is meant to stay), scaling, classifier, and `harmonizer` if given.
    Without it, and with `X` harmonized by a model that saw everyone, expect less than chance: a
    site's own mean was removed, so held-out participants lie opposite to those learned from.

    Parameters
    ----------
    X : frame of shape (n, n_features)
        Features, harmonized or not.
    site : array of shape (n,)
        Sites; those with fewer than `N_FOLDS` participants are excluded and logged.
    covariates : frame of shape (n, n_covariates), optional
        Covariates whose effects are removed.
    harmonizer : ComBat, optional
        Fitted on the training part of each fold and applied to both parts.
    classifier : scikit-learn classifier, optional
        By default a linear discriminant with shrinkage, which sees means; a forest sees more.
    random_state : int
        Decides the folds.
    """
    labels = as_labels(site)
    labels, keep = _large_sites(labels)
    X, rows = X.loc[keep], as_covariates(covariates, X.index).loc[keep]
    linear = LinearDiscriminantAnalysis(solver='lsqr', shrinkage='auto')
    model = make_pipeline(StandardScaler(), linear if classifier is None else classifier)
    guessed = np.empty_like(labels)
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=random_state)
    for train, test in folds.split(X, labels):
        with without_warnings():
            parts = _prepare_fold(X, labels, rows, harmonizer, (train, test))
        guessed[test] = clone(model).fit(parts[0], labels[train]).predict(parts[1])
    sites = len(np.unique(labels))
    accuracy = float(balanced_accuracy_score(labels, guessed))
    return SiteClassification(accuracy, 1 / sites, sites, len(labels))


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


def _large_sites(labels: NDArray[np.str_]) -> tuple[NDArray[np.str_], NDArray[np.bool_]]:
    names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    small = names[counts < N_FOLDS].tolist()
    if small:
        LOGGER.info('excluded from site classification, too small: %s', list_briefly(small))
    if len(names) - len(small) < 2:
        raise DataError(f'site classification needs two sites with at least {N_FOLDS} participants')
    keep = counts[codes] >= N_FOLDS
    return labels[keep], keep


def _prepare_fold(
    X: pd.DataFrame,
    labels: NDArray[np.str_],
    covariates: pd.DataFrame,
    harmonizer: ComBat | None,
    split: tuple[NDArray[np.intp], NDArray[np.intp]],
) -> list[NDArray[np.float64]]:
    """Harmonize (if asked) and residualise both parts by what the first part teaches."""
    parts = [X.iloc[part] for part in split]
    rows = [covariates.iloc[part] for part in split]
    if harmonizer is not None:
        learned = copy.deepcopy(harmonizer)
        learned.fit(parts[0], labels[split[0]], rows[0])
        parts = [
            learned.transform(part, labels[which], row)
            for part, which, row in zip(parts, split, rows)
        ]
    residualiser = Residualiser().fit(parts[0], rows[0])
    return [residualiser.transform(part, row).to_numpy() for part, row in zip(parts, rows)]


def _prepare(
    X: pd.DataFrame, site: ArrayLike, covariates: pd.DataFrame | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Return features, encoded covariates and site numbers as arrays."""
    table = as_features(X)
    rows = as_covariates(covariates, table.index)
    require_covariates(rows)
    columns = CovariateEncoder().fit(rows).transform(rows)
    codes = np.unique(as_labels(as_vector(site, table.index, 'site')), return_inverse=True)[1]
    return table.to_numpy(), columns, codes


def _residual(
    values: NDArray[np.float64], columns: NDArray[np.float64], codes: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Residual of a regression on group means and columns."""
    n_groups = int(codes.max()) + 1
    within = columns - group_means(columns, codes, n_groups)[codes]
    left = values - group_means(values, codes, n_groups)[codes]
    return left - within @ centred_slopes(within, left) if columns.shape[1] else left


def _variance_by_chance(labels: NDArray[np.str_], covariates: pd.DataFrame) -> float:
    columns = len(CovariateEncoder().fit(covariates).column_names_)
    return (len(np.unique(labels)) - 1) / (len(labels) - 1 - columns)
