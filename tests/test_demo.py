"""A miniature of `make demo`: both levels, the network included, against the truth."""

import importlib.util
import io
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from surreal_bids.cli.app import main as surreal_bids
from surreal_bids.cli.simulate import main as surreal_simulate

DEMO = Path(__file__).resolve().parents[1] / 'docs' / 'demo.py'

COMMANDS = {'surreal-bids': surreal_bids, 'surreal-simulate': surreal_simulate}

MOST_LINES = 40
"""On a terminal, where progress is a bar."""

LARGEST_DIFFERENCE = 13.0
"""Median difference of volumes from the truth, whose regions are not DLMUSE's, in percent."""

LOWEST_C_INDEX, LOWEST_AUC = 0.8, 0.85
"""Of the miniature, which trains for less time on fewer people; the demo has to reach 0.85."""


def load_demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location('demo', DEMO)
    demo = importlib.util.module_from_spec(spec)
    sys.modules['demo'] = demo
    spec.loader.exec_module(demo)
    return demo


def call_here(command: list, **_: object) -> subprocess.CompletedProcess:
    """Call a command in this process, where the number of permutations can be changed."""
    program, *arguments = map(str, command)
    with redirect_stdout(io.StringIO()) as printed:
        code = COMMANDS[Path(program).name](arguments)
    return subprocess.CompletedProcess(command, code, printed.getvalue())


@pytest.fixture(scope='module')
def printed(tmp_path_factory) -> str:
    """What the demo prints; few permutations, since `--n-patterns` is given."""
    demo, printed = load_demo(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, 'subprocess', SimpleNamespace(run=call_here, PIPE=None))
        patch.setattr('surreal_bids.model.number.PERMUTATIONS', 2)
        patch.setattr('surreal_bids.model.number.SUBSAMPLES', 4)
        with redirect_stdout(printed), redirect_stderr(printed):
            demo.main([str(tmp_path_factory.mktemp('demo')), '--miniature'])
    return printed.getvalue()


def figures(pattern: str, text: str) -> list[float]:
    return [float(number) for number in re.findall(pattern, text)]


@pytest.mark.slow
def test_the_network_measures_the_volumes_of_simulated_heads(printed):
    (difference,) = figures(r'true volume ([\d.]+)%', printed)
    assert difference < LARGEST_DIFFERENCE


@pytest.mark.slow
def test_the_study_finds_what_was_simulated(printed):
    assert '3 patterns found, 3 simulated; 0 of 145 participants lack an R-index' in printed
    ordered = figures(r'c-index ([\d.]+), AUC', printed)
    mapped = figures(r'of its map ([\d.]+)', printed)
    assert len(ordered) == len(mapped) == 3
    assert min(ordered) > LOWEST_C_INDEX
    assert min(mapped) > LOWEST_AUC


@pytest.mark.slow
def test_it_fits_on_a_screen_and_its_links_lead_somewhere(printed):
    lines = [line for line in printed.splitlines() if ' elapsed' not in line]
    assert len(lines) <= MOST_LINES
    reports = re.findall(r'^  (\S+\.html) ', printed, re.MULTILINE)
    assert len(reports) == 3
    assert all(Path(report).is_file() for report in reports)


def test_the_page_has_the_commands_of_the_demo():
    page = DEMO.with_suffix('.md').read_text('utf-8')
    demo = load_demo()
    full = demo.FULL
    assert f'--n-cn {full.n_cn} --n-pt {full.n_pt} --n-mci {full.n_mci}' in page
    assert demo.COURSE in page
    assert '--patient-label PT' in page
    assert f'for {full.n_cn + full.n_pt + full.n_mci} participants' in page
    assert f'--n-pt {full.n_heads} --sites 1' in page
    assert full.participant in page
