"""Every experiment of the paper on one task, with tiny numbers, as the command line runs it."""

import numpy as np
import pandas as pd
import paper
import pytest
from reproduction import experiments as plans
from reproduction.experiments import simulate_people, split_folds, split_halves

TINY = plans.Plan(
    label='quick',
    n_cn=20,
    n_pt=32,
    all_people=plans.Schedule((0.2, 0.6), 3, 4),
    folds=plans.Schedule((0.4,), 2, 3),
    halves=plans.Schedule((0.4,), 3, 3),
    variants=plans.Schedule((), 2, 3),
    factors=(0.5, 1.5),
    n_components=(3, 5),
    baseline_seeds=1,
    n_folds=2,
    changes={'extra_iterations': 0.0},
)


@pytest.mark.slow
def test_every_experiment_stands_beside_the_paper_and_resumes(tmp_path, monkeypatch, few_draws):
    monkeypatch.setattr(paper, 'quick_plan', lambda: TINY)
    command = [str(tmp_path), *['--quick', '--device', 'cpu', '--tasks', 'basic']]
    assert paper.main(command) == 0
    tables = {
        path.stem: pd.read_csv(path, sep='\t', na_values='n/a') for path in tmp_path.glob('*.tsv')
    }
    assert {name: len(table) for name, table in tables.items()} == {
        'table1': 9,
        'fig2': 2,
        'table7': 7,
        'table6': 8,
        'robustness': 22,
        'split_half': 1,
    }
    for name, table in tables.items():
        assert table['setting'].str.startswith('quick: 20 + 32 people').all(), name
        assert table['setting'].str.contains('not comparable').all(), name
    for name in ('table1', 'table7', 'table6'):
        method = tables[name]['method']
        ours_alone = method.str.contains(', ') | (method == 'sparse factors')
        assert tables[name]['paper'].isna().equals(ours_alone), name
        assert tables[name]['c_index'].between(0.3, 1).all(), name
    monkeypatch.setattr('reproduction.experiments.train', lambda *_: pytest.fail('again'))
    assert paper.main([*command, '--experiments', 'table1']) == 0
    again = pd.read_csv(tmp_path / 'table1.tsv', sep='\t', na_values='n/a')
    pd.testing.assert_frame_equal(again, tables['table1'])
    assert paper.main([*command, '--seed', '1']) != 0, 'the folder holds results of another seed'


def test_parts_never_share_a_person_and_are_scaled_by_their_own_controls():
    is_patient = np.arange(53) >= 20
    for train_rows, test_rows in split_folds(is_patient, 5, seed=3):
        assert sorted([*train_rows, *test_rows]) == list(range(53))
        assert 0 < is_patient[test_rows].mean() < 1
    assert sorted(np.concatenate(split_halves(is_patient, seed=1))) == list(range(53))
    people, rows = simulate_people('basic', 30, 20, seed=0, controls=None), np.arange(10, 40)
    before = people.normalised(rows)
    people.volumes[:10] *= 3
    np.testing.assert_array_equal(people.normalised(rows)[10:], before[10:])
