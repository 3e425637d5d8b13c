import numpy as np
import pandas as pd
import pytest
from scipy import stats

from surreal_bids.stats.mixed import DIFFERENCE, compare_change


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


def test_it_is_a_welch_test_of_one_slope_per_participant():
    data = simulate(np.random.default_rng(2), (0.01, 0.09), apart=(0.5, 3))
    found = compare_change(**data)
    frame = pd.DataFrame(data)
    slopes = pd.DataFrame(
        [
            (own['is_patient'].iloc[0], np.polyfit(own['years'], own['values'], 1)[0])
            for _, own in frame.groupby('participant', sort=False)
        ]
    ).to_numpy(float)
    well, ill = slopes[slopes[:, 0] == 0, 1], slopes[slopes[:, 0] == 1, 1]
    expected = stats.ttest_ind(ill, well, equal_var=False)
    limits = expected.confidence_interval()
    difference = ill.mean() - well.mean()
    answer = (difference, limits.low, limits.high, expected.pvalue)
    np.testing.assert_allclose(list(found[DIFFERENCE].values()), answer, rtol=1e-9)
    means = [found[group]['estimate'] for group in ('controls', 'patients')]
    np.testing.assert_allclose(means, (well.mean(), ill.mean()), rtol=1e-9)


def test_participants_with_one_visit_missing_values_or_a_short_time_count_for_nothing():
    data = simulate(np.random.default_rng(3), (0, 0.02))
    once = data | {name: column.drop([0, 1]) for name, column in data.items()}
    without = {name: column.drop([0, 1, 2]) for name, column in data.items()}
    missing = data | {'values': data['values'].mask(data['values'].index < 2)}
    short = data | {'years': data['years'].mask(data['years'].index < 3, 0.05 * data['years'])}
    expected = compare_change(**without)
    for other in (once, missing, short):
        assert compare_change(**other) == expected


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


@pytest.mark.slow
@pytest.mark.parametrize(('people', 'slope_sd'), [((15, 15), 0.02), ((10, 30), (0.0, 0.08))])
def test_where_groups_change_alike_one_in_twenty_is_said_to_differ(people, slope_sd):
    """Patients may differ from each other more than controls do."""
    rng = np.random.default_rng(7)
    p = [
        compare_change(**simulate(rng, (0.03, 0.03), people, 2, slope_sd))[DIFFERENCE]['p']
        for _ in range(400)
    ]
    low, high = stats.binom.ppf([0.001, 0.999], 400, 0.05)
    assert low <= (np.array(p) < 0.05).sum() <= high
