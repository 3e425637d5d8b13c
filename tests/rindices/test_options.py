"""A new option of preprocessing takes effect wherever harmonization is fitted or options are used.

`Milder` is ComBat with one more parameter, `share`: the share of each site effect that it removes.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path

import pandas as pd
import pytest

from surreal_bids import Cohort
from surreal_bids.analysis.engine import Analysis
from surreal_bids.cli.group import check_group_options
from surreal_bids.cohort.roles import column_features
from surreal_bids.config import (
    VOLUMES,
    AppConfig,
    CohortOptions,
    option,
    options_of,
    set_by_model,
    switch,
)
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.combat import ComBat
from surreal_bids.harmonization.options import PreprocessingOptions
from surreal_bids.harmonization.quality import assess_harmonization
from surreal_bids.rindices.model import TableModel
from surreal_bids.rindices.new_sites import teach_sites
from surreal_bids.rindices.preprocessing import Visits, fit_preprocessing
from tests.cohort.study import REGIONS, make_study
from tests.harmonization.simulated_sites import harmonize, simulate_sites

OF_TABLE = {'icv_column', 'site_column'}
"""Options that name columns of the table at hand, also if a model is applied."""

OF_APPLYING = {'unseen_site'}
"""Options that are chosen whenever a model is applied."""


class Milder(ComBat):
    def __init__(self, unseen_site='error', share=1.0):
        super().__init__(unseen_site)
        self.share = share

    def _harmonize(self, values, labels, covariates):
        return values + self.share * (super()._harmonize(values, labels, covariates) - values)


@dataclass(frozen=True)
class MilderOptions(PreprocessingOptions):
    share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class LongerConfig(CohortOptions):
    share: float = option('a number', 1.0, section=VOLUMES)
    smooth: bool = switch('a step that is on or off')


@pytest.fixture(autouse=True)
def milder(monkeypatch):
    monkeypatch.setattr('surreal_bids.harmonization.options.ComBat', Milder)


@pytest.fixture(scope='module')
def study():
    return make_study()


def fit(study, visits=None, **options):
    options = MilderOptions(('age',), unseen_site='skip', **options)
    tables = study.features, study.people, ~study.is_patient
    return fit_preprocessing(column_features(REGIONS), options, *tables, visits)[0]


def test_every_parameter_of_combat_is_an_option(monkeypatch):
    monkeypatch.setattr('surreal_bids.harmonization.options.ComBat', ComBat)
    names = {each.name for each in fields(PreprocessingOptions)}
    assert {*ComBat.setting_names()} <= names
    combat = PreprocessingOptions(unseen_site='skip').make_combat()
    assert combat.unseen_site == 'skip'


def test_a_new_parameter_is_used_in_every_fit_and_is_stored(study):
    steps = fit(study, site_column='site', share=0.5)
    names = study.people.index
    visits = Visits(study.features, study.people, pd.Series(names, names))
    of_visits = fit(study, visits, site_column='site', share=0.5)
    for fitted in (steps, of_visits, steps.with_unseen_site('error')):
        assert fitted.combat.share == 0.5
    assert steps.with_unseen_site('error').combat.unseen_site == 'error'
    assert steps.to_state()[0]['combat']['share'] == 0.5
    assert steps.to_state()[0]['options']['share'] == 0.5
    assert Milder.from_arrays(steps.combat.to_arrays()).settings == steps.combat.settings
    without = {k: v for k, v in steps.combat.to_arrays().items() if k != 'share'}
    assert Milder.from_arrays(without).share == 1.0, 'stored before the parameter existed'


@pytest.mark.parametrize('site_column', [None, 'site'])
def test_a_new_parameter_is_kept_when_a_site_is_added(study, site_column):
    steps = fit(study, site_column=site_column, share=0.5)
    new = make_study(seed=1)
    people = new.people.assign(site='new')
    visits = pd.DataFrame({'participant_id': people.index, 'is_first': True}, people.index)
    options = replace(steps.options, site_column='site')
    controls = Cohort(visits, new.features, people, visits[[]], steps.features, options)
    model = TableModel(steps, gan=None, pattern_names=())
    taught = teach_sites(model, controls.select(~new.is_patient)).preprocessing
    assert 'new' in taught.combat.sites_
    assert taught.combat.settings == {'unseen_site': 'skip', 'share': 0.5}
    assert taught.options == options


@pytest.mark.slow
def test_harmonization_is_assessed_with_the_options_of_the_model():
    X, site, covariates = simulate_sites(seed=5, site_sizes={'a': 40, 'b': 40})
    tables = X, harmonize(X, site, covariates), site, covariates
    none = assess_harmonization(*tables, make_combat=MilderOptions(share=0.0).make_combat)
    assert none.accuracy_held_out == none.accuracy_before > 0.9
    full = assess_harmonization(*tables, make_combat=MilderOptions(share=1.0).make_combat)
    assert full.accuracy_held_out == assess_harmonization(*tables).accuracy_held_out < 0.8


@pytest.mark.slow
def test_the_report_assesses_harmonization_with_the_options_of_the_model(study):
    steps = fit(study, site_column='site', share=0.0)
    names, groups = study.people.index, study.people['diagnosis']
    visits = pd.DataFrame({'participant_id': names, 'is_first': True, 'group': groups}, names)
    tables = study.features, study.people, visits[[]]
    cohort = Cohort(visits, *tables, steps.features, steps.options)
    found = Analysis(cohort=cohort, model=TableModel(steps, None, ()), results=visits)
    assert found.quality.accuracy_held_out == found.quality.accuracy_before


def test_options_of_the_user_reach_preprocessing_by_name():
    config = LongerConfig(impute=True, share=0.5, icv='power', icv_column='icv')
    options = MilderOptions.of(config, icv='none', covariates=('age',))
    assert options == MilderOptions(('age',), 'icv', impute=True, sides='together', share=0.5)


OTHER_VALUES = {
    'covariates': ('age',),
    'icv': 'covariate',
    'impute': True,
    'features': 'muse72',
    'sides': 'apart',
}


def test_with_a_model_every_option_of_preprocessing_is_used_or_refused(tmp_path):
    of_volumes = {
        name: about for name, about in options_of(CohortOptions).items() if about.section == VOLUMES
    }
    of_preprocessing = {each.name for each in fields(PreprocessingOptions)} - OF_APPLYING
    assert of_preprocessing <= of_volumes.keys()
    assert {name for name, each in of_volumes.items() if each.of_table} == OF_TABLE
    assert of_volumes.keys() - OF_TABLE == OTHER_VALUES.keys()
    folders = {'bids_dir': tmp_path, 'output_dir': tmp_path / 'out', 'analysis_levels': ('group',)}
    for name, value in OTHER_VALUES.items():
        flag = f'--{name}: the model of --model defines its preprocessing'
        with pytest.raises(UsageError, match=flag):
            check_group_options(AppConfig(**folders, model=Path('ad'), **{name: value}))
        model = TableModel.load('ad')
        with pytest.raises(UsageError, match=f'--{name}: the model defines its preprocessing'):
            Cohort.read('volumes.tsv', model=model, **{name: value})


def test_a_new_option_of_volumes_is_refused_with_a_model():
    config = LongerConfig(smooth=True, share=0.5, icv_column='TIV', site_column='scanner')
    assert set_by_model(config) == ['--share', '--smooth']
    assert set_by_model(LongerConfig()) == []


def test_what_cannot_be_read_or_applied_is_named(study, tmp_path):
    with pytest.raises(DataError, match='expected the path of a table, not DataFrame'):
        Cohort.read(study.features)
    with pytest.raises(UsageError, match=r"model='ad': expected a model; .*TableModel.load\('ad'"):
        Cohort.read(*study.write(tmp_path), model='ad')
    steps = fit(study, site_column='site')
    with pytest.raises(
        DataError, match=r'no column region_a, site, which the model needs; .*Cohort'
    ):
        steps.transform(study.features.iloc[:, 1:], study.people.drop(columns='site'))
