"""A small study of MUSE volumes with several visits of everyone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.config import CohortOptions, TrainingOptions
from surreal_bids.simulation.tables import TASKS, simulate_table

OPTIONS = TrainingOptions(
    preset='correlated',
    n_patterns=(2,),
    ortho=(0.2,),
    repetitions=2,
    iterations=100,
    folds=3,
    device='cpu',
)

DATES = ('2010-03-01', '2012-03-01', '2013-03-01')
"""Of sessions c, b and a, which are not in the order of their names."""


def write_visits(
    path: Path, people: tuple[int, int] = (24, 30), visits: int = 2, loss_per_year: float = 0.0
) -> pd.DataFrame:
    """Write a table in which patients lose regions of the first pattern; nothing else changes."""
    simulated = simulate_table('basic', *people, seed=3)
    known = simulated.participants.drop(columns=['participant_id', 'site'])
    first = pd.concat([simulated.volumes, known], axis=1)
    lost = [f'MUSE_{index}' for index in TASKS['basic'].patterns[0]]
    regions = list(simulated.volumes.columns[1:])
    patient = (first['diagnosis'] == 'PT').to_numpy()
    tables = []
    for session, date in zip('cba'[:visits], DATES):
        years = float(date[:4]) - 2010
        table = first.assign(session_id=session, scan_date=date, age=first['age'] + years)
        # Exact copies of volumes would be refused.
        table[regions] *= 1 + 1e-7 * years
        table.loc[patient, lost] *= (1 - loss_per_year) ** years
        tables.append(table)
    everyone = pd.concat(tables)
    everyone.to_csv(path, sep='\t', index=False)
    return everyone


def read_visits(path: Path, **options: object) -> Cohort:
    """The cohort of such a table; its small models see single regions."""
    chosen = {'sides': 'apart'} | options
    return read_cohort(path, options=CohortOptions(**chosen))


def measure(
    cohort: Cohort, noise: pd.Series, head: float, shared: float, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Volumes and head sizes measured anew, with these errors."""
    n = len(cohort)
    common = rng.normal(0, shared, n)
    errors = common[:, None] + rng.normal(size=cohort.features.shape) * noise.to_numpy()
    size = cohort.people['icv'] * np.exp(common + rng.normal(0, head, n))
    return cohort.features * np.exp(errors), cohort.people.assign(icv=size)
