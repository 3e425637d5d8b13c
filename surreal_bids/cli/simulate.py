"""`surreal-simulate`: simulated data with known truth."""

from __future__ import annotations

import argparse
import hashlib
import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd

from surreal_bids import __version__
from surreal_bids.bids.outputs import BIDS_VERSION, output_path
from surreal_bids.cautions import Caution
from surreal_bids.cli.main import (
    Parser,
    add_common_options,
    add_to_commands,
    run_command,
    set_up_logging,
    usable_cores,
    with_hyphens,
)
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.files import read_file, replacing, sole_use, write_image, write_json
from surreal_bids.names import PARTICIPANT, PATIENT, SESSION, without_prefix
from surreal_bids.progress import with_bar
from surreal_bids.simulation.anatomy import PATTERNS, VOXEL_SIZES_MM, labels_at, load_labels
from surreal_bids.simulation.cohort import CohortPlan, simulate_cohort
from surreal_bids.simulation.course import NO_COURSE, Course
from surreal_bids.simulation.tables import (
    TASKS,
    SimulatedTable,
    claim_folder,
    read_controls,
    simulate_ravens,
    simulate_table,
    write_simulated_table,
)
from surreal_bids.stats.concordance import concordance_matrix, match_patterns
from surreal_bids.tables import Table, read_visit_table
from surreal_bids.text import counted

LOGGER = logging.getLogger(__name__)

PATTERN_COLUMN = re.compile(r'(r|pattern_)\d+')

GROUP = 'group'
"""Column of `rindices.tsv` with the group of each participant."""

DESCRIPTION = 'dataset_description.json'
"""Makes the folder a dataset for the group level of the app with `--roi-table`."""

MAP_STREAM = 1
"""Distinguishes the random numbers of the maps from those of the tables."""

RECORD = 'simulation.json'
"""File that records the settings of a simulation, which reproduce it."""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all subcommands."""
    parser = Parser(
        prog='surreal-simulate',
        description='Simulate data with known truth.',
        epilog='Exit codes: 0 success; 2 wrong usage; 65 bad data; 73 the output cannot be '
        'written. "surreal-simulate COMMAND --help" explains each command.',
    )
    add_common_options(parser)
    subparsers = parser.add_subparsers(
        required=True, metavar='{table,cohort,score}', title='Commands'
    )
    add_table_parser(subparsers)
    add_cohort_parser(subparsers)
    add_score_parser(subparsers)
    add_to_commands(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run `surreal-simulate`; returns the exit code."""
    return run_command(run, sys.argv[1:] if argv is None else argv)


def run(argv: Sequence[str]) -> int:
    """Parse a command line and run the command."""
    arguments = build_parser().parse_args(with_hyphens(argv))
    set_up_logging(arguments.verbosity)
    return int(arguments.run(arguments))


def add_table_parser(subparsers: Any) -> None:
    """Register the subcommand `table`."""
    parser = subparsers.add_parser(
        'table',
        help='simulate a table of regional volumes',
        description='Simulate one of the five semi-synthetic datasets of the Surreal-GAN paper: '
        'volumes of 139 MUSE regions in controls, and in patients with three patterns of '
        'atrophy of known severity.',
    )
    parser.add_argument('out', type=Path, metavar='OUT', help='folder to write the tables to')
    parser.add_argument(
        '--task',
        choices=TASKS,
        default='basic',
        help='dataset. overlap: patterns share more regions; scarce: few regions per pattern; '
        'noise: more variation within a pattern; mild: smaller losses (default: basic)',
    )
    _add_counts(parser, 492, 900, 0)
    _add_course(parser)
    parser.add_argument(
        '--from-table',
        type=Path,
        metavar='CN.csv',
        help='use the healthy participants of this CSV or TSV file, with a column for each of the '
        '139 regions, instead of the built-in population',
    )
    parser.add_argument(
        '--resample',
        choices=('gaussian',),
        help='sample any number of participants from a log-normal distribution fitted to '
        '--from-table',
    )
    parser.add_argument(
        '--maps',
        type=Path,
        metavar='DIR',
        help='also simulate a RAVENS map of grey matter (4 mm) of each participant; DIR is the '
        'output folder of a later group level',
    )
    parser.add_argument(
        '--overwrite', action='store_true', help='replace another simulation in OUT'
    )
    parser.set_defaults(run=run_table)


def _add_course(parser: argparse.ArgumentParser) -> None:
    """Add what a study has besides one visit of controls and patients."""
    text = 'number of participants with MCI: the patterns of patients, half as severe'
    _add_number(parser, '--n-mci', 0, text)
    parser.add_argument(
        '--side-dominance',
        type=float,
        default=0.0,
        metavar='SD',
        help='disease that is stronger on one side: a patient loses severity x (1 + d) on the left '
        'and severity x (1 - d) on the right, with d normal, of this standard deviation and mostly '
        'shared by the patterns. Real samples resemble 0.3 to 0.5 (default: 0)',
    )
    parser.add_argument(
        '--memory',
        action='store_true',
        help='add a memory score that falls with the severity of the first pattern',
    )
    parser.add_argument(
        '--visits',
        type=int,
        choices=(1, 2),
        default=1,
        help='2: a quarter of each group, or 20 participants if that is more, is seen again after '
        'about 1.5 years (default: 1)',
    )


def _course(arguments: argparse.Namespace) -> Course:
    settings = {setting.name: getattr(arguments, setting.name) for setting in fields(Course)}
    return Course(**settings)


def _add_counts(parser: argparse.ArgumentParser, n_cn: int, n_pt: int, seed: int) -> None:
    """Add what both simulations have: how many participants, and the seed."""
    _add_number(parser, '--n-cn', n_cn, 'number of controls')
    _add_number(parser, '--n-pt', n_pt, 'number of patients')
    _add_number(parser, '--random-seed', seed, 'seed of all random numbers', '--seed', dest='seed')


def _add_number(
    parser: argparse.ArgumentParser, name: str, default: int, text: str, *also: str, **details: Any
) -> None:
    text = f'{text} (default: {default})'
    parser.add_argument(name, *also, type=int, default=default, metavar='N', help=text, **details)


def run_table(arguments: argparse.Namespace) -> int:
    """Simulate and write the tables; print where they are."""
    record = _describe_simulation(arguments)
    source = arguments.from_table
    simulated = simulate_table(
        arguments.task,
        n_cn=arguments.n_cn,
        n_pt=arguments.n_pt,
        seed=arguments.seed,
        controls=None if source is None else read_controls(source),
        resample=arguments.resample,
        course=_course(arguments),
    )
    out = arguments.out
    claim_folder(out, RECORD, record, overwrite=arguments.overwrite)
    description = {'Name': f'Simulated cohort, task {arguments.task}', 'BIDSVersion': BIDS_VERSION}
    with sole_use('simulation', out), replacing(out / RECORD):
        write_json(out / DESCRIPTION, description)
        written = write_simulated_table(out, simulated)
        write_json(out / RECORD, record)
    if arguments.maps:
        _write_maps(arguments.maps, simulated, arguments.seed)
    unknown = simulated.participants.columns[simulated.participants.isna().all()]
    if len(unknown):
        LOGGER.warning(
            Caution(
                f'{", ".join(unknown)}: n/a for all participants of the given table',
                'They cannot be covariates or sites of the simulated cohort',
                'Complete them in the table if you need them',
            )
        )
    listed = ''.join(f'  {path}\n' for path in written)
    sys.stdout.write(f'{_summarise(arguments)}, task {arguments.task}:\n{listed}')
    return 0


def _summarise(arguments: argparse.Namespace) -> str:
    """How many participants were simulated, in words."""
    controls, patients = counted(arguments.n_cn, 'control'), counted(arguments.n_pt, 'patient')
    if arguments.n_mci:
        return f'{controls}, {patients} and {counted(arguments.n_mci, "participant")} with MCI'
    return f'{controls} and {patients}'


def _write_maps(folder: Path, simulated: SimulatedTable, seed: int) -> None:
    """Write the RAVENS maps where the participant level would."""
    volumes = simulated.volumes
    maps = simulate_ravens(volumes, np.random.default_rng((seed, MAP_STREAM)))
    no_session = pd.Series(None, volumes.index, dtype=object)
    visits = zip(volumes[PARTICIPANT], volumes.get(SESSION, no_session), maps)
    for participant, session, image in with_bar(visits, 'Simulating maps', len(volumes)):
        entities = {
            'participant': without_prefix(participant, 'sub'),
            'session': session and without_prefix(session, 'ses'),
        }
        write_image(output_path(folder, 'ravens', tissue='GM', **entities), image)


def add_cohort_parser(subparsers: Any) -> None:
    """Register the subcommand `cohort`."""
    parser = subparsers.add_parser(
        'cohort',
        help='simulate a BIDS dataset of T1w heads',
        description='Simulate a BIDS dataset of T1w images with known truth: controls with '
        'individual anatomy, and patients who also have atrophy of known severity. '
        'Rerun the command to resume it after an interruption.',
    )
    plan = CohortPlan()
    parser.add_argument('out', type=Path, metavar='OUT', help='folder to write the dataset to')
    _add_counts(parser, plan.n_cn, plan.n_pt, plan.seed)
    _add_number(parser, '--sites', plan.sites, 'number of sites')
    known = ', '.join(name for name, _ in PATTERNS)
    text = f'number of patterns of atrophy: the first of {known}'
    _add_number(parser, '--patterns', plan.patterns, text)
    sizes = ','.join(f'{size:g}' for size in VOXEL_SIZES_MM)
    parser.add_argument(
        '--voxel-size',
        type=float,
        choices=VOXEL_SIZES_MM,
        default=plan.voxel_size,
        metavar=f'{{{sizes}}}',
        help=f'voxel size in mm (default: {plan.voxel_size:g})',
    )
    text = 'also simulate N healthy brains, skull-stripped and labelled, as an atlas set'
    _add_number(parser, '--atlases', plan.atlases, text)
    parser.add_argument(
        '--skull-stripped',
        dest='stripped',
        action='store_true',
        help='simulate skull-stripped images',
    )
    parser.add_argument(
        '--nprocs',
        '--n-cpus',
        type=int,
        default=usable_cores(),
        metavar='N',
        help='number of parallel processes; each needs about 1 GB at 2 mm and 3 GB at 1 mm '
        '(default: all cores)',
    )
    parser.set_defaults(run=run_cohort)


def run_cohort(arguments: argparse.Namespace) -> int:
    """Simulate and write the cohort; print where it is and what to open."""
    if arguments.nprocs < 1:
        raise UsageError(f'--nprocs {arguments.nprocs}: expected 1 or more')
    plan = CohortPlan(**{each.name: getattr(arguments, each.name) for each in fields(CohortPlan)})
    simulate_cohort(arguments.out, plan, arguments.nprocs)
    sys.stdout.write(
        f'{counted(plan.n_cn, "control")}, {counted(plan.n_pt, "patient")} and {plan.atlases} '
        f'atlases are in {arguments.out}; README.md there describes the files.\n'
    )
    return 0


def add_score_parser(subparsers: Any) -> None:
    """Register the subcommand `score`."""
    parser = subparsers.add_parser(
        'score',
        help='compare R-indices with the simulated severities',
        description='Match estimated with true patterns and print the c-index of each pair and '
        'their mean, the pattern-c-index, in patients: 1 is perfect, 0.5 is chance. With --maps '
        'also how well the map of each pattern separates the regions that lost volume from '
        'others, as an area under the curve (AUC).',
    )
    parser.add_argument('rindices', type=Path, metavar='RINDICES', help='rindices.tsv of a model')
    parser.add_argument('severities', type=Path, metavar='TRUTH', help='severities.tsv')
    parser.add_argument(
        '--maps',
        type=Path,
        metavar='DIR',
        help='output folder of the group level, whose grey matter maps are scored; patterns.tsv '
        'lies beside TRUTH',
    )
    parser.set_defaults(run=run_score)


def run_score(arguments: argparse.Namespace) -> int:
    """Print a line for each true pattern, and the mean."""
    estimates = _patterns(_patients_only(read_visit_table(arguments.rindices)))
    truths = _patterns(_first_visits(read_visit_table(arguments.severities)))
    truths = truths[(truths > 0).any(axis=1)]
    people = truths.index.intersection(estimates.index)
    if len(people) < 2:
        raise DataError(
            f'{arguments.rindices}: {counted(len(people), "patient")} of {arguments.severities}; '
            'give the R-indices of the simulated participants'
        )
    if estimates.shape[1] < truths.shape[1]:
        raise DataError(
            f'{arguments.rindices}: {counted(estimates.shape[1], "pattern")}, but '
            f'{truths.shape[1]} were simulated; give a model with at least as many (fit with '
            f'--n-patterns {truths.shape[1]})'
        )
    c_index = concordance_matrix(estimates.loc[people], truths.loc[people])
    match = match_patterns(c_index)
    matched = c_index[match, np.arange(match.size)]
    found = [str(name) for name in estimates.columns[match]]
    notes = [''] * len(found)
    if arguments.maps:
        notes = [
            f', AUC of its map {auc:.3f}'
            for auc in _map_scores(arguments.maps, arguments.severities.parent, found)
        ]
    lines = [
        f'  true {truth} is found as {name}: c-index {value:.3f}{note}\n'
        for truth, name, value, note in zip(truths.columns, found, matched, notes)
    ]
    mean = f'  mean c-index (pattern-c-index) {matched.mean():.3f}'
    sys.stdout.write(f'{len(people)} patients:\n{"".join(lines)}{mean}\n')
    return 0


def _map_scores(folder: Path, truth: Path, found: Sequence[str]) -> list[float]:
    """AUC of |t| of each pattern's regression among patients, for the regions it truly concerns."""
    # Scikit-learn takes seconds, which only this option should cost.
    from sklearn.metrics import roc_auc_score

    paths = [_slope_map(folder, name) for name in found]
    patterns = pd.read_csv(truth / 'patterns.tsv', sep='\t')
    atlas = load_labels()
    scores = []
    for number, path in enumerate(paths, start=1):
        image = nib.Nifti1Image.from_filename(path)
        t = np.abs(np.asarray(image.dataobj))
        concerned = patterns.loc[patterns['pattern'] == number, 'index']
        labels = labels_at(atlas, image.affine, t.shape)
        scores.append(roc_auc_score(np.isin(labels[t > 0], concerned), t[t > 0]))
    return scores


def _slope_map(folder: Path, pattern: str) -> Path:
    entities = {'tissue': 'GM', 'contrast': f'{pattern}slope', 'statistic': 't'}
    path = output_path(folder, 'statistical_map', **entities)
    if not path.is_file():
        raise DataError(f'{path}: no such map; run the group level on images')
    return path


def _patients_only(table: Table) -> Table:
    """Leave out other groups, such as MCI, where the table has groups."""
    if GROUP not in table.columns:
        return table
    groups = table.text[GROUP]
    return table.rows(list(groups.index[groups.isna() | (groups == PATIENT)]))


def _first_visits(table: Table) -> Table:
    """One visit of each participant, whose severities at others resemble these."""
    participants = pd.Series([participant for participant, _ in table.visits], table.text.index)
    return table.rows(list(participants.index[~participants.duplicated()]))


def _patterns(table: Table) -> pd.DataFrame:
    """The columns r1, r2, ... of a table, without participants with missing values."""
    columns = [name for name in table.columns if PATTERN_COLUMN.fullmatch(name)]
    if not columns:
        raise DataError(
            f'{table.source}: no column r1, r2, ...; columns: {", ".join(table.columns)}'
        )
    return pd.DataFrame({name: table.numbers(name) for name in columns}).dropna()


COURSE_RECORD = {
    'n_mci': 'MCI',
    'side_dominance': 'SideDominance',
    'memory': 'Memory',
    'visits': 'Visits',
}
"""Names in the record of what a study has besides; what it does not have is not recorded, so that
simulations of before can be repeated."""


def _describe_simulation(arguments: argparse.Namespace) -> dict[str, Any]:
    """All that the tables depend on."""
    course, course_record = _course(arguments), {}
    for setting, name in COURSE_RECORD.items():
        value = getattr(course, setting)
        if value != getattr(NO_COURSE, setting):
            course_record[name] = value
    return {
        'Task': arguments.task,
        'Controls': arguments.n_cn,
        'Patients': arguments.n_pt,
        'Seed': arguments.seed,
        'SourceTableSHA256': _checksum(arguments.from_table),
        'Resampling': arguments.resample,
        **course_record,
        'SurrealBIDSVersion': __version__,
    }


def _checksum(path: Path | None) -> str | None:
    if path is None:
        return None
    return hashlib.sha256(read_file(path)).hexdigest()
