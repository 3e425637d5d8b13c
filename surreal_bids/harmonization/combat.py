"""ComBat: remove what a site does to the mean and the spread of each feature.

x_ijg = alpha_g + c_ij beta_g + sigma_g (gamma_ig + sqrt(delta_ig) e_ijg) for participant j at site
i and feature g. The covariate effects beta are kept; the site's shift gamma and variance ratio
delta are estimated by empirical Bayes and removed. Fortin et al. (NeuroImage 167:104-120, 2018).
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
    MIN_FOR_SCALE,
    MOST_COVARYING,
    ShiftPrior,
    SitePrior,
    estimate_new_site,
    estimate_site,
    least_squares,
    moments_prior,
    pooled_prior,
    shift_prior,
)
from surreal_bids.harmonization.encoding import (
    CONSTANT,
    FILL_OR_EXCLUDE,
    CovariateEncoder,
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
from surreal_bids.text import counted, list_briefly

LOGGER = logging.getLogger(__name__)

FitOn = Literal['all', 'controls']
UnseenSite = Literal['error', 'skip']

HARMONIZED, UNHARMONIZED, EXCLUDED = 'harmonized', 'unharmonized', 'excluded'
"""Status of a participant: harmonized; at an unseen site, returned as measured; without a site or a
covariate, so that nothing can be computed."""

MOSTLY = 0.5
"""Share of participants with the same value from which a feature counts as tied."""

STORED_LISTS = ('features', 'constant', 'tied', 'sites', 'site_sizes', 'excluded')
STORED_ARRAYS = ('grand_mean', 'scale', 'slopes', 'shift', 'ratio')
"""Learned attributes, less the final underscore, that are stored as they are."""


class UnseenSiteError(DataError):
    """Participants are of a site that was not learned: what was found, and what to do in Python."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f'{found}; {remedy}')
        self.found = found


class ComBat:
    """Harmonize features across sites, now and for participants who come later.

    Parameters
    ----------
    categorical : sequence of str
        Covariates whose numbers are names of levels. Text is categorical anyway.
    empirical_bayes : bool
        Borrow strength across features. Without, or with one feature only, each site's own mean
        and variance are used.
    mean_only : bool
        Remove shifts but leave variances. As in sva and neuroCombat, shifts are then shrunk as if
        each site had one participant: much of a shift may stay. Without `empirical_bayes` it
        is removed entirely.
    reference_site : str, optional
        Site that all others are brought to; its own participants stay as they are.
    unseen_site : {'error', 'skip'}
        What `transform` does for participants of a site that was never learned: refuse, or return
        them as measured, with the status `unharmonized`.

    Attributes
    ----------
    features_, constant_ : list of str
        All features in order; those that do not vary within any site, which pass through.
    tied_ : list of str
        Features of which most participants share one value; harmonized, but better excluded.
    sites_, site_sizes_ : list of str, list of int
        Known sites, and the number of participants each was learned from.
    fit_on_ : {'all', 'controls'}
        Whom the parameters come from.
    excluded_ : list of str
        Participants excluded from fitting: no site or covariate.
    grand_mean_, scale_ : ndarray of shape (n_varying,)
        alpha and sigma, in the unit of the features.
    slopes_ : ndarray of shape (n_columns, n_varying)
        beta.
    shift_, ratio_ : ndarray of shape (n_sites, n_varying)
        gamma and delta of each site.
    prior_ : SitePrior or None
        Priors pooled over the learned sites and features, for sites that come later; None without
        empirical Bayes, when a new site's own mean and variance are used.
    shift_prior_ : ShiftPrior or None
        How shifts of later sites go together across features; None without empirical Bayes or with
        more than `MOST_COVARYING` features, when each feature is by itself.
    """

    reference_: str | None
    prior_: SitePrior | None
    shift_prior_: ShiftPrior | None
    grand_mean_: NDArray[np.float64]
    scale_: NDArray[np.float64]
    slopes_: NDArray[np.float64]
    shift_: NDArray[np.float64]
    ratio_: NDArray[np.float64]

    def __init__(
        self,
        categorical: Sequence[str] = (),
        *,
        empirical_bayes: bool = True,
        mean_only: bool = False,
        reference_site: str | None = None,
        unseen_site: UnseenSite = 'error',
    ) -> None:
        self.categorical = categorical
        self.empirical_bayes = empirical_bayes
        self.mean_only = mean_only
        self.reference_site = reference_site
        self.unseen_site = unseen_site

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
        X : frame or array of shape (n, n_features)
            Features.
        site : Series or array of shape (n,)
            Site of each participant; numbers are taken as names.
        covariates : frame or array of shape (n, n_covariates), optional
            Effects to keep. Where sites differ in diagnosis, give it here or learn on controls.
        fit_on : {'all', 'controls'}
            Learn from everyone, or from controls only.
        is_control : Series or array of bool of shape (n,), optional
            Who is CN; needed for `fit_on='controls'`.

        Raises
        ------
        DataError
            A missing feature value, or a covariate confounded with site.
        """
        table = as_features(X)
        sample = _gather(table, site, covariates, _choose(table.index, fit_on, is_control))
        self.features_ = [str(name) for name in table.columns]
        self.fit_on_: str = fit_on
        self.excluded_ = sample.excluded
        self.sites_, self.site_sizes_ = sample.sites, sample.sizes
        self.constant_ = _constant_features(sample)
        self.tied_ = _tied_features(sample)
        if len(self.sites_) == 1:
            self._learn_one_site(sample)
        else:
            self._learn(sample)
        return self

    def transform(
        self,
        X: Table,
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike | None = None,
    ) -> Table:
        """Harmonize participants of known sites, one or many; the result has the type of `X`.

        Participants of unseen sites follow `unseen_site`; those without site or covariate get
        missing values throughout. Both are logged by name, and `status` shows which is which.

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
        """Learn, then harmonize the same participants."""
        self.fit(X, site, covariates, fit_on=fit_on, is_control=is_control)
        return self.transform(X, site, covariates)

    def status(
        self,
        X: pd.DataFrame | NDArray[Any],
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike | None = None,
    ) -> pd.Series[str]:
        """Status of each participant: `harmonized`, `unharmonized` (unseen site) or `excluded`.

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
            raise UnseenSiteError(
                f'unseen site {list_briefly(names)} ({counted(int(unseen.sum()), "participant")}: '
                f'{list_briefly(people[unseen])})',
                'learn it from its controls (add_site), or leave these participants unharmonized '
                "(unseen_site='skip')",
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

        Shifts are estimated with what is known of how features go together
        (:class:`~surreal_bids.harmonization.empirical_bayes.ShiftPrior`), which few controls need.

        Parameters
        ----------
        X, site, covariates
            As in `fit`, of participants like those the model was learned from (controls, if it was
            learned on controls). From one or two of them only the mean of a site is learned.

        Raises
        ------
        DataError
            A site is known already, or the model was learned from one site only.
        """
        table = order_features(as_features(X), self.features_)
        sample = _gather(table, site, covariates, np.ones(len(table), dtype=bool))
        self._require_new(sample.sites)
        values = sample.features.to_numpy()[:, self._varying()]
        z = self._standardise(values, self.encoder_.transform(sample.covariates))
        estimates = [
            self._estimate_new_site(z[sample.codes == number])
            for number in range(len(sample.sites))
        ]
        self.sites_ = [*self.sites_, *sample.sites]
        self.site_sizes_ = [*self.site_sizes_, *sample.sizes]
        self.shift_ = np.vstack([self.shift_, *(shift for shift, _ in estimates)])
        self.ratio_ = np.vstack([self.ratio_, *(ratio for _, ratio in estimates)])
        return self

    def to_arrays(self) -> dict[str, Any]:
        """Return the state: values are float64 arrays or plain JSON values."""
        return {
            'empirical_bayes': bool(self.empirical_bayes),
            'mean_only': bool(self.mean_only),
            'unseen_site': self.unseen_site,
            'reference_site': self.reference_,
            'fit_on': self.fit_on_,
            'encoder': self.encoder_.to_json(),
            'prior': None if self.prior_ is None else self.prior_.to_json(),
            **self._covariances(),
            **{name: list(getattr(self, f'{name}_')) for name in STORED_LISTS},
            **{name: getattr(self, f'{name}_') for name in STORED_ARRAYS},
        }

    @classmethod
    def from_arrays(cls, state: Mapping[str, Any]) -> ComBat:
        """Rebuild a fitted model from `to_arrays`."""
        encoder = CovariateEncoder.from_json(state['encoder'])
        options = ('empirical_bayes', 'mean_only', 'unseen_site', 'reference_site')
        combat = cls(encoder.categorical, **{name: state[name] for name in options})
        combat.encoder_ = encoder
        combat.reference_ = state['reference_site']
        combat.fit_on_ = state['fit_on']
        combat.prior_ = None if state['prior'] is None else SitePrior(**state['prior'])
        combat.shift_prior_ = None
        if 'within' in state:
            combat.shift_prior_ = ShiftPrior(state['within'], state['between'])
            np.linalg.cholesky(combat.shift_prior_.within)
        for name in STORED_LISTS:
            setattr(combat, f'{name}_', list(state[name]))
        for name in STORED_ARRAYS:
            setattr(combat, f'{name}_', np.asarray(state[name], dtype=np.float64))
        return combat

    def _covariances(self) -> dict[str, NDArray[np.float64]]:
        """State of the prior of shifts; nothing where there is none."""
        prior = self.shift_prior_
        return {} if prior is None else {'within': prior.within, 'between': prior.between}

    def _learn_one_site(self, sample: _Sample) -> None:
        """Keep everyone unchanged: with one site there is no site effect to estimate."""
        LOGGER.warning('one site only (%s): features are returned unchanged', self.sites_[0])
        values = sample.features.to_numpy()[:, self._varying()]
        self.reference_ = self.sites_[0]
        self.encoder_ = CovariateEncoder().fit(pd.DataFrame(index=sample.features.index))
        self.prior_, self.shift_prior_ = None, None
        self.slopes_ = np.zeros((0, values.shape[1]))
        self.grand_mean_, self.scale_ = values.mean(axis=0), values.std(axis=0)
        self.shift_, self.ratio_ = np.zeros((1, values.shape[1])), np.ones((1, values.shape[1]))

    def _learn(self, sample: _Sample) -> None:
        """Regress, standardise, then estimate each site."""
        self.encoder_ = CovariateEncoder(self.categorical).fit(sample.covariates)
        columns = self.encoder_.transform(sample.covariates)
        _require_enough(sample, columns.shape[1])
        require_separable(columns, self.encoder_.column_names_, sample.codes, sample.sites)
        self._choose_reference()
        values = sample.features.to_numpy()[:, self._varying()]
        site_means, self.slopes_ = fit_site_regression(values, columns, sample.codes)
        self._locate(site_means, values - columns @ self.slopes_, sample)
        self._estimate_sites(self._standardise(values, columns), sample)

    def _locate(
        self, site_means: NDArray[np.float64], adjusted: NDArray[np.float64], sample: _Sample
    ) -> None:
        """Set alpha and sigma: of everyone, or of the reference site."""
        squares = (adjusted - site_means[sample.codes]) ** 2
        sizes = np.asarray(sample.sizes, dtype=np.float64)
        self.grand_mean_ = sizes @ site_means / sizes.sum()
        self.scale_ = np.sqrt(squares.mean(axis=0))
        if self.reference_ is not None:
            number = sample.sites.index(self.reference_)
            self.grand_mean_ = site_means[number]
            own = np.sqrt(squares[sample.codes == number].mean(axis=0))
            self.scale_ = np.where(own > CONSTANT * self.scale_, own, self.scale_)

    def _estimate_sites(self, z: NDArray[np.float64], sample: _Sample) -> None:
        """Set gamma and delta of each site, and the priors for sites to come."""
        if self.empirical_bayes and not self._borrows():
            LOGGER.warning('fewer than two features vary: no strength to borrow, no shrinkage')
        estimates, pooled = [], []
        for number, name in enumerate(sample.sites):
            mine = z[sample.codes == number]
            rough = least_squares(mine)
            prior = moments_prior(*rough) if self._borrows() else None
            estimates.append(self._estimate_site(name, mine, prior))
            if len(mine) >= MIN_FOR_SCALE and name != self.reference_:
                pooled.append((number, *rough))
        self.shift_, self.ratio_ = (np.array(parts) for parts in zip(*estimates))
        self.prior_, self.shift_prior_ = None, None
        if pooled and self._borrows():
            self.prior_ = pooled_prior([(shift, ratio) for _, shift, ratio in pooled])
            self._learn_covariances(z, sample, [number for number, *_ in pooled])

    def _learn_covariances(
        self, z: NDArray[np.float64], sample: _Sample, pooled: Sequence[int]
    ) -> None:
        """Learn how features covary within sites, and the shifts of the pooled ones."""
        if z.shape[1] > MOST_COVARYING or self.mean_only:
            return
        means = group_means(z, sample.codes, len(sample.sites))
        sizes = np.asarray(sample.sizes, dtype=np.float64)[pooled]
        self.shift_prior_ = shift_prior(z - means[sample.codes], means[pooled], sizes)

    def _estimate_site(
        self, name: str, z: NDArray[np.float64], prior: SitePrior | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Estimate gamma and delta (n_varying,) from one site's standardised features."""
        if name == self.reference_:
            return np.zeros(z.shape[1]), np.ones(z.shape[1])
        if len(z) < MIN_FOR_SCALE:
            LOGGER.warning('site %s has %d participants: only its mean is adjusted', name, len(z))
        return estimate_site(z, prior, mean_only=self.mean_only)

    def _estimate_new_site(
        self, z: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Estimate gamma and delta (n_varying,) of a site that is added."""
        if self.prior_ is not None and self.shift_prior_ is not None:
            return estimate_new_site(z, self.prior_, self.shift_prior_)
        prior = self.prior_
        if prior is None and self._borrows() and len(z) >= MIN_FOR_SCALE:
            prior = moments_prior(*least_squares(z))
        return estimate_site(z, prior, mean_only=self.mean_only)

    def _standardise(
        self, values: NDArray[np.float64], columns: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return (values - self.grand_mean_ - columns @ self.slopes_) / self.scale_

    def _harmonize(
        self, values: NDArray[np.float64], labels: NDArray[np.str_], covariates: pd.DataFrame
    ) -> NDArray[np.float64]:
        """Remove gamma and delta from the varying features; the reference site is unchanged."""
        number = {name: code for code, name in enumerate(self.sites_)}
        codes = np.array([number[label] for label in labels], dtype=np.intp)
        expected = self.grand_mean_ + self.encoder_.transform(covariates) @ self.slopes_
        rest = values - expected - self.scale_ * self.shift_[codes]
        harmonized = expected + rest / np.sqrt(self.ratio_[codes])
        return np.where((labels == self.reference_)[:, None], values, harmonized)

    def _varying(self) -> NDArray[np.bool_]:
        return ~np.isin(self.features_, self.constant_)

    def _borrows(self) -> bool:
        """Whether empirical Bayes is asked for and possible."""
        return bool(self.empirical_bayes) and self._varying().sum() > 1

    def _choose_reference(self) -> None:
        asked = self.reference_site
        self.reference_ = None if asked is None else str(as_labels([asked])[0])
        if self.reference_ is None:
            return
        size = dict(zip(self.sites_, self.site_sizes_)).get(self.reference_, 0)
        if size < MIN_FOR_SCALE:
            raise DataError(
                f'reference site {self.reference_}: {size} participants to learn from, '
                f'{MIN_FOR_SCALE} are needed; the sites are {list_briefly(self.sites_)}'
            )

    def _require_new(self, sites: Sequence[str]) -> None:
        again = sorted(set(sites) & set(self.sites_))
        if again:
            raise DataError(f'known already, cannot be added: {list_briefly(again)}')
        if self.sites_ == [self.reference_]:
            raise DataError(
                'the model was learned from one site only, which does not show how sites or '
                'covariates differ; learn again with both sites'
            )


@dataclass(frozen=True, eq=False)
class _Sample:
    """Participants to learn from, in one order, without missing values.

    Attributes
    ----------
    features, covariates : frames of shape (n, n_features) and (n, n_covariates)
    sites : list of str
        Names of the sites, sorted.
    codes : ndarray of shape (n,)
        Number of each participant's site among `sites`.
    excluded : list of str
        Participants without a site or a covariate.
    """

    features: pd.DataFrame
    covariates: pd.DataFrame
    sites: list[str]
    codes: NDArray[np.intp]
    excluded: list[str]

    @property
    def sizes(self) -> list[int]:
        """Participants of each site."""
        return np.bincount(self.codes, minlength=len(self.sites)).tolist()


def _choose(
    people: pd.Index[Any], fit_on: FitOn, is_control: pd.Series[Any] | ArrayLike | None
) -> NDArray[np.bool_]:
    """Whom to learn from: booleans (n,)."""
    if fit_on == 'all':
        return np.ones(len(people), dtype=bool)
    if fit_on != 'controls':
        raise UsageError(f'fit_on {fit_on!r}: choose all or controls')
    if is_control is None:
        raise UsageError("fit_on='controls' needs is_control, which marks who is CN")
    return as_mask(is_control, people)


def _gather(
    features: pd.DataFrame,
    site: pd.Series[Any] | ArrayLike,
    covariates: pd.DataFrame | ArrayLike | None,
    chosen: NDArray[np.bool_],
) -> _Sample:
    """Bring together the chosen participants; those without site or covariate are excluded."""
    places = as_vector(site, features.index, 'site')
    covariate_table = as_covariates(covariates, features.index)
    lacking = missing_covariates(covariate_table) | pd.isna(places)
    excluded = features.index[chosen & lacking]
    if len(excluded):
        LOGGER.warning('excluded, missing site or covariate: %s', list_briefly(excluded))
    kept = chosen & ~lacking
    if not kept.any():
        raise DataError('nobody to learn from: everyone lacks a site or a covariate, or is no CN')
    require_finite(features.loc[kept], 'features', FILL_OR_EXCLUDE)
    sites, codes = np.unique(as_labels(places[kept]), return_inverse=True)
    names = [str(person) for person in excluded]
    return _Sample(features.loc[kept], covariate_table.loc[kept], sites.tolist(), codes, names)


def _require_enough(sample: _Sample, n_columns: int) -> None:
    """Refuse a regression on sites and covariate columns that would leave no residual."""
    needed = len(sample.sites) + n_columns + 1
    if len(sample.codes) < needed:
        raise DataError(
            f'{len(sample.codes)} participants for {len(sample.sites)} sites and {n_columns} '
            f'covariate columns; the minimum is {needed}: use fewer covariates'
        )


def _constant_features(sample: _Sample) -> list[str]:
    """Name, and log, the features that do not vary within any site."""
    values = sample.features.to_numpy()
    within = values - group_means(values, sample.codes, len(sample.sites))[sample.codes]
    still = np.abs(within).max(axis=0) <= CONSTANT * np.abs(values).max(axis=0)
    names = [str(name) for name in sample.features.columns[still]]
    if names:
        LOGGER.warning('constant within every site, returned unchanged: %s', list_briefly(names))
    return names


def _tied_features(sample: _Sample) -> list[str]:
    """Name, and log, the varying features of which more than half the participants share one value.

    Shifting a value that most share (no lesion: 0) gives it another value at each site, by which a
    nonlinear model can tell the sites apart better than before.
    """
    values = sample.features.to_numpy()
    shared = (values == np.median(values, axis=0)).mean(axis=0)
    tied = (shared > MOSTLY) & (np.ptp(values, axis=0) > 0)
    names = [str(name) for name in sample.features.columns[tied]]
    if names:
        LOGGER.warning(
            'most participants share one value, which will differ between sites once harmonized; '
            'better excluded: %s',
            list_briefly(names),
        )
    return names


def _log_status(status: pd.Series[str]) -> None:
    for value, why in ((EXCLUDED, 'missing site or covariate'), (UNHARMONIZED, 'unseen site')):
        people = status.index[status == value]
        if len(people):
            LOGGER.info('%s, %s: %s', value, why, list_briefly(people))
