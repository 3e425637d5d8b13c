import json
import logging

import pytest
from bids import BIDSLayout

from surreal_bids.bids.layout import (
    find_t1w,
    read_description,
    read_filters,
    select_participants,
    select_sessions,
)
from surreal_bids.exceptions import NotBIDSError, NothingMatchedError, UsageError

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


@pytest.mark.slow
def test_selections(dataset):
    for selection, expected in [
        ({'participants': ['02']}, ['02_ses-a', '02_ses-b']),
        ({'filters': {'run': '02'}}, ['01_run-2']),
        ({'filters': {'run': [10, 2]}}, ['01_run-2']),
        ({'filters': {'subject': '01', 'run': '10'}}, ['01_run-10']),
        ({'filters': {'session': 'a'}}, ['02_ses-a']),
        ({'filters': {'suffix': 'T2w'}, 'participants': ['01']}, []),
        ({'filters': {'extension': 'nii'}}, ['02_ses-a', '02_ses-b']),
        ({'filters': {'subject': '../sub-01'}}, []),
    ]:
        names = [name.rsplit('_', 1)[0] for name in _names(find_t1w(dataset, **selection))]
        assert names == [f'sub-{each}' for each in expected]


def test_a_filter_file_asks_for_absent_and_present_entities(dataset, filter_file):
    for value, expected in [
        (None, ['sub-02_ses-a_T1w.nii', 'sub-02_ses-b_T1w.nii']),
        ('*', ['sub-01_run-1_T1w.nii.gz']),
    ]:
        filters = read_filters(filter_file({'t1w': {'run': value}, 'bold': {'task': 'rest'}}))
        assert _names(find_t1w(dataset, filters=filters)) == expected


def test_phase_images_are_no_t1w_images(make_dataset):
    root = make_dataset(*(f'sub-01/anat/sub-01_part-{p}_T1w.nii.gz' for p in ('phase', 'mag')))
    assert _names(find_t1w(root)) == ['sub-01_part-mag_T1w.nii.gz']


def test_a_wrong_filter_file_is_explained(filter_file, tmp_path, dataset):
    for content, message in [
        ('{"t1w"', 'cannot be read as JSON'),
        ({'t1w': 'x'}, 'expected {"t1w"'),
        ({'T1W': {}, 'pet': {}}, 'unknown query T1W, pet; use "t1w"'),
        ({'t1w': {'aquisition': 'x'}}, 'unknown entity aquisition .* acquisition'),
        ({'t1w': {'run': {'x': 1}}}, 'run is {"x": 1}; expected'),
        ({'t1w': {'run': [True]}}, 'run is true; expected'),
    ]:
        with pytest.raises(UsageError, match=message):
            read_filters(filter_file(content))
    with pytest.raises(UsageError, match=r'none\.json: No such file'):
        read_filters(tmp_path / 'none.json')
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


@pytest.mark.slow
def test_the_same_images_as_an_unrestricted_index(dataset):
    everything = BIDSLayout(dataset).get(suffix='T1w', datatype='anat', return_type='filename')
    found = [str(p) for image in find_t1w(dataset) for p in (image.path, *image.passed_over)]
    assert sorted(found) == sorted(everything)


def test_labels_that_exist_are_selected_and_others_named(dataset, make_dataset):
    assert select_participants(dataset, ['03', '01']) == ['01', '03']
    assert select_sessions(dataset, ['01']) == []
    assert select_sessions(dataset, ['01', '02'], ['b']) == ['b']
    with pytest.raises(NothingMatchedError, match=r'no participant 7, 1 .*are: 01, 02, 03; corr'):
        select_participants(dataset, ['7', '01', '1', '7'])
    with pytest.raises(NothingMatchedError, match=r'no session c in .* are: a, b'):
        select_sessions(dataset, ['02'], ['c'])
    with pytest.raises(NothingMatchedError, match='there are no participants'):
        select_participants(make_dataset(name='empty'))


def test_a_folder_that_is_no_dataset(tmp_path):
    description = tmp_path / 'dataset_description.json'
    with pytest.raises(NotBIDSError, match='no such folder'):
        read_description(tmp_path / 'x')
    with pytest.raises(NotBIDSError, match=r'not a BIDS dataset .*; give the folder'):
        read_description(tmp_path)
    for content, message in (('{', 'not valid JSON'), ('[]', 'not a JSON object')):
        description.write_text(content)
        with pytest.raises(NotBIDSError, match=message):
            read_description(tmp_path)
    description.write_text('{"Name": "x"}', encoding='utf-8-sig')
    assert read_description(tmp_path) == {'Name': 'x'}


def test_labels_are_looked_up_in_a_set_that_is_made_once(dataset):
    class Counted(list):
        """A list that counts how often it is read."""

        n_read = 0

        def __iter__(self):
            self.n_read += 1
            return super().__iter__()

    wanted = Counted(['03', '01'])
    assert select_participants(dataset, wanted) == ['01', '03']
    assert wanted.n_read == 2, 'not once for each participant of the dataset'
