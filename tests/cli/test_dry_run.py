from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from surreal_bids.cli import dry_run
from surreal_bids.cli.dry_run import CPU_SECONDS, PROCESS_GB, estimate, lacking_space
from surreal_bids.config import AppConfig

HEADS = Path(__file__).parents[2] / 'benchmarks' / 'results' / '2026-11-18_heads.tsv'


def test_one_head_takes_what_was_measured():
    measured = pd.read_csv(HEADS, sep='\t').query('heads == 1 and device == "cpu"').iloc[0]
    assert pytest.approx(measured['cpu_seconds'], rel=0.01) == CPU_SECONDS
    assert pytest.approx(measured['memory_gb'], rel=0.05) == PROCESS_GB


def test_estimates_in_words_and_what_the_disk_lacks(tmp_path, monkeypatch):
    config = AppConfig(tmp_path, tmp_path / 'out', ('participant',), nprocs=2)
    assert 'about 2 min on 2 cores, 6 GB of memory' in estimate(config, 2)
    assert 'about 1.4 h on 2 cores' in estimate(replace(config, nprocs=2), 100)
    monkeypatch.setattr(dry_run, 'free_bytes', lambda folder: 1e9)
    assert [each.found.split(':')[0] for each in lacking_space(config, 4)] == ['work']
    assert lacking_space(config, 2) == []
