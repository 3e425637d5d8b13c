from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from surreal_bids.analysis.change import (
    CHANGE_COLUMNS,
    GROUP_COLUMNS,
    compare_groups_over_time,
    describe_changes,
    follow_visits,
    linked_sites,
    noise_of_results,
    sites_of,
)
from surreal_bids.analysis.limits import FALSE_ALARMS
from surreal_bids.cohort.roles import ONE_SITE
from surreal_bids.rindices.crossfit import (
    HELD_OUT,
    cross_fit,
    final_results,
    fit_folds,
    prepare_folds,
)
from surreal_bids.rindices.measurement_noise import REAL_ERRORS, noise_of_indices
from surreal_bids.rindices.model import TableModel
from surreal_bids.rindices.new_sites import HERE
from surreal_bids.stats.repeated import limit_of_chances
from tests.analysis.visits_study import OPTIONS, read_visits, write_visits

pytestmark = pytest.mark.usefixtures('few_draws')

LOSS = 0.05
NAMES = ['r1', 'r2']


@pytest.fixture(scope='module')
def cohort(tmp_path_factory):
    path = tmp_path_factory.mktemp('study') / 'visits.tsv'
    write_visits(path, visits=3, loss_per_year=LOSS)
    return read_visits(path)


@pytest.fixture(scope='module')
def model(cohort):
    return TableModel.fit(cohort, OPTIONS)


@pytest.fixture(scope='module')
def results(cohort, model):
    return model.apply(cohort)


def describe(cohort, results, model, noise=None):
    """Changes at sites that were not compared; without controls, noise is that of the model."""
    noise = noise or noise_of_indices(model, cohort)
    cohort = replace(cohort, visits=cohort.visits.assign(group='PT'))
    linked = linked_sites(cohort, model, None)
    return describe_changes(cohort, results, noise, model.preprocessing, linked)


def compare(cohort, results):
    """Change of groups at sites that were not compared."""
    return compare_groups_over_time(cohort, results, NAMES, pd.Series(None, cohort.visits.index))


@pytest.fixture(scope='module')
def changes(cohort, model, results):
    return describe(cohort, results, model)


def of(changes, participant, start, end):
    rows = changes[changes['participant_id'] == participant].set_index('measure')
    return rows[(rows['from_session'] == start) & (rows['to_session'] == end)]


def test_consecutive_visits_and_the_last_with_the_first_are_compared(cohort, changes):
    assert list(changes) == CHANGE_COLUMNS
    assert len(changes) == 54 * 3 * 2
    one = changes[changes['participant_id'] == 'sub-0001'].drop_duplicates('years')
    pairs = zip(one['from_session'], one['to_session'], one['years'].round(2))
    assert list(pairs) == [
        ('ses-c', 'ses-b', 2.0), ('ses-b', 'ses-a', 1.0), ('ses-c', 'ses-a', 3.0),
    ]  # fmt: skip
    assert set(changes['order_by']) == {'date'}
    assert changes['measure'].head(3).tolist() == ['r1', 'r2', 'r1']


def test_changes_are_those_of_the_tables(cohort, results, changes):
    rows = of(changes, 'sub-0054', 'ses-c', 'ses-a')
    first, last = (results.loc[f'sub-0054_ses-{session}', NAMES] for session in 'ca')
    np.testing.assert_allclose(rows['change'][NAMES], (last - first).astype(float), atol=1e-6)
    np.testing.assert_allclose(rows['per_year'], rows['change'] / rows['years'], atol=1e-6)


def test_a_change_beyond_its_limit_is_reliable(cohort, model, changes):
    rows = of(changes, 'sub-0054', 'ses-c', 'ses-a')
    sd, df = (each.loc['sub-0054_ses-a'] for each in noise_of_indices(model, cohort))
    earlier = noise_of_indices(model, cohort).sd.loc['sub-0054_ses-c']
    np.testing.assert_allclose(rows['noise'][NAMES], np.hypot(sd, earlier), rtol=1e-3)
    limit = REAL_ERRORS * rows['noise'][NAMES] * limit_of_chances(FALSE_ALARMS, 2, 3, df)
    np.testing.assert_allclose(rows['limit'][NAMES], limit, rtol=0.05)
    beyond = np.where(changes['change'].abs() > changes['limit'], 'true', 'false')
    assert (changes['reliable'] == beyond).all()
    patient = changes['participant_id'] > 'sub-0024'
    assert (changes.loc[patient, 'reliable'] == 'true').any()
    assert (changes.loc[~patient, 'reliable'] == 'false').all()


def test_limits_hold_for_errors_as_large_as_those_of_people_scanned_twice():
    """They exceeded limits by the noise alone in 15 % of comparisons of three R-indices."""
    errors = 1.23 * np.random.default_rng(0).normal(size=(40_000, 3))
    limit = REAL_ERRORS * limit_of_chances(FALSE_ALARMS, 3, 1, np.inf)
    beyond = (np.abs(errors) > limit).any(axis=1)
    assert beyond.mean() < 0.055


def test_one_visit_of_everyone_is_no_change(cohort, results, model):
    first = cohort.first_visits()
    assert follow_visits(first, model, results) == (None, None, '')


@pytest.mark.parametrize(
    ('sites', 'changed', 'reliable'),
    [
        (['x', 'x', 'y'], {'c-b': 'false', 'b-a': 'true', 'c-a': 'true'}, {'c-b'}),
        (['x', 'x', 'x'], dict.fromkeys(['c-b', 'b-a', 'c-a'], 'false'), {'c-b', 'b-a', 'c-a'}),
        (['x', None, 'x'], {'c-b': None, 'b-a': None, 'c-a': 'false'}, {'c-b', 'b-a', 'c-a'}),
        (None, dict.fromkeys(['c-b', 'b-a', 'c-a']), {'c-b', 'b-a', 'c-a'}),
    ],
)
def test_other_sites_are_marked_and_not_judged(cohort, results, model, sites, changed, reliable):
    named = cohort
    if sites is not None:
        column = np.tile(np.array(sites, object), 54)
        named = replace(cohort, others=cohort.others.assign(scanner=column))
    found = describe(named, results, model)
    pair = found['from_session'].str[-1] + '-' + found['to_session'].str[-1]
    for name, expected in changed.items():
        own = found[pair == name]
        assert own['site_changed'].isna().all() or set(own['site_changed']) == {expected}
        assert own['site_changed'].isna().all() == (expected is None)
        assert own['reliable'].notna().all() == (name in reliable)


@pytest.mark.parametrize('name', [ONE_SITE, HERE.format(ONE_SITE)])
def test_a_site_of_everyone_is_not_known(cohort, results, model, name):
    options = replace(cohort.options, site_column='site')
    unknown = replace(cohort, people=cohort.people.assign(site=name), options=options)
    found = describe(unknown, results, model, noise_of_indices(model, cohort))
    assert found['site_changed'].isna().all()
    assert found['reliable'].notna().all()


def test_sites_have_their_names_in_the_dataset(cohort):
    options = replace(cohort.options, site_column='site')
    names = np.resize(np.array(['A', HERE.format('A'), None], dtype=object), len(cohort))
    found = sites_of(replace(cohort, people=cohort.people.assign(site=names), options=options))
    assert found.iloc[:2].tolist() == ['A', 'A']
    assert pd.isna(found.iloc[2])


def test_groups_that_are_not_known_are_not_compared(cohort, results, model):
    unknown = replace(cohort, visits=cohort.visits.assign(group=None))
    changes, groups, _ = follow_visits(unknown, model, results)
    assert len(changes)
    assert groups['p'].isna().all()
    assert (groups['n'] == 0).all()


def test_an_unharmonized_scanner_that_stays_the_same_does_no_harm(cohort, results, model):
    strange = results.assign(status='unharmonized')
    found = describe(cohort, strange, model)
    assert found['reliable'].notna().all()


def test_without_dates_there_is_no_change_per_year(cohort, results, model):
    undated = replace(cohort, visits=cohort.visits.drop(columns=['years', 'order_by']))
    found = describe(undated, results, model)
    assert set(found['order_by']) == {'name'}
    assert found[['years', 'per_year']].isna().all(axis=None)
    assert found['reliable'].notna().all()
    groups, _ = compare(undated, results)
    assert groups['p'].isna().all()
    assert groups['outcome'].str.contains('two visits of known dates').all()


def test_r_indices_of_the_trained_on_are_not_judged(cohort, model):
    trained_on = final_results(cohort, model)
    found = describe(cohort, trained_on, model)
    assert found['reliable'].isna().all()
    groups, _ = compare(cohort, trained_on)
    assert groups['outcome'].str.contains('--folds').all()


@pytest.mark.slow
def test_the_mean_change_of_groups_is_compared(cohort, results):
    found, excluded = compare(cohort, results)
    assert (found.columns.tolist(), excluded) == (GROUP_COLUMNS, '')
    assert (found['outcome'] == 'compared').all()
    assert found['n'].tolist() == [54, 24, 30] * 2
    groups = found.set_index(['measure', 'index'])['estimate']
    found = found[found['measure'] == 'patients minus controls'].set_index('index')
    frame = results[NAMES].assign(years=cohort.visits['years'], who=cohort.visits['participant_id'])
    for name in NAMES:
        slopes = pd.Series(
            {who: np.polyfit(own['years'], own[name], 1)[0] for who, own in frame.groupby('who')}
        )
        well, ill = slopes.iloc[:24], slopes.iloc[24:]
        assert found.loc[name, 'estimate'] == pytest.approx(ill.mean() - well.mean(), rel=0.02)
        assert groups['patients', name] == pytest.approx(ill.mean(), rel=0.02)
        expected = stats.ttest_ind(ill, well, equal_var=False).pvalue
        assert np.log10(found.loc[name, 'p']) == pytest.approx(np.log10(expected), rel=0.05)
    smaller, larger = found['p'].sort_values()
    assert found['p_corrected'].min() == pytest.approx(min(2 * smaller, 1))
    assert found['p_corrected'].max() == pytest.approx(max(larger, min(2 * smaller, 1)))


@pytest.mark.slow
def test_visits_at_another_site_or_without_site_or_time_are_excluded(cohort, results):
    """Of a participant without any site, all visits count."""
    sites, years = np.full(54 * 3, 'x', dtype=object), cohort.visits['years'].copy()
    sites[2:30:3], sites[31], sites[33:36] = 'y', None, None
    # One of a participant, and all of another.
    years.iloc[[40, 42, 43, 44]] = np.nan
    visits = cohort.visits.assign(years=years)
    named = replace(cohort, others=cohort.others.assign(scanner=sites), visits=visits)
    found, excluded = compare(named, results)
    assert found['n'].tolist()[:1] == [53]
    for words in ('10 at another site', '1 without a site', '4 without a date'):
        assert words in excluded


@pytest.mark.slow
def test_noise_of_the_held_out_is_of_the_model_of_their_fold(cohort, model):
    briefly = replace(OPTIONS, iterations=40)
    folds = prepare_folds(cohort, briefly)
    fitted = cross_fit(cohort, model, *fit_folds(folds, model, briefly))
    noise = noise_of_results(cohort, model, fitted)
    fold = 2
    own = cohort.select(folds.number == fold)
    for each, of_fold in zip(noise, noise_of_indices(fitted.models[fold], own)):
        assert each.index.equals(cohort.visits.index)
        assert each.notna().all(axis=None)
        expected = of_fold.rename(columns=fitted.names[fold])[NAMES]
        pd.testing.assert_frame_equal(each.loc[own.visits.index], expected)
    shown = describe(cohort, fitted.results, model, noise)
    assert shown['reliable'].notna().all()
    assert fitted.results[HELD_OUT].all()


def test_a_change_between_scans_of_one_day_has_no_change_per_year(cohort, model, results):
    same_day = replace(cohort, visits=cohort.visits.assign(years=cohort.visits['years'] / 1e5))
    found = describe(same_day, results, model)
    assert found['per_year'].isna().all()
    assert found['change'].notna().all()


def test_a_volume_that_was_filled_in_is_no_change(cohort, model, results):
    visit, region = 'sub-0001_ses-b', 'MUSE_23'
    features = cohort.features.copy()
    features.loc[visit, region] = np.nan
    noise = noise_of_indices(model, cohort)
    found = describe(replace(cohort, features=features), results, model, noise)
    rows = of(found, 'sub-0001', 'ses-c', 'ses-b')
    assert rows['reliable'].isna().all()
    assert of(found, 'sub-0001', 'ses-c', 'ses-a')['reliable'].notna().all()
