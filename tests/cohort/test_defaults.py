"""Columns that are used by default: found by name and content, and never dropped silently."""

import numpy as np
import pytest

from surreal_bids.cohort.cohort import check_participants, read_cohort
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError
from tests.cohort.study import make_study

OPTION = {'age': '--covariates', 'sex': '--covariates', 'site': '--site-column', 'icv': '--icv'}
WITHOUT = {
    'age': {'covariates': ('none',)},
    'sex': {'covariates': ('none',)},
    'site': {'site_column': 'none'},
    'icv': {'icv': 'none'},
}
NAMES = {
    'age': ['age', 'Age at scan', 'AGE_AT_BASELINE', 'AgeAtVisit', 'PTAGE', 'edad', '年齢'],
    'sex': ['sex', 'biological_sex', 'PTGENDER', 'Geschlecht', 'sexe', 'Sex at birth'],
    'site': ['site', 'scanner_id', 'ScannerModel', 'Manufacturer', 'imaging.site', 'CENTER'],
    'icv': ['icv', 'eTIV', 'IntraCranialVolume', 'ICV_bl', 'TIV (mm3)'],
}  # fmt: skip


def without_values(column, share, rng):
    """Delete values of a share of the participants."""
    cells = column.astype(object)
    cells.iloc[rng.choice(len(cells), round(share * len(cells)), replace=False)] = None
    return cells


@pytest.mark.parametrize('meaning', NAMES)
def test_a_column_is_used_under_any_name_and_missing_values_exclude(tmp_path, meaning):
    rng = np.random.default_rng(len(meaning))
    for share in (0.0, rng.uniform(0.12, 0.35)):
        name = rng.choice(NAMES[meaning])
        study = make_study()
        study.people[meaning] = without_values(study.people[meaning], share, rng)
        lacking = study.people.index[study.people[meaning].isna()]
        study.people = study.people.rename(columns={meaning: name})
        cohort = read_cohort(*study.write(tmp_path))
        assert name in cohort.people
        assert {*cohort.exclusions.index} == {*lacking}
        assert all(f'{name} is missing' in reason for reason in cohort.exclusions['reason'])


@pytest.mark.parametrize('meaning', NAMES)
def test_a_column_that_most_lack_stops_and_says_how_to_go_without(tmp_path, meaning):
    rng = np.random.default_rng(len(meaning))
    name = rng.choice(NAMES[meaning])
    study = make_study()
    study.people[meaning] = without_values(study.people[meaning], rng.uniform(0.65, 0.9), rng)
    study.people = study.people.rename(columns={meaning: name})
    volumes, people = study.write(tmp_path)
    doors = [lambda: read_cohort(volumes, people)]
    if meaning != 'icv':  # The participant level will measure it.
        doors.append(lambda: check_participants(people, CohortOptions()))
    for door in doors:
        with pytest.raises(DataError) as caught:
            door()
        count = str(study.people[name].isna().sum())
        assert all(word in str(caught.value) for word in (name, count, OPTION[meaning], 'none'))
    assert len(read_cohort(volumes, people, CohortOptions(**WITHOUT[meaning]))) == 71


@pytest.mark.parametrize(
    ('column', 'values', 'says'),
    [
        ('age', lambda n, rng: rng.integers(1, 3, n), 'codes of age groups'),
        ('Age at scan', lambda n, rng: rng.integers(0, 6, n), 'codes of age groups'),
        ('AGE', lambda n, rng: rng.integers(1930, 1960, n), 'birth years'),
        ('age_at_mri', lambda n, rng: rng.integers(600, 1000, n), 'months'),
        ('sex', lambda n, rng: rng.choice(list('ABC'), n), 'write F and M'),
        ('site', lambda n, rng: [f's{k}' for k in range(n)], '--site-column'),
        ('center', lambda n, rng: [f'c{k % 35}' for k in range(n)], '--site-column none'),
        ('age_zurich', lambda n, rng: rng.uniform(50, 80, n).round(1), '--covariates'),
        ('age_months', lambda n, rng: rng.uniform(600, 900, n).round(), '--covariates'),
        ('sex_zurich', lambda n, rng: rng.choice(list('FM'), n), '--covariates'),
        ('site_zurich', lambda n, rng: rng.choice(list('ab'), n), '--site-column'),
    ],
)
def test_a_name_whose_content_does_not_fit_is_an_error(tmp_path, column, values, says):
    study = make_study()
    meaning = next(word for word in ('age', 'sex', 'site', 'center') if word in column.lower())
    kept = study.people.drop(columns='site' if meaning == 'center' else meaning)
    study.people = kept.assign(**{column: values(71, np.random.default_rng(7))})
    with pytest.raises(DataError) as caught:
        read_cohort(*study.write(tmp_path))
    assert column in str(caught.value)
    assert says in str(caught.value)


def test_of_several_columns_the_most_complete_that_fits_is_used(tmp_path):
    study = make_study()
    rng = np.random.default_rng(1)
    ages = study.people.pop('age')
    study.people = study.people.assign(
        age=rng.integers(1, 3, 71), Age_at_visit=without_values(ages, 0.3, rng), scan_age=ages
    )
    cohort = read_cohort(*study.write(tmp_path))
    assert 'scan_age' in cohort.people
    why = cohort.uses.set_index('column')['why']
    assert 'scan_age' in why['age']
    assert 'scan_age' in why['Age_at_visit']


def test_a_site_that_is_the_same_for_all_is_not_used(tmp_path):
    study = make_study()
    study.people['site'] = 'one'
    cohort = read_cohort(*study.write(tmp_path))
    assert cohort.options.site_column is None
    assert any(note.startswith('Site: ') for note in cohort.notes)
