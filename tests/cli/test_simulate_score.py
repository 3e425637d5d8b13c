import re

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.cli.simulate import main
from surreal_bids.files import write_image, write_tsv
from surreal_bids.simulation.templates import labels_at, load_labels
from surreal_bids.stats.concordance import pattern_c_index

PEOPLE = [f'sub-{k:02d}' for k in range(12)]


@pytest.fixture
def truth(tmp_path):
    rng = np.random.default_rng(0)
    severities = rng.uniform(0.01, 1, (12, 2))
    severities[:4] = 0
    table = pd.DataFrame(severities, columns=['r1', 'r2']).assign(participant_id=PEOPLE)
    return table, write_tsv(tmp_path / 'severities.tsv', table)


@pytest.mark.parametrize('order', [['r1', 'r2'], ['r2', 'r1']])
@pytest.mark.parametrize('shuffle', [False, True])
def test_patterns_and_people_in_any_order_score_perfectly(tmp_path, truth, capsys, order, shuffle):
    table, path = truth
    estimates = table.rename(columns=dict(zip(['r1', 'r2'], order)))
    if shuffle:
        estimates = estimates.iloc[::-1]
    rindices = write_tsv(tmp_path / 'rindices.tsv', estimates)
    assert main(['score', str(rindices), str(path)]) == 0
    printed = capsys.readouterr().out
    assert '8 patients' in printed
    assert f'true r1: {order[0]}, c-index 1.000' in printed
    assert 'pattern-c-index 1.000' in printed


def test_the_mean_is_the_pattern_c_index_of_the_patients(tmp_path, truth, capsys):
    table, path = truth
    rng = np.random.default_rng(1)
    noisy = table[['r1', 'r2']] + rng.normal(0, 0.3, (12, 2))
    rindices = write_tsv(tmp_path / 'rindices.tsv', noisy.assign(participant_id=PEOPLE))
    assert main(['score', str(rindices), str(path)]) == 0
    expected = pattern_c_index(noisy.iloc[4:], table[['r1', 'r2']].iloc[4:])
    assert f'pattern-c-index {expected:.3f}' in capsys.readouterr().out


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda t: t.assign(participant_id=[f'sub-x{k}' for k in range(12)]), '0 patients'),
        (lambda t: t.rename(columns={'r1': 'a', 'r2': 'b'}), 'no column r1, r2'),
    ],
)
def test_tables_that_do_not_belong_together_are_an_error(tmp_path, truth, capsys, change, message):
    table, path = truth
    rindices = write_tsv(tmp_path / 'rindices.tsv', change(table))
    assert main(['score', str(rindices), str(path)]) == 65
    assert message in capsys.readouterr().err


def test_names_of_simulated_cohorts_are_understood(tmp_path, truth, capsys):
    table, _ = truth
    cohort = table.rename(columns={'r1': 'pattern_1', 'r2': 'pattern_2'})
    severities = write_tsv(tmp_path / 'cohort.tsv', cohort)
    rindices = write_tsv(tmp_path / 'rindices.tsv', table)
    assert main(['score', str(rindices), str(severities)]) == 0
    assert 'true pattern_2: r2, c-index 1.000' in capsys.readouterr().out


def test_fewer_patterns_than_were_simulated_are_an_error(tmp_path, truth, capsys):
    table, path = truth
    rindices = write_tsv(tmp_path / 'rindices.tsv', table.drop(columns='r2'))
    assert main(['score', str(rindices), str(path)]) == 65
    assert '1 patterns, but 2 were simulated' in capsys.readouterr().err


HIPPOCAMPI, LINGUAL_GYRI = (47, 48), (134, 135)


@pytest.fixture(scope='module')
def labels():
    """Labels of the template on a grid of 4 mm."""
    atlas = load_labels()
    affine = atlas.affine @ np.diag([4, 4, 4, 1])
    shape = tuple(size // 4 for size in atlas.data.shape)
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


@pytest.mark.parametrize(
    ('concerned', 'lowest', 'highest'),
    [((HIPPOCAMPI, LINGUAL_GYRI), 0.9, 1.0), ((LINGUAL_GYRI, HIPPOCAMPI), 0.4, 0.6)],
    ids=['the regions of the patterns', 'other regions'],
)
def test_maps_are_scored_by_the_regions_they_concern(
    tmp_path, truth, labels, capsys, concerned, lowest, highest
):
    table, path = truth
    for contrast, indices in zip(('r1', 'r2'), concerned):
        write_t_map(tmp_path, contrast, labels, indices)
    patterns = pd.DataFrame({'pattern': [1, 1, 2, 2], 'index': [*HIPPOCAMPI, *LINGUAL_GYRI]})
    write_tsv(tmp_path / 'patterns.tsv', patterns)
    rindices = write_tsv(tmp_path / 'rindices.tsv', table)
    assert main(['score', str(rindices), str(path), '--maps', str(tmp_path)]) == 0
    scores = [float(score) for score in re.findall(r'its map ([\d.]+)', capsys.readouterr().out)]
    assert len(scores) == 2
    assert all(lowest < score < highest for score in scores)


def test_missing_maps_are_an_error(tmp_path, truth, capsys):
    table, path = truth
    write_tsv(tmp_path / 'patterns.tsv', pd.DataFrame({'pattern': [1], 'index': [47]}))
    rindices = write_tsv(tmp_path / 'rindices.tsv', table)
    assert main(['score', str(rindices), str(path), '--maps', str(tmp_path)]) == 65
    assert 'no such map' in capsys.readouterr().err
