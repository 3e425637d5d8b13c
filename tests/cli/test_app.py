import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from surreal_bids import __version__
from surreal_bids.bids import layout
from surreal_bids.bids.outputs import start_dataset
from surreal_bids.cli.app import build_parser, main, parse_arguments
from surreal_bids.cli.main import with_hyphens
from surreal_bids.files import write_image
from tests.analysis.group_study import write_dataset
from tests.interfaces import phantom
from tests.shared_data import shared_data

PEOPLE = 'participant_id\tage\tdiagnosis\nsub-01\t60\tCN\nsub-02\t70\tPT\nsub-03\t75\tn/a\n'
IMAGES = [
    'sub-01/anat/sub-01_run-1_T1w.nii.gz',
    'sub-01/anat/sub-01_run-2_T1w.nii.gz',
    'sub-02/anat/sub-02_T1w.nii.gz',
    'sub-03/anat/sub-03_T1w.nii.gz',
]


EXCLUSION = 'The group level will exclude sub-03 (diagnosis is missing).'


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    """Let three participants do."""
    for module in ('exclusions', 'grouping'):
        monkeypatch.setattr(f'surreal_bids.cohort.{module}.MIN_PEOPLE', 1)


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


@pytest.mark.parametrize('own', [True, False], ids=['the same', 'another'])
def test_outputs_of_another_dataset_are_warned_of(check, dataset, tmp_path, own):
    made_from = dataset if own else tmp_path / 'else'
    start_dataset(tmp_path / 'out', made_from, {})
    code, _, err = check()
    assert code == 0
    assert (f'contains outputs of another dataset, {made_from}' in err) != own


def test_a_good_dataset(check, dataset, tmp_path):
    before = _files(tmp_path)
    code, out, err = check(levels=['participant', 'group'])
    assert code == 0
    assert err.count(EXCLUSION) == 1
    lines = out.splitlines()
    assert lines[0] == f'Tiny in {dataset}: 3 T1w images of 3 participants'
    assert [line.split() for line in lines[3:6]] == [
        ['sub-01', 'n/a', 'CN', IMAGES[0], 'first', 'of', '2'],
        ['sub-02', 'n/a', 'PT', IMAGES[2], 'good'],
        ['sub-03', 'n/a', 'n/a', IMAGES[3], 'good'],
    ]
    assert 'Images by diagnosis: CN 1, PT 1, n/a 1' in lines
    assert 'No problems with images.' in lines
    assert any(line.startswith('  phenotype/rindices.tsv') for line in lines)
    assert _files(tmp_path) == before, 'a dry run writes nothing'


@pytest.mark.parametrize(
    ('levels', 'present', 'absent'),
    [
        (['participant'], 'sub-<participant>.html', 'group.html'),
        (['group'], 'group.html', 'sub-<participant>.html'),
    ],
)
def test_only_outputs_of_the_level_are_shown(check, levels, present, absent):
    _, out, _ = check(levels=levels)
    assert f'  {present} ' in out
    assert f'  {absent} ' not in out


@pytest.mark.parametrize('label', ['01', 'sub-01'])
@pytest.mark.parametrize('option', ['--participant-label', '--participant_label'])
def test_labels_with_and_without_prefix(check, option, label):
    code, out, _ = check(option, label)
    assert code == 0
    assert '1 T1w image of 1 participant\n' in out


@pytest.mark.parametrize('option', ['--session-label', '--session-id', '--session_id'])
def test_sessions(make_dataset, tmp_path, capsys, option):
    names = [f'sub-{p}/ses-{s}/anat/sub-{p}_ses-{s}_T1w.nii.gz' for p, s in ('1a', '1b', '2a')]
    root = make_dataset(*names)
    code = main([str(root), str(tmp_path / 'o'), 'participant', '--dry-run', option, 'ses-b'])
    out = capsys.readouterr().out
    assert code == 1
    assert [line.split()[1] for line in out.splitlines() if line.startswith('sub-')] == ['ses-b']
    assert 'sub-2: no T1w image matches the filters' in out
    assert 'sub-<participant>/ses-<session>/anat/' in out


def test_what_is_reused_is_counted(check, dataset, tmp_path):
    folder = tmp_path / 'smriprep' / 'sub-01' / 'anat'
    folder.mkdir(parents=True)
    given = ['-d', f'smriprep={tmp_path / "smriprep"}']
    code, out, err = check(*given)
    assert (code, out.count('  0 of ')) == (0, 4)
    assert 'found for 0 of ' in err
    shutil.copy(dataset / IMAGES[0], folder / 'sub-01_desc-preproc_T1w.nii.gz')
    code, out, _ = check(*given)
    assert (code, out.count('  0 of '), out.count('  1 of 3')) == (0, 3, 1)


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


def _write_segmentation(folder):
    folder.mkdir()
    write_image(folder / 'sub-01_dseg.nii.gz', phantom.labels())
    return ['-d', f'dlmuse={folder}']


def test_images_segmented_by_two_programs_are_warned_of(check, dataset, tmp_path):
    write_image(dataset / IMAGES[0], phantom.t1w())
    code, _, err = check(*_write_segmentation(tmp_path / 'dlmuse'))
    assert code == 0
    assert (
        'dlmuse: segmentation found for 1 of 3 images to process (not for sub-02, '
        'sub-03); 2 images will be segmented by network.' in err
    )
    assert 'Regions of two programs do not share a group analysis' in err
    assert 'To do: Complete the results of dlmuse, or remove -d dlmuse' in err


def test_one_without_results_is_computed_alone_as_beside_others(check, tmp_path):
    code, _, err = check(*_write_segmentation(tmp_path / 'dlmuse'), '--participant-label', '02')
    assert code == 0
    assert (
        'dlmuse: segmentation found for 0 of 1 image to process; 1 image will be segmented by'
        ' network.' in err
    )


def test_problems_are_named_and_the_others_still_shown(check, dataset):
    (dataset / IMAGES[2]).write_bytes(b'')
    (dataset / 'sub-04').mkdir()
    code, out, err = check()
    assert (code, err) == (1, '')
    assert f'sub-02: {dataset / IMAGES[2]}: the file is empty' in out
    assert 'sub-04: no T1w image matches the filters' in out
    assert [line.split()[-1] for line in out.splitlines()[3:6]] == ['2', 'below', 'good']


@pytest.mark.parametrize(
    ('levels', 'expected'),
    [(['participant'], 0), (['participant', 'group'], 0), (['group'], 65)],  # There are no volumes.
)
def test_someone_who_is_not_in_the_table(check, dataset, levels, expected):
    (dataset / 'participants.tsv').write_text(PEOPLE.replace('sub-02', 'sub-99'))
    code, out, err = check(levels=levels)
    assert code == expected
    assert 'No problems with images.' in out
    assert err.count('sub-02: no row in participants.tsv') == 1
    assert err.count('sub-99: listed in participants.tsv but has no folder') == 1


def test_roles_of_groups(check):
    code, out, _ = check('--control-label', 'CN', '--patient-label', 'PT')
    assert code == 0
    assert 'Images by diagnosis: CN (controls) 1, PT (patients) 1, n/a 1' in out


def test_the_groups_of_all_participants_may_be_named_for_a_few(check):
    code, _, _ = check('--participant-label', '01', '--patient-label', 'PT')
    assert code == 0


@pytest.mark.parametrize(
    ('options', 'expected', 'message'),
    [
        (['--participant-label', '7'], 18, 'no participant 7 in this dataset; there are: 01, 02'),
        (['--session-label', '7'], 18, 'no session 7 in this dataset; there are none'),
        (['--group-column', 'dx'], 65, 'no column dx; there are: participant_id'),
        (['--bids-filter-file', 'none.json'], 2, 'none.json: no such file'),
        (['--config-file', 'none.toml'], 2, 'none.toml: no such file'),
    ],
)
def test_options_that_cannot_be_met(check, options, expected, message):
    code, out, err = check(*options)
    assert (code, out) == (expected, '')
    assert err.startswith('error: ')
    assert message in err


@pytest.mark.parametrize('dry', [True, False])
@pytest.mark.parametrize(
    ('options', 'expected', 'message'),
    [
        (['--model', 'nowhere'], 65, 'nowhere'),
        (['--phenotype', 'nowhere.tsv'], 65, 'nowhere.tsv: cannot be read'),
        (['--retest', 'nowhere.tsv'], 65, 'nowhere.tsv: cannot be read'),
        (['--exclude', 'nowhere.tsv'], 65, 'nowhere.tsv: cannot be read'),
        (['--covariates', 'height'], 65, 'no column height; there are:'),
        (['--site-column', 'scanner'], 65, 'no column scanner; there are:'),
        (['--group-column', 'dx'], 65, 'no column dx; there are:'),
        (['--control-label', 'HC'], 65, 'the value HC in column diagnosis; there are: CN, PT'),
        (['--use-plugin', 'nowhere.yml'], 2, 'nowhere.yml: no such file'),
        (['--segmentation', 'nowhere'], 65, 'nowhere: no such folder'),
        (['-d', 'dlmuse=nowhere'], 2, 'dlmuse=nowhere: no such folder'),
        (['-w', 'dataset_description.json/work'], 73, 'is a file'),
    ],
)
def test_both_levels_are_checked_before_any_work(
    dataset, tmp_path, capsys, monkeypatch, dry, options, expected, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'dataset_description.json').touch()
    before = _files(tmp_path)
    arguments = [str(dataset), str(tmp_path / 'out'), 'participant', 'group', *options]
    code = main([*arguments, *(['--dry-run'] if dry else [])])
    shown = capsys.readouterr()
    assert code == expected, shown.err
    assert message in shown.out + shown.err
    assert _files(tmp_path) == before, 'nothing was written'


def test_a_dry_run_lists_problems_with_images_and_tables_together(check, dataset, monkeypatch):
    monkeypatch.setattr('surreal_bids.cohort.grouping.MIN_PEOPLE', 10)
    (dataset / IMAGES[2]).write_bytes(b'')
    code, out, _ = check(levels=['participant', 'group'])
    assert code == 65
    problems = out.partition('Problems:\n')[2].partition('\n\n')[0].splitlines()
    assert [line.split(':')[0].strip() for line in problems] == ['sub-02', 'group level']
    assert '1 control left, but at least 10 are needed' in problems[1]
    assert 'To process: 2 images' in out


def test_a_table_in_place_of_images_brings_the_option(tmp_path, capsys):
    root = write_dataset(tmp_path)
    assert main([str(root), str(tmp_path / 'out'), 'group']) == 18
    assert 'run the group level with --roi-table TABLE' in capsys.readouterr().err


@pytest.mark.parametrize('icv', ['proportion', 'covariate', 'none'])
def test_the_head_size_comes_from_the_participant_level(check, icv):
    code, _, err = check('--icv', icv, levels=['participant', 'group'])
    assert code == 0
    assert err.count(EXCLUSION) == 1


def test_help_waits_for_nothing():
    command = [
        sys.executable,
        '-c',
        'import sys; from surreal_bids.cli.app import build_parser; build_parser().format_help(); '
        'print(sorted({"bids", "nipype", "numpy", "pandas", "torch"} & set(sys.modules)))',
    ]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == '[]\n'


@pytest.mark.parametrize(
    ('filters', 'expected'),
    [({'run': 2}, 'sub-01_run-2_T1w.nii.gz'), ({'run': 7}, None)],
)
def test_a_filter_file(check, tmp_path, filters, expected):
    path = tmp_path / 'filter.json'
    path.write_text(json.dumps({'t1w': filters}))
    code, out, err = check('--bids-filter-file', path)
    if expected:
        assert code == 1
        assert expected in out
    else:
        assert code == 18
        assert 'no T1w image of 3 participants matches the filters' in err


@pytest.mark.parametrize(
    ('change', 'levels', 'expected', 'message'),
    [
        (lambda root: (root / 'dataset_description.json').unlink(), ['group'], 16, 'not a BIDS'),
        (
            lambda root: (root / 'participants.tsv').unlink(),
            ['participant', 'group'],
            65,
            'save your table of participants under this name',
        ),
        (lambda root: (root / 'participants.tsv').unlink(), ['participant'], 0, ''),
        (
            lambda root: (root / 'participants.tsv').write_text(PEOPLE.replace('diagnosis', 'x')),
            ['participant', 'group'],
            65,
            'choose the diagnosis column with --group-column',
        ),
        (
            lambda root: (root / 'participants.tsv').write_text(PEOPLE + 'sub-01\t1\tCN\n'),
            ['participant'],
            65,
            '2 rows have participant_id sub-01',
        ),
    ],
)
def test_datasets_that_lack_something(check, dataset, change, levels, expected, message):
    change(dataset)
    code, out, err = check(levels=levels)
    assert code == expected
    assert message in out + err


@pytest.mark.parametrize('output', ['.', 'out', 'derivatives'])
def test_the_output_folder_may_not_be_in_the_dataset(check, dataset, output):
    code, _, err = check(output=dataset / output)
    assert code == 73
    assert 'derivatives/surreal_bids' in err


def test_an_error_of_ours_is_70(check, monkeypatch):
    monkeypatch.setattr(layout, 'BIDSLayout', None)
    code, _, err = check()
    assert code == 70
    assert 'This is a bug in surreal_bids; please report it with ' in err
    assert 'Traceback' not in err


def test_damaged_images_may_be_left_to_the_steps(check, dataset):
    (dataset / IMAGES[2]).write_bytes(b'')
    assert check()[0] == 1
    assert check('--skip-bids-validation')[0] == 0


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (['--n-patterns', '0'], '--n-patterns 0: expected 1 or more'),
        (['--nprocs', '0'], '--nprocs 0: expected 1 or more'),
        (
            ['--template-resolution', '0.1'],
            '--template-resolution 0.1: expected 0.5 or more',
        ),
        (['--template-resolution', '5'], '--template-resolution 5: expected 4 or less'),
        (['-d', 'fmriprep'], '--derivatives fmriprep: no such folder; give an existing folder'),
        (['-d', 'fmriprep='], '--derivatives fmriprep=: expected NAME=PATH'),
        (['-d', 'a=.', 'b=.'], 'a and b are segmentations; give only one'),
    ],
)
def test_values_that_cannot_be(check, options, message):
    code, out, err = check(*options)
    assert (code, out) == (2, '')
    assert message in err


@pytest.mark.parametrize(
    'arguments', [[], ['in', 'out'], ['in', 'out', 'session'], ['in', 'out', 'group', '--colour']]
)
def test_wrong_usage_is_2(arguments, capsys):
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    assert ending.value.code == 2
    assert 'usage: surreal-bids' in capsys.readouterr().err


def test_the_index_is_kept_where_asked(check, dataset, tmp_path, monkeypatch):
    monkeypatch.setattr('surreal_bids.bids.layout.SETTLED_NS', -1_000_000_000)
    outputs = {check('--bids-database-dir', tmp_path / 'db')[1] for _ in range(2)}
    assert len(outputs) == 1
    assert len(list((tmp_path / 'db').glob('*/layout_index.sqlite'))) == 1


def test_a_configuration_file_fills_in(dataset, tmp_path, capsys):
    path = tmp_path / 'config.toml'
    path.write_text('participant_label = ["sub-02"]\ndry_run = true\n')
    assert (
        main([str(dataset), str(tmp_path / 'out'), 'participant', '--config-file', str(path)]) == 0
    )
    assert IMAGES[2] in capsys.readouterr().out


@pytest.mark.parametrize(
    ('given', 'expected'),
    [
        (['--participant_label', 'a_b'], ['--participant-label', 'a_b']),
        (['--group_column=a_b'], ['--group-column=a_b']),
        (['my_folder', '-v', '--'], ['my_folder', '-v', '--']),
    ],
)
def test_underscores_in_options_only(given, expected):
    assert with_hyphens(given) == expected


def test_only_what_was_given_is_set():
    config, verbosity = parse_arguments(['in', 'out', 'participant', 'group', '-vv'])
    assert config.analysis_levels == ('participant', 'group')
    assert (config.bids_dir, config.participant_label, verbosity) == (Path('in'), (), 2)


def test_every_option_has_help():
    assert all(action.help for action in build_parser()._actions)


@pytest.mark.usefixtures('dataset')
def test_a_relative_path_with_dots(tmp_path, monkeypatch, capsys):
    (tmp_path / 'here').mkdir()
    monkeypatch.chdir(tmp_path / 'here')
    assert main(['../dataset', '../out', 'participant', '--dry-run']) == 0
    assert '3 T1w images of 3 participants' in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(['--version'])
    assert capsys.readouterr().out == f'surreal-bids {__version__}\n'


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
    assert 'Images by group: control 3, depr 3' in capsys.readouterr().out
