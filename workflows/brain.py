"""Where the brain is."""

from __future__ import annotations

from nipype.interfaces.utility import IdentityInterface
from nipype.pipeline import engine as pe

from surreal_bids.interfaces.anatomy import FindBrain

BRAIN_GB = 2.0
"""Memory of brain extraction at 1 mm, measured."""


def init_brain_wf(*, omp_nthreads: int, name: str = 'brain_wf') -> pe.Workflow:
    """Find the brain in a T1w image, unless all else was removed already.

    Workflow Graph
        >>> from surreal_bids.workflows.brain import init_brain_wf
        >>> wf = init_brain_wf(omp_nthreads=1)

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

    Outputs
    -------
    t1w_mask
        Brain mask.
    mask_method
        How it was found.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=['t1w']), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=['t1w_mask', 'mask_method']), name='outputnode')
    find_brain = pe.Node(FindBrain(), name='find_brain', mem_gb=BRAIN_GB, n_procs=omp_nthreads)
    workflow.connect(
        [
            (inputnode, find_brain, [('t1w', 'in_file')]),
            (find_brain, outputnode, [('mask_file', 't1w_mask'), ('method', 'mask_method')]),
        ]
    )
    return workflow
