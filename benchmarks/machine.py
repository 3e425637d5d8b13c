"""What benchmarks share: circumstances that each records (date, machine, versions), one core."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from surreal_bids.files import MISSING, write_tsv

RESULTS = Path(__file__).parent / 'results'


def circumstances(*packages: str) -> dict[str, str]:
    """Return date, commit, machine and package versions (`n/a` for absent ones)."""
    commit = subprocess.run(
        ['git', 'rev-parse', '--short', 'HEAD'],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        'date': datetime.datetime.now(datetime.UTC).date().isoformat(),
        'commit': commit or 'unknown',
        'machine': f'{platform.machine()}, {os.cpu_count()} cores',
        'python': platform.python_version(),
        **{package: _version(package) for package in packages},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return MISSING


def write_results(name: str, rows: pd.DataFrame | list[dict], *packages: str) -> Path:
    """Write rows to a dated TSV, each with its circumstances."""
    table = pd.DataFrame(rows).assign(**circumstances(*packages))
    path = write_tsv(RESULTS / f'{table["date"].iloc[0]}_{name}.tsv', table)
    print(f'Written to {path}')
    return path


def one_thread() -> None:
    """Limit a process to one core."""
    torch.set_num_threads(1)
    threadpool_limits(1)
