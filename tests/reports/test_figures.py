"""The harmonization figure: what it shows, and that it leaves no global state."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from surreal_bids.harmonization.combat import ComBat
from surreal_bids.harmonization.quality import assess_harmonization
from surreal_bids.reports.figures import plot_harmonization
from tests.harmonization.simulated_sites import simulate_sites

pytestmark = pytest.mark.drawn


@pytest.fixture(scope='module')
def quality():
    X, site, covariates = simulate_sites(seed=11)
    after = ComBat().fit_transform(X, site, covariates)
    return assess_harmonization(X, after, site, covariates, harmonizer=ComBat())


@pytest.mark.parametrize('held_out', [True, False])
def test_shows_the_measures(quality, held_out):
    shown = quality if held_out else replace(quality, classification_held_out=None)
    variance, classification, effect = plot_harmonization(shown).axes
    before = variance.collections[0].get_offsets()[:, 1]
    np.testing.assert_allclose(before, np.sort(quality.features['site_variance_before']))
    heights = [bar.get_height() for bar in classification.patches]
    assert len(heights) == (3 if held_out else 2)
    assert heights[0] == quality.classification_before.balanced_accuracy
    points = effect.collections[0].get_offsets()
    np.testing.assert_allclose(points, quality.features[['effect_before', 'effect_after']])


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
