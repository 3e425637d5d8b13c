import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.stats.multitest import multipletests

from surreal_bids.analysis.statistics import associate


@pytest.fixture
def r_indices():
    values = np.random.default_rng(0).uniform(size=(40, 2))
    return pd.DataFrame(values, [f'sub-{number:02d}' for number in range(40)], ['r1', 'r2'])


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


def find(r_indices, covariates=None, **columns):
    """Associate columns, without covariates by default."""
    clinical = pd.DataFrame(columns, r_indices.index)
    none = pd.DataFrame(index=r_indices.index) if covariates is None else covariates
    return associate(clinical, r_indices, none)


def row(table, variable, pattern):
    (found,) = table[(table['measure'] == variable) & (table['index'] == pattern)].itertuples()
    return found


def test_numbers_are_correlated_as_scipy_does(r_indices):
    for missing in (0, 35):
        score = r_indices['r1'] - 0.5 * r_indices['r2'] + np.linspace(0, 1, 40)
        score.iloc[:missing] = np.nan
        table, untested = find(r_indices, score=score)
        found = row(table, 'score', 'r2')
        expected = stats.spearmanr(score[missing:], r_indices['r2'].iloc[missing:])
        assert (found.estimate, found.p) == pytest.approx((expected.statistic, expected.pvalue))
        assert (found.n, found.higher_level, found.adjusted_for) == (40 - missing, None, None)
        assert found.low < found.estimate < found.high
        assert not untested


def test_two_values_are_compared_by_rank(r_indices):
    is_high = r_indices['r2'] > 0.6
    expected = stats.pointbiserialr(is_high, stats.rankdata(r_indices['r2']))
    for low, high in (('no', 'yes'), (0, 1), (2, 10), ('F', 'M')):
        found = row(
            find(r_indices, carrier=is_high.map({True: high, False: low}))[0], 'carrier', 'r2'
        )
        assert (found.estimate, found.p) == pytest.approx((expected.statistic, expected.pvalue))
        assert found.higher_level == str(high)


def test_partial_correlation_is_that_of_the_inverse_correlation_matrix(r_indices, covariates):
    score = r_indices['r1'] + covariates['age'] / 30 + np.linspace(0, 0.7, 40) ** 2
    found = row(find(r_indices, covariates, score=score)[0], 'score', 'r1')
    columns = [score, r_indices['r1'], covariates['age']]
    levels = [covariates['sex'] == 'M', covariates['site'] == 'b', covariates['site'] == 'c']
    ranks = np.array([stats.rankdata(x) for x in columns] + [x.to_numpy(float) for x in levels])
    precision = np.linalg.inv(np.corrcoef(ranks))
    expected = -precision[0, 1] / np.sqrt(precision[0, 0] * precision[1, 1])
    assert found.estimate == pytest.approx(expected)
    assert found.adjusted_for == 'age, sex, site'


def test_p_is_that_of_a_linear_model_of_the_ranks(r_indices, covariates):
    """Also if sites are called by numbers, and covariates repeat one another."""
    score = r_indices['r1'] + np.linspace(0, 3, 40)
    frame = covariates.assign(score=stats.rankdata(score), r=stats.rankdata(r_indices['r1']))
    frame['age'] = stats.rankdata(frame['age'])
    expected = smf.ols('r ~ score + age + C(sex) + C(site)', frame).fit().pvalues['score']
    numbered = covariates.assign(site=covariates['site'].map({'a': '1', 'b': '2', 'c': '3'}))
    twice = covariates.assign(months=covariates['age'] * 12, everyone='x')
    for each in (covariates, numbered, twice):
        assert row(find(r_indices, each, score=score)[0], 'score', 'r1').p == pytest.approx(
            expected
        )


@pytest.mark.slow
@pytest.mark.parametrize('slope', [0.0, 1.0], ids=['unrelated', 'related'])
def test_intervals_cover_the_truth_and_errors_are_as_frequent_as_said(slope):
    rng = np.random.default_rng(0)
    age = rng.normal(size=(300, 50))
    pattern = age + rng.normal(size=age.shape)
    score = age + slope * (pattern - age) + rng.normal(size=age.shape)
    # Of normal variables, Pearson's r gives Spearman's: 6 / pi arcsin(r / 2).
    truth = 6 / np.pi * np.arcsin(slope / np.sqrt(1 + slope**2) / 2)
    frames = zip(score, pattern, age)
    names = ('score', 'r1', 'age')
    found = pd.concat(
        associate(*(pd.DataFrame({name: x}) for name, x in zip(names, each)))[0] for each in frames
    )
    covered = (found['low'] < truth) & (truth < found['high'])
    assert 0.92 < covered.mean() < 0.98
    positives = (found['p'] < 0.05).mean()
    assert positives > 0.99 if slope else 0.03 < positives < 0.07


def test_what_cannot_be_tested_has_a_reason(r_indices, covariates):
    for values, reason in (
        ([f'site {number % 3}' for number in range(40)], 'text with 3 different values'),
        ([*'abcd', *range(36)], 'text with 40 different values'),
        ([1] * 40, 'are the same'),
        ([np.nan] * 40, 'all values are missing'),
        ([None] * 39 + ['yes'], 'are the same'),
    ):
        table, untested = find(r_indices, column=values)
        assert table.empty
        assert reason in untested['column']
    _, untested = find(r_indices, covariates, months=covariates['age'] * 12)
    assert set(untested.values()) == {'it is determined by the covariates'}
    assert find(r_indices[:0], column=[])[1] == {'column': 'all values are missing'}
    r_indices.loc[r_indices.index[3:], 'r2'] = np.nan
    table, untested = find(r_indices, score=np.arange(40.0))
    assert table['index'].tolist() == ['r1']
    assert 'only 3 participants have both' in untested['score and r2']
    untested = find(r_indices.assign(r2=np.nan), score=np.arange(40.0))[1]
    assert 'only 0 participants have both' in untested['score and r2']


def test_false_discoveries_are_controlled_over_the_whole_table(r_indices):
    rng = np.random.default_rng(1)
    table, _ = find(r_indices, **{f'score{k}': rng.normal(size=40) for k in range(6)})
    np.testing.assert_allclose(table['p_corrected'], multipletests(table['p'], method='fdr_bh')[1])
    assert len(table) == 12
