import os

import pytest

from surreal_bids.bids import layout as database
from surreal_bids.bids.layout import find_t1w
from surreal_bids.exceptions import OutputError

IMAGE = 'sub-{0}/anat/sub-{0}_T1w.nii.gz'


@pytest.fixture
def dataset(make_dataset, monkeypatch):
    """A dataset whose folders count as settled although it was made just now."""
    monkeypatch.setattr(database, 'SETTLED_NS', -1_000_000_000)
    return make_dataset(
        IMAGE.format('01'), IMAGE.format('02'), 'sub-03/ses-1/anat/sub-03_ses-1_T1w.nii.gz'
    )


@pytest.fixture
def count_crawls(monkeypatch):
    crawls = []
    original = database.BIDSLayout.__init__

    def counted(self, *arguments, database_path=None, **options):
        crawls.extend([1] if database_path is None else [])
        original(self, *arguments, database_path=database_path, **options)

    monkeypatch.setattr(database.BIDSLayout, '__init__', counted)
    return crawls


def _found(dataset, database_dir, **selection):
    return [i.participant for i in find_t1w(dataset, database_dir=database_dir, **selection)]


def test_an_unchanged_dataset_is_read_once_whatever_is_selected(dataset, tmp_path, count_crawls):
    assert _found(dataset, tmp_path / 'db', participants=['02']) == ['02']
    assert _found(dataset, tmp_path / 'db') == ['01', '02', '03']
    assert _found(dataset, tmp_path / 'db', participants=['01', '03']) == ['01', '03']
    assert len(count_crawls) == 1


def _add_participant(root):
    (root / 'sub-04' / 'anat').mkdir(parents=True)
    (root / IMAGE.format('04')).touch()


def _add_with_the_old_modification_time(root):
    """Do as `rsync -a` does: add a file, then set the folder's time back."""
    folder = (root / IMAGE.format('01')).parent
    before = folder.stat()
    (folder / 'sub-01_acq-a_T1w.nii.gz').touch()
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def _link_elsewhere(root):
    other = root / 'elsewhere'
    other.mkdir()
    (other / 'sub-01_acq-b_T1w.nii.gz').touch()
    (root / IMAGE.format('01')).unlink()
    (root / 'sub-01' / 'anat').rmdir()
    (root / 'sub-01' / 'anat').symlink_to(other)


@pytest.mark.parametrize(
    'change',
    [
        _add_participant,
        _add_with_the_old_modification_time,
        _link_elsewhere,
        lambda root: (root / IMAGE.format('02')).unlink(),
        lambda root: (root / IMAGE.format('02')).rename(root / 'sub-02/anat/sub-02_run-1_T1w.nii'),
        lambda root: (root / 'sub-03/ses-1/anat/sub-03_ses-1_acq-a_T1w.nii').touch(),
    ],
)
def test_any_change_of_the_files_is_noticed(dataset, tmp_path, change):
    before = find_t1w(dataset, database_dir=tmp_path / 'db')
    change(dataset)
    after = find_t1w(dataset, database_dir=tmp_path / 'db')
    assert after == find_t1w(dataset)
    assert after != before


def test_other_suffixes_have_an_index_of_their_own(dataset, tmp_path):
    (dataset / 'sub-01/anat/sub-01_UNIT1.nii.gz').touch()
    assert _found(dataset, tmp_path / 'db') == ['01', '02', '03']
    assert _found(dataset, tmp_path / 'db', filters={'suffix': 'UNIT1'}) == ['01']
    assert len(list((tmp_path / 'db').iterdir())) == 2


def test_the_index_of_another_program_is_left_alone(dataset, tmp_path):
    foreign = tmp_path / 'db' / database.DATABASE
    foreign.parent.mkdir()
    foreign.write_bytes(b'not ours')
    assert _found(dataset, tmp_path / 'db') == ['01', '02', '03']
    assert foreign.read_bytes() == b'not ours'


def test_a_dataset_changed_just_now_is_not_stored(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(database, 'SETTLED_NS', 3_600_000_000_000)
    assert _found(dataset, tmp_path / 'db') == ['01', '02', '03']
    assert not (tmp_path / 'db').exists()


def test_a_database_folder_that_cannot_be_made(dataset, tmp_path):
    (tmp_path / 'db').write_text('')
    with pytest.raises(OutputError, match='cannot make this folder'):
        find_t1w(dataset, database_dir=tmp_path / 'db')


def test_folders_that_count(dataset):
    (dataset / 'sub-01' / 'func').mkdir()
    assert [state[0] for state in database.folder_states(dataset)] == [
        '.',
        'sub-01',
        'sub-01/anat',
        'sub-02',
        'sub-02/anat',
        'sub-03',
        'sub-03/ses-1',
        'sub-03/ses-1/anat',
    ]
