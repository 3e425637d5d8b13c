"""Agreement among members, and what it chooses: number of patterns, lambda, members."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from surreal_bids.cautions import INVALID, MODEL, Caution
from surreal_bids.exceptions import DataError
from surreal_bids.model.networks import HyperParameters, network, relabel_patterns
from surreal_bids.stats.concordance import concordance_index, match_patterns
from surreal_bids.text import counted

LOGGER = logging.getLogger(__name__)


Floats = NDArray[np.floating]


def rank_correlations(r_ENM: Floats) -> Floats:
    """Spearman correlation of every pattern of every member with every other, (E, E, M, M)."""
    ranks = rankdata(r_ENM, axis=1)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    unit = centred / np.maximum(length, np.finfo(float).tiny)
    return np.einsum('enm,fnk->efmk', unit, unit, optimize=True)


class Agreement(NamedTuple):
    """Pairwise comparison of members.

    Attributes
    ----------
    index_EE
        Pattern-agr-index of each pair (the diagonal is 1).
    match_EEM
        `match[a, b]` puts the patterns of member a into the order of member b.
    """

    index_EE: Floats
    match_EEM: NDArray[np.intp]

    def support_E(self, n_closest: int | None = None) -> Floats:
        """Mean agreement of each member with its closest others, by default with all others."""
        others = np.sort(self.index_EE, axis=1)[:, ::-1][:, 1:]
        return others[:, :n_closest].mean(axis=1) if others.size else np.zeros(len(others))

    @property
    def mean(self) -> float:
        """Mean over all pairs: what the paper chooses M and lambda by (section 4.3)."""
        return float(self.support_E().mean())


def compare_members(r_ENM: Floats) -> Agreement:
    """Match the patterns of every pair of members, then take their pattern-agr-index.

    Patterns are matched by rank correlation and linear assignment; the c-index, which costs more,
    is then needed for matched patterns only.
    """
    n_members, _, n_patterns = r_ENM.shape
    similarity = rank_correlations(r_ENM)
    index = np.eye(n_members)
    match = np.tile(np.arange(n_patterns), (n_members, n_members, 1))
    for a in range(n_members):
        for b in range(a):
            match[a, b] = match_patterns(similarity[a, b])
            match[b, a] = np.argsort(match[a, b])
            matched = r_ENM[a][:, match[a, b]]
            pairs = zip(matched.T, r_ENM[b].T)
            index[a, b] = index[b, a] = np.mean([concordance_index(*pair) for pair in pairs])
    return Agreement(index, match)


def setting_score(agreement: Agreement, core_members: int | None) -> float:
    """How good a choice of M and lambda is.

    The paper's answer is the mean over all pairs. Where members fall into good and bad optima, the
    good ones agree with each other and the bad ones with nobody: then the agreement of the best
    member with its `core_members` closest others tells more than a mean over both kinds.
    """
    if core_members is None:
        return agreement.mean
    return float(agreement.support_E(core_members).max())


def consensus_members(
    agreement: Agreement, core_members: int | None, tolerance: float
) -> NDArray[np.intp]:
    """Members to average: the reference, which agrees best with others, then those that agree.

    A member belongs when its agreement with the reference lies at most `tolerance` below that of
    the member closest to the reference.
    """
    reference = int(agreement.support_E(core_members).argmax())
    others = np.delete(np.arange(len(agreement.index_EE)), reference)
    with_reference = agreement.index_EE[reference, others]
    near = others[with_reference >= with_reference.max(initial=0) - tolerance]
    return np.concatenate([[reference], near])


SMALLEST_SPREAD = 0.01
"""A member has collapsed if the sd of an R-index over patients is below this."""
LOW_AGREEMENT = 0.65
"""Members with a lower agreement have not learned the same patterns; unrelated ones reach 0.5."""
NO_PATTERN = Caution(
    'No pattern is supported: none was both reproduced in random subsamples of the participants '
    'and more stable than with permuted data',
    'There are no R-indices',
    'If you expect patterns, check the group labels, the covariates and the number of participants',
    MODEL,
    severity=INVALID,
)
MIN_MEMBERS = 3
"""Minimum number of healthy members in a consensus (or all, if fewer are trained)."""


def warn_of_agreement(agreement: float | None) -> list[Caution]:
    """Warn of members that have not learned the same patterns; None: there is one member only."""
    if agreement is None or agreement >= LOW_AGREEMENT:
        return []
    return [
        Caution(
            f'Members, training runs with their own random seeds, hardly agree ({agreement:.2f}; '
            '0.8 is good, unrelated ones reach 0.5)',
            'Another seed would give other patterns, and these R-indices are not reliable',
            'Do not use them; train longer (--iterations) or with more participants',
            MODEL,
            severity=INVALID,
        )
    ]


@dataclass(frozen=True)
class Member:
    """One trained set of networks and its status.

    `status` is used, disagrees, diverged or collapsed in the chosen setting, and healthy, diverged
    or collapsed in other settings.

    Attributes
    ----------
    converged
        True if the stopping rule of section 3.3 was met.
    agreement
        Mean pattern-agr-index with the other healthy members of its setting.
    """

    n_patterns: int
    ortho: float
    repetition: int
    status: str
    converged: bool
    agreement: float | None = None


@dataclass(frozen=True)
class Selection:
    """The chosen number of patterns and lambda.

    Attributes
    ----------
    agreement
        Mean pairwise pattern-agr-index of the healthy members of this setting; None for one.
    reference
        Repetition of the member that defines the order of patterns.
    members
        Repetitions in the consensus, the reference first.
    """

    n_patterns: int
    ortho: float
    agreement: float | None
    reference: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class Setting:
    """All repetitions trained with one M and one lambda.

    Attributes
    ----------
    healthy
        Repetitions that neither diverged nor collapsed.
    agreement
        Agreement among the healthy members, in their order.
    """

    n_patterns: int
    ortho: float
    weights: dict[str, Tensor]
    members: tuple[Member, ...]
    healthy: NDArray[np.intp]
    agreement: Agreement

    @property
    def mean_agreement(self) -> float | None:
        """Mean agreement over all pairs of healthy members; None without a pair."""
        return self.agreement.mean if len(self.healthy) > 1 else None

    def score(self, core_members: int | None) -> float | None:
        """Compute the criterion for the choice of M and lambda; None without a pair."""
        return setting_score(self.agreement, core_members) if len(self.healthy) > 1 else None

    def record(self, core_members: int | None) -> dict[str, float | int | None]:
        """Return one row of the table of settings."""
        return {
            'n_patterns': self.n_patterns,
            'ortho': self.ortho,
            'n_members': len(self.members),
            'n_healthy': len(self.healthy),
            'agreement': self.mean_agreement,
            'score': self.score(core_members),
        }


def member_status(r_NM: NDArray[np.floating]) -> str:
    """Classify a member by its R-indices of patients: healthy, diverged or collapsed."""
    if not np.isfinite(r_NM).all():
        return 'diverged'
    if (r_NM.std(axis=0) < SMALLEST_SPREAD).any():
        return 'collapsed'
    return 'healthy'


def make_setting(
    ortho: float, weights: dict[str, Tensor], r_ENM: NDArray[np.floating], converged: Sequence[bool]
) -> Setting:
    """Assess the members of one setting by their R-indices of patients."""
    statuses = [member_status(r_NM) for r_NM in r_ENM]
    healthy = np.flatnonzero([status == 'healthy' for status in statuses])
    agreement = compare_members(r_ENM[healthy])
    support: dict[int, float] = {}
    if healthy.size > 1:
        support = dict(zip(healthy.tolist(), agreement.support_E().tolist()))
    n_patterns = r_ENM.shape[-1]
    members = tuple(
        Member(n_patterns, ortho, k, status, bool(met), support.get(k))
        for k, (status, met) in enumerate(zip(statuses, converged))
    )
    return Setting(n_patterns, ortho, weights, members, healthy, agreement)


def choose_setting(settings: Sequence[Setting], hyper: HyperParameters) -> Setting:
    """Choose the setting with the best agreement among those with enough healthy members."""
    needed = min(MIN_MEMBERS, len(settings[0].members))
    eligible = [setting for setting in settings if len(setting.healthy) >= needed]
    unhealthy = [
        f'M={member.n_patterns} lambda={member.ortho:g}: repetition {member.repetition} '
        f'{member.status}'
        for setting in settings
        for member in setting.members
        if member.status != 'healthy'
    ]
    if unhealthy:
        LOGGER.info(
            '%s did not train well and are excluded from the consensus (%s).',
            counted(len(unhealthy), 'member'),
            '; '.join(unhealthy),
        )
    if not eligible:
        found = ', '.join(
            f'M={s.n_patterns} lambda={s.ortho:g}: {len(s.healthy)} of {len(s.members)}'
            for s in settings
        )
        raise DataError(
            f'too few members trained well ({found}; each setting needs at least {needed}); train '
            'longer (iterations), or check the data for outliers; checkpoints are kept'
        )
    return max(eligible, key=lambda setting: setting.score(hyper.core_members) or 0.0)


def form_consensus(
    setting: Setting, hyper: HyperParameters
) -> tuple[dict[str, Tensor], Selection, tuple[Member, ...]]:
    """Return weights of the consensus, the selection, and all members with their status."""
    agreement = setting.agreement
    chosen = consensus_members(agreement, hyper.core_members, hyper.consensus_tolerance)
    repetitions = tuple(int(k) for k in setting.healthy[chosen])
    rows = list(repetitions)
    weights = {
        name: value[rows] for name, value in network(setting.weights, 'f', 'g1', 'g2').items()
    }
    order_EM = torch.from_numpy(agreement.match_EEM[chosen, chosen[0]])
    members = tuple(
        replace(member, status='used' if member.repetition in repetitions else 'disagrees')
        if member.status == 'healthy'
        else member
        for member in setting.members
    )
    for caution in warn_of_agreement(setting.mean_agreement):
        LOGGER.warning(caution)
    selection = Selection(
        setting.n_patterns, setting.ortho, setting.mean_agreement, repetitions[0], repetitions
    )
    return relabel_patterns(weights, order_EM), selection, members


ROUND = 4
"""Members of each lambda that are trained together."""
MOST_ROUNDS = 5
SETTLED_CONSENSUS = 0.98
"""Training ends when the consensus agrees by this much with that of the round before."""


class Trained(NamedTuple):
    """Some members of one lambda, after training."""

    weights: dict[str, Tensor]
    r_ENM: Floats
    """R-indices of the patients."""
    converged: list[bool]


TrainMembers = Callable[[tuple[float, ...], int, int], dict[float, Trained]]
"""How the caller trains a round: lambdas, number of the first member and of members of each
lambda -> members by lambda."""


def train_in_rounds(
    train: TrainMembers, ortho: Sequence[float], repetitions: int | None, hyper: HyperParameters
) -> list[Setting]:
    """Train rounds of members until the consensus has settled, or `repetitions` of each lambda."""
    members: dict[float, list[Trained]] = {value: [] for value in dict.fromkeys(ortho)}
    most = ROUND * MOST_ROUNDS if repetitions is None else repetitions
    before: Floats | None = None
    for first in range(0, most, ROUND):
        for value, some in train(tuple(members), first, min(ROUND, most - first)).items():
            members[value].append(some)
        settings = [_setting(value, rounds) for value, rounds in members.items()]
        if repetitions is not None:
            continue
        now = _consensus(settings, members, hyper)
        if before is not None and now is not None:
            agreement = float(compare_members(np.stack([before, now])).index_EE[0, 1])
            LOGGER.info('agreement with the consensus of %d members: %.3f', first, agreement)
            if agreement >= SETTLED_CONSENSUS:
                break
        before = now
    return settings


def _setting(ortho: float, rounds: list[Trained]) -> Setting:
    weights = {
        name: torch.cat([some.weights[name] for some in rounds]) for name in rounds[0].weights
    }
    r_ENM = np.concatenate([some.r_ENM for some in rounds])
    return make_setting(ortho, weights, r_ENM, [met for some in rounds for met in some.converged])


def _consensus(
    settings: Sequence[Setting], members: Mapping[float, list[Trained]], hyper: HyperParameters
) -> Floats | None:
    """Mean R-indices (N, M) of members of the best setting that agree; None: no two are healthy."""
    best = max(settings, key=lambda setting: setting.score(hyper.core_members) or 0.0)
    if len(best.healthy) < 2:
        return None
    chosen = consensus_members(best.agreement, hyper.core_members, hyper.consensus_tolerance)
    r_ENM = np.concatenate([some.r_ENM for some in members[best.ortho]])[best.healthy]
    match = best.agreement.match_EEM
    return np.mean([r_ENM[e][:, match[e, chosen[0]]] for e in chosen], axis=0)
