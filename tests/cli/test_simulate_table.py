import argparse
import hashlib

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cli.simulate import add_table_parser
from surreal_bids.exceptions import DataError, OutputError
from surreal_bids.simulation.population import draw_controls


def run(*words) -> int:
    parser = argparse.ArgumentParser()
    add_table_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args(['table', *map(str, words)])
    return arguments.run(arguments)


def checksums(folder) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


SMALL = ('--n-cn', 4, '--n-pt', 6)


@pytest.fixture
def cn_table(tmp_path):
    controls = draw_controls(10, np.random.default_rng(0))
    path = tmp_path / 'cn.csv'
    pd.concat([controls.people, controls.volumes], axis=1).to_csv(path, index=False)
    return path


@pytest.mark.parametrize('task', ['basic', 'overlap', 'scarce', 'noise', 'mild'])
def test_tables_are_written_and_announced(tmp_path, capsys, task):
    out = tmp_path / 'new' / 'folder'
    assert run(out, '--task', task, *SMALL) == 0
    assert {path.stem for path in out.iterdir()} == {
        'dataset_description',
        'participants',
        'roi_volumes',
        'severities',
        'simulation',
    }
    captured = capsys.readouterr()
    assert str(out / 'roi_volumes.tsv') in captured.out
    assert captured.err == ''


@pytest.mark.parametrize('numbers', [(), ('--n-cn', 7), ('--n-pt', 11)])
def test_numbers_of_the_paper_are_the_default(tmp_path, numbers):
    run(tmp_path / 'out', *numbers)
    groups = pd.read_csv(tmp_path / 'out' / 'participants.tsv', sep='\t')['diagnosis']
    expected = {'--n-cn': 492, '--n-pt': 900} | dict([numbers] if numbers else [])
    assert groups.value_counts().to_dict() == {'CN': expected['--n-cn'], 'PT': expected['--n-pt']}


def test_the_same_simulation_may_be_repeated_and_gives_the_same_bytes(tmp_path):
    out = tmp_path / 'out'
    run(out, *SMALL, '--seed', 3)
    before = checksums(out)
    (out / 'severities.tsv').unlink()
    assert run(out, *SMALL, '--seed', 3) == 0
    assert checksums(out) == before


@pytest.mark.parametrize('change', [('--seed', 4), ('--task', 'mild'), ('--n-cn', 5)])
def test_another_simulation_is_overwritten_only_on_demand(tmp_path, change):
    out = tmp_path / 'out'
    run(out, *SMALL)
    before = checksums(out)
    with pytest.raises(OutputError, match='--overwrite'):
        run(out, *SMALL, *change)
    assert checksums(out) == before
    assert run(out, *SMALL, *change, '--overwrite') == 0
    assert checksums(out) != before


@pytest.mark.parametrize('content', [None, '{}', 'no json'])
def test_a_folder_of_someone_else_is_left_alone(tmp_path, content):
    (tmp_path / 'thesis.txt').write_text('years of work')
    if content is not None:
        (tmp_path / 'simulation.json').write_text(content)
    before = checksums(tmp_path)
    with pytest.raises(OutputError, match='something else'):
        run(tmp_path, *SMALL)
    assert checksums(tmp_path) == before


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    (tmp_path / 'out').write_text('')
    with pytest.raises(OutputError, match='a file of this name'):
        run(tmp_path / 'out', *SMALL)


def test_controls_come_from_a_table(tmp_path, cn_table):
    run(tmp_path / 'out', *SMALL, '--from-table', cn_table)
    people = pd.read_csv(tmp_path / 'out' / 'participants.tsv', sep='\t')
    assert sorted(people['age']) == sorted(pd.read_csv(cn_table)['age'])


def test_more_than_the_table_holds_needs_resampling(tmp_path, cn_table):
    wanted = (tmp_path / 'out', '--n-cn', 8, '--n-pt', 9, '--from-table', cn_table)
    with pytest.raises(DataError, match='--resample gaussian'):
        run(*wanted)
    assert not (tmp_path / 'out').exists()
    assert run(*wanted, '--resample', 'gaussian') == 0
    assert len(pd.read_csv(tmp_path / 'out' / 'roi_volumes.tsv', sep='\t')) == 17


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(DataError, match=r'nowhere\.csv'):
        run(tmp_path / 'out', '--from-table', tmp_path / 'nowhere.csv')
