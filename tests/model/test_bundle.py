import json

import pytest
import torch

from surreal_bids.exceptions import DataError
from surreal_bids.model.bundle import CARD, TENSORS, load_bundle, save_bundle


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
    with pytest.raises(DataError, match='training has not ended'):
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
