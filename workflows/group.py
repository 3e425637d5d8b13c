"""The graph of the group level: from a cohort to R-indices, maps and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nipype.interfaces.utility import IdentityInterface, Merge
from nipype.pipeline import engine as pe

from surreal_bids.interfaces.group import PATTERNS, AnalyseGroup, TrainPart, WriteIndividuals
from surreal_bids.model.networks import RANDOM_CANDIDATES


def init_group_wf(
    *,
    cohort_dir: str,
    output_dir: str,
    model: pe.Workflow | str,
    analysis: Mapping[str, Any],
    individuals: Mapping[str, Any],
    n_threads: int = 1,
) -> pe.Workflow:
    """Build the whole group level.

    Workflow Graph
    --------------
    >>> from surreal_bids.workflows.group import init_group_wf, init_training_wf
    >>> options = dict(n_patterns=[2, 3], ortho=[0.2], repetitions=2, iterations=100)
    >>> training_wf = init_training_wf(
    ...     cohort_dir='.', options=options, checkpoint_dir='checkpoints'
    ... )
    >>> wf = init_group_wf(
    ...     cohort_dir='.', output_dir='out', model=training_wf,
    ...     analysis=dict(title='Study', options=options, methods={}),
    ...     individuals=dict(participants=['sub-01'], failures_dir='failures'),
    ... )

    Parameters
    ----------
    cohort_dir
        The participants, as :class:`surreal_bids.cohort.cohort.Cohort` saves them.
    output_dir
        Root of the outputs, where the RAVENS maps of participants are.
    model
        What trains a model (:func:`init_training_wf`), or the card of one to apply.
    analysis
        Inputs of `AnalyseGroup`.
    individuals
        `participants` whose reports get their R-indices, and inputs of `WriteIndividuals`.
    n_threads
        Threads of the long steps.

    Outputs
    -------
    report_file
        The report among the outputs.
    """
    workflow = pe.Workflow(name='group_wf')
    outputnode = pe.Node(IdentityInterface(fields=['report_file']), name='outputnode')
    analyse = pe.Node(
        AnalyseGroup(cohort_dir=cohort_dir, output_dir=output_dir, n_threads=n_threads, **analysis),
        name='analyse',
        n_procs=n_threads,
        mem_gb=4,
    )
    workflow.connect([(analyse, outputnode, [('out_file', 'report_file')])])
    add_reports = _init_report_nodes(output_dir, individuals, n_threads)
    for node in add_reports:
        workflow.connect([(analyse, node, [('individuals_file', 'individuals_file')])])
    if isinstance(model, str):
        for node in (analyse, *add_reports):
            node.inputs.model_card = model
        return workflow
    given = model.get_node('outputnode').inputs.copyable_trait_names()
    workflow.connect([(model, analyse, [(f'outputnode.{name}', name) for name in given])])
    workflow.connect(
        [(model, node, [('outputnode.model_card', 'model_card')]) for node in add_reports]
    )
    return workflow


MIN_REPORTS = 8
"""Reports that one node writes at least, if there are so many: each has to start first."""


def _init_report_nodes(
    output_dir: str, individuals: Mapping[str, Any], n_threads: int
) -> list[pe.Node]:
    """Nodes that share out the reports of participants."""
    count = min(n_threads, -(-len(individuals['participants']) // MIN_REPORTS))
    return [
        pe.Node(
            WriteIndividuals(output_dir=output_dir, part=number, parts=count, **individuals),
            name=f'reports_{number + 1}',
            mem_gb=1,
        )
        for number in range(count)
    ]


def separate_numbers(options: Mapping[str, Any]) -> tuple[int, ...]:
    """Numbers of patterns whose members are trained in a node of their own; none with `sparse`."""
    if options.get('preset') == 'sparse':
        return ()
    return tuple(dict.fromkeys(options['n_patterns'] or RANDOM_CANDIDATES))


def init_training_wf(
    *,
    cohort_dir: str,
    options: Mapping[str, Any],
    checkpoint_dir: str,
    n_folds: int = 0,
    n_threads: int = 1,
    name: str = 'training_wf',
) -> pe.Workflow:
    """Train the model of all participants, then those of folds.

    With the preset `sparse` the number of patterns is chosen before training, in one node. With
    others, members of each number are trained in a node of its own.

    Parameters
    ----------
    cohort_dir
        The participants, as :class:`surreal_bids.cohort.cohort.Cohort` saves them.
    options
        Fields of `TrainingOptions`.
    checkpoint_dir
        Where members are kept; a node that was killed resumes from there.
    n_folds
        Number of folds.
    n_threads
        Threads of each training node.
    name
        Name of the workflow.

    Outputs
    -------
    model_card
        Card of the model, which is beside.
    fold_cards
        Cards of the models of folds, with M and lambda of the model; only if there are folds.
    """
    workflow = pe.Workflow(name=name)
    fields = ['model_card', *(['fold_cards'] if n_folds else [])]
    outputnode = pe.Node(IdentityInterface(fields=fields), name='outputnode')

    def init_part_node(part: str) -> pe.Node:
        step = TrainPart(
            cohort_dir=cohort_dir,
            part=part,
            options=dict(options),
            checkpoint_dir=checkpoint_dir,
            n_threads=n_threads,
        )
        return pe.Node(step, name=part.replace('-', '_'), n_procs=n_threads, mem_gb=2)

    model = init_part_node('model')
    workflow.connect([(model, outputnode, [('out_file', 'model_card')])])
    candidates = [init_part_node(f'{PATTERNS}-{m}') for m in separate_numbers(options)]
    _merge_parts(workflow, candidates, model, 'checkpoint_files')
    folds = [init_part_node(f'fold-{number}') for number in range(1, n_folds + 1)]
    _merge_parts(workflow, folds, outputnode, 'fold_cards')
    workflow.connect([(model, node, [('out_file', 'model_card')]) for node in folds])
    return workflow


def _merge_parts(
    workflow: pe.Workflow, nodes: Sequence[pe.Node], target: pe.Node, port: str
) -> None:
    """Connect the files of several nodes to one port, as a list."""
    if not nodes:
        return
    merge = pe.Node(Merge(len(nodes)), name=f'merge_{port}')
    for place, node in enumerate(nodes, start=1):
        workflow.connect([(node, merge, [('out_file', f'in{place}')])])
    workflow.connect([(merge, target, [('out', port)])])
