"""Contents of the results in `--derivatives`, checked before any processing."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from surreal_bids.bids.derivatives import Reusable
from surreal_bids.bids.survey import Problem, check_image
from surreal_bids.bids.tabular import prefix_errors
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
from surreal_bids.text import list_briefly

LOGGER = logging.getLogger(__name__)

AT_A_TIME = 4
"""Images checked at a time; each needs up to 1 GB."""


@dataclass
class Findings:
    """Reasons why results of other programs cannot be used, doubts, and digests of the others."""

    reasons: list[str] = field(default_factory=list)
    doubts: list[Caution] = field(default_factory=list)
    digests: dict[Path, str] = field(default_factory=dict)

    @contextmanager
    def collecting(self, path: Path) -> Iterator[None]:
        """Store an error instead of raising it, so that all errors are found."""
        try:
            with prefix_errors(path):
                yield
        except DataError as error:
            self.reasons.append(str(error))

    def doubt(self, path: Path, text: str) -> None:
        """Store a doubt about a file, unless the text is empty."""
        if text:
            remedy = (
                'Compare it with the T1w image, and remove it to compute a new one if it is wrong'
            )
            self.doubts.append(Caution(f'{path}: {text}', 'Volumes may be wrong', remedy, FIGURES))


def without_bad_results(plan: Plan) -> Plan:
    """Check the results that pending images would reuse, and exclude images with errors.

    Every file is read to its end and compared with the T1w image. The dry run and the run use this
    function.
    """
    reusing = [job for job in plan.pending if job.reusable.files]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        checked = pool.map(check_results, reusing)
        found = list(with_bar(checked, 'Checking derivatives', len(reusing)))
    problems = [
        Problem(job.image.name, reason)
        for job, findings in zip(reusing, found)
        for reason in findings.reasons
    ]
    problems += _copies(dict(zip((job.image.name for job in reusing), found)), reusing)
    for job, findings in zip(reusing, found):
        for doubt in findings.doubts:
            LOGGER.warning(doubt._replace(who=job.image.name))
    bad = {problem.name for problem in problems}
    kept = [job for job in plan.jobs if job.image.name not in bad]
    return replace(plan, jobs=kept, problems=[*plan.problems, *problems])


def _copies(found: Mapping[str, Findings], jobs: Iterable[Job]) -> list[Problem]:
    """Report identical results of different participants."""
    owners: dict[str, list[tuple[Job, Path]]] = defaultdict(list)
    for job in jobs:
        for path, digest in found[job.image.name].digests.items():
            owners[digest].append((job, path))
    problems = []
    for same in owners.values():
        for job, path in same:
            others = {o.image.name: None for o, _ in same if o.participant != job.participant}
            if others:
                problems.append(
                    Problem(
                        job.image.name,
                        f'{path}: identical to the file of {list_briefly(others)}; replace the '
                        'copy, or exclude it with --participant-label',
                    )
                )
    return problems


def check_results(job: Job) -> Findings:
    """Check every result of other programs that an image would reuse."""
    reusable, findings = job.reusable, Findings()
    images = [reusable.t1w, reusable.mask, reusable.dseg, reusable.lesion, *reusable.tpms]
    _read(findings, images)
    reference = reusable.t1w or job.image.path
    if reference != job.image.path and reference not in findings.digests:
        return findings
    t1w = None
    with findings.collecting(reference):
        t1w = load_image(reference)
    if t1w is not None:
        _compare(findings, job, t1w)
    return findings


def _read(findings: Findings, paths: Sequence[Path | None]) -> None:
    for path in filter(None, paths):
        with findings.collecting(path):
            findings.digests[path] = check_image(path).digest


def _compare(findings: Findings, job: Job, t1w: Image) -> None:
    """Compare each readable result with the T1w image on which it will be used."""
    reusable, sound = job.reusable, findings.digests
    # An average of several images is in a place of its own.
    if reusable.t1w is not None and not job.image.passed_over:
        with findings.collecting(reusable.t1w):
            check_same_head(t1w, load_image(job.image.path))
    if reusable.mask in sound:
        with findings.collecting(reusable.mask):
            check_mask(load_image(reusable.mask), t1w)
    if reusable.lesion in sound:
        with findings.collecting(reusable.lesion):
            check_lesion(load_image(reusable.lesion), t1w)
    if reusable.tpms and all(path in sound for path in reusable.tpms):
        with findings.collecting(reusable.tpms[0]):
            maps = [load_image(path) for path in reusable.tpms]
            findings.doubt(reusable.tpms[0], check_tissue_maps(maps, t1w))
    if reusable.dseg in sound:
        with findings.collecting(reusable.dseg):
            for doubt in _check_segmentation(reusable, reusable.dseg, t1w):
                findings.doubt(reusable.dseg, doubt)


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
