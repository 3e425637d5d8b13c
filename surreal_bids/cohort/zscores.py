"""Screening of z-scores, in place of the checks of volumes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from surreal_bids.cohort.plausibility import OFTEN_EMPTY, Reasons, refuse_copies
from surreal_bids.exceptions import DataError
from surreal_bids.text import list_briefly

LARGEST = 50.0
"""Largest z-score of a participant; anything beyond is a volume or a code for a missing value."""

USUAL_MEDIAN = 5.0
"""Median of absolute z-scores, 0.7 in controls, above which a table holds something else."""

USUAL_SD = 0.1
"""Median SD of features, 1 in controls, below which a table holds something else."""

MIN_ROWS = 5
"""Participants from which z-scores have both signs and an SD that tells."""

REMEDY = 'use z-scores, or --features-kind volume and a model of volumes'


def check_z_scores(features: pd.DataFrame, source: str) -> None:
    """Refuse features that cannot be z-scores.

    Parameters
    ----------
    features : frame of shape (n_visits, n_features)
        Z-scores; missing values are handled later.
    source
        Name of the table, for messages.

    Raises
    ------
    DataError
        Infinite values, numbers like volumes or codes for missing values, or copied rows.
    """
    size = features.abs()
    median = float(np.nanmedian(size.to_numpy())) if size.notna().any(axis=None) else 0.0
    region = str(size.median().idxmax()) if median else ''
    found = f'{source}: the median of {region} is {features[region].median():g}' if region else ''
    if median > USUAL_MEDIAN:
        raise DataError(f'{found}, more than any z-score; {REMEDY}')
    far = size > LARGEST
    if far.any(axis=None):
        row, column = np.argwhere(far.to_numpy())[0]
        raise DataError(
            f'{source}: {features.columns[column]} of {features.index[row]} is '
            f'{features.iloc[row, column]:g}, which is no z-score; correct it, or write n/a if it '
            'is missing'
        )
    if len(features) >= MIN_ROWS and not (features < 0).any(axis=None):
        raise DataError(f'{found}, and no value is negative, so these are no z-scores; {REMEDY}')
    if len(features) >= MIN_ROWS and features.std().median() < USUAL_SD:
        raise DataError(
            f'{source}: features have an SD of {features.std().median():.2g}, which z-scores do '
            f'not have; {REMEDY}'
        )
    refuse_copies(features, source)


def unusable_scores(features: pd.DataFrame) -> dict[str, str]:
    """Return the reasons for dropping features that are often missing or do not vary."""
    missing = features.isna().mean()
    often = {
        str(name): f'missing in {share:.0%} of participants'
        for name, share in missing.items()
        if share > OFTEN_EMPTY
    }
    same = features.columns[features.nunique() < 2]
    return {str(name): 'the same in all participants' for name in same} | often


def missing_scores(features: pd.DataFrame) -> Reasons:
    """Return the reasons for excluding participants with a missing z-score."""
    return {
        str(visit): f'no z-score of {list_briefly(features.columns[row], 3)}'
        for visit, row in zip(features.index, features.isna().to_numpy())
        if row.any()
    }
