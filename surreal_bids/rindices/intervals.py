"""Intervals and centiles of R-indices, as the card of a model stores them.

:mod:`surreal_bids.rindices.uncertainty` learns them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.names import SPREAD_SUFFIX

Floats = NDArray[np.floating]
Note = Mapping[str, Any]

INTERVALS, REFERENCE = 'Intervals', 'Reference'
"""Keys of the card."""
LOW_SUFFIX, HIGH_SUFFIX, CENTILE_SUFFIX = '_low', '_high', '_centile'
CENTILE_OF, CENTILE_CONTROLS = 'centile_of', 'centile_controls'
LIKE_AGE, ALL_CONTROLS, TRAINING_CONTROLS = 'like_age', 'all', 'training'
"""With which controls a centile compares; see `CENTILE_LEVELS`."""

SHARE = 0.68
"""Of the severities that intervals are meant to hold."""
INCLUDED = (
    'In simulations, the interval contained the true severity in 67% to 70% of cases (68% to 72% '
    'at sites learned from few controls). It includes anatomical variation, segmentation noise, '
    'other patterns, variation between members and sampling error'
)
"""What an interval is worth (benchmarks/individual.py), and which errors it allows for."""
SEVERITIES = np.linspace(0, 1, 11)
"""At which the error is tried."""
PER_CENT = np.arange(101)


def interval(
    r: Floats, curves: Mapping[str, Sequence[float]], shared: float = 0.0
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
    """
    expected, lower, upper = (np.asarray(curves[row]) for row in ('Expected', 'Lower', 'Upper'))
    low = _follow(r, expected + np.hypot(upper - expected, shared), expected)
    high = _follow(r, expected - np.hypot(lower - expected, shared), expected)
    return np.minimum(low, r), np.maximum(high, r)


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
            ends[:, error == each] = interval(r[error == each], curves, each)
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
    """Centiles to a tenth, for everyone; numbers of controls stay whole where some are missing."""
    table = centiles.round(1).reindex(everyone)
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


def is_sound(notes: Note, names: Sequence[str]) -> bool:
    """Whether the intervals and the reference of a card can belong to these patterns."""
    references = all(
        isinstance(each['Number'], int)
        and each['Number'] > 0
        and _in_order(each['Percentiles'], names)
        and _are_curves(each['Percentiles'].values(), len(PER_CENT))
        for each in notes.get(REFERENCE, {}).values()
    )
    return references and (INTERVALS not in notes or _are_intervals(notes[INTERVALS], names))


def _are_intervals(note: Note, names: Sequence[str]) -> bool:
    """Whether each pattern has three curves over `SEVERITIES`."""
    patterns = note['Patterns']
    return _in_order(patterns, names) and all(
        _are_curves([each['Expected'], each['Lower'], each['Upper']], len(SEVERITIES))
        for each in patterns.values()
    )


def _are_curves(rows: Iterable[Sequence[float]], length: int) -> bool:
    """Whether all rows have this length, are finite, and never fall."""
    return all(
        len(row) == length and np.isfinite(row).all() and (np.diff(row) >= 0).all() for row in rows
    )


def _in_order(table: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether a table has some of the names, and in their order."""
    return bool(table) and list(table) == [name for name in names if name in table]
