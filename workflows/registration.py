"""The way to the template and back."""

from __future__ import annotations

from pathlib import Path

from nipype.interfaces.utility import IdentityInterface
from nipype.pipeline import engine as pe

from surreal_bids.interfaces.registration import ConvertTransform, RegisterTemplate

REGISTRATION_GB = 2.0
"""Memory of a registration at 1 mm, measured."""

TRANSFORMS = ['anat2std_xfm', 'std2anat_xfm']


def init_registration_wf(
    *, template_dir: Path, device: str, omp_nthreads: int, name: str = 'registration_wf'
) -> pe.Workflow:
    """Register a T1w image to the template.

    Workflow Graph
        >>> from pathlib import Path
        >>> from surreal_bids.workflows.registration import init_registration_wf
        >>> wf = init_registration_wf(template_dir=Path('.'), device='cpu', omp_nthreads=1)

    Parameters
    ----------
    template_dir
        Folder of the template.
    device
        Where torch works.
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
    anat2std_xfm
        Transform that resamples the T1w image on the grid of the template.
    std2anat_xfm
        Transform that resamples the template on the grid of the T1w image.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=['t1w_preproc', 't1w_mask']), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=TRANSFORMS), name='outputnode')
    register_template = pe.Node(
        RegisterTemplate(template_dir=template_dir, device=device),
        name='register_template',
        mem_gb=REGISTRATION_GB,
        n_procs=omp_nthreads,
    )
    workflow.connect(
        [
            (
                inputnode,
                register_template,
                [('t1w_preproc', 't1w_file'), ('t1w_mask', 'mask_file')],
            ),
            (register_template, outputnode, [(field, field) for field in TRANSFORMS]),
        ]
    )
    return workflow


def init_transforms_wf(
    *,
    anat2std_xfm: Path,
    std2anat_xfm: Path,
    template_t1w: Path,
    name: str = 'transforms_wf',
) -> pe.Workflow:
    """Take transforms that fMRIPrep or sMRIPrep has found.

    Workflow Graph
        >>> from surreal_bids.workflows.registration import init_transforms_wf
        >>> wf = init_transforms_wf(
        ...     anat2std_xfm=__file__, std2anat_xfm=__file__, template_t1w=__file__
        ... )

    Parameters
    ----------
    anat2std_xfm, std2anat_xfm
        Transforms of ITK.
    template_t1w
        T1w image of the template.
    name
        Name of the workflow.

    Inputs
    ------
    t1w_preproc
        Corrected T1w image.

    Outputs
    -------
    anat2std_xfm, std2anat_xfm
        The same, as displacement fields.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=['t1w_preproc']), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=TRANSFORMS), name='outputnode')
    convert_forward = pe.Node(
        ConvertTransform(in_file=anat2std_xfm, reference=template_t1w),
        name='convert_forward',
        mem_gb=1.0,
    )
    convert_inverse = pe.Node(
        ConvertTransform(in_file=std2anat_xfm), name='convert_inverse', mem_gb=1.0
    )
    workflow.connect(
        [
            (inputnode, convert_inverse, [('t1w_preproc', 'reference')]),
            (convert_forward, outputnode, [('out_file', 'anat2std_xfm')]),
            (convert_inverse, outputnode, [('out_file', 'std2anat_xfm')]),
        ]
    )
    return workflow
