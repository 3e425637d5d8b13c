"""Change between visits: what is expected, and which limit few exceed by chance."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from surreal_bids.stats.repeated import ChangeWithTime, limit_of_chances

NOISE, TREND = 0.04, 0.02
FALSE_ALARMS = 0.05


def simulate_pairs(rng, people, follow_ups, n_measures=1, spread=0.2):
    """Pairs of visits with equal noise at each visit: each with the next, and the last with the
    first."""
    years = np.arange(follow_ups + 1) + rng.uniform(-spread, spread, (people, follow_ups + 1))
    errors = NOISE * rng.normal(size=(people, follow_ups + 1, n_measures))
    values = errors + TREND * years[:, :, np.newaxis]
    first, second = np.arange(follow_ups), np.arange(1, follow_ups + 1)
    if follow_ups > 1:
        first, second = np.append(first, 0), np.append(second, follow_ups)
    changes = (values[:, second] - values[:, first]).reshape(-1, n_measures)
    times = (years[:, second] - years[:, first]).ravel()
    return changes, times, np.repeat(np.arange(people), len(first))


def false_alarms(n_controls, control_visits, follow_ups, n_measures, repeats, people=20):
    """Share of participants without any change in whom some change exceeds its limit."""
    rng = np.random.default_rng(n_controls)
    alarms = []
    for _ in range(repeats):
        controls = ChangeWithTime(*simulate_pairs(rng, n_controls, control_visits, n_measures))
        changes, years, who = simulate_pairs(rng, people, follow_ups, n_measures)
        predicted = controls.predict(years, who + n_controls)
        n_pairs = len(changes) / people
        limits = limit_of_chances(FALSE_ALARMS, n_measures, n_pairs, predicted.df[:, np.newaxis])
        is_beyond = np.abs(changes - predicted.expected) > predicted.error * limits
        alarms.append(pd.Series(is_beyond.any(axis=1)).groupby(who).any().mean())
    return np.mean(alarms)


@pytest.mark.slow
@pytest.mark.parametrize('n_measures', [1, 3])
@pytest.mark.parametrize('follow_ups', [1, 3])
@pytest.mark.parametrize('n_controls', [15, 30, 60])
def test_one_in_twenty_participants_has_a_false_alarm(n_controls, follow_ups, n_measures):
    share = false_alarms(n_controls, 1, follow_ups, n_measures, repeats=2000)
    assert share == pytest.approx(FALSE_ALARMS, abs=0.01)


@pytest.mark.slow
def test_controls_with_several_follow_ups_give_the_same_rate():
    assert false_alarms(12, 3, 3, 1, repeats=2000) == pytest.approx(FALSE_ALARMS, abs=0.01)


def test_a_control_is_compared_with_a_line_through_the_others():
    rng = np.random.default_rng(0)
    changes, years, who = simulate_pairs(rng, 20, 1, 2)
    predicted = ChangeWithTime(changes, years, who).predict(years, who)
    rest = who != 7
    for measure in range(2):
        fitted = sm.OLS(changes[rest, measure], years[rest]).fit()
        reference = fitted.get_prediction(years[[7]])
        assert predicted.expected[7, measure] == pytest.approx(reference.predicted_mean[0])
        assert predicted.noise[7, measure] == pytest.approx(np.sqrt(fitted.scale))
        assert predicted.error[7, measure] == pytest.approx(
            np.sqrt(reference.var_pred_mean + fitted.scale)[0]
        )
    assert predicted.df[7] == fitted.df_resid
    assert set(predicted.n_participants) == {19}


def test_noise_of_several_visits_is_unbiased():
    rng = np.random.default_rng(1)
    variances = [
        ChangeWithTime(*simulate_pairs(rng, 20, 3)).predict([1.0], [-1]).noise[0, 0] ** 2
        for _ in range(300)
    ]
    assert np.mean(variances) == pytest.approx(2 * NOISE**2, rel=0.03)


def test_scans_of_one_day_have_no_trend():
    changes = np.array([[0.1], [-0.1], [0.2], [-0.2]])
    predicted = ChangeWithTime(changes, np.zeros(4), list('abcd')).predict([0.0, 3.0], list('ef'))
    np.testing.assert_array_equal(predicted.expected, 0)
    np.testing.assert_allclose(predicted.error**2, np.square(changes).sum() / 3)
