"""RAVENS maps."""

from __future__ import annotations

from nipype.interfaces.utility import IdentityInterface
from nipype.pipeline import engine as pe

from surreal_bids.interfaces.registration import MakeRavens

RAVENS_GB = 1.5
"""Memory of three maps at 1 mm, measured."""


def init_ravens_wf(*, smoothing: float, name: str = 'ravens_wf') -> pe.Workflow:
    """Make maps of tissue density in template space that keep the volume of each tissue.

    Workflow Graph
        >>> from surreal_bids.workflows.ravens import init_ravens_wf
        >>> wf = init_ravens_wf(smoothing=0.0)

    Parameters
    ----------
    smoothing
        Full width at half maximum in mm; 0: none.
    name
        Name of the workflow.

    Inputs
    ------
    t1w_tpms
        Probabilities of GM, WM and CSF.
    anat2std_xfm
        Transform that resamples the T1w image on the grid of the template.

    Outputs
    -------
    ravens
        Maps of GM, WM and CSF.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=['t1w_tpms', 'anat2std_xfm']), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=['ravens']), name='outputnode')
    make_ravens = pe.Node(MakeRavens(smoothing=smoothing), name='make_ravens', mem_gb=RAVENS_GB)
    workflow.connect(
        [
            (inputnode, make_ravens, [('t1w_tpms', 'in_files'), ('anat2std_xfm', 'xfm_file')]),
            (make_ravens, outputnode, [('out_files', 'ravens')]),
        ]
    )
    return workflow
