"""`surreal-gan`: the model on tables, for people who have regional volumes already."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.bids.people import (
    GROUP_COLUMNS,
    GroupLabels,
    Table,
    about,
    join_participants,
    read_people,
)
from surreal_bids.cli.app import with_hyphens
from surreal_bids.cli.main import add_common_options, run_command, set_up_logging
from surreal_bids.cli.options import (
    ITERATIONS_HELP,
    NUMBER_HELP,
    ORTHO_HELP,
    PRESET_HELP,
    REPETITIONS_HELP,
)
from surreal_bids.config import TrainingOptions
from surreal_bids.exceptions import OutputError, UsageError
from surreal_bids.files import sole_use, write_text
from surreal_bids.model.bundle import CARD, CHECKPOINTS, TENSORS, reading_model
from surreal_bids.model.settings import PRESETS
from surreal_bids.tables.authors import import_checkpoint
from surreal_bids.tables.cohort import TrainingTable, read_training_table
from surreal_bids.tables.features import listed_features, unused_columns
from surreal_bids.tables.pipeline import TableModel, load_table_bundle
from surreal_bids.tables.preprocessing import PreprocessingOptions
from surreal_bids.tables.results import (
    readable_card,
    summarise_results,
    summarise_training,
    write_results,
)
from surreal_bids.text import name_some

LOGGER = logging.getLogger(__name__)


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
    add_fit_parser(commands)
    add_apply_parser(commands)
    add_import_parser(commands)
    add_card_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run `surreal-gan`; returns the exit code."""
    arguments = build_parser().parse_args(with_hyphens(sys.argv[1:] if argv is None else argv))
    set_up_logging(arguments.verbosity)
    return run_command(arguments.run, arguments)


RINDICES, SUMMARY = 'rindices.tsv', 'summary.txt'
OWN_FILES = frozenset({CARD, TENSORS, CHECKPOINTS, RINDICES, 'rindices.json', SUMMARY})
"""What a folder may hold for a fit to go on in it."""

HYPER_PARAMETERS = {
    'gamma': 'weight of the change loss',
    'kappa': 'weight of the decomposition loss',
    'zeta': 'weight of the reconstruction loss',
    'mu': 'weight of the monotonicity loss',
    'eta': 'weight of the cn loss',
    'lr': 'learning rate',
}
"""Options that replace a value of the preset, by the names of the paper."""


def add_fit_parser(commands: Any) -> None:
    """Register the subcommand `fit`."""
    parser = commands.add_parser(
        'fit',
        usage='surreal-gan fit TABLE --out MODEL [options]',
        help='train a model on controls and patients',
        description='Train a model on a table of controls and patients. Killed at any moment, the '
        'same command goes on where it was.',
        epilog=f'MODEL will hold the model ({TENSORS} and its card, {CARD}), the R-indices of '
        f'everyone ({RINDICES}, described in rindices.json) and {SUMMARY}.',
        allow_abbrev=False,
    )
    add_table_arguments(parser)
    parser.add_argument(
        '--out', type=Path, required=True, metavar='MODEL', help='folder to write the model to'
    )
    parser.add_argument(
        '--overwrite', action='store_true', help='replace the model in MODEL, and start anew'
    )
    _add_groups(parser)
    _add_preprocessing(parser)
    _add_training(parser)
    parser.set_defaults(run=run_fit)


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add TABLE and `--participants`, which `apply` has too."""
    parser.add_argument(
        'table',
        type=Path,
        metavar='TABLE',
        help='TSV or CSV file with a column participant_id and a column for each region',
    )
    parser.add_argument(
        '--participants',
        type=Path,
        metavar='TSV',
        help='another table with participant_id and what is known of people: diagnosis, age, site; '
        'by default these are columns of TABLE. Where both have a column, this one counts',
    )


def _add_groups(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        'Controls and patients',
        'What is not said is recognised and reported: controls called CN, control, HC and the '
        'like, 0 and 1, or -1 and 1. People with other values are left out.',
    )
    group.add_argument(
        '--group-column',
        metavar='NAME',
        help=f'column of the diagnosis (default: {", ".join(GROUP_COLUMNS)}, the first there is)',
    )
    group.add_argument(
        '--control-label', nargs='+', default=(), metavar='VALUE', help='its value for controls'
    )
    group.add_argument(
        '--patient-label', nargs='+', default=(), metavar='VALUE', help='its value for patients'
    )


def _add_preprocessing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        'Preprocessing', 'Kept in the model, and done to whomever it is applied to.'
    )
    group.add_argument(
        '--features',
        metavar='{muse72,muse139,FILE}',
        help='muse139: the 139 single MUSE regions; muse72: left and right summed, as the authors '
        'do; or a text file with one column name a line. Regions are found in all usual spellings '
        '(MUSE_47, DL_MUSE_Volume_47, 47, Right hippocampus). By default, all columns of TABLE '
        'that no other option names',
    )
    group.add_argument(
        '--covariates',
        nargs='+',
        default=(),
        metavar='NAME',
        help='columns whose effect, learned from controls, is removed, such as age sex; numbers '
        'act linearly, text as categories. Who lacks one is left out',
    )
    group.add_argument('--icv-column', metavar='NAME', help='column of the intracranial volume')
    group.add_argument(
        '--icv',
        choices=('covariate', 'proportion', 'none'),
        help='what to do with it: remove its effect as of a covariate (default), divide all '
        'features by it, or nothing',
    )
    group.add_argument(
        '--site-column',
        metavar='NAME',
        help='column of the site or scanner: harmonize with ComBat, which keeps the covariates',
    )
    group.add_argument(
        '--combat-fit-on',
        choices=('controls', 'all'),
        default='controls',
        help='whom ComBat learns sites from (default: controls). "all" has more people, but takes '
        'disease for a site effect where sites differ in their share of patients',
    )
    add_unseen_site(group, 'error')
    group.add_argument(
        '--impute',
        action='store_true',
        help='fill missing features with what a control of the same covariates and site would '
        'have; by default, they are an error',
    )


def add_unseen_site(group: Any, default: str | None) -> None:
    """Add `--unseen-site`; where there is no default, the model's own choice counts."""
    group.add_argument(
        '--unseen-site',
        choices=('error', 'skip'),
        default=default,
        help='people of a site that ComBat has not learned: an error, or use their features as '
        f'measured and mark them unharmonized (default: {default or "as the model was fitted"})',
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group('Training')
    group.add_argument(
        '--n-patterns',
        type=int,
        nargs='+',
        default=(),
        metavar='M',
        help=NUMBER_HELP,
    )
    group.add_argument(
        '--ortho',
        type=float,
        nargs='+',
        default=(),
        metavar='LAMBDA',
        help=ORTHO_HELP,
    )
    group.add_argument(
        '--repetitions',
        type=int,
        metavar='N',
        help=REPETITIONS_HELP,
    )
    group.add_argument(
        '--preset',
        choices=tuple(PRESETS),
        default=TrainingOptions.preset,
        help=PRESET_HELP,
    )
    group.add_argument(
        '--iterations',
        type=int,
        metavar='N',
        help=ITERATIONS_HELP,
    )
    group.add_argument(
        '--device', choices=('auto', 'cpu', 'cuda'), default='auto', help='default: auto'
    )
    group.add_argument(
        '--random-seed', type=int, default=0, metavar='N', help='seed of all draws (default: 0)'
    )
    _add_hyper_parameters(group)


def _add_hyper_parameters(group: Any) -> None:
    for name, meaning in HYPER_PARAMETERS.items():
        values = {key: f'{getattr(preset, name):g}' for key, preset in PRESETS.items()}
        listed = ', '.join(f'{value} in {key}' for key, value in values.items())
        default = listed if len(set(values.values())) > 1 else next(iter(values.values()))
        group.add_argument(
            f'--{name}', type=float, metavar='X', help=f'{meaning} (default: {default})'
        )
    group.add_argument(
        '--batch-size',
        type=int,
        metavar='N',
        help='people of each group in a batch (default: an eighth of the patients, at least 8)',
    )


def run_fit(arguments: argparse.Namespace) -> int:
    """Read, check, train, write; the summary goes to the standard output too."""
    require_free_folder(arguments.out, arguments.overwrite)
    options = _preprocessing_options(arguments)
    training = read_training_table(
        arguments.table,
        arguments.participants,
        options,
        arguments.features,
        GroupLabels(arguments.group_column, arguments.control_label, arguments.patient_label),
    )
    with sole_use(arguments.out, ['model']), about(arguments.table):
        require_free_folder(arguments.out, arguments.overwrite)
        if arguments.overwrite:
            shutil.rmtree(arguments.out / CHECKPOINTS, ignore_errors=True)
        cohort = training.to_cohort(options)
        settings = TrainingOptions(
            **{field.name: getattr(arguments, field.name) for field in fields(TrainingOptions)}
        )
        model = TableModel.fit(cohort, settings, arguments.out / CHECKPOINTS)
        _write(arguments.out, model, training, model.apply(cohort))
    return 0


def require_free_folder(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds a model, unless told to overwrite it, or anything foreign."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f'{folder}: a file of this name exists; choose another output folder')
    if overwrite or not folder.exists():
        return
    if (folder / CARD).exists():
        raise OutputError(f'{folder}: holds a model; choose another folder or use --overwrite')
    there = sorted(path.name for path in folder.iterdir() if not path.name.startswith('.'))
    foreign = [name for name in there if name not in OWN_FILES]
    if foreign:
        raise OutputError(
            f'{folder}: holds {name_some(foreign)}, which is not of a model; choose another '
            'folder, or use --overwrite to add a model to it'
        )


def _preprocessing_options(arguments: argparse.Namespace) -> PreprocessingOptions:
    return PreprocessingOptions(
        covariates=tuple(dict.fromkeys(arguments.covariates)),
        icv_column=arguments.icv_column,
        icv=arguments.icv or ('covariate' if arguments.icv_column else 'none'),
        site_column=arguments.site_column,
        combat_fit_on=arguments.combat_fit_on,
        unseen_site=arguments.unseen_site,
        impute=arguments.impute,
    )


def _write(folder: Path, model: TableModel, training: TrainingTable, results: pd.DataFrame) -> None:
    """Write all outputs, the card last: a folder with a card is complete."""
    summary = summarise_training(model, training, results)
    (folder / CARD).unlink(missing_ok=True)
    write_results(folder / RINDICES, results, model.pattern_names, training.groups.labels)
    write_text(folder / SUMMARY, summary)
    model.save(folder)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    sys.stdout.write(
        f'{summary}\nThe model and R-indices of everyone ({RINDICES}) are in {folder}.\n'
    )


def add_apply_parser(commands: Any) -> None:
    """Register the subcommand `apply`."""
    parser = commands.add_parser(
        'apply',
        usage='surreal-gan apply TABLE --model MODEL --out TSV [options]',
        help='compute R-indices of new people, one or many',
        description='Compute R-indices of people with a model: those it was trained on or others, '
        'one or many. Columns are found by name, in any order; those that the model does not need '
        'are listed in a warning and ignored.',
        allow_abbrev=False,
    )
    add_table_arguments(parser)
    parser.add_argument(
        '--model', type=Path, required=True, metavar='MODEL', help='folder of the model'
    )
    parser.add_argument(
        '--out',
        type=Path,
        required=True,
        metavar='TSV',
        help='file to write, such as rindices.tsv; a JSON file beside it describes the columns',
    )
    parser.add_argument('--overwrite', action='store_true', help='replace the output')
    add_unseen_site(parser, None)
    parser.set_defaults(run=run_apply)


def add_card_parser(commands: Any) -> None:
    """Register the subcommand `card`."""
    parser = commands.add_parser(
        'card',
        help='show what a model is, in words',
        description='Show what a model was trained on, what it does to a table, what was chosen '
        'and why, and the numbers of each feature.',
    )
    parser.add_argument('model', type=Path, metavar='MODEL', help='folder of the model')
    parser.set_defaults(run=run_card)


def run_card(arguments: argparse.Namespace) -> int:
    """Show the card of a model."""
    with reading_model(arguments.model):
        text = readable_card(load_table_bundle(arguments.model)[1])
    sys.stdout.write(f'{text}\n')
    return 0


def run_apply(arguments: argparse.Namespace) -> int:
    """Read a model and a table; write R-indices and say what was found."""
    _require_free_files(arguments.out, arguments.overwrite)
    model = TableModel.load(arguments.model)
    if arguments.unseen_site is not None:
        model = _with_unseen_site(model, arguments.unseen_site)
    table = read_people(arguments.table)
    participants = read_people(arguments.participants) if arguments.participants else None
    people = join_participants(table, participants)
    features, known = model.read(table, people)
    with about(arguments.table):
        results = model.compute(features, known)
    _warn_of_unused_columns(model, table, participants)
    written = write_results(arguments.out, results, model.pattern_names)
    listed = ''.join(f'  {path}\n' for path in written)
    sys.stdout.write(summarise_results(results) + listed)
    return 0


def _require_free_files(out: Path, overwrite: bool) -> None:
    if out.suffix.lower() != '.tsv':
        raise UsageError(f'--out {out}: a TSV file is written; give a name that ends in .tsv')
    for path in (out, out.with_suffix('.json')):
        if path.is_dir() or (path.exists() and not overwrite):
            raise OutputError(f'{path}: exists already; choose another name or use --overwrite')


def _with_unseen_site(model: TableModel, choice: Any) -> TableModel:
    if model.preprocessing.combat is None:
        raise UsageError('--unseen-site: this model does not harmonize, so that all sites are one')
    return model.with_unseen_site(choice)


def _warn_of_unused_columns(model: TableModel, table: Table, participants: Table | None) -> None:
    steps = model.preprocessing
    elsewhere = participants.columns if participants else []
    unused = unused_columns(table, steps.features, [*steps.options.columns, *elsewhere])
    if unused:
        LOGGER.warning('%s: not used by this model: %s', table.source, name_some(unused))


def add_import_parser(commands: Any) -> None:
    """Register the subcommand `import-checkpoint`."""
    parser = commands.add_parser(
        'import-checkpoint',
        usage='surreal-gan import-checkpoint FILE --features SET --out MODEL [options]',
        help="turn a checkpoint of the authors' program into a model",
        description="Turn a checkpoint of the authors' program (SurrealGAN 0.1 on PyPI) into a "
        'model that "surreal-gan apply" takes. The file does not say which features and covariates '
        "it was trained with. The authors' two published models take muse72; that of Alzheimer's "
        'disease the covariates sex and age, that of brain ageing sex and ICV (mm3), in this '
        'order. Sex may be written F and M, or 0 (F) and 1 (M). Nothing in the file is executed.',
        allow_abbrev=False,
    )
    parser.add_argument('file', type=Path, metavar='FILE', help='the checkpoint')
    parser.add_argument(
        '--features',
        required=True,
        metavar='{muse72,muse139,FILE}',
        help='what it was trained with, in order: a named set, or a text file with one name a line',
    )
    parser.add_argument(
        '--covariates',
        nargs='+',
        default=(),
        metavar='NAME',
        help='columns of the covariates it was trained with, in order, such as sex age',
    )
    parser.add_argument(
        '--out', type=Path, required=True, metavar='MODEL', help='folder to write the model to'
    )
    parser.add_argument(
        '--epoch',
        type=int,
        metavar='N',
        help='which of the states in the file (default: the last one)',
    )
    parser.add_argument('--overwrite', action='store_true', help='replace the model in MODEL')
    parser.set_defaults(run=run_import)


def run_import(arguments: argparse.Namespace) -> int:
    """Read the checkpoint, write the model, and show its card in short."""
    require_free_folder(arguments.out, arguments.overwrite)
    model = import_checkpoint(
        arguments.file, listed_features(arguments.features), arguments.covariates, arguments.epoch
    )
    model.save(arguments.out)
    sys.stdout.write(
        f'{readable_card(model.state()[1], details=False)}\n\nThe model is in {arguments.out}.\n'
    )
    return 0
