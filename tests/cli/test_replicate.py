"""`surreal-gan replicate` from tables to files, with models that train in seconds."""

import json

import pandas as pd
import pytest

from surreal_bids.cli.gan import main
from surreal_bids.model.number import Number, Stability
from tests.cohort.study import QUICK_WORDS, make_study
from tests.conftest import drawing_few, drawing_nothing
from tests.reports.html_page import Page, check_offline, check_structure

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('few_draws', 'undrawn_figures')]

TRAINING_WORDS = QUICK_WORDS[2:]
"""Without the number of patterns, which is that of the model."""

WRITTEN = {
    *('replication.tsv', 'replication.json', 'replication.html', 'summary.txt'),
    *('exclusions.tsv', 'exclusions.json'),
}


def run(*words) -> int:
    return main([str(word) for word in words])


@pytest.fixture(scope='module')
def home(tmp_path_factory):
    """An original study with its model, and a second cohort with one more scanner."""
    folder = tmp_path_factory.mktemp('home')
    for name, seed, n_sites in (('original', 0, 2), ('second', 5, 3), ('one_site', 6, 1)):
        (folder / name).mkdir()
        study = make_study(seed=seed, n_sites=n_sites)
        study.people['score'] = study.features.iloc[:, :16].sum(axis=1).round()
        study.write(folder / name)
    with drawing_few(), drawing_nothing():
        words = ('fit', *tables(folder / 'original'), '--out', folder / 'model')
        assert run(*words, *QUICK_WORDS) == 0
    return folder


@pytest.fixture(autouse=True)
def few_permutations(monkeypatch):
    monkeypatch.setattr('surreal_bids.analysis.replication.PERMUTATIONS', 3)


def tables(folder):
    return folder / 'volumes.tsv', '--participants', folder / 'participants.tsv'


def replicate(home, cohort, out, *more):
    words = ('replicate', home / 'model', *tables(home / cohort), '--out', out)
    return run(*words, *TRAINING_WORDS, *more)


@pytest.fixture
def two_patterns(monkeypatch):
    """A second cohort in which two patterns are stable, whatever few draws say."""
    number = Number(2, (Stability(1, 0.9), Stability(2, 0.9, (0.3,))))
    monkeypatch.setattr('surreal_bids.analysis.replication.choose_number', lambda *_, **__: number)


@pytest.mark.usefixtures('two_patterns')
def test_a_second_cohort_with_the_same_disease_replicates_both_patterns(home, tmp_path, capsys):
    original = ('--original', home / 'original' / 'volumes.tsv')
    original += ('--original-participants', home / 'original' / 'participants.tsv')
    assert replicate(home, 'second', tmp_path / 'out', *original) == 0
    assert {path.name for path in (tmp_path / 'out').iterdir()} == WRITTEN
    table = pd.read_csv(tmp_path / 'out' / 'replication.tsv', sep='\t')
    assert list(json.loads((tmp_path / 'out' / 'replication.json').read_text())) == [*table]
    agreement = table[table['analysis'] == 'agreement']
    assert agreement['direction'].value_counts().tolist() == [2, 2]
    assert (agreement['verdict'] == 'replicated').all()
    assert (agreement['low'] > agreement['reference']).all()
    assert sorted(agreement['matched_pattern']) == ['r1', 'r1', 'r2', 'r2']
    assert set(table['analysis']) >= {'regions', 'separation', 'association', 'stability'}
    page = Page(tmp_path / 'out' / 'replication.html')
    check_offline(page)
    check_structure(page)
    for words in ('2 of 2 patterns were replicated', 'The other way round', 'in SD of controls'):
        assert words in page.words
    assert '2 of 2 patterns were replicated' in capsys.readouterr().out
    assert replicate(home, 'second', tmp_path / 'out') == 73


@pytest.mark.usefixtures('two_patterns')
def test_a_second_cohort_of_one_site_is_compared(home, tmp_path):
    assert replicate(home, 'one_site', tmp_path / 'out') == 0
    table = pd.read_csv(tmp_path / 'out' / 'replication.tsv', sep='\t')
    assert (table.loc[table['analysis'] == 'agreement', 'estimate'] > 0.6).all()


def test_training_participants_are_refused_before_anything_is_written(home, tmp_path, capsys):
    assert replicate(home, 'original', tmp_path / 'out') == 65
    assert 'the model was trained on 71 participants' in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()


def test_participants_without_patients_are_refused(home, tmp_path, capsys):
    options = ('--control-label', 'CN', 'PT')
    assert replicate(home, 'second', tmp_path / 'out', *options) == 65
    assert not (tmp_path / 'out').exists()
    assert capsys.readouterr().err


def test_a_second_cohort_without_disease_says_so(home, tmp_path, monkeypatch):
    number = Number(0, (Stability(1, 0.4, (0.5,)), Stability(2, 0.2)))
    monkeypatch.setattr('surreal_bids.analysis.replication.choose_number', lambda *_, **__: number)
    assert replicate(home, 'second', tmp_path / 'out') == 0
    table = pd.read_csv(tmp_path / 'out' / 'replication.tsv', sep='\t')
    assert set(table['verdict'].dropna()) == {'not assessed'}
    assert 'agreement' not in set(table['analysis'])
    page = Page(tmp_path / 'out' / 'replication.html')
    check_structure(page)
    assert 'shows no pattern of its own' in page.words


def test_original_participants_must_be_those_of_the_model(home, tmp_path, capsys):
    original = ('--original', home / 'one_site' / 'volumes.tsv')
    original += ('--original-participants', home / 'one_site' / 'participants.tsv')
    assert replicate(home, 'second', tmp_path / 'out', *original) == 65
    assert 'not trained on any of these participants' in capsys.readouterr().err
    assert run('replicate', 'm', 't', '--out', tmp_path, *original[2:]) == 2
