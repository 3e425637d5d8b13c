"""What a case is, and small damages that cases are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tests.bad_input.studies import Study

Damage = Callable[[Study], Any]

TRAIN = ('fit', 'group')
APPLY = ('apply', 'group_apply')
TABLES = (*TRAIN, *APPLY)

USAGE, NO_DATASET, NO_MATCH, DATA, OUTPUT = 2, 16, 18, 65, 73
ACCEPTED, SOME_FAILED = 0, 1


@dataclass(frozen=True)
class Case:
    """One kind of bad input.

    Attributes
    ----------
    id
        Its name.
    damage
        What is done to a sound study.
    says
        Regular expressions, each of which has to be found in what the command says.
    doors
        The commands to try, by their names in `DOORS`.
    code
        Expected exit code.
    kind
        The sound study to start from: `tables` or `images`.
    patch
        What is done to the surroundings with pytest's `monkeypatch`, such as a full disk.
    dry
        Whether to use the dry run even though the command is expected to refuse.
    marks
        Marks of pytest.
    """

    id: str
    damage: Damage
    says: Sequence[str] = ()
    doors: Sequence[str] = TABLES
    code: int = DATA
    kind: str = 'tables'
    patch: Callable[[Any, Study], None] | None = None
    dry: bool = False
    marks: Sequence[Any] = ()

    def prepare(self, study: Study, patch: Any) -> None:
        self.damage(study)
        if self.patch is not None:
            self.patch(patch, study)


def nothing(_: Study) -> None:
    """No damage: the options or the surroundings are bad."""


def options(*words: object) -> Damage:
    """Words added to the command line; `{folder}` stands for the folder of the study."""
    return lambda s: s.add(*(str(word).format(folder=s.folder) for word in words))


def several(*damages: Damage) -> Damage:
    def damage(study: Study) -> None:
        for each in damages:
            each(study)

    return damage


def volume(value: str, who: str | Sequence[str] = 'sub-005', region: str = 'MUSE_31') -> Damage:
    """Write something in the place of a volume."""
    return lambda s: s.edit(s.volumes, lambda t: _put(t, who, region, value))


def person(column: str, value: str, who: str | Sequence[str] = 'sub-005') -> Damage:
    """Write something in the place of what is known of a participant."""
    return lambda s: s.edit(s.people, lambda t: _put(t, who, column, value))


def _put(table: pd.DataFrame, rows: Any, column: str, value: str) -> None:
    table.loc[rows, column] = value


def volumes(change: Callable[[pd.DataFrame], pd.DataFrame | None]) -> Damage:
    """Change the table of volumes, its cells being text."""
    return lambda s: s.edit(s.volumes, change)


def people(change: Callable[[pd.DataFrame], pd.DataFrame | None]) -> Damage:
    """Change the table of participants, its cells being text."""
    return lambda s: s.edit(s.people, change)


def numbers(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Damage:
    """Change the volumes as numbers."""
    return volumes(lambda t: change(t.astype(float)))


def text_of(which: str, change: Callable[[str], str]) -> Damage:
    """Change the text of a file."""

    def damage(study: Study) -> None:
        path: Path = getattr(study, which)
        path.write_text(change(path.read_text()))

    return damage


def bytes_of(which: str, change: Callable[[bytes], bytes]) -> Damage:
    """Change the bytes of a file."""

    def damage(study: Study) -> None:
        path: Path = getattr(study, which)
        path.write_bytes(change(path.read_bytes()))

    return damage


def replaced(which: str, put: Callable[[Path], Any] | None = None) -> Damage:
    """Delete a file, and put something else in its place."""

    def damage(study: Study) -> None:
        path: Path = getattr(study, which)
        path.unlink()
        if put is not None:
            put(path)

    return damage
