"""Maps in the group report: slices, and viewers in which one can move through them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
from markupsafe import Markup
from nibabel.affines import rescale_affine, voxel_sizes

from surreal_bids.bids.derivatives import output_path
from surreal_bids.files import write_text
from surreal_bids.reports.mosaics import statistic_mosaic
from surreal_bids.reports.pages import Html

VIEWER_MM = 2.0
"""Edge of a voxel in viewers: a fine one would make the report eight times as large."""

VIEWER_HEIGHT = 340
"""Height of a viewer in the report, in pixels."""

LARGEST_CHANGE = 99.5
"""Percentile of the size of the values that gets the last colour."""

_REMOTE_LINK = re.compile(r'<link\b[^>]*href="https?:[^>]*>')
_SCRIPT = re.compile(r'<script\b[^>]*>(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class Background:
    """What maps are drawn on: T1w image and brain mask of the template, and its name."""

    name: str
    t1w: nib.Nifti1Image
    mask: nib.Nifti1Image


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

    t1w, image = _coarser(background.t1w, 1), _coarser(drawn.image, 0)
    with warnings.catch_warnings():
        # Nilearn looks at the background through a masked array, of which numpy warns.
        warnings.simplefilter('ignore', UserWarning)
        viewer = view_img(
            image,
            bg_img=t1w,
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
    return write_text(path, _REMOTE_LINK.sub('', viewer.html))


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


def embed_viewers(viewers: Mapping[str, Path]) -> Html:
    """Viewers as parts of a report, each folded under its title and loaded when opened."""
    texts = {title: path.read_text(encoding='utf-8') for title, path in viewers.items()}
    scripts = [script for text in texts.values() for script in _SCRIPT.findall(text)]
    markup = Markup('\n').join(
        Markup(
            '<details class="viewer"><summary>{title}</summary>'
            '<iframe title="{title}" loading="lazy" sandbox="allow-scripts" '
            'style="width:100%;height:{height}px;border:0;background:#000" srcdoc="{page}">'
            '</iframe></details>'
        ).format(title=title, height=VIEWER_HEIGHT, page=text)
        for title, text in texts.items()
    )
    return Html(markup, tuple(scripts))
