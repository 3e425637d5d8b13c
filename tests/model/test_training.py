"""Training: random numbers, steps, stopping rules, checkpoints.

The reference implementation (plain modules, one member after the other) carries networks, losses,
latent vectors, copula and optimisers.
"""

import itertools
import multiprocessing
import signal

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from surreal_bids.exceptions import DataError
from surreal_bids.model.agreement import compare_members
from surreal_bids.model.networks import Latents, hyperparameters, latents, r_indices
from surreal_bids.model.training import (
    LOSSES,
    Batch,
    Stack,
    Steps,
    Stream,
    Training,
    batches,
    member_keys,
    member_seeds,
    members_r_indices,
    philox,
    random_words,
    uniforms,
)
from tests.model.killed_run import BLOCK, ITERATIONS, train_until_death
from tests.model.reference import Draws, Member
from tests.model.tiny import (
    BATCH_SIZE,
    CPU,
    N_PATTERNS,
    N_REGIONS,
    ORTHO,
    assert_same,
    people,
    tiny_sample,
    tiny_stack,
    tiny_training,
)

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


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Evaluate every 5 iterations instead of 50."""
    monkeypatch.setattr('surreal_bids.model.training.BLOCK', BLOCK)


def keys(n_members, random_state=0, n_patterns=3, ortho=0.1):
    return member_keys(member_seeds(random_state, n_patterns, [ortho] * n_members), CPU)


def test_philox_gives_the_known_answers():
    counter, key, expected = (torch.tensor(column).T for column in zip(*KNOWN_ANSWERS))
    assert torch.equal(torch.stack(philox(tuple(counter), tuple(key))), expected)


def test_words_are_philox_at_position_iteration_and_stream():
    keys_E2, stream, iterations, n = keys(2), 9, range(5, 8), 7
    words = random_words(keys_E2, iterations, stream, n)
    assert words.shape == (3, 2, n)
    for t, member, position in np.ndindex(*words.shape):
        counter = (position // 4, iterations[t], stream, 0)
        expected = philox(tuple(map(torch.tensor, counter)), tuple(keys_E2[member]))
        assert words[t, member, position] == expected[position % 4]


def test_uniforms_are_uniform_uncorrelated_and_strictly_inside(monkeypatch):
    values = torch.stack([uniforms(keys(3), range(100, 104), stream, 3000) for stream in range(3)])
    assert values.dtype == torch.float32
    assert stats.kstest(values.flatten().numpy(), 'uniform').pvalue > 1e-3
    rows = values.reshape(-1, 3000).numpy()
    assert np.abs(np.corrcoef(rows) - np.eye(len(rows))).max() < 5 / np.sqrt(3000)
    for word in (0, ALL_ONES):
        monkeypatch.setattr(
            'surreal_bids.model.training.random_words', lambda *_, w=word: torch.full((1, 1, 1), w)
        )
        assert 0 < uniforms(keys(1), range(1), 0, 1).item() < 1


def test_a_members_key_depends_on_seed_number_lambda_and_repetition_alone():
    for other in ({'random_state': 1}, {'n_patterns': 2}, {'ortho': 0.2}):
        assert not (keys(6) == keys(6, **other)).any()
    for ortho in ((0.1, 0.4, 0.1), (0.4, 0.1, 0.8, 0.1)):
        found = member_keys(member_seeds(0, 3, ortho), CPU)
        assert torch.equal(found[np.equal(ortho, 0.1)], keys(2, ortho=0.1))
        assert torch.equal(found[np.equal(ortho, 0.4)], keys(1, ortho=0.4))


def test_random_numbers_do_not_depend_on_how_iterations_are_cut():
    for start, split in itertools.product((0, 4), (1, 5, 9)):
        cuts = [range(i, min(i + split, 22)) for i in range(start, 22, split)]
        for draw in (uniforms, lambda *given: batches(*given, 6)):
            whole = draw(keys(3), range(start, 22), 1, 23)
            assert torch.equal(torch.cat([draw(keys(3), cut, 1, 23) for cut in cuts]), whole)


def test_an_epoch_visits_every_row_at_most_once_and_at_any_place():
    n, size, n_epochs = 10, 3, 2000
    rows = batches(keys(2), range(n_epochs * 3), 1, n, size).reshape(n_epochs, 3, 2, size)
    orders = rows.permute(0, 2, 1, 3).reshape(-1, 9).numpy()
    assert (np.diff(np.sort(orders, axis=1)) > 0).all()
    for position in (0, 5):
        counts = np.bincount(orders[:, position], minlength=n)
        assert stats.chisquare(counts).pvalue > 1e-3


S, M, B = 13, 3, 5
HIDDEN = (6, 3)
LAMBDAS = (0.1, 0.7, 3.0)
VARIANTS = {
    'the paper': ('iclr2022', {}),
    'learned copula': ('correlated', {}),
    'other values of the paper': (
        'iclr2022',
        {
            'adversarial': 0.5,
            'gamma': 1,
            'kappa': 2,
            'zeta': 3,
            'mu': 4,
            'eta': 5,
            'lipschitz': 0.12,
            'weight_decay': 3.0,
            'discriminator_noise': 0.6,
        },
    ),
    'other values of the copula': (
        'correlated',
        {
            'adversarial': 0.5,
            'max_gradient_norm': 0.05,
            'alpha': 1e-4,
            'copula_lr_ratio': 1.0,
            'lr': 3e-3,
            'discriminator_lr_ratio': 2.0,
            'betas': (0.8, 0.95),
            'discriminator_noise': 1.0,
            'discriminator_scale': 4.0,
        },
    ),
}


def double_stack(preset, changes):
    """A stack in double precision, whose copula, if any, does not start at independence."""
    stack = Stack(S, M, LAMBDAS, hyperparameters(preset, **changes), 7, CPU)
    if 'copula.phi' in stack.weights:
        shift = torch.from_numpy(np.random.default_rng(3).normal(0, 0.3, (3, 3, 3)))
        stack.weights['copula.phi'].data += shift.float()
    for value in stack.weights.values():
        value.data = value.data.double()
    for optimiser in stack.optimisers.values():
        for moments in optimiser.state.values():
            for key in ('exp_avg', 'exp_avg_sq'):
                moments[key] = moments[key].double()
    return stack


def random_batch(seed, with_coins):
    rng = np.random.default_rng(seed)
    x, y = (
        torch.stack([people(B, 100 * seed + 10 * k + i, S).double() for k in range(3)])
        for i in range(2)
    )
    z = rng.uniform(size=(3, B, M))
    drawn = (z, rng.uniform(z, 1), rng.uniform(0, 0.05, z.shape))
    coins = torch.from_numpy(rng.integers(2, size=(3, 3 * B, sum(HIDDEN))))
    return Batch(x, y - 0.2, Latents(*map(torch.from_numpy, drawn)), coins if with_coins else None)


def factors_of_member(batch, member, noise):
    """What D's hidden units are multiplied by: heads 1 + noise, tails 1 - noise."""
    if batch.coins is None:
        return None, None, None
    factors = 1 + noise * (2.0 * batch.coins[member].double() - 1)
    return tuple(part.split(HIDDEN, dim=1) for part in factors.split(B))


@pytest.mark.parametrize('variant', VARIANTS)
def test_a_stack_trains_as_plain_members_do(variant):
    stack = double_stack(*VARIANTS[variant])
    members = [Member(stack.weights, k, ortho, stack.hyper) for k, ortho in enumerate(LAMBDAS)]
    noise = stack.hyper.discriminator_noise
    for step in range(3):
        batch = random_batch(step, with_coins=noise > 0)
        losses_EL = stack.step(batch)
        for k, member in enumerate(members):
            draws = Draws(batch.x_EBS[k], batch.y_EBS[k], *(v[k] for v in batch.latents))
            expected = member.step(draws, factors_of_member(batch, k, noise))
            actual = dict(zip(LOSSES, losses_EL[k].tolist()))
            assert actual == pytest.approx(expected, rel=1e-7, abs=1e-10)
    for k, member in enumerate(members):
        expected = member.state()
        assert set(expected) == set(stack.weights)
        for name, value in expected.items():
            torch.testing.assert_close(
                stack.weights[name][k].detach(), value, rtol=0, atol=1e-8, msg=f'{name} of {k}'
            )


def test_state_restores_in_place():
    stack = double_stack('correlated', {})
    stack.step(random_batch(0, with_coins=False))
    saved = {name: value.clone() for name, value in stack.state().items()}
    after = [stack.step(random_batch(1, with_coins=False)) for _ in range(2)]
    assert not torch.equal(after[0], after[1])
    before = {name: value.data_ptr() for name, value in stack.state().items()}
    stack.restore(saved)
    assert {name: value.data_ptr() for name, value in stack.state().items()} == before
    again = [stack.step(random_batch(1, with_coins=False)) for _ in range(2)]
    assert all(torch.equal(*pair) for pair in zip(after, again))


def test_only_random_starts_are_compiled(monkeypatch):
    """Few iterations do not repay what compilation takes."""
    compiled = []
    monkeypatch.setattr('torch.compile', lambda function: compiled.append(function) or function)
    monkeypatch.setattr('surreal_bids.model.training.find_spec', lambda _: True)
    monkeypatch.setattr('shutil.which', lambda _: 'gcc')
    for preset, is_compiled in (('sparse', False), ('iclr2022', True)):
        stack = tiny_stack(preset=preset)
        stack.device = torch.device('cuda')
        stack._compiled(random_words)
        assert bool(compiled) == is_compiled


def trained(stack, n_iterations, block=BLOCK):
    """Weights after so many iterations."""
    steps = Steps(stack, *tiny_sample())
    for first in range(0, n_iterations, block):
        steps.run(range(first, min(first + block, n_iterations)))
    return stack.weights_now()


def weights_after(n_iterations, **changes):
    return trained(tiny_stack(**changes), n_iterations)


def coins_by_hand(words):
    """Bits of 32-bit words, lowest first; the stored words differ in the sign bit."""
    bits = np.array([(int(word) >> shift) & 1 for word in words for shift in range(32)])
    return bits ^ np.resize([0] * 31 + [1], len(bits))


def batch_by_hand(stack, sample, iteration):
    """The batch of an iteration, member by member, from the random numbers themselves."""
    now, n_hidden = range(iteration, iteration + 1), N_REGIONS // 2 + N_REGIONS // 4
    n_coins, members = 3 * BATCH_SIZE * n_hidden, []
    for key in stack.keys_E2:
        x, y = (
            group[batches(key[None], now, stream, len(group), BATCH_SIZE)[0, 0]]
            for stream, group in ((Stream.CONTROLS, sample.cn), (Stream.PATIENTS, sample.pt))
        )
        u = uniforms(key[None], now, Stream.LATENTS, 3 * BATCH_SIZE * N_PATTERNS)[0, 0]
        words = random_words(key[None], now, Stream.NOISE, -(-n_coins // 32))[0, 0]
        coins = torch.from_numpy(coins_by_hand(words)[:n_coins].reshape(3 * BATCH_SIZE, n_hidden))
        members.append((x, y, u.reshape(BATCH_SIZE, 3 * N_PATTERNS), coins))
    x, y, u, coins = (torch.stack(parts) for parts in zip(*members))
    return Batch(x, y, latents(u), coins if stack.hyper.discriminator_noise else None)


@pytest.mark.parametrize('changes', [{'discriminator_noise': 1.0}, {'preset': 'correlated'}])
def test_a_block_is_its_steps_one_by_one(changes):
    sample, stack, by_hand = tiny_sample(), tiny_stack(**changes), tiny_stack(**changes)
    losses = Steps(stack, *sample).run(range(9, 13))
    expected = sum(by_hand.step(batch_by_hand(by_hand, sample, i)) for i in range(9, 13))
    torch.testing.assert_close(losses, expected)
    assert_same(stack.state(), by_hand.state())


@pytest.mark.slow
def test_a_member_does_not_notice_its_company():
    """The two members with lambda 0.1 keep their order: it tells them apart."""
    lambdas = (0.1, 0.4, 0.1, 0.8)
    whole = weights_after(40, ortho=lambdas)
    for members in ([0, 2], [3], [3, 0, 1, 2]):
        part = weights_after(40, ortho=[lambdas[member] for member in members])
        for name, value in part.items():
            torch.testing.assert_close(value, whole[name][members], rtol=0, atol=1e-5, msg=name)


def test_the_seed_alone_decides():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = weights_after(10, discriminator_noise=1.0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert_same(trained(tiny_stack(discriminator_noise=1.0), 10, block=3), first)
    other = weights_after(10, discriminator_noise=1.0, random_state=1)
    assert not any(torch.equal(other[name], first[name]) for name in first)


class NoDoubles(TorchDispatchMode):
    """Raises an error where a step makes a tensor that the GPUs of Apple do not have."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, list | tuple) else [made]:
            assert getattr(tensor, 'dtype', None) is not torch.float64, function
        return made


@pytest.mark.parametrize('preset', ['sparse', 'correlated'])
def test_training_never_needs_double_precision(preset):
    stack, sample = tiny_stack(preset=preset), tiny_sample()
    with NoDoubles():
        Steps(stack, *sample).run(range(2))
        with pytest.raises(AssertionError):
            torch.ones(2).double()


ALWAYS_MET = {'reconstruction_threshold': np.inf, 'monotonicity_threshold': np.inf}
NEVER_MET = {'reconstruction_threshold': 0.0, 'monotonicity_threshold': 0.0}


class Interrupted(Exception):  # noqa: N818
    """Ends a run as if it were killed."""


def interrupt_after(monkeypatch, n_blocks):
    """Let the next run end with an error after so many blocks of iterations."""
    run, blocks = Steps.run, itertools.count()

    def run_or_stop(self, iterations, held=False):
        if next(blocks) == n_blocks:
            raise Interrupted
        return run(self, iterations, held)

    monkeypatch.setattr(Steps, 'run', run_or_stop)


@pytest.mark.slow
def test_training_ends_when_all_members_meet_the_thresholds():
    for iterations, evaluated in ((20, 20), (23, 25)):
        training = tiny_training(iterations, **ALWAYS_MET)
        assert_same(training.run(), weights_after(evaluated))
        assert training.progress.iteration == evaluated
        assert training.progress.converged == training.progress.done == [True] * 3


@pytest.mark.slow
def test_training_ends_with_the_extra_iterations_where_thresholds_are_not_met():
    for extra, last in ((0.0, 20), (0.6, 32)):
        for thresholds in (NEVER_MET, ALWAYS_MET | {'monotonicity_threshold': 0}):
            training = tiny_training(20, extra_iterations=extra, **thresholds)
            training.run()
            assert training.progress.iteration == last
            assert training.progress.converged == [False] * 3


@pytest.mark.slow
def test_each_member_ends_when_it_meets_the_thresholds_itself():
    """Runs that never end early tell losses and weights; a threshold then falls between members."""
    runs = [tiny_training(20, extra_iterations=extra, **NEVER_MET) for extra in (0.0, 0.25, 0.5)]
    weights = [run.run() for run in runs]
    loss_TE = np.reshape([r['reconstruction'] for r in runs[-1].progress.history], (-1, 3))[3:]
    threshold = np.sort(loss_TE[0])[:2].mean()
    training = tiny_training(
        20,
        extra_iterations=0.5,
        reconstruction_threshold=threshold,
        monotonicity_threshold=np.inf,
    )
    final, met_TE = training.run(), loss_TE < threshold
    assert met_TE[0].sum() == 1
    assert training.progress.converged == met_TE.any(axis=0).tolist()
    for member in range(3):
        end = met_TE[:, member].argmax() if met_TE[:, member].any() else -1
        for name, value in final.items():
            assert torch.equal(value[member], weights[end][name][member])


def test_history_holds_mean_losses_and_agreement_of_each_lambda(monkeypatch):
    reports, lambdas = [], (0.1, 0.1, 0.4, 0.4)
    monkeypatch.setattr('surreal_bids.model.training.report', lambda *each: reports.append(each))
    training = tiny_training(10, stack=tiny_stack(lambdas, **ALWAYS_MET))
    training.run()
    history = training.progress.history
    assert [(r['iteration'], r['ortho']) for r in history] == [
        *((5, 0.1), (5, 0.4)),
        *((10, 0.1), (10, 0.4)),
    ]
    stack = tiny_stack(lambdas)
    steps = Steps(stack, *tiny_sample())
    losses = torch.stack([steps.run(range(first, first + 5)) / 5 for first in (0, 5)])
    for column, name in enumerate(LOSSES):
        expected = losses[:, :, column].unflatten(1, (2, 2)).mean(dim=2).flatten().tolist()
        assert [record[name] for record in history] == pytest.approx(expected, rel=1e-5)
    r_ENM = members_r_indices(stack.weights_now(), tiny_sample().pt)
    assert history[2]['agreement'] == pytest.approx(compare_members(r_ENM[:2]).mean)
    assert reports[-1] == (10, 12, f'M=2, agreement {history[-1]["agreement"]:.2f}')


@pytest.mark.parametrize('preset', ['iclr2022', 'correlated'])
def test_a_diverged_member_is_done_and_leaves_the_others_alone(preset, tmp_path):
    stack, path = tiny_stack(preset=preset, **ALWAYS_MET), tmp_path / 'run.safetensors'
    stack.weights['f.encode1'].data[1, 0, 0] = torch.nan
    training = tiny_training(10, path, stack=stack)
    final = training.run()
    expected = tiny_training(10, preset=preset, **ALWAYS_MET).run()
    assert_same(
        {n: v[[0, 2]] for n, v in final.items()}, {n: v[[0, 2]] for n, v in expected.items()}
    )
    assert torch.isnan(final['g1.weight'][1]).any()
    assert {record['ortho'] for record in training.progress.history} == {ORTHO[0], ORTHO[2]}
    again = tiny_training(10, path, preset=preset, **ALWAYS_MET)
    assert_same(again.run(), final)
    assert again.progress.converged == training.progress.converged == [True, False, True]


def test_training_ends_at_once_when_all_members_have_diverged():
    stack = tiny_stack()
    stack.weights['g1.weight'].data[:] = torch.nan
    training = tiny_training(60, stack=stack)
    training.run()
    assert training.progress.iteration == BLOCK
    assert training.progress.converged == [False] * 3
    assert training.progress.history == []


@pytest.mark.parametrize('settled', [None, 2.0])
def test_a_collapsed_member_does_not_end_the_run(settled, monkeypatch):
    def collapsed(weights, patients):
        r_ENM = members_r_indices(weights, patients)
        r_ENM[1] = 0.5
        return r_ENM

    monkeypatch.setattr('surreal_bids.model.training.members_r_indices', collapsed)
    training = tiny_training(10, stack=tiny_stack((0.1, 0.1, 0.1), settled=settled, **ALWAYS_MET))
    training.run()
    assert training.progress.iteration == 10


def test_a_member_ends_when_its_r_indices_have_settled(monkeypatch):
    """Member 0 stands still from the second evaluation on; member 1 never does."""
    rng = np.random.default_rng(3)
    evaluations = [rng.uniform(size=(2, 60, 2)) for _ in range(5)]
    for later in evaluations[2:]:
        later[0] = evaluations[1][0]
    scripted = iter([rng.uniform(size=(2, 60, 2)), *evaluations])
    monkeypatch.setattr('surreal_bids.model.training.members_r_indices', lambda *_: next(scripted))
    training = tiny_training(20, stack=tiny_stack((0.1, 0.1), settled=0.99))
    final = training.run()
    assert training.progress.converged == [True, False]
    for member, end in ((0, 15), (1, 20)):
        expected = weights_after(end, ortho=(0.1, 0.1))
        for name, value in final.items():
            assert torch.equal(value[member], expected[name][member])


def test_f_is_held_still_at_first_but_not_only():
    stack = tiny_stack(held_iterations=1_500, extra_iterations=0.0)
    before = {name: value.clone() for name, value in stack.weights_now().items()}
    training = tiny_training(20, stack=stack)
    assert training.held == 15
    steps = Steps(stack, *training.sample)
    while training.progress.iteration < 15:
        training._train_block(steps)
    for name, value in before.items():
        assert torch.equal(stack.weights_now()[name], value) == name.startswith('f.')
    training._train_block(steps)
    assert not torch.equal(stack.weights_now()['f.decode2'], before['f.decode2'])


@pytest.mark.parametrize('decay_from', [0.0, 0.75, 1.0])
def test_learning_rates_fall_linearly_to_a_twentieth(decay_from, monkeypatch):
    training = tiny_training(20, decay_from=decay_from, extra_iterations=0.5, **NEVER_MET)
    rates, run = [], Steps.run

    def record(self, iterations, held=False):
        optimisers = training.stack.optimisers.values()
        rates.append([float(adam.param_groups[0]['lr']) for adam in optimisers])
        return run(self, iterations, held)

    monkeypatch.setattr(Steps, 'run', record)
    training.run()
    start = decay_from * 20
    left = [1 - np.clip((i - start) / max(20 - start, 1), 0, 1) for i in range(0, 30, BLOCK)]
    left = np.ones(6) if decay_from == 1 else np.array(left)
    expected = np.outer(0.05 + 0.95 * left, (2e-4, 4e-5))
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('n_blocks', [1, 4])
@pytest.mark.parametrize(
    'changes',
    [
        {'preset': 'correlated'},
        {'settled': 0.9999, 'held_iterations': 8, 'discriminator_noise': 1.0, 'decay_from': 0.5},
    ],
    ids=['correlated', 'held, settled'],
)
def test_a_resumed_run_ends_as_an_uninterrupted_one(changes, n_blocks, tmp_path, monkeypatch):
    path = tmp_path / 'run.safetensors'
    monkeypatch.setattr('surreal_bids.model.training.SECONDS_BETWEEN_CHECKPOINTS', 0.0)
    with monkeypatch.context() as patch:
        interrupt_after(patch, n_blocks)
        with pytest.raises(Interrupted):
            tiny_training(25, path, **changes).run()
    resumed, whole = (tiny_training(25, p, **changes) for p in (path, None))
    assert_same(resumed.run(), whole.run())
    assert_same(resumed.stack.state(), whole.stack.state())
    assert resumed.progress == whole.progress
    interrupt_after(monkeypatch, 0)
    assert_same(tiny_training(25, path, **changes).run(), whole.final)  # Nothing is left to train.


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / 'run.safetensors'
    tiny_training(5, path).run()
    content = path.read_bytes()
    others = (
        Training(tiny_stack(), tiny_sample(seed=1), 5, path),
        Training(tiny_stack(), tiny_sample(batch_size=7), 5, path),
        tiny_training(5, path, random_state=1),
        tiny_training(5, path, ortho=(0.1, 0.2, 0.5)),
        tiny_training(5, path, gamma=5.9),
        tiny_training(10, path),
    )
    for other in others:
        with pytest.raises(DataError, match=r'run\.safetensors.*other data, settings'):
            other.run()
    assert path.read_bytes() == content


@pytest.mark.slow
@pytest.mark.parametrize(('moment', 'resumed_at'), [('training', 15), ('writing', 10)])
def test_kill_minus_nine_changes_nothing(moment, resumed_at, tmp_path, caplog):
    path = tmp_path / 'run.safetensors'
    # Both moments have their process from a server, which imports once.
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(['tests.model.killed_run'])
    killed = context.Process(target=train_until_death, args=(path, moment))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    training = tiny_training(ITERATIONS, path)
    with caplog.at_level('INFO', 'surreal_bids'):
        final = training.run()
    assert f'resumed at iteration {resumed_at}' in caplog.text
    assert_same(final, tiny_training(ITERATIONS).run())


def test_r_indices_do_not_depend_on_portions():
    weights = tiny_stack().weights_now()
    for n_people in (1, 512, 1030):
        patients = people(n_people, 0)
        expected = r_indices(weights, patients.expand(3, -1, -1))
        actual = members_r_indices(weights, patients)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
