"""Pages of participants, and the methods in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from surreal_bids import __version__
from surreal_bids.bids.derivatives import output_path
from surreal_bids.bids.record import read_record, record_path, why_not_done
from surreal_bids.cli.execution import run_workflow
from surreal_bids.cli.failures import Failure
from surreal_bids.cli.jobs import Job
from surreal_bids.cli.study import Study, visit_of
from surreal_bids.config import AppConfig, config_to_toml
from surreal_bids.files import write_text
from surreal_bids.reports.methods import ImagingMethods, MaskOrigin, MethodsOptions, methods_text
from surreal_bids.workflows.report import init_reports_wf
from surreal_bids.workflows.segmentation import registration_settings


def write_reports(
    config: AppConfig, study: Study, jobs: Sequence[Job], others: Sequence[Job] = ()
) -> list[Failure]:
    """Write the page of each participant with outputs that are newer, or without a page.

    With `--reports-only`, all pages are written, and who has no outputs is a failure.

    Parameters
    ----------
    config
        What was asked for.
    study
        What all participants share.
    jobs
        What was to be done.
    others
        Sessions of the same people that were not asked for; the pages show them as well.
    """
    done = [job for job in jobs if not why_incomplete(config, job)]
    due = dict.fromkeys(job.image.participant for job in done if _needs_page(config, job))
    shown = sorted(
        [*done, *(job for job in others if not why_incomplete(config, job))],
        key=lambda job: job.image.session or '',
    )
    participants = {
        label: [_session(config, study, job) for job in shown if job.image.participant == label]
        for label in due
    }
    failures = []
    if config.reports_only:
        failures = [
            Failure(job.image.name, 'report', f'{reason}; run it without --reports-only')
            for job in jobs
            if (reason := why_incomplete(config, job))
        ]
    if not participants:
        return failures
    workflow = init_reports_wf(
        output_dir=config.output_dir.absolute(),
        participants=participants,
        template_name=study.template,
        template_dir=study.settings.template_dir,
        methods=asdict(imaging_methods(config, study, done)),
        configuration=config_to_toml(config),
    )
    crashes = run_workflow(workflow, config)
    return failures + [Failure(crash.hierarchy[-1], 'report', crash.reason) for crash in crashes]


def why_incomplete(config: AppConfig, job: Job) -> str:
    """Say which outputs of a job are missing, whatever they were made from; empty if none."""
    record = read_record(record_path(config.output_dir, job.image.visit))
    return why_not_done(config.output_dir, record, {})


def warnings_of(config: AppConfig, job: Job) -> list[str]:
    """What the steps of a job have warned of; nothing if it is not done."""
    record = read_record(record_path(config.output_dir, job.image.visit)) or {}
    return list(record.get('warnings', ()))


def _needs_page(config: AppConfig, job: Job) -> bool:
    page = output_path(config.output_dir, 'report', participant=job.image.participant)
    record = record_path(config.output_dir, job.image.visit)
    return (
        config.reports_only
        or not page.is_file()
        or page.stat().st_mtime_ns < record.stat().st_mtime_ns
    )


def _session(config: AppConfig, study: Study, job: Job) -> dict[str, Any]:
    return {
        'session': job.image.session,
        'atlas': job.reusable.dseg_name or study.atlas,
        'warnings': warnings_of(config, job),
        'reused': {meaning: str(path) for meaning, path in job.reusable.files.items()},
    }


def imaging_methods(config: AppConfig, study: Study, done: Sequence[Job]) -> ImagingMethods:
    """What was done with the images, for the methods text."""
    n_atlases = len(study.settings.atlases)
    settings = registration_settings(config.segmentation_mode, n_atlases + config.template_library)
    return ImagingMethods(
        bias_corrected=any(job.reusable.t1w is None for job in done) or not done,
        masks=_mask_origins(config, study, done) or ('deepbet',),
        tissue_classified=any(not job.reusable.tpms for job in done) or not done,
        template=study.template,
        atlas=study.atlas,
        n_atlases=n_atlases,
        registrations_per_atlas=len(settings),
        template_library=config.template_library,
        segmentation=next((j.reusable.dseg_name for j in done if j.reusable.dseg_name), None),
        ravens_smoothing=config.ravens_smoothing,
        reused=tuple({name: None for job in done for name in job.reusable.names}),
    )


def _mask_origins(config: AppConfig, study: Study, done: Sequence[Job]) -> tuple[MaskOrigin, ...]:
    """Origins of the masks, the most usual first among those that can be."""
    found = {visit_of(config, study, job).sidecar('brain_mask')['Method'] for job in done}
    known: tuple[MaskOrigin, ...] = ('deepbet', 'stripped')
    origins = [origin for origin in known if origin in found]
    given: list[MaskOrigin] = ['given'] if found - set(known) else []
    return (*origins, *given)


def write_citation(config: AppConfig, study: Study, jobs: Sequence[Job]) -> None:
    """Write the methods in words, as far as they are known by now."""
    done = [job for job in jobs if not why_incomplete(config, job)]
    options = MethodsOptions(__version__, imaging=imaging_methods(config, study, done))
    write_text(output_path(config.output_dir, 'citation'), methods_text(options))
