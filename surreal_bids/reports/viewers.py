"""Maps of the group report: slices in it, and viewers beside it to move through them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import nibabel as nib
import pandas as pd

from surreal_bids.analysis.maps import VoxelMaps
from surreal_bids.bids.outputs import output_path
from surreal_bids.reports.mosaics import Background, StatisticalMap
from surreal_bids.reports.pages import Block, Figure, Paragraph, Section, Table


def drawn_results(
    maps: VoxelMaps, tissue: str, rows: pd.DataFrame, label: str, threshold: str | None = None
) -> dict[str, StatisticalMap]:
    """Return the maps of rows of the summary of voxelwise results; `threshold` is a column."""
    return {
        f'{row["contrast"]}{tissue}': StatisticalMap(
            nib.Nifti1Image.from_filename(maps.images[row['contrast']]),
            f'{tissue}: {row["description"]}',
            label,
            0.0 if threshold is None else row[threshold],
        )
        for _, row in rows.iterrows()
    }


def draw_maps(
    root: Path, background: Background | None, maps: Mapping[str, StatisticalMap], caption: str
) -> list[Figure]:
    """Draw mosaics of maps, each with a link to its viewer; nothing without a background."""
    if background is None:
        return []
    back = output_path(root, 'group_report')
    shown = []
    for name, each in maps.items():
        paths = [
            output_path(root, 'group_figure', figure=name, extension=extension)
            for extension in ('jpg', 'html')
        ]
        each.draw(paths[0], background)
        each.write_viewer(paths[1], background, back)
        shown.append(Figure(paths[0], each.title, caption, viewer=paths[1]))
    return shown


def tissue_section(
    output_dir: Path, background: Background | None, tissue: str, maps: VoxelMaps
) -> Section:
    """Return the voxelwise comparisons of a tissue, and maps of those with results."""
    blocks: list[Block] = []
    if not maps.summary.empty:
        formats = {'t_at_fdr_0.05': '{:.2f}', 'discoveries': '{:,.0f}', 'voxels': '{:,.0f}'}
        blocks += [
            Paragraph(DESCRIPTIONS),
            Table(maps.summary, 'Comparisons and results', formats),
        ]
    if maps.skipped:
        skipped = pd.DataFrame({'contrast': list(maps.skipped), 'reason': maps.skipped.values()})
        blocks.append(Table(skipped, 'Comparisons that were not made'))
    found = maps.summary[maps.summary.get('discoveries', pd.Series(dtype=float)).gt(0)]
    slopes = maps.summary[maps.summary['contrast'].str.endswith('slope')]
    tests = drawn_results(maps, tissue, found, 't', 't_at_fdr_0.05')
    effects = drawn_results(maps, tissue, slopes, 'change per R = 1')
    caption = 'Voxels that differ at a false discovery rate of 0.05; blue is less tissue.'
    shown = draw_maps(output_dir, background, tests, caption)
    caption = 'Effect at every voxel, a description and not a test; blue is less tissue.'
    shown += draw_maps(output_dir, background, effects, caption)
    return Section(tissue, (*blocks, *shown))


DESCRIPTIONS = (
    'Only the comparison of all patients with controls is a test. R-indices are computed from the '
    'same brains, so slopes on them differ from 0 even without disease. '
    'These maps describe the patterns, without a threshold and without p values.'
)
