"""`surreal-simulate table`: tables of regional volumes whose truth is known."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

from surreal_bids import __version__
from surreal_bids.bids.derivatives import BIDS_VERSION
from surreal_bids.exceptions import DataError, OutputError
from surreal_bids.files import write_json
from surreal_bids.simulation.controls import read_controls
from surreal_bids.simulation.tables import RESAMPLINGS, simulate_table, write_simulated_table
from surreal_bids.simulation.tasks import TASKS

LOGGER = logging.getLogger(__name__)

DESCRIPTION = 'dataset_description.json'
"""Makes the folder a dataset, which the group level of the app takes with `--roi-table`."""

RECORD = 'simulation.json'
"""File of the output folder that says what was simulated, so that it can be done again."""


def add_parser(subparsers: Any) -> None:
    """Register the subcommand `table`."""
    parser = subparsers.add_parser(
        'table',
        help='simulate a table of regional volumes',
        description='Simulate one of the five semi-synthetic datasets of the Surreal-GAN paper: '
        'volumes of 139 MUSE regions of controls, and of patients with three patterns of atrophy '
        'whose severity is known.',
    )
    parser.add_argument('out', type=Path, metavar='OUT', help='folder to write the tables to')
    parser.add_argument(
        '--task',
        choices=TASKS,
        default='basic',
        help='which dataset: overlap shares more regions between patterns, scarce has few regions '
        'a pattern, noise varies more within a pattern, mild has smaller losses (default: basic)',
    )
    parser.add_argument('--n-cn', type=int, default=492, help='number of controls (default: 492)')
    parser.add_argument('--n-pt', type=int, default=900, help='number of patients (default: 900)')
    parser.add_argument('--seed', type=int, default=0, help='seed of all draws (default: 0)')
    parser.add_argument(
        '--from-table',
        type=Path,
        metavar='CN.csv',
        help='take healthy people from this CSV or TSV file with a column for each of the 139 '
        'regions, instead of the built-in population',
    )
    parser.add_argument(
        '--resample',
        choices=RESAMPLINGS,
        help='draw any number of people from a log-normal distribution fitted to --from-table',
    )
    parser.add_argument(
        '--overwrite', action='store_true', help='replace another simulation in OUT'
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Simulate and write the tables; say where they are."""
    record = _describe_simulation(arguments)
    _require_free_folder(arguments.out, record, arguments.overwrite)
    source = arguments.from_table
    simulated = simulate_table(
        arguments.task,
        n_cn=arguments.n_cn,
        n_pt=arguments.n_pt,
        seed=arguments.seed,
        controls=None if source is None else read_controls(source),
        resample=arguments.resample,
    )
    write_json(arguments.out / RECORD, record)
    description = {'Name': f'Simulated cohort, task {arguments.task}', 'BIDSVersion': BIDS_VERSION}
    write_json(arguments.out / DESCRIPTION, description)
    written = write_simulated_table(arguments.out, simulated)
    unknown = simulated.participants.columns[simulated.participants.isna().all()]
    if len(unknown):
        LOGGER.warning(
            '%s of these people: not known (n/a), so do not name them as covariates or sites',
            ', '.join(unknown),
        )
    sys.stdout.write(
        f'{arguments.n_cn} controls and {arguments.n_pt} patients, task {arguments.task}:\n'
        + ''.join(f'  {path}\n' for path in written)
    )
    return 0


def _describe_simulation(arguments: argparse.Namespace) -> dict[str, Any]:
    """All that the tables depend on."""
    return {
        'Task': arguments.task,
        'Controls': arguments.n_cn,
        'Patients': arguments.n_pt,
        'Seed': arguments.seed,
        'SourceTableSHA256': _checksum(arguments.from_table),
        'Resampling': arguments.resample,
        'SurrealBIDSVersion': __version__,
    }


def _checksum(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f'{path}: cannot be read ({error.strerror}); see --from-table') from error


def _require_free_folder(folder: Path, record: dict[str, Any], overwrite: bool) -> None:
    """Refuse a folder that holds anything but the same simulation, unless told to overwrite."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f'{folder}: a file of this name exists; choose another output folder')
    if overwrite or not folder.exists() or not any(folder.iterdir()):
        return
    if _read_record(folder / RECORD) != record:
        raise OutputError(
            f'{folder}: the folder holds something else than this simulation; '
            'choose another one or use --overwrite'
        )


def _read_record(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
