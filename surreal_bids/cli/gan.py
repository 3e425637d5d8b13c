"""`surreal-gan`: the model on tables, for those who have regional volumes already."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surreal_bids.bids.outputs import output_path
from surreal_bids.cautions import describe_cautions, log_cautions
from surreal_bids.cli.main import (
    QUIET,
    Parser,
    add_common_options,
    add_option,
    add_sections,
    add_to_commands,
    end_dry_run,
    path_of,
    run_command,
    set_up_logging,
    summarise,
    usable_cores,
    with_hyphens,
)
from surreal_bids.config import (
    GROUPS,
    SECTIONS,
    TRAINING,
    VOLUMES,
    CohortOptions,
    TrainingOptions,
    check_config,
    text_problem,
    training_options,
)
from surreal_bids.exceptions import OutputError, UsageError
from surreal_bids.files import (
    is_unfinished,
    refuse_inputs,
    replacing,
    sole_use,
    write_json,
    write_text,
)
from surreal_bids.parallel import find_device, set_threads
from surreal_bids.progress import stage
from surreal_bids.published import find_model, model_name
from surreal_bids.text import counted, list_briefly

if TYPE_CHECKING:
    from surreal_bids.analysis.engine import Analysis
    from surreal_bids.cohort.cohort import Cohort
    from surreal_bids.rindices.model import TableModel

TABLES = {
    name: output_path('', name).name
    for name in (
        *('rindices', 'roi_volumes', 'harmonized_volumes', 'contributions', 'deviations'),
        *('changes', 'patterns', 'statistics'),
    )
}
"""Files of the tables of results, by name; those of the group level."""

RINDICES, EXCLUSIONS = 'rindices.tsv', 'exclusions.tsv'
SUMMARY = 'summary.txt'
CARD, TENSORS, CHECKPOINTS = 'model.json', 'model.safetensors', 'checkpoints'
OWN_FILES = (
    *(*TABLES.values(), EXCLUSIONS),
    *(f'{Path(name).stem}.json' for name in (*TABLES.values(), EXCLUSIONS)),
    *(CARD, TENSORS, CHECKPOINTS, SUMMARY),
)
"""What the commands write into the folder of a model."""

MADE_FROM = 'MadeFrom'
"""Key of the card: fingerprint of the participants and options that `fit` was given."""

APPLIED = '.made_from.json'
"""File in the folder of the report of `apply`: the same fingerprint, and the outputs."""

REPORT = 'report'
"""Folder of the report, in the folder of a model; `apply` puts it beside its table."""

MODEL = 'model'
"""The part of such a folder that is locked and replaced."""

MODEL_HELP = 'folder of the model, or a published model: ad or ageing'

MOST_THREADS = 4
"""With 16, matrices as small as these took a third longer in all."""

# Tables and models are imported where they are used: torch takes seconds, which help need not.


def main(argv: Sequence[str] | None = None) -> int:
    """Run `surreal-gan`; returns the exit code."""
    return run_command(run, sys.argv[1:] if argv is None else argv)


def run(argv: Sequence[str]) -> int:
    """Parse a command line and run the command."""
    arguments = build_parser().parse_args(with_hyphens(argv))
    set_up_logging(arguments.verbosity)
    threads = min(usable_cores(), MOST_THREADS)
    set_threads(threads)
    if 'OMP_NUM_THREADS' not in os.environ:
        # Of NumPy and SciPy, which are not imported yet; PyTorch has its own.
        os.environ.setdefault('OPENBLAS_NUM_THREADS', str(threads))
    return int(arguments.run(arguments))


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands; `run` is the function of the one that was chosen."""
    parser = Parser(
        prog='surreal-gan',
        description='R-indices of disease-related brain patterns from a table of regional volumes: '
        'how strongly each pattern is expressed in each participant (Surreal-GAN).',
        epilog='Exit codes: 0 success; 2 wrong usage; 65 bad data; 73 the output cannot be '
        'written. "surreal-gan COMMAND --help" explains each command.',
    )
    add_common_options(parser)
    commands = parser.add_subparsers(
        required=True, metavar='{fit,apply,add-site,replicate,card}', title='Commands'
    )
    for add in (_add_fit, _add_apply, _add_site, _add_replicate, _add_card):
        add(commands)
    add_to_commands(commands)
    return parser


def _add_fit(commands: Any) -> None:
    parser = commands.add_parser(
        'fit',
        usage='surreal-gan fit TABLE --out MODEL [options]',
        help='train a model on controls and patients',
        description='Train a model on a table of controls and patients. Rerun the command to '
        'resume it after an interruption. "surreal-bids ... group --roi-table TABLE" gives the '
        'same model from the same table and options.',
        epilog='MODEL will contain the model (model.safetensors and its description, model.json), '
        'the report (report/group.html), the R-indices (rindices.tsv), the contribution and the '
        'deviation of each region (contributions.tsv, deviations.tsv), the volumes as given and '
        'harmonized (roi_volumes.tsv, harmonized_volumes.tsv), the regional changes of each '
        'pattern (group_patterns.tsv), the statistics of groups (group_statistics.tsv), the '
        'changes between visits, if there are several (changes.tsv), and summary.txt. JSON files '
        'describe the columns.',
        allow_abbrev=False,
    )
    _add_tables(parser)
    _add_path(parser, '--out', 'MODEL', 'folder to write the model to')
    _add_overwrite(parser, 'replace the model in MODEL')
    parser.add_argument(
        '--dry-run',
        action='store_true',
        help='read and check the tables, show what each column was taken for and who is excluded, '
        'and stop before training',
    )
    add_sections(parser, {title: SECTIONS[title] for title in (GROUPS, VOLUMES, TRAINING)})
    parser.set_defaults(run=run_fit)


def _add_apply(commands: Any) -> None:
    parser = commands.add_parser(
        'apply',
        usage='surreal-gan apply TABLE --model MODEL --out FILE [options]',
        help='compute R-indices of new participants, one or many',
        description='Compute R-indices of one or many participants with a trained model. Columns '
        'are found by name, in any order; columns that the model does not need are listed and '
        'ignored. Participants who cannot be used have a row with the reason and no R-indices. If '
        'there is a diagnosis, the report compares patients with controls; R-indices do not depend '
        'on it.',
        allow_abbrev=False,
    )
    _add_tables(parser)
    _add_columns(parser)
    _add_path(parser, '--model', 'MODEL', MODEL_HELP)
    _add_path(
        parser,
        '--out',
        'FILE',
        'file to write, such as rindices.tsv, or rindices.csv with the names of columns of NiChart '
        '(MRID, SurrealGAN_R1, ...). A JSON file with the same name describes the '
        'columns, rindices_contributions.tsv contains the contribution of each region, '
        'rindices_changes.tsv the changes between visits, rindices_group_statistics.tsv the '
        'statistics of groups, and rindices_report/group.html is the report',
    )
    _add_overwrite(parser, 'replace the output')
    parser.add_argument(
        '--unseen-site',
        choices=('error', 'skip'),
        default='error',
        help='participants from a site that is not in the model: error stops; skip uses their '
        'volumes as measured and marks them as unharmonized (they still get R-indices). '
        '"surreal-gan add-site" and '
        '"surreal-bids ... group --model" add new sites to a model (default: error)',
    )
    parser.set_defaults(run=run_apply)


def _add_site(commands: Any) -> None:
    parser = commands.add_parser(
        'add-site',
        usage='surreal-gan add-site MODEL TABLE OUT [options]',
        help='add a new scanner to a model, from a few of its controls',
        description='Add new sites to a model, from controls of these sites. Nothing else in the '
        'model changes. "surreal-gan apply" then accepts participants of the new sites, even one '
        'at a time.',
        epilog='Each site needs at least three controls. With fewer than twenty, a warning '
        'reports how far R-indices of the site may be off. Controls should resemble those that the '
        'model was trained on. OUT will contain the model, the excluded participants '
        '(exclusions.tsv), and summary.txt.',
        allow_abbrev=False,
    )
    parser.add_argument('model', type=path_of, metavar='MODEL', help=MODEL_HELP)
    _add_tables(parser)
    parser.add_argument('out', type=path_of, metavar='OUT', help='folder to write the new model to')
    _add_columns(parser)
    parser.add_argument(
        '--site', metavar='NAME', help='name of the site, if TABLE has no column for it'
    )
    _add_controls(parser)
    _add_overwrite(parser, 'replace the model in OUT')
    parser.set_defaults(run=run_add_site)


def _add_replicate(commands: Any) -> None:
    parser = commands.add_parser(
        'replicate',
        usage='surreal-gan replicate MODEL TABLE --out DIR [options]',
        help='test whether the patterns of a model exist in a second cohort',
        description='Test whether the patterns of a model exist in a second cohort of controls and '
        'patients. The model is applied to the second cohort, whose sites it learns from the '
        'controls; a model with the same number of patterns is trained on the second cohort; and '
        'both are compared pattern by pattern. The reference is what unrelated patterns give. '
        'Participants whom the model was trained on are refused.',
        epilog='DIR will contain the results (replication.tsv), the report (replication.html), '
        'excluded participants (exclusions.tsv), and summary.txt with a sentence to quote. A JSON '
        'file describes the columns of a table.',
        allow_abbrev=False,
    )
    parser.add_argument('model', type=path_of, metavar='MODEL', help=MODEL_HELP)
    _add_tables(parser)
    _add_path(parser, '--out', 'DIR', 'folder to write the results to')
    parser.add_argument(
        '--original',
        type=path_of,
        metavar='TABLE',
        help='table that the model was fitted to: patterns of the second cohort are then also '
        'looked for in the original participants',
    )
    parser.add_argument(
        '--original-participants',
        type=path_of,
        metavar='TSV',
        help='table of the original participants (default: read them from --original)',
    )
    _add_overwrite(parser, 'replace the results in DIR')
    add_sections(parser, {GROUPS: 'Columns and labels that are not given are inferred.'})
    for name in ('icv_column', 'site_column', 'phenotype'):
        add_option(parser, name, default=argparse.SUPPRESS)
    training = parser.add_argument_group(TRAINING, 'Of the model of the second cohort.')
    for name in REPLICATION_TRAINING:
        add_option(training, name, default=argparse.SUPPRESS)
    parser.set_defaults(run=run_replicate)


REPLICATION_TRAINING = (
    *('ortho', 'repetitions', 'iterations', 'preset', 'folds', 'device', 'random_seed'),
)
"""Options for training in `replicate`, where the number of patterns is that of the model."""


def _add_card(commands: Any) -> None:
    parser = commands.add_parser(
        'card',
        help='describe a model in words',
        description='Describe a model in five lines: what it is, whom it was trained on, how well '
        'its patterns were reproduced, what to watch and where it applies. With -v, show the whole '
        'card, with preprocessing, selection and the numbers of each feature; with -q, only what '
        'it is and what to watch.',
        allow_abbrev=False,
    )
    parser.add_argument('model', type=path_of, metavar='MODEL', help=MODEL_HELP)
    parser.set_defaults(run=run_card)


def _add_tables(parser: argparse.ArgumentParser) -> None:
    """Add TABLE and `--participants`."""
    parser.add_argument(
        'table',
        type=path_of,
        metavar='TABLE',
        help='TSV or CSV file with one row per participant (or per visit, with a column '
        'session_id) and one column per region, as written by DLMUSE or FreeSurfer '
        '(asegstats2table, aparcstats2table), or your own',
    )
    parser.add_argument(
        '--participants',
        type=path_of,
        metavar='TSV',
        help='second table with diagnosis, age, site and other participant information (default: '
        'read them from TABLE). If both tables have a column, this table takes precedence',
    )


def _add_columns(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the columns of a table for an existing model."""
    add_option(parser, 'id_column')
    add_option(parser, 'icv_column', help='column with the intracranial volume')
    add_option(parser, 'site_column', help='column with the site')
    add_option(parser, 'exclude')


def _add_controls(parser: argparse.ArgumentParser) -> None:
    """Add the options that tell controls from others."""
    add_option(
        parser,
        'group_column',
        help='column with the diagnosis (default: diagnosis, group or dx)',
    )
    add_option(
        parser,
        'control_label',
        help='values of the group column that mark controls; other participants are not used. '
        '"all" states that everyone in a table without a diagnosis is a control (default: CN, '
        'control, HC or similar)',
    )


def _add_path(parser: argparse.ArgumentParser, name: str, metavar: str, text: str) -> None:
    """Add an option that is required and takes a path."""
    parser.add_argument(name, type=path_of, required=True, metavar=metavar, help=text)


def _add_overwrite(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument('--overwrite', action='store_true', help=text)


def run_fit(arguments: argparse.Namespace) -> int:
    """Read, check, train, analyse, write; the summary goes to the standard output too."""
    options, training = _options(arguments, CohortOptions), _options(arguments, TrainingOptions)
    out = arguments.out
    inputs = (arguments.table, arguments.participants, options.exclude)
    is_finished = not arguments.overwrite and (out / CARD).exists()
    if not is_finished:
        require_free_folder(out, arguments.overwrite)
    refuse_inputs([out, *(out / name for name in OWN_FILES)], inputs)

    from surreal_bids import __version__
    from surreal_bids.analysis.engine import analyse_trained
    from surreal_bids.analysis.outputs import summarise_cohort
    from surreal_bids.cohort.cohort import read_cohort, with_logged
    from surreal_bids.model.bundle import claim_checkpoints, list_checkpoints
    from surreal_bids.reports.card import BESIDE_CAUTIONS, verdict_text
    from surreal_bids.rindices.crossfit import prepare_folds, train
    from surreal_bids.rindices.model import prepare, require_trainable

    cohort = read_cohort(arguments.table, arguments.participants, options)
    training = training_options(training)
    made_from = cohort.fingerprint(asdict(training), __version__)
    if is_finished:
        return _report_finished(out, made_from)
    log_cautions(cohort.warnings)
    summarise(summarise_cohort(cohort))
    with _naming_tables(arguments):
        data = prepare(cohort)
        require_trainable(data, training)
        folds = prepare_folds(cohort, training)
    if arguments.dry_run:
        end_dry_run()
        return 0
    sys.stderr.write(describe_cautions(cohort.warnings))
    cohort = with_logged(cohort)
    with sole_use(MODEL, out), _naming_tables(arguments):
        require_free_folder(out, arguments.overwrite)
        claim_checkpoints(out / CHECKPOINTS, made_from, arguments.overwrite)
        if kept := len(list_checkpoints(out / CHECKPOINTS)):
            summarise(f'Resuming from {counted(kept, "checkpoint")} in {out / CHECKPOINTS}\n')
        n_procs = usable_cores() if find_device(training.device) == 'cpu' else 1
        trained = train(data, folds, training, out / CHECKPOINTS, n_procs)
        with stage('analysis'):
            found = analyse_trained(cohort, trained, training.random_seed)
            report = _write_fit(out, found, arguments.table.name, made_from)
        summarise(f'\n{verdict_text(found.model.state()[1], BESIDE_CAUTIONS)}\n\n')
        what = f'The model and R-indices ({RINDICES}) are' if found.names else 'The model is'
        sys.stdout.write(f'{what} in {out}; see {SUMMARY} there.\nThe report is {report}.\n')
        log_cautions(found.cautions)
    return 0


def _report_finished(folder: Path, made_from: str) -> int:
    """Say that a model is there already, if it was made from the same inputs."""
    from surreal_bids.rindices.model import load_table_bundle

    _, card = load_table_bundle(folder)  # An error if it is damaged.
    if card.get(MADE_FROM) != made_from:
        raise OutputError(
            f'{folder}: holds a model that was made from other inputs, with other options or by '
            'another version; choose another folder or use --overwrite'
        )
    sys.stdout.write(
        f'The model is in {folder} already, made from the same inputs with the same options. '
        'Nothing was done; --overwrite makes it again.\n'
    )
    return 0


def _is_made_from(folder: Path, made_from: str) -> bool:
    """Whether a folder holds a model that was made from these inputs, damaged or not."""
    try:
        return bool(json.loads((folder / CARD).read_text('utf-8')).get(MADE_FROM) == made_from)
    except (ValueError, AttributeError):
        return False


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
    """Refuse a folder that holds a model or other files, unless told to overwrite them."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f'{folder}: a file of this name exists; choose another output folder')
    if overwrite or not folder.exists():
        return
    if (folder / CARD).exists():
        raise OutputError(f'{folder}: holds a model; choose another folder or use --overwrite')
    own = (*OWN_FILES, REPORT) if is_unfinished(folder / CARD) else (CHECKPOINTS,)
    there = sorted(path.name for path in folder.iterdir() if not path.name.startswith('.'))
    if others := [name for name in there if name not in own]:
        raise OutputError(
            f'{folder}: holds {list_briefly(others)}; choose another folder, or use --overwrite to '
            'write the model there anyway'
        )


def _outputs(folder: Path) -> list[Path]:
    """List the outputs of earlier commands in the folder of a model."""
    own = [folder / name for name in OWN_FILES if name not in (CARD, CHECKPOINTS)]
    return [*own, *_report_files(folder / REPORT)]


def _naming_tables(arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """Prefix errors about the data with the tables."""
    from surreal_bids.tables import prefix_errors

    given = (arguments.table, arguments.participants)
    return prefix_errors(', '.join(str(path) for path in given if path is not None))


def _write_fit(folder: Path, found: Analysis, title: str, made_from: str) -> Path:
    """Write all outputs, then remove the checkpoints; return the report."""
    from surreal_bids.analysis.outputs import summarise_cohort, write_tables
    from surreal_bids.model.bundle import remove_checkpoints
    from surreal_bids.reports.card import card_text

    card = found.model.state()[1]
    parts = [summarise_cohort(found.cohort), describe_cautions(found.cautions)]
    parts += [card_text(card)]
    with replacing(folder / CARD, _outputs(folder)):
        write_tables(found, {name: folder / file for name, file in TABLES.items()})
        report = _write_report(folder / REPORT, found, title, TABLES)
        write_text(folder / SUMMARY, '\n'.join(f'{part.rstrip()}\n' for part in parts if part))
        model = replace(found.model, notes={**found.model.notes, MADE_FROM: made_from})
        model.save(folder)
    remove_checkpoints(folder / CHECKPOINTS)
    return report


def run_apply(arguments: argparse.Namespace) -> int:
    """Read a model and a table; write R-indices and report what was found."""
    out = arguments.out
    if out.suffix.lower() not in ('.tsv', '.csv'):
        raise UsageError(
            f'--out {out}: use a name that ends in .tsv, or in .csv for the columns of NiChart'
        )
    places = {name: out.with_name(f'{out.stem}_{file}') for name, file in TABLES.items()}
    del places['roi_volumes'], places['rindices']  # The former would be those of the input.
    places['rindices'] = out  # Written last: it marks the others as complete.
    note = _report_folder(out) / APPLIED
    is_finished = note.is_file() and not (arguments.overwrite or is_unfinished(out))
    others = _require_free_files(arguments, places, may_exist=is_finished)

    from surreal_bids.analysis.engine import analyse_applied
    from surreal_bids.analysis.outputs import summarise_results, write_tables
    from surreal_bids.cohort.cohort import read_to_apply
    from surreal_bids.cohort.roles import describe_uses
    from surreal_bids.rindices.model import TableModel
    from surreal_bids.rindices.new_sites import known_sites

    model = TableModel.load(arguments.model).with_unseen_site(arguments.unseen_site)
    options = _options(arguments, CohortOptions)
    cohort = read_to_apply(arguments.table, arguments.participants, options, model)
    made_from = _made_from(cohort, arguments, arguments.unseen_site)
    if is_finished and _is_applied(note, made_from):
        return _report_applied(out)
    _require_free_files(arguments, places)
    with _naming_tables(arguments):
        found = analyse_applied(cohort, model, adapted=False)
        with sole_use(out.name, out.parent), replacing(out, [*others, note]):
            names = {name: path.name for name, path in places.items()}
            folder, name = _report_folder(out), model_name(arguments.model)
            report = _write_report(folder, found, arguments.table.name, names, name)
            write_tables(found, places)
            written = [*(path for path in places.values() if path.exists()), report]
            _note_applied(note, made_from, written)
    notes = [*cohort.notes, *describe_uses(cohort.uses), *known_sites(model, cohort)]
    notes += _site_notes(model, cohort)
    log_cautions(found.cautions)
    summarise(summarise_results(found.results, cohort.exclusions, notes, bool(found.names)))
    sys.stdout.writelines(f'  {path}\n' for path in written)
    return 0


def _made_from(cohort: Cohort, arguments: argparse.Namespace, option: str | None) -> str:
    """Return a fingerprint of a cohort, a model and an option that depends on neither."""
    from surreal_bids import __version__

    # The card has checksums of the tensors.
    card = hashlib.sha256((find_model(arguments.model) / CARD).read_bytes()).hexdigest()
    return cohort.fingerprint(__version__, model_name(arguments.model), card, option)


def _note_applied(note: Path, made_from: str, outputs: Sequence[Path]) -> None:
    """Write down what the outputs of `apply` were made from."""
    files = [os.path.relpath(path, note.parent) for path in outputs]
    write_json(note, {MADE_FROM: made_from, 'Outputs': files})


def _is_applied(note: Path, made_from: str) -> bool:
    """Whether the outputs of `apply` are complete and were made from these inputs."""
    try:
        content = json.loads(note.read_text(encoding='utf-8'))
    except ValueError:
        return False
    files = [note.parent / name for name in content['Outputs']]
    return content[MADE_FROM] == made_from and all(path.is_file() for path in files)


def _report_applied(out: Path) -> int:
    """Say that the results of `apply` are there already."""
    sys.stdout.write(
        f'The R-indices are in {out} already, computed from the same inputs with the same options. '
        'Nothing was done; --overwrite computes them again.\n'
    )
    return 0


def _write_report(
    folder: Path, found: Analysis, title: str, tables: Mapping[str, str], model: str | None = None
) -> Path:
    """Write the report of an analysis into a folder; `model` names one that was applied."""
    from surreal_bids.reports.group import GroupReport, write_group_report
    from surreal_bids.reports.methods import describe_group_methods

    asked = {'model': model, 'map_tissues': (), 'from_table': True}
    methods = describe_group_methods(found, asked)
    return write_group_report(
        GroupReport(folder, title, found, methods, tables=tables, has_individuals=False)
    )


def _report_files(folder: Path) -> list[Path]:
    """List the files of a report in its folder."""
    page = output_path(folder, 'group_report')
    figures = output_path(folder, 'group_figure', figure='x', extension='svg').parent
    return [path for path in (page, *sorted(figures.glob('group_desc-*'))) if path.exists()]


def _report_folder(results: Path) -> Path:
    """Return the folder of the report of a table of R-indices."""
    return results.with_name(f'{results.stem}_{REPORT}')


def _require_free_files(
    arguments: argparse.Namespace, places: Mapping[str, Path], *, may_exist: bool = False
) -> list[Path]:
    """Refuse outputs of `apply` that are inputs, or that exist unless told to overwrite them.

    With `may_exist`, they are compared with the inputs later. Returns all outputs but the table of
    R-indices, which marks them as complete.
    """
    outputs = [each for path in places.values() for each in (path, path.with_suffix('.json'))]
    outputs += _report_files(_report_folder(arguments.out))
    model_files = [arguments.model / name for name in OWN_FILES]
    given = (arguments.table, arguments.participants, arguments.exclude)
    refuse_inputs(outputs, [*given, *model_files])
    may_replace = may_exist or arguments.overwrite or is_unfinished(arguments.out)
    for path in outputs:
        if path.is_dir() or (path.exists() and not may_replace):
            raise OutputError(f'{path}: already exists; choose another name or use --overwrite')
    return [path for path in outputs if path != arguments.out]


def _site_notes(model: TableModel, cohort: Cohort) -> list[str]:
    """What few controls leave open for the sites of a cohort that were added to a model."""
    from surreal_bids.rindices.model import ADDED_SITES
    from surreal_bids.rindices.new_sites import describe_added

    added, here = model.notes.get(ADDED_SITES, {}), _sites(cohort)
    return [line for name, line in zip(added, describe_added(added)) if name in here]


def _sites(cohort: Cohort) -> set[str]:
    column = cohort.options.site_column
    return set() if column is None else set(cohort.people[column])


def run_add_site(arguments: argparse.Namespace) -> int:
    """Read a model and controls; write the model that knows their sites, and what is left open."""
    if arguments.site is not None and (problem := text_problem(arguments.site)):
        raise UsageError(f'--site {arguments.site!r}: expected {problem}')
    if arguments.site and arguments.site_column:
        raise UsageError('--site and --site-column: give one of them')
    out, table = arguments.out, arguments.table
    is_finished = not arguments.overwrite and (out / CARD).exists()
    if not is_finished:
        require_free_folder(out, arguments.overwrite)
    own = [arguments.model / name for name in OWN_FILES]
    refuse_inputs(
        [out / name for name in OWN_FILES], [table, arguments.participants, arguments.exclude, *own]
    )

    from surreal_bids.analysis.outputs import write_described
    from surreal_bids.rindices.model import TableModel
    from surreal_bids.rindices.new_sites import add_sites, read_site_controls, summarise_added

    model = TableModel.load(arguments.model)
    options = _options(arguments, CohortOptions)
    controls = read_site_controls(model, table, arguments.participants, options, arguments.site)
    made_from = _made_from(controls, arguments, arguments.site)
    if is_finished and _is_made_from(out, made_from):
        return _report_finished(out, made_from)
    require_free_folder(out, arguments.overwrite)
    with _naming_tables(arguments):
        taught = add_sites(model, controls)
    taught = replace(taught, notes={**taught.notes, MADE_FROM: made_from})
    text, cautions = summarise_added(taught, controls), describe_cautions(controls.warnings)
    with sole_use(MODEL, out), replacing(out / CARD, _outputs(out)):
        write_described('exclusions', out / EXCLUSIONS, controls.exclusions)
        write_text(out / SUMMARY, f'{text}{cautions}')
        taught.save(out)
    summarise(f'{text}\n')
    sys.stdout.write(f'The model is in {out}.\n')
    log_cautions(controls.warnings)
    return 0


def run_replicate(arguments: argparse.Namespace) -> int:
    """Compare the patterns of a model with those of a second cohort; write the results."""
    from surreal_bids.cli.replicate import write_replication

    cohort_options = _options(arguments, CohortOptions)
    training = training_options(_options(arguments, TrainingOptions))
    model_files = [find_model(arguments.model) / name for name in OWN_FILES]
    return write_replication(arguments, cohort_options, training, model_files)


def run_card(arguments: argparse.Namespace) -> int:
    """Show the verdict on a model, with -v its whole card, with -q two lines."""
    from surreal_bids.model.bundle import reading_model
    from surreal_bids.reports.card import SHORTEST, card_text, verdict_text
    from surreal_bids.rindices.model import load_table_bundle

    with reading_model(arguments.model):
        card = load_table_bundle(arguments.model)[1]
        shown = SHORTEST if arguments.verbosity == QUIET else None
        text = card_text(card) if arguments.verbosity > 0 else verdict_text(card, shown)
    sys.stdout.write(f'{text}\n')
    return 0
