from pathlib import Path

import pytest

from surreal_bids.bids.derivatives import (
    LESION,
    LESION_MASKS,
    LESIONS,
    PROGRAMS,
    SEGMENTATIONS,
    Reusable,
    derivative_folders,
    find_reusable,
)
from surreal_bids.bids.layout import T1wImage, _describe
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import DataError
from tests.bids.fmriprep_trees import (
    ACQUISITIONS,
    LAYOUTS,
    RUNS,
    SESSIONS,
    TEMPLATE,
    Layout,
    write_tree,
)

ANATOMY = {
    't1w': '_desc-preproc_T1w.nii.gz',
    'mask': '_desc-brain_mask.nii.gz',
    'anat2std_xfm': f'_from-T1w_to-{TEMPLATE}_mode-image_xfm.h5',
    'std2anat_xfm': f'_from-{TEMPLATE}_to-T1w_mode-image_xfm.h5',
}
TISSUES = [f'_label-{tissue}_probseg.nii.gz' for tissue in ('GM', 'WM', 'CSF')]


def test_the_documentation_lists_every_file_that_is_read():
    page = (Path(__file__).resolve().parents[2] / 'docs' / 'images.md').read_text('utf-8')
    table = page.partition('## Existing results')[2].partition('\n## ')[0]
    anatomy = [*(each.replace(TEMPLATE, 'TEMPLATE') for each in ANATOMY.values()), TISSUES[0]]
    segmentations = [f'_{suffix}.nii.gz' for suffix in SEGMENTATIONS]
    reconstructions = [file for program in PROGRAMS.values() for file in program.files]
    lesions = [f'_{ending}.nii.gz' for ending in LESION_MASKS]
    names = [*anatomy, *segmentations, *reconstructions, *lesions]
    assert [name for name in names if name not in table] == []


def _touch(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def _image(session=None, run=None, participant='01'):
    return T1wImage(participant, session, run, Path('raw/sub/ses/anat/T1w.nii.gz'))


@pytest.mark.parametrize('missing', [*ANATOMY, 'tpms'])
def test_what_is_missing_is_left_open(tmp_path, missing):
    endings = {**ANATOMY, 'tpms': TISSUES[0]}
    _touch(
        tmp_path / 'sub-01' / 'anat',
        *(f'sub-01{ending}' for what, ending in endings.items() if what != missing),
        *(f'sub-01{ending}' for ending in TISSUES[1:]),
    )
    found = find_reusable({'fmriprep': tmp_path}, _image())
    assert not getattr(found, missing)
    assert bool(found.anat2std_xfm) == bool(found.std2anat_xfm), 'one transform is of no use'
    assert (found == Reusable()) == (missing == 't1w'), 'without its T1w the rest has no place'


def test_another_session_or_template_does_not_count(tmp_path):
    _touch(tmp_path / 'sub-01' / 'anat', *(f'sub-01{ending}' for ending in ANATOMY.values()))
    _touch(tmp_path / 'sub-01/ses-a/anat', *(f'sub-01_ses-a{each}' for each in ANATOMY.values()))
    found = find_reusable({'fmriprep': tmp_path}, _image())
    assert found.t1w.name == f'sub-01{ANATOMY["t1w"]}'
    for path in tmp_path.rglob('*_xfm.h5'):
        path.rename(str(path).replace(TEMPLATE, 'Other'))
    assert find_reusable({'fmriprep': tmp_path}, _image()).anat2std_xfm is None


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
    found = find_reusable({'dlmuse': tmp_path}, _image())
    assert (found.dseg.name, found.dseg_name, found.dseg_table) == (name, 'dlmuse', None)


@pytest.mark.parametrize(
    ('table', 'expected'),
    [
        ('sub-01/anat/sub-01_desc-mine_dseg.tsv', True),
        ('desc-mine_dseg.tsv', True),
        ('dseg.tsv', True),
        ('sub-02/anat/sub-02_desc-mine_dseg.tsv', False),
    ],
)
def test_tables_of_labels(tmp_path, table, expected):
    _touch(tmp_path / 'sub-01' / 'anat', 'sub-01_desc-mine_dseg.nii.gz')
    _touch((tmp_path / table).parent, Path(table).name)
    if expected:
        found = find_reusable({'other': tmp_path}, _image())
        assert found.dseg_table == tmp_path / table
    else:
        with pytest.raises(DataError, match=r'dseg.*add .*dseg\.tsv'):
            find_reusable({'other': tmp_path}, _image())


@pytest.mark.parametrize(
    ('run', 'expected'),
    [('2', 'sub-01_run-2_dseg.nii.gz'), ('02', 'sub-01_run-2_dseg.nii.gz'), ('1', None)],
)
def test_runs_tell_several_files_apart(tmp_path, run, expected):
    _touch(tmp_path, *(f'sub-01_run-{number}_dseg.nii.gz' for number in (2, 3)))
    found = find_reusable({'dlmuse': tmp_path}, _image(run=run))
    assert (found.dseg.name if found.dseg else None) == expected


def test_of_two_files_the_one_that_names_the_run_is_taken(tmp_path):
    _touch(tmp_path, 'sub-01_dseg.nii.gz', 'sub-01_run-1_dseg.nii.gz')
    found = find_reusable({'dlmuse': tmp_path}, _image(run='1'))
    assert found.dseg.name == 'sub-01_run-1_dseg.nii.gz'


def test_too_many_files_are_named(tmp_path):
    _touch(tmp_path, 'sub-01_desc-a_dseg.nii.gz', 'sub-01_desc-b_dseg.nii.gz')
    with pytest.raises(DataError, match=r'2 files .*desc-a_dseg.*keep one'):
        find_reusable({'dlmuse': tmp_path}, _image())


def test_of_several_segmentations_the_name_chooses_by_desc(tmp_path):
    _touch(tmp_path, *(f'sub-01_desc-{each}_dseg.nii.gz' for each in 'ab'), 'sub-01_dseg.nii.gz')
    _touch(tmp_path, 'dseg.tsv')
    found = find_reusable({'B': tmp_path}, _image())
    assert (found.dseg.name, found.dseg_name) == ('sub-01_desc-b_dseg.nii.gz', 'B')


def test_a_segmentation_of_fmriprep_that_is_missing_is_not_replaced(tmp_path):
    _touch(tmp_path / 'sub-01/anat', 'sub-01_dseg.nii.gz', 'sub-01_desc-aseg_dseg.nii.gz')
    assert find_reusable({'aparcaseg': tmp_path}, _image()) == Reusable()
    found = find_reusable({'fmriprep': tmp_path, 'aseg': tmp_path}, _image())
    assert (found.dseg.name, found.numbering) == ('sub-01_desc-aseg_dseg.nii.gz', 'aseg')


def _raw(root, *names):
    """The first of some raw images."""
    for name in names:
        _touch((root / name).parent, f'{Path(name).name}.nii.gz')
    return _describe(root / f'{names[0]}.nii.gz')


@pytest.mark.parametrize('layout', LAYOUTS.values(), ids=LAYOUTS)
def test_every_file_is_found_in_each_layout(tmp_path, layout):
    image = _raw(tmp_path / 'raw', *layout.raw)
    expected = write_tree(tmp_path / 'out', layout)
    derivatives = (str(tmp_path / 'out'),)
    config = AppConfig(tmp_path, tmp_path, ('participant',), derivatives=derivatives)
    found = find_reusable(derivative_folders(config), image)
    assert found == Reusable(
        anatomy_name='fmriprep',
        tpms=tuple(expected.pop(tissue) for tissue in ('GM', 'WM', 'CSF')),
        **expected,
    )
    assert all(found.found_in('fmriprep').values())


def test_results_that_may_be_of_several_sessions_or_acquisitions_are_refused(tmp_path):
    for number, (raw, kinds) in enumerate(
        [
            (SESSIONS, 'ses-a, ses-b'),
            (ACQUISITIONS, 'acq-high, acq-low'),
            ((RUNS[0], 'sub-01/anat/sub-01_ce-gd_T1w'), 'ce-gd, none'),
        ]
    ):
        folder = tmp_path / str(number)
        image = _raw(folder / 'raw', *raw)
        write_tree(folder, Layout(raw=raw))
        found = find_reusable({'fmriprep': folder}, image)
        assert found.files == {}
        assert not any(found.found_in('fmriprep').values())
        assert f'several sessions or acquisitions ({kinds})' in found.refused['fmriprep']


@pytest.mark.parametrize('entity', ['acq-b', 'rec-b', 'ce-b', 'run-2', 'ses-b', 'task-b'])
def test_results_of_another_image_are_never_taken(tmp_path, entity):
    image = _raw(tmp_path / 'raw', 'sub-01/anat/sub-01_T1w')
    write_tree(tmp_path, Layout(stem=f'sub-01/anat/sub-01_{entity}'))
    _touch(tmp_path, f'sub-01_{entity}_dseg.nii.gz')
    folders = {'fmriprep': tmp_path, 'dlmuse': tmp_path}
    assert find_reusable(folders, image) == Reusable()


def test_only_results_on_one_grid_are_used_together(tmp_path):
    _touch(
        tmp_path / 'sub-01/anat',
        *(f'sub-01_res-{res}{ANATOMY["t1w"]}' for res in (1, 2)),
        f'sub-01{ANATOMY["t1w"]}',
        f'sub-01_res-2{ANATOMY["mask"]}',
    )
    found = find_reusable({'fmriprep': tmp_path}, _image())
    assert (found.t1w.name, found.mask) == (f'sub-01{ANATOMY["t1w"]}', None)


FREESURFER, FASTSURFER = 'aparc+aseg.mgz', 'aparc.DKTatlas+aseg.deep.mgz'


@pytest.mark.parametrize(
    ('name', 'files', 'expected'),
    [
        ('freesurfer', [FREESURFER, 'aparc.DKTatlas+aseg.mgz', 'aseg.mgz'], 'aparc+aseg'),
        ('freesurfer', ['aseg.mgz'], None),
        ('aseg', [FREESURFER, 'aseg.mgz'], 'aseg'),
        ('fastsurfer', [FREESURFER, FASTSURFER], 'aparc.DKTatlas+aseg.deep'),
        ('mine', [FASTSURFER], 'aparc.DKTatlas+aseg.deep'),
    ],
)
def test_folders_of_freesurfer(tmp_path, name, files, expected):
    for number, (subject, session, ours) in enumerate(
        [
            *(('sub-01', None, True), ('01', None, True), ('sub-01', 'a', True)),
            *(('sub-01_ses-a', 'a', True), ('sub-01_ses-b', 'a', False)),
            *(('sub-010', None, False), ('sub-01.long.base', None, False)),
        ]
    ):
        folder = tmp_path / str(number)
        _touch(folder / subject / 'mri', *files)
        found = find_reusable({name: folder}, _image(session))
        assert bool(found.dseg) == bool(expected and ours)
        if found.dseg:
            assert (found.dseg.name, found.numbering) == (f'{expected}.mgz', expected)


def test_one_reconstruction_of_several_sessions_is_refused(tmp_path):
    image = _raw(tmp_path / 'raw', *SESSIONS)
    _touch(tmp_path / 'fs' / 'sub-01' / 'mri', FREESURFER)
    found = find_reusable({'freesurfer': tmp_path / 'fs'}, image)
    assert found.dseg is None
    assert 'several sessions' in found.refused['freesurfer']


@pytest.mark.parametrize(
    ('name', 'file', 'expected'),
    [
        ('synthseg', 'sub-01_T1w_synthseg.nii.gz', 'synthseg'),
        ('mine', 'sub-01_T1w_synthseg.nii', 'synthseg'),
        ('synthseg', 'sub-01_dseg.nii.gz', 'synthseg'),
        ('freesurfer', 'sub-01_dseg.nii.gz', 'aparc+aseg'),
        ('FastSurfer', 'sub-01_dseg.nii.gz', 'aparc.DKTatlas+aseg.deep'),
        ('mine', 'sub-01_desc-aparcaseg_dseg.nii.gz', 'aparc+aseg'),
        ('mine', 'sub-01_T1w_DLMUSE.nii.gz', 'muse'),
    ],
)
def test_labels_that_are_built_in(tmp_path, name, file, expected):
    _touch(tmp_path / 'sub-01' / 'anat', file)
    found = find_reusable({name: tmp_path}, _image())
    assert (found.dseg.name, found.numbering, found.dseg_table) == (file, expected, None)


def test_the_table_of_fmriprep_lists_too_much(tmp_path):
    _touch(tmp_path / 'sub-01' / 'anat', 'sub-01_desc-aparcaseg_dseg.nii.gz')
    _touch(tmp_path, 'desc-aparcaseg_dseg.tsv', 'desc-aseg_dseg.tsv')
    found = find_reusable({'aparcaseg': tmp_path}, _image())
    assert (found.dseg_table, found.numbering) == (None, 'aparc+aseg')


NICHART_NAMES = {
    ('IXI012HH1211', None): 'IXI012-HH-1211_T1',
    ('IXI013', None): 'IXI013',
    ('02', None): 'sub-02_T1w',
    ('01', None): '01_T1w',
    ('01', 'b2'): '01_b2_T1',
    ('1', '1'): '1_ses-1',
}
"""Names of images that NiChart was given, by participant and session."""


def test_segmentations_of_nichart_are_found_without_renaming(tmp_path):
    folder = tmp_path / 'DLMUSE_seg'
    names = {key: f'{name}_DLMUSE.nii.gz' for key, name in NICHART_NAMES.items()}
    _touch(folder, *names.values(), 'DLMUSE_Volumes.csv')
    folders = derivative_folders(
        AppConfig(Path('in'), Path('out'), (), derivatives=(str(tmp_path),))
    )
    assert list(folders) == ['dlmuse']
    for (participant, session), name in names.items():
        image = _image(participant=participant, session=session)
        found = find_reusable(folders, image)
        assert (found.dseg.name, found.numbering) == (name, 'muse')
    _touch(folder, '2-1_T1_DLMUSE.nii.gz', 'A3_1_T1_DLMUSE.nii.gz')
    for other in ('IXI012', '11', '21', 'A31', 'A3'):
        assert find_reusable(folders, _image(participant=other)).dseg is None


LESION_NAMES = {
    'sub-01_label-lesion_mask.nii.gz': {'01', '01_acq-a', '01_run-1'},
    'sub-01_run-1_label-lesion_mask.nii.gz': {'01_run-1'},
    'sub-01_acq-a_label-lesion_mask.nii.gz': {'01_acq-a'},
    'sub-01_space-MNI152_label-lesion_mask.nii.gz': set(),
    'sub-02_label-lesion_mask.nii.gz': set(),
    'sub-01_label-tumour_mask.nii.gz': set(),
    'sub-01_label-lesion_roi.nii.gz': {'01', '01_acq-a', '01_run-1'},
    'sub-01_run-1_T1w_label-lesion_roi.nii.gz': {'01_run-1'},
}


def _with_t1w(tmp_path, stem):
    anat = _touch(tmp_path / 'raw' / 'sub-01' / 'anat', f'sub-{stem}_T1w.nii.gz')
    run = '1' if 'run' in stem else None
    return T1wImage('01', None, run, anat / f'sub-{stem}_T1w.nii.gz')


@pytest.mark.parametrize('place', ['beside the image', 'folder'])
def test_lesion_masks_by_their_names(tmp_path, place):
    for number, (name, stems) in enumerate(LESION_NAMES.items()):
        root = tmp_path / str(number)
        for stem in ('01', '01_acq-a', '01_run-1'):
            image = _with_t1w(root, stem)
            folder = image.path.parent if place != 'folder' else root / 'masks' / 'sub-01' / 'anat'
            _touch(folder, name)
            found = find_reusable({LESIONS: root / 'masks'}, image)
            expected = folder / name if stem in stems else None
            assert found.files == ({LESION: expected} if expected else {}), (name, stem)
            in_folder = expected is not None and place == 'folder'
            assert found.names == ((LESIONS,) if in_folder else ())


def test_a_given_folder_of_lesion_masks_comes_first(tmp_path):
    image = _with_t1w(tmp_path, '01')
    _touch(image.path.parent, 'sub-01_label-lesion_mask.nii.gz')
    folder = _touch(tmp_path / 'masks', 'sub-01_label-lesion_mask.nii.gz')
    assert find_reusable({LESIONS: folder}, image).lesion.parent == folder
