"""Quick runs of the nulls: what the report says where nothing is wrong."""

import nulls
import pytest


@pytest.fixture(autouse=True)
def one_start(monkeypatch):
    """Fit factors from one start with one penalty, to save time; full runs take all of them."""
    monkeypatch.setattr('surreal_bids.model.factors.ROTATIONS', 0)
    monkeypatch.setattr('surreal_bids.model.factors.HIGHER_PENALTIES', ())


@pytest.mark.parametrize('name', [name for name in nulls.NULLS if nulls.NULLS[name].quick])
def test_number_is_not_far_from_what_it_should_be(name):
    found = nulls.run(name)
    assert found['draws'].min() >= 2
    slack = nulls.TOLERATED_ERRORS * found['error']
    wrong = found[
        (found['mean'] < found['at_least'] - slack) | (found['mean'] > found['at_most'] + slack)
    ]
    assert wrong.empty, wrong.to_string()
