"""Z-scores in place of volumes: the same normalised features, and refusals both ways."""

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.zscores import check_z_scores
from surreal_bids.exceptions import DataError, SurrealError, UsageError
from surreal_bids.rindices.model import TableModel, prepare
from surreal_bids.simulation.tables import simulate_table

FEW = {'n_patterns': (2,), 'ortho': (0.2,), 'repetitions': 2, 'iterations': 60}


@pytest.fixture(scope='module')
def tables(tmp_path_factory):
    """A table of volumes, and one of their z-scores by the controls."""
    folder = tmp_path_factory.mktemp('scores')
    simulated = simulate_table('basic', 40, 60, seed=1)
    people = simulated.participants.drop(columns='site')
    volumes = simulated.volumes.set_index('participant_id').iloc[:, :30]
    controls = volumes[(people['diagnosis'] == 'CN').to_numpy()]
    scores = (volumes - controls.mean()) / controls.std()
    for name, table in (('volumes', volumes), ('scores', scores)):
        joined = people.merge(table.reset_index(), on='participant_id')
        joined.to_csv(folder / f'{name}.tsv', sep='\t', index=False)
    return folder


def read(tables, name, **options):
    return Cohort.read(tables / f'{name}.tsv', **options)


def read_scores(tables, **options):
    return read(tables, 'scores', features_kind='zscore', **options)


def test_z_scores_are_adjusted_for_nothing_unless_asked(tables):
    options = read_scores(tables).options
    assert (options.covariates, options.icv) == ((), 'none')
    asked = read_scores(tables, covariates=('age',), icv='covariate').options
    assert (asked.covariates, asked.icv) == (('age',), 'covariate')


@pytest.mark.parametrize('covariates', [('none',), ('age', 'sex')])
def test_the_network_sees_the_same_as_of_volumes(tables, covariates):
    volumes = prepare(read(tables, 'volumes', icv='none', covariates=covariates))
    scores = prepare(read_scores(tables, covariates=covariates))
    pd.testing.assert_frame_equal(scores.normalised, volumes.normalised, rtol=1e-9)


def test_r_indices_are_those_of_volumes(tables, monkeypatch):
    monkeypatch.setattr('surreal_bids.model.number.PERMUTATIONS', 1)
    monkeypatch.setattr('surreal_bids.model.number.REPRODUCTIONS', 2)
    cohorts = (
        read(tables, 'volumes', icv='none', covariates=('none',)),
        read_scores(tables),
    )
    models = [TableModel.fit(cohort, device='cpu', **FEW) for cohort in cohorts]
    found = [model.apply(cohort)[['r1', 'r2']] for model, cohort in zip(models, cohorts)]
    assert found[0].corrwith(found[1]).min() > 0.99


@pytest.mark.parametrize('icv', ['power', 'proportion'])
def test_ratios_of_z_scores_are_refused(tables, icv):
    with pytest.raises(UsageError, match=f'--icv {icv}.*--features-kind zscore'):
        read_scores(tables, icv=icv, icv_column='icv')


def test_z_scores_as_volumes_name_the_option(tables):
    with pytest.raises(DataError, match='--features-kind zscore'):
        read(tables, 'scores')


def test_volumes_as_z_scores_are_refused(tables):
    with pytest.raises(DataError, match=r'volumes\.tsv.*MUSE_.*--features-kind volume'):
        read(tables, 'volumes', features_kind='zscore')


@pytest.mark.parametrize('features', ['muse72'])
def test_sums_of_z_scores_are_refused(tables, features):
    with pytest.raises(SurrealError, match='muse72'):
        read_scores(tables, features=features)


def scores(seed, n_people=20, n_features=12):
    rng = np.random.default_rng(seed)
    table = rng.normal(0, 1, (n_people, n_features)) - rng.uniform(0, 2, (n_people, 1))
    names = [f'sub-{number:02d}' for number in rng.permutation(n_people)]
    return rng, pd.DataFrame(table, names, [f'region{number}' for number in range(n_features)])


DAMAGES = {
    'volumes': lambda rng, t: t * 300 + 5000,
    'proportions': lambda rng, t: (t * 0.1 + 4).abs() / 1000,
    'centiles': lambda rng, t: t.rank(pct=True) * 100,
    'residuals of proportions': lambda rng, t: t * 1e-4,
    'percentages': lambda rng, t: t * 10,
}


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('damage', DAMAGES.values(), ids=DAMAGES)
def test_other_numbers_are_no_z_scores(damage, seed):
    rng, table = scores(seed)
    with pytest.raises(DataError, match=r'scores\.tsv'):
        check_z_scores(damage(rng, table), 'scores.tsv')


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('value', [-9999.0, 999.0, np.inf])
def test_codes_for_missing_values_are_named(seed, value):
    rng, table = scores(seed)
    row, column = rng.integers(20), rng.integers(12)
    table.iloc[row, column] = value
    with pytest.raises(DataError, match=f'{table.columns[column]} of {table.index[row]}'):
        check_z_scores(table, 'scores.tsv')


@pytest.mark.parametrize('seed', range(10))
def test_plain_z_scores_raise_no_alarm(seed):
    rng, table = scores(seed, int(np.random.default_rng(seed).integers(1, 60)))
    table.iloc[0, 0] = rng.choice([-12.0, 15.0, np.nan, 0.0])
    check_z_scores(table, 'scores.tsv')


def test_a_model_takes_its_own_kind_only(tables):
    from surreal_bids.cohort.cohort import read_cohort
    from surreal_bids.config import CohortOptions

    steps = {
        name: prepare(cohort).preprocessing.requirements
        for name, cohort in (
            ('volumes', read(tables, 'volumes', icv='none')),
            ('scores', read_scores(tables)),
        )
    }

    def apply(model, table, kind=None):
        options = CohortOptions(features_kind=kind)
        return read_cohort(
            tables / f'{table}.tsv',
            options=options,
            model=steps[model],
            groups='compared',
            adapt=False,
        )

    assert len(apply('scores', 'scores')) == len(apply('volumes', 'volumes')) == 100
    assert len(apply('scores', 'scores', 'zscore')) == 100
    for model, table in (('volumes', 'scores'), ('scores', 'volumes')):
        with pytest.raises(DataError, match='features-kind'):
            apply(model, table)
    for model, kind in (('volumes', 'zscore'), ('scores', 'volume')):
        with pytest.raises(UsageError, match=f'--features-kind {kind}'):
            apply(model, model, kind)
