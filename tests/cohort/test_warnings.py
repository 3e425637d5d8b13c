"""Few controls, and controls of other ages, are noticed, and what they cost is estimated."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.outputs import summarise_cohort
from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.cohort.warnings import compare_ages, warn_of_controls
from surreal_bids.rindices.model import TableModel, prepare
from tests.cohort.study import QUICK, make_study
from tests.conftest import drawing_few


def warnings_of(cohort, training):
    first = cohort.first_visits()
    controls = first.people[~first.is_patient]
    return [*map(str, warn_of_controls(controls, cohort.options.site_column, training))]


def ages_of(cohort):
    first = cohort.first_visits()
    return list(compare_ages(first.column_of('age'), first.is_patient))


def cohort_of(folder, study, **options) -> Cohort:
    folder.mkdir(exist_ok=True)
    return Cohort.read(*study.write(folder), **options)


@pytest.mark.parametrize(
    ('n_cn', 'training', 'expected'),
    [(29, True, '29, at least 30'), (30, True, None), (19, False, '19, at least 20')],
)
def test_few_controls_are_a_warning(tmp_path, n_cn, training, expected):
    cohort = cohort_of(tmp_path, make_study(n_cn, 41, n_sites=1))
    found = warnings_of(cohort, training)
    assert bool(found) == bool(expected)
    assert not expected or expected in found[0]


def test_sites_with_few_controls_are_named(tmp_path):
    study = make_study(40, 41)
    study.people['site'] = ['small'] * 7 + ['large'] * 33 + ['small', 'large'] * 20 + ['large']
    cohort = cohort_of(tmp_path, study)
    (warning,) = cohort.warnings
    assert 'small (7)' in warning.found
    assert 'large' not in str(warning)
    assert str(warning) not in summarise_cohort(cohort), 'it is in the list that ends a run'


def test_one_visit_a_person_counts(tmp_path):
    cohort = cohort_of(tmp_path, make_study(20, 41, n_sites=1))
    again = cohort.visits.assign(is_first=False).rename(index=lambda name: f'{name}_ses-2')
    twice = {
        name: pd.concat([getattr(cohort, name), getattr(cohort, name).set_axis(again.index)])
        for name in ('features', 'people', 'others')
    }
    both = replace(cohort, visits=pd.concat([cohort.visits, again]), **twice)
    assert warnings_of(both, True) == warnings_of(cohort, True)


@pytest.mark.parametrize(
    ('older', 'serious'), [(0, None), (8, False), (25, True)], ids=['same', 'some', 'most']
)
def test_patients_of_other_ages_are_named(tmp_path, older, serious):
    study = make_study(60, 41, n_sites=1)
    study.people['age'] = np.r_[np.linspace(50, 80, 60), np.linspace(50, 80, 41) + older].round(1)
    if older == 8:
        study.people.loc[study.people.index[60:94], 'age'] = 65.0
    cohort = cohort_of(tmp_path, study)
    found = ages_of(cohort)
    assert [is_serious for _, is_serious in found] == ([] if serious is None else [serious])
    said = [caution for caution, _ in found]
    warned = [each for each in cohort.warnings if each.found.startswith('Ages')]
    assert warned == said * (serious is True)
    noted = [text for text in cohort.notes if text.startswith('Ages')]
    assert noted == [each.statement.removesuffix('.') for each in said] * (serious is False)
    if serious:
        assert 'age range of controls (50 to 80)' in said[0].found


def test_ages_that_no_model_uses_are_compared_too(tmp_path):
    study = make_study(60, 41, n_sites=1)
    study.people.loc[study.is_patient, 'age'] += 40
    cohort = cohort_of(tmp_path, study, covariates=('sex',))
    assert 'age' in cohort.others
    assert any(each.found.startswith('Ages') for each in cohort.warnings)


def test_a_model_without_age_is_not_said_to_correct_for_it(tmp_path):
    study = make_study(60, 41, n_sites=1)
    study.people.loc[study.is_patient, 'age'] += 40
    cohort = cohort_of(tmp_path, study, covariates=('sex',))
    needs = replace(prepare(cohort).preprocessing.requirements, options=cohort.options)
    applied = read_cohort(*study.write(tmp_path), model=needs)
    assert not any(each.found.startswith('Ages') for each in applied.warnings)
    ages = study.people.loc[~study.is_patient, 'age']
    told = [each.found for each in applied.warnings if 'does not correct for age' in each.found]
    assert len(told) == 1
    assert f'(here {ages.min():.3g} to {ages.max():.3g} years)' in told[0]
    assert not any('correct for age' in each.found for each in cohort.warnings)


@pytest.mark.parametrize(('older', 'expected'), [(0, False), (40, True)])
def test_ages_that_a_model_has_not_seen_are_a_warning(model, tmp_path, older, expected):
    study = make_study(30, 30, seed=2, n_sites=1)
    study.people['age'] += older
    cohort = read_cohort(
        *study.write(tmp_path), model=model.preprocessing.requirements, groups='compared'
    )
    told = [each.found for each in cohort.warnings if 'training range' in each.found]
    assert len(told) == expected
    assert all('60 of 60 participants (sub-' in each for each in told)
    assert not any('training range' in note for note in cohort.notes)


def test_warnings_survive_on_disk(tmp_path):
    cohort = cohort_of(tmp_path, make_study(20, 41))
    assert cohort.warnings
    assert Cohort.load(cohort.save(tmp_path / 'kept')).warnings == cohort.warnings


@pytest.fixture(scope='module')
def model(tmp_path_factory) -> TableModel:
    study = make_study(60, 60, seed=5, n_sites=1)
    with drawing_few():
        return TableModel.fit(cohort_of(tmp_path_factory.mktemp('training'), study), QUICK)


def test_covariates_that_some_lack_are_neither_adjusted_for_nor_tested(tmp_path):
    study = make_study()
    study.people.loc[study.people.index[0], 'age'] = np.nan
    cohort = cohort_of(tmp_path, study, covariates=('sex',))
    covariates, measures = cohort.covariates_and_measures()
    assert 'age' not in covariates
    assert 'age' not in measures
    assert cohort.incomplete_covariates() == ['age']
