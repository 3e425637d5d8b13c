"""Figures of the tables, as SVG and PNG; the paper's numbers are black diamonds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from surreal_bids.files import atomic_path

ACCURACY = 'pattern-c-index'
AGREEMENT = 'pattern-agr-index'
CHANCE = 0.5
WHOLE_RANGE = (0.45, 1.0)
"""From a little below chance to perfect: differences look as large as they are."""
PNG_RESOLUTION = 80
PAPER_MARK = {'marker': 'D', 'color': 'black', 'linestyle': 'none', 'markersize': 4}
STYLE = {'font.size': 8, 'axes.spines.top': False, 'axes.spines.right': False}
REPRODUCIBLE = {'svg.hashsalt': 'surreal_bids'}
Tables = dict[str, pd.DataFrame]


def new_figure(width: float, height: float, title: str) -> Figure:
    """An empty figure (inches) whose title says what it shows and how it was run."""
    figure = Figure(figsize=(width, height), layout='constrained')
    figure.suptitle(title, fontsize=9)
    return figure


def add_legend(figure: Figure, axes: Axes) -> None:
    """The names of one panel's series, below all panels."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc='outside lower center', ncols=9, fontsize=7, frameon=False)


def grouped_bars(axes: Axes, table: pd.DataFrame, group: str, series: str) -> None:
    """A bar for each series in each group, sd as error bar, the paper's number as a diamond."""
    groups, names = table[group].unique(), table[series].unique()
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        part = table[table[series] == name].set_index(group).reindex(groups)
        x = np.arange(len(groups)) + (number - (len(names) - 1) / 2) * width
        axes.bar(x, part['c_index'] - CHANCE, width, CHANCE, yerr=part['sd'].fillna(0), label=name)
        label = 'paper' if number == 0 else None
        axes.plot(x, part['paper'], label=label, **PAPER_MARK)
    axes.set_xticks(np.arange(len(groups)), groups)
    axes.set_ylabel(ACCURACY)
    axes.set_ylim(*WHOLE_RANGE)


def draw_table1(tables: Tables, title: str) -> Figure:
    """Bars by task and method."""
    figure = new_figure(9, 3.5, title)
    axes = figure.subplots()
    grouped_bars(axes, tables['table1'], 'task', 'method')
    add_legend(figure, axes)
    return figure


def draw_table7(tables: Tables, title: str) -> Figure:
    """Bars by task and method."""
    figure = new_figure(9, 3.5, title)
    axes = figure.subplots()
    grouped_bars(axes, tables['table7'], 'task', 'method')
    add_legend(figure, axes)
    return figure


def draw_table6(tables: Tables, title: str) -> Figure:
    """Bars by task and method, training beside test people."""
    figure = new_figure(10, 3.5, title)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (part, table) in zip(panels, tables['table6'].groupby('part', sort=False)):
        grouped_bars(axes, table, 'task', 'method')
        axes.set_title(part)
    add_legend(figure, panels[0])
    return figure


def draw_fig2(tables: Tables, title: str) -> Figure:
    """Accuracy (a) and agreement (b) over lambda, and against each other (c)."""
    figure = new_figure(10, 3.3, title)
    left, middle, right = figure.subplots(1, 3)
    for number, (task, part) in enumerate(tables['fig2'].groupby('task', sort=False)):
        colour = f'C{number}'
        left.errorbar(part['ortho'], part['c_index'], part['c_index_se'], color=colour, label=task)
        left.axhline(part['paper'].iloc[0], color=colour, linestyle=':', linewidth=1)
        middle.errorbar(part['ortho'], part['agreement'], part['agreement_se'], color=colour)
        right.plot(part['agreement'], part['c_index'], 'o', color=colour, markersize=4)
    _label(left, 'lambda', ACCURACY, "(a) dotted: the paper's best")
    _label(middle, 'lambda', AGREEMENT, '(b)')
    overall = tables['fig2_correlation'].iloc[0]
    _label(right, AGREEMENT, ACCURACY, f'(c) correlation {overall["pearson"]:.2f}')
    add_legend(figure, left)
    return figure


def draw_robustness(tables: Tables, title: str) -> Figure:
    """Scaled hyper-parameters: accuracy (a) and agreement (b); terms removed (c)."""
    table = tables['robustness']
    tasks = table['task'].unique()
    figure = new_figure(10, 2.8 * len(tasks), title)
    for row, task in zip(figure.subplots(len(tasks), 3, squeeze=False), tasks):
        part = table[table['task'] == task]
        scaled, removed = (part[part['panel'] == panel] for panel in ('scaled', 'removed'))
        for name, line in scaled.groupby('changed', sort=False):
            row[0].errorbar(100 * line['factor'], line['c_index'], line['c_index_se'], label=name)
            row[1].errorbar(100 * line['factor'], line['agreement'], line['agreement_se'])
        _label(row[0], '% of the preset', ACCURACY, f'(a) {task}')
        _label(row[1], '% of the preset', AGREEMENT, f'(b) {task}')
        for axes in row[:2]:
            axes.set_ylim(*WHOLE_RANGE)
        _removed_terms(row[2], removed)
        _label(row[2], ACCURACY, '', f'(c) {task}')
    add_legend(figure, row[0])
    return figure


def _removed_terms(axes: Axes, table: pd.DataFrame) -> None:
    """Horizontal bars, since the names are long."""
    width = table['c_index'] - CHANCE
    axes.barh(table['changed'], width, left=CHANCE, xerr=table['c_index_se'].fillna(0))
    axes.invert_yaxis()


def draw_split_half(tables: Tables, title: str) -> Figure:
    """Agreement between and within halves, and accuracy of either half, on people of neither."""
    table = tables['split_half'].set_index('task')
    figure = new_figure(9, 3.2, title)
    axes = figure.subplots()
    names = [name for name in table if name.startswith(('agreement', 'c_index'))]
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        x = np.arange(len(table)) + (number - (len(names) - 1) / 2) * width
        axes.bar(x, table[name] - CHANCE, width, CHANCE, label=name.replace('_', ' '))
    axes.set_xticks(np.arange(len(table)), table.index)
    axes.set_ylim(*WHOLE_RANGE)
    add_legend(figure, axes)
    return figure


def _label(axes: Axes, x: str, y: str, title: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, loc='left')


FIGURES: dict[str, tuple[str, Callable[[Tables, str], Figure]]] = {
    'table1': ('Table 1', draw_table1),
    'fig2': ('Fig. 2', draw_fig2),
    'table7': ('Table 7: practical upper bounds', draw_table7),
    'table6': ('Table 6: supervised regression', draw_table6),
    'robustness': ('Supplementary Fig. 1', draw_robustness),
    'split_half': ('Split-half reproducibility (B.7)', draw_split_half),
}
"""Title and drawing of each experiment."""


def write_figure(folder: Path, experiment: str, tables: Tables, setting: str) -> list[Path]:
    """Draw an experiment as SVG and PNG, each with the setting in its title."""
    name, draw = FIGURES[experiment]
    written = []
    with rc_context(STYLE | REPRODUCIBLE):
        figure = draw(tables, f'{name} ({setting})')
        for extension in ('svg', 'png'):
            path = folder / f'{experiment}.{extension}'
            no_date = {'Date': None} if extension == 'svg' else {}
            with atomic_path(path) as temporary:
                figure.savefig(temporary, dpi=PNG_RESOLUTION, metadata=no_date)
            written.append(path)
    return written
