"""Quick runs of the nulls: what the report says where nothing is wrong."""

from functools import partial

import nulls
import pytest

from surreal_bids.config import TrainingOptions


@pytest.mark.slow
@pytest.mark.parametrize('name', nulls.NULLS)
def test_number_is_not_far_from_what_it_should_be(name, monkeypatch):
    # One start with one penalty, and few folds, subsamples and permutations save time.
    monkeypatch.setattr('surreal_bids.model.factors.ROTATIONS', 0)
    monkeypatch.setattr('surreal_bids.model.factors.HIGHER_PENALTIES', ())
    monkeypatch.setattr('surreal_bids.model.number.SUBSAMPLES', 4)
    monkeypatch.setattr('surreal_bids.model.number.PERMUTATIONS', 20)  # p can be below 0.05
    monkeypatch.setattr(nulls, 'TrainingOptions', partial(TrainingOptions, folds=3))
    found = nulls.run(name)
    assert found['draws'].min() >= 2
    slack = nulls.TOLERATED_ERRORS * found['error']
    low, high = found['at_least'] - slack, found['at_most'] + slack
    wrong = found[(found['mean'] < low) | (found['mean'] > high)]
    assert wrong.empty, wrong.to_string()
