"""ComBat: remove what a site does to the mean and the spread of each feature.

x_ijg = alpha_g + c_ij beta_g + sigma_g (gamma_ig + sqrt(delta_ig) e_ijg) for person j at site i and
feature g. The covariate effects beta (linear, or splines: ComBat-GAM) are kept; the site's shift
gamma and variance ratio delta are estimated by empirical Bayes and taken out. Fortin et al.
(NeuroImage 167:104-120, 2018); Pomponio et al. (NeuroImage 208:116450, 2020).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.empirical_bayes import (
    FEWEST_FOR_SCALE,
    SitePrior,
    estimate_site,
    least_squares,
    moments_prior,
    pooled_prior,
)
from surreal_bids.harmonization.encoding import (
    CONSTANT,
    FILL_OR_EXCLUDE,
    CovariateEncoder,
    SiteRegression,
    Table,
    as_covariates,
    as_features,
    as_labels,
    as_mask,
    as_vector,
    fit_site_regression,
    group_means,
    like,
    missing_covariates,
    order_features,
    require_finite,
    require_separable,
)
from surreal_bids.text import name_some

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


UnseenSite = Literal['error', 'skip']

HARMONIZED = 'harmonized'
"""Status of a person whose features were harmonized."""

UNHARMONIZED = 'unharmonized'
"""Status of a person at an unseen site, returned as measured."""

EXCLUDED = 'excluded'
"""Status of a person without site or covariate, for whom nothing can be computed."""


class ComBat:
    """Harmonize features across sites, now and for people who come later.

    Parameters
    ----------
    smooth : sequence of str
        Covariates kept through a penalised cubic spline (ComBat-GAM) instead of a line.
    categorical : sequence of str
        Covariates whose numbers are names of levels. Text is categorical anyway.
    empirical_bayes : bool
        Borrow strength across features. Without, or with one feature only, each site's own mean
        and variance are used.
    mean_only : bool
        Remove shifts but leave variances. As in sva and neuroCombat, shifts are then shrunk as if
        each site had one person: a good part of a shift may stay. Without `empirical_bayes` it
        goes entirely.
    reference_site : str, optional
        Site that all others are brought to; its own people stay as they are.
    unseen_site : {'error', 'skip'}
        What `transform` does for people of a site that was never learned: refuse, or return them
        as measured, with the status `unharmonized`.
    penalty : 'gcv' or array of shape (n_features, n_smooth)
        Weights of the roughness penalty; by default chosen per feature by generalised
        cross-validation, which depends on neither chance nor order.

    Attributes
    ----------
    features_, constant_ : list of str
        All features in order; those that do not vary within any site, which pass through.
    tied_ : list of str
        Features of which most people share one value; harmonized, but better left out.
    sites_, site_sizes_ : list of str, list of int
        Sites known, and people each was learned from.
    fit_on_ : {'all', 'controls'}
        Whom the parameters come from.
    excluded_ : list of str
        People left out of fitting for want of a site or covariate.
    grand_mean_, scale_ : ndarray of shape (n_varying,)
        alpha and sigma, in the unit of the features.
    slopes_ : ndarray of shape (n_columns, n_varying)
        beta.
    penalties_ : ndarray of shape (n_varying, n_smooth)
        Roughness penalties given or chosen.
    shift_, ratio_ : ndarray of shape (n_sites, n_varying)
        gamma and delta of each site.
    prior_ : SitePrior or None
        Priors pooled over the learned sites and features, for sites that come later; None without
        empirical Bayes, when a new site's own mean and variance are used.
    """

    shift_: NDArray[np.float64]
    ratio_: NDArray[np.float64]

    def __init__(
        self,
        smooth: Sequence[str] = (),
        categorical: Sequence[str] = (),
        *,
        empirical_bayes: bool = True,
        mean_only: bool = False,
        reference_site: str | None = None,
        unseen_site: UnseenSite = 'error',
        penalty: Literal['gcv'] | ArrayLike = 'gcv',
    ) -> None:
        self.smooth = smooth
        self.categorical = categorical
        self.empirical_bayes = empirical_bayes
        self.mean_only = mean_only
        self.reference_site = reference_site
        self.unseen_site = unseen_site
        self.penalty = penalty

    def fit(
        self,
        X: pd.DataFrame | NDArray[Any],
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike | None = None,
        *,
        fit_on: FitOn = 'all',
        is_control: pd.Series[Any] | ArrayLike | None = None,
    ) -> ComBat:
        """Learn sites and covariates.

        Parameters
        ----------
        X : frame or array of shape (n_people, n_features)
            Features.
        site : Series or array of shape (n_people,)
            Site of each person; numbers are taken as names.
        covariates : frame or array of shape (n_people, n_covariates), optional
            Effects to keep. With diagnosis among the sites' differences, give it here or learn on
            controls.
        fit_on : {'all', 'controls'}
            Learn from everyone, or from controls only.
        is_control : Series or array of bool of shape (n_people,), optional
            Who is CN; needed for `fit_on='controls'`.

        Raises
        ------
        DataError
            A missing feature value, or a covariate that cannot be told from site.
        """
        table = as_features(X)
        cohort = gather(table, site, covariates, choose_people(table.index, fit_on, is_control))
        self.features_ = [str(name) for name in table.columns]
        self.fit_on_: str = fit_on
        self.excluded_ = cohort.excluded
        self.sites_, self.site_sizes_ = cohort.sites, cohort.sizes
        self.constant_ = constant_features(cohort)
        self.tied_ = tied_features(cohort)
        if len(self.sites_) == 1:
            self._learn_one_site(cohort)
        else:
            self._learn(cohort)
        return self

    def transform(
        self,
        X: Table,
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike | None = None,
    ) -> Table:
        """Harmonize people of known sites, one or many; the result has the type of `X`.

        People of unseen sites follow `unseen_site`; those without site or covariate get missing
        values throughout. Both are logged by name, and `status` says which is which.

        Raises
        ------
        DataError
            A missing feature value, an unseen site (unless skipped), or other features.
        """
        table = order_features(as_features(X), self.features_)
        status = self.status(table, site, covariates)
        _log_status(status)
        require_finite(table.loc[status != EXCLUDED], 'features', FILL_OR_EXCLUDE)
        values = table.to_numpy(copy=True)
        values[status == EXCLUDED] = np.nan
        known = (status == HARMONIZED).to_numpy()
        labels = as_labels(as_vector(site, table.index, 'site')[known])
        rows = as_covariates(covariates, table.index).loc[known]
        chosen = np.ix_(known, self._varying())
        values[chosen] = self._harmonize(values[chosen], labels, rows)
        return like(values, X, table)

    def fit_transform(
        self,
        X: Table,
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike | None = None,
        *,
        fit_on: FitOn = 'all',
        is_control: pd.Series[Any] | ArrayLike | None = None,
    ) -> Table:
        """Learn, then harmonize the same people."""
        self.fit(X, site, covariates, fit_on=fit_on, is_control=is_control)
        return self.transform(X, site, covariates)

    def status(
        self,
        X: pd.DataFrame | NDArray[Any],
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike | None = None,
    ) -> pd.Series[str]:
        """Say of each person: `harmonized`, `unharmonized` (unseen site) or `excluded`.

        Raises
        ------
        DataError
            There are unseen sites and `unseen_site` is 'error'.
        """
        people = as_features(X).index
        places = as_vector(site, people, 'site')
        lacking = missing_covariates(self.encoder_.select(as_covariates(covariates, people)))
        lacking |= pd.isna(places)
        unseen = ~np.isin(as_labels(places), self.sites_) & ~lacking
        if unseen.any() and self.unseen_site == 'error':
            names = np.unique(as_labels(places[unseen])).tolist()
            raise DataError(
                f'unseen site {name_some(names)} ({unseen.sum()} people: '
                f'{name_some(people[unseen])}); learn the site from its controls '
                "(ComBat.add_site), or skip it (unseen_site='skip', surreal-gan: --unseen-site "
                'skip), which leaves these people unharmonized'
            )
        status = np.select([lacking, unseen], [EXCLUDED, UNHARMONIZED], HARMONIZED)
        return pd.Series(status, index=people, name='harmonization')

    def add_site(
        self,
        X: pd.DataFrame | NDArray[Any],
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike | None = None,
    ) -> ComBat:
        """Learn unseen sites from their controls, with the learned priors; all else stays frozen.

        Parameters
        ----------
        X, site, covariates
            As in `fit`, of people like those the model was learned from (controls, if it was
            learned on controls). From one or two people only the mean of a site is learned.

        Raises
        ------
        DataError
            A site is known already, or the model was learned from one site only.
        """
        table = order_features(as_features(X), self.features_)
        cohort = gather(table, site, covariates, np.ones(len(table), dtype=bool))
        self._require_new(cohort.sites)
        values = cohort.features.to_numpy()[:, self._varying()]
        z = self._standardise(values, self.encoder_.transform(cohort.covariates))
        estimates = [
            self._estimate_site(name, z[cohort.codes == number], self.prior_)
            for number, name in enumerate(cohort.sites)
        ]
        self.sites_ = [*self.sites_, *cohort.sites]
        self.site_sizes_ = [*self.site_sizes_, *cohort.sizes]
        self.shift_ = np.vstack([self.shift_, *(shift for shift, _ in estimates)])
        self.ratio_ = np.vstack([self.ratio_, *(ratio for _, ratio in estimates)])
        LOGGER.info('sites added, all else frozen: %s', name_some(cohort.sites))
        return self

    def to_arrays(self) -> dict[str, Any]:
        """Return the state: values are float64 arrays or plain JSON values."""
        return {
            'empirical_bayes': bool(self.empirical_bayes),
            'mean_only': bool(self.mean_only),
            'unseen_site': self.unseen_site,
            'reference_site': self.reference_,
            'features': list(self.features_),
            'constant': list(self.constant_),
            'tied': list(self.tied_),
            'sites': list(self.sites_),
            'site_sizes': list(self.site_sizes_),
            'fit_on': self.fit_on_,
            'excluded': list(self.excluded_),
            'encoder': self.encoder_.to_json(),
            'prior': None if self.prior_ is None else self.prior_.to_json(),
            'grand_mean': self.grand_mean_,
            'scale': self.scale_,
            'slopes': self.slopes_,
            'penalties': self.penalties_,
            'shift': self.shift_,
            'ratio': self.ratio_,
        }

    @classmethod
    def from_arrays(cls, state: Mapping[str, Any]) -> ComBat:
        """Rebuild a fitted model from `to_arrays`."""
        encoder = CovariateEncoder.from_json(state['encoder'])
        options = ('empirical_bayes', 'mean_only', 'unseen_site', 'reference_site')
        combat = cls(encoder.smooth, encoder.categorical, **{name: state[name] for name in options})
        combat.encoder_ = encoder
        combat.reference_ = state['reference_site']
        combat.prior_ = None if state['prior'] is None else SitePrior(**state['prior'])
        combat.features_, combat.constant_ = list(state['features']), list(state['constant'])
        combat.tied_ = list(state['tied'])
        combat.sites_, combat.site_sizes_ = list(state['sites']), list(state['site_sizes'])
        combat.fit_on_, combat.excluded_ = state['fit_on'], list(state['excluded'])
        combat.grand_mean_, combat.scale_ = _floats(state['grand_mean']), _floats(state['scale'])
        combat.slopes_, combat.penalties_ = _floats(state['slopes']), _floats(state['penalties'])
        combat.shift_, combat.ratio_ = _floats(state['shift']), _floats(state['ratio'])
        return combat

    def _learn_one_site(self, cohort: Cohort) -> None:
        """Keep everyone as they are: with one site there is nothing to tell apart."""
        LOGGER.warning('one site only (%s): features are returned as they are', self.sites_[0])
        values = cohort.features.to_numpy()[:, self._varying()]
        self.reference_: str | None = self.sites_[0]
        self.encoder_ = CovariateEncoder().fit(pd.DataFrame(index=cohort.features.index))
        self.prior_: SitePrior | None = None
        self.slopes_ = np.zeros((0, values.shape[1]))
        self.penalties_ = np.zeros((values.shape[1], 0))
        self.grand_mean_, self.scale_ = values.mean(axis=0), values.std(axis=0)
        self.shift_, self.ratio_ = np.zeros((1, values.shape[1])), np.ones((1, values.shape[1]))

    def _learn(self, cohort: Cohort) -> None:
        """Regress, standardise, then estimate each site."""
        self.encoder_ = CovariateEncoder(self.smooth, self.categorical).fit(cohort.covariates)
        columns = self.encoder_.transform(cohort.covariates)
        require_enough(cohort, columns.shape[1])
        self._require_separable(cohort)
        self._choose_reference()
        values = cohort.features.to_numpy()[:, self._varying()]
        regression = fit_site_regression(
            values, columns, cohort.codes, self.encoder_.roughness_, self._given_penalty()
        )
        self.slopes_, self.penalties_ = regression.slopes, regression.penalties
        self._locate(regression, values - columns @ regression.slopes, cohort)
        self._estimate_sites(self._standardise(values, columns), cohort)

    def _locate(
        self, regression: SiteRegression, adjusted: NDArray[np.float64], cohort: Cohort
    ) -> None:
        """Set alpha and sigma: of all people, or of the reference site."""
        squares = (adjusted - regression.site_means[cohort.codes]) ** 2
        sizes = np.asarray(cohort.sizes, dtype=np.float64)
        self.grand_mean_ = sizes @ regression.site_means / sizes.sum()
        self.scale_ = np.sqrt(squares.mean(axis=0))
        if self.reference_ is not None:
            number = cohort.sites.index(self.reference_)
            self.grand_mean_ = regression.site_means[number]
            own = np.sqrt(squares[cohort.codes == number].mean(axis=0))
            self.scale_ = np.where(own > CONSTANT * self.scale_, own, self.scale_)

    def _estimate_sites(self, z: NDArray[np.float64], cohort: Cohort) -> None:
        """Set gamma and delta of each site, and the priors for sites to come."""
        if self.empirical_bayes and not self._borrows():
            LOGGER.warning('fewer than two features that vary: no strength to borrow, no shrinkage')
        estimates, pooled = [], []
        for number, name in enumerate(cohort.sites):
            mine = z[cohort.codes == number]
            rough = least_squares(mine)
            prior = moments_prior(*rough) if self._borrows() else None
            estimates.append(self._estimate_site(name, mine, prior))
            if len(mine) >= FEWEST_FOR_SCALE and name != self.reference_:
                pooled.append(rough)
        self.shift_, self.ratio_ = (np.array(parts) for parts in zip(*estimates))
        self.prior_ = pooled_prior(pooled) if pooled and self._borrows() else None

    def _estimate_site(
        self, name: str, z: NDArray[np.float64], prior: SitePrior | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Estimate gamma and delta (n_varying,) of one site's standardised people."""
        if name == self.reference_:
            return np.zeros(z.shape[1]), np.ones(z.shape[1])
        if len(z) < FEWEST_FOR_SCALE:
            LOGGER.warning('site %s has %d people: only its mean is adjusted', name, len(z))
        return estimate_site(z, prior, mean_only=self.mean_only)

    def _standardise(
        self, values: NDArray[np.float64], columns: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return (values - self.grand_mean_ - columns @ self.slopes_) / self.scale_

    def _harmonize(
        self, values: NDArray[np.float64], labels: NDArray[np.str_], covariates: pd.DataFrame
    ) -> NDArray[np.float64]:
        """Take gamma and delta out of the varying features; the reference site stays as it is."""
        number = {name: code for code, name in enumerate(self.sites_)}
        codes = np.array([number[label] for label in labels], dtype=np.intp)
        self.encoder_.warn_beyond_range(covariates)
        expected = self.grand_mean_ + self.encoder_.transform(covariates) @ self.slopes_
        rest = values - expected - self.scale_ * self.shift_[codes]
        harmonized = expected + rest / np.sqrt(self.ratio_[codes])
        return np.where((labels == self.reference_)[:, None], values, harmonized)

    def _varying(self) -> NDArray[np.bool_]:
        return ~np.isin(self.features_, self.constant_)

    def _borrows(self) -> bool:
        """Say whether empirical Bayes is asked for and possible."""
        return bool(self.empirical_bayes) and self._varying().sum() > 1

    def _given_penalty(self) -> NDArray[np.float64] | None:
        if isinstance(self.penalty, str):
            return None
        shape = (len(self.features_), len(self.smooth))
        return np.broadcast_to(np.asarray(self.penalty, dtype=np.float64), shape)[self._varying()]

    def _choose_reference(self) -> None:
        asked = self.reference_site
        self.reference_ = None if asked is None else str(as_labels([asked])[0])
        if self.reference_ is None:
            return
        size = dict(zip(self.sites_, self.site_sizes_)).get(self.reference_, 0)
        if size < FEWEST_FOR_SCALE:
            raise DataError(
                f'reference site {self.reference_}: {size} people to learn from, '
                f'{FEWEST_FOR_SCALE} are needed; the sites are {name_some(self.sites_)}'
            )

    def _require_separable(self, cohort: Cohort) -> None:
        """Check covariates as lines even if smooth: the penalty takes care of the bends."""
        lines = CovariateEncoder(categorical=self.categorical).fit(cohort.covariates)
        columns = lines.transform(cohort.covariates)
        require_separable(columns, lines.column_names_, cohort.codes, cohort.sites)

    def _require_new(self, sites: Sequence[str]) -> None:
        again = sorted(set(sites) & set(self.sites_))
        if again:
            raise DataError(f'known already, cannot be added: {name_some(again)}')
        if len(self.sites_) == 1:
            raise DataError(
                'learned from one site only, which says nothing of how sites or covariates '
                'differ; learn again with both sites'
            )


def _log_status(status: pd.Series[str]) -> None:
    for value, why in ((EXCLUDED, 'site or covariate missing'), (UNHARMONIZED, 'unseen site')):
        people = status.index[status == value]
        if len(people):
            LOGGER.warning('%s, %s: %s', value, why, name_some(people))


def _floats(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)
