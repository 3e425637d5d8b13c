import pytest

from surreal_bids.cli.aliases import CONVERTED, INSTEAD, NEEDLESS, RENAMED, with_our_names
from surreal_bids.cli.app import build_parser, parse_arguments
from surreal_bids.cli.gan import build_parser as build_gan_parser
from surreal_bids.cli.main import Parser
from surreal_bids.exceptions import UsageError

LEVEL = ['in', 'out', 'participant']


@pytest.mark.parametrize(
    ('given', 'name', 'expected'),
    [
        (['--nthreads', '3'], 'nprocs', 3),
        (['--ncpus=3'], 'nprocs', 3),
        (['--n_cpus', '3'], 'nprocs', 3),
        (['--mem', '16000'], 'mem_gb', 16.0),
        (['--mem_mb=8000'], 'mem_gb', 8.0),
        (['--mem', '16G'], 'mem_gb', 16.0),
        (['--mem', '1.5TB'], 'mem_gb', 1500.0),
        (['--participant-labels', '01', '02'], 'participant_label', ('01', '02')),
        (['--fs-subjects-dir', 'fs'], 'derivatives', ('freesurfer=fs',)),
        (['-d', 'a=b', '--fs-subjects-dir=fs', '-d', 'c'], 'derivatives', None),
        (['--notrack'], 'nprocs', None),
        (['--fs-license-file', 'file', '--nprocs', '2'], 'nprocs', 2),
    ],
)
def test_names_of_fmriprep(given, name, expected):
    config, _ = parse_arguments([*LEVEL, *given])
    expected = ('a=b', 'freesurfer=fs', 'c') if name == 'derivatives' and not expected else expected
    assert getattr(config, name) == expected


@pytest.mark.parametrize('option', NEEDLESS)
def test_what_is_the_case_anyway_is_said(option, caplog):
    caplog.set_level('INFO', 'surreal_bids')
    assert with_our_names([option]) == []
    assert f'{option}: {NEEDLESS[option]}' in caplog.text


@pytest.mark.parametrize('option', INSTEAD)
def test_what_has_no_meaning_here_is_answered_in_one_line(option):
    with pytest.raises(UsageError) as raised:
        with_our_names([*LEVEL, option, 'value'])
    assert str(raised.value) == f'{option}: {INSTEAD[option]}'
    assert '\n' not in str(raised.value)


@pytest.mark.parametrize('given', [['--mem'], ['--mem', '--nprocs'], ['--mem', 'much']])
def test_values_that_cannot_be_read(given):
    with pytest.raises(UsageError, match=r'--mem.*: expected'):
        with_our_names(given)


def test_no_name_is_one_of_ours_already():
    ours = {name for action in build_parser()._actions for name in action.option_strings}
    assert not ours & {*RENAMED, *CONVERTED, *NEEDLESS, *INSTEAD}
    assert {*RENAMED.values(), *(name for name, _ in CONVERTED.values())} <= ours


@pytest.mark.parametrize(
    ('parser', 'given', 'expected'),
    [
        (build_parser(), [*LEVEL, '--dryrun'], '--dryrun: did you mean --dry-run?'),
        (build_parser(), [*LEVEL, '--templat=x'], '--templat: did you mean --template?'),
        (build_gan_parser(), ['fit', 't', '--out', 'm', '--n-pattern', '2'], 'mean --n-patterns?'),
    ],
)
def test_a_misspelt_option_gets_a_suggestion(parser, given, expected, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(given)
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize('command', ['fit', 'apply', 'card'])
def test_an_unknown_option_of_a_command_shows_its_usage(command, capsys):
    given = {'fit': ['t', '--out', 'm'], 'apply': ['m', 't', '--out', 'r.tsv'], 'card': ['m']}
    with pytest.raises(SystemExit):
        build_gan_parser().parse_args([command, *given[command], '--colour'])
    assert f'usage: surreal-gan {command} ' in capsys.readouterr().err


def test_no_suggestion_without_one(capsys):
    with pytest.raises(SystemExit):
        Parser().parse_args(['--colour'])
    assert 'did you mean' not in capsys.readouterr().err


def test_help_says_so():
    text = ' '.join(build_parser().format_help().split())
    assert 'fMRIPrep-compatible aliases' in text
