import itertools
import json
import multiprocessing
from pathlib import Path

import numpy as np
import pandas as pd
import paper
import pytest
from baselines import BASELINES
from reproduction import experiments, reference
from reproduction import plan as plans
from reproduction.experiments import run_unit
from reproduction.people import simulate_people, split_folds, split_halves
from reproduction.study import Study, run_units
from reproduction.tables import chosen_accuracies, spread

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.simulation.tables import TASKS
from surreal_bids.stats.concordance import concordance_matrix, pattern_c_index
from tests.conftest import drawing_few

BRIEFLY = plans.Schedule((0.2, 0.6), 3, 4)
TINY = plans.Plan(
    label='quick',
    n_cn=20,
    n_pt=32,
    all_people=BRIEFLY,
    folds=plans.Schedule((0.4,), 2, 3),
    halves=plans.Schedule((0.4,), 3, 3),
    variants=plans.Schedule((), 2, 3),
    factors=(0.5, 1.5),
    n_components=(3, 5),
    baseline_seeds=1,
    n_folds=2,
    changes={'extra_iterations': 0.0},
)
ALONE = ['--quick', '--device', 'cpu', '--jobs', '1']
TASKS_TRIED = ['basic', 'scarce']
METHODS = {'Surreal-GAN', *BASELINES}
COLUMNS = {
    'table1': ['task', 'method', 'c_index', 'sd', 'n', 'paper', 'paper_sd'],
    'fig2': ['task', 'ortho', 'c_index', 'c_index_se', 'agreement', 'agreement_se', 'n'],
    'fig2_correlation': ['task', 'pearson', 'spearman', 'n'],
    'table7': ['task', 'method', 'n_components', 'c_index', 'sd', 'n', 'paper', 'paper_sd'],
    'table6': ['task', 'method', 'part', 'c_index', 'sd', 'n', 'paper', 'paper_sd'],
    'robustness': ['panel', 'task', 'changed', 'factor', 'ortho', 'c_index', 'c_index_se'],
    'split_half': ['task', 'agreement_between_halves', 'agreement_within_half_1'],
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    """Every experiment on two tasks, with tiny numbers, as the command line runs it."""
    out = tmp_path_factory.mktemp('paper') / 'out'
    with pytest.MonkeyPatch.context() as patch, drawing_few():
        patch.setattr(paper, 'quick_plan', lambda: TINY)
        code = paper.main(
            [str(out), '--quick', '--device', 'cpu', '--jobs', '1', '--tasks', *TASKS_TRIED]
        )
    assert code == 0
    return out


def read(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / f'{name}.tsv', sep='\t', na_values='n/a')


@pytest.mark.slow
@pytest.mark.parametrize('name', COLUMNS)
def test_tables_have_their_columns_and_say_that_they_are_quick(folder, name):
    table = read(folder, name)
    assert list(table.columns[: len(COLUMNS[name])]) == COLUMNS[name]
    assert table['setting'].str.startswith('quick: 20 + 32 people').all()
    assert table['setting'].str.contains('not comparable').all()
    assert {'commit', 'machine', 'torch', 'preset', 'seed'} <= set(table.columns)


@pytest.mark.slow
@pytest.mark.parametrize('experiment', plans.EXPERIMENTS)
def test_figures_are_there_and_say_that_they_are_quick(folder, experiment):
    assert (folder / f'{experiment}.png').read_bytes().startswith(b'\x89PNG')
    assert '<!-- ' in (text := (folder / f'{experiment}.svg').read_text())
    assert 'quick: 20 + 32 people' in text


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'rows'), [('table1', 2 * 9), ('table7', 2 * 7), ('table6', 16)])
def test_every_row_stands_beside_the_paper(folder, name, rows):
    table = read(folder, name)
    assert len(table) == rows
    assert table['c_index'].between(0.3, 1).all()
    ours_alone = table['method'].str.contains(', ') | (table['method'] == 'sparse factors')
    assert table.loc[~ours_alone, 'paper'].notna().all()
    assert table.loc[ours_alone, 'paper'].isna().all()


@pytest.mark.slow
def test_no_correlation_is_told_of_two_lambdas(folder):
    table = read(folder, 'fig2_correlation').set_index('task')
    assert table.loc[TASKS_TRIED, 'pearson'].isna().all()
    assert np.isfinite(table.loc['all', 'pearson'])
    assert table.loc['all', 'n'] == 4


@pytest.mark.slow
def test_upper_bounds_are_at_least_the_accuracies_of_table_1(folder):
    first, bounds = (
        read(folder, name).set_index(['task', 'method'])
        for name in COLUMNS
        if name in ('table1', 'table7')
    )
    assert (bounds['c_index'] >= first.loc[bounds.index, 'c_index'] - 1e-9).all()


@pytest.mark.slow
def test_robustness_holds_every_variant_of_the_easy_task(folder):
    table = read(folder, 'robustness')
    assert set(table['task']) == {'basic'}
    scaled = table[table['panel'] == 'scaled']
    assert scaled.groupby('changed')['factor'].apply(list).to_dict() == {
        name: [0.5, 1.0, 1.5] for name in plans.HYPER_PARAMETERS
    }
    removed = table[table['panel'] == 'removed'].set_index('changed')
    assert set(removed.index) == {'as-preset', *plans.REMOVED_TERMS}
    assert (removed.loc[['no-orthogonality', 'pseudo-smile-gan'], 'ortho'] == 0).all()
    assert (removed.loc['no-cn', 'ortho'] > 0).all()


@pytest.mark.slow
def test_a_second_run_trains_nothing_and_gives_the_same_tables(folder, monkeypatch, capsys):
    before = read(folder, 'table1')
    monkeypatch.setattr(paper, 'quick_plan', lambda: TINY)
    monkeypatch.setattr(paper, 'run_unit', lambda study, unit: pytest.fail(f'{unit} again'))
    command = [
        str(folder),
        '--quick',
        '--experiments',
        'table1',
        '--tasks',
        *TASKS_TRIED,
        '--jobs',
        '1',
    ]
    assert paper.main(command) == 0
    pd.testing.assert_frame_equal(read(folder, 'table1'), before)
    assert 'not comparable with the paper' in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize('other', [['--seed', '1'], ['--preset', 'iclr2022']])
def test_a_folder_of_other_settings_is_refused(folder, monkeypatch, capsys, other):
    monkeypatch.setattr(paper, 'quick_plan', lambda: TINY)
    assert paper.main([str(folder), '--quick', *other]) == UsageError.exit_code
    assert f'another {other[0].strip("-")}' in capsys.readouterr().err


def tiny_study(folder: Path) -> Study:
    study = Study(folder, TINY, 'robust', 0, 'cpu')
    study.open()
    return study


def test_an_interrupted_run_goes_on_with_the_units_that_are_missing(tmp_path):
    study = tiny_study(tmp_path)
    todo = [plans.Unit('half', 'basic', (k,)) for k in range(3)]

    def interrupted(study, unit):
        if unit.what == (1,):
            raise KeyboardInterrupt
        return {'accuracy': 0.5}

    with pytest.raises(KeyboardInterrupt):
        run_units(study, todo, interrupted, 1)
    assert run_units(study, todo, lambda study, unit: {'accuracy': 0.7}, 1) == todo[1:]
    assert [study.result(unit)['accuracy'] for unit in todo] == [0.5, 0.7, 0.7]


def test_two_processes_find_what_one_finds(tmp_path, monkeypatch):
    # Spawned processes would import everything again, which takes ten seconds.
    forked = multiprocessing.get_context('fork')
    monkeypatch.setattr('multiprocessing.get_context', lambda _: forked)
    todo = [plans.Unit('baseline', 'mild', (name, 3)) for name in ('NMF', 'FA')]
    found = []
    for n_jobs in (1, 2):
        study = tiny_study(tmp_path / str(n_jobs))
        assert run_units(study, todo, run_unit, n_jobs) == todo
        found.append([study.result(unit)['accuracies'] for unit in todo])
    assert found[0] == found[1]


def test_a_unit_that_cannot_be_done_is_kept_with_the_reason_and_left_out(tmp_path):
    study, unit = tiny_study(tmp_path), plans.Unit('half', 'mild', (0,))

    def fail(study, unit):
        raise DataError('too few members trained well')

    run_units(study, [unit], fail, 1)
    assert study.result(unit) is None
    kept = json.loads((tmp_path / 'units' / 'half_mild_0.json').read_text())
    assert kept['failed'] == 'too few members trained well'
    assert run_units(study, [unit], fail, 1) == []


@pytest.mark.parametrize('n_components', [3, 4, 7, 10])
def test_assignment_finds_the_best_triple_of_components(n_components):
    rng = np.random.default_rng(n_components)
    truth = rng.uniform(size=(40, 3))
    mixed = truth @ rng.normal(size=(3, n_components))
    components = mixed + rng.normal(size=(40, n_components))
    similarity = concordance_matrix(components, truth)
    triples = itertools.permutations(range(n_components), 3)
    best = max(similarity[list(triple), [0, 1, 2]].mean() for triple in triples)
    assert pattern_c_index(components, truth) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize('n_folds', [2, 5])
def test_folds_never_share_a_person_and_hold_everyone_once(n_folds):
    is_patient = np.arange(53) >= 20
    folds = split_folds(is_patient, n_folds, seed=3)
    for train_rows, test_rows in folds:
        assert not set(train_rows) & set(test_rows)
        assert set(train_rows) | set(test_rows) == set(range(53))
        assert 0 < is_patient[test_rows].mean() < 1
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(53))


@pytest.mark.parametrize('seed', range(3))
def test_halves_and_the_people_held_out_never_share_a_person(seed):
    is_patient = np.arange(83) >= 30
    parts = split_halves(is_patient, seed)
    assert sorted(np.concatenate(parts)) == list(range(83))
    assert abs(len(parts[0]) - len(parts[1])) <= 1
    assert all(0 < is_patient[part].sum() < len(part) for part in parts)


def test_the_two_halves_start_from_different_members(tmp_path, monkeypatch):
    seeds = []

    def record(recipe, X, is_patient):
        seeds.append(recipe.seed)
        raise DataError('recorded')

    monkeypatch.setattr(experiments, 'train', record)
    run_units(tiny_study(tmp_path), plans.units_of('split_half', 'basic', TINY), run_unit, 1)
    assert len(set(seeds)) == 2


def test_normalisation_asks_only_the_controls_of_the_training_people():
    people = simulate_people('basic', 30, 20, seed=0, controls=None)
    rows = np.arange(10, 40)
    before = people.normalised(rows)
    people.volumes[:10] *= 3
    np.testing.assert_array_equal(people.normalised(rows)[10:], before[10:])
    np.testing.assert_allclose(before[10:30].mean(axis=0), 1)


@pytest.mark.parametrize('experiment', plans.EXPERIMENTS)
@pytest.mark.parametrize('plan', [plans.quick_plan(), plans.full_plan('iclr2022')])
def test_units_of_an_experiment_have_names_of_their_own(experiment, plan):
    units = plans.units([experiment], TASKS, plan)
    assert len({unit.name for unit in units}) == len(units) > 0
    assert set(units) <= set(plans.units(plans.EXPERIMENTS, TASKS, plan))


@pytest.mark.parametrize('preset', plans.FULL_ITERATIONS)
def test_the_full_plan_is_the_paper_s(preset):
    plan = plans.full_plan(preset)
    assert (plan.n_cn, plan.n_pt, plan.n_folds) == (492, 900, 5)
    assert plan.n_components == (3, 4, 5, 6, 7, 8, 9, 10)
    assert plan.all_people.ortho == (0.1, 0.2, 0.4, 0.6, 0.8)
    assert plan.all_people.repetitions == 10
    assert 'not comparable' not in plan.describe('table1')


@pytest.mark.parametrize(
    ('experiment', 'trained'),
    [
        ('table1', '2 lambdas x 3 members x 4 iterations'),
        ('table6', '1 lambda x 2 members x 3 iterations'),
        ('split_half', '1 lambda x 3 members x 3 iterations'),
        ('robustness', '1 lambda x 2 members x 3 iterations'),
    ],
)
def test_every_output_says_how_long_its_own_members_were_trained(experiment, trained):
    text = TINY.describe(experiment)
    assert text == f'quick: 20 + 32 people, {trained}; not comparable with the paper'


@pytest.mark.parametrize('table', [reference.TABLE_1, reference.TABLE_7])
def test_the_paper_s_tables_are_whole(table):
    of_the_paper = [name for name in METHODS if name != 'sparse factors']
    assert set(table) == set(itertools.product(TASKS, of_the_paper))


def test_the_paper_s_first_row_and_last_entry_are_as_printed():
    assert reference.TABLE_1['basic', 'Surreal-GAN'] == (0.838, 0.011)
    assert reference.TABLE_7['mild', 'DNMF'] == (0.571, 0.015)
    assert reference.TABLE_6['mild', ('SVR', 'test')] == (0.811, 0.005)
    assert len(reference.TABLE_6) == 30


def test_mean_and_spread_are_those_of_the_chosen_lambda():
    settings = [
        {'ortho': 0.1, 'accuracies': [0.6, 0.8]},
        {'ortho': 0.4, 'accuracies': [0.7, 0.8, 0.9]},
    ]
    row = spread(chosen_accuracies({'ortho': 0.4, 'settings': settings}))
    assert row == {'c_index': pytest.approx(0.8), 'sd': pytest.approx(0.1), 'n': 3}
