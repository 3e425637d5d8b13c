"""Workflows of the participant level: from a T1w image to ROI volumes, RAVENS maps and reports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nipype.interfaces.base import isdefined
from nipype.interfaces.utility import IdentityInterface, Merge
from nipype.pipeline import engine as pe

from surreal_bids.bids.derivatives import Reusable
from surreal_bids.bids.outputs import Provenance
from surreal_bids.interfaces.outputs import SaveOutput, WriteRecord, WriteReport
from surreal_bids.templates import T1W, TISSUES
from surreal_bids.workflows.anatomy import (
    AtlasFiles,
    init_bias_correction_wf,
    init_brain_wf,
    init_existing_segmentation_wf,
    init_network_segmentation_wf,
    init_quality_wf,
    init_ravens_wf,
    init_registration_wf,
    init_segmentation_wf,
    init_tissue_wf,
    init_transforms_wf,
)

SAVE_GB = 0.8
"""Memory of a copy; transforms are compressed."""

SAVED = {
    't1w': 't1w_preproc',
    'brain_mask': 't1w_mask',
    'tissue_probability': 't1w_tpms',
    'transform_to_template': 'anat2std_xfm',
    'transform_from_template': 'std2anat_xfm',
    'segmentation': 'dseg',
    'segmentation_volumes': 'volumes',
    'ravens': 'ravens',
    'quality': 'quality',
}
"""Names of outputs, and the result that each one stores."""

RESULTS = [*SAVED.values(), 'mask_method', 'atlases']
"""Results of the anatomical workflows."""


def init_outputs_wf(
    *,
    output_dir: Path,
    entities: Mapping[str, str | None],
    provenance: Provenance,
    made_from: Mapping[str, Any],
    name: str = 'outputs_wf',
) -> pe.Workflow:
    """Save all results of one T1w image.

    Workflow Graph
        >>> from pathlib import Path
        >>> from surreal_bids.bids.outputs import Provenance
        >>> from surreal_bids.workflows.participant import init_outputs_wf
        >>> wf = init_outputs_wf(
        ...     output_dir=Path('out'),
        ...     entities={'participant': '01', 'session': None},
        ...     provenance=Provenance([], [], [], 'muse', ''),
        ...     made_from={},
        ... )

    Parameters
    ----------
    output_dir
        Root of the outputs.
    entities
        Participant and session.
    provenance
        Sources and licences of the outputs.
    made_from
        Fingerprint of everything that the outputs depend on.
    name
        Name of the workflow.

    Inputs
    ------
    t1w_preproc, t1w_mask, mask_method, t1w_tpms, anat2std_xfm, std2anat_xfm, dseg, volumes, \
    atlases, ravens, quality
        Results of the anatomical workflows.

    Outputs
    -------
    record
        Record of all outputs, which is written last.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=RESULTS), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=['record']), name='outputnode')
    merge = pe.Node(Merge(len(SAVED), ravel_inputs=True), name='merge', run_without_submitting=True)
    record = pe.Node(
        WriteRecord(output_dir=str(output_dir), entities=dict(entities), made_from=dict(made_from)),
        name='record',
        run_without_submitting=True,
    )
    workflow.connect(
        [
            (merge, record, [('out', 'out_files')]),
            (record, outputnode, [('out_file', 'record')]),
        ]
    )
    for number, (output_name, result) in enumerate(SAVED.items(), start=1):
        save = _save_node(output_dir, output_name, entities, provenance)
        given = [(result, 'in_file'), *((each, each) for each in ('mask_method', 'atlases'))]
        workflow.connect([(inputnode, save, given), (save, merge, [('out_files', f'in{number}')])])
    return workflow


def _save_node(
    output_dir: Path, output_name: str, entities: Mapping[str, str | None], provenance: Provenance
) -> pe.Node:
    """Build a node that saves an output, or one file per tissue."""
    labels = dict(entities)
    if output_name.startswith('segmentation'):
        labels['atlas'] = provenance.atlas
    interface = SaveOutput(
        output_dir=str(output_dir), output_name=output_name, provenance=asdict(provenance)
    )
    node_name = f'save_{output_name}'
    if output_name not in {'tissue_probability', 'ravens'}:
        interface.inputs.entities = labels
        return pe.Node(interface, name=node_name, mem_gb=SAVE_GB)
    node = pe.MapNode(interface, iterfield=['in_file', 'entities'], name=node_name, mem_gb=SAVE_GB)
    node.inputs.entities = [{**labels, 'tissue': tissue} for tissue in TISSUES]
    return node


@dataclass(frozen=True)
class AnatomySettings:
    """Settings that all participants share.

    Attributes
    ----------
    template_dir
        Folder of the template.
    atlases
        Files of each atlas.
    regions_file
        Table of the regions.
    network
        Whether the network segments the brain instead of the atlases.
    device
        Device for torch: `cpu` or `cuda`.
    omp_nthreads
        Threads of a process.
    """

    template_dir: Path
    atlases: tuple[AtlasFiles, ...]
    regions_file: Path
    network: bool = False
    device: str = 'cpu'
    omp_nthreads: int = 1


def init_participant_wf(
    *,
    t1w: Path,
    output_dir: Path,
    entities: Mapping[str, str | None],
    settings: AnatomySettings,
    reusable: Reusable,
    provenance: Provenance,
    made_from: Mapping[str, Any],
    name: str = 'participant_wf',
) -> pe.Workflow:
    """Process one T1w image; results of other programs replace their computation.

    Workflow Graph
        >>> from pathlib import Path
        >>> from surreal_bids.bids.derivatives import Reusable
        >>> from surreal_bids.bids.outputs import Provenance
        >>> from surreal_bids.workflows.participant import AnatomySettings, init_participant_wf
        >>> from surreal_bids.workflows.anatomy import AtlasFiles
        >>> wf = init_participant_wf(
        ...     t1w=__file__,
        ...     output_dir=Path('out'),
        ...     entities={'participant': '01', 'session': None},
        ...     settings=AnatomySettings(
        ...         Path('.'), (AtlasFiles(__file__, __file__),), __file__
        ...     ),
        ...     reusable=Reusable(),
        ...     provenance=Provenance([], [], [], 'muse', ''),
        ...     made_from={},
        ... )

    Parameters
    ----------
    t1w
        T1w image.
    output_dir
        Root of the outputs.
    entities
        Participant and session.
    settings
        Settings that all participants share.
    reusable
        Results of other programs for this image.
    provenance
        Sources and licences of the outputs.
    made_from
        Fingerprint of everything that the outputs depend on.
    name
        Name of the workflow.

    Inputs
    ------
    t1w
        T1w image; set to the given one.
    atlases
        Empty list; used when no atlas is registered.

    Outputs
    -------
    t1w_preproc, t1w_mask, t1w_tpms, anat2std_xfm, std2anat_xfm, dseg, volumes, ravens, quality
        Results.
    mask_method
        Method of the brain mask.
    atlases
        Names of the atlases that were registered; empty with the network or a given segmentation.
    record
        Record of all outputs, which is written last.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=['t1w', 'atlases']), name='inputnode')
    inputnode.inputs.t1w = os.fspath(reusable.t1w or t1w)
    inputnode.inputs.atlases = []
    outputnode = pe.Node(IdentityInterface(fields=[*RESULTS, 'record']), name='outputnode')
    outputs_wf = init_outputs_wf(
        output_dir=output_dir, entities=entities, provenance=provenance, made_from=made_from
    )
    stages = (_brain, _bias_correction, _registration, _tissue, _segmentation)
    stage_wfs = [stage(reusable, settings) for stage in stages]
    last = [init_ravens_wf(), init_quality_wf(template_dir=settings.template_dir), outputs_wf]
    connect_by_name(workflow, inputnode, [*stage_wfs, *last], outputnode)
    if reusable.lesion is not None:
        _give_lesion(workflow, reusable.lesion)
    return workflow


def _give_lesion(workflow: pe.Workflow, lesion: Path) -> None:
    """Give the lesion mask to all steps that take one."""
    for name in workflow.list_node_names():
        node = workflow.get_node(name)
        if 'lesion_file' in _fields(node):
            node.inputs.lesion_file = os.fspath(lesion)


def connect_by_name(
    workflow: pe.Workflow, inputnode: pe.Node, stages: Sequence[pe.Workflow], outputnode: pe.Node
) -> None:
    """Connect each input of each stage to the output of the same name.

    Inputs that have a value are not connected.

    Parameters
    ----------
    workflow
        Workflow to which the nodes and stages are added.
    inputnode
        Inputs of the workflow.
    stages
        Workflows with an `inputnode`, an `outputnode`, or both.
    outputnode
        Outputs of the workflow; all its fields are connected.
    """
    sources = {field: (inputnode, field) for field in _fields(inputnode)}
    for stage in stages:
        for field in _fields(stage.get_node('outputnode')):
            sources[field] = (stage, f'outputnode.{field}')
    workflow.add_nodes([inputnode, *stages, outputnode])
    for stage in stages:
        for field in _unset_fields(stage.get_node('inputnode')):
            workflow.connect(*sources[field], stage, f'inputnode.{field}')
    for field in _fields(outputnode):
        workflow.connect(*sources[field], outputnode, field)


def _fields(node: pe.Node | None) -> list[str]:
    return node.inputs.copyable_trait_names() if node else []


def _unset_fields(node: pe.Node | None) -> list[str]:
    if node is None:
        return []
    return [field for field in _fields(node) if not isdefined(getattr(node.inputs, field))]


def init_given_wf(*, name: str, **results: Any) -> pe.Workflow:
    """Build a workflow that provides existing results instead of computing them.

    Workflow Graph
        >>> from surreal_bids.workflows.participant import init_given_wf
        >>> wf = init_given_wf(name='brain_wf', t1w_mask='mask.nii.gz', mask_method='fmriprep')

    Parameters
    ----------
    name
        Name of the workflow.
    **results
        Fields of its `outputnode` and their values.
    """
    workflow = pe.Workflow(name=name)
    outputnode = pe.Node(IdentityInterface(fields=list(results)), name='outputnode')
    outputnode.inputs.trait_set(**results)
    workflow.add_nodes([outputnode])
    return workflow


def _brain(reusable: Reusable, settings: AnatomySettings) -> pe.Workflow:
    if reusable.mask is None:
        return init_brain_wf(device=settings.device, omp_nthreads=settings.omp_nthreads)
    return init_given_wf(
        name='brain_wf', t1w_mask=os.fspath(reusable.mask), mask_method=reusable.anatomy_name
    )


def _bias_correction(reusable: Reusable, settings: AnatomySettings) -> pe.Workflow:
    if reusable.t1w is None:
        return init_bias_correction_wf(omp_nthreads=settings.omp_nthreads)
    return init_given_wf(name='bias_correction_wf', t1w_preproc=os.fspath(reusable.t1w))


def _registration(reusable: Reusable, settings: AnatomySettings) -> pe.Workflow:
    if reusable.anat2std_xfm is None or reusable.std2anat_xfm is None:
        return init_registration_wf(
            template_dir=settings.template_dir,
            device=settings.device,
            omp_nthreads=settings.omp_nthreads,
        )
    transforms_wf = init_transforms_wf(template_t1w=settings.template_dir / T1W)
    transforms_wf.inputs.inputnode.anat2std_xfm = os.fspath(reusable.anat2std_xfm)
    transforms_wf.inputs.inputnode.std2anat_xfm = os.fspath(reusable.std2anat_xfm)
    return transforms_wf


def _tissue(reusable: Reusable, settings: AnatomySettings) -> pe.Workflow:
    if not reusable.tpms:
        return init_tissue_wf(
            template_dir=settings.template_dir, omp_nthreads=settings.omp_nthreads
        )
    tpms = [os.fspath(path) for path in reusable.tpms]
    return init_given_wf(name='tissue_wf', t1w_tpms=tpms, t1w_shares=tpms)


def _segmentation(reusable: Reusable, settings: AnatomySettings) -> pe.Workflow:
    if reusable.dseg is not None:
        return init_existing_segmentation_wf(
            dseg=reusable.dseg, regions_file=reusable.dseg_table, numbering=reusable.numbering
        )
    if not settings.network:
        return init_segmentation_wf(
            atlases=settings.atlases,
            regions_file=settings.regions_file,
            device=settings.device,
        )
    return init_network_segmentation_wf(
        regions_file=settings.regions_file,
        device=settings.device,
        omp_nthreads=settings.omp_nthreads,
    )


REPORT_GB = 2.0
"""Memory of a report at 1 mm, estimated."""


def init_reports_wf(
    *,
    output_dir: Path,
    participants: Mapping[str, Sequence[Mapping[str, Any]]],
    template_dir: Path,
    following: Mapping[str, str],
    configuration: str,
    name: str = 'reports_wf',
) -> pe.Workflow:
    """Write the reports of several participants.

    Workflow Graph
        >>> from pathlib import Path
        >>> from surreal_bids.workflows.participant import init_reports_wf
        >>> wf = init_reports_wf(
        ...     output_dir=Path('out'),
        ...     participants={
        ...         '01': [
        ...             {
        ...                 'session': None,
        ...                 'atlas': 'muse',
        ...                 'age': 61.0,
        ...                 'sex': 'F',
        ...                 'warnings': [],
        ...                 'reused': {},
        ...             }
        ...         ]
        ...     },
        ...     template_dir=Path('.'),
        ...     following={},
        ...     configuration='',
        ... )

    Parameters
    ----------
    output_dir
        Root of the outputs.
    participants
        Sessions of each participant: label, atlas, age, sex, warnings and reused files.
    template_dir
        Folder of the template.
    following
        The participant whose report comes next, where there is one.
    configuration
        Options of the run as TOML.
    name
        Name of the workflow.
    """
    workflow = pe.Workflow(name=name)
    for label, sessions in participants.items():
        report = pe.Node(
            WriteReport(
                output_dir=str(output_dir),
                participant=label,
                sessions=[dict(session) for session in sessions],
                template_dir=template_dir,
                following=following.get(label, ''),
                configuration=configuration,
            ),
            name='report',
            mem_gb=REPORT_GB,
        )
        participant_wf = pe.Workflow(name=f'sub-{label}'.replace('+', '_plus_'))
        participant_wf.add_nodes([report])
        workflow.add_nodes([participant_wf])
    return workflow
