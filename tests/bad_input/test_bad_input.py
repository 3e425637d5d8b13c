"""Every kind of bad input, through every command that reads it.

A case passes if the command ends with the expected code, names what the user has to act on, shows
no traceback, leaves every file as it was, and writes nothing when it refuses.
"""

from __future__ import annotations

import re

import pytest

from tests.bad_input import commands, datasets, models, tables
from tests.bad_input.cases import APPLY, Case
from tests.bad_input.studies import (
    DOORS,
    Study,
    contents,
    copy_into,
    write_images,
    write_tables,
)

CASES = [*tables.CASES, *models.CASES, *commands.CASES, *datasets.CASES]

OUTPUTS = re.compile(r'(out|work|rindices(_contributions|_changes)?\.(tsv|json))(/|$)')
"""What an accepted command may write, below the folder of a study."""

LONGEST_MESSAGE = 2500
"""Most characters of the standard error that a user can be expected to read."""


def test_there_are_enough_kinds_and_each_has_its_own_name():
    names = [case.id for case in CASES]
    assert len(set(names)) == len(names) >= 120


@pytest.fixture(scope='session')
def sound(tmp_path_factory):
    """Sound studies to copy: of tables, with a model fitted to it, and of images."""
    studies = {
        'tables': write_tables(tmp_path_factory.mktemp('tables')),
        'images': write_images(tmp_path_factory.mktemp('images')),
    }
    fitted = studies['tables']
    assert DOORS['fit'].main(DOORS['fit'].words(fitted)) == 0
    fitted.out.rename(fitted.model)
    return studies


def take(sound: dict[str, Study], kind: str, folder) -> Study:
    original = sound[kind]
    copy_into(original.folder, folder)
    words = [word.replace(str(original.folder), str(folder)) for word in original.options]
    return Study(folder, words, list(original.columns))


def run(capsys, monkeypatch, study: Study, door: str, dry: bool) -> tuple[int, str]:
    """Exit code and everything that was said."""

    def started(*_, **__):
        raise AssertionError('the long work was started')

    monkeypatch.setattr('nipype.pipeline.engine.Workflow.run', started)
    entrance = DOORS[door]
    words = entrance.words(study) + list(entrance.dry if dry else ())
    capsys.readouterr()
    try:
        code = entrance.main(words)
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr()
    assert len(said.err) < LONGEST_MESSAGE, said.err[:LONGEST_MESSAGE]
    return code, said.out + said.err


@pytest.mark.parametrize(
    ('kind', 'door'),
    [
        *(('tables', door) for door in ('fit', 'apply', 'card', 'group', 'group_apply')),
        ('images', 'participant'),
        ('images', 'both'),
    ],
)
def test_what_is_sound_is_accepted(sound, tmp_path, capsys, monkeypatch, kind, door):
    code, said = run(capsys, monkeypatch, take(sound, kind, tmp_path), door, dry=True)
    assert code == 0, said


def marks(case: Case, door: str) -> list:
    """Training takes a second, and what reads a table to train reads it to apply a model too."""
    trains = door == 'fit' and case.code_of(door) == 0
    again = door in APPLY and 'fit' in case.doors
    return [*case.marks, *([pytest.mark.slow] if trains or again else [])]


@pytest.mark.parametrize(
    ('case', 'door'),
    [
        pytest.param(case, door, id=f'{case.id}-{door}', marks=marks(case, door))
        for case in CASES
        for door in case.doors
    ],
)
def test_bad_input(sound, tmp_path, capsys, monkeypatch, case: Case, door: str):
    study = take(sound, case.kind, tmp_path)
    with monkeypatch.context() as patch:
        case.prepare(study, patch)
        before = contents(tmp_path)
        refused = case.code_of(door) != 0
        dry = not refused or case.kind == 'images' or case.dry
        code, said = run(capsys, patch, study, door, dry)
        after = contents(tmp_path)
    assert code == case.code_of(door), said
    assert 'Traceback' not in said, said
    for pattern in case.says:
        assert re.search(pattern, said, re.IGNORECASE | re.DOTALL), f'{pattern}\n{said}'
    kept = {name: after.get(name) for name in before}
    assert kept == before, 'an input was changed'
    new = [name for name in after if name not in before]
    if case.patch is not None:
        new = [name for name in new if after[name] != 'folder']
    assert [name for name in new if refused or not OUTPUTS.match(name)] == []
