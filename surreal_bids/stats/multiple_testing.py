"""From t to z and p, and which of many tests count as discoveries."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from surreal_bids.exceptions import DataError

Floats = NDArray[np.float64]

FDR_LEVEL = 0.05
"""Share of false discoveries allowed (Fig. 3 of the paper)."""

SMALLEST_P = 1e-290
"""Below it, one-sided p values are handled by their logarithm, before they underflow."""


def two_sided_p(t: ArrayLike, df: float) -> Floats:
    """Two-sided p values of t statistics with `df` degrees of freedom."""
    return 2 * stats.t.sf(np.abs(t), df)


def t_to_z(t: ArrayLike, df: float) -> Floats:
    """Normal deviates of the same one-sided p as t statistics; finite for any finite t.

    Where p underflows, its logarithm comes from the incomplete beta function: with
    x = df / (df + t^2), the tail of the t distribution is I_x(df/2, 1/2) / 2.
    """
    t = np.asarray(t, np.float64)
    p = stats.t.sf(np.abs(t), df)
    tiny = p < SMALLEST_P
    z = stats.norm.isf(np.where(tiny, 0.5, p))
    z[tiny] = -special.ndtri_exp(_log_tail(t[tiny], df))
    return np.copysign(z, t)


def _log_tail(t: Floats, df: float) -> Floats:
    """Logarithm of P(T > |t|), accurate far out.

    I_x(a, b) = x^a (1 - x)^b F(a + b, 1; a + 1; x) / (a B(a, b)), DLMF 8.17.8.
    """
    a, b = df / 2, 0.5
    x = df / (df + t**2)
    log_beta = (
        a * np.log(x)
        + b * np.log1p(-x)
        + np.log(special.hyp2f1(a + b, 1, a + 1, x))
        - np.log(a)
        - special.betaln(a, b)
    )
    return log_beta - np.log(2)


def fdr_discoveries(p: ArrayLike, level: float = FDR_LEVEL) -> NDArray[np.bool_]:
    """Which tests are discoveries at this false discovery rate (Benjamini and Hochberg, 1995).

    The k smallest of m values are, for the greatest k with p_(k) <= level k / m.
    """
    p = np.asarray(p, np.float64)
    if np.isnan(p).any():
        raise DataError('a p value is missing (NaN); leave out what was not tested')
    ordered = np.sort(p.ravel())
    passed = np.flatnonzero(ordered <= level * np.arange(1, p.size + 1) / p.size)
    return p <= ordered[passed[-1]] if passed.size else np.zeros(p.shape, bool)


def fdr_t_threshold(t: ArrayLike, df: float, level: float = FDR_LEVEL) -> float:
    """Smallest size of t that is a discovery at this false discovery rate; infinite if none is."""
    size = np.abs(t)
    found = size[fdr_discoveries(two_sided_p(size, df), level)]
    return float(found.min()) if found.size else np.inf


def fdr_adjusted(p: ArrayLike) -> Floats:
    """Benjamini-Hochberg adjusted p values: a test is a discovery at any level from this one on."""
    p = np.asarray(p, np.float64)
    return stats.false_discovery_control(p) if p.size else p
