"""`surreal-gan import-checkpoint`: the authors' checkpoints as models."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from surreal_bids.cli.gan_fit import require_free_folder
from surreal_bids.tables.authors import import_checkpoint
from surreal_bids.tables.card import readable_card
from surreal_bids.tables.features import listed_features


def add_parser(commands: Any) -> None:
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
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
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
