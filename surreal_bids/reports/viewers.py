"""Maps of the group report: slices in it, and viewers beside it to move through them."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from markupsafe import Markup
from nibabel.affines import rescale_affine, voxel_sizes

from surreal_bids.analysis.maps import VoxelMaps
from surreal_bids.bids.outputs import output_path
from surreal_bids.config import BUILTIN_TEMPLATE
from surreal_bids.files import write_text
from surreal_bids.reports.mosaics import statistic_mosaic
from surreal_bids.reports.pages import (
    Block,
    Figure,
    Paragraph,
    Section,
    Table,
    content_policy,
)
from surreal_bids.templates import builtin_template, read_template

VIEWER_MM = 2.0
"""Edge of a voxel in viewers: a fine one would make them eight times as large."""

LARGEST_CHANGE = 99.5
"""Percentile of the size of the values that gets the last colour."""

_TITLE = re.compile(r'<title>.*?</title>', re.DOTALL)
_REMOTE_LINK = re.compile(r'<link\b[^>]*href="https?:[^>]*>')
_SCRIPT = re.compile(r'<script\b[^>]*>(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class Background:
    """What maps are drawn on: T1w image and brain mask of the template, and its name."""

    name: str
    t1w: nib.Nifti1Image
    mask: nib.Nifti1Image

    @cached_property
    def coarse(self) -> nib.Nifti1Image:
        """The T1w image as viewers show it."""
        return _coarser(self.t1w, 1)

    @classmethod
    def read(cls, template: str, name: str) -> Background:
        """Read the built-in template, or one in a folder."""
        found = builtin_template() if template == BUILTIN_TEMPLATE else read_template(template)
        return cls(name, found.t1w, found.mask)


@dataclass(frozen=True)
class DrawnMap:
    """A map in the report.

    Attributes
    ----------
    image
        The map.
    figure
        Letters and digits, for names of files.
    title, label
        What it shows, and what its values are.
    threshold
        Smaller values are not drawn.
    """

    image: nib.Nifti1Image
    figure: str
    title: str
    label: str
    threshold: float = 0.0


def draw_mosaic(output_dir: Path, drawn: DrawnMap, background: Background) -> Path:
    """Draw slices of a map to a file among the figures of the group."""
    path = output_path(output_dir, 'group_figure', figure=drawn.figure, extension='svg')
    return statistic_mosaic(
        path,
        drawn.image,
        background.t1w,
        background.mask,
        label=drawn.label,
        threshold=drawn.threshold,
        limit=_limit(drawn),
    )


def _limit(drawn: DrawnMap) -> float | None:
    values = np.abs(np.asarray(drawn.image.dataobj))
    values = values[values > drawn.threshold]
    return float(np.percentile(values, LARGEST_CHANGE)) if values.size else None


def write_viewer(output_dir: Path, drawn: DrawnMap, background: Background) -> Path:
    """Write an HTML file in which one can move through a map; it needs no network."""
    # Takes seconds to import, which pages without maps need not wait for.
    from nilearn.plotting import view_img

    image = _coarser(drawn.image, 0)
    with warnings.catch_warnings():
        # Nilearn looks at the background through a masked array, of which numpy warns.
        warnings.simplefilter('ignore', UserWarning)
        viewer = view_img(
            image,
            bg_img=background.coarse,
            threshold=drawn.threshold or _smallest(image),
            vmax=_limit(drawn),
            cmap='RdBu_r',
            black_bg=True,
            opacity=0.85,
            resampling_interpolation='nearest',
            title='',
            width_view=900,
        )
    path = output_path(output_dir, 'group_figure', figure=drawn.figure, extension='html')
    back = os.path.relpath(output_path(output_dir, 'group_report'), path.parent)
    return write_text(path, _as_page(viewer.html, drawn, back))


def _as_page(html: str, drawn: DrawnMap, back: str) -> str:
    """A viewer of nilearn as a page of ours: it says what it shows, and loads nothing."""
    html = _REMOTE_LINK.sub('', html)
    head = Markup(
        '<meta http-equiv="Content-Security-Policy" content="{}"><title>{}</title>'
    ).format(content_policy(_SCRIPT.findall(html)), drawn.title)
    body = Markup(
        '<body style="margin:1rem;background:#000;color:#eee;font-family:sans-serif">'
        '<h1 style="font-size:1.2rem">{} ({})</h1>'
        '<p>Click into a slice to move through the map. <a style="color:#7cc0f5" href="{}">'
        'Back to the report</a></p>'
    ).format(drawn.title, drawn.label, back)
    html = _TITLE.sub(lambda _: head, html, count=1)
    return html.replace('<body>', body, 1)


def _smallest(image: nib.Nifti1Image) -> float:
    """A threshold that hides nothing but zero."""
    values = np.abs(np.asarray(image.dataobj))
    return float(values[values > 0].min() / 2) if (values > 0).any() else 0.0


def _coarser(image: nib.Nifti1Image, order: int) -> nib.Nifti1Image:
    """The image with voxels of `VIEWER_MM`, unless its own are larger."""
    from nibabel.processing import resample_from_to

    factors = voxel_sizes(image.affine) / VIEWER_MM
    if (factors > 0.99).all():
        return image
    shape = np.maximum(np.round(np.array(image.shape) * factors), 1).astype(int)
    affine = rescale_affine(image.affine, image.shape, (VIEWER_MM,) * 3, shape)
    single = nib.Nifti1Image(np.asarray(image.dataobj, dtype=np.float32), image.affine)
    return resample_from_to(single, (tuple(shape), affine), order=order)


def drawn_results(
    maps: VoxelMaps, tissue: str, rows: pd.DataFrame, label: str, threshold: str | None = None
) -> list[DrawnMap]:
    """Return the maps of rows of the summary of voxelwise results; `threshold` is a column."""
    return [
        DrawnMap(
            nib.Nifti1Image.from_filename(maps.images[row['contrast']]),
            f'{row["contrast"]}{tissue}',
            f'{tissue}: {row["description"]}',
            label,
            0.0 if threshold is None else row[threshold],
        )
        for _, row in rows.iterrows()
    ]


def draw_maps(
    root: Path, background: Background | None, maps: Sequence[DrawnMap], caption: str
) -> list[Figure]:
    """Draw mosaics of maps, each with a link to its viewer; nothing without a background."""
    if background is None:
        return []
    return [
        Figure(
            draw_mosaic(root, each, background),
            each.title,
            caption,
            viewer=write_viewer(root, each, background),
        )
        for each in maps
    ]


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
    'same brains, so slopes on them and subgroups defined by them differ even without disease. '
    'These maps describe the patterns, without a threshold and without p values.'
)
