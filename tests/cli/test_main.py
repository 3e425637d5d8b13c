import argparse
import logging
import re
import subprocess
import sys
import tempfile

import pytest

from surreal_bids import __version__, exceptions
from surreal_bids.cli import gan, simulate
from surreal_bids.cli.main import add_common_options, run_command, set_up_logging


def _raise(error):
    raise error


@pytest.mark.parametrize(('returned', 'code'), [(None, 0), (0, 0), (1, 1)])
def test_the_code_of_the_command_is_returned(returned, code):
    assert run_command(lambda _: returned, None) == code


@pytest.mark.parametrize(
    ('kind', 'code'),
    [
        (exceptions.SurrealError, 1),
        (exceptions.UsageError, 2),
        (exceptions.NotBIDSError, 16),
        (exceptions.NothingMatchedError, 18),
        (exceptions.DataError, 65),
        (exceptions.OutputError, 73),
    ],
)
def test_our_errors_become_one_line_and_their_exit_code(kind, code, capsys):
    assert run_command(_raise, kind('what; where; remedy')) == code
    assert capsys.readouterr().err == 'error: what; where; remedy\n'


def test_an_interruption_is_130(capsys):
    assert run_command(_raise, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == 'interrupted; rerun the command to resume\n'


def test_an_unexpected_error_is_70_with_its_traceback_in_a_file(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    assert run_command(_raise, ZeroDivisionError('oops')) == 70
    shown = capsys.readouterr().err
    (log,) = tmp_path.iterdir()
    assert shown.startswith('error: unexpected ZeroDivisionError: oops\n')
    assert shown.endswith(f'report it with {log}\n')
    assert 'Traceback' in log.read_text()


def test_a_traceback_is_not_lost_where_no_file_can_be_written(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'nowhere'))
    assert run_command(_raise, ZeroDivisionError('oops')) == 70
    assert 'Traceback' in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error():
    code = (
        'import sys; from surreal_bids.cli.main import run_command\n'
        'sys.exit(run_command(sys.stdout.writelines, ["line\\n"] * 100_000))'
    )
    with subprocess.Popen(
        [sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b''
    assert process.returncode == 141


@pytest.mark.parametrize(
    ('arguments', 'level'),
    [
        ([], logging.WARNING),
        (['-v'], logging.INFO),
        (['-vv'], logging.DEBUG),
        (['-q'], logging.WARNING),
        (['--quiet'], logging.WARNING),
    ],
)
def test_verbosity_counts(arguments, level):
    parser = argparse.ArgumentParser()
    add_common_options(parser)
    set_up_logging(parser.parse_args(arguments).verbosity)
    assert logging.getLogger('surreal_bids').level == level
    is_shown = logging.getLogger('surreal_bids.progress').isEnabledFor(logging.INFO)
    assert is_shown == (arguments not in (['-q'], ['--quiet']))
    set_up_logging(0)


COMMANDS = {
    gan.build_parser: (
        'fit T --out M',
        'apply T --model M --out r.tsv',
        'report M',
        'add-site M T O',
        'card M',
    ),
    simulate.build_parser: ('table O', 'cohort O', 'score R T'),
}


@pytest.mark.parametrize(
    ('build', 'command'), [(b, c) for b, all_ in COMMANDS.items() for c in all_]
)
@pytest.mark.parametrize(
    ('flag', 'verbosity'), [('-q', -1), ('--quiet', -1), ('-v', 1), ('--verbose', 1), ('-vv', 2)]
)
def test_verbosity_is_given_before_or_after_the_command(build, command, flag, verbosity):
    words = command.split()
    for place in (0, 1, len(words)):
        given = [*words[:place], flag, *words[place:]]
        assert build().parse_args(given).verbosity == verbosity
    assert build().parse_args(words).verbosity == 0


def test_all_commands_are_tested():
    for build, commands in COMMANDS.items():
        (known,) = re.findall(r'\{(.*?)\}', build().format_usage())
        assert [command.split()[0] for command in commands] == known.split(',')


def test_version(capsys):
    parser = argparse.ArgumentParser(prog='surreal-x')
    add_common_options(parser)
    with pytest.raises(SystemExit) as ending:
        parser.parse_args(['--version'])
    assert ending.value.code == 0
    assert capsys.readouterr().out == f'surreal-x {__version__}\n'
