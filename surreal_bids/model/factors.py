"""Linear factors: estimates of severity, and patterns from which members start.

A patient is a control plus a sum of severities times patterns (see
:mod:`surreal_bids.model.expectation`). Solutions are compared by evidence: starts by the density of
all patients, penalties by the density of patients who were left out.

Shapes: N participants, S regions, M patterns, B samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.model.expectation import (
    PRIOR_MEAN,
    PRIOR_PRECISION,
    Samples,
    Schedule,
    Solutions,
    log_evidence,
    make_samples,
    maximise,
    rotated_starts,
)
from surreal_bids.stats.concordance import concordance_index, match_patterns
from surreal_bids.text import counted

Floats = NDArray[np.floating]
Rows = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Rows of controls and of patients."""

USUAL_PENALTY = 0.7
"""In standard errors of an effect."""
LOWER_PENALTIES = (0.35, 0.1, 0.0)
"""Penalties that are tried in turn where a pattern has lost all of its regions."""
HIGHER_PENALTIES = (1.0, 1.5)
"""Penalties that may sharpen the patterns found with the usual one."""
ALIKE = 0.9
"""Least correlation of severities under two penalties that have found the same patterns."""
LEFT_OUT = 4
"""Parts of the participants that are left out in turn to compare penalties."""
ROTATIONS = 3
"""Random rotations of the leading directions to start from, beside that by varimax."""
AS_LIKELY = 1e-3
"""The first of the starts is taken whose mean log-density is within this of the highest."""
LONG, SHORT = Schedule(40, 0), Schedule(25, 10)
"""Iterations of a final fit, and of fits that are compared with each other."""
MOST_PEOPLE = 3000
"""Factors are fitted to no more participants of a group than this, spread over the table."""
FAR_APART = 0.25
"""Part of the patients by which a place among them may differ."""

SMALLEST_RATIO = 8
"""Regions needed for each pattern: g2 passes an R-index on by pairs of Q = S // 4 hidden units."""


@dataclass(frozen=True)
class Factors:
    """What `fit_factors` learns."""

    mean: Floats
    """Mean of the controls, (S,)."""
    patterns: Floats
    """Change at severity 1, (S, M)."""
    covariance: Floats
    """C, (S, S)."""
    correlation: Floats
    """R, the correlation of the severities, (M, M)."""
    penalty: float
    """In standard errors of an effect."""
    left_out: dict[float, float] | None = None
    """Mean log-density of patients who were left out, by penalty; None if none were compared."""
    evidence: tuple[float, ...] = ()
    """Mean log-density of the patients, for each start; -inf if a pattern was lost."""

    @property
    def has_empty(self) -> bool:
        """Whether a pattern has lost all of its regions."""
        return not (self.patterns != 0).any(axis=0).all()

    def projector(self) -> tuple[Floats, Floats]:
        """B (S, M) and offset (M,): posterior means of the severities are y @ B + offset.

        They are those under a normal prior, whose mean and variance are those of U[0, 1].
        """
        solved = np.linalg.solve(self.covariance, self.patterns)
        prior = PRIOR_PRECISION * np.linalg.inv(self.correlation)
        variance = np.linalg.inv(self.patterns.T @ solved + prior)
        weights = solved @ variance
        return weights, PRIOR_MEAN * prior.sum(axis=0) @ variance - self.mean @ weights

    def severities(self, people: Floats) -> Floats:
        """Linear estimate of the severities, (N, M)."""
        weights, offset = self.projector()
        return people @ weights + offset


def fit_factors(cn: Floats, pt: Floats, n_patterns: int, device: str = 'cpu') -> Factors:
    """Fit M patterns to controls and patients, (N, S) each.

    Of the solutions that the usual penalty reaches from several starts, the one of highest evidence
    is taken. If a pattern has lost all of its regions in all of them, the penalty is lowered. A
    higher penalty then sharpens the patterns if patients who were left out are as likely under it,
    within a standard error, and if the severities stay the same: in small samples, left-out
    patients alone would favour penalties under which weak, diffuse patterns are lost.
    """
    cn, pt = (group[spread_rows(len(group), MOST_PEOPLE)] for group in (cn, pt))
    samples = make_samples(cn, pt, np.ones((1, len(cn))), np.ones((1, len(pt))), device)
    for penalty in (USUAL_PENALTY, *LOWER_PENALTIES):
        rotations = [None, *_random_rotations(n_patterns)]
        own, fits, density = _fit_from(samples, rotations, n_patterns, [penalty], LONG)
        evidence = density.mean(dim=1)
        evidence[fits.has_empty() | evidence.isnan()] = -torch.inf
        if evidence.isfinite().any():
            break
    else:
        raise _not_told_apart(cn, pt, n_patterns)
    best = int((evidence >= evidence.max() - AS_LIKELY).int().argmax())
    factors = _sharpen(_factors(own, fits, best, penalty), cn, pt, device)
    return replace(_largest_first(factors), evidence=tuple(evidence.tolist()))


def _sharpen(found: Factors, cn: Floats, pt: Floats, device: str) -> Factors:
    """Fit the same patterns with the highest penalty that patients who were left out allow."""
    everyone = (np.arange(len(cn)), np.arange(len(pt)))
    sharper = [
        refit(cn, pt, [everyone], found.patterns, penalty, device)[0]
        for penalty in HIGHER_PENALTIES
    ]
    alike = {each.penalty: each for each in sharper if _are_alike(each, found, pt)}
    if not alike:
        return found
    penalties = (found.penalty, *alike)
    left_out = left_out_density(cn, pt, found.patterns.shape[1], penalties, device)
    compared = {penalty: float(density.mean()) for penalty, density in left_out.items()}
    best = max(_as_likely(left_out), default=found.penalty)
    return replace(alike.get(best, found), left_out=compared)


def _are_alike(some: Factors, others: Factors, pt: Floats) -> bool:
    """Whether the severities of every pattern correlate closely."""
    if some.has_empty:
        return False
    pairs = zip(some.severities(pt).T, others.severities(pt).T)
    return all(np.corrcoef(pair)[0, 1] >= ALIKE for pair in pairs)


def _largest_first(factors: Factors) -> Factors:
    """Order patterns by how well they are measured, so that the order is that of any start."""
    information = np.diag(
        factors.patterns.T @ np.linalg.solve(factors.covariance, factors.patterns)
    )
    order = np.argsort(-information)
    return replace(
        factors,
        patterns=factors.patterns[:, order],
        correlation=factors.correlation[np.ix_(order, order)],
    )


def fit_known(
    cn: Floats, pt: Floats, patterns: Floats, penalty: float, device: str = 'cpu'
) -> Factors:
    """Fit patterns (S, M) that other participants have shown, in their order.

    They are where the fit starts, and so tell which patterns are fitted, not what they look like.
    """
    everyone = (np.arange(len(cn)), np.arange(len(pt)))
    tried = (*reversed(HIGHER_PENALTIES), USUAL_PENALTY, *LOWER_PENALTIES)
    for each in (penalty, *(lower for lower in tried if lower < penalty)):
        (fitted,) = refit(cn, pt, [everyone], patterns, each, device)
        if not fitted.has_empty and np.isfinite(fitted.patterns).all():
            return fitted
    raise _not_told_apart(cn, pt, patterns.shape[1])


def _not_told_apart(cn: Floats, pt: Floats, n_patterns: int) -> DataError:
    return DataError(
        f'{counted(n_patterns, "pattern")} cannot be told apart in {len(cn)} controls and '
        f'{len(pt)} patients; use fewer patterns (--n-patterns) or check the diagnosis of '
        'participants'
    )


def refit(
    cn: Floats,
    pt: Floats,
    samples: Sequence[Rows],
    patterns: Floats,
    penalty: float,
    device: str = 'cpu',
) -> list[Factors]:
    """Fit the same patterns to some of the participants, as often as there are samples."""
    own = _samples(cn, pt, samples, device)
    starts = torch.as_tensor(patterns, dtype=own.mean.dtype, device=device)
    limits = torch.full_like(own.n_pt, penalty)
    fits = maximise(own, starts.expand(len(samples), -1, -1), limits, LONG)
    return [_factors(own, fits, row, penalty) for row in range(len(samples))]


def fit_samples(
    cn: Floats, pt: Floats, samples: Sequence[Rows], n_patterns: int, device: str = 'cpu'
) -> list[Factors]:
    """Fit M patterns to some of the participants, as often as there are samples.

    The penalty is the usual one.
    """
    marked = _samples(cn, pt, samples, device)
    own, fits, density = _fit_from(marked, [None], n_patterns, [USUAL_PENALTY], SHORT)
    rows = _best_starts(own, density, len(samples))[0].tolist()
    return [_factors(own, fits, row, USUAL_PENALTY) for row in rows]


def _samples(cn: Floats, pt: Floats, samples: Sequence[Rows], device: str) -> Samples:
    """Mark who is in which sample, of at most `MOST_PEOPLE` of each group."""
    kept = [spread_rows(len(group), MOST_PEOPLE) for group in (cn, pt)]
    marked = [
        np.stack([1.0 * np.isin(rows, sample[group]) for sample in samples])
        for group, rows in enumerate(kept)
    ]
    return make_samples(cn[kept[0]], pt[kept[1]], marked[0], marked[1], device)


def spread_rows(n_rows: int, most: int) -> NDArray[np.intp]:
    """At most so many rows, spread over the table, which may be sorted by site."""
    return np.linspace(0, n_rows - 1, min(n_rows, most)).astype(int)


def _random_rotations(n_patterns: int) -> list[Tensor]:
    if n_patterns == 1:
        return []
    rng = np.random.default_rng(n_patterns)
    drawn = rng.normal(size=(ROTATIONS, n_patterns, n_patterns))
    return [torch.from_numpy(np.linalg.qr(each)[0]) for each in drawn]


def _fit_from(
    samples: Samples,
    rotations: Sequence[Tensor | None],
    n_patterns: int,
    penalties: Sequence[float],
    schedule: Schedule,
) -> tuple[Samples, Solutions, Tensor]:
    """Fit every sample from every start with every penalty; penalties vary slowest, then starts.

    Returns the samples, once for each fit, their solutions, and the log-density of all patients of
    the table under them, (B, N).
    """
    starts = rotated_starts(samples, list(rotations), n_patterns)
    of_penalty = samples.repeat(len(starts) // len(samples.n_pt))
    own = of_penalty.repeat(len(penalties))
    limits = torch.tensor(penalties, dtype=starts.dtype, device=starts.device)
    fits = maximise(
        own,
        starts.repeat(len(penalties), 1, 1),
        limits.repeat_interleave(len(starts)),
        schedule,
    )
    return own, fits, log_evidence(own, fits)


def _best_starts(own: Samples, density: Tensor, n_samples: int, n_penalties: int = 1) -> Tensor:
    """Row of the solution under which the patients of a sample are most likely, (penalties, B)."""
    mean = (density * own.member_pt).sum(dim=1) / own.n_pt
    by_start = mean.reshape(n_penalties, -1, n_samples)
    n_starts = by_start.shape[1]
    first = n_starts * n_samples * torch.arange(n_penalties)[:, None]
    return first + by_start.argmax(dim=1).cpu() * n_samples + torch.arange(n_samples)


def left_out_density(
    cn: Floats, pt: Floats, n_patterns: int, penalties: Sequence[float], device: str = 'cpu'
) -> dict[float, Floats]:
    """Log-density, up to a constant, of the patients, each when left out, (N,), by penalty."""
    cn, pt = (group[spread_rows(len(group), MOST_PEOPLE)] for group in (cn, pt))
    rng = np.random.default_rng(0)
    parts = [rng.permutation(len(group)) % LEFT_OUT for group in (cn, pt)]
    in_cn, in_pt = (np.stack([1.0 * (part != k) for k in range(LEFT_OUT)]) for part in parts)
    samples = make_samples(cn, pt, in_cn, in_pt, device)
    own, _, density = _fit_from(samples, [None], n_patterns, penalties, SHORT)
    rows = _best_starts(own, density, LEFT_OUT, len(penalties))[:, parts[1]]
    chosen = density.cpu()[rows, torch.arange(len(pt))].numpy()
    return dict(zip(penalties, chosen))


def _as_likely(left_out: dict[float, Floats]) -> list[float]:
    """Penalties whose mean density is within a standard error of the best one's."""
    best = max(left_out.values(), key=np.mean)
    lost = {penalty: best - density for penalty, density in left_out.items()}
    return [p for p, each in lost.items() if each.mean() <= each.std() / np.sqrt(len(each))]


def _factors(samples: Samples, fits: Solutions, row: int, penalty: float) -> Factors:
    """One of the solutions."""
    mean, patterns, covariance, correlation = (
        each[row].cpu().numpy() for each in (samples.mean, *fits)
    )
    return Factors(mean, patterns, covariance, correlation, penalty)


def compare_with(factors: Factors, people: Floats, r_NM: Floats) -> dict[str, Any]:
    """Compare R-indices with the linear estimates of the same people, pattern by pattern.

    Returns
    -------
    dict
        `agreement`: c-index of each R-index with its closest factor. `differing`: share of people
        whose places among all, from 0 to 1, are more than a quarter apart. `penalty`, `left_out`
        and `starts`: what was compared to find the factors, and what won.
    """
    linear = factors.severities(people)
    places = [rankdata(values, axis=0) / len(people) for values in (linear, r_NM)]
    unit = [(place - place.mean(axis=0)) / place.std(axis=0) for place in places]
    order = match_patterns(unit[0].T @ unit[1] / len(people))
    apart = np.abs(places[0][:, order] - places[1]) > FAR_APART
    pairs = zip(linear[:, order].T, r_NM.T)
    return {
        'penalty': factors.penalty,
        'left_out': {str(penalty): value for penalty, value in (factors.left_out or {}).items()},
        'starts': [value if np.isfinite(value) else None for value in factors.evidence],
        'agreement': [float(concordance_index(*pair)) for pair in pairs],
        'differing': apart.mean(axis=0).tolist(),
    }


def most_patterns(n_regions: int) -> int:
    """The largest M for which `member_weights` finds enough hidden units."""
    return n_regions // SMALLEST_RATIO


def require_regions(n_regions: int, n_patterns: Sequence[int], preset: str) -> None:
    """Raise an error for fewer regions than factors of so many patterns need."""
    largest = max(1, *n_patterns, 0)
    if largest > most_patterns(n_regions):
        raise UsageError(
            f'{n_regions} regions are too few for n_patterns {largest}: the preset {preset} needs '
            'eight regions per pattern; use the preset robust'
        )
