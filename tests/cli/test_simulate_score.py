import numpy as np
import pandas as pd
import pytest

from surreal_bids.cli.simulate import main
from surreal_bids.files import write_tsv
from surreal_bids.stats.concordance import pattern_c_index

PEOPLE = [f'sub-{k:02d}' for k in range(12)]


@pytest.fixture
def truth(tmp_path):
    rng = np.random.default_rng(0)
    severities = rng.uniform(0.01, 1, (12, 2))
    severities[:4] = 0
    table = pd.DataFrame(severities, columns=['r1', 'r2']).assign(participant_id=PEOPLE)
    return table, write_tsv(tmp_path / 'severities.tsv', table)


@pytest.mark.parametrize('order', [['r1', 'r2'], ['r2', 'r1']])
@pytest.mark.parametrize('shuffle', [False, True])
def test_patterns_and_people_in_any_order_score_perfectly(tmp_path, truth, capsys, order, shuffle):
    table, path = truth
    estimates = table.rename(columns=dict(zip(['r1', 'r2'], order)))
    if shuffle:
        estimates = estimates.iloc[::-1]
    rindices = write_tsv(tmp_path / 'rindices.tsv', estimates)
    assert main(['score', str(rindices), str(path)]) == 0
    printed = capsys.readouterr().out
    assert '8 patients' in printed
    assert f'true r1: {order[0]}, c-index 1.000' in printed
    assert 'pattern-c-index 1.000' in printed


def test_the_mean_is_the_pattern_c_index_of_the_patients(tmp_path, truth, capsys):
    table, path = truth
    rng = np.random.default_rng(1)
    noisy = table[['r1', 'r2']] + rng.normal(0, 0.3, (12, 2))
    rindices = write_tsv(tmp_path / 'rindices.tsv', noisy.assign(participant_id=PEOPLE))
    assert main(['score', str(rindices), str(path)]) == 0
    expected = pattern_c_index(noisy.iloc[4:], table[['r1', 'r2']].iloc[4:])
    assert f'pattern-c-index {expected:.3f}' in capsys.readouterr().out


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda t: t.assign(participant_id=[f'sub-x{k}' for k in range(12)]), '0 patients'),
        (lambda t: t.rename(columns={'r1': 'a', 'r2': 'b'}), 'no column r1, r2'),
    ],
)
def test_tables_that_do_not_belong_together_are_an_error(tmp_path, truth, capsys, change, message):
    table, path = truth
    rindices = write_tsv(tmp_path / 'rindices.tsv', change(table))
    assert main(['score', str(rindices), str(path)]) == 65
    assert message in capsys.readouterr().err
