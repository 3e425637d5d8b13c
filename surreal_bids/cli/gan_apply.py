"""`surreal-gan apply` and `surreal-gan card`: use a model, and read about it."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from surreal_bids.bids.participants import Table
from surreal_bids.cli.gan_fit import add_table_arguments, add_unseen_site
from surreal_bids.exceptions import OutputError, UsageError
from surreal_bids.harmonization.tables import name_some
from surreal_bids.tables.card import readable_card
from surreal_bids.tables.features import unused_columns
from surreal_bids.tables.pipeline import TableModel, load_table_bundle
from surreal_bids.tables.reading import about, join_participants, read_people
from surreal_bids.tables.results import write_results
from surreal_bids.tables.summary import summarise_results

LOGGER = logging.getLogger(__name__)


def add_parser(commands: Any) -> None:
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
    parser.set_defaults(run=run)


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
    sys.stdout.write(readable_card(load_table_bundle(arguments.model)[1]) + '\n')
    return 0


def run(arguments: argparse.Namespace) -> int:
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
        results = model.apply(features, known)
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
