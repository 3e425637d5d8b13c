"""Which participants have to be processed, with what, and why."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.record import fingerprint, read_record, record_path, why_not_done
from surreal_bids.bids.reuse import Reusable, atlas_label, find_reusable
from surreal_bids.cli.failures import Failure
from surreal_bids.config import AppConfig, derivative_folders
from surreal_bids.exceptions import DataError

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One T1w image to process.

    Attributes
    ----------
    image
        The T1w image.
    reusable
        What other programs have made of it.
    made_from
        Fingerprint of all that its outputs depend on.
    reason
        Why it has to be processed; empty where that is done.
    """

    image: T1wImage
    reusable: Reusable
    made_from: dict[str, Any]
    reason: str = ''

    @property
    def workflow_name(self) -> str:
        """Name of its workflow; Nipype allows no plus sign."""
        return self.image.name.replace('+', '_plus_')

    @property
    def entities(self) -> dict[str, str | None]:
        """Participant and session."""
        return {'participant': self.image.participant, 'session': self.image.session}


def plan_jobs(
    config: AppConfig, template: str, identity: Mapping[str, Any], images: Iterable[T1wImage]
) -> tuple[list[Job], list[Failure]]:
    """Find out for each image what exists already: inputs to reuse, and complete outputs.

    Parameters
    ----------
    config
        What was asked for.
    template
        Name of the template.
    identity
        What the outputs of everyone depend on.
    images
        Images that can be read.

    Returns
    -------
    jobs
        Images that can be processed, or are done.
    failures
        Images for which that cannot be found out.
    """
    folders = derivative_folders(config)
    jobs, failures = [], []
    for image in images:
        try:
            reusable = find_reusable(folders, image, template)
            options = {**identity, 'segmentation': reusable.dseg_name or atlas_label(config)}
            made_from = fingerprint([image.path, *reusable.files.values()], options)
        except (DataError, OSError) as error:
            failures.append(Failure(image.name, 'plan', str(error)))
            continue
        job = Job(image, reusable, made_from)
        jobs.append(replace(job, reason=why_unfinished(config, job)))
    return jobs, failures


def why_unfinished(config: AppConfig, job: Job) -> str:
    """Say why a job has to be done; empty where its outputs are complete and current."""
    record = read_record(record_path(config.output_dir, job.image.visit))
    return why_not_done(config.output_dir, record, job.made_from)


def tell(job: Job) -> None:
    """Say in the log what is to be done, why, and what need not be."""
    name = job.image.name
    if not job.reason:
        LOGGER.info('%s: outputs are complete and nothing changed, so nothing is done', name)
        return
    LOGGER.info('%s: to be processed (%s)', name, job.reason)
    for meaning, path in job.reusable.files.items():
        LOGGER.info('%s: %s taken from %s', name, meaning, path)
