"""Empirical Bayes estimates of a site's location and scale, by the equations of ComBat.

Johnson, Li and Rabinovic (Biostatistics 8:118-127, 2007), section 3.2, in the notation of Fortin et
al. (NeuroImage 167:104-120, 2018): gamma_ig is the shift and delta_ig the variance ratio of feature
g at site i, both of data standardised to z; gamma_ig ~ N(gamma_i, tau_i^2) and
delta_ig ~ InverseGamma(lambda_i, theta_i), with hyper-parameters by the method of moments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.covariance import ledoit_wolf

from surreal_bids.harmonization.encoding import CONSTANT

TOLERANCE = 1e-4
"""The alternation ends below this relative change, as in sva, neuroCombat and neuroHarmonize.

It leaves an error of at most about 1e-4 sd. A finer one would be no more right, since priors are
moments of noisy estimates, but it would differ from those programs in the fifth digit.
"""

CONVERGED = 1e-10
"""The same for visits: longCombat alternates 30 times, after which nothing changes any more."""

MAX_STEPS = 10_000
"""The alternation takes tens of steps; this only bounds it."""

MIN_FOR_SCALE = 3
"""Participants that a site needs before its variance is estimated; below, only its mean is."""

MOST_COVARYING = 1000
"""Features up to which their covariances are learned: they need memory of this number squared."""

LIKE_PARTICIPANTS = 0.5
"""Share of the prior of a new site's shifts that has the shape of differences between participants;
the rest has that of the learned sites. Anything from 0.4 to 0.8 serves equally well on 23 sites of
FCON 1000 (benchmarks/README.md)."""

SCALES = np.exp(np.linspace(-5, 5, 201))
"""Among which the scale of a new site's shifts is looked for, 5 % apart."""


@dataclass(frozen=True)
class SitePrior:
    """What is believed of a site's shifts and variance ratios before its features are seen.

    Moments, not lambda and theta, are kept: they stay finite when all variance ratios are equal.

    Attributes
    ----------
    shift_mean, shift_variance : float
        Mean and variance of the normal prior of the shifts.
    ratio_mean, ratio_variance : float
        Mean and variance of the inverse-gamma prior of the variance ratios.
    """

    shift_mean: float
    shift_variance: float
    ratio_mean: float
    ratio_variance: float

    def to_json(self) -> dict[str, float]:
        """Return the four moments by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, moments: Mapping[str, Any]) -> SitePrior:
        """Rebuild a prior from `to_json`."""
        return cls(**{name: float(moments[name]) for name in moments})


def moments_prior(shift: NDArray[np.float64], ratio: NDArray[np.float64]) -> SitePrior:
    """Fit the priors to estimates of shift and variance ratio, of any shape, by their moments."""
    return SitePrior(
        float(shift.mean()), float(shift.var(ddof=1)), float(ratio.mean()), float(ratio.var(ddof=1))
    )


def pooled_prior(
    estimates: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> SitePrior:
    """Fit one prior to the least-squares estimates of all sites and features together."""
    shifts, ratios = zip(*estimates)
    return moments_prior(np.array(shifts), np.array(ratios))


@dataclass(frozen=True, eq=False)
class ShiftPrior:
    """How shifts go together across features, for sites of which few participants are known.

    The mean of n participants of a new site is m ~ N(gamma, W / n), and its shifts are
    gamma ~ N(0, s B). The scale s is that of the largest likelihood of m, so that a site that
    differs much is shrunk little. What few participants happen to share, such as large heads or a
    thick cortex, is thus told from what sites do. ComBat's own prior, which a site's features share
    and in which they are independent, cannot.

    Attributes
    ----------
    within : ndarray of shape (n_features, n_features)
        W, the covariance between participants of a site.
    between : ndarray of shape (n_features, n_features)
        B, the covariance of shifts between sites, but for its scale.
    """

    within: NDArray[np.float64]
    between: NDArray[np.float64]

    def shrink(self, mean: NDArray[np.float64], n_people: int) -> NDArray[np.float64]:
        """Estimate the shifts (n_features,) of a site from the mean of its participants."""
        # In this basis W is the identity and B is diagonal.
        variances, basis = eigh(self.between, self.within)
        variances = np.clip(variances, 0, None)
        coordinates = basis.T @ mean
        totals = SCALES[:, None] * variances + 1 / n_people
        surprise = (np.log(totals) + coordinates**2 / totals).sum(axis=1)
        scale = SCALES[surprise.argmin()]
        kept = scale * variances / (scale * variances + 1 / n_people)
        return np.asarray(self.within @ basis @ (kept * coordinates), dtype=np.float64)


def shift_prior(
    residuals: NDArray[np.float64], shifts: NDArray[np.float64], sizes: NDArray[np.float64]
) -> ShiftPrior:
    """Learn how shifts go together.

    Parameters
    ----------
    residuals : ndarray of shape (n, n_features)
        Standardised features of participants, less the mean of their site.
    shifts : ndarray of shape (n_sites, n_features)
        Means of the sites, some of which may be left out.
    sizes : ndarray of shape (n_sites,)
        Participants of each of these.
    """
    within = ledoit_wolf(residuals, assume_centered=True)[0]
    sampling = within * (1 / sizes).mean()
    values, vectors = eigh(shifts.T @ shifts / len(shifts) - sampling)
    between = (vectors * np.clip(values, 0, None)) @ vectors.T
    # Where sites do not differ more than by chance, the scale of a new site decides alone.
    share = max(np.trace(between), np.trace(sampling)) / np.trace(within)
    mixed = LIKE_PARTICIPANTS * share * within + (1 - LIKE_PARTICIPANTS) * between
    return ShiftPrior(within, mixed)


def estimate_new_site(
    z: NDArray[np.float64], prior: SitePrior, covarying: ShiftPrior
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate shift and variance ratio (n_features,) of a site that was not learned with the rest.

    Parameters
    ----------
    z : ndarray of shape (n, n_features)
        Standardised data of the site.
    prior : SitePrior
        Its variance ratios are used.
    covarying : ShiftPrior
        Prior of the shifts.
    """
    mean, _ = least_squares(z)
    shift = covarying.shrink(mean, len(z))
    if len(z) < MIN_FOR_SCALE:
        return shift, np.ones_like(shift)
    return shift, posterior_ratio(((z - shift) ** 2).sum(axis=0), len(z), prior)


def estimate_site(
    z: NDArray[np.float64], prior: SitePrior | None, tolerance: float = TOLERANCE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate shift and variance ratio (n_features,) of a site.

    Parameters
    ----------
    z : ndarray of shape (n, n_features)
        Standardised data of the site.
    prior : SitePrior or None
        Priors to shrink to; None for least squares alone.
    tolerance : float
        Relative change at which the alternation ends.
    """
    shift, ratio = least_squares(z)
    if prior is None:
        return shift, ratio
    if len(z) < MIN_FOR_SCALE:
        return posterior_shift(shift, 1.0, len(z), prior), ratio
    return shrink(z, prior, tolerance)


def least_squares(z: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate shift and variance ratio (n_features,) of a site's `z` (n, n_features).

    A feature that does not vary at the site gets the ratio 1, and so does every feature where
    there are fewer than `MIN_FOR_SCALE` participants.
    """
    shift = z.mean(axis=0)
    if len(z) < MIN_FOR_SCALE:
        return shift, np.ones_like(shift)
    ratio = z.var(axis=0, ddof=1)
    return shift, np.where(ratio <= CONSTANT**2, 1.0, ratio)


def posterior_shift(
    shift: NDArray[np.float64], ratio: NDArray[np.float64] | float, n_people: int, prior: SitePrior
) -> NDArray[np.float64]:
    """Shrink least-squares shifts towards the prior mean (Johnson et al., equation 3.1)."""
    weight = n_people * prior.shift_variance
    return (weight * shift + ratio * prior.shift_mean) / (weight + ratio)


def posterior_ratio(
    sum_of_squares: NDArray[np.float64], n_people: int, prior: SitePrior
) -> NDArray[np.float64]:
    """Shrink variance ratios towards the prior (Johnson et al., equation 3.1).

    This is (theta + sum / 2) / (n / 2 + lambda - 1) with lambda = (2 v + m^2) / v and
    theta = (m v + m^3) / v, multiplied through by the prior variance v.
    """
    mean, variance = prior.ratio_mean, prior.ratio_variance
    numerator = variance * sum_of_squares / 2 + mean * variance + mean**3
    return numerator / (variance * n_people / 2 + variance + mean**2)


def shrink(
    z: NDArray[np.float64], prior: SitePrior, tolerance: float = TOLERANCE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Alternate between the posterior shift and the posterior ratio until both stand still.

    Parameters
    ----------
    z : ndarray of shape (n, n_features)
        Standardised data of one site.
    prior : SitePrior
        Its priors.
    tolerance : float
        Relative change at which the alternation ends.

    Returns
    -------
    shift, ratio : ndarray of shape (n_features,)
        Posterior estimates.
    """
    shift_hat, ratio = least_squares(z)
    scatter = ((z - shift_hat) ** 2).sum(axis=0)
    shift = shift_hat
    for _ in range(MAX_STEPS):
        old_shift, old_ratio = shift, ratio
        shift = posterior_shift(shift_hat, ratio, len(z), prior)
        ratio = posterior_ratio(scatter + len(z) * (shift_hat - shift) ** 2, len(z), prior)
        change = max(_relative_change(shift, old_shift), _relative_change(ratio, old_ratio))
        if change <= tolerance:
            break
    return shift, ratio


def _relative_change(new: NDArray[np.float64], old: NDArray[np.float64]) -> float:
    """Largest change relative to the old value, with its sign: negative shifts do not count.

    The sign is an oddity of sva (`it.sol`) that the programs derived from it share. It is kept
    because the step at which the alternation ends shows in the fifth digit of the result.
    """
    moved = np.abs(new - old)
    return float(np.divide(moved, old, out=np.zeros_like(moved), where=old != 0).max())
