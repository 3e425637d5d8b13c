"""Models and checkpoints on disk; damaged models are in tests/bad_input."""

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
    load_bundle,
    load_checkpoint,
    save_bundle,
    save_checkpoint,
)
from tests.model.tiny import assert_same


@pytest.fixture
def bundle(tmp_path):
    tensors = {'a': torch.arange(6.0).reshape(2, 3), 'b': torch.ones(2, 3).T}
    return save_bundle(tmp_path / 'model', tensors, {'Name': 'x', 'List': [1, 2.5, None]})


def edit(folder, change):
    card = json.loads((folder / CARD).read_text())
    change(card)
    (folder / CARD).write_text(json.dumps(card, indent=1))


def test_round_trip(bundle):
    edit(bundle, lambda card: None)  # Its layout does not matter.
    loaded, card = load_bundle(bundle)
    assert_same(loaded, {'a': torch.arange(6.0).reshape(2, 3), 'b': torch.ones(3, 2)})
    assert card['List'] == [1, 2.5, None]


@pytest.mark.parametrize(
    ('damage', 'message'),
    [
        (lambda folder: (folder / CARD).unlink(), CARD),
        (lambda folder: (folder / TENSORS).unlink(), TENSORS),
        (lambda folder: (folder / TENSORS).write_bytes(b'half'), 'damaged'),
        (lambda folder: torch.save({'a': torch.ones(1)}, folder / TENSORS), 'damaged'),
        (lambda folder: (folder / CARD).write_bytes(b'{"Format": 1'), r'model\.json.*JSON'),
        (lambda folder: (folder / CARD).write_bytes(b'[' * 100_000), r'model\.json'),
        (lambda folder: edit(folder, lambda c: c.update(Name='y')), 'the file was edited'),
        (lambda folder: edit(folder, lambda c: c.pop('CardSHA256')), 'the file was edited'),
        (
            lambda folder: edit(folder, lambda c: c.update(Format=99, GeneratedBy='version 7')),
            'format 99.*version 7',
        ),
    ],
)
def test_what_is_no_whole_model_is_refused(bundle, damage, message):
    damage(bundle)
    with pytest.raises(DataError, match=message):
        load_bundle(bundle)


def test_an_unfinished_training_is_told_from_no_model(tmp_path):
    (tmp_path / 'checkpoints').mkdir()
    with pytest.raises(DataError, match='has not ended: wait for it'):
        load_bundle(tmp_path)


def test_a_full_disk_leaves_the_earlier_model(bundle, monkeypatch):
    before = {name: (bundle / name).read_bytes() for name in (CARD, TENSORS)}

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr('os.fsync', refuse)
    with pytest.raises(OutputError, match='No space left'):
        save_bundle(bundle, {'a': torch.ones(1)}, {'Name': 'new'})
    assert {name: (bundle / name).read_bytes() for name in (CARD, TENSORS)} == before
    assert len(list(bundle.iterdir())) == 2


PROGRESS = {'iteration': 50, 'done': [True, False], 'history': [{'agreement': 1 / 3}]}


def tensors():
    rng = np.random.default_rng(0)
    return {
        'weights/f': torch.from_numpy(rng.normal(size=(2, 3, 5))).float(),
        'weights/not contiguous': torch.from_numpy(rng.normal(size=(3, 2))).T,
        'adam/step': torch.tensor(17.0),
        'final/diverged': torch.full((2, 1), torch.nan),
    }


def test_a_checkpoint_comes_back_to_the_last_bit_and_nothing_is_pickled(tmp_path):
    path = tmp_path / 'folder' / 'run.safetensors'
    for iteration in (10, 50):
        save_checkpoint(path, tensors(), PROGRESS | {'iteration': iteration}, 'me')
    loaded, progress = load_checkpoint(path, 'me')
    assert progress == PROGRESS
    assert_same(loaded, tensors())
    assert {n: v.dtype for n, v in loaded.items()} == {n: v.dtype for n, v in tensors().items()}
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], 'little')])
    assert set(header) == {'__metadata__', *tensors()}


def test_what_is_no_checkpoint_of_this_run_is_an_error_that_names_it(tmp_path):
    path = tmp_path / 'run.safetensors'
    for content in (b'', b'\x10\x00\x00', b'not a checkpoint' * 9):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r'run\.safetensors'):
            load_checkpoint(path, 'me')
    save_file({'a': torch.zeros(2)}, path)
    with pytest.raises(DataError, match=r'run\.safetensors.*other data, settings.*delete'):
        load_checkpoint(path, 'me')
