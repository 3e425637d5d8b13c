"""Figures of the reports as SVG files; the same data give the same file.

One colour code throughout: one colour per group, one per pattern.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from surreal_bids.analysis.image_quality import OUTLYING
from surreal_bids.files import write_text
from surreal_bids.harmonization.quality import HarmonizationQuality
from surreal_bids.names import CONTROL, GROUP_NAMES, PARTICIPANT, PATIENT
from surreal_bids.reports.mosaics import GOLDEN_RATIO
from surreal_bids.reports.pages import environment

GROUPS = {CONTROL: '#0072b2', PATIENT: '#d55e00'}
OTHER_GROUPS = ('#7a7a7a', '#a56b00', '#4d4d4d')
"""Colours of controls, patients and other groups ..."""

PATTERNS = ('#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#7b6fd0', '#8c6d31', '#666666')
"""... and of patterns; colour-blind readers can tell them apart (Okabe and Ito)."""

NEUTRAL = '#777777'
MARKERS = 'osD^vP*'
WIDTH = 10.5
"""Inches: all figures are as wide as the report, and their letters of one size."""

STYLE: Any = {'font.size': 12, 'svg.hashsalt': 'surreal_bids', 'svg.fonttype': 'none'}
"""Letters of at least 11 pixels on a phone; names inside a file depend on its content only."""

SCORES_SHOWN = (-5, 12)
"""Scores of quality beyond these are drawn at the border."""

CROWDED = 300
"""Points of a group, or lines, above which they are one image inside the SVG file. Drawn one by
one, they take 170 bytes each, and the figures of large studies would not fit into the report."""

FAINTEST = 0.15
"""Opacity of points in the most crowded groups, whose density shows by overlap."""

IMAGE_DPI = 200
"""Dots per inch of such images: sharp on screens with two dots per pixel."""

BINS = 30


def pattern_colour(names: Sequence[str], name: str) -> str:
    """Return the colour of a pattern."""
    return PATTERNS[list(names).index(name) % len(PATTERNS)]


def group_colours(groups: Sequence[str]) -> dict[str, str]:
    """Return the colour of each group; controls and patients first."""
    others = sorted(set(groups) - set(GROUPS))
    known = {group: colour for group, colour in GROUPS.items() if group in set(groups)}
    return known | {name: OTHER_GROUPS[k % len(OTHER_GROUPS)] for k, name in enumerate(others)}


def save_figure(path: Path, figure: Figure) -> Path:
    """Write a figure as SVG, text as text."""
    text = io.StringIO()
    for each in figure.findobj(Text):
        each.set_parse_math(False)  # Names of regions and sessions may hold dollars.
    with mpl.rc_context(STYLE):
        figure.savefig(text, format='svg', metadata={'Date': None})
    return write_text(path, text.getvalue())


def _new_figure(height: float) -> Figure:
    figure = Figure(figsize=(WIDTH, height), layout='constrained')
    FigureCanvasSVG(figure)
    return figure


def _opacity(count: int, usual: float) -> float:
    """Return the opacity of points: the usual one, less where they are crowded."""
    return max(usual * min(CROWDED / max(count, 1), 1.0), FAINTEST)


def _draw_as_image(crowd: Artist, count: int) -> None:
    """Draw points or lines as an image inside the SVG file if they are many."""
    if count > CROWDED:
        crowd.set_rasterized(True)
        figure = crowd.get_figure(root=True)
        if figure is not None:
            figure.set_dpi(IMAGE_DPI)


def _tidy(axes: Axes) -> None:
    axes.spines[['top', 'right']].set_visible(False)


@mpl.rc_context(STYLE)
def plot_r_indices(r_indices: pd.DataFrame, group: pd.Series, words: Mapping[str, str]) -> Figure:
    """Draw each R-index in every group: a point per participant, and the median.

    Parameters
    ----------
    r_indices : frame of shape (n_participants, M)
        R-indices at the first visit.
    group : Series
        Group of each participant.
    words
        Name of each group, with its number of participants.
    """
    colours = group_colours([str(name) for name in group])
    figure = _new_figure((0.35 * len(colours) + 0.55) * r_indices.shape[1] + 0.5)
    panels = figure.subplots(r_indices.shape[1], 1, squeeze=False, sharex=True)[:, 0]
    for axes, name in zip(panels, map(str, r_indices)):
        for row, (label, colour) in enumerate(colours.items()):
            values = r_indices.loc[group == label, name].dropna()
            # The same figure gives the same file: heights are by rank, spread evenly like hues.
            heights = row + (values.rank(method='first') * GOLDEN_RATIO % 1 - 0.5) * 0.7
            face = 'none' if label == CONTROL else colour
            points = axes.scatter(
                *(values, heights),
                s=14,
                facecolor=face,
                edgecolor=colour,
                alpha=_opacity(len(values), 0.7),
            )
            _draw_as_image(points, len(values))
            axes.plot([values.median()] * 2, [row - 0.42, row + 0.42], color='black', lw=2)
        controls = r_indices.loc[group == CONTROL, name].dropna()
        if len(controls):
            axes.axvline(np.percentile(controls, 95, method='higher'), color=NEUTRAL, lw=1, ls='--')
        axes.set_yticks(range(len(colours)), [words[label] for label in colours])
        axes.set(ylim=(len(colours) - 0.5, -0.5))
        axes.set_title(str(name), loc='left', fontsize=12, fontweight='bold')
        _tidy(axes)
    panels[-1].set_xlabel('R-index')
    return figure


@mpl.rc_context(STYLE)
def plot_quality(scores: pd.DataFrame) -> Figure:
    """Draw the distance of each image from the others in each metric.

    Parameters
    ----------
    scores : frame of shape (n_images, n_metrics)
        Robust standard deviations; positive is worse.
    """
    known = scores.dropna(axis=1, how='all').clip(*SCORES_SHOWN)
    figure = _new_figure(0.8 + 0.32 * max(known.shape[1], 1))
    axes = figure.subplots()
    shift = np.random.default_rng(0).uniform(-0.3, 0.3, len(known))
    for row, name in enumerate(known):
        colours = np.where(known[name] > OUTLYING, '#b2182b', NEUTRAL)
        points = axes.scatter(known[name], row + shift, s=12, c=colours, alpha=0.7, lw=0)
        _draw_as_image(points, len(known))
    axes.axvline(OUTLYING, color=NEUTRAL, lw=1, ls='--')
    axes.set(xlabel='distance from the median (robust SD; positive is worse)', ylim=(-0.6, None))
    axes.set_yticks(range(known.shape[1]), known.columns)
    axes.invert_yaxis()
    _tidy(axes)
    return figure


@mpl.rc_context(STYLE)
def plot_trajectories(course: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Draw R-indices over years, a line for each participant and a panel for each group.

    Parameters
    ----------
    course : frame, one row per visit, in order
        `participant_id`, `group`, `years` since the first visit, and R-indices.
    names
        The R-indices.
    """
    colours = group_colours([str(group) for group in course['group']])
    figure = _new_figure(0.8 + 2.2 * len(names))
    panels = figure.subplots(len(names), len(colours), squeeze=False, sharex=True, sharey='row')
    for row, name in zip(panels, names):
        row[0].set_ylabel(f'{name} (R-index)')
        for axes, (group, colour) in zip(row, colours.items()):
            members = course[course['group'] == group]
            courses = members.groupby(PARTICIPANT)[['years', name]]
            lines = [visits.to_numpy() for _, visits in courses]
            style = '--' if group == CONTROL else '-'
            drawn = LineCollection(lines, colors=colour, linestyles=style)
            drawn.set(linewidth=1, alpha=0.6)
            axes.add_collection(drawn)
            _draw_as_image(drawn, len(lines))
            axes.autoscale_view()
            _tidy(axes)
    for axes, group in zip(panels[0], colours):
        n_members = course.loc[course['group'] == group, PARTICIPANT].nunique()
        axes.set_title(f'{GROUP_NAMES.get(group, group)} (n = {n_members})')
    figure.supxlabel('years since the first visit')
    return figure


@mpl.rc_context(STYLE)
def plot_course(course: pd.DataFrame, names: Sequence[str], label: str) -> Figure:
    """Draw the R-indices of a participant over visits, with intervals where they are known.

    Parameters
    ----------
    course : frame, one row per visit
        `time`, perhaps `session` (names of ticks), and R-indices, perhaps with `_low` and `_high`.
    names
        The R-indices.
    label
        What `time` is.
    """
    figure = _new_figure(3.6)
    axes = figure.subplots()
    span = float(course['time'].max() - course['time'].min()) or 1.0
    for number, name in enumerate(names):
        colour, marker = pattern_colour(names, name), MARKERS[number % len(MARKERS)]
        time = course['time'] + 0.006 * span * (number - (len(names) - 1) / 2)
        if f'{name}_low' in course:
            axes.vlines(
                time, course[f'{name}_low'], course[f'{name}_high'], color=colour, alpha=0.5
            )
        axes.plot(time, course[name], marker=marker, color=colour, label=name)
    axes.set(xlabel=label, ylabel='R-index')
    if 'session' in course:
        axes.set_xticks(course['time'], [str(session) for session in course['session']])
    axes.legend(frameon=False, ncols=len(names), loc='upper left', bbox_to_anchor=(0, 1.14))
    _tidy(axes)
    return figure


@mpl.rc_context(STYLE)
def plot_harmonization(quality: HarmonizationQuality) -> Figure:
    """Draw the variance explained by site, and the accuracy of predicting it, before and after."""
    figure = _new_figure(3.8)
    variance, accuracy = figure.subplots(1, 2)
    features = quality.features.sort_values('site_variance_before')
    for when, colour in (('before', '#c44e52'), ('after', '#4c72b0')):
        values = features[f'site_variance_{when}']
        variance.scatter(np.arange(1, len(values) + 1), values, s=12, color=colour, label=when)
    variance.axhline(quality.site_variance_by_chance, color=NEUTRAL, ls='--', lw=1, label='chance')
    variance.set(
        xlabel='region, by value before', ylabel='variance explained by site', ylim=(0, None)
    )
    variance.legend(frameon=False, loc='upper left')
    bars = {
        'before': (quality.accuracy_before, '#c44e52'),
        'after, held-out controls': (quality.accuracy_held_out, '#4c72b0'),
    }
    shown = {name: it for name, it in bars.items() if it[0] is not None}
    for place, (score, colour) in enumerate(shown.values()):
        accuracy.bar_label(accuracy.bar(place, score, width=0.6, color=colour), fmt='%.2f')
    accuracy.axhline(1 / quality.n_sites, color=NEUTRAL, ls='--', lw=1)
    accuracy.set_xticks(range(len(shown)), shown)
    accuracy.set(ylabel='accuracy of predicting the site', ylim=(0, 1))
    for axes in (variance, accuracy):
        _tidy(axes)
    return figure


def draw_standing(own: pd.DataFrame, reference: pd.DataFrame, counts: Mapping[str, int]) -> str:
    """Draw R-indices with their intervals among those of controls and patients, as SVG.

    Parameters
    ----------
    own : frame of shape (M, 3)
        `value`, `low` and `high` of each R-index, which the index names; limits may be missing.
    reference : frame of shape (n_rows, M + 1)
        R-indices of others, or percentiles of them, as far as known, and their `group`.
    counts
        Number of participants of each group.
    """
    others = reference.reindex(columns=own.index)
    known = np.concatenate([own.to_numpy(float).ravel(), others.to_numpy(float).ravel()])
    edges = np.linspace(min(np.nanmin(known), 0.0) - 0.03, max(np.nanmax(known), 1.0) + 0.03, BINS)
    colours = group_colours([str(group) for group in reference['group'] if group in GROUPS])

    def at(values: Any) -> Any:
        return np.round(np.interp(values, edges[[0, -1]], (40, 465)), 1)

    panels = []
    for number, (name, row) in enumerate(zip(map(str, own.index), own.to_dict('records'))):
        middle, areas = 66 + 76 * number, []
        for group, colour in colours.items() if name in reference else ():
            share, _ = np.histogram(reference.loc[reference['group'] == group, name], edges)
            heights = middle + (-32 if group == CONTROL else 32) * share / max(share.max(), 1)
            corners = zip(at(np.repeat(edges, 2)[1:-1]), np.repeat(heights, 2).round(1))
            points = ' '.join(f'{x},{y}' for x, y in corners)
            areas.append({'colour': colour, 'points': f'40,{middle} {points} 465,{middle}'})
        places = at([row['value'], row['low'], row['high']])
        panels.append(
            {
                'name': name,
                'middle': middle,
                'areas': areas,
                'place': places[0],
                'interval': places[1:] if np.isfinite(places[1:]).all() else None,
            }
        )
    ticks = np.arange(-2, 4.01, 0.25).round(2)
    return (
        environment()
        .get_template('standing.svg')
        .render(
            panels=panels,
            ticks=[(f'{each:g}', at(each)) for each in ticks if edges[0] < each < edges[-1]],
            legend=[
                (colour, f'{GROUP_NAMES[group]} (n = {counts[group]})')
                for group, colour in colours.items()
            ],
            bottom=32 + 76 * len(own),
        )
    )
