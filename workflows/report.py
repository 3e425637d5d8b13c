"""Pages of participants, from outputs that exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nipype.pipeline import engine as pe

from surreal_bids.interfaces.report import WriteReport

REPORT_GB = 2.0
"""Memory of a page at 1 mm, estimated."""


def init_reports_wf(
    *,
    output_dir: Path,
    participants: Mapping[str, Sequence[Mapping[str, Any]]],
    template_name: str,
    template_dir: Path,
    methods: Mapping[str, Any],
    configuration: str,
    name: str = 'reports_wf',
) -> pe.Workflow:
    """Write the pages of participants.

    Workflow Graph
        >>> from pathlib import Path
        >>> from surreal_bids.workflows.report import init_reports_wf
        >>> wf = init_reports_wf(
        ...     output_dir=Path('out'),
        ...     participants={
        ...         '01': [{'session': None, 'atlas': 'muse', 'warnings': [], 'reused': {}}]
        ...     },
        ...     template_name='MNI152NLin2009cAsym',
        ...     template_dir=Path('.'),
        ...     methods={},
        ...     configuration='',
        ... )

    Parameters
    ----------
    output_dir
        Root of the outputs.
    participants
        Label of each, and for each session its label, atlas, warnings, and what was reused.
    template_name, template_dir
        The template.
    methods
        Fields of :class:`surreal_bids.reports.methods.ImagingMethods`.
    configuration
        The options as run, as text.
    name
        Name of the workflow.
    """
    workflow = pe.Workflow(name=name)
    for label, sessions in participants.items():
        report = pe.Node(
            WriteReport(
                output_dir=str(output_dir),
                participant=label,
                sessions=[dict(session) for session in sessions],
                template_name=template_name,
                template_dir=template_dir,
                methods=dict(methods),
                configuration=configuration,
            ),
            name='report',
            mem_gb=REPORT_GB,
        )
        participant_wf = pe.Workflow(name=f'sub-{label}'.replace('+', '_plus_'))
        participant_wf.add_nodes([report])
        workflow.add_nodes([participant_wf])
    return workflow
