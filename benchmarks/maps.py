"""Time and memory of the voxelwise maps of all patterns of a large study.

    python benchmarks/maps.py [--participants 2000] [--files 200] [--fwhm 8] [--permutations 20]

Writes simulated tissue maps (2 mm: 91 x 109 x 91 voxels, single precision, gzip) to a temporary
folder. Only some files are distinct and the others are links, which saves disk space and time. All
are read and decompressed. The files fit into the system's cache, and the time excludes the delays
of a slow disk or network.

Two patterns give five subgroups against controls and two regressions, with six covariates. Each way
runs in its own process, which gives its own peak memory (including Python, libraries and data). On
a busy machine, CPU time is more informative than seconds. `benchmarks/results` gets the results
with the date, machine and versions.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from machine import write_results
from scipy.ndimage import gaussian_filter

from surreal_bids.stats.glm import pattern_designs
from surreal_bids.stats.maps import MapSeries, Permutation, compute_maps

TARGET_SECONDS = 600.0
"""The maps of one pattern may take this long."""

TARGET_MB = 4000.0
"""And need this much memory, all in all."""

SHAPE = (91, 109, 91)
AFFINE = np.diag([2.0, 2.0, 2.0, 1.0])
"""The MNI grid at 2 mm, up to its origin."""

BRAIN = 0.85
"""Axes of an ellipsoid of tissue, as part of the grid's: about a third of the voxels."""


@dataclass(frozen=True)
class Way:
    """A way to compute the maps."""

    name: str
    fwhm: float = 0.0
    n_threads: int = 1
    n_permutations: int = 0


def write_people(folder: Path, n_people: int, n_files: int) -> list[Path]:
    """Write noise maps of tissue in an ellipsoid; participant i has file i modulo `n_files`."""
    rng = np.random.default_rng(0)
    axes = np.ogrid[tuple(slice(-1, 1, size * 1j) for size in SHAPE)]
    brain = sum(axis**2 for axis in axes) < BRAIN**2
    paths = [folder / f'sub-{number:05d}_ravens.nii.gz' for number in range(n_people)]
    for number, path in enumerate(paths):
        if number < n_files:
            noise = gaussian_filter(rng.standard_normal(SHAPE, np.float32), 1.5)
            tissue = np.where(brain, np.clip(0.5 + 2 * noise, 0, None), 0)
            nib.Nifti1Image(tissue.astype(np.float32), AFFINE).to_filename(path)
        else:
            path.symlink_to(paths[number % n_files])
    return paths


def simulate_people(n_people: int) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Simulate R-indices of two patterns, with a third of controls, and six covariates."""
    rng = np.random.default_rng(1)
    r_indices = pd.DataFrame(rng.uniform(size=(n_people, 2)), columns=['r1', 'r2'])
    covariates = pd.DataFrame(rng.normal(size=(n_people, 6))).add_prefix('covariate')
    return r_indices, rng.uniform(size=n_people) < 1 / 3, covariates


def measure_once(way: Way, paths: list[Path]) -> dict[str, float]:
    """Return seconds, CPU time and peak memory (MB) of one way, from files to maps."""
    designs, _ = pattern_designs(*simulate_people(len(paths)))
    permutation = None
    if way.n_permutations:
        permutation = Permutation(way.n_permutations, scratch_dir=paths[0].parent)
    start, start_cpu = time.perf_counter(), time.process_time()
    series = MapSeries.open(paths, fwhm=way.fwhm, n_threads=way.n_threads)
    maps = compute_maps(series, designs, permutation=permutation)
    return {
        'seconds': round(time.perf_counter() - start, 1),
        'cpu_seconds': round(time.process_time() - start_cpu, 1),
        'peak_mb': round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        'maps': len(maps),
        'voxels': maps[0].n_tested,
    }


def measure(ways: list[Way], n_people: int, n_files: int) -> pd.DataFrame:
    context = multiprocessing.get_context('spawn')
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        paths = write_people(Path(folder), n_people, n_files)
        file_mb = sum(path.stat().st_size for path in paths[:n_files]) / n_files / 1e6
        for way in ways:
            with context.Pool(1) as pool:
                found = pool.apply(measure_once, (way, paths))
            rows.append({'method': way.name} | found)
    return pd.DataFrame(rows).assign(file_mb=round(file_mb, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--participants', type=int, default=2000)
    parser.add_argument('--files', type=int, default=200)
    parser.add_argument('--fwhm', type=float, default=8.0)
    parser.add_argument('--permutations', type=int, default=20)
    arguments = parser.parse_args()
    ways = [
        Way('maps'),
        Way('maps, 2 threads', n_threads=2),
        Way(f'maps, smoothed by {arguments.fwhm:g} mm', fwhm=arguments.fwhm),
        Way(
            f'maps and {arguments.permutations} permutations of each',
            n_permutations=arguments.permutations,
        ),
    ]
    table = measure(ways, arguments.participants, arguments.files)
    table = table.assign(target_seconds=TARGET_SECONDS, target_mb=TARGET_MB)
    print(table.to_string(index=False))
    table = table.assign(
        participants=arguments.participants,
        distinct_files=arguments.files,
        threads=os.environ.get('OMP_NUM_THREADS', 'default'),
        load=round(os.getloadavg()[1], 1),
    )
    write_results('maps', table, 'surreal_bids', 'numpy', 'nibabel')


if __name__ == '__main__':
    main()
