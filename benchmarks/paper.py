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
import os
import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
from machine import circumstances
from reproduction.experiments import run_unit
from reproduction.plan import EXPERIMENTS, FULL_ITERATIONS, full_plan, quick_plan, units
from reproduction.study import Study, run_units
from reproduction.tables import TABLES

from surreal_bids.exceptions import SurrealError
from surreal_bids.files import write_tsv
from surreal_bids.parallel import find_device
from surreal_bids.simulation.population import read_controls
from surreal_bids.simulation.tables import TASKS

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
    parser.add_argument('--experiments', nargs='+', choices=EXPERIMENTS, default=EXPERIMENTS)
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
    parser.add_argument('--jobs', type=int, help='processes at once; as many as cores')
    parser.add_argument('--seed', type=int, default=0, help='of participants and members')
    return parser


def assemble(study: Study, experiment: str, tasks: list[str]) -> dict[str, pd.DataFrame]:
    """Write the tables of an experiment from its finished units."""
    tables = {name: make(study, tasks) for name, make in TABLES[experiment].items()}
    tables = {name: table for name, table in tables.items() if not table.empty}
    described_by = {
        'setting': study.plan.describe(experiment),
        'preset': study.preset,
        'seed': study.seed,
    }
    for name, table in tables.items():
        described = table.round(DECIMALS).assign(**described_by, **circumstances(*PACKAGES))
        write_tsv(study.folder / f'{name}.tsv', described)
    return tables


def run(arguments: argparse.Namespace) -> None:
    """Run unfinished units, then write and print the tables."""
    plan = quick_plan() if arguments.quick else full_plan(arguments.preset)
    controls = read_controls(arguments.from_table) if arguments.from_table else None
    study = Study(arguments.out, plan, arguments.preset, arguments.seed, arguments.device, controls)
    study.open()
    todo = units(arguments.experiments, arguments.tasks, plan)
    on_gpu = find_device(arguments.device) == 'cuda'
    run_units(study, todo, run_unit, arguments.jobs or os.cpu_count() or 1, train_here=on_gpu)
    for experiment in arguments.experiments:
        for name, table in assemble(study, experiment, arguments.tasks).items():
            print(f'\n{name} ({plan.describe(experiment)})')
            print(table.round(3).to_string(index=False, na_rep='-'))
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
