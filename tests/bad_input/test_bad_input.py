"""Bad input through the commands, one or two examples for each reader.

The rules are tested where they live. Here, a command has to end with the expected code, name what
the user has to act on, show no traceback, leave every file as it was, and write nothing when it
refuses.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from tests.bad_input.studies import DOORS, SHAPE, Study, contents, copy_into, study_of, write_image

pytestmark = pytest.mark.usefixtures('few_draws', 'undrawn_figures')

TRAIN = ('fit', 'group')
APPLY = ('apply', 'group_apply')
TABLES = (*TRAIN, *APPLY)
LEVELS = ('participant', 'both')
MODELS = ('apply', 'card', 'group_apply', 'add_site')
USAGE, NO_DATASET, NO_MATCH, DATA, OUTPUT = 2, 16, 18, 65, 73
ACCEPTED, SOME_FAILED = 0, 1

OUTPUTS = re.compile(
    r'(out|work|rindices_report|rindices(_contributions|_changes|_diagnosis)?\.(tsv|json))(/|$)'
)
"""What an accepted command may write, below the folder of a study."""

LONGEST_MESSAGE = 2500
"""Most characters of the standard error that a user can be expected to read."""


class Case(NamedTuple):
    """What is done to a sound study, what each command says of it (regular expressions), which
    commands are tried, and their exit code."""

    damage: Callable[[Study], Any]
    says: Sequence[str]
    doors: Sequence[str] = TABLES
    code: int = DATA


def options(*words: object) -> Callable[[Study], None]:
    """Words added to the command line; `{folder}` stands for the folder of the study."""
    return lambda s: s.add(*(str(word).format(folder=s.folder) for word in words))


def file_for(flag: str, name: str, text: str) -> Callable[[Study], None]:
    """A file of some text for an option."""

    def damage(study: Study) -> None:
        (study.folder / name).write_text(text)
        study.add(flag, study.folder / name)

    return damage


def put(which: str, column: str, change: Callable[[Any], Any]) -> Callable[[Study], None]:
    """Change a column of a table, its cells being text."""
    return lambda s: s.edit(
        getattr(s, which), lambda table: table.assign(**{column: change(table[column])})
    )


def cubic_centimetres(study: Study) -> None:
    study.edit(study.volumes, lambda table: table.astype(float) / 1000)


def mixed_units(study: Study) -> None:
    """Every second participant in cm3."""

    def change(table: pd.DataFrame) -> pd.DataFrame:
        volumes = table.astype(float)
        volumes.iloc[::2] /= 1000
        return volumes

    study.edit(study.volumes, change)


def row_twice(study: Study) -> None:
    lines = study.volumes.read_text().splitlines(keepends=True)
    study.volumes.write_text(''.join([*lines, lines[5]]))


def edited_card(study: Study) -> None:
    card = study.model / 'model.json'
    card.write_text(card.read_text().replace('"age"', '"educ"'))


def other_tensors(study: Study) -> None:
    tensors = study.model / 'model.safetensors'
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 255
    tensors.write_bytes(content)


def hard_link_to_the_table(study: Study) -> None:
    os.link(study.volumes, study.folder / 'same.tsv')
    study.add('--out', study.folder / 'same.tsv', '--overwrite')


def table_in_outputs(study: Study) -> None:
    """The table of volumes is one that the group level itself would write."""
    place = study.out / 'phenotype' / 'roi_volumes.tsv'
    place.parent.mkdir(parents=True)
    study.volumes.rename(place)
    study.add('--roi-table', place)


def model_in_outputs(study: Study) -> None:
    study.out.mkdir()
    study.model.rename(study.out / 'models')
    study.add('--model', study.out / 'models')


OF_TABLES = {
    'no-table': Case(lambda s: s.volumes.unlink(), [r'volumes\.tsv', 'no such file|not found']),
    'no-participants': Case(lambda s: s.people.unlink(), [r'participants\.tsv']),
    'utf16': Case(
        lambda s: s.volumes.write_bytes(b'\xff\xfe\0\1' * 99), [r'volumes\.tsv', 'utf|text|table']),
    'id-twice': Case(row_twice, [r'volumes\.tsv', 'sub-005', 'more than one row']),
    'text': Case(put('volumes', 'MUSE_31', lambda c: ['#DIV/0x', *c[1:]]), ['DIV/0x', 'sub-001']),
    'cm3': Case(cubic_centimetres, ['1,000 times smaller', 'unit of the model'], APPLY),
    'some-cm3': Case(mixed_units, ['times (larger|smaller) than those of others', 'mm3']),
    'months': Case(put('people', 'age', lambda c: c.astype(float) * 12), ['months', 'in years']),
    'one-group': Case(put('people', 'diagnosis', lambda c: 'CN'), ['--group-column'], TRAIN),
    'no-column': Case(options('--covariates', 'ages'), ['no column ages'], TRAIN),
    'option': Case(options('--no-such-option'), ['no-such-option'], TABLES, USAGE),
    'value': Case(options('--ortho', 'nan'), ['ortho', 'nan'], TRAIN, USAGE),
    'device': Case(options('--device', 'tpu'), ['device', 'tpu', 'cpu'], TRAIN, USAGE),
    'site': Case(options('--site', ' '), ['--site .*not empty'], ('add_site',), USAGE),
    'folds': Case(options('--folds', 500), ['folds 500', '24 folds'], ('group',), ACCEPTED),
    'phenotype': Case(
        file_for('--phenotype', 'scores.tsv', 'participant_id\tmmse\nsub-901\t28\n'),
        [r'scores\.tsv', 'none of the visits'], ('group',)),
    'config': Case(
        file_for('--config-file', 'a.toml', 'n_pattern = 2'), [r'a\.toml', '--n-pattern=2'],
        ('group',), USAGE),
    'plugin': Case(
        file_for('--use-plugin', 'p.yml', '!!python/object/apply:os.system ["touch x"]\n'),
        [r'p\.yml'], ('group',), USAGE),
    'no-model': Case(lambda s: shutil.rmtree(s.model), [r'model\b', 'not a model'], MODELS),
    'card': Case(edited_card, [r'model\.json', 'edited'], MODELS),
    'tensors': Case(other_tensors, [r'model\.safetensors', 'damaged|belong'], MODELS),
    'over-the-table': Case(
        options('--out', '{folder}/volumes.tsv', '--overwrite'), [r'volumes\.tsv'],
        ('fit', 'apply'), OUTPUT),
    'ending': Case(options('--out', '{folder}/r.txt'), [r'ends in \.tsv'], ('apply',), USAGE),
    'over-a-link': Case(hard_link_to_the_table, [r'same\.tsv'], ('fit', 'apply'), OUTPUT),
    'over-the-model': Case(
        options('--out', '{folder}/model/rindices.tsv', '--overwrite'), ['model'], ('apply',),
        OUTPUT),
    'out-in-a-file': Case(
        options('--out', '{folder}/volumes.tsv/r.tsv'), [r'volumes\.tsv'], ('fit', 'apply'),
        OUTPUT),
    'table-is-an-output': Case(
        table_in_outputs, [r'roi_volumes\.tsv'], ('group', 'group_apply'), OUTPUT),
    'model-is-an-output': Case(
        model_in_outputs, [r'models/model\.json: would replace'], ('group_apply',), OUTPUT),
}  # fmt: skip


OF_IMAGES = {
    'no-dataset': Case(
        lambda s: s.dataset.rename(s.folder / 'elsewhere'), ['dataset', 'no such folder'], LEVELS,
        NO_DATASET),
    'description': Case(
        lambda s: (s.dataset / 'dataset_description.json').write_text('{"Name": '),
        [r'dataset_description\.json', 'json'], LEVELS, NO_DATASET),
    'no-image': Case(lambda s: s.image().unlink(), ['sub-02', 'T1w'], LEVELS, SOME_FAILED),
    'constant-image': Case(
        lambda s: write_image(s.image(), np.full(SHAPE, 7.0, np.float32)),
        ['sub-02[^\n]*all voxels are 7'], LEVELS, SOME_FAILED),
    'half-an-image': Case(
        lambda s: s.image().write_bytes(s.image().read_bytes()[:600]),
        ['sub-02[^\n]*cannot be read as an image'], LEVELS, SOME_FAILED),
    'label': Case(options('--participant-label', '../../etc'), [r'\.\./etc'], LEVELS, NO_MATCH),
    'filter': Case(
        file_for('--bids-filter-file', 'f.json', '{"t1w": {"sesion": "1"}}'),
        [r'f\.json', 'sesion'], LEVELS, USAGE),
    'atlas': Case(
        lambda s: (s.folder / 'atlas' / 'dseg.tsv').unlink(), [r'dseg\.tsv'], LEVELS, DATA),
    'of-the-group': Case(
        options('--folds', 5), ['--folds: no effect at the'], ('participant',), ACCEPTED),
    'few-controls': Case(
        put('people', 'diagnosis', lambda c: ['CN'] * 3 + ['PT'] * 17), ['3 controls'], ('both',)),
    'age-999': Case(
        put('people', 'age', lambda c: ['999', *c[1:]]), [r'exclude sub-01 \(age is 999'],
        ('both',), ACCEPTED),
}  # fmt: skip


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


@pytest.mark.slow
@pytest.mark.parametrize('door', ['apply', 'card', 'group', 'group_apply', *LEVELS])
def test_what_is_sound_is_accepted(sound, tmp_path, capsys, monkeypatch, door):
    """`fit` has accepted it when the sound study was made."""
    study = take(sound, 'images' if door in LEVELS else 'tables', tmp_path)
    code, said = run(capsys, monkeypatch, study, door, dry=True)
    assert code == 0, said


@pytest.mark.parametrize('name', [*OF_TABLES, *OF_IMAGES])
def test_bad_input(sound, tmp_path, capsys, monkeypatch, name):
    case = (OF_TABLES | OF_IMAGES)[name]
    for door in case.doors:
        study = take(sound, 'tables' if name in OF_TABLES else 'images', tmp_path / door)
        case.damage(study)
        before = contents(study.folder)
        dry = case.code == ACCEPTED or name in OF_IMAGES
        code, said = run(capsys, monkeypatch, study, door, dry)
        assert code == case.code, f'{door}\n{said}'
        assert 'Traceback' not in said, said
        for pattern in case.says:
            assert re.search(pattern, said, re.IGNORECASE), f'{door}: {pattern}\n{said}'
        after = contents(study.folder)
        assert {each: after.get(each) for each in before} == before, 'an input was changed'
        new = [each for each in after if each not in before]
        assert [each for each in new if case.code or not OUTPUTS.match(each)] == []


@pytest.mark.parametrize('door', TABLES)
def test_a_full_disk_leaves_nothing_behind(sound, tmp_path, capsys, monkeypatch, door):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    study = take(sound, 'tables', tmp_path)
    if door == 'apply':
        study.results.write_text('precious')
        study.add('--overwrite')
    before = contents(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr('os.fsync', refuse)
        code, said = run(capsys, patch, study, door, dry=False)
    assert code == OUTPUT, said
    assert 'no space' in said.lower()
    left = {name: what for name, what in contents(tmp_path).items() if what != 'folder'}
    assert left == {name: what for name, what in before.items() if what != 'folder'}
