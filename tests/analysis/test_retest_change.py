"""Changes are judged by the noise of the user's own repeated scans."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.change import describe_changes
from surreal_bids.analysis.engine import analyse_applied
from surreal_bids.analysis.outputs import write_tables
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.retest import HEAD_SIZE, SHARED, read_retest
from surreal_bids.config import CohortOptions
from surreal_bids.reports.methods import (
    MethodsOptions,
    describe_group_methods,
    methods_text,
)
from surreal_bids.rindices.measurement_noise import noise_of_features, noise_of_indices
from surreal_bids.rindices.model import TableModel
from tests.analysis.visits_study import OPTIONS, measure, read_visits, write_visits

OWN_NOISE, SHARED_NOISE, HEAD_NOISE = 1.6, 0.02, 0.008
"""Noise of a scanner: that of regions is so many times that of the package."""

PAIRS = 25


@pytest.fixture(scope='module')
def cohort(tmp_path_factory):
    """Everyone twice, at the same age."""
    path = tmp_path_factory.mktemp('study') / 'visits.tsv'
    write_visits(path)
    cohort = read_visits(path)
    age = cohort.people['age'].groupby(cohort.visits['participant_id']).transform('first')
    return replace(cohort, people=cohort.people.assign(age=age))


@pytest.fixture(scope='module')
def model(cohort):
    return TableModel.fit(cohort, OPTIONS)


noise_of_regions = cache(noise_of_features)


def measured_anew(cohort, rng):
    noise = OWN_NOISE * noise_of_regions(cohort.wanted).sd
    features, people = measure(cohort, noise, HEAD_NOISE, SHARED_NOISE, rng)
    return replace(cohort, features=features, people=people)


def write_retest(path, cohort, rng):
    """Two scans of some participants."""
    first = cohort.first_visits()
    chosen = first.select(np.arange(len(first)) < PAIRS)
    scans = [measured_anew(chosen, rng) for _ in range(2)]
    tables = [scan.features.join(scan.people[['icv']]) for scan in scans]
    whole = pd.concat(tables).rename_axis('participant_id').reset_index()
    whole.to_csv(path, sep='\t', index=False)
    return path


@pytest.mark.slow
def test_false_alarms_are_as_many_as_intended_with_own_noise_and_many_with_other(
    cohort, model, tmp_path
):
    rng = np.random.default_rng(0)
    called = {}
    for draw in range(12):
        own = read_retest(
            write_retest(tmp_path / 'retest.tsv', cohort, rng), cohort.wanted, cohort.options
        )
        anew = measured_anew(cohort, rng)
        results = model.apply(anew)
        harmonized = model.preprocessing.harmonize(anew.features, anew.people)
        noises = {'own': own} if draw >= 3 else {'own': own, 'other': cohort.retest}
        for name, retest in noises.items():
            known = replace(anew, retest=retest)
            found = describe_changes(known, results, harmonized, noise_of_indices(model, known))
            is_index = found['measure'].isin(model.pattern_names)
            for kind, rows in (('index', found[is_index]), ('region', found[~is_index])):
                some = rows['reliable'].eq('true').groupby(rows['participant_id']).any()
                called.setdefault(f'{name} {kind}', []).append(some.mean())
    rates = {name: np.mean(each) for name, each in called.items()}
    assert 0.03 < rates['own index'] < 0.07, rates
    # About 0.06 in the long run; the mean of 12 draws has a standard error of 0.012.
    assert 0.02 < rates['own region'] < 0.1, rates
    assert rates['other index'] > 0.12, rates
    assert rates['other region'] > 0.5, rates


def test_the_noise_is_kept_with_the_cohort_and_does_not_change_the_training(
    cohort, model, tmp_path
):
    path = write_retest(tmp_path / 'retest.tsv', cohort, np.random.default_rng(1))
    write_visits(tmp_path / 'visits.tsv')
    own = read_visits(tmp_path / 'visits.tsv', retest=path)
    assert own.retest_pairs == PAIRS
    assert own.retest.loc[SHARED, 'noise'] == pytest.approx(SHARED_NOISE, rel=0.5)
    assert own.retest.loc[HEAD_SIZE, 'noise'] == pytest.approx(HEAD_NOISE, rel=0.5)
    assert own.fingerprint() == read_visits(tmp_path / 'visits.tsv').fingerprint()
    again = Cohort.load(own.save(tmp_path / 'cohort'))
    pd.testing.assert_frame_equal(again.retest, own.retest)
    assert Cohort.load(replace(own, retest=pd.DataFrame()).save(tmp_path / 'other')).retest.empty


@pytest.mark.parametrize('pairs', [0, PAIRS])
def test_what_noise_was_used_is_said(cohort, model, pairs, tmp_path):
    path = write_retest(tmp_path / 'retest.tsv', cohort, np.random.default_rng(2))
    retest = read_retest(path, cohort.wanted, cohort.options) if pairs else cohort.retest
    found = analyse_applied(replace(cohort, retest=retest), model)
    write_tables(found, {'changes': tmp_path / 'changes.tsv'})
    described = json.loads((tmp_path / 'changes.json').read_text())['noise']['Description']
    assert ('--retest' in described) == bool(pairs)
    assert f'{pairs or 5} p' in described
    asked = {'model': 'm', 'map_tissues': ()}
    methods = describe_group_methods(found, asked)
    text = methods_text(MethodsOptions('1', group=methods))
    assert (f'{PAIRS} pairs of repeated scans' in text) == bool(pairs)


def test_a_table_of_other_features_is_refused(cohort, tmp_path):
    path = write_retest(tmp_path / 'retest.tsv', cohort, np.random.default_rng(3))
    write_visits(tmp_path / 'visits.tsv')
    table = pd.read_csv(path, sep='\t')
    table.drop(columns=cohort.wanted.names[5]).to_csv(path, sep='\t', index=False)
    with pytest.raises(ValueError, match=r'retest\.tsv'):
        read_visits(tmp_path / 'visits.tsv', retest=path)
    assert CohortOptions().retest is None
