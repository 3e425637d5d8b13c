import numpy as np
import pytest
from scipy.stats import spearmanr

from surreal_bids.model.agreement import (
    compare_members,
    consensus_members,
    rank_correlations,
    setting_score,
)
from surreal_bids.stats.concordance import concordance_index, pattern_c_index

N, M = 70, 3


def similar_members(n_members, noise=0.3, seed=0, n_patterns=M):
    """Members that see the same truth with noise, each with its patterns in its own order."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(size=(N, n_patterns))
    orders = [rng.permutation(n_patterns) for _ in range(n_members)]
    seen = [truth + noise * rng.normal(size=truth.shape) for _ in range(n_members)]
    return np.stack([r[:, order] for r, order in zip(seen, orders)]), orders


def two_clusters(n_first, n_second, seed=0):
    """Members of two optima, patterns shuffled; members of the first come first."""
    first, _ = similar_members(n_first, 0.1, seed)
    second, _ = similar_members(n_second, 0.1, seed + 1)
    return np.concatenate([first, second])


def test_rank_correlations_equal_scipy():
    members, _ = similar_members(3)
    actual = rank_correlations(members)
    assert actual.shape == (3, 3, M, M)
    for a, b, i, j in np.ndindex(*actual.shape):
        expected = spearmanr(members[a, :, i], members[b, :, j]).statistic
        assert actual[a, b, i, j] == pytest.approx(expected)


def test_rank_correlation_with_a_constant_is_zero():
    members, _ = similar_members(2)
    members[0, :, 1] = 4.2
    actual = rank_correlations(members)
    assert (actual[0, :, 1] == 0).all()
    assert np.isfinite(actual).all()


@pytest.mark.parametrize('noise', [0.0, 0.1, 0.5])
@pytest.mark.parametrize('n_patterns', [1, 2, 4])
def test_agreement_equals_the_pattern_c_index(n_patterns, noise):
    members, _ = similar_members(4, noise, n_patterns=n_patterns)
    index = compare_members(members).index_EE
    for a, b in np.ndindex(4, 4):
        assert index[a, b] == pytest.approx(pattern_c_index(members[a], members[b]))
    np.testing.assert_array_equal(index, index.T)


@pytest.mark.parametrize('seed', range(4))
def test_agreement_never_exceeds_the_best_matching(seed):
    members = np.random.default_rng(seed).normal(size=(4, N, M))
    index = compare_members(members).index_EE
    for a, b in np.ndindex(4, 4):
        assert index[a, b] <= pattern_c_index(members[a], members[b]) + 1e-12
        assert index[a, b] > pattern_c_index(members[a], members[b]) - 0.02


def test_matches_put_patterns_into_the_order_of_the_other():
    members, orders = similar_members(5, noise=0.2)
    match = compare_members(members).match_EEM
    for a, b in np.ndindex(5, 5):
        np.testing.assert_array_equal(orders[a][match[a, b]], orders[b])
        np.testing.assert_array_equal(match[b, a][match[a, b]], np.arange(M))


@pytest.mark.parametrize('member', [0, 2])
@pytest.mark.parametrize('order', [(1, 0, 2), (2, 0, 1)])
def test_relabelling_patterns_permutes_matches_and_nothing_else(member, order):
    members, _ = similar_members(4)
    before = compare_members(members)
    relabelled = members.copy()
    relabelled[member] = members[member][:, list(order)]
    after = compare_members(relabelled)
    np.testing.assert_allclose(after.index_EE, before.index_EE, rtol=1e-12)
    for a, b in np.ndindex(4, 4):
        then, now = members[a][:, before.match_EEM[a, b]], relabelled[a][:, after.match_EEM[a, b]]
        if b == member:
            then = then[:, list(order)]
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize('transform', [np.exp, lambda r: 3 * r - 5], ids=['exp', 'linear'])
def test_only_the_order_of_people_matters(transform):
    members, _ = similar_members(3)
    before, after = compare_members(members), compare_members(transform(members))
    np.testing.assert_allclose(after.index_EE, before.index_EE)
    np.testing.assert_array_equal(after.match_EEM, before.match_EEM)


@pytest.mark.parametrize('n_closest', [None, 1, 2, 10])
def test_support_is_the_mean_over_the_closest_others(n_closest):
    members, _ = similar_members(5, noise=0.6)
    agreement = compare_members(members)
    for member, support in enumerate(agreement.support_E(n_closest)):
        others = sorted(np.delete(agreement.index_EE[member], member), reverse=True)
        assert support == pytest.approx(np.mean(others[:n_closest]))


def test_mean_agreement_is_over_all_pairs():
    members, _ = similar_members(4, noise=0.6)
    pairs = [pattern_c_index(members[a], members[b]) for a in range(4) for b in range(a)]
    agreement = compare_members(members)
    assert agreement.mean == pytest.approx(np.mean(pairs))
    assert setting_score(agreement, None) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize('core_members', [1, 2])
def test_the_core_is_judged_without_the_bad_members(core_members):
    members = np.concatenate([two_clusters(3, 1), np.random.default_rng(9).normal(size=(3, N, M))])
    score = setting_score(compare_members(members), core_members)
    core = setting_score(compare_members(members[:3]), core_members)
    assert score == pytest.approx(core)
    assert score > compare_members(members).mean + 0.1


@pytest.mark.parametrize('core_members', [None, 2])
@pytest.mark.parametrize(
    ('n_first', 'n_second', 'expected'), [(4, 2, range(4)), (2, 4, range(2, 6)), (5, 1, range(5))]
)
def test_the_consensus_is_the_larger_cluster(n_first, n_second, expected, core_members):
    agreement = compare_members(two_clusters(n_first, n_second))
    chosen = consensus_members(agreement, core_members, tolerance=0.06)
    assert sorted(chosen) == list(expected)
    assert chosen[0] == agreement.support_E(core_members).argmax()


@pytest.mark.parametrize(('tolerance', 'n_chosen'), [(0.0, 2), (1.0, 6)])
def test_tolerance_decides_how_many_members_join(tolerance, n_chosen):
    agreement = compare_members(two_clusters(4, 2))
    assert len(consensus_members(agreement, None, tolerance)) == n_chosen


@pytest.mark.parametrize('core_members', [None, 3])
def test_a_single_member_is_its_own_consensus(core_members):
    members, _ = similar_members(1)
    agreement = compare_members(members)
    np.testing.assert_array_equal(consensus_members(agreement, core_members, 0.06), [0])
    np.testing.assert_array_equal(agreement.index_EE, [[1.0]])


@pytest.mark.parametrize('seed', [0, 1])
def test_the_order_of_members_does_not_matter(seed):
    members = two_clusters(4, 2)
    order = np.random.default_rng(seed).permutation(6)
    before, after = compare_members(members), compare_members(members[order])
    np.testing.assert_allclose(after.index_EE, before.index_EE[np.ix_(order, order)])
    chosen = order[consensus_members(after, None, 0.06)]
    assert set(chosen) == set(consensus_members(before, None, 0.06))


def test_matched_members_are_ordered_alike():
    members, _ = similar_members(4, noise=0.1)
    match = compare_members(members).match_EEM
    for member in range(1, 4):
        aligned = members[member][:, match[member, 0]]
        assert all(concordance_index(*pair) > 0.75 for pair in zip(aligned.T, members[0].T))
