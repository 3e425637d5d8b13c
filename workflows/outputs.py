"""Results to their places, and last a record that all are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nipype.interfaces.utility import IdentityInterface, Merge
from nipype.pipeline import engine as pe

from surreal_bids.bids.reuse import TISSUES
from surreal_bids.bids.sidecars import Provenance
from surreal_bids.interfaces.outputs import DescribeOutputs, SaveOutput, WriteRecord

SAVE_GB = 0.2
"""Memory of a copy."""

RESULTS = [
    't1w_preproc',
    't1w_mask',
    'mask_method',
    't1w_tpms',
    'anat2std_xfm',
    'std2anat_xfm',
    'dseg',
    'volumes',
    'ravens',
]
"""What the other workflows make."""

SAVED = {
    't1w': 't1w_preproc',
    'brain_mask': 't1w_mask',
    'tissue_probability': 't1w_tpms',
    'transform_to_template': 'anat2std_xfm',
    'transform_from_template': 'std2anat_xfm',
    'segmentation': 'dseg',
    'segmentation_volumes': 'volumes',
    'ravens': 'ravens',
}
"""The result behind each name of the table of outputs."""

DESCRIBED = ('t1w', 'brain_mask', 'segmentation_volumes', 'ravens')
"""Outputs with a sidecar; that of the label map is shared with the table of volumes."""


def init_outputs_wf(
    *,
    output_dir: Path,
    entities: Mapping[str, str | None],
    provenance: Provenance,
    made_from: Mapping[str, Any],
    name: str = 'outputs_wf',
) -> pe.Workflow:
    """Save all results of a participant.

    Workflow Graph
        >>> from pathlib import Path
        >>> from surreal_bids.bids.sidecars import Provenance
        >>> from surreal_bids.workflows.outputs import init_outputs_wf
        >>> wf = init_outputs_wf(
        ...     output_dir=Path('out'),
        ...     entities={'participant': '01', 'session': None},
        ...     provenance=Provenance([], [], [], 'muse', '', 'MNI152NLin2009cAsym', '', 0.0),
        ...     made_from={},
        ... )

    Parameters
    ----------
    output_dir
        Root of the outputs.
    entities
        Participant and session.
    provenance
        Where the outputs come from.
    made_from
        Fingerprint of all that they depend on.
    name
        Name of the workflow.

    Inputs
    ------
    t1w_preproc, t1w_mask, mask_method, t1w_tpms, anat2std_xfm, std2anat_xfm, dseg, volumes, ravens
        As the other workflows give them.

    Outputs
    -------
    record
        Record of all outputs, written last.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=RESULTS), name='inputnode')
    outputnode = pe.Node(IdentityInterface(fields=['record']), name='outputnode')
    describe = pe.Node(
        DescribeOutputs(provenance=asdict(provenance)), name='describe', run_without_submitting=True
    )
    merge = pe.Node(Merge(len(SAVED), ravel_inputs=True), name='merge', run_without_submitting=True)
    record = pe.Node(
        WriteRecord(output_dir=str(output_dir), entities=dict(entities), made_from=dict(made_from)),
        name='record',
        run_without_submitting=True,
    )
    workflow.connect(
        [
            (inputnode, describe, [('mask_method', 'mask_method')]),
            (merge, record, [('out', 'out_files')]),
            (record, outputnode, [('out_file', 'record')]),
        ]
    )
    for number, (output_name, result) in enumerate(SAVED.items(), start=1):
        save = _save_node(output_dir, output_name, _entities_of(output_name, entities, provenance))
        workflow.connect(inputnode, result, save, 'in_file')
        workflow.connect(save, 'out_files', merge, f'in{number}')
        if output_name in DESCRIBED:
            workflow.connect(describe, output_name, save, 'metadata')
    return workflow


def _entities_of(
    output_name: str, entities: Mapping[str, str | None], provenance: Provenance
) -> dict[str, str | None]:
    """Labels in the name of an output, without those of tissues."""
    labels = dict(entities)
    if output_name.startswith('segmentation'):
        labels['atlas'] = provenance.atlas
    if output_name.startswith('transform') or output_name == 'ravens':
        labels['template'] = provenance.template
    return labels


def _save_node(output_dir: Path, output_name: str, entities: dict[str, str | None]) -> pe.Node:
    """A node that saves an output; those of several tissues are saved one by one."""
    interface = SaveOutput(output_dir=str(output_dir), output_name=output_name)
    node_name = f'save_{output_name}'
    if output_name not in {'tissue_probability', 'ravens'}:
        interface.inputs.entities = entities
        return pe.Node(interface, name=node_name, mem_gb=SAVE_GB)
    node = pe.MapNode(interface, iterfield=['in_file', 'entities'], name=node_name, mem_gb=SAVE_GB)
    node.inputs.entities = [{**entities, 'tissue': tissue} for tissue in TISSUES]
    return node
