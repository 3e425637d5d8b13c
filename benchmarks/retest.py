"""Measurement noise of regional volumes, from people scanned twice.

    python benchmarks/retest.py measure SET VOLUMES.tsv
    python benchmarks/retest.py learn SET VOLUMES.tsv

SET holds `T1w/<name>.nii.gz` and `people.tsv` with the columns `name` and `person`, as `oasis35`
does: five of its people were scanned twice within 90 days, on one scanner, at 1 mm. `measure`
processes their scans as the app does (about half a minute of one core each); `learn` writes
`surreal_bids/data/retest.tsv`.

Log volumes of two scans of one brain differ by a component that all regions and the head size share
(the scale of the image), and by a component of each region. Few pairs say little about one region.
Its variance is shrunk towards the value expected for its volume, to the degree that the spread over
regions suggests (Smyth, Stat Appl Genet Mol Biol 2004); left and right count as one region.
The network was trained on these scans: noise is multiplied by the ratio of differences with
networks that were not (`halves_dlmuse` of results/*_network.tsv), over the same regions.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

from surreal_bids.files import write_tsv
from surreal_bids.images import load_image, voxel_volume
from surreal_bids.imaging.bias import correct_bias
from surreal_bids.imaging.brain import brain_mask
from surreal_bids.imaging.network import segment_regions
from surreal_bids.regions import muse_indices, region_mates
from surreal_bids.rindices.measurement_noise import HEAD_SIZE, NOISE_TABLE, SHARED

NOT_BY_HAND = range(81, 96)
"""Regions that the hand labels lack, and `halves_dlmuse` leaves out."""

MATES = {str(index): str(mate) for index, mate in region_mates().items()}
"""Regions of the other side."""

HELD_OUT_DIFFERENCE = 0.0193
"""Median difference of a volume, by networks that were not trained on the person."""


MOST_DF = 1000
"""Where regions differ by no more than chance, they are shrunk as if by so many pairs."""


def differences_within(logs: pd.DataFrame, who: pd.Series) -> pd.DataFrame:
    """Difference of each scan from the mean of the earlier ones of the same participant.

    They are independent, and scaled so that their variance is that of a difference of two scans.
    """
    groups = logs.groupby(who, sort=False)
    number = groups.cumcount()
    earlier = (groups.cumsum() - logs).div(number.where(number > 0), axis=0)
    scale = np.sqrt(2 * number / (number + 1))
    return (logs - earlier).mul(scale, axis=0)[number > 0]


def estimate_noise(
    differences: pd.DataFrame, volumes: pd.Series, mates: Mapping[str, str]
) -> pd.DataFrame:
    """`noise` (standard deviation of one log measurement) and its degrees of freedom, `df`.

    Parameters
    ----------
    differences : frame of shape (n_pairs, n_regions)
        Log differences of two scans, of regions and, if it was measured, of the head size.
    volumes : Series of shape (n_regions,)
        Usual volume of each.
    mates
        Region of the other side, for those that have one.

    Returns
    -------
    DataFrame
        One row each for the shared component, the head size and each region.
    """
    regions = differences.drop(columns=HEAD_SIZE, errors='ignore')
    shared = regions.median(axis=1)
    own = regions.sub(shared, axis=0)
    squares = own.pow(2).mean()
    names = list(map(str, regions))
    other = [mates.get(name, name) for name in names]
    variances = (squares.to_numpy() + squares[other].to_numpy()) / 2
    df = len(own) * np.where(np.array(names) == other, 1, 2)
    shrunk, df_shrunk = shrink(variances, df, np.log(volumes[regions.columns].to_numpy()))
    head = (differences[HEAD_SIZE] - shared).pow(2).mean() if HEAD_SIZE in differences else 0.0
    # A difference has two measurements in it.
    noise = np.sqrt(np.array([shared.pow(2).mean(), head, *shrunk]) / 2)
    rows = [SHARED, HEAD_SIZE, *names]
    return pd.DataFrame({'noise': noise, 'df': [len(own), len(own), *df_shrunk]}, rows)


def shrink(
    variances: NDArray[np.float64], df: NDArray[np.int64], log_volumes: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shrink log variances (S,) with degrees of freedom (S,) towards a straight line.

    Returns both after shrinkage.

    The prior is a scaled inverse chi-squared distribution around the line. Its degrees of freedom
    follow from how much more variances differ than their own degrees of freedom explain.
    """
    bias = digamma(df / 2) - np.log(df / 2)
    logs = np.log(variances) - bias
    line = np.polyval(np.polyfit(log_volumes, logs, 1), log_volumes)
    excess = np.mean((logs - line) ** 2 * len(logs) / (len(logs) - 2) - polygamma(1, df / 2))
    # Few regions do not tell the line better than all of their pairs do.
    most = min(MOST_DF, float(df.sum()))
    prior_df = most
    if excess > polygamma(1, most / 2):
        prior_df = brentq(lambda d: polygamma(1, d / 2) - excess, 1e-3, most)
    prior = np.exp(line + digamma(prior_df / 2) - np.log(prior_df / 2))
    known = np.asarray(prior_df + df, dtype=np.float64)
    return np.asarray((prior_df * prior + df * variances) / known), known


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
