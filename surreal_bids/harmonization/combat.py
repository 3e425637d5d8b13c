"""ComBat as a scikit-learn estimator: remove site effects on mean and variance of each feature.

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

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from surreal_bids.exceptions import DataError, UsageError
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
    SiteSample,
    Table,
    as_covariates,
    as_features,
    as_labels,
    as_mask,
    as_vector,
    constant_features,
    fit_site_regression,
    fit_visit_regression,
    gather_sites,
    group_means,
    like,
    missing_covariates,
    order_features,
    require_finite,
    require_separable,
    tied_features,
)
from surreal_bids.text import counted, list_briefly

LOGGER = logging.getLogger(__name__)

FitOn = Literal['all', 'controls']
UnseenSite = Literal['error', 'skip']

HARMONIZED, UNHARMONIZED, EXCLUDED = 'harmonized', 'unharmonized', 'excluded'
"""Status of a participant: harmonized; from an unseen site and returned unchanged; or excluded
because the site or a covariate is missing."""

STORED_LISTS = ('features', 'constant', 'tied', 'sites', 'site_sizes', 'excluded')
STORED_ARRAYS = ('grand_mean', 'scale', 'slopes', 'shift', 'ratio')
"""Learned attributes, without the trailing underscore, that are stored unchanged."""


class UnseenSiteError(DataError):
    """Participants come from sites that the model was not fitted on."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f'{found}; {remedy}')
        self.found = found


class ComBat(TransformerMixin, BaseEstimator):
    """Harmonize features across sites, for the sample of `fit` and for new participants.

    Parameters
    ----------
    categorical : sequence of str
        Numeric covariates that are categories, such as a scanner number. Text is always
        categorical.
    empirical_bayes : bool
        Shrink site effects across features. If False, or with one feature only, the mean and
        variance of each site are used as they are.
    mean_only : bool
        Remove shifts and keep variances. As in sva and neuroCombat, shifts are then shrunk as if
        each site had one participant, and much of a shift may remain. With
        `empirical_bayes=False` the shift is removed entirely.
    reference_site : str, optional
        Site to which all other sites are harmonized. Its own participants are not changed.
    unseen_site : {'error', 'skip'}
        How `transform` treats participants from sites that were not in `fit`: raise an error, or
        return them unchanged with the status `unharmonized`.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of str
        Names of the features. Defined only if `X` was a frame with column names.
    features_ : list of str
        Names of the features in order; numbers if `X` was an array.
    constant_ : list of str
        Features that do not vary within any site. They are returned unchanged.
    tied_ : list of str
        Features with the same value in most participants. They are harmonized, but should rather
        be excluded.
    sites_, site_sizes_ : list of str, list of int
        Names of the fitted sites, and the number of participants (or visits) of each.
    reference_ : str or None
        Name of the reference site.
    fit_on_ : {'all', 'controls'}
        Participants used by `fit`.
    excluded_ : list of str
        Participants excluded from `fit` because the site or a covariate is missing.
    encoder_ : CovariateEncoder
        Converts covariates into columns of the design matrix.
    grand_mean_, scale_ : ndarray of shape (n_varying,)
        alpha and sigma, in the unit of the features.
    slopes_ : ndarray of shape (n_columns, n_varying)
        beta.
    shift_, ratio_ : ndarray of shape (n_sites, n_varying)
        gamma and delta of each site.
    prior_ : SitePrior or None
        Priors pooled over sites and features, for sites added later. None without empirical Bayes:
        the mean and variance of the new site are then used as they are.
    shift_prior_ : ShiftPrior or None
        Covariance of site shifts across features, for sites added later. None without empirical
        Bayes or with more than `MOST_COVARYING` features: features are then independent.
    shift_error_ : ndarray of shape (n_fitted_sites, n_fitted_sites), or None
        Variance of the difference of two sites' shifts, in units of squared `scale_`, averaged over
        features, if the fit had several visits of some participants. Otherwise None.
    """

    reference_: str | None
    prior_: SitePrior | None
    shift_prior_: ShiftPrior | None
    grand_mean_: NDArray[np.float64]
    scale_: NDArray[np.float64]
    slopes_: NDArray[np.float64]
    shift_: NDArray[np.float64]
    ratio_: NDArray[np.float64]
    shift_error_: NDArray[np.float64] | None

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
        participants: pd.Series[Any] | ArrayLike | None = None,
    ) -> ComBat:
        """Estimate the effects of sites and covariates.

        Parameters
        ----------
        X : frame or array of shape (n, n_features)
            Features.
        site : Series or array of shape (n,)
            Site of each participant. Numbers are used as names.
        covariates : frame or array of shape (n, n_covariates), optional
            Covariates whose effects are preserved. If sites differ in diagnosis, add it here or
            use `fit_on='controls'`.
        fit_on : {'all', 'controls'}
            Use all participants, or controls only.
        is_control : Series or array of bool of shape (n,), optional
            True for controls; required for `fit_on='controls'`.
        participants : Series or array of shape (n,), optional
            Participant of each row. If some have several rows (visits), each participant gets a
            random intercept, and only shifts are removed. Include the age at each visit in the
            covariates: what changes in everyone is otherwise taken for a site effect.

        Returns
        -------
        ComBat
            The fitted estimator.

        Raises
        ------
        DataError
            A missing feature value, or a covariate confounded with site.
        """
        table = as_features(X)
        chosen = _choose(table.index, fit_on, is_control)
        sample = gather_sites(table, site, covariates, chosen, participants)
        self.features_ = [str(name) for name in table.columns]
        self.fit_on_: str = fit_on
        self.excluded_ = sample.excluded
        self.sites_, self.site_sizes_ = sample.sites, sample.sizes
        self.constant_ = constant_features(sample)
        self.tied_ = tied_features(sample)
        self.shift_error_ = None
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
        """Harmonize participants from the fitted sites.

        Participants without a site or covariate get missing values. `status` marks them, and those
        from unseen sites; both are logged.

        Parameters
        ----------
        X, site, covariates
            As in `fit`.

        Returns
        -------
        frame or array of shape (n, n_features)
            Harmonized features, of the type of `X`.

        Raises
        ------
        DataError
            A missing feature value, an unseen site (unless skipped), or other features.
        """
        check_is_fitted(self, 'ratio_')
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
        participants: pd.Series[Any] | ArrayLike | None = None,
    ) -> Table:
        """Fit, then harmonize the same participants; arguments as in `fit`."""
        options = {'is_control': is_control, 'participants': participants}
        self.fit(X, site, covariates, fit_on=fit_on, **options)
        return self.transform(X, site, covariates)

    def status(
        self,
        X: pd.DataFrame | NDArray[Any],
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike | None = None,
    ) -> pd.Series[str]:
        """Return the status of each participant.

        Parameters
        ----------
        X, site, covariates
            As in `fit`.

        Returns
        -------
        Series of str
            `harmonized`, `unharmonized` (unseen site) or `excluded` (missing site or covariate).

        Raises
        ------
        DataError
            There are unseen sites and `unseen_site` is 'error'.
        """
        check_is_fitted(self, 'ratio_')
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
                'add the site with its controls (add_site), or return these participants '
                "unharmonized (unseen_site='skip')",
            )
        status = np.select([lacking, unseen], [EXCLUDED, UNHARMONIZED], HARMONIZED)
        return pd.Series(status, index=people, name='harmonization')

    def add_site(
        self,
        X: pd.DataFrame | NDArray[Any],
        site: pd.Series[Any] | ArrayLike,
        covariates: pd.DataFrame | ArrayLike | None = None,
    ) -> ComBat:
        """Add unseen sites from their controls; all other estimates remain unchanged.

        Shifts are estimated with the covariance of features
        (:class:`~surreal_bids.harmonization.empirical_bayes.ShiftPrior`), which stabilises them if
        controls are few.

        Parameters
        ----------
        X, site, covariates
            As in `fit`, of participants like those used for `fit` (controls for
            `fit_on='controls'`). With one or two participants, only the mean of a site is
            estimated.

        Returns
        -------
        ComBat
            The same estimator, with the new sites.

        Raises
        ------
        DataError
            A site is already known, or the model was fitted on one site only.
        """
        check_is_fitted(self, 'ratio_')
        table = order_features(as_features(X), self.features_)
        sample = gather_sites(table, site, covariates, np.ones(len(table), dtype=bool))
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

    @property
    def compared_sites_(self) -> list[str]:
        """Sites that were compared within participants; those added later were not."""
        return [] if self.shift_error_ is None else self.sites_[: len(self.shift_error_)]

    @property
    def n_features_in_(self) -> int:
        """Number of features seen during `fit`."""
        return len(self.features_)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the features seen during `fit`; not defined if they are mere numbers."""
        if self.features_ == [str(number) for number in range(len(self.features_))]:
            raise AttributeError('feature_names_in_: ComBat was fitted on features without names')
        return np.array(self.features_, dtype=object)

    def to_arrays(self) -> dict[str, Any]:
        """Return the state as float64 arrays and plain JSON values."""
        check_is_fitted(self, 'ratio_')
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
        combat.prior_ = None if state['prior'] is None else SitePrior.from_json(state['prior'])
        combat.shift_prior_ = None
        if 'within' in state:
            combat.shift_prior_ = ShiftPrior(state['within'], state['between'])
            np.linalg.cholesky(combat.shift_prior_.within)
        combat.shift_error_ = state.get('shift_error')
        for name in STORED_LISTS:
            setattr(combat, f'{name}_', list(state[name]))
        for name in STORED_ARRAYS:
            setattr(combat, f'{name}_', np.asarray(state[name], dtype=np.float64))
        return combat

    def is_consistent(self) -> bool:
        """Whether the learned arrays match the features and sites; a forged model may not."""
        n_sites, n_varying = len(self.sites_), len(self.features_) - len(self.constant_)
        shapes = {
            **dict.fromkeys(('grand_mean', 'scale'), (n_varying,)),
            **dict.fromkeys(('shift', 'ratio'), (n_sites, n_varying)),
            **dict.fromkeys(('within', 'between'), (n_varying, n_varying)),
            'slopes': (len(self.encoder_.column_names_), n_varying),
            'shift_error': (len(self.compared_sites_),) * 2,
        }
        state = self.to_arrays()
        return len(self.site_sizes_) == n_sites and all(
            np.shape(state[name]) == shape for name, shape in shapes.items() if name in state
        )

    def _covariances(self) -> dict[str, NDArray[np.float64]]:
        """Return the state of the prior of shifts and of their errors, as far as there are any."""
        prior, error = self.shift_prior_, self.shift_error_
        of_prior = {} if prior is None else {'within': prior.within, 'between': prior.between}
        return of_prior if error is None else {**of_prior, 'shift_error': error}

    def _learn_one_site(self, sample: SiteSample) -> None:
        """Return features unchanged: with one site there is no site effect to estimate."""
        LOGGER.info(
            'ComBat: all participants come from one site (%s); features are returned unchanged.',
            self.sites_[0],
        )
        values = sample.features.to_numpy()[:, self._varying()]
        self.reference_ = self.sites_[0]
        self.encoder_ = CovariateEncoder().fit(pd.DataFrame(index=sample.features.index))
        self.prior_, self.shift_prior_ = None, None
        self.slopes_ = np.zeros((0, values.shape[1]))
        self.grand_mean_, self.scale_ = values.mean(axis=0), values.std(axis=0)
        self.shift_, self.ratio_ = np.zeros((1, values.shape[1])), np.ones((1, values.shape[1]))

    def _learn(self, sample: SiteSample) -> None:
        """Regress, standardise, then estimate each site."""
        self.encoder_ = CovariateEncoder(self.categorical).fit(sample.covariates)
        columns = self.encoder_.transform(sample.covariates)
        _require_enough(sample, columns.shape[1])
        require_separable(columns, self.encoder_.column_names_, sample.codes, sample.sites)
        self._choose_reference()
        values = sample.features.to_numpy()[:, self._varying()]
        if sample.participants is None:
            site_means, self.slopes_ = fit_site_regression(values, columns, sample.codes)
            self._locate(site_means, sample)
            self._set_scale(values - columns @ self.slopes_ - site_means[sample.codes], sample)
            z = self._standardise(values, columns)
            self._estimate_sites(z, z, sample)
        else:
            LOGGER.info('ComBat: sites are compared within participants (longitudinal ComBat)')
            visits = fit_visit_regression(values, columns, sample.codes, sample.participants)
            self.slopes_, self.scale_ = visits.slopes, visits.sigma
            self.shift_error_ = visits.shift_error
            self._locate(visits.site_means, sample)
            z = self._standardise(values, columns)
            self._estimate_sites(z - visits.intercepts / self.scale_, z, sample)

    def _locate(self, site_means: NDArray[np.float64], sample: SiteSample) -> None:
        """Set alpha: of everyone, or of the reference site."""
        sizes = np.asarray(sample.sizes, dtype=np.float64)
        self.grand_mean_ = sizes @ site_means / sizes.sum()
        if self.reference_ is not None:
            self.grand_mean_ = site_means[sample.sites.index(self.reference_)]

    def _set_scale(self, residuals: NDArray[np.float64], sample: SiteSample) -> None:
        """Set sigma: of everyone, or of the reference site."""
        squares = residuals**2
        self.scale_ = np.sqrt(squares.mean(axis=0))
        if self.reference_ is not None:
            number = sample.sites.index(self.reference_)
            own = np.sqrt(squares[sample.codes == number].mean(axis=0))
            self.scale_ = np.where(own > CONSTANT * self.scale_, own, self.scale_)

    def _estimate_sites(
        self, z: NDArray[np.float64], of_people: NDArray[np.float64], sample: SiteSample
    ) -> None:
        """Set gamma and delta of each site, and the priors for sites added later.

        `z` are standardised features, without the random intercepts that `of_people` still has.
        """
        self._warn_without_shrinkage()
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
            self._learn_covariances(of_people, sample, [number for number, *_ in pooled])

    def _warn_without_shrinkage(self) -> None:
        if self.empirical_bayes and not self._borrows():
            LOGGER.info(
                'ComBat: fewer than two features vary; site effects are estimated without '
                'empirical Bayes.'
            )

    def _learn_covariances(
        self, z: NDArray[np.float64], sample: SiteSample, pooled: Sequence[int]
    ) -> None:
        """Estimate the covariance of features within sites, and of the shifts of pooled sites."""
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
            LOGGER.info(
                'ComBat: site %s has only %d participants; its mean is adjusted, its variance is '
                'not.',
                name,
                len(z),
            )
        tolerance = TOLERANCE if self.shift_error_ is None else CONVERGED
        return estimate_site(z, prior, mean_only=self.mean_only, tolerance=tolerance)

    def _estimate_new_site(
        self, z: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Estimate gamma and delta (n_varying,) of an added site."""
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
        if self.shift_error_ is None:
            rest /= np.sqrt(self.ratio_[codes])
        harmonized = expected + rest
        return np.where((labels == self.reference_)[:, None], values, harmonized)

    def _varying(self) -> NDArray[np.bool_]:
        return ~np.isin(self.features_, self.constant_)

    def _borrows(self) -> bool:
        """Check whether empirical Bayes is requested and possible."""
        return bool(self.empirical_bayes) and self._varying().sum() > 1

    def _choose_reference(self) -> None:
        asked = self.reference_site
        self.reference_ = None if asked is None else str(as_labels([asked])[0])
        if self.reference_ is None:
            return
        size = dict(zip(self.sites_, self.site_sizes_)).get(self.reference_, 0)
        if size < MIN_FOR_SCALE:
            raise DataError(
                f'reference site {self.reference_} has {counted(size, "participant")}, but needs '
                f'at least {MIN_FOR_SCALE}; choose another site of {list_briefly(self.sites_)}'
            )

    def _require_new(self, sites: Sequence[str]) -> None:
        again = sorted(set(sites) & set(self.sites_))
        if again:
            raise DataError(
                f'the model already includes the site {list_briefly(again)}; add only new sites'
            )
        if self.sites_ == [self.reference_]:
            raise DataError(
                'the model was fitted on one site only and has no estimate of site differences; '
                'fit it again with all sites'
            )


def _choose(
    people: pd.Index[Any], fit_on: FitOn, is_control: pd.Series[Any] | ArrayLike | None
) -> NDArray[np.bool_]:
    """Select the participants for fitting: booleans (n,)."""
    if fit_on == 'all':
        return np.ones(len(people), dtype=bool)
    if fit_on != 'controls':
        raise UsageError(f'fit_on is {fit_on!r}; choose all or controls')
    if is_control is None:
        raise UsageError("fit_on='controls' needs is_control, which marks the controls")
    return as_mask(is_control, people)


def _require_enough(sample: SiteSample, n_columns: int) -> None:
    """Raise an error if a regression on sites and covariates would leave no residual."""
    needed = len(sample.sites) + n_columns + 1
    if len(sample.codes) < needed:
        raise DataError(
            f'{len(sample.codes)} participants for {len(sample.sites)} sites and {n_columns} '
            f'covariate columns; ComBat needs at least {needed}: use fewer covariates'
        )


def _log_status(status: pd.Series[str]) -> None:
    for value, why in ((EXCLUDED, 'missing site or covariate'), (UNHARMONIZED, 'unseen site')):
        people = status.index[status == value]
        if len(people):
            LOGGER.info('%s, %s: %s', value, why, list_briefly(people))
