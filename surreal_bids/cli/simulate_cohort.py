"""`surreal-simulate cohort`: whole BIDS datasets of simulated heads."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from surreal_bids.cli.machine import usable_cores
from surreal_bids.exceptions import UsageError
from surreal_bids.simulation.atrophy import PATTERNS
from surreal_bids.simulation.cohort import simulate_cohort
from surreal_bids.simulation.people import CohortPlan
from surreal_bids.simulation.templates import VOXEL_SIZES_MM


def add_parser(subparsers: Any) -> None:
    """Register the subcommand `cohort`."""
    parser = subparsers.add_parser(
        'cohort',
        help='simulate a BIDS dataset of T1w heads',
        description='Simulate a whole BIDS dataset of T1w heads whose truth is known: controls '
        'with an anatomy of their own, and patients who also have atrophy of known severity. '
        'Repeat the same command to complete a dataset after an interruption.',
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    plan = CohortPlan()
    parser.add_argument('out', type=Path, metavar='OUT', help='folder to write the dataset to')
    parser.add_argument('--n-cn', type=int, default=plan.n_cn, help='number of controls')
    parser.add_argument('--n-pt', type=int, default=plan.n_pt, help='number of patients')
    parser.add_argument('--sites', type=int, default=plan.sites, help='number of sites')
    parser.add_argument(
        '--patterns',
        type=int,
        default=plan.patterns,
        help='number of patterns of atrophy: the first of '
        + ', '.join(name for name, _ in PATTERNS),
    )
    parser.add_argument(
        '--voxel-size', type=float, choices=VOXEL_SIZES_MM, default=plan.voxel_size, help='in mm'
    )
    parser.add_argument(
        '--atlases',
        type=int,
        default=plan.atlases,
        metavar='K',
        help='also simulate K healthy people, skull-stripped and labelled, as an atlas set',
    )
    parser.add_argument(
        '--skull-stripped', action='store_true', help='show the brain only, without skull and scalp'
    )
    parser.add_argument(
        '--variation',
        type=float,
        default=plan.variation,
        help='how much the anatomy of people differs: 1 as that of real people; with less, '
        'patterns are found with fewer people',
    )
    parser.add_argument('--seed', type=int, default=plan.seed, help='seed of all draws')
    parser.add_argument(
        '--nprocs',
        '--n-cpus',
        type=int,
        default=usable_cores(),
        help='number of processes; one needs about 1 GB at 2 mm and 3 GB at 1 mm',
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Simulate and write the cohort; say where it is and what to open."""
    if arguments.nprocs < 1:
        raise UsageError(f'--nprocs {arguments.nprocs}: give at least 1')
    plan = CohortPlan(
        n_cn=arguments.n_cn,
        n_pt=arguments.n_pt,
        sites=arguments.sites,
        stripped=arguments.skull_stripped,
        variation=arguments.variation,
        patterns=arguments.patterns,
        voxel_size=arguments.voxel_size,
        atlases=arguments.atlases,
        seed=arguments.seed,
    )
    simulate_cohort(arguments.out, plan, arguments.nprocs)
    sys.stdout.write(
        f'{plan.n_cn} controls, {plan.n_pt} patients and {plan.atlases} atlases are in '
        f'{arguments.out}; README.md there says what is what.\n'
    )
    return 0
