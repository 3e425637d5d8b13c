"""`surreal-gan plan` from the command line."""

import json

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.planning import verdict
from surreal_bids.cli.gan import main
from surreal_bids.simulation.population import sample_controls

REGIONS = 24
OUTPUTS = {'plan.tsv', 'plan.json', 'plan.svg'}
QUICK = ('--n-patterns', 1, '--sizes', '20+20', '15+20')


def run(*words) -> int:
    return main([str(word) for word in words])


@pytest.fixture(autouse=True)
def few_studies(monkeypatch):
    monkeypatch.setattr('surreal_bids.analysis.planning.FEWEST', 2)
    monkeypatch.setattr('surreal_bids.analysis.planning.MOST', 2)


@pytest.fixture
def table(tmp_path):
    """Controls and some patients."""
    drawn = sample_controls(48, np.random.default_rng(0))
    people = drawn.people.assign(
        participant_id=[f'sub-{k:02}' for k in range(48)], diagnosis=['CN'] * 40 + ['AD'] * 8
    )
    path = tmp_path / 'controls.tsv'
    people.join(drawn.volumes.iloc[:, :REGIONS]).to_csv(path, sep='\t', index=False)
    return path


@pytest.mark.slow
def test_a_plan_is_a_table_a_description_and_a_figure(table, tmp_path, capsys):
    out = tmp_path / 'plan'
    assert run('plan', table, '--out', out, *QUICK) == 0
    assert {path.name for path in out.iterdir() if path.name[0] != '.'} == OUTPUTS
    plan = pd.read_csv(out / 'plan.tsv', sep='\t')
    assert plan[['controls', 'patients']].to_numpy().tolist() == [[15, 20], [20, 20]]
    assert list(json.loads((out / 'plan.json').read_text())) == list(plan)
    # The sites are those of the controls, the regions a tenth of those of the table.
    assert (plan['sites'] == 3).all()
    assert (plan['n_regions'] == 2).all()
    assert plan[['reproducibility', 'c_index', 'reproduced']].to_numpy().max() <= 1
    shown = capsys.readouterr().out
    assert '40 controls' in shown
    assert 'not used: 8 for "diagnosis is AD' in shown
    assert verdict(plan) in shown


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_nothing_is_replaced_unasked(
    table, tmp_path, capsys
):
    out = tmp_path / 'plan'
    words = ('plan', table, '--out', out, *QUICK, '--sites', 1, '--random-seed', 3)
    assert run(*words) == 0
    before = {path.name: path.read_bytes() for path in out.glob('plan.*')}
    assert run(*words) == 73
    assert 'plan.tsv' in capsys.readouterr().err
    assert run(*words, '--overwrite') == 0
    assert {path.name: path.read_bytes() for path in out.glob('plan.*')} == before
    (out / 'plan.tsv').write_text('mine')
    assert run(*words, '--overwrite') == 73
    assert (out / 'plan.tsv').read_text() == 'mine'


@pytest.mark.parametrize('seed', range(4))
def test_bad_input_is_named(table, tmp_path, capsys, seed):
    rng = np.random.default_rng(seed)
    data, more, named = pd.read_csv(table, sep='\t'), [], ''
    region = rng.choice([name for name in data if name.startswith('MUSE')])
    if seed == 0:
        n = int(rng.integers(8, 20))
        data, named = data[:n], f'{n} controls'
    elif seed == 1:
        data, named = data.drop(columns=[name for name in data if 'MUSE' in name]), 'controls.tsv'
    elif seed == 2:
        more, named = ['--n-patterns', int(rng.integers(4, 30))], '--n-patterns'
    else:
        data = data.astype({region: object})
        data.loc[rng.integers(40), region] = 'x1'
        named = region
    data.to_csv(table, sep='\t', index=False)
    assert run('plan', table, '--out', tmp_path / 'plan', *QUICK, *more) in (2, 65)
    assert named in capsys.readouterr().err
    assert not (tmp_path / 'plan').exists()


def test_sizes_are_numbers_of_controls_and_patients(table, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run('plan', table, '--out', tmp_path / 'plan', '--sizes', '60x90')
    assert '60x90' in capsys.readouterr().err
    assert run('plan', table, '--out', tmp_path / 'plan', *QUICK, '--random-seed', -1) == 2
    assert '--random-seed' in capsys.readouterr().err
