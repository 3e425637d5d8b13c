"""Accuracy of the default, without training options, on people not used for any choice.

    python benchmarks/default_fit.py tasks sizes number null --seeds 41 42 43 [--jobs 8]

- tasks: the paper's five with M = 3 given, 492 + 900 participants.
- sizes: basic in smaller cohorts.
- number: the chosen M if 1 to 5 are true, in cohorts of three sizes with three kinds of severities;
  every other cohort has mild effects.
- null: the same cohorts with shuffled labels.

Each c-index is compared with that of the linear factors alone, and with ridge regression that is
given the true severities of nine tenths of the patients and predicts those of the others.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import numpy as np
from machine import one_thread, write_results
from numpy.typing import NDArray
from scipy.stats import beta, norm
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict

from surreal_bids.harmonization.covariates import CN_MEAN, CN_SD
from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.factors import fit_factors
from surreal_bids.model.number import choose_number
from surreal_bids.simulation.tables import SEVERITY_COLUMNS, TASKS, sample_controls, simulate_table
from surreal_bids.stats.concordance import pattern_c_index

Floats = NDArray[np.float64]
Row = dict[str, Any]
Job = tuple[str, str, int]
"""What, which case of it, and the seed."""

SIZES = {'250 + 400': (250, 400), '120 + 180': (120, 180), '60 + 90': (60, 90)}
PAPER_SIZE = (492, 900)
N_PATTERNS = 3
REGIONS_OF_PATTERN = (6, 14)
LOSS, MILD_LOSS, NOISE = 0.3, 0.2, 0.05
"""Part of a region that is lost at severity 1; relative noise of it."""
CORRELATION = 0.3
SKEWED = (1.0, 2.0)
"""Parameters of the Beta distribution of skewed severities."""


def normalise(values: Floats, patient: NDArray) -> Floats:
    """Scale every region to the mean and spread of normalised controls."""
    cn = values[~patient]
    return CN_MEAN + CN_SD * (values - cn.mean(axis=0)) / cn.std(axis=0)


def simulate(task: str, size: tuple[int, int], seed: int) -> tuple[Floats, NDArray, Floats]:
    """CN-normalised participants of a task, who is a patient, and the patients' severities."""
    table = simulate_table(task, *size, seed)
    volumes = table.volumes.drop(columns='participant_id').to_numpy()
    patient = (table.participants['diagnosis'] == 'PT').to_numpy()
    X = normalise(volumes, patient)
    return X, patient, table.severities[SEVERITY_COLUMNS].to_numpy()[patient]


def score(X: Floats, patient: NDArray, truth: Floats) -> Row:
    """C-indices of the default with M given, of the linear factors, and of ridge regression."""
    m, pt = truth.shape[1], X[patient]
    begin, cpu = time.perf_counter(), time.process_time()
    gan = SurrealGAN(m).fit(X, patient)
    row = {'seconds': time.perf_counter() - begin, 'cpu_seconds': time.process_time() - cpu}
    ridge = RidgeCV(np.logspace(-3, 3, 25))
    told = cross_val_predict(ridge, (pt - CN_MEAN) / CN_SD, truth, cv=10)
    factors = fit_factors(X[~patient], pt, m)
    return {
        'c_index': pattern_c_index(gan.transform(pt), truth),
        'factors': pattern_c_index(factors.severities(pt), truth),
        'supervised': pattern_c_index(told, truth),
        'agreement': gan.selected_.agreement,
        'members': len(gan.members_),
        **row,
    }


def cohort_of_patterns(case: int, seed: int) -> tuple[Floats, NDArray, int]:
    """Simulate a cohort with 1 to 5 disjoint patterns; sizes, effects and severities vary."""
    rng = np.random.default_rng([seed, case])
    n_patterns = 1 + case % 5
    n_cn, n_pt = [PAPER_SIZE, *list(SIZES.values())[:2]][case % 3]
    volumes = sample_controls(n_cn + n_pt, rng).volumes.to_numpy(copy=True)
    kind = ('uniform', 'skewed', 'correlated')[case // 3 % 3]
    covariance = np.eye(n_patterns)
    if kind == 'correlated':
        covariance = (1 - CORRELATION) * covariance + CORRELATION
    true = norm.cdf(rng.multivariate_normal(np.zeros(n_patterns), covariance, size=n_pt))
    if kind == 'skewed':
        true = beta.ppf(true, *SKEWED)
    loss = MILD_LOSS if case % 2 else LOSS
    free = rng.permutation(volumes.shape[1])
    for k in range(n_patterns):
        columns, free = np.split(free, [rng.integers(*REGIONS_OF_PATTERN, endpoint=True)])
        share = loss * true[:, [k]] * rng.normal(1, NOISE, (n_pt, len(columns)))
        volumes[n_cn:, columns] *= 1 - share
    patient = np.repeat([False, True], [n_cn, n_pt])
    return normalise(volumes, patient), patient, n_patterns


def choose(X: Floats, patient: NDArray) -> Row:
    """Return the number of patterns chosen by stability."""
    begin = time.process_time()
    number = choose_number(X[~patient], X[patient])
    values = {each.n_patterns: each for each in number.stabilities}
    best = values.get(number.n_patterns, values[1])
    return {
        'chosen': number.n_patterns,
        'stability': best.value,
        'null': max(best.null),
        'cpu_seconds': time.process_time() - begin,
    }


def run(job: Job) -> Row:
    """One row of the table."""
    what, case, seed = job
    named = {'what': what, 'case': case, 'seed': seed}
    if what == 'tasks':
        return named | score(*simulate(case, PAPER_SIZE, seed))
    if what == 'sizes':
        return named | score(*simulate('basic', SIZES[case], seed))
    X, patient, true = cohort_of_patterns(int(case), seed)
    if what == 'null':
        patient, true = np.random.default_rng([seed, int(case), 1]).permutation(patient), 0
        X = normalise(X, patient)
    return named | {'true': true} | choose(X, patient)


def jobs_of(what: Iterable[str], seeds: list[int], cohorts: int) -> Iterator[Job]:
    """List everything to run; cohorts need one seed, because all of them differ."""
    cases = {'tasks': list(TASKS), 'sizes': list(SIZES)}
    for each in what:
        for case in cases.get(each, []):
            yield from ((each, case, seed) for seed in seeds)
        if each == 'number':
            yield from ((each, str(case), seeds[0]) for case in range(cohorts))
        if each == 'null':
            yield from ((each, str(case), seeds[0]) for case in range(cohorts * 2 // 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ('tasks', 'sizes', 'number', 'null')
    parser.add_argument('what', nargs='+', choices=known)
    parser.add_argument('--seeds', type=int, nargs='+', default=[41, 42, 43])
    parser.add_argument('--cohorts', type=int, default=30, help='of number; null has two thirds')
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    rows = []
    context = multiprocessing.get_context('spawn')
    with ProcessPoolExecutor(arguments.jobs, context, one_thread) as processes:
        todo = jobs_of(arguments.what, arguments.seeds, arguments.cohorts)
        for future in as_completed([processes.submit(run, job) for job in todo]):
            rows.append(future.result())
            print(rows[-1], flush=True)
    rows.sort(key=lambda row: (known.index(row['what']), row['case'], row['seed']))
    name = '_'.join(('default_fit', *arguments.what))
    write_results(name, rows, 'torch', 'numpy')


if __name__ == '__main__':
    main()
