"""A miniature of `make demo`: both levels, the network included, against the truth."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

MOST_LINES = 40
LARGEST_DIFFERENCE = 10.0
"""Median difference of regional volumes from the truth, in percent."""

LOWEST_C_INDEX, LOWEST_AUC = 0.75, 0.85
"""Of the miniature, whose study is half as large; the demo itself has to reach 0.85 and 0.85."""


@pytest.fixture(scope='module')
def demo(tmp_path_factory):
    """The folder of the demo and what it printed."""
    folder = tmp_path_factory.mktemp('demo')
    command = [sys.executable, ROOT / 'docs' / 'demo.py', folder, '--miniature']
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout, done.stderr


def figures(pattern: str, text: str) -> list[float]:
    return [float(number) for number in re.findall(pattern, text)]


@pytest.mark.slow
def test_the_network_measures_the_volumes_of_simulated_heads(demo):
    found = figures(r'true volume ([\d.]+)%', demo[1])
    assert len(found) == 1
    assert max(found) < LARGEST_DIFFERENCE


@pytest.mark.slow
def test_the_study_finds_what_was_simulated(demo):
    _, printed, _ = demo
    assert '3 patterns found, 3 simulated; 0 of 150 participants lack an R-index' in printed
    ordered, mapped = (
        figures(r'c-index ([\d.]+), AUC', printed),
        figures(r'its map ([\d.]+)', printed),
    )
    assert len(ordered) == len(mapped) == 3
    assert min(ordered) > LOWEST_C_INDEX
    assert min(mapped) > LOWEST_AUC


@pytest.mark.slow
def test_it_fits_on_a_screen_and_its_links_lead_somewhere(demo):
    _, printed, errors = demo
    assert len((printed + errors).splitlines()) <= MOST_LINES
    reports = re.findall(r'^  (\S+\.html) ', printed, re.MULTILINE)
    assert len(reports) == 3
    assert all(Path(report).is_file() for report in reports)
