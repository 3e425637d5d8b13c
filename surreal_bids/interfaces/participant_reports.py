"""The interface that writes R-indices into the reports of participants."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError
from nipype.interfaces.base import BaseInterfaceInputSpec, File, TraitedSpec, isdefined, traits

from surreal_bids.exceptions import OutputError, SurrealError
from surreal_bids.files import write_text
from surreal_bids.interfaces import Step
from surreal_bids.names import without_prefix
from surreal_bids.progress import report

if TYPE_CHECKING:
    from surreal_bids.reports.mosaics import RegionPainter

LOGGER = logging.getLogger(__name__)

MAY_FAIL = (
    SurrealError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    TemplateError,
    ArithmeticError,
    RuntimeError,
    OSError,
)
"""Errors of a single report, which do not stop the others."""


class _WriteIndividualsInput(BaseInterfaceInputSpec):
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    participants = traits.List(traits.Str(), mandatory=True, desc='whose reports')
    deviations_file = File(exists=True, mandatory=True, desc='regions in SD of controls')
    model_card = File(exists=True, mandatory=True, desc='card of the model')
    model = traits.Str(desc='name of the model that was applied')
    adapted = traits.Bool(True, usedefault=True, desc='whether the model has learned the scanners')
    retest_pairs = traits.Int(0, usedefault=True, desc='pairs of repeated scans of the user')
    has_regions = traits.Bool(False, usedefault=True, desc='features are MUSE regions')
    failures_dir = traits.Str(mandatory=True, desc='folder for the reasons of failures')
    again = traits.Bool(False, usedefault=True, desc='also write reports that exist')


class _WriteIndividualsOutput(TraitedSpec):
    out_files = traits.List(File(exists=True), desc='the reports')


class WriteIndividuals(Step):
    """Add R-indices to reports of participants; see :mod:`surreal_bids.reports.rindices_section`.

    A report that fails does not stop the others; the reason is written to a file in `failures_dir`.
    """

    input_spec = _WriteIndividualsInput
    output_spec = _WriteIndividualsOutput
    # A report that someone deleted must come back, even if the node itself is cached.
    _always_run = True

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.analysis.individuals import GroupTables
        from surreal_bids.reports.rindices_section import write_failure, write_individual

        inputs = self.inputs
        tables = GroupTables.read(
            Path(inputs.output_dir),
            Path(inputs.deviations_file),
            Path(inputs.model_card),
            inputs.model if isdefined(inputs.model) else None,
            inputs.adapted,
            inputs.retest_pairs,
        )
        painter = _painter() if inputs.has_regions else None
        written = []
        total = len(inputs.participants)
        for done, name in enumerate(inputs.participants, start=1):
            one = tables.of(name)
            try:
                written.append(os.fspath(write_individual(one, painter, again=inputs.again)))
            except OutputError:
                raise  # The others could not be written either.
            except MAY_FAIL as error:
                LOGGER.debug('%s: no report', name, exc_info=True)
                label = without_prefix(name, 'sub')
                write_text(Path(inputs.failures_dir) / label, f'{error}' or type(error).__name__)
                write_failure(one, str(error))
            report(done, total)
        self._results['out_files'] = written
        return runtime


def _painter() -> RegionPainter:
    """Draws regions on the built-in template."""
    from surreal_bids.reports.mosaics import Background, RegionPainter
    from surreal_bids.templates import muse_labels

    return RegionPainter(Background.read(), muse_labels())
