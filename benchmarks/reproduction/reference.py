"""Numbers reported by the paper: the only ones here that we did not compute.

Yang, Wen and Davatzikos, ICLR 2022; pattern-c-index, mean and standard deviation. The paper shows
Fig. 2 and supplementary Fig. 1 as curves without numbers, and B.7 as brain maps.
"""

from __future__ import annotations

from typing import NamedTuple


class Reported(NamedTuple):
    """A mean and its standard deviation."""

    mean: float
    sd: float


TABLE_1_METHODS = ('Surreal-GAN', 'NMF', 'LDA', 'FA', 'OpNMF', 'DNMF')
"""Columns of Tables 1 and 7."""

_TABLE_1 = {
    'basic': '0.838 0.011  0.680 0.000  0.605 0.001  0.631 0.000  0.648 0.000  0.562 0.017',
    'overlap': '0.837 0.008  0.692 0.000  0.591 0.000  0.612 0.000  0.670 0.000  0.566 0.022',
    'scarce': '0.783 0.007  0.625 0.000  0.582 0.001  0.526 0.000  0.608 0.000  0.525 0.006',
    'noise': '0.818 0.013  0.675 0.000  0.626 0.000  0.619 0.000  0.651 0.000  0.550 0.013',
    'mild': '0.762 0.023  0.611 0.000  0.574 0.004  0.526 0.000  0.594 0.000  0.539 0.013',
}

_TABLE_7 = {
    'basic': '0.838 0.011  0.834 0.000  0.769 0.005  0.750 0.000  0.751 0.000  0.631 0.017',
    'overlap': '0.837 0.008  0.844 0.000  0.777 0.001  0.721 0.005  0.715 0.000  0.641 0.017',
    'scarce': '0.783 0.007  0.760 0.000  0.640 0.015  0.618 0.001  0.666 0.000  0.548 0.006',
    'noise': '0.818 0.013  0.831 0.000  0.775 0.003  0.764 0.000  0.730 0.015  0.644 0.031',
    'mild': '0.762 0.023  0.756 0.000  0.657 0.028  0.613 0.000  0.641 0.000  0.571 0.015',
}

TABLE_6_COLUMNS = tuple(
    (method, part) for method in ('Surreal-GAN', 'LR', 'SVR') for part in ('train', 'test')
)
"""Columns of Table 6."""

_TABLE_6 = {
    'basic': '0.827 0.005  0.830 0.007  0.896 0.001  0.871 0.003  0.926 0.001  0.863 0.006',
    'overlap': '0.828 0.008  0.827 0.007  0.901 0.001  0.876 0.003  0.927 0.001  0.869 0.003',
    'scarce': '0.764 0.010  0.761 0.014  0.853 0.001  0.816 0.005  0.932 0.002  0.804 0.009',
    'noise': '0.813 0.007  0.812 0.009  0.890 0.001  0.862 0.003  0.926 0.001  0.857 0.009',
    'mild': '0.741 0.010  0.743 0.017  0.853 0.001  0.817 0.003  0.929 0.009  0.811 0.005',
}


def _parse(rows: dict[str, str], columns: tuple) -> dict[tuple, Reported]:
    """Entries by (task, column)."""
    return {
        (task, column): Reported(*map(float, pair))
        for task, row in rows.items()
        for column, pair in zip(columns, zip(*[iter(row.split())] * 2), strict=True)
    }


TABLE_1: dict[tuple[str, str], Reported] = _parse(_TABLE_1, TABLE_1_METHODS)
"""Table 1 by task and method."""
TABLE_7: dict[tuple[str, str], Reported] = _parse(_TABLE_7, TABLE_1_METHODS)
"""Table 7, practical upper bounds, by task and method."""
TABLE_6: dict[tuple[str, tuple[str, str]], Reported] = _parse(_TABLE_6, TABLE_6_COLUMNS)
"""Table 6 by task and (method, train or test)."""
