"""Intervals and centiles, against known curves, a law of coverage, and another library."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from surreal_bids.rindices.crossfit import cross_fit, fit_folds, prepare_folds
from surreal_bids.rindices.model import (
    INTERVALS,
    TableModel,
    add_centiles,
    interval,
    with_intervals,
    with_training_centiles,
)
from surreal_bids.rindices.new_sites import add_sites
from surreal_bids.rindices.uncertainty import (
    REFERENCE,
    SEVERITIES,
    add_standing,
    learn_standing,
    severity_curves,
    simulate_patients,
    with_centiles,
)
from tests.analysis.group_study import read_study
from tests.cohort.study import QUICK, make_study

pytestmark = pytest.mark.usefixtures('few_draws')

OPTIONS = QUICK
NAMES = ['r1', 'r2']


@pytest.mark.parametrize('r', [-3.0, 0.1, 0.15, 0.5, 1.0, 7.0])
def test_an_interval_ends_where_the_r_index_becomes_unusual(r):
    curves = {
        'Expected': 0.1 + 0.8 * SEVERITIES,
        'Lower': 0.8 * SEVERITIES,
        'Upper': 0.3 + 0.8 * SEVERITIES,
    }
    low, high = interval(np.array([r, np.nan]), curves)
    np.testing.assert_allclose([low[0], high[0]], [r - 0.2, r + 0.1])
    assert np.isnan([low[1], high[1]]).all()


def fake_model(mean):
    """R-indices are what the first regions have lost; the generator takes half a unit from each."""
    gan = SimpleNamespace(
        transform=lambda x: (1 - x)[:, :2], synthesise=lambda z: -0.5 * np.pad(z, ((0, 0), (0, 1)))
    )
    scale = SimpleNamespace(mean_=np.asarray(mean), sd_=np.array([10.0, 10.0, 10.0]))
    steps = SimpleNamespace(normaliser=scale)
    return SimpleNamespace(gan=gan, preprocessing=steps, pattern_names=('r1', 'r2'))


@pytest.mark.parametrize(('mean', 'share'), [([100.0, 50, 40], 0.1), ([5.0, 50, 40], 0.0)])
def test_simulated_patients_lose_a_share_of_what_they_have(mean, share):
    controls = np.array([[1.0, 1, 1], [1.2, 1, 1]])
    model, severities = fake_model(mean), np.full((len(SEVERITIES), 2, 2), 0.3)
    severities[..., 0] = SEVERITIES[:, None]
    patients = simulate_patients(model, model, controls, severities)
    found = np.stack([model.gan.transform(x)[:, 0] for x in patients], axis=1)
    np.testing.assert_allclose(found[0], 0.5 * SEVERITIES, atol=1e-12)
    # Two sd above the mean, of which one is the share: 1 + 2 share of what the mean control loses.
    np.testing.assert_allclose(found[1], 0.5 * SEVERITIES * (1 + 2 * share) - 0.2, atol=1e-12)


@pytest.mark.parametrize(('size', 'shared'), [((60, 90), 0.1), ((500, 900), 0.0)])
def test_intervals_hold_the_true_severity_whatever_the_offset_and_slope(size, shared):
    rng = np.random.default_rng(0)
    held = []
    for _ in range(40):
        offset, slope = rng.uniform(0, 0.2), rng.uniform(0.7, 1.2)

        def observe(severity, offset=offset, slope=slope):
            return offset + slope * severity + rng.normal(0, 0.1, severity.shape)

        simulated = rng.normal(0, 0.1, (200, len(SEVERITIES))) + SEVERITIES
        severity = rng.uniform(size=size[1])
        patients, new_site = observe(severity), shared * rng.normal()
        curves = severity_curves(simulated, observe(np.zeros(size[0])), patients)
        low, high = interval(patients + new_site, curves, shared)
        expected = np.interp(severity, SEVERITIES, curves['Expected'])
        inside = (low <= expected) & (expected <= high)
        held.append([inside[np.digitize(severity, [1 / 3, 2 / 3]) == third] for third in range(3)])
    shares = [np.concatenate([row[third] for row in held]).mean() for third in range(3)]
    np.testing.assert_allclose(shares, 0.95, atol=0.03)


def test_intervals_at_an_added_site_are_wider(cohort, model, fitted):
    note = learn_standing(cohort, model, fitted)[INTERVALS]
    results = fitted.results[NAMES]
    error = pd.Series(np.where(np.arange(len(cohort)) < 50, 0.2, 0.0), results.index)
    before = with_intervals(results, note)
    after = with_intervals(results, note, {'r1': error, 'r2': 0 * error})
    width = [table['r1_high'] - table['r1_low'] for table in (before, after)]
    assert (width[1][:50] > width[0][:50]).all()
    pd.testing.assert_frame_equal(after[50:], before[50:])
    pd.testing.assert_series_equal(after['r2_low'], before['r2_low'])
    unknown = with_intervals(results, note, {'r1': error * np.nan, 'r2': 0 * error})
    assert unknown['r1_low'].isna().all()


def test_sites_that_a_model_does_not_know_have_no_interval(cohort, model, fitted):
    learned = learn_standing(cohort, model, fitted)
    people = cohort.people.assign(site=np.where(np.arange(len(cohort)) < 9, 'elsewhere', 'here'))
    here = replace(
        cohort,
        people=people,
        options=replace(model.preprocessing.options, site_column='site', unseen_site='skip'),
    )
    taught = add_sites(
        replace(model, notes={**model.notes, **learned}),
        here.select(~cohort.is_patient & (people['site'] == 'here')),
    )
    results = taught.with_unseen_site('skip').apply(here)
    assert results['r1'].notna().all()
    assert (results['r1_low'].isna() == (people['site'] == 'elsewhere')).all()


def test_no_intervals_where_patients_are_like_controls(cohort, model, fitted):
    results = fitted.results.copy()
    results.loc[cohort.is_patient, 'r2'] = -5.0
    assert INTERVALS not in learn_standing(cohort, model, replace(fitted, results=results))


@pytest.fixture(scope='module')
def cohort(tmp_path_factory):
    return read_study(tmp_path_factory.mktemp('study'), make_study(70, 41))


@pytest.fixture(scope='module')
def model(cohort):
    return TableModel.fit(cohort, OPTIONS)


@pytest.fixture(scope='module')
def fitted(cohort, model):
    return cross_fit(cohort, model, *fit_folds(prepare_folds(cohort, OPTIONS), model, OPTIONS))


def test_the_held_out_have_intervals_and_centiles(cohort, model, fitted):
    results, notes = add_standing(cohort, model, fitted)
    assert list(notes) == [INTERVALS, REFERENCE]
    for name in NAMES:
        inside = results[name].between(results[f'{name}_low'], results[f'{name}_high'])
        assert inside.all()
        assert results[f'{name}_centile'].between(0, 100, inclusive='neither').all()
    pd.testing.assert_frame_equal(results[list(fitted.results)], fitted.results)
    json.dumps(notes, allow_nan=False)
    reference = notes[REFERENCE]
    assert {group: each['Number'] for group, each in reference.items()} == {'CN': 70, 'PT': 41}
    medians = fitted.results.loc[cohort.is_patient, NAMES].median()
    found = [reference['PT']['Percentiles'][name][50] for name in NAMES]
    np.testing.assert_allclose(found, medians)


def test_who_was_not_held_out_has_neither(cohort, model, fitted):
    models = {number: each for number, each in fitted.models.items() if number != 2}
    found = cross_fit(cohort, model, replace(fitted.folds, failed={2: 'no'}), models)
    results, _ = add_standing(cohort, model, found)
    lacking = results['r1'].isna()
    assert lacking.any()
    standing = results[['r1_low', 'r2_high', 'r1_centile', 'centile_of']]
    assert standing[lacking].isna().all(axis=None)
    assert standing[~lacking].notna().all(axis=None)
    assert learn_standing(cohort, model, found)[INTERVALS]['Controls'] == 35


@pytest.mark.slow
def test_few_controls_have_neither(tmp_path):
    cohort = read_study(tmp_path, make_study(19, 41))
    model = TableModel.fit(cohort, OPTIONS)
    fitted = cross_fit(cohort, model, *fit_folds(prepare_folds(cohort, OPTIONS), model, OPTIONS))
    results, notes = add_standing(cohort, model, fitted)
    assert list(notes[REFERENCE]) == ['PT']
    assert INTERVALS not in notes
    assert list(results) == list(fitted.results)


def some_indices(cohort, seed=0):
    values = np.random.default_rng(seed).normal(size=(len(cohort), 2))
    table = pd.DataFrame(values, cohort.visits.index, NAMES)
    return table.assign(status='complete')


def test_centiles_are_those_of_scipy_among_all_controls(tmp_path):
    """Of other participants; visits of one are not compared with each other."""
    cohort = read_study(tmp_path, make_study(70, 41), sessions=True)
    results = some_indices(cohort)
    found = with_centiles(results, cohort, NAMES)
    controls = ~cohort.is_patient & cohort.visits['is_first']
    for visit in cohort.visits.index[::7]:
        person = cohort.visits['participant_id']
        others = results.loc[controls & (person != person[visit]), 'r1']
        share = stats.percentileofscore(others, results.loc[visit, 'r1']) / 100
        expected = 100 * (share * len(others) + 0.5) / (70 + 1)
        assert found.loc[visit, 'r1_centile'] == pytest.approx(expected, abs=0.051)
    assert set(found['centile_controls']) == {70}


def test_no_centile_is_rounded_to_100():
    results = pd.DataFrame({'r1': [0.1, 0.2, 0.3]})
    table = add_centiles(results, pd.DataFrame({'r1': [0.02, 50.04, 99.98]}), 'all', 2000)
    assert table['r1_centile'].tolist() == [0.1, 50.0, 99.9]


@pytest.mark.parametrize('n_cn', [29, 30])
def test_thirty_controls_give_everyone_a_centile(tmp_path, n_cn):
    cohort = read_study(tmp_path, make_study(n_cn, 41))
    found = with_centiles(some_indices(cohort), cohort, NAMES)
    if n_cn < 30:
        assert 'r1_centile' not in found
    else:
        assert found['r1_centile'].notna().all()
        assert set(found['centile_controls']) == {30}


def test_who_is_in_no_group_is_no_control(cohort):
    unknown = np.arange(len(cohort)) < 20
    visits = cohort.visits.assign(group=cohort.visits['group'].mask(unknown))
    found = with_centiles(some_indices(cohort), replace(cohort, visits=visits), NAMES)
    assert found['centile_controls'].max() == 50
    assert found['r1_centile'].notna().all()


def test_centiles_by_the_card_are_those_of_scipy(cohort, model, fitted):
    note = learn_standing(cohort, model, fitted)[REFERENCE]['CN']
    known = fitted.results.loc[~cohort.is_patient, 'r1']
    results = pd.DataFrame({'r1': [*known[:3] + 1e-3, -99, 99, 0.5], 'r2': 0.0})
    found = with_training_centiles(results, note, results['r1'] != 0.5)
    of_unknown_scanner = found.iloc[-1]
    assert of_unknown_scanner[['r1_centile', 'centile_of', 'centile_controls']].isna().all()
    found = found.iloc[:-1]
    expected = [stats.percentileofscore(known, r) for r in results['r1'][:3]]
    np.testing.assert_allclose(found['r1_centile'][:3], expected, atol=100 / 70)
    assert found['r1_centile'].iloc[3:].tolist() == [0.7, 99.3]
    assert set(found['centile_controls']) == {70}


@pytest.fixture
def bundle(cohort, model, fitted, tmp_path):
    learned = replace(model, notes={**model.notes, **learn_standing(cohort, model, fitted)})
    return learned.save(tmp_path / 'model')


def test_a_saved_model_gives_intervals_and_centiles_to_anyone(bundle, cohort, model, fitted):
    results = TableModel.load(bundle).apply(cohort)
    before = model.apply(cohort)
    assert not any('_low' in name or 'centile' in name for name in before)
    expected = with_intervals(before, learn_standing(cohort, model, fitted)[INTERVALS])
    pd.testing.assert_frame_equal(results[list(expected)], expected)
    assert set(results['centile_of']) == {'training'}


def test_a_fold_whose_controls_could_not_be_held_out_is_passed_over(cohort, model, fitted):
    lost = (fitted.folds.number == 1) & ~cohort.is_patient
    results = fitted.results.copy()
    results.loc[lost, NAMES] = np.nan
    note = learn_standing(cohort, model, replace(fitted, results=results))[INTERVALS]
    assert note['Controls'] == (~cohort.is_patient & ~lost & cohort.visits['is_first']).sum()
    assert list(note['Patterns']) == NAMES
