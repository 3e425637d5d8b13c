"""Verdicts of `surreal-gan replicate` where the truth is known.

    python benchmarks/replicate.py [PROCESSES] [--studies N] [--size CN PT]

Each study is one half of a simulated study of the basic task. Its patterns are looked for in four
cohorts of the same size: the other half, an independent twin, a cohort with another disease (three
patterns of regions that vary together, none of them a region of the study), and one without
disease. Training is short. The last column compares both final models in new patients.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from machine import one_thread, write_results
from planning import true_covariance
from tqdm import tqdm

from surreal_bids.analysis.replication import (
    NOT_ASSESSED,
    REPLICATED,
    prepare_own,
    replicate,
    train_own,
)
from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.config import TrainingOptions
from surreal_bids.files import write_tsv
from surreal_bids.harmonization.quality import without_warnings
from surreal_bids.regions import muse_indices
from surreal_bids.rindices.model import TableModel, prepare, select_model
from surreal_bids.simulation.tables import (
    N_PATTERNS,
    TASKS,
    sample_controls,
    sample_severities,
    shrink_regions,
    volume_columns,
)

TASK = 'basic'
N_REGIONS = 12
"""Regions of each pattern of another disease."""

N_NEW = 500
"""Patients in whom final models are compared."""

LIMITS = {'difference of halves and twins': 0.05, 'other disease replicated': 1 / 20}
"""Most that is accepted."""


def short_training(seed: int) -> TrainingOptions:
    return TrainingOptions(
        n_patterns=(N_PATTERNS,),
        repetitions=4,
        iterations=400,
        folds=3,
        device='cpu',
        random_seed=seed,
    )


def patterns_of_task() -> list[list[int]]:
    """Columns of the regions of each pattern of the task."""
    place = {index: column for column, index in enumerate(muse_indices())}
    return [[place[index] for index in pattern] for pattern in TASKS[TASK].patterns]


def patterns_of_another(rng: np.random.Generator) -> list[list[int]]:
    """Columns of the regions of another disease: a random one each, and those most like it."""
    covariance = true_covariance()
    sd = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(sd, sd)
    is_free = np.ones(len(sd), dtype=bool)
    for columns in patterns_of_task():
        is_free[columns] = False
    patterns = []
    for _ in range(N_PATTERNS):
        first = rng.choice(np.flatnonzero(is_free))
        nearest = np.argsort(-np.where(is_free, correlation[first], -np.inf), kind='stable')
        patterns.append(nearest[:N_REGIONS].tolist())
        is_free[patterns[-1]] = False
    return patterns


def simulate(
    size: Sequence[int], patterns: Sequence[Sequence[int]], rng: np.random.Generator, name: str
) -> pd.DataFrame:
    """Simulate controls and patients with these patterns: volumes and facts in one table."""
    n_cn, n_pt = size
    healthy = sample_controls(n_cn + n_pt, rng)
    volumes = healthy.volumes.to_numpy(copy=True)
    task = TASKS[TASK]
    if patterns:
        volumes[n_cn:] = shrink_regions(
            volumes[n_cn:],
            sample_severities(n_pt, rng),
            patterns,
            task.max_loss,
            task.noise_sd,
            rng,
        )
    ids = [f'sub-{name}{number:04}' for number in range(n_cn + n_pt)]
    people = healthy.people.reset_index(drop=True)
    people = people.assign(participant_id=ids, diagnosis=['CN'] * n_cn + ['PT'] * n_pt)
    return people.join(pd.DataFrame(volumes, columns=volume_columns()))


def read(table: pd.DataFrame, model: TableModel | None = None) -> Cohort:
    """Read a table as the commands do; `model`: to apply it."""
    needs = None if model is None else model.preprocessing.requirements
    with tempfile.TemporaryDirectory() as folder:
        path = write_tsv(Path(folder) / 'table.tsv', table)
        return read_cohort(path, model=needs)


def examine(seed: int, size: Sequence[int]) -> list[dict[str, object]]:
    """Look for the patterns of one study in four cohorts; one row per cohort and pattern."""
    rng = np.random.default_rng([seed, 54])
    options, disease = short_training(seed), patterns_of_task()
    study = simulate([2 * n for n in size], disease, rng, 'study')
    is_first_half = np.arange(len(study)) % 2 == 0
    cohorts = {
        'other half': study[~is_first_half].reset_index(drop=True),
        'independent twin': simulate(size, disease, rng, 'twin'),
        'another disease': simulate(size, patterns_of_another(rng), rng, 'other'),
        'no disease': simulate(size, [], rng, 'none'),
    }
    new = simulate((size[0], N_NEW), disease, rng, 'new')
    rows = []
    with without_warnings():
        first_half = read(study[is_first_half].reset_index(drop=True))
        model = select_model(prepare(first_half), options, assess_number=False)
        for name, table in cohorts.items():
            cohort = read(table, model)
            found = replicate(model, cohort, options)
            truth = _compare_in_new(model, cohort, options, new) if found.has_patterns else {}
            rows += [
                {'cohort': name, 'seed': seed, 'number': found.number.n_patterns}
                | row
                | {'agreement in new patients': truth.get(row.get('matched_pattern'))}
                for row in found.forward.patterns.to_dict('records')
            ]
    return rows


def _compare_in_new(
    model: TableModel, cohort: Cohort, options: TrainingOptions, new: pd.DataFrame
) -> dict[str, float]:
    """Highest correlation of each pattern of the cohort with one of the model, in new patients."""
    data, _ = prepare_own(cohort, options)
    own = train_own(data, None, options, N_PATTERNS).model
    everyone = read(new, model)
    patients = everyone.select(everyone.is_patient)
    both = [each.apply(patients)[list(each.pattern_names)] for each in (own, model)]
    correlation = np.corrcoef(both[0].T, both[1].T)[:N_PATTERNS, N_PATTERNS:]
    return dict(zip(own.pattern_names, correlation.max(axis=1)))


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean of the numbers, and share of each verdict, per kind of cohort."""
    numbers = ['agreement', 'agreement_reference', 'similarity', 'similarity_reference', 'auc']
    numbers += ['agreement in new patients']
    means = rows.groupby('cohort', sort=False)[numbers].mean().round(3)
    verdicts = pd.crosstab(rows['cohort'], rows['verdict'], normalize='index').round(3)
    return means.join(verdicts)


def check(rows: pd.DataFrame) -> pd.DataFrame:
    """What must hold, one row each."""
    of_cohort = dict(list(rows.groupby('cohort')))
    halves, twins = of_cohort['other half'], of_cohort['independent twin']
    difference = abs(halves['agreement'].mean() - twins['agreement'].mean())
    other = of_cohort['another disease'].groupby('seed')['verdict']
    is_replicated = other.apply(lambda verdicts: (verdicts == REPLICATED).any())
    healthy = of_cohort['no disease'].groupby('seed')['verdict']
    says_so = healthy.apply(lambda verdicts: (verdicts == NOT_ASSESSED).all())
    values = {
        'difference of halves and twins': difference,
        'other disease replicated': is_replicated.mean(),
        'cohort without disease says so': says_so.mean(),
    }
    table = pd.DataFrame({'value': values})
    return table.assign(at_most=table.index.map(LIMITS)).round(3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('processes', type=int, nargs='?', default=1)
    parser.add_argument('--studies', type=int, default=20)
    parser.add_argument('--size', type=int, nargs=2, default=(150, 200), metavar=('CN', 'PT'))
    parser.add_argument('--write', action='store_true', help='write the rows to results')
    arguments = parser.parse_args()
    work, seeds = partial(examine, size=arguments.size), range(arguments.studies)
    context = multiprocessing.get_context('spawn')
    with ProcessPoolExecutor(arguments.processes, context, one_thread) as processes:
        found = list(tqdm(processes.map(work, seeds), total=len(seeds)))
    rows = pd.DataFrame([row for of_study in found for row in of_study])
    print(rows.round(2).to_string())
    print(summarise(rows).to_string())
    print(check(rows).to_string())
    if arguments.write:
        write_results('replicate', rows.round(4), 'torch')


if __name__ == '__main__':
    main()
