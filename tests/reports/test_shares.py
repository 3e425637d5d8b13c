"""What healthy participants would show beside the shares of patients."""

import numpy as np
import pandas as pd
import pytest

from surreal_bids.reports.group import _expected_share


@pytest.mark.parametrize('n_controls', [30, 40, 100, 400])
def test_the_expected_share_is_that_of_a_simulation(n_controls):
    rng = np.random.default_rng(n_controls)
    controls = rng.normal(size=(4000, n_controls))
    new = rng.normal(size=(4000, 1))
    centile = 100 * ((controls < new).sum(axis=1) + 0.5) / (n_controls + 1)
    first = pd.DataFrame({'r1_centile': [50.0], 'centile_controls': [n_controls]})
    assert _expected_share(first, 'r1') == pytest.approx((centile > 95).mean(), abs=0.012)
