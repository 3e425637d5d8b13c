import numpy as np
import pytest
from reproduction.diagnosis import diagnosis_auc, split_people
from scipy.stats import norm

from surreal_bids.exceptions import DataError


def simulate(n_people=60, n_scans=1, shift=1.0, seed=0):
    """Scans of people, the second half patients, in whom the first feature is higher."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(n_people), n_scans)
    is_patient = person >= n_people // 2
    X = rng.normal(size=(n_people, 3))[person]
    X[:, 0] += shift * is_patient
    return X, is_patient, person


@pytest.mark.parametrize('n_scans', [1, 4])
@pytest.mark.parametrize('seed', [0, 1])
def test_people_are_split_whole_and_in_proportion(n_scans, seed):
    _, is_patient, person = simulate(n_scans=n_scans)
    splits = split_people(is_patient, person, n_repeats=20, seed=seed)
    for train in splits:
        assert not set(person[train]) & set(person[~train])
        assert np.unique(person[~train]).size == 12
        assert is_patient[~train].mean() == 0.5
    assert len({train.tobytes() for train in splits}) == 20


@pytest.mark.slow
@pytest.mark.parametrize('shift', [1.0, 2.0])
def test_auc_is_what_theory_says(shift):
    """Of two normal groups that differ by d, the best AUC is Phi(d / sqrt 2)."""
    X, is_patient, person = simulate(400, shift=shift)
    table = diagnosis_auc({'X': X}, is_patient, person, n_repeats=10)
    assert table['X'].mean() == pytest.approx(norm.cdf(shift / 2**0.5), abs=0.05)


@pytest.mark.slow
def test_people_who_are_known_already_do_not_help():
    """Features that tell people but not groups apart are useless, however often they are seen."""
    X, is_patient, person = simulate(n_scans=6, shift=0)
    table = diagnosis_auc({'X': X}, is_patient, person, n_repeats=10)
    assert table['X'].mean() < 0.65


def test_sets_of_features_share_splits_and_seed():
    X, is_patient, person = simulate(shift=3.0)
    table = diagnosis_auc({'a': X, 'b': X[:, 1:], 'c': X}, is_patient, person, n_repeats=3, seed=5)
    assert table.shape == (3, 3)
    assert table['a'].tolist() == table['c'].tolist()
    assert table['a'].mean() > table['b'].mean()
    again = diagnosis_auc({'a': X}, is_patient, person, n_repeats=3, seed=5)
    assert again['a'].tolist() == table['a'].tolist()


@pytest.mark.parametrize('scale', [1e-3, 1e4])
def test_units_do_not_matter(scale):
    X, is_patient, person = simulate()
    table = diagnosis_auc({'X': X, 'scaled': 7 + X * scale}, is_patient, person, n_repeats=2)
    np.testing.assert_allclose(table['X'], table['scaled'], atol=1e-6)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda X, y, who: (X[1:], y, who), r'volumes: shape \(59, 3\)'),
        (lambda X, y, who: (X[:, 0], y, who), r'volumes: shape \(60,\)'),
        (lambda X, y, who: (np.where(X > 2, np.nan, X), y, who), 'volumes: a value is missing'),
        (lambda X, y, who: (X, y & False, who), 'only 0 patients'),
        (lambda X, y, who: (X, y, np.where(y, who, 3)), 'only 1 controls'),
    ],
)
def test_what_cannot_be_classified_is_refused(change, message):
    X, is_patient, person = change(*simulate())
    with pytest.raises(DataError, match=message):
        diagnosis_auc({'volumes': X}, is_patient, person)
