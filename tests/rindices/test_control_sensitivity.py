"""A model on another dataset: sites are brought to its reference by their controls."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.cohort import read_cohort
from surreal_bids.cohort.exclusions import ONE_SITE
from surreal_bids.rindices.model import TableModel
from surreal_bids.rindices.new_sites import HERE, adapt_to_controls
from tests.analysis.group_study import make_config, write_dataset
from tests.cohort.study import QUICK, Study, make_study

pytestmark = pytest.mark.usefixtures('few_draws')


def cohort_of(folder, study, model=None, **options):
    folder.mkdir(exist_ok=True)
    config = make_config(write_dataset(folder, study), **options)
    people = config.bids_dir / 'participants.tsv'
    return read_cohort(config.roi_table, people, config, (), model)


ONE_SITE_ONLY = pytest.param(1, marks=pytest.mark.slow)


@pytest.fixture(scope='module', params=[ONE_SITE_ONLY, 2], ids=['one site', 'two sites'])
def model(request, tmp_path_factory) -> TableModel:
    """A model whose training sample had one site, so no ComBat, or two."""
    study = make_study(60, 60, seed=5, n_sites=request.param)
    cohort = cohort_of(tmp_path_factory.mktemp('training'), study)
    fitted = TableModel.fit(cohort, QUICK)
    assert (fitted.preprocessing.combat is None) == (request.param == 1)
    return fitted


def other_scanner(seed=9, shift=90.0, factor=1.7) -> Study:
    """New people of one site, whose scanner moves and stretches every region."""
    study = make_study(80, 60, seed=seed, n_sites=1)
    study.features = 300 + shift + factor * (study.features - 300)
    return study


def normalised_controls(adapted, cohort) -> pd.DataFrame:
    prepared = adapted.preprocessing.transform(cohort.features, cohort.people).normalised
    return prepared[~cohort.is_patient]


def test_controls_of_the_dataset_come_to_lie_where_those_of_the_model_do(model, tmp_path):
    cohort = cohort_of(tmp_path, other_scanner(), model.preprocessing.requirements)
    adapted, named = adapt_to_controls(model, cohort)
    controls = normalised_controls(adapted, named)
    assert np.abs(controls.mean() - 1).max() < 0.05
    assert np.abs(controls.std() / 0.1 - 1).max() < 0.35
    assert np.abs(controls.std().mean() / 0.1 - 1) < 0.1


def test_the_scanner_hardly_changes_r_indices(model, tmp_path):
    plain, moved = make_study(80, 60, seed=9, n_sites=1), other_scanner()
    found = []
    for name, study in (('plain', plain), ('moved', moved)):
        cohort = cohort_of(tmp_path / name, study, model.preprocessing.requirements)
        adapted, named = adapt_to_controls(model, cohort)
        found.append(adapted.apply(named)[['r1', 'r2']])
    spread = found[0].std().mean()
    assert np.abs(found[0] - found[1]).mean().max() < 0.2 * spread


def test_patients_do_not_count(model, tmp_path):
    study = other_scanner()
    sicker = replace(study, features=study.features.copy())
    sicker.features[study.is_patient] *= 0.8
    combats = []
    for name, each in (('a', study), ('b', sicker)):
        cohort = cohort_of(tmp_path / name, each, model.preprocessing.requirements)
        combats.append(adapt_to_controls(model, cohort)[0].preprocessing.combat)
    np.testing.assert_array_equal(combats[0].shift_, combats[1].shift_)


def test_a_site_of_the_same_name_is_another_site(model, tmp_path):
    cohort = cohort_of(
        tmp_path, other_scanner(), model.preprocessing.requirements, site_column='site'
    )
    adapted, named = adapt_to_controls(model, cohort)
    assert HERE.format('site0') in adapted.preprocessing.combat.sites_
    assert set(named.people[named.options.site_column]) == {HERE.format('site0')}


def test_the_adapted_model_can_be_saved(model, tmp_path):
    cohort = cohort_of(tmp_path, other_scanner(), model.preprocessing.requirements)
    adapted, named = adapt_to_controls(model, cohort)
    again = TableModel.load(adapted.save(tmp_path / 'model'))
    expected = adapted.apply(named)
    pd.testing.assert_frame_equal(again.apply(named), expected)


@pytest.mark.parametrize('column', [None, 'none'])
def test_without_a_column_of_sites_the_dataset_is_one(model, tmp_path, column):
    study = other_scanner()
    study.people = study.people.drop(columns='site')
    cohort = cohort_of(tmp_path, study, model.preprocessing.requirements, site_column=column)
    assert set(cohort.people[cohort.options.site_column]) == {ONE_SITE}
    assert any('one site' in note for note in cohort.notes)


def test_an_adapted_model_can_be_adapted_again(model, tmp_path):
    cohort = cohort_of(tmp_path / 'a', other_scanner(), model.preprocessing.requirements)
    once, named = adapt_to_controls(model, cohort)
    other = cohort_of(
        tmp_path / 'b', other_scanner(seed=3, shift=-40.0), model.preprocessing.requirements
    )
    twice, _ = adapt_to_controls(adapt_to_controls(once, other)[0], cohort)
    expected = once.apply(named)
    pd.testing.assert_frame_equal(twice.apply(named), expected)
