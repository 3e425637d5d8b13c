"""Errors of the system name the file in one line, with an exit code, never a traceback."""

import os
import re
import subprocess
import sys

import pytest

from surreal_bids.cli import app, gan, simulate
from surreal_bids.cli.main import run_command
from tests.cohort.study import make_study

pytestmark = pytest.mark.skipif(os.name == 'nt', reason='Windows has other errors')

MAINS = {'gan': gan.main, 'bids': app.main, 'simulate': simulate.main}

COMMANDS = (
    'gan fit {bad} --out {out}',
    'gan fit {home}/volumes.tsv --participants {bad} --out {out}',
    'gan fit {home}/volumes.tsv --participants {home}/participants.tsv --features {bad} '
    '--out {out}',
    'gan apply {home}/volumes.tsv --model {bad} --out {out}.tsv',
    'gan card {bad}',
    'bids {bad} {out} participant',
    'bids {home} {out} participant --config-file {bad}',
    'bids {home} {out} participant --bids-filter-file {bad}',
    'bids {home} {out} group --roi-table {bad}',
    'simulate table {out} --from-table {bad} --n-cn 2 --n-pt 2',
    'simulate score {bad} {home}/volumes.tsv',
)


@pytest.mark.parametrize('command', COMMANDS)
def test_files_that_cannot_be_read_are_named(tmp_path, capsys, command):
    home, out = tmp_path / 'home', tmp_path / 'out'
    home.mkdir()
    make_study().write(home)
    (home / 'dataset_description.json').write_text('{"Name": "x", "BIDSVersion": "1.10.0"}')
    (home / 'folder.tsv').mkdir()
    (home / 'link.tsv').symlink_to(home / 'not_fetched')
    for name in ('nowhere.tsv', 'folder.tsv', 'link.tsv', 'volumes.tsv/table.tsv'):
        words = command.format(bad=home / name, home=home, out=out).split()
        assert MAINS[words[0]](words[1:]) in (2, 16, 18, 65), name
        shown = capsys.readouterr().err
        assert str(home / name) in shown
        assert not re.search('Traceback|bug', shown)
        assert not out.exists()


@pytest.mark.parametrize(
    ('error', 'code', 'shown'),
    [
        (OSError(28, 'No space left on device', 'x.tsv'), 73, 'x.tsv: No space left on device'),
        (PermissionError(13, 'Permission denied', 'x.tsv'), 65, 'x.tsv: Permission denied'),
        (MemoryError(), 65, 'the data do not fit into the memory'),
    ],
)
def test_errors_of_the_system_have_exit_codes(error, code, shown, capsys):
    def fail(_):
        raise error

    assert run_command(fail, None) == code
    assert capsys.readouterr().err.startswith(f'error: {shown}')


CODE = (
    'import sys; from surreal_bids.cli.main import run_command; '
    "sys.exit(run_command(lambda lines: sys.stdout.writelines(lines), ['line'] * 10))"
)


@pytest.mark.parametrize(('stream', 'code'), [('> /dev/full', 73), ('| true', 0)])
def test_an_output_that_is_closed_or_full_gives_no_traceback(stream, code):
    command = f'"{sys.executable}" -c "{CODE}" {stream}'
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert ended.returncode == code
    assert not re.search('Traceback|Exception', ended.stderr)
