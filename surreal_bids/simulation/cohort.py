"""Whole BIDS datasets of simulated T1w heads whose truth is known."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
from tqdm import tqdm

from surreal_bids import __version__
from surreal_bids.exceptions import OutputError
from surreal_bids.files import MISSING, write_image, write_json, write_text, write_tsv
from surreal_bids.simulation import dataset
from surreal_bids.simulation.acquisition import (
    Protocol,
    Scan,
    Scanner,
    draw_protocol,
    neutral_protocol,
)
from surreal_bids.simulation.anatomy import draw_anatomy
from surreal_bids.simulation.atrophy import (
    LARGEST_LOSS,
    AtrophySolver,
    adjacent_regions,
    pattern_table,
    prescribed_losses,
)
from surreal_bids.simulation.people import (
    CohortPlan,
    Person,
    draw_people,
    participants_table,
    random_streams,
    severity_table,
    site_stream,
)
from surreal_bids.simulation.templates import Template, load_regions, load_template

TEMPORARY_FILES = '.????????.*'
"""What an atomic write that was killed leaves behind."""

THREAD_SETTINGS = ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'OPENBLAS_NUM_THREADS')
"""Environment variables that the numerical libraries read when a process starts."""


class Simulator:
    """Simulates people of any plan on one template.

    Parameters
    ----------
    template
        Template on its working grid.
    """

    def __init__(self, template: Template) -> None:
        self.template = template
        self.solver = AtrophySolver(template)
        self.scanner = Scanner(template)

    def simulate(self, plan: CohortPlan, person: Person) -> tuple[Scan, pd.DataFrame]:
        """Simulate a person: the scan with its truth, and the volumes of all regions."""
        _, anatomy_rng, scan_rng = random_streams(plan, person.group, person.number)
        regions = self.template.regions
        anatomy = draw_anatomy(self.template, person.sex, anatomy_rng, plan.variation)
        losses = prescribed_losses(np.array(person.severities), regions)
        atrophy = self.solver.solve(anatomy.displacement, losses)
        protocol = site_protocol(plan, person.site)
        scan = self.scanner.scan(atrophy.displacement, anatomy.placement, protocol, scan_rng)
        volumes = pd.DataFrame(
            {
                'participant_id': person.label,
                'index': regions['index'],
                'name': regions['name'],
                'baseline_mm3': (atrophy.baseline * anatomy.volume_scale).round(3),
                'achieved_mm3': (atrophy.achieved * anatomy.volume_scale).round(3),
                'prescribed_loss': losses.round(6),
                'loss': atrophy.loss.round(6),
            }
        )
        return scan, volumes


@cache
def load_simulator(voxel_size: float) -> Simulator:
    """Load the simulator once a process."""
    return Simulator(load_template(voxel_size))


def site_protocol(plan: CohortPlan, site: int | None) -> Protocol:
    """Protocol of a site of a plan; the neutral one for the atlas set."""
    if site is None:
        return neutral_protocol(plan.voxel_size)
    return draw_protocol(site, plan.voxel_size, site_stream(plan, site))


def simulate_cohort(root: Path, plan: CohortPlan, nprocs: int = 1) -> None:
    """Write a simulated cohort; what an earlier call with the same plan completed is kept.

    Parameters
    ----------
    root
        Folder of the dataset.
    plan
        What to simulate.
    nprocs
        Number of processes; each uses one thread.
    """
    people = draw_people(plan)
    patterns = pattern_table(plan.patterns, load_regions())
    start_dataset(root, plan)
    write_tables(root, plan, people)
    write_regions(root, plan, load_template(plan.voxel_size), patterns)
    simulate_people(root, plan, people, nprocs)
    participants = [person for person in people if person.site is not None]
    collect_volumes(root, participants)


def start_dataset(root: Path, plan: CohortPlan) -> None:
    """Claim the folder for a plan, or find that it holds the beginning of the same one."""
    record = asdict(plan) | {'surreal_bids': __version__}
    path = root / dataset.RECORD
    if path.is_file():
        _require_same(root, record, _read_record(path))
        for leftover in root.rglob(TEMPORARY_FILES):
            leftover.unlink()
        return
    if root.exists() and not root.is_dir():
        raise OutputError(f'{root}: a file of this name exists; choose another output folder')
    if any(child.is_file() and not child.match(TEMPORARY_FILES) for child in root.rglob('*')):
        raise OutputError(f'{root}: holds something else; choose an empty or a new folder')
    write_json(path, record)


def _read_record(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding='utf-8')))
    except ValueError as error:
        raise OutputError(f'{path}: not readable ({error}); choose another folder') from error


def _require_same(root: Path, record: dict[str, Any], found: dict[str, Any]) -> None:
    different = [
        f'{name} {found.get(name)} (now {record.get(name)})'
        for name in record | found
        if record.get(name) != found.get(name)
    ]
    if different:
        raise OutputError(
            f'{root}: holds a cohort made with {", ".join(different)}; '
            'repeat those arguments to complete it, or choose another folder'
        )


def write_tables(root: Path, plan: CohortPlan, people: list[Person]) -> None:
    """Write what is known before anyone is simulated."""
    write_json(root / 'dataset_description.json', dataset.dataset_description(plan))
    write_text(root / 'README.md', dataset.readme(plan))
    write_tsv(root / 'participants.tsv', participants_table(people))
    write_json(root / 'participants.json', dataset.PARTICIPANTS_COLUMNS)
    write_tsv(root / dataset.TRUTH / 'severities.tsv', severity_table(people))
    write_json(root / dataset.TRUTH / 'severities.json', dataset.severity_columns(plan))


def write_regions(root: Path, plan: CohortPlan, template: Template, patterns: pd.DataFrame) -> None:
    """Write the regions, the patterns, and the look-up table of the atlas set."""
    truth, regions = root / dataset.TRUTH, template.regions
    write_tsv(truth / 'patterns.tsv', patterns.assign(loss=LARGEST_LOSS))
    write_json(truth / 'patterns.json', dataset.PATTERN_COLUMNS)
    adjacent_to: dict[int, list[str]] = {}
    for number, members in patterns.groupby('pattern')['index']:
        for index in adjacent_regions(template.labels, tuple(members)):
            adjacent_to.setdefault(index, []).append(str(number))
    beside = [','.join(adjacent_to.get(index, [])) or MISSING for index in regions['index']]
    write_tsv(truth / 'regions.tsv', regions.assign(adjacent_to=beside))
    write_json(truth / 'regions.json', dataset.REGION_COLUMNS)
    if plan.atlases:
        write_tsv(root / dataset.ATLASES / 'dseg.tsv', regions)
        described = {column: dataset.REGION_COLUMNS[str(column)] for column in regions}
        write_json(root / dataset.ATLASES / 'dseg.json', described)


def simulate_people(root: Path, plan: CohortPlan, people: list[Person], nprocs: int) -> None:
    """Simulate and write everyone who is not yet complete, with a progress bar."""
    pending = [person for person in people if not dataset.volumes_path(root, person).is_file()]
    progress = tqdm(
        total=len(people), initial=len(people) - len(pending), unit='head', disable=None
    )
    with progress, _worker_pool(min(nprocs, max(len(pending), 1))) as pool:
        jobs = [pool.submit(write_person, root, plan, person) for person in pending]
        for job in as_completed(jobs):
            job.result()
            progress.update()


@contextmanager
def _worker_pool(nprocs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes of one thread each; an error cancels what has not begun."""
    context = multiprocessing.get_context('spawn')
    pool = ProcessPoolExecutor(nprocs, context, initializer=_end_with_parent)
    environment = os.environ.copy()
    os.environ.update(dict.fromkeys(THREAD_SETTINGS, '1'))
    try:
        yield pool
    except BrokenProcessPool as error:
        raise OutputError(
            'a process that simulated a head was killed, for want of memory most likely; '
            'repeat the command with a lower --nprocs: what is complete is kept'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
        os.environ.clear()
        os.environ.update(environment)


def _end_with_parent() -> None:
    """Let a worker end when the main process is killed; it would wait for work for ever."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def write_person(root: Path, plan: CohortPlan, person: Person) -> None:
    """Simulate a person and write the images, then the volumes, which mark them as complete."""
    scan, volumes = load_simulator(plan.voxel_size).simulate(plan, person)
    if person.site is None:
        write_image(dataset.t1w_path(root, person), skull_stripped(scan))
    else:
        t1w = dataset.t1w_path(root, person)
        write_image(t1w, skull_stripped(scan) if plan.stripped else scan.t1w)
        write_json(t1w.with_name(f'{person.label}_T1w.json'), sidecar(plan, person.site))
        write_image(dataset.truth_path(root, person, 'desc-brain_mask.nii.gz'), scan.brain)
    write_image(dataset.truth_path(root, person, 'dseg.nii.gz'), scan.labels)
    write_tsv(dataset.volumes_path(root, person), volumes)


def skull_stripped(scan: Scan) -> nib.Nifti1Image:
    """Give the scan with zeros outside the brain."""
    brain = np.asarray(scan.t1w.dataobj) * np.asarray(scan.brain.dataobj)
    return nib.Nifti1Image(brain, scan.t1w.affine, scan.t1w.header)


def sidecar(plan: CohortPlan, site: int) -> dict[str, Any]:
    """Describe a T1w image of a site."""
    return {
        'Modality': 'MR',
        **site_protocol(plan, site).metadata,
        'InstitutionName': f'Simulated site {site + 1}',
        'PulseSequenceType': 'MPRAGE',
        'MRAcquisitionType': '3D',
        'SkullStripped': plan.stripped,
        'ImageComments': 'Simulated head; no person was scanned',
    }


def collect_volumes(root: Path, people: list[Person]) -> None:
    """Gather the volumes of all participants into one table."""
    tables = [pd.read_csv(dataset.volumes_path(root, person), sep='\t') for person in people]
    write_tsv(root / dataset.TRUTH / 'volumes.tsv', pd.concat(tables))
    write_json(root / dataset.TRUTH / 'volumes.json', dataset.VOLUME_COLUMNS)
