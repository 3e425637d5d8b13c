import doctest
import importlib
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from nipype.interfaces.base import Undefined, isdefined
from nipype.pipeline.engine.utils import generate_expanded_graph

from surreal_bids.bids.derivatives import Reusable
from surreal_bids.bids.outputs import Provenance
from surreal_bids.workflows.anatomy import AtlasFiles
from surreal_bids.workflows.participant import AnatomySettings, init_participant_wf

HERE = Path(__file__)
ATLASES = (AtlasFiles(HERE, HERE), AtlasFiles(HERE, HERE))
SETTINGS = AnatomySettings(HERE.parent, ATLASES, HERE)
PROVENANCE = Provenance([], [], [], 'muse', '')
COMPUTED = {
    'mask': 'find_brain',
    't1w': 'n4',
    'transforms': 'register_template',
    'tpms': 'classify',
    'dseg': 'fuse',
}
GIVEN = {
    'mask': {'mask': HERE, 'anatomy_name': 'fmriprep'},
    't1w': {'t1w': HERE, 'anatomy_name': 'fmriprep'},
    'transforms': {'anat2std_xfm': HERE, 'std2anat_xfm': HERE},
    'tpms': {'tpms': (HERE, HERE, HERE)},
    'dseg': {'dseg': HERE, 'dseg_name': 'dlmuse'},
}
LESION = {'lesion': HERE}
MODULES = ('anatomy', 'participant')
SUBSETS = [names for size in range(len(GIVEN) + 1) for names in itertools.combinations(GIVEN, size)]


@pytest.fixture(autouse=True)
def template(monkeypatch):
    """Let this file be the T1w image of the template."""
    monkeypatch.setattr('surreal_bids.workflows.participant.T1W', HERE.name)


def _participant(given=(), settings=SETTINGS, session=None):
    known = {**GIVEN, 'lesion': LESION}
    fields = {key: value for name in given for key, value in known[name].items()}
    return init_participant_wf(
        t1w=HERE,
        output_dir=Path('out'),
        entities={'participant': '01', 'session': session},
        settings=settings,
        reusable=Reusable(**fields),
        provenance=PROVENANCE,
        made_from={},
    )


def _nodes(workflow):
    return {node.name for node in generate_expanded_graph(workflow._create_flat_graph()).nodes()}


def _undeclared_ports(workflow):
    """Connections to or from a port that an interface does not have; Nipype lets some pass."""
    wrong = []
    for source, target, data in workflow._create_flat_graph().edges(data=True):
        for output, field in data['connect']:
            if output not in source.interface._outputs().copyable_trait_names():
                wrong.append(f'{source}.{output}')
            if field not in target.inputs.copyable_trait_names():
                wrong.append(f'{target}.{field}')
    return wrong


def _ports_into(workflow, name):
    """Ports of a node that are connected."""
    graph = workflow._create_flat_graph()
    node = next(node for node in graph.nodes() if node.name == name)
    return {port for *_, data in graph.in_edges(node, data=True) for _, port in data['connect']}


def _unset_inputs(workflow):
    """Mandatory inputs that are neither set nor connected once identity nodes are gone."""
    graph = generate_expanded_graph(workflow._create_flat_graph())
    missing = []
    for node in graph.nodes():
        connected = {
            field for *_, data in graph.in_edges(node, data=True) for _, field in data['connect']
        }
        for name in node.interface.inputs.traits(mandatory=True):
            # A MapNode keeps what it iterates over itself, and the rest in its interface.
            values = (getattr(node.inputs, name), getattr(node.interface.inputs, name))
            if name not in connected and not any(map(isdefined, values)):
                missing.append(f'{node}.{name}')
    return missing


@pytest.mark.slow
def test_each_combination_of_what_exists_builds():
    for given in SUBSETS:
        workflow = _participant(given)
        assert _undeclared_ports(workflow) == [], given
        assert _unset_inputs(workflow) == [], given
        computed = COMPUTED.keys() - given
        assert _nodes(workflow) & {*COMPUTED.values()} == {COMPUTED[name] for name in computed}


@pytest.mark.parametrize('given', [(), ('mask', 't1w'), ('dseg',)])
def test_the_network_takes_the_place_of_atlases(given):
    workflow = _participant(given, replace(SETTINGS, network=True, omp_nthreads=3))
    assert _undeclared_ports(workflow) == []
    assert _unset_inputs(workflow) == []
    nodes = _nodes(workflow)
    assert 'fuse' not in nodes
    assert ('label' in nodes) == ('dseg' not in given)
    if not given:
        assert workflow.get_node('segmentation_wf.label').n_procs == 3


def test_options_reach_their_nodes():
    session, omp_nthreads = 'pre', 4
    settings = replace(SETTINGS, omp_nthreads=omp_nthreads)
    workflow = _participant(settings=settings, session=session)
    assert _undeclared_ports(workflow) == []
    assert workflow.get_node('segmentation_wf.register_atlas').n_procs == 1
    assert _ports_into(workflow, 'register_atlas') == {'t1w_file', 'mask_file'}
    assert workflow.get_node('registration_wf.register_template').n_procs == omp_nthreads
    assert workflow.get_node('outputs_wf.save_t1w').inputs.entities['session'] == session


@pytest.mark.parametrize('name', MODULES)
def test_graphs_of_docstrings_build(name):
    module = importlib.import_module(f'surreal_bids.workflows.{name}')
    examples = {e.name.split('.')[-1]: e for e in doctest.DocTestFinder().find(module)}
    factories = [factory for factory in examples if factory.startswith('init_')]
    assert factories
    for factory in factories:
        example = examples[factory]
        example.globs['__file__'] = str(HERE)
        assert doctest.DocTestRunner().run(example, clear_globs=False).failed == 0
        assert _undeclared_ports(example.globs['wf']) == []


@pytest.mark.parametrize('given', [(), ('lesion',), ('lesion', 'mask', 'dseg')])
@pytest.mark.parametrize('network', [True, False])
def test_a_lesion_mask_reaches_all_steps_that_see_the_brain(given, network):
    workflow = _participant(given, replace(SETTINGS, network=network))
    graph = workflow._create_flat_graph()
    files = {node.name: getattr(node.inputs, 'lesion_file', Undefined) for node in graph.nodes()}
    told = {name for name, file in files.items() if isdefined(file)}
    segmentation = {'label'} if network else {'register_atlas', 'fuse'}
    computed = {'find_brain', 'n4', 'register_template', 'classify', 'measure_quality'}
    if 'dseg' in given:
        segmentation, computed = {'measure'}, computed - {'find_brain'}
    assert told == (computed | segmentation if given else set())
