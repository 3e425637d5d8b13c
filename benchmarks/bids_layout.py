"""Time to find all T1w images of a large dataset, compared with a default `BIDSLayout`.

    python benchmarks/bids_layout.py [--subjects 1000] [--rounds 5]

Creates a dataset of empty files (8 per subject) in a temporary folder and finds the T1w images in
four ways. The ways alternate within each round, and ratios are computed within rounds, because the
load of the machine may change. `benchmarks/results` gets every round with the date, machine and
versions; the medians are printed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import bids
import pandas as pd
from machine import write_results

from surreal_bids.bids import layout as database
from surreal_bids.bids.layout import find_t1w

TARGET = 0.2
"""Finding all T1w images may take this fraction of the time of a default index."""

DEFAULT = 'default BIDSLayout'

FILES = (
    'anat/{0}_T1w.nii.gz',
    'anat/{0}_T1w.json',
    'func/{0}_task-rest_bold.nii.gz',
    'func/{0}_task-rest_bold.json',
    'func/{0}_task-rest_events.tsv',
    'dwi/{0}_dwi.nii.gz',
    'dwi/{0}_dwi.bval',
    'dwi/{0}_dwi.bvec',
)


def make_dataset(root: Path, n_subjects: int) -> None:
    description = {'Name': 'Empty files', 'BIDSVersion': '1.9.0'}
    (root / 'dataset_description.json').write_text(json.dumps(description))
    for number in range(n_subjects):
        subject = f'sub-{number:04d}'
        for name in FILES:
            path = root / subject / name.format(subject)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('{}' if path.suffix == '.json' else '')


def find_by_default(root: Path) -> int:
    layout = bids.BIDSLayout(root)
    return len(layout.get(suffix='T1w', extension='.nii.gz', return_type='filename'))


def timed(function: Callable[[], int], expected: int) -> tuple[float, float]:
    """Return wall-clock and CPU time (s) to find the expected number of images."""
    wall, processor = time.perf_counter(), time.process_time()
    found = function()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    if found != expected:
        raise RuntimeError(f'{found} images found, {expected} expected')
    return wall, processor


def measure(root: Path, store: Path, n_subjects: int, rounds: int) -> pd.DataFrame:
    """Time each way once per round; the first round, which loads modules, is not counted."""
    some = [f'{number:04d}' for number in range(0, n_subjects, 10)]
    database.SETTLED_NS = 0  # the dataset was made just now, but nobody changes it any more
    ways = {
        DEFAULT: (lambda: find_by_default(root), n_subjects),
        'find_t1w': (lambda: len(find_t1w(root)), n_subjects),
        'find_t1w, a tenth of the participants': (
            lambda: len(find_t1w(root, participants=some)),
            len(some),
        ),
        'find_t1w, index stored before': (
            lambda: len(find_t1w(root, database_dir=store)),
            n_subjects,
        ),
    }
    rows = [
        (number, method, *timed(function, expected))
        for number in range(rounds + 1)
        for method, (function, expected) in ways.items()
    ]
    table = pd.DataFrame(rows, columns=['round', 'method', 'seconds', 'cpu_seconds'])
    return with_ratios(table[table['round'] > 0])


def with_ratios(table: pd.DataFrame) -> pd.DataFrame:
    default = table[table['method'] == DEFAULT].set_index('round')
    for column, ratio in (('seconds', 'ratio'), ('cpu_seconds', 'cpu_ratio')):
        table = table.assign(**{ratio: table[column] / table['round'].map(default[column])})
    return table.round(4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--subjects', type=int, default=1000)
    parser.add_argument('--rounds', type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / 'dataset'
        root.mkdir()
        make_dataset(root, arguments.subjects)
        table = measure(root, Path(folder) / 'store', arguments.subjects, arguments.rounds)
    medians = table.drop(columns='round').groupby('method', sort=False).median()
    print(medians.assign(target=TARGET).round(4).to_string())
    table = table.assign(target=TARGET, subjects=arguments.subjects, files_each=len(FILES))
    write_results('bids_layout', table, 'surreal_bids', 'pybids')


if __name__ == '__main__':
    main()
