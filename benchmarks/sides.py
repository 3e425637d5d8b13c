"""How stable too many patterns are where both sides of a structure are one feature.

    python benchmarks/sides.py [PROCESSES] [--seeds 1 2 4] [--write]

Prints, for each family of cohorts and each limit of stability, how often the number of patterns is
right, too large and too small. Patterns change the same structures on both sides. Permutations are
not run, since they do not depend on the limit. The limit in use was chosen with the results of the
seeds 1, 2 and 4 in view: other seeds are needed to judge it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from machine import one_thread, write_results
from numpy.typing import NDArray
from scipy.stats import norm
from tqdm import tqdm

from surreal_bids.cohort.cohort import Cohort
from surreal_bids.files import write_tsv
from surreal_bids.model.number import LEAST_FOR_ONE, REPEATS, UNCLEAR, stability
from surreal_bids.model.number import one_thread as one_thread_of_factors
from surreal_bids.regions import muse_indices, region_mates
from surreal_bids.rindices.model import prepare
from surreal_bids.simulation.tables import TASKS, sample_controls, simulate_table, volume_columns

Floats = NDArray[np.floating]

SIZES = ((100, 92), (150, 250), (492, 900))
"""Controls and patients."""

FAMILIES = {'sparse': 1, 'mild': 2, 'corr': 3, 'dense': 4, 'skew': 5}
"""Families of cohorts with one to four patterns, each with its stream of random numbers: few
structures per pattern, with smaller losses, with correlated severities, 40 % of the structures per
pattern (graded losses, correlated severities), and mostly mild severities."""

CORRELATION, LOSS, SMALL_LOSS, NOISE = 0.4, 0.3, 0.2, 0.1
"""Correlation of severities; share of a region that is lost at severity 1; relative noise of it."""

SHARE_OF_DENSE = 0.4
"""Share of the structures that a dense pattern changes."""

STREAM = 5477

LIMITS = (0.75, 0.8, 0.82, 0.85, 0.9)


class Case(NamedTuple):
    """A cohort: its family or task, controls and patients, the seed, and its true number."""

    family: str
    size: tuple[int, int]
    seed: int
    n_patterns: int


def list_cases(seeds: list[int]) -> Iterator[Case]:
    """List the cohorts, the largest ones of each seed first; even seeds have fewer of them."""
    for seed in seeds:
        numbers = (1, 2, 3, 4) if seed % 2 else (2, 3)
        for size in reversed(SIZES):
            for task in TASKS:
                yield Case(f'task {task}', size, seed, 3)
            for family in FAMILIES:
                for n_patterns in numbers:
                    yield Case(family, size, seed, n_patterns)


def simulate(case: Case) -> pd.DataFrame:
    """Simulate a table of volumes and facts about participants."""
    n_cn, n_pt = case.size
    if case.family.startswith('task '):
        simulated = simulate_table(case.family.removeprefix('task '), n_cn, n_pt, case.seed)
        return simulated.participants.merge(simulated.volumes, on='participant_id')
    stream = [case.seed, case.n_patterns, SIZES.index(case.size), FAMILIES[case.family], STREAM]
    rng = np.random.default_rng(stream)
    healthy = sample_controls(n_cn + n_pt, rng)
    volumes = healthy.volumes.to_numpy(copy=True)
    severities = sample_severities(case, rng)
    structures = list_structures()
    order = list(rng.permutation(len(structures)))
    for pattern in range(case.n_patterns):
        if case.family == 'dense':
            loss_of = dense_losses(volumes[:n_cn], structures, rng)
        else:
            size = int(rng.integers(4, 9))
            chosen = [order.pop() for _ in range(min(size, len(order)))]
            loss_of = dict.fromkeys(chosen, SMALL_LOSS if case.family == 'mild' else LOSS)
        for number, loss in loss_of.items():
            for column in structures[number]:
                share = severities[:, pattern] * loss * rng.normal(1, NOISE, n_pt)
                volumes[n_cn:, column] *= 1 - np.clip(share, 0, 0.7)
    table = pd.DataFrame(volumes, columns=volume_columns()).join(healthy.people)
    ids = [f's{number:04d}' for number in range(n_cn + n_pt)]
    return table.assign(participant_id=ids, diagnosis=['CN'] * n_cn + ['PT'] * n_pt)


def sample_severities(case: Case, rng: np.random.Generator) -> Floats:
    """Sample severities of patients (N, M)."""
    shape = (case.size[1], case.n_patterns)
    severities = rng.uniform(size=shape)
    if case.family in ('corr', 'dense'):
        shared = rng.standard_normal((shape[0], 1))
        own = rng.standard_normal(shape)
        severities = norm.cdf(np.sqrt(CORRELATION) * shared + np.sqrt(1 - CORRELATION) * own)
    if case.family == 'skew':
        severities = rng.beta(1, 2, size=shape)
    return severities


def list_structures() -> list[tuple[int, ...]]:
    """List the columns of each structure: those of both sides, or that of a midline region."""
    indices, mates = list(muse_indices()), region_mates()
    position = {index: column for column, index in enumerate(indices)}
    structures = []
    for index in indices:
        mate = mates.get(index)
        if mate is None:
            structures.append((position[index],))
        elif index < mate:
            structures.append((position[index], position[mate]))
    return structures


def dense_losses(
    controls: Floats, structures: list[tuple[int, ...]], rng: np.random.Generator
) -> dict[int, float]:
    """Sample graded losses of 40 % of the structures, alike in those that vary together."""
    first_columns = [columns[0] for columns in structures]
    correlation = np.corrcoef(np.log(controls[:, first_columns]).T)
    weights = correlation @ rng.standard_normal(len(structures))
    weights = np.clip(weights - np.quantile(weights, 1 - SHARE_OF_DENSE), 0, None)
    losses = SMALL_LOSS * weights / weights.max()
    return {number: float(loss) for number, loss in enumerate(losses) if loss > 0}


def measure(case: Case) -> dict[str, object]:
    """Measure the stability of each number up to one more than the true one, three times."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_tsv(Path(folder) / 'table.tsv', simulate(case))
        cohort = Cohort.read(path)
    X, is_patient = prepare(cohort, with_regions=False).arrays
    values = X.to_numpy()
    stabilities = {}
    with one_thread_of_factors():
        for m in range(1, case.n_patterns + 2):
            seeds = [(0, 1, repeat) for repeat in range(REPEATS)]
            found = [stability(values[~is_patient], values[is_patient], m, seed) for seed in seeds]
            stabilities[m] = [round(value, 4) for value in found]
    return {
        'family': case.family,
        'n_cn': case.size[0],
        'seed': case.seed,
        'n_patterns': case.n_patterns,
        'stabilities': json.dumps(stabilities),
    }


def choose(stabilities: dict[str, list[float]], least_of_several: float) -> int:
    """Choose the number as `surreal_bids.model.number` does, without permutations."""
    chosen = 0
    for number, repeats in sorted((int(name), values) for name, values in stabilities.items()):
        needed = LEAST_FOR_ONE if number == 1 else least_of_several
        is_unclear = abs(repeats[0] - needed) < UNCLEAR
        value = np.mean(repeats) if is_unclear else repeats[0]
        if value >= needed:
            chosen = number
    return chosen


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Count right, too large and too small numbers for each limit and seed."""
    counts = []
    for limit in LIMITS:
        chosen = rows['stabilities'].map(lambda text, limit=limit: choose(json.loads(text), limit))
        difference = chosen - rows['n_patterns']
        for seed, of_seed in difference.groupby(rows['seed']):
            counts.append(
                {
                    'limit': limit,
                    'seed': seed,
                    'cohorts': len(of_seed),
                    'right': int((of_seed == 0).sum()),
                    'too large': int((of_seed > 0).sum()),
                    'too small': int((of_seed < 0).sum()),
                }
            )
    return pd.DataFrame(counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('processes', type=int, nargs='?', default=1)
    parser.add_argument('--seeds', type=int, nargs='+', default=[2, 1, 4])
    parser.add_argument('--write', action='store_true', help='write the rows to results')
    arguments = parser.parse_args()
    cases = list(list_cases(arguments.seeds))
    context = multiprocessing.get_context('spawn')
    with ProcessPoolExecutor(arguments.processes, context, one_thread) as processes:
        rows = pd.DataFrame(tqdm(processes.map(measure, cases), total=len(cases)))
    print(summarise(rows).to_string(index=False))
    if arguments.write:
        write_results('sides', rows, 'torch')


if __name__ == '__main__':
    main()
