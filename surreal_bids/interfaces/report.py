"""The page of a participant, from the outputs of all sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from nipype.interfaces.base import (
    BaseInterfaceInputSpec,
    Directory,
    File,
    SimpleInterface,
    TraitedSpec,
    traits,
)

from surreal_bids import __version__
from surreal_bids.bids.derivatives import output_path
from surreal_bids.bids.reuse import TISSUES
from surreal_bids.bids.visit import VisitOutputs
from surreal_bids.imaging.images import Image, load_image, voxel_volume
from surreal_bids.interfaces.images import load_template

if TYPE_CHECKING:
    from surreal_bids.imaging.template import Template
    from surreal_bids.reports.participant import SessionReport

CAPTIONS = {
    'brain': ('Brain mask', 'The outline should follow the surface of the brain.'),
    'registration': (
        'Registration',
        'The T1w image in template space, and the template, with the same outlines in both.',
    ),
    'tissue': ('Tissue', 'Probabilities of grey matter, white matter and fluid.'),
    'regions': ('Regions', 'Left and right of a region have the same hue.'),
    'ravens': ('RAVENS map of grey matter', 'Tissue volume, moved to where the template has it.'),
}
"""Title and caption of each figure, by its name among the outputs."""


class _WriteReportInput(BaseInterfaceInputSpec):
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    participant = traits.Str(mandatory=True, desc='label')
    sessions = traits.List(mandatory=True, desc='of each: session, atlas, warnings, reused')
    template_name = traits.Str(mandatory=True, desc='name of the template')
    template_dir = Directory(exists=True, mandatory=True, desc='the template')
    methods = traits.Dict(mandatory=True, desc='fields of ImagingMethods')
    configuration = traits.Str(desc='options as run')


class _WriteReportOutput(TraitedSpec):
    out_file = File(exists=True, desc='the page')


class WriteReport(SimpleInterface):
    """Draw the figures of a participant and write the page; see :mod:`surreal_bids.reports`."""

    input_spec = _WriteReportInput
    output_spec = _WriteReportOutput
    _always_run = True

    def _run_interface(self, runtime: Any) -> Any:
        # Brings in matplotlib and jinja2, which only the process that runs this needs.
        from surreal_bids.reports.methods import ImagingMethods, MethodsOptions
        from surreal_bids.reports.participant import ParticipantReport, write_participant_report

        inputs = self.inputs
        path = output_path(inputs.output_dir, 'report', participant=inputs.participant)
        report = ParticipantReport(
            name=f'sub-{inputs.participant}',
            sessions=tuple(self._session(session) for session in inputs.sessions),
            methods=MethodsOptions(__version__, imaging=ImagingMethods(**inputs.methods)),
            version=__version__,
            configuration=inputs.configuration or '',
        )
        self._results['out_file'] = os.fspath(write_participant_report(path, report))
        return runtime

    def _session(self, session: Mapping[str, Any]) -> SessionReport:
        """Report of one session; its figures are drawn on the way."""
        from surreal_bids.reports.pages import Figure
        from surreal_bids.reports.participant import SessionReport

        visit = VisitOutputs(
            root=Path(self.inputs.output_dir),
            participant=self.inputs.participant,
            session=session['session'],
            atlas=session['atlas'],
            template=self.inputs.template_name,
        )
        scan = _Scan(visit)
        figures = draw_figures(scan, load_template(self.inputs.template_dir))
        return SessionReport(
            source=visit.sidecar('t1w')['Sources'][0],
            mask_origin=visit.sidecar('brain_mask')['Method'],
            atlas=visit.atlas,
            template=visit.template,
            volumes=scan.volumes,
            session=visit.session,
            tissue_mm3={tissue: _volume(image) for tissue, image in scan.tissues.items()},
            mask_mm3=_volume(scan.mask),
            figures=tuple(Figure(path, *CAPTIONS[name]) for name, path in figures.items()),
            warnings=tuple(session['warnings']),
            reused=session['reused'],
        )


class _Scan:
    """Images and volumes of one visit, read from its outputs."""

    def __init__(self, visit: VisitOutputs) -> None:
        self.visit = visit
        self.t1w = load_image(visit.path('t1w'))
        self.mask = load_image(visit.path('brain_mask'))
        self.tissues = {
            tissue: load_image(visit.path('tissue_probability', tissue=tissue))
            for tissue in TISSUES
        }
        self.volumes = pd.read_csv(visit.path('segmentation_volumes'), sep='\t')


def draw_figures(scan: _Scan, template: Template) -> dict[str, Path]:
    """Draw all figures of a visit; returns their paths by the keys of :data:`CAPTIONS`."""
    from surreal_bids.imaging.transforms import read_transform, resample
    from surreal_bids.reports import mosaics

    visit = scan.visit
    paths = {name: visit.path('figure', figure=name) for name in CAPTIONS}
    mosaics.mask_mosaic(paths['brain'], scan.t1w, scan.mask)
    to_template = read_transform(visit.path('transform_to_template'))
    mosaics.registration_mosaic(
        paths['registration'],
        resample(scan.t1w, to_template),
        template.t1w,
        template.mask,
        {'WM': template.priors['WM']},
    )
    mosaics.tissue_mosaic(paths['tissue'], scan.t1w, scan.mask, scan.tissues)
    labels = load_image(visit.path('segmentation'))
    names = dict(zip(scan.volumes['index'], scan.volumes['name']))
    mosaics.label_mosaic(paths['regions'], scan.t1w, scan.mask, labels, names)
    ravens = load_image(visit.path('ravens', tissue='GM'))
    mosaics.ravens_mosaic(paths['ravens'], ravens, template.mask)
    return paths


def _volume(probability: Image) -> float:
    """Sum of a probability, or of a mask, in mm3."""
    return float(np.asarray(probability.dataobj).sum(dtype=float)) * voxel_volume(probability)
