from dataclasses import replace
from pathlib import Path

import pytest

from surreal_bids.bids.layout import T1wImage
from surreal_bids.cli import plan as identity
from surreal_bids.cli.plan import choose_library, steps_dir, study_identity, template_name
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import DataError, UsageError


@pytest.fixture
def images(tmp_path):
    """Images of four people, the first of whom has two sessions."""
    labels = [('01', 'a'), ('01', 'b'), ('02', 'a'), ('03', 'a'), ('04', 'a')]
    found = []
    for participant, session in labels:
        path = tmp_path / f'sub-{participant}_ses-{session}_T1w.nii.gz'
        path.write_text(path.name)
        found.append(T1wImage(participant, session, None, path))
    return found


@pytest.fixture
def config(tmp_path):
    return AppConfig(tmp_path, tmp_path / 'out', ('participant',))


@pytest.mark.parametrize(
    ('changes', 'matters'),
    [
        ({'segmentation_mode': 'fast'}, True),
        ({'ravens_smoothing': 8.0}, True),
        ({'template_resolution': 2.0}, True),
        ({'template_library': 2}, True),
        ({'nprocs': 3, 'mem_gb': 8.0, 'omp_nthreads': 2}, False),
        ({'random_seed': 5}, False),
        ({'n_patterns': (2,), 'covariates': ('age',)}, False),
    ],
)
def test_only_options_that_change_outputs_matter(config, images, changes, matters):
    before = study_identity(config, images)
    assert (study_identity(replace(config, **changes), images) != before) == matters


@pytest.mark.parametrize('option', ['atlas', 'template'])
def test_files_of_atlas_and_template_matter(config, images, tmp_path, option):
    folder = tmp_path / 'files'
    folder.mkdir()
    path = folder / 'tpl-x_T1w.nii.gz'
    path.write_text('one')
    changed = replace(config, **{option: str(folder)})
    before = study_identity(changed, images)
    assert before != study_identity(config, images)
    path.write_text('two')
    assert study_identity(changed, images) != before


@pytest.mark.parametrize('option', ['atlas', 'template'])
def test_a_folder_that_is_not_there_is_known_at_once(config, images, tmp_path, option):
    with pytest.raises(DataError, match=rf'--{option} .*nowhere: (no such folder|0 files)'):
        study_identity(replace(config, **{option: str(tmp_path / 'nowhere')}), images)


def test_steps_of_other_programs_data_and_templates_are_kept_apart(config, tmp_path, monkeypatch):
    path = tmp_path / 'tpl-x_T1w.nii.gz'
    path.write_text('one')
    own = replace(config, template=str(tmp_path))
    other = replace(config, bids_dir=tmp_path / 'other')
    folders = [steps_dir(each) for each in (config, own, other)]
    folders.append(steps_dir(replace(config, output_dir=tmp_path / 'out2')))
    path.write_text('two')
    folders.append(steps_dir(own))
    monkeypatch.setattr(identity, '__version__', '99')
    folders.append(steps_dir(config))
    assert len(set(folders)) == len(folders)
    assert steps_dir(replace(config, nprocs=7)) == folders[-1]


def test_a_library_has_one_image_of_each_person(images):
    chosen = choose_library(images, 4, seed=0)
    assert [image.participant for image in chosen] == ['01', '02', '03', '04']
    assert chosen[0].session == 'a'
    assert choose_library(images, 0, seed=0) == []


def test_a_library_depends_on_the_seed_alone(images):
    drawn = {tuple(i.name for i in choose_library(images, 2, seed)) for seed in range(60)}
    assert len(drawn) == 6, 'all pairs of four people'
    assert choose_library(images, 2, 3) == choose_library(images, 2, 3)


@pytest.mark.parametrize('number', [1, 5])
def test_libraries_that_cannot_be(images, number):
    with pytest.raises(UsageError, match=f'--template-library {number}: expected 2 to 4'):
        choose_library(images, number, seed=0)


@pytest.mark.parametrize(
    ('names', 'expected'),
    [(['tpl-Mine_T1w.nii.gz'], 'Mine'), (['tpl-Mine_res-01_T1w.nii.gz'], 'Mine')],
)
def test_name_of_a_template(config, tmp_path, names, expected):
    for name in names:
        (tmp_path / name).touch()
    assert template_name(config) == 'MNI152NLin2009cAsym'
    assert template_name(replace(config, template=str(tmp_path))) == expected


@pytest.mark.parametrize('names', [[], ['tpl-a_T1w.nii.gz', 'tpl-b_T1w.nii.gz']])
def test_folders_that_are_no_template(config, tmp_path, names):
    folder = tmp_path / 'template'
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    with pytest.raises(DataError, match=f'{len(names)} files tpl-NAME_T1w.nii.gz, where one'):
        template_name(replace(config, template=str(Path(folder))))
