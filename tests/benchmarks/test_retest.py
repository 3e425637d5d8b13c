"""How the noise of measurement is learned from few pairs."""

import numpy as np
import pandas as pd
import pytest
import retest

from surreal_bids.regions import muse_indices


def test_shrunk_variances_are_nearer_to_the_truth():
    rng = np.random.default_rng(0)
    n, df, prior_df = 400, 5, 8
    log_volumes = rng.normal(8, 1, n)
    usual = np.exp(-1 - 0.6 * log_volumes)
    true = usual * prior_df / rng.chisquare(prior_df, n)
    seen = true * rng.chisquare(df, n) / df
    shrunk = retest.shrink(seen, np.full(n, df), log_volumes)
    errors = [np.abs(np.log(found / true)).mean() for found in (shrunk, seen, usual)]
    assert errors[0] < 0.85 * min(errors[1:])
    # The best that can be: the posterior mean with the true prior.
    best = (prior_df * usual + df * seen) / (prior_df + df)
    np.testing.assert_allclose(shrunk, best, rtol=0.4)


def test_variances_that_differ_by_chance_only_become_a_line():
    rng = np.random.default_rng(1)
    log_volumes = rng.normal(8, 1, 300)
    true = np.exp(-1 - 0.6 * log_volumes)
    seen = true * rng.chisquare(6, 300) / 6
    np.testing.assert_allclose(retest.shrink(seen, np.full(300, 6), log_volumes), true, rtol=0.25)


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
    found = retest.estimate_noise(differences, volumes)
    assert found[retest.SHARED] == pytest.approx(shared, rel=0.15)
    assert found[retest.HEAD_SIZE] == pytest.approx(head, rel=0.2)
    np.testing.assert_allclose(found[regions], own, rtol=0.1)
