"""The group level from the command line: what it writes, what it refuses, and that it goes on."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.bids.outputs import output_path, record_path, write_record
from surreal_bids.cautions import CHECK_LIST
from surreal_bids.cli.app import main
from surreal_bids.cli.group import (
    _check_deviation_maps,
    _read_cohort,
    reported,
    run_group_level,
)
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_image, write_tsv
from surreal_bids.regions import label_table, recognise
from surreal_bids.rindices.model import TableModel
from surreal_bids.simulation.tables import sample_controls
from tests.analysis.group_study import make_config, read_study, with_sessions, write_dataset
from tests.cohort.study import QUICK_WORDS, make_study
from tests.reports.html_page import Page, check_offline, check_structure

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('few_draws', 'undrawn_figures')]

TINY = (*QUICK_WORDS, '--iterations', 20, '--ortho', 0.1, 0.2, '--nprocs', 1)
ONES = np.ones((4, 4, 4), np.float32)
BRIEF = {'iterations': 5, 'folds': 0}
"""Where it does not matter what is learned."""
TEMPLATE = 'MNI152NLin2009cAsym'


REPORTS = 4
"""Participants who get a report here: each takes half a second."""


def few_reports():
    """Let only a few participants have a report."""
    return patch('surreal_bids.cli.group.reported', lambda cohort: reported(cohort)[:REPORTS])


def run(root, *words, work='work', out='out', table='volumes.tsv') -> int:
    """Run the group level in this process; only a few participants get a report."""
    folder = root.parent
    plugin = folder / 'linear.yml'
    plugin.write_text('plugin: Linear\n')
    places = (root, folder / out, 'group', '--roi-table', folder / table, '-w', folder / work)
    with few_reports():
        return main([str(word) for word in (*places, '--use-plugin', plugin, *TINY, *words)])


def read(path) -> pd.DataFrame:
    return pd.read_csv(path, sep='\t', keep_default_na=False, na_values=['n/a'])


def assert_described(folder, *tables):
    """Every table of a folder, these among them, has a JSON that describes all of its columns."""
    found = {path.name: path for path in [*folder.glob('*.tsv'), *folder.glob('phenotype/*.tsv')]}
    assert set(tables) <= set(found)
    for path in found.values():
        table, described = read(path), json.loads(path.with_suffix('.json').read_text())
        assert list(described) == list(table), path
        assert all(len(column['Description']) > 3 for column in described.values()), path
        numbers = table.select_dtypes('number').dropna(axis=1, how='all')
        labels = ('fold', 'muse_regions', *(name for name in numbers if 'region_' in name))
        assert [n for n in numbers if 'Units' not in described[n] and n not in labels] == [], path


@pytest.fixture(scope='module')
def done(tmp_path_factory):
    """A dataset, some of whose people cannot be used, and a finished run."""
    study = make_study()
    study.people['mmse'] = np.linspace(20, 30, 71)
    study.people.loc['sub-002', 'age'] = None
    study.features.loc['sub-050'] *= 5
    root = write_dataset(tmp_path_factory.mktemp('home'), study)
    assert run(root) == 0
    return root


TABLES = {
    'phenotype/rindices.tsv': (None, 71),
    'phenotype/roi_volumes.tsv': (33, 71),
    'phenotype/harmonized_volumes.tsv': (33, 69),
    'group_statistics.tsv': (10, None),
    'group_patterns.tsv': (8, None),
    'phenotype/contributions.tsv': (35, None),
    'phenotype/deviations.tsv': (34, 69),
}
"""Columns and rows of the tables."""


def test_all_tables_are_written_and_described(done):
    out = done.parent / 'out'
    for name, (columns, rows) in TABLES.items():
        table = read(out / name)
        assert columns is None or table.shape[1] == columns
        assert rows is None or len(table) == rows
    assert_described(out, *(Path(name).name for name in TABLES))
    table = read(out / 'phenotype' / 'rindices.tsv').set_index('participant_id')
    assert table['group'].value_counts().to_dict() == {'PT': 40, 'CN': 29}
    assert {'group', 'r1', 'r2', 'status', 'flags'} <= set(table)
    reasons = table.loc[table['status'] == 'excluded', 'reason']
    assert reasons.index.tolist() == ['sub-002', 'sub-050']
    assert 'age is missing' in reasons.iloc[0]
    assert '100% of the regions are outlying' in reasons.iloc[1]
    statistics = read(out / 'group_statistics.tsv').set_index('analysis')
    assert list(statistics.loc['separation', 'index']) == ['sum of R-indices', 'r1', 'r2']
    assert set(statistics.loc['group difference', 'measure']) == {'age', 'sex', 'icv', 'site'}
    associated = statistics.loc[['association']]
    assert (associated['p_corrected'].astype(float) >= associated['p'].astype(float)).all()
    page = (out / 'group.html').read_text()
    assert all(words in page for words in ('Tiny', 'sub-050', 'Few controls'))


def test_participants_have_reports(done):
    out = done.parent / 'out'
    results = read(out / 'phenotype' / 'rindices.tsv')
    names = results.loc[results['status'] != 'excluded', 'participant_id'][:REPORTS]
    assert sorted(path.stem for path in out.glob('sub-*.html')) == sorted(names)
    page = Page(out / 'sub-003.html')
    check_offline(page)
    check_structure(page)
    assert 'trained on this dataset without the participant' in page.words
    (standing,) = out.glob('sub-003/figures/*standing*.svg')
    assert '29' in standing.read_text()
    row = read(done / 'participants.tsv').set_index('participant_id').loc['sub-003']
    sex = {'F': 'female', 'M': 'male'}[row['sex']]
    assert f'Control · {row["age"]:.1f} years · {sex} · {row["site"]}' in page.words


def test_everyone_whose_name_can_be_that_of_a_file_gets_a_report():
    names = ['sub-01', 'sub-01', '7', 'sub-a_b', '../x']
    cohort = SimpleNamespace(visits=pd.DataFrame({'participant_id': names}), apart=None)
    assert reported(cohort) == ['sub-01', '7']


def test_the_validator_finds_no_error(done):
    validator = Path(sys.executable).with_name('bids-validator-deno')
    out = done.parent / 'out'
    ran = subprocess.run(
        [validator, '--format', 'json', str(out)], capture_output=True, check=False, text=True
    )
    issues = json.loads(ran.stdout)['issues']['issues']
    assert [issue for issue in issues if issue['severity'] == 'error'] == []


def test_results_of_other_options_are_not_replaced_without_a_word(done, capsys):
    for words, is_warned in (((), False), (('--random-seed', 5), True)):
        assert run(done, '--dry-run', *words) == 0
        told = 'its group results were made with other options (--random-seed)'
        assert (told in capsys.readouterr().err) == is_warned


def test_a_deleted_output_comes_back_without_training_again(done, monkeypatch):
    def refuse(*_):
        raise AssertionError('trained again')

    monkeypatch.setattr('surreal_bids.model.training.Training._train_block', refuse)
    path = done.parent / 'out' / 'phenotype' / 'rindices.tsv'
    before = path.read_bytes()
    path.unlink()
    lost, stranger = (done.parent / 'out' / f'sub-{label}.html' for label in ('003', '999'))
    stranger.write_text(lost.read_text())
    lost.unlink()
    stem = f'group_space-{TEMPLATE}_label-GM_contrast-r9slope_stat-t_statmap'
    names = ['group_label-WM_contrasts.tsv', f'{stem}.nii.gz', f'{stem}.json']
    outdated = [done.parent / 'out' / name for name in (*names, 'group_notes.tsv')]
    for each in outdated:
        each.write_text('of an earlier run, or by hand')
    assert run(done, '--reports-only') == 0
    assert path.read_bytes() == before
    assert [each for each in outdated if each.is_file()] == outdated[-1:]
    assert 'Comparison with controls' in lost.read_text()
    assert not stranger.exists()  # R-indices of somebody who is not of the cohort any more.


def contents(folder) -> dict[Path, bytes]:
    """Return all files; figures are drawn by some tests only, so that only their names count."""
    files = [
        path
        for path in folder.rglob('*')
        if path.is_file() and not {'crash', 'config'} & {*path.stem.split('_')}
    ]
    drawn = ('.svg', '.html', '.jpg')
    return {path: b'' if path.suffix in drawn else path.read_bytes() for path in files}


def test_a_run_that_is_killed_while_it_writes_has_no_report_and_resumes(done, monkeypatch, capsys):
    out = done.parent / 'out'
    before = contents(out)

    def full(*_, **__):
        raise OSError(28, 'No space left on device', 'out/group.html')

    with monkeypatch.context() as patch:
        patch.setattr('surreal_bids.reports.group.write_page', full)
        assert run(done, '--reports-only') == 73
    assert 'group.html: No space left on device' in capsys.readouterr().err
    assert not (out / 'group.html').exists()
    process = os.fork()
    if not process:
        monkeypatch.setattr('surreal_bids.reports.group.write_page', lambda *_, **__: os._exit(9))
        os._exit(run(done, '--reports-only'))
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9
    assert not (out / 'group.html').exists()
    for path in out.glob('.*.lock'):
        path.unlink()
    assert run(done, '--reports-only') == 0
    assert contents(out) == before


def test_selected_participants_have_the_r_indices_of_a_run_with_everyone(done, tmp_path, capsys):
    study = make_study(40, 15, seed=8, n_sites=2)
    study.features += 60
    model = done.parent / 'out' / 'models'
    tables = []
    for folder, words in (('all', ()), ('some', ('--participant-label', '050', 'sub-053'))):
        (tmp_path / folder).mkdir()
        root = write_dataset(tmp_path / folder, study)
        assert run(root, '--model', model, '--control-label', 'CN', *words) == 0
        tables.append(read(root.parent / 'out' / 'phenotype' / 'rindices.tsv'))
    everyone, some = (table.set_index('participant_id') for table in tables)
    assert (everyone['status'] == 'complete').all()
    card = json.loads((tmp_path / 'all' / 'out' / 'models' / 'model.json').read_text())
    known = card['Preprocessing']['combat']['sites']
    assert sum('(this dataset)' in site for site in known) == 2
    assert list(some.index) == ['sub-050', 'sub-053']
    same = ['r1', 'r2', 'r1_centile', 'r2_centile']
    np.testing.assert_array_equal(some[same], everyone.loc[some.index, same])
    assert 'not adapted' not in capsys.readouterr().err


def test_a_model_is_applied_to_one_new_participant(done, tmp_path, capsys):
    study = make_study(20, 25, seed=8)
    study.people = study.people.drop(columns='diagnosis')
    root, model = write_dataset(tmp_path, study), done.parent / 'out' / 'models'
    assert run(root, '--model', model, '--participant-label', '003') == 0
    told, listed = capsys.readouterr()
    assert listed.count('the model was not adapted') == 1
    assert 'no diagnosis is' in listed
    assert '1 participant whose group is not known, ' in told
    table = read(tmp_path / 'out' / 'phenotype' / 'rindices.tsv')
    assert list(table['participant_id']) == ['sub-003']
    assert 'the model was not adapted' in (tmp_path / 'out' / 'group.html').read_text()
    # The same R-indices as the model gives by itself.
    alone = TableModel.load(model).compute(study.features, study.people).loc[['sub-003']]
    np.testing.assert_allclose(table[['r1', 'r2']], alone[['r1', 'r2']], atol=1e-6)


def test_a_step_that_fails_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr('surreal_bids.model.agreement.SMALLEST_SPREAD', 1e9)
    assert run(write_dataset(tmp_path), '--preset', 'correlated') == 65
    assert 'step model: too few members trained well' in capsys.readouterr().err
    assert (tmp_path / 'out' / 'logs' / 'group_desc-model_crash.txt').is_file()
    assert not (tmp_path / 'out' / 'phenotype').exists()


def test_visits_are_described_and_people_counted_once(tmp_path):
    root = write_dataset(tmp_path)
    volumes = with_sessions(make_study())
    volumes['scan_date'] = volumes['session_id'].map({'ses-1': '2010-05-01', 'ses-2': '2012-05-01'})
    volumes.to_csv(tmp_path / 'volumes.tsv', sep='\t')
    assert run(root) == 0
    table = read(tmp_path / 'out' / 'phenotype' / 'rindices.tsv')
    assert list(table)[:3] == ['participant_id', 'session_id', 'group']
    assert len(table) == 142
    card = json.loads((tmp_path / 'out' / 'models' / 'model.json').read_text())
    assert card['Sample'] == {'n_cn': 30, 'n_pt': 41}
    changes = read(tmp_path / 'out' / 'phenotype' / 'changes.tsv')
    first = changes[changes['measure'] == 'r1'].set_index('participant_id').iloc[0]
    by_visit = table.set_index(['participant_id', 'session_id'])['r1'][first.name]
    assert float(first['change']) == pytest.approx(by_visit['ses-2'] - by_visit['ses-1'], abs=2e-6)
    assert float(first['years']) == pytest.approx(2, abs=0.01)
    groups = read(tmp_path / 'out' / 'group_statistics.tsv')
    assert groups['analysis'].value_counts()['change per year'] == 6
    page = Page(tmp_path / 'out' / 'sub-003.html')
    check_structure(page)
    for words in ('ses-2, the last of 2', 'Regional contributions', 'Changes of R-indices'):
        assert words in page.words, words
    assert set(changes['noise_from']) == {'controls'}
    assert changes['reliable'].notna().all(), 'noise is that of changes of controls'
    assert 'Change over visits' in Page(tmp_path / 'out' / 'group.html').words
    assert_described(tmp_path / 'out', 'changes.tsv')


def write_participants(out: Path, atlas: str = 'network', numbering: str = 'muse') -> None:
    """Outputs of the participant level: volumes of 32 regions, masks and RAVENS maps."""
    study = make_study()
    known = label_table(numbering)
    fluid = known['name'].str.contains(r'(?i)ventricle|lat.vent|CSF|vessel|plexus|hypo')
    regions = known[~fluid].head(study.features.shape[1])
    rng = np.random.default_rng(0)
    for name, volumes in study.features.iterrows():
        participant = name.removeprefix('sub-')
        table = regions.assign(volume_mm3=volumes.to_numpy())
        path = output_path(out, 'segmentation_volumes', participant=participant, atlas=atlas)
        write_tsv(path, table)
        write_record(record_path(out, (participant, None)), out, {}, [path])
        data = rng.normal(0.5, 0.05, (7, 8, 9)) + 0.003 * (volumes.mean() - 300)
        ravens = nib.Nifti1Image(data.astype(np.float32), np.diag([8.0, 8, 8, 1]))
        write_image(output_path(out, 'ravens', participant=participant, tissue='GM'), ravens)


def test_from_outputs_of_participants_to_maps(tmp_path):
    root = write_dataset(tmp_path)
    (tmp_path / 'linear.yml').write_text('plugin: Linear\n')
    plugin = tmp_path / 'linear.yml'
    options = {'roi_table': None, 'use_plugin': plugin, 'permutations': 10, **BRIEF}
    config = make_config(root, deviation_maps=True, **options)
    write_participants(config.output_dir)
    table = read(root / 'participants.tsv')
    write_tsv(root / 'participants.tsv', table.assign(icv=1000 * table['icv'].astype(float)))
    with few_reports(), patch('surreal_bids.reports.group.StatisticalMap.write_viewer'):
        assert run_group_level(config, expected := [('999', None)]) == 0
    out = config.output_dir
    slope = out / f'group_space-{TEMPLATE}_label-GM_contrast-r1slope_stat-t_statmap.nii.gz'
    assert nib.load(slope).shape == (7, 8, 9)
    assert json.loads(slope.with_name(slope.name.replace('.nii.gz', '.json')).read_text())[
        'DegreesOfFreedom'
    ]
    assert not slope.with_name(slope.name.replace('stat-t', 'stat-logp')).is_file()
    patients = slope.with_name(slope.name.replace('r1slope', 'patients'))
    assert patients.with_name(patients.name.replace('stat-t', 'stat-logp')).is_file()
    contrasts = read(out / 'group_label-GM_contrasts.tsv').set_index('contrast')
    is_test = contrasts.index == 'patients'
    assert contrasts['discoveries'].notna().tolist() == is_test.tolist()
    assert set(contrasts.loc[~is_test, 'kind']) == {'description'}
    assert (
        out / f'group_space-{TEMPLATE}_seg-muse_contrast-r1_stat-change_statmap.nii.gz'
    ).is_file()
    results = read(out / 'phenotype' / 'rindices.tsv').set_index('participant_id')
    assert results.loc['sub-999', 'status'] == 'excluded'
    assert '<section id="maps">' in (out / 'group.html').read_text()
    assert_described(out, 'group_label-GM_contrasts.tsv')
    analysed = results.index[results['status'] != 'excluded']
    ends = [f'space-{TEMPLATE}_label-GM_stat-z_statmap.{end}' for end in ('nii.gz', 'json')]
    own = {out / name / 'anat' / f'{name}_{end}' for name in analysed for end in ends}
    assert set(out.glob('sub-*/anat/*_statmap.*')) == own
    assert 'deleted residuals' in (out / 'group.html').read_text()
    CHECK_LIST.take()  # As a new run does.
    with few_reports(), patch('surreal_bids.reports.group.StatisticalMap.write_viewer'):
        assert run_group_level(make_config(root, reports_only=True, **options), expected) == 0
    assert not list(out.glob('sub-*/anat/*_statmap.*'))


def test_a_published_model_takes_volumes_of_the_network(tmp_path, capsys):
    drawn = sample_controls(30, np.random.default_rng(0))
    names = [f'sub-{number:03}' for number in range(len(drawn.people))]
    index_of, known = recognise(drawn.volumes), label_table('muse').set_index('index')['name']
    out, root = tmp_path / 'out', tmp_path / 'raw'
    for name, volumes, icv in zip(names, drawn.volumes.to_numpy(), drawn.people['icv']):
        table = pd.DataFrame({'index': list(index_of.values()), 'volume_mm3': volumes})
        table.insert(1, 'name', known[table['index']].to_numpy())
        visit = (name.removeprefix('sub-'), None)
        path = output_path(out, 'segmentation_volumes', participant=visit[0], atlas='network')
        write_tsv(path, table)
        write_record(record_path(out, visit), out, {}, [path])
        mask = nib.Nifti1Image(ONES, np.diag([*[np.cbrt(icv / ONES.size)] * 3, 1]))
        write_image(output_path(out, 'brain_mask', participant=visit[0]), mask)
        write_image(root / name / 'anat' / f'{name}_T1w.nii.gz', nib.Nifti1Image(ONES, np.eye(4)))
    (root / 'dataset_description.json').write_text('{"Name": "x", "BIDSVersion": "1.10.0"}')
    group = np.where(np.arange(len(names)) < 22, 'CN', 'PT')
    people = drawn.people[['age', 'sex']].assign(diagnosis=group)
    write_tsv(root / 'participants.tsv', people.assign(participant_id=names))
    (tmp_path / 'linear.yml').write_text('plugin: Linear\n')
    words = ['--model', 'ad', '--map-tissues', '-w', tmp_path / 'work']
    words += ['--use-plugin', tmp_path / 'linear.yml']
    (root / names[0] / 'anat' / f'{names[0]}_T1w.nii.gz').unlink()
    (out / f'{names[1]}.html').write_text('by hand')
    with few_reports():
        assert main([str(word) for word in (root, out, 'group', *words)]) == 1
    told = capsys.readouterr().err
    assert re.search(f'{names[0]}: no T1w image.*uses its earlier outputs', told)
    assert re.search(f'{names[1]}: the report could not be written .*not a report', told)
    table = read(out / 'phenotype' / 'rindices.tsv')
    assert len(table) == len(names)
    deviations = read(out / 'phenotype' / 'deviations.tsv')
    z = deviations[deviations['measure'] == 'z_norms'].drop(columns=['participant_id', 'measure'])
    assert len(z) == len(names)
    assert z.astype(float).abs().median().median() < 2


def test_maps_of_chosen_controls_are_checked_before_training(tmp_path):
    root = write_dataset(tmp_path)
    config = make_config(root, deviation_maps=True, dry_run=True)
    write_participants(config.output_dir)
    assert run_group_level(config) == 0
    labels = tuple(name.removeprefix('sub-') for name in make_study().features.index[12:])
    with pytest.raises(DataError, match=r'controls? with a RAVENS map of GM'):
        run_group_level(replace(config, participant_label=labels))


def test_visits_without_a_control_at_their_site_are_named(tmp_path, tmp_path_factory, caplog):
    root = write_dataset(tmp_path)
    config = make_config(root, deviation_maps=True)
    write_participants(config.output_dir)
    study = read_study(tmp_path_factory.mktemp('study'))
    alone = study.visits.index[study.is_patient][:2]
    site = pd.Series('a', study.people.index).mask(study.people.index.isin(alone), 'b')
    elsewhere = replace(study, people=study.people.assign(site=site))
    _check_deviation_maps(config, elsewhere, elsewhere)
    assert f'of 2 visits ({", ".join(alone)})' in caplog.text


def test_volumes_of_freesurfer_are_features(tmp_path):
    root = write_dataset(tmp_path)
    (tmp_path / 'fs').mkdir()
    derivatives = (f'freesurfer={tmp_path / "fs"}',)
    config = make_config(root, roi_table=None, derivatives=derivatives)
    write_participants(config.output_dir, 'freesurfer', 'aparc+aseg')
    table = read(root / 'participants.tsv')
    write_tsv(root / 'participants.tsv', table.assign(icv=1000 * table['icv'].astype(float)))
    cohort = _read_cohort(config, None, [])
    assert {'Left-Hippocampus', 'ctx-lh-bankssts'} <= set(cohort.features)
    assert cohort.wanted.atlas is None


HOLD = (
    'import sys; from surreal_bids.files import sole_use\n'
    'with sole_use("the group level", sys.argv[1]):\n'
    '    print("ready", flush=True); sys.stdin.read()\n'
)


def test_a_second_run_on_the_same_folder_is_refused(tmp_path, capsys):
    root = write_dataset(tmp_path)
    command = [sys.executable, '-c', HOLD, str(tmp_path / 'out')]
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
    with subprocess.Popen(command, **pipes) as other:
        assert other.stdout.readline() == 'ready\n'
        assert run(root) == 73
        message = capsys.readouterr().err
        other.communicate('')
    assert 'out: another run is using it for the group level' in message
