"""Every error is one line with an exit code, and messages of libraries are details."""

import argparse
import logging
import os
import re
import subprocess
import sys
from itertools import cycle

import pytest

from surreal_bids import __version__, exceptions
from surreal_bids.cli import app, gan, simulate
from surreal_bids.cli.main import add_common_options, run_command, set_up_logging
from tests.cohort.study import make_study

MAINS = {'gan': gan.main, 'bids': app.main, 'simulate': simulate.main}


def _raise(error):
    raise error


@pytest.mark.parametrize(
    ('error', 'code', 'shown'),
    [
        (exceptions.SurrealError('what; remedy'), 1, 'what; remedy\n'),
        (exceptions.UsageError('what; remedy'), 2, 'what; remedy\n'),
        (exceptions.NotBIDSError('what; remedy'), 16, 'what; remedy\n'),
        (exceptions.NothingMatchedError('what; remedy'), 18, 'what; remedy\n'),
        (exceptions.DataError('what; remedy'), 65, 'what; remedy\n'),
        (exceptions.OutputError('what; remedy'), 73, 'what; remedy\n'),
        (OSError(28, 'No space left on device', 'x.tsv'), 73, 'No space left on device'),
        (PermissionError(13, 'Permission denied', 'x.tsv'), 65, 'Permission denied'),
        (MemoryError(), 65, 'memory'),
    ],
)
def test_errors_become_one_line_and_their_exit_code(error, code, shown, capsys):
    assert run_command(_raise, error) == code
    told = capsys.readouterr().err
    assert re.match(f'error: .*{shown}', told)
    assert told.count('\n') == 1


def test_an_interruption_is_130_and_a_bug_70(capsys):
    assert run_command(_raise, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == 'interrupted; rerun the command to resume\n'
    assert run_command(_raise, ZeroDivisionError('oops')) == 70
    shown = capsys.readouterr().err
    assert 'ZeroDivisionError: oops' in shown
    assert shown.endswith('please report it with the above\n')


def test_wrong_usage_is_two_lines(capsys):
    assert gan.main(['fit', 'v.tsv', '--out', 'm', '--covariate', 'age']) == 2
    assert capsys.readouterr().err == (
        'error: unrecognized arguments: --covariate age; did you mean --covariates?\n'
        'See "surreal-gan fit --help".\n'
    )


@pytest.mark.slow
def test_messages_of_libraries_are_details():
    """NumPy's warnings and nibabel's notes about headers reached the terminal."""
    code = (
        'import sys, numpy, nibabel; from surreal_bids.cli.main import set_up_logging\n'
        'set_up_logging(int(sys.argv[1])); numpy.log(numpy.zeros(1)); h = nibabel.Nifti1Header()\n'
        "h['pixdim'][1:4] = -1; h.check_fix(nibabel.imageglobals.logger, error_level=50)"
    )
    for verbosity, is_shown in (('0', False), ('2', True)):
        command = [sys.executable, '-c', code, verbosity]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert ('divide by zero' in told, 'pixdim' in told) == (is_shown, is_shown)


def test_verbosity():
    parser = argparse.ArgumentParser()
    add_common_options(parser)
    expected = {
        '': logging.WARNING,
        '-v': logging.INFO,
        '-vv': logging.DEBUG,
        '-q': logging.WARNING,
    }
    for words, level in expected.items():
        set_up_logging(parser.parse_args(words.split()).verbosity)
        assert logging.getLogger('surreal_bids').level == level
        is_shown = logging.getLogger('surreal_bids.progress').isEnabledFor(logging.INFO)
        assert is_shown == (words != '-q')
    set_up_logging(0)


COMMANDS = {
    gan.build_parser: (
        'fit T --out M',
        'apply T --model M --out r',
        'add-site M T O',
        'card M',
        'replicate M T --out D',
    ),
    simulate.build_parser: ('table O', 'cohort O', 'score R T'),
}


def test_verbosity_is_given_before_or_after_the_command():
    for build, commands in COMMANDS.items():
        for words in map(str.split, commands):
            for place in (0, 1, len(words)):
                given = [*words[:place], '-v', *words[place:]]
                assert build().parse_args(given).verbosity == 1
            assert build().parse_args(words).verbosity == 0


def test_help_and_version(capsys):
    for main in MAINS.values():
        for words, told in ((['--help'], 'options'), (['--version'], __version__)):
            with pytest.raises(SystemExit) as ending:
                main(words)
            assert ending.value.code == 0
            assert told in capsys.readouterr().out


def test_help_is_fast():
    """Help imports neither torch nor nipype."""
    code = (
        'import sys; from surreal_bids.cli import app, gan; app.build_parser(); gan.build_parser();'
        "print({'torch', 'nipype', 'pandas'} & set(sys.modules))"
    )
    command = [sys.executable, '-c', code]
    assert subprocess.run(command, capture_output=True, text=True).stdout == 'set()\n'


READERS = (
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


@pytest.mark.slow
@pytest.mark.skipif(os.name == 'nt', reason='Windows has other errors')
def test_files_that_cannot_be_read_are_named(tmp_path, capsys):
    home, out = tmp_path / 'home', tmp_path / 'out'
    home.mkdir()
    make_study().write(home)
    (home / 'dataset_description.json').write_text('{"Name": "x", "BIDSVersion": "1.10.0"}')
    (home / 'folder.tsv').mkdir()
    (home / 'link.tsv').symlink_to(home / 'not_fetched')
    for command, name in zip(READERS, cycle(('nowhere.tsv', 'folder.tsv', 'link.tsv'))):
        words = command.format(bad=home / name, home=home, out=out).split()
        assert MAINS[words[0]](words[1:]) in (2, 16, 18, 65), (command, name)
        shown = capsys.readouterr().err
        assert str(home / name) in shown
        assert not re.search('Traceback|bug', shown)
        assert not out.exists()
