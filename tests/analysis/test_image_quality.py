"""Which images of a cohort are outliers."""

import json

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
from surreal_bids.bids.outputs import describe_columns, output_path
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


@pytest.mark.parametrize(('name', 'value'), [('cjv', 20), ('snr_wm', 0), ('mask_ml', 0)])
def test_bad_values_are_outliers_and_good_ones_are_not(name, value):
    table = metrics()
    table.loc[3, name] = value
    bad = outlier_scores(table, one_scanner(table)) > OUTLYING
    assert bad.loc[3, name]
    table.loc[3, name] = 20 - value
    good = outlier_scores(table, one_scanner(table)).loc[3, name] > OUTLYING
    assert good == (BAD[name] == 0)


def test_counts_that_are_mostly_zero_have_outliers():
    table = metrics(50).assign(uncertain_regions=0.0)
    table.loc[7, 'uncertain_regions'] = 30
    scores = outlier_scores(table, one_scanner(table))['uncertain_regions']
    assert (scores > OUTLYING).tolist() == [number == 7 for number in range(50)]


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


def test_table_of_a_cohort(tmp_path, cohort):
    names = cohort.measured['participant_id']
    values = metrics(len(names))
    values.loc[4, 'cjv'] = 99
    for name, row in zip(names, values.to_dict('records')):
        path = output_path(tmp_path, 'quality', participant=name.removeprefix('sub-'), session=None)
        write_json(path, {**row, 'overlaps': {}, 'snr_csf': None})
    table = read_image_quality(tmp_path, cohort)
    assert table['participant_id'].tolist() == names.tolist()
    assert table[OUTLIERS].iloc[4] == 'cjv'
    assert table['snr_csf'].isna().all()
    assert set(table) <= set(describe_columns('image_quality'))
    assert json.loads(path.read_text())['snr_csf'] is None


def test_cohort_without_images_has_no_table(tmp_path, cohort):
    assert read_image_quality(tmp_path, cohort).empty
