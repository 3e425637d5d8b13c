"""Share of an imposed regional loss that RAVENS maps recover, on simulated twins.

    python benchmarks/twins.py [--voxel-size 2] [--pairs 3]

Each person is scanned without disease and with each pattern of atrophy, everything else being
equal. Scans go through the app's own steps: N4, registration to the template, tissue, RAVENS.
Regions are those of the template; tissue is grey and white matter. The recovered share is the
change of the map's sum divided by the prescribed loss. Regions without a loss that touch one with a
loss are counted separately, because a template label contains some tissue of its neighbours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
from machine import write_results
from numpy.typing import NDArray

from surreal_bids.images import Image, voxel_volume
from surreal_bids.imaging.bias import correct_bias
from surreal_bids.imaging.deformation import FLUID
from surreal_bids.imaging.ravens import ravens_maps
from surreal_bids.imaging.registration import register
from surreal_bids.imaging.tissue import classify_tissue
from surreal_bids.imaging.transforms import affine_transform, resample, resample_all
from surreal_bids.simulation.anatomy import adjacent_regions
from surreal_bids.simulation.cohort import CohortPlan, Person, load_simulator, skull_stripped
from surreal_bids.simulation.scanner import SimulatedScan
from surreal_bids.templates import Template, builtin_template, muse_labels

PATTERNS = 2
SMALLEST_REGION_MM3 = 500.0
"""Regions of the template smaller than this are not looked at."""


def mass(image: Image) -> float:
    return float(np.asarray(image.dataobj, dtype=float).sum() * voxel_volume(image))


def ravens_of(scan: SimulatedScan, template: Template) -> tuple[dict[str, Image], dict[str, float]]:
    """Return RAVENS maps of a scan by tissue, and their relative error of the native amount."""
    t1w = correct_bias(skull_stripped(scan), scan.brain)
    found = register(
        template.t1w, t1w, settings=FLUID, fixed_mask=template.mask, moving_mask=scan.brain
    )
    priors = resample_all(list(template.priors.values()), found.inverse)
    tissues = classify_tissue(t1w, scan.brain, dict(zip(template.priors, priors))).shares
    maps = dict(zip(tissues, ravens_maps(list(tissues.values()), found.forward)))
    return maps, {name: mass(maps[name]) / mass(tissues[name]) - 1 for name in maps}


def template_labels(template: Template) -> Image:
    grid = affine_transform(template.t1w.shape, template.t1w.affine, np.eye(4))
    return resample(muse_labels(), grid, order=0)


def region_sums(maps: dict[str, Image], labels: NDArray) -> NDArray:
    """Sum grey and white matter in each label."""
    tissue = np.asarray(maps['GM'].dataobj) + np.asarray(maps['WM'].dataobj)
    return np.bincount(labels.ravel(), tissue.ravel())


def compare(well: NDArray, ill: NDArray, losses: pd.Series, neighbours: set[int]) -> dict:
    """Return the recovered share of losses, and the change of regions without a loss."""
    weights = pd.Series(well[losses.index], losses.index)
    change = 1 - ill[losses.index] / weights
    lost = losses > 0
    near = losses.index.isin(neighbours) & ~lost
    moved = change.abs()
    return {
        'seen': (change * weights)[lost].sum() / (losses * weights)[lost].sum(),
        'median_moved': moved[~lost].median(),
        'largest_moved_neighbour': moved[near].max(),
        'largest_moved_other': moved[~lost & ~near].max(),
        'others': int((~lost & ~near).sum()),
        'others_above_1_percent': int((moved[~lost & ~near] > 0.01).sum()),
    }


def measure(voxel_size: float, pairs: int) -> Iterator[dict]:
    """Measure each pair of twins."""
    template = builtin_template(voxel_size)
    labels = np.asarray(template_labels(template).dataobj)
    simulator = load_simulator(voxel_size)
    regions = simulator.template.regions
    sizes = np.bincount(labels.ravel(), minlength=regions['index'].max() + 1) * voxel_size**3
    tissue = regions['tissue'].ne('CSF') & (sizes[regions['index']] >= SMALLEST_REGION_MM3)
    for seed in range(pairs):
        plan = CohortPlan(patterns=PATTERNS, sites=1, voxel_size=voxel_size, seed=seed)
        sums = None
        for pattern in range(PATTERNS + 1):
            severities = tuple(float(k + 1 == pattern) for k in range(PATTERNS))
            scan, truth = simulator.simulate(plan, Person('PT', 0, 65, 'F', 0, severities))
            start = time.process_time()
            maps, kept = ravens_of(scan, template)
            seconds = time.process_time() - start
            found = region_sums(maps, labels)
            sums = found if sums is None else sums
            losses = truth.set_index('index')['prescribed_loss'][tissue.to_numpy()]
            affected = tuple(losses.index[losses > 0])
            yield {
                'voxel_mm': voxel_size,
                'person': seed,
                'pattern': pattern,
                **(
                    compare(
                        sums, found, losses, adjacent_regions(simulator.template.labels, affected)
                    )
                    if pattern
                    else {}
                ),
                **{f'{name}_mass_error': error for name, error in kept.items()},
                'cpu_s': seconds,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--voxel-size', type=float, default=2.0, help='of heads and template, mm')
    parser.add_argument('--pairs', type=int, default=3, help='people, each with every pattern')
    arguments = parser.parse_args()
    rows = []
    for row in measure(arguments.voxel_size, arguments.pairs):
        rows.append(row)
        print(pd.Series(row).round(4).to_dict(), flush=True)
    write_results(f'twins_{arguments.voxel_size:g}mm', pd.DataFrame(rows))


if __name__ == '__main__':
    main()
