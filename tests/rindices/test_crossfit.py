from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.reports.card import card_text
from surreal_bids.rindices import crossfit
from surreal_bids.rindices.crossfit import (
    NOT_HELD_OUT,
    assign_folds,
    cross_fit,
    doubts_of_model,
    fit_folds,
    fold_options,
    prepare_folds,
    split_people,
    usable_folds,
    warn_of_not_held_out,
)
from surreal_bids.rindices.model import TableModel
from tests.analysis.group_study import make_config, read_study, write_dataset
from tests.cohort.study import QUICK, make_study

OPTIONS = replace(QUICK, folds=3)
BRIEFLY = replace(QUICK, iterations=20)


pytestmark = pytest.mark.usefixtures('few_draws')


@pytest.fixture(scope='module')
def cohort(tmp_path_factory):
    return read_study(tmp_path_factory.mktemp('study'))


@pytest.fixture(scope='module')
def model(cohort):
    return TableModel.fit(cohort, OPTIONS)


@pytest.fixture(scope='module')
def fitted(cohort, model):
    return cross_fit(cohort, model, *fit_folds(prepare_folds(cohort, OPTIONS), model, OPTIONS))


@pytest.mark.parametrize('n_parts', [2, 3, 5])
@pytest.mark.parametrize('seed', [0, 1])
def test_parts_are_even_in_groups_and_sites(cohort, n_parts, seed):
    parts = split_people(cohort, n_parts, seed)
    strata = pd.crosstab([cohort.visits['group'], cohort.people['site']], parts)
    assert (strata.max(axis=1) - strata.min(axis=1)).max() <= 1
    groups = pd.crosstab(cohort.visits['group'], parts)
    assert (groups.max(axis=1) - groups.min(axis=1)).max() <= 1
    assert not parts.equals(split_people(cohort, n_parts, seed + 1))


def test_visits_of_a_participant_stay_together(tmp_path):
    cohort = read_study(tmp_path, sessions=True)
    parts = split_people(cohort, 3, 0)
    assert parts.groupby(cohort.visits['participant_id']).nunique().eq(1).all()


@pytest.mark.parametrize(
    ('controls', 'patients', 'wanted', 'expected'),
    [
        (30, 40, 5, 5),
        (30, 40, 0, 0),
        (9, 40, 5, 0),
        (10, 40, 5, 5),
        (40, 9, 5, 0),
        (12, 30, 40, 12),
    ],
)
def test_how_many_folds_groups_allow(controls, patients, wanted, expected, caplog):
    caplog.set_level('INFO', 'surreal_bids')
    assert usable_folds({'CN': controls, 'PT': patients}, wanted) == expected
    assert bool(caplog.text) == (expected != wanted)


def test_one_fold_is_refused():
    with pytest.raises(UsageError, match='--folds 1'):
        usable_folds({'CN': 30, 'PT': 30}, 1)


def test_nobody_is_held_out_where_nothing_can_be_learned_without_them(tmp_path, caplog):
    study = make_study(n_cn=10)
    more = pd.DataFrame(np.random.default_rng(0).normal(size=(len(study.people), 5)))
    study.people[[f'score{k}' for k in range(5)]] = more.to_numpy()
    root = write_dataset(tmp_path, study)
    covariates = ('age', 'sex', *(f'score{k}' for k in range(5)))
    config = make_config(root, covariates=covariates, site_column='none', icv='none')
    cohort = read_cohort(config.roi_table, root / 'participants.tsv', config)
    assert prepare_folds(cohort, replace(OPTIONS, folds=5)) is None
    assert 'too low in controls' in caplog.text
    assert '8 CN for 7 covariate columns' in caplog.text


def test_the_note_has_no_number_that_json_lacks(cohort, model):
    nothing = replace(
        prepare_folds(cohort, OPTIONS), data={}, failed=dict.fromkeys((1, 2, 3), 'no')
    )
    note = cross_fit(cohort, model, nothing, {}).note
    assert note['LeastCorrelation'] == {}
    assert note['NotHeldOut'] == len(cohort)


def test_what_is_learned_without_a_fold_does_not_depend_on_the_fold(cohort):
    folds = prepare_folds(cohort, OPTIONS)
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(rng.normal(1, 0.2, cohort.features.shape), *cohort.features.axes)
    chosen = folds.number == 2
    others = replace(cohort, features=cohort.features.where(~chosen, cohort.features * noise))
    again = prepare_folds(others, OPTIONS)
    pd.testing.assert_frame_equal(again.data[2].normalised, folds.data[2].normalised)
    assert not again.data[1].normalised.equals(folds.data[1].normalised)
    assert set(folds.data[2].normalised.index) == set(cohort.visits.index[~chosen])


def test_everyone_gets_the_r_indices_of_the_fold_that_held_them_out(cohort, model, fitted):
    table = fitted.results
    assert table.index.equals(cohort.visits.index)
    assert (table['status'] == 'complete').all()
    assert table['held_out'].all()
    for fold, own in fitted.models.items():
        part = cohort.select(table['fold'] == fold)
        expected = np.sort(own.apply(part)[['r1', 'r2']])
        np.testing.assert_array_equal(np.sort(table.loc[part.visits.index, ['r1', 'r2']]), expected)
        assert set(part.visits.index) & set(fitted.folds.data[fold].normalised.index) == set()


class Turned:
    """A model that calls the patterns of another the other way round, and is a little off."""

    def __init__(self, model):
        self.model, self.preprocessing = model, model.preprocessing
        self.pattern_names, self.gan = model.pattern_names, model.gan

    def with_unseen_site(self, _):
        return self

    def apply(self, cohort):
        table = self.model.apply(cohort).rename(columns={'r1': 'r2', 'r2': 'r1'})
        return table.assign(r1=table['r1'] + 0.01)


def test_patterns_of_a_fold_are_matched_to_those_of_all(cohort, model):
    folds = prepare_folds(cohort, OPTIONS)
    found = cross_fit(cohort, model, folds, dict.fromkeys((1, 2, 3), Turned(model)))
    expected = model.apply(cohort)
    shared = ['r1', 'brain_in_range']
    pd.testing.assert_frame_equal(found.results[shared], expected[shared])
    np.testing.assert_allclose(found.results['r2'], expected['r2'] + 0.01)
    np.testing.assert_allclose(found.correlation, 1)
    np.testing.assert_allclose(found.results['fold_correlation'], 1)


def assert_they_add_up(contributions, results):
    indices = results[['r1', 'r2']].dropna()
    both = pd.MultiIndex.from_product([indices.index, ['r1', 'r2']])
    assert contributions.index.equals(both)
    sums = contributions.sum(axis=1).to_numpy()
    np.testing.assert_allclose(sums, indices.to_numpy().ravel(), atol=1e-5)


def test_contributions_are_by_the_model_that_the_r_indices_are_by(cohort, model, fitted):
    contributions = fitted.contributions(cohort)
    assert list(contributions) == ['baseline', *cohort.features]
    assert_they_add_up(contributions, fitted.results)
    final = model.contributions(cohort.features, cohort.people)
    assert_they_add_up(final, model.apply(cohort))
    assert final['baseline'].nunique() == 2
    assert contributions['baseline'].nunique() == 6


def test_contributions_of_patterns_in_another_order(cohort, model, fitted):
    turned = {'r1': 'r2', 'r2': 'r1'}
    names = {fold: {turned[a]: b for a, b in names.items()} for fold, names in fitted.names.items()}
    contributions = replace(fitted, names=names).contributions(cohort)
    indices = fitted.results[['r1', 'r2']].set_axis(['r2', 'r1'], axis=1)
    assert_they_add_up(contributions, indices)


def test_a_pattern_that_a_fold_does_not_find_is_told(cohort, model, fitted):
    table = fitted.results
    least = fitted.correlation.min(axis=1)
    assert table['fold_correlation'].tolist() == [least[fold] for fold in table['fold']]
    note = fitted.note | {'LeastCorrelation': {'r1': 0.9, 'r2': 0.69}}
    told = card_text(replace(model, notes={**model.notes, 'CrossFit': note}).state()[1])
    assert 'Patterns not reproduced in every fold of the training sample: r2' in told


@pytest.mark.slow
def test_who_cannot_be_held_out_is_named_with_the_reason(cohort):
    patients = cohort.visits.index[-9:]
    small = cohort.visits.index.isin(['sub-003', *patients])
    cohort = replace(
        cohort, people=cohort.people.assign(site=cohort.people['site'].mask(small, 's'))
    )
    model = TableModel.fit(cohort, BRIEFLY)
    folds, models = fit_folds(prepare_folds(cohort, BRIEFLY), model, BRIEFLY)
    found = cross_fit(cohort, model, folds, models).results
    fold = found.loc['sub-003', 'fold']
    affected = ['sub-003', *patients[found.loc[patients, 'fold'] == fold]]
    lacking = found[found['r1'].isna()]
    assert sorted(lacking.index) == sorted(affected)
    assert set(lacking['status']) == {NOT_HELD_OUT}
    reason = f'all controls of this site are in fold {fold}'
    assert set(lacking['reason']) == {reason}
    (told,) = warn_of_not_held_out(found, cohort.visits['participant_id'])
    assert reason in str(told)
    # Where nobody of a fold can be held out, the others still have theirs.
    alone = cohort.select((folds.number != fold) | cohort.visits.index.isin(affected))
    some = replace(folds, number=folds.number[alone.visits.index])
    contributions = cross_fit(alone, model, some, models).contributions(alone)
    has = found['r1'].notna() & (folds.number != fold)
    assert set(contributions.index.get_level_values(0)) == set(found.index[has])
    assert not lacking['held_out'].any()


def test_a_fold_without_a_model_costs_its_participants_only(cohort, model, fitted, monkeypatch):
    def fit_fold(data, options, gan, fold, checkpoint_dir):
        if fold == 2:
            raise DataError('no reason')
        return fitted.models[fold]

    monkeypatch.setattr(crossfit, 'fit_fold', fit_fold)
    folds, models = fit_folds(prepare_folds(cohort, OPTIONS), model, OPTIONS)
    found = cross_fit(cohort, model, folds, models)
    held_out = found.results['fold'] == 2
    reason = 'no model could be trained without fold 2: no reason'
    assert set(found.results.loc[held_out, 'reason']) == {reason}
    assert found.results.loc[~held_out, 'r1'].equals(fitted.results.loc[~held_out, 'r1'])
    assert found.note['NotHeldOut'] == held_out.sum()
    assert_they_add_up(found.contributions(cohort), found.results)
    nothing = replace(folds, failed=dict.fromkeys((1, 2, 3), 'no'))
    assert cross_fit(cohort, model, nothing, {}).contributions(cohort).empty


@pytest.mark.slow
def test_a_level_of_one_fold_only_is_no_reason_to_fail(tmp_path):
    study = make_study()
    study.people['sex'] = np.where(study.people.index == 'sub-004', 'O', study.people['sex'])
    study.people = study.people.rename(columns={'sex': 'hand'})
    config = make_config(write_dataset(tmp_path, study), covariates=('age', 'hand'))
    cohort = read_cohort(config.roi_table, config.bids_dir / 'participants.tsv', config)
    model = TableModel.fit(cohort, BRIEFLY)
    folds, models = fit_folds(prepare_folds(cohort, BRIEFLY), model, BRIEFLY)
    found = cross_fit(cohort, model, folds, models).results
    assert found.index[found['r1'].isna()].tolist() == ['sub-004']
    assert 'hand of this value' in found.loc['sub-004', 'reason']


def test_a_step_of_the_graph_assigns_the_same_folds(cohort, tmp_path):
    again = assign_folds(Cohort.load(cohort.save(tmp_path)), OPTIONS)
    pd.testing.assert_series_equal(again.number, prepare_folds(cohort, OPTIONS).number)


def test_seeds_of_parts_are_their_own(cohort, model):
    chosen = model.gan.selected_
    folds = [fold_options(OPTIONS, chosen, fold) for fold in (1, 2)]
    assert len({each.random_seed for each in (OPTIONS, *folds)}) == 3
    assert {each.n_patterns for each in folds} == {(chosen.n_patterns,)}


@pytest.mark.parametrize(
    ('medians', 'weak'), [([0.84], 1), ([0.86], 0), ([0.77, 0.9], 0), ([0.73, 0.9], 1)]
)
def test_one_pattern_alone_has_to_be_reproduced_better(medians, weak):
    """Without any disease, a single pattern reaches 0.84 in subsamples that share participants."""
    names = [f'r{number}' for number in range(1, len(medians) + 1)]
    card = {
        'PatternNames': names,
        'Selected': {'n_patterns': len(names), 'agreement': 0.9},
        'Reproducibility': {name: {'Median': each} for name, each in zip(names, medians)},
    }
    found = [each for each in doubts_of_model(card) if 'random subsamples' in each.found]
    assert len(found) == weak


def test_correlations_have_enough_digits_beside_their_limits():
    card = {
        'Reproducibility': {'r1': {'Median': 0.8479}},
        'CrossFit': {'LeastCorrelation': {'r1': 0.6998}},
    }
    in_folds, in_subsamples = [each.found for each in doubts_of_model(card)]
    assert 'r1 (correlation 0.6998); at least 0.7 is expected' in in_folds
    assert 'r1 (0.848); at least 0.85 is expected' in in_subsamples
