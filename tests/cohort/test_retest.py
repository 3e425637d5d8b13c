"""How the noise of measurement is learned from few pairs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.change import limit_in_sd
from surreal_bids.cohort.features import named_features
from surreal_bids.cohort.requirements import PreprocessingOptions
from surreal_bids.cohort.retest import (
    HEAD_SIZE,
    SHARED,
    differences_within,
    estimate_noise,
    read_retest,
    shrink,
)
from surreal_bids.exceptions import DataError
from surreal_bids.regions import Z_SCORE, muse_indices, region_mates
from surreal_bids.simulation.population import sample_controls

MATES = {str(index): str(mate) for index, mate in region_mates().items()}


def test_shrunk_variances_are_nearer_to_the_truth():
    rng = np.random.default_rng(0)
    n, df, prior_df = 400, 5, 8
    log_volumes = rng.normal(8, 1, n)
    usual = np.exp(-1 - 0.6 * log_volumes)
    true = usual * prior_df / rng.chisquare(prior_df, n)
    seen = true * rng.chisquare(df, n) / df
    shrunk, df_shrunk = shrink(seen, np.full(n, df), log_volumes)
    errors = [np.abs(np.log(found / true)).mean() for found in (shrunk, seen, usual)]
    assert errors[0] < 0.85 * min(errors[1:])
    # The best that can be: the posterior mean with the true prior.
    best = (prior_df * usual + df * seen) / (prior_df + df)
    np.testing.assert_allclose(shrunk, best, rtol=0.4)
    np.testing.assert_allclose(df_shrunk, prior_df + df, rtol=0.3)


def test_variances_that_differ_by_chance_only_become_a_line():
    rng = np.random.default_rng(1)
    log_volumes = rng.normal(8, 1, 300)
    true = np.exp(-1 - 0.6 * log_volumes)
    seen = true * rng.chisquare(6, 300) / 6
    np.testing.assert_allclose(shrink(seen, np.full(300, 6), log_volumes)[0], true, rtol=0.25)


def test_noise_that_was_simulated_is_found():
    rng = np.random.default_rng(2)
    regions = [str(index) for index in muse_indices()]
    pairs, own, shared, head = 200, 0.02, 0.01, 0.004
    common = rng.normal(0, np.sqrt(2) * shared, pairs)[:, None]
    sd = np.sqrt(2) * np.array([head, *[own] * len(regions)])
    differences = pd.DataFrame(
        common + rng.normal(size=(pairs, len(sd))) * sd, columns=[HEAD_SIZE, *regions]
    )
    volumes = pd.Series(rng.lognormal(8, 1, len(sd)), differences.columns)
    found = estimate_noise(differences, volumes, MATES)['noise']
    assert found[SHARED] == pytest.approx(shared, rel=0.15)
    assert found[HEAD_SIZE] == pytest.approx(head, rel=0.2)
    np.testing.assert_allclose(found[regions], own, rtol=0.1)


def test_few_regions_are_called_changed_where_noise_is_learned_from_five_pairs():
    rng = np.random.default_rng(3)
    regions = [str(index) for index in muse_indices()]
    sides = [min(int(i), int(MATES.get(i, i))) for i in regions]
    called = {'t': [], 'normal': []}
    for _ in range(80):
        # Both sides of the brain have the same volume and noise.
        drawn = {side: (rng.lognormal(8, 1), 5 / rng.chisquare(5)) for side in sides}
        volumes = pd.Series([drawn[side][0] for side in sides], regions)
        sd = np.exp(-2 - 0.25 * np.log(volumes)) * np.sqrt([drawn[side][1] for side in sides])
        pairs = np.sqrt(2) * sd.to_numpy() * rng.normal(size=(5, len(regions)))
        differences = pd.DataFrame(pairs, columns=regions).assign(**{HEAD_SIZE: 0.0})
        found = estimate_noise(differences, volumes, MATES).loc[regions]
        changes = np.abs(np.sqrt(2) * sd.to_numpy() * rng.normal(size=(50, len(regions))))
        for how, df in (('t', found['df']), ('normal', np.full(len(regions), 1e6))):
            limit = np.sqrt(2) * found['noise'] * limit_in_sd(len(regions), np.asarray(df))
            called[how].append((changes > limit.to_numpy()).any(axis=1).mean())
    assert 0.04 < np.mean(called['t']) < 0.06
    assert np.mean(called['normal']) > 0.2


WANTED = named_features('muse139')
OPTIONS = PreprocessingOptions(icv_column='icv', icv='power')
SHARED_SD, HEAD_SD = 0.02, 0.006


def scans(seed, n_people=30, n_scans=2, own=0.03):
    """Volumes and head sizes of participants who were scanned repeatedly, and nothing else."""
    rng = np.random.default_rng(seed)
    drawn = sample_controls(n_people, rng)
    rows = np.repeat(np.arange(n_people), n_scans)
    scale = rng.normal(0, SHARED_SD, len(rows))
    errors = scale[:, None] + rng.normal(0, own, (len(rows), len(WANTED)))
    volumes = drawn.volumes.iloc[rows].reset_index(drop=True) * np.exp(errors)
    size = drawn.people['icv'].to_numpy()[rows] * np.exp(scale + rng.normal(0, HEAD_SD, len(rows)))
    names = [f'sub-{row:02}' for row in rows]
    return pd.DataFrame({'participant_id': names, 'icv': size}).join(volumes)


def write(table, folder):
    path = folder / 'retest.tsv'
    table.to_csv(path, sep='\t', index=False)
    return path


@pytest.mark.parametrize('n_scans', [2, 3, 5])
def test_noise_of_a_table_is_found(n_scans, tmp_path):
    table = scans(n_scans, 40, n_scans)
    shuffled = table.sample(frac=1, random_state=n_scans)
    found = read_retest(write(shuffled, tmp_path), WANTED, OPTIONS)
    pairs = 40 * (n_scans - 1)
    assert found.loc[[SHARED, HEAD_SIZE], 'df'].tolist() == [pairs, pairs]
    assert found.loc[SHARED, 'noise'] == pytest.approx(SHARED_SD, rel=0.3)
    assert found.loc[HEAD_SIZE, 'noise'] == pytest.approx(HEAD_SD, rel=0.35)
    np.testing.assert_allclose(found.loc[WANTED.names, 'noise'], 0.03, rtol=0.15)


def test_differences_have_the_variance_within_participants():
    rng = np.random.default_rng(1)
    who = pd.Series(rng.integers(12, size=50))
    logs = pd.DataFrame(rng.normal(size=(50, 3)))
    within = logs.groupby(who).transform(lambda own: own - own.mean())
    found = differences_within(logs, who)
    assert len(found) == 50 - who.nunique()
    # Half of the squares of differences is what the squares around means are.
    np.testing.assert_allclose((found**2).sum() / 2, (within**2).sum())


def test_rows_are_of_sessions_or_repeated_and_columns_have_any_known_spelling(tmp_path):
    table = scans(5)
    expected = read_retest(write(table, tmp_path), WANTED, OPTIONS)
    sessions = [f'{name}_ses-{k % 2}' for k, name in enumerate(table['participant_id'])]
    named = table.assign(participant_id=sessions).rename(columns={'icv': 'TIV', 'MUSE_47': '47'})
    pd.testing.assert_frame_equal(read_retest(write(named, tmp_path), WANTED, OPTIONS), expected)
    separate = table.assign(session_id=['a', 'b'] * 30)
    assert read_retest(write(separate, tmp_path), WANTED, OPTIONS).equals(expected)


def test_without_a_correction_for_head_size_it_need_not_be_there(tmp_path):
    path = write(scans(6).drop(columns='icv'), tmp_path)
    found = read_retest(path, WANTED, PreprocessingOptions())
    assert found.loc[HEAD_SIZE, 'noise'] == 0
    with pytest.raises(DataError, match=r'retest\.tsv.*icv'):
        read_retest(path, WANTED, OPTIONS)


def damaged(kind, seed):
    """A table that tells nothing of noise, and what the error names."""
    rng = np.random.default_rng(seed)
    table = scans(seed)
    feature, row = WANTED.features[rng.integers(len(WANTED))], int(rng.integers(len(table)))
    region = f'MUSE_{feature.indices[0]}'
    who = table['participant_id'][row]
    if kind == 'nobody twice':
        return table.drop_duplicates('participant_id'), 'at least 5'
    if kind == 'few':
        return table[: 2 * int(rng.integers(1, 5))], 'at least 5'
    if kind == 'negative':
        table.loc[row, region] *= -1 if rng.integers(2) else 0
        return table, f'{who}.*{feature.name}'
    if kind == 'other columns':
        return table.rename(columns={region: 'else'}), feature.name
    if kind == 'same scan':
        table.iloc[1, 1:] = table.iloc[0, 1:]
        return table, 'line 3'
    if kind == 'copied region':
        table[region] = table.groupby('participant_id')[region].transform('first')
        return table, feature.name
    if kind == 'text':
        table = table.astype({region: object})
        table.loc[row, region] = 'many'
        return table, region
    if kind == 'no id':
        table.loc[row, 'participant_id'] = None
        return table, f'line {row + 2}'
    # Rows of different participants under the same ids.
    return table.assign(participant_id=np.roll(table['participant_id'], 1)), 'check the ids'


KINDS = ('nobody twice', 'few', 'negative', 'other columns', 'same scan', 'copied region', 'text')


@pytest.mark.parametrize('seed', range(2))
@pytest.mark.parametrize('kind', [*KINDS, 'no id', 'other participants'])
def test_nonsense_is_refused(kind, seed, tmp_path):
    table, named = damaged(kind, seed)
    with pytest.raises(DataError, match=named) as error:
        read_retest(write(table, tmp_path), WANTED, OPTIONS)
    assert 'retest.tsv' in str(error.value)


def test_copies_among_three_scans_are_refused(tmp_path):
    table = scans(0)
    third_is_first = pd.concat([table, table.iloc[[0]]])
    with pytest.raises(DataError, match=f'line {len(table) + 2}'):
        read_retest(write(third_is_first, tmp_path), WANTED, OPTIONS)
    feature = WANTED.features[3]
    region = f'MUSE_{feature.indices[0]}'
    three = pd.concat([table, table.assign(**(1.01 * table.iloc[:, 1:]))])
    three[region] = three.groupby('participant_id')[region].transform('first')
    with pytest.raises(DataError, match=feature.name):
        read_retest(write(three, tmp_path), WANTED, OPTIONS)


def test_rows_with_missing_volumes_are_not_used(tmp_path):
    table = scans(7)
    table.loc[[0, 5], 'MUSE_47'] = np.nan
    found = read_retest(write(table, tmp_path), WANTED, OPTIONS)
    assert found.loc[SHARED, 'df'] == 28


def test_z_scores_have_no_noise_of_this_kind(tmp_path):
    with pytest.raises(DataError, match='z-scores'):
        read_retest(write(scans(8), tmp_path), replace(WANTED, unit=Z_SCORE), OPTIONS)
