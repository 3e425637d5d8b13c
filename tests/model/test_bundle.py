import errno
import json
import os

import pytest
import torch

from surreal_bids.exceptions import DataError, OutputError
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
    with pytest.raises(DataError, match=r'model\.json: was edited'):
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
