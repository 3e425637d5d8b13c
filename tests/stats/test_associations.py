import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.stats.multitest import multipletests

from surreal_bids.exceptions import DataError
from surreal_bids.stats.associations import (
    COLUMNS,
    associate,
)


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
    expected = stats.spearmanr(score[missing:], r_indices[pattern].iloc[missing:])
    assert (found.r, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert (found.n, found.test, found.higher_level) == (40 - missing, 'spearman', None)
    assert found.adjusted_for is None
    assert found.r_low < found.r < found.r_high
    assert list(table.columns) == list(COLUMNS)
    assert not skipped


@pytest.mark.parametrize(
    ('low', 'high', 'higher_level'),
    [('no', 'yes', 'yes'), (0, 1, '1'), (False, True, 'True'), (2, 10, '10'), ('F', 'M', 'M')],
)
def test_two_values_are_compared_by_rank(r_indices, low, high, higher_level):
    is_high = r_indices['r2'] > 0.6
    column = is_high.map({True: high, False: low})
    table, _ = associate(clinical(r_indices, carrier=column), r_indices)
    found = row(table, 'carrier', 'r2')
    expected = stats.pointbiserialr(is_high, stats.rankdata(r_indices['r2']))
    assert (found.r, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert found.higher_level == higher_level
    assert found.r > 0


@pytest.fixture
def covariates(r_indices):
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            'age': rng.uniform(50, 80, 40),
            'sex': rng.choice(['F', 'M'], 40),
            'site': rng.choice(['a', 'b', 'c'], 40),
        },
        index=r_indices.index,
    )


def test_partial_correlation_is_that_of_the_inverse_correlation_matrix(r_indices, covariates):
    score = r_indices['r1'] + covariates['age'] / 30 + np.linspace(0, 0.7, 40) ** 2
    table, _ = associate(clinical(r_indices, score=score), r_indices, covariates)
    columns = [score, r_indices['r1'], covariates['age']]
    levels = [covariates['sex'] == 'M', covariates['site'] == 'b', covariates['site'] == 'c']
    ranks = np.array([stats.rankdata(x) for x in columns] + [x.to_numpy(float) for x in levels])
    precision = np.linalg.inv(np.corrcoef(ranks))
    expected = -precision[0, 1] / np.sqrt(precision[0, 0] * precision[1, 1])
    found = row(table, 'score', 'r1')
    assert found.r == pytest.approx(expected)
    assert found.adjusted_for == 'age, sex, site'


def test_p_is_that_of_a_linear_model_of_the_ranks(r_indices, covariates):
    score = r_indices['r1'] + np.linspace(0, 3, 40)
    table, _ = associate(clinical(r_indices, score=score), r_indices, covariates)
    frame = covariates.assign(score=stats.rankdata(score), r=stats.rankdata(r_indices['r1']))
    frame['age'] = stats.rankdata(frame['age'])
    model = smf.ols('r ~ score + age + C(sex) + C(site)', frame).fit()
    assert row(table, 'score', 'r1').p == pytest.approx(model.pvalues['score'])


def test_sites_called_by_numbers_are_categories(r_indices, covariates):
    score = clinical(r_indices, score=r_indices['r1'] + np.linspace(0, 3, 40))
    numbered = covariates.assign(site=covariates['site'].map({'a': '1', 'b': '2', 'c': '3'}))
    table, again = (associate(score, r_indices, each)[0] for each in (covariates, numbered))
    np.testing.assert_allclose(again['p'], table['p'])


def test_covariates_that_repeat_each_other_cost_no_degree_of_freedom(r_indices, covariates):
    score = clinical(r_indices, score=r_indices['r1'] + np.linspace(0, 3, 40))
    twice = covariates.assign(months=covariates['age'] * 12, everyone='x')
    table, again = (associate(score, r_indices, each)[0] for each in (covariates, twice))
    np.testing.assert_allclose(again['p'], table['p'])


def test_a_measure_that_covariates_determine_is_skipped(r_indices, covariates):
    table, skipped = associate(
        clinical(r_indices, months=covariates['age'] * 12), r_indices, covariates
    )
    assert table.empty
    assert {each.reason for each in skipped} == {'it is determined by the covariates'}


@pytest.mark.parametrize('slope', [0.0, 1.0], ids=['unrelated', 'related'])
def test_intervals_cover_the_truth_and_errors_are_as_frequent_as_said(slope):
    rng = np.random.default_rng(0)
    age = rng.normal(size=(300, 50))
    pattern = age + rng.normal(size=age.shape)
    score = age + slope * (pattern - age) + rng.normal(size=age.shape)
    # Of normal variables, Pearson's r gives Spearman's: 6 / pi arcsin(r / 2).
    truth = 6 / np.pi * np.arcsin(slope / np.sqrt(1 + slope**2) / 2)
    found = pd.concat(
        associate(*(pd.DataFrame({name: x}) for name, x in each))[0]
        for each in zip(
            (('score', x) for x in score),
            (('r1', x) for x in pattern),
            (('age', x) for x in age),
        )
    )
    covered = (found['r_low'] < truth) & (truth < found['r_high'])
    assert 0.92 < covered.mean() < 0.98
    positives = (found['p'] < 0.05).mean()
    assert positives > 0.99 if slope else 0.03 < positives < 0.07


def test_numbers_written_as_text_are_numbers(r_indices):
    score = r_indices['r1'].round(3)
    table, _ = associate(clinical(r_indices, text=score.astype(str), number=score), r_indices)
    assert row(table, 'text', 'r2').r == pytest.approx(row(table, 'number', 'r2').r)


@pytest.mark.parametrize(
    ('values', 'reason'),
    [
        ([f'site {number % 3}' for number in range(40)], 'text with 3 different values'),
        ([*'abcd', *range(36)], 'text with 40 different values'),
        ([1] * 40, 'are the same'),
        ([np.nan] * 40, 'all values are missing'),
        ([None] * 39 + ['yes'], 'are the same'),
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
        (lambda table: table.rename(index=lambda name: f'other {name}'), 'no participant has both'),
        (lambda table: pd.concat([table, table.iloc[:1]]), 'sub-00 has several rows'),
    ],
)
def test_tables_that_do_not_fit_are_refused(r_indices, change, message):
    table = clinical(r_indices, score=np.arange(40))
    with pytest.raises(DataError, match=message):
        associate(change(table), r_indices)


def test_an_r_index_that_nobody_has_is_told():
    rng = np.random.default_rng(20)
    people = [f'sub-{k:02}' for k in range(40)]
    table = pd.DataFrame(rng.normal(size=(40, 2)), people, ['score', 'age'])
    indices = pd.DataFrame({'r1': rng.normal(size=40), 'r2': np.nan}, people)
    found, skipped = associate(table[['score']], indices, table[['age']])
    assert found['pattern'].tolist() == ['r1']
    assert [(each.name, each.reason) for each in skipped] == [
        ('score and r2', 'no participant has both')
    ]


def test_without_patients_no_measure_is_said_to_be_missing(r_indices):
    table, (skipped,) = associate(clinical(r_indices, column=np.arange(40.0)), r_indices[:0])
    assert table.empty
    assert skipped.reason == 'there are no patients with R-indices'
