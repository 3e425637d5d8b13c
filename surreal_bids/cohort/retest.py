"""Noise of measurement, learned from participants who were scanned repeatedly.

Log volumes of two scans of one brain differ by a component that all regions and the head size share
(the scale of the image), and by a component of each region. Few pairs say little about one region.
Its variance is shrunk towards the value expected for its volume, to the degree that the spread over
regions suggests (Smyth, Stat Appl Genet Mol Biol 2004); left and right count as one region.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

from surreal_bids.bids.tabular import Table, find_column, find_id_column, read_table
from surreal_bids.cohort.features import read_features
from surreal_bids.cohort.reader import own_id_column, parse_visit
from surreal_bids.cohort.requirements import PreprocessingOptions
from surreal_bids.columns import column_of
from surreal_bids.exceptions import DataError
from surreal_bids.regions import FeatureList, region_mates
from surreal_bids.text import alternatives, list_briefly

SHARED, HEAD_SIZE = 'shared', 'icv'
"""Rows of a table of noise that are no regions."""

MIN_PAIRS = 5
"""Fewer pairs say too little of the shared component, which no other region tells of."""

MOST_NOISE = 0.08
"""Larger noise of a typical region is that of different participants, who differ by 0.11."""

UNCHANGED_DECIMALS = 9
"""Of logarithms that are the same."""

MOST_DF = 1000
"""Where regions differ by no more than chance, they are shrunk as if by so many pairs."""


def read_retest(
    path: Path, wanted: FeatureList, options: PreprocessingOptions, id_column: str | None = None
) -> pd.DataFrame:
    """Estimate noise from a table with several scans of participants who have not changed.

    Parameters
    ----------
    path
        Table of volumes with several rows per participant.
    wanted, options
        Features, and the head size, if volumes are corrected for it.
    id_column
        Column of the ids; by default it is found by its name.

    Returns
    -------
    DataFrame
        See :func:`estimate_noise`; the degrees of freedom of `SHARED` are the number of pairs.

    Raises
    ------
    DataError
        A column is missing, a volume is not positive, scans are the same, or pairs are too few.
    """
    if wanted.are_z_scores:
        raise DataError(f'{path}: --retest needs volumes, but the features are z-scores; omit it')
    table = read_table(path)
    ids = table.categories(find_id_column(table, own_id_column(path, id_column)))
    if ids.isna().any():
        raise DataError(f'{path}: {ids.index[ids.isna()][0]} has no {ids.name}; add it')
    volumes = read_features(table, wanted)
    if options.uses_icv:
        volumes[HEAD_SIZE] = table.numbers(_head_size_column(table, str(options.icv_column)))
    logs = _logarithms(table, volumes, ids)
    who = ids.map(lambda name: parse_visit(name, None)[0])
    differences = differences_within(logs, who[logs.index])
    _refuse_copies(table, logs, who[logs.index])
    _require_pairs(table, differences)
    noise = estimate_noise(differences, np.exp(logs.mean()), _mates(wanted))
    typical = float(noise.loc[wanted.names, 'noise'].median())
    if typical > MOST_NOISE:
        raise DataError(
            f'{path}: scans of the same participant differ by {100 * typical:.0f} % (SD) in a '
            'typical region, as different participants do; check the ids'
        )
    return noise


def _head_size_column(table: Table, name: str) -> str:
    found = find_column(table.columns, name) or column_of(table.columns, 'icv')
    if found is None:
        raise DataError(
            f'{table.source}: no column {name}, but volumes are corrected for head size; add the '
            f'head size of each scan ({alternatives([name], table.columns)})'
        )
    return found


def _logarithms(table: Table, volumes: pd.DataFrame, ids: pd.Series) -> pd.DataFrame:
    """Logarithms of complete rows; refuse what has none."""
    bad = volumes.le(0) | np.isinf(volumes)
    if bad.any(axis=None):
        row = str(bad.any(axis=1).idxmax())
        column = str(bad.loc[row].idxmax())
        raise DataError(
            f'{table.source}: {row} ({ids[row]}) has the {column} {float(volumes[column][row]):g}, '
            'but volumes are positive; correct or exclude it'
        )
    return volumes.dropna().transform(np.log)


def differences_within(logs: pd.DataFrame, who: pd.Series) -> pd.DataFrame:
    """Difference of each scan from the mean of the earlier ones of the same participant.

    They are independent, and scaled so that their variance is that of a difference of two scans.
    """
    groups = logs.groupby(who, sort=False)
    number = groups.cumcount()
    earlier = (groups.cumsum() - logs).div(number.where(number > 0), axis=0)
    scale = np.sqrt(2 * number / (number + 1))
    return (logs - earlier).mul(scale, axis=0)[number > 0]


def _refuse_copies(table: Table, logs: pd.DataFrame, who: pd.Series) -> None:
    regions = logs.drop(columns=HEAD_SIZE, errors='ignore').round(UNCHANGED_DECIMALS)
    same = regions.index[regions.assign(participant=who).duplicated()]
    if len(same):
        raise DataError(
            f'{table.source}: {list_briefly(same)} has the volumes of an earlier row; give '
            'separate scans'
        )


def _require_pairs(table: Table, differences: pd.DataFrame) -> None:
    if len(differences) < MIN_PAIRS:
        raise DataError(
            f'{table.source}: {len(differences)} pairs of scans of one participant without missing '
            f'volumes, but --retest needs at least {MIN_PAIRS}; add scans under the same id'
        )
    regions = differences.drop(columns=HEAD_SIZE, errors='ignore')
    constant = list(regions.columns[(regions.round(UNCHANGED_DECIMALS) == 0).all()])
    if constant:
        raise DataError(
            f'{table.source}: {list_briefly(constant)} is the same in all scans of a participant; '
            'give volumes that were measured in each scan'
        )


def _mates(wanted: FeatureList) -> dict[str, str]:
    """Features of the same structure on the other side, where both are single MUSE regions."""
    single = {f.indices[0]: f.name for f in wanted.features if len(f.indices) == 1}
    mates = region_mates()
    return {name: single[mates[i]] for i, name in single.items() if mates.get(i) in single}


def estimate_noise(
    differences: pd.DataFrame, volumes: pd.Series, mates: Mapping[str, str]
) -> pd.DataFrame:
    """`noise` (standard deviation of one log measurement) and its degrees of freedom, `df`.

    Parameters
    ----------
    differences : frame of shape (n_pairs, n_regions)
        Log differences of two scans, of regions and, if it was measured, of the head size.
    volumes : Series of shape (n_regions,)
        Usual volume of each.
    mates
        Region of the other side, for those that have one.

    Returns
    -------
    DataFrame
        One row each for the shared component, the head size and each region.
    """
    regions = differences.drop(columns=HEAD_SIZE, errors='ignore')
    shared = regions.median(axis=1)
    own = regions.sub(shared, axis=0)
    squares = own.pow(2).mean()
    names = list(map(str, regions))
    other = [mates.get(name, name) for name in names]
    variances = (squares.to_numpy() + squares[other].to_numpy()) / 2
    df = len(own) * np.where(np.array(names) == other, 1, 2)
    shrunk, df_shrunk = shrink(variances, df, np.log(volumes[regions.columns].to_numpy()))
    head = (differences[HEAD_SIZE] - shared).pow(2).mean() if HEAD_SIZE in differences else 0.0
    # A difference has two measurements in it.
    noise = np.sqrt(np.array([shared.pow(2).mean(), head, *shrunk]) / 2)
    rows = [SHARED, HEAD_SIZE, *names]
    return pd.DataFrame({'noise': noise, 'df': [len(own), len(own), *df_shrunk]}, rows)


def shrink(
    variances: NDArray[np.float64], df: NDArray[np.int64], log_volumes: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shrink log variances (S,) with degrees of freedom (S,) towards a straight line.

    Returns both after shrinkage.

    The prior is a scaled inverse chi-squared distribution around the line. Its degrees of freedom
    follow from how much more variances differ than their own degrees of freedom explain.
    """
    bias = digamma(df / 2) - np.log(df / 2)
    logs = np.log(variances) - bias
    line = np.polyval(np.polyfit(log_volumes, logs, 1), log_volumes)
    excess = np.mean((logs - line) ** 2 * len(logs) / (len(logs) - 2) - polygamma(1, df / 2))
    # Few regions do not tell the line better than all of their pairs do.
    most = min(MOST_DF, float(df.sum()))
    prior_df = most
    if excess > polygamma(1, most / 2):
        prior_df = brentq(lambda d: polygamma(1, d / 2) - excess, 1e-3, most)
    prior = np.exp(line + digamma(prior_df / 2) - np.log(prior_df / 2))
    known = np.asarray(prior_df + df, dtype=np.float64)
    return np.asarray((prior_df * prior + df * variances) / known), known
