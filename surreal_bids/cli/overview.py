"""What a dry run shows: images, problems, what there is to do and what it costs, outputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from surreal_bids.bids.derivatives import list_outputs
from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.survey import Survey
from surreal_bids.cli.estimates import estimate
from surreal_bids.cli.failures import align, failure_table
from surreal_bids.cli.identity import study_identity, template_name
from surreal_bids.cli.jobs import Job, plan_jobs
from surreal_bids.cli.machine import usable_cores
from surreal_bids.config import AppConfig
from surreal_bids.files import MISSING
from surreal_bids.harmonization.tables import name_some


def summarise(config: AppConfig, survey: Survey) -> str:
    """Write a survey as text: images, groups, problems, and the names of outputs."""
    n_people = len({image.participant for image in survey.images})
    sections = [
        f'{survey.description.get("Name", "Dataset")} in {config.bids_dir}: '
        f'{len(survey.images)} T1w images of {n_people} participants',
        align([('Participant', 'Session', 'Group', 'T1w image', 'Check'), *_rows(config, survey)]),
        _groups(config, survey),
        _problems(survey),
        _to_do(config, survey),
        _outputs(config, survey),
    ]
    return '\n\n'.join(section for section in sections if section) + '\n'


def _rows(config: AppConfig, survey: Survey) -> list[tuple[str, ...]]:
    bad = {(problem.participant, problem.session) for problem in survey.problems}
    groups = survey.groups.of_visit if survey.groups else {}
    return [
        (
            f'sub-{image.participant}',
            f'ses-{image.session}' if image.session else MISSING,
            groups.get(image.name) or MISSING,
            str(image.path.relative_to(config.bids_dir.absolute())),
            _check(image, bad),
        )
        for image in survey.images
    ]


def _check(image: T1wImage, bad: set[tuple[str, str | None]]) -> str:
    if image.visit in bad or (image.participant, None) in bad:
        return 'problem, see below'
    return f'first of {len(image.passed_over) + 1}' if image.passed_over else 'good'


def _groups(config: AppConfig, survey: Survey) -> str:
    if survey.groups is None:
        return ''
    roles = {config.control_label: ' (controls)', config.patient_label: ' (patients)'}
    counts = Counter(value or MISSING for value in survey.groups.of_visit.values())
    listed = [f'{value}{roles.get(value, "")} {n}' for value, n in sorted(counts.items())]
    return f'Images by {survey.groups.column}: {", ".join(listed)}'


def _problems(survey: Survey) -> str:
    if not survey.problems:
        return 'No problems.'
    return '\n'.join(['Problems:', *(f'  {problem}' for problem in survey.problems)])


def _outputs(config: AppConfig, survey: Survey) -> str:
    with_sessions = any(image.session for image in survey.images)
    outputs = list_outputs(['dataset', *config.analysis_levels], with_sessions)
    as_read = str.maketrans('{}', '<>')
    rows = [(f'  {path.translate(as_read)}', content) for path, content in outputs]
    return f'Where outputs go, below {config.output_dir}:\n{align(rows)}'


def _to_do(config: AppConfig, survey: Survey) -> str:
    """What the participant level would do, why, and what it would take."""
    if 'participant' not in config.analysis_levels:
        return ''
    images = [image for image in survey.images if image.name not in survey.damaged]
    identity = study_identity(config, images)
    jobs, failures = plan_jobs(config, template_name(config), identity, images)
    pending = [job for job in jobs if job.reason]
    lines = [f'To process: {len(pending)} images; already done: {len(jobs) - len(pending)}']
    lines += [f'  {reason}: {names}' for reason, names in _by_reason(pending).items()]
    lines += [f'  reused: {meaning} of {n} images' for meaning, n in _reused(pending).items()]
    if failures:
        lines.append(failure_table(failures))
    if pending:
        lines.append(str(estimate(config, pending, config.nprocs or usable_cores())))
    return '\n'.join(lines)


def _by_reason(jobs: Sequence[Job]) -> dict[str, str]:
    names = defaultdict(list)
    for job in jobs:
        names[job.reason].append(job.image.name)
    return {reason: name_some(of_reason) for reason, of_reason in names.items()}


def _reused(jobs: Sequence[Job]) -> dict[str, int]:
    return dict(Counter(meaning for job in jobs for meaning in job.reusable.files))
