"""The dry run: planned steps, their estimated cost, and problems."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from textwrap import indent

from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.outputs import list_outputs
from surreal_bids.bids.survey import Problem, Survey, free_bytes
from surreal_bids.cautions import Caution, log_cautions
from surreal_bids.cli.main import usable_cores
from surreal_bids.cli.plan import Job, Plan, gaps, refusals, reuse_table
from surreal_bids.config import AppConfig
from surreal_bids.files import MISSING
from surreal_bids.names import visit_name
from surreal_bids.text import align, counted, list_briefly

CPU_SECONDS, PROCESS_GB, OUTPUT_GB, WORK_GB = 102.0, 3.0, 0.24, 0.34
"""Processor time, memory of the largest step, outputs and intermediate results of one head at
1 mm, segmented by the network."""


def estimate(config: AppConfig, n_images: int) -> str:
    """Estimate what images need, from one measured head."""
    nprocs = config.nprocs or usable_cores()
    minutes = n_images * CPU_SECONDS / nprocs / 60
    time = f'{minutes / 60:.1f} h' if minutes >= 60 else f'{max(1, round(minutes))} min'
    return (
        f'Estimate for images of 1 mm: about {time} on {counted(nprocs, "core")}, '
        f'{PROCESS_GB * nprocs:.0f} GB of memory, {OUTPUT_GB * n_images:.1f} GB for outputs and '
        f'{WORK_GB * n_images:.1f} GB for intermediate results'
    )


def lacking_space(config: AppConfig, n_images: int) -> list[Caution]:
    """Name the folders that have less free space than a run is estimated to need."""
    needed = {config.output_dir: OUTPUT_GB * n_images, config.work_dir: WORK_GB * n_images}
    free = {folder: free_bytes(folder) / 1e9 for folder in needed}
    return [
        Caution(
            f'{folder}: {free[folder]:.1f} GB are free, but about {size:.1f} GB are needed',
            'The run will stop when the disk is full',
            'Free some space, or choose another folder',
        )
        for folder, size in needed.items()
        if free[folder] < size
    ]


def summarise(config: AppConfig, survey: Survey, plan: Plan | None) -> str:
    """Summarise the dataset, the planned steps and the outputs as text.

    Parameters
    ----------
    config
        Options of the run.
    survey
        Content of the dataset.
    plan
        Plan of the participant level; None if it is not run.
    """
    n_participants = len({image.participant for image in survey.images})
    problems = plan.problems if plan else survey.problems
    sections = [
        f'{survey.description.get("Name", "Dataset")} in {config.bids_dir}: '
        f'{counted(len(survey.images), "T1w image")} of {counted(n_participants, "participant")}',
        align(
            [
                ('Participant', 'Session', 'Group', 'T1w image', 'Check'),
                *_rows(config, survey, problems),
            ]
        ),
        _groups(config, survey),
        _listed('Problems:', problems) or 'No problems with images.',
        _to_do(config, plan) if plan else '',
        _outputs(config, survey),
    ]
    return '\n\n'.join(section for section in sections if section) + '\n'


def _rows(config: AppConfig, survey: Survey, problems: Sequence[Problem]) -> list[tuple[str, ...]]:
    bad = {problem.name for problem in problems}
    groups = survey.groups.of_visit if survey.groups else {}
    return [
        (
            visit_name((image.participant, None)),
            f'ses-{image.session}' if image.session else MISSING,
            groups.get(image.name) or MISSING,
            str(image.path.relative_to(config.bids_dir.absolute())),
            _check(image, bad),
        )
        for image in survey.images
    ]


def _check(image: T1wImage, bad: set[str]) -> str:
    if image.name in bad or visit_name((image.participant, None)) in bad:
        return 'problem, see below'
    return f'first of {len(image.passed_over) + 1}' if image.passed_over else 'good'


def _groups(config: AppConfig, survey: Survey) -> str:
    if survey.groups is None:
        return ''
    roles = dict.fromkeys(config.control_label, ' (controls)')
    roles |= dict.fromkeys(config.patient_label, ' (patients)')
    counts = Counter(value or MISSING for value in survey.groups.of_visit.values())
    listed = [f'{value}{roles.get(value, "")} {n}' for value, n in sorted(counts.items())]
    return f'Images by {survey.groups.column}: {", ".join(listed)}'


def _listed(title: str, problems: Sequence[Problem]) -> str:
    return '\n'.join([title, *(f'  {problem}' for problem in problems)]) if problems else ''


def _outputs(config: AppConfig, survey: Survey) -> str:
    with_sessions = any(image.session for image in survey.images)
    levels = ['dataset', *config.analysis_levels]
    outputs = list_outputs(levels, with_sessions, _unwritten(config, with_sessions))
    as_read = str.maketrans('{}', '<>')
    rows = [(f'  {path.translate(as_read)}', content) for path, content in outputs]
    return f'Outputs in {config.output_dir}:\n{align(rows)}'


def _unwritten(config: AppConfig, with_sessions: bool) -> set[str]:
    """Name the outputs that are not written with these options."""
    without = {'crash', 'group_crash'}
    without |= set() if with_sessions else {'changes'}
    without |= set() if config.deviation_maps else {'deviation_map'}
    without |= set() if config.map_tissues else {'statistical_map', 'contrasts'}
    return without | (set() if config.model is None else {'diagnosis'})


def _to_do(config: AppConfig, plan: Plan) -> str:
    """Summarise the images to process, with reasons and costs."""
    pending = plan.pending
    done = len(plan.jobs) - len(pending)
    lines = [f'To process: {counted(len(pending), "image")}; already done: {done}']
    lines += [f'  {reason}: {names}' for reason, names in _by_reason(pending).items()]
    if n := sum(job.reusable.lesion is not None for job in plan.jobs):
        lines.append(f'With a lesion mask: {counted(n, "image")}')
    if table := reuse_table(config, plan.jobs):
        lines += ['Results found in --derivatives:', indent(table, '  ')]
        log_cautions([*gaps(config, plan.jobs), *refusals(plan.jobs)])
    if pending:
        lines.append(estimate(config, len(pending)))
        log_cautions(lacking_space(config, len(pending)))
    return '\n'.join(lines)


def _by_reason(jobs: Sequence[Job]) -> dict[str, str]:
    names = defaultdict(list)
    for job in jobs:
        names[job.reason].append(job.image.name)
    return {reason: list_briefly(of_reason) for reason, of_reason in names.items()}


def problem_table(problems: Sequence[Problem]) -> str:
    """Format participants, steps and reasons as a table."""
    rows = [(problem.name, problem.step, problem.reason) for problem in problems]
    return align([('Participant', 'Step', 'Reason'), *rows])
