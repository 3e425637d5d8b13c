"""`python -m surreal_bids atlases`: labelled brains of others as a folder for `--atlas`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from surreal_bids.cli.main import Parser, add_common_options, run_command, set_up_logging
from surreal_bids.files import sole_use

COMMAND = 'atlases'


def build_parser() -> argparse.ArgumentParser:
    """Build the parser."""
    parser = Parser(
        prog=f'python -m surreal_bids {COMMAND}',
        description='Turn a clone of https://github.com/muschellij2/malf.templates, 35 brains of '
        'people of 18 to 90 years labelled by hand (CC BY-NC), into a folder for "surreal-bids '
        '... --atlas FOLDER": white matter is divided into the regions of MUSE. About 10 s of one '
        'core for each brain. Repeat the command to resume where it stopped.',
    )
    parser.add_argument('clone', type=Path, metavar='CLONE', help='the clone, with its LICENSE')
    parser.add_argument('folder', type=Path, metavar='FOLDER', help='folder to write atlases to')
    add_common_options(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parsed = build_parser().parse_args(sys.argv[2:] if arguments is None else arguments)
    set_up_logging(parsed.verbosity)
    return run_command(run, parsed)


def run(arguments: argparse.Namespace) -> None:
    """Convert, and say what was done."""
    # Brings in torch, which `--help` need not wait for.
    from surreal_bids.imaging.neuromorphometrics import convert_clone

    with sole_use(arguments.folder, [COMMAND]):
        n_atlases = 0
        for name, is_new in convert_clone(arguments.clone, arguments.folder):
            n_atlases += 1
            sys.stdout.write(f'{name}: {"made" if is_new else "kept"}\n')
            sys.stdout.flush()
    sys.stdout.write(
        f'{n_atlases} atlases are in {arguments.folder}; use them with --atlas {arguments.folder}. '
        f'Terms of use: {arguments.folder / "LICENSE"}\n'
    )
