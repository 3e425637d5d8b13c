"""The command line of the BIDS App."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from surreal_bids.cli.main import add_common_options
from surreal_bids.config import AppConfig, make_config

LEVELS = ('participant', 'group')


def parse_arguments(arguments: Sequence[str]) -> tuple[AppConfig, int]:
    """Turn a command line into a configuration, and tell how much to say on the way.

    Options that are not given are not in the namespace, so that those of `--config-file` count.
    """
    options = vars(build_parser().parse_args(with_hyphens(arguments)))
    verbosity = options.pop('verbosity')
    config_file = options.pop('config_file', None)
    given = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
    }
    return make_config(given, config_file), verbosity


def with_hyphens(arguments: Iterable[str]) -> list[str]:
    """Spell options with hyphens: BIDS Apps of old have `--participant_label`."""
    return [_with_hyphens(argument) for argument in arguments]


def _with_hyphens(argument: str) -> str:
    if not argument.startswith('--'):
        return argument
    option, equals, value = argument.partition('=')
    return option.replace('_', '-') + equals + value


def build_parser() -> argparse.ArgumentParser:
    """Build the parser, options grouped as users of fMRIPrep know them."""
    parser = argparse.ArgumentParser(
        prog='surreal-bids',
        description='R-indices of disease-related brain patterns from T1-weighted MRI: a BIDS App. '
        'This version checks whether a dataset is ready for it (--dry-run).',
        epilog='Exit codes: 0 all is well; 1 some participants have problems, each named; 2 wrong '
        'usage; 16 not a BIDS dataset; 18 nothing matches the filters; 65 bad data; 73 the output '
        'cannot be written.',
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    _add_positionals(parser)
    _add_filters(parser)
    _add_groups(parser)
    _add_running(parser)
    add_common_options(parser)
    return parser


def _add_positionals(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('bids_dir', type=Path, metavar='BIDS_DIR', help='root of a BIDS dataset')
    parser.add_argument(
        'output_dir',
        type=Path,
        metavar='OUTPUT_DIR',
        help='folder for the outputs: outside the dataset, or BIDS_DIR/derivatives/NAME',
    )
    parser.add_argument(
        'analysis_levels',
        nargs='+',
        choices=LEVELS,
        metavar='{participant,group}',
        help='what to run: each participant, the group, or both',
    )


def _add_filters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group('Options for filtering the dataset')
    group.add_argument(
        '--participant-label',
        nargs='+',
        metavar='LABEL',
        help='participants to use, with or without "sub-"; all by default',
    )
    group.add_argument(
        '--session-label',
        '--session-id',
        nargs='+',
        metavar='LABEL',
        help='sessions to use, with or without "ses-"; all by default',
    )
    group.add_argument(
        '--bids-filter-file',
        type=Path,
        metavar='FILE',
        help='which T1w image to use where there are several: a JSON file as fMRIPrep takes it, '
        'such as {"t1w": {"acquisition": "mprage", "run": 2}}. A value may be a list, null (the '
        'entity is absent) or "*" (it is present). By default, the first image of each session',
    )
    group.add_argument(
        '--bids-database-dir',
        type=Path,
        metavar='DIR',
        help='folder to keep the index of the dataset in, which makes the next call faster; '
        'an index is used only while the dataset is unchanged',
    )


def _add_groups(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group('Options for controls and patients')
    group.add_argument(
        '--group-column',
        metavar='NAME',
        help='column of participants.tsv with the diagnosis; by default diagnosis, group or dx',
    )
    group.add_argument('--control-label', metavar='VALUE', help='its value for controls')
    group.add_argument('--patient-label', metavar='VALUE', help='its value for patients')


def _add_running(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group('Options for running')
    group.add_argument(
        '--config-file',
        type=Path,
        metavar='FILE',
        help='TOML file of options, named as here with underscores; the command line wins',
    )
    group.add_argument(
        '--dry-run',
        action='store_true',
        help='check the dataset and every image, show what was found and where outputs go, and '
        'write nothing but the index that --bids-database-dir asks for',
    )
