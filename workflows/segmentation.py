"""Regions of the brain and their volumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nipype.interfaces.utility import IdentityInterface
from nipype.pipeline import engine as pe

from surreal_bids.interfaces.anatomy import (
    FuseLabels,
    LabelRegions,
    MeasureSegmentation,
    RegisterAtlas,
)
from surreal_bids.workflows.anatomy import BRAIN, REGISTRATION_GB, one_step_wf

FUSION_GB = 2.0
"""Memory of the fusion at 1 mm, estimated; it does not grow with the number of atlases."""

NETWORK_GB = 3.0
"""Memory of the network at 1 mm."""

REGIONS = {'dseg_file': 'dseg', 'volumes_file': 'volumes'}
"""How regions and their volumes leave a step."""

ENSEMBLE = ('default', 'stiff')
"""Settings of the registrations of an atlas that is the only one; see `imaging.registration`."""


@dataclass(frozen=True)
class AtlasFiles:
    """Files of one atlas: T1w image and labels."""

    t1w: Path
    labels: Path


def registration_settings(n_atlases: int) -> tuple[str, ...]:
    """With which settings each atlas is registered: several where there is no other atlas."""
    return ENSEMBLE if n_atlases == 1 else ENSEMBLE[:1]


def init_segmentation_wf(
    *,
    atlases: Sequence[AtlasFiles],
    regions_file: Path,
    device: str,
    name: str = 'segmentation_wf',
) -> pe.Workflow:
    """Label the brain with atlases: registration of each, with one thread, then fusion.

    A single atlas is registered with several settings, which take the place of several atlases.

    Workflow Graph
        >>> from surreal_bids.workflows.segmentation import AtlasFiles, init_segmentation_wf
        >>> wf = init_segmentation_wf(
        ...     atlases=[AtlasFiles(__file__, __file__)],
        ...     regions_file=__file__,
        ...     device='cpu',
        ... )

    Parameters
    ----------
    atlases
        Files of each atlas.
    regions_file
        Table of the regions.
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

    Outputs
    -------
    dseg
        Label map.
    volumes
        Table of volumes.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=['t1w_preproc', 't1w_mask']), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=['dseg', 'volumes']), name='outputnode')
    settings = registration_settings(len(atlases))
    candidates = [(atlas, each) for atlas in atlases for each in settings]
    register_atlas = pe.MapNode(
        RegisterAtlas(device=device),
        iterfield=['atlas_t1w', 'settings'],
        name='register_atlas',
        mem_gb=REGISTRATION_GB,
    )
    register_atlas.inputs.atlas_t1w = [atlas.t1w for atlas, _ in candidates]
    register_atlas.inputs.settings = [each for _, each in candidates]
    fuse = pe.Node(
        FuseLabels(
            atlas_t1ws=[atlas.t1w for atlas, _ in candidates],
            atlas_labels=[atlas.labels for atlas, _ in candidates],
            regions_file=regions_file,
        ),
        name='fuse',
        mem_gb=FUSION_GB,
    )
    workflow.connect(
        [
            (inputnode, register_atlas, list(BRAIN.items())),
            (inputnode, fuse, list(BRAIN.items())),
            (register_atlas, fuse, [('xfm_file', 'xfm_files')]),
            (fuse, outputnode, list(REGIONS.items())),
        ]
    )
    return workflow


def init_network_segmentation_wf(
    *, regions_file: Path, device: str, omp_nthreads: int, name: str = 'segmentation_wf'
) -> pe.Workflow:
    """Label the brain with the built-in network.

    Workflow Graph
        >>> from surreal_bids.workflows.segmentation import init_network_segmentation_wf
        >>> wf = init_network_segmentation_wf(
        ...     regions_file=__file__, device='cpu', omp_nthreads=1
        ... )

    Parameters
    ----------
    regions_file
        Table of the MUSE regions.
    device
        Where torch works.
    omp_nthreads
        Threads of the network.
    name
        Name of the workflow.

    Inputs
    ------
    t1w_preproc
        Corrected T1w image.
    t1w_mask
        Brain mask.

    Outputs
    -------
    dseg
        Label map.
    volumes
        Table of volumes, and the confidence in each.
    """
    label = pe.Node(
        LabelRegions(regions_file=regions_file, device=device),
        name='label',
        mem_gb=NETWORK_GB,
        n_procs=omp_nthreads,
    )
    return one_step_wf(name, label, BRAIN, REGIONS)


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
    measure = pe.Node(MeasureSegmentation(in_file=dseg), name='measure', mem_gb=0.5)
    if regions_file is not None:
        measure.inputs.regions_file = regions_file
    return one_step_wf(name, measure, {}, REGIONS)
