"""How alike two models describe the same people: split-half reproducibility (section B.7)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from surreal_bids.exceptions import DataError
from surreal_bids.stats.concordance import concordance_matrix, match_patterns


def pattern_reproducibility(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Agreement of each pattern of one model with its counterpart in another.

    Patterns have no order, so those of `second` are matched one to one to those of `first` by
    their c-indices; the mean c-index of the result is the pattern-agr-index (section 4.2).

    Parameters
    ----------
    first, second : (N, M) and (N, M')
        R-indices of the same people in the same order, from two models; M' >= M. For a fair figure
        these are people that neither was trained on.

    Returns
    -------
    DataFrame
        A row a pattern of `first`: `pattern`, `counterpart` in `second`, `c_index`, `pearson`.
    """
    if not first.index.equals(second.index):
        raise DataError('the two models describe different people, or in another order')
    similarity = concordance_matrix(second, first)
    match = match_patterns(similarity)
    columns = np.arange(match.size)
    n_second = second.shape[1]
    correlation = np.corrcoef(second.to_numpy(float), first.to_numpy(float), rowvar=False)
    return pd.DataFrame(
        {
            'pattern': first.columns.astype(str),
            'counterpart': second.columns[match].astype(str),
            'c_index': similarity[match, columns],
            'pearson': correlation[match, n_second + columns],
        }
    )
