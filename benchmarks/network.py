"""Overlap and volumes of the segmentation network on heads that were not used to train it.

    python benchmarks/network.py measure WEIGHTS.safetensors HEADS OUT NAME [NAME ...]
    python benchmarks/network.py tell OUT

HEADS holds one npz per head, as written by `benchmarks/train_network.py prepare`: bias correction
and brain mask as in the app. A NAME is a prefix of the names of some heads. Overlap is Dice;
volumes are sums of probabilities, without the factors of the app. Regions 81 to 95, parts of white
matter, are excluded if hand labels lack them.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from machine import write_results
from nibabel.nifti1 import Nifti1Image

from surreal_bids.imaging.network import load_network, segment_regions
from surreal_bids.regions import muse_table

FIRST_CORTEX = 100
"""MUSE index from which regions are cortex."""

REGIONS = sorted(muse_table()['index'])
WHITE_MATTER = range(81, 96)
HORNS = (49, 50)
PACKAGES = ('surreal_bids', 'torch')


def measure(options: argparse.Namespace) -> None:
    """Segment heads, and compare with their labels."""
    network = load_network(options.weights)
    network = replace(network, factors=((1.0,) * len(network.indices),) * 2)
    options.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(p for name in options.names for p in options.heads.glob(f'{name}*.npz')):
        head = dict(np.load(path))
        x, mask, labels = head['x'], head['m'], head['y']
        began = time.process_time()
        found = segment_regions(
            Nifti1Image(x, head['affine']),
            Nifti1Image(mask.astype(np.uint8), head['affine']),
            network=network,
        )
        took = time.process_time() - began
        labels, winners = (
            each.astype(np.int64).ravel() for each in (labels, np.asarray(found.labels.dataobj))
        )
        size = abs(np.linalg.det(head['affine'][:3, :3]))
        table = pd.DataFrame({'index': REGIONS})
        for column, values in (
            ('true', labels),
            ('found', winners),
            ('both', labels[labels == winners]),
        ):
            table[column] = np.bincount(values, minlength=256)[REGIONS] * size
        table['volume'] = [found.volumes[index] for index in REGIONS]
        table['confidence'] = [found.confidence.get(index, np.nan) for index in REGIONS]
        name = f'{options.weights.stem}.{path.stem}'
        table.assign(cpu_seconds=took).to_csv(options.out / f'{name}.tsv', sep='\t', index=False)
        print(name, flush=True)


def cortical_ratio(table: pd.DataFrame) -> float:
    """Return the median over cortical regions of the ratio of volumes."""
    cortex = table[(table['index'] >= FIRST_CORTEX) & (table['true'] > 0)]
    return float((cortex['volume'] / cortex['true']).median())


def overlap(table: pd.DataFrame, hand: bool) -> pd.Series:
    """Return the Dice of each region of the head, by index."""
    rows = table[table['true'] > 0]
    if hand:
        rows = rows[~rows['index'].isin(WHITE_MATTER)]
    return (2 * rows['both'] / (rows['true'] + rows['found'])).set_axis(rows['index'])


def tell(out: Path) -> None:
    """Print the figures of each network and set of heads."""
    rows = []
    for path in sorted(out.glob('*.tsv')):
        network, head, *grown = path.name.removesuffix('.tsv').split('.', 2)
        table = pd.read_csv(path, sep='\t').assign(
            network=network, set=head.rsplit('_', 1)[0] + ''.join(grown), head=head
        )
        rows.append(table)
    everything, found = pd.concat(rows), []
    for (network, kind), tables in everything.groupby(['network', 'set']):
        hand = 'oasis' in kind
        dice = pd.DataFrame({head: overlap(t, hand) for head, t in tables.groupby('head')})
        kept = tables[tables['index'].isin(dice.index)]
        true, volume = (
            kept.pivot_table(index='head', columns='index', values=c) for c in ('true', 'volume')
        )
        figures = {
            'network': network,
            'heads': f'{kind} ({len(true)})',
            'dice': round(dice.mean().mean(), 4),
            'worst_head': round(dice.mean().min(), 3),
            'median_head': round(dice.mean().median(), 3),
            'horns': round(dice.loc[list(HORNS)].mean().mean(), 3),
            'r': round(true.corrwith(volume).median(), 3) if len(true) > 2 else None,
            'ratio': round((volume.mean() / true.mean()).median(), 3),
            'cortex': round(
                float(np.median([cortical_ratio(t) for _, t in tables.groupby('head')])), 3
            ),
            'cpu_seconds': round(tables.groupby('head')['cpu_seconds'].first().mean(), 1),
        }
        print(json.dumps(figures))
        found.append(figures)
    write_results('network', found, *PACKAGES)


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    actions = parser.add_subparsers(dest='action', required=True)
    measuring = actions.add_parser('measure')
    measuring.add_argument('weights', type=Path)
    measuring.add_argument('heads', type=Path)
    measuring.add_argument('out', type=Path)
    measuring.add_argument('names', nargs='+')
    telling = actions.add_parser('tell')
    telling.add_argument('out', type=Path)
    options = parser.parse_args()
    if options.action == 'measure':
        measure(options)
    else:
        tell(options.out)


if __name__ == '__main__':
    main()
