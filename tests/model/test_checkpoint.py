import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from surreal_bids.exceptions import DataError
from surreal_bids.model.bundle import fingerprint, load_checkpoint, save_checkpoint
from surreal_bids.model.settings import hyperparameters
from tests.model.tiny import CPU, assert_same, people

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
    loaded, progress = load_checkpoint(path, 'me', CPU)
    assert progress == PROGRESS
    assert_same(loaded, tensors())
    assert {name: value.dtype for name, value in loaded.items()} == {
        name: value.dtype for name, value in tensors().items()
    }


@pytest.mark.parametrize('value', [0.1, 1 / 3, float(np.float32(0.2)), 1e-300])
def test_floats_of_the_progress_come_back_exactly(value, tmp_path):
    save_checkpoint(tmp_path / 'run', tensors(), {'agreement': value}, 'me')
    assert load_checkpoint(tmp_path / 'run', 'me', CPU)[1]['agreement'] == value


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / 'run.safetensors'
    save_checkpoint(path, tensors(), PROGRESS, 'somebody else')
    before = path.read_bytes()
    with pytest.raises(DataError, match=r'run\.safetensors.*other data, settings.*delete'):
        load_checkpoint(path, 'me', CPU)
    assert path.read_bytes() == before


def test_a_newer_checkpoint_replaces_the_older(tmp_path):
    for iteration in (50, 100):
        save_checkpoint(tmp_path / 'run', tensors(), {'iteration': iteration}, 'me')
    assert load_checkpoint(tmp_path / 'run', 'me', CPU)[1] == {'iteration': 100}
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
        assert load_checkpoint(path, 'me', CPU)[1] == PROGRESS
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
        load_checkpoint(path, 'me', CPU)


def test_a_file_of_another_program_is_an_error_that_names_it(tmp_path):
    path = tmp_path / 'run.safetensors'
    save_file({'a': torch.zeros(2)}, path)
    with pytest.raises(DataError, match=r'run\.safetensors'):
        load_checkpoint(path, 'me', CPU)
