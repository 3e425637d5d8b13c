from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import torch

from surreal_bids.analysis import patterns
from surreal_bids.analysis.engine import Analysis
from surreal_bids.analysis.outputs import summarise_cohort, write_tables
from surreal_bids.analysis.patterns import (
    LEAST_CHANGE,
    PATTERN_COLUMNS,
    describe_patterns,
    paint_regions,
    values_by_region,
)
from surreal_bids.analysis.statistics import associate
from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.config import TrainingOptions
from surreal_bids.model.training import pattern_changes
from surreal_bids.rindices.model import (
    TableModel,
    prepare,
    select_model,
    train_patterns,
)
from tests.analysis.group_study import make_config, write_dataset

SETTINGS = TrainingOptions(
    preset='correlated',
    n_patterns=(2, 3),
    ortho=(0.2,),
    repetitions=2,
    iterations=120,
    device='cpu',
)


@pytest.fixture(scope='module')
def cohort(tmp_path_factory):
    config = make_config(write_dataset(tmp_path_factory.mktemp('study')))
    return read_cohort(config.roi_table, config.bids_dir / 'participants.tsv', config)


@pytest.fixture(scope='module')
def selected(cohort, tmp_path_factory):
    model = TableModel.fit(cohort, SETTINGS, tmp_path_factory.mktemp('checkpoints'))
    return model, model.apply(cohort)


@pytest.mark.slow
def test_trained_side_by_side_is_trained_together(cohort, selected, tmp_path):
    data = prepare(Cohort.load(cohort.save(tmp_path / 'cohort')))
    paths = [train_patterns(data, SETTINGS, m, tmp_path) for m in (3, 2)]
    before = [path.read_bytes() for path in paths]
    model = select_model(data, SETTINGS, tmp_path)
    assert [path.read_bytes() for path in paths] == before
    pd.testing.assert_frame_equal(model.apply(cohort), selected[1])
    assert model.gan.selected_ == selected[0].gan.selected_


@pytest.mark.parametrize('n_people', [5, 600])
def test_changes_are_the_mean_of_what_the_decomposer_says(n_people):
    generator = torch.Generator().manual_seed(0)
    weights = {
        'g1.weight': torch.randn(3, 6, 12, generator=generator),
        'g1.weight_bias': torch.randn(3, 1, 12, generator=generator),
    }
    people = torch.randn(n_people, 6, generator=generator)
    found = pattern_changes(weights, people)
    leaky = np.where(people < 0, 0.2 * people, people)
    for member in range(3):
        matrix, bias = weights['g1.weight'][member].numpy(), weights['g1.weight_bias'][member, 0]
        expected = (leaky @ matrix + bias.numpy()).mean(axis=0).reshape(2, 6)
        np.testing.assert_allclose(found[member], expected, atol=1e-5)


@pytest.mark.slow
def test_the_table_of_patterns_has_a_row_a_region_and_pattern(cohort, selected):
    model = selected[0]
    people = cohort.select(cohort.is_patient)
    contributions = model.contributions(people.features, people.people)
    table = describe_patterns(model, people, contributions)
    assert list(table) == PATTERN_COLUMNS
    assert len(table) == len(model.pattern_names) * len(cohort.wanted)
    relative = model.preprocessing.normaliser.sd_ / model.preprocessing.normaliser.mean_
    expected = np.tile(100 * relative, len(model.pattern_names)) * table['change_sd']
    np.testing.assert_allclose(table['change_percent'], expected)
    clear = table['change_sd'].abs() > np.fmax(table['change_sd_spread'], LEAST_CHANGE)
    assert clear[table['shown']].all()
    assert set(table['shown']) == {True, False}


@pytest.mark.slow
def test_a_clear_loss_is_shown_whatever_it_contributes(cohort, selected, monkeypatch):
    """Where another pattern shares the region, the R-index may hardly depend on it."""
    model = selected[0]
    people = cohort.select(cohort.is_patient)
    contributions = 0 * model.contributions(people.features, people.people)
    change = np.zeros((1, len(model.pattern_names), len(cohort.wanted)))
    change[..., :4] = -0.35, -0.25, 0.55, 0.65
    monkeypatch.setattr(patterns, '_changes', lambda *_: change)
    table = describe_patterns(model, people, contributions)
    assert list(table['shown'][:5]) == [True, False, False, True, False]


def test_the_spread_over_folds_is_that_of_matched_patterns(cohort, monkeypatch):
    """Fold 2 has the patterns in another order."""
    changes = {1: [[1.0, 2.0], [5.0, 6.0]], 2: [[5.0, 9.0], [3.0, 2.0]]}
    models = {fold: SimpleNamespace(pattern_names=('r1', 'r2'), fold=fold) for fold in changes}
    names = {1: {'r1': 'r1', 'r2': 'r2'}, 2: {'r2': 'r1', 'r1': 'r2'}}
    monkeypatch.setattr(patterns, '_changes', lambda one, _: np.array([changes[one.fold]]))
    fitted = SimpleNamespace(models=models, names=names)
    found = patterns._spread_of_folds(fitted, cohort, ['r1', 'r2'])
    np.testing.assert_allclose(found, [[1, 0], [0, 1.5]])


def test_regions_are_painted_with_their_values():
    labels = nib.Nifti1Image(np.arange(24, dtype=np.int16).reshape(2, 3, 4), np.eye(4))
    table = pd.DataFrame({'muse_regions': ['3 5', '7', None], 'change_sd': [-10.0, 4, 9]})
    image = paint_regions(labels, values_by_region(table) | {500: 1.0})
    expected = np.zeros(24)
    expected[[3, 5]], expected[7] = -10, 4
    np.testing.assert_array_equal(np.asarray(image.dataobj).ravel(), expected)


@pytest.mark.slow
def test_other_groups_are_scored_and_shown_and_excluded_participants_have_a_reason(
    cohort, selected, tmp_path
):
    model = selected[0]
    is_other = np.arange(len(cohort)) % 10 == 5
    apart = cohort.select(is_other)
    apart = replace(apart, visits=apart.visits.assign(group='MCI'))
    out = pd.DataFrame({'participant_id': ['sub-999'], 'reason': ['no volumes']}, ['sub-999'])
    main = replace(cohort.select(~is_other), apart=apart, exclusions=out)
    found = Analysis(cohort=main, model=model, results=model.apply(main), adapted=False)
    assert f', {len(apart)} MCI' in summarise_cohort(main)
    names = ('rindices', 'contributions', 'deviations', 'harmonized_volumes', 'statistics')
    write_tables(found, {name: tmp_path / f'{name}.tsv' for name in names})
    read = partial(pd.read_csv, sep='\t', index_col='participant_id')
    table = read(tmp_path / 'rindices.tsv')
    assert table['group'].value_counts()['MCI'] == len(apart)
    assert table.loc['sub-999', ['status', 'reason']].tolist() == ['excluded', 'no volumes']
    everyone = table.drop('sub-999')
    expected = selected[1].loc[everyone.index, list(model.pattern_names)]
    np.testing.assert_allclose(everyone[list(model.pattern_names)], expected, atol=1e-6)
    for name in names[1:4]:
        assert set(apart.visits.index) <= set(read(tmp_path / f'{name}.tsv').index)
    assert 'MCI' in found.differences
    compared = pd.read_csv(tmp_path / 'statistics.tsv', sep='\t')
    assert compared.loc[compared['analysis'] == 'group difference', 'n'].max() == len(main)


@pytest.mark.slow
def test_other_groups_have_associations_with_the_same_adjustments(cohort, selected, tmp_path):
    model, results = selected
    is_other = np.arange(len(cohort)) % 3 == 0
    score = pd.DataFrame({'score': results['r1'].round(4).map(str)}, cohort.visits.index)
    cohort = replace(cohort, others=score)
    apart = cohort.select(is_other)
    apart = replace(apart, visits=apart.visits.assign(group='MCI'))
    main = replace(cohort.select(~is_other), apart=apart)
    found = Analysis(cohort=main, model=model, results=model.apply(main), adapted=False)
    write_tables(found, {'statistics': tmp_path / 'statistics.tsv'})
    table = pd.read_csv(tmp_path / 'statistics.tsv', sep='\t')
    table = table[table['analysis'] == 'association'].set_index(['group', 'index'])
    assert set(table.index.get_level_values('group')) == {'patients', 'MCI'}
    assert table.loc[('MCI', 'r1'), 'estimate'] == pytest.approx(1, abs=0.01)
    covariates, measures = apart.covariates_and_measures()
    alone, _ = associate(measures, results.loc[apart.visits.index, found.names], covariates)
    np.testing.assert_allclose(table.loc['MCI', 'p_corrected'], alone['p_corrected'], rtol=1e-5)
    adjusted = found.associations_of_others['adjusted_for']
    assert set(adjusted) == set(found.associations['adjusted_for'])
    assert (found.associations_of_others['group'] == 'MCI').all()


@pytest.mark.slow
def test_visits_stay_in_the_order_of_time_if_someone_is_excluded(cohort, selected, tmp_path):
    """Tables are by participant as measured, where the name of the second visit may come first."""
    before, after = cohort.visits.index[:2]
    people = cohort.visits['participant_id'].replace(after, before)
    visits = cohort.visits.assign(participant_id=people)
    out = pd.DataFrame({'participant_id': ['sub-999'], 'reason': ['no volumes']}, ['sub-999'])
    main = replace(cohort, visits=visits, measured=visits.iloc[::-1], exclusions=out)
    results = selected[0].apply(cohort)
    found = Analysis(cohort=main, model=selected[0], results=results, adapted=False)
    write_tables(found, {'rindices': tmp_path / 'rindices.tsv'})
    table = pd.read_csv(tmp_path / 'rindices.tsv', sep='\t')
    written = table.loc[table['participant_id'] == before, 'r1']
    np.testing.assert_allclose(written, results.loc[[before, after], 'r1'], atol=1e-6)
