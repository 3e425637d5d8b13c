"""SurrealGAN as a scikit-learn estimator.

All checks of scikit-learn run. `NOT_FOR_GAN` lists those that cannot pass, with the reason; one of
them that passes is an error. What they would have checked is checked at the end
of this module with data that the estimators accept.
"""

import copy

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.fixes import parse_version

from surreal_bids.exceptions import DataError
from surreal_bids.model.estimator import SurrealGAN

if parse_version(sklearn.__version__) < parse_version('1.6'):
    pytest.skip('lists of expected failures came with scikit-learn 1.6', allow_module_level=True)

from sklearn.utils.estimator_checks import check_estimator

SAMPLE = (
    'fits random numbers and labels; training needs 8 controls and 8 patients, marked by booleans, '
    'and controls with mean 1 and sd 0.1 in at least 4 regions'
)

NOT_FOR_GAN = dict.fromkeys(
    (
        'check_complex_data',
        'check_dict_unchanged',
        'check_dont_overwrite_parameters',
        'check_dtype_object',
        'check_estimator_sparse_array',
        'check_estimator_sparse_matrix',
        'check_estimator_sparse_tag',
        'check_estimators_dtypes',
        'check_estimators_empty_data_messages',
        'check_estimators_fit_returns_self',
        'check_estimators_nan_inf',
        'check_estimators_overwrite_params',
        'check_estimators_pickle',
        'check_f_contiguous_array_estimator',
        'check_fit2d_1feature',
        'check_fit2d_1sample',
        'check_fit2d_predict1d',
        'check_fit_check_is_fitted',
        'check_fit_idempotent',
        'check_fit_score_takes_y',
        'check_methods_sample_order_invariance',
        'check_methods_subset_invariance',
        'check_n_features_in',
        'check_n_features_in_after_fitting',
        'check_pipeline_consistency',
        'check_positive_only_tag_during_fit',
        'check_readonly_memmap_input',
        'check_transformer_data_not_an_array',
        'check_transformer_general',
        'check_transformer_preserve_dtypes',
    ),
    SAMPLE,
)
GAN = SurrealGAN(
    2, ortho=0.2, repetitions=2, preset='iclr2022', iterations=5, device='cpu',
    hyperparameters={'extra_iterations': 0.0},
)  # fmt: skip


@pytest.fixture(autouse=True)
def short_training_will_do(monkeypatch):
    """Accept members after five iterations: these tests are about the interface."""
    monkeypatch.setattr('surreal_bids.model.agreement.SMALLEST_SPREAD', 0.0)


def test_scikit_learn():
    given = {'expected_failed_checks': NOT_FOR_GAN, 'on_skip': None, 'on_fail': None}
    found = check_estimator(GAN, **given)
    assert [each for each in found if each['status'] == 'failed'] == []
    assert [e for e in found if e['status'] == 'passed' and e['expected_to_fail']] == []


@pytest.fixture
def estimator():
    return clone(GAN)


def data_for(estimator):
    """Table and labels for `fit`: 12 controls and 12 patients."""
    rng = np.random.default_rng(0)
    values = rng.normal(1, 0.1, (24, 7))
    label = np.arange(24) >= 12
    values = 1 + 0.1 * (values - values[:12].mean(axis=0)) / values[:12].std(axis=0)
    table = pd.DataFrame(values, columns=[f'region{k}' for k in range(7)])
    return table, label


def transform(estimator, X, label):
    return np.asarray(estimator.transform(X))


def test_fit_returns_the_estimator_and_keeps_its_parameters(estimator):
    X, label = data_for(estimator)
    before, given = copy.deepcopy(estimator.get_params()), X.copy()
    assert estimator.fit(X, label) is estimator
    assert estimator.get_params() == before
    learned = {name for name in vars(estimator) if name not in before}
    assert all(name.endswith('_') and not name.startswith('_') for name in learned)
    pd.testing.assert_frame_equal(X, given)


def test_features_are_counted_and_named(estimator):
    X, label = data_for(estimator)
    assert not hasattr(estimator, 'n_features_in_')
    estimator.fit(X, label)
    assert estimator.n_features_in_ == 7
    assert list(estimator.feature_names_in_) == list(X.columns)
    estimator.fit(X.to_numpy(), label)
    assert estimator.n_features_in_ == 7
    assert not hasattr(estimator, 'feature_names_in_')
    with pytest.raises(DataError, match='6'):
        transform(estimator, X.to_numpy()[:, :6], label)


def test_columns_are_matched_by_name(estimator):
    X, label = data_for(estimator)
    expected = transform(estimator.fit(X, label), X, label)
    other = transform(estimator, X[X.columns[::-1]], label)
    np.testing.assert_array_equal(other, expected)


def test_a_clone_is_not_fitted_and_gives_the_same_numbers(estimator):
    X, label = data_for(estimator)
    expected = transform(estimator.fit(X, label), X, label)
    again = clone(estimator)
    with pytest.raises(NotFittedError):
        transform(again, X, label)
    np.testing.assert_array_equal(transform(again.fit(X, label), X, label), expected)
    np.testing.assert_array_equal(transform(estimator.fit(X, label), X, label), expected)
    np.testing.assert_array_equal(np.asarray(again.fit_transform(X, label)), expected)


@pytest.mark.parametrize(
    'call',
    [
        lambda: GAN.contributions(np.ones((2, 7))),
        lambda: GAN.in_range(np.ones((2, 7))),
        lambda: GAN.state(),
        lambda: GAN.synthesise(np.ones((2, 2))),
    ],
)
def test_methods_before_fit_raise_not_fitted(call):
    with pytest.raises(NotFittedError):
        call()


def test_transform_changes_nothing_and_does_not_depend_on_other_rows(estimator):
    X, label = data_for(estimator)
    estimator.fit(X, label)
    before = dict(vars(estimator))
    expected = transform(estimator, X, label)
    assert vars(estimator) == before
    order = np.random.default_rng(1).permutation(24)
    shuffled = transform(estimator, X.iloc[order], label[order])
    np.testing.assert_allclose(shuffled, expected[order], atol=1e-6)
    alone = transform(estimator, X.iloc[:1], label[:1])
    np.testing.assert_allclose(alone, expected[:1], atol=1e-6)


@pytest.mark.parametrize('order', ['C', 'F'])
def test_read_only_arrays_in_any_order_will_do(estimator, order):
    X, label = data_for(estimator)
    expected = transform(estimator.fit(X, label), X, label)
    values = np.array(X, order=order)
    values.flags.writeable = False
    found = transform(clone(estimator).fit(values, label), values, label)
    np.testing.assert_array_equal(found, expected)
