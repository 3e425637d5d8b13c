import json
import re
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from surreal_bids import Cohort
from surreal_bids.cli.gan import main
from surreal_bids.exceptions import DataError
from surreal_bids.published import NAMES, find_model
from surreal_bids.regions import build_features, feature_set, recognise
from surreal_bids.rindices.limits import NO_SITES
from surreal_bids.rindices.model import TableModel
from surreal_bids.simulation.tables import simulate_table
from tests.shared_data import shared_data

pytestmark = pytest.mark.usefixtures('undrawn_figures')

OFFICIAL = {
    'ad': ('ad_2rindices', ('sex', 'age'), 15000),
    'ageing': ('brain_aging_5rindices', ('sex', 'icv'), 50000),
}
BENCHMARKS = Path(__file__).parents[1] / 'benchmarks'
CHECKPOINTS = json.loads((BENCHMARKS / 'checkpoints.json').read_text())
CHECKPOINTS_OF = dict(zip(OFFICIAL, CHECKPOINTS.values()))
SPELLINGS = {
    'age': ('age', 'Age', 'AGE_AT_SCAN', 'age_years'),
    'sex': ('sex', 'Sex', 'PTGENDER', 'gender'),
    'icv': ('icv', 'DLICV', 'MUSE_702', '702', 'MUSE_Volume_702', 'eTIV'),
}


@pytest.fixture(scope='module')
def simulated():
    return simulate_table('basic', n_cn=12, n_pt=20, seed=5)


def test_a_folder_of_the_user_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_model('ad') != Path('ad')
    Path('ad').mkdir()
    assert find_model('ad') == Path('ad')
    with pytest.raises(DataError, match='ad is not a model'):
        TableModel.load('ad')
    assert find_model(tmp_path / 'ageing') == tmp_path / 'ageing'


def test_unknown_names_list_the_published_models(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = 'agein'
    assert main(['card', name]) == 65
    error = capsys.readouterr().err
    assert name in error
    assert all(each in error for each in NAMES)


@pytest.mark.slow
@pytest.mark.parametrize('name', OFFICIAL)
def test_r_indices_equal_those_of_the_authors_program(tmp_path, monkeypatch, simulated, name):
    pytest.importorskip('SurrealGAN', reason='SurrealGAN 0.1.1 is not installed')
    # It needs lifelines to compare models, which this test does not do.
    lifelines = SimpleNamespace(concordance_index=None)
    monkeypatch.setitem(sys.modules, 'lifelines', SimpleNamespace(utils=lifelines))
    monkeypatch.setitem(sys.modules, 'lifelines.utils', lifelines)
    program = pytest.importorskip('SurrealGAN.utils')
    file, covariates, epoch = OFFICIAL[name]
    path = shared_data(f'official/{file}.pt')
    people = simulated.participants.set_index('participant_id')
    volumes = simulated.volumes.set_index('participant_id')
    features = build_features(volumes, feature_set('muse72'))
    numbers = people.assign(sex=(people['sex'] == 'M').astype(float))[list(covariates)]
    ids = {'participant_id': features.index, 'diagnosis': 1}
    tables = [table.reset_index(drop=True).assign(**ids) for table in (features, numbers)]
    monkeypatch.syspath_prepend(BENCHMARKS)
    allowed = import_module('import_checkpoint').ALLOWED
    with torch.serialization.safe_globals(allowed):
        expected = program.apply_saved_model(str(path), tables[0], epoch, tables[1])
    write(tmp_path, simulated)
    found = apply(tmp_path, name)
    page = (tmp_path / 'rindices_report' / 'group.html').read_text()
    assert len(re.findall(r'>F \d+%, M \d+%</td>', page)) == 2, 'sex is shown as in the table'
    assert np.abs(found[list(CHECKPOINTS_OF[name]['order'])].to_numpy() - expected).max() < 1e-5


def write(folder, simulated, rng=None) -> None:
    """Write both tables; with a generator of random numbers, columns are spelled at random."""
    people = simulated.participants
    if rng is not None:
        people = people.rename(columns={key: rng.choice(SPELLINGS[key]) for key in SPELLINGS})
    people.to_csv(folder / 'participants.csv', index=False)
    simulated.volumes.drop(columns='icv', errors='ignore').to_csv(
        folder / 'volumes.csv', index=False
    )


def apply(folder, model, *more) -> pd.DataFrame:
    tables = [folder / 'volumes.csv', '--participants', folder / 'participants.csv']
    out = folder / 'rindices.tsv'
    words = ['apply', *tables, '--model', model, '--out', out, '--overwrite', *more]
    assert main([str(word) for word in words]) == 0
    return pd.read_csv(out, sep='\t', index_col='participant_id')


@pytest.mark.slow
def test_children_are_warned_of_by_models_without_a_range_of_ages(tmp_path, simulated, capsys):
    people = simulated.participants
    for ages, is_warned in ((people['age'], False), (8 + people['age'] % 5, True)):
        write(tmp_path, replace(simulated, participants=people.assign(age=ages)))
        flags = apply(tmp_path, 'ageing')['flags'].astype(str)
        assert flags.str.contains('age outside the training range').all() == is_warned
        told = '32 of 32 participants are younger than 18 years'
        assert (told in capsys.readouterr().err) == is_warned


def test_a_scanner_is_added_to_a_published_model(tmp_path, simulated):
    one_scanner = replace(simulated, participants=simulated.participants.drop(columns='site'))
    write(tmp_path, one_scanner, np.random.default_rng(0))
    tables = [tmp_path / 'volumes.csv', '--participants', tmp_path / 'participants.csv']
    words = ['add-site', 'ageing', tables[0], tmp_path / 'model', *tables[1:], '--site', 'mine']
    assert main([str(word) for word in words]) == 0
    model = TableModel.load(tmp_path / 'model')
    assert list(model.notes['AddedSites']) == ['mine']
    assert model.notes['Imported'] == TableModel.load('ageing').notes['Imported']


@pytest.mark.parametrize('name', OFFICIAL)
def test_python_applies_published_models_to_new_participants(tmp_path, simulated, name):
    write(tmp_path, simulated, np.random.default_rng(0))
    tables = tmp_path / 'volumes.csv', tmp_path / 'participants.csv'
    model = TableModel.load(name)
    cohort = Cohort.read(*tables, model=model)
    results = model.apply(cohort)
    assert NO_SITES in cohort.warnings
    assert len(results) == 32
    assert results[list(model.pattern_names)].notna().all(axis=None)


@pytest.mark.parametrize('name', OFFICIAL)
def test_the_verdict_says_what_r_indices_mean_and_what_is_missing(
    tmp_path, monkeypatch, capsys, name
):
    monkeypatch.chdir(tmp_path)
    assert main(['card', name]) == 0
    verdict = capsys.readouterr().out
    card = CHECKPOINTS_OF[name]['card']
    assert all(f'{index} {meaning}' in verdict for index, meaning in card['Patterns'].items())
    assert f'not described in the file; see {card["Citation"]}' in verdict
    assert 'without intervals and centiles' in verdict
    assert 'cannot be assessed: the file does not describe the training sample' in verdict


def test_patterns_are_those_of_the_papers(simulated):
    """The regions that raise an R-index most when all are smaller belong to its meaning."""
    telling = {
        'ad': {'r2': {'hippocampus', 'amygdala', 'parahippocampal gyrus'}},
        'ageing': {
            'r1': {'pallidum', 'caudate', 'accumbens area'},
            'r2': {'hippocampus', 'amygdala'},
            'r3': {'angular gyrus', 'middle occipital gyrus', 'middle temporal gyrus'},
            'r4': {'middle frontal gyrus', 'supplementary motor cortex'},
            'r5': {'posterior insula', 'anterior insula'},
        },
    }
    for name, patterns in telling.items():
        model = TableModel.load(name)
        regions = model.preprocessing.features.names
        _, contributions = model.gan.contributions(pd.DataFrame([[0.9] * 72], columns=regions))
        for index, found in zip(model.pattern_names, contributions[0]):
            first = {regions[k] for k in np.argsort(-found)[:4]}
            assert patterns.get(index, first) <= first


DERIVED = (702, 701, *(600, 601, 604, 606, 607, 613, 614), *range(501, 526), *range(401, 437))
"""Sums of regions, with which tables of NiChart begin; 702 is the head size."""


def write_nichart(folder, simulated, seed) -> None:
    """Write files with the names and columns of NiChart's public demo."""
    rng = np.random.default_rng(seed)
    people = simulated.participants
    numbers = recognise(simulated.volumes.columns)
    regions = simulated.volumes[list(numbers)].set_axis(map(str, numbers.values()), axis=1)
    n_people = len(people)
    mrids = [
        f'IXI{k:03d}-{rng.choice(["HH", "Guys"])}-{rng.integers(1000, 9999)}'
        for k in range(n_people)
    ]
    derived = {str(k): rng.uniform(1e4, 1e6, n_people).round() for k in DERIVED} | {
        '702': people['icv'].to_numpy()
    }
    volumes = pd.concat([pd.DataFrame({'MRID': mrids} | derived), regions], axis=1)
    volumes.to_csv(folder / 'DLMUSE_Volumes.csv', index=False)
    known = {'MRID': mrids, 'Age': people['age'], 'Sex': people['sex'], 'Batch': 'IXI_Batch2'}
    pd.DataFrame(known | {'IsCN': 1}).sample(frac=1, random_state=seed).to_csv(
        folder / 'participants.csv', index=False
    )


@pytest.mark.slow
def test_files_of_nichart_go_in_and_out_without_renaming(tmp_path, simulated):
    model, n_patterns = 'ageing', 5
    write_nichart(tmp_path, simulated, seed=n_patterns)
    tables = ['DLMUSE_Volumes.csv', '--participants', 'participants.csv']
    words = [str(tmp_path / word) if '.' in word else word for word in tables]
    out = tmp_path / 'SurrealGAN_RScores.csv'
    assert main(['apply', *words, '--model', model, '--out', str(out)]) == 0
    found = pd.read_csv(out)
    names = [f'SurrealGAN_R{k}' for k in range(1, n_patterns + 1)]
    assert list(found.columns[: n_patterns + 1]) == ['MRID', *names]
    described = json.loads(out.with_suffix('.json').read_text())
    assert list(described) == list(found.columns)
    assert sum('LongName' in column for column in described.values()) == n_patterns
    ids = pd.read_csv(tmp_path / 'DLMUSE_Volumes.csv')['MRID']
    assert list(found['MRID']) == list(ids)
    write(tmp_path, simulated)
    expected = apply(tmp_path, model)[[f'r{k}' for k in range(1, n_patterns + 1)]]
    assert np.abs(found[names].to_numpy() - expected.to_numpy()).max() < 1e-5
