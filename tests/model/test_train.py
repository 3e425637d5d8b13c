import itertools
import multiprocessing
import re
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from surreal_bids.exceptions import DataError
from surreal_bids.model.agreement import compare_members
from surreal_bids.model.bundle import load_checkpoint, save_checkpoint
from surreal_bids.model.networks import r_indices
from surreal_bids.model.training import LOSSES, Sample, Steps, Training, members_r_indices
from tests.model.killed_run import BLOCK, ITERATIONS, train_until_death
from tests.model.tiny import (
    ORTHO,
    assert_same,
    people,
    tiny_sample,
    tiny_stack,
    tiny_training,
)

ALWAYS_MET = {'reconstruction_threshold': np.inf, 'monotonicity_threshold': np.inf}
NEVER_MET = {'reconstruction_threshold': 0.0, 'monotonicity_threshold': 0.0}
REPEATED = (0.1, 0.1, 0.4, 0.4)


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Evaluate every 5 iterations instead of 50."""
    monkeypatch.setattr('surreal_bids.model.training.BLOCK', BLOCK)


class Interrupted(Exception):  # noqa: N818
    """Ends a run as if it were killed."""


def weights_after(n_iterations, **changes):
    """Weights of the tiny stack after so many steps, without a training loop."""
    stack = tiny_stack(**changes)
    steps = Steps(stack, *tiny_sample())
    for first in range(0, n_iterations, BLOCK):
        steps.run(range(first, min(first + BLOCK, n_iterations)))
    return stack.weights_now()


def interrupt_after(monkeypatch, n_blocks):
    """Let the next run end with an error after so many blocks of iterations."""
    run, blocks = Steps.run, itertools.count()

    def run_or_stop(self, iterations, held=False):
        if next(blocks) == n_blocks:
            raise Interrupted
        return run(self, iterations, held)

    monkeypatch.setattr(Steps, 'run', run_or_stop)


def scripted_agreement(monkeypatch, trace):
    """Make agreement follow a script instead of the members."""
    values = iter(trace)
    monkeypatch.setattr(
        'surreal_bids.model.training.compare_members', lambda _: SimpleNamespace(mean=next(values))
    )


@pytest.mark.parametrize('iterations', [20, 23])
def test_training_ends_when_all_members_meet_the_thresholds(iterations):
    training = tiny_training(iterations, **ALWAYS_MET)
    final = training.run()
    evaluated = -(-iterations // BLOCK) * BLOCK
    assert training.progress.iteration == evaluated
    assert training.progress.converged == training.progress.done == [True] * 3
    assert_same(final, weights_after(evaluated))


@pytest.mark.parametrize(
    'thresholds',
    [NEVER_MET, ALWAYS_MET | {'monotonicity_threshold': 0}],
    ids=['neither met', 'one met'],
)
@pytest.mark.parametrize(('extra', 'last'), [(0.0, 20), (0.5, 30), (0.6, 32)])
def test_training_ends_with_the_extra_iterations_where_thresholds_are_not_met(
    extra, last, thresholds
):
    training = tiny_training(20, extra_iterations=extra, **thresholds)
    training.run()
    assert training.last_iteration == training.progress.iteration == last
    assert training.progress.converged == [False] * 3
    assert training.progress.done == [True] * 3


@pytest.mark.parametrize('n_early', [1, 2])
def test_each_member_ends_when_it_meets_the_thresholds_itself(n_early):
    """Runs that never end early tell losses and weights; a threshold then falls between members."""
    runs = [tiny_training(20, extra_iterations=extra, **NEVER_MET) for extra in (0.0, 0.25, 0.5)]
    weights = [run.run() for run in runs]
    loss_TE = np.reshape([r['reconstruction'] for r in runs[-1].progress.history], (-1, 3))[3:]
    threshold = np.sort(loss_TE[0])[n_early - 1 : n_early + 1].mean()
    training = tiny_training(
        20,
        extra_iterations=0.5,
        reconstruction_threshold=threshold,
        monotonicity_threshold=np.inf,
    )
    final, met_TE = training.run(), loss_TE < threshold
    assert met_TE[0].sum() == n_early
    assert training.progress.converged == met_TE.any(axis=0).tolist()
    for member in range(3):
        end = met_TE[:, member].argmax() if met_TE[:, member].any() else -1
        for name, value in final.items():
            assert torch.equal(value[member], weights[end][name][member])


@pytest.mark.parametrize('member', [0, 2])
def test_a_member_that_met_the_thresholds_trains_on_unseen(member):
    training = tiny_training(20, extra_iterations=0.5, **NEVER_MET)
    training._keep(np.arange(3) == member)
    final = training.run()
    start, end = tiny_stack().weights_now(), training.stack.weights_now()
    for name, value in final.items():
        assert torch.equal(value[member], start[name][member])
        others = np.arange(3) != member
        assert torch.equal(value[others], end[name][others])


@pytest.mark.parametrize('name', ['reconstruction', 'mapping', 'discriminator'])
def test_history_holds_mean_losses_and_agreement_of_each_lambda(name):
    training = tiny_training(10, stack=tiny_stack(REPEATED, **ALWAYS_MET))
    training.run()
    history = training.progress.history
    assert [(r['iteration'], r['ortho']) for r in history] == [
        (5, 0.1),
        (5, 0.4),
        (10, 0.1),
        (10, 0.4),
    ]
    stack = tiny_stack(REPEATED)
    steps = Steps(stack, *tiny_sample())
    losses = [steps.run(range(first, first + 5))[:, LOSSES.index(name)] / 5 for first in (0, 5)]
    expected = [loss[members].mean().item() for loss in losses for members in ([0, 1], [2, 3])]
    assert [record[name] for record in history] == pytest.approx(expected, rel=1e-5)
    r_ENM = members_r_indices(stack.weights_now(), tiny_sample().pt)
    assert history[2]['agreement'] == pytest.approx(compare_members(r_ENM[:2]).mean)
    assert history[3]['agreement'] == pytest.approx(compare_members(r_ENM[2:]).mean)


@pytest.mark.parametrize('broken', [0, 2])
@pytest.mark.parametrize('preset', ['iclr2022', 'correlated'])
def test_a_diverged_member_is_done_and_leaves_the_others_alone(preset, broken):
    stack = tiny_stack(preset=preset, **ALWAYS_MET)
    stack.weights['f.encode1'].data[broken, 0, 0] = torch.nan
    training = tiny_training(10, stack=stack)
    final = training.run()
    assert training.progress.done == [True] * 3
    assert training.progress.converged == [member != broken for member in range(3)]
    expected = tiny_training(10, preset=preset, **ALWAYS_MET).run()
    others = np.arange(3) != broken
    assert_same(
        {name: value[others] for name, value in final.items()},
        {name: value[others] for name, value in expected.items()},
    )
    assert torch.isnan(final['g1.weight'][broken]).any()
    orthos = {record['ortho'] for record in training.progress.history}
    assert orthos == set(ORTHO) - {ORTHO[broken]}


def test_training_ends_at_once_when_all_members_have_diverged():
    stack = tiny_stack()
    stack.weights['g1.weight'].data[:] = torch.nan
    training = tiny_training(60, stack=stack)
    training.run()
    assert training.progress.iteration == BLOCK
    assert training.progress.done == [True] * 3
    assert training.progress.converged == [False] * 3
    assert training.progress.history == []


@pytest.mark.parametrize('settled', [None, 2.0])
def test_a_collapsed_member_does_not_end_the_run(settled, monkeypatch):
    def collapsed(weights, patients):
        r_ENM = members_r_indices(weights, patients)
        r_ENM[1] = 0.5
        return r_ENM

    monkeypatch.setattr('surreal_bids.model.training.members_r_indices', collapsed)
    stack = tiny_stack((0.1, 0.1, 0.1), settled=settled, **ALWAYS_MET)
    training = tiny_training(10, stack=stack)
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
    assert training.progress.iteration == 20
    assert training.progress.converged == [True, False]
    for member, end in ((0, 15), (1, 20)):
        expected = weights_after(end, ortho=(0.1, 0.1))
        for name, value in final.items():
            assert torch.equal(value[member], expected[name][member])


def test_f_is_held_still_at_first():
    stack = tiny_stack(held_iterations=15, extra_iterations=0.0)
    before = {name: value.clone() for name, value in stack.weights_now().items()}
    training = tiny_training(20, stack=stack)
    steps = Steps(stack, *training.sample)
    while training.progress.iteration < 15:
        training._train_block(steps)
    for name, value in before.items():
        same = torch.equal(stack.weights_now()[name], value)
        assert same == name.startswith('f.')
    training._train_block(steps)
    assert not torch.equal(stack.weights_now()['f.decode2'], before['f.decode2'])


def test_short_trainings_do_not_only_hold_f_still():
    assert tiny_training(20, stack=tiny_stack(held_iterations=1_500)).held == 15


@pytest.mark.parametrize('settled', [None, 0.5, 1.1])
def test_the_share_that_is_done_and_the_agreement_are_reported(monkeypatch, settled):
    reports = []
    monkeypatch.setattr('surreal_bids.model.training.report', lambda *each: reports.append(each))
    stack = tiny_stack((0.1, 0.1), held_iterations=10, settled=settled)
    tiny_training(20, stack=stack).run()
    shares = [done / total for done, total, _ in reports]
    assert all(0 < share <= 1 for share in shares)
    assert shares[-1] == 1
    assert 0.3 < shares[0] * len(shares) < 2
    assert re.match(r'agreement -?\d\.', reports[-1][2])


@pytest.mark.parametrize('decay_from', [0.0, 0.5, 0.75])
def test_learning_rates_fall_linearly_to_a_twentieth(decay_from, monkeypatch):
    training = tiny_training(20, decay_from=decay_from, extra_iterations=0.5, **NEVER_MET)
    rates = []
    run = Steps.run

    def record(self, iterations, held=False):
        optimisers = training.stack.optimisers.values()
        rates.append([float(adam.param_groups[0]['lr']) for adam in optimisers])
        return run(self, iterations, held)

    monkeypatch.setattr(Steps, 'run', record)
    training.run()
    lowest, start = 0.05, decay_from * 20
    left = [1 - np.clip((i - start) / (20 - start), 0, 1) for i in range(0, 30, BLOCK)]
    expected = [[rate * (lowest + (1 - lowest) * part) for rate in (2e-4, 4e-5)] for part in left]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


@pytest.mark.parametrize('preset', ['iclr2022', 'correlated'])
def test_learning_rates_of_the_published_models_never_fall(preset):
    final = tiny_training(10, preset=preset, extra_iterations=2.0, **NEVER_MET).run()
    assert_same(final, weights_after(30, preset=preset))


@pytest.mark.parametrize('n_blocks', [1, 4])
@pytest.mark.parametrize(
    'changes', [{}, {'settled': 0.9999, 'held_iterations': 8}], ids=['usual', 'held, settled']
)
@pytest.mark.parametrize('preset', ['correlated', 'robust'])
def test_a_resumed_run_ends_as_an_uninterrupted_one(
    preset, changes, n_blocks, tmp_path, monkeypatch
):
    path = tmp_path / 'run.safetensors'
    monkeypatch.setattr('surreal_bids.model.training.SECONDS_BETWEEN_CHECKPOINTS', 0.0)
    with monkeypatch.context() as patch:
        interrupt_after(patch, n_blocks)
        with pytest.raises(Interrupted):
            tiny_training(25, path, preset=preset, **changes).run()
    resumed, whole = (tiny_training(25, p, preset=preset, **changes) for p in (path, None))
    assert_same(resumed.run(), whole.run())
    assert_same(resumed.stack.state(), whole.stack.state())
    assert resumed.progress == whole.progress


def test_a_finished_run_is_not_trained_again(tmp_path, monkeypatch):
    path = tmp_path / 'run.safetensors'
    final = tiny_training(10, path, **ALWAYS_MET).run()
    interrupt_after(monkeypatch, 0)
    again = tiny_training(10, path, **ALWAYS_MET)
    assert_same(again.run(), final)
    assert again.progress.converged == [True] * 3


def test_a_diverged_member_survives_a_checkpoint(tmp_path):
    path = tmp_path / 'run.safetensors'
    stack = tiny_stack(**ALWAYS_MET)
    stack.weights['f.encode1'].data[1] = torch.nan
    final = tiny_training(10, path, stack=stack).run()
    again = tiny_training(10, path, **ALWAYS_MET)
    assert_same(again.run(), final)
    assert again.progress.converged == [True, False, True]


def test_without_a_checkpoint_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_training(5, **ALWAYS_MET).run()
    assert list(tmp_path.iterdir()) == []


OTHER_RUNS = {
    'data': lambda path: Training(tiny_stack(), tiny_sample(seed=1), 5, path),
    'batch size': lambda path: Training(tiny_stack(), tiny_sample(batch_size=7), 5, path),
    'seed': lambda path: tiny_training(5, path, random_state=1),
    'lambda': lambda path: tiny_training(5, path, ortho=(0.1, 0.2, 0.5)),
    'settings': lambda path: tiny_training(5, path, gamma=5.9),
    'iterations': lambda path: tiny_training(10, path),
}


@pytest.mark.parametrize('difference', OTHER_RUNS)
def test_a_checkpoint_of_another_run_is_refused(difference, tmp_path):
    path = tmp_path / 'run.safetensors'
    tiny_training(5, path).run()
    content = path.read_bytes()
    with pytest.raises(DataError, match=r'run\.safetensors.*other data, settings'):
        OTHER_RUNS[difference](path).run()
    assert path.read_bytes() == content


def test_a_checkpoint_with_other_fields_is_refused(tmp_path):
    path = tmp_path / 'run.safetensors'
    training = tiny_training(5, path)
    training.run()
    tensors, progress = load_checkpoint(path, training.owner)
    save_checkpoint(path, tensors, progress | {'kept': []}, training.owner)
    with pytest.raises(DataError, match='not a checkpoint of this version'):
        tiny_training(5, path).run()


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


@pytest.mark.parametrize('n_people', [1, 511, 512, 1030])
def test_r_indices_do_not_depend_on_portions(n_people):
    weights, patients = tiny_stack().weights_now(), people(n_people, 0)
    actual = members_r_indices(weights, patients)
    expected = r_indices(weights, patients.expand(3, -1, -1))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_people_do_not_influence_each_others_r_indices():
    weights, patients = tiny_stack().weights_now(), people(9, 0)
    together = members_r_indices(weights, patients)
    alone = [members_r_indices(weights, person[None]) for person in patients]
    np.testing.assert_allclose(np.concatenate(alone, axis=1), together, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('group', ['cn', 'pt'])
def test_the_data_are_left_as_they_are(group):
    sample = tiny_sample()
    before = Sample(sample.cn.clone(), sample.pt.clone(), sample.batch_size)
    Training(tiny_stack(**ALWAYS_MET), sample, 5).run()
    assert torch.equal(getattr(sample, group), getattr(before, group))
