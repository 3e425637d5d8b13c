"""Accuracy of the built-in atlas: one registration, an ensemble, a template library.

    python benchmarks/default_atlas.py DATA WORK [--targets 3] [--library 4]

DATA holds `T1w/<name>.nii.gz` and `dseg/<name>.nii.gz`: heads with label maps in MUSE numbering
from another program (DLMUSE). The brain is the labelled part. WORK keeps the transforms, and an
interrupted run resumes. The last heads are the targets, the first ones the library.

- `one`: the template registered to the head.
- `ensemble`: the same with several settings, fused.
- `library`: the template registered to each brain of the library, each of these to the head, and
  the labels propagated along both transforms and fused (MAGeT-Brain: Chakravarty et al., Hum Brain
  Mapp 2013).
- `both`: the ensemble and the library, fused.
- `one, all heads`, `ensemble, all heads`: the same on all heads, which correlations need. The
  second is how the app uses the built-in atlas.

For each: mean Dice over labels, correlation with the volumes of the other program over heads
(median over regions), and CPU seconds per head; for the last also each region. The CSF threshold of
the atlas and the settings of the ensemble were chosen on some of the same heads.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from machine import write_results
from segmentation import compose

from surreal_bids.files import write_text
from surreal_bids.images import Image, like, load_image
from surreal_bids.imaging.atlas import default_atlas
from surreal_bids.imaging.deformation import DEFAULT, STIFF
from surreal_bids.imaging.fusion import Candidate, Fusion, fuse_labels, volumes_of_labels
from surreal_bids.imaging.registration import register
from surreal_bids.imaging.transforms import Transform, read_transform, write_transform
from surreal_bids.regions import muse_table

ENSEMBLE = {
    'default': DEFAULT,
    'stiff': STIFF,
}
"""Settings of the registrations of an ensemble: one suits the cortex, the other what is deep.
A wider cube (radius 3) and smoother updates (fluid 1.6) added nothing to these two."""


LEAST_HEADS = 10
"""Volumes of fewer heads are not correlated."""


@dataclass(frozen=True)
class Head:
    """A brain with reference labels."""

    name: str
    brain: Image
    truth: Image

    @cached_property
    def true_volumes(self) -> dict[int, float]:
        return volumes_of_labels(self.truth)


class Registrations:
    """Transforms between images, kept on disk, with their CPU time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(
        self, fixed: tuple[str, Image], moving: tuple[str, Image], setting: str = 'default'
    ) -> tuple[Transform, float]:
        """Return the transform on the grid of the fixed image, and CPU seconds."""
        path = self.folder / f'{fixed[0]}_{moving[0]}_{setting}.nii.gz'
        cost = path.with_name(path.name.replace('.nii.gz', '.txt'))
        if not cost.is_file():
            start = time.process_time()
            found = register(fixed[1], moving[1], settings=ENSEMBLE[setting]).forward
            seconds = time.process_time() - start
            write_transform(path, found)
            write_text(cost, f'{seconds:.2f}')
        return read_transform(path), float(cost.read_text())


def load_heads(data: Path) -> list[Head]:
    heads = []
    for path in sorted((data / 'T1w').glob('*.nii.gz')):
        truth = load_image(data / 'dseg' / path.name)
        t1w = load_image(path)
        brain = like(t1w, np.where(np.asarray(truth.dataobj) > 0, t1w.dataobj, 0), np.float32)
        heads.append(Head(path.name.removesuffix('.nii.gz'), brain, truth))
    return heads


class Comparison:
    """Compares ways to use the atlas, head by head."""

    def __init__(self, work: Path, library: list[Head]) -> None:
        atlas = default_atlas(work).atlases[0]
        self.t1w, self.labels = load_image(atlas.t1w), load_image(atlas.labels)
        self.template = ('template', self.t1w)
        self.registrations = Registrations(work)
        self.library = library

    def registered(self, head: Head, setting: str = 'default') -> tuple[Transform, float]:
        return self.registrations.find((head.name, head.brain), self.template, setting)

    def one(self, head: Head) -> tuple[Fusion, float]:
        transform, seconds = self.registered(head)
        return fuse_labels(head.brain, [Candidate(self.t1w, self.labels, transform)]), seconds

    def direct(self, head: Head) -> tuple[list[Candidate], float]:
        found = [self.registered(head, setting) for setting in ENSEMBLE]
        candidates = [Candidate(self.t1w, self.labels, transform) for transform, _ in found]
        return candidates, sum(seconds for _, seconds in found)

    def indirect(self, head: Head) -> tuple[list[Candidate], float]:
        candidates, total = [], 0.0
        for person in self.library:
            there, seconds = self.registrations.find(
                (head.name, head.brain), (person.name, person.brain)
            )
            way = compose(there, self.registered(person)[0])
            candidates.append(Candidate(self.t1w, self.labels, way))
            total += seconds
        return candidates, total

    def ensemble(self, head: Head) -> tuple[Fusion, float]:
        candidates, seconds = self.direct(head)
        return fuse_labels(head.brain, candidates), seconds

    def by_library(self, head: Head) -> tuple[Fusion, float]:
        candidates, seconds = self.indirect(head)
        return fuse_labels(head.brain, candidates), seconds

    def both(self, head: Head) -> tuple[Fusion, float]:
        (direct, some), (indirect, more) = self.direct(head), self.indirect(head)
        return fuse_labels(head.brain, direct + indirect), some + more

    def ways(self) -> dict:
        return {
            'one': self.one,
            'ensemble': self.ensemble,
            'library': self.by_library,
            'both': self.both,
        }


def label_groups() -> dict[str, list[int]]:
    table = muse_table()
    deep = (table['lobe'] == 'deep') & (table['tissue'] == 'GM')
    white = table['index'].between(81, 95)
    chosen = {
        'all': table['index'] > 0,
        'cortical': table['index'] >= 100,
        'subcortical': deep,
        'white': white,
        'ventricles': table['tissue'] == 'CSF',
    }
    return {name: table.loc[rows, 'index'].tolist() for name, rows in chosen.items()}


def dice(found: Image, truth: Image) -> dict[int, float]:
    a, b = (np.asarray(image.dataobj).astype(int).ravel() for image in (found, truth))
    size_a, size_b, both = (np.bincount(x, minlength=256) for x in (a, b, a[a == b]))
    return {
        index: 2 * both[index] / max(size_a[index] + size_b[index], 1)
        for index in muse_table()['index'].tolist()
    }


def rows_of(method: str, head: Head, fusion: Fusion, seconds: float) -> pd.DataFrame:
    """Return one row per region."""
    overlap = dice(fusion.labels, head.truth)
    return pd.DataFrame(
        {
            'method': method,
            'head': head.name,
            'index': list(overlap),
            'dice': list(overlap.values()),
            'volume': [fusion.volumes.get(index, 0.0) for index in overlap],
            'truth': [head.true_volumes.get(index, 0.0) for index in overlap],
            'cpu_seconds': seconds,
        }
    )


def correlations(rows: pd.DataFrame) -> pd.Series:
    """Correlate each region's volume with that of the other program over heads."""
    return rows.groupby('index')[['volume', 'truth']].apply(
        lambda region: region['volume'].corr(region['truth'])
    )


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    lines = []
    for method, some in rows.groupby('method', sort=False):
        line = {'method': method, 'heads': some['head'].nunique()}
        agreement = correlations(some) if line['heads'] >= LEAST_HEADS else pd.Series(dtype=float)
        line['cpu_seconds'] = some.groupby('head')['cpu_seconds'].first().mean().round(1)
        for group, indices in label_groups().items():
            line[f'dice_{group}'] = some.loc[some['index'].isin(indices), 'dice'].mean().round(4)
            line[f'r_{group}'] = agreement.reindex(indices).median().round(3)
        lines.append(line)
    return pd.DataFrame(lines)


def region_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Overlap and correlation of each region, over heads."""
    regions = muse_table()[['index', 'name']].set_index('index')
    regions['dice'] = rows.groupby('index')['dice'].mean().round(4)
    regions['volume_correlation'] = correlations(rows).round(4)
    return regions.reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('work', type=Path)
    parser.add_argument('--targets', type=int, default=3)
    parser.add_argument('--library', type=int, default=4)
    arguments = parser.parse_args()
    heads = load_heads(arguments.data)
    comparison = Comparison(arguments.work, heads[: arguments.library])
    rows = []
    for head in heads[-arguments.targets :]:
        for method, way in comparison.ways().items():
            rows.append(rows_of(method, head, *way(head)))
            print(f'{head.name} {method}: Dice {rows[-1]["dice"].mean():.4f}', flush=True)
    rows += [rows_of('one, all heads', head, *comparison.one(head)) for head in heads]
    usual = [rows_of('ensemble, all heads', head, *comparison.ensemble(head)) for head in heads]
    table = summary(pd.concat(rows + usual)).assign(library=arguments.library)
    print(table.to_string(index=False))
    write_results('default_atlas', table, 'surreal_bids', 'torch')
    regions = region_table(pd.concat(usual))
    print(regions.nsmallest(8, 'volume_correlation').to_string(index=False))
    write_results('default_atlas_regions', regions, 'surreal_bids', 'torch')


if __name__ == '__main__':
    main()
