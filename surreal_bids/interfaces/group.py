"""Steps of the group level on volumes: harmonize, train, select or apply, and what follows."""

from __future__ import annotations

import json
import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from nipype.interfaces.base import (
    BaseInterfaceInputSpec,
    Directory,
    File,
    InputMultiObject,
    SimpleInterface,
    TraitedSpec,
    traits,
)

from surreal_bids.exceptions import DataError
from surreal_bids.files import write_json, write_tsv
from surreal_bids.tables.cohort import VISIT, Cohort, read_exact

if TYPE_CHECKING:
    from surreal_bids.tables.steps import TrainingSettings

R_INDEX = re.compile(r'r\d+')
RINDICES = 'rindices.tsv'
SKIPPED = 'skipped.json'


def write_frame(path: Path, table: pd.DataFrame) -> str:
    """Write a table with the visits of its index as a column; the path as text."""
    # A copy holds its columns together, which those of a table put together by columns are not.
    return os.fspath(write_tsv(path, table.copy().rename_axis(VISIT).reset_index()))


def r_index_names(results: pd.DataFrame) -> list[str]:
    """Columns of R-indices: r1, r2, ..."""
    return [str(name) for name in results if R_INDEX.fullmatch(str(name))]


class QuietStep(SimpleInterface):
    """A step that holds back warnings: the report has them, and every step would give them again.

    Steps define `_run_step`, which does what `_run_interface` does for other interfaces.
    """

    def _run_interface(self, runtime: Any) -> Any:
        logger = logging.getLogger('surreal_bids')
        level = logger.level
        logger.setLevel(logging.ERROR)
        try:
            return self._run_step(runtime)
        finally:
            logger.setLevel(level)

    def _run_step(self, runtime: Any) -> Any:
        """Do the work."""
        raise NotImplementedError


def _settings(values: dict[str, Any]) -> TrainingSettings:
    # Brings in torch, which only the process that runs a step needs.
    from surreal_bids.tables.steps import TrainingSettings

    return TrainingSettings(**values)


def _use_threads(number: int) -> None:
    import torch

    torch.set_num_threads(number)


class _HarmonizeInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    random_seed = traits.Int(0, usedefault=True, desc='decides the folds of the assessment')


class _HarmonizeOutput(TraitedSpec):
    out_file = File(desc='volumes without site effects')
    normalised_file = File(exists=True, desc='what the network sees, of first visits')
    quality_file = File(desc='what harmonization did, if there are several sites')


class HarmonizeVolumes(QuietStep):
    """Harmonize, residualise and normalise; see :mod:`surreal_bids.tables.preprocessing`."""

    input_spec = _HarmonizeInput
    output_spec = _HarmonizeOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.assessment import assess_cohort, write_quality
        from surreal_bids.tables.steps import prepare

        folder = Path(runtime.cwd)
        cohort = Cohort.load(self.inputs.cohort_dir)
        steps, prepared = prepare(cohort)
        harmonized = steps.harmonize(cohort.features, cohort.people)
        self._results['out_file'] = write_frame(folder / 'harmonized.tsv', harmonized)
        normalised = write_frame(folder / 'normalised.tsv', prepared.normalised)
        self._results['normalised_file'] = normalised
        if steps.combat is not None:
            # Where a covariate has rare values, folds may lack them: no reason to do without maps.
            quality = None
            with suppress(DataError):
                quality = assess_cohort(cohort, harmonized, self.inputs.random_seed)
            if quality is not None:
                path = write_quality(folder / 'quality.json', quality)
                self._results['quality_file'] = os.fspath(path)
        return runtime


class _TrainMembersInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    settings = traits.Dict(mandatory=True, desc='fields of TrainingSettings')
    n_patterns = traits.Int(mandatory=True, desc='number of patterns to train')
    checkpoint_dir = traits.Str(mandatory=True, desc='where members are kept')
    n_threads = traits.Int(1, usedefault=True, nohash=True, desc='threads of torch')


class _TrainMembersOutput(TraitedSpec):
    checkpoint_file = File(exists=True, desc='trained members')


class TrainMembers(QuietStep):
    """Train one number of patterns; see :func:`surreal_bids.tables.steps.train_patterns`."""

    input_spec = _TrainMembersInput
    output_spec = _TrainMembersOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.steps import train_patterns

        inputs = self.inputs
        _use_threads(inputs.n_threads)
        checkpoint = train_patterns(
            Cohort.load(inputs.cohort_dir),
            _settings(inputs.settings),
            inputs.n_patterns,
            Path(inputs.checkpoint_dir),
        )
        self._results['checkpoint_file'] = os.fspath(checkpoint)
        return runtime


class _ModelOutput(TraitedSpec):
    model_dir = Directory(exists=True, desc='the model')
    rindices_file = File(exists=True, desc='R-indices of every visit')


class _SelectModelInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    settings = traits.Dict(mandatory=True, desc='fields of TrainingSettings')
    checkpoint_dir = traits.Str(mandatory=True, desc='where members are kept')
    checkpoint_files = InputMultiObject(File(exists=True), desc='members of each M', nohash=True)


class SelectModel(QuietStep):
    """Choose by agreement, and average; see :func:`surreal_bids.tables.steps.select_model`."""

    input_spec = _SelectModelInput
    output_spec = _ModelOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.steps import select_model

        inputs = self.inputs
        cohort = Cohort.load(inputs.cohort_dir)
        model, results = select_model(
            cohort, _settings(inputs.settings), Path(inputs.checkpoint_dir)
        )
        return _keep_model(self, runtime, model, results)


def _keep_model(step: SimpleInterface, runtime: Any, model: Any, results: pd.DataFrame) -> Any:
    """Save a model and everyone's R-indices in the folder of a node."""
    folder = Path(runtime.cwd)
    step._results['model_dir'] = os.fspath(model.save(folder / 'model'))
    step._results['rindices_file'] = write_frame(folder / RINDICES, results)
    return runtime


class _ApplyModelInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    model_dir = Directory(exists=True, mandatory=True, desc='the model')


class _ApplyModelOutput(_ModelOutput):
    harmonized_file = File(exists=True, desc='volumes without site effects')
    normalised_file = File(exists=True, desc='what the network sees, of first visits')


class ApplyModel(QuietStep):
    """Apply a model to a dataset; see :func:`surreal_bids.tables.reference.adapt_to_controls`."""

    input_spec = _ApplyModelInput
    output_spec = _ApplyModelOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.pipeline import TableModel
        from surreal_bids.tables.reference import adapt_to_controls

        folder = Path(runtime.cwd)
        model = TableModel.load(self.inputs.model_dir)
        adapted, cohort = adapt_to_controls(model, Cohort.load(self.inputs.cohort_dir))
        steps, first = adapted.preprocessing, cohort.first_visits()
        harmonized = steps.harmonize(cohort.features, cohort.people)
        normalised = steps.transform(first.features, first.people).normalised
        self._results['harmonized_file'] = write_frame(folder / 'harmonized.tsv', harmonized)
        self._results['normalised_file'] = write_frame(folder / 'normalised.tsv', normalised)
        results = adapted.apply(cohort.features, cohort.people)
        return _keep_model(self, runtime, adapted, results)


class _TrainHalfInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    settings = traits.Dict(mandatory=True, desc='fields of TrainingSettings')
    half = traits.Int(mandatory=True, desc='1 or 2')
    model_dir = Directory(exists=True, mandatory=True, desc='the model of all, whose M is taken')
    checkpoint_dir = traits.Str(mandatory=True, desc='where members are kept')
    n_threads = traits.Int(1, usedefault=True, nohash=True, desc='threads of torch')


class _TrainHalfOutput(TraitedSpec):
    rindices_file = File(exists=True, desc="everyone's R-indices by the model of this half")


class TrainHalf(QuietStep):
    """Train on half of the people; see :func:`surreal_bids.tables.steps.train_half`."""

    input_spec = _TrainHalfInput
    output_spec = _TrainHalfOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.steps import train_half

        inputs = self.inputs
        _use_threads(inputs.n_threads)
        card = json.loads((Path(inputs.model_dir) / 'model.json').read_text(encoding='utf-8'))
        chosen = {
            'n_patterns': [card['Selected']['n_patterns']],
            'ortho': [card['Selected']['ortho']],
        }
        results = train_half(
            Cohort.load(inputs.cohort_dir),
            _settings(inputs.settings | chosen),
            inputs.half,
            Path(inputs.checkpoint_dir) / f'half-{inputs.half}',
        )
        self._results['rindices_file'] = write_frame(Path(runtime.cwd) / RINDICES, results)
        return runtime


class _CompareHalvesInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    rindices_file = File(exists=True, mandatory=True, desc='R-indices by the model of all')
    half_files = InputMultiObject(File(exists=True), mandatory=True, desc='of the two halves')
    random_seed = traits.Int(mandatory=True, desc='that the halves were drawn with')


class _CompareHalvesOutput(TraitedSpec):
    out_file = File(exists=True, desc='how alike the models are')
    held_out_file = File(exists=True, desc='R-indices by the model of the other half')


class CompareHalves(QuietStep):
    """Compare models of two halves; see :mod:`surreal_bids.tables.halves`."""

    input_spec = _CompareHalvesInput
    output_spec = _CompareHalvesOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.halves import compare_halves, held_out_indices
        from surreal_bids.tables.steps import split_halves

        inputs, folder = self.inputs, Path(runtime.cwd)
        first = Cohort.load(inputs.cohort_dir).first_visits()
        results = read_exact(inputs.rindices_file).loc[first.visits.index]
        everyone = results[r_index_names(results)]
        of_half = {
            half: read_exact(path).loc[first.visits.index]
            for half, path in enumerate(inputs.half_files, start=1)
        }
        halves = split_halves(first, inputs.random_seed)
        table = compare_halves(everyone, of_half, halves, first.is_patient)
        held_out = held_out_indices(everyone, of_half, halves, first.is_patient)
        self._results['out_file'] = os.fspath(write_tsv(folder / 'halves.tsv', table))
        self._results['held_out_file'] = write_frame(folder / 'held_out.tsv', held_out)
        return runtime


class _DescribePatternsInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    model_dir = Directory(exists=True, mandatory=True, desc='the model')
    normalised_file = File(exists=True, mandatory=True, desc='what the network sees')


class _DescribePatternsOutput(TraitedSpec):
    out_file = File(exists=True, desc='change of each region by each pattern')


class DescribePatterns(QuietStep):
    """Tell what each pattern changes; see :mod:`surreal_bids.tables.patterns`."""

    input_spec = _DescribePatternsInput
    output_spec = _DescribePatternsOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.patterns import describe_patterns
        from surreal_bids.tables.pipeline import TableModel

        cohort = Cohort.load(self.inputs.cohort_dir)
        normalised = read_exact(self.inputs.normalised_file)
        patients = normalised[cohort.is_patient[normalised.index].to_numpy(dtype=bool)]
        people = normalised if patients.empty else patients
        table = describe_patterns(TableModel.load(self.inputs.model_dir), people)
        path = write_tsv(Path(runtime.cwd) / 'patterns.tsv', table)
        self._results['out_file'] = os.fspath(path)
        return runtime


class _AssociateInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    rindices_file = File(exists=True, mandatory=True, desc='R-indices')


class _AssociateOutput(TraitedSpec):
    out_file = File(exists=True, desc='correlations with clinical measures')
    skipped_file = File(exists=True, desc='what was not tested, and why')


class Associate(QuietStep):
    """Relate R-indices of patients to other measures; see `surreal_bids.stats.associations`."""

    input_spec = _AssociateInput
    output_spec = _AssociateOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.stats.associations import associate

        folder = Path(runtime.cwd)
        first = Cohort.load(self.inputs.cohort_dir).first_visits()
        patients = first.select(first.is_patient)
        results = read_exact(self.inputs.rindices_file).loc[patients.visits.index]
        measures = pd.concat([patients.people, patients.others], axis=1)
        table, skipped = associate(measures, results[r_index_names(results)])
        self._results['out_file'] = os.fspath(write_tsv(folder / 'associations.tsv', table))
        reasons = {each.name: each.reason for each in skipped}
        self._results['skipped_file'] = os.fspath(write_json(folder / SKIPPED, reasons))
        return runtime


class _DiagnoseInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    rindices_file = File(exists=True, mandatory=True, desc='R-indices')
    normalised_file = File(exists=True, mandatory=True, desc='all regions')
    held_out_file = File(exists=True, desc='R-indices by models that have not seen the person')
    n_repeats = traits.Int(100, usedefault=True, desc='random splits')
    random_seed = traits.Int(0, usedefault=True, desc='of the splits')


class _DiagnoseOutput(TraitedSpec):
    out_file = File(exists=True, desc='area under the ROC curve of each split')


class Diagnose(QuietStep):
    """Tell patients from controls; see :mod:`surreal_bids.stats.diagnosis`."""

    input_spec = _DiagnoseInput
    output_spec = _DiagnoseOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.stats.diagnosis import diagnosis_auc

        inputs = self.inputs
        regions = read_exact(inputs.normalised_file)
        results = read_exact(inputs.rindices_file).loc[regions.index]
        features = {'R-indices': results[r_index_names(results)]}
        if inputs.held_out_file:
            held_out = read_exact(inputs.held_out_file).loc[regions.index]
            features['R-indices, model of the other half'] = held_out
        features['all regions'] = regions
        patient = Cohort.load(inputs.cohort_dir).is_patient[regions.index].to_numpy(dtype=bool)
        table = diagnosis_auc(
            features, patient, regions.index, n_repeats=inputs.n_repeats, seed=inputs.random_seed
        )
        path = write_tsv(Path(runtime.cwd) / 'diagnosis.tsv', table)
        self._results['out_file'] = os.fspath(path)
        return runtime
