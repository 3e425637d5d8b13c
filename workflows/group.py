"""The graph of the group level: from a cohort to R-indices, maps and a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nipype.interfaces.utility import IdentityInterface, Merge
from nipype.pipeline import engine as pe

from surreal_bids.interfaces.group import (
    ApplyModel,
    Associate,
    CompareHalves,
    DescribePatterns,
    HarmonizeVolumes,
    MapPatterns,
    PaintPatterns,
    PublishResults,
    ReportGroup,
    SelectModel,
    TrainHalf,
    TrainMembers,
)

HALVES = (1, 2)

MODEL_FIELDS = ['model_dir', 'rindices_file', 'harmonized_file', 'normalised_file', 'quality_file']
"""What a model gives, whether it was trained or applied."""


def init_group_wf(
    *,
    cohort_dir: str,
    output_dir: str,
    training: Mapping[str, Any] | None,
    checkpoint_dir: str,
    model_dir: str | None = None,
    follow_up: Mapping[str, Any],
    report: Mapping[str, Any],
    n_threads: int = 1,
) -> pe.Workflow:
    """Build the whole group level.

    Workflow Graph
    --------------
    >>> from surreal_bids.workflows.group import init_group_wf
    >>> settings = dict(n_patterns=[2, 3], ortho=[0.2], repetitions=2, iterations=100,
    ...                 preset='robust', device='cpu', random_seed=0)
    >>> wf = init_group_wf(
    ...     cohort_dir='.', output_dir='out', training=settings, checkpoint_dir='work',
    ...     follow_up=dict(tissues=['GM'], stamps={'GM': ''}, template_name='MNI152NLin2009cAsym',
    ...                    smoothing=8.0, permutations=0, split_half=False,
    ...                    paint=True, cache_dir='work', random_seed=0),
    ...     report=dict(title='Study', template='MNI152NLin2009cAsym', methods={}),
    ... )

    Parameters
    ----------
    cohort_dir
        The people, as :class:`surreal_bids.tables.cohort.Cohort` saves them.
    output_dir
        Root of the outputs.
    training
        Fields of `TrainingSettings`; None: a model is applied.
    checkpoint_dir
        Where members are kept while they are trained.
    model_dir
        The model to apply, where nothing is trained.
    follow_up
        What is done with R-indices: `tissues`, `stamps`, `template_name`, `smoothing`,
        `permutations`, `split_half`, `paint`, `cache_dir` and `random_seed`.
    report
        `title`, `template` and `methods` of the report.
    n_threads
        Threads of the long steps.

    Outputs
    -------
    rindices_file, report_file
        R-indices and page among the outputs.
    """
    workflow = pe.Workflow(name='group_wf')
    inputnode = pe.Node(IdentityInterface(fields=['cohort_dir']), name='inputnode')
    inputnode.inputs.cohort_dir = cohort_dir
    outputnode = pe.Node(
        IdentityInterface(fields=['rindices_file', 'report_file']), name='outputnode'
    )
    if training is not None:
        model_wf = init_training_wf(
            settings=training, checkpoint_dir=checkpoint_dir, n_threads=n_threads
        )
    else:
        model_wf = init_model_wf(model_dir=str(model_dir))
    publish = pe.Node(PublishResults(output_dir=output_dir), name='publish')
    follow_up_wf = init_follow_up_wf(
        output_dir=output_dir, training=training, checkpoint_dir=checkpoint_dir,
        options=follow_up, n_threads=n_threads,
    )  # fmt: skip
    report_node = pe.Node(
        ReportGroup(
            output_dir=output_dir,
            template_name=follow_up['template_name'],
            tissues=list(follow_up['tissues']),
            **report,
        ),
        name='report',
    )
    results = ['harmonized_file', 'rindices_file', 'model_dir']
    found = _found_fields(follow_up)
    workflow.connect([
        (inputnode, model_wf, [('cohort_dir', 'inputnode.cohort_dir')]),
        (inputnode, publish, [('cohort_dir', 'cohort_dir')]),
        (model_wf, publish, [(f'outputnode.{field}', field) for field in results]),
        (inputnode, follow_up_wf, [('cohort_dir', 'inputnode.cohort_dir')]),
        (model_wf, follow_up_wf, [
            (f'outputnode.{field}', f'inputnode.{field}')
            for field in ('rindices_file', 'model_dir', 'normalised_file')
        ]),
        (inputnode, report_node, [('cohort_dir', 'cohort_dir')]),
        (model_wf, report_node, [
            (f'outputnode.{field}', field)
            for field in ('rindices_file', 'model_dir', 'quality_file')
        ]),
        (follow_up_wf, report_node, [(f'outputnode.{field}', field) for field in found]),
        (publish, outputnode, [('out_file', 'rindices_file')]),
        (report_node, outputnode, [('out_file', 'report_file')]),
    ])  # fmt: skip
    return workflow


def init_training_wf(
    *,
    settings: Mapping[str, Any],
    checkpoint_dir: str,
    n_threads: int = 1,
    name: str = 'training_wf',
) -> pe.Workflow:
    """Harmonize, train each number of patterns in a node of its own, and choose.

    Parameters
    ----------
    settings
        Fields of `TrainingSettings`.
    checkpoint_dir
        Where members are kept; a node that was killed goes on from there.
    n_threads
        Threads of each training node.

    Inputs
    ------
    cohort_dir
        The people.

    Outputs
    -------
    model_dir, rindices_file, harmonized_file, normalised_file, quality_file
        The model, and what it saw and gave; the last is undefined without several sites.
    """
    workflow = pe.Workflow(name=name)
    settings = dict(settings)
    inputnode = pe.Node(IdentityInterface(fields=['cohort_dir']), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=MODEL_FIELDS), name='outputnode')
    harmonize = pe.Node(
        HarmonizeVolumes(random_seed=settings['random_seed']), name='harmonize', mem_gb=1
    )
    checkpoints = pe.Node(Merge(len(settings['n_patterns'])), name='checkpoints')
    select = pe.Node(
        SelectModel(settings=settings, checkpoint_dir=checkpoint_dir), name='select', mem_gb=2
    )
    for number, n_patterns in enumerate(settings['n_patterns'], start=1):
        train = pe.Node(
            TrainMembers(
                settings=settings,
                n_patterns=n_patterns,
                checkpoint_dir=checkpoint_dir,
                n_threads=n_threads,
            ),
            name=f'train_{n_patterns}_patterns',
            n_procs=n_threads,
            mem_gb=2,
        )
        workflow.connect([
            (inputnode, train, [('cohort_dir', 'cohort_dir')]),
            (train, checkpoints, [('checkpoint_file', f'in{number}')]),
        ])  # fmt: skip
    workflow.connect([
        (inputnode, harmonize, [('cohort_dir', 'cohort_dir')]),
        (inputnode, select, [('cohort_dir', 'cohort_dir')]),
        (checkpoints, select, [('out', 'checkpoint_files')]),
        (select, outputnode, [('model_dir', 'model_dir'), ('rindices_file', 'rindices_file')]),
        (harmonize, outputnode, [
            ('out_file', 'harmonized_file'),
            ('normalised_file', 'normalised_file'),
            ('quality_file', 'quality_file'),
        ]),
    ])  # fmt: skip
    return workflow


def init_model_wf(*, model_dir: str, name: str = 'model_wf') -> pe.Workflow:
    """Apply a model instead of training one.

    Parameters
    ----------
    model_dir
        The model.

    Inputs
    ------
    cohort_dir
        The people.

    Outputs
    -------
    model_dir, rindices_file, harmonized_file, normalised_file, quality_file
        As of the training workflow; the last stays undefined.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=['cohort_dir']), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=MODEL_FIELDS), name='outputnode')
    apply_model = pe.Node(ApplyModel(model_dir=model_dir), name='apply_model', mem_gb=1)
    fields = ['model_dir', 'rindices_file', 'harmonized_file', 'normalised_file']
    workflow.connect([
        (inputnode, apply_model, [('cohort_dir', 'cohort_dir')]),
        (apply_model, outputnode, [(field, field) for field in fields]),
    ])  # fmt: skip
    return workflow


def _found_fields(options: Mapping[str, Any]) -> list[str]:
    """Outputs of the follow-up that there are with these options."""
    fields = ['patterns_file', 'associations_file', 'untested_file']
    fields += ['pattern_maps'] if options['paint'] else []
    fields += ['maps_dirs'] if options['tissues'] else []
    return fields + (['halves_file'] if options['split_half'] else [])


def init_follow_up_wf(
    *,
    output_dir: str,
    training: Mapping[str, Any] | None,
    checkpoint_dir: str,
    options: Mapping[str, Any],
    n_threads: int = 1,
    name: str = 'follow_up_wf',
) -> pe.Workflow:
    """Tell what patterns are, and what they go along with.

    Parameters
    ----------
    output_dir
        Where the RAVENS maps of people are.
    training, checkpoint_dir, n_threads
        For the models of halves.
    options
        See :func:`init_group_wf`.

    Inputs
    ------
    cohort_dir, model_dir, rindices_file, normalised_file
        The people, the model, and what it saw and gave.

    Outputs
    -------
    patterns_file, associations_file, untested_file
        Tables.
    pattern_maps, maps_dirs, halves_file
        What was asked for.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(
        IdentityInterface(fields=['cohort_dir', 'model_dir', 'rindices_file', 'normalised_file']),
        name='inputnode',
    )
    outputnode = pe.Node(IdentityInterface(fields=_found_fields(options)), name='outputnode')
    describe = pe.Node(DescribePatterns(), name='describe', mem_gb=1)
    associate = pe.Node(Associate(), name='associate')
    workflow.connect([
        (inputnode, describe, [
            (field, field) for field in ('cohort_dir', 'model_dir', 'normalised_file')
        ]),
        (inputnode, associate, [
            ('cohort_dir', 'cohort_dir'), ('rindices_file', 'rindices_file'),
        ]),
        (describe, outputnode, [('out_file', 'patterns_file')]),
        (associate, outputnode, [
            ('out_file', 'associations_file'), ('skipped_file', 'untested_file'),
        ]),
    ])  # fmt: skip
    if options['paint']:
        paint = pe.Node(PaintPatterns(cache_dir=options['cache_dir']), name='paint', mem_gb=1)
        workflow.connect([
            (describe, paint, [('out_file', 'patterns_file')]),
            (paint, outputnode, [('out_files', 'pattern_maps')]),
        ])  # fmt: skip
    if options['tissues']:
        _connect_maps(workflow, output_dir, options, n_threads)
    if options['split_half'] and training is not None:
        _connect_halves(workflow, training, checkpoint_dir, n_threads)
    return workflow


def _connect_maps(
    workflow: pe.Workflow, output_dir: str, options: Mapping[str, Any], n_threads: int
) -> None:
    """Add a node for the voxelwise maps of each tissue."""
    inputnode, outputnode = workflow.get_node('inputnode'), workflow.get_node('outputnode')
    tissues: Sequence[str] = options['tissues']
    maps = pe.Node(Merge(len(tissues)), name='maps')
    for number, tissue in enumerate(tissues, start=1):
        compare = pe.Node(
            MapPatterns(
                output_dir=output_dir,
                template=options['template_name'],
                tissue=tissue,
                smoothing=options['smoothing'],
                permutations=options['permutations'],
                random_seed=options['random_seed'],
                stamp=options['stamps'][tissue],
                n_threads=n_threads,
            ),
            name=f'compare_{tissue.lower()}',
            n_procs=n_threads,
            mem_gb=4,
        )
        workflow.connect([
            (inputnode, compare, [
                ('cohort_dir', 'cohort_dir'), ('rindices_file', 'rindices_file'),
            ]),
            (compare, maps, [('maps_dir', f'in{number}')]),
        ])  # fmt: skip
    workflow.connect([(maps, outputnode, [('out', 'maps_dirs')])])


def _connect_halves(
    workflow: pe.Workflow, training: Mapping[str, Any], checkpoint_dir: str, n_threads: int
) -> None:
    """Add a training node for each half of the people, and one that compares them."""
    inputnode, outputnode = workflow.get_node('inputnode'), workflow.get_node('outputnode')
    halves = pe.Node(Merge(len(HALVES)), name='halves')
    compare_halves = pe.Node(
        CompareHalves(random_seed=training['random_seed']), name='compare_halves'
    )
    for half in HALVES:
        train = pe.Node(
            TrainHalf(
                settings=dict(training), half=half, checkpoint_dir=checkpoint_dir,
                n_threads=n_threads,
            ),
            name=f'train_half_{half}', n_procs=n_threads, mem_gb=2,
        )  # fmt: skip
        workflow.connect([
            (inputnode, train, [('cohort_dir', 'cohort_dir'), ('model_dir', 'model_dir')]),
            (train, halves, [('rindices_file', f'in{half}')]),
        ])  # fmt: skip
    workflow.connect([
        (inputnode, compare_halves, [
            ('cohort_dir', 'cohort_dir'), ('rindices_file', 'rindices_file'),
        ]),
        (halves, compare_halves, [('out', 'half_files')]),
        (compare_halves, outputnode, [('out_file', 'halves_file')]),
    ])  # fmt: skip
