"""Steps of the group level on images: voxelwise maps, and patterns drawn on the atlas."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from nipype.interfaces.base import (
    BaseInterfaceInputSpec,
    Directory,
    File,
    OutputMultiObject,
    TraitedSpec,
    traits,
)

from surreal_bids.bids.derivatives import output_path
from surreal_bids.bids.labels import without_prefix
from surreal_bids.bids.participants import PARTICIPANT, SESSION
from surreal_bids.files import write_image, write_json, write_tsv
from surreal_bids.interfaces.group import SKIPPED, QuietStep, r_index_names
from surreal_bids.tables.cohort import Cohort, read_exact

if TYPE_CHECKING:
    from surreal_bids.stats.maps import PatternMap

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
        from surreal_bids.stats.designs import pattern_designs
        from surreal_bids.stats.images import MapSeries
        from surreal_bids.stats.maps import compute_maps

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
    """Draw what patterns change on the atlas; see :func:`surreal_bids.tables.patterns`."""

    input_spec = _PaintPatternsInput
    output_spec = _PaintPatternsOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.imaging.atlas import default_atlas
        from surreal_bids.imaging.images import load_image
        from surreal_bids.tables.patterns import paint_regions, values_by_region

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
