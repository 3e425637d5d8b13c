"""The participant level: process the images, write reports and clean up."""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from nipype.pipeline import engine as pe

from surreal_bids import __version__
from surreal_bids.bids.derivatives import derivative_folders
from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.outputs import (
    Record,
    digest_of_records,
    output_path,
    record_path,
    start_dataset,
)
from surreal_bids.bids.survey import Problem, Survey
from surreal_bids.cautions import log_cautions
from surreal_bids.cli.execution import Crash, run_workflows, runs_here
from surreal_bids.cli.main import config_to_toml, write_config
from surreal_bids.cli.plan import (
    Job,
    Plan,
    Study,
    estimate,
    lacking_space,
    log_licence,
    log_reuse,
    make_plan,
    make_workflow,
    outputs_of,
    prepare_study,
    steps_dir,
    why_not_done,
    without_bad_results,
)
from surreal_bids.cohort.visits import ages_and_sexes
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import InUseError, OutputError
from surreal_bids.files import sole_use, write_json, write_text
from surreal_bids.names import visit_name
from surreal_bids.progress import PROGRESS, report, stage
from surreal_bids.reports.methods import Methods, imaging_methods
from surreal_bids.reports.participant import (
    ANATOMY,
    read_parts,
    remove_report,
    report_path,
    write_failed_steps,
)
from surreal_bids.templates import TEMPLATE_SPACE
from surreal_bids.text import counted
from surreal_bids.workflows.participant import init_reports_wf

MADE_FROM = 'made_from.json'
"""Fingerprint of what intermediate results of an image depend on, in their folder."""

LOGGER = logging.getLogger(__name__)

IN_USE = 'lock'
"""Step of a problem: another run uses the participant."""

IMAGES, REPORTS = 'participants_wf', 'reports_wf'
"""Names of the workflows that contain those of images and reports."""

BATCH = 64
"""Images per workflow on a cluster: enough to keep it busy. A workflow with thousands of images
would slow Nipype down."""

DISK_FULL = re.compile(r'\[Errno (27|28|30|122)\]')
"""Errors of Nipype for a full disk or quota, a limit of file sizes, or a read-only file system."""


@dataclass(frozen=True)
class Outcome:
    """What a run of the participant level has done.

    Attributes
    ----------
    problems
        Images and participants without complete outputs, and why.
    processed
        Names of the images that were processed now; the others were complete before.
    n_reports
        Number of reports that were written.
    """

    problems: list[Problem]
    processed: frozenset[str]
    n_reports: int

    def describe(self, images: Sequence[T1wImage]) -> str:
        """Tell how many images are done, now and before; empty if none is."""
        failed = {problem.name for problem in self.problems}
        names = {image.name: visit_name((image.participant, None)) for image in images}
        done = [name for name, whose in names.items() if failed.isdisjoint({name, whose})]
        if not done:
            return ''
        now = len(self.processed.intersection(done))
        which = f'{len(done)} of {counted(len(images), "image")} done'
        what = f'{now} now, {counted(self.n_reports, "report")} written'
        return f'{which} ({what if now or self.n_reports else "nothing to do"})'


def run_participants(config: AppConfig, survey: Survey) -> Outcome:
    """Process every unfinished image and write reports.

    Parameters
    ----------
    config
        Options of the run.
    survey
        Content of the dataset; images that cannot be used are excluded.
    """
    plan = make_plan(config, survey)
    if not config.reports_only:
        plan = without_bad_results(plan)
        announce(config, plan.pending)
    study = prepare_study(config)
    start_outputs(config, survey, plan)
    log_problems(config, survey, plan.problems)
    log_reuse(config, plan.jobs)
    log_licence(study, plan.pending)
    write_citation(config, study, plan)
    outcome = Processing(config, study, plan).run()
    write_citation(config, study, plan)
    return outcome


def announce(config: AppConfig, jobs: Sequence[Job]) -> None:
    """Tell how many images are processed and how long it takes; warn if the disk is too small."""
    if not jobs:
        return
    PROGRESS.info('Processing %s. %s', counted(len(jobs), 'image'), estimate(config, len(jobs)))
    log_cautions(lacking_space(config, len(jobs)))


def start_outputs(config: AppConfig, survey: Survey, plan: Plan) -> None:
    """Write the dataset description, `.bidsignore` and the configuration."""
    used = {name for job in plan.jobs for name in job.reusable.names}
    folders = {name: path for name, path in derivative_folders(config).items() if name in used}
    start_dataset(config.output_dir, config.bids_dir, survey.description, folders)
    write_config(output_path(config.output_dir, 'configuration'), config)


def log_problems(config: AppConfig, survey: Survey, problems: Iterable[Problem]) -> None:
    """Start the logs of images and participants that cannot be processed."""
    visits = {visit_name(visit): visit for visit in survey.expected}
    for problem in problems:
        if problem.name in visits:
            participant, session = visits[problem.name]
            log = output_path(config.output_dir, 'log', participant=participant, session=session)
            append_to_log(log, f'surreal_bids {__version__}: {problem.step}: {problem.reason}')


class Processing:
    """Runs the workflows of a plan, one participant after the other.

    The report of a participant is written when the last image is done. With `--clean-on-success`,
    intermediate results are deleted when they are no longer needed.

    Parameters
    ----------
    config
        Options of the run. With `--reports-only`, only reports are written.
    study
        Settings that all participants share.
    plan
        Images to process.
    """

    def __init__(self, config: AppConfig, study: Study, plan: Plan) -> None:
        self._config, self._study = config, study
        self._pending = [] if config.reports_only else plan.pending
        self._unsettled = {job.workflow_name: job for job in self._pending}
        self._of_participant = defaultdict(list)
        jobs = {job.image.visit: job for job in (*plan.jobs, *plan.other_sessions)}
        self._ages_and_sexes = ages_and_sexes(config.bids_dir, jobs)
        for visit in self._ages_and_sexes:
            self._of_participant[jobs[visit].participant].append(jobs[visit])
        self._asked = dict.fromkeys(job.participant for job in plan.jobs)
        self._n_reports = 0
        self._locks: dict[str, ExitStack] = {}
        self._in_use: dict[str, str] = {}
        self._processed: set[str] = set()
        self._problems = list(plan.problems)
        self._errors: defaultdict[str, dict[str, str]] = defaultdict(dict)
        if config.reports_only:
            self._problems += [
                Problem(job.image.name, f'{reason}; run without --reports-only', 'report')
                for job in plan.jobs
                if (reason := self._why_not_reported(job))
            ]
        logs = {job.workflow_name: self._log_of(job) for job in self._pending}
        self._progress = ImageSteps(logs)

    def run(self) -> Outcome:
        """Run everything and return what was done."""
        try:
            with stage('images'):
                run_workflows(self._workflows(), self._config, self._settle, self._progress)
                if self._in_use:
                    again = self._workflows_in_use()
                    run_workflows(again, self._config, self._settle, self._progress)
            for job in list(self._unsettled.values()):
                self._settle_job(job, [])
        finally:
            self._unlock(list(self._locks))
        return Outcome(self._problems, frozenset(self._processed), self._n_reports)

    def _workflows(self) -> Iterator[pe.Workflow]:
        """Yield the workflows of images, then those of reports without a pending image."""
        yield from self._workflows_of(self._pending, self._without_images())

    def _workflows_in_use(self) -> Iterator[pe.Workflow]:
        """Yield the workflows of participants that another run used, if it has ended by now."""
        labels, self._in_use = set(self._in_use), {}
        jobs = [job for job in self._pending if job.participant in labels]
        others = [label for label in self._without_images() if label in labels]
        yield from self._workflows_of(jobs, others)
        for label, reason in self._in_use.items():
            self._give_up(label, reason)

    def _without_images(self) -> list[str]:
        """List the participants without a pending image."""
        pending = {job.participant for job in self._pending}
        return [label for label in self._asked if label not in pending]

    def _workflows_of(self, jobs: Sequence[Job], labels: Sequence[str]) -> Iterator[pe.Workflow]:
        """Yield the workflows of images, and of reports, that no other run uses or has made."""
        size = 1 if runs_here(self._config) else BATCH
        for batch in _batches(jobs, size):
            free = [job for job in batch if self._lock(job.participant)]
            done = [job for job in free if self._is_done_by_another_run(job)]
            begun = [self._begin(job) for job in free if job not in done]
            if begun:
                workflow = pe.Workflow(name=IMAGES)
                workflow.add_nodes(begun)
                yield workflow
            reports = self._reports_after(done)
            if reports is not None:
                yield reports
        due = [label for label in labels if self._report_is_due(label)]
        for some in _batches(due, size):
            locked = [label for label in some if self._lock(label)]
            still_due = [label for label in locked if self._report_is_due(label)]
            self._unlock(label for label in locked if label not in still_due)
            if still_due:
                yield self._reports(still_due)

    def _lock(self, label: str) -> bool:
        """Lock a participant until the report is written; note who is used by another run."""
        if label in self._locks:
            return True
        if label in self._in_use:
            return False  # All images of a participant are for one run.
        folders = self._config.output_dir, self._config.work_dir
        lock = ExitStack()
        try:
            lock.enter_context(sole_use(visit_name((label, None)), *folders))
        except InUseError as error:
            self._in_use[label] = str(error)
            return False
        self._locks[label] = lock
        return True

    def _is_done_by_another_run(self, job: Job) -> bool:
        """Whether another run has processed an image since this one was planned."""
        if why_not_done(self._config, job.image.visit, job.made_from):
            return False
        del self._unsettled[job.workflow_name]
        self._progress.finish(job.workflow_name, False)
        LOGGER.info('%s: done by another run', job.image.name)
        return True

    def _give_up(self, label: str, reason: str) -> None:
        """Report a participant that another run still uses; its log and report are not ours."""
        jobs = [job for job in self._unsettled.values() if job.participant == label]
        for job in jobs:
            del self._unsettled[job.workflow_name]
            self._progress.finish(job.workflow_name, True)
        names = [job.image.name for job in jobs] or [visit_name((label, None))]
        self._problems += [Problem(name, reason, IN_USE) for name in names]

    def _unlock(self, labels: Iterable[str]) -> None:
        for label in labels:
            self._locks.pop(label).close()

    def _begin(self, job: Job) -> pe.Workflow:
        """Start the log of an image; delete its record, its report and earlier crash reports."""
        self._processed.add(job.image.name)
        record_path(self._config.output_dir, job.image.visit).unlink(missing_ok=True)
        remove_report(self._config.output_dir, job.participant)
        pattern = output_path(self._config.output_dir, 'crash', **job.entities, step='STEP')
        for old in pattern.parent.glob(pattern.name.replace('STEP', '*')):
            old.unlink()
        discard_outdated(steps_dir(self._config) / IMAGES / job.workflow_name, job.made_from)
        log = self._log_of(job)
        append_to_log(log, f'surreal_bids {__version__}: {job.image.path}: {job.reason}')
        for other in job.image.passed_over:
            append_to_log(
                log, f'not used because it is not the first image of the session: {other}'
            )
        for meaning, path in job.reusable.files.items():
            append_to_log(log, f'{meaning} taken from {path}')
        workflow = make_workflow(self._config, self._study, job)
        self._progress.expect(job.workflow_name, workflow)
        return workflow

    def _settle(self, workflow: pe.Workflow, crashes: list[Crash]) -> pe.Workflow | None:
        """Handle a workflow that has ended; return the reports that can now be written."""
        for crash in crashes:
            if crash.exit_code == OutputError.exit_code or DISK_FULL.search(crash.reason):
                # No later step could write its results.
                raise OutputError(crash.reason)
        names = list(dict.fromkeys(step.split('.')[0] for step in workflow.list_node_names()))
        if workflow.name == REPORTS:
            self._problems += [Problem(c.hierarchy[-1], c.reason, 'report') for c in crashes]
            self._n_reports += len(names) - len(crashes)
            self._clean(REPORTS, names)
            self._unlock(name.removeprefix('sub-').replace('_plus_', '+') for name in names)
            return None
        jobs = [self._unsettled[name] for name in names]
        for job in jobs:
            self._settle_job(job, crashes)
        return self._reports_after(jobs)

    def _reports_after(self, jobs: Sequence[Job]) -> pe.Workflow | None:
        """Build the reports of participants without another pending image."""
        ended = dict.fromkeys(job.participant for job in jobs)
        ready = [label for label in ended if not self._waits(label)]
        due = [label for label in ready if self._report_is_due(label)]
        self._unlock(label for label in ready if label not in due)
        return self._reports(due) if due else None

    def _waits(self, label: str) -> bool:
        """Whether another image of a participant is pending."""
        return any(job.participant == label for job in self._unsettled.values())

    def _settle_job(self, job: Job, crashes: Iterable[Crash]) -> None:
        """Record the result of an image; crash reports are stored with the logs.

        Several failures of one step count once. Incomplete outputs are a failure even if no step
        reported one.
        """
        del self._unsettled[job.workflow_name]
        failures: dict[str, Problem] = {}
        for crash in crashes:
            if job.workflow_name not in crash.hierarchy[1:2]:
                continue
            step = crash.step.partition('[')[0]
            label = ''.join(filter(str.isalnum, step))
            path = output_path(self._config.output_dir, 'crash', **job.entities, step=label)
            write_text(path, crash.report)
            append_to_log(self._log_of(job), f'{step}: {crash.reason}')
            failures.setdefault(step, Problem(job.image.name, crash.reason, step))
        reason = why_not_done(self._config, job.image.visit, job.made_from)
        if reason and not failures:
            reason = f'{reason}: the run ended early; rerun the command to resume'
            failures['outputs'] = Problem(job.image.name, reason, 'outputs')
        self._problems += failures.values()
        errors = self._errors[job.participant]
        errors |= {f'{job.image.name}, {step}': each.reason for step, each in failures.items()}
        if errors and not self._waits(job.participant):  # The next image deletes the page.
            write_failed_steps(self._config.output_dir, job.participant, errors, 'the folder logs')
        self._progress.finish(job.workflow_name, bool(failures))
        if failures:
            LOGGER.info('%s: failed', job.image.name)
        else:
            LOGGER.info('%s: done', job.image.name)
            self._clean(IMAGES, [job.workflow_name])
        for warning in Record.read(self._config.output_dir, job.image.visit).warnings:
            LOGGER.warning(warning._replace(who=job.image.name))
            append_to_log(self._log_of(job), f'warning: {warning}')

    def _clean(self, folder: str, names: Iterable[str]) -> None:
        """Delete intermediate results with `--clean-on-success`."""
        if self._config.clean_on_success:
            for name in names:
                shutil.rmtree(steps_dir(self._config) / folder / name, ignore_errors=True)

    def _log_of(self, job: Job) -> Path:
        return output_path(self._config.output_dir, 'log', **job.entities)

    def _done(self, label: str) -> list[Job]:
        """List the images of a participant whose outputs can be reported."""
        jobs = self._of_participant[label]
        return [job for job in jobs if not self._why_not_reported(job)]

    def _why_not_reported(self, job: Job) -> str:
        """Explain why outputs cannot be reported: incomplete, or made with other options."""
        made_from = Record.read(self._config.output_dir, job.image.visit).made_from or {}
        before, now = made_from.get('options', {}), job.made_from['options']
        reason = why_not_done(self._config, job.image.visit)
        if reason or before.get('segmentation') == now['segmentation']:
            return reason
        return 'the outputs were made with another segmentation'

    def _report_is_due(self, label: str) -> bool:
        """Whether the report is missing or was made from other outputs."""
        root, done = self._config.output_dir, self._done(label)
        if not done or self._config.reports_only or not report_path(root, label).is_file():
            return bool(done)
        visits = [job.image.visit for job in done]
        known = {visit: self._ages_and_sexes[visit] for visit in visits}
        stored, _ = read_parts(root, label).get(ANATOMY, ('', ''))
        return stored != digest_of_records(root, known)

    def _reports(self, labels: Sequence[str]) -> pe.Workflow:
        done = {label: self._done(label) for label in labels}
        return init_reports_wf(
            output_dir=self._config.output_dir.absolute(),
            participants={label: [self._session(job) for job in done[label]] for label in labels},
            template_dir=self._study.settings.template_dir,
            following=dict(pairwise(self._of_participant)),
            configuration=config_to_toml(self._config),
            name=REPORTS,
        )

    def _session(self, job: Job) -> dict[str, Any]:
        age, sex = self._ages_and_sexes[job.image.visit]
        record = Record.read(self._config.output_dir, job.image.visit)
        return {
            'session': job.image.session,
            'age': age,
            'sex': sex,
            'atlas': job.reusable.dseg_name or self._study.atlas,
            'warnings': [*map(list, record.warnings)],
            'reused': {meaning: str(path) for meaning, path in job.reusable.files.items()},
        }


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def methods_of(config: AppConfig, study: Study, jobs: Sequence[Job]) -> dict[str, Any]:
    """Describe what was done with images, or will be done with those that are not complete."""
    return imaging_methods(
        [job.reusable for job in jobs],
        [_mask_method(config, study, job) for job in jobs],
        template=TEMPLATE_SPACE,
        atlas=study.atlas,
        n_atlases=len(study.settings.atlases),
    )


def _mask_method(config: AppConfig, study: Study, job: Job) -> str:
    if why_not_done(config, job.image.visit):
        return 'deepbet' if job.reusable.mask is None else 'given'
    return str(outputs_of(config, study, job).sidecar('brain_mask')['Method'])


def write_citation(config: AppConfig, study: Study, plan: Plan) -> None:
    """Write the methods text of the complete images; of all images where none is complete yet."""
    if not plan.jobs:
        return
    done = [job for job in plan.jobs if not why_not_done(config, job.image.visit)]
    methods = methods_of(config, study, done or plan.jobs)
    Methods(imaging=methods).write(config.output_dir)


def append_to_log(path: Path, text: str) -> None:
    """Add a line with the time to a log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        path.unlink()  # It would lead out of the output folder, or to stored files of DataLad.
    with path.open('a', encoding='utf-8') as stream:
        stream.write(f'{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} {text}\n')


def discard_outdated(folder: Path, made_from: Mapping[str, Any]) -> None:
    """Delete intermediate results of other files or options.

    Nipype would reuse them if names, sizes and times of the files are the same.
    """
    stored = folder / MADE_FROM
    if not stored.is_file() or json.loads(stored.read_text('utf-8')) != made_from:
        if folder.exists():
            shutil.rmtree(folder)
        write_json(stored, made_from)


class ImageSteps:
    """Writes the steps of images to their logs, and reports how many images are done.

    Parameters
    ----------
    logs
        Log of each image, by the name of its workflow.
    """

    def __init__(self, logs: Mapping[str, Path]) -> None:
        self._logs = logs
        self._steps: dict[str, tuple[set[str], int]] = {}
        self._started: dict[tuple[str, ...], float] = {}
        self._ended: dict[str, bool] = {}

    def expect(self, name: str, workflow: pe.Workflow) -> None:
        """Count the steps of an image."""
        self._steps[name] = set(), len(workflow.list_node_names())

    def finish(self, name: str, failed: bool) -> None:
        """Count an image that is done or has failed."""
        self._steps.pop(name, None)
        self._ended[name] = failed
        self._report()

    def __call__(self, names: tuple[str, ...], status: str) -> None:
        """Log a step that started, ended or failed."""
        name, step = names[1], '.'.join(names[2:])
        if name in self._logs and status != 'running':
            self._note(names, step, status)
        self._report()

    def _note(self, names: tuple[str, ...], step: str, status: str) -> None:
        now, name, what = time.monotonic(), names[1], {'start': 'started', 'exception': 'failed'}
        began = self._started.setdefault(names, now)
        took = 'ready' if status == 'ready' else f'done in {now - began:.1f} s'
        append_to_log(self._logs[name], f'{step}: {what.get(status, took)}')
        if status != 'start' and name in self._steps:
            self._steps[name][0].add(step)

    def _report(self) -> None:
        running = sum(min(len(done) / count, 1.0) for done, count in self._steps.values())
        n_failed = sum(self._ended.values())
        text = f'{len(self._ended) - n_failed} of {len(self._logs)} images done'
        text += f', {n_failed} failed' if n_failed else ''
        report(len(self._ended) + running, len(self._logs), text)
