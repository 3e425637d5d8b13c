"""`surreal-simulate score`: how well R-indices recover the severities that were simulated."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd

from surreal_bids.bids.derivatives import output_path
from surreal_bids.exceptions import DataError
from surreal_bids.stats.concordance import concordance_matrix, match_patterns
from surreal_bids.tables.reading import read_people
from surreal_bids.templates import TEMPLATE_SPACE

PATTERN_COLUMN = re.compile(r'(r|pattern_)\d+')


def add_parser(subparsers: Any) -> None:
    """Register the subcommand `score`."""
    parser = subparsers.add_parser(
        'score',
        help='compare R-indices with the simulated severities',
        description='Match estimated with true patterns and print the c-index of each pair and '
        'their mean, the pattern-c-index: 1 is perfect, 0.5 is chance. Only patients count. With '
        '--maps also how well the map of each pattern tells the regions that were to lose volume '
        'from others, as an area under the curve (AUC).',
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
    if estimates.shape[1] < truths.shape[1]:
        raise DataError(
            f'{arguments.rindices}: {estimates.shape[1]} patterns, but {truths.shape[1]} were '
            'simulated; give a model with at least as many'
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
        f'  true {truth}: {name}, c-index {value:.3f}{note}\n'
        for truth, name, value, note in zip(truths.columns, found, matched, notes)
    ]
    mean = f'pattern-c-index {matched.mean():.3f}\n'
    sys.stdout.write(f'{len(people)} patients:\n{"".join(lines)}{mean}')
    return 0


def _map_scores(folder: Path, truth: Path, found: Sequence[str]) -> list[float]:
    """AUC of |t| of each pattern's regression among patients, for the regions it truly concerns."""
    # Scikit-learn and the template's labels take seconds, which only this option should cost.
    from sklearn.metrics import roc_auc_score

    from surreal_bids.simulation.templates import labels_at, load_labels

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
    path = output_path(
        folder,
        'statistical_map',
        template=TEMPLATE_SPACE,
        tissue='GM',
        contrast=f'{pattern}slope',
        statistic='t',
    )
    if not path.is_file():
        raise DataError(f'{path}: no such map; run the group level on images')
    return path


def _patterns(path: Path) -> pd.DataFrame:
    """The columns r1, r2, ... of a table, by person; people with missing values are left out."""
    table = read_people(path)
    columns = [name for name in table.columns if PATTERN_COLUMN.fullmatch(name)]
    if not columns:
        raise DataError(f'{path}: no column r1, r2, ...; columns: {", ".join(table.columns)}')
    return pd.DataFrame({name: table.numbers(name) for name in columns}).dropna()
