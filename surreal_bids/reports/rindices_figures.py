"""Figures of one participant's R-indices: comparison with controls, contributions, change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from surreal_bids.bids.tabular import CONTROL, PATIENT
from surreal_bids.cohort.groups import GROUP_NAMES
from surreal_bids.reports.figures import COLOURS, NEUTRAL, SERIES, new_figure, tidy
from surreal_bids.reports.mosaics import (
    BACKGROUND_LIGHT,
    PIXEL_MM,
    Painter,
    Plane,
    Row,
    Scale,
    Slice,
    choose_slices,
    grey_painter,
    load_volume,
    map_colours,
    sample,
    save_mosaic,
)

WIDTH = 10.5
"""Inches: as wide as the report."""

NARROW = 5.6
"""Inches: as wide as a phone shows with letters that can be read."""

BINS = 30

RAISES, LOWERS = '#b2182b', '#2166ac'
"""Colours of contributions, those of the map: they stay apart for colour-blind readers."""

INK = '#1b2430'

SHOWN_REGIONS = 10
"""Regions shown of each R-index; what the others add is one bar."""

MARKERS = 'osD^vP*'
"""Shapes of R-indices over time, so that colours are not needed."""

PER_ROW = 2
"""R-indices side by side in the figure of contributions."""

ONE_ROW: dict[Plane, int] = {'axial': 3, 'coronal': 2, 'sagittal': 2}
"""Slices of each plane where a map has one row only."""

FAINT = 0.05
"""Values below this part of the largest are not drawn, so that the brain is seen."""

INNER = 0.3
"""Where such slices begin and end: nearer to the middle, since they are few."""

BASELINE, OTHERS = 'mean control', 'all other regions'


def plot_standing(own: pd.DataFrame, reference: pd.DataFrame, counts: Mapping[str, int]) -> Figure:
    """Draw R-indices with their intervals among those of controls and patients.

    Parameters
    ----------
    own : frame of shape (M, 3)
        `value`, `low` and `high` of each R-index, which the index names; limits may be missing.
    reference : frame of shape (n_rows, M + 1)
        R-indices of others, or percentiles of them, as far as known, and their `group`; may be
        empty.
    counts
        How many participants each group has.
    """
    figure = new_figure(NARROW, 0.7 + len(own))
    panels = figure.subplots(len(own), 1, squeeze=False, sharex=True)[:, 0]
    values = [own.to_numpy(dtype=float).ravel()]
    values += [reference[name].to_numpy(dtype=float) for name in own.index if name in reference]
    known = np.concatenate(values)
    low, high = np.nanmin(known), np.nanmax(known)
    bins = np.linspace(min(low, 0.0) - 0.03, max(high, 1.0) + 0.03, BINS)
    for axes, (name, row) in zip(panels, own.iterrows()):
        if name in reference:
            _draw_groups(axes, reference[name], reference['group'], bins, counts)
        _draw_interval(axes, row)
        axes.set(ylim=(-1.25, 1.25), yticks=[], ylabel=str(name))
        axes.yaxis.label.set(rotation=0, ha='right', va='center', weight='bold')
        axes.axhline(0, color=NEUTRAL, lw=0.6)
        tidy(axes)
        axes.spines['left'].set_visible(False)
    panels[-1].set(xlim=(bins[0], bins[-1]), xlabel='R-index')
    legends = (panel.get_legend_handles_labels() for panel in panels)
    shown, labels = max(legends, key=lambda legend: len(legend[0]))
    if shown:
        figure.legend(shown, labels, loc='outside upper right', ncols=2, fontsize=9, frameon=False)
    return figure


def _draw_groups(
    axes: Axes, values: pd.Series, group: pd.Series, bins: np.ndarray, counts: Mapping[str, int]
) -> None:
    """Controls upwards and patients downwards, each as shares of the own group."""
    for name, sign in {CONTROL: 1, PATIENT: -1}.items():
        mine = values[group == name].dropna()
        if mine.empty:
            continue
        share, _ = np.histogram(mine, bins)
        heights = sign * share / share.max()
        label = f'{GROUP_NAMES[name]} (n = {counts[name]})'
        axes.stairs(heights, bins, fill=True, color=COLOURS[name], alpha=0.35, lw=0, label=label)


def _draw_interval(axes: Axes, row: pd.Series) -> None:
    if np.isfinite(row['low']) and np.isfinite(row['high']):
        axes.plot([row['low'], row['high']], [0, 0], color=INK, lw=3, solid_capstyle='butt')
    axes.plot(row['value'], 0, 'D', ms=9, mfc='white', mec=INK, mew=2, zorder=3)


def plot_contributions(parts: Mapping[str, pd.Series], names: Mapping[str, str]) -> Figure:
    """Draw the contributions to each R-index: the mean control, the strongest regions, all others.

    Parameters
    ----------
    parts
        Of each R-index: `baseline`, and the contribution of every feature.
    names
        Readable names of features.
    """
    columns = min(len(parts), PER_ROW)
    rows = -(-len(parts) // columns)
    figure = new_figure(WIDTH, 3.7 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels[len(parts) :]:
        axes.set_axis_off()
    for axes, (name, mine) in zip(panels, parts.items()):
        bars = strongest(mine)
        labels = [names.get(str(feature), str(feature)) for feature in bars.index]
        colours = [RAISES if value > 0 else LOWERS for value in bars]
        colours[0] = NEUTRAL
        places = np.arange(len(bars))[::-1]
        axes.barh(places, bars, color=colours)
        for place, value in zip(places, bars):
            axes.annotate(
                f'{value:+.2f}', (max(value, 0.0), place), xytext=(3, 0), fontsize=8,
                textcoords='offset points', va='center',
            )  # fmt: skip
        axes.set_yticks(places, labels, fontsize=8)
        axes.axvline(0, color=NEUTRAL, lw=0.8)
        axes.margins(x=0.12)
        axes.locator_params(axis='x', nbins=5)
        axes.set(title=f'{name} = {mine.sum():.2f}', xlabel=f'contribution to {name}')
        tidy(axes)
    return figure


def strongest(parts: pd.Series, count: int = SHOWN_REGIONS) -> pd.Series:
    """The baseline, the largest contributions in order, and the sum of the others."""
    regions = parts.drop('baseline')
    order = regions.abs().sort_values(ascending=False, kind='stable').index
    shown, rest = regions[order[:count]], regions[order[count:]]
    bars = pd.concat([pd.Series({BASELINE: parts['baseline']}), shown])
    return bars if rest.empty else pd.concat([bars, pd.Series({OTHERS: rest.sum()})])


def plot_course(course: pd.DataFrame, names: list[str], label: str) -> Figure:
    """Draw R-indices over visits, with intervals where they are known.

    Parameters
    ----------
    course : frame, one row per visit
        `time`, and of each R-index its value, perhaps with `_low` and `_high`.
    names
        The R-indices.
    label
        What `time` is.
    """
    figure = new_figure(WIDTH, 3.4)
    axes = figure.subplots()
    span = float(course['time'].max() - course['time'].min()) or 1.0
    for number, name in enumerate(names):
        colour = SERIES[number % len(SERIES)]
        time = course['time'] + 0.006 * span * (number - (len(names) - 1) / 2)
        if f'{name}_low' in course:
            low, high = course[f'{name}_low'], course[f'{name}_high']
            axes.vlines(time, low, high, color=colour, alpha=0.5)
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(time, course[name], marker=marker, color=colour, label=name)
    axes.set(xlabel=label, ylabel='R-index')
    if course['session'].notna().all():
        axes.set_xticks(course['time'], [str(session) for session in course['session']])
    axes.legend(frameon=False, ncols=len(names), loc='upper left', bbox_to_anchor=(0, 1.12))
    tidy(axes)
    return figure


class RegionPainter:
    """Draws values of regions over the template, for one person after the other.

    Slices are sampled once, so that each picture takes a fraction of a second.

    Parameters
    ----------
    background, mask
        The template and its brain mask.
    labels
        Index of the region of each voxel of the same space, 0 for none.
    """

    def __init__(
        self, background: nib.Nifti1Image, mask: nib.Nifti1Image, labels: nib.Nifti1Image
    ) -> None:
        slices = choose_slices(mask, ONE_ROW, INNER)
        grey, volume = grey_painter(background, mask, slices), load_volume(labels, np.int32)
        self._slices = tuple(where for of_plane in slices.values() for where in of_plane)
        self._grey = {where: BACKGROUND_LIGHT * grey(where) for where in self._slices}
        self._regions = {where: sample(volume, where, PIXEL_MM, order=0) for where in self._slices}
        self._n_labels = int(volume.data.max()) + 1

    def draw(self, path: Path, values: Mapping[str, Mapping[int, float]], label: str) -> Path:
        """Draw one row of slices for each map, all in the same colours.

        Parameters
        ----------
        path
            The file to write.
        values
            Title of each map, and its value of each region, by index; others are not drawn.
        label
            What the values are.
        """
        largest = max((abs(v) for each in values.values() for v in each.values()), default=0.0)
        scale = Scale('RdBu_r', -(largest or 1.0), largest or 1.0, label)
        rows = [
            Row(self._slices, self._painter(each, scale), title) for title, each in values.items()
        ]
        return save_mosaic(path, rows, scale=scale)

    def _painter(self, values: Mapping[int, float], scale: Scale) -> Painter:
        of_label = np.full(self._n_labels, np.nan)
        for index, value in values.items():
            if index < self._n_labels:
                of_label[index] = value
        colours = map_colours(np.nan_to_num(of_label), scale)
        shown = np.abs(np.nan_to_num(of_label)) > FAINT * scale.high

        def paint(where: Slice) -> NDArray:
            regions = self._regions[where]
            return np.where(shown[regions][..., None], colours[regions], self._grey[where])

        return paint
