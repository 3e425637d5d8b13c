import dataclasses
import errno
import json
import os

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from surreal_bids.exceptions import DataError, OutputError
from surreal_bids.model.bundle import (
    CARD,
    TENSORS,
    fingerprint,
    load_bundle,
    load_checkpoint,
    save_bundle,
    save_checkpoint,
)
from surreal_bids.model.networks import hyperparameters
from tests.model.tiny import assert_same, people


@pytest.fixture
def bundle(tmp_path):
    tensors = {'a': torch.arange(6.0).reshape(2, 3), 'b': torch.ones(2, 3).T}
    return save_bundle(tmp_path / 'model', tensors, {'Name': 'x', 'List': [1, 2.5, None]}), tensors


def test_round_trip(bundle):
    folder, tensors = bundle
    loaded, card = load_bundle(folder)
    assert set(loaded) == set(tensors)
    for name, value in tensors.items():
        torch.testing.assert_close(loaded[name], value)
    assert card['List'] == [1, 2.5, None]


@pytest.mark.parametrize('missing', [CARD, TENSORS])
def test_an_incomplete_folder_is_no_model(bundle, missing):
    folder, _ = bundle
    (folder / missing).unlink()
    with pytest.raises(DataError, match=missing):
        load_bundle(folder)


def test_an_unfinished_training_is_told_from_no_model(tmp_path):
    (tmp_path / 'checkpoints').mkdir()
    with pytest.raises(DataError, match='training is not finished'):
        load_bundle(tmp_path)


@pytest.mark.parametrize('damaged', [CARD, TENSORS])
def test_a_damaged_file_is_named(bundle, damaged):
    folder, _ = bundle
    content = (folder / damaged).read_bytes()
    (folder / damaged).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match='damaged'):
        load_bundle(folder)


def test_a_pickle_in_place_of_the_tensors_is_not_loaded(bundle):
    folder, tensors = bundle
    torch.save(tensors, folder / TENSORS)
    with pytest.raises(DataError, match='damaged'):
        load_bundle(folder)


def test_a_bundle_of_another_format_says_which_version_wrote_it(bundle):
    folder, _ = bundle
    card = json.loads((folder / CARD).read_text()) | {'Format': 99, 'GeneratedBy': 'version 7'}
    (folder / CARD).write_text(json.dumps(card))
    with pytest.raises(DataError, match=r'format 99.*version 7'):
        load_bundle(folder)


def test_a_card_with_nan_is_refused(tmp_path):
    with pytest.raises(ValueError):
        save_bundle(tmp_path, {'a': torch.ones(1)}, {'value': float('nan')})
    assert not (tmp_path / CARD).exists()


def edit(folder, change):
    card = json.loads((folder / CARD).read_text())
    change(card)
    (folder / CARD).write_text(json.dumps(card, indent=1))


def test_a_model_without_checksums_is_accepted_with_a_warning(bundle, caplog):
    folder, _ = bundle
    edit(folder, lambda card: (card.pop('TensorsSHA256'), card.pop('CardSHA256')))
    assert load_bundle(folder)[1]['Name'] == 'x'
    assert 'no checksums' in caplog.text


def test_layout_of_the_card_does_not_matter(bundle):
    edit(bundle[0], lambda card: None)
    assert load_bundle(bundle[0])[1]['Name'] == 'x'


@pytest.mark.parametrize(
    'change',
    [
        lambda card: card.update(Name='y'),
        lambda card: card.update(List=[1, 2.5]),
        lambda card: card.update(TensorsSHA256='0' * 64),
        lambda card: card.pop('TensorsSHA256'),
        lambda card: card.pop('CardSHA256'),
    ],
)
def test_an_edited_card_is_refused(bundle, change):
    edit(bundle[0], change)
    with pytest.raises(DataError, match=r'model\.json: the file was edited'):
        load_bundle(bundle[0])


def test_tensors_of_another_model_are_refused(bundle, tmp_path):
    folder, tensors = bundle
    other = save_bundle(tmp_path / 'other', {n: t + 1 for n, t in tensors.items()}, {'Name': 'x'})
    (folder / TENSORS).write_bytes((other / TENSORS).read_bytes())
    with pytest.raises(DataError, match='does not belong to the'):
        load_bundle(folder)


@pytest.mark.parametrize(
    'content', [b'', b'[]', b'null', b'\xff\xfe', b'[' * 100_000, b'{"Format": 1', b'[1]']
)
def test_no_card_whatever_is_a_traceback(bundle, content):
    (bundle[0] / CARD).write_bytes(content)
    with pytest.raises(DataError, match=r'model\.json'):
        load_bundle(bundle[0])


def test_a_full_disk_leaves_the_earlier_model(bundle, monkeypatch):
    folder, tensors = bundle
    before = {name: (folder / name).read_bytes() for name in (CARD, TENSORS)}

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr('os.fsync', refuse)
    with pytest.raises(OutputError, match='free some space'):
        save_bundle(folder, {'a': tensors['a'] + 1}, {'Name': 'new'})
    assert {name: (folder / name).read_bytes() for name in (CARD, TENSORS)} == before
    assert len(list(folder.iterdir())) == 2


PROGRESS = {'iteration': 50, 'done': [True, False], 'history': [{'agreement': 0.1, 'ortho': 0.2}]}
NUMBERS = {'iterations': 100, 'keys': [[1, 2], [3, 4]]}


def tensors():
    rng = np.random.default_rng(0)
    return {
        'weights/f': torch.from_numpy(rng.normal(size=(2, 3, 5))).float(),
        'weights/not contiguous': torch.from_numpy(rng.normal(size=(3, 2))).T,
        'adam/step': torch.tensor(17.0),
        'final/diverged': torch.full((2, 1), torch.nan),
    }


def test_round_trip_to_the_last_bit(tmp_path):
    path = tmp_path / 'folder' / 'run.safetensors'
    save_checkpoint(path, tensors(), PROGRESS, 'me')
    loaded, progress = load_checkpoint(path, 'me')
    assert progress == PROGRESS
    assert_same(loaded, tensors())
    assert {name: value.dtype for name, value in loaded.items()} == {
        name: value.dtype for name, value in tensors().items()
    }


@pytest.mark.parametrize('value', [0.1, 1 / 3, float(np.float32(0.2)), 1e-300])
def test_floats_of_the_progress_come_back_exactly(value, tmp_path):
    save_checkpoint(tmp_path / 'run', tensors(), {'agreement': value}, 'me')
    assert load_checkpoint(tmp_path / 'run', 'me')[1]['agreement'] == value


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / 'run.safetensors'
    save_checkpoint(path, tensors(), PROGRESS, 'somebody else')
    before = path.read_bytes()
    with pytest.raises(DataError, match=r'run\.safetensors.*other data, settings.*delete'):
        load_checkpoint(path, 'me')
    assert path.read_bytes() == before


def test_a_newer_checkpoint_replaces_the_older(tmp_path):
    for iteration in (50, 100):
        save_checkpoint(tmp_path / 'run', tensors(), {'iteration': iteration}, 'me')
    assert load_checkpoint(tmp_path / 'run', 'me')[1] == {'iteration': 100}
    assert [path.name for path in tmp_path.iterdir()] == ['run']


@pytest.mark.parametrize('first', [True, False], ids=['first', 'second'])
def test_a_half_written_file_never_counts(first, tmp_path, monkeypatch):
    path = tmp_path / 'run.safetensors'
    if not first:
        save_checkpoint(path, tensors(), PROGRESS, 'me')

    def disk_full(file, data):
        with file.open('wb') as stream:
            stream.write(data[:3])
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('pathlib.Path.write_bytes', disk_full)
    with pytest.raises(OSError, match='No space left'):
        save_checkpoint(path, tensors(), {'iteration': 100}, 'me')
    assert path.exists() is not first
    if not first:
        assert load_checkpoint(path, 'me')[1] == PROGRESS
    assert len(list(tmp_path.iterdir())) == (0 if first else 1)


def test_nothing_in_a_checkpoint_is_pickled(tmp_path):
    path = tmp_path / 'run'
    save_checkpoint(path, tensors(), PROGRESS, 'me')
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], 'little')])
    assert set(header) == {'__metadata__', *tensors()}


def changed_arguments():
    """What was changed, and all arguments with that change."""
    hyper = hyperparameters('iclr2022')
    cn, pt = people(10, 0), people(14, 1)
    moved = people(14, 1)
    moved[3, 4] += 1e-6
    yield 'gamma', (dataclasses.replace(hyper, gamma=6.1), NUMBERS, cn, pt)
    yield 'iterations', (hyper, NUMBERS | {'iterations': 101}, cn, pt)
    yield 'keys', (hyper, NUMBERS | {'keys': [[1, 2], [3, 5]]}, cn, pt)
    yield 'one number of one person', (hyper, NUMBERS, cn, moved)
    yield 'groups swapped', (hyper, NUMBERS, pt, cn)
    yield 'order of people', (hyper, NUMBERS, cn.flip(0), pt)
    yield 'group of one person', (hyper, NUMBERS, torch.cat([cn, pt[:1]]), pt[1:])
    yield 'shape', (hyper, NUMBERS, cn.reshape(12, 10), pt.reshape(12, 14))


CHANGED = dict(changed_arguments())


@pytest.mark.parametrize('changed', CHANGED)
def test_fingerprints_tell_runs_apart(changed):
    original = hyperparameters('iclr2022'), NUMBERS, people(10, 0), people(14, 1)
    assert fingerprint(*original) == fingerprint(*original)
    assert fingerprint(*CHANGED[changed]) != fingerprint(*original)


@pytest.mark.parametrize('content', [b'', b'\x10\x00\x00', b'not a checkpoint' * 9], ids=len)
def test_a_damaged_checkpoint_is_an_error_that_names_it(content, tmp_path):
    path = tmp_path / 'run.safetensors'
    path.write_bytes(content)
    with pytest.raises(DataError, match=r'run\.safetensors'):
        load_checkpoint(path, 'me')


def test_a_file_of_another_program_is_an_error_that_names_it(tmp_path):
    path = tmp_path / 'run.safetensors'
    save_file({'a': torch.zeros(2)}, path)
    with pytest.raises(DataError, match=r'run\.safetensors'):
        load_checkpoint(path, 'me')
