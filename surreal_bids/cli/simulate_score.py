"""`surreal-simulate score`: how well R-indices recover the severities that were simulated."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.exceptions import DataError
from surreal_bids.stats.concordance import concordance_matrix, match_patterns
from surreal_bids.tables.reading import read_people

PATTERN_COLUMN = re.compile(r'r\d+')


def add_parser(subparsers: Any) -> None:
    """Register the subcommand `score`."""
    parser = subparsers.add_parser(
        'score',
        help='compare R-indices with the simulated severities',
        description='Match estimated with true patterns and print the c-index of each pair and '
        'their mean, the pattern-c-index: 1 is perfect, 0.5 is chance. Only patients count.',
    )
    parser.add_argument('rindices', type=Path, metavar='RINDICES', help='rindices.tsv of a model')
    parser.add_argument('severities', type=Path, metavar='TRUTH', help='severities.tsv')
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each true pattern, and the mean."""
    estimates = _patterns(arguments.rindices)
    truths = _patterns(arguments.severities)
    truths = truths[(truths > 0).any(axis=1)]
    people = truths.index.intersection(estimates.index)
    if len(people) < 2:
        raise DataError(
            f'{arguments.rindices}: {len(people)} patients of {arguments.severities} in it; '
            'give the R-indices of the people that were simulated'
        )
    c_index = concordance_matrix(estimates.loc[people], truths.loc[people])
    match = match_patterns(c_index)
    matched = c_index[match, np.arange(match.size)]
    lines = [
        f'  true {truth}: {estimates.columns[k]}, c-index {value:.3f}'
        for truth, k, value in zip(truths.columns, match, matched)
    ]
    sys.stdout.write(
        f'{len(people)} patients:\n'
        + '\n'.join(lines)
        + f'\npattern-c-index {matched.mean():.3f}\n'
    )
    return 0


def _patterns(path: Path) -> pd.DataFrame:
    """The columns r1, r2, ... of a table, by person; people with missing values are left out."""
    table = read_people(path)
    columns = [name for name in table.columns if PATTERN_COLUMN.fullmatch(name)]
    if not columns:
        raise DataError(f'{path}: no column r1, r2, ...; columns: {", ".join(table.columns)}')
    return pd.DataFrame({name: table.numbers(name) for name in columns}).dropna()
