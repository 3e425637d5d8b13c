"""Quality of all images of a cohort, and which of them to look at."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from surreal_bids.bids.outputs import read_quality, visit_output
from surreal_bids.cohort.checks import NORMAL_SD_PER_MAD
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.names import PARTICIPANT, SESSION

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
"""Metrics that images are compared by, and which values are bad: high (1), low (-1) or both (0)."""

LEAST_SD = {'inu_range': 0.02, 'uncertain_regions': 1.5, 'empty_regions': 0.25, 'asymmetry': 0.05}
"""Least standard deviation to be expected of some metrics."""

LEAST_RELATIVE_SD = 0.005
"""Least standard deviation to be expected of any metric, as a part of its median."""

OUTLYING = 3.5
"""Robust standard deviations beyond which a metric is an outlier (Iglewicz and Hoaglin, 1993)."""

FEWEST_IMAGES = 10
"""Number of images of a scanner below which they are compared with those of other small ones."""

FEW_IMAGES = 5.0
"""With n images, the SD counts as larger by this over n, because it is not known well. Otherwise
13 % of ten sound images are outliers in some metric; with it, 3 % of ten and 1 % of 50."""

SMALL_SITES = ''
"""Scanners with few images, which are compared together; no site is called so."""

OUTLIERS = 'outliers'
"""Column with the names of the metrics in which an image is an outlier."""


class ImageQuality(NamedTuple):
    """Quality of the images of a cohort.

    Attributes
    ----------
    table : DataFrame, one row per visit
        Participant, session, metrics and outliers; `bids/columns.yaml` describes the columns.
    scores : DataFrame, one row per visit
        Distance from other images in each metric; see `outlier_scores`.
    """

    table: pd.DataFrame
    scores: pd.DataFrame


def read_image_quality(output_dir: Path, cohort: Cohort) -> ImageQuality | None:
    """Read the metrics of all images with volumes; None if there are none.

    Parameters
    ----------
    output_dir
        Outputs of the participant level.
    cohort
        All visits.
    """
    visits = cohort.measured[[name for name in (PARTICIPANT, SESSION) if name in cohort.measured]]
    rows = [_read(output_dir, visit) for visit in visits.to_dict('records')]
    metrics = pd.DataFrame(rows, visits.index, list(BAD), dtype=float)
    if metrics.isna().all(axis=None):
        return None
    column = cohort.options.site_column
    # That of excluded visits is not read.
    scanner = pd.Series('', visits.index) if column is None else cohort.people[column]
    scores = outlier_scores(metrics, scanner.reindex(visits.index))
    outlying = scores > OUTLYING
    table = pd.concat([visits, metrics], axis=1)
    names = [', '.join(outlying.columns[row]) or None for row in outlying.to_numpy()]
    table[OUTLIERS] = pd.Series(names, table.index, dtype=object)
    return ImageQuality(table, scores)


def _read(output_dir: Path, visit: dict) -> dict[str, float | None]:
    """Read the metrics of one image; empty where there are none."""
    path = visit_output(output_dir, 'quality', visit[PARTICIPANT], visit.get(SESSION))
    return {} if path is None else read_quality(path)


def outlier_scores(metrics: pd.DataFrame, scanner: pd.Series) -> pd.DataFrame:
    """Distance of metrics from the median of the scanner, in robust SD; positive is bad.

    Missing where the scanner is not known, or where fewer than `FEWEST_IMAGES` can be compared.

    Parameters
    ----------
    metrics
        One row per image.
    scanner
        Scanner of each image; missing where it is not known.
    """
    is_large = scanner.map(scanner.value_counts()) >= FEWEST_IMAGES
    names = scanner.where(is_large | scanner.isna(), SMALL_SITES)
    groups = [_scores(metrics.loc[rows]) for rows in names.groupby(names).groups.values()]
    return pd.concat([metrics.iloc[:0], *groups]).reindex(metrics.index)


def _scores(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of the images of one scanner."""
    median = metrics.median()
    centred = metrics - median
    least = pd.Series(LEAST_SD).reindex(metrics.columns)
    robust = NORMAL_SD_PER_MAD * centred.abs().median()
    spread = pd.concat([robust, LEAST_RELATIVE_SD * median.abs(), least], axis=1).max(axis=1)
    count = metrics.count()
    spread = (spread * (1 + FEW_IMAGES / count)).where((spread > 0) & (count >= FEWEST_IMAGES))
    scores = centred / spread
    both = [name for name, bad in BAD.items() if bad == 0 and name in scores]
    return (scores * pd.Series(BAD)[scores.columns]).assign(**scores[both].abs())
