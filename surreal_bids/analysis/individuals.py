"""Results of single participants, read from the tables of the group level."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from surreal_bids import __version__
from surreal_bids.analysis.engine import OF_CENTILES
from surreal_bids.analysis.image_quality import OUTLIERS
from surreal_bids.analysis.outputs import EXCLUDED
from surreal_bids.bids.outputs import output_path
from surreal_bids.names import GROUP_NAMES, PARTICIPANT, SESSION, without_prefix
from surreal_bids.regions import region_names
from surreal_bids.rindices.crossfit import HELD_OUT


class Reference(NamedTuple):
    """Participants to compare with: the sample, their `group` and R-indices, and their number.

    `rows` may hold percentiles instead of participants, and may lack R-indices. If R-indices have
    different numbers of participants, `counts` has the smallest.
    """

    whose: str
    rows: pd.DataFrame
    counts: Mapping[str, int] = {}


@dataclass(frozen=True, eq=False)
class GroupTables:
    """Tables of the group level that reports of participants show.

    Attributes
    ----------
    root
        The output folder.
    results, contributions, changes : frame
        `rindices.tsv`, `contributions.tsv` and `changes.tsv`; empty where there is none.
    deviations : frame
        Of each visit `participant_id`, perhaps `session_id`, `order_by`, `years`, `age`, `sex`,
        `site`, `outliers` of image quality and controls of the centiles, and how far each feature
        is from the mean of controls, in their standard deviations.
    reference
        Participants to compare with.
    card
        Card of the model.
    model
        Name of the model that was applied; None where it was trained on this dataset.
    adapted
        Whether the model has learned the scanners of this dataset.
    """

    root: Path
    results: pd.DataFrame
    deviations: pd.DataFrame
    card: Mapping[str, Any]
    contributions: pd.DataFrame = field(default_factory=pd.DataFrame)
    changes: pd.DataFrame = field(default_factory=pd.DataFrame)
    reference: Reference = field(default_factory=lambda: Reference('', pd.DataFrame()))
    model: str | None = None
    adapted: bool = True

    @classmethod
    def read(
        cls,
        root: Path,
        deviations: Path,
        card: Path,
        model: str | None,
        adapted: bool,
    ) -> GroupTables:
        """Read the tables from the outputs, and the deviations and the card from their files."""
        known = json.loads(card.read_text(encoding='utf-8'))
        of_each = _read_table(deviations)
        results = _read_output(root, 'rindices')
        results = results[results['status'] != EXCLUDED]
        keys = [name for name in (PARTICIPANT, SESSION) if name in results]
        results = results.merge(of_each[[*keys, *OF_CENTILES]], on=keys, how='left')
        return cls(
            root,
            results,
            of_each,
            known,
            _read_output(root, 'contributions'),
            _read_output(root, 'changes'),
            find_reference(results, known, model),
            model,
            adapted,
        )

    @property
    def names(self) -> list[str]:
        """Names of the R-indices."""
        return list(self.card['PatternNames'])

    @property
    def knows_sites(self) -> bool:
        """Whether the model harmonizes sites."""
        return self.card['Preprocessing']['combat'] is not None

    @cached_property
    def region_of(self) -> dict[str, str]:
        """Readable name of each feature."""
        names = region_names()
        return {
            each['Name']: names[each['MUSERegions'][0]]
            if len(each['MUSERegions']) == 1
            else each['Name']
            for each in self.card['FeatureDetails']
        }

    @cached_property
    def digest(self) -> str:
        """Changes whenever that does which all reports show: the model, and whom it compares with.

        Of one participant see :meth:`Individual.digest`.
        """
        shown = [__version__, self.model, self.adapted, self.card['CardSHA256']]
        text = json.dumps(shown) + self.reference.rows.to_csv()
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _rows(self) -> list[tuple[pd.DataFrame, dict[Any, pd.DataFrame]]]:
        """Each table without rows, and its rows by participant."""
        tables = (self.results, self.deviations, self.contributions, self.changes)
        return [
            (table.iloc[:0], dict(list(table.groupby(PARTICIPANT))) if len(table) else {})
            for table in tables
        ]

    def of(self, participant: str) -> Individual:
        """Return the rows of one participant."""
        return Individual(
            self, participant, *(rows.get(participant, none) for none, rows in self._rows)
        )


def _read_output(root: Path, name: str) -> pd.DataFrame:
    return _read_table(output_path(root, name))


def _read_table(path: Path) -> pd.DataFrame:
    """A table of ours; empty where there is none."""
    if not path.is_file():
        return pd.DataFrame()
    text = dict.fromkeys((PARTICIPANT, SESSION, 'from_session', 'to_session', 'site'), str)
    return pd.read_csv(path, sep='\t', na_values=['n/a'], keep_default_na=False, dtype=text)


def _stored_reference(stored: Mapping[str, Any]) -> Reference:
    """Return the percentiles of the training sample that a model brings along."""
    parts = [
        pd.DataFrame(each['Percentiles']).assign(group=group) for group, each in stored.items()
    ]
    counts = {group: int(each['Number']) for group, each in stored.items()}
    return Reference('the training sample', pd.concat(parts, ignore_index=True), counts)


def find_reference(results: pd.DataFrame, card: Mapping[str, Any], model: str | None) -> Reference:
    """Return the participants to compare R-indices with: the training sample, or else the dataset.

    Parameters
    ----------
    results
        R-indices of the dataset.
    card
        Card of the model, which may have percentiles of the training sample.
    model
        Name of the model that was applied; None where it was trained on this dataset.
    """
    names = list(card['PatternNames'])
    if model is not None and card.get('Reference'):
        return _stored_reference(card['Reference'])
    first = results.drop_duplicates(PARTICIPANT)
    if HELD_OUT in first:
        first = first[first[HELD_OUT].eq(True)]
    if 'group' not in first or (model is not None and first['group'].nunique() < 2):
        return Reference('', pd.DataFrame())
    known = first.loc[first['group'].isin(GROUP_NAMES), ['group', *names]].dropna()
    whose = 'this dataset' if model else 'the training sample, out of fold'
    counts = {str(group): int(n) for group, n in known['group'].value_counts().items()}
    return Reference(whose, known, counts)


@dataclass(frozen=True, eq=False)
class Individual:
    """Results of one participant; frames have at least one row per visit."""

    tables: GroupTables
    name: str
    results: pd.DataFrame
    deviations: pd.DataFrame
    contributions: pd.DataFrame
    changes: pd.DataFrame

    @property
    def label(self) -> str:
        """The participant without `sub-`."""
        return without_prefix(self.name, 'sub')

    @cached_property
    def last(self) -> pd.Series:
        """R-indices of the last visit that has any, or of the last."""
        known = self.results.dropna(subset=self.tables.names, how='all')
        return (known if len(known) else self.results).iloc[-1]

    @property
    def outliers(self) -> str:
        """Metrics of quality in which the image of the last visit is an outlier; may be empty."""
        if OUTLIERS not in self.deviations:
            return ''
        return ', '.join(self.at_last(self.deviations)[OUTLIERS].dropna())

    @property
    def names(self) -> list[str]:
        """Names of the R-indices; none where no visit has any."""
        return self.tables.names if self.is_known else []

    @property
    def is_known(self) -> bool:
        """Whether there are R-indices of any visit."""
        return bool(self.last[self.tables.names].notna().any())

    def at_last(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows of the last visit."""
        if SESSION not in table or pd.isna(self.last.get(SESSION)):
            return table
        return table[table[SESSION] == self.last[SESSION]]

    def digest(self) -> str:
        """Changes whenever the section would."""
        parts = [self.results, self.deviations, self.contributions, self.changes]
        text = self.tables.digest + ''.join(part.to_csv() for part in parts)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
