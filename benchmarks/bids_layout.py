"""Time to find all T1w images of a large dataset, beside a default `BIDSLayout`, in one run.

    python benchmarks/bids_layout.py [--subjects 1000] [--repeats 3]

Makes a dataset of empty files (8 a subject) in a temporary folder, finds the T1w images in four
ways, prints a table, and writes it to `benchmarks/results` with the date, machine and versions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import bids
import pandas as pd

from surreal_bids import __version__
from surreal_bids.bids import database
from surreal_bids.bids.layout import find_t1w
from surreal_bids.files import write_tsv

RESULTS = Path(__file__).parent / 'results'
TARGET = 0.2
"""Finding all T1w images may take this fraction of the time of a default index."""

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


def best_time(function: Callable[[], int], expected: int, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        found = function()
        times.append(time.perf_counter() - start)
        if found != expected:
            raise RuntimeError(f'{found} images found, {expected} expected')
    return min(times)


def measure(root: Path, store: Path, n_subjects: int, repeats: int) -> dict[str, float]:
    some = [f'{number:04d}' for number in range(0, n_subjects, 10)]
    database.SETTLED_NS = 0  # the dataset was made just now, but nobody changes it any more
    return {
        'default BIDSLayout': best_time(lambda: find_by_default(root), n_subjects, repeats),
        'find_t1w': best_time(lambda: len(find_t1w(root)), n_subjects, repeats),
        'find_t1w, a tenth of the participants': best_time(
            lambda: len(find_t1w(root, participants=some)), len(some), repeats
        ),
        'find_t1w, index stored before': best_time(
            lambda: len(find_t1w(root, database_dir=store)), n_subjects, repeats + 1
        ),
    }


def provenance(n_subjects: int) -> dict[str, str]:
    here = Path(__file__).parent
    commit = subprocess.run(
        ['git', 'rev-parse', '--short', 'HEAD'], cwd=here, capture_output=True, text=True
    )
    return {
        'subjects': str(n_subjects),
        'files_each': str(len(FILES)),
        'date': datetime.now(UTC).strftime('%Y-%m-%d'),
        'commit': commit.stdout.strip() or 'unknown',
        'surreal_bids': __version__,
        'pybids': bids.__version__,
        'python': platform.python_version(),
        'machine': f'{platform.system()} {platform.machine()}, {os.cpu_count()} cores',
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--subjects', type=int, default=1000)
    parser.add_argument('--repeats', type=int, default=3, help='of each; the best time counts')
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / 'dataset'
        root.mkdir()
        make_dataset(root, arguments.subjects)
        times = measure(root, Path(folder) / 'store', arguments.subjects, arguments.repeats)
    table = pd.DataFrame({'method': list(times), 'seconds': list(times.values())})
    table['ratio'] = table['seconds'] / times['default BIDSLayout']
    table = table.round(4).assign(target=TARGET, **provenance(arguments.subjects))
    print(table[['method', 'seconds', 'ratio', 'target']].to_string(index=False))
    print('Written to', write_tsv(RESULTS / f'{table["date"][0]}_bids_layout.tsv', table))


if __name__ == '__main__':
    main()
