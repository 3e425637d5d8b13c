"""A small study whose regions shrink with disease, age and site, as frames and as files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.config import TrainingOptions

REGIONS = [f'region_{letter}' for letter in 'abcdefghijklmnopqrstuvwxyz012345']

QUICK = TrainingOptions(
    n_patterns=(2,), ortho=(0.2,), repetitions=2, iterations=60, folds=2, device='cpu'
)
"""Training that takes two seconds, in which folds find the patterns of a study again."""

QUICK_WORDS = (
    *('--n-patterns', 2, '--ortho', 0.2, '--repetitions', 2, '--iterations', 60),
    *('--folds', 2, '--device', 'cpu'),
)
"""The same on a command line."""


@dataclass
class Study:
    features: pd.DataFrame
    people: pd.DataFrame

    @property
    def is_patient(self) -> pd.Series:
        return self.people['diagnosis'] == 'PT'

    def write(self, folder: Path, separator: str = '\t') -> tuple[Path, Path]:
        """Write features and participants; the paths of the two files."""
        extension = 'tsv' if separator == '\t' else 'csv'
        paths = folder / f'volumes.{extension}', folder / f'participants.{extension}'
        for path, table in zip(paths, (self.features, self.people)):
            table.to_csv(path, sep=separator, na_rep='n/a')
        return paths


def make_study(n_cn: int = 30, n_pt: int = 41, seed: int = 0, n_sites: int = 2) -> Study:
    """Controls before patients; sites shift and stretch every region."""
    rng = np.random.default_rng(seed)
    n_people = n_cn + n_pt
    names = pd.Index([f'sub-{k:03}' for k in range(1, n_people + 1)], name='participant_id')
    people = pd.DataFrame(
        {
            'diagnosis': np.where(np.arange(n_people) < n_cn, 'CN', 'PT'),
            'age': rng.uniform(50, 80, n_people).round(1),
            'sex': np.where(np.arange(n_people) % 3 == 0, 'M', 'F'),
            'site': [f'site{k % n_sites}' for k in rng.permutation(n_people)],
            'icv': rng.normal(1400, 100, n_people).round(),
        },
        index=names,
    )
    severity = np.zeros((n_people, 2))
    severity[n_cn:] = rng.uniform(0, 1, (n_pt, 2))
    loss = severity @ np.kron(np.eye(2), np.full(len(REGIONS) // 2, 40.0))
    noise = rng.normal(0, 10, (n_people, len(REGIONS)))
    at_site1 = (people['site'] == 'site1').to_numpy()[:, None]
    volumes = 300 - loss - (people['age'].to_numpy()[:, None] - 65) + noise * (1 + 0.5 * at_site1)
    return Study(pd.DataFrame(volumes + 25 * at_site1, names, REGIONS), people)
