import numpy as np
import pytest
import torch
from scipy import stats

from surreal_bids.model.training import (
    batches,
    member_keys,
    member_seeds,
    philox,
    random_words,
    uniforms,
)
from tests.model.tiny import CPU

ALL_ONES = 0xFFFFFFFF
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ALL_ONES,) * 4, (ALL_ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
"""Counter, key and output of Philox4x32-10, from the tests of Random123 (kat_vectors)."""


def keys(n_members, random_state=0, n_patterns=3, ortho=0.1):
    return member_keys(member_seeds(random_state, n_patterns, [ortho] * n_members), CPU)


def test_philox_gives_the_known_answers_at_once():
    counter, key, expected = (torch.tensor(column).T for column in zip(*KNOWN_ANSWERS))
    words = philox(tuple(counter), tuple(key))
    assert torch.equal(torch.stack(words), expected)


@pytest.mark.parametrize(('counter', 'key', 'expected'), KNOWN_ANSWERS)
def test_philox_gives_the_known_answer(counter, key, expected):
    words = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
    assert tuple(map(int, words)) == expected


@pytest.mark.parametrize('n', [1, 4, 7])
def test_words_are_philox_at_position_iteration_and_stream(n):
    keys_E2, stream, iterations = keys(2), 9, range(5, 8)
    words = random_words(keys_E2, iterations, stream, n)
    assert words.shape == (3, 2, n)
    for t, iteration in enumerate(iterations):
        for member, (first, second) in enumerate(keys_E2):
            for position in range(n):
                counter = (position // 4, iteration, stream, 0)
                expected = philox(tuple(map(torch.tensor, counter)), (first, second))
                assert words[t, member, position] == expected[position % 4]


def test_uniforms_are_uniform_and_inside_the_unit_interval():
    values = uniforms(keys(3), range(20), 1, 1000)
    assert values.dtype == torch.float32
    assert values.min() > 0
    assert values.max() < 1
    assert stats.kstest(values.flatten().numpy(), 'uniform').pvalue > 1e-3
    pairs = values.flatten().numpy().reshape(-1, 2)
    assert stats.chisquare(np.histogram2d(*pairs.T, bins=16)[0].ravel()).pvalue > 1e-3


@pytest.mark.parametrize('word', [0, 1, 2**31, ALL_ONES])
def test_extreme_words_give_uniforms_strictly_inside(word, monkeypatch):
    monkeypatch.setattr(
        'surreal_bids.model.training.random_words', lambda *_: torch.full((1, 1, 1), word)
    )
    value = uniforms(keys(1), range(1), 0, 1).item()
    assert 0 < value < 1
    assert value == pytest.approx(word / 2**32, abs=2**-23)


def test_members_iterations_and_streams_are_uncorrelated():
    n = 3000
    drawn = [uniforms(keys(3), range(100, 104), stream, n) for stream in range(3)]
    rows = torch.stack(drawn).reshape(-1, n).numpy()
    off_diagonal = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    assert np.abs(off_diagonal).max() < 5 / np.sqrt(n)


@pytest.mark.parametrize('draw', [uniforms, random_words], ids=lambda draw: draw.__name__)
@pytest.mark.parametrize('member', [0, 2])
def test_a_member_draws_the_same_in_any_stack(draw, member):
    in_stack = draw(keys(5), range(3, 6), 2, 10)[:, member]
    alone = draw(keys(member + 1)[member:], range(3, 6), 2, 10)[:, 0]
    assert torch.equal(in_stack, alone)


@pytest.mark.parametrize('split', [1, 3, 7])
def test_uniforms_do_not_depend_on_how_iterations_are_cut(split):
    whole = uniforms(keys(2), range(10, 24), 1, 9)
    parts = [uniforms(keys(2), range(i, min(i + split, 24)), 1, 9) for i in range(10, 24, split)]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize('other', [{'random_state': 1}, {'n_patterns': 2}, {'ortho': 0.2}], ids=str)
def test_keys_depend_on_the_seed_on_the_number_of_patterns_and_on_lambda(other):
    assert not (keys(6) == keys(6, **other)).any()
    assert len(np.unique(keys(6).numpy(), axis=0)) == 6


@pytest.mark.parametrize(
    'ortho', [(0.1, 0.4, 0.1), (0.4, 0.1, 0.8, 0.1), (0.2, 0.1, 0.1, 0.4)], ids=str
)
def test_a_members_key_depends_on_its_lambda_and_repetition_alone(ortho):
    found = member_keys(member_seeds(0, 3, ortho), CPU)
    assert torch.equal(found[np.equal(ortho, 0.1)], keys(2, ortho=0.1))
    assert torch.equal(found[np.equal(ortho, 0.4)], keys(1, ortho=0.4))


@pytest.mark.parametrize(('n', 'size'), [(60, 8), (17, 5), (9, 9), (11, 1), (13, 7)])
def test_an_epoch_visits_a_row_at_most_once(n, size):
    per_epoch, n_epochs = n // size, 4
    rows = batches(keys(3), range(n_epochs * per_epoch), 1, n, size)
    assert rows.shape == (n_epochs * per_epoch, 3, size)
    assert rows.min() >= 0
    assert rows.max() < n
    for epoch in rows.reshape(n_epochs, per_epoch, 3, size).numpy():
        for member in range(3):
            visited = epoch[:, member].ravel()
            assert len(np.unique(visited)) == per_epoch * size


@pytest.mark.parametrize('split', [1, 2, 5, 9])
@pytest.mark.parametrize('start', [0, 4])
def test_batches_do_not_depend_on_how_iterations_are_cut(start, split):
    n, size, stop = 23, 6, 22
    whole = batches(keys(3), range(start, stop), 1, n, size)
    parts = [
        batches(keys(3), range(i, min(i + split, stop)), 1, n, size)
        for i in range(start, stop, split)
    ]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(whole, batches(keys(3), range(stop), 1, n, size)[start:])


def test_members_epochs_and_streams_shuffle_differently():
    n, size = 40, 40
    orders = torch.cat([batches(keys(3), range(4), stream, n, size) for stream in (1, 2)])
    assert len(np.unique(orders.reshape(-1, n).numpy(), axis=0)) == 2 * 4 * 3


@pytest.mark.parametrize('position', [0, 5])
def test_every_row_is_as_likely_at_every_place(position):
    n, size, n_epochs = 10, 3, 2000
    rows = batches(keys(2), range(n_epochs * 3), 1, n, size).reshape(n_epochs, 3, 2, size)
    place = rows.permute(0, 2, 1, 3).reshape(-1, 9)[:, position]
    assert stats.chisquare(np.bincount(place.numpy(), minlength=n)).pvalue > 1e-3
