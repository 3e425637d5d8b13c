"""Interfaces of the group level: train one part of a cohort, analyse it, write reports.

The command writes the cohort. Steps pass on model cards, whose checksums cover the models beside
them.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError
from nipype.interfaces.base import (
    BaseInterfaceInputSpec,
    Directory,
    File,
    InputMultiObject,
    TraitedSpec,
    traits,
)

from surreal_bids.bids.outputs import discard_outputs, output_path
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.config import TrainingOptions
from surreal_bids.exceptions import DataError, OutputError, SurrealError
from surreal_bids.files import write_json, write_text, write_tsv
from surreal_bids.interfaces import Step
from surreal_bids.names import without_prefix
from surreal_bids.progress import report as report_progress

if TYPE_CHECKING:
    from surreal_bids.analysis.engine import Analysis
    from surreal_bids.analysis.maps import VoxelMaps
    from surreal_bids.rindices.crossfit import Trained
    from surreal_bids.rindices.model import TableModel

LOGGER = logging.getLogger(__name__)

# Functions of the model are imported where they run: torch takes seconds to import.

PATTERNS = 'patterns'
"""Part `patterns-M`: members of one number of patterns, of which `model` is then chosen."""

FAILED = 'Failed'
"""Key of a card that tells why a fold has no model."""


class _TrainPartInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    part = traits.Str(mandatory=True, desc='model, fold-N or patterns-M')
    options = traits.Dict(mandatory=True, desc='fields of TrainingOptions')
    checkpoint_dir = traits.Str(mandatory=True, desc='where members are kept')
    model_card = File(exists=True, desc='card of the model of all participants; for folds')
    checkpoint_files = InputMultiObject(File(exists=True), desc='members of each M', nohash=True)
    n_threads = traits.Int(1, usedefault=True, nohash=True, desc='threads of torch')


class _TrainPartOutput(TraitedSpec):
    out_file = File(exists=True, desc='card of the model, or members of one number of patterns')


class TrainPart(Step):
    """Train one part of a cohort; see :func:`surreal_bids.rindices.crossfit.train_part`.

    Where a fold cannot be trained, the card tells why: participants of the other folds still get
    their R-indices.
    """

    input_spec = _TrainPartInput
    output_spec = _TrainPartOutput

    def _run_step(self, runtime: Any) -> Any:
        import torch

        from surreal_bids.model.bundle import CARD
        from surreal_bids.rindices.crossfit import FOLD, train_part
        from surreal_bids.rindices.model import prepare, train_patterns

        inputs, folder = self.inputs, Path(runtime.cwd) / 'model'
        torch.set_num_threads(inputs.n_threads)
        cohort, options = Cohort.load(inputs.cohort_dir), TrainingOptions(**inputs.options)
        checkpoints, part = Path(inputs.checkpoint_dir), inputs.part
        self._results['out_file'] = os.fspath(folder / CARD)
        if part.startswith(PATTERNS):
            number = int(part.removeprefix(f'{PATTERNS}-'))
            trained = train_patterns(prepare(cohort), options, number, checkpoints)
            self._results['out_file'] = os.fspath(trained)
            return runtime
        final = load_model(inputs.model_card).gan if inputs.model_card else None
        try:
            train_part(cohort, options, part, checkpoints, final).save(folder)
        except DataError as error:
            if not part.startswith(FOLD):
                raise
            write_json(folder / CARD, {FAILED: str(error)})
        return runtime


CAUTIONS = 'cautions.json'
"""File beside a cohort with the warnings of its report, which the command lists."""


class _AnalyseGroupInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    model_card = File(exists=True, mandatory=True, desc='card of the model')
    options = traits.Dict(mandatory=True, desc='fields of TrainingOptions')
    fold_cards = InputMultiObject(File(exists=True), desc='cards of the models of folds')
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    title = traits.Str(mandatory=True, desc='name of the dataset')
    methods = traits.Dict(mandatory=True, desc='what was asked for, for the methods text')
    labels = traits.List(traits.Str(), desc='participants to analyse; none: everyone')
    has_norms = traits.Bool(False, usedefault=True, desc='volumes are of the built-in network')
    has_regions = traits.Bool(False, usedefault=True, desc='features are MUSE regions')
    n_threads = traits.Int(1, usedefault=True, nohash=True, desc='images read at once')


class _AnalyseGroupOutput(TraitedSpec):
    out_file = File(exists=True, desc='the report')
    individuals_file = File(exists=True, desc='what reports of participants show')


class AnalyseGroup(Step):
    """Compute all results of a cohort, and write tables, model, maps and report.

    See :mod:`surreal_bids.analysis.engine`, :mod:`surreal_bids.analysis.outputs` and
    :mod:`surreal_bids.reports.group`.
    """

    input_spec = _AnalyseGroupInput
    output_spec = _AnalyseGroupOutput
    # An output that someone deleted must come back, even if the node itself is cached.
    _always_run = True

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.analysis.deviations import from_norms
        from surreal_bids.analysis.image_quality import read_image_quality
        from surreal_bids.analysis.outputs import TABLES, write_tables
        from surreal_bids.analysis.patterns import write_pattern_maps
        from surreal_bids.reports.flags import flags_of_images
        from surreal_bids.reports.group import GroupReport, write_group_report
        from surreal_bids.reports.methods import Methods, describe_group_methods

        inputs, root = self.inputs, Path(self.inputs.output_dir)
        found = self._analyse()
        images = read_image_quality(root, found.scored)
        found = replace(
            found,
            z_norms=from_norms(found.scored) if inputs.has_norms else None,
            images=images,
        )
        found = replace(found, image_flags=flags_of_images(found, root))
        discard_outputs(root)
        write_tables(found, {name: output_path(root, name) for name in TABLES})
        found.model.save(output_path(root, 'model_card').parent)
        voxel_maps = self._map(found, Path(inputs.cohort_dir) / 'maps')
        self._map_deviations(found)
        if inputs.has_regions:
            write_pattern_maps(root, found.patterns, found.whose)
        methods = describe_group_methods(found, inputs.methods)
        Methods(group=methods).write(root, 'group')
        report = GroupReport(
            output_dir=root,
            title=inputs.title,
            found=found,
            methods=methods,
            voxel_maps=voxel_maps,
        )
        self._results['out_file'] = os.fspath(write_group_report(report))
        write_json(Path(inputs.cohort_dir) / CAUTIONS, report.cautions)
        path = write_tsv(Path(runtime.cwd) / 'individuals.tsv', found.of_individuals)
        self._results['individuals_file'] = os.fspath(path)
        return runtime

    def _analyse(self) -> Analysis:
        from surreal_bids.analysis.engine import analyse_applied, analyse_trained

        inputs, options = self.inputs, TrainingOptions(**self.inputs.options)
        cohort, model = Cohort.load(inputs.cohort_dir), load_model(inputs.model_card)
        if inputs.methods['model'] is not None:
            return analyse_applied(cohort, model, options.random_seed, inputs.labels or [])
        trained = load_trained(cohort, options, model, inputs.fold_cards or [])
        return analyse_trained(cohort, trained, options.random_seed)

    def _map(self, found: Analysis, folder: Path) -> dict[str, VoxelMaps]:
        """Compare the RAVENS maps of each tissue, and write the maps."""
        from surreal_bids.analysis.maps import MapOptions, map_tissue

        inputs, root = self.inputs, Path(self.inputs.output_dir)
        how = inputs.methods['map_smoothing'], inputs.methods['permutations'], found.random_seed
        return {
            tissue: map_tissue(
                found, root, folder / tissue, MapOptions(tissue, *how), inputs.n_threads
            )
            for tissue in inputs.methods['map_tissues']
        }

    def _map_deviations(self, found: Analysis) -> None:
        """Write the maps of z-scores of each visit."""
        from surreal_bids.analysis.maps import MappedCohort

        inputs, root = self.inputs, Path(self.inputs.output_dir)
        chosen, fwhm = set(found.cohort.visits.index), inputs.methods['map_smoothing']
        for tissue in inputs.methods['deviation_maps']:
            MappedCohort.read(root, found.everyone, tissue).write(chosen, fwhm, inputs.n_threads)


def load_model(card: str | Path) -> TableModel:
    """Load the model that a card belongs to."""
    from surreal_bids.rindices.model import TableModel

    return TableModel.load(Path(card).parent)


def load_trained(
    cohort: Cohort, options: TrainingOptions, model: TableModel, fold_cards: Sequence[str]
) -> Trained:
    """Load the models of folds, in their order, that belong to a model."""
    from surreal_bids.rindices.crossfit import Trained, assign_folds, explain_failure

    folds = assign_folds(cohort, options) if fold_cards else None
    if folds is None:
        return Trained(model)
    cards = {fold: Path(card) for fold, card in enumerate(fold_cards, start=1)}
    failed = {
        fold: explain_failure(fold, card[FAILED])
        for fold, path in cards.items()
        if FAILED in (card := json.loads(path.read_text(encoding='utf-8')))
    }
    models = {fold: load_model(path) for fold, path in cards.items() if fold not in failed}
    return Trained(model, replace(folds, failed=failed), models)


class _WriteIndividualsInput(BaseInterfaceInputSpec):
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    participants = traits.List(traits.Str(), mandatory=True, desc='who has a report')
    part = traits.Int(0, usedefault=True, desc='which of the parts of the participants to write')
    parts = traits.Int(1, usedefault=True, desc='number of parts')
    individuals_file = File(exists=True, mandatory=True, desc='what the reports show')
    model_card = File(exists=True, mandatory=True, desc='card of the model')
    model = traits.Str(desc='name of the model that was applied')
    adapted = traits.Bool(True, usedefault=True, desc='whether the model has learned the scanners')
    has_regions = traits.Bool(False, usedefault=True, desc='features are MUSE regions')
    failures_dir = traits.Str(mandatory=True, desc='folder for the reasons of failures')
    again = traits.Bool(False, usedefault=True, desc='also write reports that exist')


class _WriteIndividualsOutput(TraitedSpec):
    out_files = traits.List(File(exists=True), desc='the reports')


MAY_FAIL = (SurrealError, ValueError, TypeError, LookupError, AttributeError, TemplateError)
"""Errors of one report, which do not stop the others."""


class WriteIndividuals(Step):
    """Add R-indices to reports of participants; see :mod:`surreal_bids.reports.participant`.

    A report that fails does not stop the others; the reason is written to a file in `failures_dir`.
    """

    input_spec = _WriteIndividualsInput
    output_spec = _WriteIndividualsOutput
    # A report that someone deleted must come back, even if the node itself is cached.
    _always_run = True

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.analysis.outputs import GroupTables
        from surreal_bids.reports.card import meanings_of
        from surreal_bids.reports.mosaics import Background, RegionPainter
        from surreal_bids.reports.participant import write_failure, write_individual
        from surreal_bids.templates import muse_labels

        inputs = self.inputs
        tables = GroupTables.read(
            Path(inputs.output_dir),
            Path(inputs.individuals_file),
            Path(inputs.model_card),
            inputs.model or None,
            inputs.adapted,
        )
        painter = RegionPainter(Background.read(), muse_labels()) if inputs.has_regions else None
        meanings = meanings_of(tables.card, Path(inputs.output_dir))
        written = []
        following = dict(zip(inputs.participants, [*inputs.participants[1:], None]))
        own = inputs.participants[inputs.part :: inputs.parts]
        for done, name in enumerate(own, start=1):
            one, after = tables.of(name), following[name]
            try:
                path = write_individual(one, painter, meanings, after, again=inputs.again)
                written.append(os.fspath(path))
            except OutputError:
                raise  # The others could not be written either.
            except MAY_FAIL as error:
                LOGGER.debug('%s: no report', name, exc_info=True)
                label = without_prefix(name, 'sub')
                write_text(Path(inputs.failures_dir) / label, str(error) or type(error).__name__)
                write_failure(one, str(error))
            report_progress(done, len(own))
        self._results['out_files'] = written
        return runtime
