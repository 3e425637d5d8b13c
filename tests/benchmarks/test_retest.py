"""How the noise of measurement is learned from few pairs."""

import numpy as np
import pandas as pd
import pytest
import retest

from surreal_bids.analysis.change import limit_in_sd
from surreal_bids.regions import muse_indices, muse_table


def test_shrunk_variances_are_nearer_to_the_truth():
    rng = np.random.default_rng(0)
    n, df, prior_df = 400, 5, 8
    log_volumes = rng.normal(8, 1, n)
    usual = np.exp(-1 - 0.6 * log_volumes)
    true = usual * prior_df / rng.chisquare(prior_df, n)
    seen = true * rng.chisquare(df, n) / df
    shrunk, df_shrunk = retest.shrink(seen, np.full(n, df), log_volumes)
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
    np.testing.assert_allclose(
        retest.shrink(seen, np.full(300, 6), log_volumes)[0], true, rtol=0.25
    )


def test_noise_that_was_simulated_is_found():
    rng = np.random.default_rng(2)
    regions = [str(index) for index in muse_indices()]
    pairs, own, shared, head = 200, 0.02, 0.01, 0.004
    common = rng.normal(0, np.sqrt(2) * shared, pairs)[:, None]
    sd = np.sqrt(2) * np.array([head, *[own] * len(regions)])
    differences = pd.DataFrame(
        common + rng.normal(size=(pairs, len(sd))) * sd, columns=[retest.HEAD_SIZE, *regions]
    )
    volumes = pd.Series(rng.lognormal(8, 1, len(sd)), differences.columns)
    found = retest.estimate_noise(differences, volumes)['noise']
    assert found[retest.SHARED] == pytest.approx(shared, rel=0.15)
    assert found[retest.HEAD_SIZE] == pytest.approx(head, rel=0.2)
    np.testing.assert_allclose(found[regions], own, rtol=0.1)


def test_few_regions_are_called_changed_where_noise_is_learned_from_five_pairs():
    rng = np.random.default_rng(3)
    regions = [str(index) for index in muse_indices()]
    mates = muse_table().set_index('index')['mate'].dropna().astype(int)
    sides = [min(int(i), mates.get(int(i), int(i))) for i in regions]
    called = {'t': [], 'normal': []}
    for _ in range(80):
        # Both sides of the brain have the same volume and noise.
        drawn = {side: (rng.lognormal(8, 1), 5 / rng.chisquare(5)) for side in sides}
        volumes = pd.Series([drawn[side][0] for side in sides], regions)
        sd = np.exp(-2 - 0.25 * np.log(volumes)) * np.sqrt([drawn[side][1] for side in sides])
        pairs = np.sqrt(2) * sd.to_numpy() * rng.normal(size=(5, len(regions)))
        differences = pd.DataFrame(pairs, columns=regions).assign(**{retest.HEAD_SIZE: 0.0})
        found = retest.estimate_noise(differences, volumes).loc[regions]
        changes = np.abs(np.sqrt(2) * sd.to_numpy() * rng.normal(size=(50, len(regions))))
        for how, df in (('t', found['df']), ('normal', np.full(len(regions), 1e6))):
            limit = np.sqrt(2) * found['noise'] * limit_in_sd(len(regions), np.asarray(df))
            called[how].append((changes > limit.to_numpy()).any(axis=1).mean())
    assert 0.04 < np.mean(called['t']) < 0.06
    assert np.mean(called['normal']) > 0.2
