"""The experiments of the Surreal-GAN paper: sections 4.2 and 5.1, appendix B.2 to B.7.

    python benchmarks/paper.py OUT --quick
    python benchmarks/paper.py OUT --device cuda --from-table CN.csv

Writes a TSV for each experiment to OUT, with the paper's numbers. Rerun
the command to resume. The full setting needs a GPU. --quick runs everything in minutes, and all its
tables state this.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from machine import circumstances
from reproduction.experiments import FULL_ITERATIONS, Study, full_plan, quick_plan
from reproduction.tables import TABLES

from surreal_bids.exceptions import SurrealError
from surreal_bids.files import write_tsv
from surreal_bids.simulation.tables import TASKS, read_controls

PACKAGES = ('torch', 'numpy', 'scikit-learn')
DECIMALS = 5


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('out', type=Path, help='folder for results; resumes with those it holds')
    parser.add_argument(
        '--quick', action='store_true', help='few participants, members, iterations'
    )
    parser.add_argument('--experiments', nargs='+', choices=TABLES, default=list(TABLES))
    parser.add_argument('--tasks', nargs='+', choices=TASKS, default=list(TASKS))
    parser.add_argument('--preset', choices=FULL_ITERATIONS, default='robust')
    parser.add_argument(
        '--from-table',
        type=Path,
        metavar='CN.csv',
        help='regional volumes of healthy participants; similar ones are sampled where they are '
        'too few. Default: the built-in population',
    )
    parser.add_argument('--device', choices=('auto', 'cpu', 'cuda'), default='auto')
    parser.add_argument('--seed', type=int, default=0, help='of participants and members')
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Run unfinished units, then write and print the tables."""
    plan = quick_plan() if arguments.quick else full_plan(arguments.preset)
    controls = read_controls(arguments.from_table) if arguments.from_table else None
    study = Study(arguments.out, plan, arguments.preset, arguments.seed, arguments.device, controls)
    study.open()
    for name in arguments.experiments:
        table, setting = TABLES[name](study, arguments.tasks), plan.describe(name)
        described = {'setting': setting, 'preset': study.preset, 'seed': study.seed}
        described |= circumstances(*PACKAGES)
        write_tsv(study.folder / f'{name}.tsv', table.round(DECIMALS).assign(**described))
        print(f'\n{name} ({setting})\n{table.round(3).to_string(index=False, na_rep="-")}')
    print(f'\nwritten to {arguments.out}')


def main(argv: list[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format='%(message)s')
    try:
        run(make_parser().parse_args(argv))
    except SurrealError as error:
        print(f'paper.py: {error}', file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == '__main__':
    sys.exit(main())
