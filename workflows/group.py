"""The graph of the group level: from training data to R-indices, maps and a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nipype.interfaces.utility import IdentityInterface, Merge
from nipype.pipeline import engine as pe

from surreal_bids.interfaces.group import (
    FitFold,
    MapPatterns,
    PublishGroup,
    SelectModel,
    TrainPatterns,
)
from surreal_bids.interfaces.participant_reports import WriteIndividuals


def init_group_wf(
    *,
    cohort_dir: str,
    output_dir: str,
    model: pe.Workflow | str,
    maps: Mapping[str, Any],
    report: Mapping[str, Any],
    individuals: Mapping[str, Any],
    n_threads: int = 1,
) -> pe.Workflow:
    """Build the whole group level.

    Workflow Graph
    --------------
    >>> from surreal_bids.workflows.group import init_group_wf, init_training_wf
    >>> options = dict(n_patterns=[2, 3], ortho=[0.2], repetitions=2, iterations=100)
    >>> training_wf = init_training_wf(
    ...     data_file=__file__, options=options, checkpoint_dir='checkpoints'
    ... )
    >>> wf = init_group_wf(
    ...     cohort_dir='.', output_dir='out', model=training_wf,
    ...     maps=dict(stamps={'GM': ''}, template='MNI152NLin2009cAsym', smoothing=8.0),
    ...     report=dict(title='Study', template='MNI152NLin2009cAsym',
    ...                 template_name='MNI152NLin2009cAsym', methods={}),
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
    maps
        `stamps` (of the RAVENS maps of each tissue to compare), and inputs of `MapPatterns`.
    report
        Inputs of `PublishGroup`.
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
    stamps = maps['stamps']
    publish = pe.Node(
        PublishGroup(cohort_dir=cohort_dir, output_dir=output_dir, tissues=list(stamps), **report),
        name='publish',
        mem_gb=2,
    )
    workflow.connect([(publish, outputnode, [('out_file', 'report_file')])])
    add_reports = _init_report_nodes(output_dir, individuals, n_threads)
    for node in add_reports:
        workflow.connect([(publish, node, [('deviations_file', 'deviations_file')])])
    compare = [_init_map_node(cohort_dir, output_dir, maps, tissue, n_threads) for tissue in stamps]
    if compare:
        merge_maps = pe.Node(Merge(len(compare)), name='merge_maps')
        workflow.connect([
            *((node, merge_maps, [('maps_dir', f'in{i}')]) for i, node in enumerate(compare, 1)),
            (merge_maps, publish, [('out', 'maps_dirs')]),
        ])  # fmt: skip
    if isinstance(model, str):
        for node in (publish, *compare, *add_reports):
            node.inputs.model_card = model
        return workflow
    workflow.connect(
        [(model, node, [('outputnode.model_card', 'model_card')]) for node in add_reports]
    )
    given = model.get_node('outputnode').inputs.copyable_trait_names()
    for node in (publish, *compare):
        names = [name for name in ('model_card', 'folds_file', 'fold_cards') if name in given]
        workflow.connect([(model, node, [(f'outputnode.{name}', name) for name in names])])
    if 'half_cards' in given:
        workflow.connect([(model, publish, [('outputnode.half_cards', 'half_cards')])])
    return workflow


def _init_map_node(
    cohort_dir: str, output_dir: str, maps: Mapping[str, Any], tissue: str, n_threads: int
) -> pe.Node:
    """A node for the voxelwise maps of one tissue."""
    options = {name: value for name, value in maps.items() if name != 'stamps'}
    return pe.Node(
        MapPatterns(
            cohort_dir=cohort_dir,
            output_dir=output_dir,
            tissue=tissue,
            stamp=maps['stamps'][tissue],
            n_threads=n_threads,
            **options,
        ),
        name=f'compare_{tissue.lower()}',
        n_procs=n_threads,
        mem_gb=4,
    )


MIN_REPORTS = 8
"""Reports that one node writes at least, if there are so many: each has to start first."""


def _init_report_nodes(
    output_dir: str, individuals: Mapping[str, Any], n_threads: int
) -> list[pe.Node]:
    """Nodes that share out the reports of participants."""
    participants = individuals['participants']
    options = {name: value for name, value in individuals.items() if name != 'participants'}
    count = min(n_threads, -(-len(participants) // MIN_REPORTS))
    return [
        pe.Node(
            WriteIndividuals(
                output_dir=output_dir, participants=list(participants[number::count]), **options
            ),
            name=f'reports_{number + 1}',
            mem_gb=1,
        )
        for number in range(count)
    ]


def trains_each_number(options: Mapping[str, Any]) -> bool:
    """Whether members of every number of patterns are trained, each number by itself."""
    return options.get('preset') != 'sparse' and len(options['n_patterns']) > 0


def init_training_wf(
    *,
    data_file: str,
    options: Mapping[str, Any],
    checkpoint_dir: str,
    folds_file: str | None = None,
    fold_files: Mapping[int, str] | None = None,
    half_files: Sequence[str] = (),
    n_threads: int = 1,
    name: str = 'training_wf',
) -> pe.Workflow:
    """Train each number of patterns in a node of its own, and choose; then folds and halves.

    With the preset `sparse` the number is chosen before training, and one node does both.

    Parameters
    ----------
    data_file
        What to train on, as :class:`surreal_bids.rindices.model.TrainingData` saves it.
    options
        Fields of `TrainingOptions`.
    checkpoint_dir
        Where members are kept; a node that was killed resumes from there.
    folds_file
        Who is in which fold, as :class:`~surreal_bids.rindices.crossfit.Folds` saves it; None: no
        folds.
    fold_files, half_files
        What to train on without each fold, by its number; and in each half.
    n_threads
        Threads of each training node.
    name
        Name of the workflow.

    Outputs
    -------
    model_card
        Card of the model, which is beside.
    folds_file, fold_cards
        As given; and cards of the models of folds, with M and lambda of the model. Only if there
        are folds.
    half_cards
        Cards of the models of halves, with their own M and lambda; only if there are halves.
    """
    workflow = pe.Workflow(name=name)
    fold_files = fold_files or {}
    outputs = {
        'model_card': True,
        'folds_file': folds_file is not None,
        'fold_cards': bool(fold_files),
        'half_cards': bool(half_files),
    }
    fields = [name for name, is_there in outputs.items() if is_there]
    outputnode = pe.Node(IdentityInterface(fields=fields), name='outputnode')
    if folds_file is not None:
        outputnode.inputs.folds_file = folds_file
    shared = {'options': dict(options), 'n_threads': n_threads}
    resources = {'n_procs': n_threads, 'mem_gb': 2}
    select = pe.Node(
        SelectModel(data_file=data_file, checkpoint_dir=checkpoint_dir, **shared),
        name='select',
        **resources,
    )
    workflow.connect([(select, outputnode, [('model_card', 'model_card')])])
    numbers = options['n_patterns'] if trains_each_number(options) else ()
    candidates = pe.Node(Merge(len(numbers)), name='candidates')
    for number, n_patterns in enumerate(numbers, start=1):
        train = pe.Node(
            TrainPatterns(
                data_file=data_file, checkpoint_dir=checkpoint_dir, n_patterns=n_patterns, **shared
            ),
            name=f'train_{n_patterns}_patterns',
            **resources,
        )
        workflow.connect([(train, candidates, [('checkpoint_file', f'in{number}')])])
    if numbers:
        workflow.connect([(candidates, select, [('out', 'checkpoint_files')])])
    folds = {
        f'fold_{number}': FitFold(
            data_file=path, checkpoint_dir=checkpoint_dir, fold=number, **shared
        )
        for number, path in fold_files.items()
    }
    halves = {
        f'half_{number}': SelectModel(
            data_file=path, checkpoint_dir=f'{checkpoint_dir}/half-{number}', half=number, **shared
        )
        for number, path in enumerate(half_files, start=1)
    }
    for merged, steps in {'fold_cards': folds, 'half_cards': halves}.items():
        merge = pe.Node(Merge(len(steps)), name=merged)
        for number, (label, step) in enumerate(steps.items(), start=1):
            node = pe.Node(step, name=label, **resources)
            workflow.connect([(node, merge, [('model_card', f'in{number}')])])
            if steps is folds:
                workflow.connect([(select, node, [('model_card', 'final_card')])])
        if steps:
            workflow.connect([(merge, outputnode, [('out', merged)])])
    return workflow
