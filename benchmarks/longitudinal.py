"""Tests whether a change of scanners is taken for a change of the brain.

    python benchmarks/longitudinal.py [--seeds 10] [--first-seed 0] [--controls 100] [--nprocs N]

Participants have two visits two years apart, with the noise of the package. Half of them change
scanners, whose shifts differ between regions (SD 4 % of the volume). Sites are learned from
controls: from first visits, as until 0.1.0, or from all visits, by longitudinal ComBat. Others, who
age and lose nothing else, are then measured. `change` has both scanners at first visits; in
`upgrade`, the second scanner comes later, so that first visits do not know it and its volumes stay
as measured.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from machine import write_results
from numpy.typing import NDArray
from visits import YEARS, noise_of_one, simulated_errors

from surreal_bids.analysis.change import describe_changes
from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.config import CohortOptions, TrainingOptions
from surreal_bids.rindices.measurement_noise import noise_of_indices
from surreal_bids.rindices.model import TableModel, prepare
from surreal_bids.rindices.preprocessing import Preprocessing, fit_preprocessing
from surreal_bids.simulation.population import built_in_population, volume_columns
from surreal_bids.simulation.tables import simulate_table

SHIFT_SD = 0.04
DESIGNS = ('change', 'upgrade')
TESTED = (100, 100)
"""Controls and patients who are measured, and whom nothing was learned from."""

TRAINING = TrainingOptions(n_patterns=(3,), device='cpu')
"""The default, with the number of simulated patterns."""


@dataclass(frozen=True)
class Study:
    """Participants with two visits: facts, true volumes, and the scanner of each visit."""

    people: pd.DataFrame
    volumes: tuple[NDArray, NDArray]
    scanners: tuple[NDArray, NDArray]


def simulate(design: str, n: tuple[int, int], seed: int) -> Study:
    simulated = simulate_table('basic', *n, seed=seed)
    first = simulated.volumes[volume_columns()].to_numpy()
    second = first * np.exp(built_in_population().known[0] * YEARS / 10)
    start = np.arange(len(first)) // 2 % 2 if design == 'change' else np.zeros(len(first), int)
    changes = np.arange(len(first)) % 2
    people = simulated.participants.drop(columns='site')
    return Study(people, (first, second), (start, np.abs(start - changes)))


def read(
    study: Study, shifts: NDArray, rng: np.random.Generator | None, model: Preprocessing | None
) -> Cohort:
    """Measure everyone with shifts of scanners, and noise if there is a generator."""
    tables = []
    for visit, (volumes, scanner) in enumerate(zip(study.volumes, study.scanners)):
        errors = np.zeros((len(volumes), volumes.shape[1] + 1))
        if rng is not None:
            errors = simulated_errors(rng, noise_of_one(), len(volumes))
        known = study.people.assign(
            session_id=f'ses-{visit + 1}',
            age=study.people['age'] + YEARS * visit,
            site=np.array(['A', 'B'])[scanner],
            icv=study.people['icv'] * np.exp(errors[:, 0] + 1e-9 * visit),
        )
        measured = volumes * np.exp(errors[:, 1:] + shifts[scanner])
        tables.append(pd.concat([known, pd.DataFrame(measured, columns=volume_columns())], axis=1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'visits.tsv'
        pd.concat(tables).to_csv(path, sep='\t', index=False)
        if model is None:
            return read_cohort(path)
        return read_cohort(
            path, options=CohortOptions(), model=model.requirements, groups='compared', adapt=False
        )


def first_visits_only(cohort: Cohort) -> Preprocessing:
    """What was learned until 0.1.0."""
    first = cohort.first_visits()
    options = replace(cohort.options, unseen_site='skip')
    return fit_preprocessing(
        cohort.wanted, options, first.features, first.people, ~first.is_patient
    )[0]


def changes_of(model: TableModel, cohort: Cohort) -> pd.DataFrame:
    results = model.apply(cohort)
    harmonized = model.preprocessing.harmonize(cohort.features, cohort.people)
    noise = noise_of_indices(model, cohort)
    return describe_changes(cohort, results, harmonized, noise, model.preprocessing)


def assess(model: TableModel, study: Study, shifts: NDArray, seed: int) -> list[dict]:
    """Bias of the change per year, and reliable changes, of those who change scanners."""
    steps = model.preprocessing
    exact = changes_of(model, read(study, shifts, None, steps))
    stayed = replace(study, scanners=(study.scanners[0], study.scanners[0]))
    true = changes_of(model, read(stayed, shifts, None, steps))
    noisy = changes_of(model, read(study, shifts, np.random.default_rng(seed), steps))
    moved = exact['site_changed'] == 'true'
    # Errors of the two directions would cancel.
    start = dict(zip(study.people['participant_id'], study.scanners[0]))
    sign = 1 - 2 * exact['participant_id'].map(start)
    is_index = exact['measure'].isin(model.pattern_names)
    rows = []
    for what, own in (('R-index', is_index), ('region', ~is_index)):
        chosen = moved & own
        error = ((exact['per_year'] - true['per_year']) * sign)[chosen]
        bias = error.groupby(exact.loc[chosen, 'measure']).mean()
        called = {
            changed: share_called(noisy[(noisy['site_changed'] == changed) & own])
            for changed in ('true', 'false')
        }
        rows.append(
            {
                'measure': what,
                'participants': exact.loc[chosen, 'participant_id'].nunique(),
                'rms_bias_per_year': np.sqrt(np.mean(bias**2)),
                'false_reliable': called['true'],
                'false_reliable_at_one_site': called['false'],
            }
        )
    return rows


def share_called(changes: pd.DataFrame) -> float:
    """Share of participants with a reliable change, of those for whom it was judged."""
    judged = changes.dropna(subset='reliable')
    is_called = (judged['reliable'] == 'true').groupby(judged['participant_id']).any()
    return float(is_called.mean())


def learn(design: str, n_controls: int, seed: int) -> tuple[Cohort, NDArray]:
    """Read the participants that sites are learned from, with the shifts of the scanners."""
    rng = np.random.default_rng(seed)
    shifts = rng.normal(0, SHIFT_SD, (2, len(volume_columns()))) * [[0], [1]]
    return read(simulate(design, (n_controls, 60), seed), shifts, rng, None), shifts


def draw(model: TableModel, n_controls: int, design: str, seed: int) -> list[dict]:
    """Learn sites in both ways, and assess both on others."""
    torch.set_num_threads(1)
    cohort, shifts = learn(design, n_controls, seed)
    steps = {
        'first visits': first_visits_only(cohort),
        'all visits': prepare(cohort).preprocessing,
    }
    study = simulate(design, TESTED, 1000 + seed)
    return [
        {'design': design, 'seed': seed, 'sites_from': how, **row}
        for how, each in steps.items()
        for row in assess(replace(model, preprocessing=each), study, shifts, seed)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--seeds', type=int, default=10)
    parser.add_argument('--first-seed', type=int, default=0)
    parser.add_argument('--controls', type=int, default=100)
    parser.add_argument('--nprocs', type=int, default=2)
    options = parser.parse_args()
    model = TableModel.fit(learn(DESIGNS[0], options.controls, options.first_seed)[0], TRAINING)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    cases = [(design, seed) for design in DESIGNS for seed in seeds]
    with ProcessPoolExecutor(options.nprocs, get_context('spawn')) as pool:
        drawn = pool.map(partial(draw, model, options.controls), *zip(*cases))
        rows = [row for rows in drawn for row in rows]
    table = pd.DataFrame(rows)
    numbers = table.groupby(['design', 'measure', 'sites_from'], sort=False).agg(
        participants=('participants', 'sum'),
        rms_bias_per_year=('rms_bias_per_year', lambda bias: np.sqrt(np.mean(bias**2))),
        false_reliable=('false_reliable', 'mean'),
        false_reliable_at_one_site=('false_reliable_at_one_site', 'mean'),
    )
    before = numbers['rms_bias_per_year'].groupby(level=['design', 'measure']).transform('first')
    numbers['bias_removed'] = 1 - numbers['rms_bias_per_year'] / before
    summary = numbers.reset_index().round(4)
    summary.insert(0, 'controls', options.controls)
    summary.insert(1, 'seeds', f'{seeds[0]}-{seeds[-1]}')
    print(summary.to_string(index=False))
    write_results('longitudinal', summary, 'surreal_bids', 'torch')


if __name__ == '__main__':
    main()
