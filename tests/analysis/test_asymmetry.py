"""The left-right difference along patterns, on simulated z-scores whose truth is known."""

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.asymmetry import (
    MIN_CONTROLS,
    describe_asymmetry,
    in_words,
    share_interval,
)
from surreal_bids.cohort.roles import column_features
from surreal_bids.sides import put_sides_together

STRUCTURES = 12
REGIONS = column_features([f'{side}_{n}x' for n in range(STRUCTURES) for side in ('left', 'right')])
TOGETHER = put_sides_together(REGIONS)


def study(n_controls: int, n_patients: int, dominance: float, seed: int):
    """z-scores of healthy people and of patients who lose 1 SD, more on one side."""
    rng = np.random.default_rng(seed)
    n = n_controls + n_patients
    shared = rng.normal(0, 0.8, (n, STRUCTURES, 1))
    z = shared + rng.normal(0, 0.6, (n, STRUCTURES, 2))
    tilt = dominance * rng.standard_normal((n_patients, 1))
    # Only the first half of the structures belongs to the pattern.
    half = STRUCTURES // 2
    z[n_controls:, :half, 0] -= 1 + tilt
    z[n_controls:, :half, 1] -= 1 - tilt
    names = [f's{number}' for number in range(n)]
    change = np.where(np.arange(STRUCTURES) < half, -1.0, 0.0)
    patterns = pd.DataFrame({'pattern': 'r1', 'change_sd': change, 'shown': change != 0})
    frame = pd.DataFrame(z.reshape(n, -1), names, REGIONS.names)
    groups = pd.Series(['CN'] * n_controls + ['PT'] * n_patients, names)
    return frame, patterns, groups, pd.Series(True, names), tilt[:, 0]


def describe(*arguments):
    z, patterns, groups, is_first, _ = study(*arguments)
    return describe_asymmetry(z, patterns, TOGETHER, groups, is_first)


@pytest.mark.parametrize('n_controls', [20, 60, 200])
def test_about_5_percent_of_patients_with_equal_sides_are_beyond_the_limit(n_controls):
    shares = [describe(n_controls, 200, 0.0, seed).shares['share'].iloc[0] for seed in range(60)]
    assert np.mean(shares) == pytest.approx(0.05, abs=0.015)


def test_the_interval_of_the_share_includes_the_error_of_the_limit():
    inside = 0
    for seed in range(200):
        row = describe(30, 150, 0.0, seed).shares.iloc[0]
        inside += row['low'] <= 0.05 <= row['high']
    assert 0.91 <= inside / 200 <= 1.0
    # With many controls, it is that of Wilson: 5 of 100 by the closed form.
    low, high = share_interval(5, 100, 10**6)
    assert (low, high) == pytest.approx((0.0215, 0.1118), abs=1e-3)


def test_one_sided_disease_is_seen_on_the_right_side():
    z, patterns, groups, is_first, tilt = study(60, 80, 0.6, 5)
    found = describe_asymmetry(z, patterns, TOGETHER, groups, is_first)
    of_patients = found.table[groups == 'PT']
    # A positive tilt is a larger loss on the left.
    assert np.corrcoef(of_patients['r1_left_right'], tilt)[0, 1] > 0.9
    assert set(of_patients['r1_side'][tilt > 0.8]) == {'left'}
    assert set(of_patients['r1_side'][tilt < -0.8]) == {'right'}
    assert found.shares['share'].iloc[0] > 0.3
    row = found.shares.iloc[0]
    first, *_, last = in_words(found)
    assert first.startswith(f'In r1, {row["beyond"]} of 80 patients (')
    assert 'than 95% of 60 controls; about 5% are expected.' in first
    assert '--sides apart' in last


def test_a_missing_region_leaves_the_difference_open():
    z, patterns, groups, is_first, _ = study(40, 10, 0.0, 1)
    z.iloc[45, 0] = np.nan
    table = describe_asymmetry(z, patterns, TOGETHER, groups, is_first).table
    assert np.isnan(table['r1_left_right'].iloc[45])
    assert table['r1_side'].iloc[45] is None
    assert table['r1_side'].drop(index='s45').notna().all()


def test_a_region_outside_the_pattern_may_be_missing():
    z, patterns, groups, is_first, _ = study(40, 10, 0.0, 1)
    z.iloc[:, -1] = np.nan
    found = describe_asymmetry(z, patterns, TOGETHER, groups, is_first)
    assert found.table['r1_left_right'].notna().all()


def test_controls_that_are_compared_are_counted():
    z, patterns, groups, is_first, _ = study(40, 10, 0.0, 1)
    z.iloc[:6] = np.nan
    shares = describe_asymmetry(z, patterns, TOGETHER, groups, is_first).shares
    assert shares['n_controls'].tolist() == [34]


def test_controls_alone_have_differences_and_no_shares():
    z, patterns, groups, is_first, _ = study(40, 0, 0.0, 1)
    found = describe_asymmetry(z, patterns, TOGETHER, groups, is_first)
    assert found.table['r1_side'].notna().all()
    assert in_words(found) == []


def test_few_controls_have_no_limit():
    assert describe(MIN_CONTROLS - 1, 30, 0.0, 2) is None


def test_single_regions_have_no_difference():
    z, patterns, groups, is_first, _ = study(40, 10, 0.0, 1)
    assert describe_asymmetry(z, patterns, REGIONS, groups, is_first) is None
