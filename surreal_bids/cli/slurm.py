"""Slurm jobs: an array of participants, the group level after it, and a script to submit both.

The jobs run the same command as a user would. Options are stored in one file, `options.toml`.
Folders have the same paths inside and outside a container.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import jinja2

from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.precomputed import derivative_folders
from surreal_bids.bids.preflight import Problem, Survey
from surreal_bids.cautions import log_cautions
from surreal_bids.cli.config_file import write_config
from surreal_bids.cli.costs import PROCESS_GB, estimate
from surreal_bids.cli.plan import Job, Plan, gaps, make_plan, refusals
from surreal_bids.config import (
    BUILTIN_ATLAS,
    BUILTIN_TEMPLATE,
    AppConfig,
)
from surreal_bids.exceptions import UsageError
from surreal_bids.files import write_text
from surreal_bids.published import is_published
from surreal_bids.text import counted

MOST_TASKS = 1000
"""Maximum tasks of an array; Slurm allows 1000 unless its administrators raise `MaxArraySize`."""

TIME = re.compile(r'(\d+-)?\d+(:\d+){0,2}')
"""Time limits that Slurm accepts: minutes, minutes:seconds, hours:minutes:seconds, days-hours..."""

BUILTIN = {'atlas': BUILTIN_ATLAS, 'template': BUILTIN_TEMPLATE}
"""Options that are either this name or a folder."""

EXECUTABLE = 0o755


@dataclass(frozen=True)
class Needs:
    """Resources of one job.

    Attributes
    ----------
    cores
        Cores of the task.
    memory_gb
        Memory of the task, in GB.
    time
        Time limit in the format of Slurm.
    """

    cores: int
    memory_gb: int
    time: str


PARTICIPANT_CORES = 2
"""Cores per participant; more would be idle, since few steps run in parallel."""

GROUP_NEEDS = Needs(cores=8, memory_gb=16, time='1-00:00:00')
"""Resources of the group level, which takes hours for a few hundred participants."""

SAFETY = 3
"""Time limits are this many times the estimate, since nodes differ and disks are shared."""

MIN_SECONDS = 1800.0
"""Minimum time limit of a job."""


def write_slurm(config: AppConfig, survey: Survey | None) -> str:
    """Write jobs for all unprocessed participants and for the group level; return a summary.

    Parameters
    ----------
    config
        What to run; its `write_slurm` is the folder to write to.
    survey
        Content of the dataset; None if only the group level is run, from a table.

    Raises
    ------
    UsageError
        An option does not work in jobs of one participant each.
    """
    _check(config)
    plan = _plan(config, survey)
    images = survey.images if survey else []
    labels = _labels_of(images, plan)
    needs = estimate_task(config, plan.pending, participants_per_task(len(labels)))
    written = write_jobs(config, labels, needs, with_wishes(GROUP_NEEDS, config))
    lines = [_foretell(problem, images) for problem in plan.problems]
    if labels:
        lines.append(
            f'{counted(len(labels), "participant")} to process; {needs.cores} cores, '
            f'{needs.memory_gb} GB and {needs.time} for each task.'
        )
    return '\n'.join([*lines, f'Submit with {written[0]}', ''])


def _plan(config: AppConfig, survey: Survey | None) -> Plan:
    """Plan the participant level and warn of missing results; the group level has no plan."""
    if survey is None or 'participant' not in config.analysis_levels:
        return Plan([], [], [])
    plan = make_plan(config, survey)
    log_cautions([*survey.notes, *gaps(config, plan.jobs), *refusals(plan.jobs)])
    return plan


def _labels_of(images: Iterable[T1wImage], plan: Plan) -> list[str]:
    """List the participants to process, including those with damaged images."""
    names = {problem.name for problem in plan.problems} | {job.image.name for job in plan.pending}
    return list(dict.fromkeys(each.participant for each in images if each.name in names))


def _foretell(problem: Problem, images: Iterable[T1wImage]) -> str:
    """Say what a problem leads to: a task that fails, or none, if there is no image."""
    has_task = any(image.name == problem.name for image in images)
    return f'{"This will fail" if has_task else "Not in the jobs"}: {problem}'


def participants_per_task(n_participants: int) -> int:
    """Participants of a task: one, unless the array would exceed the limit of Slurm."""
    return max(1, -(-n_participants // MOST_TASKS))


def estimate_task(config: AppConfig, jobs: Sequence[Job], per_task: int) -> Needs:
    """Estimate the resources of a task of the array: those of its largest participant.

    Parameters
    ----------
    config
        What to run; its options take precedence over the estimate.
    jobs
        Images to process.
    per_task
        Participants of a task, processed one after the other.
    """
    cores = config.nprocs or PARTICIPANT_CORES
    sessions: dict[str, list[Job]] = {}
    for job in jobs:
        sessions.setdefault(job.image.participant, []).append(job)
    estimates = [estimate(config, own, cores) for own in sessions.values()]
    seconds = SAFETY * per_task * max((e.cpu_seconds for e in estimates), default=0.0)
    memory = max((e.memory_gb for e in estimates), default=PROCESS_GB * cores)
    needs = Needs(cores, math.ceil(memory), as_time(max(seconds, MIN_SECONDS)))
    return with_wishes(needs, config)


def write_jobs(
    config: AppConfig, participants: Sequence[str], participant: Needs, group: Needs
) -> list[Path]:
    """Write the scripts that run a configuration on a cluster.

    Parameters
    ----------
    config
        What to run; its `write_slurm` is the folder to write to.
    participants
        Labels of the participants of the array.
    participant
        Resources of one task of the array.
    group
        Resources of the group level.

    Returns
    -------
    list of Path
        `submit.sh` and the files it uses.
    """
    folder = _folder(config)
    (folder / 'logs').mkdir(parents=True, exist_ok=True)
    written = [write_config(folder / 'options.toml', _options(config))]
    scripts = {}
    if participants:
        written.append(write_text(folder / 'participants.txt', '\n'.join([*participants, ''])))
        tasks = min(len(participants), MOST_TASKS)
        scripts['participant.sbatch'] = _job(config, 'participant', participant, tasks)
    if 'group' in config.analysis_levels:
        scripts['group.sbatch'] = _job(config, 'group', group)
    scripts['submit.sh'] = _render(
        'submit.sh', participants=bool(participants), group='group.sbatch' in scripts
    )
    for name, text in scripts.items():
        written.append(write_text(folder / name, text))
        written[-1].chmod(EXECUTABLE)
    return written[::-1]


def with_wishes(needs: Needs, config: AppConfig) -> Needs:
    """Replace estimated resources with those given as options: `--nprocs`, `--slurm-time`, ..."""
    return Needs(
        cores=config.nprocs or needs.cores,
        memory_gb=config.slurm_memory or needs.memory_gb,
        time=config.slurm_time or needs.time,
    )


def as_time(seconds: float) -> str:
    """Format a duration for Slurm, in whole minutes: `1-02:30:00`."""
    minutes = max(1, -(-int(seconds) // 60))
    span = timedelta(minutes=minutes)
    hours, rest = divmod(span.seconds, 3600)
    days = f'{span.days}-' if span.days else ''
    return f'{days}{hours:02}:{rest // 60:02}:00'


def _check(config: AppConfig) -> None:
    if config.use_plugin is not None:
        raise UsageError('--write-slurm and --use-plugin cannot be combined; use one of them')
    if config.slurm_time is not None and not TIME.fullmatch(config.slurm_time):
        raise UsageError(f'--slurm-time {config.slurm_time}: expected a time such as 04:00:00')
    if config.slurm_container is not None and not config.slurm_container.is_file():
        raise UsageError(
            f'--slurm-container {config.slurm_container}: no such file; build it first'
        )


def _folder(config: AppConfig) -> Path:
    if config.write_slurm is None:
        raise UsageError('--write-slurm: give a folder for the scripts')
    return config.write_slurm.absolute()


def _options(config: AppConfig) -> AppConfig:
    """Configuration of the jobs: absolute paths, no options of Slurm."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    changes: dict[str, Any] = {name: _absolute(value) for name, value in values.items()}
    changes['model'] = _absolute(_own_model(config)) or config.model
    named = derivative_folders(config).items()
    changes['derivatives'] = tuple(f'{name}={path.absolute()}' for name, path in named)
    # They were checked for all participants; those of one participant may be missing.
    changes['derivatives_optional'] = bool(named)
    for name, builtin in BUILTIN.items():
        if changes[name] != builtin:
            changes[name] = str(Path(changes[name]).absolute())
    about_slurm = [name for name in values if 'slurm' in name]
    return replace(config, **{**changes, **dict.fromkeys([*about_slurm, 'nprocs', 'mem_gb'])})


def _absolute(value: Any) -> Any:
    """Make a path, or each path of a list, absolute."""
    if isinstance(value, tuple):
        return tuple(map(_absolute, value))
    return value.absolute() if isinstance(value, Path) else value


def _job(config: AppConfig, level: str, needs: Needs, tasks: int = 0) -> str:
    """Write the script of one level, an array if it has tasks; all paths are quoted."""
    folder = _folder(config)
    writable = [
        path for path in (config.output_dir, config.work_dir, config.bids_database_dir) if path
    ]
    binds = _binds(config, writable) if config.slurm_container else []
    return _render(
        'job.sbatch',
        level=level,
        needs=needs,
        tasks=tasks,
        logs=str(folder / 'logs').replace('%', '%%'),  # A single percent sign is a placeholder.
        partition=config.slurm_partition and shlex.quote(config.slurm_partition),
        gpu=config.device == 'cuda',
        participants=_quote(folder / 'participants.txt'),
        container=config.slurm_container and _quote(config.slurm_container),
        writable=' '.join(map(_quote, writable)),
        binds=binds,
        work_dir=_quote(config.work_dir),
        # As this program was called: `run.py` of a clone, or an installed `surreal-bids`.
        program=f'{_quote(Path(sys.executable))} {_quote(Path(sys.argv[0]))}',
        bids_dir=_quote(config.bids_dir),
        output_dir=_quote(config.output_dir),
        options=_quote(folder / 'options.toml'),
    )


def _render(template: str, **values: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('surreal_bids.cli'),
        autoescape=jinja2.select_autoescape(),  # HTML only: these are shell scripts.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(values)


def _binds(config: AppConfig, writable: Sequence[Path]) -> list[str]:
    """Folders that the container may see; outputs may be inside the dataset, hence bound later."""
    binds = [f'{_bind(path)}:ro' for path in _read_only(config)] + [*map(_bind, writable)]
    return list(dict.fromkeys(binds))


def _read_only(config: AppConfig) -> list[Path]:
    """List the files and folders that a job reads."""
    tables = (config.roi_table, config.retest, config.exclude, *config.phenotype)
    given = (config.bids_filter_file, _own_model(config), *tables)
    return [
        config.bids_dir,
        _folder(config),
        *derivative_folders(config).values(),
        *(
            Path(getattr(config, name))
            for name, own in BUILTIN.items()
            if getattr(config, name) != own
        ),
        *(path for path in given if path is not None),
    ]


def _own_model(config: AppConfig) -> Path | None:
    """Return the model that is given as a folder; published ones are in the container."""
    return None if config.model is None or is_published(config.model) else config.model


def _bind(path: Path) -> str:
    """Bind a path to itself."""
    text = str(path.absolute())
    if re.search('[:,]', text):
        raise UsageError(f'{text}: apptainer cannot bind a path with a colon or comma; rename it')
    return shlex.quote(f'{text}:{text}')


def _quote(path: Path) -> str:
    return shlex.quote(str(path.absolute()))
