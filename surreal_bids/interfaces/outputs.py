"""Interfaces that write the outputs and the report of a participant."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nibabel as nib
import numpy as np
import pandas as pd
from nipype.interfaces.base import (
    BaseInterfaceInputSpec,
    Directory,
    File,
    InputMultiObject,
    TraitedSpec,
    traits,
)

from surreal_bids.bids.derivatives import LESION
from surreal_bids.bids.outputs import (
    Provenance,
    VisitOutputs,
    describe_outputs,
    digest_of_records,
    output_path,
    read_quality,
    write_record,
    write_sidecar,
)
from surreal_bids.bids.survey import doubt_voxels
from surreal_bids.cautions import Caution
from surreal_bids.files import MISSING, copy_file, write_image
from surreal_bids.images import Image, load_image, voxel_volume
from surreal_bids.interfaces import Step, warnings_in
from surreal_bids.parallel import in_threads
from surreal_bids.templates import TEMPLATE_SPACE, TISSUES, read_template

if TYPE_CHECKING:
    from surreal_bids.reports.participant import SessionReport
    from surreal_bids.templates import Template


class _SaveOutputInput(BaseInterfaceInputSpec):
    in_file = File(exists=True, mandatory=True, desc='result')
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    output_name = traits.Str(mandatory=True, desc='which of the table of names')
    entities = traits.Dict(mandatory=True, desc='labels of its entities')
    provenance = traits.Dict(mandatory=True, desc='fields of Provenance')
    mask_method = traits.Str(mandatory=True, desc='how the brain mask was found')
    atlases = traits.List(traits.Str(), desc='atlases that were registered', usedefault=True)


class _SaveOutputOutput(TraitedSpec):
    out_files = traits.List(File(exists=True), desc='the output, and its sidecar')


class SaveOutput(Step):
    """Copy a result to its place among the outputs, and describe it beside."""

    input_spec = _SaveOutputInput
    output_spec = _SaveOutputOutput
    # An output that someone deleted must come back, even if the node itself is cached.
    _always_run = True

    def _run_step(self, runtime: Any) -> Any:
        inputs = self.inputs
        target = output_path(inputs.output_dir, inputs.output_name, **inputs.entities)
        copy_whole(Path(inputs.in_file), target)
        written = [target]
        described = describe_outputs(
            Provenance(**inputs.provenance), inputs.mask_method, inputs.atlases
        )
        if inputs.output_name in described:
            sidecar = write_sidecar(inputs.output_name, target, described[inputs.output_name])
            written.append(sidecar)
        self._results['out_files'] = list(map(os.fspath, written))
        return runtime


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file atomically; a NIfTI image that is not compressed becomes so."""
    if source.suffixes[-1:] == target.suffixes[-1:]:
        copy_file(source, target)
    else:
        write_image(target, nib.Nifti1Image.from_filename(source))


class _WriteRecordInput(BaseInterfaceInputSpec):
    out_files = InputMultiObject(File(exists=True), mandatory=True, desc='all outputs')
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    made_from = traits.Dict(mandatory=True, desc='what they depend on')
    entities = traits.Dict(mandatory=True, desc='participant and session')


class _WriteRecordOutput(TraitedSpec):
    out_file = File(exists=True, desc='the record')


class WriteRecord(Step):
    """Note that all outputs of a participant are there; see :mod:`surreal_bids.bids.outputs`.

    Warnings are those of all steps in the workflow around the one that this is a step of.
    """

    input_spec = _WriteRecordInput
    output_spec = _WriteRecordOutput
    _always_run = True

    def _run_step(self, runtime: Any) -> Any:
        root = Path(self.inputs.output_dir)
        path = output_path(root, 'record', **self.inputs.entities)
        outputs = map(Path, self.inputs.out_files)
        warnings = warnings_in(Path(runtime.cwd).parents[1])
        self._results['out_file'] = os.fspath(
            write_record(path, root, self.inputs.made_from, outputs, warnings)
        )
        return runtime


CAPTIONS = {
    'brain': ('Brain mask', 'The outline should follow the surface of the brain.'),
    'registration': (
        'Registration',
        'The T1w image in template space, with the outlines of the template. Hover over it, or '
        'select it, to flicker between the image and the template.',
    ),
    'tissue': ('Tissue', 'Probabilities of grey matter, white matter and cerebrospinal fluid.'),
    'regions': ('Regions', 'Left and right regions have the same hue.'),
    'ravens': ('RAVENS map of grey matter', 'Amount of grey matter in template space.'),
}
"""Title and caption of each figure, by its name among the outputs."""

OVER = {'registration': 'template'}
"""Figures over which another one flickers."""


class _WriteReportInput(BaseInterfaceInputSpec):
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    participant = traits.Str(mandatory=True, desc='label')
    sessions = traits.List(
        mandatory=True, desc='of each: session, atlas, age, sex, warnings, reused'
    )
    template_dir = Directory(exists=True, mandatory=True, desc='the template')
    following = traits.Str(desc='label of the next participant')
    configuration = traits.Str(desc='options as run')


class _WriteReportOutput(TraitedSpec):
    out_file = File(exists=True, desc='the report')


class WriteReport(Step):
    """Draw the figures of a participant and write the report; see :mod:`surreal_bids.reports`."""

    input_spec = _WriteReportInput
    output_spec = _WriteReportOutput
    _always_run = True

    def _run_step(self, runtime: Any) -> Any:
        # Brings in matplotlib and jinja2, which only the process that runs this needs.
        from surreal_bids.reports.participant import write_participant_report

        inputs = self.inputs
        visits = {
            (inputs.participant, session['session']): (session['age'], session['sex'])
            for session in inputs.sessions
        }
        made_from = digest_of_records(Path(inputs.output_dir), visits)
        path = write_participant_report(
            Path(inputs.output_dir),
            inputs.participant,
            [self._session(session) for session in inputs.sessions],
            configuration=inputs.configuration or '',
            following=inputs.following or None,
            made_from=made_from,
        )
        self._results['out_file'] = os.fspath(path)
        return runtime

    def _session(self, session: Mapping[str, Any]) -> SessionReport:
        """Report of one session; its figures are drawn on the way."""
        from surreal_bids.imaging.quality import Subject
        from surreal_bids.reports.participant import SessionReport, ShownFigure

        visit = VisitOutputs(
            root=Path(self.inputs.output_dir),
            participant=self.inputs.participant,
            session=session['session'],
            atlas=session['atlas'],
        )
        scan = Scan(visit)
        lesion = session['reused'].get(LESION)
        template = read_template(self.inputs.template_dir)
        figures = draw_figures(scan, template, lesion and load_image(lesion))
        quality = read_quality(visit.path('quality'))
        return SessionReport(
            source=visit.sidecar('t1w')['Sources'][0],
            mask_origin=visit.sidecar('brain_mask')['Method'],
            atlas=visit.atlas,
            template=TEMPLATE_SPACE,
            volumes=scan.volumes,
            subject=Subject(
                age=session['age'],
                sex=session['sex'],
                icv_mm3=_volume(scan.mask),
            ),
            session=visit.session,
            tissue_mm3={tissue: _volume(image) for tissue, image in scan.tissues.items()},
            overlaps=quality.pop('overlaps', {}),
            quality=quality,
            figures=tuple(
                ShownFigure(figures[name], *caption, figures.get(OVER.get(name, '')))
                for name, caption in CAPTIONS.items()
            ),
            warnings=(
                *filter(None, [doubt_voxels(scan.t1w)]),
                *starmap(Caution, session['warnings']),
            ),
            reused=session['reused'],
            voxels_mm=tuple(map(float, nib.affines.voxel_sizes(scan.t1w.affine))),
        )


class Scan:
    """Images, transform and volumes of one visit, read from its outputs."""

    def __init__(self, visit: VisitOutputs) -> None:
        from surreal_bids.imaging.transforms import read_transform

        self.visit = visit
        images = [visit.path(name) for name in ('t1w', 'brain_mask', 'segmentation')]
        images += [visit.path('tissue_probability', tissue=tissue) for tissue in TISSUES]
        images.append(visit.path('ravens', tissue='GM'))
        reading: list[Callable[[], Any]] = [partial(load_image, path) for path in images]
        reading.insert(0, partial(read_transform, visit.path('transform_to_template')))
        self.to_template, self.t1w, self.mask, self.labels, *tissues, self.ravens = in_threads(
            lambda read: read(), reading
        )
        self.tissues = dict(zip(TISSUES, tissues))
        self.volumes = pd.read_csv(
            visit.path('segmentation_volumes'), sep='\t', na_values=[MISSING], keep_default_na=False
        )


def draw_figures(scan: Scan, template: Template, lesion: Image | None = None) -> dict[str, Path]:
    """Draw all figures of a visit; returns their paths by name."""
    from surreal_bids.imaging.transforms import resample
    from surreal_bids.reports import mosaics

    names = (*CAPTIONS, *OVER.values())
    paths = {name: scan.visit.path('figure', figure=name) for name in names}
    in_template = resample(scan.t1w, scan.to_template), template.t1w, template.mask
    regions = dict(zip(scan.volumes['index'], scan.volumes['name']))
    brain = scan.t1w, scan.mask
    drawing: list[Callable[[], Any]] = [
        partial(mosaics.mask_mosaic, paths['brain'], *brain, lesion),
        partial(
            mosaics.registration_pair,
            (paths['registration'], paths['template']),
            *in_template,
            template.priors['WM'],
        ),
        partial(mosaics.tissue_mosaic, paths['tissue'], *brain, scan.tissues),
        partial(mosaics.label_mosaic, paths['regions'], *brain, scan.labels, regions),
        partial(mosaics.ravens_mosaic, paths['ravens'], scan.ravens, template.mask),
    ]
    list(in_threads(lambda draw: draw(), drawing))
    return paths


def _volume(probability: Image) -> float:
    """Sum of a probability, or of a mask, in mm3."""
    return float(np.asarray(probability.dataobj).sum(dtype=float)) * voxel_volume(probability)
