"""Results of single participants with a known truth: contributions, intervals, centiles.

    python benchmarks/individual.py --seeds 81 82 83 [--jobs 4] [--tasks basic] [--sizes large]

Simulated cohorts (true volumes) are fitted as `surreal-gan fit --n-patterns 3` does, folds
included. Each seed is a new sample. For each cohort:

- region_auc: how well contributions to the R-index of a patient's strongest true pattern identify
  its regions (area under the curve; median over patients, and the lowest tenth).
- coverage: share of true severities of patients within the interval, in the unit of the R-index by
  the curve of the model's card (nothing is fitted to the truth); intended to be 0.68. Overall, and
  for each third of severity.
- half_width: mean half-width of the interval.
- beyond_95: share of out-of-fold controls and of patients above the 95th centile of controls.
- new_...: the same for new participants (another sample of the task) by the final model, as in
  `surreal-gan apply`.
- site_5_...: the same for patients of a new scanner, which the model has learned from 5, 10 or 20
  controls (`surreal-gan add-site`); the mean over several choices of these.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from machine import one_thread, write_results
from numpy.typing import NDArray
from planning import SITE_SHIFT
from sklearn.metrics import roc_auc_score

from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.config import CohortOptions, TrainingOptions, training_options
from surreal_bids.regions import muse_indices
from surreal_bids.rindices.crossfit import CrossFit, cross_fit, fit_folds, prepare_folds
from surreal_bids.rindices.model import INTERVALS, TableModel, prepare, select_model
from surreal_bids.rindices.new_sites import add_sites
from surreal_bids.rindices.uncertainty import SEVERITIES, add_standing
from surreal_bids.simulation.tables import (
    SEVERITY_COLUMNS,
    TASKS,
    simulate_table,
    write_simulated_table,
)
from surreal_bids.stats.concordance import match_patterns

Floats = NDArray[np.float64]
Row = dict[str, Any]

SIZES = {'large': (492, 900), 'small': (120, 180), 'tiny': (60, 90)}
N_PATTERNS = 3
NEW, NEW_SEED = (200, 600), 1_000_001
"""New controls and patients, and what is added to the seed that they are drawn with."""
SITE_CONTROLS, SITE_CHOICES = (5, 10, 20), 4


def fit(task: str, size: tuple[int, int], seed: int) -> tuple[Cohort, TableModel, CrossFit, Floats]:
    """Fit a cohort; return it with its models and the true severities of all visits."""
    table = simulate_table(task, *size, seed)
    with TemporaryDirectory() as folder:
        write_simulated_table(folder, table)
        tables = (Path(folder) / f'{name}.tsv' for name in ('roi_volumes', 'participants'))
        cohort = read_cohort(*tables, CohortOptions())
    options = training_options(TrainingOptions(n_patterns=(N_PATTERNS,), device='cpu'))
    model = select_model(prepare(cohort), options, assess_number=False)
    folds = prepare_folds(cohort, options)
    if folds is None:
        raise RuntimeError('too few participants to hold any out')
    fitted = cross_fit(cohort, model, *fit_folds(folds, model, options))
    known = table.severities.set_index('participant_id')[SEVERITY_COLUMNS]
    return cohort, model, fitted, known.loc[cohort.visits['participant_id']].to_numpy()


def score(
    task: str, cohort: Cohort, model: TableModel, fitted: CrossFit, truth: Floats, seed: int
) -> Row:
    """Compute all measures of a cohort."""
    names = np.array(model.pattern_names)
    begin = time.process_time()
    results, learned = add_standing(cohort, model, fitted)
    contributions = fitted.contributions(cohort)
    seconds = time.process_time() - begin
    patient = cohort.is_patient.to_numpy()
    r, true = results.loc[patient, names].to_numpy(), truth[patient]
    order = names[match_patterns(np.corrcoef(r.T, true.T)[: len(names), len(names) :])]
    return {
        **region_auc(task, contributions, cohort, true, order),
        **coverage(results[patient], true, order, learned),
        **beyond(results, patient, order),
        **score_new(task, replace(model, notes={**model.notes, **learned}), seed),
        'cpu_seconds': seconds,
    }


def score_new(task: str, model: TableModel, seed: int) -> Row:
    """Compute the measures of new participants by the final model, of known and of new scanners."""
    table = simulate_table(task, *NEW, seed + NEW_SEED)
    with TemporaryDirectory() as folder:
        write_simulated_table(folder, table)
        tables = (Path(folder) / f'{name}.tsv' for name in ('roi_volumes', 'participants'))
        steps = model.with_unseen_site('skip').preprocessing
        needed = steps.requirements
        cohort = read_cohort(*tables, CohortOptions(), model=needed, groups='compared', adapt=False)
    results = model.with_unseen_site('skip').apply(cohort)
    known = table.severities.set_index('participant_id')[SEVERITY_COLUMNS]
    truth = known.loc[cohort.visits['participant_id']].to_numpy()
    names, patient = np.array(model.pattern_names), truth.max(axis=1) > 0
    r, true = results.loc[patient, names].to_numpy(), truth[patient]
    order = names[match_patterns(np.corrcoef(r.T, true.T)[: len(names), len(names) :])]
    found = coverage(results[patient], true, order, model.notes)
    return {
        **{f'new_{name}': value for name, value in found.items()},
        **{f'new_{name}': value for name, value in beyond(results, patient, order).items()},
        **score_sites(model, cohort, truth, order, seed),
    }


def score_sites(model: TableModel, cohort: Cohort, truth: Floats, order: NDArray, seed: int) -> Row:
    """Compute the coverage in patients of a new scanner that was learned from few controls."""
    rng, site = np.random.default_rng([seed, 7]), cohort.people['site']
    chosen = (site == site.mode()[0]).to_numpy()  # The shifts of several sites are no scanner's.
    truth, here = truth[chosen], cohort.select(chosen)
    patient = truth.max(axis=1) > 0
    shift = np.exp(rng.normal(0, SITE_SHIFT, cohort.features.shape[1]))
    here = replace(
        here,
        features=here.features * shift,
        people=here.people.assign(scanner='new'),
        options=replace(model.preprocessing.options, site_column='scanner'),
    )
    found = {}
    for n_controls in SITE_CONTROLS:
        rows = []
        for _ in range(SITE_CHOICES):
            controls = rng.choice(np.flatnonzero(~patient), n_controls, replace=False)
            taught = add_sites(model, here.select(np.isin(np.arange(len(here)), controls)))
            results = taught.apply(here.select(patient))
            rows.append(coverage(results, truth[patient], order, model.notes))
        found |= {f'site_{n_controls}_{k}': v for k, v in pd.DataFrame(rows).mean().items()}
    return found


def region_auc(
    task: str, contributions: pd.DataFrame, cohort: Cohort, true: Floats, order: NDArray
) -> Row:
    """Measure how well contributions identify the regions of each patient's strongest pattern."""
    indices = muse_indices()
    is_of_pattern = [np.isin(indices, pattern) for pattern in TASKS[task].patterns]
    of_regions = contributions.drop(columns='baseline')
    areas = [
        roc_auc_score(is_of_pattern[strongest], of_regions.loc[(visit, order[strongest])])
        for visit, strongest in zip(cohort.visits.index[cohort.is_patient], true.argmax(axis=1))
    ]
    return {'region_auc': np.median(areas), 'region_auc_lowest_tenth': np.quantile(areas, 0.1)}


def coverage(results: pd.DataFrame, true: Floats, order: NDArray, notes: Mapping[str, Any]) -> Row:
    """Share of true severities within intervals, in the unit of the R-index."""
    held, widths = [], []
    for number, name in enumerate(order):
        expected = np.interp(
            true[:, number], SEVERITIES, notes[INTERVALS]['Patterns'][name]['Expected']
        )
        low, high = results[f'{name}_low'], results[f'{name}_high']
        held.append((low <= expected) & (expected <= high))
        widths.append((high - low).mean() / 2)
    inside, third = np.array(held).T, np.digitize(true, [1 / 3, 2 / 3])
    return {
        'coverage': inside.mean(),
        **{f'coverage_{name}': inside[third == k].mean() for k, name in enumerate(THIRDS)},
        'half_width': np.mean(widths),
    }


THIRDS = ('mild', 'moderate', 'severe')


def beyond(results: pd.DataFrame, patient: NDArray, order: NDArray) -> Row:
    """Share of each group above the 95th centile."""
    above = results[[f'{name}_centile' for name in order]].to_numpy() > 95
    return {
        'beyond_95_controls': above[~patient].mean(),
        'beyond_95_patients': above[patient].mean(),
    }


def run(job: tuple[str, str, int]) -> Row:
    """One row of the table."""
    task, size, seed = job
    begin = time.perf_counter()
    cohort, model, fitted, truth = fit(task, SIZES[size], seed)
    named = {'task': task, 'controls': SIZES[size][0], 'patients': SIZES[size][1], 'seed': seed}
    found = score(task, cohort, model, fitted, truth, seed)
    return named | found | {'seconds': time.perf_counter() - begin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tasks', nargs='+', choices=list(TASKS), default=['basic'])
    parser.add_argument('--sizes', nargs='+', choices=list(SIZES), default=list(SIZES))
    parser.add_argument('--seeds', type=int, nargs='+', default=list(range(81, 101)))
    parser.add_argument('--jobs', type=int, default=1)
    chosen = parser.parse_args()
    jobs = [
        (task, size, seed)
        for task in chosen.tasks
        for size in chosen.sizes
        for seed in chosen.seeds
    ]
    rows = []
    context = multiprocessing.get_context('spawn')
    with ProcessPoolExecutor(chosen.jobs, context, one_thread) as processes:
        for future in as_completed([processes.submit(run, job) for job in jobs]):
            rows.append(future.result())
            print(rows[-1], flush=True)
    rows.sort(key=lambda row: (row['task'], row['controls'], row['seed']))
    write_results('individual', rows, 'torch', 'numpy')


if __name__ == '__main__':
    main()
