"""ComBat: remove site effects on mean and variance of each feature.

x_ijg = alpha_g + c_ij beta_g + sigma_g (gamma_ig + sqrt(delta_ig) e_ijg) for participant j at site
i and feature g. The covariate effects beta are kept; the site's shift gamma and variance ratio
delta are estimated by empirical Bayes and removed. Fortin et al. (NeuroImage 167:104-120, 2018).

Where rows are visits of participants, alpha_g has a random intercept of each participant (Beer et
al., NeuroImage 220:117129, 2020): sites are compared within participants who were scanned at
several. Only gamma is removed then. Intercepts are estimated from the visits themselves, which
leaves residuals too small: about half the variance if everyone has two visits. Dividing them by
delta, as longCombat does, would enlarge every change by as much.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.cautions import HARMONIZATION, Caution
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.arguments import covariates_frame, features_frame, series_of
from surreal_bids.harmonization.empirical_bayes import (
    CONVERGED,
    MIN_FOR_SCALE,
    MOST_COVARYING,
    TOLERANCE,
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
    as_labels,
    fit_site_regression,
    fit_visit_regression,
    group_means,
    missing_covariates,
    require_finite,
    require_separable,
)
from surreal_bids.text import counted, list_briefly

LOGGER = logging.getLogger(__name__)

Floats = NDArray[np.float64]
UnseenSite = Literal['error', 'skip']

HARMONIZED, UNHARMONIZED = 'harmonized', 'unharmonized'
"""Status of a participant: harmonized, or from an unseen site and returned unchanged."""

MOSTLY_TIED = 0.5
"""A feature is tied if more than this share of the participants have the same value."""

STORED_LISTS = ('features', 'constant', 'sites', 'site_sizes')
STORED_ARRAYS = ('grand_mean', 'scale', 'slopes', 'shift', 'ratio')
"""Learned attributes, without the trailing underscore, that are stored unchanged."""


class UnseenSiteError(DataError):
    """Participants come from sites that the model was not fitted on."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f'{found}; {remedy}')
        self.found = found


class ComBat:
    """Harmonize features across sites, for the sample of `fit` and for new participants.

    Parameters
    ----------
    unseen_site : {'error', 'skip'}
        How `transform` treats participants from sites that were not in `fit`: raise an error, or
        return them unchanged with the status `unharmonized`.

    Attributes
    ----------
    features_ : list of str
        Names of the features in order.
    constant_ : list of str
        Features that do not vary within any site. They are returned unchanged.
    sites_, site_sizes_ : list of str, list of int
        Names of the fitted sites, and the number of participants (or visits) of each.
    encoder_ : CovariateEncoder
        Converts covariates into columns of the design matrix.
    grand_mean_, scale_ : ndarray of shape (n_varying,)
        alpha and sigma, in the unit of the features.
    slopes_ : ndarray of shape (n_columns, n_varying)
        beta.
    shift_, ratio_ : ndarray of shape (n_sites, n_varying)
        gamma and delta of each site.
    prior_ : SitePrior or None
        Priors pooled over sites and features, for sites added later.
    shift_prior_ : ShiftPrior or None
        Covariance of site shifts across features, for sites added later. None with more than
        `MOST_COVARYING` features: features are then independent.
    shift_error_ : ndarray of shape (n_fitted_sites, n_fitted_sites), or None
        Variance of the difference of two sites' shifts, in units of squared `scale_`, averaged over
        features, if the fit had several visits of some participants. Otherwise None.
    """

    features_: list[str]
    constant_: list[str]
    sites_: list[str]
    site_sizes_: list[int]
    encoder_: CovariateEncoder
    grand_mean_: Floats
    scale_: Floats
    slopes_: Floats
    shift_: Floats
    ratio_: Floats

    def __init__(self, unseen_site: UnseenSite = 'error') -> None:
        self.unseen_site = unseen_site
        self.prior_: SitePrior | None = None
        self.shift_prior_: ShiftPrior | None = None
        self.shift_error_: Floats | None = None

    def fit(
        self,
        X: pd.DataFrame | ArrayLike,
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike,
        participants: pd.Series[Any] | ArrayLike | None = None,
    ) -> ComBat:
        """Estimate the effects of sites and covariates.

        If sites differ in diagnosis, fit to controls only.

        Parameters
        ----------
        X : frame or array of shape (n, n_features)
            Features.
        site : Series or array of shape (n,)
            Site of each participant. Numbers are used as names. A Series is matched to `X` by its
            index and may have more rows; an array has the order of `X`.
        covariates : frame or array of shape (n, n_covariates)
            Covariates whose effects are preserved, matched like `site`.
        participants : Series or array of shape (n,), optional
            Participant of each row. If some have several rows (visits), each participant gets a
            random intercept, and only shifts are removed. Include the age at each visit in the
            covariates: what changes in everyone is otherwise taken for a site effect.

        Raises
        ------
        DataError
            A missing value or row, or a covariate confounded with site.
        """
        X = features_frame(X, (site, covariates, participants))
        labels, rows = _aligned(X, site, covariates)
        sites, codes = np.unique(labels, return_inverse=True)
        self.features_ = [str(name) for name in X.columns]
        self.sites_ = sites.tolist()
        self.site_sizes_ = np.bincount(codes, minlength=len(sites)).tolist()
        self.constant_ = _constant_features(X, codes, len(sites))
        _warn_of_tied_features(X)
        values = X.to_numpy(dtype=np.float64)[:, self._varying()]
        if len(self.sites_) == 1:
            self._learn_one_site(values)
            return self
        who = None
        if participants is not None:
            persons = as_labels(series_of(participants, X.index, 'participants'))
            people, who = np.unique(persons, return_inverse=True)
            who = None if len(people) == len(who) else who
        self._learn(values, codes, rows, who)
        return self

    @overload
    def transform(
        self,
        X: pd.DataFrame,
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike,
    ) -> pd.DataFrame: ...

    @overload
    def transform(
        self, X: ArrayLike, site: pd.Series[Any] | ArrayLike, covariates: pd.DataFrame | ArrayLike
    ) -> Floats: ...

    def transform(
        self,
        X: pd.DataFrame | ArrayLike,
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike,
    ) -> pd.DataFrame | Floats:
        """Harmonize participants from the fitted sites; `status` marks those from unseen sites.

        Parameters
        ----------
        X, site, covariates
            As in `fit`. Columns of a frame are matched by name.

        Returns
        -------
        frame or array of shape (n, n_features)
            Harmonized features: a frame if `X` is one, otherwise an array.

        Raises
        ------
        DataError
            A missing value, row or feature, or an unseen site (unless skipped).
        """
        table = features_frame(X, (site, covariates), self.features_)
        labels, rows = _aligned(table, site, covariates, self.encoder_.covariates_)
        known = (self.status(table, site) == HARMONIZED).to_numpy()
        values = table.to_numpy(dtype=np.float64, copy=True)
        chosen = np.ix_(known, self._varying())
        values[chosen] = self._harmonize(values[chosen], labels[known], rows.loc[known])
        if not isinstance(X, pd.DataFrame):
            return values
        return pd.DataFrame(values, index=table.index, columns=table.columns)

    def status(
        self, X: pd.DataFrame | ArrayLike, site: pd.Series[Any] | ArrayLike
    ) -> pd.Series[str]:
        """Return the status of each participant: `harmonized`, or `unharmonized` (unseen site).

        Raises
        ------
        DataError
            There are unseen sites and `unseen_site` is 'error'.
        """
        index = features_frame(X, (site,), self.features_).index
        labels = as_labels(series_of(site, index, 'site'))
        unseen = ~np.isin(labels, self.sites_)
        if unseen.any() and self.unseen_site == 'error':
            raise UnseenSiteError(
                f'unseen site {list_briefly(np.unique(labels[unseen]).tolist())} '
                f'({counted(int(unseen.sum()), "participant")}: {list_briefly(index[unseen])})',
                'add the site with its controls (add_site), or return these participants '
                "unharmonized (unseen_site='skip')",
            )
        status = np.where(unseen, UNHARMONIZED, HARMONIZED)
        return pd.Series(status, index=index, name='harmonization')

    def add_site(
        self,
        X: pd.DataFrame | ArrayLike,
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike,
    ) -> ComBat:
        """Add unseen sites from their controls; all other estimates remain unchanged.

        Shifts are estimated with the covariance of features
        (:class:`~surreal_bids.harmonization.empirical_bayes.ShiftPrior`), which stabilises them if
        controls are few.

        Parameters
        ----------
        X, site, covariates
            As in `fit`, of participants like those used for `fit`. With one or two participants,
            only the mean of a site is estimated.

        Raises
        ------
        DataError
            A site is already known, or the model was fitted on one site only.
        """
        table = features_frame(X, (site, covariates), self.features_)
        labels, rows = _aligned(table, site, covariates, self.encoder_.covariates_)
        sites, codes = np.unique(labels, return_inverse=True)
        self._require_new(sites.tolist())
        values = table.to_numpy(dtype=np.float64)[:, self._varying()]
        z = self._standardise(values, self.encoder_.transform(rows))
        estimates = [self._estimate_new_site(z[codes == number]) for number in range(len(sites))]
        self.sites_ = [*self.sites_, *sites.tolist()]
        self.site_sizes_ = [*self.site_sizes_, *np.bincount(codes).tolist()]
        self.shift_ = np.vstack([self.shift_, *(shift for shift, _ in estimates)])
        self.ratio_ = np.vstack([self.ratio_, *(ratio for _, ratio in estimates)])
        return self

    @classmethod
    def setting_names(cls) -> tuple[str, ...]:
        """Names of the parameters of the constructor."""
        return tuple(inspect.signature(cls).parameters)

    @property
    def settings(self) -> dict[str, Any]:
        """The parameters of the constructor, by name."""
        return {name: getattr(self, name) for name in self.setting_names()}

    def copy(self, **changes: Any) -> ComBat:
        """Return a copy of a fitted model; `changes` replace values of `to_arrays`."""
        return self.from_arrays({**self.to_arrays(), **changes})

    @property
    def compared_sites_(self) -> list[str]:
        """Sites that were compared within participants; those added later were not."""
        return [] if self.shift_error_ is None else self.sites_[: len(self.shift_error_)]

    def to_arrays(self) -> dict[str, Any]:
        """Return the state as float64 arrays and plain JSON values."""
        prior, error = self.shift_prior_, self.shift_error_
        covariances = {} if prior is None else {'within': prior.within, 'between': prior.between}
        return {
            **self.settings,
            'encoder': self.encoder_.to_json(),
            'prior': None if self.prior_ is None else self.prior_.to_json(),
            **covariances,
            **({} if error is None else {'shift_error': error}),
            **{name: list(getattr(self, f'{name}_')) for name in STORED_LISTS},
            **{name: getattr(self, f'{name}_') for name in STORED_ARRAYS},
        }

    @classmethod
    def from_arrays(cls, state: Mapping[str, Any]) -> ComBat:
        """Rebuild a fitted model from `to_arrays`."""
        # A model that was stored before a parameter existed has its default.
        combat = cls(**{name: state[name] for name in cls.setting_names() if name in state})
        combat.encoder_ = CovariateEncoder.from_json(state['encoder'])
        combat.prior_ = None if state['prior'] is None else SitePrior.from_json(state['prior'])
        if 'within' in state:
            combat.shift_prior_ = ShiftPrior(state['within'], state['between'])
        combat.shift_error_ = state.get('shift_error')
        for name in STORED_LISTS:
            setattr(combat, f'{name}_', list(state[name]))
        for name in STORED_ARRAYS:
            setattr(combat, f'{name}_', np.asarray(state[name], dtype=np.float64))
        return combat

    def _learn_one_site(self, values: Floats) -> None:
        """Return features unchanged: with one site there is no site effect to estimate."""
        LOGGER.info(
            'ComBat: all participants come from one site (%s); features are returned unchanged.',
            self.sites_[0],
        )
        self.encoder_ = CovariateEncoder().fit(pd.DataFrame(index=range(len(values))))
        self.slopes_ = np.zeros((0, values.shape[1]))
        self.grand_mean_, self.scale_ = values.mean(axis=0), values.std(axis=0)
        self.shift_, self.ratio_ = np.zeros((1, values.shape[1])), np.ones((1, values.shape[1]))

    def _learn(
        self,
        values: Floats,
        codes: NDArray[np.intp],
        covariates: pd.DataFrame,
        participants: NDArray[np.intp] | None,
    ) -> None:
        """Regress, standardise, then estimate each site."""
        self.encoder_ = CovariateEncoder().fit(covariates)
        columns = self.encoder_.transform(covariates)
        needed = len(self.sites_) + columns.shape[1] + 1
        if len(values) < needed:
            raise DataError(
                f'{len(values)} participants for {len(self.sites_)} sites and {columns.shape[1]} '
                f'covariate columns; ComBat needs at least {needed}: use fewer covariates'
            )
        require_separable(columns, self.encoder_.column_names_, codes, self.sites_)
        sizes = np.asarray(self.site_sizes_, dtype=np.float64)
        if participants is None:
            site_means, self.slopes_ = fit_site_regression(values, columns, codes)
            self.grand_mean_ = sizes @ site_means / sizes.sum()
            residuals = values - columns @ self.slopes_ - site_means[codes]
            self.scale_ = np.sqrt((residuals**2).mean(axis=0))
            z = self._standardise(values, columns)
            self._estimate_sites(z, z, codes)
        else:
            LOGGER.info('ComBat: sites are compared within participants (longitudinal ComBat)')
            visits = fit_visit_regression(values, columns, codes, participants)
            self.slopes_, self.scale_ = visits.slopes, visits.sigma
            self.shift_error_ = visits.shift_error
            self.grand_mean_ = sizes @ visits.site_means / sizes.sum()
            z = self._standardise(values, columns)
            self._estimate_sites(z - visits.intercepts / self.scale_, z, codes)

    def _estimate_sites(self, z: Floats, of_people: Floats, codes: NDArray[np.intp]) -> None:
        """Set gamma and delta of each site, and the priors for sites added later.

        `z` are standardised features, without the random intercepts that `of_people` still has.
        """
        tolerance = TOLERANCE if self.shift_error_ is None else CONVERGED
        estimates, rough = [], []
        for number, name in enumerate(self.sites_):
            mine = z[codes == number]
            rough.append(least_squares(mine))
            prior = moments_prior(*rough[-1]) if self._borrows() else None
            estimates.append(estimate_site(mine, prior, tolerance))
            if len(mine) < MIN_FOR_SCALE:
                LOGGER.info(
                    'ComBat: site %s has only %d participants; its mean is adjusted, its variance '
                    'is not.',
                    name,
                    len(mine),
                )
        self.shift_, self.ratio_ = (np.array(parts) for parts in zip(*estimates))
        sizes = np.asarray(self.site_sizes_, dtype=np.float64)
        large = np.flatnonzero(sizes >= MIN_FOR_SCALE)
        if not large.size or not self._borrows():
            return
        self.prior_ = pooled_prior([rough[number] for number in large])
        if z.shape[1] <= MOST_COVARYING:
            means = group_means(of_people, codes, len(sizes))
            self.shift_prior_ = shift_prior(of_people - means[codes], means[large], sizes[large])

    def _estimate_new_site(self, z: Floats) -> tuple[Floats, Floats]:
        """Estimate gamma and delta (n_varying,) of an added site."""
        if self.prior_ is not None and self.shift_prior_ is not None:
            return estimate_new_site(z, self.prior_, self.shift_prior_)
        prior = self.prior_
        if prior is None and self._borrows() and len(z) >= MIN_FOR_SCALE:
            prior = moments_prior(*least_squares(z))
        return estimate_site(z, prior)

    def _standardise(self, values: Floats, columns: Floats) -> Floats:
        return (values - self.grand_mean_ - columns @ self.slopes_) / self.scale_

    def _harmonize(
        self, values: Floats, labels: NDArray[np.str_], covariates: pd.DataFrame
    ) -> Floats:
        """Remove gamma and delta from the varying features."""
        if len(self.sites_) == 1:
            return values
        number = {name: code for code, name in enumerate(self.sites_)}
        codes = np.array([number[label] for label in labels], dtype=np.intp)
        expected = self.grand_mean_ + self.encoder_.transform(covariates) @ self.slopes_
        rest = values - expected - self.scale_ * self.shift_[codes]
        if self.shift_error_ is None:
            rest /= np.sqrt(self.ratio_[codes])
        return expected + rest

    def _varying(self) -> NDArray[np.bool_]:
        return ~np.isin(self.features_, self.constant_)

    def _borrows(self) -> bool:
        """Whether there are other features to borrow strength from."""
        return bool(self._varying().sum() > 1)

    def _require_new(self, sites: Sequence[str]) -> None:
        again = sorted(set(sites) & set(self.sites_))
        if again:
            raise DataError(
                f'the model already includes the site {list_briefly(again)}; add only new sites'
            )
        if len(self.sites_) == 1 and self.site_sizes_[0]:
            raise DataError(
                'the model was fitted on one site only and has no estimate of site differences; '
                'fit it again with all sites'
            )


def _aligned(
    X: pd.DataFrame,
    site: pd.Series[Any] | ArrayLike,
    covariates: pd.DataFrame | ArrayLike,
    names: Sequence[str] = (),
) -> tuple[NDArray[np.str_], pd.DataFrame]:
    """Sites and covariates of the participants of `X`, who must lack nothing."""
    place = series_of(site, X.index, 'site')
    rows = covariates_frame(covariates, X.index, names)
    lacking = missing_covariates(rows) | place.isna().to_numpy()
    if lacking.any():
        raise DataError(
            f'a site or covariate is missing for {list_briefly(X.index[lacking])}; complete the '
            'table or exclude these participants'
        )
    require_finite(X, 'features', FILL_OR_EXCLUDE)
    return as_labels(place), rows


def _constant_features(X: pd.DataFrame, codes: NDArray[np.intp], n_sites: int) -> list[str]:
    """List and log the features that do not vary within any site."""
    values = X.to_numpy(dtype=np.float64)
    within = values - group_means(values, codes, n_sites)[codes]
    still = np.abs(within).max(axis=0) <= CONSTANT * np.abs(values).max(axis=0)
    names = [str(name) for name in X.columns[still]]
    if names:
        LOGGER.info(
            'ComBat: features that are constant within every site are returned unchanged: %s',
            list_briefly(names),
        )
    return names


def _warn_of_tied_features(X: pd.DataFrame) -> None:
    """Warn of varying features with the same value in more than half the participants.

    Harmonizing such a value (no lesion: 0) gives it another value at each site. A nonlinear model
    can then distinguish the sites better than before.
    """
    values = X.to_numpy(dtype=np.float64)
    shared = (values == np.median(values, axis=0)).mean(axis=0)
    tied = X.columns[(shared > MOSTLY_TIED) & (np.ptp(values, axis=0) > 0)]
    if len(tied):
        LOGGER.warning(
            Caution(
                f'ComBat: most participants have the same value in {list_briefly(tied)}',
                'Harmonization makes this value differ between sites',
                'Exclude these features (--features)',
                HARMONIZATION,
            )
        )
