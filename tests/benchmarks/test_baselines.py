import numpy as np
import pandas as pd
import pytest
from baselines import BASELINES
from baselines.base import patients_up
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from surreal_bids.exceptions import DataError
from surreal_bids.simulation.population import volume_columns
from surreal_bids.simulation.tables import simulate_table
from surreal_bids.stats.concordance import concordance_matrix, pattern_c_index
from tests.benchmarks.data import easy_data

pytestmark = pytest.mark.usefixtures('few_draws')

every_method = pytest.mark.parametrize('method', BASELINES.values(), ids=BASELINES)


def test_methods_are_those_of_table_1_in_its_order_and_one_more():
    assert list(BASELINES) == ['NMF', 'LDA', 'FA', 'OpNMF', 'DNMF', 'sparse factors']


@every_method
@pytest.mark.parametrize('n_patterns', [2, 4])
def test_each_person_gets_a_number_a_pattern(method, n_patterns):
    volumes, is_patient, _ = easy_data()
    fitted = method(n_patterns=n_patterns).fit(volumes, is_patient)
    assert fitted.transform(volumes[:7]).shape == (7, n_patterns)
    assert np.isfinite(fitted.transform(volumes)).all()


@pytest.mark.parametrize(
    ('name', 'least'),
    [
        *[('NMF', 0.93), ('OpNMF', 0.93), ('FA', 0.6), ('DNMF', 0.6), ('LDA', 0.6)],
        ('sparse factors', 0.93),
    ],
)
def test_patterns_that_do_not_overlap_are_found(name, least):
    """NMF and opNMF find them; factors may be rotated, and topics of a person sum to 1."""
    volumes, is_patient, severities = easy_data(n_people=300)
    scores = BASELINES[name]().fit(volumes, is_patient).transform(volumes[is_patient])
    assert pattern_c_index(scores, severities) > least


@every_method
def test_scores_of_a_person_do_not_depend_on_who_else_is_scored(method):
    volumes, is_patient, _ = easy_data()
    fitted = method().fit(volumes, is_patient)
    together = fitted.transform(volumes)
    np.testing.assert_allclose(fitted.transform(volumes[50:53]), together[50:53], atol=5e-3)


@every_method
def test_units_of_the_volumes_do_not_matter(method):
    volumes, is_patient, _ = easy_data()
    scale = np.random.default_rng(1).uniform(500, 9000, volumes.shape[1])
    scores = method().fit(volumes, is_patient).transform(volumes)
    in_mm3 = method().fit(volumes * scale, is_patient).transform(volumes * scale)
    np.testing.assert_allclose(in_mm3, scores, rtol=1e-3, atol=1e-3)


@every_method
def test_the_same_seed_gives_the_same_scores(method):
    volumes, is_patient, _ = easy_data()
    first, second = (
        method(random_state=4).fit(volumes, is_patient).transform(volumes) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


@every_method
def test_tables_are_as_good_as_arrays_and_methods_can_be_cloned(method):
    volumes, is_patient, _ = easy_data()
    original = method(n_patterns=2, random_state=3)
    expected = original.fit(volumes, is_patient).transform(volumes)
    copied = clone(original).fit(pd.DataFrame(volumes), pd.Series(is_patient))
    np.testing.assert_allclose(copied.transform(pd.DataFrame(volumes)), expected)


@every_method
@pytest.mark.parametrize(
    ('spoil', 'message'),
    [
        (lambda x, p: (x, np.zeros_like(p)), '120 controls and 0 patients'),
        (lambda x, p: (x, np.ones_like(p)), '0 controls and 120 patients'),
        (lambda x, p: (x, p[:-1]), 'one value each'),
        (lambda x, p: (np.where(np.arange(24) == 5, 1.0, x), p), 'region 5 .* the same in all'),
        (lambda x, p: (x[:, :2], p), '3 patterns asked of 80 patients and 2 regions'),
    ],
)
def test_unusable_data_are_refused(method, spoil, message):
    volumes, is_patient, _ = easy_data()
    with pytest.raises(DataError, match=message):
        method().fit(*spoil(volumes, is_patient))


@every_method
def test_people_are_scored_by_a_fitted_method_and_the_same_regions_only(method):
    volumes, is_patient, _ = easy_data()
    with pytest.raises(NotFittedError):
        method().transform(volumes)
    with pytest.raises(DataError, match='23 regions given, but 24'):
        method().fit(volumes, is_patient).transform(volumes[:, :23])


@pytest.mark.parametrize('signs', [(1, 1, 1), (-1, 1, -1)])
def test_patients_up_settles_signs(signs):
    _, is_patient, severities = easy_data()
    scores = np.zeros((len(is_patient), 3))
    scores[is_patient] = severities * signs
    np.testing.assert_array_equal(patients_up(scores, is_patient), signs)


@pytest.mark.parametrize('name', ['FA', 'DNMF'])
def test_patients_score_higher_where_signs_are_arbitrary(name):
    volumes, is_patient, _ = easy_data()
    scores = BASELINES[name]().fit(volumes, is_patient).transform(volumes)
    assert (scores[is_patient].mean(axis=0) >= scores[~is_patient].mean(axis=0)).all()


def test_topics_of_a_person_sum_to_one():
    volumes, is_patient, _ = easy_data()
    scores = BASELINES['LDA']().fit(volumes, is_patient).transform(volumes)
    np.testing.assert_allclose(scores.sum(axis=1), 1)


@pytest.mark.parametrize('name', ['NMF', 'OpNMF'])
def test_regions_larger_than_in_controls_count_as_unaffected(name):
    volumes, is_patient, _ = easy_data()
    fitted = BASELINES[name]().fit(volumes, is_patient)
    np.testing.assert_allclose(fitted.transform(np.full((2, 24), 1.5)), 0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'published'),
    [('NMF', 0.680), ('LDA', 0.605), ('FA', 0.631), ('OpNMF', 0.648), ('DNMF', 0.562)],
)
def test_accuracy_on_the_basic_task_is_that_of_table_1(name, published):
    simulated = simulate_table('basic', seed=0)
    is_patient = (simulated.participants['diagnosis'] == 'PT').to_numpy()
    volumes = simulated.volumes[volume_columns()].to_numpy()
    scores = BASELINES[name]().fit(volumes, is_patient).transform(volumes[is_patient])
    truth = simulated.severities.loc[is_patient, ['r1', 'r2', 'r3']].to_numpy()
    assert concordance_matrix(scores, truth).shape == (3, 3)
    assert pattern_c_index(scores, truth) == pytest.approx(published, abs=0.06)
