"""Figures of one participant's R-indices: comparison with controls, contributions, change."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from surreal_bids.names import CONTROL, GROUP_NAMES, PATIENT
from surreal_bids.reports.canvas import NARROW, Canvas
from surreal_bids.reports.figures import COLOURS, NEUTRAL, SERIES, new_figure, tidy

WIDTH = 10.5
"""Inches: as wide as the report."""

PANEL, LEFT, RIGHT = 62, 24, NARROW - 8
"""Points: height of the panel of an R-index, and its sides."""
SIDES, ENDS = (LEFT, RIGHT), [0, -1]

BINS = 30

RAISES, LOWERS = '#b2182b', '#2166ac'
"""Colours of contributions, those of the map: they stay apart for colour-blind readers."""

LONGEST, HALF = 48, 23
"""Letters of the names of regions, and of both ends of longer names."""

SHOWN_REGIONS = 10
"""Regions shown of each R-index; what the others add is one bar."""

MARKERS = 'osD^vP*'
"""Shapes of R-indices over time, so that colours are not needed."""

BASELINE, OTHERS = 'mean control', 'all other regions'


def plot_standing(own: pd.DataFrame, reference: pd.DataFrame, counts: Mapping[str, int]) -> str:
    """Draw R-indices with their intervals among those of controls and patients, as SVG.

    Parameters
    ----------
    own : frame of shape (M, 3)
        `value`, `low` and `high` of each R-index, which the index names; limits may be missing.
    reference : frame of shape (n_rows, M + 1)
        R-indices of others, or percentiles of them, as far as known, and their `group`.
    counts
        How many participants each group has.
    """
    top = 20
    canvas = Canvas(top + PANEL * len(own) + 34)
    values = [own.to_numpy(dtype=float).ravel()]
    values += [reference[name].to_numpy(dtype=float) for name in own.index if name in reference]
    known = np.concatenate(values)
    bins = np.linspace(min(np.nanmin(known), 0.0) - 0.03, max(np.nanmax(known), 1.0) + 0.03, BINS)
    shown = {}
    for number, (name, row) in enumerate(own.iterrows()):
        middle = top + PANEL * (number + 0.5)
        if name in reference:
            for group, values_of_group in reference[name].dropna().groupby(reference['group']):
                _draw_group(canvas, middle, values_of_group, bins, str(group))
                shown[str(group)] = f'{GROUP_NAMES[group]} (n = {counts[group]})'
        canvas.line(*(LEFT, middle, RIGHT, middle), colour=NEUTRAL, width=0.6)
        canvas.words(LEFT - 4, middle, str(name), 'end', size=10)
        places = np.interp(row[['value', 'low', 'high']].to_numpy(float), bins[ENDS], SIDES)
        if np.isfinite(places).all():
            canvas.line(places[1], middle, places[2], middle, width=3)
        canvas.diamond(places[0], middle)
    _draw_legend(canvas, shown)
    bottom = top + PANEL * len(own)
    canvas.scale(bottom + 2, bins[0], bins[-1], LEFT, RIGHT)
    canvas.words((LEFT + RIGHT) / 2, bottom + 26, 'R-index', 'middle')
    return str(canvas)


def _draw_group(
    canvas: Canvas, middle: float, values: pd.Series, bins: NDArray, group: str
) -> None:
    """Draw controls upwards and patients downwards, each to its own scale."""
    share, _ = np.histogram(values, bins)
    up_or_down = {CONTROL: -0.45, PATIENT: 0.45}[group] * PANEL
    heights = np.repeat(middle + up_or_down * share / share.max(), 2)
    edges = np.interp(np.repeat(bins, 2)[1:-1], bins[ENDS], SIDES)
    corners = [[LEFT, middle], *np.column_stack([edges, heights]), [RIGHT, middle]]
    canvas.area(np.array(corners), COLOURS[group])


def _draw_legend(canvas: Canvas, shown: Mapping[str, str]) -> None:
    """Explain the colours of groups."""
    left = RIGHT - 140.0 * len(shown)
    for group, words in shown.items():
        canvas.area(
            np.array([[left, 5], [left + 14, 5], [left + 14, 13], [left, 13]]), COLOURS[group]
        )
        canvas.words(left + 18, 9, words)
        left += 140


def plot_contributions(parts: Mapping[str, pd.Series], names: Mapping[str, str]) -> str:
    """Draw the contributions to each R-index, as SVG.

    Shown are the mean control, the strongest regions, and the sum of all others.

    Parameters
    ----------
    parts
        Of each R-index: `baseline`, and the contribution of every feature.
    names
        Readable names of features.
    """
    bars = {name: strongest(mine) for name, mine in parts.items()}
    left, right, row, around = 216, NARROW - 34, 15, 52
    canvas = Canvas(sum(row * len(each) + around for each in bars.values()))
    top = 0
    for name, mine in bars.items():
        canvas.words(left, top + 9, f'{name} = {parts[name].sum():.2f}', size=11)
        top += 20
        low, high = min(mine.min(), 0.0), max(mine.max(), 0.0)
        high = high if high > low else 1.0
        per_unit = (right - left) / (high - low)
        zero = left - low * per_unit
        for number, (feature, value) in enumerate(mine.items()):
            middle = top + row * (number + 0.5)
            colour = NEUTRAL if number == 0 else RAISES if value > 0 else LOWERS
            label = shorten(names.get(str(feature), str(feature)))
            canvas.words(left - 6, middle, label, 'end', size=8)
            canvas.box(zero, middle - 0.4 * row, value * per_unit, 0.8 * row, colour)
            canvas.words(zero + max(value, 0) * per_unit + 3, middle, f'{value:+.2f}', size=8)
        top += row * len(mine)
        canvas.line(zero, top - row * len(mine), zero, top, colour=NEUTRAL)
        canvas.scale(top + 1, low, high, left, right)
        top += around - 20
    return str(canvas)


def shorten(name: str) -> str:
    """Leave out the middle of a name that is too long for its place."""
    return name if len(name) <= LONGEST else f'{name[:HALF]}\N{HORIZONTAL ELLIPSIS}{name[-HALF:]}'


def strongest(parts: pd.Series) -> pd.Series:
    """The baseline, the largest contributions in order, and the sum of the others."""
    regions = parts.drop('baseline')
    order = regions.abs().sort_values(ascending=False, kind='stable').index
    shown, rest = regions[order[:SHOWN_REGIONS]], regions[order[SHOWN_REGIONS:]]
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
