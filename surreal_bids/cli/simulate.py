"""`surreal-simulate`: data whose truth is known."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from surreal_bids.cli import simulate_cohort, simulate_score, simulate_table
from surreal_bids.cli.main import add_common_options, run_command, set_up_logging
from surreal_bids.cli.parser import with_hyphens


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog='surreal-simulate', description='Simulate data whose truth is known.'
    )
    add_common_options(parser)
    subparsers = parser.add_subparsers(required=True, metavar='{table,cohort,score}')
    simulate_table.add_parser(subparsers)
    simulate_cohort.add_parser(subparsers)
    simulate_score.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run `surreal-simulate`; returns the exit code."""
    arguments = build_parser().parse_args(with_hyphens(sys.argv[1:] if argv is None else argv))
    set_up_logging(arguments.verbosity)
    return run_command(arguments.run, arguments)
