import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from surreal_bids.analysis.diagnosis import (
    ALL_REGIONS,
    EVERYONE,
    SIMILAR_AGE,
    SUM_OF_INDICES,
    compare_groups,
    diagnose,
    diagnose_applied,
    warn_of_differences,
)
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.config import TrainingOptions
from surreal_bids.rindices.crossfit import Folds, cross_fit, prepare_folds
from surreal_bids.rindices.model import TableModel
from surreal_bids.text import plain_number
from tests.cohort.study import make_study

OPTIONS = TrainingOptions(preset='robust', n_patterns=(2,), ortho=(0.2,), repetitions=2, folds=4,
                          iterations=200, device='cpu')  # fmt: skip


def read(folder, study) -> Cohort:
    return Cohort.read(*study.write(folder))


def preprocessing_only(data):
    """A model of a fold that has learned preprocessing, and no pattern."""
    return TableModel(data.preprocessing, NoPattern(), ())


class NoPattern:
    members_: tuple[()] = ()
    domain_ = None

    def transform(self, X, return_std):
        return np.empty((len(X), 0)), np.empty((len(X), 0))


def fold(cohort):
    folds = prepare_folds(cohort, OPTIONS)
    models = {number: preprocessing_only(data) for number, data in folds.data.items()}
    return cross_fit(cohort, models[1], folds, models)


def test_patients_are_told_from_controls_by_all_regions(tmp_path):
    cohort = read(tmp_path, make_study())
    table = diagnose(cohort, fold(cohort), []).set_index(['by', 'among'])
    assert list(table.index) == [(ALL_REGIONS, EVERYONE), (ALL_REGIONS, SIMILAR_AGE)]
    assert (table['auc'] > 0.8).all()
    row = table.loc[(ALL_REGIONS, EVERYONE)]
    assert row[['controls', 'patients']].tolist() == [30, 41]
    assert row['auc_low'] < row['auc'] <= row['auc_high']


@pytest.mark.parametrize('sites', [1, 6])
def test_without_disease_nobody_is_told_apart(tmp_path, sites):
    areas = []
    for seed in range(6):
        study = make_study(seed=seed, n_sites=2)
        labels = np.random.default_rng(seed).permutation(study.people['diagnosis'])
        study.people['diagnosis'] = labels
        study.people['site'] = [f'site{k // 3 % sites}' for k in range(len(labels))]
        folder = tmp_path / str(seed)
        folder.mkdir()
        cohort = read(folder, study)
        areas.append(diagnose(cohort, fold(cohort), []).loc[0, 'auc'])
    assert np.mean(areas) == pytest.approx(0.5, abs=3 * stats.sem(areas))


def test_the_sum_of_r_indices_is_of_the_held_out(tmp_path):
    cohort = read(tmp_path, make_study())
    fitted = fold(cohort)
    r = pd.DataFrame({'r1': np.where(cohort.is_patient, 0.6, 0.1), 'r2': 0.2}, cohort.visits.index)
    r.iloc[0] = np.nan
    fitted = replace(fitted, results=fitted.results.join(r))
    table = diagnose(cohort, fitted, ['r1', 'r2']).set_index(['by', 'among'])
    row = table.loc[(SUM_OF_INDICES, EVERYONE)]
    assert (row['controls'], row['patients'], row['auc']) == (29, 41, 1.0)


def test_an_applied_model_is_judged_by_each_r_index(tmp_path):
    cohort = read(tmp_path, make_study())
    r = pd.DataFrame({'r1': np.where(cohort.is_patient, 0.6, 0.1), 'r2': 0.2}, cohort.visits.index)
    table = diagnose_applied(cohort, r)
    areas = table[table['among'] == EVERYONE].set_index('by')['auc']
    assert areas.to_dict() == {SUM_OF_INDICES: 1.0, 'r1': 1.0, 'r2': 0.5}
    assert set(diagnose_applied(cohort, r[['r1']])['by']) == {SUM_OF_INDICES}


def test_who_has_no_model_of_a_fold_is_not_counted(tmp_path):
    cohort = read(tmp_path, make_study())
    fitted = fold(cohort)
    models = {number: model for number, model in fitted.models.items() if number != 2}
    folds = Folds(fitted.folds.number, failed={2: 'why'})
    table = diagnose(cohort, cross_fit(cohort, models[1], folds, models), [])
    assert table.loc[0, ['controls', 'patients']].sum() == (folds.number != 2).sum()


def with_ages(folder, years, sd):
    """A study in which nobody is ill, and an R-index that follows age; patients are older."""
    rng = np.random.default_rng(0)
    study = make_study(60, 90)
    study.people['age'] = rng.normal(60, sd, len(study.people)) + years * study.is_patient
    cohort = read(folder, study)
    fitted = fold(cohort)
    follows = cohort.people['age'] / 100 + rng.normal(0, 0.05, len(cohort))
    fitted = replace(fitted, results=fitted.results.assign(r1=follows))
    return compare_groups(cohort), diagnose(cohort, fitted, ['r1'])


def test_what_follows_age_does_not_tell_people_of_similar_age_apart(tmp_path):
    differences, table = with_ages(tmp_path, 12, 8)
    of_all, similar = table['auc'].iloc[:2]
    assert of_all > 0.8
    assert similar == pytest.approx(0.5, abs=0.1)
    caution = warn_of_differences(differences, table)[0]
    assert f'the area of the sum of R-indices is {similar:.2f}' in caution.consequence


def test_ages_that_do_not_overlap_answer_nothing(tmp_path):
    differences, table = with_ages(tmp_path, 25, 3)
    assert table['auc'].isna().tolist() == [False, True, False, True]
    caution = warn_of_differences(differences, table)[0]
    assert 'too few to tell disease from age' in caution.consequence


@pytest.mark.parametrize(('age', 'among'), [('89+', 2), ('70-74', 1)])
def test_ages_that_are_no_numbers_are_not_known(tmp_path, age, among):
    """One of an old participant, or all of them."""
    study = make_study()
    people = study.people.assign(age=study.people['age'].astype(object))
    people.loc[people.index[: 1 if age == '89+' else None], 'age'] = age
    cohort = Cohort.read(*replace(study, people=people).write(tmp_path), covariates=('sex',))
    table = diagnose(cohort, fold(cohort), [])
    assert len(table) == among
    assert table['controls'].iloc[0] == 30


def test_groups_that_differ_in_age_sex_or_site_are_told(tmp_path):
    study = make_study(60, 60)
    patient = study.is_patient
    study.people['age'] += 12 * patient
    study.people['sex'] = np.where(patient & (np.arange(120) % 4 > 0), 'M', 'F')
    cohort = read(tmp_path, study)
    table = compare_groups(cohort).set_index('covariate')
    age = table.loc['age']
    groups = [study.people.loc[chosen, 'age'] for chosen in (patient, ~patient)]
    assert age['p'] == pytest.approx(stats.ttest_ind(*groups, equal_var=False).pvalue)
    assert age['in_words'] == f'patients are {groups[0].mean() - groups[1].mean():.1f} years older'
    assert table.loc['sex', 'p'] < 1e-6
    assert table.loc['sex', 'in_words'] == 'sex is F in 25% of patients and 100% of controls'
    assert table.loc['site', 'p'] > 0.01
    assert table.loc['icv', 'test'] == 'Welch t'
    in_mm3 = replace(cohort, people=cohort.people.assign(icv=1000 * cohort.people['icv']))
    shown = compare_groups(in_mm3).set_index('covariate').loc['icv']
    assert shown['controls'] == f'{table.loc["icv", "controls"].replace("1", "1,", 1)} ml'
    assert re.fullmatch(r'icv of patients is \d+ ml (higher|lower)', shown['in_words'])


def test_sites_with_other_shares_of_patients_are_told(tmp_path):
    study = make_study(60, 90, n_sites=3)
    study.people.loc[study.people.index[-50:], 'site'] = 'site1'
    row = compare_groups(read(tmp_path, study)).set_index('covariate').loc['site']
    assert row['test'] == 'chi-squared'
    assert row['p'] < 1e-3
    assert row['in_words'].startswith('site is site1 in')


def test_groups_are_compared_in_age_though_nothing_was_done_about_it(tmp_path):
    study = make_study(60, 60)
    study.people['age'] += 12 * study.is_patient
    cohort = Cohort.read(*study.write(tmp_path), covariates=('sex',), icv='none')
    table = compare_groups(cohort).set_index('covariate')
    assert list(table.index) == ['sex', 'site', 'age', 'icv']
    assert table.loc['age', 'test'] == 'Welch t'
    assert table.loc['age', 'p'] < 1e-6


@pytest.mark.parametrize(
    ('value', 'text'),
    [(0.51234, '0.5123'), (1413.2, '1413'), (9999.6, '10,000'), (-1.4e6, '-1,400,000')],
)
def test_large_numbers_have_no_exponent(value, text):
    assert plain_number(value) == text
