"""Quality of all images of a cohort, and which of them to look at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from surreal_bids.bids.outputs import read_quality, sidecar_path, visit_output
from surreal_bids.cautions import PARTICIPANTS, Caution
from surreal_bids.cohort.checks import NORMAL_SD_PER_MAD
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.exceptions import DataError
from surreal_bids.names import PARTICIPANT, SESSION, Visit
from surreal_bids.tables import Table, parse_visit, read_table


class Metric(NamedTuple):
    """Which values are bad, high (1), low (-1) or both (0), and the least SD to be expected."""

    bad: int
    least_sd: float = 0.0


METRICS: dict[str, Metric] = {
    'snr_gm': Metric(-1),
    'snr_wm': Metric(-1),
    'snr_csf': Metric(-1),
    'snrd_total': Metric(-1),
    'cnr': Metric(-1),
    'cjv': Metric(1),
    'efc': Metric(1),
    'inu_range': Metric(1, 0.02),
    'wm2max': Metric(0),
    'mask_ml': Metric(0),
    'voxel_mm': Metric(1),
    'confidence': Metric(-1),
    'uncertain_regions': Metric(1, 1.5),
    'empty_regions': Metric(1, 0.25),
    'asymmetry': Metric(1, 0.05),
    'overlap': Metric(-1),
}
"""Metrics that images are compared by."""

OF_MRIQC = {
    'snr_total': Metric(-1),
    'snrd_total': Metric(-1),
    'cnr': Metric(-1),
    'cjv': Metric(1),
    'efc': Metric(1),
    'fber': Metric(-1),
    'fwhm_avg': Metric(1),
    'inu_range': Metric(1, 0.02),
    'qi_1': Metric(1),
    'wm2max': Metric(0),
}
"""Metrics in the table of MRIQC that images are also compared by."""

BIDS_NAME = 'bids_name'
"""Column of that table with the names of images, such as `sub-01_ses-a_T1w`."""

UNDEFINED = -1
"""Value of `fber` in images without a background."""

ALL_METRICS = METRICS | {f'mriqc_{name}': metric for name, metric in OF_MRIQC.items()}
"""All of them, by their columns."""

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


def read_image_quality(
    output_dir: Path, cohort: Cohort, mriqc: Path | None = None
) -> ImageQuality | None:
    """Read the metrics of all images with volumes; None if there are none.

    Parameters
    ----------
    output_dir
        Outputs of the participant level.
    cohort
        All visits.
    mriqc
        Table of MRIQC, whose metrics are added.
    """
    visits = cohort.measured[[name for name in (PARTICIPANT, SESSION) if name in cohort.measured]]
    rows = [_read(output_dir, visit) for visit in visits.to_dict('records')]
    metrics = pd.DataFrame(rows, visits.index, list(METRICS), dtype=float)
    if mriqc is not None:
        metrics = metrics.join(read_mriqc(mriqc, visits, output_dir))
    if metrics.isna().all(axis=None):
        return None
    scores = outlier_scores(metrics, _scanners(cohort, visits.index))
    outlying = scores > OUTLYING
    table = pd.concat([visits, metrics], axis=1)
    names = [', '.join(outlying.columns[row]) or None for row in outlying.to_numpy()]
    table[OUTLIERS] = pd.Series(names, table.index, dtype=object)
    return ImageQuality(table, scores)


def _read(output_dir: Path, visit: dict) -> dict[str, float | None]:
    """Read the metrics of one image; empty where there are none."""
    path = visit_output(output_dir, 'quality', visit[PARTICIPANT], visit.get(SESSION))
    return {} if path is None else read_quality(path)


def read_mriqc(path: Path, visits: pd.DataFrame, output_dir: Path) -> pd.DataFrame:
    """Read the metrics of visits, with the prefix `mriqc_`; missing for those without a row.

    Of several images of a visit, the one that was processed counts. Values that are no finite
    numbers are missing.

    Parameters
    ----------
    path
        `group_T1w.tsv` of MRIQC.
    visits
        Participants and, where there are any, sessions.
    output_dir
        Outputs of the participant level.

    Raises
    ------
    DataError
        It has no column `bids_name`, or none of the metrics.
    """
    table = read_table(path)
    known = [name for name in OF_MRIQC if name in table.columns]
    if BIDS_NAME not in table.columns or not known:
        raise DataError(
            f'{path}: no column {BIDS_NAME} or no metric such as cjv; give the folder of the group '
            'table that MRIQC wrote'
        )
    cells = {f'mriqc_{name}': table.categories(name) for name in known}
    metrics = pd.DataFrame(cells).apply(pd.to_numeric, errors='coerce').astype(float)
    metrics = metrics.where(np.isfinite(metrics))
    if 'mriqc_fber' in metrics:
        metrics['mriqc_fber'] = metrics['mriqc_fber'].mask(metrics['mriqc_fber'] == UNDEFINED)
    rows = [_row_of(names, image) for names, image in _images_of(table, visits, output_dir)]
    return metrics.reindex(rows).set_axis(visits.index)


def _images_of(
    table: Table, visits: pd.DataFrame, output_dir: Path
) -> Iterator[tuple[dict[str, str], str | None]]:
    """Yield the rows of each visit by the names of images, and the image that was processed."""
    rows_of: dict[Visit, dict[str, str]] = {}
    for row, name in table.categories(BIDS_NAME).map(str).items():
        rows_of.setdefault(_visit_of(name), {})[name] = str(row)
    for visit in visits.to_dict('records'):
        who, session = visit[PARTICIPANT], visit.get(SESSION)
        names = rows_of.get(parse_visit(who, session if isinstance(session, str) else None), {})
        yield names, _processed_image(output_dir, who, session)


def _row_of(names: dict[str, str], image: str | None) -> str | None:
    """Return the row of an image, or the only one of the visit."""
    return names.get(str(image), next(iter(names.values())) if len(names) == 1 else None)


def _processed_image(output_dir: Path, participant: str, session: object) -> str | None:
    """Return the name of the image that was processed; None if that is not known."""
    path = visit_output(output_dir, 't1w', participant, session)
    if path is None or not sidecar_path(path).is_file():
        return None
    sources = json.loads(sidecar_path(path).read_text('utf-8')).get('Sources') or ['']
    return Path(sources[0]).name.partition('.')[0]


def _visit_of(name: str) -> Visit:
    """Return participant and session of the name of an image."""
    entities = dict(part.partition('-')[::2] for part in name.split('_'))
    return entities.get('sub', name), entities.get('ses')


def doubts_of_mriqc(path: Path, cohort: Cohort, output_dir: Path) -> list[Caution]:
    """Warn of images without a row in a table of MRIQC; parameters are those of `read_mriqc`."""
    read_mriqc(path, cohort.measured, output_dir)
    images = list(_images_of(read_table(path), cohort.measured, output_dir))
    lacking = [names for names, image in images if _row_of(names, image) is None]
    if not lacking:
        return []
    count = 'any' if len(lacking) == len(images) else len(lacking)
    several = sum(map(bool, lacking))
    reason = f'; {several} of them have several rows, none of the processed image' * (several > 0)
    return [
        Caution(
            f'{path}: has no row of {count} of the {len(images)} images{reason}',
            'Their metrics of MRIQC are missing in phenotype/quality.tsv',
            'Check that it belongs to this dataset, and that bids_name is the name of the image',
            PARTICIPANTS,
        )
    ]


def _scanners(cohort: Cohort, visits: pd.Index) -> pd.Series:
    """Return the scanner of each visit; missing for excluded visits, whose scanner is not read."""
    column = cohort.options.site_column
    if column is None:
        return pd.Series('the only one', visits)
    return cohort.people[column].reindex(visits)


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
    known = {name: ALL_METRICS[str(name)] for name in metrics}
    least = pd.Series({name: metric.least_sd for name, metric in known.items()})
    robust = NORMAL_SD_PER_MAD * centred.abs().median()
    spread = pd.concat([robust, LEAST_RELATIVE_SD * median.abs(), least], axis=1).max(axis=1)
    count = metrics.count()
    spread = (spread * (1 + FEW_IMAGES / count)).where((spread > 0) & (count >= FEWEST_IMAGES))
    scores = centred / spread
    return pd.DataFrame(
        {
            name: scores[name] * metric.bad if metric.bad else scores[name].abs()
            for name, metric in known.items()
        }
    )
