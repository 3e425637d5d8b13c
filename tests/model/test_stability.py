import re

import numpy as np
import pytest

from surreal_bids.model.stability import (
    LEAST_STABILITY,
    PERMUTATIONS,
    Number,
    Stability,
    choose_number,
    draw_subsample,
    stability,
    stored_number,
)
from tests.model.test_factors import cohort


@pytest.mark.slow
@pytest.mark.parametrize('n_patterns', [1, 2, 3])
def test_the_true_number_of_patterns_is_chosen(n_patterns):
    cn, pt, *_ = cohort(n_patterns, size=0.35)
    number = choose_number(cn, pt, (1, 2, 3, 4))
    assert number.n_patterns == n_patterns
    chosen = number.stabilities[n_patterns - 1]
    assert len(chosen.null) == PERMUTATIONS
    assert max(chosen.null) < LEAST_STABILITY < chosen.value


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(3))
def test_labels_that_mean_nothing_support_no_pattern(seed):
    cn, pt, *_ = cohort(2, seed=seed)
    people = np.random.default_rng(seed).permutation(np.concatenate([cn, pt]))
    number = choose_number(people[:150], people[150:], (1, 2), seed)
    assert number.n_patterns == 0
    assert len(number.stabilities[0].null) == PERMUTATIONS


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answer_whatever_else_is_tried():
    cn, pt, *_ = cohort(2)
    assert stability(cn, pt, 2, (0, 1)) == stability(cn, pt, 2, (0, 1))
    alone, among = choose_number(cn, pt, (2,)), choose_number(cn, pt, (1, 2))
    assert alone.stabilities[0] == among.stabilities[1]


@pytest.mark.parametrize(
    ('value', 'null', 'supported'),
    [(0.95, (), True), (0.95, (0.2, 0.94), True), (0.95, (0.2, 0.96), False), (0.6, (), False)],
)
def test_a_number_is_supported_when_it_beats_limit_and_null(value, null, supported):
    assert Stability(2, value, null).is_supported is supported


@pytest.mark.parametrize('candidates', [(1, 2), (3,), (4, 2, 1)])
def test_the_choice_reports_how_much_is_done(monkeypatch, candidates):
    monkeypatch.setattr('surreal_bids.model.stability.PERMUTATIONS', 3)
    cn, pt, *_ = cohort(1, n_cn=60, n_pt=60)
    said = []
    choose_number(cn, pt, candidates, report=said.append)
    first = [re.match(r'M=(\d)(,| with permuted)', line) for line in said]
    assert [int(found[1]) for found in first[: len(candidates)]] == sorted(candidates)
    assert all('permuted' in line for line in said[len(candidates) :])
    done = [int(re.search(r'(\d+)% done, about \d:\d\d:\d\d left', line)[1]) for line in said]
    assert done == sorted(done)
    assert len(set(done)) > len(candidates)
    assert done[-1] == 99  # The total may still grow.


@pytest.mark.parametrize(('n', 'size'), [(100, 80), (8, 8), (5000, 4000)])
def test_a_subsample_has_no_one_twice(n, size):
    rows = draw_subsample(n, np.random.default_rng(0))
    assert len(rows) == len(set(rows)) == size
    assert (np.diff(rows) > 0).all()


def test_it_goes_to_json_and_back():
    number = Number(1, (Stability(1, 0.95, (0.1, 0.2), 3.5), Stability(2, 0.3)))
    values = {
        'n_patterns': 1,
        'stabilities': [
            {'n_patterns': 1, 'value': 0.95, 'null': [0.1, 0.2], 'left_out': 3.5},
            {'n_patterns': 2, 'value': 0.3, 'null': []},
        ],
    }
    assert stored_number(values) == number
    assert stored_number(None) is None
