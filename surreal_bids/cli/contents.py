"""Contents of the results in `--derivatives`, checked before any processing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from surreal_bids.bids.derivatives import Reusable
from surreal_bids.bids.survey import Problem
from surreal_bids.cautions import FIGURES, Caution
from surreal_bids.cli.plan import Job, Plan
from surreal_bids.exceptions import DataError
from surreal_bids.images import Image, load_image
from surreal_bids.imaging.atlas import read_regions
from surreal_bids.imaging.belonging import (
    check_known,
    check_lesion,
    check_mask,
    check_same_head,
    check_segmentation,
    check_tissue_maps,
)
from surreal_bids.progress import with_bar
from surreal_bids.regions import label_table

LOGGER = logging.getLogger(__name__)

AT_A_TIME = 4
"""Images checked at a time; each needs up to 1 GB."""


def without_bad_results(plan: Plan) -> Plan:
    """Check the results that pending images would reuse, and exclude images with errors.

    Every file is compared with the T1w image. The dry run and the run use this function.
    """
    reusing = [job for job in plan.pending if job.reusable.files]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        checked = pool.map(_what_is_wrong, reusing)
        found = list(with_bar(checked, 'Checking derivatives', len(reusing)))
    problems = [Problem(job.image.name, reason) for job, reason in zip(reusing, found) if reason]
    bad = {problem.name for problem in problems}
    kept = [job for job in plan.jobs if job.image.name not in bad]
    return replace(plan, jobs=kept, problems=[*plan.problems, *problems])


def _what_is_wrong(job: Job) -> str:
    """Return the first error of the results of other programs; warn of doubts."""
    path = job.image.path
    try:
        for path, doubt in _compare(job, job.reusable):
            if doubt:
                remedy = (
                    'Compare it with the T1w image, and remove it to compute a new one if it is '
                    'wrong'
                )
                found = f'{path}: {doubt}'
                LOGGER.warning(
                    Caution(found, 'Volumes may be wrong', remedy, FIGURES, who=job.image.name)
                )
    except DataError as error:
        return str(error) if str(path) in str(error) else f'{path}: {error}'
    return ''


def _compare(job: Job, reusable: Reusable) -> Iterator[tuple[Path, str]]:
    """Yield each file before it is compared with the T1w image in use, and doubts about it."""
    yield (path := reusable.t1w or job.image.path), ''
    t1w = load_image(path)
    # An average of several images is in a place of its own.
    if reusable.t1w is not None and not job.image.passed_over:
        check_same_head(t1w, load_image(job.image.path))
    if reusable.mask is not None:
        yield reusable.mask, ''
        check_mask(load_image(reusable.mask), t1w)
    if reusable.lesion is not None:
        yield reusable.lesion, ''
        check_lesion(load_image(reusable.lesion), t1w)
    if reusable.tpms:
        yield reusable.tpms[0], ''
        maps = [load_image(path) for path in reusable.tpms]
        yield reusable.tpms[0], check_tissue_maps(maps, t1w)
    if reusable.dseg is not None:
        yield reusable.dseg, ''
        for doubt in _check_segmentation(reusable, reusable.dseg, t1w):
            yield reusable.dseg, doubt


def _check_segmentation(reusable: Reusable, path: Path, t1w: Image) -> Iterator[str]:
    # Imported here because torch is slow to import.
    from surreal_bids.imaging.fusion import volumes_of_labels

    dseg = load_image(path)
    volumes = volumes_of_labels(dseg)
    if reusable.dseg_table is not None:
        regions = read_regions(reusable.dseg_table)
    else:
        regions = label_table(reusable.numbering, volumes)
        yield check_known(volumes, regions)
    yield check_segmentation(dseg, regions, t1w)
