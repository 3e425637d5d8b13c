"""The participant level: plan, run in batches, report, and say who failed where and why."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nipype.pipeline import engine as pe

from surreal_bids import __version__
from surreal_bids.bids.derivatives import output_path, start_dataset
from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.record import record_path
from surreal_bids.bids.survey import Survey
from surreal_bids.cli.execution import Crash, run_workflow
from surreal_bids.cli.failures import Failure
from surreal_bids.cli.identity import choose_library, short_digest, steps_dir, study_identity
from surreal_bids.cli.jobs import Job, plan_jobs, tell, why_unfinished
from surreal_bids.cli.library import write_library
from surreal_bids.cli.machine import usable_cores
from surreal_bids.cli.pages import warnings_of, write_citation, write_reports
from surreal_bids.cli.progress import Progress, append_to_log
from surreal_bids.cli.study import (
    Study,
    make_workflow,
    prepare_study,
    visit_of,
    with_library,
)
from surreal_bids.config import AppConfig, derivative_folders, write_config
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_text

LOGGER = logging.getLogger(__name__)

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
