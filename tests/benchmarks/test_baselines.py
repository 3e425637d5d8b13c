"""The methods of Table 1: other programs, the paper's numbers."""

import warnings

import baselines
import numpy as np
import pytest
from baselines import BASELINES
from sklearn.decomposition._nmf import _initialize_nmf

from surreal_bids.simulation.tables import simulate_table, volume_columns
from surreal_bids.stats.concordance import pattern_c_index
from tests.benchmarks.data import easy_data

MIN_ACCURACY = {'NMF': 0.93, 'OpNMF': 0.93, 'sparse factors': 0.93}
"""Factors may be rotated, and the topics of a person sum to 1: the others reach 0.6."""


@pytest.mark.slow
@pytest.mark.parametrize('name', BASELINES)
def test_patterns_that_do_not_overlap_are_found(name, few_draws):
    volumes, is_patient, severities = easy_data(n_people=300)
    fitted = BASELINES[name](random_state=4).fit(volumes, is_patient)
    scores = fitted.transform(volumes[is_patient])
    assert pattern_c_index(scores, severities) > MIN_ACCURACY.get(name, 0.6)
    again = BASELINES[name](random_state=4).fit(volumes, is_patient)
    np.testing.assert_array_equal(again.transform(volumes[is_patient]), scores)
    np.testing.assert_allclose(fitted.transform(volumes[is_patient][5:8]), scores[5:8], atol=5e-3)
    scale = np.random.default_rng(1).uniform(500, 9000, volumes.shape[1])
    in_mm3 = BASELINES[name](random_state=4).fit(volumes * scale, is_patient)
    found = in_mm3.transform((volumes * scale)[is_patient])
    np.testing.assert_allclose(found, scores, rtol=1e-3, atol=1e-3)


def test_opnmf_equals_the_package_of_that_name():
    package = pytest.importorskip('opnmf.opnmf', reason='opnmf 0.0.2 is not installed')
    rng = np.random.default_rng(3)
    data = rng.exponential(size=(17, 3)) @ rng.exponential(size=(3, 40))
    data += 0.3 * rng.uniform(size=data.shape)
    start, _ = _initialize_nmf(data, 3, init='nndsvd', random_state=0)
    np.testing.assert_allclose(baselines.nonnegative_svd(data, 3), start, atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        expected, _, _ = package.opnmf(data, 3, tol=baselines.OPNMF_TOLERANCE)
    np.testing.assert_allclose(baselines.factorise(data, 3), expected, atol=1e-6)


@pytest.mark.slow
def test_accuracy_on_the_basic_task_is_that_of_table_1():
    simulated = simulate_table('basic', seed=0)
    is_patient = (simulated.participants['diagnosis'] == 'PT').to_numpy()
    volumes = simulated.volumes[volume_columns()].to_numpy()
    truth = simulated.severities.loc[is_patient, ['r1', 'r2', 'r3']].to_numpy()
    published = {'NMF': 0.680, 'LDA': 0.605, 'FA': 0.631, 'OpNMF': 0.648, 'DNMF': 0.562}
    for name, value in published.items():
        scores = BASELINES[name]().fit(volumes, is_patient).transform(volumes[is_patient])
        assert pattern_c_index(scores, truth) == pytest.approx(value, abs=0.06), name
