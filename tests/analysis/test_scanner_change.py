"""Participants who change scanners between visits: what is learned, and what is called a change."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.change import compare_groups_over_time, describe_changes, linked_sites
from surreal_bids.cohort.cohort import read_cohort
from surreal_bids.config import CohortOptions
from surreal_bids.names import column_of
from surreal_bids.rindices.measurement_noise import Noise
from surreal_bids.rindices.model import prepare
from surreal_bids.rindices.preprocessing import Preprocessing, fit_preprocessing
from surreal_bids.simulation.tables import simulate_table

pytestmark = pytest.mark.slow

YEARS = 2


def make_visits(seed=0, people=(60, 16), later_only=False, moved=2, noise=1.0):
    """Two visits of everyone; every second participant (`moved`) is then at another scanner."""
    rng = np.random.default_rng(seed)
    simulated = simulate_table('basic', *people, seed=seed)
    known = simulated.participants.drop(columns=['participant_id', 'site'])
    volumes = simulated.volumes.set_index('participant_id').iloc[:, :40]
    start = np.zeros(len(volumes), int) if later_only else np.arange(len(volumes)) // 2 % 2
    change = np.arange(len(volumes)) % moved == 0
    shifts = rng.normal(0, 0.04, (2, 40))
    tables = []
    for visit, site in enumerate((start, np.abs(start - change))):
        errors = noise * rng.normal(0, 0.015, volumes.shape)
        known_then = known.assign(
            session_id=f'{visit + 1}',
            scan_date=f'{2010 + YEARS * visit}-06-01',
            age=known['age'] + YEARS * visit,
            site=np.array(['Aarhus', 'Bern'])[site],
        )
        measured = volumes * np.exp(errors + shifts[site])
        tables.append(pd.concat([measured.reset_index(), known_then], axis=1))
    return pd.concat(tables), shifts[1] - shifts[0]


def read(table, tmp_path, **options):
    path = tmp_path / 'visits.tsv'
    table.to_csv(path, sep='\t', index=False)
    return read_cohort(path, options=CohortOptions(**{'sides': 'apart'} | options))


def of_first_visits(cohort) -> Preprocessing:
    first = cohort.first_visits()
    options = replace(cohort.options, unseen_site='skip')
    return fit_preprocessing(
        cohort.wanted, options, first.features, first.people, ~first.is_patient
    )[0]


def bias(cohort, steps, shift):
    """RMS over regions of the error of a change from the first to the second scanner (log)."""
    at = {site: cohort.people.assign(site=site) for site in ('Aarhus', 'Bern')}
    logs = {site: np.log(steps.harmonize(cohort.features, people)) for site, people in at.items()}
    found = (logs['Aarhus'] - logs['Bern']).mean()
    return np.sqrt(np.mean(np.square(found.to_numpy() - shift)))


@pytest.mark.parametrize('later_only', [False, True], ids=['change', 'upgrade'])
def test_the_bias_of_a_scanner_change_falls_by_four_fifths(tmp_path, later_only):
    before, after = [], []
    for seed in range(3):
        table, shift = make_visits(seed, later_only=later_only)
        cohort = read(table, tmp_path)
        assert len(cohort) == len(table)
        before.append(bias(cohort, of_first_visits(cohort), shift))
        after.append(bias(cohort, prepare(cohort).preprocessing, shift))
    assert np.mean(after) < 0.2 * np.mean(before)


def test_a_change_of_sites_is_judged_with_more_noise(tmp_path):
    cohort = read(make_visits()[0], tmp_path)
    rindices = pd.DataFrame({'r1': 0.5}, cohort.visits.index)
    linking, other = prepare(cohort).preprocessing, of_first_visits(cohort)
    model, unlinked = (SimpleNamespace(preprocessing=steps) for steps in (linking, other))
    given = cohort, rindices, Noise(rindices, rindices + 10), linking
    changes = describe_changes(*given, linked_sites(cohort, model, None))
    noise = changes.groupby('site_changed')['noise'].mean()
    assert noise['true'] > noise['false']
    assert changes['reliable'].notna().all()
    # Without one fold, too few change scanners, and sites are learned from first visits.
    fitted = SimpleNamespace(models={1: model, 2: unlinked})
    unjudged = describe_changes(*given, linked_sites(cohort, model, fitted))
    assert (unjudged['reliable'].isna() == (unjudged['site_changed'] == 'true')).all()


@pytest.mark.parametrize(
    ('options', 'moved'),
    [
        ({'covariates': ('sex',)}, 2),
        ({'impute': True}, 2),
        ({'site_column': 'none'}, 2),
        ({}, 20),
        ({}, 1000),
    ],
    ids=['no age', 'imputed', 'no site', 'few', 'nobody'],
)
def test_otherwise_sites_are_learned_from_first_visits(tmp_path, options, moved):
    cohort = read(make_visits(moved=moved)[0], tmp_path, **options)
    steps, expected = prepare(cohort).preprocessing, of_first_visits(cohort)
    assert steps.combat is None or steps.combat.shift_error_ is None
    ours, theirs = (each.harmonize(cohort.features, cohort.people) for each in (steps, expected))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


def test_groups_are_compared_across_sites_that_are_linked(tmp_path):
    cohort = read(make_visits()[0], tmp_path)
    results = pd.DataFrame({'r1': np.random.default_rng(0).uniform(size=len(cohort))})
    results = results.set_index(cohort.visits.index)
    linked, alone = (pd.Series(site, cohort.visits.index) for site in ('any', None))
    together, excluded = compare_groups_over_time(cohort, results, ['r1'], linked)
    assert (together['n'].tolist(), excluded) == ([76, 60, 16], '')
    apart, excluded = compare_groups_over_time(cohort, results, ['r1'], alone)
    assert (apart['n'] < together['n']).all()
    assert 'at another site than the first visit' in excluded


@pytest.mark.parametrize('elsewhere', [0, 1])
def test_participants_at_excluded_sites_do_not_link_sites(tmp_path, elsewhere):
    # Five controls move, the last perhaps to a site of its own, which has too few controls.
    table, _ = make_visits(moved=1000)
    later = (table['session_id'] == '2').to_numpy()
    moved = np.flatnonzero(later)[[1, 3, 5, 7, 9]]
    table['site'] = 'Aarhus'
    table.iloc[moved, table.columns.get_loc('site')] = ['Bern'] * 4 + [['Bern', 'Cork'][elsewhere]]
    cohort = read(table, tmp_path)
    assert len(cohort) == len(table) - 5 * elsewhere
    prepare(cohort).preprocessing.harmonize(cohort.features, cohort.people)


def test_visits_of_those_who_became_patients_are_not_learned_from(tmp_path):
    table, _ = make_visits()
    column = column_of(table.columns, 'diagnosis')
    converted = np.flatnonzero(table['session_id'] == '2')[:20]
    rows = np.delete(np.arange(len(table)), converted)
    expected = prepare(read(table.iloc[rows], tmp_path)).preprocessing.combat
    table.iloc[converted, table.columns.get_loc(column)] = table[column].iloc[-1]
    table.iloc[converted, 1:41] *= 0.8
    cohort = read(table, tmp_path)
    assert len(cohort) == len(table)
    found = prepare(cohort).preprocessing.combat
    assert len(found.compared_sites_) == 2
    np.testing.assert_array_equal(found.shift_, expected.shift_)
