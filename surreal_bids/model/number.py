"""Choice of the number of patterns: the largest one that is reproduced in other participants.

Sparse factors are fitted to random subsamples of both groups. Up to the true number of patterns,
all fits give the patients the same severities; beyond it, at least one pattern is a different one
each time. The same is done after a permutation that leaves nobody ill, which shows how stable
patterns are by chance. Preprocessing that was learned from controls has to be repeated with the
permuted ones (`Shuffle`).

Shapes: N participants, S regions, M patterns, R subsamples.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal_bids.cautions import INVALID, MODEL, Caution
from surreal_bids.model.factors import Factors, Rows, fit_samples, one_thread, spread_rows
from surreal_bids.model.networks import MIN_PEOPLE
from surreal_bids.parallel import in_threads
from surreal_bids.progress import report
from surreal_bids.stats.concordance import match_patterns
from surreal_bids.text import counted, decimals_apart

LOGGER = logging.getLogger(__name__)

Floats = NDArray[np.floating]

Shuffle = Callable[[np.random.Generator], tuple[Floats, Floats]]
"""Draws controls and patients (N, S) as if nobody were ill."""

CANDIDATES = (1, 2, 3, 4, 5, 6)
"""Numbers of patterns that are tried where none is given."""
SHARE = 0.8
"""Part of each group in a subsample, but no fewer than the smallest batch."""
MOST_PEOPLE = 2000
"""Subsamples are of no more than this: with very many, small departures from the model become
stable too."""
SUBSAMPLES = 10
UNCLEAR, REPEATS = 0.15, 3
"""A stability this close to its limit is replaced by the mean of three, each from other subsamples,
since a single one varies by 0.08 (SD). Permuted data are measured once."""
PERMUTATIONS = 39
"""At most; the smallest possible p is 1/40."""
ENOUGH = 5
"""Permutations that do as well as the data, after which no more are tried."""
LEAST_FOR_ONE, LEAST_FOR_SEVERAL = 0.85, 0.75
"""Minimum correlation of severities at which one pattern counts as reproduced, and the least of
several. The mean difference between two groups is similar in all subsamples even if it means
nothing, so one pattern reaches up to 0.8 by chance; one too many of several reaches 0.73."""
LEAST_FOR_STRUCTURES = 0.82
"""The same of several patterns where each feature is both sides of a structure. These have less
noise than single regions, so that one pattern too many is more stable: with 0.75, the number was
too large in 16 of 165 simulated cohorts (`benchmarks/sides.py`). With this limit it was too large
in one and right in 153, but the limit was chosen with all of them in view. In 12 new cohorts, at
three strengths of one-sided disease, it was never too large."""
LEAST_SPREAD = 0.08
"""A pattern whose severities have a smaller standard deviation than this, of the 0.29 of U[0, 1],
is not measured at all: a chance difference between the groups in a region or two."""
COMPARED_PATIENTS = 1000
REPRODUCTIONS = 20
"""Subsamples in which the patterns of a model are to be reproduced."""
MANY_PATIENTS = 500
"""With so many patients, simulated patterns that are dense, overlapping and correlated are all
found; with 250, the number is too small in one of eight samples, and with 130 in three."""
CHOICE = 'number of patterns'
_SUBSAMPLE, _PERMUTATION, _REPRODUCTION = 1, 2, 3
"""Streams of random numbers."""


def least_stability(n_patterns: int) -> float:
    """Return how well patterns have to be reproduced in subsamples, which share participants."""
    return LEAST_FOR_ONE if n_patterns == 1 else LEAST_FOR_SEVERAL


@dataclass(frozen=True)
class Stability:
    """How well patterns are reproduced with one number of patterns.

    Attributes
    ----------
    value
        Correlation of the least stable pattern's severities between the most typical subsample and
        the others, the median over them; the mean of `REPEATS` if it is close to the limit.
    null
        The same with permuted data, one for each permutation; empty where none was needed.
    least
        Minimum value at which patterns count as reproduced; None: the usual one.
    """

    n_patterns: int
    value: float
    null: tuple[float, ...] = ()
    least: float | None = None

    @property
    def needed(self) -> float:
        """Minimum value at which all patterns count as reproduced."""
        return least_stability(self.n_patterns) if self.least is None else self.least

    @property
    def p_value(self) -> float | None:
        """How often permuted data would do as well; None where they were not tried.

        It is a sequential test (Besag and Clifford, Biometrika 78:301-304, 1991).
        """
        if not self.null:
            return None
        if self.is_settled:
            return ENOUGH / len(self.null)
        return (1 + self.reached) / (1 + len(self.null))

    @property
    def is_settled(self) -> bool:
        """Whether further permutations are not needed."""
        return self.reached == ENOUGH and self.null[-1] >= self.value

    @property
    def reached(self) -> int:
        """Number of permutations that do as well."""
        return sum(value >= self.value for value in self.null)

    @property
    def is_reproduced(self) -> bool:
        """Whether all patterns are reproduced in subsamples."""
        return self.value >= self.needed

    @property
    def beats_chance(self) -> bool:
        """Whether patterns are more stable than with any permutation."""
        return self.value > max(self.null, default=-1.0)

    @property
    def is_supported(self) -> bool:
        """Whether all patterns are reproduced, and better than with any permutation."""
        return self.is_reproduced and self.beats_chance


@dataclass(frozen=True)
class Number:
    """The chosen number of patterns, 0 where none is supported, and what it was chosen by."""

    n_patterns: int
    stabilities: tuple[Stability, ...]

    @property
    def tested(self) -> Stability | None:
        """The permutation test of any pattern: of the chosen number, or of the smallest tested.

        None if permuted data were not tried.
        """
        tried = [each for each in self.stabilities if each.null]
        chosen = [each for each in tried if each.n_patterns == self.n_patterns]
        return min(chosen or tried, key=lambda each: each.n_patterns, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the number as plain JSON values."""
        rows = [asdict(tried) for tried in self.stabilities]
        for row in rows:
            if row['least'] is None:
                # As in the cards of models whose sides are apart.
                del row['least']
        return {'n_patterns': self.n_patterns, 'stabilities': rows}

    @property
    def supported(self) -> bool:
        """Whether the permutation test supports any pattern; also True if there was no test."""
        return self.tested is None or self.tested.beats_chance


def subsample_size(n_people: int) -> int:
    """How many of a group are in a random subsample."""
    return max(round(SHARE * n_people), min(n_people, MIN_PEOPLE))


def draw_subsample(n_people: int, rng: np.random.Generator) -> NDArray:
    """Rows of a random subsample without replacement, in ascending order."""
    return np.sort(rng.permutation(n_people)[: subsample_size(n_people)])


def _subsamples(cn: Floats, pt: Floats, count: int, rng: np.random.Generator) -> list[Rows]:
    return [(draw_subsample(len(cn), rng), draw_subsample(len(pt), rng)) for _ in range(count)]


def stability(
    cn: Floats, pt: Floats, n_patterns: int, seed: Sequence[int], device: str = 'cpu'
) -> float:
    """How well M patterns are reproduced in subsamples (`Stability.value`, once)."""
    cn, pt = (group[spread_rows(len(group), MOST_PEOPLE)] for group in (cn, pt))
    rng = np.random.default_rng([*seed, n_patterns])
    samples = _subsamples(cn, pt, SUBSAMPLES, rng)
    compared = pt[spread_rows(len(pt), COMPARED_PATIENTS)]
    fits = fit_samples(cn, pt, samples, n_patterns, device)
    unit_RNM = np.stack([_standardised(_severities_alone(fit, compared)) for fit in fits])
    similarity = np.einsum('anm,bnk->abmk', unit_RNM, unit_RNM, optimize=True)
    return _typical_agreement(similarity)


def _severities_alone(fit: Factors, pt: Floats) -> Floats:
    """Severities without their correlation, by which an empty pattern mirrors the others."""
    return replace(fit, correlation=np.eye(len(fit.correlation))).severities(pt)


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


def reproduce(cn: Floats, pt: Floats, r_NM: Floats, random_state: int) -> Floats:
    """How well patterns are reproduced in subsamples, by fits that do not know them.

    Parameters
    ----------
    cn, pt : (N, S)
        Controls and patients.
    r_NM : (N, M)
        R-indices of the patients.
    random_state
        Seed of the subsamples.

    Returns
    -------
    (R, M) array
        Correlation of severities in each subsample with the R-indices.
    """
    kept = spread_rows(len(pt), MOST_PEOPLE)
    cn, pt, r_NM = cn[spread_rows(len(cn), MOST_PEOPLE)], pt[kept], r_NM[kept]
    rng = np.random.default_rng((random_state, _REPRODUCTION))
    samples = _subsamples(cn, pt, REPRODUCTIONS, rng)
    centred = r_NM - r_NM.mean(axis=0)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=0), np.finfo(float).tiny)
    found = []
    for fit in fit_samples(cn, pt, samples, r_NM.shape[1]):
        similarity = _standardised(_severities_alone(fit, pt)).T @ unit
        order = match_patterns(similarity)
        found.append(similarity[order, np.arange(len(order))])
    return np.array(found)


def shuffle_rows(cn: Floats, pt: Floats) -> Shuffle:
    """Shuffle labels among rows; right where nothing was learned from controls beforehand."""
    people = np.concatenate([cn, pt])

    def shuffle(rng: np.random.Generator) -> tuple[Floats, Floats]:
        shuffled = people[rng.permutation(len(people))]
        return shuffled[: len(cn)], shuffled[len(cn) :]

    return shuffle


def null_stability(
    shuffle: Shuffle, n_patterns: int, random_state: int, device: str = 'cpu'
) -> Iterator[float]:
    """Stability (up to `PERMUTATIONS` values) in data in which nobody is ill."""
    seeds = [(random_state, _PERMUTATION, k) for k in range(PERMUTATIONS)]
    drawn = ((*shuffle(np.random.default_rng(seed)), n_patterns, seed, device) for seed in seeds)
    yield from _stabilities(drawn, device)


def _stabilities(calls: Iterable[tuple[Any, ...]], device: str) -> Iterator[float]:
    yield from (in_threads if device == 'cpu' else map)(lambda each: stability(*each), calls)


def measure_stability(
    cn: Floats,
    pt: Floats,
    numbers: Iterable[int],
    random_state: int,
    device: str = 'cpu',
    least_of_several: float | None = None,
) -> dict[int, float]:
    """`stability` with each number, repeated where chance may decide on which side of its limit."""
    found: dict[int, list[float]] = {m: [] for m in sorted(numbers, reverse=True)}  # Slowest first.

    def measure(asked: list[tuple[int, int]]) -> None:
        calls = [(cn, pt, m, (random_state, _SUBSAMPLE, k), device) for m, k in asked]
        for done, ((m, _), value) in enumerate(zip(asked, _stabilities(calls, device))):
            report(done + 1, len(calls), f'{CHOICE}: stability with {m}')
            found[m].append(value)

    measure([(m, 0) for m in found])
    unclear = []
    for m, values in found.items():
        needed = least_stability(m) if m == 1 or least_of_several is None else least_of_several
        if abs(values[0] - needed) < UNCLEAR:
            unclear.append(m)
    measure([(m, k) for m in unclear for k in range(1, REPEATS)])
    return {m: mean(found[m]) for m in sorted(found)}


@one_thread()
def choose_number(
    cn: Floats,
    pt: Floats,
    candidates: Sequence[int] = CANDIDATES,
    random_state: int = 0,
    shuffle: Shuffle | None = None,
    device: str = 'cpu',
    least_of_several: float | None = None,
) -> Number:
    """Choose the largest number of patterns that are all reproduced; 0 where there is none.

    Parameters
    ----------
    cn, pt : (N, S)
        Controls and patients.
    candidates
        Numbers of patterns to try.
    random_state
        Seed of the subsamples and of the permuted data.
    shuffle
        Draws both groups with permuted data; None: labels are shuffled among the rows.
    device
        Where to compute.
    least_of_several
        Minimum stability of several patterns; None: the usual one.
    """
    shuffle = shuffle or shuffle_rows(cn, pt)
    limit = least_of_several
    values = measure_stability(cn, pt, set(candidates), random_state, device, limit)
    found = {}
    for m, value in values.items():
        found[m] = Stability(m, value, least=None if m == 1 else limit)
    for m, value in values.items():
        LOGGER.info('M=%d: stability %.2f', m, value)
    reproduced = [m for m in found if found[m].is_reproduced]
    for m in dict.fromkeys([*reversed(reproduced), min(found)]):
        null = null_stability(shuffle, m, random_state, device)
        found[m] = _compare_with_permuted(found[m], null)
        if found[m].is_supported:
            return Number(m, tuple(found.values()))
    return Number(0, tuple(found.values()))


def _compare_with_permuted(found: Stability, null: Iterator[float]) -> Stability:
    """Add stabilities of permuted data until further ones cannot change the answer."""
    for done, value in enumerate(null, start=1):
        found = replace(found, null=(*found.null, value))
        report(done, PERMUTATIONS, f'{CHOICE}: permutations with {found.n_patterns}')
        if found.is_settled:
            break
    LOGGER.info('M=%d: up to %.2f with permuted data', found.n_patterns, max(found.null))
    return found


def stored_number(values: dict[str, Any] | None) -> Number | None:
    """The `Number` that a model's card holds."""
    if values is None:
        return None
    rows = [
        Stability(row['n_patterns'], row['value'], tuple(row['null']), row.get('least'))
        for row in values['stabilities']
    ]
    return Number(values['n_patterns'], tuple(rows))


def warn_of_chance(number: Number | None) -> list[Caution]:
    """Warn of patterns that were requested, but are no more stable than with permuted data."""
    if number is None or number.tested is None or number.supported:
        return []
    return [
        Caution(
            'The permutation test supports no pattern: '
            f'{counted(number.tested.n_patterns, "pattern")}, {_evidence(number.tested)}',
            'AUC and associations of these R-indices may be due to chance',
            'Do not interpret them; without --n-patterns, a number that the data support is chosen',
            MODEL,
            severity=INVALID,
        )
    ]


class Explanation(NamedTuple):
    """Why a number of patterns was chosen, for reports.

    Attributes
    ----------
    sentences
        The number and its evidence, the next best one and the option that shows it (unless it is no
        better than permuted data), and a sentence on small samples, as far as there are such.
    rows
        One for each number that was tried, with the reason why it was chosen or not.
    """

    sentences: tuple[str, ...]
    rows: list[dict[str, Any]]


def explain_choice(number: Number, used: int, n_patients: int) -> Explanation:
    """Explain the number of patterns of a model.

    Parameters
    ----------
    number
        What was tried.
    used
        Number of patterns of the model: the chosen one, or the one that was requested.
    n_patients
        Number of patients in the training sample.
    """
    tried = number.stabilities
    rows = [
        {
            'patterns': each.n_patterns,
            'stability': each.value,
            'needed': each.needed,
            'permuted data, median': median(each.null) if each.null else None,
            'permuted data, highest': max(each.null, default=None),
            'p': each.p_value,
            'reason': _reason(each, used, is_alone=len(tried) == 1),
        }
        for each in tried
    ]
    own = {each.n_patterns: each for each in tried}.get(used)
    if own is not None and len(tried) == 1:
        verdict = 'supported by' if own.is_supported else 'not supported by'
        sentences = [
            f'{counted(used, "pattern")} tried alone, {verdict} the data: {_evidence(own)}. '
            'Without --n-patterns, all numbers that the regions allow are tried.'
        ]
    else:
        sentences = _explain_chosen(own, number, n_patients)
    return Explanation(tuple(sentences), rows)


def _explain_chosen(own: Stability | None, number: Number, n_patients: int) -> list[str]:
    tried = number.stabilities
    used, verdict, shown = 0, 'No pattern is supported.', 'No pattern is'
    if own is not None:
        used, count = own.n_patterns, counted(own.n_patterns, 'pattern')
        verdict = f'{count} chosen, the largest number that is supported: {_evidence(own)}.'
        if used > 1:
            verdict = (
                f'{verdict} The permutations test whether there is any pattern; that there are '
                f'{used} rests on their stability.'
            )
        shown = f'{count} can be'
    larger = [each for each in tried if each.n_patterns > used]
    others = larger or [each for each in tried if each is not own]
    second = max(others, key=lambda each: each.value - each.needed)
    closest = f'{"Of larger numbers, " if used else ""}{second.n_patterns} comes closest'
    if not larger:
        closest = f'The next best number is {second.n_patterns}'
    closest = f'{closest}: {_reason(second, used)}, {_evidence(second)}.'
    if second.beats_chance:
        asked = counted(second.n_patterns, 'pattern')
        closest = f'{closest} To see {asked}, give --n-patterns {second.n_patterns}.'
    sentences = [verdict, closest]
    # A failed test is no reason to expect a pattern in more participants.
    if larger and n_patients < MANY_PATIENTS and (used or number.supported):
        sentences.append(
            f'{shown} reproduced in a training sample with {counted(n_patients, "patient")}; a '
            'larger sample may show more.'
        )
    return sentences


def _evidence(found: Stability) -> str:
    needed, highest = found.needed, max(found.null, default=None)
    decimals = decimals_apart(found.value, needed)
    if highest is not None:
        decimals = max(decimals, decimals_apart(found.value, highest))
    text = f'stability {found.value:.{decimals}f} in random subsamples (at least {needed:g} needed)'
    if found.p_value is None:
        return text
    n_permutations = len(found.null)
    p = f'p = {found.p_value:.2g}'
    if not found.reached:
        # The data may be far more unusual than so few permutations can show.
        p = f'p <= {found.p_value:.2g}, the smallest possible with {n_permutations} permutations'
    return (
        f'{text}; permuted data reached it in {found.reached or "none"} of {n_permutations} runs '
        f'(highest {highest:.{decimals}f}; {p})'
    )


def _reason(found: Stability, used: int, is_alone: bool = False) -> str:
    """Why a number of patterns was chosen or not."""
    if not found.beats_chance:
        reason = 'no better than permuted data'
    elif not found.is_reproduced:
        reason = 'not reproducible'
    else:
        reason = '' if found.n_patterns == used else 'reproducible, but more patterns are too'
    chosen = ('tried alone' if is_alone else 'chosen') if found.n_patterns == used else ''
    return '; '.join(filter(None, (chosen, reason)))
