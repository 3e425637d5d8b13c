"""Whose repeated visits limits of changes come from, and how many changes they call reliable."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.change import compare_groups_over_time, describe_changes, follow_visits
from surreal_bids.analysis.limits import (
    CONTROLS,
    MODEL,
    MOST_YEARS,
    count_reliable,
    describe_source,
    noise_by_controls,
)
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.roles import column_features
from surreal_bids.harmonization.options import PreprocessingOptions
from surreal_bids.rindices.crossfit import HELD_OUT, split_people
from surreal_bids.rindices.measurement_noise import Noise
from surreal_bids.stats.repeated import limit_of_chances
from tests.analysis.visits_study import read_visits, write_visits
from tests.shared_data import shared_data

NAMES = ['r1', 'r2']
NOISE = 0.05


def make_cohort(groups, visits=2, apart=1.2) -> Cohort:
    """Participants with a thickness, which no model knows the noise of."""
    n = len(groups)
    who = np.repeat([f'sub-{number:03}' for number in range(n)], visits)
    session = np.tile([f'ses-{number}' for number in range(visits)], n)
    index = [f'{participant}_{label}' for participant, label in zip(who, session)]
    frame = pd.DataFrame({'participant_id': who, 'session_id': session}, index)
    frame['group'] = np.repeat(groups, visits)
    frame['is_first'] = ~frame['participant_id'].duplicated()
    frame['order_by'] = 'date'
    frame['years'] = apart * np.tile(np.arange(visits), n)
    return Cohort(
        frame,
        pd.DataFrame({'bankssts_thickness': 2.5}, index),
        pd.DataFrame(index=index),
        pd.DataFrame(index=index),
        column_features(['bankssts_thickness']),
        PreprocessingOptions((), icv='none'),
    )


def make_results(cohort, seed=0, sd=NOISE) -> pd.DataFrame:
    """R-indices that differ between visits by noise only."""
    rng = np.random.default_rng(seed)
    participant = pd.factorize(cohort.visits['participant_id'])[0]
    levels = rng.uniform(size=(participant.max() + 1, 2))
    values = levels[participant] + sd * rng.normal(size=(len(cohort), 2))
    return pd.DataFrame(values, cohort.visits.index, NAMES)


def unknown_noise(cohort) -> Noise:
    unknown = pd.DataFrame(np.nan, cohort.visits.index, NAMES)
    return Noise(unknown, unknown)


def describe(cohort, results, noise=None) -> pd.DataFrame:
    linked = pd.Series(None, cohort.visits.index, dtype=object)
    steps = SimpleNamespace(combat=None)
    return describe_changes(cohort, results, noise or unknown_noise(cohort), steps, linked)


def test_changes_are_rated_without_any_noise_of_volumes():
    """Thickness and other atlases: the limit comes from the study's own controls."""
    cohort = make_cohort(['CN'] * 15 + ['PT'] * 20 + ['MCI'] * 10)
    table = describe(cohort, make_results(cohort))
    assert table['reliable'].notna().all()
    assert set(table['noise_from']) == {CONTROLS}
    assert set(table['noise_years']) == {1.2}
    is_control = table['participant_id'] < 'sub-015'
    assert set(table.loc[is_control, 'noise_controls']) == {14}
    assert set(table.loc[~is_control, 'noise_controls']) == {15}
    expected = NOISE * np.sqrt(2)
    np.testing.assert_allclose(table['noise'], expected, rtol=0.5)


def test_the_change_of_controls_is_expected_of_everyone():
    cohort = make_cohort(['CN'] * 30 + ['PT'] * 10)
    results = make_results(cohort, sd=0.001)
    results += 0.1 * cohort.visits[['years']].to_numpy()
    table = describe(cohort, results)
    np.testing.assert_allclose(table['expected'], 0.12, atol=0.002)
    np.testing.assert_allclose(table['change'], 0.12, atol=0.01)
    assert (table['reliable'] == 'false').mean() > 0.9


@pytest.mark.parametrize('case', ['few', 'far', 'in sample', 'filled in'])
def test_without_enough_comparable_pairs_the_noise_of_the_model_remains(case):
    cohort = make_cohort(['CN'] * 40 + ['PT'] * 20)
    results = make_results(cohort)
    if case == 'few':
        cohort = make_cohort(['CN'] * 14 + ['PT'] * 46)
    elif case == 'far':
        cohort = make_cohort(['CN'] * 40 + ['PT'] * 20, apart=MOST_YEARS + 0.1)
        years = cohort.visits['years'].where(
            cohort.visits['group'] == 'CN', cohort.visits['years'] / 3
        )
        cohort = replace(cohort, visits=cohort.visits.assign(years=years))
    elif case == 'in sample':
        results[HELD_OUT] = (cohort.groups != 'CN').to_numpy()
    else:
        measured = cohort.features.where(cohort.groups != 'CN', axis=0)
        cohort = replace(cohort, features=measured)
    of_patients = cohort.visits.loc[cohort.is_patient, 'participant_id']
    unknown = describe(cohort, results)
    unknown = unknown[unknown['participant_id'].isin(of_patients)]
    assert unknown['reliable'].isna().all()
    assert unknown['noise_from'].isna().all()
    noise = Noise(*(pd.DataFrame(x, cohort.visits.index, NAMES) for x in (NOISE, 30.0)))
    known = describe(cohort, results, noise)
    known = known[known['participant_id'].isin(of_patients)]
    assert known['reliable'].notna().all()
    assert set(known['noise_from']) == {MODEL}


def test_undated_visits_of_controls_are_learned_from():
    cohort = make_cohort(['CN'] * 20 + ['PT'] * 10)
    undated = replace(cohort, visits=cohort.visits.drop(columns=['years', 'order_by']))
    table = describe(undated, make_results(cohort))
    assert table['reliable'].notna().all()
    assert table['noise_years'].isna().all()


def test_changes_over_many_years_are_compared_with_those_of_controls():
    """Healthy participants age at different rates."""
    cohort = make_cohort(['CN'] * 40 + ['PT'] * 10, visits=4)
    slopes = np.repeat(np.random.default_rng(3).normal(0, 0.05, 50), 4)
    results = make_results(cohort)
    drift = slopes * cohort.visits['years'].to_numpy()
    results += drift[:, np.newaxis]
    table = describe(cohort, results)
    is_far = table['years'] > MOST_YEARS
    assert table.loc[is_far, 'noise'].median() > 1.5 * table.loc[~is_far, 'noise'].median()
    sentence = describe_source(table)
    assert 'from 40 controls with two or more visits, 1.2 years apart' in sentence
    assert 'over more than 2.5 years were learned from 40 controls' in sentence


def test_more_visits_of_a_participant_have_higher_limits():
    """Someone with four visits has four pairs of them, but one false alarm in twenty."""
    cohort = make_cohort(['PT'] * 30, visits=4, apart=0.5)
    twice = cohort.visits['participant_id'] < 'sub-015'
    cohort = cohort.select(~twice | (cohort.visits['session_id'] < 'ses-2'))
    noise = Noise(*(pd.DataFrame(x, cohort.visits.index, NAMES) for x in (NOISE, 30.0)))
    table = describe(cohort, make_results(cohort), noise)
    of_few = table.loc[table['participant_id'] < 'sub-015', 'limit']
    of_many = table.loc[table['participant_id'] >= 'sub-015', 'limit']
    limits = limit_of_chances(0.05, 2, [1, 4], 30)
    assert of_many.mean() / of_few.mean() == pytest.approx(limits[1] / limits[0], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize('visits', [2, 4])
def test_false_alarms_are_per_participant(visits):
    shares = []
    for seed in range(40):
        cohort = make_cohort(['CN'] * 30 + ['PT'] * 100, visits, apart=0.5)
        table = describe(cohort, make_results(cohort, seed))
        groups = cohort.first_visits().visits.set_index('participant_id')['group']
        shares.append(count_reliable(table, groups).set_index('group')['estimate'])
    mean = pd.concat(shares, axis=1).mean(axis=1)
    assert mean['patients'] == pytest.approx(0.05, abs=0.012)
    assert mean['controls'] == pytest.approx(0.05, abs=0.02)


def test_participants_with_a_reliable_change_are_counted_beside_chance():
    changes = pd.DataFrame(
        {
            'participant_id': ['sub-1', 'sub-1', 'sub-2', 'sub-3', 'sub-4', 'sub-5'],
            'reliable': ['true', 'false', 'false', 'true', None, 'true'],
        }
    )
    groups = pd.Series({'sub-1': 'MCI', 'sub-2': 'MCI', 'sub-3': 'CN', 'sub-4': 'CN'})
    table = count_reliable(changes, groups).set_index('group')
    assert list(table.index) == ['controls', 'MCI', 'participants of unknown group']
    assert table['n'].tolist() == [1, 2, 1]
    assert table['n_reliable'].tolist() == [1, 1, 1]
    assert table.loc['MCI', 'n_expected'] == pytest.approx(0.1)
    assert table.loc['MCI', 'low'] < 0.5 < table.loc['MCI', 'high']


def change_of_groups(cohort, results):
    linked = pd.Series(None, cohort.visits.index, dtype=object)
    return compare_groups_over_time(cohort, results, NAMES, linked)[0]


def test_only_participants_who_are_compared_are_counted():
    """Over a shorter time than three months there is no change per year."""
    cohort = make_cohort(['CN'] * 20 + ['PT'] * 20)
    is_short = cohort.visits['participant_id'].between('sub-000', 'sub-007')
    years = cohort.visits['years'].where(~is_short, cohort.visits['years'] / 10)
    cohort = replace(cohort, visits=cohort.visits.assign(years=years))
    table = change_of_groups(cohort, make_results(cohort)).set_index(['index', 'measure'])
    assert (table['outcome'] == 'compared').all()
    assert table['n']['r1'].to_dict() == {
        'patients minus controls': 32, 'controls': 12, 'patients': 20,
    }  # fmt: skip


def test_other_groups_have_rows_and_a_test_of_change():
    cohort = make_cohort(['CN'] * 20 + ['PT'] * 20 + ['MCI'] * 15 + ['SCD'] * 3)
    results = make_results(cohort, sd=0.01)
    results['r1'] += 0.2 * cohort.visits['years'].where(cohort.groups == 'MCI', 0.0)
    table = change_of_groups(cohort, results)
    rows = table[table['index'] == 'r1'].set_index('measure')
    assert rows['n'].to_dict() == {
        'patients minus controls': 40, 'controls': 20, 'patients': 20,
        'MCI minus controls': 35, 'MCI': 15, 'SCD minus controls': 23, 'SCD': 3,
    }  # fmt: skip
    assert rows.loc['MCI', 'estimate'] == pytest.approx(0.2, abs=0.02)
    assert rows.loc['MCI minus controls', 'p_corrected'] < 1e-6
    expected = '3 participants of group SCD have R-indices at two visits'
    assert rows.loc['SCD', 'outcome'].startswith(expected)
    of_two = cohort.groups.isin(['CN', 'PT'])
    alone = change_of_groups(cohort.select(of_two), results[of_two]).reset_index(drop=True)
    both = table[table['measure'].isin(alone['measure'])].reset_index(drop=True)
    pd.testing.assert_frame_equal(both, alone)


def test_visits_of_a_converter_are_in_order_of_time():
    """The first visit was of another group, which stands after controls and patients."""
    cohort = make_cohort(['CN'] * 20 + ['PT'] * 5)
    visits = cohort.visits.copy()
    visits.loc['sub-024_ses-0', 'group'] = 'MCI'
    everyone = replace(cohort, visits=visits)
    main = visits['group'].isin(['CN', 'PT'])
    order = [*visits.index[main], *visits.index[~main]]
    scored = replace(everyone, **{
        name: getattr(everyone, name).loc[order]
        for name in ('visits', 'features', 'people', 'others')
    })  # fmt: skip
    main_cohort = replace(everyone.select(main), apart=everyone.select(~main))
    steps = SimpleNamespace(combat=None, structures=cohort.wanted)
    model = SimpleNamespace(pattern_names=NAMES, preprocessing=steps)
    model.with_unseen_site = lambda unseen: model
    results = make_results(cohort).loc[order]
    changes, _, _ = follow_visits(main_cohort, model, results, scored=scored)
    one = changes[changes['participant_id'] == 'sub-024']
    assert set(one['from_session']) == {'ses-0'}
    assert len(one) == 2


def test_who_was_of_another_group_first_is_scored_only(tmp_path):
    """Models learn from first visits: a later one alone has no fold."""
    table = write_visits(tmp_path / 'visits.tsv')
    converters = table['participant_id'].unique()[-6:]
    is_first = table['session_id'] == 'c'
    table.loc[table['participant_id'].isin(converters) & is_first, 'diagnosis'] = 'MCI'
    table.to_csv(tmp_path / 'visits.tsv', sep='\t', index=False)
    cohort = read_visits(tmp_path / 'visits.tsv', control_label=('CN',), patient_label=('PT',))
    assert cohort.counts == {'CN': 24, 'PT': 24}
    assert cohort.apart.visits['group'].value_counts().to_dict() == {'MCI': 6, 'PT': 6}
    assert split_people(cohort, 3, 0).notna().all()


def test_limits_of_half_of_real_controls_hold_in_the_other_half():
    """The thickness of a region stands for an R-index: it was learned from nobody."""
    table = pd.read_csv(shared_data('tables/lnm_two_visits.csv'))
    controls = table[table['group'] == 'control'].sort_values(['sub_id', 'visit'])
    regions = controls.filter(like='_thickness')
    first, second = controls['visit'] == 1, controls['visit'] == 2
    changes = regions[second].to_numpy() - regions[first].to_numpy()
    years = controls.loc[second, 'age'].to_numpy() - controls.loc[first, 'age'].to_numpy()
    pairs = pd.DataFrame({'participant_id': controls.loc[first, 'sub_id'].to_numpy()})
    pairs['years'] = years
    shares = []
    for seed in range(20):
        is_learned_from = np.random.default_rng(seed).permutation(len(pairs)) < len(pairs) // 2
        noise = noise_by_controls(pairs, changes, is_learned_from)
        limits = noise.error * limit_of_chances(0.05, 1, 1, noise.df)
        is_beyond = np.abs(changes - noise.expected) > limits
        shares.append(is_beyond[~is_learned_from].mean())
    assert 0.02 < np.mean(shares) < 0.08
