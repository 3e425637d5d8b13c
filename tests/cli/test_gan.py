import io
import json
import os
import re
import shutil
import signal
from contextlib import redirect_stderr, redirect_stdout
from functools import partial

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cli.gan import build_parser, main
from surreal_bids.exceptions import DataError
from surreal_bids.model.bundle import save_checkpoint
from surreal_bids.rindices import crossfit
from tests.cli.conftest import fork
from tests.cohort.study import QUICK_WORDS, make_study
from tests.conftest import drawing_few, drawing_nothing

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('few_draws', 'undrawn_figures')]

PEOPLE = ('--covariates', 'age', 'sex', '--icv-column', 'icv', '--site-column', 'site')
FOLDLESS_WORDS = (*QUICK_WORDS, '--folds', 0)

OUTPUTS = {
    *('model.json', 'model.safetensors', 'summary.txt', 'report'),
    *(
        f'{name}.{end}'
        for name in (
            *('rindices', 'roi_volumes', 'harmonized_volumes', 'contributions', 'deviations'),
            *('group_patterns', 'group_statistics'),
        )
        for end in ('tsv', 'json')
    ),
}


def run(*words) -> int:
    return main([str(word) for word in words])


def read(path) -> pd.DataFrame:
    return pd.read_csv(path, sep='\t', index_col='participant_id', keep_default_na=False)


def listing(folder) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


@pytest.fixture(scope='module')
def home(tmp_path_factory):
    """A folder with a study and a model fitted to it."""
    folder = tmp_path_factory.mktemp('home')
    volumes, participants = make_study().write(folder)
    words = ('fit', volumes, '--participants', participants, '--out', folder / 'model')
    with drawing_few(), drawing_nothing():
        assert run(*words, *PEOPLE, *QUICK_WORDS) == 0
    return folder


def apply(home, table, out, *more) -> int:
    people = ('--participants', home / 'participants.tsv')
    return run('apply', table, *people, '--model', home / 'model', '--out', out, *more)


def test_fit_writes_a_model_r_indices_and_a_summary(home):
    assert listing(home / 'model') == OUTPUTS
    table = read(home / 'model' / 'rindices.tsv')
    assert table['group'].value_counts().to_dict() == {'PT': 41, 'CN': 30}
    assert list(json.loads((home / 'model' / 'rindices.json').read_text())) == [
        'participant_id',
        *table.columns,
    ]
    summary = (home / 'model' / 'summary.txt').read_text()
    for words in (
        '30 controls (CN)',
        'CN = control, PT = patient',
        'tried alone',
        'agreement',
        '2 of 2',
    ):
        assert words in summary
    assert 'out of fold, 2 folds' in summary


def assert_contributions_add_up(contributions, results):
    table = pd.read_csv(contributions, sep='\t')
    described = json.loads(contributions.with_suffix('.json').read_text())
    assert list(described) == list(table) == [*KEYS, 'baseline', *make_study().features]
    table = table.assign(sum=table[['baseline', *make_study().features]].sum(axis=1))
    sums = table.pivot_table('sum', 'participant_id', 'r_index')
    np.testing.assert_allclose(sums, read(results).loc[sums.index, ['r1', 'r2']], atol=1e-5)
    return sums


KEYS = ['participant_id', 'r_index']


def test_regions_add_up_to_the_r_indices_that_fit_and_apply_write(home, tmp_path):
    model = home / 'model'
    fitted = assert_contributions_add_up(model / 'contributions.tsv', model / 'rindices.tsv')
    assert apply(home, home / 'volumes.tsv', tmp_path / 'r.tsv') == 0
    applied = assert_contributions_add_up(tmp_path / 'r_contributions.tsv', tmp_path / 'r.tsv')
    assert len(fitted) == len(applied) == 71


@pytest.fixture(scope='module')
def foldless(home):
    """A model of the same people without folds, and what its command said."""
    out, said = home / 'foldless', (io.StringIO(), io.StringIO())
    given = ('--participants', home / 'participants.tsv', '--out', out, *PEOPLE, *FOLDLESS_WORDS)
    with drawing_few(), drawing_nothing(), redirect_stdout(said[0]), redirect_stderr(said[1]):
        assert run('fit', home / 'volumes.tsv', *given) == 0
    return out, [text.getvalue().splitlines() for text in said]


def test_fit_without_folds_says_that_it_was_trained_on_them(home, foldless):
    out, _ = foldless
    table = read(out / 'rindices.tsv')
    assert set(table['held_out'].map(str).str.lower()) == {'false'}
    assert 'too low in controls' in (out / 'summary.txt').read_text()
    assert read(home / 'model' / 'rindices.tsv')['r1'].ne(table['r1']).all()


def test_apply_gives_what_fit_gave(home, foldless, tmp_path, capsys):
    assert apply(home, home / 'volumes.tsv', tmp_path / 'r.tsv') == 0
    again = read(tmp_path / 'r.tsv')[['r1', 'r2']]
    pd.testing.assert_frame_equal(again, read(foldless[0] / 'rindices.tsv')[['r1', 'r2']])
    captured = capsys.readouterr()
    assert 'The model was trained on 71 of 71 visits' in captured.err
    assert 'AUC' not in captured.out
    assert 'R-indices of 71 participants' in captured.out
    assert str(tmp_path / 'r.tsv') in captured.out
    some = read(home / 'volumes.tsv').iloc[20:50]
    some.to_csv(tmp_path / 'some.tsv', sep='\t')
    assert apply(home, tmp_path / 'some.tsv', tmp_path / 's.tsv') == 0
    assert 'The model was trained on 30 of 30 visits' in capsys.readouterr().err
    statistics = pd.read_csv(tmp_path / 's_group_statistics.tsv', sep='\t')
    assert 'separation' not in set(statistics['analysis'])


def test_who_forgets_the_participants_is_told_the_option(home, tmp_path, capsys):
    for command, *options in (('fit',), ('apply', '--model', home / 'model')):
        assert run(command, home / 'volumes.tsv', '--out', tmp_path / 'r.tsv', *options) == 65
        told = capsys.readouterr().err
        assert re.search('or add the table .*--participants', told)


def put(frame, row, column, value):
    frame = frame.copy()
    frame.loc[row, column] = value
    return frame


def test_a_finished_fit_is_not_repeated(home, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'few.tsv').write_text('participant_id\nsub-009\n')
    before = {path: path.stat().st_mtime_ns for path in (home / 'model').rglob('*')}
    command = ('fit', home / 'volumes.tsv', '--participants', home / 'participants.tsv')
    for more, code, told in (
        ((), 0, 'made from the same inputs with the same options. Nothing was done'),
        (('--random-seed', 8), 73, 'choose another folder or use --overwrite'),
        (('--exclude', 'few.tsv'), 73, 'made from other inputs'),
    ):
        assert run(*command, '--out', home / 'model', *PEOPLE, *QUICK_WORDS, *more) == code
        assert told in ''.join(capsys.readouterr())
    assert {path: path.stat().st_mtime_ns for path in (home / 'model').rglob('*')} == before


def test_a_finished_apply_or_add_site_is_not_repeated(home, tmp_path, capsys):
    scanner, table = tmp_path / 'scanner', tmp_path / 'r.tsv'
    scanner.mkdir()
    study = make_study(12, 8, seed=9, n_sites=1)
    study.people['site'] = 'new'
    volumes, participants = study.write(scanner)
    (scanner / 'few.tsv').write_text(f'participant_id\n{study.people.index[0]}\n')
    model = home / 'model'
    known = (home / 'volumes.tsv', '--participants', home / 'participants.tsv', '--model', model)
    new = (model, volumes, tmp_path / 'taught', '--participants', participants)
    for command, other in (
        (('apply', *known, '--out', table), ('--unseen-site', 'skip')),
        (('add-site', *new), ('--exclude', scanner / 'few.tsv')),
    ):
        assert run(*command) == 0
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob('*')}
        capsys.readouterr()
        assert run(*command) == 0
        assert 'with the same options. Nothing was done; --overwrite' in capsys.readouterr().out
        assert run(*command, *other) == 73
        assert '--overwrite' in capsys.readouterr().err
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob('*')} == before
    (tmp_path / 'r_report' / 'group.html').unlink()
    assert run('apply', *known, '--out', table) == 73, 'not all outputs are there'


def fail(*_):
    raise DataError('collapsed')


def test_a_failed_fit_leaves_the_old_model_alone(home, tmp_path, monkeypatch):
    out = shutil.copytree(home / 'model', tmp_path / 'model')
    command = ('fit', home / 'volumes.tsv', '--participants', home / 'participants.tsv')
    before = {path: path.read_bytes() for path in out.rglob('*') if path.is_file()}
    monkeypatch.setattr(crossfit, 'train', fail)
    assert run(*command, '--out', out, *QUICK_WORDS, '--overwrite') == 65
    assert {path: path.read_bytes() for path in before} == before


def test_apply_replaces_only_on_demand(home, tmp_path):
    for number, existing in enumerate(('r_contributions.tsv', 'r_changes.tsv', 'r.json', 'r.tsv')):
        (tmp_path / existing).write_text('precious')
        assert apply(home, home / 'volumes.tsv', tmp_path / 'r.tsv') == 73
        assert len(listing(tmp_path)) == number + 1
    assert apply(home, home / 'volumes.tsv', tmp_path / 'r.tsv', '--overwrite') == 0
    written = {f'r_{name}' for name in OUTPUTS if name.startswith(('contr', 'dev', 'harm', 'gro'))}
    written |= {'r.tsv', 'r.json', 'r_report'}
    assert listing(tmp_path) == written


def test_apply_names_what_is_wrong(home, tmp_path, capsys):
    features = make_study().features
    for table, found in (
        (features.drop(columns='region_c'), ['region_c', 'the nearest of', 'region_']),
        (features.rename(lambda name: f'{name}x'), ['participants.tsv', '001x']),
    ):
        table.to_csv(tmp_path / 'new.tsv', sep='\t', na_rep='n/a')
        assert apply(home, tmp_path / 'new.tsv', tmp_path / 'r.tsv') == 65
        message = capsys.readouterr().err
        assert all(words in message for words in found), message
        assert not (tmp_path / 'r.tsv').exists()


def test_who_cannot_be_used_has_a_row_with_the_reason(home, tmp_path):
    study = make_study()
    study.features = put(study.features, 'sub-009', 'region_c', np.nan)
    study.people = put(study.people, 'sub-010', 'age', 999)
    volumes, people = study.write(tmp_path)
    model = ('--model', home / 'model', '--out', tmp_path / 'r.tsv')
    assert run('apply', volumes, '--participants', people, *model) == 0
    results = read(tmp_path / 'r.tsv')
    assert results.index.tolist() == study.people.index.tolist()
    for name, reason in (('sub-009', 'no volume of region_c'), ('sub-010', 'age is 999')):
        assert results.loc[name, ['r1', 'status']].tolist() == ['n/a', 'excluded']
        assert reason in results.loc[name, 'reason']
    assert 'reason' in json.loads((tmp_path / 'r.json').read_text())


def test_extra_columns_are_named(home, tmp_path, capsys):
    make_study().features.assign(note=5.0).to_csv(tmp_path / 'new.tsv', sep='\t')
    assert apply(home, tmp_path / 'new.tsv', tmp_path / 'r.tsv') == 0
    assert re.search(
        r'Columns of new\.tsv.*not used: no feature +note', capsys.readouterr().out, re.DOTALL
    )


def apply_with_diagnoses(home, folder, change):
    """Apply a model to a study with other diagnoses; R-indices, and the text of the report."""
    study = make_study()
    study.features *= 1.001  # These are not the training participants.
    study.people['diagnosis'] = [change(*each) for each in enumerate(study.people['diagnosis'])]
    volumes, participants = study.write(folder)
    model = ('--model', home / 'model', '--out', folder / 'r.tsv', '--overwrite')
    assert run('apply', volumes, '--participants', participants, *model) == 0
    return read(folder / 'r.tsv'), (folder / 'r_report' / 'group.html').read_text()


def test_apply_compares_patients_with_controls_where_diagnoses_are_known(home, tmp_path, capsys):
    without, page = apply_with_diagnoses(home, tmp_path, lambda *_: None)
    assert 'group' not in without
    assert 'Area under the ROC curve' not in page
    assert re.search(r'not used: no values +diagnosis', capsys.readouterr().out)
    known, page = apply_with_diagnoses(home, tmp_path, lambda k, value: value if k % 7 else None)
    assert known['group'].value_counts().to_dict() == {'PT': 35, 'CN': 25, 'n/a': 11}
    pd.testing.assert_frame_equal(known.drop(columns='group'), without)
    total = known[['r1', 'r2']].sum(axis=1).to_numpy()
    pairs = np.subtract.outer(total[known['group'] == 'PT'], total[known['group'] == 'CN'])
    area = np.mean(pairs > 0)
    assert f'{area:.3f}' in page
    out = capsys.readouterr().out
    assert 'for comparisons only' in out
    written = [line.strip() for line in out.splitlines() if line.startswith(f'  {tmp_path}')]
    assert {*written} == {*map(str, tmp_path.glob('r*.tsv')), f'{tmp_path}/r_report/group.html'}
    stored = pd.read_csv(tmp_path / 'r_group_statistics.tsv', sep='\t').iloc[0]
    assert stored[['analysis', 'index', 'n']].tolist() == ['separation', 'sum of R-indices', 60]
    assert stored['estimate'] == pytest.approx(area, abs=1e-5)


def test_unseen_sites(home, tmp_path):
    study = make_study()
    study.people.loc['sub-002', 'site'] = 'moon'
    volumes, people = study.write(tmp_path)
    model = ('--model', home / 'model', '--out', tmp_path / 'r.tsv')
    for options, code in (((), 65), (('--unseen-site', 'skip'), 0)):
        assert run('apply', volumes, '--participants', people, *model, *options) == code
    status = read(tmp_path / 'r.tsv')['status']
    assert status[status != 'complete'].to_dict() == {'sub-002': 'unharmonized'}


def test_the_card_is_shown(home, capsys):
    assert run('card', home / 'model') == 0
    verdict = capsys.readouterr().out.splitlines()
    starts = [line.partition(': ')[0] for line in verdict]
    assert starts[:5] == ['Model', 'Trained on', 'Patterns', 'To watch', 'Applies to']
    assert starts[5:] == ['Number of patterns']
    assert 'Reproducibility: r1 ' in verdict[2]
    assert run('-q', 'card', home / 'model') == 0
    assert capsys.readouterr().out.splitlines() == [verdict[0], verdict[3]]
    assert run('card', home / 'model', '-v') == 0
    text = capsys.readouterr().out
    for words in ('30 controls (CN)', 'region_c', 'ComBat', 'covariates'):
        assert words in text


def test_every_option_is_explained():
    for parser in build_parser()._subparsers._group_actions[0].choices.values():
        assert all(action.help for action in parser._actions)
        assert '%' not in parser.format_help()


def test_a_fit_that_is_killed_twice_goes_on_and_ends_with_the_same_bytes(
    home, tmp_path, monkeypatch, capsys
):
    out = tmp_path / 'model'
    given = ('--participants', home / 'participants.tsv', *PEOPLE, *QUICK_WORDS)
    command = ('fit', '-v', home / 'volumes.tsv', *given, '--out', out)

    def killed(part) -> int:
        """Fit until members of a part of the model have a checkpoint."""

        def save_and_die(path, *content):
            save_checkpoint(path, *content)
            if path.parent == out / 'checkpoints' / part:
                os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr('surreal_bids.model.training.save_checkpoint', save_and_die)
        return run(*command)

    monkeypatch.setattr('surreal_bids.model.training.SECONDS_BETWEEN_CHECKPOINTS', 0)
    for part in ('.', 'fold-2'):
        code, told = fork(partial(killed, part))
        assert code == -signal.SIGKILL
        assert not (out / 'model.json').exists()
        assert ('resumed at iteration' in told) == (part == 'fold-2')
    assert run(*command, '--random-seed', 5) == 73
    assert 'unfinished run with other tables, options' in capsys.readouterr().err
    assert run(*command) == 0
    said = capsys.readouterr()
    assert 'resumed at iteration' in said.err
    assert said.out.count('Resuming from 4 checkpoints in') == 1
    for name in ('rindices.tsv', 'model.safetensors', 'model.json'):
        assert (out / name).read_bytes() == (home / 'model' / name).read_bytes()
    assert listing(out) == OUTPUTS


def test_a_dry_run_ends_with_a_verdict(tmp_path, capsys):
    volumes, people = make_study().write(tmp_path)
    given = ('fit', volumes, '--participants', people, '--out', tmp_path / 'model', '--dry-run')
    assert run(*given) == 0
    shown = capsys.readouterr()
    assert 'Corrected for: age, sex, head size (icv; ' in shown.out
    assert shown.out.endswith('Dry run: ready, with 1 thing to check. Nothing was written.\n')
    assert 'icv is hardly related to the volumes' in shown.err
    assert not (tmp_path / 'model').exists()
