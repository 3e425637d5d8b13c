"""Interfaces of the group level: train, select, compare maps, publish.

The cohort and what it is trained on are written by the command; steps pass on model cards, whose
checksums cover the models beside them.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from nipype.interfaces.base import (
    BaseInterfaceInputSpec,
    Directory,
    File,
    InputMultiObject,
    TraitedSpec,
    isdefined,
    traits,
)

from surreal_bids.bids.layout import without_prefix
from surreal_bids.bids.outputs import output_path, write_sidecar
from surreal_bids.bids.tabular import PARTICIPANT, SESSION
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.config import BUILTIN_ATLAS, BUILTIN_TEMPLATE, TrainingOptions
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_image, write_json, write_tsv
from surreal_bids.interfaces import Step
from surreal_bids.interfaces.outputs import copy_whole

if TYPE_CHECKING:
    from surreal_bids.analysis.engine import GroupResults
    from surreal_bids.reports.group import VoxelMaps
    from surreal_bids.reports.viewers import Background
    from surreal_bids.rindices.crossfit import CrossFit
    from surreal_bids.rindices.model import TableModel
    from surreal_bids.stats.maps import PatternMap

# Functions of the model are imported where they run: torch takes seconds to import.


class _TrainInput(BaseInterfaceInputSpec):
    data_file = File(exists=True, mandatory=True, desc='what to train on')
    options = traits.Dict(mandatory=True, desc='fields of TrainingOptions')
    checkpoint_dir = traits.Str(mandatory=True, desc='where members are kept')
    n_threads = traits.Int(1, usedefault=True, nohash=True, desc='threads of torch')


class _TrainPatternsInput(_TrainInput):
    n_patterns = traits.Int(mandatory=True, desc='number of patterns to train')


class _TrainPatternsOutput(TraitedSpec):
    checkpoint_file = File(exists=True, desc='trained members')


class TrainPatterns(Step):
    """Train one number of patterns; see :func:`surreal_bids.rindices.model.train_patterns`."""

    input_spec = _TrainPatternsInput
    output_spec = _TrainPatternsOutput

    def _run_step(self, runtime: Any) -> Any:
        import torch

        from surreal_bids.rindices.model import TrainingData, train_patterns

        inputs = self.inputs
        torch.set_num_threads(inputs.n_threads)
        checkpoint = train_patterns(
            TrainingData.load(inputs.data_file),
            TrainingOptions(**inputs.options),
            inputs.n_patterns,
            Path(inputs.checkpoint_dir),
        )
        self._results['checkpoint_file'] = os.fspath(checkpoint)
        return runtime


class _SelectModelInput(_TrainInput):
    checkpoint_files = InputMultiObject(File(exists=True), desc='members of each M', nohash=True)
    half = traits.Int(desc='half of the participants that is trained on, if it is one')


class _SelectModelOutput(TraitedSpec):
    model_card = File(exists=True, desc='card of the model, which is beside')


class SelectModel(Step):
    """Choose by agreement, and average; see :func:`surreal_bids.rindices.model.select_model`.

    Members that no other step has trained are trained here.
    """

    input_spec = _SelectModelInput
    output_spec = _SelectModelOutput

    def _run_step(self, runtime: Any) -> Any:
        import torch

        from surreal_bids.model.bundle import CARD
        from surreal_bids.rindices.crossfit import half_options
        from surreal_bids.rindices.model import TrainingData, select_model

        inputs = self.inputs
        torch.set_num_threads(inputs.n_threads)
        options = TrainingOptions(**inputs.options)
        if isdefined(inputs.half):
            options = half_options(options, inputs.half)
        data = TrainingData.load(inputs.data_file)
        model = select_model(data, options, Path(inputs.checkpoint_dir))
        folder = model.save(Path(runtime.cwd) / 'model')
        self._results['model_card'] = os.fspath(folder / CARD)
        return runtime


FAILED = 'Failed'
"""Key of a card that says why there is no model of a fold."""


class _FitFoldInput(_TrainInput):
    fold = traits.Int(mandatory=True, desc='number of the fold that is held out')
    final_card = File(exists=True, mandatory=True, desc='card of the model of all participants')


class FitFold(Step):
    """Train without a fold; see :func:`surreal_bids.rindices.crossfit.fit_fold`.

    Where that cannot be, the card says why: the participants of one fold then have no R-indices,
    which is no reason for the others to have none.
    """

    input_spec = _FitFoldInput
    output_spec = _SelectModelOutput

    def _run_step(self, runtime: Any) -> Any:
        import torch

        from surreal_bids.model.bundle import CARD
        from surreal_bids.rindices.crossfit import fit_fold
        from surreal_bids.rindices.model import TrainingData

        inputs, folder = self.inputs, Path(runtime.cwd) / 'model'
        torch.set_num_threads(inputs.n_threads)
        try:
            fit_fold(
                TrainingData.load(inputs.data_file),
                TrainingOptions(**inputs.options),
                load_model(inputs.final_card).gan.selected_,
                inputs.fold,
                Path(inputs.checkpoint_dir),
            ).save(folder)
        except DataError as error:
            write_json(folder / CARD, {FAILED: str(error)})
        self._results['model_card'] = os.fspath(folder / CARD)
        return runtime


class _HeldOutInput(BaseInterfaceInputSpec):
    cohort_dir = Directory(exists=True, mandatory=True, desc='the cohort')
    model_card = File(exists=True, mandatory=True, desc='card of the model')
    folds_file = File(exists=True, desc='who is in which fold, if models of folds were trained')
    fold_cards = InputMultiObject(File(exists=True), desc='cards of the models of folds')


def load_fitted(inputs: Any, cohort: Cohort, model: TableModel) -> CrossFit | None:
    """Models of folds and what they give the held out; None where there are no folds."""
    from surreal_bids.rindices.crossfit import Folds, cross_fit

    if not isdefined(inputs.folds_file):
        return None
    folds = Folds.load(inputs.folds_file)
    trained = [number for number in range(1, folds.count + 1) if number not in folds.failed]
    cards = dict(zip(trained, inputs.fold_cards if isdefined(inputs.fold_cards) else []))
    failed = {number: read_json(card).get(FAILED) for number, card in cards.items()}
    reasons = {
        number: f'no model without fold {number}: {reason}'
        for number, reason in failed.items()
        if reason is not None
    }
    models = {number: load_model(cards[number]) for number in cards if number not in reasons}
    failed_folds = replace(folds, failed={**folds.failed, **reasons})
    return cross_fit(cohort, model, failed_folds, models).without_lost()


SUMMARY, SKIPPED = 'summary.tsv', 'skipped.json'
MAP_NAME = '{contrast}_{statistic}.nii.gz'


class _MapPatternsInput(_HeldOutInput):
    output_dir = traits.Str(mandatory=True, desc='where the RAVENS maps of participants are')
    template = traits.Str(mandatory=True, desc='name of the template')
    tissue = traits.Str(mandatory=True, desc='GM, WM or CSF')
    smoothing = traits.Float(0.0, usedefault=True, desc='of the maps, FWHM in mm')
    permutations = traits.Int(0, usedefault=True, desc='for family-wise errors; 0: none')
    random_seed = traits.Int(0, usedefault=True, desc='of the permutations')
    stamp = traits.Str(desc='changes when the RAVENS maps do')
    n_threads = traits.Int(1, usedefault=True, nohash=True, desc='files read at once')


class _MapPatternsOutput(TraitedSpec):
    maps_dir = Directory(exists=True, desc='maps of each contrast, a summary, what was skipped')


class MapPatterns(Step):
    """Compare RAVENS maps voxel by voxel; see :mod:`surreal_bids.stats.maps`."""

    input_spec = _MapPatternsInput
    output_spec = _MapPatternsOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.stats.glm import pattern_designs
        from surreal_bids.stats.maps import MapSeries, Permutation, compute_maps

        inputs, folder = self.inputs, Path(runtime.cwd) / 'maps'
        cohort, model = Cohort.load(inputs.cohort_dir), load_model(inputs.model_card)
        fitted = load_fitted(inputs, cohort, model)
        results = model.apply(cohort) if fitted is None else fitted.results
        # A pattern that no fold has found again is nobody's; it does not cost the other maps.
        found = results[list(model.pattern_names)].dropna(axis=1, how='all')
        first = cohort.first_visits()
        files = ravens_files(Path(inputs.output_dir), first.visits, inputs.template, inputs.tissue)
        mapped = first.select([str(visit) in files for visit in first.visits.index])
        indices = found.loc[mapped.visits.index]
        designs, skipped = pattern_designs(indices, ~mapped.is_patient, mapped.people)
        maps: list[PatternMap] = []
        if designs:
            series = MapSeries.open(
                list(files.values()), fwhm=inputs.smoothing, n_threads=inputs.n_threads
            )
            permutation = None
            if inputs.permutations:
                permutation = Permutation(inputs.permutations, inputs.random_seed, folder.parent)
            maps = compute_maps(series, designs, permutation=permutation)
        _keep_maps(folder, maps)
        write_json(folder / SKIPPED, {each.name: each.reason for each in skipped})
        self._results['maps_dir'] = os.fspath(folder)
        return runtime


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
                'participants': each.design.rows.size,
                'degrees_of_freedom': each.design.df,
                'kind': 'test' if each.design.is_test else 'description',
                'voxels': each.n_tested,
                't_at_fdr_0.05': each.t_fdr if each.n_discoveries else None,
                'discoveries': each.n_discoveries,
            }
        )
    columns = None if rows else ['contrast', 'description']
    write_tsv(folder / SUMMARY, pd.DataFrame(rows, columns=columns))


class _PublishGroupInput(_HeldOutInput):
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    title = traits.Str(mandatory=True, desc='name of the dataset')
    template = traits.Str(mandatory=True, desc='name or folder of the template')
    template_name = traits.Str(mandatory=True, desc='its name in names of files')
    methods = traits.Dict(mandatory=True, desc='fields of GroupMethods that are not results')
    random_seed = traits.Int(0, usedefault=True, desc='of halves and folds')
    atlas_dir = traits.Str(desc='where the atlas is kept, to show patterns on it')
    half_cards = InputMultiObject(File(exists=True), desc='cards of the models of halves')
    tissues = traits.List(traits.Str(), desc='of the voxelwise maps')
    maps_dirs = InputMultiObject(Directory(exists=True), desc='voxelwise maps of each tissue')


class _PublishGroupOutput(TraitedSpec):
    out_file = File(exists=True, desc='the report')
    deviations_file = File(exists=True, desc='regions of each visit in SD of controls')


class PublishGroup(Step):
    """Analyse, and write tables, model, maps and report; see :mod:`surreal_bids.reports.group`."""

    input_spec = _PublishGroupInput
    output_spec = _PublishGroupOutput
    # An output that someone deleted must come back, even if the node itself is cached.
    _always_run = True

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.analysis.engine import analyse_group
        from surreal_bids.analysis.outputs import publish_group
        from surreal_bids.reports.group import GroupReport, write_group_report
        from surreal_bids.rindices.crossfit import warn_of_lost

        inputs, root = self.inputs, Path(self.inputs.output_dir)
        cohort, model = Cohort.load(inputs.cohort_dir), load_model(inputs.model_card)
        fitted = load_fitted(inputs, cohort, model)
        if fitted is not None:
            warn_of_lost(fitted)
        found = analyse_group(
            cohort,
            model,
            [load_model(card) for card in self._given('half_cards')],
            fitted=fitted,
            trained_here=inputs.methods['model'] is None,
            random_seed=inputs.random_seed,
        )
        publish_group(root, found, Path(inputs.model_card).parent)
        voxel_maps = {
            tissue: publish_maps(root, Path(folder), tissue, inputs.template_name)
            for tissue, folder in zip(self._given('tissues'), self._given('maps_dirs'))
        }
        atlas_dir = self._given('atlas_dir')
        pattern_maps = publish_patterns(root, found, Path(atlas_dir)) if atlas_dir else {}
        has_maps = bool(pattern_maps or voxel_maps)
        report = GroupReport(
            output_dir=root,
            title=inputs.title,
            found=found,
            card=read_json(inputs.model_card),
            methods=group_methods(found, inputs.methods),
            pattern_maps=pattern_maps,
            voxel_maps=voxel_maps,
            background=_background(inputs.template, inputs.template_name) if has_maps else None,
        )
        self._results['out_file'] = os.fspath(write_group_report(report))
        deviations = write_tsv(Path(runtime.cwd) / 'deviations.tsv', found.deviations())
        self._results['deviations_file'] = os.fspath(deviations)
        return runtime

    def _given(self, name: str) -> Any:
        value = getattr(self.inputs, name)
        return value if isdefined(value) else []


def read_json(path: str | Path) -> Any:
    """Read a JSON file of ours."""
    return json.loads(Path(path).read_text(encoding='utf-8'))


def load_model(card: str) -> TableModel:
    """Load the model that a card belongs to."""
    from surreal_bids.rindices.model import TableModel

    return TableModel.load(Path(card).parent)


def group_methods(found: GroupResults, asked: dict[str, Any]) -> Any:
    """What was done, from what was asked for and what was found."""
    from surreal_bids.reports.methods import GroupMethods

    cohort, change = found.cohort, found.group_change
    known = dict(asked) | {'map_tissues': tuple(asked['map_tissues'])}
    gan = found.model.gan
    if known['model'] is None:
        tried = gan.number_.stabilities if gan.number_ else gan.members_
        known |= {
            'preset': gan.preset,
            'candidates': tuple(sorted({each.n_patterns for each in tried})),
            'members': len(gan.members_),
            'iterations': gan.most_iterations,
        }
    return GroupMethods(
        n_controls=cohort.counts['CN'],
        n_patients=cohort.counts['PT'],
        n_features=len(cohort.wanted),
        n_patterns=len(found.names),
        folds=0 if found.fitted is None else found.fitted.folds.count,
        covariates=cohort.options.covariates,
        icv=cohort.options.icv,
        associations=cohort.counts['PT'] > 0,
        slopes=() if change is None else tuple(change['slopes'].dropna().unique()),
        **known,
    )


STATISTICS = {
    't': 'Student t',
    'z': 'Normal deviate with the p value of t',
    'effect': 'Difference of means, or change per unit of the R-index, of the RAVENS map',
    'logp': '-log10 of the family-wise corrected p value, by permutation',
}
"""What each map holds."""

DESCRIPTION_ONLY = (
    '. A description, not a test: R-indices are functions of the same brains, so that chance alone '
    'makes differences here'
)
"""Ends the description of maps of participants chosen or ordered by R-indices."""


def publish_maps(root: Path, folder: Path, tissue: str, template: str) -> VoxelMaps:
    """Copy the maps of one tissue to their places, with descriptions, and their table."""
    from surreal_bids.analysis.descriptions import write_described
    from surreal_bids.reports.group import VoxelMaps

    summary = pd.read_csv(folder / SUMMARY, sep='\t', na_values=['n/a'], keep_default_na=False)
    write_described('contrasts', output_path(root, 'contrasts', tissue=tissue), summary)
    drawn = {}
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
                'Description': f'{meaning}: {row["description"]}, RAVENS maps of {tissue}'
                + ('' if row['kind'] == 'test' else DESCRIPTION_ONLY),
                'DegreesOfFreedom': int(row['degrees_of_freedom']),
            }
            write_sidecar('statistical_map', target, metadata)
            if statistic == ('t' if row['kind'] == 'test' else 'effect'):
                drawn[row['contrast']] = target
    return VoxelMaps(drawn, summary, read_json(folder / SKIPPED))


def publish_patterns(root: Path, found: GroupResults, atlas_dir: Path) -> dict[str, Path]:
    """Write what each pattern changes as an image of the atlas; images by pattern."""
    from surreal_bids.analysis.engine import paint_regions, values_by_region
    from surreal_bids.images import load_image
    from surreal_bids.imaging.atlas import default_atlas

    labels = load_image(default_atlas(atlas_dir).atlases[0].labels)
    published = {}
    for name, rows in found.patterns.groupby('pattern', sort=False):
        target = output_path(
            root,
            'pattern_map',
            template=BUILTIN_TEMPLATE,
            atlas=BUILTIN_ATLAS,
            contrast=str(name),
        )
        published[str(name)] = write_image(target, paint_regions(labels, values_by_region(rows)))
        text = f'Mean change in {found.whose} that belongs to {name}, per cent of controls'
        write_sidecar('pattern_map', target, {'Description': text})
    return published


def _background(template: str, name: str) -> Background:
    """What maps are drawn on: the built-in template, or one in a folder."""
    from surreal_bids.reports.viewers import Background
    from surreal_bids.templates import builtin_template, read_template

    found = builtin_template() if template == BUILTIN_TEMPLATE else read_template(template)
    return Background(name, found.t1w, found.mask)
