import pytest

from surreal_bids.cli import simulate as simulate_cohort
from surreal_bids.cli.simulate import build_parser, main
from surreal_bids.simulation.cohort import CohortPlan


@pytest.fixture
def calls(monkeypatch):
    made = []
    monkeypatch.setattr(simulate_cohort, 'simulate_cohort', lambda *call: made.append(call))
    return made


def test_options_become_the_plan(tmp_path, calls, capsys):
    words = (
        '--n-cn 3 --n-pt 4 --sites 5 --patterns 1 --voxel-size 1 --atlases 6 --skull-stripped '
        '--variation 0.5 --seed 7'
    )
    assert main(['cohort', str(tmp_path), *words.split(), '--nprocs', '2']) == 0
    plan = CohortPlan(3, 4, 5, 1, 1.0, 6, True, 0.5, 7)
    assert calls == [(tmp_path, plan, 2)]
    assert str(tmp_path) in capsys.readouterr().out


def test_defaults_are_those_of_the_plan(tmp_path, calls):
    assert main(['cohort', str(tmp_path)]) == 0
    assert calls[0][1] == CohortPlan()
    assert calls[0][2] >= 1


@pytest.mark.parametrize(
    'words',
    ['--nprocs 0', '--n-cn -1', '--sites 0', '--n-cn 0 --n-pt 0', '--seed -3', '--variation 2'],
)
def test_impossible_values_are_usage_errors(tmp_path, calls, words, capsys):
    assert main(['cohort', str(tmp_path), *words.split()]) == 2
    assert words.split()[0] in capsys.readouterr().err
    assert not calls


@pytest.mark.parametrize('words', [['cohort'], ['cohort', 'out', '--voxel-size', '5'], []])
def test_a_wrong_command_line_ends_with_2(words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_too_many_patterns_are_refused_before_anything_is_written(tmp_path, capsys):
    out = tmp_path / 'out'
    assert main(['cohort', str(out), '--patterns', '9']) == 2
    assert not out.exists()
    assert '--patterns 9' in capsys.readouterr().err


@pytest.mark.parametrize('command', ['table', 'cohort'])
def test_help_lists_every_subcommand(command):
    assert command in build_parser().format_help()
