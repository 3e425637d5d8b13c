import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from surreal_bids.model.agreement import NO_PATTERN
from surreal_bids.model.factors import fit_samples
from surreal_bids.model.number import (
    LEAST_FOR_ONE,
    LEAST_FOR_STRUCTURES,
    PERMUTATIONS,
    REPRODUCTIONS,
    Number,
    Stability,
    choose_number,
    draw_subsample,
    explain_choice,
    measure_stability,
    reproduce,
    stored_number,
    warn_of_chance,
)
from surreal_bids.parallel import set_threads
from surreal_bids.simulation.tables import sample_controls
from tests.model.test_factors import cohort

FEW = 6
"""Permutations here, unless a test is about their number."""


@pytest.fixture
def few_permutations(monkeypatch):
    monkeypatch.setattr('surreal_bids.model.number.PERMUTATIONS', FEW)


def atrophy(n_patterns, n_cn=120, n_pt=180):
    """People of the built-in population; each pattern takes up to 30 % of ten regions."""
    rng = np.random.default_rng(0)
    volumes = sample_controls(n_cn + n_pt, rng).volumes.to_numpy(copy=True)
    for columns in np.split(rng.permutation(volumes.shape[1])[: 10 * n_patterns], n_patterns):
        volumes[n_cn:, columns] *= 1 - 0.3 * rng.uniform(size=(n_pt, 1))
    cn = volumes[:n_cn]
    z = 1 + (volumes - cn.mean(axis=0)) / (10 * cn.std(axis=0))
    return z[:n_cn], z[n_cn:]


@pytest.mark.slow
def test_the_true_number_of_patterns_is_chosen(few_permutations):
    number = choose_number(*atrophy(3), (1, 2, 3, 4))
    assert number.n_patterns == 3
    chosen = number.stabilities[2]
    assert len(chosen.null) == FEW
    assert max(chosen.null) < LEAST_FOR_ONE < chosen.value


@pytest.mark.slow
def test_labels_that_mean_nothing_support_no_pattern(few_permutations):
    cn, pt, *_ = cohort(2)
    people = np.random.default_rng(0).permutation(np.concatenate([cn, pt]))
    number = choose_number(people[:150], people[150:], (1, 2), 0)
    assert number.n_patterns == 0
    assert len(number.stabilities[0].null) == FEW or number.stabilities[0].is_settled


def test_p_is_valid_although_permutations_end_early():
    """Besag and Clifford: P(p <= x) is at most x where nothing is there."""
    rng, levels = np.random.default_rng(0), np.array([1 / 40, 0.05, 0.1, 0.2, 0.5])
    found, tried = [], []
    for _ in range(4000):
        value, *others = rng.normal(size=1 + PERMUTATIONS)
        result = Stability(1, value)
        for other in others:
            result = replace(result, null=(*result.null, other))
            if result.is_settled:
                break
        found.append(result.p_value)
        tried.append(len(result.null))
    below = (np.array(found)[:, None] <= levels + 1e-9).mean(axis=0)
    np.testing.assert_array_less(below, levels + 3 * np.sqrt(levels * (1 - levels) / 4000))
    np.testing.assert_array_less(0.8 * levels, below)
    assert np.mean(tried) < PERMUTATIONS / 2


@pytest.mark.slow
def test_patterns_are_reproduced_where_there_are_some():
    cn, pt, truth, _ = cohort(2, size=0.35)
    order = [1, 0]
    found = reproduce(cn, pt, truth[:, order], 0)
    assert found.shape == (REPRODUCTIONS, 2)
    assert np.median(found, axis=0).min() > 0.8
    unrelated = np.random.default_rng(0).uniform(size=truth.shape)
    assert np.median(reproduce(cn, pt, unrelated, 0), axis=0).max() < 0.3


@pytest.mark.slow
def test_a_pattern_too_many_is_not_reproduced(monkeypatch):
    """Its severities follow from those of the others, in every subsample alike."""
    monkeypatch.setattr('surreal_bids.model.number.REPRODUCTIONS', 8)
    cn, pt, *_ = cohort(2, seed=1, size=0.35)
    (fit,) = fit_samples(cn, pt, [(np.arange(len(cn)), np.arange(len(pt)))], 3)
    found = np.median(reproduce(cn, pt, fit.severities(pt), 1), axis=0)
    assert found.min() < 0.75  # With their correlation, 0.85 and 0.89.
    assert np.sort(found)[1] > 0.9


def test_a_stability_close_to_its_limit_is_the_mean_of_three(monkeypatch):
    """Each from other subsamples; the limit of a single pattern is another."""
    first, seeds = {1: 0.95, 2: 0.8, 3: 0.95, 4: 0.5}, []

    def measured(_cn, _pt, m, seed, _device):
        seeds.append((m, seed))
        return 0.6 - 0.1 * seed[-1] if seed[-1] else first[m]

    monkeypatch.setattr('surreal_bids.model.number.stability', measured)
    found = measure_stability(np.ones((9, 9)), np.ones((9, 9)), first, 0)
    assert found == {1: pytest.approx(1.85 / 3), 2: pytest.approx(1.7 / 3), 3: 0.95, 4: 0.5}
    assert len(set(seeds)) == len(seeds) == 8


@pytest.mark.parametrize(
    ('value', 'null', 'supported'),
    [(0.95, (), True), (0.95, (0.2, 0.94), True), (0.95, (0.2, 0.96), False), (0.6, (), False)],
)
def test_a_number_is_supported_when_it_beats_limit_and_null(value, null, supported):
    assert Stability(2, value, null).is_supported is supported


@pytest.mark.slow
def test_the_choice_depends_neither_on_threads_nor_on_other_numbers(monkeypatch):
    monkeypatch.setattr('surreal_bids.model.number.PERMUTATIONS', 4)
    cn, pt, *_ = cohort(1, n_cn=60, n_pt=60)
    alone = choose_number(cn, pt, (1, 2, 3))
    set_threads(3)
    together = choose_number(cn, pt, (1, 2, 3))
    set_threads(1)
    assert together == alone
    assert measure_stability(cn, pt, (2,), 0) == {2: alone.stabilities[1].value}
    assert len(set(alone.tested.null)) > 1


def test_pytorch_has_as_many_threads_as_before_the_choice(monkeypatch):
    """Also if permutations end early, as here."""
    monkeypatch.setattr('surreal_bids.model.number.stability', lambda *_: 0.95)
    torch.set_num_threads(2)
    choose_number(np.ones((9, 9)), np.ones((9, 9)), (3,))
    after = torch.get_num_threads()
    torch.set_num_threads(1)
    assert after == 2


@pytest.mark.parametrize(('n', 'size'), [(100, 80), (8, 8), (5000, 4000)])
def test_a_subsample_has_no_one_twice(n, size):
    rows = draw_subsample(n, np.random.default_rng(0))
    assert len(rows) == len(set(rows)) == size
    assert (np.diff(rows) > 0).all()


def test_it_goes_to_json_and_back():
    number = Number(1, (Stability(1, 0.95, (0.1, 0.2)), Stability(2, 0.3)))
    values = json.loads(json.dumps(asdict(number)))
    assert stored_number(values) == number
    values['stabilities'][0]['left_out'] = 3.5  # As earlier versions stored it.
    assert stored_number(values) == number
    assert stored_number(None) is None


TRIED = tuple(Stability(m, value) for m, value in enumerate((0.97, 0.85, 0.48, 0.3), start=1))
TESTED = replace(TRIED[1], null=(0.2, 0.31) + 37 * (0.1,))


def test_the_choice_is_explained():
    number = Number(2, (TRIED[0], TESTED, *TRIED[2:]))
    explained = explain_choice(number, 2, 92)
    assert explained.sentences == (
        '2 patterns chosen, the largest number that is supported: stability 0.85 in random '
        'subsamples (at least 0.75 needed); permuted data reached it in none of 39 runs (highest '
        '0.31; p <= 0.025, the smallest possible with 39 permutations). The permutations test '
        'whether there is any pattern; that there are 2 rests on their stability.',
        'Of larger numbers, 3 comes closest: not reproducible, stability 0.48 in random subsamples '
        '(at least 0.75 needed). To see 3 patterns, give --n-patterns 3.',
        '2 patterns can be reproduced in a training sample with 92 patients; a larger sample may '
        'show more.',
    )
    assert [row['reason'] for row in explained.rows] == [
        'reproducible, but more patterns are too',
        'chosen',
        'not reproducible',
        'not reproducible',
    ]
    assert len(explain_choice(number, 2, 900).sentences) == 2
    _, second = explain_choice(Number(2, (TRIED[0], TESTED)), 2, 92).sentences
    assert 'The next best number is 1: reproducible, but more patterns are too' in second


def test_no_pattern_is_explained():
    chance = replace(TRIED[1], null=5 * (0.9,))
    explained = explain_choice(Number(0, (replace(TRIED[0], value=0.8), chance)), 0, 40)
    assert explained.sentences[0] == 'No pattern is supported.'
    assert explained.sentences[1].startswith('2 comes closest: no better than permuted data')
    assert [row['reason'] for row in explained.rows] == [
        'not reproducible',
        'no better than permuted data',
    ]


@pytest.mark.parametrize(('null', 'is_advised'), [(5 * (0.9,), False), (39 * (0.3,), True)])
def test_a_failed_test_gives_no_hope_of_a_pattern(null, is_advised):
    closest = Stability(1, 0.8, null=null)
    words = ' '.join(explain_choice(Number(0, (closest,)), 0, 40).sentences)
    assert ('--n-patterns 1' in words) == is_advised
    assert ('a larger sample may show more' in words) == is_advised
    assert '--n-patterns' not in NO_PATTERN.remedy


def test_stabilities_have_enough_digits_beside_their_limits():
    close = Stability(1, 0.8487, null=(0.8491, *(4 * (0.3,))))
    words = ' '.join(explain_choice(Number(0, (close,)), 0, 900).sentences)
    assert 'stability 0.8487 in random subsamples (at least 0.85 needed)' in words
    assert 'highest 0.8491' in words


@pytest.mark.parametrize(
    ('null', 'reason', 'verdict'),
    [
        (39 * (0.3,), 'tried alone', 'tried alone, supported by the data'),
        ((0.9, *(38 * (0.3,))), 'tried alone; no better than permuted data', 'not supported by'),
    ],
)
def test_a_requested_number_has_its_verdict(null, reason, verdict):
    requested = replace(TRIED[1], null=null)
    number = Number(2 * requested.is_supported, (requested,))
    (sentence,), (row,) = explain_choice(number, 2, 92)
    assert verdict in sentence
    assert row['reason'] == reason
    assert number.supported == (reason == 'tried alone')
    warnings = warn_of_chance(number)
    assert len(warnings) == (not number.supported)
    assert all('AUC and associations' in each.consequence for each in warnings)


def test_several_patterns_of_structures_need_more():
    usual, structures = Stability(3, 0.8), Stability(3, 0.8, least=LEAST_FOR_STRUCTURES)
    assert usual.is_reproduced
    assert not structures.is_reproduced
    assert structures.needed == LEAST_FOR_STRUCTURES
    number = Number(0, (Stability(1, 0.5), structures))
    assert stored_number(json.loads(json.dumps(number.to_json()))) == number
    # The card of a model whose sides are apart is that of before.
    assert all('least' not in row for row in Number(0, (usual,)).to_json()['stabilities'])


def test_the_limit_of_several_decides(monkeypatch):
    monkeypatch.setattr('surreal_bids.model.number.PERMUTATIONS', 2)
    values = {1: 0.95, 2: 0.9, 3: 0.8}
    monkeypatch.setattr(
        'surreal_bids.model.number.stability',
        lambda cn, pt, m, seed, device='cpu': values[m] if len(seed) == 3 and seed[1] == 1 else 0.1,
    )
    groups = np.zeros((9, 9)), np.ones((9, 9))
    assert choose_number(*groups, (1, 2, 3)).n_patterns == 3
    assert choose_number(*groups, (1, 2, 3), least_of_several=0.82).n_patterns == 2
