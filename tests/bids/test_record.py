import json

import pytest

from surreal_bids import __version__
from surreal_bids.bids.derivatives import (
    digest_of_files,
    fingerprint,
    read_record,
    record_path,
    why_not_done,
    write_record,
)


@pytest.fixture
def done(tmp_path):
    """A participant whose outputs are complete: root, path of the record, what they are from."""
    source = tmp_path / 'sub-01_T1w.nii.gz'
    source.write_bytes(b'voxels')
    root = tmp_path / 'out'
    output = root / 'sub-01' / 'anat' / 'x.nii.gz'
    output.parent.mkdir(parents=True)
    output.write_bytes(b'result')
    path = record_path(root, ('01', None))
    made_from = fingerprint([source], {'atlas': 'muse'})
    write_record(path, root, made_from, [output])
    return root, path, made_from


def test_nothing_to_do_where_nothing_changed(done):
    root, path, made_from = done
    assert why_not_done(root, read_record(path), made_from) == ''
    assert made_from['version'] == __version__


@pytest.mark.parametrize('part', ['version', 'inputs', 'options'])
def test_what_changed_is_named(done, part):
    root, path, made_from = done
    reason = why_not_done(root, read_record(path), {**made_from, part: 'other'})
    assert reason == f'{part} changed since the outputs were made'


@pytest.mark.parametrize('content', [None, b'', b'half'])
def test_outputs_that_are_gone_or_damaged(done, content):
    root, path, made_from = done
    output = root / 'sub-01' / 'anat' / 'x.nii.gz'
    output.unlink()
    if content is not None:
        output.write_bytes(content)
    reason = why_not_done(root, read_record(path), made_from)
    assert reason == 'sub-01/anat/x.nii.gz is missing or was changed'


@pytest.mark.parametrize('text', ['', '{', '[]', '{"outputs": {}}'])
def test_a_damaged_record_counts_for_nothing(done, text):
    root, path, made_from = done
    path.write_text(text)
    assert why_not_done(root, read_record(path), made_from) == 'not processed yet'


def test_digests_follow_content_and_not_order(tmp_path):
    files = [tmp_path / name for name in 'ab']
    for path in files:
        path.write_text(path.name)
    before = digest_of_files(files)
    assert digest_of_files(files[::-1]) == before
    files[0].touch()
    assert digest_of_files(files) == before
    files[0].write_text('c')
    assert digest_of_files(files) != before


def test_the_record_is_json_that_people_can_read(done):
    _, path, _ = done
    assert json.loads(path.read_text())['outputs'] == {'sub-01/anat/x.nii.gz': 6}
