"""surreal-simulate: tables, cohorts and scores."""

import argparse
import hashlib
import json
import re

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.cli import simulate as simulate_cohort
from surreal_bids.cli.simulate import add_table_parser, main
from surreal_bids.exceptions import DataError, OutputError
from surreal_bids.files import write_image, write_tsv
from surreal_bids.simulation.anatomy import labels_at, load_labels
from surreal_bids.simulation.cohort import CohortPlan
from surreal_bids.simulation.tables import sample_controls


def run(*words) -> int:
    parser = argparse.ArgumentParser()
    add_table_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args(['table', *map(str, words)])
    return arguments.run(arguments)


def checksums(folder) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


SMALL = ('--n-cn', 4, '--n-pt', 6)


@pytest.fixture
def cn_table(tmp_path):
    controls = sample_controls(10, np.random.default_rng(0))
    path = tmp_path / 'cn.csv'
    pd.concat([controls.people, controls.volumes], axis=1).to_csv(path, index=False)
    return path


def test_the_same_simulation_may_be_repeated_and_gives_the_same_bytes(tmp_path):
    out = tmp_path / 'out'
    run(out, *SMALL, '--seed', 3)
    before = checksums(out)
    (out / 'severities.tsv').unlink()
    assert run(out, *SMALL, '--seed', 3) == 0
    assert checksums(out) == before


def test_another_simulation_is_overwritten_only_on_demand(tmp_path):
    out, change = tmp_path / 'out', ('--seed', 4)
    run(out, *SMALL)
    before = checksums(out)
    with pytest.raises(OutputError, match='--overwrite'):
        run(out, *SMALL, *change)
    assert checksums(out) == before
    assert run(out, *SMALL, *change, '--overwrite') == 0
    assert checksums(out) != before


def test_a_folder_of_someone_else_is_left_alone(tmp_path):
    (tmp_path / 'thesis.txt').write_text('years of work')
    for content in (None, '{}', 'no json'):
        if content is not None:
            (tmp_path / 'simulation.json').write_text(content)
        before = checksums(tmp_path)
        with pytest.raises(OutputError, match=r'other files|another simulation|not readable'):
            run(tmp_path, *SMALL)
        assert checksums(tmp_path) == before


def test_controls_come_from_a_table(tmp_path, cn_table):
    run(tmp_path / 'out', *SMALL, '--from-table', cn_table)
    people = pd.read_csv(tmp_path / 'out' / 'participants.tsv', sep='\t')
    assert sorted(people['age']) == sorted(pd.read_csv(cn_table)['age'])


def test_more_than_the_table_holds_needs_resampling(tmp_path, cn_table):
    wanted = (tmp_path / 'out', '--n-cn', 8, '--n-pt', 9, '--from-table', cn_table)
    with pytest.raises(DataError, match='--resample gaussian'):
        run(*wanted)
    assert not (tmp_path / 'out').exists()
    assert run(*wanted, '--resample', 'gaussian') == 0
    assert len(pd.read_csv(tmp_path / 'out' / 'roi_volumes.tsv', sep='\t')) == 17


def test_what_a_study_has_besides_is_recorded_and_said(tmp_path, capsys):
    out = tmp_path / 'out'
    words = ('--n-mci', 3, '--side-dominance', 0.3, '--memory', '--visits', 2)
    assert run(out, *SMALL, *words) == 0
    assert '4 controls, 6 patients and 3 participants with MCI' in capsys.readouterr().out
    record = json.loads((out / 'simulation.json').read_text())
    course = {'MCI': 3, 'SideDominance': 0.3, 'Memory': True, 'Visits': 2}
    assert course.items() <= record.items()
    people = pd.read_csv(out / 'participants.tsv', sep='\t')
    assert set(people['diagnosis']) == {'CN', 'PT', 'MCI'}
    assert set(people['session_id']) == {'ses-1', 'ses-2'}
    described = json.loads((out / 'participants.json').read_text())
    assert list(described) == list(people.columns)
    assert set(described['diagnosis']['Levels']) == {'CN', 'PT', 'MCI'}
    with pytest.raises(OutputError, match=r'SideDominance 0\.3'):
        run(out, *SMALL)


def test_a_study_without_these_has_the_record_of_before(tmp_path):
    run(tmp_path / 'out', *SMALL, '--side-dominance', 0, '--visits', 1)
    record = json.loads((tmp_path / 'out' / 'simulation.json').read_text())
    assert list(record) == [
        *('Task', 'Controls', 'Patients', 'Seed', 'SourceTableSHA256', 'Resampling'),
        'SurrealBIDSVersion',
    ]


def test_each_visit_has_its_map(tmp_path, monkeypatch):
    def blank_maps(volumes, rng):
        for _ in range(len(volumes)):
            yield nib.Nifti1Image(np.zeros((2, 2, 2), np.float32), np.eye(4))

    monkeypatch.setattr(simulate_cohort, 'simulate_ravens', blank_maps)
    maps = tmp_path / 'maps'
    run(tmp_path / 'out', *SMALL, '--visits', 2, '--maps', maps)
    people = pd.read_csv(tmp_path / 'out' / 'participants.tsv', sep='\t')
    expected = set()
    for who, session in zip(people['participant_id'], people['session_id']):
        name = f'{who}_{session}_space-MNI152NLin2009cAsym_label-GM_ravens.nii.gz'
        expected.add(maps / who / session / 'anat' / name)
    assert len(expected) == 20
    assert set(maps.rglob('*_ravens.nii.gz')) == expected


@pytest.fixture
def calls(monkeypatch):
    made = []
    monkeypatch.setattr(simulate_cohort, 'simulate_cohort', lambda *call: made.append(call))
    return made


def test_options_become_the_plan(tmp_path, calls, capsys):
    words = (
        '--n-cn 3 --n-pt 4 --sites 5 --patterns 1 --voxel-size 1 --atlases 6 --skull-stripped '
        '--seed 7'
    )
    assert main(['cohort', str(tmp_path), *words.split(), '--nprocs', '2']) == 0
    plan = CohortPlan(3, 4, 5, 1, 1.0, 6, True, 7)
    assert calls == [(tmp_path, plan, 2)]
    assert str(tmp_path) in capsys.readouterr().out


def test_impossible_numbers_are_refused_before_anything_is_written(tmp_path, capsys):
    for words in (['--patterns', '9'], ['--nprocs', '0']):
        assert main(['cohort', str(tmp_path / 'out'), *words]) == 2
        assert not (tmp_path / 'out').exists()
        assert ' '.join(words) in capsys.readouterr().err


PEOPLE = [f'sub-{k:02d}' for k in range(12)]


@pytest.fixture
def truth(tmp_path):
    rng = np.random.default_rng(0)
    severities = rng.uniform(0.01, 1, (12, 2))
    severities[:4] = 0
    table = pd.DataFrame(severities, columns=['r1', 'r2']).assign(participant_id=PEOPLE)
    return table, write_tsv(tmp_path / 'severities.tsv', table)


def test_patterns_and_people_in_any_order_score_perfectly(tmp_path, truth, capsys):
    """Also if severities have the names of a simulated cohort."""
    table, path = truth
    estimates = table.rename(columns={'r1': 'r2', 'r2': 'r1'}).iloc[::-1]
    rindices = write_tsv(tmp_path / 'rindices.tsv', estimates)
    for names in (['r1', 'r2'], ['pattern_1', 'pattern_2']):
        write_tsv(path, table.rename(columns=dict(zip(('r1', 'r2'), names))))
        assert main(['score', str(rindices), str(path)]) == 0
        printed = capsys.readouterr().out
        assert '8 patients' in printed
        assert f'true {names[0]} is found as r2: c-index 1.000' in printed
        assert '(pattern-c-index) 1.000' in printed


def test_tables_that_do_not_belong_together_are_an_error(tmp_path, truth, capsys):
    table, path = truth
    for estimates, message in (
        (table.assign(participant_id=[f'sub-x{k}' for k in range(12)]), '0 patients'),
        (table.rename(columns={'r1': 'a', 'r2': 'b'}), 'no column r1, r2'),
        (table.drop(columns='r2'), '1 pattern, but 2 were simulated'),
    ):
        rindices = write_tsv(tmp_path / 'rindices.tsv', estimates)
        assert main(['score', str(rindices), str(path)]) == 65
        assert message in capsys.readouterr().err


def test_patients_are_scored_once_and_without_mci(tmp_path, truth, capsys):
    table, path = truth
    rng = np.random.default_rng(1)
    first = table.assign(session_id='ses-1')
    visits = pd.concat([first, table.assign(session_id='ses-2')])
    write_tsv(path, visits)
    is_mci = visits['participant_id'].isin(PEOPLE[10:])
    estimates = visits.assign(group=np.where(is_mci, 'MCI', 'PT'))
    unlike = is_mci | (visits['session_id'] == 'ses-2')
    estimates.loc[unlike, ['r1', 'r2']] = rng.uniform(size=(unlike.sum(), 2))
    rindices = write_tsv(tmp_path / 'rindices.tsv', estimates)
    assert main(['score', str(rindices), str(path)]) == 0
    printed = capsys.readouterr().out
    assert '6 patients' in printed
    assert '(pattern-c-index) 1.000' in printed


HIPPOCAMPI, LINGUAL_GYRI = (47, 48), (134, 135)


@pytest.fixture(scope='module')
def labels():
    """Labels of the template on a grid of 4 mm."""
    atlas = load_labels()
    affine = atlas.affine @ np.diag([4, 4, 4, 1])
    shape = tuple(size // 4 for size in atlas.shape)
    return nib.Nifti1Image(labels_at(atlas, affine, shape), affine)


def write_t_map(folder, contrast, labels, indices):
    """A map whose |t| is large in some regions, but in a tenth of their voxels."""
    rng = np.random.default_rng(0)
    index = np.asarray(labels.dataobj)
    t = rng.uniform(0.1, 1, index.shape) * (index > 0)
    t[np.isin(index, indices) & (rng.uniform(size=t.shape) < 0.9)] -= 5
    image = nib.Nifti1Image(t.astype(np.float32), labels.affine)
    name = (
        f'group_space-MNI152NLin2009cAsym_label-GM_contrast-{contrast}slope_stat-t_statmap.nii.gz'
    )
    return write_image(folder / name, image)


@pytest.mark.slow
def test_maps_are_scored_by_the_regions_they_concern(tmp_path, truth, labels, capsys):
    table, path = truth
    patterns = pd.DataFrame({'pattern': [1, 1, 2, 2], 'index': [*HIPPOCAMPI, *LINGUAL_GYRI]})
    write_tsv(tmp_path / 'patterns.tsv', patterns)
    rindices = write_tsv(tmp_path / 'rindices.tsv', table)
    for concerned, lowest, highest in (
        ((HIPPOCAMPI, LINGUAL_GYRI), 0.9, 1.0),
        ((LINGUAL_GYRI, HIPPOCAMPI), 0.4, 0.6),
    ):
        for contrast, indices in zip(('r1', 'r2'), concerned):
            write_t_map(tmp_path, contrast, labels, indices)
        assert main(['score', str(rindices), str(path), '--maps', str(tmp_path)]) == 0
        scores = re.findall(r'its map ([\d.]+)', capsys.readouterr().out)
        assert len(scores) == 2
        assert all(lowest < float(score) < highest for score in scores)


def test_missing_maps_are_an_error(tmp_path, truth, capsys):
    table, path = truth
    write_tsv(tmp_path / 'patterns.tsv', pd.DataFrame({'pattern': [1], 'index': [47]}))
    rindices = write_tsv(tmp_path / 'rindices.tsv', table)
    assert main(['score', str(rindices), str(path), '--maps', str(tmp_path)]) == 65
    assert 'no such map' in capsys.readouterr().err
