"""How many changes are called reliable where nothing changes: limits from repeated controls.

    python benchmarks/change.py simulated [--studies N]
    python benchmarks/change.py halves TABLE [--halves N] [--n-patterns M]

`simulated`: R-indices with known, equal noise at each visit. Limits are learned from controls with
two visits; the rows give the share of other participants with at least one reliable change, who
have one or three follow-up visits.

`halves`: a table of real participants with several visits (`lnm_two_visits`: 67 controls and 98
patients). A model is trained once, briefly; limits are learned from a random half of the controls,
and the rows give the shares of the other half with a reliable change, in each half.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from machine import one_thread, write_results
from tqdm import tqdm

from surreal_bids.analysis.change import describe_changes
from surreal_bids.analysis.engine import Analysis, analyse_trained
from surreal_bids.analysis.limits import FALSE_ALARMS
from surreal_bids.cohort.cohort import read_cohort
from surreal_bids.config import TrainingOptions
from surreal_bids.names import CONTROL, PARTICIPANT
from surreal_bids.rindices.crossfit import prepare_folds, train
from surreal_bids.rindices.measurement_noise import Noise
from surreal_bids.rindices.model import prepare
from surreal_bids.stats.repeated import ChangeWithTime, limit_of_chances

N_CONTROLS = (15, 30, 60)
FOLLOW_UPS = (1, 3)
N_MEASURES = (1, 3)

NOISE, TREND, JITTER = 0.05, 0.02, 0.2
"""Of one visit; per year; and of the time of a visit, in years."""

N_PARTICIPANTS = 20
"""Of each simulated study, beside its controls."""

OTHER_HALF = 'other half'
"""Group of the controls from whom nothing is learned."""

BRIEF = {'repetitions': 4, 'iterations': 400, 'folds': 5, 'device': 'cpu'}


def simulate_pairs(
    rng: np.random.Generator, n_people: int, follow_ups: int, n_measures: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return changes, years and participants: each visit with the next, the last with the first."""
    years = np.arange(follow_ups + 1) + rng.uniform(-JITTER, JITTER, (n_people, follow_ups + 1))
    values = NOISE * rng.normal(size=(n_people, follow_ups + 1, n_measures))
    values += TREND * years[:, :, np.newaxis]
    first, second = np.arange(follow_ups), np.arange(1, follow_ups + 1)
    if follow_ups > 1:
        first, second = np.append(first, 0), np.append(second, follow_ups)
    changes = (values[:, second] - values[:, first]).reshape(-1, n_measures)
    times = (years[:, second] - years[:, first]).ravel()
    return changes, times, np.repeat(np.arange(n_people), len(first))


def simulate_study(
    rng: np.random.Generator, n_controls: int, follow_ups: int, n_measures: int
) -> float:
    """Share of participants with a reliable change."""
    controls = ChangeWithTime(*simulate_pairs(rng, n_controls, 1, n_measures))
    changes, years, who = simulate_pairs(rng, N_PARTICIPANTS, follow_ups, n_measures)
    predicted = controls.predict(years, who + n_controls)
    n_pairs = len(changes) / N_PARTICIPANTS
    limits = limit_of_chances(FALSE_ALARMS, n_measures, n_pairs, predicted.df[:, np.newaxis])
    is_beyond = np.abs(changes - predicted.expected) > predicted.error * limits
    return float(pd.Series(is_beyond.any(axis=1)).groupby(who).any().mean())


def run_simulated(n_studies: int) -> None:
    """Write the rates of false alarms where the noise is known."""
    rows = []
    for n_controls in tqdm(N_CONTROLS):
        for follow_ups in FOLLOW_UPS:
            for n_measures in N_MEASURES:
                rng = np.random.default_rng([n_controls, follow_ups, n_measures])
                shares = [
                    simulate_study(rng, n_controls, follow_ups, n_measures)
                    for _ in range(n_studies)
                ]
                row = {'controls': n_controls, 'follow_ups': follow_ups, 'r_indices': n_measures}
                row |= {'studies': n_studies, 'false_alarms': np.mean(shares)}
                rows.append(row | {'se': np.std(shares, ddof=1) / np.sqrt(n_studies)})
    write_results('change_simulated', pd.DataFrame(rows).round(4), 'numpy', 'scipy')


def analyse(table: Path, n_patterns: int) -> Analysis:
    """Train briefly, with folds."""
    cohort = read_cohort(table)
    options = TrainingOptions(n_patterns=(n_patterns,), **BRIEF)
    return analyse_trained(cohort, train(prepare(cohort), prepare_folds(cohort, options), options))


def share_of_reliable(
    found: Analysis, other_half: Sequence[str], names: Sequence[str]
) -> tuple[float, float]:
    """Share of the other half of controls, and of patients, with a reliable change of any of these.

    Limits come from the study's own controls: no noise of volumes is known.
    """
    cohort = found.cohort
    is_other = cohort.visits[PARTICIPANT].isin(other_half)
    group = cohort.groups.where(~is_other, OTHER_HALF)
    cohort = replace(cohort, visits=cohort.visits.assign(group=group))
    unknown = pd.DataFrame(np.nan, cohort.visits.index, list(names))
    nowhere = pd.Series(None, cohort.visits.index, dtype=object)
    steps = found.model.preprocessing
    changes = describe_changes(cohort, found.results, Noise(unknown, unknown), steps, nowhere)
    is_reliable = changes['reliable'].eq('true').groupby(changes[PARTICIPANT]).any()
    is_known = changes['reliable'].notna().groupby(changes[PARTICIPANT]).any()
    first = cohort.first_visits()
    group_of = first.groups.set_axis(first.visits[PARTICIPANT]).reindex(is_reliable.index)
    others, patients = (is_known & (group_of == group) for group in (OTHER_HALF, 'PT'))
    return float(is_reliable[others].mean()), float(is_reliable[patients].mean())


def run_halves(table: Path, n_halves: int, n_patterns: int) -> None:
    """Write the share of the other half of the controls with a reliable change, in each half."""
    found = analyse(table, n_patterns)
    controls = found.cohort.visits.loc[found.cohort.groups == CONTROL, PARTICIPANT].unique()
    measures = {'any R-index': found.names} | {name: [name] for name in found.names}
    rows = []
    for seed in tqdm(range(n_halves)):
        shuffled = np.random.default_rng(seed).permutation(controls)
        other_half = list(shuffled[len(shuffled) // 2 :])
        for measure, names in measures.items():
            of_controls, of_patients = share_of_reliable(found, other_half, names)
            row = {'table': table.stem, 'half': seed, 'measure': measure}
            rows.append(row | {'other_controls': of_controls, 'patients': of_patients})
    results = pd.DataFrame(rows).round(4)
    print(results.groupby('measure')[['other_controls', 'patients']].agg(['mean', 'std']).round(3))
    write_results('change_halves', results, 'numpy', 'scipy', 'torch')


def main() -> None:
    one_thread()
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parts = parser.add_subparsers(dest='part', required=True)
    simulated = parts.add_parser('simulated')
    simulated.add_argument('--studies', type=int, default=2000)
    halves = parts.add_parser('halves')
    halves.add_argument('table', type=Path)
    halves.add_argument('--halves', type=int, default=20)
    halves.add_argument('--n-patterns', type=int, default=2)
    given = parser.parse_args()
    if given.part == 'simulated':
        run_simulated(given.studies)
    else:
        run_halves(given.table, given.halves, given.n_patterns)


if __name__ == '__main__':
    main()
