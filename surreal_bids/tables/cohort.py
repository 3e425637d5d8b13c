"""The people of a group analysis, in one order, and as files for the steps that come after."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.bids.participants import PARTICIPANT
from surreal_bids.files import write_json, write_tsv
from surreal_bids.tables.features import FeatureList
from surreal_bids.tables.groups import CONTROL, PATIENT
from surreal_bids.tables.people import PreprocessingOptions

VISIT = 'name of the visit'
"""Column of our own files that names a visit: `sub-01` or `sub-01_ses-2`."""

FRAMES = ('visits', 'features', 'people', 'others')
RECORD = 'cohort.json'


@dataclass(frozen=True, eq=False)
class Cohort:
    """Everyone who is in, a row a visit; all frames have the same rows.

    Attributes
    ----------
    visits : frame
        `participant_id`, `session_id` if there are sessions, `group` (CN or PT), and `is_first`:
        whether it is the person's first visit, which is the one that is learned from.
    features : frame of shape (n_visits, n_features)
        Volumes as measured.
    people : frame of shape (n_visits, n_columns)
        Covariates, ICV and site.
    others : frame of shape (n_visits, n_others)
        What else is known of people, as text: clinical measures.
    wanted, options
        Which features, and what is done to them.
    notes
        Decisions that were made on the way, in words, for the report.
    """

    visits: pd.DataFrame
    features: pd.DataFrame
    people: pd.DataFrame
    others: pd.DataFrame
    wanted: FeatureList
    options: PreprocessingOptions
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.visits)

    @property
    def is_patient(self) -> pd.Series:
        """Who is a patient: booleans (n_visits,)."""
        return self.visits['group'] == PATIENT

    @property
    def counts(self) -> dict[str, int]:
        """How many people each group has."""
        first = self.visits.loc[self.visits['is_first'], 'group']
        return {group: int((first == group).sum()) for group in (CONTROL, PATIENT)}

    def select(self, chosen: pd.Series | Sequence[bool]) -> Cohort:
        """The same with some of the visits only."""
        rows = np.asarray(chosen, dtype=bool)
        return replace(self, **{name: getattr(self, name)[rows] for name in FRAMES})

    def first_visits(self) -> Cohort:
        """One visit a person: what is learned from, so that nobody counts twice."""
        return self.select(self.visits['is_first'])

    def fingerprint(self, *more: Any) -> str:
        """A short hash of everything that results depend on, and of whatever else is given."""
        digest = hashlib.sha256(json.dumps(more, sort_keys=True, default=str).encode())
        digest.update(json.dumps(self._record(), sort_keys=True).encode())
        for name in FRAMES:
            digest.update(getattr(self, name).to_csv(sep='\t').encode())
        return digest.hexdigest()[:12]

    def _record(self) -> dict[str, Any]:
        text = [n for n in self.people if not pd.api.types.is_numeric_dtype(self.people[n])]
        return {
            'wanted': self.wanted.to_json(),
            'options': self.options.to_json(),
            'notes': list(self.notes),
            'text': text,
        }

    def save(self, folder: Path) -> Path:
        """Write the cohort; the record comes last, so that a folder with a record is complete."""
        for name in FRAMES:
            write_tsv(folder / f'{name}.tsv', getattr(self, name).rename_axis(VISIT).reset_index())
        write_json(folder / RECORD, self._record())
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Cohort:
        """Read what `save` wrote, to the last digit."""
        folder = Path(folder)
        record = json.loads((folder / RECORD).read_text(encoding='utf-8'))
        visits = read_exact(folder / 'visits.tsv', None)
        return cls(
            visits.assign(is_first=visits['is_first'] == 'True'),
            read_exact(folder / 'features.tsv'),
            read_exact(folder / 'people.tsv', record['text']),
            read_exact(folder / 'others.tsv', None),
            FeatureList.from_json(record['wanted']),
            PreprocessingOptions.from_json(record['options']),
            tuple(record['notes']),
        )


def read_exact(path: str | Path, text: Sequence[str] | None = ()) -> pd.DataFrame:
    """Read a table of visits whose numbers are the same to the last digit as when written.

    Parameters
    ----------
    path
        A table with a column `visit`, which becomes the index.
    text
        Columns that are text, whatever they hold; None: all are. Others are numbers if they can be.
    """
    table = pd.read_csv(path, sep='\t', dtype=str, na_values=['n/a'], keep_default_na=False)
    table = table.set_index(VISIT).rename_axis(None)
    if text is None:
        return table
    columns = {name: table[name] if name in text else _numbers(table[name]) for name in table}
    return pd.DataFrame(columns, index=table.index)


def _numbers(cells: pd.Series) -> pd.Series:
    try:
        return cells.astype(np.float64)
    except ValueError:
        return cells


def mark_first_visits(visits: pd.DataFrame) -> pd.DataFrame:
    """Add `is_first` to visits that are in order."""
    return visits.assign(is_first=~visits[PARTICIPANT].duplicated())
