"""Quick runs of the nulls: what the report says where nothing is wrong."""

import nulls
import pytest


@pytest.mark.parametrize('name', [name for name in nulls.NULLS if nulls.NULLS[name].quick])
def test_number_is_not_far_from_what_it_should_be(name):
    found = nulls.run(name)
    assert found['draws'].min() >= 2
    slack = nulls.TOLERATED_ERRORS * found['error']
    wrong = found[
        (found['mean'] < found['at_least'] - slack) | (found['mean'] > found['at_most'] + slack)
    ]
    assert wrong.empty, wrong.to_string()
