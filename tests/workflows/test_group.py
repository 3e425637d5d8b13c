import doctest
import itertools
from pathlib import Path

import pytest

import surreal_bids.workflows.group as group
from surreal_bids.workflows.group import init_group_wf
from tests.workflows.test_graphs import _nodes, _undeclared_ports, _unset_inputs

HERE = str(Path(__file__).parent)
SETTINGS = {
    'n_patterns': [2, 3],
    'ortho': [0.2],
    'repetitions': 2,
    'iterations': 10,
    'preset': 'robust',
    'device': 'cpu',
    'random_seed': 3,
}
CHOICES = {
    'tissues': [[], ['GM'], ['GM', 'CSF']],
    'split_half': [True, False],
    'paint': [True, False],
}
COMBINATIONS = [dict(zip(CHOICES, values)) for values in itertools.product(*CHOICES.values())]


def build(training=SETTINGS, n_threads=1, **changes):
    options = {
        'tissues': ['GM'],
        'template_name': 'MNI152NLin2009cAsym',
        'smoothing': 0.0,
        'permutations': 0,
        'split_half': False,
        'paint': True,
        'cache_dir': HERE,
        'random_seed': 3,
        **changes,
    }
    options['stamps'] = dict.fromkeys(options['tissues'], 'x')
    return init_group_wf(
        cohort_dir=HERE,
        output_dir='out',
        training=training,
        checkpoint_dir='checkpoints',
        model_dir=None if training else HERE,
        follow_up=options,
        report={'title': 'Study', 'template': 'MNI152NLin2009cAsym', 'methods': {}},
        n_threads=n_threads,
    )


@pytest.mark.parametrize('trained', [True, False])
@pytest.mark.parametrize('changes', COMBINATIONS, ids=lambda changes: str(list(changes.values())))
def test_each_combination_of_options_builds(trained, changes):
    if not trained:
        changes = {**changes, 'split_half': False}
    workflow = build(SETTINGS if trained else None, **changes)
    assert _undeclared_ports(workflow) == []
    assert _unset_inputs(workflow) == []
    nodes = _nodes(workflow)
    assert ('apply_model' in nodes) == (not trained)
    assert {f'compare_{tissue.lower()}' for tissue in changes['tissues']} <= nodes
    assert ('compare_halves' in nodes) == changes['split_half']
    assert ('paint' in nodes) == changes['paint']


@pytest.mark.parametrize('n_patterns', [[2], [2, 3, 4], [5, 1]])
@pytest.mark.parametrize('n_threads', [1, 4])
def test_each_number_of_patterns_is_a_node(n_patterns, n_threads):
    workflow = build({**SETTINGS, 'n_patterns': n_patterns}, n_threads)
    training = [name for name in _nodes(workflow) if name.startswith('train_')]
    assert sorted(training) == sorted(f'train_{m}_patterns' for m in n_patterns)
    for name in training:
        node = workflow.get_node(f'training_wf.{name}')
        assert (node.n_procs, node.inputs.n_threads) == (n_threads, n_threads)


def test_the_example_of_the_docstring_runs():
    assert doctest.testmod(group).failed == 0
