import pytest
from nipype import Function, Node, Workflow

from surreal_bids.cli.execution import Progress
from surreal_bids.cli.plan import Failure, failure_table


def rest(x):
    return x


@pytest.fixture
def everyone():
    workflow = Workflow('all')
    for name in ('sub-01', 'sub-02'):
        person = Workflow(name)
        person.add_nodes([Node(Function(function=rest), name=step) for step in ('n4', 'mask')])
        workflow.add_nodes([person])
    return workflow


@pytest.fixture
def progress(everyone, tmp_path):
    logs = {name: tmp_path / 'logs' / f'{name}.log' for name in ('sub-01', 'sub-02')}
    with Progress(everyone, logs, 'Participants') as progress:
        yield progress


def _log(tmp_path, name='sub-01'):
    lines = (tmp_path / 'logs' / f'{name}.log').read_text().splitlines()
    return [line.split(' ', 2)[2] for line in lines]


@pytest.mark.parametrize(
    ('events', 'expected'),
    [
        (['start', 'end'], ['n4: started', 'n4: done in 0.0 s']),
        (['end'], ['n4: ready']),
        (['start', 'exception', 'end'], ['n4: started', 'n4: failed']),
    ],
)
def test_the_log_of_a_participant(progress, tmp_path, events, expected):
    for event in events:
        progress(('all', 'sub-01', 'n4'), event)
    assert _log(tmp_path) == expected
    assert not (tmp_path / 'logs' / 'sub-02.log').exists()


def test_the_bar_counts_each_step_once(progress):
    for name in ('n4', 'mask', 'mask', 'part[0]'):
        progress(('all', 'sub-01', name), 'end')
    assert progress._bar.total == 4
    assert [len(steps) for steps in progress._waiting.values()] == [0, 2]


def test_failures_as_a_table():
    table = failure_table([Failure('sub-01_ses-a', 'n4', 'bad'), Failure('sub-2', 'check', 'gone')])
    assert table.splitlines() == [
        'Participant   Step   Reason',
        'sub-01_ses-a  n4     bad',
        'sub-2         check  gone',
    ]
