"""Tests whether changes between visits are called reliable when they should be, and only then.

    python benchmarks/visits.py [--twice SET VOLUMES.tsv] [--n 492 900] [--seed 0]
    python benchmarks/visits.py groups

A model is trained on simulated participants (task basic). Others are measured twice, two years
apart. Everyone ages as the built-in population does. One third of the patients each lose 2 % per
year in the regions of one pattern; the rest lose nothing. Volumes and head sizes have the noise of
the package (`surreal_bids/data/retest.tsv`), with which changes are compared; and also with noise
estimated from five simulated pairs of scans, resampled. With `--twice` (as for `retest.py`), errors
are also the real differences of the five people scanned twice, each compared with the noise of the
other four.

`groups` compares the change per year of groups that change alike, with a mixed model.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from machine import write_results
from numpy.typing import NDArray
from retest import MATES, held_out_ratio, read_pairs

from surreal_bids.analysis.change import describe_changes
from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.cohort.retest import estimate_noise
from surreal_bids.config import CohortOptions, TrainingOptions
from surreal_bids.rindices import measurement_noise
from surreal_bids.rindices.model import TableModel
from surreal_bids.simulation.population import built_in_population, volume_columns
from surreal_bids.simulation.tables import TASKS, simulate_table
from surreal_bids.stats.concordance import match_patterns
from surreal_bids.stats.mixed import RANDOM_SLOPES, compare_change

TASK = TASKS['basic']
LOSS_PER_YEAR, YEARS = 0.02, 2
PACKAGES = ('surreal_bids', 'torch')
COHORTS = (((15, 15), 2, 1), ((15, 15), 2, 4), ((15, 15), 4, 1), ((20, 60), 2, 1))
"""Controls and patients, visits, and most years between two of them, of simulated R-indices."""

VISITED = (600, 1200)
"""Controls and patients who come twice."""


@dataclass(frozen=True)
class Truth:
    """Participants with two visits: volumes, head sizes and true losses."""

    people: pd.DataFrame
    volumes: tuple[NDArray, NDArray]
    losing: NDArray
    """Pattern, or -1 for none."""

    def some(self, chosen: slice) -> Truth:
        """Some of the participants."""
        first, second = (volumes[chosen] for volumes in self.volumes)
        people = self.people.iloc[chosen].reset_index(drop=True)
        return Truth(people, (first, second), self.losing[chosen])


def simulate_truth(seed: int) -> Truth:
    simulated = simulate_table('basic', *VISITED, seed=seed)
    first = simulated.volumes[volume_columns()].to_numpy()
    patient = (simulated.participants['diagnosis'] == 'PT').to_numpy()
    losing = np.where(patient, np.arange(len(patient)) % (len(TASK.patterns) + 1) - 1, -1)
    second = first * np.exp(built_in_population().known[0] * YEARS / 10)
    columns = [int(name.removeprefix('MUSE_')) for name in volume_columns()]
    for number, pattern in enumerate(TASK.patterns):
        rows = np.ix_(losing == number, np.isin(columns, pattern))
        second[rows] *= (1 - LOSS_PER_YEAR) ** YEARS
    return Truth(simulated.participants, (first, second), losing)


def simulated_errors(rng: np.random.Generator, noise: pd.Series, n: int) -> NDArray:
    """Simulate log errors of one measurement: (N, S + 1), head size first."""
    own = rng.normal(size=(n, len(noise) - 1)) * noise.drop(measurement_noise.SHARED).to_numpy()
    return own + rng.normal(0, noise[measurement_noise.SHARED], (n, 1))


def write_visits(truth: Truth, errors: tuple[NDArray, NDArray], path: Path) -> None:
    tables = []
    for number, (volumes, error) in enumerate(zip(truth.volumes, errors)):
        table = truth.people.assign(
            session_id=f'ses-{number + 1}',
            scan_date=f'{2010 + YEARS * number}-06-01',
            age=truth.people['age'] + YEARS * number,
            icv=truth.people['icv'] * np.exp(error[:, 0]),
        )
        measured = pd.DataFrame(volumes * np.exp(error[:, 1:]), columns=volume_columns())
        tables.append(pd.concat([table, measured], axis=1))
    pd.concat(tables).to_csv(path, sep='\t', index=False)


def called(truth: Truth, model: TableModel, errors: tuple[NDArray, NDArray]) -> pd.DataFrame:
    """Return changes of everyone with their true loss; R-indices are named by their patterns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'visits.tsv'
        write_visits(truth, errors, path)
        cohort = read_cohort(
            path, options=CohortOptions(), model=model.preprocessing.requirements, adapt=False
        )
    results = model.apply(cohort)
    harmonized = model.preprocessing.harmonize(cohort.features, cohort.people)
    noise = measurement_noise.noise_of_indices(model, cohort)
    changes = describe_changes(cohort, results, harmonized, noise)
    losing = dict(zip(truth.people['participant_id'], truth.losing))
    return changes.assign(losing=changes['participant_id'].map(losing))


def summarise(changes: pd.DataFrame, name_of: dict[int, str]) -> Iterator[dict]:
    """Return the share of participants with a reliable change."""
    reliable = changes.assign(reliable=changes['reliable'] == 'true')
    is_index = reliable['measure'].isin(name_of.values())
    unchanged = reliable['losing'] == -1
    for what, rows in (('R-index', is_index), ('region', ~is_index)):
        own = reliable[rows & unchanged]
        yield {'loses': 'nothing', 'called': f'any {what}', **share(own)}
    for number, name in name_of.items():
        own = reliable[(reliable['losing'] == number) & is_index]
        right = own[(own['measure'] == name) & (own['change'] > 0)]
        others = own[own['measure'] != name]
        loses = f'pattern {number + 1}'
        moved = {'change': right['change'].mean(), 'noise': right['noise'].mean()}
        yield {'loses': loses, 'called': 'its R-index', **share(right, own), **moved}
        yield {'loses': loses, 'called': 'any other R-index', **share(others)}


def share(rows: pd.DataFrame, of: pd.DataFrame | None = None) -> dict[str, float]:
    """Participants with a reliable change among these rows, of all participants."""
    n = (rows if of is None else of)['participant_id'].nunique()
    found = rows.loc[rows['reliable'], 'participant_id'].nunique()
    return {'participants': n, 'share': found / n}


def train(folder: Path, n: tuple[int, int], seed: int) -> tuple[TableModel, Cohort, pd.DataFrame]:
    """Train a model on measured volumes; return it with its cohort."""
    simulated = simulate_table('basic', *n, seed=seed)
    rng = np.random.default_rng(seed)
    errors = simulated_errors(rng, noise_of_one(), len(simulated.volumes))
    measured = simulated.volumes.copy()
    measured[volume_columns()] *= np.exp(errors[:, 1:])
    people = simulated.participants.assign(icv=lambda t: t['icv'] * np.exp(errors[:, 0]))
    measured.to_csv(folder / 'volumes.tsv', sep='\t', index=False)
    people.to_csv(folder / 'participants.tsv', sep='\t', index=False)
    cohort = read_cohort(folder / 'volumes.tsv', folder / 'participants.tsv')
    model = TableModel.fit(cohort, TrainingOptions(n_patterns=(3,), device='cpu'))
    return model, cohort, simulated.severities.set_index('participant_id')


def noise_of_one() -> pd.Series:
    table = pd.read_csv(
        measurement_noise.NOISE_TABLE, sep='\t', dtype={'index': str}, na_values='n/a'
    )
    return table.set_index('index')['noise']


def names_by_pattern(model: TableModel, cohort: Cohort, severities: pd.DataFrame) -> dict[int, str]:
    """Match R-indices to true patterns by correlation among patients."""
    patients = cohort.select(cohort.is_patient)
    found = model.apply(patients)[list(model.pattern_names)]
    true = severities.loc[patients.visits['participant_id']]
    both = [(t - t.mean()) / t.std(ddof=0) for t in (found, true)]
    correlation = both[0].to_numpy().T @ both[1].to_numpy() / len(found)
    order = match_patterns(correlation)
    return {number: model.pattern_names[own] for number, own in enumerate(order)}


def reliable(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model, cohort, severities = train(Path(folder), tuple(options.n), options.seed)
    name_of = names_by_pattern(model, cohort, severities)
    truth = simulate_truth(options.seed + 1000)
    rng = np.random.default_rng(options.seed)
    n, noise = len(truth.losing), noise_of_one()
    errors = simulated_errors(rng, noise, n), simulated_errors(rng, noise, n)
    prefix_errors = {'trained_on': ' + '.join(map(str, options.n)), 'seed': options.seed}
    rows = [
        {**prefix_errors, 'errors': 'simulated', **row}
        for row in summarise(called(truth, model, errors), name_of)
    ]
    rows += [
        {**prefix_errors, 'errors': 'simulated, noise of five pairs', **row}
        for row in summarise(noise_learned_anew(truth, model, rng), name_of)
    ]
    if options.twice:
        rows += [
            {**prefix_errors, 'errors': 'of people scanned twice', **row}
            for row in summarise(real_errors(truth, model, *options.twice), name_of)
        ]
    table = pd.DataFrame(rows).round(4)
    print(table.drop(columns=['trained_on', 'seed']).to_string(index=False))
    write_results('visits', table, *PACKAGES)


def noise_learned_anew(
    truth: Truth, model: TableModel, rng: np.random.Generator, draws: int = 40, part: int = 20
) -> pd.DataFrame:
    """The same with noise estimated from five pairs, resampled for each part of the people."""
    known = noise_of_one()
    volumes = pd.Series(np.median(truth.volumes[0], axis=0), known.index[2:])
    volumes[measurement_noise.HEAD_SIZE] = truth.people['icv'].median()
    parts = []
    for number in range(draws):
        pairs = [simulated_errors(rng, known, measurement_noise.PAIRS) for _ in range(2)]
        differences = pd.DataFrame(pairs[1] - pairs[0], columns=known.index[1:])
        own = truth.some(slice(number % part, None, part))
        errors = [simulated_errors(rng, known, len(own.losing)) for _ in range(2)]
        with known_noise(estimate_noise(differences, volumes, MATES), volumes):
            found = called(own, model, (errors[0], errors[1]))
        parts.append(found.assign(participant_id=found['participant_id'] + f'_{number}'))
    return pd.concat(parts)


@contextmanager
def known_noise(found: pd.DataFrame, volumes: pd.Series) -> Iterator[None]:
    """Replace the noise of the package."""
    known = measurement_noise._noise_table
    table = found.assign(volume_mm3=volumes.reindex(found.index))
    measurement_noise._noise_table = lambda: table
    try:
        yield
    finally:
        measurement_noise._noise_table = known


def real_errors(truth: Truth, model: TableModel, folder: Path, volumes: Path) -> pd.DataFrame:
    """The same with differences of one of the five pairs as errors of the second visit.

    Changes are compared with the noise of the other four.
    """
    differences, means = read_pairs(folder, volumes)
    larger = held_out_ratio(differences)
    n, parts = len(truth.losing), []
    for number, (person, pair) in enumerate(differences.iterrows()):
        sign = np.where(np.arange(n) % 2, 1, -1)[:, np.newaxis]
        error = sign * pair.to_numpy() * larger
        noise = estimate_noise(differences.drop(person), means, MATES)
        with known_noise(noise.assign(noise=noise['noise'] * larger), means):
            found = called(truth, model, (np.zeros_like(error), error))
        parts.append(found.assign(participant_id=found['participant_id'] + f'_{number}'))
    return pd.concat(parts)


def groups(draws: int = 200) -> None:
    """Measure how often a difference is found without and with a true one."""
    rng = np.random.default_rng(0)
    rows = []
    for design, slope_sd, difference in product(COHORTS, (0.0, 0.03), (0.0, 0.03)):
        people, visits, most_years = design
        found = [compare_change(**draw(rng, *design, slope_sd, difference)) for _ in range(draws)]
        held = [each.low < difference < each.high for each in found]
        rows.append(
            {
                'controls': people[0],
                'patients': people[1],
                'visits': visits,
                'most_years': most_years,
                'slope_sd': slope_sd,
                'difference': difference,
                'draws': draws,
                'p_below_0.05': np.mean([each.p < 0.05 for each in found]),
                'interval_holds': np.mean(held),
                'found': np.mean([each.difference for each in found]),
                'random_slopes': np.mean([each.slopes == RANDOM_SLOPES for each in found]),
            }
        )
        print(rows[-1], flush=True)
    write_results('visits_groups', pd.DataFrame(rows).round(4), *PACKAGES, 'statsmodels')


def draw(
    rng: np.random.Generator,
    people: tuple[int, int],
    visits: int,
    most_years: float,
    slope_sd: float,
    difference: float,
) -> dict[str, pd.Series]:
    """Simulate R-indices of a cohort, at visits about a year apart, or up to `most_years`."""
    patient = np.repeat([False, True], people)
    n = len(patient)
    years = np.arange(visits) + rng.uniform(-0.2, 0.2, (n, visits))
    years *= rng.uniform(1, most_years, (n, 1))
    slope = 0.02 + difference * patient + rng.normal(0, slope_sd, n)
    start = 0.1 + 0.3 * patient + rng.normal(0, 0.2, n)
    values = start[:, None] + slope[:, None] * years + rng.normal(0, 0.025, years.shape)
    return {
        'values': pd.Series(values.ravel()),
        'years': pd.Series(years.ravel()),
        'participant': pd.Series(np.repeat(np.arange(n), visits)),
        'is_patient': pd.Series(np.repeat(patient, visits)),
    }


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('action', nargs='?', choices=('reliable', 'groups'), default='reliable')
    parser.add_argument('--twice', nargs=2, type=Path, metavar=('SET', 'VOLUMES.tsv'))
    parser.add_argument('--n', nargs=2, type=int, default=(492, 900))
    parser.add_argument('--seed', type=int, default=0)
    options = parser.parse_args()
    groups() if options.action == 'groups' else reliable(options)


if __name__ == '__main__':
    main()
