"""The dry run: what would be done, and how long it would take."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import nibabel as nib
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError, SpatialImage

from surreal_bids.bids.layout import T1wImage, visit_name
from surreal_bids.bids.outputs import list_outputs
from surreal_bids.bids.preflight import Problem, Survey
from surreal_bids.cli.main import usable_cores
from surreal_bids.cli.plan import Job, Plan, refusals, reuse_table
from surreal_bids.config import BUILTIN_ATLAS, AppConfig, uses_network
from surreal_bids.files import MISSING
from surreal_bids.text import align, counted, list_briefly
from surreal_bids.workflows.anatomy import registration_settings

HEAD_VOXELS = 11.5e6
"""Voxels of the head at 1 mm on which the costs below were measured, with one thread."""

SECONDS = {
    'find_brain': 45.0,
    'n4': 12.0,
    'register_template': 150.0,
    'classify': 8.0,
    'register_atlas': 48.0,
    'fuse': 18.0,
    'label': 15.0,
    'make_ravens': 19.0,
    'report': 14.0,
    'copies': 12.0,
}
"""Processor time of each step, by the name of its node."""

FIXED = ('find_brain', 'register_template', 'label')
"""Steps whose time does not follow the voxels of the T1w image: networks see a grid of their own,
and registration to the template that of the template."""

PROCESS_GB = 3.0
"""Memory of the largest step."""

OUTPUT_BYTES_PER_VOXEL = 25.0
WORK_BYTES_PER_VOXEL = 26.0
ATLAS_BYTES_PER_VOXEL = 9.0
"""Compressed files: outputs, intermediate results, and those for each atlas."""


@dataclass(frozen=True)
class Estimate:
    """What a number of images take.

    Attributes
    ----------
    n_images
        How many.
    cpu_seconds
        Processor time of all.
    nprocs
        Processes that share it.
    memory_gb
        Memory of all processes.
    output_gb, work_gb
        Room on the disk.
    """

    n_images: int
    cpu_seconds: float
    nprocs: int
    memory_gb: float
    output_gb: float
    work_gb: float

    def __str__(self) -> str:
        hours = self.cpu_seconds / self.nprocs / 3600
        time = f'{hours:.1f} h' if hours >= 1 else f'{max(1, round(60 * hours))} min'
        processes = '1 process' if self.nprocs == 1 else f'{self.nprocs} processes'
        return (
            f'Estimate: about {time} with {processes} '
            f'({self.cpu_seconds / self.n_images / 60:.0f} min of processor time an image), '
            f'{self.memory_gb:.0f} GB of memory, {self.output_gb:.1f} GB for outputs and '
            f'{self.work_gb:.1f} GB for intermediate results'
        )


def estimate(config: AppConfig, jobs: Sequence[Job], nprocs: int) -> Estimate:
    """Estimate what the jobs will take, from what one head took.

    Parameters
    ----------
    config
        Options that matter: atlas and template.
    jobs
        Images to process.
    nprocs
        Processes that may run at once.
    """
    n_registrations = _count_registrations(config)
    sizes = [_relative_size(job.image) for job in jobs]
    seconds = [_seconds(job, size, config, n_registrations) for job, size in zip(jobs, sizes)]
    voxels = HEAD_VOXELS * sum(sizes)
    return Estimate(
        n_images=len(jobs),
        cpu_seconds=sum(seconds),
        nprocs=nprocs,
        memory_gb=PROCESS_GB * nprocs,
        output_gb=voxels * OUTPUT_BYTES_PER_VOXEL / 1e9,
        work_gb=voxels * (WORK_BYTES_PER_VOXEL + n_registrations * ATLAS_BYTES_PER_VOXEL) / 1e9,
    )


def _count_registrations(config: AppConfig) -> int:
    """Registrations of atlases to an image."""
    if uses_network(config):
        return 0
    builtin = config.atlas == BUILTIN_ATLAS
    atlases = 1 if builtin else len(list(Path(config.atlas).glob('*_dseg.nii.gz')))
    return atlases * len(registration_settings(atlases))


def _relative_size(image: T1wImage) -> float:
    """Voxels of an image relative to those of the head that was measured; 1 where unreadable."""
    try:
        header = nib.load(image.path)
    except (ImageFileError, HeaderDataError, OSError, EOFError, zlib.error):
        return 1.0
    shape = header.shape if isinstance(header, SpatialImage) else (HEAD_VOXELS,)
    return float(np.prod(shape)) / HEAD_VOXELS


def _seconds(job: Job, size: float, config: AppConfig, n_registrations: int) -> float:
    """Processor time of one image, without the steps whose results are reused."""
    reusable = job.reusable
    counts = dict.fromkeys(SECONDS, 1.0) | {
        'find_brain': reusable.mask is None,
        'n4': reusable.t1w is None,
        'register_template': (reusable.anat2std_xfm is None) / config.template_resolution**3,
        'classify': not reusable.tpms,
        'register_atlas': n_registrations if reusable.dseg is None else 0,
        'fuse': reusable.dseg is None and not uses_network(config),
        'label': reusable.dseg is None and uses_network(config),
    }
    return sum(n * SECONDS[step] * (1 if step in FIXED else size) for step, n in counts.items())


def summarise(config: AppConfig, survey: Survey, plan: Plan | None) -> str:
    """Write as text what a dataset holds, what would be done, and the names of outputs.

    Parameters
    ----------
    config
        What was asked for.
    survey
        What the dataset holds.
    plan
        What the participant level would do; None where it is not asked for.
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
        _listed('Problems:', problems) or 'No problems.',
        _listed('Notes:', survey.notes),
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
    outputs = list_outputs(['dataset', *config.analysis_levels], with_sessions)
    as_read = str.maketrans('{}', '<>')
    rows = [(f'  {path.translate(as_read)}', content) for path, content in outputs]
    return f'Where outputs go, below {config.output_dir}:\n{align(rows)}'


def _to_do(config: AppConfig, plan: Plan) -> str:
    """What the participant level would do, why, and what it would take."""
    pending = plan.pending
    done = len(plan.jobs) - len(pending)
    lines = [f'To process: {counted(len(pending), "image")}; already done: {done}']
    lines += [f'  {reason}: {names}' for reason, names in _by_reason(pending).items()]
    if table := reuse_table(config, plan.jobs):
        lines += ['Found in the folders of --derivatives:', indent(table, '  ')]
        lines += [f'  {refusal}' for refusal in refusals(plan.jobs)]
    if pending:
        lines.append(str(estimate(config, pending, config.nprocs or usable_cores())))
    return '\n'.join(lines)


def _by_reason(jobs: Sequence[Job]) -> dict[str, str]:
    names = defaultdict(list)
    for job in jobs:
        names[job.reason].append(job.image.name)
    return {reason: list_briefly(of_reason) for reason, of_reason in names.items()}


def problem_table(problems: Sequence[Problem]) -> str:
    """Participants, steps and reasons as text."""
    rows = [(problem.name, problem.step, problem.reason) for problem in problems]
    return align([('Participant', 'Step', 'Reason'), *rows])
