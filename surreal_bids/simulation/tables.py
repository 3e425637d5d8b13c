"""Tables of regional volumes whose truth is known: the semi-synthetic data of section 4.2."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.files import write_json, write_tsv
from surreal_bids.regions import recognise, region_names
from surreal_bids.simulation.controls import Controls, resample_gaussian
from surreal_bids.simulation.population import draw_controls
from surreal_bids.simulation.tasks import N_PATTERNS, draw_severities, find_task, impose_atrophy

RESAMPLINGS = {'gaussian': resample_gaussian}
"""Ways to draw more people than a table holds."""

SEVERITY_COLUMNS = [f'r{pattern}' for pattern in range(1, N_PATTERNS + 1)]

DECIMALS = {'roi_volumes': 2, 'severities': 6}
"""What is written: volumes to 0.01 mm3, far below the volume of a voxel."""


@dataclass(frozen=True)
class SimulatedTable:
    """Three tables with the same people in the same order, controls (CN) before patients (PT)."""

    volumes: pd.DataFrame
    """participant_id and the 139 volumes in mm3, ``MUSE_23`` to ``MUSE_207``."""
    participants: pd.DataFrame
    """participant_id, diagnosis (CN or PT), age, sex, site and icv; missing where not known."""
    severities: pd.DataFrame
    """participant_id and the true severities r1 to r3, zero in controls."""


def simulate_table(
    task: str,
    n_cn: int = 492,
    n_pt: int = 900,
    seed: int = 0,
    controls: Controls | None = None,
    resample: str | None = None,
) -> SimulatedTable:
    """Simulate one of the five semi-synthetic datasets of section 4.2.

    Healthy people are split at random into controls and pseudo-patients; these lose volume by three
    patterns, each as severe as a draw from U[0, 1]. The people and the severities depend on the
    seed and the numbers only, so that tasks can be compared person by person.

    Parameters
    ----------
    task
        ``'basic'``, ``'overlap'``, ``'scarce'``, ``'noise'`` or ``'mild'``.
    n_cn, n_pt
        Number of controls and of pseudo-patients.
    seed
        The same seed gives the same tables.
    controls
        Real people to take, each at most once; else the built-in population.
    resample
        ``'gaussian'``: people drawn from a log-normal distribution fitted to `controls`.
    """
    chosen_task = find_task(task)
    if min(n_cn, n_pt) < 1:
        raise UsageError(
            f'{n_cn} controls and {n_pt} patients asked for; ask for one or more of each'
        )
    if seed < 0:
        raise UsageError(f'a seed of {seed} asked for; seeds are 0 or greater')
    people_rng, severity_rng, noise_rng = np.random.default_rng(seed).spawn(3)
    healthy = _choose_healthy(n_cn + n_pt, people_rng, controls, resample)
    severities = np.zeros((n_cn + n_pt, N_PATTERNS))
    severities[n_cn:] = draw_severities(n_pt, severity_rng)
    volumes = healthy.volumes.to_numpy(copy=True)
    volumes[n_cn:] = impose_atrophy(volumes[n_cn:], severities[n_cn:], chosen_task, noise_rng)
    return _assemble(healthy, volumes, severities, n_cn)


def _choose_healthy(
    n_people: int, rng: np.random.Generator, controls: Controls | None, resample: str | None
) -> Controls:
    """Give `n_people` healthy people in random order, no one twice."""
    if resample is not None and resample not in RESAMPLINGS:
        raise UsageError(f'no resampling is called {resample!r}; there is {", ".join(RESAMPLINGS)}')
    if controls is None:
        if resample is not None:
            raise UsageError('resampling needs a table of controls to resample; give one')
        return draw_controls(n_people, rng)
    if resample is not None:
        return RESAMPLINGS[resample](controls, n_people, rng)
    if n_people > len(controls.volumes):
        raise DataError(
            f'{n_people} people asked for, but the table of controls has {len(controls.volumes)}; '
            'ask for fewer (--n-cn, --n-pt) or draw people that resemble them (--resample gaussian)'
        )
    chosen = rng.permutation(len(controls.volumes))[:n_people]
    return Controls(controls.volumes.iloc[chosen], controls.people.iloc[chosen])


def _assemble(
    healthy: Controls, volumes: np.ndarray, severities: np.ndarray, n_cn: int
) -> SimulatedTable:
    n_people = len(volumes)
    width = max(4, len(str(n_people)))
    names = pd.DataFrame({'participant_id': [f'sub-{k:0{width}}' for k in range(1, n_people + 1)]})
    people = healthy.people.reset_index(drop=True)
    people.insert(0, 'diagnosis', np.where(np.arange(n_people) < n_cn, 'CN', 'PT'))
    return SimulatedTable(
        volumes=names.join(pd.DataFrame(volumes, columns=healthy.volumes.columns)),
        participants=names.join(people),
        severities=names.join(pd.DataFrame(severities, columns=SEVERITY_COLUMNS)),
    )


def write_simulated_table(folder: str | Path, simulated: SimulatedTable) -> list[Path]:
    """Write the three tables, each with a JSON file that describes its columns.

    Parameters
    ----------
    folder
        Where ``participants``, ``roi_volumes`` and ``severities`` go, as TSV and JSON. Each file
        appears whole or not at all.

    Returns
    -------
    list of Path
        The three TSV files.
    """
    tables = {
        'participants': simulated.participants,
        'roi_volumes': simulated.volumes,
        'severities': simulated.severities,
    }
    written = []
    for name, table in tqdm(tables.items(), desc='writing', unit='table', disable=None):
        if name in DECIMALS:
            table = table.round(DECIMALS[name])
        written.append(write_tsv(Path(folder) / f'{name}.tsv', table))
        write_json(Path(folder) / f'{name}.json', describe_columns(table))
    return written


_DESCRIPTIONS: dict[str, dict[str, Any]] = {
    'participant_id': {'Description': 'A simulated person'},
    'diagnosis': {
        'Description': 'Group',
        'Levels': {'CN': 'control', 'PT': 'pseudo-patient: a control with simulated atrophy'},
    },
    'age': {'Description': 'Age', 'Units': 'year'},
    'sex': {'Description': 'Sex', 'Levels': {'F': 'female', 'M': 'male'}},
    'site': {'Description': 'Where the person was scanned'},
    'icv': {'Description': 'Intracranial volume', 'Units': 'mm^3'},
}


def describe_columns(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Describe each column of a simulated table as a BIDS sidecar does, with units."""
    names = region_names()
    regions = {
        column: {'Description': f'Volume of the region {names[index]}', 'Units': 'mm^3'}
        for column, index in recognise(table.columns).items()
    }
    severities = {
        column: {'Description': f'True severity of pattern {column[1:]}, 0 to 1', 'Units': '1'}
        for column in SEVERITY_COLUMNS
    }
    known = _DESCRIPTIONS | regions | severities
    return {column: known[column] for column in table.columns}
