"""Sparse factors: linear estimates of severity, and the start that they give to a member.

A patient is a control plus a sum of severities times patterns, and a pattern is zero in most
regions:

    y = x + sum_k s_k P_k,    x ~ N(mean, C),    s_k ~ U[0, 1]

`fit_factors` alternates between severities (posterior means under a normal prior with the moments
of U[0, 1]), patterns (least squares; only effects above their standard error are kept) and C,
learned from the controls and from what the patterns leave of the patients. It takes a tenth of a
second. `member_weights` then writes f, g1 and g2 of one member down in closed form, so that
G = g2(g1(y)) is the linear estimate of the severities and f(x, z) = sum_k z_k P_k.

Shapes: N participants, S regions, M patterns, H = S // 2 and Q = S // 4 hidden units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import rankdata
from sklearn.covariance import ledoit_wolf

from surreal_bids.exceptions import UsageError
from surreal_bids.model.networks import SLOPE, hidden_sizes
from surreal_bids.stats.concordance import concordance_index, match_patterns

Floats = NDArray[np.floating]
Cholesky = tuple[Floats, bool]
"""Of a covariance, by `scipy.linalg.cho_factor`."""

PRIOR_MEAN, PRIOR_PRECISION = 0.5, 12.0
"""Mean and inverse variance of a severity, those of U[0, 1]."""
THRESHOLD = 2.0
"""A region belongs to a pattern when its change exceeds this many standard errors."""
FIRST_THRESHOLD = 0.5
"""The threshold rises from here, so that no region is lost before the patterns are told apart."""
RISE = 0.7
"""Part of the iterations in which the threshold rises."""
ITERATIONS = 30
ITERATIONS_WITH_CONTROLS = 10
"""First iterations, in which C comes from the controls alone."""
PATIENT_WEIGHT = 2.0
"""Weight of a patient's residual beside that of a control in C: R-indices are for patients."""
SHRINKAGE, SHRINKAGE_PER_REGION, MOST_SHRINKAGE = 0.02, 0.3, 0.5
"""C is shrunk towards a multiple of the identity by 0.02 + 0.3 S / N, at most by a half; by more
where Ledoit and Wolf (2004) find more in the controls, whose regions then hardly correlate."""
LARGEST_RESCALING = (0.5, 4.0)
"""Patterns are rescaled to a mean severity of 1/2, in one iteration by no more than this."""
REGION_PENALTY = 2.0
"""Log-likelihood that a region of a pattern has to be worth (that of Akaike's criterion is 1)."""
VARIMAX_ITERATIONS, VARIMAX_TOLERANCE = 500, 1e-8
TINY = 1e-9
FAR_APART = 0.25
"""Part of the patients by which a place among them may differ."""

SMALLEST_RATIO = 8
"""Regions needed for each pattern: g2 passes an R-index on by pairs of Q = S // 4 hidden units."""
JITTER = 0.003
"""Standard deviation of what is added to the weights of f and g2, so that units can diverge."""
GAIN, GATE, DECODER = 0.25, 0.45, 0.3
"""Usual largest weight of g2's first layer, and weights of f's gates and first decoder: below the
clip limit of 0.5, with room to train."""
LARGEST_START = 0.45
"""Largest weight of g2's first layer where hidden units are few."""
CODE = 2.0
"""Value of every unit of f's code for a mean control."""
CHORD = 0.6
"""f is exact at this z; a gate of sigmoids is nearly linear around it."""


@dataclass(frozen=True)
class Factors:
    """What `fit_factors` learns."""

    mean: Floats
    """Mean of the controls, (S,)."""
    patterns: Floats
    """Change at severity 1, (S, M)."""
    covariance: Floats
    """C, (S, S)."""

    @property
    def has_empty(self) -> bool:
        """Whether a pattern has lost all of its regions."""
        return not (self.patterns != 0).any(axis=0).all()

    def projector(self) -> tuple[Floats, Floats]:
        """B (S, M) and offset (M,): posterior means of the severities are y @ B + offset."""
        solved = cho_solve(cho_factor(self.covariance), self.patterns)
        variance = _posterior_variance(self.patterns.T @ solved)
        weights = solved @ variance
        return weights, PRIOR_PRECISION * PRIOR_MEAN * variance.sum(axis=0) - self.mean @ weights

    def severities(self, people: Floats) -> Floats:
        """Linear estimate of the severities, (N, M)."""
        weights, offset = self.projector()
        return people @ weights + offset


def fit_factors(cn: Floats, pt: Floats, n_patterns: int, threshold: float = THRESHOLD) -> Factors:
    """Fit M sparse patterns to controls and patients, (N, S) each.

    The alternation starts from two rotations, of the patients' covariance and of their second
    moment around the controls, and the solution of higher penalised likelihood is returned.
    """
    mean = cn.mean(axis=0)
    centred, change = cn - mean, pt - mean
    covariance, found = ledoit_wolf(centred, assume_centered=True)
    shrinkage = max(_usual_shrinkage(len(cn) + len(pt), cn.shape[1]), _of_all(found, cn, pt))
    starts = [change - change.mean(axis=0), change]
    fits = []
    for deviation in starts[: 1 if n_patterns == 1 else None]:
        patterns = _rotated_directions(deviation, covariance, n_patterns)
        patterns *= np.where((change.mean(axis=0) / np.diag(covariance)) @ patterns < 0, -1.0, 1.0)
        fits.append(_alternate(centred, change, patterns, covariance, shrinkage, threshold))
    best = max(fits, key=lambda fit: _penalised_likelihood(centred, change, *fit))
    return Factors(mean, *best)


def _usual_shrinkage(n_people: int, n_regions: int) -> float:
    return min(SHRINKAGE + SHRINKAGE_PER_REGION * n_regions / n_people, MOST_SHRINKAGE)


def _of_all(shrinkage: float, cn: Floats, pt: Floats) -> float:
    """Ledoit and Wolf's shrinkage for everyone, from that of the controls: its odds fall as 1/N."""
    odds = shrinkage * len(cn)
    return odds / (odds + (1 - shrinkage) * (len(cn) + len(pt)))


def fit_nonempty_factors(cn: Floats, pt: Floats, n_patterns: int) -> Factors:
    """Fit patterns each of which has a region: where one is lost, with a lower threshold."""
    for threshold in (THRESHOLD, THRESHOLD / 2, THRESHOLD / 4):
        factors = fit_factors(cn, pt, n_patterns, threshold)
        if not factors.has_empty:
            return factors
    return fit_factors(cn, pt, n_patterns, 0.0)


def compare_with(factors: Factors, people: Floats, r_NM: Floats) -> dict[str, list[float]]:
    """Compare R-indices with the linear estimates of the same people, pattern by pattern.

    Returns
    -------
    dict
        `agreement`: c-index of each R-index with its closest factor. `differing`: share of people
        whose places among all, from 0 to 1, are more than a quarter apart.
    """
    linear = factors.severities(people)
    places = [rankdata(values, axis=0) / len(people) for values in (linear, r_NM)]
    unit = [(place - place.mean(axis=0)) / place.std(axis=0) for place in places]
    order = match_patterns(unit[0].T @ unit[1] / len(people))
    apart = np.abs(places[0][:, order] - places[1]) > FAR_APART
    pairs = zip(linear[:, order].T, r_NM.T)
    return {
        'agreement': [float(concordance_index(*pair)) for pair in pairs],
        'differing': apart.mean(axis=0).tolist(),
    }


def _posterior_variance(information: Floats) -> Floats:
    """Posterior variance (M, M) of the severities, given P' C^-1 P."""
    return np.linalg.inv(information + PRIOR_PRECISION * np.eye(len(information)))


def _rotated_directions(deviation: Floats, covariance: Floats, n_patterns: int) -> Floats:
    """Leading directions (S, M) in which patients vary more than controls, made sparse."""
    values, vectors = np.linalg.eigh(covariance)
    white = deviation @ (vectors / np.sqrt(values))
    excess, directions = np.linalg.eigh(white.T @ white / len(white) - np.eye(len(values)))
    leading = directions[:, ::-1][:, :n_patterns]
    size = np.sqrt(np.maximum(excess[::-1][:n_patterns], TINY))
    sd = np.sqrt(np.diag(covariance))[:, None]
    return sd * varimax((vectors * np.sqrt(values)) @ (leading * size) / sd)


def varimax(loadings: Floats) -> Floats:
    """Rotate loadings (S, M) so that squares vary most within columns (Kaiser, 1958)."""
    rotation = np.eye(loadings.shape[1])
    before = 0.0
    for _ in range(VARIMAX_ITERATIONS):
        rotated = loadings @ rotation
        target = rotated**3 - rotated * (rotated**2).mean(axis=0)
        left, values, right = np.linalg.svd(loadings.T @ target)
        rotation = left @ right
        if values.sum() < before * (1 + VARIMAX_TOLERANCE):
            break
        before = values.sum()
    return loadings @ rotation


def _alternate(
    centred: Floats,
    change: Floats,
    patterns: Floats,
    covariance: Floats,
    shrinkage: float,
    threshold: float,
) -> tuple[Floats, Floats]:
    """Severities, patterns and covariance in turn; the last two."""
    cn_scatter, pt_scatter = centred.T @ centred, change.T @ change
    mean_change = change.mean(axis=0)
    factored = cho_factor(covariance)
    for iteration in range(ITERATIONS):
        solved = cho_solve(factored, patterns)
        variance = _posterior_variance(patterns.T @ solved)
        z = ((change @ solved) + PRIOR_PRECISION * PRIOR_MEAN) @ variance
        z = np.clip(z, 0.0, 1.0)
        rise = min(iteration / (RISE * ITERATIONS), 1.0)
        limit = threshold * rise + min(FIRST_THRESHOLD, threshold) * (1 - rise)
        along, moment = change.T @ z, z.T @ z + len(z) * variance
        patterns = _sparse_slopes(along, moment, covariance, limit)
        if iteration < ITERATIONS_WITH_CONTROLS:
            continue
        patterns = patterns * _rescaling(mean_change, patterns, factored)
        # What the patterns leave of the patients, by products of S regions instead of N people.
        explained = along @ patterns.T
        scatter = pt_scatter - explained - explained.T + patterns @ moment @ patterns.T
        total = len(centred) + PATIENT_WEIGHT * len(change)
        pooled = (cn_scatter + PATIENT_WEIGHT * scatter) / total
        scale = np.trace(pooled) / len(pooled)
        covariance = (1 - shrinkage) * pooled + shrinkage * scale * np.eye(len(pooled))
        factored = cho_factor(covariance)
    return patterns, covariance


def _sparse_slopes(along: Floats, moment: Floats, covariance: Floats, threshold: float) -> Floats:
    """Regress changes on severities; slopes (S, M), shrunk by the garrote (Breiman, 1995).

    A slope of t standard errors is multiplied by 1 - (threshold / t)^2, and is zero below the
    threshold: large ones are hardly shrunk, so that patterns do not fade from turn to turn.

    Parameters
    ----------
    along, moment : (S, M), (M, M)
        Sums over patients: of changes times severities, and of the second moments of severities.
    covariance : (S, S)
        C.
    threshold
        In standard errors.
    """
    inverse = np.linalg.inv(moment)
    slopes = along @ inverse
    error = np.sqrt(np.outer(np.diag(covariance), np.diag(inverse)))
    kept = 1 - np.square(threshold * error / np.maximum(np.abs(slopes), TINY))
    return slopes * np.maximum(kept, 0.0)


def _unbiased(change: Floats, patterns: Floats, factored: Cholesky) -> tuple[Floats, Floats]:
    """Generalised least squares severities, (N, M) or (M,), and their error variance (M, M)."""
    solved = cho_solve(factored, patterns)
    error = np.linalg.inv(patterns.T @ solved + TINY * np.eye(patterns.shape[1]))
    return change @ solved @ error, error


def _rescaling(mean_change: Floats, patterns: Floats, factored: Cholesky) -> Floats:
    """Factors (M,) that bring the mean severity to 1/2: U[0, 1] is what f is given later."""
    mean, _ = _unbiased(mean_change, patterns, factored)
    return np.clip(mean / PRIOR_MEAN, *LARGEST_RESCALING)


def _penalised_likelihood(
    centred: Floats, change: Floats, patterns: Floats, covariance: Floats
) -> float:
    """Gaussian log-likelihood of both groups, less a penalty for every region of a pattern."""
    patterns = patterns[:, (patterns != 0).any(axis=0)]
    spread, shift = covariance, np.zeros(len(covariance))
    if patterns.size:
        severities, error = _unbiased(change, patterns, cho_factor(covariance))
        excess = np.atleast_2d(np.cov(severities.T, bias=True)) - error
        values, vectors = np.linalg.eigh(excess)
        loadings = patterns @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        spread = covariance + loadings @ loadings.T
        shift = patterns @ severities.mean(axis=0)
    likelihood = _log_likelihood(centred, covariance) + _log_likelihood(change - shift, spread)
    return likelihood - REGION_PENALTY * np.count_nonzero(patterns)


def _log_likelihood(deviation: Floats, covariance: Floats) -> float:
    """Log-likelihood, up to a constant, of N(0, covariance)."""
    factored = cho_factor(covariance)
    log_determinant = 2 * np.log(np.diag(factored[0])).sum()
    distance = np.trace(cho_solve(factored, deviation.T @ deviation))
    return -0.5 * float(distance + len(deviation) * log_determinant)


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


def member_weights(factors: Factors, rng: np.random.Generator, limit: float) -> dict[str, Floats]:
    """Weights of f, g1 and g2 of one member, in closed form, none beyond plus or minus `limit`."""
    decomposer, gain = _decomposer(factors, limit)
    weights = {
        **decomposer,
        **_reconstructor(factors.patterns, gain, rng),
        **_mapper(factors.patterns, rng),
    }
    return {name: np.clip(value, -limit, limit) for name, value in weights.items()}


def _decomposer(factors: Factors, limit: float) -> tuple[dict[str, Floats], Floats]:
    """g1: block k is B_k P_k'; and by how much a block too large for the limit was reduced."""
    projector, offset = factors.projector()
    patterns = factors.patterns
    largest = np.maximum(np.abs(projector).max(axis=0), np.abs(offset))
    reduction = np.minimum(limit / (largest * np.abs(patterns).max(axis=0)), 1.0)
    reduced = patterns * reduction
    n_regions, n_patterns = patterns.shape
    weight = np.einsum('sm,tm->smt', projector, reduced).reshape(n_regions, -1)
    bias = (offset[:, None] * reduced.T).reshape(1, n_patterns * n_regions)
    return {'g1.weight': weight, 'g1.weight_bias': bias}, 1 / reduction


def _reconstructor(patterns: Floats, gain: Floats, rng: np.random.Generator) -> dict[str, Floats]:
    """g2: a change r_k P_k is taken to r_k, through pairs of units of opposite sign.

    leaky(x) - leaky(-x) = (1 + slope) x, so that such a pair is linear.
    """
    n_regions, n_patterns = patterns.shape
    hidden, quarter = hidden_sizes(n_regions)
    n1, n2 = hidden // (2 * n_patterns), quarter // (2 * n_patterns)
    readers = np.linalg.pinv(patterns).T * gain
    layers = [
        np.zeros((n_regions, hidden)),
        np.zeros((hidden, quarter)),
        np.zeros((quarter, n_patterns)),
    ]
    for k in range(n_patterns):
        largest = np.abs(readers[:, k]).max()
        needed = largest / (n1 * n2 * np.square(LARGEST_START * (1 + SLOPE)))
        gain_of_reader = np.clip(needed, GAIN, LARGEST_START)
        reader = readers[:, k] * gain_of_reader / largest
        weight = np.sqrt(largest / (gain_of_reader * n1 * n2)) / (1 + SLOPE)
        first = np.repeat([1.0, -1.0], n1)
        second = np.repeat([1.0, -1.0], n2)
        rows = slice(2 * n1 * k, 2 * n1 * (k + 1))
        columns = slice(2 * n2 * k, 2 * n2 * (k + 1))
        layers[0][:, rows] = np.outer(reader, first)
        layers[1][rows, columns] = weight * np.outer(first, second)
        layers[2][columns, k] = weight * second
    weights: dict[str, Floats] = {}
    for number, layer in enumerate(layers, start=1):
        weights[f'g2.layer{number}'] = layer + rng.normal(0, JITTER, layer.shape)
        weights[f'g2.layer{number}_bias'] = np.zeros((1, layer.shape[1]))
    return weights


def _mapper(patterns: Floats, rng: np.random.Generator) -> dict[str, Floats]:
    """f: the code of a control is the same everywhere; pairs of gates pass on z_k.

    sigmoid(a) - sigmoid(-a) = tanh(a / 2), nearly linear in z.
    """
    n_regions, n_patterns = patterns.shape
    hidden, quarter = hidden_sizes(n_regions)
    n_gates, n_units = quarter // (2 * n_patterns), hidden // n_patterns
    latent = np.zeros((n_patterns, quarter))
    decode1, decode2 = np.zeros((quarter, hidden)), np.zeros((hidden, n_regions))
    opened = np.tanh(GATE * CHORD / 2) / CHORD
    unit = n_gates * DECODER * CODE * opened
    before_leaky = np.where(patterns < 0, patterns / SLOPE, patterns)
    for k in range(n_patterns):
        sign = np.repeat([1.0, -1.0], n_gates)
        gates = slice(2 * n_gates * k, 2 * n_gates * (k + 1))
        units = slice(n_units * k, n_units * (k + 1))
        latent[k, gates] = GATE * sign
        decode1[gates, units] = DECODER * sign[:, None]
        decode2[units] = before_leaky[:, k] / (n_units * unit)
    jittered = {
        'f.encode1': np.full((n_regions, hidden), 1 / n_regions),
        'f.encode2': np.full((hidden, quarter), CODE / hidden),
        'f.latent': latent,
        'f.decode1': decode1,
    }
    return {
        **{name: value + rng.normal(0, JITTER, value.shape) for name, value in jittered.items()},
        'f.latent_bias': np.zeros((1, quarter)),
        'f.decode2': decode2,
    }
