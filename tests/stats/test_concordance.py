import itertools
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from surreal_bids.exceptions import DataError
from surreal_bids.stats.concordance import (
    area_under_curve,
    concordance_index,
    concordance_matrix,
    match_patterns,
    pattern_c_index,
)


def slow_c_index(estimate, truth):
    """Harrell's definition, pair by pair."""
    score, comparable = 0.0, 0
    for i, j in itertools.combinations(range(len(truth)), 2):
        if truth[i] == truth[j]:
            continue
        comparable += 1
        if estimate[i] == estimate[j]:
            score += 0.5
        elif (estimate[i] < estimate[j]) == (truth[i] < truth[j]):
            score += 1
    return score / comparable


def test_c_index_equals_the_double_loop_with_and_without_ties():
    for n_people, levels_truth, levels in itertools.product((3, 40), (2, 7, 1000), (1, 2, 5, 1000)):
        rng = np.random.default_rng([n_people, levels_truth, levels])
        truth = rng.integers(levels_truth, size=n_people)
        truth[:2] = [0, 1]
        estimate = (truth + rng.integers(levels, size=n_people)) % levels
        expected = slow_c_index(estimate, truth)
        assert concordance_index(estimate, truth) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ('estimate', 'truth', 'message'),
    [
        ([1, 2, 3], [1, 2], 'shapes'),
        ([[1, 2]], [[1, 2]], 'one number per participant'),
        ([1, np.nan], [1, 2], 'NaN'),
        ([1, 2], [np.nan, 2], 'NaN'),
        ([1, 2], [3, 3], 'the same for all participants'),
    ],
)
def test_what_cannot_be_compared_is_refused(estimate, truth, message):
    with pytest.raises(DataError, match=message):
        concordance_index(estimate, truth)


@pytest.mark.parametrize('permutation', [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_patterns_are_found_again_in_any_order(permutation):
    rng = np.random.default_rng(2)
    truths = rng.uniform(size=(50, 3))
    estimates = (truths + rng.normal(scale=0.2, size=truths.shape))[:, permutation]
    match = match_patterns(concordance_matrix(estimates, truths))
    np.testing.assert_array_equal(np.array(permutation)[match], range(3))
    assert pattern_c_index(truths[:, permutation], truths) == pytest.approx(1)


@pytest.mark.parametrize('n_estimated', [3, 5])
def test_matching_is_the_best_of_all_assignments(n_estimated):
    rng = np.random.default_rng(n_estimated)
    similarity = rng.uniform(size=(n_estimated, 3))
    best = max(
        similarity[list(chosen), range(3)].sum()
        for chosen in itertools.permutations(range(n_estimated), 3)
    )
    match = match_patterns(similarity)
    assert similarity[match, range(3)].sum() == pytest.approx(best)


def test_too_few_estimated_patterns_are_refused():
    with pytest.raises(DataError, match='2 estimated patterns cannot be matched to 3'):
        match_patterns(np.ones((2, 3)))


@pytest.mark.slow
def test_pandas_is_not_needed():
    code = 'import sys, surreal_bids.stats.concordance; sys.exit("pandas" in sys.modules)'
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0


@pytest.mark.parametrize('levels', [3, 1000])
def test_area_is_that_of_scikit_learn_with_and_without_ties(levels):
    rng = np.random.default_rng(levels)
    patient = rng.uniform(size=70) < 0.4
    scores = rng.integers(levels, size=70) + patient * levels / 3
    area = area_under_curve(scores, patient)
    assert area.value == pytest.approx(roc_auc_score(patient, scores))
    assert area.low < area.value < area.high


def with_area(area, n_controls, n_patients):
    """Scores of so many people whose area is this, and who is a patient."""
    won = round(area * n_controls * n_patients)
    beaten = np.full(n_patients, won // n_patients) + (np.arange(n_patients) < won % n_patients)
    scores = np.concatenate([np.arange(n_controls) + 0.5, beaten])
    return scores, np.repeat([False, True], [n_controls, n_patients])


def newcombe(area, m, n):
    """Return the limits as roots of the quartic that method 5 is when its denominators go."""
    theta, z = np.polynomial.Polynomial([0, 1]), 1.959963984540054
    denominators = (2 - theta) * (1 + theta)
    overlap = (1 - theta) * (1 + theta) + theta * (2 - theta)
    variance = theta * (1 - theta) * (denominators + ((m + n) / 2 - 1) * overlap)
    roots = (m * n * (theta - area) ** 2 * denominators - z**2 * variance).roots()
    limits = np.sort(roots[(roots.real > -1e-9) & (roots.real < 1 + 1e-9)].real)
    return limits[0], limits[-1]


@pytest.mark.parametrize(('n_controls', 'n_patients'), [(10, 10), (3, 3), (6, 40)])
@pytest.mark.parametrize('area', [0, 0.1, 0.5, 0.9, 1])
def test_limits_solve_the_equation_of_newcombe(area, n_controls, n_patients):
    found = area_under_curve(*with_area(area, n_controls, n_patients))
    expected = newcombe(found.value, n_controls, n_patients)
    assert found.value == pytest.approx(area, abs=0.06)
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('n_people', [10, 40])
@pytest.mark.parametrize('truth', [0.5, 0.8, 0.95])
def test_the_interval_covers_the_truth(truth, n_people):
    rng = np.random.default_rng([5, n_people])
    patient = np.arange(2 * n_people) >= n_people
    scores = rng.normal(size=(800, 2 * n_people)) + np.sqrt(2) * norm.ppf(truth) * patient
    areas = [area_under_curve(each, patient) for each in scores]
    assert 0.93 < np.mean([area.low <= truth <= area.high for area in areas]) < 0.985


@pytest.mark.parametrize('patient', [[True] * 4, [False] * 4])
def test_one_group_has_no_area(patient):
    with pytest.raises(DataError, match='patients and of controls'):
        area_under_curve([1, 2, 3, 4], patient)
