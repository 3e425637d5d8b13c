"""Measurement noise of regional volumes, from people scanned twice.

    python benchmarks/retest.py measure SET VOLUMES.tsv
    python benchmarks/retest.py learn SET VOLUMES.tsv

SET holds `T1w/<name>.nii.gz` and `people.tsv` with the columns `name` and `person`, as `oasis35`
does: five of its people were scanned twice within 90 days, on one scanner, at 1 mm. `measure`
processes their scans as the app does (about half a minute of one core each); `learn` writes
`surreal_bids/data/retest.tsv`.

Noise is estimated as that of a user's own scans (`surreal_bids/cohort/retest.py`). The network was
trained on these scans: noise is multiplied by the ratio of differences with networks that were not
(`halves_dlmuse` of results/*_network.tsv), over the same regions.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from surreal_bids.cohort.retest import HEAD_SIZE, differences_within, estimate_noise
from surreal_bids.files import write_tsv
from surreal_bids.images import load_image, voxel_volume
from surreal_bids.imaging.bias import correct_bias
from surreal_bids.imaging.brain import brain_mask
from surreal_bids.imaging.network import segment_regions
from surreal_bids.regions import muse_indices, region_mates
from surreal_bids.rindices.measurement_noise import NOISE_TABLE

NOT_BY_HAND = range(81, 96)
"""Regions that the hand labels lack, and `halves_dlmuse` leaves out."""

MATES = {str(index): str(mate) for index, mate in region_mates().items()}
"""Regions of the other side."""

HELD_OUT_DIFFERENCE = 0.0193
"""Median difference of a volume, by networks that were not trained on the person."""


def scanned_twice(folder: Path) -> pd.Series:
    """Return the person of each scan, by its name, for people with two scans."""
    people = pd.read_csv(folder / 'people.tsv', sep='\t', dtype=str).set_index('name')['person']
    return people[people.duplicated(keep=False)].sort_values(kind='stable')


def measure(folder: Path, path: Path) -> None:
    """Measure the volumes of each scan, one row each."""
    rows = {}
    for name in scanned_twice(folder).index:
        t1w = load_image(folder / 'T1w' / f'{name}.nii.gz')
        mask, _ = brain_mask(t1w)
        found = segment_regions(correct_bias(t1w, mask), mask)
        size = float(np.count_nonzero(np.asarray(mask.dataobj))) * voxel_volume(mask)
        rows[name] = {HEAD_SIZE: size, **found.volumes}
        print(name, round(size), flush=True)
    pd.DataFrame.from_dict(rows, orient='index').rename_axis('name').to_csv(path, sep='\t')


def read_pairs(folder: Path, path: Path) -> tuple[pd.DataFrame, pd.Series]:
    """Return log differences of each pair (pairs, regions and head size), and mean volumes."""
    volumes = pd.read_csv(path, sep='\t', dtype={'name': str}).set_index('name')
    volumes = volumes[[HEAD_SIZE, *map(str, muse_indices())]]
    person = scanned_twice(folder)[volumes.index]
    return differences_within(np.log(volumes), person), volumes.mean()


def held_out_ratio(differences: pd.DataFrame) -> float:
    """Return the ratio of differences by networks that were not trained on these scans.

    Less than 1 is chance: no network measures unseen people better.
    """
    by_hand = [i for i in differences if i != HEAD_SIZE and int(i) not in NOT_BY_HAND]
    seen = float(np.median(2 * np.tanh(differences[by_hand].abs() / 2)))
    return max(HELD_OUT_DIFFERENCE / seen, 1.0)


def learn(folder: Path, path: Path) -> None:
    """Write the table of the package."""
    differences, volumes = read_pairs(folder, path)
    larger = held_out_ratio(differences)
    print(f'{len(differences)} pairs; noise times {larger:.3f}')
    found = estimate_noise(differences, volumes, MATES)
    table = found.assign(noise=found['noise'] * larger).rename_axis('index').reset_index()
    table['volume_mm3'] = volumes.reindex(table['index']).round().to_numpy()
    write_tsv(NOISE_TABLE, table.round({'noise': 5, 'df': 1}))


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('action', choices=('measure', 'learn'))
    parser.add_argument('folder', type=Path, metavar='SET')
    parser.add_argument('volumes', type=Path, metavar='VOLUMES.tsv')
    options = parser.parse_args()
    {'measure': measure, 'learn': learn}[options.action](options.folder, options.volumes)


if __name__ == '__main__':
    main()
