"""How many patterns there are: as many as are found again in other people.

Sparse factors are fitted to random subsamples of both groups. Up to the true number of patterns,
all fits give the patients the same severities; beyond it, at least one pattern is a different one
each time. The same is done after shuffling who is a control and who a patient, which shows how
stable patterns of no meaning are; where the data do no better, no pattern is supported.

Shapes: N participants, S regions, M patterns, R subsamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal_bids.model.factors import Factors, fit_factors
from surreal_bids.stats.concordance import match_patterns

Floats = NDArray[np.floating]

CANDIDATES = (1, 2, 3, 4, 5, 6)
"""Numbers of patterns that are tried where none is given."""
SHARE = 0.8
"""Part of each group in a subsample ..."""
FEWEST_PEOPLE = 8
"""... no fewer than this, the smallest batch ..."""
MOST_PEOPLE = 1500
"""... but no more than this: with very many, small departures from the model become stable too."""
SUBSAMPLES = 10
PERMUTATIONS, SUBSAMPLES_OF_PERMUTATION = 20, 5
LEAST_STABILITY = 0.9
"""Patterns count as found again when severities correlate by this much."""
LEAST_SPREAD = 0.08
"""A pattern whose severities have a smaller standard deviation than this, of the 0.29 of U[0, 1],
is not measured at all: a chance difference between the groups in a region or two."""
COMPARED_PATIENTS = 1000
_SUBSAMPLE, _PERMUTATION = 1, 2
"""Streams of random numbers."""


@dataclass(frozen=True)
class Stability:
    """How well patterns are found again with one number of patterns."""

    n_patterns: int
    value: float
    """Correlation of the least stable pattern's severities between the most typical subsample and
    the others, the median over them."""
    null: tuple[float, ...] = ()
    """The same with shuffled labels, once for each shuffling; empty where it was not needed."""

    @property
    def is_supported(self) -> bool:
        """Whether all patterns are found again, and better than with any shuffled labels."""
        return self.value >= LEAST_STABILITY and self.value > max(self.null, default=-1.0)


@dataclass(frozen=True)
class Number:
    """The chosen number of patterns, 0 where none is supported, and what it was chosen by."""

    n_patterns: int
    stabilities: tuple[Stability, ...]


def subsample_size(n_people: int) -> int:
    """How many of a group are in a random subsample."""
    return max(round(SHARE * n_people), min(n_people, FEWEST_PEOPLE))


def draw_subsample(n_people: int, rng: np.random.Generator, most: int | None = None) -> NDArray:
    """Rows of a random subsample without replacement, in ascending order."""
    size = subsample_size(n_people)
    return np.sort(rng.permutation(n_people)[: size if most is None else min(size, most)])


def fit_subsample(cn: Floats, pt: Floats, n_patterns: int, rng: np.random.Generator) -> Factors:
    """Factors of one random subsample."""
    rows = [draw_subsample(len(group), rng, MOST_PEOPLE) for group in (cn, pt)]
    return fit_factors(cn[rows[0]], pt[rows[1]], n_patterns)


def stability(
    cn: Floats, pt: Floats, n_patterns: int, seed: Sequence[int], n_subsamples: int = SUBSAMPLES
) -> float:
    """How well M patterns are found again in subsamples (`Stability.value`)."""
    compared = pt[:COMPARED_PATIENTS]
    fits = []
    for k in range(n_subsamples):
        rng = np.random.default_rng([*seed, n_patterns, k])
        fits.append(fit_subsample(cn, pt, n_patterns, rng))
    unit_RNM = np.stack([_standardised(fit.severities(compared)) for fit in fits])
    similarity = np.einsum('anm,bnk->abmk', unit_RNM, unit_RNM, optimize=True)
    return _typical_agreement(similarity)


def _standardised(severities: Floats) -> Floats:
    """Columns of mean 0 and length 1; a pattern that hardly varies becomes zero."""
    centred = severities - severities.mean(axis=0)
    spread = centred.std(axis=0)
    unit = centred / (np.maximum(spread, LEAST_SPREAD) * np.sqrt(len(centred)))
    return np.where(spread >= LEAST_SPREAD, unit, 0.0)


def _typical_agreement(similarity: Floats) -> float:
    """Take the least of the matched correlations, (R, R, M, M) in all.

    It is that between the most typical subsample and the median other one.
    """
    n_fits = len(similarity)
    least = np.ones((n_fits, n_fits))
    for a in range(n_fits):
        for b in range(a):
            order = match_patterns(similarity[a, b])
            least[a, b] = least[b, a] = similarity[a, b][order, np.arange(len(order))].min()
    others = least[~np.eye(n_fits, dtype=bool)].reshape(n_fits, n_fits - 1)
    return float(np.median(others, axis=1).max())


def null_stability(cn: Floats, pt: Floats, n_patterns: int, random_state: int) -> tuple[float, ...]:
    """Stability (`PERMUTATIONS` values) after shuffling who is a control and who a patient."""
    people = np.concatenate([cn, pt])
    values = []
    for k in range(PERMUTATIONS):
        rng = np.random.default_rng([random_state, _PERMUTATION, k])
        shuffled = people[rng.permutation(len(people))]
        values.append(
            stability(
                *(shuffled[: len(cn)], shuffled[len(cn) :], n_patterns),
                (random_state, _PERMUTATION, k),
                SUBSAMPLES_OF_PERMUTATION,
            )
        )
    return tuple(values)


def choose_number(
    cn: Floats,
    pt: Floats,
    candidates: Sequence[int] = CANDIDATES,
    random_state: int = 0,
    report: Callable[[str], None] = lambda _: None,
) -> Number:
    """Choose the largest number of patterns all of which are found again; 0 where there is none.

    Parameters
    ----------
    cn, pt : (N, S)
        Controls and patients.
    candidates
        Numbers of patterns to try.
    random_state
        Seed of the subsamples and of the shuffled labels.
    report
        Called with a short text after every step.
    """
    found = {}
    for m in sorted(set(candidates)):
        found[m] = Stability(m, stability(cn, pt, m, (random_state, _SUBSAMPLE)))
        report(f'M={m}: stability {found[m].value:.2f}')
    chosen = 0
    supported = sorted((m for m in found if found[m].is_supported), reverse=True)
    for m in dict.fromkeys([*supported, min(found)]):
        found[m] = Stability(m, found[m].value, null_stability(cn, pt, m, random_state))
        report(f'M={m}: stability {max(found[m].null):.2f} at most with shuffled labels')
        if found[m].is_supported:
            chosen = m
            break
    return Number(chosen, tuple(found.values()))


def stored_number(values: dict[str, Any] | None) -> Number | None:
    """The `Number` that a model's card holds."""
    if values is None:
        return None
    rows = [Stability(**{**row, 'null': tuple(row['null'])}) for row in values['stabilities']]
    return Number(values['n_patterns'], tuple(rows))
