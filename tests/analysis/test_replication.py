"""Patterns of a model in a second cohort: matching, references and verdicts."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.replication import (
    FORWARD,
    NOT_ASSESSED,
    NOT_REPLICATED,
    REPLICATED,
    UNCERTAIN,
    Comparison,
    Null,
    Replication,
    compare_patterns,
    correlate,
    is_number_stable,
    judge,
    require_second_cohort,
)
from surreal_bids.exceptions import DataError
from surreal_bids.model.number import Number, Stability, explain_choice
from surreal_bids.reports.card import formats_of_tried
from surreal_bids.reports.replication import describe_own_number, describe_pattern, quote
from surreal_bids.rindices.model import SEEN, TableModel, digests_of_rows

CLEAR = {
    'agreement': 0.9,
    'agreement_low': 0.8,
    'agreement_high': 0.95,
    'agreement_reference': 0.4,
    'similarity': 0.9,
    'similarity_reference': 0.3,
    'auc': 0.9,
    'auc_low': 0.8,
    'auc_high': 0.95,
}


@pytest.mark.parametrize(
    ('change', 'verdict'),
    [
        ({}, REPLICATED),
        ({'agreement': 0.39, 'agreement_low': 0.2}, NOT_REPLICATED),
        ({'similarity': 0.29}, NOT_REPLICATED),
        ({'auc': 0.49, 'auc_low': 0.4}, NOT_REPLICATED),
        ({'agreement_low': 0.39}, UNCERTAIN),
        ({'agreement': 0.59, 'agreement_low': 0.5}, UNCERTAIN),
        ({'auc': 0.55, 'auc_low': 0.49}, UNCERTAIN),
        ({'auc': np.nan, 'auc_low': np.nan}, NOT_REPLICATED),
    ],
)
def test_a_pattern_is_replicated_if_all_evidence_exceeds_its_reference(change, verdict):
    assert judge(CLEAR | change) == verdict


def test_a_cohort_that_is_too_small_cannot_tell():
    weak = CLEAR | {'agreement': 0.2, 'agreement_low': 0.0, 'similarity': 0.1}
    assert judge(weak, is_stable=True) == NOT_REPLICATED
    assert judge(weak, is_stable=False) == UNCERTAIN
    assert judge(weak | {'auc': 0.5}, is_stable=False) == NOT_REPLICATED
    assert judge(CLEAR, is_held_out=False) == UNCERTAIN
    number = Number(1, (Stability(1, 0.9), Stability(2, 0.6)))
    assert [is_number_stable(number, m) for m in (1, 2)] == [True, False]
    assert is_number_stable(None, 2)


def make_patterns(rng, n_patients=90, n_regions=41):
    """R-indices and maps of two models that know the same two patterns, in another order."""
    truth, maps = rng.uniform(size=(n_patients, 2)), rng.normal(size=(2, n_regions))
    foreign = pd.DataFrame(truth + rng.normal(0, 0.1, truth.shape), columns=['r1', 'r2'])
    own = pd.DataFrame(truth[:, ::-1] + rng.normal(0, 0.1, truth.shape), columns=['r1', 'r2'])
    return foreign, own, (maps, maps[::-1] + rng.normal(0, 0.3, maps.shape))


def test_patterns_are_matched_and_compared_with_unrelated_ones():
    foreign, own, maps = make_patterns(np.random.default_rng(0))
    null = Null(np.full((19, 2), [0.05, 0.7]), np.full((19, 2), 0.2))
    table = compare_patterns(foreign, own, maps, null).set_index('pattern')
    assert table['matched_pattern'].to_dict() == {'r1': 'r2', 'r2': 'r1'}
    expected = np.corrcoef(foreign['r1'], own['r2'])[0, 1]
    assert table.loc['r1', 'agreement'] == pytest.approx(expected)
    assert table.loc['r1', 'agreement_low'] < expected < table.loc['r1', 'agreement_high']
    others = [np.corrcoef(foreign['r1'], own['r1'])[0, 1]]
    others += [np.corrcoef(foreign['r2'], own['r2'])[0, 1], 0.05]
    assert table.loc['r1', 'agreement_reference'] == pytest.approx(max(others))
    assert table.loc['r2', 'agreement_reference'] == pytest.approx(0.7)
    assert (table['similarity'] > 0.8).all()
    assert (table['n'] == 90).all()


def test_a_constant_column_correlates_with_nothing():
    values = np.random.default_rng(1).normal(size=(7, 2))
    found = correlate(values, np.column_stack([values[:, 0], np.ones(7)]))
    np.testing.assert_allclose(found[:, 1], 0)
    assert found[0, 0] == pytest.approx(1)


def make_cohort(n_cn=9, n_pt=10, n_regions=12):
    """Participants as far as they are looked at before anything is computed."""
    n = n_cn + n_pt
    names = [f'sub-{k:02}' for k in range(n)]
    volumes = np.random.default_rng(2).uniform(1, 2, (n, n_regions))
    columns = [f'region{k}' for k in range(n_regions)]
    return SimpleNamespace(
        counts={'CN': n_cn, 'PT': n_pt},
        features=pd.DataFrame(volumes, names, columns),
        visits=pd.DataFrame({'participant_id': names}, names),
    )


def make_model(cohort, seen, names=('r1',)):
    """A model that was trained on some participants of a cohort."""
    features = SimpleNamespace(names=list(cohort.features))
    rows = digests_of_rows(cohort.features.loc[seen], features.names)
    model = SimpleNamespace(
        preprocessing=SimpleNamespace(features=features),
        notes={SEEN: sorted(rows)},
        pattern_names=names,
    )
    model.trained_on = partial(TableModel.trained_on, model)
    return model


def test_participants_who_trained_the_model_are_refused_by_name():
    cohort = make_cohort()
    require_second_cohort(make_model(cohort, []), cohort)
    with pytest.raises(DataError, match=r'trained on 2 participants .*: sub-03, sub-11\. Remove'):
        require_second_cohort(make_model(cohort, ['sub-03', 'sub-11']), cohort)


def test_both_groups_and_a_pattern_are_needed():
    with pytest.raises(DataError, match=r'0 patients in the second cohort.*--patient-label'):
        require_second_cohort(make_model(make_cohort(), []), make_cohort(n_pt=0))
    cohort = make_cohort()
    with pytest.raises(DataError, match='no patterns, so there is nothing to replicate'):
        require_second_cohort(make_model(cohort, [], ()), cohort)


def make_replication(verdict, number):
    """A replication of one pattern."""
    row = {'pattern': 'r1', 'matched_pattern': 'r2', 'verdict': verdict, 'n': 10} | CLEAR
    separation = pd.DataFrame({'index': ['r1'], 'measure': 'AUC', 'estimate': 0.9, 'n': 19})
    forward = Comparison(
        direction=FORWARD,
        cohort=make_cohort(),
        patterns=pd.DataFrame([row | {'n_regions': 12}]),
        associations=pd.DataFrame(columns=['index', 'measure', 'estimate']),
        separation=separation,
        is_held_out=True,
    )
    return Replication(
        model=SimpleNamespace(pattern_names=('r1',)),
        number=number,
        forward=forward,
        backward=None,
        maps=pd.DataFrame(),
        cautions=(),
    )


def test_a_cohort_without_disease_says_so_instead_of_claiming_anything():
    found = make_replication(NOT_ASSESSED, Number(0, (Stability(1, 0.7, (0.72, 0.6)),)))
    assert 'shows no pattern of its own' in quote(found)
    assert 'neither supports nor contradicts' in quote(found)
    assert 'replicated' not in quote(found)
    at_chance = found.forward.patterns.assign(auc=0.49, auc_low=0.41, auc_high=0.57)
    found = replace(found, forward=replace(found.forward, patterns=at_chance))
    assert 'its patients express no original pattern more than its controls' in quote(found)
    sentences = ' '.join(describe_own_number(found))
    assert 'stability 0.70, at least 0.85 needed; permuted data: up to 0.72' in sentences


def test_numbers_are_not_rounded_onto_their_limits():
    stability = Stability(2, 0.818, (0.3, 0.817), 0.82)
    found = make_replication(NOT_ASSESSED, Number(0, (stability,)))
    sentences = ' '.join(describe_own_number(found))
    assert 'stability 0.818, at least 0.82 needed; permuted data: up to 0.817' in sentences
    assert formats_of_tried(explain_choice(found.number, 0, 90).rows)['stability'] == '{:.3f}'
    row = {'pattern': 'r1', 'matched_pattern': 'r1', 'agreement': 0.7, 'agreement_low': 0.498}
    row |= {'agreement_high': 0.8, 'agreement_reference': 0.501, 'similarity': 0.9}
    row |= {'similarity_reference': 0.4, 'auc': 0.6, 'auc_low': 0.497, 'auc_high': 0.7}
    sentences = ' '.join(describe_pattern(row))
    assert '0.700 (0.498 to 0.800); unrelated patterns: up to 0.501' in sentences
    assert '0.600 (0.497 to 0.700); chance: 0.50' in sentences


def test_the_sentence_to_quote_has_estimates_intervals_and_references():
    found = make_replication(REPLICATED, Number(2, (Stability(1, 0.9), Stability(2, 0.8))))
    for words in (
        '1 of 1 pattern was replicated in a second cohort (9 controls and 10 patients)',
        '0.90, 95% interval 0.80 to 0.95',
        'unrelated patterns up to 0.40',
    ):
        assert words in quote(found)
    assert 'same number of patterns as in the original model, 1' in describe_own_number(found)[1]
    not_found = make_replication(NOT_REPLICATED, found.number)
    assert quote(not_found).startswith('0 of 1 pattern were replicated')
    assert 'Not replicated: r1 (correlation' in quote(not_found)


def test_the_table_has_a_row_for_each_estimate():
    table = make_replication(REPLICATED, Number(1, (Stability(1, 0.9),))).table
    assert table['analysis'].tolist() == ['agreement', 'regions', 'separation', 'stability']
    assert table['reference'].tolist() == [0.4, 0.3, 0.5, 0.85]
    assert table['measure'].tolist()[-1] == '1 pattern (chosen)'
