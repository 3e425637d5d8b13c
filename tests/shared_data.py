"""Real data kept beside the repository, never in it: `../shared/data`."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / 'shared' / 'data'


def shared_data(relative: str = '') -> Path:
    """Path of a file or folder of the real data; the calling test is skipped where it is absent."""
    path = FOLDER / relative
    if not path.exists():
        pytest.skip(f'real data not found: no {path} beside the repository')
    return path
