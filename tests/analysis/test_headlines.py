"""Headlines of patterns, and patterns that are mirror images."""

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.headlines import headline, warn_of_mirror_images
from surreal_bids.cohort.roles import column_features
from surreal_bids.reports.card import pattern_words


def rows_of(changes: dict[str, float], name: str = 'r1') -> pd.DataFrame:
    """Rows of the table of patterns; changes below 0.3 are not shown."""
    values = np.array(list(changes.values()))
    return pd.DataFrame(
        {
            'pattern': name,
            'region': list(changes),
            'change_sd': values,
            'change_percent': 10 * values,
            'shown': np.abs(values) >= 0.3,
        }
    )


CASES = {
    'Medial temporal': {'hippocampus': -1.2, 'amygdala': -1.1, 'entorhinal area': -0.9},
    'Medial and lateral temporal': {'hippocampus': -1, 'fusiform gyrus': -1},
    'Frontal and medial temporal': {
        'hippocampus': -2.0,
        'frontal pole': -1.2,
        'middle frontal gyrus': -1.2,
        'frontal operculum': -1.2,
        'gyrus rectus': -1.1,
    },
    'Posterior: parietal and occipital': {'precuneus': -1, 'cuneus': -0.9, 'angular gyrus': -0.1},
    'Frontal': {'superior frontal gyrus': -1, 'hippocampus': -0.2},
    'Frontal and insular': {'frontal pole': -1, 'anterior insula': -0.8},
    'Basal ganglia (larger)': {'putamen': 0.9, 'caudate': 0.7},
    'Left temporal, 2 of 2 regions left': {'Left fusiform gyrus': -1, 'Left temporal pole': -1},
    'Temporal': {'Left fusiform gyrus': -1, 'Right fusiform gyrus': -1},
    'Medial temporal (one region without a partner)': {
        'hippocampus': -1,
        'amygdala': -1,
        'Left entorhinal area': -1,
    },
    '': {'region_1': -1, 'region_2': -1},
}


@pytest.mark.parametrize('text', CASES)
def test_headlines(text):
    assert headline(rows_of(CASES[text])) == text.removesuffix(' (one region without a partner)')


def test_a_pattern_in_all_parts_is_widespread():
    regions = ['hippocampus', 'frontal pole', 'cuneus', 'precuneus', 'fusiform gyrus', 'thalamus']
    regions += ['putamen', 'anterior insula', 'Brain-Stem', 'cerebellum exterior']
    assert headline(rows_of(dict.fromkeys(regions, -1.0))).startswith('Widespread, mostly ')


def test_no_region_has_no_headline():
    assert headline(rows_of({'hippocampus': -0.1})) == ''


def test_sides_are_named_apart_if_they_differ_by_half():
    rows = rows_of({'Left hippocampus': -1.0, 'Right hippocampus': -0.5, 'Left amygdala': -1.0})
    assert pattern_words(rows) == (
        'Smaller: left hippocampus -10%, left amygdala -10%, right hippocampus -5%'
    )
    alike = rows_of({'Left hippocampus': -1.0, 'Right hippocampus': -0.8})
    assert pattern_words(alike) == 'Smaller: hippocampus -9%'


def test_mirror_images_are_named():
    rng = np.random.default_rng(3)
    names = [f'{side}_{number}a' for number in range(20) for side in ('left', 'right')]
    regions = column_features([name.replace('a', 'x') for name in names])
    left = rng.normal(-1, 0.4, 20)
    right = rng.normal(-0.1, 0.1, 20)
    first = np.stack([left, right], axis=1).ravel()
    second = np.stack([right, left], axis=1).ravel() + rng.normal(0, 0.05, 40)
    other = rng.normal(-0.5, 0.5, 40)
    tables = [
        rows_of(dict(zip(regions.names, change)), name)
        for name, change in zip(('r1', 'r2', 'r3'), (first, second, other))
    ]
    cautions = warn_of_mirror_images(pd.concat(tables), regions)
    assert len(cautions) == 1
    assert cautions[0].found.startswith('r1 and r2 are mirror images')


def test_patterns_that_are_alike_on_both_sides_are_no_mirror_images():
    rng = np.random.default_rng(4)
    regions = column_features([f'{side}_{n}x' for n in range(15) for side in ('left', 'right')])
    both = np.repeat(rng.normal(-1, 0.5, 15), 2)
    tables = [
        rows_of(dict(zip(regions.names, both + rng.normal(0, 0.02, 30))), name)
        for name in ('r1', 'r2')
    ]
    # Equal on both sides, so that the mirrored one is no more alike than the pattern itself.
    tables[1]['change_sd'] = tables[0]['change_sd']
    assert warn_of_mirror_images(pd.concat(tables), regions) == []
