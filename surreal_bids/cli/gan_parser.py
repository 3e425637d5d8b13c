"""The command line of `surreal-gan`."""

from __future__ import annotations

import argparse
from typing import Any

from surreal_bids.cli.main import Parser, add_common_options, add_to_commands
from surreal_bids.cli.options import add_option, add_sections, path_of
from surreal_bids.config import GROUPS, SECTIONS, TRAINING, VOLUMES

MODEL = 'folder of the model, or a published model: ad or ageing'


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands; the one that was chosen is in `command`."""
    parser = Parser(
        prog='surreal-gan',
        description='R-indices of disease-related brain patterns from a table of regional volumes: '
        'how strongly each pattern is expressed in each participant (Surreal-GAN).',
        epilog='Exit codes: 0 success; 2 wrong usage; 65 bad data; 73 the output cannot be '
        'written. "surreal-gan COMMAND --help" explains each command.',
    )
    add_common_options(parser)
    commands = parser.add_subparsers(
        dest='command',
        required=True,
        metavar='{fit,apply,add-site,card}',
        title='Commands',
    )
    for add in (_add_fit, _add_apply, _add_site, _add_card):
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
    _add_path(parser, '--model', 'MODEL', MODEL)
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
    parser.add_argument('model', type=path_of, metavar='MODEL', help=MODEL)
    _add_tables(parser)
    parser.add_argument('out', type=path_of, metavar='OUT', help='folder to write the new model to')
    _add_columns(parser)
    parser.add_argument(
        '--site', metavar='NAME', help='name of the site, if TABLE has no column for it'
    )
    _add_controls(parser)
    _add_overwrite(parser, 'replace the model in OUT')


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
    parser.add_argument('model', type=path_of, metavar='MODEL', help=MODEL)


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
