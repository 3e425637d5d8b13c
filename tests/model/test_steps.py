import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from surreal_bids.model.networks import latents
from surreal_bids.model.training import (
    BLOCK,
    LOSSES,
    Batch,
    Steps,
    Stream,
    batches,
    random_words,
    uniforms,
)
from tests.model.tiny import (
    BATCH_SIZE,
    N_PATTERNS,
    N_REGIONS,
    ORTHO,
    assert_same,
    tiny_sample,
    tiny_stack,
)

FOUR = (0.1, 0.4, 0.1, 0.8)


def trained(stack, n_iterations=100, block=BLOCK):
    """Weights after so many iterations and the mean losses on the way."""
    steps = Steps(stack, *tiny_sample())
    total = sum(
        steps.run(range(first, min(first + block, n_iterations)))
        for first in range(0, n_iterations, block)
    )
    return stack.weights_now(), total / n_iterations


def coins_by_hand(words):
    """Bits of 32-bit words, lowest first; the stored words differ in the sign bit."""
    bits = [[(int(word) >> shift) & 1 for word in words for shift in range(32)]]
    return np.array(bits[0]) ^ np.resize([0] * 31 + [1], len(bits[0]))


def batch_by_hand(stack, sample, iteration):
    """The batch of an iteration, member by member, from the random numbers themselves."""
    now, n_hidden = range(iteration, iteration + 1), N_REGIONS // 2 + N_REGIONS // 4
    members = []
    for key in stack.keys_E2:
        key_12 = key[None]
        rows = [
            batches(key_12, now, stream, len(group), BATCH_SIZE)[0, 0]
            for stream, group in ((Stream.CONTROLS, sample.cn), (Stream.PATIENTS, sample.pt))
        ]
        u = uniforms(key_12, now, Stream.LATENTS, 3 * BATCH_SIZE * N_PATTERNS)[0, 0]
        n_coins = 3 * BATCH_SIZE * n_hidden
        words = random_words(key_12, now, Stream.NOISE, -(-n_coins // 32))[0, 0]
        members.append(
            (
                sample.cn[rows[0]],
                sample.pt[rows[1]],
                u.reshape(BATCH_SIZE, 3 * N_PATTERNS),
                torch.from_numpy(coins_by_hand(words)[:n_coins].reshape(3 * BATCH_SIZE, n_hidden)),
            )
        )
    x, y, u, coins = (torch.stack(parts) for parts in zip(*members))
    noisy = stack.hyper.discriminator_noise > 0
    return Batch(x, y, latents(u), coins if noisy else None)


@pytest.mark.parametrize('preset', ['iclr2022', 'correlated', 'robust'])
@pytest.mark.parametrize('iterations', [range(4), range(9, 13)], ids=str)
def test_a_block_is_its_steps_one_by_one(iterations, preset):
    sample, stack, by_hand = tiny_sample(), tiny_stack(preset=preset), tiny_stack(preset=preset)
    losses = Steps(stack, *sample).run(iterations)
    expected = sum(by_hand.step(batch_by_hand(by_hand, sample, i)) for i in iterations)
    torch.testing.assert_close(losses, expected)
    assert_same(stack.state(), by_hand.state())


@pytest.mark.slow
@pytest.mark.parametrize('preset', ['iclr2022', 'correlated', 'robust'])
def test_a_member_of_a_stack_equals_the_member_trained_alone(preset):
    """Up to rounding, which on x86 depends on the size of a stack and grows with the iterations."""
    weights, losses = trained(tiny_stack(FOUR, preset), 20)
    for member, ortho in ((0, 0.1), (3, 0.8)):
        alone, own_losses = trained(tiny_stack((ortho,), preset), 20)
        torch.testing.assert_close(losses[member], own_losses[0], rtol=1e-3, atol=1e-5)
        for name, value in alone.items():
            torch.testing.assert_close(weights[name][member], value[0], rtol=0, atol=1e-4, msg=name)


@pytest.mark.parametrize('members', [[0, 2], [1, 3], [3, 0, 1, 2]], ids=str)
def test_a_member_does_not_notice_its_company(members):
    """The two members with lambda 0.1 keep their order: it tells them apart."""
    whole, _ = trained(tiny_stack(FOUR), 40)
    part, _ = trained(tiny_stack([FOUR[member] for member in members]), 40)
    for name, value in part.items():
        torch.testing.assert_close(value, whole[name][members], rtol=0, atol=1e-5, msg=name)


@pytest.mark.parametrize('preset', ['iclr2022', 'robust'])
def test_the_same_seed_gives_the_same_result_and_another_one_does_not(preset):
    (first, losses), (again, same) = (trained(tiny_stack(preset=preset), 10) for _ in range(2))
    assert_same(again, first)
    assert torch.equal(losses, same)
    other, _ = trained(tiny_stack(preset=preset, random_state=1), 10)
    assert not any(torch.equal(other[name], first[name]) for name in first)


@pytest.mark.parametrize('block', [1, 7])
def test_the_size_of_blocks_does_not_matter(block):
    assert_same(trained(tiny_stack(), 20, block)[0], trained(tiny_stack(), 20, 20)[0])


def test_global_random_state_is_neither_used_nor_touched():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, _ = trained(tiny_stack(preset='robust'), 5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert_same(trained(tiny_stack(preset='robust'), 5)[0], first)


def test_noise_in_the_discriminator_is_fair_and_its_own_for_each_member_and_step():
    stack, n_steps = tiny_stack(preset='robust'), 40
    steps = Steps(stack, *tiny_sample())
    drawn = []
    for _ in range(n_steps):
        drawn.append(steps._batch().coins)
        steps.slot += 1
    tosses = torch.stack(drawn)
    n_units = N_REGIONS // 2 + N_REGIONS // 4
    assert tosses.shape == (n_steps, len(ORTHO), 3 * BATCH_SIZE, n_units)
    assert set(tosses.unique().tolist()) == {0, 1}
    n_tosses = tosses.numel()
    assert abs(tosses.double().mean() - 0.5) < 4 * 0.5 / n_tosses**0.5
    rows = tosses.double().flatten(2).flatten(0, 1).numpy()
    off_diagonal = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    assert np.abs(off_diagonal).max() < 5 / np.sqrt(rows.shape[1])
    columns = tosses.double().flatten(0, 2).numpy().T
    assert np.abs(np.corrcoef(columns) - np.eye(n_units)).max() < 5 / np.sqrt(columns.shape[1])


def test_training_lowers_the_losses_it_weighs_most():
    stack = tiny_stack(preset='correlated')
    steps = Steps(stack, *tiny_sample())
    first, *_, last = (steps.run(range(i, i + BLOCK)) for i in range(0, 150, BLOCK))
    for name in ('reconstruction', 'decomposition'):
        column = LOSSES.index(name)
        assert (last[:, column] < first[:, column]).all()
    assert all(
        value.abs().max() <= stack.hyper.lipschitz
        for name, value in stack.weights_now().items()
        if name.split('.')[0] in ('f', 'g1', 'g2')
    )


class NoDoubles(TorchDispatchMode):
    """Raises an error where a step makes a tensor that the GPUs of Apple do not have."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, list | tuple) else [made]:
            assert getattr(tensor, 'dtype', None) is not torch.float64, function
        return made


@pytest.mark.parametrize('preset', ['iclr2022', 'sparse', 'correlated', 'robust'])
def test_training_never_needs_double_precision(preset):
    stack, sample = tiny_stack(preset=preset), tiny_sample()
    assert all(value.dtype == torch.float32 for value in stack.state().values())
    with NoDoubles():
        Steps(stack, *sample).run(range(2))
        with pytest.raises(AssertionError):
            torch.ones(2).double()


@pytest.mark.skipif(not torch.backends.mps.is_available(), reason='needs a GPU of Apple')
def test_the_gpu_of_apple_trains_as_the_cpu_does():
    expected, _ = trained(tiny_stack(), 20)
    device = torch.device('mps')
    stack = tiny_stack(device=device)
    sample = tiny_sample()
    steps = Steps(stack, sample.cn.to(device), sample.pt.to(device), sample.batch_size)
    steps.run(range(20))
    for name, value in stack.weights_now().items():
        np.testing.assert_allclose(value.cpu(), expected[name], atol=1e-3, err_msg=name)
