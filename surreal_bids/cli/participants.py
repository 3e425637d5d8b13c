"""The participant level: plan, run in batches, report, and say who failed where and why."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nipype.pipeline import engine as pe

from surreal_bids import __version__
from surreal_bids.bids.derivatives import (
    output_path,
    read_record,
    record_path,
    start_dataset,
    why_not_done,
)
from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.survey import Survey
from surreal_bids.cli.execution import Crash, Progress, append_to_log, run_workflow, usable_cores
from surreal_bids.cli.plan import (
    Failure,
    Job,
    Study,
    choose_library,
    make_workflow,
    plan_jobs,
    prepare_study,
    short_digest,
    steps_dir,
    study_identity,
    tell,
    visit_of,
    why_unfinished,
    with_library,
    write_library,
)
from surreal_bids.config import AppConfig, config_to_toml, derivative_folders, write_config
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_text
from surreal_bids.reports.methods import ImagingMethods, MaskOrigin, MethodsOptions, methods_text
from surreal_bids.workflows.participant import init_reports_wf
from surreal_bids.workflows.segmentation import registration_settings

LOGGER = logging.getLogger(__name__)


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
        segmentation=next((j.reusable.dseg_name for j in done if j.reusable.dseg_name), None),
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


BATCH_PER_PROCESS = 8
"""Participants in a workflow for each process: enough to keep all of them busy. With thousands in
one, Nipype would be busy with itself, and nobody would be done before nearly everybody is."""


def run_participants(config: AppConfig, survey: Survey) -> list[Failure]:
    """Process every participant who is not done, and write reports.

    Parameters
    ----------
    config
        What was asked for.
    survey
        What the dataset holds; images that cannot be read are left out.

    Returns
    -------
    list of Failure
        Who failed; the outputs of all others are complete.
    """
    start_outputs(config, survey)
    images = [image for image in survey.images if image.name not in survey.damaged]
    identity = study_identity(config, images)
    study = prepare_study(config)
    jobs, failures = plan_jobs(config, study.template, identity, images)
    for job in jobs:
        tell(job)
    if not config.reports_only and any(job.reason for job in jobs):
        write_citation(config, study, jobs)
        study = _with_library(config, study, images)
        failures += process(config, study, jobs)
    others, _ = plan_jobs(config, study.template, identity, survey.other_sessions)
    failures += write_reports(config, study, jobs, others)
    write_citation(config, study, jobs)
    return [*_problems(survey), *failures]


def start_outputs(config: AppConfig, survey: Survey) -> None:
    """Write what the outputs of every run have: description, `.bidsignore`, configuration."""
    folders = derivative_folders(config)
    start_dataset(config.output_dir, config.bids_dir, survey.description, folders)
    write_config(output_path(config.output_dir, 'configuration'), config)


def _problems(survey: Survey) -> list[Failure]:
    return [
        Failure(
            f'sub-{problem.participant}' + (f'_ses-{problem.session}' if problem.session else ''),
            'check',
            problem.reason,
        )
        for problem in survey.problems
    ]


def process(config: AppConfig, study: Study, jobs: Sequence[Job]) -> list[Failure]:
    """Run the workflows of all jobs that are not done, batch by batch."""
    pending = [job for job in jobs if job.reason]
    failures: list[Failure] = []
    for number, batch in enumerate(batches := list(_batches(config, pending)), start=1):
        title = 'Participants' if len(batches) == 1 else f'Batch {number} of {len(batches)}'
        failures += _run_batch(config, study, batch, title)
        if failures and config.stop_on_first_crash:
            LOGGER.warning('stopped at the first failure, as --stop-on-first-crash asks')
            break
    return failures


def _batches(config: AppConfig, jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    size = BATCH_PER_PROCESS * (config.nprocs or usable_cores())
    for start in range(0, len(jobs), size):
        yield jobs[start : start + size]


def _run_batch(config: AppConfig, study: Study, jobs: Sequence[Job], title: str) -> list[Failure]:
    workflow = pe.Workflow(name='participants_wf')
    workflow.add_nodes([make_workflow(config, study, job) for job in jobs])
    if config.write_graph:
        draw_graph(config, workflow.get_node(jobs[0].workflow_name))
    logs = {job.workflow_name: _log_of(config, job) for job in jobs}
    for job in jobs:
        _start_log(config, job)
    with Progress(workflow, logs, title) as progress:
        crashes = run_workflow(workflow, config, progress)
    _keep_resources(config, workflow)
    failures = [failure for job in jobs for failure in _failures_of(config, job, crashes)]
    if config.clean_on_success:
        _clean(config, jobs)
    return failures


def _log_of(config: AppConfig, job: Job) -> Path:
    return output_path(config.output_dir, 'log', **job.entities)


def _start_log(config: AppConfig, job: Job) -> None:
    """Begin the log of a participant, and forget earlier crashes and what was complete."""
    record_path(config.output_dir, job.image.visit).unlink(missing_ok=True)
    pattern = output_path(config.output_dir, 'crash', **job.entities, step='STEP')
    for old in pattern.parent.glob(pattern.name.replace('STEP', '*')):
        old.unlink()
    log = _log_of(config, job)
    append_to_log(log, f'surreal_bids {__version__}: {job.image.path}: {job.reason}')
    for other in job.image.passed_over:
        append_to_log(log, f'passed over (not the first of the session): {other}')
    for meaning, path in job.reusable.files.items():
        append_to_log(log, f'{meaning} taken from {path}')


def _failures_of(config: AppConfig, job: Job, crashes: Iterable[Crash]) -> list[Failure]:
    """Failures of one job, their reports kept among the logs; several of one step count once.

    Outputs that are not complete are a failure even if no step has reported one.
    """
    failures: dict[str, Failure] = {}
    for crash in crashes:
        if len(crash.hierarchy) < 2 or crash.hierarchy[1] != job.workflow_name:
            continue
        step = crash.step.partition('[')[0]
        label = ''.join(filter(str.isalnum, step))
        path = output_path(config.output_dir, 'crash', **job.entities, step=label)
        write_text(path, crash.report)
        append_to_log(_log_of(config, job), f'{step}: {crash.reason}')
        failures.setdefault(step, Failure(job.image.name, step, crash.reason))
    if not failures and (reason := why_unfinished(config, job)):
        told = f'{reason}: the run ended before it; repeat the command'
        failures['outputs'] = Failure(job.image.name, 'outputs', told)
    for warning in warnings_of(config, job):
        LOGGER.warning('%s: %s', job.image.name, warning)
        append_to_log(_log_of(config, job), f'warning: {warning}')
    return list(failures.values())


def _keep_resources(config: AppConfig, workflow: pe.Workflow) -> None:
    """Keep what the resource monitor wrote among the logs."""
    written = steps_dir(config) / workflow.name / 'resource_monitor.json'
    if config.resource_monitor and written.is_file():
        write_text(output_path(config.output_dir, 'resources'), written.read_text('utf-8'))


def _clean(config: AppConfig, jobs: Sequence[Job]) -> None:
    """Delete the intermediate results of those whose outputs are complete."""
    for job in jobs:
        if not why_unfinished(config, job):
            shutil.rmtree(steps_dir(config) / 'participants_wf' / job.workflow_name)


def draw_graph(config: AppConfig, workflow: pe.Workflow) -> None:
    """Draw the workflow of a participant; as SVG too where Graphviz is installed."""
    folder = config.work_dir.absolute() / 'graph'
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / 'workflow.dot'
    form = 'svg' if shutil.which('dot') else 'dot'
    workflow.write_graph(str(target), graph2use='colored', format=form)
    for path in (target, target.with_suffix('.svg')):
        if path.is_file():
            extension = path.suffix.removeprefix('.')
            kept = output_path(config.output_dir, 'graph', extension=extension)
            write_text(kept, path.read_text('utf-8'))


def _with_library(config: AppConfig, study: Study, images: Sequence[T1wImage]) -> Study:
    """Label some people with the atlases, and make them the atlases of everyone."""
    chosen = choose_library(images, config.template_library, config.random_seed)
    if not chosen:
        return study
    folder = steps_dir(config) / 'library' / short_digest(*(image.name for image in chosen))
    first = replace(config, output_dir=folder / 'outputs', template_library=0, derivatives=())
    jobs, failures = plan_jobs(first, study.template, study_identity(first, images), chosen)
    failures += process(first, study, jobs)
    if failures:
        raise DataError(
            f'--template-library: {len(failures)} of its {len(chosen)} people could not be '
            f'labelled, the first of them {failures[0].name} ({failures[0].step}: '
            f'{failures[0].reason}); leave them out, or use another --random-seed'
        )
    visits = [visit_of(first, study, job) for job in jobs]
    library = write_library(folder / 'atlas', visits, study.settings.regions_file)
    return with_library(study, library)
