"""Grey matter, white matter and fluid."""

from __future__ import annotations

from pathlib import Path

from nipype.interfaces.utility import IdentityInterface
from nipype.pipeline import engine as pe

from surreal_bids.interfaces.anatomy import ClassifyTissue

TISSUE_GB = 2.0
"""Memory of the classification at 1 mm, estimated."""


def init_tissue_wf(
    *, template_dir: Path, omp_nthreads: int, name: str = 'tissue_wf'
) -> pe.Workflow:
    """Classify tissue, with the priors of the template.

    Workflow Graph
        >>> from pathlib import Path
        >>> from surreal_bids.workflows.tissue import init_tissue_wf
        >>> wf = init_tissue_wf(template_dir=Path('.'), omp_nthreads=1)

    Parameters
    ----------
    template_dir
        Folder of the template.
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
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(
        IdentityInterface(fields=['t1w_preproc', 't1w_mask', 'std2anat_xfm']), name='inputnode'
    )
    outputnode = pe.Node(IdentityInterface(fields=['t1w_tpms']), name='outputnode')
    classify = pe.Node(
        ClassifyTissue(template_dir=template_dir),
        name='classify',
        mem_gb=TISSUE_GB,
        n_procs=omp_nthreads,
    )
    workflow.connect(
        [
            (
                inputnode,
                classify,
                [
                    ('t1w_preproc', 't1w_file'),
                    ('t1w_mask', 'mask_file'),
                    ('std2anat_xfm', 'xfm_file'),
                ],
            ),
            (classify, outputnode, [('tpm_files', 't1w_tpms')]),
        ]
    )
    return workflow
