"""The group report: shares of groups."""

import numpy as np
import pandas as pd
import pytest

from surreal_bids.reports import group


@pytest.mark.parametrize(
    ('n_with_centile', 'shares'),
    [
        (40, ['6 of 40 patients (15%)']),
        (10, ['6 of 10 patients with a centile (60%)']),
        (0, []),
    ],
)
def test_shares_divide_by_those_with_a_centile(n_with_centile, shares):
    first = pd.DataFrame({'group': ['CN'] * 20 + ['PT'] * 40, 'r1': 0.5, 'r1_centile': 50.0})
    first.loc[20:25, 'r1_centile'] = 96.0
    first.loc[20 + n_with_centile :, 'r1_centile'] = np.nan
    assert group._shares(first, 'r1') == shares
