"""Participants of a task, and their folds and halves.

Shapes: N people, S regions, M patterns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, train_test_split

from surreal_bids.harmonization.covariates import CNNormaliser
from surreal_bids.simulation.population import Controls
from surreal_bids.simulation.tables import SEVERITY_COLUMNS, simulate_table

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
HELD_OUT = 5
"""One person in so many is in neither half."""


class People(NamedTuple):
    """Controls and pseudo-patients of a task, row by row."""

    volumes: Floats
    """(N, S), mm3."""
    is_patient: NDArray[np.bool_]
    severities: Floats
    """(N, M), zero in controls."""

    def normalised(self, rows: Rows | slice = slice(None)) -> Floats:
        """All people, (N, S), scaled by the controls among these rows only."""
        volumes = pd.DataFrame(self.volumes)
        normaliser = CNNormaliser().fit(volumes.iloc[rows], ~self.is_patient[rows])
        return normaliser.transform(volumes.set_axis(normaliser.features_, axis=1)).to_numpy()

    def patients(self, rows: Rows) -> Rows:
        """Those of the rows that are patients."""
        return rows[self.is_patient[rows]]


def simulate_people(
    task: str, n_cn: int, n_pt: int, seed: int, controls: Controls | None
) -> People:
    """The people of a task; a table too small to give each person once is resampled."""
    resample = None
    if controls is not None and len(controls.volumes) < n_cn + n_pt:
        resample = 'gaussian'
    table = simulate_table(task, n_cn, n_pt, seed, controls, resample)
    return People(
        table.volumes.drop(columns='participant_id').to_numpy(copy=True),
        (table.participants['diagnosis'] == 'PT').to_numpy(copy=True),
        table.severities[SEVERITY_COLUMNS].to_numpy(),
    )


def split_folds(is_patient: NDArray[np.bool_], n_folds: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Training and test rows of each fold; everyone is in one test set, both groups in each."""
    splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    return list(splitter.split(is_patient, is_patient))


def split_halves(is_patient: NDArray[np.bool_], seed: int) -> tuple[Rows, Rows, Rows]:
    """Two halves to train on and, in neither of them, a fifth of the people to compare on."""
    rest, held_out = split_folds(is_patient, HELD_OUT, seed)[0]
    first, second = train_test_split(
        rest, test_size=0.5, stratify=is_patient[rest], random_state=seed
    )
    return first, second, held_out
