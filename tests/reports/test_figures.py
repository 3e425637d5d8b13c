"""Figures: what they show, that labels can be read, and that they leave no global state."""

import itertools
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from surreal_bids.harmonization.quality import assess_harmonization
from surreal_bids.reports.figures import plot_harmonization, plot_participants, plot_r_indices
from tests.harmonization.simulated_sites import harmonize, simulate_sites

pytestmark = pytest.mark.drawn


@pytest.fixture(scope='module')
def quality():
    X, site, covariates = simulate_sites(seed=11)
    return assess_harmonization(X, harmonize(X, site, covariates), site, covariates)


@pytest.mark.parametrize('held_out', [True, False])
def test_shows_the_measures(quality, held_out):
    shown = quality if held_out else replace(quality, classification_held_out=None)
    variance, classification = plot_harmonization(shown).axes
    before = variance.collections[0].get_offsets()[:, 1]
    np.testing.assert_allclose(before, np.sort(quality.features['site_variance_before']))
    heights = [bar.get_height() for bar in classification.patches]
    assert len(heights) == (2 if held_out else 1)
    assert heights[0] == quality.classification_before.balanced_accuracy


@pytest.mark.parametrize('extension', ['svg', 'png'])
def test_can_be_saved(quality, tmp_path, extension):
    path = tmp_path / f'harmonization.{extension}'
    plot_harmonization(quality).savefig(path)
    assert path.stat().st_size > 5000


@pytest.mark.slow
def test_does_not_touch_pyplot():
    code = (
        'import sys; import surreal_bids.reports.figures; '
        'sys.exit("matplotlib.pyplot" in sys.modules)'
    )
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0


def check_tick_labels(figure):
    """Labels of ticks neither overlap nor leave the figure."""
    FigureCanvasAgg(figure).draw()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            places = dict(zip(axis.get_ticklocs(), axis.get_ticklabels()))
            shown = [text for place, text in places.items() if low <= place <= high]
            boxes = [text.get_window_extent() for text in shown if axes.axison]
            corners = [corner for box in boxes for corner in box.get_points()]
            assert all(figure.bbox.fully_contains(*corner) for corner in corners)
            if any(text.get_rotation() for text in shown):
                continue
            pairs = itertools.pairwise(boxes)
            assert not any(one.overlaps(other) for one, other in pairs), shown


@pytest.mark.parametrize('seed', range(8))
def test_tick_labels_of_covariates_can_be_read(seed):
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({'age': rng.uniform(20, 90, 60), 'icv': rng.normal(1.4e6, 1e5, 60)})
    for number in range(int(rng.integers(1, 7))):
        letters = int(rng.integers(1, 15))
        levels = [chr(97 + k) * letters for k in range(int(rng.integers(2, 6)))]
        people[f'column{number}'] = rng.choice(levels, 60)
    group = pd.Series(rng.choice(['CN', 'PT'], 60))
    figure = plot_participants(people, group)
    check_tick_labels(figure)
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels[:2] == ['age (years)', 'icv (ml)']
    low, high = figure.axes[1].get_xlim()
    assert 800 < low < high < 2000


@pytest.mark.parametrize('n_patterns', range(1, 6))
def test_tick_labels_of_r_indices_can_be_read(n_patterns):
    rng = np.random.default_rng(n_patterns)
    values = rng.uniform(-0.6, rng.uniform(1, 3), (60, n_patterns))
    r_indices = pd.DataFrame(values, columns=[f'r{m}' for m in range(n_patterns)])
    check_tick_labels(plot_r_indices(r_indices, pd.Series(rng.choice(['CN', 'PT'], 60))))
