"""Overlap of multi-atlas segmentation with hand-labelled brains, chosen by similarity, at 2 mm.

    python benchmarks/hand_atlases.py SETS ixi2mm/IXI083-HH-1357 oasis35/1006 ...

SETS holds `<set>/T1w/<name>.nii.gz` and `<set>/dseg/<name>.nii.gz`. All scans of `oasis35` are
atlases, except those of the same person (`oasis35/people.tsv`). Heads of other sets are whole and
go through N4 and brain extraction as in the app. Each head is labelled by votes alone, and by votes
and intensities as in the app. White matter has one hand label per side and is excluded.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from atlas_selection import most_alike, portrait
from machine import write_results
from neuromorphometrics import COARSE_MM, coarse_brain
from nibabel.nifti1 import Nifti1Image
from segmentation import SUBCORTICAL, correlations, overlaps

from surreal_bids.images import Image, load_image, voxel_volume
from surreal_bids.imaging import fusion
from surreal_bids.imaging.brain import brain_mask, correct_bias
from surreal_bids.imaging.fusion import Candidate, fuse_labels
from surreal_bids.imaging.registration import register
from surreal_bids.imaging.transforms import identity_transform, resample
from surreal_bids.regions import muse_table

ATLASES = 'oasis35'
ATLASES_PER_HEAD = 12
VENTRICLES, HORNS = (4, 11, 49, 50, 51, 52), (49, 50)
REGIONS = [index for index in sorted(muse_table()['index']) if index not in range(81, 96)]
"""Single regions of MUSE, less white matter."""


class Brain(NamedTuple):
    """Skull-stripped T1w image, its labels and its portrait."""

    t1w: Image
    labels: Image
    portrait: Image


def read_brain(sets: Path, name: str) -> Brain:
    """Read a head at 2 mm, prepared as in the app."""
    folder, scan = name.split('/')
    t1w = load_image(sets / folder / 'T1w' / f'{scan}.nii.gz')
    labels = load_image(sets / folder / 'dseg' / f'{scan}.nii.gz')
    if folder == ATLASES:
        t1w = coarse_brain(t1w)
        labels = resample(labels, identity_transform(t1w.shape, t1w.affine), order=0)
        return Brain(t1w, labels, portrait(t1w))
    mask, _ = brain_mask(t1w)
    corrected = correct_bias(t1w, mask)
    inside = np.asarray(mask.dataobj) > 0
    brain = Nifti1Image(np.where(inside, corrected.dataobj, 0), t1w.affine)
    return Brain(brain, labels, portrait(brain))


def by_votes_alone(votes: fusion.Votes, _: object) -> np.ndarray:
    """Replace :func:`fusion.shares_by_intensity`."""
    return votes.shares()


def measure(name: str, head: Brain, atlases: list[Brain]) -> tuple[list[dict], dict]:
    """Return one row per decision rule, and the volumes of each."""
    portraits = [each.portrait for each in atlases]
    chosen = [atlases[k] for k in most_alike(head.portrait, portraits, ATLASES_PER_HEAD)]
    begin = time.process_time()
    candidates = [
        Candidate(each.t1w, each.labels, register(head.t1w, each.t1w).forward) for each in chosen
    ]
    seconds = time.process_time() - begin
    ways: dict[str, Callable] = {
        'votes': by_votes_alone,
        'votes and intensities': fusion.shares_by_intensity,
    }
    rows, volumes = [], {}
    for way, decide in ways.items():
        with patch.object(fusion, 'shares_by_intensity', decide):
            found = fuse_labels(head.t1w, candidates)
        dice = overlaps(found.labels, head.labels)
        kinds = {'dice': REGIONS, 'ventricles': VENTRICLES, 'horns': HORNS, 'deep': SUBCORTICAL}
        mean = {kind: round(dice[list(some)].mean(), 4) for kind, some in kinds.items()}
        rows.append({'head': name, 'decided_by': way, **mean, 'cpu_seconds': round(seconds, 1)})
        volumes[way] = [found.volumes.get(region, 0.0) for region in REGIONS]
    counts = np.bincount(np.asarray(head.labels.dataobj).astype(int).ravel(), minlength=256)
    return rows, volumes | {'truth': counts[REGIONS] * voxel_volume(head.labels)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('sets', type=Path)
    parser.add_argument('heads', nargs='+')
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    people = pd.read_csv(arguments.sets / ATLASES / 'people.tsv', sep='\t', dtype=str)
    person = people.set_index('name')['person']
    brains = {scan: read_brain(arguments.sets, f'{ATLASES}/{scan}') for scan in person.index}
    rows: list[dict] = []
    volumes: dict[str, list[dict]] = {}
    for name in arguments.heads:
        folder, scan = name.split('/')
        own = person.get(scan) if folder == ATLASES else None
        atlases = [brain for other, brain in brains.items() if person[other] != own]
        found, sizes = measure(name, read_brain(arguments.sets, name), atlases)
        rows += found
        volumes.setdefault(folder, []).append(sizes)
        print(pd.DataFrame(found).to_string(header=False, index=False), flush=True)
    table = pd.DataFrame(rows)
    groups = [table['head'].str.split('/').str[0].rename('set'), 'decided_by']
    print(table.groupby(groups).mean(numeric_only=True).round(3).to_string())
    for folder, each in volumes.items():
        for way in table['decided_by'].unique():
            both = (np.array([sizes[key] for sizes in each]) for key in (way, 'truth'))
            r = np.nanmedian(correlations(*both)) if len(each) > 2 else float('nan')
            print(f'{folder}, {way}: median r of volumes over {len(each)} heads {r:.2f}')
    write_results('hand_atlases', table.assign(voxel_mm=COARSE_MM), 'surreal_bids', 'torch')


if __name__ == '__main__':
    main()
