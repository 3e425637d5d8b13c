"""Jobs for Slurm: an array of participants, the group level after it, and a script to submit both.

The jobs call the same command as anyone else. Options go through one file, `options.toml`; folders
keep their paths inside a container, so that nothing has to be translated.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from surreal_bids.bids.preflight import Survey
from surreal_bids.bids.programs import derivative_folders
from surreal_bids.cli.config_file import write_config
from surreal_bids.cli.dry_run import PROCESS_GB, estimate
from surreal_bids.cli.plan import Job, make_plan
from surreal_bids.config import (
    BUILTIN_ATLAS,
    BUILTIN_TEMPLATE,
    AppConfig,
)
from surreal_bids.exceptions import UsageError
from surreal_bids.files import write_text

MOST_TASKS = 1000
"""Tasks of an array; Slurm allows 1000 unless its administrators raise `MaxArraySize`."""

TIME = re.compile(r'(\d+-)?\d+(:\d+){0,2}')
"""Time limits that Slurm takes: minutes, minutes:seconds, hours:minutes:seconds, days-hours..."""

BUILTIN = {'atlas': BUILTIN_ATLAS, 'template': BUILTIN_TEMPLATE}
"""Options that are a name, or else a folder."""

EXECUTABLE = 0o755


@dataclass(frozen=True)
class Needs:
    """What one job asks of the scheduler.

    Attributes
    ----------
    cores
        Cores of the task.
    memory_gb
        Memory of the task, in GB.
    time
        Time limit, as Slurm takes it.
    """

    cores: int
    memory_gb: int
    time: str


PARTICIPANT_CORES = 2
"""Cores of one participant: more of them have little to do, since few steps run side by side."""

GROUP_NEEDS = Needs(cores=8, memory_gb=16, time='1-00:00:00')
"""For the group level: some hours for a few hundred participants; it resumes where it stopped."""

SAFETY = 3
"""Time limits are this many times the estimate: nodes differ, and disks are shared."""

LEAST_SECONDS = 1800.0
"""No job is given less time."""


def write_slurm(config: AppConfig, survey: Survey | None) -> str:
    """Write jobs for all participants who are not done, and for the group; returns where.

    Parameters
    ----------
    config
        What to run; its `write_slurm` is the folder to write to.
    survey
        What the dataset holds; None where only the group level is wanted, from a table.

    Raises
    ------
    UsageError
        An option cannot work in jobs of one participant each.
    """
    _check(config)
    labels, pending = _find_pending(config, survey) if survey else ([], [])
    needs = estimate_task(config, pending, participants_per_task(len(labels)))
    written = write_jobs(config, labels, needs, with_wishes(GROUP_NEEDS, config))
    lines = [f'This will fail: {problem}' for problem in (survey.problems if survey else ())]
    if labels:
        lines.append(
            f'{len(labels)} participants to process; {needs.cores} cores, {needs.memory_gb} GB '
            f'and {needs.time} for each task.'
        )
    return '\n'.join([*lines, f'Submit with {written[0]}', ''])


def _find_pending(config: AppConfig, survey: Survey) -> tuple[list[str], list[Job]]:
    """Participants to process, those with a damaged image among them, and what that takes."""
    if 'participant' not in config.analysis_levels:
        return [], []
    plan = make_plan(config, survey)
    names = {problem.name for problem in plan.problems} | {job.image.name for job in plan.pending}
    labels = dict.fromkeys(image.participant for image in survey.images if image.name in names)
    return list(labels), plan.pending


def participants_per_task(n_participants: int) -> int:
    """One, but for arrays that would be larger than Slurm allows."""
    return max(1, -(-n_participants // MOST_TASKS))


def estimate_task(config: AppConfig, jobs: Sequence[Job], per_task: int) -> Needs:
    """What a task of the array needs, from what a dry run estimates for the longest of them.

    Parameters
    ----------
    config
        What to run, and what was asked for in place of the estimate.
    jobs
        Images to process.
    per_task
        Participants of a task, who are processed one after the other.
    """
    cores = config.nprocs or PARTICIPANT_CORES
    sessions: dict[str, list[Job]] = {}
    for job in jobs:
        sessions.setdefault(job.image.participant, []).append(job)
    estimates = [estimate(config, own, cores) for own in sessions.values()]
    seconds = SAFETY * per_task * max((e.cpu_seconds for e in estimates), default=0.0)
    memory = max((e.memory_gb for e in estimates), default=PROCESS_GB * cores)
    needs = Needs(cores, math.ceil(memory), as_time(max(seconds, LEAST_SECONDS)))
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
        What one task of the array needs.
    group
        What the group level needs.

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
        scripts['participant.sbatch'] = _participant_job(config, len(participants), participant)
    if 'group' in config.analysis_levels:
        scripts['group.sbatch'] = _group_job(config, group)
    scripts['submit.sh'] = _submission(list(scripts))
    for name, text in scripts.items():
        written.append(write_text(folder / name, text))
        written[-1].chmod(EXECUTABLE)
    return written[::-1]


def with_wishes(needs: Needs, config: AppConfig) -> Needs:
    """What a job needs, but for what was asked for: `--nprocs`, `--slurm-time`, ..."""
    return Needs(
        cores=config.nprocs or needs.cores,
        memory_gb=config.slurm_memory or needs.memory_gb,
        time=config.slurm_time or needs.time,
    )


def as_time(seconds: float) -> str:
    """A duration as Slurm takes it, in whole minutes: `1-02:30:00`."""
    minutes = max(1, -(-int(seconds) // 60))
    span = timedelta(minutes=minutes)
    hours, rest = divmod(span.seconds, 3600)
    days = f'{span.days}-' if span.days else ''
    return f'{days}{hours:02}:{rest // 60:02}:00'


def _check(config: AppConfig) -> None:
    if config.use_plugin is not None:
        raise UsageError(
            '--write-slurm and --use-plugin are two ways to use a scheduler; give one of them'
        )
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
    """The configuration of the jobs: paths that hold anywhere, nothing about Slurm."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    changes: dict[str, Any] = {name: _absolute(value) for name, value in values.items()}
    named = derivative_folders(config).items()
    changes['derivatives'] = tuple(f'{name}={path.absolute()}' for name, path in named)
    # That they hold something was found out just now; that of one participant may be missing.
    changes['derivatives_optional'] = bool(named)
    for name, builtin in BUILTIN.items():
        if changes[name] != builtin:
            changes[name] = str(Path(changes[name]).absolute())
    about_slurm = [name for name in values if 'slurm' in name]
    return replace(config, **{**changes, **dict.fromkeys([*about_slurm, 'nprocs', 'mem_gb'])})


def _absolute(value: Any) -> Any:
    """The same value; a path, or each path of a list, is made absolute."""
    if isinstance(value, tuple):
        return tuple(map(_absolute, value))
    return value.absolute() if isinstance(value, Path) else value


def _participant_job(config: AppConfig, n_participants: int, needs: Needs) -> str:
    tasks = min(n_participants, MOST_TASKS)
    chosen = f'awk -v n={tasks} -v task="$SLURM_ARRAY_TASK_ID" \'NR % n == task % n\''
    return _script(
        [
            *_directives(config, 'participant', needs, log='%A_%a'),
            f'#SBATCH --array=1-{tasks}',
            '# A task takes the lines of participants.txt that have its number (modulo tasks).',
        ],
        f'mapfile -t labels < <({chosen} {_quote(_folder(config) / "participants.txt")})',
        'echo "Participants ${labels[*]} on $(hostname)"',
        *_command(config, 'participant', needs, '--participant-label "${labels[@]}"'),
    )


def _group_job(config: AppConfig, needs: Needs) -> str:
    return _script(
        [
            *_directives(config, 'group', needs, log='%j'),
            '# Also runs when participants failed: it says who is missing.',
        ],
        *_command(config, 'group', needs),
    )


def _submission(scripts: Sequence[str]) -> str:
    lines = ['cd "$(dirname "$0")"']
    dependency = ''
    for script in scripts:
        level = script.removesuffix('.sbatch')
        lines += [
            f'{level}=$(sbatch --parsable {dependency}"$@" {script})',
            f'echo "{level} level: job ${{{level}%%;*}}"',
        ]
        dependency = f'--dependency="afterany:${{{level}%%;*}}" '
    return _script(
        ['# Arguments go to sbatch, as in: submit.sh --account=NAME --mail-type=END'], *lines
    )


def _script(head: Sequence[str], *lines: str) -> str:
    made_by = '# Written by surreal-bids --write-slurm.'
    return '\n'.join(['#!/bin/bash', *head, made_by, 'set -euo pipefail', *lines, ''])


def _directives(config: AppConfig, level: str, needs: Needs, *, log: str) -> list[str]:
    # A percent sign in a path would be a placeholder.
    logs = str(_folder(config) / 'logs').replace('%', '%%')
    directives = [
        f'--job-name=surreal_{level}',
        f'--cpus-per-task={needs.cores}',
        f'--mem={needs.memory_gb}G',
        f'--time={needs.time}',
        f'--output="{logs}/{level}-{log}.log"',
    ]
    if config.slurm_partition:
        directives.append(f'--partition={config.slurm_partition}')
    if config.device == 'cuda':
        directives.append('--gres=gpu:1')
    return [f'#SBATCH {directive}' for directive in directives]


def _command(config: AppConfig, level: str, needs: Needs, *further: str) -> list[str]:
    """Lines that run one level, through the container if there is one."""
    start = _container(config) if config.slurm_container else [_program()]
    return [
        *start[:-1],
        ' \\\n    '.join(
            [
                start[-1],
                f'{_quote(config.bids_dir)} {_quote(config.output_dir)} {level}',
                f'--config-file {_quote(_folder(config) / "options.toml")}',
                f'--nprocs "$SLURM_CPUS_PER_TASK" --mem-gb {needs.memory_gb}',
                *further,
            ]
        ),
    ]


def _program() -> str:
    """How this very program was called: `run.py` of a clone, or an installed `surreal-bids`."""
    return f'{_quote(Path(sys.executable))} {_quote(Path(sys.argv[0]))}'


def _container(config: AppConfig) -> list[str]:
    """Lines that run the container, with the folders it may see under their own paths."""
    writable = [config.output_dir, config.work_dir, config.bids_database_dir]
    made = ' '.join(_quote(path) for path in writable if path)
    # The outputs may be inside the dataset, and are bound over it.
    binds = [f'-B {_bind(path)}:ro' for path in _read_only(config)]
    binds += [f'-B {_bind(path)}' for path in writable if path]
    gpu = ' --nv' if config.device == 'cuda' else ''
    return [
        'apptainer=$(command -v apptainer || command -v singularity)',
        # The /tmp of a contained container is in memory and small.
        'scratch=$(mktemp -d)',
        'trap \'rm -rf "$scratch"\' EXIT',
        f'mkdir -p {made}',
        ' \\\n    '.join(
            [
                f'"$apptainer" run --containall --cleanenv{gpu} -B "$scratch":/tmp',
                *dict.fromkeys(binds),
                f'--pwd {_quote(config.work_dir)} {_quote(Path(config.slurm_container or ""))}',
            ]
        ),
    ]


def _read_only(config: AppConfig) -> list[Path]:
    """Files and folders that a job reads."""
    given = (config.bids_filter_file, config.roi_table, config.model, *config.phenotype)
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


def _bind(path: Path) -> str:
    """A path bound to itself."""
    text = str(path.absolute())
    if re.search('[:,]', text):
        raise UsageError(f'{text}: apptainer cannot bind a path with a colon or comma; rename it')
    return shlex.quote(f'{text}:{text}')


def _quote(path: Path) -> str:
    return shlex.quote(str(path.absolute()))
