"""The command line of the BIDS App."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from surreal_bids.cli import options
from surreal_bids.cli.main import add_common_options
from surreal_bids.config import AppConfig, make_config


def parse_arguments(arguments: Sequence[str]) -> tuple[AppConfig, int]:
    """Turn a command line into a configuration, and tell how much to say on the way.

    Options that are not given are not in the namespace, so that those of `--config-file` count.
    """
    given = vars(build_parser().parse_args(with_hyphens(arguments)))
    verbosity = given.pop('verbosity')
    config_file = given.pop('config_file', None)
    given = {n: tuple(value) if isinstance(value, list) else value for n, value in given.items()}
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
        'The participant level makes ROI volumes and RAVENS maps of each T1w image, the group '
        'level finds the patterns. Repeat a command to go on where it stopped.',
        epilog='Exit codes: 0 all is well; 1 some participants failed, each named; 2 wrong '
        'usage; 16 not a BIDS dataset; 18 nothing matches the filters; 65 bad data; 73 the output '
        'cannot be written.',
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    for add in (
        options.add_positionals,
        options.add_filters,
        options.add_anatomy,
        options.add_groups,
        options.add_patterns,
        options.add_resources,
        options.add_running,
        options.add_cluster,
        add_common_options,
    ):
        add(parser)
    return parser
