"""Deviations of regions and voxels of healthy participants, and of others."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.deviations import from_norms
from surreal_bids.analysis.engine import Analysis
from surreal_bids.analysis.outputs import write_tables
from surreal_bids.cohort.cohort import read_cohort
from surreal_bids.config import CohortOptions
from surreal_bids.files import write_tsv
from surreal_bids.imaging.quality import NORM_AGES, Subject, assess_volumes
from surreal_bids.regions import recognise, region_names
from surreal_bids.rindices.model import prepare
from surreal_bids.simulation.tables import sample_controls

N_CONTROLS, N_OTHERS = 60, 300


def read_healthy(folder, n_sites, missing=0.0):
    """Healthy people, most called patients; controls lack a share of their regions."""
    rng = np.random.default_rng(3)
    drawn = sample_controls(N_CONTROLS + N_OTHERS, rng)
    names = [f'sub-{number:04}' for number in range(len(drawn.people))]
    group = np.where(np.arange(len(names)) < N_CONTROLS, 'CN', 'PT')
    site = rng.integers(0, n_sites, len(names))
    shift = np.exp(0.1 * rng.normal(size=(n_sites, drawn.volumes.shape[1])))[site]
    people = drawn.people.assign(diagnosis=group)
    if n_sites > 1:
        people['site'] = [f'site{number}' for number in site]
    lacks = rng.random(shift.shape) < missing * (group == 'CN')[:, None]
    paths = []
    for name, table in {
        'volumes': (drawn.volumes * shift).mask(lacks),
        'participants': people,
    }.items():
        table = table.reset_index(drop=True)
        table.insert(0, 'participant_id', names)
        paths.append(write_tsv(folder / f'{name}.tsv', table))
    return read_cohort(*paths, CohortOptions(impute=missing > 0))


def analyse(cohort, **more):
    model = SimpleNamespace(preprocessing=prepare(cohort).preprocessing)
    results = pd.DataFrame({'status': 'complete'}, cohort.visits.index)
    return Analysis(cohort=cohort, model=model, results=results, **more)


@pytest.fixture(scope='module', params=[1, 6])
def found(request, tmp_path_factory):
    return analyse(read_healthy(tmp_path_factory.mktemp('healthy'), request.param))


@pytest.mark.parametrize('is_patient', [False, True])
def test_five_per_cent_of_healthy_regions_are_beyond_1_96(found, is_patient):
    """Those of controls, too, who are compared with the other controls."""
    z = found.z_scores[found.cohort.is_patient == is_patient]
    assert len(z) == (N_OTHERS if is_patient else N_CONTROLS)
    assert 0.04 < (z.abs() > 1.96).to_numpy().mean() < 0.06
    assert abs(z.to_numpy().mean()) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize('missing', [0.1, 0.3])
def test_imputed_regions_of_controls_do_not_count_as_measured(tmp_path, missing):
    cohort = read_healthy(tmp_path, 3, missing)
    cohort.features.iloc[15:N_CONTROLS, 0] = np.nan
    z, is_patient = analyse(cohort).z_scores, cohort.is_patient
    assert 0.04 < (z[is_patient].abs() > 1.96).to_numpy().mean() < 0.06
    expected = cohort.features.isna()
    expected.iloc[:, 0] = True  # Too few controls have this region.
    assert z.isna().equals(expected)


def test_each_measure_of_each_visit_is_a_row(found, tmp_path):
    path = tmp_path / 'deviations.tsv'
    write_tables(found, {'deviations': path})
    table = pd.read_csv(path, sep='\t')
    assert set(table.pop('measure')) == {'z_controls'}
    np.testing.assert_allclose(table.set_index('participant_id'), found.z_scores, atol=6e-4)
    described = json.loads(path.with_suffix('.json').read_text())
    assert list(described) == ['participant_id', 'measure', *found.z_scores]
    assert 'controls of this study' in described['measure']['Levels']['z_controls']


def test_without_own_controls_those_of_the_model_count(found, tmp_path):
    patients = found.cohort.select(found.cohort.is_patient)
    alone = replace(found, cohort=patients, results=found.results.loc[patients.visits.index])
    assert not alone.has_own_controls
    write_tables(alone, {'deviations': tmp_path / 'deviations.tsv'})
    described = json.loads((tmp_path / 'deviations.json').read_text())
    assert 'the model learned from' in described['measure']['Levels']['z_controls']
    chosen = replace(alone, read=found.cohort)
    assert chosen.has_own_controls
    pd.testing.assert_frame_equal(chosen.z_scores, found.z_scores.loc[patients.visits.index])


@pytest.mark.slow
def test_norms_are_those_of_the_report(tmp_path):
    cohort = read_healthy(tmp_path, 1)
    chosen = cohort.select(np.arange(len(cohort)) < 4)
    columns = list(recognise(chosen.features))
    measured = chosen.measured.loc[chosen.visits.index].assign(icv=1.5e6)
    ages = [NORM_AGES[0] - 0.1, 30.0, NORM_AGES[1] + 0.9, NORM_AGES[1] + 1.0]
    chosen = replace(chosen, measured=measured, people=chosen.people.assign(age=ages))
    z = from_norms(chosen)
    assert z.notna().all(axis=1).tolist() == [False, True, True, False]
    visit = chosen.visits.index[1]
    volumes = pd.DataFrame(
        {
            'index': list(recognise(columns).values()),
            'name': [region_names()[index] for index in recognise(columns).values()],
            'volume_mm3': measured.loc[visit, columns].to_numpy(float),
            'confidence': 0.9,
        }
    )
    sex = chosen.people.loc[visit, 'sex']
    subject = Subject(age=30.0, sex=sex, icv_mm3=1.5e6)
    expected = assess_volumes(volumes, subject)['deviation']
    np.testing.assert_allclose(z.loc[visit, columns].astype(float), expected)
    named = {column: region_names()[recognise(columns)[column]] for column in columns[:3]}
    as_model = replace(chosen, features=chosen.features[columns[:3]].rename(columns=named))
    pd.testing.assert_frame_equal(from_norms(as_model), z[columns[:3]].rename(columns=named))
