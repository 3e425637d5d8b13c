"""The group level: who is in, how long it will take, run, and say what was found."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from surreal_bids import __version__
from surreal_bids.bids.derivatives import output_names, output_path, sidecar_path, start_dataset
from surreal_bids.bids.layout import read_description
from surreal_bids.bids.people import CONTROL, PATIENT, Visit
from surreal_bids.bids.reuse import segmentation_label
from surreal_bids.bids.survey import check_output_folder, check_work_folder
from surreal_bids.cli.execution import Crash, run_workflow, usable_cores
from surreal_bids.cli.plan import template_name
from surreal_bids.config import AppConfig, derivative_folders, training_options, write_config
from surreal_bids.exceptions import DataError, SurrealError, UsageError
from surreal_bids.files import write_text
from surreal_bids.interfaces.group import ravens_files
from surreal_bids.model.bundle import CARD
from surreal_bids.model.estimator import FEWEST_PEOPLE, find_device
from surreal_bids.model.train import longest_first
from surreal_bids.tables.cohort import GROUP_NAMES, Cohort, read_cohort
from surreal_bids.tables.pipeline import TableModel, prepare, time_training
from surreal_bids.tables.volumes import collect_volumes
from surreal_bids.workflows.group import init_group_wf

DONE = 'done'
"""File beside a cohort for which all results have been computed."""

SHOWN = 10
"""People left out who are named on the screen; the table has all."""


def run_group_level(config: AppConfig, expected: Sequence[Visit] = ()) -> int:
    """Run the group level and say where the report is.

    Everything that can be wrong with the data is found before anything is written.

    Parameters
    ----------
    config
        What was asked for.
    expected
        Visits that should have volumes: those with an image.

    Raises
    ------
    DataError
        The data cannot be used, or a step found that they cannot.
    """
    check_output_folder(config.bids_dir, config.output_dir)
    check_work_folder(config.bids_dir, config.work_dir)
    _check_model_options(config)
    model = None if config.model is None else TableModel.load(config.model)
    volumes = config.roi_table or collect_volumes(config.output_dir, segmentation_label(config))
    needs = None if model is None else model.preprocessing
    participants = config.bids_dir / 'participants.tsv'
    cohort = read_cohort(volumes, participants, config, expected, needs)
    _check_halves(config, cohort)
    sys.stdout.write(summarise_people(cohort))
    if config.dry_run:
        return 0
    folder = _keep(config, cohort)
    workflow = make_workflow(config, cohort, folder)
    start_dataset(
        config.output_dir,
        config.bids_dir,
        read_description(config.bids_dir),
        derivative_folders(config),
    )
    begun = write_config(output_path(config.output_dir, 'configuration'), config)
    if model is None and not config.reports_only:
        sys.stdout.write(_announce(config, cohort))
        sys.stdout.flush()
    crashes = run_workflow(workflow, config)
    _raise_crashes(config, crashes)
    write_text(folder / DONE, '')
    _remove_outdated(config, begun)
    sys.stdout.write(f'Done; open {output_path(config.output_dir, "group_report")}.\n')
    return 0


def _check_model_options(config: AppConfig) -> None:
    if config.model is None:
        return
    if config.split_half:
        raise UsageError('--split-half trains models, --model applies one; leave one of them out')
    if config.model.resolve() == output_path(config.output_dir, 'model_card').parent.resolve():
        raise UsageError(
            f'--model {config.model}: this is where the model of this run is written; copy it '
            'elsewhere, or choose another output folder'
        )


def _check_halves(config: AppConfig, cohort: Cohort) -> None:
    for group, count in cohort.counts.items():
        if config.split_half and count < 2 * FEWEST_PEOPLE:
            raise DataError(
                f'--split-half: {count} {GROUP_NAMES[group]}, but each half needs {FEWEST_PEOPLE}; '
                'leave it out'
            )


def _remove_outdated(config: AppConfig, begun: Path) -> None:
    """Delete what an earlier run has written and this one has not, such as maps of a pattern.

    Every run writes all of its outputs; those older than `begun`, its first file, are not of it.
    """
    start = begun.stat().st_mtime_ns
    for row in output_names().values():
        if row.level != 'group':
            continue
        for path in config.output_dir.glob(row.fill(dict.fromkeys(row.entities, '*'))):
            if path.stat().st_mtime_ns < start:
                path.unlink()
                if row.metadata is not None:
                    sidecar_path(path).unlink(missing_ok=True)


def summarise_people(cohort: Cohort) -> str:
    """Say who is in and who is not, and what was decided."""
    out = cohort.exclusions
    counts = cohort.counts
    lines = [
        f'{counts[CONTROL]} controls and {counts[PATIENT]} patients, {len(cohort)} visits, '
        f'{len(cohort.wanted)} regions',
        *(f'  {note}' for note in cohort.notes),
        f'{len(out)} left out' + (':' if len(out) else ''),
        *(f'  {visit}: {reason}' for visit, reason in out['reason'].head(SHOWN).items()),
    ]
    if len(out) > SHOWN:
        lines.append(f'  and {len(out) - SHOWN} more')
    return '\n'.join(lines) + '\n'


def _keep(config: AppConfig, cohort: Cohort) -> Path:
    """Write the cohort to the work folder, under a name that tells it from any other."""
    model = None
    if config.model is not None:
        model = hashlib.sha256((config.model / CARD).read_bytes()).hexdigest()
    identity = cohort.fingerprint(asdict(training_options(config)), model, __version__)
    folder = config.work_dir.absolute() / 'group' / identity
    if config.reports_only and not (folder / DONE).is_file():
        raise UsageError(
            f'--reports-only: {config.work_dir} holds no results for these people and options; run '
            'once without it'
        )
    cohort.save(folder)
    return folder


def make_workflow(config: AppConfig, cohort: Cohort, folder: Path) -> Any:
    """Build the graph for a cohort that is kept in `folder`."""
    settings = None if config.model is not None else asdict(training_options(config))
    tissues, stamps = _ravens(config, cohort)
    return init_group_wf(
        cohort_dir=os.fspath(folder),
        output_dir=os.fspath(config.output_dir.absolute()),
        training=settings,
        checkpoint_dir=os.fspath(folder / 'checkpoints'),
        model_dir=None if config.model is None else os.fspath(config.model.absolute()),
        follow_up={
            'tissues': tissues,
            'stamps': stamps,
            'template_name': template_name(config),
            'smoothing': config.map_smoothing,
            'permutations': config.permutations,
            'split_half': config.split_half,
            'paint': cohort.wanted.atlas is not None,
            'cache_dir': os.fspath(config.work_dir.absolute() / 'atlases'),
            'random_seed': config.random_seed,
        },
        report={
            'title': read_description(config.bids_dir).get('Name', config.bids_dir.name),
            'template': config.template,
            'methods': _methods(config, cohort, tissues),
        },
        n_threads=_threads(config),
    )


def _ravens(config: AppConfig, cohort: Cohort) -> tuple[list[str], dict[str, str]]:
    """Tissues of which there are RAVENS maps, and what tells that the maps have changed."""
    visits = cohort.first_visits().visits
    stamps = {}
    for tissue in config.map_tissues:
        files = ravens_files(config.output_dir, visits, template_name(config), tissue)
        seen = [
            (visit, path.stat().st_size, path.stat().st_mtime_ns) for visit, path in files.items()
        ]
        if seen:
            stamps[tissue] = hashlib.sha256(repr(seen).encode()).hexdigest()
    return list(stamps), stamps


def _methods(config: AppConfig, cohort: Cohort, tissues: list[str]) -> Mapping[str, Any]:
    harmonized = cohort.options.site_column is not None
    return {
        'harmonized': harmonized,
        'model': None if config.model is None else config.model.absolute().name,
        'preset': config.preset,
        'candidates': list(dict.fromkeys(config.n_patterns)),
        'repetitions': config.repetitions,
        'iterations': config.iterations,
        'map_tissues': tissues,
        'map_smoothing': config.map_smoothing,
        'permutations': config.permutations,
        'associations': True,
        'split_half': config.split_half,
    }


def _threads(config: AppConfig) -> int:
    """Threads of a long step: the cores are shared out to the numbers of patterns."""
    cores = config.nprocs or usable_cores()
    return max(config.omp_nthreads, cores // len(set(config.n_patterns)), 1)


def _announce(config: AppConfig, cohort: Cohort) -> str:
    """Say how long training will take on this machine, from a few iterations."""
    import torch

    settings = training_options(config)
    threads = _threads(config)
    torch.set_num_threads(threads)
    seconds = time_training(prepare(cohort), settings)
    at_once = 1 if find_device(config.device).type == 'cuda' else _side_by_side(config, threads)
    total = longest_first(list(seconds.values()), at_once)
    members = len(settings.ortho) * settings.repetitions
    each = ', '.join(f'M = {m}: {_duration(time)}' for m, time in seconds.items())
    return (
        f'Training {members} members for each number of patterns, {settings.iterations:,} '
        f'iterations: about {_duration(total)} on this machine ({each}; {at_once} at a time), less '
        'what an earlier run has done. It may be stopped: the same command goes on from there.\n'
    )


def _side_by_side(config: AppConfig, threads: int) -> int:
    return max((config.nprocs or usable_cores()) // threads, 1)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _raise_crashes(config: AppConfig, crashes: Sequence[Crash]) -> None:
    """Keep what Nipype says of failed steps, and raise the first of them as an error of ours."""
    for crash in crashes:
        step = ''.join(filter(str.isalnum, crash.step))
        write_text(output_path(config.output_dir, 'group_crash', step=step), crash.report)
    if not crashes:
        return
    first = crashes[0]
    kind = DataError if 'surreal_bids.exceptions.DataError' in first.report else SurrealError
    raise kind(
        f'group level, step {first.step}: {first.reason} (details in {config.output_dir / "logs"})'
    )
