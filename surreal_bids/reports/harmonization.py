"""The figure that shows what harmonization removed and what it kept."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from surreal_bids.harmonization.quality import HarmonizationQuality

BEFORE, AFTER, HELD_OUT, NEUTRAL = '#c44e52', '#4c72b0', '#55a868', '#555555'
"""Colours that stay apart for colour-blind readers and in grey."""


def plot_harmonization(quality: HarmonizationQuality) -> Figure:
    """Draw site variance, site classification and covariate effect, before and after.

    Returns
    -------
    Figure
        Three panels, 12 x 4 inches, on a canvas of its own: save it with `savefig`.
    """
    figure = Figure(figsize=(12, 4), layout='constrained')
    FigureCanvasAgg(figure)
    variance, classification, effect = figure.subplots(1, 3)
    _draw_site_variance(variance, quality)
    _draw_classification(classification, quality)
    _draw_effect(effect, quality)
    for axes in (variance, classification, effect):
        axes.spines[['top', 'right']].set_visible(False)
    return figure


def _draw_site_variance(axes: Axes, quality: HarmonizationQuality) -> None:
    """Per feature, sorted by the variance that site explained before."""
    features = quality.features.sort_values('site_variance_before')
    rank = np.arange(1, len(features) + 1)
    axes.scatter(rank, features['site_variance_before'], s=12, color=BEFORE, label='before')
    axes.scatter(rank, features['site_variance_after'], s=12, color=AFTER, label='after')
    axes.axhline(
        quality.site_variance_by_chance, color=NEUTRAL, ls='--', lw=1, label='by chance alone'
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
        ('after,\nsame people', quality.classification_after, AFTER),
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
    axes.axhline(before.chance, color=NEUTRAL, ls='--', lw=1, label=f'chance, {before.chance:.2f}')
    axes.set_xticks(range(len(shown)), [name for name, _, _ in shown])
    axes.set(
        title=f'Telling {before.n_sites} sites apart',
        ylabel='balanced accuracy, cross-validated',
        ylim=(0, 1),
    )
    axes.legend(frameon=False)


def _draw_effect(axes: Axes, quality: HarmonizationQuality) -> None:
    """Effect of the covariate of interest on each feature, before against after."""
    before, after = quality.features['effect_before'], quality.features['effect_after']
    limit = 1.1 * max(before.abs().max(), after.abs().max())
    axes.plot([-limit, limit], [-limit, limit], color=NEUTRAL, ls='--', lw=1, label='kept entirely')
    axes.scatter(before, after, s=12, color=AFTER, label='feature')
    axes.set(
        title=f'Effect of {quality.covariate}: {quality.effect_kept():.0%} kept',
        xlabel=f'before (sd per sd of {quality.covariate})',
        ylabel='after',
        xlim=(-limit, limit),
        ylim=(-limit, limit),
        aspect='equal',
    )
    axes.legend(frameon=False, loc='upper left')
