from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from surreal_bids.cohort.roles import listed_features
from surreal_bids.model.training import mean_gradients, members_r_indices
from surreal_bids.regions import Feature, FeatureList, muse_indices, muse_table
from surreal_bids.rindices.measurement_noise import (
    HEAD_SIZE,
    NOISE_TABLE,
    SHARED,
    df_of_sum,
    noise_of_features,
    noise_of_indices,
)
from surreal_bids.rindices.model import TableModel
from tests.analysis.visits_study import OPTIONS, measure, read_visits, write_visits


@pytest.fixture(scope='module')
def cohort(tmp_path_factory):
    path = tmp_path_factory.mktemp('study') / 'visits.tsv'
    write_visits(path)
    return read_visits(path)


@pytest.fixture(scope='module')
def model(cohort):
    return TableModel.fit(cohort, OPTIONS)


@pytest.fixture(scope='module')
def table():
    return pd.read_csv(NOISE_TABLE, sep='\t', dtype={'index': str}).set_index('index')


def test_the_table_has_all_regions_and_plausible_noise(table):
    assert set(table.index) == {SHARED, HEAD_SIZE, *map(str, muse_indices())}
    # The median difference of two scans was 1.93 %: 0.6745 times the root of 2 times the noise.
    assert table['noise'].median() == pytest.approx(0.0193 / 0.6745 / np.sqrt(2), rel=0.2)
    assert table['noise'].between(0.002, 0.08).all()
    mates = muse_table().set_index('index')['mate'].dropna().astype(int)
    ratio = [table['noise'][str(i)] / table['noise'][str(mate)] for i, mate in mates.items()
             if str(i) in table.index]  # fmt: skip
    np.testing.assert_allclose(ratio, 1, atol=0.15)


def test_errors_of_a_sum_partly_cancel(table):
    rng = np.random.default_rng(0)
    regions = ('47', '48', '31')
    volumes = table.loc[list(regions), 'volume_mm3'].to_numpy()
    noise = table.loc[list(regions), 'noise'].to_numpy()
    sums = (volumes * np.exp(rng.normal(size=(20_000, 3)) * noise)).sum(axis=1)
    features = FeatureList('columns', (Feature('sum', tuple(map(int, regions))),), 'mm3')
    assert noise_of_features(features)['sd'].item() == pytest.approx(np.log(sums).std(), rel=0.02)
    assert noise_of_features(listed_features('muse72'))['sd'].notna().all()


def test_degrees_of_freedom_of_a_sum_of_variances_are_those_of_a_simulation():
    rng = np.random.default_rng(4)
    variances, df = np.array([3.0, 1.0, 0.5]), np.array([5, 15, 10])
    drawn = (variances * rng.chisquare(df, (100_000, 3)) / df).sum(axis=1)
    expected = 2 * drawn.mean() ** 2 / drawn.var()
    assert df_of_sum(variances, df) == pytest.approx(expected, rel=0.03)


def test_how_well_noise_is_known_follows_from_the_number_of_pairs(table, cohort, model):
    assert table['df'][[SHARED, HEAD_SIZE]].tolist() == [5, 5]
    # Of a region, five pairs of it or of both sides, and what other regions tell of it.
    assert table['df'].drop([SHARED, HEAD_SIZE]).between(9, 20).all()
    features = FeatureList('columns', (Feature('a', (48,)), Feature('b', (47, 48))), 'mm3')
    one, both = noise_of_features(features)['df']
    assert one == table['df']['48']
    # Left and right have one estimate: together they are known no better.
    assert both == pytest.approx(one, rel=0.01)
    # An R-index rests on many regions, of which each has its own errors.
    assert (noise_of_indices(model, cohort).df > 25).all(axis=None)


def test_noise_of_other_features_is_not_known(cohort):
    features = FeatureList('columns', (Feature('thickness', ()), Feature('Left', (48,))), 'mm3')
    assert noise_of_features(features)['sd'].isna().tolist() == [True, False]


def test_gradients_are_those_of_r_indices(cohort, model):
    seen = model.preprocessing.transform(cohort.features, cohort.people).normalised
    X = torch.tensor(seen[model.gan.feature_names_in_].to_numpy())
    weights = {name: weight.double() for name, weight in model.gan.weights_.items()}
    way = torch.tensor(np.random.default_rng(1).normal(0, 1e-7, X.shape[1]))
    upper, lower = (members_r_indices(weights, X + sign * way).mean(axis=0) for sign in (1, -1))
    found = mean_gradients(weights, X) @ way.numpy()
    np.testing.assert_allclose(found, (upper - lower) / 2, rtol=1e-5, atol=1e-13)


@pytest.mark.slow
def test_noise_of_r_indices_is_what_measuring_again_shows(cohort, model, table):
    rng = np.random.default_rng(2)
    own = noise_of_features(cohort.wanted)['sd']
    noise = table['noise']
    drawn = [
        model.compute(*measure(cohort, own, noise[HEAD_SIZE], noise[SHARED], rng))[['r1', 'r2']]
        for _ in range(60)
    ]
    simulated = np.stack([each.to_numpy() for each in drawn]).var(axis=0, ddof=1).mean(axis=0)
    given_anew = cohort.people.assign(
        icv=cohort.people['icv'] * np.where(cohort.visits['is_first'], 1, 1.001)
    )
    found = noise_of_indices(model, replace(cohort, people=given_anew)).sd
    np.testing.assert_allclose(np.sqrt((found**2).mean()), np.sqrt(simulated), rtol=0.05)


@pytest.mark.slow
def test_a_head_size_that_is_given_once_does_not_cancel_the_scale(cohort, model, table):
    rng = np.random.default_rng(3)
    own = noise_of_features(cohort.wanted)['sd']
    drawn = [
        model.compute(measure(cohort, own, 0, table['noise'][SHARED], rng)[0], cohort.people)
        for _ in range(60)
    ]
    simulated = np.stack([each[['r1', 'r2']].to_numpy() for each in drawn]).var(axis=0, ddof=1)
    found = noise_of_indices(model, cohort).sd
    np.testing.assert_allclose(
        np.sqrt((found**2).mean()), np.sqrt(simulated.mean(axis=0)), rtol=0.05
    )


def test_noise_of_r_indices_of_other_features_is_missing(cohort, model):
    steps = model.preprocessing
    unknown = replace(
        steps.features, features=tuple(Feature(f.name, ()) for f in steps.features.features)
    )
    other = replace(model, preprocessing=replace(steps, features=unknown))
    for found in noise_of_indices(other, cohort):
        assert found.isna().all(axis=None)
        assert list(found) == ['r1', 'r2']
