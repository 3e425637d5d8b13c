"""Predictions of `surreal-gan plan` against studies of a known population.

    python benchmarks/planning.py [--studies N] [--pilots N]

A plan is made from the controls of a pilot sample. Studies of the same size are drawn from the
built-in population itself and read as tables. Their patterns are drawn as those of the plan, but by
the true covariance; those of the paper's tasks of the same loss are shown too (`patterns`). Each
row compares the mean reproducibility over pilots and studies.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from machine import write_results
from tqdm import tqdm

from surreal_bids.analysis.planning import (
    LOSS_SD,
    SITE_SHIFT,
    Design,
    Study,
    draw_patterns,
    examine,
    learn_law,
    plan_study,
    preprocess,
    standard_error,
)
from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.config import CohortOptions
from surreal_bids.files import write_tsv
from surreal_bids.parallel import in_threads, set_threads
from surreal_bids.regions import muse_indices
from surreal_bids.simulation.population import built_in_population, sample_controls
from surreal_bids.simulation.tables import find_task, shrink_regions

SIZES = ((60, 90), (120, 180))
LOSSES = {0.12: None, 0.2: 'mild'}
"""Largest losses, and the paper's tasks that have them."""
N_PATTERNS, N_REGIONS = 3, 14
PILOT = 80
LIKE_THE_PLAN = 'like the plan'


def true_covariance() -> np.ndarray:
    """Covariance of log volumes given covariates and site."""
    population = built_in_population()
    return population.factors.T @ population.factors + np.diag(population.unique**2)


def healthy_table(n_people: int, sites: int, rng: np.random.Generator) -> pd.DataFrame:
    """Participants of one scanner of the built-in population, rescanned by several."""
    pool = sample_controls(4 * n_people, rng)
    chosen = np.flatnonzero(pool.people['site'] == 'site1')[:n_people]
    people = pool.people.iloc[chosen].reset_index(drop=True)
    site = np.arange(n_people) % sites
    shift = rng.normal(0, SITE_SHIFT, (sites, pool.volumes.shape[1])) * (sites > 1)
    volumes = pool.volumes.iloc[chosen].reset_index(drop=True) * np.exp(shift[site])
    names = [f'sub-{k:05}' for k in range(n_people)]
    people = people.assign(participant_id=names, site=[f'scanner{k}' for k in site])
    return people.join(volumes)


def read(table: pd.DataFrame, **how: object) -> Cohort:
    """Read a table as a user's."""
    with tempfile.TemporaryDirectory() as folder:
        options = how.pop('options', CohortOptions())
        return read_cohort(write_tsv(Path(folder) / 'table.tsv', table), options=options, **how)


def pilot(seed: int, sites: int) -> Cohort:
    """Controls that a plan is made from."""
    table = healthy_table(PILOT, sites, np.random.default_rng([seed, 1]))
    options = CohortOptions(control_label=('all',))
    return read(table, options=options, groups='controls')


def real_study(design: Design, size: tuple[int, int], patterns: str, seed: int) -> Study:
    """Draw a study from the population."""
    rng = np.random.default_rng([seed, 2, *size])
    # Controls and patients take turns, so that each site has both.
    table = healthy_table(sum(size), design.sites, rng)
    is_patient = np.isin(np.arange(sum(size)), rng.choice(sum(size), size[1], replace=False))
    place = {index: number for number, index in enumerate(muse_indices())}
    columns = [f'MUSE_{index}' for index in place]
    regions = draw_patterns(true_covariance(), design, rng)
    if patterns != LIKE_THE_PLAN:
        regions = [[place[index] for index in each] for each in find_task(patterns).patterns]
    severities = rng.uniform(size=(size[1], design.n_patterns))
    table.loc[is_patient, columns] = shrink_regions(
        table.loc[is_patient, columns].to_numpy(), severities, regions, design.loss, LOSS_SD, rng
    )
    cohort = read(table.assign(diagnosis=np.where(is_patient, 'PT', 'CN')))
    severities = pd.DataFrame(severities, table['participant_id'][is_patient])
    patients = cohort.visits.index[cohort.is_patient]
    return Study(cohort, severities.loc[patients].to_numpy())


def compare(design: Design, size: tuple[int, int], n_pilots: int, n_studies: int) -> list[dict]:
    """Compare predictions with studies."""
    plans = pd.concat(
        plan_study(learn_law(pilot(seed, design.sites)), design, [size], seed)
        for seed in range(n_pilots)
    )
    rows = []
    for patterns in filter(None, (LIKE_THE_PLAN, LOSSES[design.loss])):
        seeds = [(seed, *size) for seed in range(n_studies)]
        studies = (preprocess(real_study(design, size, patterns, seed[0]), seed) for seed in seeds)
        found = list(in_threads(examine, studies))
        values = [each.reproducibility for each in found]
        rows.append(
            {
                'controls': size[0],
                'patients': size[1],
                'sites': design.sites,
                'loss': design.loss,
                'patterns': patterns,
                'pilots': n_pilots,
                'studies': n_studies,
                'predicted': plans['reproducibility'].mean(),
                'predicted_se': np.sqrt(np.square(plans['reproducibility_se']).sum()) / n_pilots,
                'actual': np.mean(values),
                'actual_se': standard_error(values),
                'predicted_reproduced': plans['reproduced'].mean(),
                'actual_reproduced': np.mean([each.is_reproduced for each in found]),
                'predicted_c_index': plans['c_index'].mean(),
                'actual_c_index': np.mean([each.c_index for each in found]),
            }
        )
    return rows


def main() -> None:
    torch.set_num_threads(1)
    set_threads(2)
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--studies', type=int, default=20)
    parser.add_argument('--pilots', type=int, default=2)
    options = parser.parse_args()
    rows = []
    for sites, loss, size in tqdm(list(product((1, 2), LOSSES, SIZES))):
        design = Design(N_PATTERNS, N_REGIONS, loss, sites)
        rows += compare(design, size, options.pilots, options.studies)
        print(pd.DataFrame(rows).round(3).to_string(), flush=True)
    write_results('planning', pd.DataFrame(rows).round(4), 'torch')


if __name__ == '__main__':
    main()
