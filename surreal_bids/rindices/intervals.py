"""Intervals and centiles of R-indices, as the card of a model stores them.

:mod:`surreal_bids.rindices.uncertainty` learns them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from surreal_bids.names import SPREAD_SUFFIX

Floats = NDArray[np.floating]
Note = Mapping[str, Any]

INTERVALS, REFERENCE = 'Intervals', 'Reference'
"""Keys of the card."""
LOW_SUFFIX, HIGH_SUFFIX, CENTILE_SUFFIX = '_low', '_high', '_centile'
CENTILE_OF, CENTILE_CONTROLS = 'centile_of', 'centile_controls'
ALL_CONTROLS, TRAINING_CONTROLS = 'all', 'training'
"""With which controls a centile compares: those of this dataset, or of the training sample."""

SHARE = 0.95
"""Of the severities that intervals are meant to hold."""
INCLUDED = (
    'The interval includes anatomical variation, segmentation noise, other patterns, variation '
    'between members and sampling error'
)
"""Which errors an interval allows for."""
SEVERITIES = np.linspace(0, 1, 11)
"""At which the error is tried."""
PER_CENT = np.arange(101)


def interval(
    r: Floats, curves: Mapping[str, Sequence[float]], shared: float = 0.0, share: float = SHARE
) -> tuple[Floats, Floats]:
    """Lower and upper end of the interval of each R-index, in the unit of the R-index.

    The ends are what is expected at the severities at which R-indices as large, or as small, become
    unusual. Beyond the severities that were tried, the distance stays as at the last of them.

    Parameters
    ----------
    r
        R-indices.
    curves
        `Expected`, `Lower` and `Upper` R-index at each of `SEVERITIES`.
    shared
        Standard error that all of them share, beside those in the curves.
    share
        Of the severities that the curves are meant to hold.
    """
    expected, lower, upper = (np.asarray(curves[row]) for row in ('Expected', 'Lower', 'Upper'))
    reach = shared * in_sd(share)
    low = _follow(r, expected + np.hypot(upper - expected, reach), expected)
    high = _follow(r, expected - np.hypot(lower - expected, reach), expected)
    return np.minimum(low, r), np.maximum(high, r)


def in_sd(share: float) -> float:
    """Half-width of the interval that holds this share of a normal distribution, in SD."""
    return float(norm.ppf((1 + share) / 2))


def _follow(r: Floats, curve: Floats, expected: Floats) -> Floats:
    """Expected R-index where a curve passes r; parallel to the curve beyond its ends."""
    beyond = r - np.clip(r, curve[0], curve[-1])
    return np.interp(r, curve, expected) + beyond


def with_intervals(
    results: pd.DataFrame, note: Note, errors: Mapping[str, pd.Series] | None = None
) -> pd.DataFrame:
    """Add the interval of each R-index to a table of them.

    Parameters
    ----------
    results
        R-indices.
    note
        Intervals, as the card has them.
    errors
        For each R-index, the standard error that participants share with others of their site.
    """
    columns: dict[str, Floats] = {}
    for name, curves in note['Patterns'].items():
        r = results[name].to_numpy(dtype=float)
        error = np.zeros(len(r)) if errors is None else errors[name].to_numpy()
        ends = np.full((2, len(r)), np.nan)
        for each in np.unique(error):
            own = error == each
            ends[:, own] = interval(r[own], curves, each, note['Share'])
        columns |= dict(zip((f'{name}{LOW_SUFFIX}', f'{name}{HIGH_SUFFIX}'), ends))
    return insert_columns(results, pd.DataFrame(columns, results.index), list(note['Patterns']))


def with_training_centiles(
    results: pd.DataFrame, controls: Note, comparable: pd.Series
) -> pd.DataFrame:
    """Add centiles among the controls of the training sample, as the card has them.

    Only of the `comparable` (n_people,): what an unknown scanner adds would pass for a pattern.
    """
    names, n = list(controls['Percentiles']), controls['Number']
    least = 50 / (n + 1)
    known = results.index[results[names].notna().all(axis=1) & comparable[results.index]]
    places = {
        f'{name}{CENTILE_SUFFIX}': np.interp(results.loc[known, name], quantiles, PER_CENT)
        for name, quantiles in controls['Percentiles'].items()
    }
    table = pd.DataFrame(places, known).clip(least, 100 - least)
    table = table.assign(**{CENTILE_OF: TRAINING_CONTROLS, CENTILE_CONTROLS: n})
    return insert_columns(results, tidy_centiles(table, results.index), names)


def tidy_centiles(centiles: pd.DataFrame, everyone: pd.Index) -> pd.DataFrame:
    """Centiles to a tenth, never 0 or 100, and whole numbers of controls."""
    table = centiles.reindex(everyone)
    for name in [each for each in map(str, table) if each.endswith(CENTILE_SUFFIX)]:
        table[name] = table[name].round(1).clip(0.1, 99.9)
    return table.astype({CENTILE_CONTROLS: 'Int64'})


def insert_columns(results: pd.DataFrame, new: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Put columns behind those of the R-indices, of which `names` need not be all."""
    own = {f'{name}{end}' for name in names for end in ('', LOW_SUFFIX, HIGH_SUFFIX)}
    place = 1 + max(
        number
        for number, column in enumerate(map(str, results))
        if column in own or column.endswith(SPREAD_SUFFIX)
    )
    return pd.concat([results.iloc[:, :place], new, results.iloc[:, place:]], axis=1)
