import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from surreal_bids.exceptions import DataError
from surreal_bids.stats.associations import COLUMNS, associate


@pytest.fixture
def r_indices():
    values = np.random.default_rng(0).uniform(size=(40, 2))
    return pd.DataFrame(values, [f'sub-{number:02d}' for number in range(40)], ['r1', 'r2'])


def clinical(r_indices, **columns):
    return pd.DataFrame(columns, index=r_indices.index)


def row(table, variable, pattern):
    (found,) = table[(table['variable'] == variable) & (table['pattern'] == pattern)].itertuples()
    return found


@pytest.mark.parametrize('pattern', ['r1', 'r2'])
@pytest.mark.parametrize('missing', [0, 7, 35])
def test_numbers_are_correlated_as_scipy_does(r_indices, pattern, missing):
    score = r_indices['r1'] - 0.5 * r_indices['r2'] + np.linspace(0, 1, 40)
    score.iloc[:missing] = np.nan
    table, skipped = associate(clinical(r_indices, score=score), r_indices)
    found = row(table, 'score', pattern)
    expected = stats.pearsonr(score[missing:], r_indices[pattern].iloc[missing:])
    assert (found.r, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert (found.n, found.test, found.higher_level) == (40 - missing, 'pearson', None)
    assert found.r_low < found.r < found.r_high
    assert list(table.columns) == list(COLUMNS)
    assert not skipped


@pytest.mark.parametrize(
    ('low', 'high', 'higher_level'),
    [('no', 'yes', 'yes'), (0, 1, '1'), (False, True, 'True'), (2, 10, '10'), ('F', 'M', 'M')],
)
def test_two_values_are_point_biserial(r_indices, low, high, higher_level):
    is_high = r_indices['r2'] > 0.6
    column = is_high.map({True: high, False: low})
    table, _ = associate(clinical(r_indices, carrier=column), r_indices)
    found = row(table, 'carrier', 'r2')
    expected = stats.pointbiserialr(is_high, r_indices['r2'])
    assert (found.r, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert (found.test, found.higher_level) == ('point_biserial', higher_level)
    assert found.r > 0


def test_numbers_written_as_text_are_numbers(r_indices):
    score = r_indices['r1'].round(3)
    table, _ = associate(clinical(r_indices, text=score.astype(str), number=score), r_indices)
    assert row(table, 'text', 'r2').r == pytest.approx(row(table, 'number', 'r2').r)


@pytest.mark.parametrize(
    ('values', 'reason'),
    [
        ([f'site {number % 3}' for number in range(40)], 'text of 3 different values'),
        ([*'abcd', *range(36)], 'text of 40 different values'),
        ([1] * 40, 'have the same'),
        ([np.nan] * 40, 'no one has a value'),
        ([None] * 39 + ['yes'], 'have the same'),
    ],
    ids=['text', 'text and numbers', 'constant', 'missing', 'one'],
)
def test_columns_without_order_are_skipped_with_a_reason(r_indices, values, reason):
    table, (skipped,) = associate(clinical(r_indices, column=values), r_indices)
    assert table.empty
    assert skipped.name == 'column'
    assert reason in skipped.reason


def test_pairs_with_too_few_people_are_skipped(r_indices):
    r_indices.loc[r_indices.index[3:], 'r2'] = np.nan
    score = np.arange(40.0)
    table, (skipped,) = associate(clinical(r_indices, score=score), r_indices)
    assert table['pattern'].tolist() == ['r1']
    assert skipped.name == 'score and r2'
    assert 'only 3 participants' in skipped.reason


def test_false_discoveries_are_controlled_over_the_whole_table(r_indices):
    rng = np.random.default_rng(1)
    columns = {f'score{number}': rng.normal(size=40) for number in range(6)}
    table, _ = associate(clinical(r_indices, **columns), r_indices)
    np.testing.assert_allclose(table['p_fdr'], multipletests(table['p'], method='fdr_bh')[1])
    assert len(table) == 12


def test_people_are_matched_by_name(r_indices):
    score = clinical(r_indices, score=r_indices['r1'] ** 2)
    table, _ = associate(score, r_indices)
    mixed, _ = associate(score.sample(frac=1, random_state=0), r_indices.iloc[::-1])
    pd.testing.assert_frame_equal(table, mixed)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda table: table.rename(index=lambda name: f'other {name}'), 'no one has both'),
        (lambda table: pd.concat([table, table.iloc[:1]]), 'sub-00 has several rows'),
    ],
)
def test_tables_that_do_not_fit_are_refused(r_indices, change, message):
    table = clinical(r_indices, score=np.arange(40))
    with pytest.raises(DataError, match=message):
        associate(change(table), r_indices)
