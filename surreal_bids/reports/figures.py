"""Figures of the group report."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator, PercentFormatter

from surreal_bids.analysis.image_quality import OUTLYING
from surreal_bids.analysis.statistics import with_unit
from surreal_bids.files import write_text
from surreal_bids.harmonization.quality import HarmonizationQuality
from surreal_bids.names import CONTROL, GROUP_NAMES, PARTICIPANT, PATIENT
from surreal_bids.reports.mosaics import GOLDEN_RATIO

COLOURS = {CONTROL: '#0072b2', PATIENT: '#d55e00'}
SERIES = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#555555')
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""

NEUTRAL = '#777777'
REGION_COLUMNS = 2
"""Patterns side by side in the figure of regions."""

SHOWN_REGIONS = 14
"""Regions shown of each pattern: those that change most."""

WIDTH = 10.5
"""Inches: all figures are as wide as the report, so that their letters are of one size."""

PANEL = 3.3
"""Inches of a panel of the scatter plots."""

PANELS = 5
"""Covariates side by side ..."""

LETTERS_OF_A_ROW = 65
"""... and letters below them that do not overlap."""

ROUND_STEPS = (1, 2, 5, 10)
"""Steps of ticks, so that their labels have few digits."""

BINS = 24

SCORES_SHOWN = (-5, 12)
"""Scores of quality beyond these are drawn at the border."""

SIGNIFICANT = 0.05


SVG_SETTINGS: dict[Any, Any] = {
    'svg.hashsalt': 'surreal_bids',
    'svg.fonttype': 'none',
    'text.parse_math': False,
}
"""Names inside a file depend on its content only, and text stays text."""


def save_figure(path: Path, figure: Figure) -> Path:
    """Write a figure as SVG, text as text; the same figure gives the same file.

    Points that are links to reports show whose they are. They are no stops of the tab key: a
    table has the same links.
    """
    text = io.StringIO()
    for each in figure.findobj(Text):
        each.set_parse_math(False)  # Names of regions and sessions may hold dollars.
    with mpl.rc_context(SVG_SETTINGS):
        figure.savefig(text, format='svg', metadata={'Date': None})
    return write_text(path, _REPORT_LINK.sub(_POINT, text.getvalue()))


_REPORT_LINK = re.compile(r'<a xlink:href="([^"]*?)([^"/]*)\.html"[^>]*>')
_POINT = r'<a xlink:href="\1\2.html" tabindex="-1"><title>\2</title>'


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    figure = Figure(figsize=(width, height), layout='constrained')
    FigureCanvasSVG(figure)
    return figure


def tidy(axes: Axes) -> None:
    """Draw no lines on top and on the right."""
    axes.spines[['top', 'right']].set_visible(False)


def plot_participants(covariates: pd.DataFrame, group: pd.Series) -> Figure:
    """Draw how the covariates are distributed in the two groups.

    Parameters
    ----------
    covariates : frame of shape (n_participants, n_columns)
        Covariates, ICV and site; numbers become histograms, text bars.
    group : Series
        CN or PT.
    """
    count = max(covariates.shape[1], 1)
    columns = min(count, PANELS)
    rows = -(-count // columns)
    figure = new_figure(WIDTH, 0.3 + 2.4 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(panels, covariates):
        values, label = with_unit(str(name), covariates[name])
        draw = _histograms if pd.api.types.is_numeric_dtype(values) else _bars
        draw(axes, values, group)
        axes.set(xlabel=label)
        axes.yaxis.set(
            major_locator=MaxNLocator(5, steps=ROUND_STEPS),
            major_formatter=PercentFormatter(1, decimals=0),
        )
        tidy(axes)
    for axes in panels[count:]:
        axes.set_axis_off()
    figure.axes[0].set_ylabel('share of the group')
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside upper left', ncols=2, frameon=False)
    return figure


def plot_quality(scores: pd.DataFrame, links: Sequence[str | None]) -> Figure:
    """Draw how far each image is from the others in each metric.

    Parameters
    ----------
    scores : frame of shape (n_images, n_metrics)
        Robust standard deviations; positive is bad.
    links
        The report of each image's participant, if there is one.
    """
    known = scores.dropna(axis=1, how='all').clip(*SCORES_SHOWN)
    figure = new_figure(WIDTH, 0.8 + 0.28 * max(known.shape[1], 1))
    axes = figure.subplots()
    shift = np.random.default_rng(0).uniform(-0.3, 0.3, len(known))
    for row, name in enumerate(known):
        colours = np.where(known[name] > OUTLYING, COLOURS[PATIENT], NEUTRAL)
        points = axes.scatter(known[name], row + shift, s=9, c=colours, alpha=0.7, lw=0)
        points.set_urls(links)
    axes.axvline(OUTLYING, color=NEUTRAL, lw=0.8, ls='--')
    axes.set(xlabel='distance from the median (robust SD; positive is worse)', ylim=(-0.6, None))
    axes.set_yticks(range(known.shape[1]), known.columns)
    axes.invert_yaxis()
    tidy(axes)
    return figure


def _histograms(
    axes: Axes, values: pd.Series, group: pd.Series, limits: tuple[float, float] | None = None
) -> None:
    bins = np.histogram_bin_edges(values.dropna(), bins=BINS, range=limits).tolist()
    for name, colour in COLOURS.items():
        mine = values[group == name]
        if len(mine):
            weights = np.full(len(mine), 1 / len(mine))
            axes.hist(
                mine, bins, weights=weights, color=colour, alpha=0.55, label=_legend(group, name)
            )


def _bars(axes: Axes, values: pd.Series, group: pd.Series) -> None:
    levels = sorted(set(values))
    for number, (name, colour) in enumerate(COLOURS.items()):
        mine = values[group == name]
        if len(mine):
            share = mine.value_counts(normalize=True).reindex(levels, fill_value=0)
            places = np.arange(len(levels)) + 0.4 * number - 0.2
            axes.bar(places, share, 0.4, color=colour, alpha=0.8, label=_legend(group, name))
    labels = [str(level) for level in levels]
    axes.set_xticks(range(len(levels)), labels)
    columns = min(len(axes.figure.axes), PANELS)
    if len(max(labels, key=len)) * len(labels) > LETTERS_OF_A_ROW / columns:
        axes.tick_params('x', rotation=60)


def _legend(group: pd.Series, name: str) -> str:
    return f'{GROUP_NAMES[name]} ({name}, n = {int((group == name).sum())})'


def plot_r_indices(
    r_indices: pd.DataFrame, group: pd.Series, links: Sequence[str | None] = ()
) -> Figure:
    """Draw every R-index against every other, controls and patients apart.

    Lines at 0.4 and 0.7 are the borders of the subgroups (section 4.3). Shapes differ as colours
    do: controls are rings, patients are filled.

    Parameters
    ----------
    r_indices : frame of shape (n_participants, M)
        R-indices.
    group : Series
        CN or PT.
    links
        Where the point of each participant leads, from the folder of the figure; None: nowhere.
    """
    names = list(r_indices)
    size = len(names)
    to = pd.Series(list(links) or [None] * len(group), group.index, dtype=object)
    if size == 1:
        return _plot_one_index(r_indices[names[0]], group, to)
    figure = new_figure(WIDTH, min(PANEL, WIDTH / size) * size)
    panels: Any = figure.subplots(size, size, squeeze=False)
    limits = _limits(r_indices)
    for row, column in np.ndindex(size, size):
        axes = panels[row, column]
        if row == column:
            _histograms(axes, r_indices[names[row]], group, limits)
            axes.set(xlim=limits, yticks=[])
        elif column < row:
            _scatter(axes, r_indices[names[column]], r_indices[names[row]], group, to)
            _borders(axes, both=True)
            axes.set(xlim=limits, ylim=limits)
        else:
            axes.set_axis_off()
            continue
        tidy(axes)
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=ROUND_STEPS))
        axes.set(xlabel=names[column], ylabel=names[row] if column < row else 'share')
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside upper center', ncols=2, frameon=False)
    return figure


def _limits(r_indices: pd.DataFrame) -> tuple[float, float]:
    """Limits of an axis that nobody lies beyond."""
    values = r_indices.to_numpy()
    return min(0.0, float(np.nanmin(values))) - 0.05, max(1.0, float(np.nanmax(values))) + 0.05


def _plot_one_index(values: pd.Series, group: pd.Series, links: pd.Series) -> Figure:
    """A histogram, and below it one point per participant, a row per group."""
    figure = new_figure(WIDTH, 4.6)
    share, points = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    limits = _limits(values.to_frame())
    _histograms(share, values, group, limits)
    share.set(xlim=limits, yticks=[], ylabel='share')
    # The same figure gives the same file: heights are by rank, spread evenly like hues.
    heights = values.rank(method='first') * GOLDEN_RATIO % 1 * 0.7 + (group == CONTROL)
    _scatter(points, values, heights, group, links)
    points.set(xlabel=str(values.name), yticks=[])
    for axes in (share, points):
        _borders(axes)
        tidy(axes)
    handles, labels = share.get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside upper center', ncols=2, frameon=False)
    return figure


def _scatter(axes: Axes, x: pd.Series, y: pd.Series, group: pd.Series, links: pd.Series) -> None:
    for name, colour in COLOURS.items():
        mine = group == name
        face = colour if name == PATIENT else 'none'
        drawn = axes.scatter(x[mine], y[mine], s=14, facecolor=face, edgecolor=colour, alpha=0.65)
        drawn.set(linewidths=1.0, urls=[*links[mine]])


LOW, HIGH = 0.4, 0.7
"""Thresholds of the Surreal-GAN paper for subgroups (section 4.3)."""


def _borders(axes: Axes, both: bool = False) -> None:
    """Lines at the borders of subgroups, of the R-index across or of both."""
    for border in (LOW, HIGH):
        axes.axvline(border, color=NEUTRAL, lw=0.7, ls=':')
        if both:
            axes.axhline(border, color=NEUTRAL, lw=0.7, ls=':')


def plot_regions(patterns: pd.DataFrame, whose: str = 'patients') -> Figure:
    """Draw the regions that each pattern changes most, with the spread over members.

    Where it is known, what the same regions contribute to the R-index is beside it.

    Parameters
    ----------
    patterns : frame
        `pattern`, `region`, `change_percent`, `change_percent_member_spread`, and perhaps
        `contribution`; where there are no percentages (z-scores), `change_sd`.
    whose
        In whom all this is the mean.
    """
    names = list(dict.fromkeys(patterns['pattern']))
    beside = 'contribution' in patterns and bool(patterns['contribution'].notna().any())
    columns = 2 if beside else min(len(names), REGION_COLUMNS)
    rows = len(names) if beside else -(-len(names) // columns)
    figure = new_figure(WIDTH, 3.9 * rows)
    panels = figure.subplots(rows, columns, squeeze=False, sharey='row' if beside else False)
    of_changes = panels[:, 0] if beside else panels.ravel()
    for axes in of_changes[len(names) :]:
        axes.set_axis_off()
    measure, unit = _measure_of_change(patterns)
    for number, (axes, name) in enumerate(zip(of_changes, names)):
        mine = patterns[patterns['pattern'] == name]
        order = mine[measure].abs().sort_values(ascending=False).index[:SHOWN_REGIONS]
        shown, colour = mine.loc[order[::-1]], SERIES[number % len(SERIES)]
        spread = shown['change_percent_member_spread'].fillna(0)
        _region_bars(axes, shown, measure, colour, spread)
        axes.set(title=name, xlabel=f'change ({unit})')
        if beside:
            _region_bars(panels[number, 1], shown, 'contribution', colour)
            panels[number, 1].set(xlabel=f'mean part of {name} in {whose}')
    return figure


def _measure_of_change(patterns: pd.DataFrame) -> tuple[str, str]:
    """Return the column to draw and its unit; z-scores do not change by percentages."""
    if patterns['change_percent'].notna().any():
        return 'change_percent', '% of the mean of controls'
    return 'change_sd', 'SD of controls'


def _region_bars(
    axes: Axes, shown: pd.DataFrame, column: str, colour: str, spread: pd.Series | None = None
) -> None:
    style = {'lw': 1, 'ecolor': '#444444'}
    axes.barh(shown['region'], shown[column], xerr=spread, color=colour, alpha=0.85, error_kw=style)
    axes.axvline(0, color=NEUTRAL, lw=0.8)
    axes.tick_params('y', labelsize=8)
    tidy(axes)


def plot_trajectories(course: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Draw R-indices over years, a line for each participant.

    Parameters
    ----------
    course : frame, one row per visit, in order
        `participant_id`, `group`, `years` since the first visit, and R-indices.
    names
        The R-indices.
    """
    figure = new_figure(WIDTH, 3.4)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    styles = {CONTROL: '--', PATIENT: '-'}
    for axes, name in zip(panels, names):
        for group, style in styles.items():
            mine = course[course['group'] == group]
            lines = [rows[['years', name]].to_numpy() for _, rows in mine.groupby(PARTICIPANT)]
            label = f'{GROUP_NAMES[group]} (n = {len(lines)})'
            drawn = LineCollection(lines, colors=COLOURS[group], linestyles=style, label=label)
            drawn.set(linewidth=0.9, alpha=0.6)
            axes.add_collection(drawn)
        axes.autoscale_view()
        axes.set(title=name, xlabel='years since the first visit')
        tidy(axes)
    panels[0].set_ylabel('R-index')
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside upper center', ncols=2, frameon=False)
    return figure


def plot_associations(table: pd.DataFrame) -> Figure:
    """Draw correlations with their confidence intervals; filled where significant after FDR.

    Parameters
    ----------
    table : frame
        What :func:`surreal_bids.stats.associations.associate` returned.
    """
    table = table.assign(variable=[_variable_label(row) for _, row in table.iterrows()])
    variables = list(dict.fromkeys(table['variable']))
    patterns = list(dict.fromkeys(table['pattern']))
    figure = new_figure(WIDTH, 1.2 + 0.32 * len(variables) * max(1, len(patterns) / 2))
    axes = figure.subplots()
    for number, name in enumerate(patterns):
        mine = table[table['pattern'] == name]
        shift = 0.6 * ((number + 0.5) / len(patterns) - 0.5)
        for _, row in mine.iterrows():
            place = len(variables) - 1 - variables.index(row['variable']) - shift
            colour = SERIES[number % len(SERIES)]
            face = colour if row['p_fdr'] < SIGNIFICANT else 'white'
            axes.plot([row['r_low'], row['r_high']], [place, place], color=colour, lw=1.4)
            axes.plot(row['r'], place, 'o', ms=6, mfc=face, mec=colour)
        axes.plot([], [], 'o-', color=SERIES[number % len(SERIES)], label=name)
    axes.set_yticks(range(len(variables)), variables[::-1])
    axes.axvline(0, color=NEUTRAL, lw=0.8)
    axes.set(xlabel='correlation with the R-index (95 % interval); filled: p < 0.05 after FDR')
    axes.legend(frameon=False, loc='upper left', bbox_to_anchor=(1.0, 1.0))
    tidy(axes)
    return figure


def _variable_label(row: pd.Series) -> str:
    """Name of a measure and, if it has two values, the one that a positive correlation means."""
    if isinstance(row['higher_level'], str):
        return f'{row["variable"]} = {row["higher_level"]}'
    return str(row['variable'])


BEFORE, AFTER, HELD_OUT, CHANCE = '#c44e52', '#4c72b0', '#55a868', '#555555'
"""Colours that stay apart for colour-blind readers and in grey."""


def plot_harmonization(quality: HarmonizationQuality) -> Figure:
    """Draw site variance and site classification, before and after.

    Returns
    -------
    Figure
        Two panels, 8 x 4 inches, on a canvas of its own: save it with `savefig`.
    """
    figure = Figure(figsize=(8, 4), layout='constrained')
    FigureCanvasAgg(figure)
    variance, classification = figure.subplots(1, 2)
    _draw_site_variance(variance, quality)
    _draw_classification(classification, quality)
    for axes in (variance, classification):
        axes.spines[['top', 'right']].set_visible(False)
    return figure


def _draw_site_variance(axes: Axes, quality: HarmonizationQuality) -> None:
    """Per feature, sorted by the variance that site explained before."""
    features = quality.features.sort_values('site_variance_before')
    rank = np.arange(1, len(features) + 1)
    axes.scatter(rank, features['site_variance_before'], s=12, color=BEFORE, label='before')
    axes.scatter(rank, features['site_variance_after'], s=12, color=AFTER, label='after')
    axes.axhline(
        quality.site_variance_by_chance, color=CHANCE, ls='--', lw=1, label='by chance alone'
    )
    axes.set(
        title='Variance explained by site',
        xlabel='feature, by value before',
        ylabel='partial η² (beyond covariates)',
        ylim=(0, None),
    )
    axes.legend(frameon=False, loc='upper left')


def _draw_classification(axes: Axes, quality: HarmonizationQuality) -> None:
    """Balanced accuracy of the site classifier, cross-validated."""
    bars = [
        ('before', quality.classification_before, BEFORE),
        ('after,\nheld out', quality.classification_held_out, HELD_OUT),
    ]
    shown = [(name, score, colour) for name, score, colour in bars if score is not None]
    for place, (_, score, colour) in enumerate(shown):
        axes.bar(place, score.balanced_accuracy, width=0.6, color=colour)
        axes.annotate(
            f'{score.balanced_accuracy:.2f}', (place, score.balanced_accuracy), ha='center',
            xytext=(0, 3), textcoords='offset points',
        )  # fmt: skip
    before = quality.classification_before
    axes.axhline(before.chance, color=CHANCE, ls='--', lw=1, label=f'chance, {before.chance:.2f}')
    axes.set_xticks(range(len(shown)), [name for name, _, _ in shown])
    axes.set(
        title=f'Telling {before.n_sites} sites apart',
        ylabel='balanced accuracy, cross-validated',
        ylim=(0, 1),
    )
    axes.legend(frameon=False)
