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

    @property
    def mean_E(self) -> Floats:
        """Mean agreement of each member with the others."""
        n_others = max(len(self.index_EE) - 1, 1)
        return (self.index_EE.sum(axis=1) - 1) / n_others

    @property
    def mean(self) -> float:
        """Mean over all pairs: what M and lambda are chosen by."""
        return float(self.mean_E.mean())


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


def consensus_members(agreement: Agreement, tolerance: float) -> NDArray[np.intp]:
    """Members to average: the one that agrees best with all, and those that agree with it.

    A member belongs when its agreement with the best one lies at most `tolerance` below that of
    the closest other member. The best one comes first.
    """
    best = int(agreement.mean_E.argmax())
    with_best = agreement.index_EE[best].copy()
    others = np.delete(np.arange(len(with_best)), best)
    if not others.size:
        return np.array([best])
    near = others[with_best[others] >= with_best[others].max() - tolerance]
    return np.concatenate([[best], near])
