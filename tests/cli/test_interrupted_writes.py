"""Whatever write is the last one, no mixture counts as complete, and the repeat succeeds."""

import os
import pathlib
import shutil
from importlib import import_module

import pytest
from markupsafe import Markup
from matplotlib.figure import Figure

from surreal_bids.bids.outputs import output_path
from surreal_bids.cli.gan import main
from surreal_bids.exceptions import DataError
from surreal_bids.reports.figures import save_figure
from surreal_bids.reports.group import GroupReport
from surreal_bids.reports.pages import write_page
from surreal_bids.rindices.model import TableModel
from tests.cli.conftest import fork
from tests.cohort.study import QUICK_WORDS, make_study

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('few_draws', 'undrawn_figures')]

CALLS = (
    *((os, name) for name in ('fsync', 'replace', 'mkdir', 'unlink', 'rmdir')),
    *((pathlib.Path, name) for name in ('write_text', 'write_bytes')),
)
"""Calls that change files."""

FOREIGN = {'notes.txt': b'by hand', 'checkpoints/own.txt': b'kept'}
"""Files of a user beside the outputs."""

COMPUTATIONS = (
    *('cohort.cohort.read_cohort', 'rindices.crossfit.train', 'rindices.model.prepare'),
    *('analysis.engine.analyse_trained', 'analysis.engine.analyse_applied'),
    *('rindices.new_sites.read_site_controls', 'rindices.new_sites.add_sites'),
)
"""Functions that compute, not write."""

MARKERS = {'fit': 'model.json', 'apply': 'r.tsv', 'add-site': 'model.json'}
"""The file of each command that is deleted first and written last."""


def content(folder) -> dict[str, bytes]:
    """Return all files of a folder, except checkpoints and hidden files."""
    files = [path for path in folder.rglob('[!.]*') if path.is_file()]
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    return {
        name: found[name]
        for name in found
        if name in FOREIGN or not name.startswith('checkpoints/')
    }


def run(*words) -> int:
    return main([str(word) for word in words])


@pytest.fixture(scope='module')
def home(tmp_path_factory):
    """A study and a model; what the commands compute is computed once, and reports are short."""
    home = tmp_path_factory.mktemp('home')
    make_study().write(home)
    (home / 'scanner').mkdir()
    scanner = make_study(12, 8, seed=9, n_sites=1)
    scanner.people['site'] = 'new'
    scanner.write(home / 'scanner')
    with pytest.MonkeyPatch.context() as patch:
        for name in COMPUTATIONS:
            module, _, function = f'surreal_bids.{name}'.rpartition('.')
            computed = computed_once(getattr(import_module(module), function))
            patch.setattr(f'surreal_bids.{name}', computed)
        patch.setattr('surreal_bids.reports.group.write_group_report', short_report)
        assert run(*words('fit', home, home / 'model')) == 0
        yield home


def words(command, home, out) -> tuple:
    volumes, model = home / 'volumes.tsv', home / 'model'
    people = ('--participants', home / 'participants.tsv')
    controls = ('--participants', home / 'scanner' / 'participants.tsv')
    return {
        'fit': ('fit', volumes, *people, '--out', out, *QUICK_WORDS, '--folds', 0),
        'apply': ('apply', volumes, *people, '--out', out / 'r.tsv', '--model', model),
        'add-site': ('add-site', model, home / 'scanner' / 'volumes.tsv', out, *controls),
    }[command]


def short_report(report: GroupReport) -> pathlib.Path:
    """Write an empty figure and a report without sections."""
    save_figure(report.figure_path('rindices'), Figure())
    return write_page(output_path(report.output_dir, 'group_report'), report.title, Markup(''))


def computed_once(function):
    results = {}

    def call(*arguments, **options):
        key = (len(arguments), *sorted(options))
        if key not in results:
            results[key] = function(*arguments, **options)
        return results[key]

    return call


STEP = 25
"""A process is killed at one write in so many; `tests/test_files.py` tries all of simple files."""


@pytest.mark.parametrize('command', MARKERS)
def test_any_write_may_be_the_last(command, home, tmp_path, monkeypatch):
    out, line = tmp_path / 'out', words(command, home, tmp_path / 'out')
    assert run(*words('apply' if command == 'apply' else 'fit', home, out)) == 0
    (out / MARKERS[command]).write_bytes((out / MARKERS[command]).read_bytes() + b'\n')
    for name, text in FOREIGN.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(text)
    shutil.copytree(out, tmp_path / 'earlier')
    earlier = content(out)
    assert run(*line, '--overwrite') == 0
    new, at, code = content(out), STEP, 9
    assert new.items() >= FOREIGN.items()
    kill = KillingAt(monkeypatch)
    while code:
        shutil.rmtree(out)
        shutil.copytree(tmp_path / 'earlier', out)
        code = fork(lambda at=at: kill(at, lambda: run(*line, '--overwrite')))[0]
        assert code in (0, 9)
        if (out / MARKERS[command]).exists():
            assert content(out) in (earlier, new)
        elif command != 'apply':
            with pytest.raises(DataError, match='has not ended'):
                TableModel.load(out)
        if (at // STEP) % 4 == 1:
            assert run(*line, '--overwrite') == 0
            assert content(out) == new
            assert not [path for path in out.iterdir() if path.name.endswith('.unfinished')]
        at += STEP
    assert at > 2 * STEP


class KillingAt:
    """Ends the process at one of the calls that change files."""

    def __init__(self, patch) -> None:
        self.count, self.at = 0, 0
        for place, name in CALLS:
            real = getattr(place, name)
            patch.setattr(place, name, self._wrap(bool if name == 'fsync' else real))

    def _wrap(self, function):
        def call(*arguments, **options):
            self.count += 1
            return os._exit(9) if self.count == self.at else function(*arguments, **options)

        return call

    def __call__(self, at: int, command) -> int:
        self.count, self.at = 0, at
        return command()


def test_an_interrupted_command_resumes_without_overwrite(home, tmp_path, monkeypatch):
    """The files of an interrupted command are its own; those of a user are not."""
    kill = KillingAt(monkeypatch)
    for command, marker in MARKERS.items():
        line = words(command, home, tmp_path / command)
        assert fork(lambda line=line: kill(40, lambda: run(*line)))[0] == 9
        assert len(content(tmp_path / command)) > 0
        assert not (tmp_path / command / marker).exists()
        assert run(*line) == 0
        assert (tmp_path / command / marker).exists()


def test_folders_and_files_of_a_user_need_overwrite(home, tmp_path, capsys):
    for command, name, told in (
        ('fit', 'rindices.tsv', 'holds rindices.tsv'),
        ('fit', 'thesis.txt', 'holds thesis.txt'),
        ('add-site', 'model.json', 'holds a model'),
    ):
        out = tmp_path / f'{command}-{name}'
        out.mkdir()
        (out / name).write_text('mine')
        assert run(*words(command, home, out)) == 73
        assert told in capsys.readouterr().err
        assert [path.read_text() for path in out.iterdir()] == ['mine']
