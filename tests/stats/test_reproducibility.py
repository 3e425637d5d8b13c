import itertools

import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.stats.concordance import pattern_c_index, pattern_reproducibility


@pytest.fixture
def first():
    return pd.DataFrame(np.random.default_rng(0).uniform(size=(60, 3)), columns=['r1', 'r2', 'r3'])


@pytest.mark.parametrize('order', list(itertools.permutations(range(3))))
def test_counterparts_are_found_in_any_order(first, order):
    noise = np.random.default_rng(1).normal(scale=[0.05, 0.2, 0.4], size=first.shape)
    second = (first + noise).iloc[:, list(order)].set_axis(['a', 'b', 'c'], axis=1)
    table = pattern_reproducibility(first, second)
    counterparts = [second.columns[order.index(number)] for number in range(3)]
    assert table['counterpart'].tolist() == counterparts
    assert table['c_index'].is_monotonic_decreasing
    assert table['c_index'].mean() == pytest.approx(pattern_c_index(second, first))
    expected = [first[p].corr(second[c]) for p, c in zip(first, counterparts)]
    np.testing.assert_allclose(table['pearson'], expected)


@pytest.mark.parametrize('extra', [0, 2])
def test_a_model_reproduces_itself(first, extra):
    second = first.assign(**{f'extra{number}': np.arange(60.0) for number in range(extra)})
    table = pattern_reproducibility(first, second)
    np.testing.assert_allclose(table[['c_index', 'pearson']], 1)
    assert table['counterpart'].tolist() == table['pattern'].tolist()


def test_different_people_are_refused(first):
    with pytest.raises(DataError, match='different participants'):
        pattern_reproducibility(first, first.iloc[::-1])
