"""Interfaces of the group level."""

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
    OutputMultiObject,
    SimpleInterface,
    TraitedSpec,
    isdefined,
    traits,
)

from surreal_bids.bids.derivatives import output_path, write_sidecar
from surreal_bids.bids.layout import without_prefix
from surreal_bids.bids.people import PARTICIPANT, SESSION
from surreal_bids.config import BUILTIN_ATLAS, BUILTIN_TEMPLATE, TrainingOptions
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_image, write_json, write_tsv
from surreal_bids.interfaces.outputs import copy_whole
from surreal_bids.tables.cohort import VISIT, Cohort, read_exact

if TYPE_CHECKING:
    from surreal_bids.reports.figures import Background
    from surreal_bids.reports.group import VoxelMaps
    from surreal_bids.stats.maps import PatternMap


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
        from surreal_bids.tables.analysis import assess_cohort, write_quality
        from surreal_bids.tables.pipeline import prepare

        folder = Path(runtime.cwd)
        cohort = Cohort.load(self.inputs.cohort_dir)
        data = prepare(cohort)
        steps = data.preprocessing
        harmonized = steps.harmonize(cohort.features, cohort.people)
        self._results['out_file'] = write_frame(folder / 'harmonized.tsv', harmonized)
        normalised = write_frame(folder / 'normalised.tsv', data.normalised)
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
    settings = traits.Dict(mandatory=True, desc='fields of TrainingOptions')
    n_patterns = traits.Int(mandatory=True, desc='number of patterns to train')
    checkpoint_dir = traits.Str(mandatory=True, desc='where members are kept')
    n_threads = traits.Int(1, usedefault=True, nohash=True, desc='threads of torch')


class _TrainMembersOutput(TraitedSpec):
    checkpoint_file = File(exists=True, desc='trained members')


class TrainMembers(QuietStep):
    """Train one number of patterns; see :func:`surreal_bids.tables.pipeline.train_patterns`."""

    input_spec = _TrainMembersInput
    output_spec = _TrainMembersOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.pipeline import prepare, train_patterns

        inputs = self.inputs
        _use_threads(inputs.n_threads)
        checkpoint = train_patterns(
            prepare(Cohort.load(inputs.cohort_dir)),
            TrainingOptions(**inputs.settings),
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
    settings = traits.Dict(mandatory=True, desc='fields of TrainingOptions')
    checkpoint_dir = traits.Str(mandatory=True, desc='where members are kept')
    checkpoint_files = InputMultiObject(File(exists=True), desc='members of each M', nohash=True)


class SelectModel(QuietStep):
    """Choose by agreement, and average; see :func:`surreal_bids.tables.pipeline.select_model`."""

    input_spec = _SelectModelInput
    output_spec = _ModelOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.pipeline import TableModel

        inputs = self.inputs
        cohort = Cohort.load(inputs.cohort_dir)
        options = TrainingOptions(**inputs.settings)
        model = TableModel.fit(cohort, options, Path(inputs.checkpoint_dir))
        return _keep_model(self, runtime, model, model.apply(cohort))


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
    """Apply a model to a dataset; see :func:`surreal_bids.tables.pipeline.adapt_to_controls`."""

    input_spec = _ApplyModelInput
    output_spec = _ApplyModelOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.pipeline import TableModel, adapt_to_controls

        folder = Path(runtime.cwd)
        model = TableModel.load(self.inputs.model_dir)
        adapted, cohort = adapt_to_controls(model, Cohort.load(self.inputs.cohort_dir))
        steps, first = adapted.preprocessing, cohort.first_visits()
        harmonized = steps.harmonize(cohort.features, cohort.people)
        normalised = steps.transform(first.features, first.people).normalised
        self._results['harmonized_file'] = write_frame(folder / 'harmonized.tsv', harmonized)
        self._results['normalised_file'] = write_frame(folder / 'normalised.tsv', normalised)
        results = adapted.apply(cohort)
        return _keep_model(self, runtime, adapted, results)


class _TrainHalfInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    settings = traits.Dict(mandatory=True, desc='fields of TrainingOptions')
    half = traits.Int(mandatory=True, desc='1 or 2')
    model_dir = Directory(exists=True, mandatory=True, desc='the model of all, whose M is taken')
    checkpoint_dir = traits.Str(mandatory=True, desc='where members are kept')
    n_threads = traits.Int(1, usedefault=True, nohash=True, desc='threads of torch')


class _TrainHalfOutput(TraitedSpec):
    rindices_file = File(exists=True, desc="everyone's R-indices by the model of this half")


class TrainHalf(QuietStep):
    """Train on half of the people; see :func:`surreal_bids.tables.pipeline.train_half`."""

    input_spec = _TrainHalfInput
    output_spec = _TrainHalfOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.pipeline import train_half

        inputs = self.inputs
        _use_threads(inputs.n_threads)
        card = json.loads((Path(inputs.model_dir) / 'model.json').read_text(encoding='utf-8'))
        chosen = {
            'n_patterns': [card['Selected']['n_patterns']],
            'ortho': [card['Selected']['ortho']],
        }
        results = train_half(
            Cohort.load(inputs.cohort_dir),
            TrainingOptions(**inputs.settings | chosen),
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


class CompareHalves(QuietStep):
    """Compare models of two halves; see :mod:`surreal_bids.tables.analysis`."""

    input_spec = _CompareHalvesInput
    output_spec = _CompareHalvesOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.analysis import compare_halves
        from surreal_bids.tables.pipeline import split_halves

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
        self._results['out_file'] = os.fspath(write_tsv(folder / 'halves.tsv', table))
        return runtime


class _DescribePatternsInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    model_dir = Directory(exists=True, mandatory=True, desc='the model')
    normalised_file = File(exists=True, mandatory=True, desc='what the network sees')


class _DescribePatternsOutput(TraitedSpec):
    out_file = File(exists=True, desc='change of each region by each pattern')


class DescribePatterns(QuietStep):
    """Tell what each pattern changes; see :mod:`surreal_bids.tables.analysis`."""

    input_spec = _DescribePatternsInput
    output_spec = _DescribePatternsOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables.analysis import describe_patterns
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


SUMMARY = 'summary.tsv'
MAP_NAME = '{contrast}_{statistic}.nii.gz'


def ravens_files(
    output_dir: Path, visits: pd.DataFrame, template: str, tissue: str
) -> dict[str, Path]:
    """RAVENS maps of these visits, by visit; those that are there."""
    paths = {
        str(visit): output_path(
            output_dir,
            'ravens',
            participant=without_prefix(row[PARTICIPANT], 'sub'),
            session=_session(row.get(SESSION)),
            template=template,
            tissue=tissue,
        )
        for visit, row in visits.iterrows()
    }
    return {visit: path for visit, path in paths.items() if path.is_file()}


def _session(cell: object) -> str | None:
    """Label of a session; a missing one is NaN in a table where others have some."""
    return without_prefix(cell, 'ses') if isinstance(cell, str) else None


class _MapPatternsInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    rindices_file = File(exists=True, mandatory=True, desc='R-indices')
    output_dir = traits.Str(mandatory=True, desc='where the RAVENS maps of people are')
    template = traits.Str(mandatory=True, desc='name of the template')
    tissue = traits.Str(mandatory=True, desc='GM, WM or CSF')
    smoothing = traits.Float(0.0, usedefault=True, desc='of the maps, FWHM in mm')
    permutations = traits.Int(0, usedefault=True, desc='for family-wise errors; 0: none')
    random_seed = traits.Int(0, usedefault=True, desc='of the permutations')
    stamp = traits.Str(desc='changes when the RAVENS maps do')
    n_threads = traits.Int(1, usedefault=True, nohash=True, desc='files read at once')


class _MapPatternsOutput(TraitedSpec):
    maps_dir = Directory(exists=True, desc='maps of each contrast, a summary, what was skipped')


class MapPatterns(QuietStep):
    """Compare RAVENS maps voxel by voxel; see :mod:`surreal_bids.stats.maps`."""

    input_spec = _MapPatternsInput
    output_spec = _MapPatternsOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.stats.glm import pattern_designs
        from surreal_bids.stats.maps import MapSeries, compute_maps

        inputs, folder = self.inputs, Path(runtime.cwd) / 'maps'
        first = Cohort.load(inputs.cohort_dir).first_visits()
        files = ravens_files(Path(inputs.output_dir), first.visits, inputs.template, inputs.tissue)
        people = first.select([str(visit) in files for visit in first.visits.index])
        results = read_exact(inputs.rindices_file).loc[people.visits.index]
        designs, skipped = pattern_designs(
            results[r_index_names(results)], ~people.is_patient, people.people
        )
        maps: list[PatternMap] = []
        if designs:
            series = MapSeries.open(
                list(files.values()), fwhm=inputs.smoothing, n_threads=inputs.n_threads
            )
            maps = compute_maps(series, designs, permutation=self._permutation(folder.parent))
        _keep_maps(folder, maps)
        write_json(folder / SKIPPED, {each.name: each.reason for each in skipped})
        self._results['maps_dir'] = os.fspath(folder)
        return runtime

    def _permutation(self, scratch_dir: Path) -> Any:
        from surreal_bids.stats.maps import Permutation

        if not self.inputs.permutations:
            return None
        return Permutation(self.inputs.permutations, self.inputs.random_seed, scratch_dir)


def _keep_maps(folder: Path, maps: list[PatternMap]) -> None:
    """Write the images of each contrast, and a table of what was found."""
    rows = []
    for each in maps:
        images = {'t': each.t, 'z': each.z, 'effect': each.effect, 'logp': each.log_p_fwe}
        for statistic, image in images.items():
            if image is not None:
                name = MAP_NAME.format(contrast=each.design.name, statistic=statistic)
                write_image(folder / name, image)
        rows.append(
            {
                'contrast': each.design.name,
                'description': each.design.description,
                'people': each.design.rows.size,
                'degrees_of_freedom': each.design.df,
                'voxels_tested': each.n_tested,
                't_at_fdr_0.05': each.t_fdr if each.n_discoveries else None,
                'discoveries': each.n_discoveries,
            }
        )
    columns = None if rows else ['contrast', 'description']
    write_tsv(folder / SUMMARY, pd.DataFrame(rows, columns=columns))


class _PaintPatternsInput(BaseInterfaceInputSpec):
    patterns_file = File(exists=True, mandatory=True, desc='change of each region')
    cache_dir = traits.Str(mandatory=True, nohash=True, desc='where the atlas is kept')


class _PaintPatternsOutput(TraitedSpec):
    out_files = OutputMultiObject(File(exists=True), desc='an image a pattern, named after it')


class PaintPatterns(QuietStep):
    """Draw what patterns change on the atlas; see :func:`surreal_bids.tables.analysis`."""

    input_spec = _PaintPatternsInput
    output_spec = _PaintPatternsOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.images import load_image
        from surreal_bids.imaging.atlas import default_atlas
        from surreal_bids.tables.analysis import paint_regions, values_by_region

        table = pd.read_csv(self.inputs.patterns_file, sep='\t', dtype={'muse_regions': str})
        labels = load_image(default_atlas(Path(self.inputs.cache_dir)).atlases[0].labels)
        self._results['out_files'] = [
            os.fspath(
                write_image(
                    Path(runtime.cwd) / f'{pattern}.nii.gz',
                    paint_regions(labels, values_by_region(rows)),
                )
            )
            for pattern, rows in table.groupby('pattern', sort=False)
        ]
        return runtime


STATISTICS = {
    't': 'Student t',
    'z': 'Normal deviate with the p value of t',
    'effect': 'Difference of means, or change per unit of the R-index, of the RAVENS map',
    'logp': '-log10 of the family-wise corrected p value, by permutation',
}
"""What each map holds."""


class _PublishResultsInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    harmonized_file = File(exists=True, mandatory=True, desc='volumes without site effects')
    rindices_file = File(exists=True, mandatory=True, desc='R-indices')
    model_dir = Directory(exists=True, mandatory=True, desc='the model')


class _PublishResultsOutput(TraitedSpec):
    out_file = File(exists=True, desc='the R-indices')


class PublishResults(QuietStep):
    """Write volumes, R-indices and the model; see :mod:`surreal_bids.tables.results`."""

    input_spec = _PublishResultsInput
    output_spec = _PublishResultsOutput
    # An output that someone deleted must come back, even if the node itself is cached.
    _always_run = True

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables import results as publishing

        inputs = self.inputs
        root, source = Path(inputs.output_dir), Path(inputs.cohort_dir)
        cohort, model_dir = Cohort.load(source), Path(inputs.model_dir)
        visits = publishing.identifiers(cohort.measured)
        volumes = cohort.measured.drop(columns=visits.columns)
        publishing.publish_volumes(root, 'roi_volumes', visits, volumes, cohort)
        harmonized = read_exact(inputs.harmonized_file)
        who = publishing.identifiers(cohort.visits)
        publishing.publish_volumes(root, 'harmonized_volumes', who, harmonized, cohort)
        write_tsv(output_path(root, 'exclusions'), cohort.exclusions)
        publishing.publish_agreement(root, read_card(model_dir))
        publishing.publish_model(root, model_dir)
        results = read_exact(inputs.rindices_file)
        path = publishing.publish_r_indices(root, cohort, results, r_index_names(results))
        self._results['out_file'] = os.fspath(path)
        return runtime


def read_card(model_dir: Path) -> dict[str, Any]:
    """Read the card of a model."""
    return dict(json.loads((model_dir / 'model.json').read_text(encoding='utf-8')))


class _ReportGroupInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    title = traits.Str(mandatory=True, desc='name of the dataset')
    template = traits.Str(mandatory=True, desc='name or folder of the template')
    template_name = traits.Str(mandatory=True, desc='its name in names of files')
    methods = traits.Dict(mandatory=True, desc='fields of GroupMethods that are not results')
    model_dir = Directory(exists=True, mandatory=True, desc='the model')
    rindices_file = File(exists=True, mandatory=True, desc='R-indices')
    patterns_file = File(exists=True, mandatory=True, desc='what patterns change')
    associations_file = File(exists=True, mandatory=True, desc='correlations')
    untested_file = File(exists=True, mandatory=True, desc='what was not tested')
    quality_file = traits.Any(desc='what harmonization did')
    halves_file = File(exists=True, desc='models of halves')
    pattern_maps = InputMultiObject(File(exists=True), desc='patterns on the atlas')
    tissues = traits.List(traits.Str(), desc='of the voxelwise maps')
    maps_dirs = InputMultiObject(Directory(exists=True), desc='voxelwise maps of each tissue')


class _ReportGroupOutput(TraitedSpec):
    out_file = File(exists=True, desc='the page')


class ReportGroup(QuietStep):
    """Write what was found about patterns, and the page; see :mod:`surreal_bids.reports.group`."""

    input_spec = _ReportGroupInput
    output_spec = _ReportGroupOutput
    _always_run = True

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.reports.group import write_group_report

        inputs = self.inputs
        root = Path(inputs.output_dir)
        has_maps = bool(self._given('pattern_maps') or self._given('maps_dirs'))
        background = load_background(inputs.template, inputs.template_name) if has_maps else None
        page = write_group_report(root, self._results_found(root), background, inputs.title)
        self._results['out_file'] = os.fspath(page)
        return runtime

    def _given(self, name: str) -> Any:
        value = getattr(self.inputs, name)
        return value if isdefined(value) else None

    def _results_found(self, root: Path) -> Any:
        from surreal_bids.reports.group import GroupResults
        from surreal_bids.reports.methods import GroupMethods
        from surreal_bids.tables.analysis import read_quality

        inputs = self.inputs
        cohort, card = Cohort.load(inputs.cohort_dir), read_card(Path(inputs.model_dir))
        quality = self._given('quality_file')
        return GroupResults(
            cohort=cohort,
            exclusions=cohort.exclusions.fillna('n/a'),
            card=card,
            results=read_exact(inputs.rindices_file),
            patterns=_publish_table(root, 'patterns', inputs.patterns_file),
            associations=_publish_table(root, 'associations', inputs.associations_file),
            untested=json.loads(Path(inputs.untested_file).read_text(encoding='utf-8')),
            methods=GroupMethods(
                n_controls=cohort.counts['CN'],
                n_patients=cohort.counts['PT'],
                n_features=card['NumberOfFeatures'],
                n_patterns=card['Selected']['n_patterns'],
                covariates=cohort.options.covariates,
                icv=cohort.options.icv,
                **{name: _immutable(value) for name, value in inputs.methods.items()},
            ),
            quality=read_quality(Path(quality)) if quality else None,
            halves=_publish_table(root, 'split_half', self._given('halves_file')),
            pattern_maps=self._pattern_maps(root),
            voxel_maps=self._voxel_maps(root),
        )

    def _pattern_maps(self, root: Path) -> dict[str, Path]:
        published = {}
        for path in map(Path, self._given('pattern_maps') or []):
            pattern = path.name.removesuffix('.nii.gz')
            target = output_path(
                root,
                'pattern_map',
                template=BUILTIN_TEMPLATE,
                atlas=BUILTIN_ATLAS,
                contrast=pattern,
            )
            copy_whole(path, target)
            text = f'Mean change in patients that belongs to {pattern}, per cent of controls'
            write_sidecar('pattern_map', target, {'Description': text})
            published[pattern] = target
        return published

    def _voxel_maps(self, root: Path) -> dict[str, VoxelMaps]:
        folders = map(Path, self._given('maps_dirs') or [])
        return {
            tissue: publish_maps(root, folder, tissue, self.inputs.template_name)
            for tissue, folder in zip(self._given('tissues') or [], folders)
        }


def _immutable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _publish_table(root: Path, name: str, source: str | None) -> Any:
    """Copy a table to its place, and read it; None where there is none."""
    if source is None:
        return None
    copy_whole(Path(source), output_path(root, name))
    text = {'muse_regions': str, 'higher_level': str}
    return pd.read_csv(source, sep='\t', dtype=text, na_values=['n/a'], keep_default_na=False)


def publish_maps(root: Path, folder: Path, tissue: str, template: str) -> VoxelMaps:
    """Copy the maps of one tissue to their places, with descriptions, and their table."""
    from surreal_bids.reports.group import VoxelMaps

    summary = pd.read_csv(folder / SUMMARY, sep='\t', na_values=['n/a'], keep_default_na=False)
    write_tsv(output_path(root, 'contrasts', tissue=tissue), summary)
    t_maps = {}
    for _, row in summary.iterrows():
        for statistic, meaning in STATISTICS.items():
            source = folder / MAP_NAME.format(contrast=row['contrast'], statistic=statistic)
            if not source.is_file():
                continue
            target = output_path(
                root,
                'statistical_map',
                template=template,
                tissue=tissue,
                contrast=row['contrast'],
                statistic=statistic,
            )
            copy_whole(source, target)
            metadata = {
                'Description': f'{meaning}: {row["description"]}, RAVENS maps of {tissue}',
                'DegreesOfFreedom': int(row['degrees_of_freedom']),
            }
            write_sidecar('statistical_map', target, metadata)
            if statistic == 't':
                t_maps[row['contrast']] = target
    skipped = json.loads((folder / SKIPPED).read_text(encoding='utf-8'))
    return VoxelMaps(t_maps, summary, skipped)


def load_background(template: str, name: str) -> Background:
    """Read what maps are drawn on: the built-in template, or one in a folder."""
    from surreal_bids.reports.figures import Background
    from surreal_bids.templates import builtin_template, read_template

    found = builtin_template() if template == BUILTIN_TEMPLATE else read_template(template)
    return Background(name, found.t1w, found.mask)
