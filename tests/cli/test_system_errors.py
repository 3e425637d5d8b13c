"""Errors of the system name the file and the remedy, through all commands, never a traceback."""

import errno
import os
import re
import subprocess
import sys

import pytest

from surreal_bids.cli import app, gan, simulate
from surreal_bids.cli.main import run_command
from tests.cohort.study import make_study

pytestmark = pytest.mark.skipif(os.name == 'nt', reason='Windows has no devices and pipes')

MAINS = {'gan': gan.main, 'bids': app.main, 'simulate': simulate.main}


def device(folder):
    return '/dev/zero'


def pipe(folder):
    os.mkfifo(folder / 'pipe.tsv')
    return folder / 'pipe.tsv'


def directory(folder):
    (folder / 'folder.tsv').mkdir()
    return folder / 'folder.tsv'


def circle(folder):
    (folder / 'circle.tsv').symlink_to(folder / 'circle.tsv')
    return folder / 'circle.tsv'


def long_name(folder):
    return folder / f'{"x" * 300}.tsv'


def below_a_file(folder):
    return folder / 'volumes.tsv' / 'table.tsv'


def huge(folder):
    path = folder / 'huge.tsv'
    with path.open('wb') as stream:
        stream.truncate(10**10)
    return path


def missing(folder):
    return folder / 'nowhere.tsv'


FILES = (device, pipe, directory, circle, long_name, below_a_file, huge, missing)

COMMANDS = {
    'fit': 'gan fit {bad} --out {out}',
    'fit participants': 'gan fit {home}/volumes.tsv --participants {bad} --out {out}',
    'fit features': 'gan fit {home}/volumes.tsv --participants {home}/participants.tsv '
    '--features {bad} --out {out}',
    'apply model': 'gan apply {home}/volumes.tsv --model {bad} --out {out}.tsv',
    'card': 'gan card {bad}',
    'add-site': 'gan add-site {bad} {home}/volumes.tsv {out}',
    'dataset': 'bids {bad} {out} participant',
    'config': 'bids {home} {out} participant --config-file {bad}',
    'filter': 'bids {home} {out} participant --bids-filter-file {bad}',
    'roi table': 'bids {home} {out} group --roi-table {bad}',
    'plugin': 'bids {home} {out} participant --use-plugin {bad}',
    'group model': 'bids {home} {out} group --roi-table {home}/volumes.tsv --model {bad}',
    'simulate': 'simulate table {out} --from-table {bad} --n-cn 2 --n-pt 2',
    'score': 'simulate score {bad} {home}/volumes.tsv',
}


@pytest.mark.parametrize('file', FILES, ids=lambda each: each.__name__)
@pytest.mark.parametrize('command', COMMANDS)
def test_files_that_cannot_be_read_are_named(tmp_path, capsys, command, file):
    home, out = tmp_path / 'home', tmp_path / 'out'
    home.mkdir()
    make_study().write(home)
    (home / 'dataset_description.json').write_text('{"Name": "x", "BIDSVersion": "1.10.0"}')
    bad = file(home)
    words = COMMANDS[command].format(bad=bad, home=home, out=out).split()
    assert MAINS[words[0]](words[1:]) in (2, 16, 18, 65)
    shown = capsys.readouterr().err
    assert str(bad) in shown
    assert not re.search('Traceback|bug', shown)
    assert not out.exists()


NUMBERS = [getattr(errno, name) for name in ('EFBIG', 'EMFILE', 'ENAMETOOLONG', 'ELOOP', 'ENOTDIR')]
NUMBERS += [errno.EISDIR, errno.EINVAL, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EIO]


@pytest.mark.parametrize('number', NUMBERS, ids=errno.errorcode.get)
def test_errors_of_the_system_name_the_file(number, capsys):
    def fail(_):
        raise OSError(number, os.strerror(number), 'some.file')

    assert run_command(fail, None) in (65, 73)
    shown = capsys.readouterr().err
    assert re.match(r'error: some\.file: .*; \w+', shown)
    assert 'bug' not in shown


def test_insufficient_memory_is_no_bug(capsys):
    def fail(_):
        raise MemoryError

    assert run_command(fail, None) == 65
    assert 'memory' in capsys.readouterr().err


CODE = (
    'import sys; from surreal_bids.cli.main import run_command; '
    "sys.exit(run_command(lambda lines: sys.stdout.writelines(lines), ['line'] * 10))"
)


@pytest.mark.parametrize(
    ('stream', 'code'), [('> /dev/full', 73), ('>&-', 0), ('2>&-', 0), ('| true', 0)]
)
def test_an_output_that_is_closed_or_full_gives_no_traceback(stream, code):
    command = f'"{sys.executable}" -c "{CODE}" {stream}'
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert ended.returncode == code
    assert not re.search('Traceback|Exception', ended.stderr)
    assert ('output: cannot be written' in ended.stderr) == (code == 73)
