import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from surreal_bids.analysis.change import (
    CHANGE_COLUMNS,
    COMPARED,
    GROUP_COLUMNS,
    compare_groups_over_time,
    describe_changes,
    follow_visits,
    limit_in_sd,
    noise_of_results,
    sites_of,
)
from surreal_bids.analysis.engine import analyse_applied
from surreal_bids.analysis.outputs import write_tables
from surreal_bids.cohort.requirements import ONE_SITE
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


@pytest.fixture(scope='module')
def changes(cohort, model, results):
    return describe_changes(cohort, results, noise_of_indices(model, cohort))


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
    limit = rows['noise'][NAMES] * limit_in_sd(2, df.to_numpy())
    np.testing.assert_allclose(rows['limit'][NAMES], limit, rtol=0.05)
    beyond = np.where(changes['change'].abs() > changes['limit'], 'true', 'false')
    assert (changes['reliable'] == beyond).all()
    patient = changes['participant_id'] > 'sub-0024'
    assert (changes.loc[patient, 'reliable'] == 'true').any()
    assert (changes.loc[~patient, 'reliable'] == 'false').all()


@pytest.mark.parametrize('df', [5, 15, 1e6])
@pytest.mark.parametrize('n', [1, 3])
def test_few_without_a_change_have_any_beyond_its_limit(n, df):
    rng = np.random.default_rng(0)
    shape = 20_000, n
    changes = REAL_ERRORS * rng.normal(size=shape)
    learned = np.sqrt(rng.chisquare(df, shape) / df)
    any_beyond = (np.abs(changes) > learned * limit_in_sd(n, np.full(n, df))).any(axis=1)
    assert any_beyond.mean() == pytest.approx(0.05, abs=0.006)


def test_limits_hold_for_errors_as_large_as_those_of_people_scanned_twice():
    """They exceeded limits by the noise alone in 15 % of comparisons of three R-indices."""
    errors = 1.23 * np.random.default_rng(0).normal(size=(40_000, 3))
    beyond = (np.abs(errors) > limit_in_sd(3, np.full(3, np.inf))).any(axis=1)
    assert beyond.mean() < 0.055


def test_one_visit_of_everyone_is_no_change(cohort, results, model):
    first = cohort.first_visits()
    assert follow_visits(first, model, results) == (None, None)


@pytest.mark.slow
def test_what_changed_is_written_with_a_description(tmp_path, cohort, model):
    found = analyse_applied(cohort, model)
    write_tables(found, {'changes': tmp_path / 'changes.tsv'})
    written = pd.read_csv(tmp_path / 'changes.tsv', sep='\t', na_values='n/a')
    assert written['reliable'].sum() == (found.changes['reliable'] == 'true').sum() > 0
    described = json.loads((tmp_path / 'changes.json').read_text())
    assert list(described) == list(written) == CHANGE_COLUMNS


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
    noise = noise_of_indices(model, cohort)
    found = describe_changes(named, results, noise)
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
    found = describe_changes(unknown, results, noise_of_indices(model, cohort))
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
    changes, groups = follow_visits(unknown, model, results)
    assert len(changes)
    assert groups['p'].isna().all()
    assert (groups[['controls', 'patients']] == 0).all(axis=None)


def test_an_unharmonized_scanner_that_stays_the_same_does_no_harm(cohort, results, model):
    strange = results.assign(status='unharmonized')
    found = describe_changes(cohort, strange, noise_of_indices(model, cohort))
    assert found['reliable'].notna().all()


def test_without_dates_there_is_no_change_per_year(cohort, results, model):
    undated = replace(cohort, visits=cohort.visits.drop(columns=['years', 'order_by']))
    found = describe_changes(undated, results, noise_of_indices(model, cohort))
    assert set(found['order_by']) == {'name'}
    assert found[['years', 'per_year']].isna().all(axis=None)
    assert found['reliable'].notna().all()
    groups = compare_groups_over_time(undated, results, NAMES)
    assert groups['p'].isna().all()
    assert groups['outcome'].str.contains('two visits of known dates').all()


def test_r_indices_of_the_trained_on_are_not_judged(cohort, model):
    trained_on = final_results(cohort, model)
    found = describe_changes(cohort, trained_on, noise_of_indices(model, cohort))
    assert found['reliable'].isna().all()
    groups = compare_groups_over_time(cohort, trained_on, NAMES)
    assert groups['outcome'].str.contains('--folds').all()


def test_the_mean_change_of_groups_is_compared(cohort, results):
    found = compare_groups_over_time(cohort, results, NAMES).set_index('r_index')
    assert found.reset_index().columns.tolist() == GROUP_COLUMNS
    assert (found['outcome'] == COMPARED).all()
    assert (found[['controls', 'patients', 'visits']] == [24, 30, 54 * 3]).all(axis=None)
    frame = results[NAMES].assign(years=cohort.visits['years'], who=cohort.visits['participant_id'])
    for name in NAMES:
        slopes = pd.Series(
            {who: np.polyfit(own['years'], own[name], 1)[0] for who, own in frame.groupby('who')}
        )
        well, ill = slopes.iloc[:24], slopes.iloc[24:]
        assert found.loc[name, 'difference'] == pytest.approx(ill.mean() - well.mean(), rel=0.02)
        expected = stats.ttest_ind(ill, well, equal_var=False).pvalue
        assert np.log10(found.loc[name, 'p']) == pytest.approx(np.log10(expected), rel=0.05)
    smaller, larger = found['p'].sort_values()
    assert found['p_holm'].min() == pytest.approx(min(2 * smaller, 1))
    assert found['p_holm'].max() == pytest.approx(max(larger, min(2 * smaller, 1)))


def test_visits_at_another_site_do_not_count_in_groups(cohort, results):
    column = np.tile(['x', 'x', 'y'], 54)
    named = replace(cohort, others=cohort.others.assign(scanner=column))
    found = compare_groups_over_time(named, results, NAMES)
    assert (found['visits'] == 54 * 2).all()
    assert (found['visits_elsewhere'] == 54).all()
    assert (found['visits_without_site'] == 0).all()


def test_visits_without_a_site_are_counted(cohort, results):
    column = np.full(54 * 3, 'x', dtype=object)
    column[[1, 5, 8]] = None
    # Of a participant without any site, all visits count.
    column[9:12] = None
    named = replace(cohort, others=cohort.others.assign(scanner=column))
    found = compare_groups_over_time(named, results, NAMES)
    assert (found['visits'] == 54 * 3 - 3).all()
    assert (found['visits_without_site'] == 3).all()
    assert (found['visits_elsewhere'] == 0).all()


def test_visits_without_a_time_are_counted(cohort, results):
    years = cohort.visits['years'].copy()
    # One of a participant, and all of another.
    years.iloc[[1, 3, 4, 5]] = np.nan
    found = compare_groups_over_time(
        replace(cohort, visits=cohort.visits.assign(years=years)), results, NAMES
    )
    assert (found['visits'] == 54 * 3 - 4).all()
    assert (found['visits_without_time'] == 4).all()


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
    shown = describe_changes(cohort, fitted.results, noise)
    assert shown['reliable'].notna().all()
    assert fitted.results[HELD_OUT].all()


def test_a_change_between_scans_of_one_day_has_no_change_per_year(cohort, model, results):
    same_day = replace(cohort, visits=cohort.visits.assign(years=cohort.visits['years'] / 1e5))
    found = describe_changes(same_day, results, noise_of_indices(model, cohort))
    assert found['per_year'].isna().all()
    assert found['change'].notna().all()


def test_a_volume_that_was_filled_in_is_no_change(cohort, model, results):
    visit, region = 'sub-0001_ses-b', 'MUSE_23'
    features = cohort.features.copy()
    features.loc[visit, region] = np.nan
    noise = noise_of_indices(model, cohort)
    found = describe_changes(replace(cohort, features=features), results, noise)
    rows = of(found, 'sub-0001', 'ses-c', 'ses-b')
    assert rows['reliable'].isna().all()
    assert of(found, 'sub-0001', 'ses-c', 'ses-a')['reliable'].notna().all()
