import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from surreal_bids.analysis.engine import Analysis
from surreal_bids.analysis.statistics import (
    SUM_OF_INDICES,
    compare_groups,
    separate,
    warn_of_differences,
)
from surreal_bids.cautions import BIASED, CONFOUNDED, PARTICIPANTS
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.rindices.model import SEEN, TableModel, digests_of_rows, prepare
from tests.cohort.study import make_study

pytestmark = pytest.mark.slow


def read(folder, study) -> Cohort:
    return Cohort.read(*study.write(folder))


def indices(cohort) -> pd.DataFrame:
    """One R-index that tells everyone apart, and one that tells nobody."""
    r1 = np.where(cohort.is_patient, 0.6, 0.1)
    return pd.DataFrame({'r1': r1, 'r2': 0.2}, cohort.visits.index)


def test_each_r_index_and_their_sum_have_an_area(tmp_path):
    cohort = read(tmp_path, make_study())
    r = indices(cohort)
    r.iloc[0] = np.nan
    table = separate(cohort, r).set_index('index')
    assert table['estimate'].to_dict() == {SUM_OF_INDICES: 1.0, 'r1': 1.0, 'r2': 0.5}
    assert (table['n'] == 29 + 41).all()
    assert (table['low'] < table['estimate']).all()
    assert list(separate(cohort, r[['r1']])['index']) == ['r1']
    assert separate(cohort, r[[]]).empty
    assert separate(cohort.select(cohort.is_patient), r).empty


class NoPattern:
    """A model that has learned preprocessing only."""

    members_: tuple[()] = ()

    def state(self):
        return {}, {'Selected': {'agreement': None}}


def analysis(cohort, trained_on=None, **known) -> Analysis:
    sample = prepare(cohort if trained_on is None else trained_on)
    seen = digests_of_rows(sample.features, sample.preprocessing.features.names)
    model = TableModel(sample.preprocessing, NoPattern(), ('r1', 'r2'), {SEEN: [*seen]})
    results = indices(cohort).assign(status='complete')
    return Analysis(cohort=cohort, model=model, results=results, **known)


def test_in_sample_there_is_no_area(tmp_path):
    cohort = read(tmp_path, make_study())
    assert analysis(cohort).separation.empty
    assert analysis(cohort, trained_here=False).separation.empty
    assert analysis(cohort, trained_here=False, adapted=False).separation.empty
    others = cohort.select(np.arange(len(cohort)) % 5 > 0)
    assert len(analysis(cohort, others, trained_here=False, adapted=False).separation) == 3


@pytest.mark.parametrize('adapted', [True, False])
def test_groups_that_differ_are_reported_without_folds_too(tmp_path, adapted, monkeypatch):
    monkeypatch.setattr(TableModel, 'state', lambda _: ({}, {}))
    study = make_study()
    study.people['age'] += 8 * study.is_patient
    found = analysis(read(tmp_path, study), trained_here=False, adapted=adapted)
    assert any('years older' in caution.found for caution in found.cautions)


def test_harmonization_of_imputed_volumes_is_assessed(tmp_path):
    study = make_study()
    study.features.iloc[0, 0] = np.nan
    cohort = Cohort.read(*study.write(tmp_path), impute=True)
    assert analysis(cohort).quality.accuracy_before > 0.8


def test_matched_groups_are_seldom_said_to_differ(tmp_path):
    """Four covariates: 19 % of such studies would be without a correction (Holm)."""
    cohort = read(tmp_path, make_study(20, 20))
    rng = np.random.default_rng(0)
    for older, is_warned in ((2.2, False), (4.0, True)):
        age = stats.zscore(rng.normal(size=20))
        people = cohort.people.assign(age=[*age, *age + older / np.sqrt(10)])
        people = people.assign(icv=[*age, *age], sex=np.arange(40) % 2, site=[*age, *age])
        table = compare_groups(replace(cohort, people=people))
        expected = multipletests(table['p'], method='holm')[1]
        np.testing.assert_allclose(table['p_corrected'], expected)
        assert (table['p'] < 0.05).sum() == 1
        assert bool(warn_of_differences(table)) == is_warned


def test_groups_that_differ_in_age_sex_or_site_are_told(tmp_path):
    study = make_study(60, 60)
    patient = study.is_patient
    study.people['age'] += 12 * patient
    study.people['sex'] = np.where(patient & (np.arange(120) % 4 > 0), 'M', 'F')
    cohort = read(tmp_path, study)
    table = compare_groups(cohort).set_index('measure')
    age = table.loc['age']
    groups = [study.people.loc[chosen, 'age'] for chosen in (patient, ~patient)]
    assert age['p'] == pytest.approx(stats.ttest_ind(*groups, equal_var=False).pvalue)
    assert age['in_words'] == f'patients are {groups[0].mean() - groups[1].mean():.1f} years older'
    assert table.loc['sex', 'p'] < 1e-6
    assert table.loc['sex', 'in_words'] == 'sex is F in 25% of patients and 100% of controls'
    assert table.loc['site', 'p'] > 0.01
    assert table.loc['icv', 'test'] == 'Welch t'
    in_mm3 = replace(cohort, people=cohort.people.assign(icv=1000 * cohort.people['icv']))
    shown = compare_groups(in_mm3).set_index('measure').loc['icv']
    assert shown['controls'] == f'{table.loc["icv", "controls"].replace("1", "1,", 1)} ml'
    assert re.fullmatch(r'icv of patients is \d+ ml (higher|lower)', shown['in_words'])


@pytest.mark.parametrize('column', ['site', 'age'])
def test_groups_without_common_values_are_the_first_thing_to_check(tmp_path, column):
    study = make_study(60, 60)
    patient = study.is_patient
    study.people['sex'] = np.where(patient & (np.arange(120) % 4 > 0), 'M', 'F')
    cohort = read(tmp_path, study)
    apart = {'site': np.where(patient, 'B', 'A'), 'age': cohort.people['age'] + 40 * patient}
    cohort = replace(cohort, people=cohort.people.assign(**{column: apart[column]}))
    partly, complete = sorted(
        warn_of_differences(compare_groups(cohort)), key=lambda caution: caution.severity
    )
    assert complete.found.startswith('Patients and controls do not overlap in covariates: ')
    assert ('site is' in complete.found) == (column == 'site')
    assert 'sex is F in' in partly.found
    assert (partly.severity, complete.severity) == (BIASED, CONFOUNDED)
    assert partly.about == complete.about == PARTICIPANTS


def test_sites_with_other_shares_of_patients_are_told(tmp_path):
    study = make_study(60, 90, n_sites=3)
    study.people.loc[study.people.index[-50:], 'site'] = 'site1'
    row = compare_groups(read(tmp_path, study)).set_index('measure').loc['site']
    assert row['test'] == 'chi-squared'
    assert row['p'] < 1e-3
    assert row['in_words'].startswith('site is site1 in')


def test_groups_are_compared_in_age_though_nothing_was_done_about_it(tmp_path):
    study = make_study(60, 60)
    study.people['age'] += 12 * study.is_patient
    cohort = Cohort.read(*study.write(tmp_path), covariates=('sex',), icv='none')
    table = compare_groups(cohort).set_index('measure')
    assert list(table.index) == ['sex', 'site', 'age', 'icv']
    assert table.loc['age', 'test'] == 'Welch t'
    assert table.loc['age', 'p'] < 1e-6
