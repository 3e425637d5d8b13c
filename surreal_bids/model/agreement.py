"""How well members agree, and what follows from it (sections 4.2 and 4.3).

Agreement picks M and lambda, picks the member that the others agree with most, and tells which
members belong to the consensus.

Shapes: E members, N people, M patterns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from surreal_bids.stats.concordance import concordance_index, match_patterns

Floats = NDArray[np.floating]


def rank_correlations(r_ENM: Floats) -> Floats:
    """Spearman correlation of every pattern of every member with every other, (E, E, M, M)."""
    ranks = rankdata(r_ENM, axis=1)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    unit = centred / np.maximum(length, np.finfo(float).tiny)
    return np.einsum('enm,fnk->efmk', unit, unit, optimize=True)


class Agreement(NamedTuple):
    """Pairwise comparison of members."""

    index_EE: Floats
    """Pattern-agr-index of each pair (the diagonal is 1)."""
    match_EEM: NDArray[np.intp]
    """`match[a, b]` puts the patterns of member a into the order of member b."""

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
