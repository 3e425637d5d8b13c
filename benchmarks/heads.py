"""Time, processor time and memory of the participant level, from a T1w image to its report.

    python benchmarks/heads.py T1W.nii.gz [--copies 40] [--nprocs 16] [--device cuda]

Copies get other noise and brightness, because the app refuses equal images. Processor time and
memory are those of the whole machine, which must be idle otherwise: memory is what becomes
unavailable at most. Use `taskset -c 0,1` and `--nprocs 2` for two cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from machine import write_results

NOISE = 0.01
"""Standard deviation of the noise of copies, relative to that of the image."""

TICKS = 100.0
"""Of the kernel in a second."""


def write_dataset(root: Path, source: Path, copies: int) -> None:
    """Write a dataset of copies of a head; the first is the image itself."""
    image = nib.load(source)
    values = np.asarray(image.dataobj, dtype=np.float32)
    names = [f'sub-{number:03}' for number in range(1, copies + 1)]
    for number, name in enumerate(names):
        rng = np.random.default_rng(number)
        noise = rng.normal(0, NOISE * values.std(), values.shape) * (values != 0)
        changed = values if number == 0 else values * (1 + number / 1000) + noise
        path = root / name / 'anat' / f'{name}_T1w.nii.gz'
        path.parent.mkdir(parents=True)
        nib.Nifti1Image(changed.clip(0).astype(np.float32), image.affine).to_filename(path)
    (root / 'dataset_description.json').write_text(
        json.dumps({'Name': 'copies', 'BIDSVersion': '1.10.0'})
    )
    table = pd.DataFrame({'participant_id': names, 'age': 40, 'sex': 'M'})
    table.to_csv(root / 'participants.tsv', sep='\t', index=False)


def busy_seconds() -> float:
    """Return the processor time of this machine since it was started."""
    times = [int(each) for each in Path('/proc/stat').read_text().split('\n')[0].split()[1:9]]
    return (sum(times) - times[3] - times[4]) / TICKS


def available_gb() -> float:
    lines = Path('/proc/meminfo').read_text().splitlines()
    return next(int(line.split()[1]) / 1e6 for line in lines if line.startswith('MemAvailable'))


def measure(command: list[str]) -> dict[str, float]:
    """Run a command and measure what it takes."""
    free, ended = [available_gb()], threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            free.append(available_gb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    busy, start = busy_seconds(), time.monotonic()
    try:
        subprocess.run(command, check=True)
    finally:
        ended.set()
        watcher.join()
    return {
        'seconds': round(time.monotonic() - start, 1),
        'cpu_seconds': round(busy_seconds() - busy, 1),
        'memory_gb': round(free[0] - min(free), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('t1w', type=Path)
    parser.add_argument('--copies', type=int, default=1)
    parser.add_argument('--nprocs', type=int, default=2)
    parser.add_argument('--device', default='cpu')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        raw, out, work = (str(Path(folder, name)) for name in ('raw', 'out', 'work'))
        write_dataset(Path(raw), options.t1w, options.copies)
        how = ['--nprocs', str(options.nprocs), '--device', options.device, '-w', work]
        found = measure([sys.executable, '-m', 'surreal_bids', raw, out, 'participant', *how])
    row = {
        'heads': options.copies,
        'nprocs': options.nprocs,
        'device': options.device,
        **found,
        'heads_per_hour': round(3600 * options.copies / found['seconds']),
    }
    print(row)
    write_results('heads', [row], 'torch', 'nipype')


if __name__ == '__main__':
    main()
