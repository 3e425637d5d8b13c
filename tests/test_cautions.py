"""Every warning has a consequence and a remedy, and is listed once when a run ends."""

import ast
import logging
import sys
from pathlib import Path

import pytest

import surreal_bids
from surreal_bids import cautions
from surreal_bids.cautions import (
    BIASED,
    CHECK_LIST,
    CONFOUNDED,
    INVALID,
    MINOR,
    WHAT_TO_CHECK,
    Caution,
    log_cautions,
    unite,
)
from surreal_bids.cli.main import run_command, set_up_logging

PACKAGE = Path(surreal_bids.__file__).parent


@pytest.fixture(scope='module')
def calls():
    trees = {path: ast.parse(path.read_text('utf-8')) for path in sorted(PACKAGE.rglob('*.py'))}
    return [(p, n) for p, tree in trees.items() for n in ast.walk(tree) if isinstance(n, ast.Call)]


def test_every_warning_has_a_consequence_a_remedy_and_a_section(calls):
    made = [each for each in calls if getattr(each[1].func, 'id', '') == 'Caution' and each[1].args]
    for path, call in made:
        where = f'{path.name}:{call.lineno}'
        if any(isinstance(each, ast.Starred) for each in call.args):
            continue
        assert len(call.args) >= 3, where
        assert all(getattr(each, 'value', True) for each in call.args), where
        for each in call.args[3:4]:
            named = (ast.Name, ast.IfExp, ast.Attribute)
            assert isinstance(each, named), 'sections have one name, in one place'
            name = getattr(each, 'id', 'FIGURES').removesuffix('_SECTION')
            assert hasattr(cautions, name) or name == 'CONTRIBUTIONS', where


def test_no_warning_is_mere_text(calls):
    for path, call in calls:
        logs = isinstance(call.func, ast.Attribute) and call.func.attr == 'warning'
        if not logs or not getattr(call.func.value, 'id', '').endswith(('LOGGER', 'PROGRESS')):
            continue
        is_text = isinstance(call.args[0], (ast.Constant, ast.JoinedStr))
        assert (len(call.args), is_text) == (1, False), f'{path.name}:{call.lineno}: no Caution'


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


def test_the_most_severe_warnings_come_first():
    severities = (MINOR, INVALID, BIASED, CONFOUNDED, INVALID)
    listed = [
        Caution(f'warning {number}', 'b', 'c', severity=severity)
        for number, severity in enumerate(severities)
    ]
    assert [each.found[-1] for each in unite(listed)] == ['3', '1', '4', '2', '0']


def test_the_list_is_shown_when_a_run_fails(capsys):
    def command(_):
        set_up_logging(0)
        log_cautions([Caution('a', 'b', 'c')])
        raise KeyboardInterrupt

    assert run_command(command, None) == 130
    assert WHAT_TO_CHECK in capsys.readouterr().err
