"""Benchmarks are run by hand: at least they are not left behind by the package."""

from importlib import import_module
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / 'benchmarks'


def test_every_benchmark_imports():
    for path in sorted(BENCHMARKS.glob('*.py')):
        assert import_module(path.stem).__doc__, path
