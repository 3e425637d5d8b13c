from pathlib import Path

import pytest

from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.reuse import Reusable, atlas_label, find_reusable, segmentation_label
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import DataError, UsageError

TEMPLATE = 'MNI152NLin2009cAsym'
ANATOMY = {
    't1w': '_desc-preproc_T1w.nii.gz',
    'mask': '_desc-brain_mask.nii.gz',
    'anat2std_xfm': f'_from-T1w_to-{TEMPLATE}_mode-image_xfm.h5',
    'std2anat_xfm': f'_from-{TEMPLATE}_to-T1w_mode-image_xfm.h5',
}
TISSUES = [f'_label-{tissue}_probseg.nii.gz' for tissue in ('GM', 'WM', 'CSF')]


def _touch(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def _image(session=None, run=None):
    return T1wImage('01', session, run, Path('T1w.nii.gz'))


@pytest.mark.parametrize('name', ['fmriprep', 'smriprep'])
@pytest.mark.parametrize('session', [None, 'pre'])
def test_all_of_an_anatomical_workflow(tmp_path, name, session):
    image = _image(session)
    folder = tmp_path / 'sub-01' / (f'ses-{session}' if session else '') / 'anat'
    names = [f'{image.name}{ending}' for ending in (*ANATOMY.values(), *TISSUES)]
    in_template = [f'{image.name}_space-{TEMPLATE}{ending}' for ending in ANATOMY.values()]
    _touch(folder, *names, *in_template, f'{image.name}_dseg.nii.gz')
    found = find_reusable({name: tmp_path}, image, TEMPLATE)
    assert {what: getattr(found, what).name for what in ANATOMY} == {
        what: image.name + ending for what, ending in ANATOMY.items()
    }
    assert [path.name for path in found.tpms] == [image.name + ending for ending in TISSUES]
    assert found.dseg is None
    assert len(found.files) == 7


@pytest.mark.parametrize('missing', [*ANATOMY, 'tpms'])
def test_what_is_missing_is_left_open(tmp_path, missing):
    endings = {**ANATOMY, 'tpms': TISSUES[0]}
    _touch(
        tmp_path / 'sub-01' / 'anat',
        *(f'sub-01{ending}' for what, ending in endings.items() if what != missing),
        *(f'sub-01{ending}' for ending in TISSUES[1:]),
    )
    found = find_reusable({'fmriprep': tmp_path}, _image(), TEMPLATE)
    assert not getattr(found, missing)
    assert (found == Reusable()) == (missing == 't1w'), 'without its T1w the rest has no place'


def test_another_session_or_template_does_not_count(tmp_path):
    _touch(tmp_path / 'sub-01' / 'anat', *(f'sub-01{ending}' for ending in ANATOMY.values()))
    assert find_reusable({'fmriprep': tmp_path}, _image('pre'), TEMPLATE) == Reusable()
    assert find_reusable({'fmriprep': tmp_path}, _image(), 'Other').anat2std_xfm is None


@pytest.mark.parametrize(
    ('folder', 'name'),
    [
        ('sub-01/anat', 'sub-01_dseg.nii.gz'),
        ('sub-01/anat', 'sub-01_seg-dlmuse_dseg.nii.gz'),
        ('sub-01', 'sub-01_desc-aseg_dseg.nii'),
        ('', 'sub-01_T1w_DLMUSE.nii.gz'),
    ],
)
def test_segmentations_by_their_names(tmp_path, folder, name):
    _touch(tmp_path / folder, name)
    found = find_reusable({'dlmuse': tmp_path}, _image(), TEMPLATE)
    assert (found.dseg.name, found.dseg_name, found.dseg_table) == (name, 'dlmuse', None)


@pytest.mark.parametrize(
    ('table', 'expected'),
    [
        ('sub-01/anat/sub-01_desc-aseg_dseg.tsv', True),
        ('desc-aseg_dseg.tsv', True),
        ('dseg.tsv', True),
        ('sub-02/anat/sub-02_desc-aseg_dseg.tsv', False),
    ],
)
def test_tables_of_labels(tmp_path, table, expected):
    _touch(tmp_path / 'sub-01' / 'anat', 'sub-01_desc-aseg_dseg.nii.gz')
    _touch((tmp_path / table).parent, Path(table).name)
    if expected:
        found = find_reusable({'synthseg': tmp_path}, _image(), TEMPLATE)
        assert found.dseg_table == tmp_path / table
    else:
        with pytest.raises(DataError, match=r'no table names its labels; add .*dseg\.tsv'):
            find_reusable({'synthseg': tmp_path}, _image(), TEMPLATE)


@pytest.mark.parametrize(
    ('run', 'expected'),
    [('2', 'sub-01_run-2_dseg.nii.gz'), ('02', 'sub-01_run-2_dseg.nii.gz'), ('1', None)],
)
def test_runs_tell_several_files_apart(tmp_path, run, expected):
    _touch(tmp_path, *(f'sub-01_run-{number}_dseg.nii.gz' for number in (2, 3)))
    found = find_reusable({'dlmuse': tmp_path}, _image(run=run), TEMPLATE)
    assert (found.dseg.name if found.dseg else None) == expected


@pytest.mark.parametrize(('run', 'found'), [('1', True), ('01', True), ('2', False), (None, False)])
def test_a_lone_file_of_another_run_is_not_taken(tmp_path, run, found):
    _touch(tmp_path, 'sub-01_run-1_dseg.nii.gz')
    assert bool(find_reusable({'dlmuse': tmp_path}, _image(run=run), TEMPLATE).dseg) == found


def test_of_two_files_the_one_that_names_the_run_is_taken(tmp_path):
    _touch(tmp_path, 'sub-01_dseg.nii.gz', 'sub-01_run-1_dseg.nii.gz')
    found = find_reusable({'dlmuse': tmp_path}, _image(run='1'), TEMPLATE)
    assert found.dseg.name == 'sub-01_run-1_dseg.nii.gz'


@pytest.mark.parametrize('alone', ['anat2std_xfm', 'std2anat_xfm'])
def test_one_transform_without_the_other_is_of_no_use(tmp_path, alone):
    _touch(tmp_path / 'sub-01/anat', f'sub-01{ANATOMY["t1w"]}', f'sub-01{ANATOMY[alone]}')
    found = find_reusable({'fmriprep': tmp_path}, _image(), TEMPLATE)
    assert list(found.files) == ['T1w image']


def test_too_many_files_are_named(tmp_path):
    _touch(tmp_path, 'sub-01_desc-a_dseg.nii.gz', 'sub-01_desc-b_dseg.nii.gz')
    with pytest.raises(DataError, match=r'2 files .*desc-a_dseg.*keep the one'):
        find_reusable({'dlmuse': tmp_path}, _image(), TEMPLATE)


def _config(**options):
    return AppConfig(Path('in'), Path('out'), ('participant',), **options)


@pytest.mark.parametrize(
    ('options', 'expected'),
    [
        ({}, 'network'),
        ({'segmentation': 'multi-atlas'}, 'muse'),
        ({'segmentation': 'multi-atlas', 'atlas': '/data/other'}, 'other'),
        ({'atlas': '/data/my-atlas_2'}, 'myatlas2'),
        ({'atlas': '/data/Größe'}, 'Gre'),
        ({'derivatives': ('fmriprep=.',)}, 'network'),
        ({'derivatives': ('fmriprep=.', 'dlmuse=.')}, 'dlmuse'),
    ],
)
def test_label_of_the_regions(options, expected):
    assert segmentation_label(_config(**options)) == expected


def test_an_atlas_needs_a_name_that_bids_allows():
    with pytest.raises(UsageError, match='rename the folder'):
        atlas_label(_config(atlas='/data/_-_'))


def test_labels_of_atlases():
    assert atlas_label(_config(derivatives=('dlmuse=.',))) == 'network'


def test_the_network_has_no_atlas():
    with pytest.raises(UsageError, match='leave out --atlas'):
        atlas_label(_config(segmentation='network', atlas='/data/other'))


@pytest.mark.parametrize(
    ('derivatives', 'message'),
    [(('a=.', 'b=.'), 'a and b are segmentations; give one'), (('a-b=.',), 'letters and digits')],
)
def test_names_that_cannot_be(derivatives, message):
    with pytest.raises(UsageError, match=message):
        segmentation_label(_config(derivatives=derivatives))
