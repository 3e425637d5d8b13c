import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from surreal_bids.analysis.engine import Analysis
from surreal_bids.analysis.outputs import SHOWN, summarise_results, write_tables
from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.cohort.roles import column_features
from surreal_bids.config import TrainingOptions
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.options import PreprocessingOptions
from surreal_bids.reports.card import card_text
from surreal_bids.rindices.model import TableModel, TrainingData, prepare, require_trainable
from surreal_bids.rindices.preprocessing import add_to_features, prepare_inputs
from tests.cohort.study import REGIONS, Study, make_study

OPTIONS = PreprocessingOptions(('age', 'sex'), 'icv', 'covariate', 'site', unseen_site='skip')


TINY = {'n_patterns': (2,), 'ortho': (0.2,), 'repetitions': 2, 'iterations': 60}


def cohort_of(study: Study, options: PreprocessingOptions) -> Cohort:
    visits = pd.DataFrame(
        {
            'participant_id': study.people.index,
            'group': study.people['diagnosis'],
            'is_first': True,
        }
    )
    others = pd.DataFrame(index=visits.index)
    wanted = column_features(REGIONS)
    return Cohort(visits, study.features, study.people, others, wanted, options)


def fit(study: Study, options: PreprocessingOptions = OPTIONS, **changes):
    cohort = cohort_of(study, options)
    with pytest.MonkeyPatch.context() as patch:  # Short training will do.
        patch.setattr('surreal_bids.model.agreement.SMALLEST_SPREAD', 0.0)
        model = TableModel.fit(cohort, TrainingOptions(preset='iclr2022', **(TINY | changes)))
    return model, model.apply(cohort)


@pytest.fixture(scope='module')
def study() -> Study:
    return make_study()


@pytest.fixture(scope='module')
def fitted(study):
    return fit(study)


@pytest.fixture(scope='module')
def saved(fitted, tmp_path_factory) -> TableModel:
    folder = fitted[0].save(tmp_path_factory.mktemp('models') / 'model')
    return TableModel.load(folder)


def test_a_saved_model_gives_the_same_numbers(study, fitted, saved):
    again = saved.compute(study.features, study.people)
    pd.testing.assert_frame_equal(fitted[1], again, check_exact=True)


@pytest.mark.parametrize('n_people', [1, 20])
def test_neither_order_nor_company_matters(study, fitted, saved, n_people):
    rng = np.random.default_rng(n_people)
    rows = rng.permutation(len(study.people))[:n_people]
    columns = rng.permutation(len(REGIONS))
    some = saved.compute(study.features.iloc[rows, columns], study.people.iloc[rows])
    expected = fitted[1].iloc[rows]
    assert np.abs(some[['r1', 'r2']] - expected[['r1', 'r2']]).max(axis=None) < 1e-6
    assert some['status'].equals(expected['status'])


def test_the_incomplete_have_no_r_index_and_say_so(study, saved):
    people = study.people.copy()
    people.loc['sub-002', 'age'] = np.nan
    results = saved.compute(study.features, people)
    assert results.loc['sub-002', 'status'] == 'incomplete'
    assert results.drop(columns='status').loc['sub-002'].isna().all()
    assert results.drop(index='sub-002').notna().all(axis=None)
    told = summarise_results(results, pd.DataFrame({'reason': ['no age'] * 99}))
    assert 'incomplete: sub-002' in told
    assert f'excluded: {99 - SHOWN} more' in told


@pytest.mark.parametrize(
    ('n', 'expected'),
    [(1, '1 participant or visit has no R-indices'), (2, '2 participants or visits have no R-')],
)
def test_a_model_without_patterns_gives_no_r_indices(n, expected):
    results = pd.DataFrame({'status': ['complete'] * n})
    told = summarise_results(results, pd.DataFrame(), has_patterns=False)
    assert told.startswith(expected)
    assert 'R-indices, as the model has no pattern\n' in told


@pytest.mark.slow
def test_the_unharmonized_are_described_but_not_trained_on(study):
    people = study.people.copy()
    people.loc[people.index[-4:], 'site'] = 'moon'
    model, results = fit(replace(study, people=people))
    assert (results['status'] == 'unharmonized').sum() == 4
    assert results['r1'].notna().all()
    assert model.notes['TrainingSample']['PT']['n'] == 37


def test_everyone_outside_hints_at_units(study, fitted, saved, caplog):
    assert fitted[1]['brain_in_range'].mean() > 0.9
    results = saved.compute(study.features * 1000, study.people)
    assert not results['brain_in_range'].any()
    assert 'outside the training population' in summarise_results(results, pd.DataFrame())
    assert 'units' in caplog.text


def test_a_model_without_a_range_works_and_no_number_is_nan(study, saved, monkeypatch):
    monkeypatch.setattr(saved.gan, 'domain_', None)
    assert 'brain_in_range' not in saved.compute(study.features, study.people)
    monkeypatch.setattr(saved.gan, 'transform', lambda x: np.full((len(x), 2), np.nan))
    with pytest.raises(DataError, match='no finite R-indices for sub-001'):
        saved.compute(study.features, study.people)


def test_settings_that_do_not_suit_the_sample_are_told(study, caplog):
    cohort = cohort_of(study, OPTIONS)
    with pytest.raises(DataError, match='7 patients at first visits'):
        prepare(cohort.select(~cohort.is_patient | (cohort.is_patient.cumsum() < 8)))
    data = prepare(cohort)
    with pytest.raises(DataError, match='--n-patterns 99 exceeds the number of features'):
        require_trainable(data, TrainingOptions(n_patterns=(2, 99)))
    require_trainable(data, TrainingOptions(n_patterns=(2,), repetitions=1))
    assert '--repetitions 1: there is one member' in caplog.text


def test_the_card_tells_everything_in_plain_json(fitted, study):
    card = json.loads(json.dumps(fitted[0].state()[1], allow_nan=False))
    first = card['FeatureDetails'][0]
    assert first['Name'] == 'region_a'
    assert set(first['Coefficients']) == {'age', 'sex[M]', 'icv'}
    ages = study.people.loc[~study.is_patient, 'age']
    assert card['TrainingSample']['CN']['age']['max'] == ages.max()
    assert card['TrainingSample']['CN']['n'] == 30
    assert sum(card['TrainingSample']['PT']['site'].values()) == 41
    assert card['RandomState'] == 0


def test_the_card_is_readable(study):
    """Where nothing was corrected; tests/cli shows one with covariates and sites."""
    text = card_text(fit(study, PreprocessingOptions())[0].state()[1])
    for words in ('30 controls (CN)', '41 patients (PT)', '32 features', '0.2', 'region_c'):
        assert words in text
    assert 'ComBat fitted on controls' not in text
    assert text.startswith('Verdict')
    assert text.count('a member is') == 1
    assert 'nan' not in text.lower()


def test_results_are_written_with_a_description_of_each_column(tmp_path, saved, study):
    people = study.people.assign(age=[np.nan, *study.people['age'][1:]])
    results = saved.compute(study.features, people)
    found = Analysis(cohort=cohort_of(study, OPTIONS), model=saved, results=results)
    write_tables(found, {'rindices': tmp_path / 'r.tsv'})
    table = pd.read_csv(tmp_path / 'r.tsv', sep='\t', keep_default_na=False, dtype=str)
    described = json.loads((tmp_path / 'r.json').read_text())
    assert list(described) == table.columns.tolist()
    assert table.columns[:2].tolist() == ['participant_id', 'group']
    assert table.loc[0, ['r1', 'flags']].tolist() == ['n/a', 'covariate, ICV or site missing']
    assert not table.isin(['nan', 'NaN', '']).any(axis=None)


def test_a_bundle_without_preprocessing_is_explained(tmp_path, fitted):
    fitted[0].gan.save(tmp_path / 'bare')
    with pytest.raises(DataError, match=r'bare: this model has no preprocessing'):
        TableModel.load(tmp_path / 'bare')


class TestNobodyIll:
    """What patterns of no meaning are compared with."""

    @pytest.fixture
    def data(self, study) -> TrainingData:
        return prepare(cohort_of(study, OPTIONS))

    def test_controls_are_others_and_normalised_by_them(self, study, data):
        cn, pt = data.shuffle(np.random.default_rng(0))
        assert (len(cn), len(pt)) == (30, 41)
        np.testing.assert_allclose(cn.mean(axis=0), 1)
        np.testing.assert_allclose(cn.std(axis=0), 0.1)
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(cn, data.normalised[~data.is_patient])

    @pytest.mark.parametrize('icv', ['power', 'proportion', 'covariate', 'none'])
    def test_what_covariates_and_sites_explain_stays(self, study, icv):
        """Ages, sexes, head sizes and scanners keep their effects; only the rest changes hands."""
        options = replace(OPTIONS, icv=icv, icv_column=None if icv == 'none' else 'icv')
        data = prepare(cohort_of(study, options))
        own, errors = data._residuals
        rng = np.random.default_rng(0)
        rows = data._shuffled_rows(rng)
        assert (data.people['site'].to_numpy() == data.people['site'].to_numpy()[rows]).all()
        shift = pd.DataFrame(errors[rows] - own, data.features.index, data.features.columns)
        moved = add_to_features(data.features, data.people, shift, options)
        again = prepare_inputs(moved, data.people, options).features
        before = prepare_inputs(data.features, data.people, options).features
        np.testing.assert_allclose(again - errors[rows], before - own, rtol=1e-9)
        design = sm.add_constant(
            pd.get_dummies(
                prepare_inputs(data.features, data.people, options).with_site,
                drop_first=True,
                dtype=float,
            )
        )
        fitted = sm.OLS(before.iloc[:, 0], design).fit()
        np.testing.assert_allclose(fitted.resid, own[:, 0], atol=1e-6 * np.abs(own).max())
        size = np.sqrt(1 - fitted.get_influence().hat_matrix_diag)
        np.testing.assert_allclose(errors * size[:, None], own, rtol=1e-6)

    def test_visits_of_a_site_without_controls_stay_as_they_are(self, tmp_path):
        """Without a fold of a longitudinal cohort, a small site may have no controls."""
        study = make_study(60, 60, seed=1)
        first = study.features.join(study.people).assign(session_id='1')
        small = [*first.index[:3], *first.index[60:70]]
        first.loc[small, 'site'] = 'site2'
        later = first.assign(session_id='2', age=first['age'] + 2)
        later[REGIONS] += np.random.default_rng(0).normal(0, 5, later[REGIONS].shape)
        others = {'site0': 'site1', 'site1': 'site0'}
        later.loc[first.index[3:40], 'site'] = first['site'].iloc[3:40].map(others)
        visits = pd.concat([first, later])
        visits[['session_id', *REGIONS]].to_csv(tmp_path / 'volumes.tsv', sep='\t')
        visits.drop(columns=REGIONS).to_csv(tmp_path / 'people.tsv', sep='\t')
        cohort = read_cohort(tmp_path / 'volumes.tsv', tmp_path / 'people.tsv')
        lenient = replace(cohort, options=replace(cohort.options, unseen_site='skip'))
        part = prepare(lenient.select(~cohort.visits['participant_id'].isin(small[:3])))
        assert part.visits is not None
        assert not part.visits.first.isin(part.features.index).all()
        cn, pt = part.shuffle(np.random.default_rng(0))
        assert np.isfinite(cn).all()
        assert np.isfinite(pt).all()
