"""Regions of the brain and their volumes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nipype.interfaces.utility import IdentityInterface
from nipype.pipeline import engine as pe

from surreal_bids.interfaces.outputs import CopyFile
from surreal_bids.interfaces.segmentation import FuseLabels, MeasureSegmentation, RegisterAtlas
from surreal_bids.workflows.registration import REGISTRATION_GB

FUSION_GB = 2.0
"""Memory of the fusion at 1 mm, measured; it does not grow with the number of atlases."""

BRAIN = (('t1w_preproc', 't1w_file'), ('t1w_mask', 'mask_file'))
"""How nodes take a brain; lists are made of it, since Nipype changes those it is given."""


@dataclass(frozen=True)
class AtlasFiles:
    """Files of one atlas: T1w image, labels, and if need be its transform to the template."""

    t1w: Path
    labels: Path
    atlas2std_xfm: Path | None = None


def init_segmentation_wf(
    *,
    atlases: Sequence[AtlasFiles],
    regions_file: Path,
    mode: str,
    device: str,
    name: str = 'segmentation_wf',
) -> pe.Workflow:
    """Label the brain with atlases: one registration each, with one thread, then fusion.

    Workflow Graph
        >>> from surreal_bids.workflows.segmentation import AtlasFiles, init_segmentation_wf
        >>> wf = init_segmentation_wf(
        ...     atlases=[AtlasFiles(__file__, __file__)],
        ...     regions_file=__file__,
        ...     mode='fast',
        ...     device='cpu',
        ... )

    Parameters
    ----------
    atlases
        Files of each atlas.
    regions_file
        Table of the regions.
    mode
        `default`, or `fast`: registrations start from that to the template, and are short.
    device
        Where torch works.
    name
        Name of the workflow.

    Inputs
    ------
    t1w_preproc
        Corrected T1w image.
    t1w_mask
        Brain mask.
    std2anat_xfm
        Transform that resamples the template on the grid of the T1w image; only if fast.

    Outputs
    -------
    dseg
        Label map.
    volumes
        Table of volumes.
    """
    fast = mode == 'fast'
    workflow = pe.Workflow(name=name)
    fields = ['t1w_preproc', 't1w_mask', *(['std2anat_xfm'] if fast else [])]
    inputnode = pe.Node(IdentityInterface(fields=fields), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=['dseg', 'volumes']), name='outputnode')
    register_atlas = _register_node(atlases, fast, device)
    fuse = pe.Node(
        FuseLabels(
            atlas_t1ws=[atlas.t1w for atlas in atlases],
            atlas_labels=[atlas.labels for atlas in atlases],
            regions_file=regions_file,
        ),
        name='fuse',
        mem_gb=FUSION_GB,
    )
    workflow.connect(
        [
            (inputnode, register_atlas, [*BRAIN]),
            (inputnode, fuse, [*BRAIN]),
            (register_atlas, fuse, [('xfm_file', 'xfm_files')]),
            (fuse, outputnode, [('dseg_file', 'dseg'), ('volumes_file', 'volumes')]),
        ]
    )
    if fast:
        workflow.connect(inputnode, 'std2anat_xfm', register_atlas, 'std2anat_xfm')
    return workflow


def _register_node(atlases: Sequence[AtlasFiles], fast: bool, device: str) -> pe.MapNode:
    """The registrations; where they start from the template, so do atlases of another space."""
    elsewhere = fast and all(atlas.atlas2std_xfm for atlas in atlases)
    node = pe.MapNode(
        RegisterAtlas(device=device),
        iterfield=['atlas_t1w', *(['atlas2std_xfm'] if elsewhere else [])],
        name='register_atlas',
        mem_gb=REGISTRATION_GB,
    )
    node.inputs.atlas_t1w = [atlas.t1w for atlas in atlases]
    if elsewhere:
        node.inputs.atlas2std_xfm = [atlas.atlas2std_xfm for atlas in atlases]
    return node


def init_atlas_registration_wf(
    *,
    atlas_t1ws: Sequence[Path],
    template_t1w: Path,
    template_mask: Path,
    out_files: Sequence[Path],
    device: str,
    name: str = 'atlas_registration_wf',
) -> pe.Workflow:
    """Register atlases to the template, once for all participants.

    Workflow Graph
        >>> from surreal_bids.workflows.segmentation import init_atlas_registration_wf
        >>> wf = init_atlas_registration_wf(
        ...     atlas_t1ws=[__file__],
        ...     template_t1w=__file__,
        ...     template_mask=__file__,
        ...     out_files=['xfm.nii.gz'],
        ...     device='cpu',
        ... )

    Parameters
    ----------
    atlas_t1ws
        T1w image of each atlas, brain only.
    template_t1w, template_mask
        The template.
    out_files
        Where to write the transform that resamples each atlas on the grid of the template.
    device
        Where torch works.
    name
        Name of the workflow.
    """
    workflow = pe.Workflow(name=name)
    register_to_template = pe.MapNode(
        RegisterAtlas(t1w_file=template_t1w, mask_file=template_mask, device=device),
        iterfield=['atlas_t1w'],
        name='register_to_template',
        mem_gb=REGISTRATION_GB,
    )
    register_to_template.inputs.atlas_t1w = list(atlas_t1ws)
    export = pe.MapNode(CopyFile(), iterfield=['in_file', 'out_file'], name='export')
    export.inputs.out_file = [os.fspath(path) for path in out_files]
    workflow.connect(register_to_template, 'xfm_file', export, 'in_file')
    return workflow


def init_existing_segmentation_wf(
    *, dseg: Path, regions_file: Path | None, name: str = 'segmentation_wf'
) -> pe.Workflow:
    """Measure a segmentation that another program has made.

    Workflow Graph
        >>> from surreal_bids.workflows.segmentation import init_existing_segmentation_wf
        >>> wf = init_existing_segmentation_wf(dseg=__file__, regions_file=None)

    Parameters
    ----------
    dseg
        Label map.
    regions_file
        Table of its labels; None: they are numbered as in MUSE.
    name
        Name of the workflow.

    Outputs
    -------
    dseg
        Label map.
    volumes
        Table of volumes.
    """
    workflow = pe.Workflow(name=name)
    outputnode = pe.Node(IdentityInterface(fields=['dseg', 'volumes']), name='outputnode')
    measure = pe.Node(MeasureSegmentation(in_file=dseg), name='measure', mem_gb=0.5)
    if regions_file is not None:
        measure.inputs.regions_file = regions_file
    workflow.connect([(measure, outputnode, [('dseg_file', 'dseg'), ('volumes_file', 'volumes')])])
    return workflow
