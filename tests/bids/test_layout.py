import json
import logging
import os

import pytest
from bids import BIDSLayout

from surreal_bids.bids import layout as database
from surreal_bids.bids.layout import (
    find_t1w,
    read_description,
    read_filters,
    select_participants,
    select_sessions,
)
from surreal_bids.exceptions import NotBIDSError, NothingMatchedError, OutputError, UsageError
from surreal_bids.names import is_label
from surreal_bids.text import alternatives
from tests.shared_data import shared_data

RUNS = [f'sub-01/anat/sub-01_run-{run}_T1w.nii.gz' for run in ('10', '2', '1')]
SESSIONS = [f'sub-02/ses-{label}/anat/sub-02_ses-{label}_T1w.nii' for label in ('a', 'b')]
OTHER_FILES = [
    'sub-03/anat/sub-03_T2w.nii.gz',
    'sub-03/func/sub-03_task-rest_bold.nii.gz',
    'sub-03/dwi/sub-03_T1w.nii.gz',
    'derivatives/x/sub-04/anat/sub-04_desc-preproc_T1w.nii.gz',
    'sourcedata/sub-05/anat/sub-05_T1w.nii.gz',
]


@pytest.fixture
def dataset(make_dataset):
    return make_dataset(*RUNS, *SESSIONS, *OTHER_FILES)


@pytest.fixture
def filter_file(tmp_path):
    def write(content):
        path = tmp_path / 'filter.json'
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def _names(images):
    return [image.path.name for image in images]


def test_one_image_for_each_participant_and_session(dataset):
    images = find_t1w(dataset)
    assert [(i.participant, i.session, i.run) for i in images] == [
        ('01', None, '1'),
        ('02', 'a', None),
        ('02', 'b', None),
    ]
    assert [image.name for image in images] == ['sub-01', 'sub-02_ses-a', 'sub-02_ses-b']
    assert all(image.path.is_relative_to(dataset) and image.path.is_file() for image in images)


def test_the_first_run_is_taken_and_the_choice_recorded(dataset, caplog):
    with caplog.at_level(logging.INFO, 'surreal_bids'):
        (image,) = find_t1w(dataset, participants=['01'])
    assert [path.name[7:-11] for path in image.passed_over] == ['run-2', 'run-10']
    assert 'sub-01: 3 T1w images found; using the first one, sub-01_run-1_T1w.nii.gz' in caplog.text


@pytest.mark.parametrize(
    ('selection', 'expected'),
    [
        ({'participants': ['02']}, ['02_ses-a', '02_ses-b']),
        ({'filters': {'run': 2}}, ['01_run-2']),
        ({'filters': {'run': '02'}}, ['01_run-2']),
        ({'filters': {'run': [10, 2]}}, ['01_run-2']),
        ({'filters': {'subject': '01', 'run': '10'}}, ['01_run-10']),
        ({'filters': {'session': 'a'}}, ['02_ses-a']),
        ({'filters': {'suffix': 'T2w'}}, ['03']),
        ({'filters': {'suffix': 'T2w'}, 'participants': ['01']}, []),
        ({'filters': {'extension': 'nii'}}, ['02_ses-a', '02_ses-b']),
        ({'filters': {'subject': '../sub-01'}}, []),
    ],
)
@pytest.mark.parametrize('stored', [False, True])
def test_selections(dataset, tmp_path, selection, expected, stored):
    database_dir = tmp_path / 'database' if stored else None
    images = find_t1w(dataset, **selection, database_dir=database_dir)
    assert [name.rsplit('_', 1)[0] for name in _names(images)] == [f'sub-{e}' for e in expected]


@pytest.mark.parametrize(
    ('value', 'expected'),
    [
        (None, ['sub-02_ses-a_T1w.nii', 'sub-02_ses-b_T1w.nii']),
        ('*', ['sub-01_run-1_T1w.nii.gz']),
        ([None, '2'], ['sub-01_run-2_T1w.nii.gz', 'sub-02_ses-a_T1w.nii', 'sub-02_ses-b_T1w.nii']),
    ],
)
def test_a_filter_file_asks_for_absent_and_present_entities(dataset, filter_file, value, expected):
    filters = read_filters(filter_file({'t1w': {'run': value}, 'bold': {'task': 'rest'}}))
    assert _names(find_t1w(dataset, filters=filters)) == expected


def test_phase_images_are_no_t1w_images(make_dataset):
    root = make_dataset(*(f'sub-01/anat/sub-01_part-{p}_T1w.nii.gz' for p in ('phase', 'mag')))
    assert _names(find_t1w(root)) == ['sub-01_part-mag_T1w.nii.gz']


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        ('{"t1w"', 'cannot be read as JSON'),
        ([1], 'expected {"t1w"'),
        ({'t1w': 'x'}, 'expected {"t1w"'),
        ({'T1W': {}, 'pet': {}}, 'unknown query T1W, pet; use "t1w"'),
        ({'t1w': {'aquisition': 'x'}}, 'unknown entity aquisition .* acquisition'),
        ({'t1w': {'run': 1.5}}, 'run is 1.5; expected'),
        ({'t1w': {'run': {'x': 1}}}, 'run is {"x": 1}; expected'),
        ({'t1w': {'run': [True]}}, 'run is true; expected'),
    ],
)
def test_a_wrong_filter_file_is_explained(filter_file, content, message):
    with pytest.raises(UsageError, match=message):
        read_filters(filter_file(content))


def test_an_absent_filter_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r'none\.json: no such file'):
        read_filters(tmp_path / 'none.json')


def test_a_suffix_must_be_named(dataset, filter_file):
    with pytest.raises(UsageError, match='suffix in the filter'):
        find_t1w(dataset, filters=read_filters(filter_file({'t1w': {'suffix': [None]}})))


@pytest.mark.parametrize('name', ['sub-09_T1w.nii.gz', 'scan_T1w.nii.gz', 'sub-011_T1w.nii.gz'])
def test_a_file_not_named_after_its_folder_is_not_used(make_dataset, caplog, name):
    root = make_dataset(f'sub-01/anat/{name}', 'sub-02/anat/sub-02_T1w.nii.gz', name='sub-study')
    assert _names(find_t1w(root)) == ['sub-02_T1w.nii.gz']
    assert f'{name}: its name does not match its folders' in caplog.text


def test_links_are_followed_and_paths_stay_in_the_dataset(make_dataset):
    root = make_dataset()
    store = make_dataset('sub-01/anat/sub-01_T1w.nii.gz', '.git/annex/key.nii.gz', name='store')
    (root / 'sub-01').symlink_to(store / 'sub-01')
    (root / 'sub-02' / 'anat').mkdir(parents=True)
    link = root / 'sub-02' / 'anat' / 'sub-02_T1w.nii.gz'
    link.symlink_to(store / '.git/annex/key.nii.gz')
    paths = [image.path for image in find_t1w(root)]
    assert paths == [root / 'sub-01/anat/sub-01_T1w.nii.gz', link]


def test_the_same_images_as_an_unrestricted_index(dataset):
    everything = BIDSLayout(dataset).get(suffix='T1w', datatype='anat', return_type='filename')
    found = [str(p) for image in find_t1w(dataset) for p in (image.path, *image.passed_over)]
    assert sorted(found) == sorted(everything)


def test_a_real_dataset():
    images = find_t1w(shared_data('ds002748-subset'))
    assert [image.participant for image in images] == ['01', '02', '03', '52', '53', '54']


@pytest.mark.parametrize('wanted', [[], ['03', '01']])
def test_participants_in_the_order_of_their_labels(dataset, wanted):
    expected = sorted(wanted) or ['01', '02', '03']
    assert select_participants(dataset, wanted) == expected


def test_absent_participants_are_named_with_those_that_exist(dataset):
    with pytest.raises(NothingMatchedError, match=r'no participant 7, 1 .*are: 01, 02, 03; corr'):
        select_participants(dataset, ['7', '01', '1', '7'])


def test_with_many_participants_the_nearest_are_named(make_dataset):
    root = make_dataset()
    for number in range(100):
        (root / f'sub-OAS{number:04d}').mkdir()
    with pytest.raises(NothingMatchedError, match=r'nearest of 100 are:.* OAS0042'):
        select_participants(root, ['OAS042'])


def test_a_dataset_without_participants(make_dataset):
    with pytest.raises(NothingMatchedError, match='there are no participants'):
        select_participants(make_dataset())


def test_sessions(dataset):
    assert select_sessions(dataset, ['01']) == []
    assert select_sessions(dataset, ['01', '02'], ['b']) == ['b']
    with pytest.raises(NothingMatchedError, match=r'no session c in .* are: a, b'):
        select_sessions(dataset, ['02'], ['c'])


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (None, 'not a BIDS dataset .*; give the folder'),
        ('{', 'not valid JSON'),
        ('[]', 'not a JSON object'),
    ],
)
def test_a_folder_that_is_no_dataset(tmp_path, content, message):
    if content is not None:
        (tmp_path / 'dataset_description.json').write_text(content)
    with pytest.raises(NotBIDSError, match=message):
        read_description(tmp_path)


def test_an_absent_folder(tmp_path):
    with pytest.raises(NotBIDSError, match='no such folder'):
        read_description(tmp_path / 'x')


def test_a_description_with_a_byte_order_mark(tmp_path):
    (tmp_path / 'dataset_description.json').write_text('{"Name": "x"}', encoding='utf-8-sig')
    assert read_description(tmp_path) == {'Name': 'x'}


@pytest.mark.parametrize(
    ('value', 'expected'),
    [('01', True), ('A+b', True), ('', False), ('../x', False), ('a_b', False), ('a\n', False)],
)
def test_labels(value, expected):
    assert is_label(value) is expected


@pytest.mark.parametrize(
    ('available', 'expected'),
    [
        ([], 'there are none'),
        (['a', 'b'], 'there are: a, b'),
        (['a', 'b'] * 10, f'there are: {", ".join(["a", "b"] * 5)} and 10 more'),
    ],
)
def test_alternatives(available, expected):
    assert alternatives(['xyz'], available) == expected


IMAGE = 'sub-{0}/anat/sub-{0}_T1w.nii.gz'


@pytest.fixture
def settled(make_dataset, monkeypatch):
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


def _found(settled, database_dir, **selection):
    return [i.participant for i in find_t1w(settled, database_dir=database_dir, **selection)]


def test_an_unchanged_dataset_is_read_once_whatever_is_selected(settled, tmp_path, count_crawls):
    assert _found(settled, tmp_path / 'db', participants=['02']) == ['02']
    assert _found(settled, tmp_path / 'db') == ['01', '02', '03']
    assert _found(settled, tmp_path / 'db', participants=['01', '03']) == ['01', '03']
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
def test_any_change_of_the_files_is_noticed(settled, tmp_path, change):
    before = find_t1w(settled, database_dir=tmp_path / 'db')
    change(settled)
    after = find_t1w(settled, database_dir=tmp_path / 'db')
    assert after == find_t1w(settled)
    assert after != before


def test_other_suffixes_have_an_index_of_their_own(settled, tmp_path):
    (settled / 'sub-01/anat/sub-01_UNIT1.nii.gz').touch()
    assert _found(settled, tmp_path / 'db') == ['01', '02', '03']
    assert _found(settled, tmp_path / 'db', filters={'suffix': 'UNIT1'}) == ['01']
    assert len(list((tmp_path / 'db').iterdir())) == 2


def test_the_index_of_another_program_is_left_alone(settled, tmp_path):
    foreign = tmp_path / 'db' / database.DATABASE
    foreign.parent.mkdir()
    foreign.write_bytes(b'not ours')
    assert _found(settled, tmp_path / 'db') == ['01', '02', '03']
    assert foreign.read_bytes() == b'not ours'


def test_a_dataset_changed_just_now_is_not_stored(settled, tmp_path, monkeypatch):
    monkeypatch.setattr(database, 'SETTLED_NS', 3_600_000_000_000)
    assert _found(settled, tmp_path / 'db') == ['01', '02', '03']
    assert not (tmp_path / 'db').exists()


def test_a_database_folder_that_cannot_be_made(settled, tmp_path):
    (tmp_path / 'db').write_text('')
    with pytest.raises(OutputError, match='cannot be written'):
        find_t1w(settled, database_dir=tmp_path / 'db')


def test_folders_that_count(settled):
    (settled / 'sub-01' / 'func').mkdir()
    assert [state[0] for state in database.folder_states(settled)] == [
        '.',
        'sub-01',
        'sub-01/anat',
        'sub-02',
        'sub-02/anat',
        'sub-03',
        'sub-03/ses-1',
        'sub-03/ses-1/anat',
    ]
