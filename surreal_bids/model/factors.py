"""Linear factors: estimates of severity, and patterns from which members start.

A patient is a control plus a sum of severities times patterns:

    y = x + P s,    x ~ N(mean, C),    s in the unit box

Severities are uniform, as in the paper, and may correlate (a Gaussian copula with correlation R).
The box is what tells patterns apart: a normal prior is the same in every rotation, so that its
likelihood cannot tell two patterns from two mixtures of them. Expectation maximisation fits many
samples of one table at once. Each iteration computes

    E  mean and second moments of the severities of each patient given the regions, summed over
       fixed points of the box;
    P  patterns by generalised least squares with an L1 penalty. Regions correlate, so that the loss
       of a region is known better given its neighbours than alone. Every region may change in one
       direction only, that of the mean patient;
    C  the covariance of controls and of what the patterns leave of the patients;
    R  the correlation of the severities.

Solutions are compared by evidence: starts by the density of all patients, penalties by the density
of patients who were left out. The weights of members that start from factors are set in closed
form: G = g2(g1(y)) is the linear estimate of the severities, and f(x, z) = sum_k z_k P_k.

Shapes: B samples, N participants, S regions, M patterns, Q points of the box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc
from torch import Tensor

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.model.networks import SLOPE, hidden_sizes
from surreal_bids.text import counted

Floats = NDArray[np.floating]

PRIOR_MEAN, PRIOR_PRECISION = 0.5, 12.0
"""Mean and inverse variance of a severity, those of U[0, 1]."""
POINTS = 64
"""Points of the box, doubled with every pattern ..."""
MOST_DOUBLINGS = 6
"""... up to the sixth."""
LARGEST_POSTERIOR = {'cpu': 2**18, 'cuda': 2**27}
"""Weights of points that are computed at once: as many as the cache of a core or a GPU holds."""
ITERATIONS_WITH_CONTROLS = 8
"""First iterations, in which C comes from the controls alone."""
ITERATIONS_WITHOUT_WEIGHTS = 6
"""First iterations, in which the penalty is the same for small and large effects."""
RISE = 0.6
"""Part of the iterations in which the penalty rises from zero."""
LEAST_PENALTY = 0.01
REWEIGHTED_FROM, LEAST_WEIGHT = 0.5, 0.02
"""An effect of t standard errors is penalised in proportion to 1 / t where t is larger than the
penalty and than 0.5, so that large effects are hardly shrunk (adaptive lasso)."""
DESCENT_STEPS = 30
"""Steps of accelerated proximal gradient descent in an iteration; with 15, accuracy falls."""
POWER_STARTS, POWER_STEPS, POWER_MARGIN = 4, 12, 1.1
PATIENT_WEIGHT = 2.0
"""Weight of a patient's residual beside that of a control in C: R-indices are for patients."""
SHRINKAGE, SHRINKAGE_PER_REGION, MOST_SHRINKAGE = 0.02, 0.3, 0.5
"""C is shrunk towards a multiple of the identity by 0.02 + 0.3 S / N, at most by a half; by more
where Ledoit and Wolf (2004) find more in the controls, whose regions then hardly correlate."""
LARGEST_RESCALING = (0.5, 2.0)
"""Patterns are rescaled to a mean severity of 1/2, in one iteration by no more than this."""
CORRELATION_SHRINKAGE = 0.2
"""R is shrunk towards the identity by this much."""
VARIMAX_ITERATIONS = 60
TINY = 1e-9


@dataclass(frozen=True)
class Samples:
    """B samples of controls and patients, and what is computed of them once.

    Attributes
    ----------
    pt
        Patients of the table, (N, S).
    member_pt
        1 for patients of a sample and 0 for others, (B, N).
    n_cn, n_pt
        Numbers of participants in each sample, (B,).
    mean
        Mean of the controls, (B, S).
    mean_change
        Mean of the patients beyond that of the controls, (B, S).
    cn_scatter
        Sums of squares and products of controls, (B, S, S).
    pt_scatter
        The same of patients, around the mean of the controls.
    covariance
        Covariance of the controls, shrunk, (B, S, S).
    shrinkage
        How much C is shrunk, (B,).
    """

    pt: Tensor
    member_pt: Tensor
    n_cn: Tensor
    n_pt: Tensor
    mean: Tensor
    mean_change: Tensor
    cn_scatter: Tensor
    pt_scatter: Tensor
    covariance: Tensor
    shrinkage: Tensor

    def repeat(self, times: int) -> Samples:
        """Return every sample `times` times, one round after the other."""
        return self.take(torch.arange(len(self.n_pt)).repeat(times))

    def take(self, rows: Tensor) -> Samples:
        """Return some of the samples."""
        rows = rows.to(self.pt.device)
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        pt = values.pop('pt')
        return Samples(pt, **{name: value[rows] for name, value in values.items()})


class Solutions(NamedTuple):
    """What is learned of each sample.

    Attributes
    ----------
    patterns
        P, the change at severity 1, (B, S, M).
    covariance
        C, (B, S, S).
    correlation
        R, (B, M, M).
    """

    patterns: Tensor
    covariance: Tensor
    correlation: Tensor

    def has_empty(self) -> Tensor:
        """Whether a pattern has lost all of its regions, (B,)."""
        return (self.patterns == 0).all(dim=1).any(dim=1)


class Schedule(NamedTuple):
    """How many iterations."""

    iterations: int
    normal: int
    """First iterations with a normal prior, which costs less than the box."""


class Moments(NamedTuple):
    """Severities given the regions.

    Attributes
    ----------
    mean
        (B, N, M).
    second
        Sums of second moments over the patients of a sample, (B, M, M).
    correlation
        R before shrinkage, (B, M, M).
    """

    mean: Tensor
    second: Tensor
    correlation: Tensor


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: matrices are so small that several wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@one_thread()
def make_samples(cn: Floats, pt: Floats, in_cn: Floats, in_pt: Floats, device: str) -> Samples:
    """Summarise B samples of controls and patients, (N, S) each.

    Parameters
    ----------
    cn, pt : (N, S)
        Controls and patients.
    in_cn, in_pt : (B, N)
        1 for those in a sample, 0 for the others.
    device
        Where to compute.
    """
    controls, patients, member_cn, member_pt = (
        torch.as_tensor(np.asarray(values), dtype=torch.float64, device=device)
        for values in (cn, pt, in_cn, in_pt)
    )
    n_cn, n_pt = member_cn.sum(dim=1), member_pt.sum(dim=1)
    mean = member_cn @ controls / n_cn[:, None]
    cn_scatter = _scatter(controls, member_cn, mean)
    covariance, shrinkage = _ledoit_wolf(controls, member_cn, mean, cn_scatter)
    odds = shrinkage * n_cn
    of_all = odds / (odds + (1 - shrinkage) * (n_cn + n_pt))
    usual = SHRINKAGE + SHRINKAGE_PER_REGION * controls.shape[1] / (n_cn + n_pt)
    return Samples(
        patients,
        member_pt,
        n_cn,
        n_pt,
        mean,
        member_pt @ patients / n_pt[:, None] - mean,
        cn_scatter,
        _scatter(patients, member_pt, mean),
        covariance,
        torch.maximum(usual.clamp(max=MOST_SHRINKAGE), of_all),
    )


def _scatter(people: Tensor, members: Tensor, centre: Tensor) -> Tensor:
    """Sums of squares and products (B, S, S) of the members around a centre (B, S)."""
    total = members @ people
    crossed = _outer(total, centre)
    around = _outer(centre, centre) * members.sum(dim=1)[:, None, None]
    squares = torch.stack([(people.T * member) @ people for member in members])
    return squares - crossed - crossed.mT + around


def _ledoit_wolf(
    people: Tensor, members: Tensor, centre: Tensor, scatter: Tensor
) -> tuple[Tensor, Tensor]:
    """Shrunk covariance (B, S, S) and its shrinkage (B,) (Ledoit and Wolf, 2004)."""
    n_people, n_regions = members.sum(dim=1), people.shape[1]
    covariance = scatter / n_people[:, None, None]
    squared = torch.stack([(people - one).square().sum(dim=1).square() for one in centre])
    sum_of_squares = covariance.square().sum(dim=(1, 2))
    scale = _diagonal(covariance).mean(dim=1)
    error = ((members * squared).sum(dim=1) / n_people - sum_of_squares) / n_people
    distance = sum_of_squares - n_regions * scale.square()
    shrinkage = (error / distance.clamp(min=TINY**2)).clamp(0, 1)
    return _shrunk(covariance, shrinkage, scale), shrinkage


def _shrunk(covariance: Tensor, shrinkage: Tensor, scale: Tensor) -> Tensor:
    """Covariances (B, S, S), moved towards `scale` (B,) times the identity."""
    identity = torch.eye(covariance.shape[1], dtype=covariance.dtype, device=covariance.device)
    target = (shrinkage * scale)[:, None, None] * identity
    return (1 - shrinkage)[:, None, None] * covariance + target


def _diagonal(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=-2, dim2=-1)


def _outer(left: Tensor, right: Tensor) -> Tensor:
    return left[:, :, None] * right[:, None]


@one_thread()
def rotated_starts(samples: Samples, rotations: list[Tensor | None], n_patterns: int) -> Tensor:
    """Patterns (2 K B, S, M) to start from: leading directions in which patients vary more.

    They are those of the patients' covariance and of their second moment around the controls, each
    in K rotations. None stands for varimax, which makes them sparse.
    """
    second = samples.pt_scatter / samples.n_pt[:, None, None]
    centred = second - _outer(samples.mean_change, samples.mean_change)
    values, vectors = torch.linalg.eigh(samples.covariance)
    root, inverse = (vectors * factor[:, None] for factor in (values.sqrt(), values.rsqrt()))
    sd = _diagonal(samples.covariance).sqrt()[:, :, None]
    along_mean = (samples.mean_change / _diagonal(samples.covariance))[:, None]
    starts = []
    for spread in (centred, second):
        excess, directions = torch.linalg.eigh(inverse.mT @ spread @ inverse)
        size = (excess - 1).clamp(min=TINY).sqrt()
        leading = (directions * size[:, None]).flip(2)[:, :, :n_patterns]
        loadings = root @ leading / sd
        # The sign of an eigenvector depends on the machine.
        loadings = loadings * torch.where(loadings.pow(3).sum(dim=1, keepdim=True) < 0, -1.0, 1.0)
        for rotation in rotations:
            rotated = varimax(loadings) if rotation is None else loadings @ rotation.to(loadings)
            patterns = sd * rotated
            starts.append(patterns * torch.where(along_mean @ patterns < 0, -1.0, 1.0))
    return torch.cat(starts)


def varimax(loadings: Tensor) -> Tensor:
    """Rotate loadings (B, S, M) so that squares vary most within columns (Kaiser, 1958)."""
    rotation = torch.eye(loadings.shape[2], dtype=loadings.dtype, device=loadings.device)
    for _ in range(VARIMAX_ITERATIONS):
        rotated = loadings @ rotation
        target = rotated**3 - rotated * rotated.square().mean(dim=1, keepdim=True)
        left, _, right = torch.linalg.svd(loadings.mT @ target)
        rotation = left @ right
    return loadings @ rotation


@one_thread()
def maximise(samples: Samples, patterns: Tensor, penalty: Tensor, schedule: Schedule) -> Solutions:
    """Learn patterns, covariance and correlation of B samples.

    Parameters
    ----------
    samples
        The samples.
    patterns : (B, S, M)
        Where to start.
    penalty : (B,)
        In standard errors of an effect given all other regions.
    schedule
        Number of iterations.
    """
    n_patterns, direction = patterns.shape[2], _direction(samples)
    identity = torch.eye(n_patterns, dtype=patterns.dtype, device=patterns.device)
    correlation = identity.expand(len(patterns), -1, -1)
    precision, unexplained = _inverse(samples.covariance), _inverse(_of_everyone(samples))
    for iteration in range(schedule.iterations):
        prior = _normal_moments if iteration < schedule.normal else _box_moments
        moments = prior(samples, patterns, precision, correlation)
        along = _changes_along(samples, moments.mean)
        limit = penalty * min(iteration / (RISE * schedule.iterations), 1.0)
        weighted = iteration >= ITERATIONS_WITHOUT_WEIGHTS
        weights = _penalties(patterns, moments.second, precision, limit, weighted)
        patterns = _descend(patterns, precision, moments.second, along, weights, direction)
        explained = Explained(along, patterns, moments.second)
        if iteration >= ITERATIONS_WITH_CONTROLS:
            precision = _without(unexplained, explained, _share(samples))
        patterns = patterns * _rescaling(samples.mean_change, patterns, precision)
        correlation = moments.correlation.lerp(identity, CORRELATION_SHRINKAGE)
    covariance = _of_everyone(samples) + _share(samples) * explained.scatter
    return Solutions(patterns, covariance, correlation)


@one_thread()
def log_evidence(samples: Samples, solutions: Solutions) -> Tensor:
    """Log-density, up to a constant, of all patients of the table, (B, N).

    Those who are not in a sample tell how well its solution holds for other people.
    """
    precision = _inverse(solutions.covariance)
    around = samples.pt - samples.mean[:, None]
    distance = torch.stack([((one @ p) * one).sum(1) for one, p in zip(around, precision)])
    spread = torch.linalg.slogdet(solutions.covariance)[1][:, None]
    weighed = _weigh(samples, solutions.patterns, precision, solutions.correlation)
    return torch.cat([evidence for *_, evidence in weighed]) - (distance + spread) / 2


def _inverse(matrices: Tensor) -> Tensor:
    return torch.cholesky_inverse(torch.linalg.cholesky(matrices))


def _scores(samples: Samples, patterns: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """What the regions say of the severities: P' C^-1 (y - mean), (B, N, M), and P' C^-1 P."""
    solved = precision @ patterns
    at_mean = samples.mean[:, None] @ solved
    return samples.pt @ solved - at_mean, patterns.mT @ solved


def _changes_along(samples: Samples, severities: Tensor) -> Tensor:
    """Sums of changes times severities over the patients of each sample, (B, S, M)."""
    own = severities * samples.member_pt[:, :, None]
    return samples.pt.T @ own - _outer(samples.mean, own.sum(dim=1))


def _normal_moments(
    samples: Samples, patterns: Tensor, precision: Tensor, correlation: Tensor
) -> Moments:
    """Moments under a normal prior with the mean and variance of U[0, 1]."""
    scores, information = _scores(samples, patterns, precision)
    prior = PRIOR_PRECISION * _inverse(correlation)
    variance = _inverse(information + prior)
    mean = (scores + PRIOR_MEAN * prior.sum(dim=1)[:, None]) @ variance
    members, n_pt = samples.member_pt[:, :, None], samples.n_pt[:, None, None]
    second = (mean * members).mT @ mean + n_pt * variance
    average = (mean * members).sum(dim=1) / samples.n_pt[:, None]
    return Moments(mean, second, _as_correlation(second / n_pt - _outer(average, average)))


def _box_moments(
    samples: Samples, patterns: Tensor, precision: Tensor, correlation: Tensor
) -> Moments:
    """Moments under a uniform prior on the unit box with correlation R."""
    box = _box(patterns.shape[2], patterns.device)
    members = samples.member_pt.float()
    means, sums = [], []
    for rows, weights, total, _ in _weigh(samples, patterns, precision, correlation):
        means.append((weights @ box.points) / total)
        sums.append((members[rows] / total[:, :, 0])[:, None] @ weights @ box.products)
    shape = (len(patterns), 2, *correlation.shape[1:])
    second, spread = torch.cat(sums).double().reshape(shape).unbind(dim=1)
    return Moments(torch.cat(means).double(), second, _as_correlation(spread))


def _weigh(
    samples: Samples, patterns: Tensor, precision: Tensor, correlation: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Posterior of the points of the box, for some samples after the other.

    Yields the samples, the weight of each point (B, N, Q), the sum of the weights (B, N, 1), and
    the log-evidence (B, N). Single precision is enough for averages over points.
    """
    scores, information = _scores(samples, patterns, precision)
    box = _box(patterns.shape[2], patterns.device)
    identity = torch.eye(correlation.shape[1], dtype=correlation.dtype, device=correlation.device)
    copula = (_inverse(correlation) - identity).float()
    prior = torch.log_softmax(-_quadratic(box.normal, copula), dim=1)
    fixed = (prior - _quadratic(box.points, information.float()))[:, None]
    size = scores.shape[1] * len(box.points)
    at_once = max(1, LARGEST_POSTERIOR[patterns.device.type] // size)
    for rows in torch.arange(len(patterns), device=patterns.device).split(at_once):
        exponent = torch.baddbmm(
            fixed[rows], scores[rows].float(), box.points.T.expand(len(rows), -1, -1)
        )
        highest = exponent.amax(dim=2, keepdim=True)
        weights = exponent.sub_(highest).exp_()
        total = weights.sum(dim=2, keepdim=True)
        yield rows, weights, total, (highest + total.log())[:, :, 0].double()


def _quadratic(points: Tensor, matrices: Tensor) -> Tensor:
    """Half of x' A x, for all points (Q, M) and matrices (B, M, M), (B, Q)."""
    return ((points @ matrices) * points).sum(dim=2) / 2


class Box(NamedTuple):
    """Points that fill the unit box evenly, in single precision.

    Attributes
    ----------
    points
        (Q, M).
    normal
        Their normal quantiles, (Q, M).
    products
        Products of all pairs of coordinates, and of all pairs of quantiles, (Q, 2 M M).
    """

    points: Tensor
    normal: Tensor
    products: Tensor


@cache
def _box(n_patterns: int, device: torch.device) -> Box:
    """Make the points (Sobol, 1967).

    They are shifted at random: of the sequence itself, the first point is a corner, whose weight
    would grow with every iteration.
    """
    size = POINTS * 2 ** min(n_patterns, MOST_DOUBLINGS)
    shift = np.random.default_rng(n_patterns).uniform(size=n_patterns)
    points = (qmc.Sobol(n_patterns, scramble=False).random(size) + shift) % 1.0
    points = np.clip(points, 0.5 / size, 1 - 0.5 / size)
    both = (points, ndtri(points))
    products = [np.einsum('qi,qj->qij', each, each).reshape(size, -1) for each in both]
    every = (*both, np.concatenate(products, axis=1))
    return Box(*(torch.as_tensor(each, dtype=torch.float32, device=device) for each in every))


def _as_correlation(covariance: Tensor) -> Tensor:
    sd = _diagonal(covariance).clamp(min=TINY).sqrt()
    return covariance / _outer(sd, sd)


def _direction(samples: Samples) -> Tensor:
    """1 for regions that are larger in the mean patient than in controls, else -1; (B, S)."""
    return torch.where(samples.mean_change > 0, 1.0, -1.0).to(samples.mean_change)


def _penalties(
    patterns: Tensor, second: Tensor, precision: Tensor, limit: Tensor, weighted: bool
) -> Tensor:
    """Weight of each effect's size in the objective, (B, S, M)."""
    per_error = _outer(_diagonal(precision), _diagonal(second)).sqrt()
    limit = limit[:, None, None]
    penalties = limit.clamp(min=LEAST_PENALTY) * per_error
    if not weighted:
        return penalties
    size = (patterns.abs() * per_error).clamp(min=TINY)
    return penalties * (limit.clamp(min=REWEIGHTED_FROM) / size).clamp(LEAST_WEIGHT, 1.0)


def _descend(
    patterns: Tensor,
    precision: Tensor,
    second: Tensor,
    along: Tensor,
    penalties: Tensor,
    direction: Tensor,
) -> Tensor:
    """Minimise 1/2 tr(C^-1 (P W P' - 2 A P')) + sum of penalties times |P|, all P in `direction`.

    FISTA (Beck and Teboulle, 2009) with restarts. Effects are (B, M, S) here, positive in their
    direction, in units in which the diagonals of C^-1 and of W are one.
    """
    unit_regions, unit_patterns = (_diagonal(each).sqrt() for each in (precision, second))
    towards = unit_regions * direction
    unit = _outer(unit_patterns, towards)
    regions = precision / _outer(towards, towards)
    severities = second / _outer(unit_patterns, unit_patterns)
    # No eigenvalue exceeds the largest sum of a row.
    largest = _largest_eigenvalue(regions) * severities.abs().sum(dim=2).amax(dim=1)
    step = (1 / largest)[:, None, None]
    pull = step * ((along.mT @ precision) / unit - penalties.mT / unit.abs())
    severities = step * severities
    now = ahead = patterns.mT * unit
    momentum = 1.0
    for _ in range(DESCENT_STEPS):
        kept = torch.baddbmm(ahead + pull, severities @ ahead, regions, alpha=-1).relu_()
        moved = kept - now
        faster = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        goes_on = ((ahead - kept) * moved).sum(dim=(1, 2), keepdim=True) <= 0
        now, ahead = kept, torch.addcmul(kept, goes_on, moved, value=(momentum - 1) / faster)
        momentum = faster
    return (now / unit).mT


def _largest_eigenvalue(matrices: Tensor) -> Tensor:
    """Estimate the largest eigenvalue (B,) of non-negative definite matrices, with a margin.

    It starts from random vectors: equal weights are orthogonal to differences between left and
    right, which are the leading directions of a precision; one vector may be so to others.
    """
    start = np.random.default_rng(0).standard_normal((POWER_STARTS, matrices.shape[1]))
    vectors = torch.as_tensor(start, dtype=matrices.dtype, device=matrices.device)
    vectors = vectors.expand(len(matrices), -1, -1)
    for _ in range(POWER_STEPS):
        vectors = vectors @ matrices
        vectors = vectors / vectors.norm(dim=2, keepdim=True)
    return POWER_MARGIN * (vectors @ matrices).norm(dim=2).amax(dim=1)


class Explained(NamedTuple):
    """What patterns explain of the patients.

    Attributes
    ----------
    along
        A, sums of changes times severities, (B, S, M).
    patterns
        P, (B, S, M).
    second
        W, sums of second moments of the severities, (B, M, M).
    """

    along: Tensor
    patterns: Tensor
    second: Tensor

    @property
    def scatter(self) -> Tensor:
        """P W P' - A P' - P A', which it adds to the patients' sums of squares and products."""
        crossed = self.along @ self.patterns.mT
        return self.patterns @ self.second @ self.patterns.mT - crossed - crossed.mT


def _share(samples: Samples) -> Tensor:
    """Weight of the patients' sums of squares and products in C, (B, 1, 1)."""
    total = samples.n_cn + PATIENT_WEIGHT * samples.n_pt
    return (PATIENT_WEIGHT * (1 - samples.shrinkage) / total)[:, None, None]


def _of_everyone(samples: Samples) -> Tensor:
    """C from controls and patients, if patterns explained nothing.

    It is shrunk towards the scale of the controls.
    """
    total = (samples.n_cn + PATIENT_WEIGHT * samples.n_pt)[:, None, None]
    together = (samples.cn_scatter + PATIENT_WEIGHT * samples.pt_scatter) / total
    return _shrunk(together, samples.shrinkage, _diagonal(samples.covariance).mean(dim=1))


def _without(precision: Tensor, explained: Explained, share: Tensor) -> Tensor:
    """C^-1 without what patterns explain, from that with it (Woodbury, 1950)."""
    along, patterns, second = explained
    both = torch.cat([along, patterns], dim=2)
    identity = torch.eye(second.shape[1], dtype=second.dtype, device=second.device)
    identity = identity.expand_as(second)
    # The inverse of [[0, -I], [-I, W]], by which the columns of both are combined.
    middle = torch.cat(
        [
            torch.cat([-second, -identity], dim=2),
            torch.cat([-identity, torch.zeros_like(second)], dim=2),
        ],
        dim=1,
    )
    solved = precision @ both
    inner = torch.linalg.solve(middle + share * (both.mT @ solved), share * solved.mT)
    return precision - solved @ inner


def _rescaling(mean_change: Tensor, patterns: Tensor, precision: Tensor) -> Tensor:
    """Factors (B, 1, M) that bring the mean severity to 1/2."""
    solved = precision @ patterns
    ridge = TINY * torch.eye(patterns.shape[2], dtype=patterns.dtype, device=patterns.device)
    mean = torch.linalg.solve(patterns.mT @ solved + ridge, solved.mT @ mean_change[:, :, None])
    return (mean.mT / PRIOR_MEAN).clamp(*LARGEST_RESCALING)


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
SUBSAMPLE_PENALTY, OF_SUBSAMPLE = 0.35, Schedule(25, 0)
"""Penalty and iterations of fits to subsamples: with a higher penalty, or a normal prior in the
first iterations, dense patterns of few patients are lost in most of them."""
MOST_PEOPLE = 3000
"""Factors are fitted to no more participants of a group than this, spread over the table."""

SMALLEST_RATIO = 8
"""Regions needed for each pattern: g2 passes an R-index on by pairs of Q = S // 4 hidden units."""


@dataclass(frozen=True)
class Factors:
    """What `fit_factors` learns.

    Attributes
    ----------
    mean
        Mean of the controls, (S,).
    patterns
        Change at severity 1, (S, M).
    covariance
        C, (S, S).
    correlation
        R, the correlation of the severities, (M, M).
    penalty
        In standard errors of an effect.
    """

    mean: Floats
    patterns: Floats
    covariance: Floats
    correlation: Floats
    penalty: float

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
    return _largest_first(_sharpen(_factors(own, fits, best, penalty), cn, pt, device))


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
    return alike.get(max(_as_likely(left_out), default=found.penalty), found)


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
    """Fit M patterns to some of the participants, as often as there are samples."""
    marked = _samples(cn, pt, samples, device)
    own, fits, density = _fit_from(marked, [None], n_patterns, [SUBSAMPLE_PENALTY], OF_SUBSAMPLE)
    rows = _best_starts(own, density, len(samples))[0].tolist()
    return [_factors(own, fits, row, SUBSAMPLE_PENALTY) for row in rows]


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


def most_patterns(n_regions: int) -> int:
    """The largest M for which `member_weights` finds enough hidden units."""
    return n_regions // SMALLEST_RATIO


def require_regions(n_regions: int, n_patterns: Sequence[int], preset: str) -> None:
    """Raise an error for fewer regions than factors of so many patterns need."""
    largest = max(1, *n_patterns, 0)
    most = most_patterns(n_regions)
    if largest > most:
        remedy = f'ask for at most {most}' if most else 'add regions'
        raise UsageError(
            f'{n_regions} regions are too few for {counted(largest, "pattern")}: the preset '
            f'{preset} needs {SMALLEST_RATIO} regions per pattern; {remedy}, or use the preset '
            'iclr2022'
        )


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
