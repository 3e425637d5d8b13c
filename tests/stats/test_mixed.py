import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.regression.mixed_linear_model import MixedLM

from surreal_bids.stats.mixed import RANDOM_SLOPES, SLOPE_OF_EACH, Comparison, compare_change


def simulate(
    rng,
    slopes=(0.0, 0.0),
    people=(20, 30),
    visits=3,
    slope_sd=0.02,
    noise_sd=0.03,
    jitter=0.2,
    apart=(1, 1),
):
    """R-indices of controls and patients whose mean change per year is known."""
    is_patient = np.repeat([False, True], people)
    n = len(is_patient)
    years = np.arange(visits) + rng.uniform(-jitter, jitter, (n, visits))
    years *= rng.uniform(*apart, (n, 1))
    years -= years[:, :1]
    start = np.where(is_patient, 0.5, 0.1) + rng.normal(0, 0.2, n)
    own = np.repeat(np.broadcast_to(slope_sd, 2), people) * rng.normal(size=n)
    slope = np.where(is_patient, slopes[1], slopes[0]) + own
    values = start[:, None] + slope[:, None] * years + rng.normal(0, noise_sd, years.shape)
    return {
        'values': pd.Series(values.ravel()),
        'years': pd.Series(years.ravel()),
        'participant': pd.Series(np.repeat([f'sub-{k}' for k in range(n)], visits)),
        'is_patient': pd.Series(np.repeat(is_patient, visits)),
    }


def spread_of_scores(drawn):
    """The p values as standard normal scores, whose root mean square is 1 where nothing differs.

    A wrong error shows in it with about half as many draws as in the share of p below 0.05.
    """
    scores = stats.norm.isf(np.array([each.p for each in drawn]) / 2)
    return np.sqrt(np.mean(scores**2))


def test_known_slopes_are_found():
    rng = np.random.default_rng(0)
    found = compare_change(**simulate(rng, (0.01, 0.09), people=(60, 80), visits=4))
    assert found.slopes == RANDOM_SLOPES
    assert found.controls == pytest.approx(0.01, abs=0.01)
    assert found.patients == pytest.approx(0.09, abs=0.01)
    assert found.low < 0.08 < found.high
    assert found.p < 1e-6


@pytest.mark.parametrize('unit', [1e-4, 1e4])
def test_the_unit_of_a_measure_does_not_matter(unit):
    data = simulate(np.random.default_rng(1), (0, 0.02))
    one, other = compare_change(**data), compare_change(**data | {'values': data['values'] * unit})
    assert other.difference == pytest.approx(one.difference * unit, rel=1e-4)
    assert other.p == pytest.approx(one.p, rel=1e-3)


def test_two_visits_a_year_apart_are_a_welch_test_of_differences():
    data = simulate(np.random.default_rng(2), (0, 0.02), visits=2, jitter=0)
    found = compare_change(**data)
    changes = data['values'].groupby(data['participant'], sort=False).diff().dropna()
    is_patient = data['is_patient'][changes.index]
    expected = stats.ttest_ind(changes[is_patient], changes[~is_patient], equal_var=False)
    assert found.slopes == SLOPE_OF_EACH
    assert found.p == pytest.approx(expected.pvalue, rel=1e-3)
    assert found.df == pytest.approx(expected.df, rel=1e-6)
    assert found.low == pytest.approx(expected.confidence_interval().low, rel=1e-3)


def test_the_error_of_slopes_of_each_is_that_of_another_program():
    data = simulate(np.random.default_rng(9), (0.01, 0.03), visits=2, apart=(0.4, 5))
    found = compare_change(**data)
    assert found.slopes == SLOPE_OF_EACH
    errors = []
    for is_patient, mean in ((False, found.controls), (True, found.patients)):
        own = data['is_patient'] == is_patient
        change, years = (
            data[name][own].groupby(data['participant'][own], sort=False).diff().dropna()
            for name in ('values', 'years')
        )
        fitted = OLS(change.to_numpy(), years.to_numpy()).fit()
        assert mean == pytest.approx(fitted.params[0], rel=1e-9)
        errors.append(fitted.HC2_se[0])
    assert found.standard_error == pytest.approx(np.hypot(*errors), rel=1e-9)
    # Those with long times between visits say most, so that fewer than all count.
    assert 10 < found.df < 48


def _fails(*args, **kwargs):
    raise np.linalg.LinAlgError


@pytest.mark.parametrize('visits', [2, 3])
def test_without_a_mixed_model_few_are_said_to_differ_where_slopes_are_random(monkeypatch, visits):
    monkeypatch.setattr(MixedLM, 'fit', _fails)
    rng = np.random.default_rng(10)
    drawn = [
        compare_change(
            **simulate(rng, (0.03, 0.03), (10, 14), visits, (0.03, 0.06), 0.01, 0.1, (0.4, 4))
        )
        for _ in range(120)
    ]
    assert {each.slopes for each in drawn} == {SLOPE_OF_EACH}
    # With slopes that are taken to be alike, 1.3 and 2.0.
    assert 0.83 < spread_of_scores(drawn) < 1.17


@pytest.mark.parametrize(('visits', 'n', 'most'), [(2, 100, 1.18), (3, 25, 1.37)])
def test_a_group_whose_participants_differ_more_does_not_seem_to_differ(visits, n, most):
    rng = np.random.default_rng(8)
    drawn = [
        compare_change(**simulate(rng, (0.03, 0.03), (40, 8), visits, (0.0, 0.08)))
        for _ in range(n)
    ]
    # With one variance for both groups, 1.5.
    assert spread_of_scores(drawn) < most


def test_participants_with_one_visit_and_missing_values_count_for_nothing():
    data = simulate(np.random.default_rng(3), (0, 0.02))
    once = data | {name: column.drop([0, 1]) for name, column in data.items()}
    without = {name: column.drop([0, 1, 2]) for name, column in data.items()}
    missing = data | {'values': data['values'].mask(data['values'].index < 2)}
    assert compare_change(**once) == compare_change(**without) == compare_change(**missing)


@pytest.mark.parametrize(
    ('changes', 'reason'),
    [
        ({'people': (4, 30)}, '4 controls have R-indices at two visits'),
        ({'people': (20, 3)}, '3 patients have R-indices at two visits'),
        ({'visits': 1}, '0 patients have R-indices at two visits'),
    ],
)
def test_too_few_are_told(changes, reason):
    assert reason in compare_change(**simulate(np.random.default_rng(4), **changes))


@pytest.mark.parametrize('size', [0, 1])
def test_values_that_do_not_vary_are_told(size):
    # Differences of such numbers are not quite 0.
    data = simulate(np.random.default_rng(5), slope_sd=0, noise_sd=0)
    found = compare_change(**data | {'values': data['values'] * size})
    assert found == 'nothing changes'


@pytest.mark.parametrize('slope_sd', [0, 0.02])
def test_some_result_is_always_finite(slope_sd):
    rng = np.random.default_rng(6)
    for _ in range(5):
        found = compare_change(**simulate(rng, people=(5, 5), slope_sd=slope_sd))
        assert isinstance(found, Comparison)
        assert np.isfinite([found.difference, found.standard_error, found.p]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ('visits', 'slope_sd', 'n', 'low', 'high'),
    [(2, 0.02, 60, 0.77, 1.24), (4, 0.02, 40, 0.72, 1.29)],
)
def test_where_groups_change_alike_few_are_said_to_differ(visits, slope_sd, n, low, high):
    rng = np.random.default_rng(7)
    drawn = [
        compare_change(**simulate(rng, (0.03, 0.03), (12, 18), visits, slope_sd)) for _ in range(n)
    ]
    # By chance, it is beyond the limits in 1 of 100 such draws.
    assert low < spread_of_scores(drawn) < high
