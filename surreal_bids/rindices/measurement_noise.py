"""Noise of measurement: how far two scans of the same brain differ, in volumes and in R-indices.

Volumes are measured with errors that act by ratio: one that all regions and the head size share
(the scale of an image), and one of each region's own. Their sizes are those of five people who were
scanned twice within 90 days on one scanner (OASIS), at 1 mm, by the network of the package
(`benchmarks/retest.py` says how); other scanners, voxel sizes and programs may differ more. Few
people do not tell sizes exactly: each has degrees of freedom, as a variance of few values has.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files as package_files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

from surreal_bids.cohort.cohort import Cohort
from surreal_bids.model.training import mean_gradients
from surreal_bids.names import PARTICIPANT
from surreal_bids.regions import Feature, FeatureList
from surreal_bids.rindices.model import TableModel
from surreal_bids.rindices.preprocessing import Preprocessing

NOISE_TABLE = Path(str(package_files('surreal_bids') / 'data' / 'retest.tsv'))
REAL_ERRORS = 1.25
"""By which limits of changes are widened. Differences of the five people themselves, each judged by
the noise of the other four, exceeded the limit of one of three R-indices in 15 % of comparisons
instead of 5 %, as errors 1.23 times as large would (benchmarks/results, `visits`)."""

SHARED, HEAD_SIZE = 'shared', 'icv'
"""Rows of the table of noise that are no regions."""

STEP = 1e-3
"""By which share volumes are changed to see what preprocessing makes of it."""

SHARED_ESTIMATES = 2
"""Left and right have one estimate, so that many regions are half as many that are independent."""


class Noise(NamedTuple):
    """Noise of R-indices: frames of shape (n_visits, M).

    Attributes
    ----------
    sd
        Standard deviation of one measurement.
    df
        How well it is known: the degrees of freedom of its square.
    """

    sd: pd.DataFrame
    df: pd.DataFrame


@cache
def _noise_table() -> pd.DataFrame:
    """`noise` (sd of the logarithm of one measurement), `df` and `volume_mm3`, by MUSE index."""
    return pd.read_csv(NOISE_TABLE, sep='\t', dtype={'index': str}, na_values='n/a').set_index(
        'index'
    )


def df_of_sum(variances: NDArray[np.float64], df: ArrayLike) -> NDArray[np.float64]:
    """Degrees of freedom of a sum of variances along the last axis (Satterthwaite, 1946)."""
    spread = (np.square(variances) / df).sum(axis=-1)
    return np.divide(
        np.square(variances.sum(axis=-1)),
        spread,
        out=np.full(spread.shape, np.nan),
        where=spread > 0,
    )


def describe_noise() -> str:
    """Say what noise was estimated from."""
    return (
        'The noise was estimated in 5 people who were scanned twice within 90 days on one '
        'scanner at 1 mm and measured with the built-in network; other scanners, voxel sizes and '
        'programs may have more noise. Limits are widened by '
        f'{REAL_ERRORS - 1:.0%}, because real differences of these people exceeded the noise.'
    )


def noise_of_features(features: FeatureList) -> pd.DataFrame:
    """Noise of each feature's own: that of the logarithm of one measurement.

    Returns
    -------
    DataFrame with columns `sd` and `df`, one row per feature
        NaN where it is not known: that of anything but volumes of MUSE regions.
    """
    unknown = [(np.nan, np.nan)] * len(features)
    own = unknown if features.are_z_scores else [_noise_of_sum(f) for f in features.features]
    return pd.DataFrame(own, features.names, ['sd', 'df'], dtype=np.float64)


def _noise_of_sum(feature: Feature) -> tuple[float, float]:
    """Errors of the regions of a sum are independent, and count by their volumes."""
    rows = _noise_table().reindex([str(index) for index in feature.indices])
    if rows.empty:
        return np.nan, np.nan
    share = rows['volume_mm3'] / rows['volume_mm3'].sum(skipna=False)
    variances = np.square((share * rows['noise']).to_numpy())
    df = rows['df'] / (SHARED_ESTIMATES if len(rows) > 1 else 1)
    return float(np.sqrt(variances.sum())), float(df_of_sum(variances, df.to_numpy()))


def noise_of_indices(model: TableModel, cohort: Cohort) -> Noise:
    """Noise of R-indices by measurement alone.

    To first order: how an R-index follows the features is the gradient of the model at the
    participant's own profile. Where a participant has the same head size at all visits, it was not
    measured anew and has no error.

    Returns
    -------
    Noise of frames of shape (n_visits, M)
        NaN where the noise of a feature is not known, or nothing was computed.
    """
    steps, names = model.preprocessing, list(model.pattern_names)
    features, people = cohort.features, cohort.people
    own = noise_of_features(steps.structures)
    if own['sd'].isna().any():
        unknown = pd.DataFrame(np.nan, features.index, names)
        return Noise(unknown, unknown)
    shrunk, grown = features * np.exp(-STEP), features * np.exp(STEP)
    by_feature = _slope(steps, (shrunk, people), (grown, people))
    smaller, larger = _other_heads(cohort)
    by_head = _slope(steps, (features, smaller), (features, larger))
    seen = steps.transform(features, people).normalised
    columns = steps.structures.names
    gradient_NMS = mean_gradients(
        model.gan.weights_, torch.tensor(seen[columns].to_numpy(np.float32))
    )
    of_features = gradient_NMS * by_feature[columns].to_numpy()[:, None]
    of_head = (gradient_NMS * by_head[columns].to_numpy()[:, None]).sum(axis=2)
    known = _noise_table().loc[[SHARED, HEAD_SIZE]]
    of_scale = np.stack([of_features.sum(axis=2) + of_head, of_head], axis=2)
    variances = np.concatenate(
        [
            np.square(of_features * own.loc[columns, 'sd'].to_numpy()),
            np.square(of_scale * known['noise'].to_numpy()),
        ],
        axis=2,
    )
    df = np.concatenate([own.loc[columns, 'df'] / SHARED_ESTIMATES, known['df']])
    sd, df_NM = np.sqrt(variances.sum(axis=2)), df_of_sum(variances, df)
    tables = (pd.DataFrame(each, seen.index, names).reindex(features.index) for each in (sd, df_NM))
    return Noise(*tables)


def widening_between_sites(
    steps: Preprocessing, before: pd.Series, after: pd.Series
) -> NDArray[np.float64]:
    """How much more noise a change between two sites has than one at a single site (n_pairs,).

    The shift between sites has an error, which all participants share: it is added to noise, not
    averaged with it, so that few changes are called in most studies, not only on average. If
    participants whom ComBat was fitted on vary more between visits than measurements of volumes do,
    for whatever reason, their variation counts. NaN where the two sites were not
    compared within participants.

    Parameters
    ----------
    steps
        Fitted steps.
    before, after : Series of shape (n_pairs,)
        Sites of the earlier and the later visit.
    """
    combat, widening = steps.combat, widening_by_shifts(steps, before, after)
    if combat is None or not np.isfinite(widening).any():
        return widening
    varying = ~np.isin(steps.structures.names, combat.constant_)
    size = 1.0 if steps.options.icv == 'power' else np.abs(steps.normaliser.mean_[varying])
    # Volumes divided by the head size have its error, and not that of the scale of the image.
    common = HEAD_SIZE if steps.options.icv == 'proportion' else SHARED
    own, shared = noise_of_features(steps.structures)['sd'], _noise_table()['noise'][common]
    expected = np.hypot(own.to_numpy()[varying], shared)
    excess = float(np.median(np.square(combat.scale_ / size / expected)))
    return np.sqrt(max(1.0, excess)) * widening


def widening_by_shifts(
    steps: Preprocessing, before: pd.Series, after: pd.Series
) -> NDArray[np.float64]:
    """How much more noise a change between two sites has by the error of their shift (n_pairs,).

    Of noise that includes all variation between visits; see :func:`widening_between_sites`.
    """
    combat = steps.combat
    widening = np.full(len(before), np.nan)
    if combat is None or combat.shift_error_ is None:
        return widening
    code = {name: number for number, name in enumerate(combat.compared_sites_)}
    codes = np.array([before.map(code), after.map(code)], dtype=np.float64)
    known = np.isfinite(codes).all(axis=0)
    error = combat.shift_error_[tuple(codes[:, known].astype(np.intp))]
    widening[known] = 1 + np.sqrt(error / 2)
    return widening


Known = tuple[pd.DataFrame, pd.DataFrame]
"""Features, and what is known of participants."""


def _slope(steps: Preprocessing, lower: Known, upper: Known) -> pd.DataFrame:
    """How what the network sees follows a logarithm, each feature its own, between two points."""
    normalised = [steps.transform(*known).normalised for known in (lower, upper)]
    return (normalised[1] - normalised[0]) / (2 * STEP)


def _other_heads(cohort: Cohort) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What is known of participants, with smaller and larger heads where these were measured."""
    options, people = cohort.options, cohort.people
    if options.icv_column is None or not options.uses_icv:
        return people, people
    size = people[options.icv_column]
    sizes = size.groupby(cohort.visits[PARTICIPANT])
    given_once = (sizes.transform('nunique') == 1) & (sizes.transform('size') > 1)
    smaller, larger = (
        people.assign(**{options.icv_column: size.where(given_once, size * np.exp(step))})
        for step in (-STEP, STEP)
    )
    return smaller, larger
