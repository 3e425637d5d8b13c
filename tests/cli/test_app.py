import os
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from surreal_bids import __version__
from surreal_bids.bids.outputs import start_dataset
from surreal_bids.cli.app import main
from surreal_bids.cli.main import with_hyphens
from surreal_bids.files import write_image
from surreal_bids.rindices.model import TableModel
from tests.analysis.group_study import write_dataset
from tests.interfaces import phantom
from tests.shared_data import shared_data

PEOPLE = 'participant_id\tdiagnosis\nsub-01\tCN\nsub-02\tPT\nsub-03\tn/a\n'
IMAGES = [
    'sub-01/anat/sub-01_run-1_T1w.nii.gz',
    'sub-01/anat/sub-01_run-2_T1w.nii.gz',
    'sub-02/anat/sub-02_T1w.nii.gz',
    'sub-03/anat/sub-03_T1w.nii.gz',
]


EXCLUSION = 'The group level will exclude sub-03 (diagnosis is missing; add it).'


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    """Let three participants do."""
    monkeypatch.setattr('surreal_bids.cohort.checks.MIN_PEOPLE', 1)


@pytest.fixture
def dataset(make_dataset):
    return make_dataset(*IMAGES, participants=PEOPLE)


@pytest.fixture
def check(dataset, tmp_path, capsys):
    """Run the app on the dataset with `--dry-run`; give its exit code, output and errors."""

    def run(*options, levels=('participant',), output=tmp_path / 'out'):
        code = main([str(dataset), str(output), *levels, '--dry-run', *map(str, options)])
        written = capsys.readouterr()
        return code, written.out, written.err

    return run


def _files(root):
    return sorted((path, path.stat().st_mtime_ns) for path in root.rglob('*'))


def test_outputs_of_another_dataset_are_warned_of(check, dataset, tmp_path):
    for made_from, is_warned in ((dataset, False), (tmp_path / 'else', True)):
        start_dataset(tmp_path / 'out', made_from, {})
        code, _, err = check()
        assert code == 0
        assert ('contains outputs of another dataset, ' in err) == is_warned


def test_a_good_dataset(check, dataset, tmp_path):
    before = _files(tmp_path)
    code, out, err = check('--control-label', 'CN', levels=['participant', 'group'])
    assert code == 0
    assert err.count(EXCLUSION) == 1
    groups, *lines = out.splitlines()
    assert groups == 'Group level: 1 control and 1 patient'
    assert lines[0] == f'Tiny in {dataset}: 3 T1w images of 3 participants'
    assert [line.split() for line in lines[3:6]] == [
        ['sub-01', 'n/a', IMAGES[0], 'first', 'of', '2'],
        ['sub-02', 'n/a', IMAGES[2], 'good'],
        ['sub-03', 'n/a', IMAGES[3], 'good'],
    ]
    assert 'No problems with images.' in lines
    assert _files(tmp_path) == before, 'a dry run writes nothing'


def test_a_model_is_loaded_once(check, dataset, monkeypatch):
    table = 'participant_id\tage\tsex\nsub-01\t70\tF\nsub-02\t75\tM\nsub-03\t80\tF\n'
    (dataset / 'participants.tsv').write_text(table)
    loaded, load = [], TableModel.load
    monkeypatch.setattr(TableModel, 'load', lambda name: loaded.append(name) or load(name))
    for levels, expected in ((['participant', 'group'], 0), (['group'], 65)):  # No volumes.
        loaded.clear()
        code, out, _ = check('--model', 'ad', levels=levels)
        assert (code, len(loaded)) == (expected, 1)
        assert 'Group level: ' not in out, 'groups are not known'


def test_participants_without_a_chosen_session_have_not_failed(make_dataset, tmp_path, capsys):
    names = [f'sub-{p}/ses-{s}/anat/sub-{p}_ses-{s}_T1w.nii.gz' for p, s in ('1a', '1b', '2a')]
    root = make_dataset(*names)
    code = main([str(root), str(tmp_path / 'o'), 'participant', '--dry-run', '--session-id', 'b'])
    said = capsys.readouterr()
    assert code == 0
    listed = [line.split()[1] for line in said.out.splitlines() if line.startswith('sub-')]
    assert listed == ['ses-b']
    assert 'sub-2: no T1w image of the sessions of --session-label' in said.err


def test_lesion_masks_are_counted(check, dataset):
    assert 'With a lesion mask' not in check()[1]
    for image, inside in zip(IMAGES[2:], (1, 0)):
        t1w = nib.Nifti1Image.from_filename(dataset / image)
        values = np.zeros(t1w.shape, np.uint8)
        values[:2, :2, :2] = inside
        name = image.replace('_T1w', '_label-lesion_mask')
        write_image(dataset / name, nib.Nifti1Image(values, t1w.affine))
    code, out, _ = check()
    assert (code, out.count('With a lesion mask: 1 image\n')) == (0, 1), 'one mask is empty'


def test_images_segmented_by_two_programs_are_warned_of(check, dataset, tmp_path):
    folder = tmp_path / 'dlmuse'
    folder.mkdir()
    write_image(folder / 'sub-01_dseg.nii.gz', phantom.labels())
    write_image(dataset / IMAGES[0], phantom.t1w())
    for label, found in (('01 02', '1 of 2'), ('02', '0 of 1')):
        code, out, err = check('-d', f'dlmuse={folder}', '--participant-label', *label.split())
        assert (code, f'  {found}\n' in out) == (0, True)
        assert f'dlmuse: segmentation found for {found} image' in err
        assert 'Regions of two programs do not share a group analysis' in err


def test_problems_are_named_and_the_others_still_shown(check, dataset, tmp_path):
    """A missing image is called so; only a filter can exclude one."""
    (dataset / IMAGES[2]).write_bytes(b'')
    (dataset / 'sub-04').mkdir()
    code, out, _ = check()
    assert code == 1
    assert f'sub-02: {dataset / IMAGES[2]}: ' in out
    assert 'sub-04: no T1w image; expected sub-LABEL_T1w.nii.gz in the folder anat' in out
    assert [line.split()[-1] for line in out.splitlines()[3:6]] == ['2', 'below', 'good']
    filters = tmp_path / 'filter.json'
    filters.write_text('{"t1w": {"run": 2}}')
    code, out, _ = check('--bids-filter-file', filters)
    assert (code, IMAGES[1] in out) == (1, True)
    assert f'sub-04: no T1w image matches {filters}' in out
    filters.write_text('{"t1w": {"run": 7}}')
    code, _, err = check('--bids-filter-file', filters)
    assert code == 18
    assert 'no T1w image of 4 participants matches --bids-filter-file; change this' in err


def test_someone_who_is_not_in_the_table(check, dataset):
    (dataset / 'participants.tsv').write_text(PEOPLE.replace('sub-02', 'sub-99'))
    for levels, expected in ((['participant', 'group'], 0), (['group'], 65)):  # No volumes.
        code, out, err = check(levels=levels)
        assert code == expected
        assert 'No problems with images.' in out
        assert err.count('sub-02: no row in participants.tsv') == 1
        assert err.count('sub-99: listed in participants.tsv but has no folder') == 1


BAD_OPTIONS = (
    (['--participant-label', '7'], 18, 'there are: 01, 02'),
    (['--session-label', '7'], 18, '--session-label'),
    (['--bids-filter-file', 'none.json'], 2, 'none.json: No such file'),
    (['--model', 'nowhere'], 65, 'nowhere'),
    (['--phenotype', 'nowhere.tsv'], 65, 'nowhere.tsv'),
    (['--covariates', 'height'], 65, 'no column height; there are:'),
    (['--use-plugin', 'nowhere.yml'], 2, 'nowhere.yml: No such file'),
    (['--segmentation', 'nowhere'], 65, 'nowhere: no such folder'),
    (['-d', 'dlmuse=nowhere'], 2, 'dlmuse=nowhere: no such folder'),
    (['-w', 'dataset_description.json/work'], 73, 'is a file'),
    (['--n-patterns', '0'], 2, '--n-patterns 0: expected 1 or more'),
)
"""One example of each reader."""


@pytest.mark.parametrize(
    'words', [['--bids-database-dir', 'index'], ['--bids_database_dir=index']], ids=' '.join
)
def test_a_removed_option_is_refused_with_the_reason(dataset, tmp_path, capsys, words):
    """Before its value is taken for an argument."""
    options = tmp_path / 'options.toml'
    options.write_text('bids_database_dir = "index"\n')
    places = [str(dataset), str(tmp_path / 'out'), 'participant']
    for line in ([*words, *places], [*places, *words], [*places, f'--config-file={options}']):
        assert main(line) == 2
        message = capsys.readouterr().err
        assert '--bids-database-dir was removed: the dataset is always read' in message
        assert 'remove the option' in message


@pytest.mark.slow
def test_both_levels_are_checked_before_any_work(dataset, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'dataset_description.json').touch()
    before = _files(tmp_path)
    arguments = [str(dataset), str(tmp_path / 'out'), 'participant', 'group']
    for number, (options, expected, message) in enumerate(BAD_OPTIONS):
        code = main([*arguments, *options, *(['--dry-run'] if number % 2 else [])])
        shown = capsys.readouterr()
        assert (code, message in shown.out + shown.err) == (expected, True), shown.err
        assert _files(tmp_path) == before, 'nothing was written'


def test_a_table_in_place_of_images_brings_the_option(tmp_path, capsys):
    root = write_dataset(tmp_path)
    assert main([str(root), str(tmp_path / 'out'), 'group']) == 18
    assert 'run the group level with --roi-table TABLE' in capsys.readouterr().err


def test_datasets_that_lack_something(check, dataset):
    both = ['participant', 'group']
    (dataset / 'participants.tsv').write_text(PEOPLE.replace('diagnosis', 'x'))
    code, _, err = check(levels=both)
    assert (code, '--group-column' in err) == (65, True)
    (dataset / 'participants.tsv').unlink()
    assert check()[0] == 0
    code, _, err = check(levels=both)
    assert (code, 'save your table' in err) == (65, True)
    (dataset / 'dataset_description.json').unlink()
    code, _, err = check(levels=['group'])
    assert (code, 'not a BIDS' in err) == (16, True)


def test_damaged_images_may_be_left_to_the_steps(check, dataset):
    (dataset / IMAGES[2]).write_bytes(b'')
    assert check()[0] == 1
    assert check('--skip-bids-validation')[0] == 0


def test_images_that_are_not_fetched_are_named_without_the_check(check, dataset):
    (dataset / IMAGES[2]).unlink()
    (dataset / IMAGES[2]).symlink_to('../../.git/annex/objects/none')
    for options in ([], ['--skip-bids-validation']):
        code, out, _ = check(*options)
        assert code == 1
        assert f'{IMAGES[2]}: broken link; fetch the content (datalad get)' in out


def test_underscores_in_options_only():
    given = ['--participant_label', 'a_b', '--group_column=a_b', 'my_folder', '-v', '--']
    expected = ['--participant-label', 'a_b', '--group-column=a_b', 'my_folder', '-v', '--']
    assert with_hyphens(given) == expected


@pytest.mark.usefixtures('dataset')
def test_a_relative_path_with_dots(tmp_path, monkeypatch, capsys):
    (tmp_path / 'here').mkdir()
    monkeypatch.chdir(tmp_path / 'here')
    assert main(['../dataset', '../out', 'participant', '--dry-run']) == 0
    assert '3 T1w images of 3 participants' in capsys.readouterr().out


def test_python_runs_the_package(tmp_path):
    command = [sys.executable, '-m', 'surreal_bids', '--version']
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, 'PYTHONPATH': str(root)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, check=True, text=True
    )
    assert done.stdout == f'surreal-bids {__version__}\n'


@pytest.mark.slow
def test_a_real_dataset(tmp_path, capsys):
    root = shared_data('ds002748-subset')
    code = main([str(root), os.fspath(tmp_path / 'out'), 'participant', 'group', '--dry-run'])
    assert code == 0
    assert '3 controls and 3 patients' in capsys.readouterr().out
