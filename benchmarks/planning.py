"""How many participants a study needs: simulated studies of several sizes.

    python benchmarks/planning.py [--studies N]

Studies are drawn from the built-in population and read as tables. Patients lose volume in three
patterns, of regions that vary together or of the paper's mild task. Each row gives the mean
reproducibility and c-index over studies, and the share of studies that reproduce all patterns.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from machine import write_results
from tqdm import tqdm

from surreal_bids.cohort.cohort import read_cohort
from surreal_bids.files import write_tsv
from surreal_bids.harmonization.quality import without_warnings
from surreal_bids.model.factors import fit_factors
from surreal_bids.model.number import Stability, measure_stability
from surreal_bids.parallel import in_threads, set_threads
from surreal_bids.regions import muse_indices
from surreal_bids.rindices.model import prepare
from surreal_bids.simulation.tables import (
    TASKS,
    built_in_population,
    sample_controls,
    shrink_regions,
)
from surreal_bids.stats.concordance import pattern_c_index

SIZES = ((60, 90), (120, 180))
LOSSES = {0.12: None, 0.2: 'mild'}
"""Largest losses, and the paper's tasks that have them."""
N_PATTERNS, N_REGIONS = 3, 14
TOGETHER = 'regions that vary together'

SHARED_PART = 7
"""One in so many regions of a pattern is also one of the next pattern, as in the paper's tasks."""

LOSS_SD = 0.05
"""Standard deviation of the factor N(1, sd) by which losses vary within a pattern."""

SITE_SHIFT = 0.04
"""Standard deviation of the log volume that a scanner adds to a region."""


class Seen(NamedTuple):
    """What a model sees of the controls and patients of a study; the truth, and a seed."""

    cn: np.ndarray
    pt: np.ndarray
    severities: np.ndarray
    seed: int


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


def draw_patterns(covariance: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Regions of each pattern: a random one, those that vary most with it, some of the next."""
    sd = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(sd, sd)
    n_shared = N_REGIONS // SHARED_PART
    is_free, own = np.ones(len(sd), dtype=bool), []
    for _ in range(N_PATTERNS):
        seed = rng.choice(np.flatnonzero(is_free))
        nearest = np.argsort(-np.where(is_free, correlation[seed], -np.inf), kind='stable')
        own.append(nearest[: N_REGIONS - n_shared])
        is_free[own[-1]] = False
    after = [*own[1:], own[0]]
    return [np.concatenate([new, other[:n_shared]]) for new, other in zip(own, after)]


def draw_study(size: tuple[int, int], sites: int, loss: float, patterns: str, seed: int) -> Seen:
    """Draw a study from the population, read it as a table and preprocess it."""
    rng = np.random.default_rng([seed, 2, *size])
    # Controls and patients take turns, so that each site has both.
    table = healthy_table(sum(size), sites, rng)
    is_patient = np.isin(np.arange(sum(size)), rng.choice(sum(size), size[1], replace=False))
    place = {index: number for number, index in enumerate(muse_indices())}
    columns = [f'MUSE_{index}' for index in place]
    regions = draw_patterns(true_covariance(), rng)
    if patterns != TOGETHER:
        regions = [[place[index] for index in each] for each in TASKS[patterns].patterns]
    severities = rng.uniform(size=(size[1], N_PATTERNS))
    table.loc[is_patient, columns] = shrink_regions(
        table.loc[is_patient, columns].to_numpy(), severities, regions, loss, LOSS_SD, rng
    )
    table = table.assign(diagnosis=np.where(is_patient, 'PT', 'CN'))
    with tempfile.TemporaryDirectory() as folder:
        cohort = read_cohort(write_tsv(Path(folder) / 'table.tsv', table))
    truth = pd.DataFrame(severities, table['participant_id'][is_patient])
    with without_warnings():
        X, sick = prepare(cohort).arrays
    patients = cohort.visits.index[cohort.is_patient]
    values = X.to_numpy()
    return Seen(values[~sick], values[sick], truth.loc[patients].to_numpy(), seed)


def examine(seen: Seen) -> tuple[float, float, bool]:
    """Find patterns by linear factors: reproducibility, c-index, whether all are reproduced."""
    cn, pt, severities, seed = seen
    value = measure_stability(cn, pt, (N_PATTERNS,), seed)[N_PATTERNS]
    factors = fit_factors(cn, pt, N_PATTERNS)
    c_index = pattern_c_index(factors.severities(pt), severities)
    return value, c_index, Stability(N_PATTERNS, value).is_supported


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def main() -> None:
    torch.set_num_threads(1)
    set_threads(2)
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--studies', type=int, default=20)
    n_studies = parser.parse_args().studies
    rows = []
    for sites, loss, size in tqdm(list(product((1, 2), LOSSES, SIZES))):
        for patterns in filter(None, (TOGETHER, LOSSES[loss])):
            drawn = (draw_study(size, sites, loss, patterns, seed) for seed in range(n_studies))
            values, c_indices, reproduced = zip(*in_threads(examine, drawn))
            rows.append(
                {
                    'controls': size[0],
                    'patients': size[1],
                    'sites': sites,
                    'loss': loss,
                    'patterns': patterns,
                    'studies': n_studies,
                    'reproducibility': np.mean(values),
                    'reproducibility_se': standard_error(values),
                    'c_index': np.mean(c_indices),
                    'reproduced': np.mean(reproduced),
                }
            )
        print(pd.DataFrame(rows).round(3).to_string(), flush=True)
    write_results('planning', pd.DataFrame(rows).round(4), 'torch')


if __name__ == '__main__':
    main()
