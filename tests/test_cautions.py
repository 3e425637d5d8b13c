"""Every warning has a consequence and a remedy, and is listed once when a run ends."""

import ast
import logging
import sys
from pathlib import Path

import pytest

import surreal_bids
from surreal_bids import cautions
from surreal_bids.cautions import (
    CHECK_LIST,
    GROUP_SECTIONS,
    WHAT_TO_CHECK,
    Caution,
    describe_cautions,
    log_cautions,
)
from surreal_bids.cli.main import run_command, set_up_logging

PACKAGE = Path(surreal_bids.__file__).parent
TREES = {path: ast.parse(path.read_text('utf-8')) for path in sorted(PACKAGE.rglob('*.py'))}
CALLS = [(p, n) for p, tree in TREES.items() for n in ast.walk(tree) if isinstance(n, ast.Call)]
MADE = [
    (path, call) for path, call in CALLS if getattr(call.func, 'id', '') == 'Caution' and call.args
]
LOGGED = [
    (path, call)
    for path, call in CALLS
    if isinstance(call.func, ast.Attribute)
    and call.func.attr == 'warning'
    and getattr(call.func.value, 'id', '').endswith(('LOGGER', 'PROGRESS'))
]


def is_starred(call):
    return any(isinstance(each, ast.Starred) for each in call.args)


def place(case):
    return f'{case[0].name}:{case[1].lineno}'


@pytest.mark.parametrize('case', [c for c in MADE if not is_starred(c[1])], ids=place)
def test_every_warning_has_a_consequence_a_remedy_and_a_section(case):
    _, call = case
    assert len(call.args) >= 3
    empty = [each for each in call.args if isinstance(each, ast.Constant) and not each.value]
    assert not empty
    for each in call.args[3:4]:
        assert isinstance(each, (ast.Name, ast.IfExp)), 'sections have one name, in one place'
        name = getattr(each, 'id', 'FIGURES').removesuffix('_SECTION')
        assert hasattr(cautions, name) or name == 'CONTRIBUTIONS'


@pytest.mark.parametrize('case', LOGGED, ids=place)
def test_no_warning_is_mere_text(case):
    _, call = case
    assert len(call.args) == 1, 'log a Caution'
    assert not isinstance(call.args[0], (ast.Constant, ast.JoinedStr))


def test_a_run_lists_each_warning_once_at_its_end(capsys):
    few = Caution('Few controls: 12', 'Values are shifted', 'Add controls')
    noisy = [Caution(f'{n} voxels', 'They are 0', 'Look', who=f'sub-0{n}') for n in (1, 2)]

    def command(verbosity):
        set_up_logging(verbosity)
        for _ in range(3):
            log_cautions([few, *noisy])
        logging.getLogger('surreal_bids').info('a decision')
        sys.stdout.write('done\n')
        return 0

    for verbosity in (0, 1):
        assert run_command(command, verbosity) == 0
        said = capsys.readouterr()
        assert said.out == 'done\n'
        _, listed = said.err.split(WHAT_TO_CHECK)
        for words in (few.found, few.consequence, few.remedy, 'sub-01, sub-02: 1 voxels', 'Look'):
            assert said.err.count(words) == listed.count(words) == 1
        assert ('a decision' in said.err) == bool(verbosity)
    assert CHECK_LIST.cautions == []


def test_a_run_without_warnings_lists_nothing(capsys):
    assert run_command(lambda _: 0, None) == 0
    assert capsys.readouterr().err == ''
    assert describe_cautions([]) == ''


def test_the_list_is_shown_when_a_run_fails(capsys):
    def command(_):
        set_up_logging(0)
        log_cautions([Caution('a', 'b', 'c')])
        raise KeyboardInterrupt

    assert run_command(command, None) == 130
    assert WHAT_TO_CHECK in capsys.readouterr().err


def test_sections_of_groups_and_images_differ():
    assert {cautions.FIGURES, cautions.VOLUMES}.isdisjoint(GROUP_SECTIONS)
