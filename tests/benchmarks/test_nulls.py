"""Quick runs of the nulls: what the report says where nothing is wrong."""

from functools import partial

import nulls
import pytest

from surreal_bids.config import TrainingOptions


@pytest.fixture(autouse=True)
def one_start(monkeypatch):
    """Fit factors from one start with one penalty, in few folds, subsamples and permutations.

    That saves time. Full runs take all of them.
    """
    monkeypatch.setattr('surreal_bids.model.factors.ROTATIONS', 0)
    monkeypatch.setattr('surreal_bids.model.factors.HIGHER_PENALTIES', ())
    monkeypatch.setattr('surreal_bids.model.stability.SUBSAMPLES', 4)
    # The fewest with which p can be below 0.05.
    monkeypatch.setattr('surreal_bids.model.stability.PERMUTATIONS', 20)
    monkeypatch.setattr(nulls, 'TrainingOptions', partial(TrainingOptions, folds=3))


@pytest.mark.parametrize('name', [name for name in nulls.NULLS if nulls.NULLS[name].quick])
def test_number_is_not_far_from_what_it_should_be(name):
    found = nulls.run(name)
    assert found['draws'].min() >= 2
    slack = nulls.TOLERATED_ERRORS * found['error']
    wrong = found[
        (found['mean'] < found['at_least'] - slack) | (found['mean'] > found['at_most'] + slack)
    ]
    assert wrong.empty, wrong.to_string()
