import os
from dataclasses import replace
from itertools import pairwise

import pytest
from nipype import Function, MapNode, Merge, Node, Workflow

from surreal_bids.cli.execution import DepthFirstPlugin, read_plugin, run_workflow, run_workflows
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import SurrealError, UsageError
from surreal_bids.parallel import THREAD_SETTINGS

pytestmark = pytest.mark.slow


def double(x):
    return 2 * x


def double_again(x):
    return 2 * x


def refuse(x):
    from surreal_bids.exceptions import DataError

    raise DataError(f'x is {x}; choose another')


def stumble(x):
    raise KeyError(x)


def die(x):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def need_room(x, folder):
    """Die if another of these steps runs at the same time, as for lack of memory."""
    import os
    import signal
    import time
    from pathlib import Path

    ever, now = Path(folder, 'ever'), Path(folder, 'now')
    for marks in (ever, now):
        (marks / str(os.getpid())).touch()
    for _ in range(2000):
        if len(list(ever.iterdir())) > 1:
            break
        time.sleep(0.01)
    for _ in range(50):
        others = [path.name for path in now.iterdir() if path.name != str(os.getpid())]
        if any(Path('/proc', name).exists() for name in others):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
    (now / str(os.getpid())).unlink()
    return x


def tell_threads(x):
    import os

    from surreal_bids.exceptions import DataError

    names = ('OMP_NUM_THREADS', 'ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS')
    raise DataError(' '.join(os.environ[name] for name in names))


def meet(x):
    """Fail unless three parts are worked on at once."""
    from threading import Barrier

    from surreal_bids.parallel import in_parts

    barrier = Barrier(3, timeout=2)
    in_parts(lambda _: barrier.wait(), 3, 1)
    return x


def _chain(name, *functions):
    """A workflow of functions, each taking the result of the one before."""
    workflow = Workflow(name)
    nodes = [Node(Function(function=function), name=function.__name__) for function in functions]
    nodes[0].inputs.x = 3
    workflow.add_nodes(nodes)
    for before, after in pairwise(nodes):
        workflow.connect(before, 'out', after, 'x')
    return workflow


@pytest.fixture
def config(tmp_path):
    return AppConfig(
        tmp_path, tmp_path / 'out', ('participant',), work_dir=tmp_path / 'work', nprocs=2
    )


@pytest.mark.parametrize(
    ('function', 'reason'),
    [
        (refuse, 'x is 6; choose another'),
        (stumble, 'KeyError: 6'),
    ],
)
def test_one_bad_branch_does_not_stop_the_others(config, function, reason):
    everyone = Workflow('everyone')
    everyone.add_nodes(
        [_chain('good', double, double_again), _chain('bad', double, function, double_again)]
    )
    events = []
    crashes = run_workflow(everyone, config, lambda *event: events.append(event))
    assert [(crash.hierarchy, crash.step) for crash in crashes] == [
        (('everyone', 'bad'), function.__name__)
    ]
    assert crashes[0].reason.startswith(reason)
    assert 'Traceback' in crashes[0].report
    assert (('everyone', 'good', 'double_again'), 'end') in events
    assert (('everyone', 'bad', 'double_again'), 'end') not in events
    assert not list(config.work_dir.glob('crashes-*'))


def test_steps_that_died_together_are_tried_again_one_by_one(config, tmp_path):
    for marks in ('ever', 'now'):
        (tmp_path / marks).mkdir()
    everyone = Workflow('everyone')
    for name in ('first', 'second'):
        node = Node(Function(function=need_room), name=name)
        node.inputs.trait_set(x=1, folder=str(tmp_path))
        everyone.add_nodes([node])
    everyone.add_nodes([Node(Function(function=die), name='bad')])
    everyone.get_node('bad').inputs.x = 3
    crashes = run_workflow(everyone, config)
    assert [crash.step for crash in crashes] == ['bad']
    assert 'the process of this step was killed twice' in crashes[0].reason


def test_the_process_of_a_step_that_runs_again_ends_with_it(config, monkeypatch):
    pools, ended = [], []

    def make_pool(plugin, workers):
        pools.append(make(plugin, workers))
        return pools[-1]

    def look(names, status):
        if status == 'exception':
            ended.append([pool._processes is None for pool in pools])

    make = DepthFirstPlugin._make_pool
    monkeypatch.setattr(DepthFirstPlugin, '_make_pool', make_pool)
    everyone = Workflow('everyone')
    everyone.add_nodes([Node(Function(function=die), name=name) for name in ('a', 'b')])
    for name in ('a', 'b'):
        everyone.get_node(name).inputs.x = 1
    run_workflow(everyone, config, look)
    assert ended == [[False, True], [False, True, True]]


def test_what_goes_wrong_outside_of_steps_is_not_taken_for_their_failure(config):
    def no_room(names, status):
        if status == 'exception':
            raise OSError('no space left')

    everyone = Workflow('everyone')
    everyone.add_nodes([_chain('bad', refuse), _chain('good', double, double_again)])
    with pytest.raises(OSError, match='no space left'):
        run_workflow(everyone, config, no_room)


def test_threads_of_workers(config):
    before = {name: os.environ.get(name) for name in THREAD_SETTINGS}
    crashes = run_workflow(_chain('w', tell_threads), replace(config, omp_nthreads=3))
    assert crashes[0].reason == '3 3'
    assert {name: os.environ.get(name) for name in THREAD_SETTINGS} == before


def test_one_image_alone_uses_all_cores(config):
    assert run_workflow(_chain('w', meet), replace(config, nprocs=3)) == []


def test_steps_of_a_map_share_the_cores(config):
    workflow = Workflow('mapped')
    node = MapNode(Function(function=meet), iterfield=['x'], name='meet')
    node.inputs.x = [1, 2, 3]
    workflow.add_nodes([node])
    crashes = run_workflow(workflow, replace(config, nprocs=3))
    assert [(crash.hierarchy, crash.step) for crash in crashes] == [
        (('mapped',), f'meet[{number}]') for number in range(3)
    ]


def test_a_plugin_file(config, tmp_path):
    path = tmp_path / 'plugin.yml'
    path.write_text('plugin: MultiProc\nplugin_args: {n_procs: 1}\n')
    assert read_plugin(path)['plugin'] == 'MultiProc'
    crashes = run_workflow(_chain('w', double, refuse), replace(config, use_plugin=path))
    assert [crash.step for crash in crashes] == ['refuse']


def test_wrong_plugin_files(tmp_path):
    path = tmp_path / 'plugin.yml'
    for text, message in (
        (': :', 'cannot be read as YAML'),
        ('n_procs: 2', 'expected "plugin: NAME"'),
        *(
            (f'plugin: {name}', f'plugin {name} is not supported; use one of MultiProc, Linear')
            for name in ('Red', 'SLURMGraph', 'LegacyMultiProc', 'Condor', 'CondorDAGMan', 'OAR')
        ),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=message):
            read_plugin(path)


FAKE_PROGRAMS = {
    'sbatch': 'if mkdir {folder}/asked 2> /dev/null; then echo Submitted batch job 7; exit 0; fi\n'
    'echo "sbatch: error: invalid partition specified: fast" >&2\nexit 1',
    'squeue': 'echo 7 PENDING',
    'scancel': 'echo $@ > {folder}/cancelled',
}
"""A batch system that takes one job only."""


def _write_programs(folder, names):
    folder.mkdir(exist_ok=True)
    for name in names:
        content = FAKE_PROGRAMS[name].format(folder=folder)
        (folder / name).write_text(f'#!/bin/sh\nPATH=/usr/bin:/bin\n{content}\n')
        (folder / name).chmod(0o755)


@pytest.mark.skipif(os.name != 'posix', reason='programs are scripts of a shell')
def test_a_batch_system_needs_its_programs(tmp_path, monkeypatch):
    path, folder = tmp_path / 'plugin.yml', tmp_path / 'bin'
    monkeypatch.setenv('PATH', str(folder))
    for names, missing in (([], 'sbatch, squeue, scancel'), (['sbatch', 'squeue'], 'scancel')):
        _write_programs(folder, names)
        path.write_text('plugin: SLURM')
        with pytest.raises(UsageError, match=f'SLURM needs {missing}, not found on this machine'):
            read_plugin(path)
    _write_programs(folder, ['scancel'])
    assert read_plugin(path) == {'plugin': 'SLURM'}
    for name, program in (('SGE', 'qsub'), ('PBS', 'qsub'), ('LSF', 'bsub')):
        path.write_text(f'plugin: {name}')
        with pytest.raises(UsageError, match=f'{name} needs {program}'):
            read_plugin(path)


@pytest.mark.skipif(os.name != 'posix', reason='programs are scripts of a shell')
def test_a_job_that_cannot_be_submitted_is_an_error_and_the_others_are_cancelled(
    config, tmp_path, monkeypatch
):
    path, folder = tmp_path / 'plugin.yml', tmp_path / 'bin'
    _write_programs(folder, FAKE_PROGRAMS)
    monkeypatch.setenv('PATH', str(folder))
    monkeypatch.delenv('LOGNAME', raising=False)
    path.write_text('plugin: SLURM\nplugin_args: {retry_timeout: 0, max_tries: 0}\n')
    workflow = Workflow('w')
    for function in (double, double_again):
        node = Node(Function(function=function), name=function.__name__)
        node.inputs.x = 1
        workflow.add_nodes([node])
    message = (
        r'step w\.\w+ could not be submitted \(sbatch: error: invalid partition specified: fast\)'
    )
    with pytest.raises(SurrealError, match=message):
        run_workflow(workflow, replace(config, use_plugin=path))
    assert (folder / 'cancelled').read_text() == '7\n'


def nap(x):
    import time

    time.sleep(0.1)
    return x


def _participant(number):
    """A branching workflow: two steps side by side, then two after them."""
    workflow = Workflow(f'sub-{number:02}')
    names = ('left', 'right', 'join', 'last')
    left, right, join, last = (Node(Function(function=nap), name=name) for name in names)
    left.inputs.x = right.inputs.x = number
    merge = Node(Merge(2), name='merge', run_without_submitting=True)
    workflow.connect([(left, merge, [('out', 'in1')]), (right, merge, [('out', 'in2')])])
    workflow.connect([(merge, join, [('out', 'x')]), (join, last, [('out', 'x')])])
    return workflow


def test_participants_are_finished_one_after_the_other(config):
    """With many participants on few cores; reports follow each of them, and all cores are busy."""
    nprocs, total, opened, ended, busy, running = 3, 8, [], [], [], 0

    def workflows():
        for number in range(total):
            opened.append(len(ended))
            yield _participant(number)

    def finished(workflow, crashes):
        ended.append(workflow.name)
        if workflow.name.startswith('report'):
            return None
        report = Workflow(workflow.name.replace('sub', 'report'))
        report.add_nodes([Node(Function(function=nap), name='report')])
        report.get_node('report').inputs.x = 1
        return report

    def count(names, status):
        nonlocal running
        running += {'start': 1}.get(status, -1) if names[-1] != 'merge' else 0
        busy.append(running)

    run_workflows(workflows(), replace(config, nprocs=nprocs), finished, count)
    participants = [name for name in ended if name.startswith('sub')]
    # On a busy machine, those who are processed at the same time may end in another order.
    for place, name in enumerate(sorted(participants)):
        assert abs(participants.index(name) - place) < nprocs, 'about in the order of the dataset'
    assert len(ended) == 2 * total
    for name in participants:
        later = ended[ended.index(name) : ended.index(name.replace('sub', 'report'))]
        assert len(later) <= nprocs + 2, 'a report is written before many others are finished'
    at_once = [started - done // 2 for started, done in enumerate(opened, start=1)]
    assert max(at_once) <= nprocs + 1, 'no participant begins before there is room'
    assert max(busy) == nprocs
    assert busy.count(nprocs) > total, 'no core is idle while there is work'


def test_memory_limits_what_runs_at_once(config):
    running, most = 0, 0

    def count(names, status):
        nonlocal running, most
        running += 1 if status == 'start' else -1
        most = max(most, running)

    workflows = []
    for number in range(3):
        workflow = _chain(f'sub-{number}', double, double_again)
        for name in ('double', 'double_again'):
            workflow.get_node(name)._mem_gb = 2.0
        workflows.append(workflow)
    ended = []
    run_workflows(workflows, replace(config, mem_gb=3.0), lambda w, _: ended.append(w.name), count)
    assert (most, ended) == (1, ['sub-0', 'sub-1', 'sub-2'])
