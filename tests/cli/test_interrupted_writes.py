"""Whatever write fails, the earlier outputs or the new ones are there, and the repeat succeeds."""

import errno
import os
import pathlib
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from surreal_bids.analysis.descriptions import write_described
from surreal_bids.cli.gan import MODEL, main
from surreal_bids.exceptions import DataError
from surreal_bids.files import is_interrupted, restore_interrupted
from surreal_bids.reports.group import GroupReport
from surreal_bids.reports.pages import Section
from surreal_bids.rindices.model import TableModel
from tests.cli.conftest import fork
from tests.cohort.study import QUICK_WORDS, make_study

resource = pytest.importorskip('resource', reason='Windows has no limits of file sizes')

pytestmark = pytest.mark.usefixtures('few_draws', 'undrawn_figures')

CALLS = (
    *((os, name) for name in ('fsync', 'replace', 'mkdir', 'unlink', 'rmdir')),
    *((pathlib.Path, name) for name in ('touch', 'write_text', 'write_bytes')),
)
"""Calls that change files."""

FOREIGN = {'notes.txt': b'by hand', '.0123abcd.txt': b'hidden', 'checkpoints/own.txt': b'kept'}
"""Files of a user beside the outputs."""

COMPUTATIONS = (
    *('cohort.cohort.read_cohort', 'rindices.crossfit.train', 'rindices.model.prepare'),
    *('analysis.engine.analyse_trained', 'analysis.engine.analyse_applied'),
    *('rindices.new_sites.read_site_controls', 'rindices.new_sites.add_sites'),
)
"""Functions that compute, not write."""

COMMANDS = ('fit', 'apply', 'add-site')


@dataclass
class Scenario:
    """A command that replaces earlier outputs in a folder.

    `earlier` and `new` are the content of the folder before and after it.
    """

    folder: pathlib.Path
    part: str
    command: Callable[[], int]
    earlier: dict[str, bytes]
    new: dict[str, bytes]

    def begin(self) -> None:
        """Put back the earlier content."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name, content in self.earlier.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)

    def check(self) -> None:
        """Check that the content is one of the two, if need be after the next command began."""
        if is_interrupted(self.folder):
            if self.part == MODEL:
                with pytest.raises(DataError, match='rerun it'):
                    TableModel.load(self.folder)
            restore_interrupted(self.folder, self.part)
        assert content(self.folder) in (self.earlier, self.new)

    def repeat(self) -> None:
        """Repeat the command; nothing of the failure stays."""
        assert self.command() == 0
        assert content(self.folder) == self.new
        assert not [path for path in self.folder.iterdir() if 'surreal_bids' in path.name]
        assert len(list((self.folder / 'checkpoints').iterdir())) == 1


def content(folder) -> dict[str, bytes]:
    """Return all files of a folder, except those of a command that has not ended."""
    files = [path for path in folder.rglob('*') if path.is_file()]
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    unfinished = ('.surreal_bids', 'checkpoints/')
    return {
        name: found[name] for name in found if name in FOREIGN or not name.startswith(unfinished)
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
        patch.setattr('surreal_bids.reports.group.SECTIONS', (short_section,))
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


def short_section(report: GroupReport) -> Section:
    """Return an empty figure."""
    return Section('R-indices', (report.figure('rindices', Figure(), 'Title', 'Caption'),))


def computed_once(function):
    results = {}

    def call(*arguments, **options):
        key = (len(arguments), *sorted(options))
        if key not in results:
            results[key] = function(*arguments, **options)
        return results[key]

    return call


@pytest.fixture(params=COMMANDS)
def scenario(request, home, tmp_path):
    """A command over outputs of `fit`, or of `apply`, that are a little longer than the new ones.

    Tables of changes have no successor.
    """
    command, out = request.param, tmp_path / 'out'
    assert run(*words('apply' if command == 'apply' else 'fit', home, out)) == 0
    table = pd.DataFrame({'participant_id': ['sub-1'], 'measure': ['r1']})
    write_described('changes', out / f'{"r_" * (command == "apply")}changes.tsv', table)
    if command != 'apply':
        changes = pd.DataFrame({'r_index': ['r1'], 'outcome': ['compared']})
        write_described('group_change', out / 'group_change.tsv', changes)
    for path in filter(Path.is_file, out.rglob('*')):
        path.write_bytes(path.read_bytes() + b'\n')
    for name, text in FOREIGN.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(text)
    earlier, line = content(out), (*words(command, home, out), '--overwrite')
    assert run(*line) == 0
    new = content(out)
    assert new.items() >= FOREIGN.items()
    assert not [name for name in new if 'change' in name]
    part = 'r.tsv' if command == 'apply' else MODEL
    return Scenario(out, part, lambda: run(*line), earlier, new)


class Failing:
    """Makes one of the calls that change files fail, or all from it on."""

    def __init__(self, patch, fail) -> None:
        self.count, self.at, self.fail = 0, 0, fail
        for place, name in CALLS:
            real = getattr(place, name)
            patch.setattr(place, name, self._wrap(bool if name == 'fsync' else real))

    def _wrap(self, function):
        def call(*arguments, **options):
            self.count += 1
            if self.at and self.fail(self.count, self.at):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*arguments, **options)

        return call

    def __call__(self, at: int, command) -> int:
        self.count, self.at = 0, at
        try:
            return command()
        finally:
            self.at = 0


STEP = 9
"""Try one write in so many, each test others; `tests/test_files.py` tries all of simple files."""
REPEATED = 5
"""The command is repeated after one failure in so many."""


@pytest.mark.parametrize(
    ('fail', 'first'), [(int.__eq__, 3), (int.__ge__, 6)], ids=['one', 'all further']
)
def test_any_write_may_fail(scenario, monkeypatch, capsys, fail, first):
    failing, at, code = Failing(monkeypatch, fail), first, 73
    while code or failing.count >= at:
        scenario.begin()
        code = failing(at, scenario.command)
        shown = capsys.readouterr().err
        scenario.check()
        assert code == 73 or (code == 0 and content(scenario.folder) == scenario.new)
        assert not re.search(r'Traceback|bug|\.surreal_bids', shown)
        if at // STEP % REPEATED == 1:
            scenario.repeat()
        at += STEP
    assert at > 2 * STEP


def test_any_write_may_be_the_last(scenario, monkeypatch):
    """A process that is killed leaves a journal, which the next command follows."""
    kill = Failing(monkeypatch, lambda count, at: count == at and os._exit(9))
    at, code = STEP, 9
    while code:
        scenario.begin()
        code = fork(lambda at=at: kill(at, scenario.command))[0]
        assert code in (0, 9)
        scenario.check()
        if at // STEP % REPEATED == 1:
            scenario.repeat()
        at += STEP
    assert at > 2 * STEP


@pytest.mark.parametrize('limit', [0, 1000, 10_000])
def test_a_limit_of_file_sizes_leaves_the_earlier_outputs(scenario, limit):
    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return scenario.command()

    scenario.begin()
    code, shown = fork(limited)
    assert (code, 'ulimit -f' in shown) == (73, True)
    assert content(scenario.folder) == scenario.earlier
    scenario.repeat()


@pytest.mark.parametrize('command', COMMANDS)
@pytest.mark.parametrize('end', ['.tsv', '.json'])
def test_files_of_a_user_are_never_replaced_or_removed(home, tmp_path, capsys, command, end):
    """They have the name of an output, also of one that this run would not write."""
    names = [f'r{name}{end}' for name in ('_contributions', '_changes')]
    if command != 'apply':
        names = [f'{name}{end}' for name in ('rindices', 'changes', 'site_shifts')]
        names += ['summary.txt', 'model.json', 'model.safetensors']
    for name in names:
        out = tmp_path / name
        out.mkdir()
        (out / name).write_text('participant_id\tmeasure\nsub-01\tmine\n')
        assert run(*words(command, home, out), '--overwrite') == 73
        assert name in capsys.readouterr().err
        assert [path.name for path in out.iterdir()] == [name]
        assert 'mine' in (out / name).read_text()
