import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from surreal_bids.model.agreement import (
    MOST_ROUNDS,
    ROUND,
    Trained,
    compare_members,
    consensus_members,
    make_setting,
    rank_correlations,
    setting_score,
    train_in_rounds,
)
from surreal_bids.model.networks import hyperparameters
from surreal_bids.stats.concordance import pattern_c_index

N, M = 70, 3


def similar_members(n_members, noise=0.3, seed=0, n_patterns=M):
    """Members that see the same truth with noise, each with its patterns in its own order."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(size=(N, n_patterns))
    orders = [rng.permutation(n_patterns) for _ in range(n_members)]
    seen = [truth + noise * rng.normal(size=truth.shape) for _ in range(n_members)]
    return np.stack([r[:, order] for r, order in zip(seen, orders)]), orders


def two_clusters(n_first, n_second):
    """Members of two optima, patterns shuffled; members of the first come first."""
    return np.concatenate([similar_members(n_first, 0.1)[0], similar_members(n_second, 0.1, 1)[0]])


def test_rank_correlations_equal_scipy():
    members, _ = similar_members(3)
    actual = rank_correlations(members)
    for a, b, i, j in np.ndindex(3, 3, M, M):
        expected = spearmanr(members[a, :, i], members[b, :, j]).statistic
        assert actual[a, b, i, j] == pytest.approx(expected)
    members[0, :, 1] = 4.2
    assert (rank_correlations(members)[0, :, 1] == 0).all()


@pytest.mark.parametrize('n_patterns', [1, 2, 4])
def test_agreement_equals_the_pattern_c_index(n_patterns):
    for noise in (0.0, 0.5):
        members, _ = similar_members(4, noise, n_patterns=n_patterns)
        agreement = compare_members(members)
        for a, b in np.ndindex(4, 4):
            expected = pattern_c_index(members[a], members[b])
            assert agreement.index_EE[a, b] == pytest.approx(expected)
        pairs = agreement.index_EE[np.triu_indices(4, 1)]
        assert setting_score(agreement, None) == pytest.approx(pairs.mean())


def test_matches_put_patterns_into_the_order_of_the_other():
    members, orders = similar_members(5, noise=0.2)
    match = compare_members(members).match_EEM
    for a, b in np.ndindex(5, 5):
        np.testing.assert_array_equal(orders[a][match[a, b]], orders[b])
        np.testing.assert_array_equal(match[b, a][match[a, b]], np.arange(M))


def test_support_is_the_mean_over_the_closest_others():
    agreement = compare_members(similar_members(5, noise=0.6)[0])
    for n_closest in (None, 2, 10):
        for member, support in enumerate(agreement.support_E(n_closest)):
            others = sorted(np.delete(agreement.index_EE[member], member), reverse=True)
            assert support == pytest.approx(np.mean(others[:n_closest]))


def test_the_core_is_judged_without_the_bad_members():
    members = np.concatenate([two_clusters(3, 1), np.random.default_rng(9).normal(size=(3, N, M))])
    score = setting_score(compare_members(members), 2)
    assert score == pytest.approx(setting_score(compare_members(members[:3]), 2))
    assert score > compare_members(members).mean + 0.1
    for n, expected in ((1, None), (2, compare_members(members[:2]).mean)):
        assert make_setting(0.2, {}, members[:n], [True] * n).score(None) == expected


@pytest.mark.parametrize('core_members', [None, 2])
def test_the_consensus_is_the_larger_cluster(core_members):
    for n_first, n_second, expected in ((4, 2, range(4)), (2, 4, range(2, 6)), (5, 1, range(5))):
        agreement = compare_members(two_clusters(n_first, n_second))
        chosen = consensus_members(agreement, core_members, tolerance=0.06)
        assert sorted(chosen) == list(expected)
        assert chosen[0] == agreement.support_E(core_members).argmax()
    alone = compare_members(similar_members(1)[0])
    np.testing.assert_array_equal(consensus_members(alone, core_members, 0.06), [0])
    for tolerance, n_chosen in ((0.0, 2), (1.0, 6)):
        assert (
            len(consensus_members(compare_members(two_clusters(4, 2)), None, tolerance)) == n_chosen
        )


def test_the_order_of_members_does_not_matter():
    members, order = two_clusters(4, 2), np.random.default_rng(0).permutation(6)
    before, after = compare_members(members), compare_members(members[order])
    np.testing.assert_allclose(after.index_EE, before.index_EE[np.ix_(order, order)])
    chosen = order[consensus_members(after, None, 0.06)]
    assert set(chosen) == set(consensus_members(before, None, 0.06))


@pytest.mark.parametrize(
    ('noise', 'repetitions', 'rounds'),
    [(0.01, None, [4, 4]), (2.0, None, [ROUND] * MOST_ROUNDS), (0.01, 6, [4, 2])],
)
def test_rounds_end_when_the_consensus_settles_or_members_are_enough(noise, repetitions, rounds):
    """Rounds of made-up members: truth plus noise."""
    rng, asked = np.random.default_rng(0), []
    truth = rng.uniform(size=(200, 2))

    def train(ortho, first, count):
        asked.append((ortho, first, count))
        r = truth + noise * rng.normal(size=(count, 200, 2))
        return {0.4: Trained({'f.latent': torch.zeros(count, 2, 3)}, r, [True] * count)}

    (setting,) = train_in_rounds(train, (0.4,), repetitions, hyperparameters('sparse'))
    firsts = np.cumsum([0, *rounds[:-1]]).tolist()
    assert asked == [((0.4,), first, count) for first, count in zip(firsts, rounds)]
    assert len(setting.members) == sum(rounds)
