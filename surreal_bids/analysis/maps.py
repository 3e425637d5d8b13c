"""Voxelwise maps of the R-indices: RAVENS maps of the participants, compared voxel by voxel."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.analysis.descriptions import write_described
from surreal_bids.analysis.engine import Analysis
from surreal_bids.bids.outputs import output_path, visit_output, write_sidecar
from surreal_bids.files import copy_file, write_image, write_json, write_tsv
from surreal_bids.names import PARTICIPANT, SESSION
from surreal_bids.stats.glm import Design, pattern_designs
from surreal_bids.stats.maps import MapSeries, PatternMap, Permutation, compute_maps

SUMMARY, RECORD = 'summary.tsv', 'record.json'
MAP_NAME = '{contrast}_{statistic}.nii.gz'


@dataclass(frozen=True)
class MapOptions:
    """How maps are compared.

    Attributes
    ----------
    smoothing
        Full width at half maximum of the smoothing of the RAVENS maps, in mm.
    permutations
        Number of permutations for family-wise errors; 0: none.
    random_seed
        Seed of the permutations.
    """

    smoothing: float = 0.0
    permutations: int = 0
    random_seed: int = 0


@dataclass(frozen=True, eq=False)
class TissueMaps:
    """Maps of one tissue in a folder of intermediate results.

    Attributes
    ----------
    folder
        An image for each contrast and statistic (`MAP_NAME`).
    summary : frame
        One row for each contrast: participants, degrees of freedom, number of discoveries.
    skipped
        Contrasts that were not computed, and the reasons.
    """

    folder: Path
    summary: pd.DataFrame
    skipped: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class VoxelMaps:
    """Published maps of one tissue.

    Attributes
    ----------
    images
        Image of each contrast that is drawn: t of a test, the effect of a description.
    summary, skipped
        As of `TissueMaps`.
    """

    images: Mapping[str, Path]
    summary: pd.DataFrame
    skipped: Mapping[str, str]


def ravens_files(
    output_dir: Path, visits: pd.DataFrame, template: str, tissue: str
) -> dict[str, Path]:
    """Find the RAVENS maps of these visits, by visit; those that exist."""
    entities = {'template': template, 'tissue': tissue}
    paths = {
        str(visit): visit_output(
            output_dir, 'ravens', row[PARTICIPANT], row.get(SESSION), **entities
        )
        for visit, row in visits.iterrows()
    }
    return {visit: path for visit, path in paths.items() if path and path.is_file()}


def map_tissue(
    found: Analysis,
    files: Mapping[str, Path],
    folder: Path,
    options: MapOptions,
    n_threads: int = 1,
) -> TissueMaps:
    """Compare the RAVENS maps of one tissue; maps of the same images and designs are reused.

    Parameters
    ----------
    found
        R-indices of the participants. A pattern that no participant has is not mapped.
    files
        RAVENS map of each visit that has one.
    folder
        Where the maps are kept.
    options
        Smoothing and permutations.
    n_threads
        Number of files that are read at once.
    """
    first = found.cohort.first_visits()
    mapped = first.select([str(visit) in files for visit in first.visits.index])
    indices = found.results.loc[mapped.visits.index, found.names]
    paths = [files[str(visit)] for visit in mapped.visits.index]
    designs, skipped = pattern_designs(indices, ~mapped.is_patient, mapped.people)
    reasons = {each.name: each.reason for each in skipped}
    record = {'inputs': _fingerprint(paths, designs, options), 'skipped': reasons}
    if not _holds(folder, record):
        # Nothing of an earlier run may pass for a map of this one.
        shutil.rmtree(folder, ignore_errors=True)
        maps = _compute(paths, designs, folder, options, n_threads) if designs else []
        write_tsv(folder / SUMMARY, _keep_images(folder, maps))
        images = sorted(path.name for path in folder.glob('*.nii.gz'))
        write_json(folder / RECORD, record | {'images': images})
    summary = pd.read_csv(folder / SUMMARY, sep='\t', na_values=['n/a'], keep_default_na=False)
    return TissueMaps(folder, summary, reasons)


def _fingerprint(paths: Sequence[Path], designs: Sequence[Design], options: MapOptions) -> str:
    """Hash of all that maps depend on."""
    digest = hashlib.sha256(repr(options).encode())
    for path in paths:
        status = path.stat()
        digest.update(repr((str(path), status.st_size, status.st_mtime_ns)).encode())
    for design in designs:
        facts = (design.name, design.description, design.is_test, design.scale)
        digest.update(repr((*facts, design.nuisance.shape)).encode())
        for array in (design.rows, design.tested, design.nuisance):
            digest.update(array.tobytes())
    return digest.hexdigest()


def _holds(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether a folder holds all maps that this record describes."""
    path = folder / RECORD
    if not path.is_file():
        return False
    found = json.loads(path.read_text(encoding='utf-8'))
    files = [SUMMARY, *found.pop('images')]
    return found == record and all((folder / name).is_file() for name in files)


def _compute(
    paths: Sequence[Path],
    designs: Sequence[Design],
    folder: Path,
    options: MapOptions,
    n_threads: int,
) -> list[PatternMap]:
    series = MapSeries.open(list(paths), fwhm=options.smoothing, n_threads=n_threads)
    permutation = None
    if options.permutations:
        folder.mkdir(parents=True, exist_ok=True)
        permutation = Permutation(options.permutations, options.random_seed, folder)
    return compute_maps(series, designs, permutation=permutation)


def _keep_images(folder: Path, maps: Sequence[PatternMap]) -> pd.DataFrame:
    """Write the images of each contrast; returns one row for each contrast."""
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
    return pd.DataFrame(rows, columns=None if rows else ['contrast', 'description'])


STATISTICS = {
    't': 'Student t',
    'z': 'Normal deviate with the p value of t',
    'effect': 'Difference of means, or change per unit of the R-index, of the RAVENS map',
    'logp': '-log10 of the family-wise corrected p value, by permutation',
}
"""What each statistical map holds."""

DESCRIPTION_ONLY = (
    '. A description, not a test: R-indices are computed from the same brains, which makes '
    'differences here even by chance'
)
"""Ends the description of maps of participants chosen or ordered by R-indices."""


def write_maps(root: Path, maps: TissueMaps, tissue: str, template: str) -> VoxelMaps:
    """Copy the maps of one tissue to the outputs, with descriptions, and write their table."""
    write_described('contrasts', output_path(root, 'contrasts', tissue=tissue), maps.summary)
    drawn = {}
    for _, row in maps.summary.iterrows():
        for statistic, meaning in STATISTICS.items():
            source = maps.folder / MAP_NAME.format(contrast=row['contrast'], statistic=statistic)
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
            copy_file(source, target)
            metadata = {
                'Description': f'{meaning}: {row["description"]}, RAVENS maps of {tissue}'
                + ('' if row['kind'] == 'test' else DESCRIPTION_ONLY),
                'DegreesOfFreedom': int(row['degrees_of_freedom']),
            }
            write_sidecar('statistical_map', target, metadata)
            if statistic == ('t' if row['kind'] == 'test' else 'effect'):
                drawn[row['contrast']] = target
    return VoxelMaps(drawn, maps.summary, maps.skipped)
