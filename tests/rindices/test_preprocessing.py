import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from surreal_bids.cohort.roles import column_features
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.options import PreprocessingOptions
from surreal_bids.model.number import LEAST_FOR_STRUCTURES
from surreal_bids.rindices.model import TrainingData
from surreal_bids.rindices.preprocessing import Preprocessing, fit_preprocessing, fit_to_regions
from tests.cohort.study import REGIONS, Study, make_study

NOTHING = PreprocessingOptions()
EVERYTHING = PreprocessingOptions(('age', 'sex'), 'icv', 'covariate', 'site', 'skip', True)
OPTIONS = {
    'nothing': NOTHING,
    'covariates': PreprocessingOptions(('age', 'sex')),
    'power': PreprocessingOptions(('age', 'sex'), 'icv', 'power'),
    'power and sites': PreprocessingOptions(('age',), 'icv', 'power', 'site', impute=True),
    'proportion': PreprocessingOptions(('age',), 'icv', 'proportion'),
    'sites': PreprocessingOptions(('age',), site_column='site'),
    'imputation alone': PreprocessingOptions(impute=True),
    'everything': EVERYTHING,
}


def fit(study: Study, options: PreprocessingOptions, columns=REGIONS):
    wanted = column_features(columns)
    return fit_preprocessing(wanted, options, study.features, study.people, ~study.is_patient)


def without(study: Study, column: str, *people: str) -> Study:
    """The study, with a column about some people missing."""
    changed = study.people.copy()
    changed.loc[list(people), column] = np.nan
    return replace(study, people=changed)


@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_controls_have_mean_1_and_sd_01(options):
    study = make_study()
    _, prepared = fit(study, options)
    controls = prepared.normalised[~study.is_patient]
    assert np.allclose(controls.mean(), 1)
    assert np.allclose(controls.std(ddof=0), 0.1)


@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_fitting_prepares_as_the_restored_steps_do_later(options):
    study = make_study()
    steps, prepared = fit(study, options)
    card, arrays = steps.to_state()
    card['options']['combat_fit_on'] = 'controls'  # As in models of version 0.1.0.
    restored = Preprocessing.from_state(json.loads(json.dumps(card, allow_nan=False)), arrays)
    again = restored.transform(study.features, study.people)
    pd.testing.assert_frame_equal(prepared.normalised, again.normalised, check_exact=True)
    assert prepared.status.equals(again.status)


@pytest.mark.parametrize('proportion', [False, True])
def test_equal_to_least_squares_among_controls(proportion):
    study = make_study()
    volumes = study.features.to_numpy()
    options = OPTIONS['covariates']
    if proportion:
        volumes = volumes / study.people[['icv']].to_numpy()
        options = replace(options, icv_column='icv', icv='proportion')
    design = np.column_stack(
        [np.ones(len(volumes)), study.people['age'], study.people['sex'] == 'M']
    )
    control = ~study.is_patient.to_numpy()
    beta = np.linalg.lstsq(design[control], volumes[control], rcond=None)[0]
    rest = volumes - design @ beta
    expected = 1 + 0.1 * rest / rest[control].std(axis=0)
    _, prepared = fit(study, options)
    assert np.allclose(prepared.normalised, expected, atol=1e-10)


def test_ratios_equal_those_of_a_regression_of_logarithms():
    study = make_study()
    columns = study.people[['age', 'icv']].assign(male=study.people['sex'] == 'M').astype(float)
    design = sm.add_constant(columns.assign(icv=np.log(columns['icv'])))
    control = ~study.is_patient
    adjusted = pd.DataFrame()
    for region, volumes in study.features.items():
        learned = sm.OLS(np.log(volumes[control]), design[control]).fit()
        usual = learned.predict(design[control].mean().to_frame().T)[0]
        adjusted[region] = np.exp(np.log(volumes) - learned.predict(design) + usual)
    mean, sd = adjusted[control].mean(), adjusted[control].std(ddof=0)
    steps, prepared = fit(study, OPTIONS['power'])
    pd.testing.assert_frame_equal(prepared.normalised, 1 + 0.1 * (adjusted - mean) / sd)
    np.testing.assert_allclose(steps.normaliser.mean_, mean)


@pytest.mark.parametrize('name', ['power', 'power and sites'])
def test_an_equal_share_lost_counts_alike_in_any_head(name):
    study = make_study()
    steps, _ = fit(study, OPTIONS[name])
    person, brain = study.people.iloc[[3]], study.features.iloc[[3]]
    row = steps.residualiser.encoder_.column_names_.index('log_icv')
    larger = person.assign(icv=person['icv'] * 1.3)
    scaled = brain * 1.3 ** steps.residualiser.coefficients_[row]
    pairs = [(brain, person), (0.8 * brain, person), (scaled, larger), (0.8 * scaled, larger)]
    small, small_lost, large, large_lost = (
        steps.transform(*pair).normalised.to_numpy() for pair in pairs
    )
    if name == 'power':  # ComBat has exponents of its own, close to these.
        np.testing.assert_allclose(large, small, rtol=1e-9)
        np.testing.assert_allclose(large_lost, small_lost, rtol=1e-9)
    np.testing.assert_allclose(large_lost, small_lost, atol=0.01)


def test_harmonized_volumes_keep_their_unit_where_logarithms_are_used():
    study = make_study()
    steps, _ = fit(study, OPTIONS['power and sites'])
    harmonized = steps.harmonize(study.features, study.people)
    np.testing.assert_allclose(harmonized.mean(), study.features.mean(), rtol=0.1)


@pytest.mark.parametrize(('icv', 'column'), [('power', 'icv'), ('covariate', 'icv')])
def test_ranges_are_in_the_units_of_the_table(icv, column):
    study = make_study()
    options = PreprocessingOptions(('age',), column, icv)
    steps, prepared = fit(study, options)
    controls = study.people[~study.is_patient]
    for name in ('age', column):
        limits = controls[name].min(), controls[name].max()
        assert steps.ranges[name] == pytest.approx(limits)
        assert controls[name].between(*steps.ranges[name]).all()
    assert (prepared.beyond_range[~study.is_patient] == 'none').all()
    giant = study.people.iloc[[0]].assign(icv=5000.0)
    assert steps.transform(study.features.iloc[[0]], giant).beyond_range.tolist() == ['icv']


@pytest.mark.parametrize('column', ['age', 'sex', 'icv', 'site'])
def test_who_lacks_something_is_incomplete_and_nobody_else(column):
    study = without(make_study(), column, 'sub-003', 'sub-040')
    steps, prepared = fit(study, EVERYTHING)
    assert prepared.status[prepared.status != 'complete'].to_dict() == {
        'sub-003': 'incomplete',
        'sub-040': 'incomplete',
    }
    assert prepared.normalised.index.equals(study.people.index.drop(['sub-003', 'sub-040']))
    kept = study.people.index.drop(['sub-003', 'sub-040'])
    alone, _ = fit(Study(study.features.loc[kept], study.people.loc[kept]), EVERYTHING)
    assert np.array_equal(steps.normaliser.mean_, alone.normaliser.mean_)


@pytest.mark.parametrize(
    ('beyond', 'found'), [(-0.5, 'age'), (-0.06, 'age'), (-0.04, 'none'), (0.5, 'none'),
                          (1.04, 'none'), (1.06, 'age'), (1.5, 'age')]
)  # fmt: skip
def test_covariates_clearly_beyond_the_training_range_are_listed(beyond, found):
    study = make_study()
    steps, _ = fit(study, OPTIONS['covariates'])
    low, high = steps.ranges['age']
    person = study.people.iloc[[0]].assign(age=low + beyond * (high - low))
    assert steps.transform(study.features.iloc[[0]], person).beyond_range.tolist() == [found]


def test_missing_features_are_filled_and_counted():
    study = make_study()
    steps, complete = fit(study, EVERYTHING)
    holes = study.features.copy()
    holes.iloc[5, [1, 3]] = np.nan
    prepared = steps.transform(holes, study.people)
    assert prepared.n_imputed.iloc[5] == 2
    assert prepared.n_imputed.drop('sub-006').eq(0).all()
    others = prepared.normalised.drop('sub-006')
    pd.testing.assert_frame_equal(others, complete.normalised.drop('sub-006'))
    assert prepared.normalised.iloc[5, [1, 3]].tolist() == pytest.approx([1, 1], abs=0.1)


def spoil(study: Study, how: str) -> Study:
    features = study.features.copy()
    if how == 'missing':
        features.iloc[7, 2] = np.nan
    elif how == 'constant':
        features['region_c'] = 5.0
    elif how == 'constant in CN':
        features.loc[~study.is_patient, 'region_c'] = 5.0
    elif how == 'copy':
        features['region_g'] = features['region_b']
    return replace(study, features=features)


@pytest.mark.parametrize(
    ('how', 'message'),
    [
        ('missing', r'sub-008.*region_c.*--impute'),
        ('constant', 'constant in all 71 participants: region_c'),
        ('constant in CN', 'all 30 CN have the same value of region_c'),
        ('copy', 'columns region_b and region_g hold the same numbers'),
    ],
)
def test_bad_features_are_named(how, message):
    with pytest.raises(DataError, match=message):
        fit(spoil(make_study(), how), NOTHING)


def test_nobody_to_apply_to():
    study = make_study()
    steps, _ = fit(study, OPTIONS['covariates'])
    with pytest.raises(DataError, match='no participant has all of age, sex'):
        steps.transform(study.features, study.people.assign(age=np.nan))


def sided(study: Study) -> Study:
    """The study with its regions as the left and right halves of structures."""
    names = [f'{side}_{number}x' for number in range(16) for side in ('left', 'right')]
    return replace(study, features=study.features.set_axis(names, axis=1))


@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_sides_together_are_a_model_of_the_sums(options):
    study = sided(make_study())
    wanted = column_features(study.features.columns)
    together = replace(options, sides='together')
    arguments = study.people, ~study.is_patient
    steps, prepared = fit_preprocessing(wanted, together, study.features, *arguments)
    values = study.features.to_numpy()
    sums = pd.DataFrame(values[:, ::2] + values[:, 1::2], study.features.index)
    sums.columns = [f'{number}x' for number in range(16)]
    _, expected = fit_preprocessing(column_features(sums), options, sums, *arguments)
    pd.testing.assert_frame_equal(prepared.normalised, expected.normalised)
    assert steps.features == wanted
    assert steps.structures.names == list(sums)
    again = steps.transform(study.features, study.people)
    pd.testing.assert_frame_equal(again.normalised, prepared.normalised, check_exact=True)


@pytest.mark.parametrize('sides', ['together', 'apart'])
def test_missing_regions_are_counted_on_both_sides(sides):
    """A structure of two missing regions counts as two, and one of one as one."""
    study = sided(make_study())
    study.features.iloc[5, [0, 1, 4]] = np.nan
    study.features.iloc[9, [2]] = np.nan
    study = without(study, 'age', 'sub-003')
    wanted = column_features(study.features.columns)
    steps, fitted = fit_preprocessing(
        wanted,
        replace(EVERYTHING, sides=sides),
        study.features,
        study.people,
        ~study.is_patient,
    )
    applied = steps.transform(study.features, study.people)
    for prepared in (fitted, applied):
        counts = prepared.n_imputed
        assert counts[counts > 0].to_dict() == {'sub-006': 3, 'sub-010': 1}
        assert counts.index[counts.isna()].tolist() == ['sub-003']
        assert prepared.normalised.notna().all(axis=None)


@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_single_regions_have_steps_of_their_own(options):
    study = sided(make_study())
    wanted = column_features(study.features.columns)
    arguments = study.features, study.people, ~study.is_patient
    steps, _ = fit_preprocessing(wanted, replace(options, sides='together'), *arguments)
    assert steps.regions is None
    with_regions = fit_to_regions(steps, *arguments)
    apart, _ = fit_preprocessing(wanted, options, *arguments)
    card, arrays = with_regions.to_state()
    restored = Preprocessing.from_state(json.loads(json.dumps(card)), arrays)
    for known in (with_regions, restored, restored.with_unseen_site('skip')):
        ours, theirs = known.of_regions, apart
        harmonized = ours.harmonize(study.features, study.people)
        expected = theirs.harmonize(study.features, study.people)
        pd.testing.assert_frame_equal(harmonized, expected, check_exact=True)
        assert known.structures == steps.structures
    assert fit_to_regions(apart, *arguments) is apart
    means = with_regions.requirements.mean_volumes
    assert means.index.tolist() == list(study.features)


@pytest.mark.parametrize(
    ('names', 'sides', 'limit'),
    [
        (['left', 'right'], 'together', LEAST_FOR_STRUCTURES),
        (['left', 'right'], 'apart', None),
        (['part', 'piece'], 'together', None),
    ],
)
def test_several_patterns_of_structures_have_a_limit_of_their_own(names, sides, limit):
    study = make_study()
    columns = [f'{side}_{number}x' for number in range(16) for side in names]
    study = replace(study, features=study.features.set_axis(columns, axis=1))
    steps, _ = fit(study, replace(NOTHING, sides=sides), columns)
    training = SimpleNamespace(preprocessing=steps)
    assert TrainingData.least_of_several.fget(training) == limit
