"""Graphs of the anatomical steps: mask, bias field, registration, tissue, regions, RAVENS maps.

Each workflow has an `inputnode` and an `outputnode`, and can be used in other Nipype pipelines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nipype.interfaces.utility import IdentityInterface
from nipype.pipeline import engine as pe

from surreal_bids.interfaces.anatomy import (
    ClassifyTissue,
    ConvertTransform,
    CorrectBias,
    FindBrain,
    FuseLabels,
    LabelRegions,
    MakeRavens,
    MeasureQuality,
    MeasureSegmentation,
    RegisterAtlas,
    RegisterTemplate,
)
from surreal_bids.regions import MUSE
from surreal_bids.templates import require_template_folder

BRAIN_GB = BIAS_GB = REGISTRATION_GB = 2.0
RAVENS_GB = 1.5
TISSUE_GB = FUSION_GB = QUALITY_GB = 2.0
NETWORK_GB = 2.2
"""Memory of each step at 1 mm; those of tissue, fusion and quality are estimates."""

BRAIN = {'t1w_preproc': 't1w_file', 't1w_mask': 'mask_file'}
"""Fields of an `inputnode` and the inputs of a step that take them."""

REGIONS = {'dseg_file': 'dseg', 'volumes_file': 'volumes'}
"""Outputs of a segmentation step and the fields of an `outputnode` that take them."""

TRANSFORMS = ['anat2std_xfm', 'std2anat_xfm']


@dataclass(frozen=True)
class AtlasFiles:
    """T1w image and label map of one atlas."""

    t1w: Path
    labels: Path


def one_step_wf(
    name: str, step: pe.Node, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> pe.Workflow:
    """Build a workflow around one node.

    Parameters
    ----------
    name
        Name of the workflow.
    step
        The node.
    inputs
        Fields of the `inputnode`, and the inputs of the node that take them.
    outputs
        Outputs of the node, and the fields of the `outputnode` that take them.
    """
    workflow = pe.Workflow(name=name)
    outputnode = pe.Node(IdentityInterface(fields=list(outputs.values())), name='outputnode')
    workflow.connect([(step, outputnode, list(outputs.items()))])
    inputnode = pe.Node(IdentityInterface(fields=list(inputs)), name='inputnode')
    workflow.connect([(inputnode, step, list(inputs.items()))])
    return workflow


def init_brain_wf(*, device: str, omp_nthreads: int, name: str = 'brain_wf') -> pe.Workflow:
    """Extract the brain from a T1w image; skull-stripped images are recognised.

    Workflow Graph
        >>> from surreal_bids.workflows.anatomy import init_brain_wf
        >>> wf = init_brain_wf(device='cpu', omp_nthreads=1)

    Parameters
    ----------
    device
        Device for torch.
    omp_nthreads
        Threads of a process.
    name
        Name of the workflow.

    Inputs
    ------
    t1w
        T1w image.

    Outputs
    -------
    t1w_mask
        Brain mask.
    mask_method
        Method that found it: `deepbet`, or `stripped`.
    """
    find_brain = pe.Node(
        FindBrain(device=device), name='find_brain', mem_gb=BRAIN_GB, n_procs=omp_nthreads
    )
    return one_step_wf(
        name, find_brain, {'t1w': 'in_file'}, {'mask_file': 't1w_mask', 'method': 'mask_method'}
    )


def init_bias_correction_wf(*, omp_nthreads: int, name: str = 'bias_correction_wf') -> pe.Workflow:
    """Correct a T1w image for intensity inhomogeneity, estimated inside the brain.

    Workflow Graph
        >>> from surreal_bids.workflows.anatomy import init_bias_correction_wf
        >>> wf = init_bias_correction_wf(omp_nthreads=1)

    Parameters
    ----------
    omp_nthreads
        Threads of a process.
    name
        Name of the workflow.

    Inputs
    ------
    t1w
        T1w image.
    t1w_mask
        Brain mask.

    Outputs
    -------
    t1w_preproc
        Corrected T1w image.
    """
    n4 = pe.Node(CorrectBias(), name='n4', mem_gb=BIAS_GB, n_procs=omp_nthreads)
    inputs = {'t1w': 'in_file', 't1w_mask': 'mask_file'}
    return one_step_wf(name, n4, inputs, {'out_file': 't1w_preproc'})


def init_tissue_wf(
    *, template_dir: Path, omp_nthreads: int, name: str = 'tissue_wf'
) -> pe.Workflow:
    """Classify tissue with the priors of the template.

    Workflow Graph
        >>> from pathlib import Path
        >>> from surreal_bids.workflows.anatomy import init_tissue_wf
        >>> wf = init_tissue_wf(template_dir=Path('.'), omp_nthreads=1)

    Parameters
    ----------
    template_dir
        Folder of the template, as :func:`~surreal_bids.templates.write_template` writes it.
    omp_nthreads
        Threads of a process.
    name
        Name of the workflow.

    Inputs
    ------
    t1w_preproc
        Corrected T1w image.
    t1w_mask
        Brain mask.
    std2anat_xfm
        Transform that resamples the template on the grid of the T1w image.

    Outputs
    -------
    t1w_tpms
        Probabilities of GM, WM and CSF.
    t1w_shares
        Partial-volume fractions of GM, WM and CSF.
    """
    interface = ClassifyTissue(template_dir=require_template_folder(template_dir))
    classify = pe.Node(interface, name='classify', mem_gb=TISSUE_GB, n_procs=omp_nthreads)
    inputs = {**BRAIN, 'std2anat_xfm': 'xfm_file'}
    outputs = {'tpm_files': 't1w_tpms', 'share_files': 't1w_shares'}
    return one_step_wf(name, classify, inputs, outputs)


def init_registration_wf(
    *, template_dir: Path, device: str, omp_nthreads: int, name: str = 'registration_wf'
) -> pe.Workflow:
    """Register a T1w image to the template.

    Workflow Graph
        >>> from pathlib import Path
        >>> from surreal_bids.workflows.anatomy import init_registration_wf
        >>> wf = init_registration_wf(template_dir=Path('.'), device='cpu', omp_nthreads=1)

    Parameters
    ----------
    template_dir
        Folder of the template, as :func:`~surreal_bids.templates.write_template` writes it.
    device
        Device for torch.
    omp_nthreads
        Threads of a process.
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
    anat2std_xfm, std2anat_xfm
        Transforms that resample the T1w image on the grid of the template, and vice versa.
    """
    interface = RegisterTemplate(template_dir=require_template_folder(template_dir), device=device)
    register_template = pe.Node(
        interface, name='register_template', mem_gb=REGISTRATION_GB, n_procs=omp_nthreads
    )
    return one_step_wf(name, register_template, BRAIN, {field: field for field in TRANSFORMS})


def init_transforms_wf(*, template_t1w: Path, name: str = 'transforms_wf') -> pe.Workflow:
    """Convert the transforms of fMRIPrep or sMRIPrep to displacement fields.

    Workflow Graph
        >>> from surreal_bids.workflows.anatomy import init_transforms_wf
        >>> wf = init_transforms_wf(template_t1w=__file__)

    Parameters
    ----------
    template_t1w
        T1w image of the template.
    name
        Name of the workflow.

    Inputs
    ------
    t1w_preproc
        Corrected T1w image.
    anat2std_xfm, std2anat_xfm
        ITK transforms between the T1w image and the template.

    Outputs
    -------
    anat2std_xfm, std2anat_xfm
        Displacement fields.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=['t1w_preproc', *TRANSFORMS]), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=TRANSFORMS), name='outputnode')
    convert_forward = pe.Node(
        ConvertTransform(reference=template_t1w), name='convert_forward', mem_gb=1.0
    )
    convert_inverse = pe.Node(ConvertTransform(), name='convert_inverse', mem_gb=1.0)
    workflow.connect(
        [
            (inputnode, convert_forward, [('anat2std_xfm', 'in_file')]),
            (
                inputnode,
                convert_inverse,
                [('std2anat_xfm', 'in_file'), ('t1w_preproc', 'reference')],
            ),
            (convert_forward, outputnode, [('out_file', 'anat2std_xfm')]),
            (convert_inverse, outputnode, [('out_file', 'std2anat_xfm')]),
        ]
    )
    return workflow


def init_ravens_wf(*, name: str = 'ravens_wf') -> pe.Workflow:
    """Compute RAVENS maps: tissue density in template space that preserves tissue volume.

    Workflow Graph
        >>> from surreal_bids.workflows.anatomy import init_ravens_wf
        >>> wf = init_ravens_wf()

    Parameters
    ----------
    name
        Name of the workflow.

    Inputs
    ------
    t1w_shares
        Partial-volume fractions of GM, WM and CSF.
    anat2std_xfm
        Transform that resamples the T1w image on the grid of the template.

    Outputs
    -------
    ravens
        Maps of GM, WM and CSF.
    """
    make_ravens = pe.Node(MakeRavens(), name='make_ravens', mem_gb=RAVENS_GB)
    inputs = {'t1w_shares': 'in_files', 'anat2std_xfm': 'xfm_file'}
    return one_step_wf(name, make_ravens, inputs, {'out_files': 'ravens'})


def init_quality_wf(*, template_dir: Path, name: str = 'quality_wf') -> pe.Workflow:
    """Measure the quality of an image and of its segmentation.

    Workflow Graph
        >>> from pathlib import Path
        >>> from surreal_bids.workflows.anatomy import init_quality_wf
        >>> wf = init_quality_wf(template_dir=Path('.'))

    Parameters
    ----------
    template_dir
        Folder of the template, as :func:`~surreal_bids.templates.write_template` writes it.
    name
        Name of the workflow.

    Inputs
    ------
    t1w
        T1w image as acquired.
    t1w_preproc
        Corrected T1w image.
    t1w_mask
        Brain mask.
    t1w_tpms
        Probabilities of GM, WM and CSF.
    dseg, volumes
        Label map and table of volumes.
    std2anat_xfm
        Transform that resamples the template on the grid of the T1w image.

    Outputs
    -------
    quality
        Metrics, as JSON.
    """
    interface = MeasureQuality(template_dir=require_template_folder(template_dir))
    measure = pe.Node(interface, name='measure_quality', mem_gb=QUALITY_GB)
    inputs = {
        **BRAIN,
        't1w': 'raw_file',
        't1w_tpms': 'tpm_files',
        'dseg': 'dseg_file',
        'volumes': 'volumes_file',
        'std2anat_xfm': 'xfm_file',
    }
    return one_step_wf(name, measure, inputs, {'out_file': 'quality'})


def init_segmentation_wf(
    *,
    atlases: Sequence[AtlasFiles],
    regions_file: Path,
    device: str,
    name: str = 'segmentation_wf',
) -> pe.Workflow:
    """Segment the brain by registering atlases and fusing their labels.

    Workflow Graph
        >>> from surreal_bids.workflows.anatomy import AtlasFiles, init_segmentation_wf
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
        Device for torch.
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
    atlases
        Names of the atlases that were registered.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=list(BRAIN)), name='inputnode')
    fields = [*REGIONS.values(), 'atlases']
    outputnode = pe.Node(IdentityInterface(fields=fields), name='outputnode')
    t1ws, labels = [atlas.t1w for atlas in atlases], [atlas.labels for atlas in atlases]
    register_atlas = pe.MapNode(
        RegisterAtlas(device=device),
        iterfield=['atlas_t1w'],
        name='register_atlas',
        mem_gb=REGISTRATION_GB,
    )
    register_atlas.inputs.atlas_t1w = t1ws
    interface = FuseLabels(regions_file=regions_file, atlas_t1ws=t1ws, atlas_labels=labels)
    fuse = pe.Node(interface, name='fuse', mem_gb=FUSION_GB)
    workflow.connect(
        [
            (inputnode, register_atlas, list(BRAIN.items())),
            (inputnode, fuse, list(BRAIN.items())),
            (register_atlas, fuse, [('xfm_file', 'xfm_files')]),
            (fuse, outputnode, [*REGIONS.items(), ('atlases', 'atlases')]),
        ]
    )
    return workflow


def init_network_segmentation_wf(
    *, regions_file: Path, device: str, omp_nthreads: int, name: str = 'segmentation_wf'
) -> pe.Workflow:
    """Segment the brain with the built-in network.

    Workflow Graph
        >>> from surreal_bids.workflows.anatomy import init_network_segmentation_wf
        >>> wf = init_network_segmentation_wf(
        ...     regions_file=__file__, device='cpu', omp_nthreads=1
        ... )

    Parameters
    ----------
    regions_file
        Table of the MUSE regions.
    device
        Device for torch.
    omp_nthreads
        Threads of a process.
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
        Table of volumes and the confidence in each.
    """
    label = pe.Node(
        LabelRegions(regions_file=regions_file, device=device),
        name='label',
        mem_gb=NETWORK_GB,
        n_procs=omp_nthreads,
    )
    return one_step_wf(name, label, BRAIN, REGIONS)


def init_existing_segmentation_wf(
    *,
    dseg: Path,
    regions_file: Path | None = None,
    numbering: str = MUSE,
    name: str = 'segmentation_wf',
) -> pe.Workflow:
    """Measure the segmentation of another program on its own grid.

    Workflow Graph
        >>> from surreal_bids.workflows.anatomy import init_existing_segmentation_wf
        >>> wf = init_existing_segmentation_wf(dseg=__file__, numbering='aparc+aseg')

    Parameters
    ----------
    dseg
        Label map.
    regions_file
        Table of its labels; without one, `numbering` defines them.
    numbering
        `muse`, or one of :data:`surreal_bids.regions.FREESURFER_KINDS`.
    name
        Name of the workflow.

    Inputs
    ------
    t1w_preproc
        Corrected T1w image, whose tissue the segmentation must fit.
    t1w_mask
        Brain mask, which the segmentation must overlap.

    Outputs
    -------
    dseg
        Label map.
    volumes
        Table of volumes.
    """
    interface = MeasureSegmentation(in_file=dseg, numbering=numbering)
    measure = pe.Node(interface, name='measure', mem_gb=1.0)
    if regions_file is not None:
        measure.inputs.regions_file = regions_file
    return one_step_wf(name, measure, BRAIN, REGIONS)
