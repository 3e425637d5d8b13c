"""Controls with another diagnosis at a later visit, whom the final model was trained on."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.engine import Analysis, analyse
from surreal_bids.analysis.limits import CONTROLS
from surreal_bids.rindices.crossfit import HELD_OUT
from surreal_bids.rindices.model import R_INDEX
from tests.analysis.visits_study import OPTIONS, read_visits, write_visits

pytestmark = [pytest.mark.usefixtures('few_draws'), pytest.mark.slow]

N_CONTROLS = 40
CONVERTERS = [f'sub-{number:04}' for number in range(1, 7)]
NOISE = 0.01


@pytest.fixture(scope='module')
def cohort(tmp_path_factory):
    """Volumes at two visits differ by noise only."""
    path = tmp_path_factory.mktemp('study') / 'visits.tsv'
    table = write_visits(path, people=(N_CONTROLS, 40))
    regions = [name for name in table if name.startswith('MUSE_')]
    rng = np.random.default_rng(0)
    table[regions] *= np.exp(NOISE * rng.normal(size=(len(table), len(regions))))
    is_second = table['session_id'] == 'b'
    is_changed = is_second & table['participant_id'].isin(CONVERTERS)
    # A participant who is never a control or a patient.
    table.loc[is_changed | (table['participant_id'] == 'sub-0080'), 'diagnosis'] = 'MCI'
    table.to_csv(path, sep='\t', index=False)
    return read_visits(path, control_label=('CN',), patient_label=('PT',))


@pytest.fixture(scope='module')
def analysis(cohort) -> Analysis:
    return analyse(cohort, replace(OPTIONS, iterations=60))


def visits_of_converters(cohort) -> pd.Index:
    is_converter = cohort.apart.visits['participant_id'].isin(CONVERTERS)
    return cohort.apart.visits.index[is_converter]


def test_a_model_of_a_fold_computes_both_ends_of_a_change(analysis, cohort):
    results, later = analysis.all_results, visits_of_converters(cohort)
    assert len(later) == len(CONVERTERS)
    assert results.loc[later, HELD_OUT].all()
    assert list(results.index) == list(analysis.scored.visits.index)
    for visit in later:
        participant = cohort.apart.visits.loc[visit, 'participant_id']
        first = cohort.visits.index[cohort.visits['participant_id'] == participant][0]
        fold = results.loc[first, 'fold']
        one = cohort.apart.select(cohort.apart.visits.index == visit)
        expected = analysis.fitted.models[fold].with_unseen_site('skip').apply(one)
        expected = expected.rename(columns=analysis.fitted.names[fold])
        np.testing.assert_allclose(
            results.loc[visit, analysis.names].astype(float), expected.loc[visit, analysis.names]
        )
        assert results.loc[visit, 'fold'] == fold
    centiles = [f'{name}_centile' for name in analysis.names]
    assert results.loc[later, centiles].notna().all(axis=None)
    assert set(results.loc[later, 'centile_of']) == {'all'}
    never = results.loc[['sub-0080_ses-c', 'sub-0080_ses-b']]
    assert never[HELD_OUT].all()
    assert never['fold'].isna().all()


def test_contributions_sum_to_the_r_indices_of_the_fold(analysis, cohort):
    later = visits_of_converters(cohort)
    summed = analysis.contributions.sum(axis=1)
    for name in analysis.names:
        of_index = summed.xs(name, level=R_INDEX).loc[later]
        expected = analysis.all_results.loc[later, name].astype(float)
        np.testing.assert_allclose(of_index, expected, atol=1e-4)


def test_noise_is_no_reliable_change_of_converters(analysis):
    changes = analysis.changes
    of_converters = changes[changes['participant_id'].isin(CONVERTERS)]
    assert of_converters['reliable'].notna().all()
    is_reliable = of_converters['reliable'].eq('true').groupby(of_converters['participant_id'])
    assert is_reliable.any().sum() <= 1


def test_limits_and_slopes_of_controls_are_without_converters(analysis):
    n_stable = N_CONTROLS - len(CONVERTERS)
    by_controls = analysis.changes[analysis.changes['noise_from'] == CONTROLS]
    assert by_controls['noise_controls'].max() == n_stable
    group_change = analysis.group_change.set_index('measure')
    assert (group_change.loc['controls', 'n'] == n_stable).all()
    assert '12 of controls whose diagnosis changes' in analysis.excluded_visits


def test_without_a_model_of_a_fold_the_change_is_not_rated(analysis, cohort):
    later = visits_of_converters(cohort)
    fitted = replace(analysis.fitted, models={})
    for changed in (
        replace(analysis, fitted=fitted),
        replace(analysis, fitted=None, results=analysis.results.assign(**{HELD_OUT: False})),
    ):
        assert not changed.all_results.loc[later, HELD_OUT].any()
        assert changed.all_results.loc['sub-0080_ses-c', HELD_OUT]
    without_folds = changed.changes[changed.changes['participant_id'].isin(CONVERTERS)]
    assert without_folds['reliable'].isna().all()
