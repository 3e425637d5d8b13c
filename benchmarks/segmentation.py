"""Overlap, volumes and CPU time of multi-atlas segmentation and of registration engines.

    python benchmarks/segmentation.py FOLDER [--masks FOLDER] [--modes default fast all]

FOLDER holds `T1w/<name>.nii.gz` (whole heads) and `dseg/<name>.nii.gz` (MUSE labels by DLMUSE). In
alphabetical order, the first twelve participants are atlases and the last eight are targets. Brains
of targets are extracted by deepbet, or by masks of the same names in another folder; those of
atlases by their labels. CPU time covers registration and fusion in one thread of one process; other
work on the machine makes it longer.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from machine import write_results
from nibabel.affines import apply_affine
from nibabel.nifti1 import Nifti1Image
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

from surreal_bids.images import like, load_image, to_ants, voxel_volume
from surreal_bids.imaging.atlas import Atlas
from surreal_bids.imaging.brain import extract_brain
from surreal_bids.imaging.deformation import DEFAULT, Settings
from surreal_bids.imaging.fusion import Candidate, Fusion, fuse_labels
from surreal_bids.imaging.registration import (
    align_affine,
    normalise_intensity,
    register,
)
from surreal_bids.imaging.transforms import (
    Transform,
    affine_transform,
    read_composite,
    resample,
    split_affine,
)
from surreal_bids.regions import muse_table

N_ATLASES = 12
N_TARGETS = 8
MODES = {
    'default': (DEFAULT, 8, {'dice': 0.77, 'cpu_seconds': 120.0}),
    'fast': (Settings(iterations=(30, 20, 10)), 8, {'dice': 0.73, 'cpu_seconds': 45.0}),
    'all': (DEFAULT, 12, {}),
}
"""Settings, number of atlases, and what they must reach."""

SUBCORTICAL = (23, 30, 31, 32, 36, 37, 47, 48, 55, 56, 57, 58, 59, 60)
"""Accumbens, amygdala, caudate, hippocampus, pallidum, putamen, thalamus."""

REGIONS = sorted(muse_table()['index'])
"""The 145 single regions of MUSE."""

NUMBERS = ['dice', 'dice_subcortical', 'cpu_seconds']
PACKAGES = ('surreal_bids', 'torch', 'antspyx', 'deepbet')


@dataclass(frozen=True)
class Target:
    """A participant to segment."""

    name: str
    t1w: Nifti1Image
    mask: Nifti1Image
    labels: Nifti1Image


def read_targets(folder: Path, names: list[str], masks: Path | None) -> list[Target]:
    targets = []
    for name in names:
        t1w = load_image(folder / 'T1w' / name)
        mask = extract_brain(t1w) if masks is None else load_image(masks / name)
        targets.append(Target(name, t1w, mask, load_image(folder / 'dseg' / name)))
    return targets


def make_atlases(folder: Path, names: list[str], scratch: Path) -> list[Atlas]:
    """Extract brains with their labels."""
    atlases = []
    for name in names:
        labels = folder / 'dseg' / name
        t1w = load_image(folder / 'T1w' / name)
        inside = np.asanyarray(load_image(labels).dataobj) > 0
        like(t1w, np.where(inside, t1w.dataobj, 0), np.float32).to_filename(scratch / name)
        atlases.append(Atlas(name.split('.')[0], scratch / name, labels))
    return atlases


def overlaps(a: Nifti1Image, b: Nifti1Image) -> pd.Series:
    """Dice coefficient of each region; NaN where neither has it."""
    first, second = (np.asanyarray(image.dataobj).astype(int).ravel() for image in (a, b))
    size = max(REGIONS) + 1
    both = np.bincount(first[first == second], minlength=size)
    total = np.bincount(first, minlength=size) + np.bincount(second, minlength=size)
    with np.errstate(invalid='ignore'):
        return pd.Series(2 * both[REGIONS] / total[REGIONS], index=REGIONS)


def segment(target: Target, atlases: list[Atlas], settings: Settings) -> Fusion:
    """Register atlases in turn, and fuse their labels."""

    def candidates() -> Iterator[Candidate]:
        for atlas in atlases:
            t1w, labels = load_image(atlas.t1w), load_image(atlas.labels)
            found = register(target.t1w, t1w, fixed_mask=target.mask, settings=settings)
            yield Candidate(t1w, labels, found.forward)

    return fuse_labels(target.t1w, candidates(), target.mask)


def timed(work: Callable[[], Fusion]) -> tuple[Fusion, float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def summary(scores: pd.Series) -> dict[str, float]:
    subcortical = scores[list(SUBCORTICAL)].mean()
    return {'dice': round(scores.mean(), 4), 'dice_subcortical': round(subcortical, 4)}


def measure_mode(mode: str, targets: list[Target], atlases: list[Atlas]) -> list[pd.DataFrame]:
    """Return one row per target, and one per region with overlap and correlation of volumes."""
    settings, n_atlases, must = MODES[mode]
    rows, scores, ours, theirs = [], [], [], []
    for target in targets:
        fusion, seconds = timed(
            lambda target=target: segment(target, atlases[:n_atlases], settings)
        )
        scores.append(overlaps(fusion.labels, target.labels))
        ours.append([fusion.volumes.get(region, 0.0) for region in REGIONS])
        theirs.append(label_volumes(target.labels))
        row = {'mode': mode, 'target': target.name, **summary(scores[-1])}
        rows.append({**row, 'cpu_seconds': round(seconds, 1)})
        print(*rows[-1].values(), flush=True)
    needed = {f'needed_{name}': value for name, value in must.items()}
    regions = pd.DataFrame(
        {
            'mode': mode,
            'index': REGIONS,
            'dice': pd.concat(scores, axis=1).mean(axis=1).round(4).to_numpy(),
            'volume_correlation': correlations(np.array(ours), np.array(theirs)).round(4),
        }
    )
    return [pd.DataFrame(rows).assign(atlases=n_atlases, **needed), regions]


def label_volumes(labels: Nifti1Image) -> NDArray[np.float64]:
    counts = np.bincount(np.asanyarray(labels.dataobj).astype(int).ravel(), minlength=256)
    return counts[REGIONS] * voxel_volume(labels)


def correlations(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pearson's r across participants (rows) for each region (column)."""
    a, b = ours - ours.mean(axis=0), theirs - theirs.mean(axis=0)
    return np.sum(a * b, axis=0) / np.sqrt(np.sum(a**2, axis=0) * np.sum(b**2, axis=0))


def register_ours(target: Target, moving: Nifti1Image) -> Transform:
    return register(target.t1w, moving, fixed_mask=target.mask).forward


def compose(first: Transform, second: Transform) -> Transform:
    """The transform x -> second(first(x)) on the grid of `first`."""
    matrix, residual = split_affine(second)
    here = apply_affine(first.affine, np.moveaxis(np.indices(first.shape), 0, -1))
    middle = here + first.field
    voxels = np.moveaxis(apply_affine(np.linalg.inv(second.affine), middle), -1, 0)
    for axis in range(3):
        middle[..., axis] += map_coordinates(residual[..., axis], voxels, order=1, mode='nearest')
    return Transform((apply_affine(matrix, middle) - here).astype(np.float32), first.affine)


def register_syn(
    metric: str, sampling: int, iterations: tuple[int, ...], target: Target, moving: Nifti1Image
) -> Transform:
    """SyN of ANTs, after our affine registration."""
    import ants

    fixed, brain = normalise_intensity(target.t1w, target.mask), normalise_intensity(moving)
    affine = affine_transform(fixed.shape, fixed.affine, align_affine(fixed, brain))
    with TemporaryDirectory() as folder:
        found = ants.registration(
            to_ants(fixed),
            to_ants(resample(brain, affine, order=3)),
            'SyNOnly',
            syn_metric=metric,
            syn_sampling=sampling,
            reg_iterations=iterations,
            outprefix=str(Path(folder) / 'syn'),
            random_seed=1,
        )
        return compose(read_composite(found['fwdtransforms'], fixed), affine)


ENGINES = {
    'torch': register_ours,
    'syn': partial(register_syn, 'mattes', 32, (100, 70, 50)),
    'syn-cc': partial(register_syn, 'CC', 2, (100, 70, 20)),
}
"""Ours, and SyN with mutual information and with local correlation."""


def measure_engines(targets: list[Target], atlases: list[Atlas], n_pairs: int) -> pd.DataFrame:
    """Measure the overlap after one registration, target i with atlas i."""
    rows = []
    for target, atlas in list(zip(targets, atlases))[:n_pairs]:
        t1w, labels = load_image(atlas.t1w), load_image(atlas.labels)
        for engine, work in ENGINES.items():
            start = time.process_time()
            found = work(target, t1w)
            seconds = time.process_time() - start
            scores = overlaps(resample(labels, found, order=0), target.labels)
            pair = {'engine': engine, 'target': target.name, 'atlas': atlas.name}
            rows.append({**pair, **summary(scores), 'cpu_seconds': round(seconds, 1)})
            print(*rows[-1].values(), flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('folder', type=Path)
    parser.add_argument('--masks', type=Path, help='brain masks of the targets, instead of deepbet')
    parser.add_argument('--modes', nargs='*', default=['default', 'fast'], choices=list(MODES))
    parser.add_argument('--engine-pairs', type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ['ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS'] = '1'
    names = sorted(path.name for path in (arguments.folder / 'T1w').glob('*.nii.gz'))
    with TemporaryDirectory() as scratch:
        atlases = make_atlases(arguments.folder, names[:N_ATLASES], Path(scratch))
        targets = read_targets(arguments.folder, names[-N_TARGETS:], arguments.masks)
        for mode in arguments.modes:
            participants, regions = measure_mode(mode, targets, atlases)
            print(participants[NUMBERS].mean().to_string())
            print(f'median r of volumes {regions["volume_correlation"].median():.3f}')
            write_results(f'segmentation_{mode}', participants, *PACKAGES)
            write_results(f'segmentation_{mode}_regions', regions, *PACKAGES)
        if arguments.engine_pairs:
            engines = measure_engines(targets, atlases, arguments.engine_pairs)
            print(engines.groupby('engine', sort=False)[NUMBERS].mean().to_string())
            write_results('segmentation_engines', engines, *PACKAGES)


if __name__ == '__main__':
    main()
