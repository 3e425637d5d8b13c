import json
from pathlib import Path

import pytest

from surreal_bids.bids.derivatives import atlas_label, derivative_folders, segmentation_label
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import UsageError


def _config(**options):
    return AppConfig(Path('in'), Path('out'), ('participant',), **options)


@pytest.mark.parametrize(
    ('options', 'expected'),
    [
        ({}, 'network'),
        ({'segmentation': '/data/other'}, 'other'),
        ({'segmentation': '/data/my-atlas_2'}, 'myatlas2'),
        ({'segmentation': '/data/Größe'}, 'Gre'),
        ({'derivatives': ('fmriprep=.', 'lesions=.')}, 'network'),
        ({'derivatives': ('fmriprep=.', 'dlmuse=.')}, 'dlmuse'),
    ],
)
def test_label_of_the_regions(options, expected):
    assert segmentation_label(_config(**options)) == expected


def test_an_atlas_needs_a_name_that_bids_allows():
    with pytest.raises(UsageError, match='rename the folder'):
        atlas_label(_config(segmentation='/data/_-_'))


def test_names_that_cannot_be():
    with pytest.raises(UsageError, match='a and b are segmentations; give only one'):
        segmentation_label(_config(derivatives=('a=.', 'b=.')))
    with pytest.raises(UsageError, match='letters and digits'):
        segmentation_label(_config(derivatives=('a-b=.',)))


def _folders(*derivatives):
    return derivative_folders(_config(derivatives=tuple(map(str, derivatives))))


def test_folders_by_name(tmp_path):
    named = {'fmriprep': tmp_path, 'dlmuse': tmp_path}
    assert _folders(*(f'{name}={path}' for name, path in named.items())) == named


@pytest.mark.parametrize('name', ['fmriprp', 'FreeSurfer', 'freesurfr', 'lesion', 'fmriprepx'])
def test_names_of_programs_may_not_be_misspelt(tmp_path, name):
    """They would be names of new segmentations."""
    with pytest.raises(UsageError, match=rf'{name}=.*: did you mean (fmriprep|freesurfer|lesions)'):
        _folders(f'{name}={tmp_path}')
    for other in ('freesurfer7', 'synthseg2', 'aseg', 'hammers', 'mymuse'):
        assert list(_folders(f'{other}={tmp_path}')) == [other]


def test_folders_that_cannot_be():
    for given, message in (
        (['fmriprep='], 'expected NAME=PATH'),
        (['a=nowhere'], 'a=nowhere: no such folder; correct'),
        (['nowhere'], 'nowhere: no such folder; give an existing folder, or NAME=PATH'),
        (['a=.', 'a=.'], 'a is given twice'),
    ):
        with pytest.raises(UsageError, match=message):
            _folders(*given)


@pytest.mark.parametrize(
    ('description', 'name'),
    [
        ({'GeneratedBy': [{'Name': 'fMRIPrep', 'Version': '23.2.1'}]}, 'fmriprep'),
        ({'GeneratedBy': [{'Name': 'sMRIPrep'}, {'Name': 'other'}]}, 'smriprep'),
        ({'PipelineDescription': {'Name': 'fMRIPrep', 'Version': '20.0.7'}}, 'fmriprep'),
        ({'GeneratedBy': [{'Name': 'Fast-Surfer 2'}]}, 'fastsurfer2'),
    ],
)
def test_the_description_names_the_program(tmp_path, description, name):
    folder = tmp_path / 'ab'
    folder.mkdir()
    (folder / 'dataset_description.json').write_text(json.dumps(description))
    assert _folders(folder) == {name: folder}


@pytest.mark.parametrize('given', ['fmriprep={}', '{}'])
def test_results_below_the_outputs_as_fmriprep_had_them(tmp_path, given):
    (tmp_path / 'fmriprep' / 'sub-01').mkdir(parents=True)
    description = json.dumps({'GeneratedBy': [{'Name': 'fMRIPrep'}]})
    (tmp_path / 'fmriprep' / 'dataset_description.json').write_text(description)
    assert _folders(given.format(tmp_path)) == {'fmriprep': tmp_path / 'fmriprep'}


@pytest.mark.parametrize('below', ['', 'freesurfer', 'sourcedata/freesurfer'])
def test_a_subjects_dir_of_freesurfer(tmp_path, below):
    (tmp_path / 'sub-01' / 'anat').mkdir(parents=True)
    (tmp_path / below / 'sub-01' / 'mri').mkdir(parents=True)
    (tmp_path / below / 'sub-01' / 'mri' / 'aparc+aseg.mgz').touch()
    assert _folders(f'freesurfer={tmp_path}') == {'freesurfer': tmp_path / below}
    assert _folders(tmp_path / below) == {'freesurfer': tmp_path / below}


def test_fastsurfer_is_told_from_freesurfer(tmp_path):
    folder = tmp_path / 'sub-01' / 'mri'
    folder.mkdir(parents=True)
    for name in ('aparc.DKTatlas+aseg.deep.mgz', 'aparc+aseg.mgz'):
        (folder / name).touch()
    assert _folders(tmp_path) == {'fastsurfer': tmp_path}


def test_a_folder_that_does_not_show_what_it_is(tmp_path):
    for content in ('', '{"GeneratedBy": []}', '{"Name": "x"}', '{'):
        (tmp_path / 'dataset_description.json').write_text(content)
        with pytest.raises(UsageError, match=r'give a name, such as fmriprep='):
            _folders(tmp_path)
