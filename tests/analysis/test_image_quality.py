"""Which images of a cohort are outliers."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.image_quality import (
    BAD,
    FEWEST_IMAGES,
    OUTLIERS,
    OUTLYING,
    outlier_scores,
    read_image_quality,
)
from surreal_bids.analysis.outputs import describe_table
from surreal_bids.bids.outputs import output_path
from surreal_bids.files import write_json
from tests.analysis.group_study import read_study


@pytest.fixture(scope='module')
def cohort(tmp_path_factory):
    return read_study(tmp_path_factory.mktemp('study'))


def metrics(n=200, seed=0):
    values = np.random.default_rng(seed).normal(10, 1, (n, len(BAD)))
    return pd.DataFrame(values, columns=list(BAD))


def one_scanner(table):
    return pd.Series('a', table.index)


def test_scores_are_standard_deviations_of_normal_values():
    table = metrics(5000)
    scores = outlier_scores(table, one_scanner(table))
    assert scores['cjv'].std() == pytest.approx(1, abs=0.05)
    assert (scores > OUTLYING).any(axis=1).mean() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize('n', [10, 20, 50])
def test_sound_images_are_seldom_outliers(n):
    tables = [metrics(n, seed) for seed in range(600 // n)]
    outlying = [outlier_scores(each, one_scanner(each)) > OUTLYING for each in tables]
    assert np.mean([each.any(axis=1).mean() for each in outlying]) < 0.06


@pytest.mark.parametrize(('name', 'value'), [('cjv', 20), ('snr_wm', 0), ('mask_ml', 0)])
def test_bad_values_are_outliers_and_good_ones_are_not(name, value):
    table = metrics()
    table.loc[3, name] = value
    bad = outlier_scores(table, one_scanner(table)) > OUTLYING
    assert bad.loc[3, name]
    table.loc[3, name] = 20 - value
    good = outlier_scores(table, one_scanner(table)).loc[3, name] > OUTLYING
    assert good == (BAD[name] == 0)


@pytest.mark.parametrize(
    ('name', 'usual', 'value', 'is_outlier'),
    [
        ('uncertain_regions', 0, 30, True),
        ('uncertain_regions', 0, 1, False),
        ('empty_regions', 0, 1, True),
        ('voxel_mm', 1, 1.00001, False),
        ('voxel_mm', 1, 3, True),
    ],
)
def test_where_most_are_equal_only_large_differences_count(name, usual, value, is_outlier):
    table = metrics(50).assign(**{name: float(usual)})
    table.loc[7, name] = value
    outlying = outlier_scores(table, one_scanner(table))[name] > OUTLYING
    assert outlying.tolist() == [number == 7 and is_outlier for number in range(50)]


def test_small_sites_are_compared_with_each_other():
    table = metrics(45)
    scanner = pd.Series(['others'] * 30 + ['b'] * 8 + ['c'] * 7)
    table.loc[30:, 'snr_wm'] += 50
    assert not (outlier_scores(table, scanner)['snr_wm'] > OUTLYING).any()


def test_images_of_unknown_scanners_are_not_compared():
    table = metrics(40)
    scanner = pd.Series(['a'] * 30 + [None] * 10)
    table.loc[30:, 'snr_wm'] += 50
    scores = outlier_scores(table, scanner)
    assert scores.loc[30:].isna().all(axis=None)
    pd.testing.assert_frame_equal(scores[:30], outlier_scores(table[:30], scanner[:30]))


def test_images_are_compared_within_their_scanner():
    table = metrics(40)
    table.loc[20:, 'snr_wm'] += 50
    scanner = pd.Series(['a'] * 20 + ['b'] * 20)
    table.loc[25, 'snr_wm'] = 10  # Usual on the other scanner.
    together = outlier_scores(table, one_scanner(table))
    apart = outlier_scores(table, scanner)
    assert not together.loc[25, 'snr_wm'] > OUTLYING
    assert apart.loc[25, 'snr_wm'] > OUTLYING


def test_few_images_have_no_outliers():
    table = metrics(FEWEST_IMAGES - 1)
    assert outlier_scores(table, one_scanner(table)).isna().all(axis=None)


def write_quality(folder, cohort, sessions=False):
    """Metrics of all images, of which the fifth is noisy."""
    values = metrics(len(cohort.measured))
    values.loc[4, 'cjv'] = 99
    for visit, row in zip(cohort.measured.to_dict('records'), values.to_dict('records')):
        session = visit['session_id'].removeprefix('ses-') if sessions else None
        label = visit['participant_id'].removeprefix('sub-')
        path = output_path(folder, 'quality', participant=label, session=session)
        write_json(path, {**row, 'overlaps': {}, 'snr_csf': None})


def test_table_of_a_cohort(tmp_path, cohort):
    write_quality(tmp_path, cohort)
    table, scores = read_image_quality(tmp_path, cohort)
    assert table['participant_id'].tolist() == cohort.measured['participant_id'].tolist()
    assert table[OUTLIERS].iloc[4] == 'cjv'
    assert table['snr_csf'].isna().all()
    assert scores['cjv'].idxmax() == table.index[4]
    assert set(describe_table('image_quality', table.columns)) == set(table)
    included = replace(cohort, people=cohort.people.iloc[6:])
    scores = read_image_quality(tmp_path, included).scores
    assert scores[:6].isna().all(axis=None)
    assert scores[6:].notna().any(axis=1).all()


def test_sessions(tmp_path):
    cohort = read_study(tmp_path, sessions=True)
    write_quality(tmp_path / 'out', cohort, sessions=True)
    table = read_image_quality(tmp_path / 'out', cohort).table
    assert table['cjv'].notna().all()
    assert table['session_id'].nunique() == 2


@pytest.mark.parametrize('name', ['sub-a b', '../elsewhere', 'sub-01'])
@pytest.mark.parametrize('session', ['2020-01-05', None, 'month 12'])
def test_names_that_are_no_labels_have_no_images(tmp_path, name, session):
    visit = pd.DataFrame({'participant_id': [name], 'session_id': [session]})
    cohort = SimpleNamespace(measured=visit)
    assert read_image_quality(tmp_path, cohort) is None
