"""Intensity inhomogeneity."""

from __future__ import annotations

from nipype.interfaces.utility import IdentityInterface
from nipype.pipeline import engine as pe

from surreal_bids.interfaces.anatomy import CorrectBias

BIAS_GB = 2.0
"""Memory of N4 at 1 mm, measured."""


def init_bias_correction_wf(*, omp_nthreads: int, name: str = 'bias_correction_wf') -> pe.Workflow:
    """Correct a T1w image for intensity inhomogeneity, estimated inside the brain.

    Workflow Graph
        >>> from surreal_bids.workflows.bias import init_bias_correction_wf
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
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=['t1w', 't1w_mask']), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=['t1w_preproc']), name='outputnode')
    n4 = pe.Node(CorrectBias(), name='n4', mem_gb=BIAS_GB, n_procs=omp_nthreads)
    workflow.connect(
        [
            (inputnode, n4, [('t1w', 'in_file'), ('t1w_mask', 'mask_file')]),
            (n4, outputnode, [('out_file', 't1w_preproc')]),
        ]
    )
    return workflow
