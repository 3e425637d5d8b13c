"""Quality of all images of a cohort, and which of them to look at."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from surreal_bids.bids.layout import is_label, without_prefix
from surreal_bids.bids.outputs import output_path, read_quality
from surreal_bids.bids.tabular import PARTICIPANT, SESSION
from surreal_bids.cohort.cohort import Cohort

BAD = {
    'snr_gm': -1,
    'snr_wm': -1,
    'snr_csf': -1,
    'snrd_total': -1,
    'cnr': -1,
    'cjv': 1,
    'efc': 1,
    'inu_range': 1,
    'wm2max': 0,
    'mask_ml': 0,
    'voxel_mm': 1,
    'confidence': -1,
    'uncertain_regions': 1,
    'empty_regions': 1,
    'asymmetry': 1,
    'overlap': -1,
}
"""Which values of each metric are bad: high (1), low (-1) or both (0)."""

OUTLYING = 3.5
"""Robust standard deviations beyond which a metric is an outlier (Iglewicz and Hoaglin, 1993)."""

FEWEST_IMAGES = 10
"""Number of images of a scanner below which they are compared with those of other scanners."""

SD_OF_MEDIAN, SD_OF_MEAN = 1.4826, 1.2533
"""Standard deviation of normal values over the median and the mean of their distances."""

OUTLIERS = 'outliers'
"""Column with the names of the metrics in which an image is an outlier."""


def read_image_quality(output_dir: Path, cohort: Cohort) -> pd.DataFrame:
    """Read the metrics of all images with volumes; empty if the participant level wrote none.

    Returns
    -------
    DataFrame, one row per visit
        Participant, session, metrics and outliers; `bids/columns.yaml` describes the columns.
    """
    visits = cohort.measured[[name for name in (PARTICIPANT, SESSION) if name in cohort.measured]]
    rows = [_read(output_dir, visit) for visit in visits.to_dict('records')]
    metrics = pd.DataFrame(rows, visits.index, list(BAD), dtype=float)
    if metrics.isna().all(axis=None):
        return pd.DataFrame()
    outlying = outlier_scores(metrics, scanners(cohort, visits.index)) > OUTLYING
    table = pd.concat([visits, metrics], axis=1)
    names = [', '.join(outlying.columns[row]) or None for row in outlying.to_numpy()]
    table[OUTLIERS] = pd.Series(names, table.index, dtype=object)
    return table


def _read(output_dir: Path, visit: dict) -> dict[str, float | None]:
    """Read the metrics of one image; empty where there are none."""
    participant, session = without_prefix(visit[PARTICIPANT], 'sub'), visit.get(SESSION)
    if not is_label(participant):
        return {}
    session = without_prefix(session, 'ses') if isinstance(session, str) else None
    path = output_path(output_dir, 'quality', participant=participant, session=session)
    return read_quality(path)


def scanners(cohort: Cohort, visits: pd.Index) -> pd.Series:
    """Return the scanner of each visit; missing where it is not known."""
    column = cohort.options.site_column
    known = cohort.people[column] if column else pd.Series(dtype=object)
    return known.reindex(visits)


def outlier_scores(metrics: pd.DataFrame, scanner: pd.Series) -> pd.DataFrame:
    """Distance of metrics from the median of the scanner, in robust SD; positive is bad.

    Missing where images do not differ, or are fewer than `FEWEST_IMAGES`.

    Parameters
    ----------
    metrics
        One row per image.
    scanner
        Scanner of each image; missing where it is not known.
    """
    is_large = scanner.map(scanner.value_counts()) >= FEWEST_IMAGES
    names = scanner.where(is_large, 'others')
    groups = [_scores(metrics.loc[rows]) for rows in names.groupby(names).groups.values()]
    return pd.concat(groups).loc[metrics.index]


def _scores(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of the images of one scanner."""
    centred = metrics - metrics.median()
    distance = centred.abs()
    spread = SD_OF_MEDIAN * distance.median()
    spread = spread.where(spread > 0, SD_OF_MEAN * distance.mean())
    scores = centred / spread.where((spread > 0) & (metrics.count() >= FEWEST_IMAGES))
    return pd.DataFrame(
        {
            name: scores[name].abs() if not sign else sign * scores[name]
            for name, sign in BAD.items()
        }
    )
