"""Benchmarks are run by hand: at least they are not left behind by the package."""

from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.mark.parametrize('name', sorted(path.stem for path in BENCHMARKS.glob('*.py')))
def test_every_benchmark_imports(name):
    assert import_module(name).__doc__
