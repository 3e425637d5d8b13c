"""Noise of measurement: how far two scans of the same brain differ, in volumes and in R-indices.

Volumes are measured with errors that act by ratio: one that all regions and the head size share
(the scale of an image), and one of each region's own. Their sizes are of five people who were
scanned twice within 90 days on one scanner (OASIS), at 1 mm, by the network of the package
(`benchmarks/retest.py` says how); other scanners, voxel sizes and programs may differ more.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files as package_files
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from surreal_bids.bids.people import PARTICIPANT
from surreal_bids.model.train import mean_gradients
from surreal_bids.regions import Feature, FeatureList
from surreal_bids.tables.cohort import Cohort
from surreal_bids.tables.pipeline import TableModel
from surreal_bids.tables.preprocessing import Preprocessing

NOISE_TABLE = Path(str(package_files('surreal_bids') / 'data' / 'retest.tsv'))
SHARED, HEAD_SIZE = 'shared', 'icv'
"""Rows of it that are no regions."""

PAIRS = 5
"""People whom it was learned from."""

STEP = 1e-3
"""By which share volumes are changed to see what preprocessing makes of it."""


@cache
def _noise_table() -> pd.DataFrame:
    """`noise` (sd of the logarithm of one measurement) and `volume_mm3`, by MUSE index as text."""
    return pd.read_csv(NOISE_TABLE, sep='\t', dtype={'index': str}, na_values='n/a').set_index(
        'index'
    )


def noise_of_features(features: FeatureList) -> pd.Series:
    """Noise of each feature's own: standard deviation of the logarithm of one measurement.

    Returns
    -------
    Series, by the name of the feature
        NaN where a feature is not made of MUSE regions whose noise is known.
    """
    own = [_noise_of_sum(feature) for feature in features.features]
    return pd.Series(own, features.names, dtype=np.float64)


def _noise_of_sum(feature: Feature) -> float:
    """Errors of the regions of a sum are independent, and count by their volumes."""
    rows = _noise_table().reindex([str(index) for index in feature.indices])
    if rows.empty:
        return np.nan
    share = rows['volume_mm3'] / rows['volume_mm3'].sum(skipna=False)
    return float(np.sqrt((share * rows['noise']).pow(2).sum(skipna=False)))


def noise_of_volumes(features: FeatureList, proportion: bool = False) -> pd.Series:
    """Noise of each volume: standard deviation of the logarithm of one measurement.

    Parameters
    ----------
    features
        What is measured.
    proportion
        Whether volumes were divided by the head size, which has the shared error too.
    """
    common = float(_noise_table()['noise'][HEAD_SIZE if proportion else SHARED])
    return (noise_of_features(features) ** 2 + common**2) ** 0.5


def noise_of_indices(model: TableModel, cohort: Cohort) -> pd.DataFrame:
    """Noise of R-indices by measurement alone: standard deviation of one measurement.

    To first order: how an R-index follows the features is the gradient of the model at the
    participant's own profile. Where a participant has the same head size at all visits, it was not
    measured anew and has no error.

    Returns
    -------
    DataFrame of shape (n_visits, M)
        NaN where the noise of a feature is not known, or nothing was computed.
    """
    steps, names = model.preprocessing, list(model.pattern_names)
    features, people = cohort.features, cohort.people
    own = noise_of_features(steps.features)
    if not names or own.isna().any():
        return pd.DataFrame(np.nan, features.index, names)
    shrunk, grown = features * np.exp(-STEP), features * np.exp(STEP)
    by_feature = _slope(steps, (shrunk, people), (grown, people))
    smaller, larger = _other_heads(cohort)
    by_head = _slope(steps, (features, smaller), (features, larger))
    seen = steps.transform(features, people).normalised
    columns = model.gan.feature_names_in_ or steps.features.names
    gradient_NMS = mean_gradients(
        model.gan.weights_, torch.tensor(seen[columns].to_numpy(np.float32))
    )
    of_features = gradient_NMS * by_feature[columns].to_numpy()[:, None]
    of_head = (gradient_NMS * by_head[columns].to_numpy()[:, None]).sum(axis=2)
    noise = _noise_table()['noise']
    variance = (
        np.square(of_features * own[columns].to_numpy()).sum(axis=2)
        + np.square((of_features.sum(axis=2) + of_head) * noise[SHARED])
        + np.square(of_head * noise[HEAD_SIZE])
    )
    return pd.DataFrame(np.sqrt(variance), seen.index, names).reindex(features.index)


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
