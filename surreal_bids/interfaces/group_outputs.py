"""Last steps of the group level: results in their places, and the report."""

from __future__ import annotations

import json
import os
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

from surreal_bids.bids.derivatives import output_path, write_sidecar
from surreal_bids.config import BUILTIN_ATLAS, BUILTIN_TEMPLATE
from surreal_bids.files import write_tsv
from surreal_bids.interfaces.group import SKIPPED, QuietStep, r_index_names
from surreal_bids.interfaces.group_maps import MAP_NAME, SUMMARY
from surreal_bids.interfaces.outputs import copy_whole
from surreal_bids.tables.cohort import Cohort, read_exact

if TYPE_CHECKING:
    from surreal_bids.reports.group_maps import Background
    from surreal_bids.reports.group_results import VoxelMaps

EXCLUSIONS, VOLUMES = 'exclusions.tsv', 'volumes.tsv'
"""Beside a cohort: who is not in it, and volumes of everyone."""

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
    """Write volumes, R-indices and the model; see :mod:`surreal_bids.tables.publishing`."""

    input_spec = _PublishResultsInput
    output_spec = _PublishResultsOutput
    # An output that someone deleted must come back, even if the node itself is cached.
    _always_run = True

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.tables import publishing

        inputs = self.inputs
        root, source = Path(inputs.output_dir), Path(inputs.cohort_dir)
        cohort, model_dir = Cohort.load(source), Path(inputs.model_dir)
        measured = read_exact(source / VOLUMES)
        visits = publishing.identifiers(measured)
        volumes = measured.drop(columns=visits.columns)
        publishing.publish_volumes(root, 'roi_volumes', visits, volumes, cohort)
        harmonized = read_exact(inputs.harmonized_file)
        who = publishing.identifiers(cohort.visits)
        publishing.publish_volumes(root, 'harmonized_volumes', who, harmonized, cohort)
        write_tsv(output_path(root, 'exclusions'), read_exclusions(source))
        publishing.publish_agreement(root, read_card(model_dir))
        publishing.publish_model(root, model_dir)
        results = read_exact(inputs.rindices_file)
        path = publishing.publish_r_indices(root, cohort, results, r_index_names(results))
        self._results['out_file'] = os.fspath(path)
        return runtime


def read_card(model_dir: Path) -> dict[str, Any]:
    """Read the card of a model."""
    return dict(json.loads((model_dir / 'model.json').read_text(encoding='utf-8')))


def read_exclusions(cohort_dir: Path) -> pd.DataFrame:
    """Read who was left out, and why."""
    return pd.read_csv(cohort_dir / EXCLUSIONS, sep='\t', dtype=str, keep_default_na=False)


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
    diagnosis_file = File(exists=True, desc='areas under the ROC curve')
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
        from surreal_bids.reports.group_results import GroupResults
        from surreal_bids.reports.methods import GroupMethods
        from surreal_bids.tables.assessment import read_quality

        inputs = self.inputs
        cohort, card = Cohort.load(inputs.cohort_dir), read_card(Path(inputs.model_dir))
        quality = self._given('quality_file')
        return GroupResults(
            cohort=cohort,
            exclusions=read_exclusions(Path(inputs.cohort_dir)),
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
            diagnosis=_publish_table(root, 'diagnosis', self._given('diagnosis_file')),
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
    from surreal_bids.reports.group_results import VoxelMaps

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
    from surreal_bids.imaging.template import builtin_template, read_template
    from surreal_bids.reports.group_maps import Background

    found = builtin_template() if template == BUILTIN_TEMPLATE else read_template(template)
    return Background(name, found.t1w, found.mask)
