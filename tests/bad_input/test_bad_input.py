"""Every kind of bad input, through one of the commands that read it.

Commands share their readers; a few cases of each kind go through all commands to prove it. Options
and outputs go through all commands too, since each command has its own. A case passes if the
command ends with the expected code, names what the user has to act on, shows no traceback, leaves
every file as it was, and writes nothing when it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pytest

from tests.bad_input import commands, datasets, models
from tests.bad_input.cases import ACCEPTED, Case
from tests.bad_input.studies import DOORS, Study, contents, copy_into, study_of

CASES = [*models.CASES, *commands.CASES, *datasets.CASES]

SHARED = {
    *('id-twice', 'people-missing', 'volumes-utf16', 'value-div0', 'value-missing', 'unit-cm3'),
    *('ages-in-months', 'group-one-only', 'covariate-absent', 'icv-in-cm3', 'model-missing'),
    *('model-card-edited', 'model-tensors-swapped', 'dataset-missing'),
}
"""Cases of tables and models that go through all commands, which share their readers."""

OWN = {case.id for case in commands.CASES}
"""Cases of options and outputs, of which each command has its own."""

pytestmark = pytest.mark.usefixtures('few_draws', 'undrawn_figures')

OUTPUTS = re.compile(
    r'(out|work|rindices_report|rindices(_contributions|_changes|_diagnosis)?\.(tsv|json))(/|$)'
)
"""What an accepted command may write, below the folder of a study."""

LONGEST_MESSAGE = 2500
"""Most characters of the standard error that a user can be expected to read."""


def test_there_are_enough_kinds_and_each_has_its_own_name():
    names = [case.id for case in CASES]
    assert len(set(names)) == len(names) >= 120
    assert set(names) > SHARED


def take(sound: dict[str, Path], kind: str, folder: Path) -> Study:
    copy_into(sound[kind], folder)
    return study_of(kind, folder)


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
        *(('tables', door) for door in ('apply', 'card', 'group', 'group_apply')),
        ('images', 'participant'),
        ('images', 'both'),
    ],
)
def test_what_is_sound_is_accepted(sound, tmp_path, capsys, monkeypatch, kind, door):
    """`fit` has accepted it when the sound study was made."""
    code, said = run(capsys, monkeypatch, take(sound, kind, tmp_path), door, dry=True)
    assert code == 0, said


def doors_of(case: Case) -> Sequence[str]:
    """The commands to run a case through; not `fit` where it would train."""
    if case.id in SHARED | OWN:
        return case.doors
    doors = [door for door in case.doors if door != 'fit' or case.code != ACCEPTED] or case.doors
    return [doors[crc32(case.id.encode()) % len(doors)]]


def marks(case: Case, door: str) -> list[pytest.MarkDecorator]:
    """Marks of a case: the fast tests have those that prove that commands share their readers."""
    trains = door == 'fit' and case.code == ACCEPTED
    fast = case.id in SHARED or (case.id in OWN and door == case.doors[0])
    return [*case.marks, *([] if fast and not trains else [pytest.mark.slow])]


@pytest.mark.parametrize(
    ('case', 'door'),
    [
        pytest.param(case, door, id=f'{case.id}-{door}', marks=marks(case, door))
        for case in CASES
        for door in doors_of(case)
    ],
)
def test_bad_input(sound, tmp_path, capsys, monkeypatch, case: Case, door: str):
    study = take(sound, case.kind, tmp_path)
    with monkeypatch.context() as patch:
        case.prepare(study, patch)
        before = contents(tmp_path)
        refused = case.code != 0
        dry = not refused or case.kind == 'images' or case.dry
        code, said = run(capsys, patch, study, door, dry)
        after = contents(tmp_path)
    assert code == case.code, said
    assert 'Traceback' not in said, said
    for pattern in case.says:
        assert re.search(pattern, said, re.IGNORECASE | re.DOTALL), f'{pattern}\n{said}'
    kept = {name: after.get(name) for name in before}
    assert kept == before, 'an input was changed'
    new = [name for name in after if name not in before]
    if case.patch is not None:
        new = [name for name in new if after[name] != 'folder']
    assert [name for name in new if refused or not OUTPUTS.match(name)] == []
