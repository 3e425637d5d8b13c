"""`surreal-gan`: the model on tables, for people who have regional volumes already."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from surreal_bids.cli import gan_apply, gan_fit, gan_import
from surreal_bids.cli.main import add_common_options, run_command, set_up_logging
from surreal_bids.cli.parser import with_hyphens


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog='surreal-gan',
        description='R-indices of disease-related brain patterns from a table of regional volumes: '
        'how strongly each pattern is expressed in each person (Surreal-GAN).',
        epilog='Exit codes: 0 done; 2 wrong usage; 65 bad data; 73 the output cannot be written. '
        '"surreal-gan COMMAND --help" tells more of each command.',
    )
    add_common_options(parser)
    commands = parser.add_subparsers(
        required=True, metavar='{fit,apply,import-checkpoint,card}', title='Commands'
    )
    gan_fit.add_parser(commands)
    gan_apply.add_parser(commands)
    gan_import.add_parser(commands)
    gan_apply.add_card_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run `surreal-gan`; returns the exit code."""
    arguments = build_parser().parse_args(with_hyphens(sys.argv[1:] if argv is None else argv))
    set_up_logging(arguments.verbosity)
    return run_command(arguments.run, arguments)
