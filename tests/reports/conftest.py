"""Figures are drawn only where a test looks at them."""

import pytest


@pytest.fixture(autouse=True)
def undrawn_unless_marked(request) -> None:
    if request.node.get_closest_marker('drawn') is None:
        request.getfixturevalue('undrawn_figures')
