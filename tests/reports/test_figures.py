"""Figures of large studies stay small; those of others consist of shapes."""

import re

import numpy as np
import pandas as pd
import pytest

from surreal_bids.reports import figures


def draw_r_indices(path, n_people):
    rng = np.random.default_rng(0)
    group = pd.Series(np.where(np.arange(n_people) % 3, 'CN', 'PT'))
    r_indices = pd.DataFrame({'r1': rng.normal(size=n_people)})
    drawn = figures.plot_r_indices(r_indices, group, {'CN': 'controls', 'PT': 'patients'})
    return figures.save_figure(path, drawn).read_text()


@pytest.mark.drawn
def test_points_of_crowded_groups_are_one_image_in_the_figure(tmp_path):
    crowded = draw_r_indices(tmp_path / 'crowded.svg', 3000)
    assert crowded.count('<image') == 1
    assert len(crowded) < 150_000
    assert '>controls</text>' in crowded
    usual = draw_r_indices(tmp_path / 'usual.svg', 60)
    assert '<image' not in usual
    assert len(re.findall('<use ', usual)) > 60


def test_opacity_falls_where_points_are_crowded():
    opacities = [figures._opacity(count, 0.7) for count in (0, 300, 600, 50_000)]
    assert opacities == [0.7, 0.7, 0.35, figures.FAINTEST]
