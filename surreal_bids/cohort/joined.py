"""The tables of volumes and of participants, joined by participant and session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from surreal_bids.bids.tabular import Table, prefix_errors
from surreal_bids.cautions import PARTICIPANTS, Caution
from surreal_bids.cohort.consistency import compare_rows
from surreal_bids.cohort.exclusions import Screen
from surreal_bids.cohort.features import Choice
from surreal_bids.cohort.reader import (
    VisitTable,
    own_id_column,
    read_visit_table,
    rows_of,
    visit_columns,
    with_sessions,
)
from surreal_bids.columns import column_of
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError
from surreal_bids.names import Visit
from surreal_bids.regions import FeatureList


class Tables(NamedTuple):
    """The table of volumes, and that of participants if there is one."""

    volumes: VisitTable
    people: VisitTable | None

    @property
    def people_columns(self) -> set[str]:
        """Columns of the table of participants."""
        return set() if self.people is None else set(self.people.table.columns)

    def in_file_order(self, visits: Mapping[str, Visit]) -> list[str]:
        """Sort the names of visits as the rows of the table of participants, if there is one."""
        rows = {visit: row for row, visit in enumerate((self.people or self.volumes).visits)}
        return sorted(
            visits,
            key=lambda name: rows.get(visits[name], rows.get((visits[name][0], None), len(rows))),
        )


def read_tables(
    volumes: VisitTable | Path | str, participants: Path | str | None, options: CohortOptions
) -> Tables:
    """Read the two tables; without the second, the first has the facts about participants."""
    if not isinstance(volumes, VisitTable):
        volumes = read_visit_table(Path(volumes), options.id_column)
    if participants is None:
        return Tables(volumes, None)
    return Tables(
        volumes,
        read_visit_table(Path(participants), own_id_column(Path(participants), options.id_column)),
    )


def describe_visits(tables: Tables, visits: Mapping[str, Visit]) -> Table:
    """Join the facts about visits: columns about participants, then those of volumes."""
    own = rows_of(tables.volumes, visits)
    if tables.people is None:
        return Table(tables.volumes.source, own)
    known = with_sessions(tables.people, rows_of(tables.people, visits), visits)
    new = own[[name for name in own if name not in known]]
    return Table(
        tables.people.source,
        pd.concat([known, new], axis=1),
        dict.fromkeys(map(str, new), tables.volumes.source),
    )


def measured_volumes(volumes: VisitTable, prefix: str) -> pd.DataFrame:
    """Return the volumes of everyone, excluded or not, with the columns that name visits."""
    visits = visit_columns(volumes.visits, prefix)
    numbers = volumes.table.typed().select_dtypes('number').set_axis(visits.index)
    return pd.concat([visits, numbers], axis=1)


def screen_rows(
    screen: Screen,
    features: pd.DataFrame,
    people: pd.DataFrame,
    described: Table,
    choice: Choice,
    wanted: FeatureList,
) -> list[Caution]:
    """Exclude visits whose head size contradicts the volumes; refuse rows of other participants.

    `described` has the rows of the table of participants, in its order. Warnings are returned.
    """
    if wanted.are_z_scores:
        return []
    remaining = set(screen.remaining)
    known = described.rows([name for name in described.text.index if name in remaining])
    options = choice.options
    own = (
        choice.columns[str(options.icv_column)]
        if options.uses_icv
        else column_of(known.columns, 'icv')
    )
    icv = None if own is None else pd.to_numeric(known.text[own], errors='coerce')
    rows = features.loc[known.text.index], people.loc[known.text.index]
    participants = [screen.visits[name][0] for name in known.text.index]
    with prefix_errors(known.source_of(own or '')):
        try:
            reasons, warnings = compare_rows(*rows, icv, participants, wanted)
        except DataError as error:
            if icv is None or options.uses_icv:
                raise
            # Volumes that are corrected for head size are no longer related to it.
            reasons, warnings = compare_rows(*rows, None, participants, wanted)
            warnings.insert(
                0,
                Caution(
                    f'Head size (not used): {error}',
                    'Rows of the tables may be exchanged, unless volumes are corrected for head '
                    'size already',
                    'Check the rows',
                    PARTICIPANTS,
                ),
            )
    screen.exclude(reasons)
    return warnings
