"""`surreal-gan`: the model on tables, for those who have regional volumes already."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surreal_bids.cli.main import (
    Parser,
    add_common_options,
    run_command,
    set_up_logging,
    usable_cores,
    with_hyphens,
)
from surreal_bids.cli.options import add_cohort, add_training
from surreal_bids.config import CohortOptions, TrainingOptions, check_config, training_options
from surreal_bids.exceptions import DataError, MissingColumnError, OutputError, UsageError
from surreal_bids.files import refuse_inputs
from surreal_bids.text import list_briefly

if TYPE_CHECKING:
    import pandas as pd

    from surreal_bids.cohort.cohort import Cohort
    from surreal_bids.rindices.crossfit import CrossFit, Folds
    from surreal_bids.rindices.model import TableModel, TrainingData

RINDICES, EXCLUSIONS, SUMMARY = 'rindices.tsv', 'exclusions.tsv', 'summary.txt'
CARD, TENSORS, CHECKPOINTS = 'model.json', 'model.safetensors', 'checkpoints'
SHIFTS = 'site_shifts.tsv'
CONTRIBUTIONS = 'contributions.tsv'
CHANGES, GROUP_CHANGE = 'changes.tsv', 'group_change.tsv'
OWN_FILES = (
    *(CARD, TENSORS, CHECKPOINTS, RINDICES, 'rindices.json', CONTRIBUTIONS, 'contributions.json'),
    *(CHANGES, 'changes.json', GROUP_CHANGE, 'group_change.json', EXCLUSIONS, 'exclusions.json'),
    *(SUMMARY, SHIFTS, 'site_shifts.json'),
)
"""What a folder may hold for a fit to resume in it."""

BLAS_THREADS = 4
"""With 16, matrices as small as these took a third longer in all."""

# Tables and models are imported where they are used: torch takes seconds, which help need not.


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all subcommands."""
    parser = Parser(
        prog='surreal-gan',
        description='R-indices of disease-related brain patterns from a table of regional volumes: '
        'how strongly each pattern is expressed in each participant (Surreal-GAN).',
        epilog='Exit codes: 0 done; 2 wrong usage; 65 bad data; 73 the output cannot be written. '
        '"surreal-gan COMMAND --help" explains each command.',
    )
    add_common_options(parser)
    commands = parser.add_subparsers(
        required=True, metavar='{fit,apply,add-site,import-checkpoint,card}', title='Commands'
    )
    add_fit_parser(commands)
    add_apply_parser(commands)
    add_site_parser(commands)
    add_import_parser(commands)
    add_card_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run `surreal-gan`; returns the exit code."""
    arguments = build_parser().parse_args(with_hyphens(sys.argv[1:] if argv is None else argv))
    set_up_logging(arguments.verbosity)
    if 'OMP_NUM_THREADS' not in os.environ:
        # Of NumPy and SciPy, which are not imported yet; PyTorch has its own.
        os.environ.setdefault('OPENBLAS_NUM_THREADS', str(min(usable_cores(), BLAS_THREADS)))
    return run_command(arguments.run, arguments)


def add_fit_parser(commands: Any) -> None:
    """Register the subcommand `fit`."""
    parser = commands.add_parser(
        'fit',
        usage='surreal-gan fit TABLE --out MODEL [options]',
        help='train a model on controls and patients',
        description='Train a model on a table of controls and patients. If it is interrupted, the '
        'same command resumes. The same table and options give the same model with '
        '"surreal-bids ... group --roi-table TABLE".',
        epilog=f'MODEL will hold the model ({TENSORS} and its card, {CARD}), the R-indices '
        f'({RINDICES}, described in rindices.json) and what each region contributes to them '
        f'({CONTRIBUTIONS}), what changed between visits ({CHANGES}, {GROUP_CHANGE}) if there are '
        f'several, who is excluded and why ({EXCLUSIONS}), and {SUMMARY}.',
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    _add_tables(parser)
    parser.add_argument(
        '--out', type=Path, required=True, metavar='MODEL', help='folder to write the model to'
    )
    parser.add_argument(
        '--overwrite',
        action='store_true',
        default=False,
        help='replace the model in MODEL, and start anew',
    )
    add_cohort(parser)
    add_training(parser)
    parser.set_defaults(run=run_fit)


def _add_tables(parser: argparse.ArgumentParser) -> None:
    """Add TABLE and `--participants`."""
    parser.add_argument(
        'table',
        type=Path,
        metavar='TABLE',
        help='TSV or CSV file with one row per participant (or visit, with a column session_id) '
        'and one column per region: as DLMUSE or FreeSurfer (asegstats2table, aparcstats2table) '
        'write it, or your own',
    )
    parser.add_argument(
        '--participants',
        type=Path,
        default=None,
        metavar='TSV',
        help='another table of what is known of participants: diagnosis, age, site; by default '
        'these are columns of TABLE. Where both have a column, this one counts',
    )


def run_fit(arguments: argparse.Namespace) -> int:
    """Read, check, train, write; the summary goes to the standard output too."""
    options, training = _options(arguments, CohortOptions), _options(arguments, TrainingOptions)
    out, inputs = arguments.out, (arguments.table, arguments.participants)
    require_free_folder(out, arguments.overwrite)
    refuse_inputs([out, *(out / name for name in OWN_FILES)], inputs)

    from surreal_bids.analysis.outputs import summarise_cohort
    from surreal_bids.bids.tabular import prefix_errors
    from surreal_bids.cohort.cohort import read_cohort
    from surreal_bids.files import sole_use
    from surreal_bids.rindices.crossfit import prepare_folds
    from surreal_bids.rindices.model import prepare, require_trainable

    with _suggest_participants(arguments):
        cohort = read_cohort(arguments.table, arguments.participants, options)
    sys.stdout.write(summarise_cohort(cohort))
    sys.stdout.flush()
    with prefix_errors(arguments.table):
        data = prepare(cohort)
        training = training_options(training)
        require_trainable(data, training)
        folds = prepare_folds(cohort, training)
    with sole_use(out, ['model']), prefix_errors(arguments.table):
        require_free_folder(out, arguments.overwrite)
        if arguments.overwrite:
            shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
        _train(out, cohort, training, data, folds)
    return 0


def _train(
    out: Path, cohort: Cohort, options: TrainingOptions, data: TrainingData, folds: Folds | None
) -> None:
    """Train on all, then without each fold, and write."""
    from surreal_bids.rindices.crossfit import cross_fit, final_results, fit_folds, warn_of_lost
    from surreal_bids.rindices.model import select_model
    from surreal_bids.rindices.uncertainty import add_standing

    model = select_model(data, options, out / CHECKPOINTS)
    if folds is None:
        contributions = model.contributions(cohort.features, cohort.people)
        _write(out, model, cohort, final_results(cohort, model), contributions)
        return
    fitted = cross_fit(cohort, model, *fit_folds(folds, model, options, out / CHECKPOINTS))
    warn_of_lost(fitted)
    fitted = fitted.without_lost()
    results, learned = add_standing(cohort, fitted, options.random_seed)
    noted = replace(model, notes={**model.notes, 'CrossFit': fitted.note, **learned})
    _write(out, noted, cohort, results, fitted.contributions(cohort), fitted)


def _options(arguments: argparse.Namespace, kind: Any) -> Any:
    """The options that were given, over the defaults; checked."""
    given = {
        field.name: getattr(arguments, field.name)
        for field in fields(kind)
        if hasattr(arguments, field.name)
    }
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    return check_config(kind(**given | lists))


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
            f'{folder}: holds {list_briefly(foreign)}, which is not of a model; choose another '
            'folder, or use --overwrite to add a model to it'
        )


@contextmanager
def _suggest_participants(arguments: argparse.Namespace) -> Iterator[None]:
    """Tell who gave one table only, and lacks a column, of the option for another."""
    try:
        yield
    except MissingColumnError as error:
        if arguments.participants is not None:
            raise
        raise DataError(
            f'{error}; if a table of participants has it, give that with --participants'
        ) from error


def _write(
    folder: Path,
    model: TableModel,
    cohort: Cohort,
    results: pd.DataFrame,
    contributions: pd.DataFrame,
    fitted: CrossFit | None = None,
) -> None:
    """Write all outputs, the card last: a folder with a card is complete."""
    from surreal_bids.analysis.descriptions import write_described
    from surreal_bids.analysis.outputs import (
        summarise_cohort,
        write_contributions,
        write_results,
    )
    from surreal_bids.files import write_text
    from surreal_bids.reports.model_card import card_text
    from surreal_bids.rindices.control_sensitivity import describe_shift, shift_of_controls

    card = card_text(model.state()[1], details=False)
    (folder / CARD).unlink(missing_ok=True)
    write_results(folder / RINDICES, cohort, results, model.pattern_names)
    if model.pattern_names:
        write_contributions(folder / CONTRIBUTIONS, cohort, contributions)
    _write_changes(folder, model, cohort, results, fitted)
    write_described('exclusions', folder / EXCLUSIONS, cohort.exclusions)
    shift = describe_shift(shift_of_controls(model, cohort))
    card = f'{card}\n\n{shift}.' if shift else card
    write_text(folder / SUMMARY, f'{summarise_cohort(cohort)}\n{card}\n')
    model.save(folder)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    found = f'The model and R-indices ({RINDICES}) are' if model.pattern_names else 'The model is'
    sys.stdout.write(f'\n{card}\n\n{found} in {folder}.\n')


def _write_changes(
    folder: Path,
    model: TableModel,
    cohort: Cohort,
    results: pd.DataFrame,
    fitted: CrossFit | None,
) -> None:
    """Write what changed between visits, if anyone has several."""
    from surreal_bids.analysis.change import follow_visits
    from surreal_bids.analysis.descriptions import write_described

    for name in (CHANGES, 'changes.json', GROUP_CHANGE, 'group_change.json'):
        (folder / name).unlink(missing_ok=True)
    changes, groups = follow_visits(cohort, model, results, fitted=fitted)
    if changes is not None:
        write_described('changes', folder / CHANGES, changes)
    if groups is not None:
        write_described('group_change', folder / GROUP_CHANGE, groups)


def add_apply_parser(commands: Any) -> None:
    """Register the subcommand `apply`."""
    parser = commands.add_parser(
        'apply',
        usage='surreal-gan apply TABLE --model MODEL --out TSV [options]',
        help='compute R-indices of new participants, one or many',
        description='Compute R-indices of participants with a model: those it was trained on or '
        'others, one or many. Columns are found by name, in any order; those that the model does '
        'not need are listed and ignored. Who cannot be used has a row without R-indices, and the '
        'reason.',
        allow_abbrev=False,
    )
    _add_tables(parser)
    _add_columns(parser)
    parser.add_argument(
        '--model', type=Path, required=True, metavar='MODEL', help='folder of the model'
    )
    parser.add_argument(
        '--out',
        type=Path,
        required=True,
        metavar='TSV',
        help='file to write, such as rindices.tsv; a JSON file beside it describes columns, and '
        'rindices_contributions.tsv has what each region contributes; of participants with several '
        'visits, rindices_changes.tsv has what changed',
    )
    parser.add_argument('--overwrite', action='store_true', help='replace the output')
    parser.add_argument(
        '--unseen-site',
        choices=('error', 'skip'),
        default='error',
        help='participants of a site that ComBat has not learned: an error (default), or use their '
        'volumes as measured and mark them unharmonized. "surreal-gan add-site" teaches a model '
        'new sites from their controls; so does "surreal-bids ... group --model"',
    )
    parser.set_defaults(run=run_apply)


def _add_columns(parser: argparse.ArgumentParser) -> None:
    """Add the options that name columns of a table that a model is used on."""
    parser.add_argument('--id-column', metavar='NAME', help='column that names participants')
    parser.add_argument(
        '--icv-column', metavar='NAME', help='column of the intracranial volume in TABLE'
    )
    parser.add_argument('--site-column', metavar='NAME', help='column of the site in TABLE')


def run_apply(arguments: argparse.Namespace) -> int:
    """Read a model and a table; write R-indices and report what was found."""
    out = arguments.out
    if out.suffix.lower() != '.tsv':
        raise UsageError(f'--out {out}: a TSV file is written; give a name that ends in .tsv')
    of_regions, of_visits = (
        out.with_name(f'{out.stem}_{name}') for name in (CONTRIBUTIONS, CHANGES)
    )
    tables = (out, of_regions, of_visits)
    outputs = [path.with_suffix(end) for path in tables for end in ('.tsv', '.json')]
    model_files = [arguments.model / name for name in OWN_FILES]
    refuse_inputs(outputs, [arguments.table, arguments.participants, *model_files])
    for path in outputs:
        if path.is_dir() or (path.exists() and not arguments.overwrite):
            raise OutputError(f'{path}: exists already; choose another name or use --overwrite')

    from surreal_bids.analysis.change import follow_visits
    from surreal_bids.analysis.descriptions import write_described
    from surreal_bids.analysis.outputs import (
        summarise_results,
        with_excluded,
        write_contributions,
        write_results,
    )
    from surreal_bids.bids.tabular import prefix_errors
    from surreal_bids.cohort.cohort import read_cohort
    from surreal_bids.rindices.crossfit import doubts_of_model
    from surreal_bids.rindices.model import TableModel

    model = TableModel.load(arguments.model).with_unseen_site(arguments.unseen_site)
    with _suggest_participants(arguments):
        cohort = read_cohort(
            arguments.table,
            arguments.participants,
            _options(arguments, CohortOptions),
            model=model.preprocessing.requirements,
            with_groups=False,
            adapt=False,
        )
    with prefix_errors(arguments.table):
        results = with_excluded(model.apply(cohort), cohort)
        contributions = model.contributions(cohort.features, cohort.people)
        changes, _ = follow_visits(cohort, model, results)
    for path in filter(Path.exists, outputs[2:]):
        path.unlink()  # A table of an earlier call would pass for one of these.
    write_results(out, cohort, results, model.pattern_names)
    if model.pattern_names:
        write_contributions(of_regions, cohort, contributions)
    if changes is not None:
        write_described('changes', of_visits, changes)
    notes = [*cohort.notes, *_site_notes(model, cohort)]
    doubts = (*cohort.warnings, *doubts_of_model(model.state()[1]))
    notes += [f'WARNING: {text}' for text in doubts]
    sys.stdout.write(summarise_results(results, notes) + f'  {out}\n')
    return 0


def _site_notes(model: TableModel, cohort: Cohort) -> list[str]:
    """What few controls leave open for the sites of a cohort that were added to a model."""
    from surreal_bids.rindices.new_sites import describe_added

    column, added = cohort.options.site_column, model.notes.get('AddedSites', {})
    sites = set() if column is None else set(cohort.people[column])
    return [line for name, line in zip(added, describe_added(added)) if name in sites]


def add_site_parser(commands: Any) -> None:
    """Register the subcommand `add-site`."""
    parser = commands.add_parser(
        'add-site',
        usage='surreal-gan add-site MODEL TABLE OUT [options]',
        help='teach a model a scanner it has not seen, from a few of its controls',
        description='Teach a model sites that it has not seen, from controls of these sites. All '
        'else that the model has learned stays as it is. "surreal-gan apply" then takes '
        'participants of the new sites, even one at a time.',
        epilog='At least three controls of each site are needed; below twenty there is a warning, '
        'which says how far R-indices of the site may be off. Controls should be like those the '
        f'model was trained on. OUT will hold the model, the shift of each feature ({SHIFTS}), who '
        f'is excluded ({EXCLUSIONS}), and {SUMMARY}.',
        allow_abbrev=False,
    )
    parser.add_argument('model', type=Path, metavar='MODEL', help='folder of the model')
    _add_tables(parser)
    parser.add_argument('out', type=Path, metavar='OUT', help='folder to write the new model to')
    _add_columns(parser)
    parser.add_argument(
        '--site', metavar='NAME', help='name of the site, where TABLE has no column of it'
    )
    parser.add_argument(
        '--group-column',
        metavar='NAME',
        help='column of the diagnosis, if not everyone is a control (default: diagnosis, group or '
        'dx, if there)',
    )
    parser.add_argument(
        '--control-label',
        nargs='+',
        default=(),
        metavar='LABEL',
        help='its values that mean a control; other participants are not used',
    )
    parser.add_argument('--overwrite', action='store_true', help='replace the model in OUT')
    parser.set_defaults(run=run_add_site)


def run_add_site(arguments: argparse.Namespace) -> int:
    """Read a model and controls; write the model that knows their sites, and what is left open."""
    if arguments.site and arguments.site_column:
        raise UsageError('--site and --site-column: give one of them')
    out, table = arguments.out, arguments.table
    require_free_folder(out, arguments.overwrite)
    own = [arguments.model / name for name in OWN_FILES]
    refuse_inputs([out / name for name in OWN_FILES], [table, arguments.participants, *own])

    from surreal_bids.analysis.descriptions import write_described
    from surreal_bids.bids.tabular import prefix_errors
    from surreal_bids.cohort.groups import GroupLabels
    from surreal_bids.files import write_text
    from surreal_bids.rindices.model import TableModel
    from surreal_bids.rindices.new_sites import (
        add_sites,
        read_site_controls,
        shift_table,
        summarise_added,
    )

    model = TableModel.load(arguments.model)
    options = _options(arguments, CohortOptions)
    said = GroupLabels(arguments.group_column, tuple(arguments.control_label))
    with _suggest_participants(arguments):
        controls = read_site_controls(
            model, table, arguments.participants, options, said, arguments.site
        )
    with prefix_errors(table):
        taught, added = add_sites(model, controls)
    text = summarise_added(added, controls)
    (out / CARD).unlink(missing_ok=True)
    write_described('site_shifts', out / SHIFTS, shift_table(added))
    write_described('exclusions', out / EXCLUSIONS, controls.exclusions)
    write_text(out / SUMMARY, text)
    taught.save(out)
    sys.stdout.write(f'{text}\nThe model is in {out}.\n')
    return 0


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
    from surreal_bids.model.bundle import reading_model
    from surreal_bids.reports.model_card import card_text
    from surreal_bids.rindices.model import load_table_bundle

    with reading_model(arguments.model):
        text = card_text(load_table_bundle(arguments.model)[1])
    sys.stdout.write(f'{text}\n')
    return 0


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
        help='what it was trained with, in order: a named set, or a text file (one name per line)',
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
    from surreal_bids.cohort.features import listed_features
    from surreal_bids.reports.model_card import card_text
    from surreal_bids.rindices.import_checkpoint import import_checkpoint

    require_free_folder(arguments.out, arguments.overwrite)
    refuse_inputs([arguments.out / name for name in OWN_FILES], [arguments.file])
    model = import_checkpoint(
        arguments.file, listed_features(arguments.features), arguments.covariates, arguments.epoch
    )
    model.save(arguments.out)
    sys.stdout.write(
        f'{card_text(model.state()[1], details=False)}\n\nThe model is in {arguments.out}.\n'
    )
    return 0
