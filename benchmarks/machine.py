"""What every benchmark notes down: when, on what, with which versions."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).parent / 'results'


def circumstances(*packages: str) -> dict[str, str]:
    """Date, commit, machine and the versions of these packages."""
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
        **{package: version(package) for package in packages},
    }


def write_results(name: str, rows: list[dict[str, object]], *packages: str) -> Path:
    """Keep rows as a dated TSV, each with its circumstances; show them."""
    table = pd.DataFrame(rows).assign(**circumstances(*packages))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f'{table["date"].iloc[0]}_{name}.tsv'
    table.to_csv(path, sep='\t', index=False, float_format='%.5g')
    print(table.to_string(index=False))
    print(f'written to {path}')
    return path
