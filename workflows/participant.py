"""From a T1w image to ROI volumes and RAVENS maps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nipype.interfaces.utility import IdentityInterface
from nipype.pipeline import engine as pe

from surreal_bids.bids.reuse import Reusable
from surreal_bids.bids.sidecars import Provenance
from surreal_bids.workflows.bias import init_bias_correction_wf
from surreal_bids.workflows.brain import init_brain_wf
from surreal_bids.workflows.outputs import RESULTS, init_outputs_wf
from surreal_bids.workflows.ravens import init_ravens_wf
from surreal_bids.workflows.registration import (
    init_registration_wf,
    init_transforms_wf,
)
from surreal_bids.workflows.segmentation import (
    AtlasFiles,
    init_existing_segmentation_wf,
    init_segmentation_wf,
)
from surreal_bids.workflows.tissue import init_tissue_wf


@dataclass(frozen=True)
class AnatomySettings:
    """What is the same for all participants.

    Attributes
    ----------
    template_dir, template_t1w
        Folder of the template, and its T1w image.
    atlases
        Files of each atlas.
    regions_file
        Table of the regions of the atlases.
    segmentation_mode
        `default`, or `fast`.
    ravens_smoothing
        Full width at half maximum in mm.
    device
        Where torch works: `cpu` or `cuda`.
    omp_nthreads
        Threads of a process.
    """

    template_dir: Path
    template_t1w: Path
    atlases: tuple[AtlasFiles, ...]
    regions_file: Path
    segmentation_mode: str = 'default'
    ravens_smoothing: float = 0.0
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
    """Process one T1w image; what exists already takes the place of its computation.

    Workflow Graph
        >>> from pathlib import Path
        >>> from surreal_bids.bids.reuse import Reusable
        >>> from surreal_bids.bids.sidecars import Provenance
        >>> from surreal_bids.workflows.participant import AnatomySettings, init_participant_wf
        >>> from surreal_bids.workflows.segmentation import AtlasFiles
        >>> wf = init_participant_wf(
        ...     t1w=__file__,
        ...     output_dir=Path('out'),
        ...     entities={'participant': '01', 'session': None},
        ...     settings=AnatomySettings(
        ...         Path('.'), __file__, (AtlasFiles(__file__, __file__),), __file__
        ...     ),
        ...     reusable=Reusable(),
        ...     provenance=Provenance([], [], [], 'muse', '', 'MNI152NLin2009cAsym', '', 0.0),
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
        What is the same for all participants.
    reusable
        What other programs have made of this image.
    provenance
        Where the outputs come from.
    made_from
        Fingerprint of all that they depend on.
    name
        Name of the workflow.

    Inputs
    ------
    t1w
        T1w image; set to the one given.

    Outputs
    -------
    t1w_preproc, t1w_mask, t1w_tpms, anat2std_xfm, std2anat_xfm, dseg, volumes, ravens
        Results.
    mask_method
        How the brain mask was found.
    record
        Record of all outputs, written last.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=['t1w']), name='inputnode')
    inputnode.inputs.t1w = os.fspath(reusable.t1w or t1w)
    outputnode = pe.Node(IdentityInterface(fields=[*RESULTS, 'record']), name='outputnode')
    outputs_wf = init_outputs_wf(
        output_dir=output_dir, entities=entities, provenance=provenance, made_from=made_from
    )
    stages = [*_make_stages(reusable, settings), outputs_wf]
    connect_by_name(workflow, inputnode, stages, outputnode)
    return workflow


def _make_stages(reusable: Reusable, settings: AnatomySettings) -> list[pe.Workflow]:
    """One workflow for each step, which computes its results or has them."""
    return [
        _brain_stage(reusable, settings),
        _bias_stage(reusable, settings),
        _registration_stage(reusable, settings),
        _tissue_stage(reusable, settings),
        _segmentation_stage(reusable, settings),
        init_ravens_wf(smoothing=settings.ravens_smoothing),
    ]


def connect_by_name(
    workflow: pe.Workflow, inputnode: pe.Node, stages: Sequence[pe.Workflow], outputnode: pe.Node
) -> None:
    """Connect stages: each input to the output of the same name, wherever it comes from.

    Parameters
    ----------
    workflow
        To which all of them are added.
    inputnode
        Inputs of the workflow.
    stages
        Workflows with an `inputnode`, an `outputnode`, or both.
    outputnode
        Takes every field it has.
    """
    sources = {field: (inputnode, field) for field in _fields(inputnode)}
    for stage in stages:
        for field in _fields(stage.get_node('outputnode')):
            sources[field] = (stage, f'outputnode.{field}')
    workflow.add_nodes([inputnode, *stages, outputnode])
    for stage in stages:
        for field in _fields(stage.get_node('inputnode')):
            workflow.connect(*sources[field], stage, f'inputnode.{field}')
    for field in _fields(outputnode):
        workflow.connect(*sources[field], outputnode, field)


def _fields(node: pe.Node | None) -> list[str]:
    return node.inputs.copyable_trait_names() if node else []


def init_given_wf(*, name: str, **results: Any) -> pe.Workflow:
    """Results that exist, in the place of a workflow that would compute them.

    Workflow Graph
        >>> from surreal_bids.workflows.participant import init_given_wf
        >>> wf = init_given_wf(name='brain_wf', t1w_mask='mask.nii.gz', mask_method='fmriprep')

    Parameters
    ----------
    name
        Name of the workflow.
    **results
        Fields of its `outputnode`, and their values.
    """
    workflow = pe.Workflow(name=name)
    outputnode = pe.Node(IdentityInterface(fields=list(results)), name='outputnode')
    outputnode.inputs.trait_set(**results)
    workflow.add_nodes([outputnode])
    return workflow


def _brain_stage(reusable: Reusable, settings: AnatomySettings) -> pe.Workflow:
    if reusable.mask is None:
        return init_brain_wf(omp_nthreads=settings.omp_nthreads)
    return init_given_wf(
        name='brain_wf', t1w_mask=os.fspath(reusable.mask), mask_method=reusable.anatomy_name
    )


def _bias_stage(reusable: Reusable, settings: AnatomySettings) -> pe.Workflow:
    if reusable.t1w is None:
        return init_bias_correction_wf(omp_nthreads=settings.omp_nthreads)
    return init_given_wf(name='bias_correction_wf', t1w_preproc=os.fspath(reusable.t1w))


def _registration_stage(reusable: Reusable, settings: AnatomySettings) -> pe.Workflow:
    if reusable.anat2std_xfm is None or reusable.std2anat_xfm is None:
        return init_registration_wf(
            template_dir=settings.template_dir,
            device=settings.device,
            omp_nthreads=settings.omp_nthreads,
        )
    return init_transforms_wf(
        anat2std_xfm=reusable.anat2std_xfm,
        std2anat_xfm=reusable.std2anat_xfm,
        template_t1w=settings.template_t1w,
    )


def _tissue_stage(reusable: Reusable, settings: AnatomySettings) -> pe.Workflow:
    if not reusable.tpms:
        return init_tissue_wf(
            template_dir=settings.template_dir, omp_nthreads=settings.omp_nthreads
        )
    return init_given_wf(name='tissue_wf', t1w_tpms=[os.fspath(path) for path in reusable.tpms])


def _segmentation_stage(reusable: Reusable, settings: AnatomySettings) -> pe.Workflow:
    if reusable.dseg is None:
        return init_segmentation_wf(
            atlases=settings.atlases,
            regions_file=settings.regions_file,
            mode=settings.segmentation_mode,
            device=settings.device,
        )
    return init_existing_segmentation_wf(dseg=reusable.dseg, regions_file=reusable.dseg_table)
