import doctest
from pathlib import Path

import pytest

import surreal_bids.workflows.group as group
from surreal_bids.workflows.group import init_group_wf, init_training_wf
from tests.workflows.test_graphs import _nodes, _ports_into, _undeclared_ports, _unset_inputs

HERE = str(Path(__file__).parent)
OPTIONS = {'n_patterns': [2, 3], 'ortho': [0.2], 'repetitions': 2, 'iterations': 10}


def build(trained=True, n_patterns=(2, 3), n_threads=1, n_folds=3, participants=('sub-01',)):
    options = {**OPTIONS, 'n_patterns': list(n_patterns)}
    model = init_training_wf(
        cohort_dir=HERE,
        options=options,
        checkpoint_dir='checkpoints',
        n_folds=n_folds,
        n_threads=n_threads,
    )
    return init_group_wf(
        cohort_dir=HERE,
        output_dir='out',
        model=model if trained else __file__,
        analysis={'title': 'S', 'options': options, 'methods': {}},
        individuals={'participants': list(participants), 'failures_dir': 'failures'},
        n_threads=n_threads,
    )


def test_each_combination_of_options_builds():
    for trained, n_folds in ((True, 0), (True, 3), (False, 0)):
        workflow = build(trained, n_folds=n_folds)
        assert _undeclared_ports(workflow) == []
        assert _unset_inputs(workflow) == []
        nodes = _nodes(workflow)
        assert ('model' in nodes) == trained
        folds = {name for name in nodes if name.startswith('fold_')}
        assert folds == {f'fold_{number}' for number in range(1, n_folds + 1)}
        assert ('fold_cards' in _ports_into(workflow, 'analyse')) == bool(n_folds)


@pytest.mark.parametrize(
    ('count', 'n_threads', 'nodes'), [(0, 4, 0), (8, 4, 1), (9, 4, 2), (99, 4, 4)]
)
def test_reports_of_participants_are_shared_out(count, n_threads, nodes):
    names = [f'sub-{k}' for k in range(count)]
    workflow = build(participants=names, n_threads=n_threads)
    parts = [name for name in workflow.list_node_names() if name.startswith('reports_')]
    inputs = [workflow.get_node(name).inputs for name in parts]
    assert len(parts) == nodes
    assert [(each.part, each.parts) for each in inputs] == [(k, nodes) for k in range(nodes)]
    assert all(each.participants == names for each in inputs)


@pytest.mark.parametrize(('n_patterns', 'nodes'), [([2], [2]), ([5, 1], [1, 5]), ([], [2, 3, 4])])
def test_each_number_of_patterns_is_a_node(n_patterns, nodes):
    """The default numbers too."""
    n_threads = 4
    workflow = build(n_patterns=n_patterns, n_threads=n_threads)
    training = [name for name in _nodes(workflow) if name.startswith('patterns_')]
    assert sorted(training) == [f'patterns_{m}' for m in nodes]
    for name in training:
        node = workflow.get_node(f'training_wf.{name}')
        assert (node.n_procs, node.inputs.n_threads) == (n_threads, n_threads)


def test_the_example_of_the_docstring_runs():
    assert doctest.testmod(group).failed == 0
