"""What each column of the input tables was taken for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from surreal_bids.bids.tabular import Table
from surreal_bids.cohort.exclusions import Features
from surreal_bids.cohort.features import Choice, region_columns
from surreal_bids.cohort.groups import Grouping
from surreal_bids.cohort.reader import VisitTable, read_visit_table
from surreal_bids.columns import column_of, describes_participants, meaning_of, noun_of
from surreal_bids.config import CohortOptions
from surreal_bids.text import align, list_briefly

Use = tuple[str, str]
"""What a column was taken for, and why."""

NOT_USED = 'not used'
REGION, MEASURE = 'region', 'measure'

FRAME = ('table', 'column', 'taken_for', 'why')
LISTED = 4
"""Columns of one kind that are listed; the others are counted."""


@dataclass(frozen=True)
class _Uses:
    """Columns with a use.

    Attributes
    ----------
    roles
        Use of columns about participants.
    regions
        Columns of the table of volumes that are features, or parts of them.
    judged
        What other columns of this table hold, as far as it was judged.
    no_groups
        Why a diagnosis is not used; may be empty.
    """

    roles: Mapping[str, Use]
    regions: Collection[str]
    judged: Mapping[str, str]
    no_groups: str


def uses_of_columns(
    tables: Sequence[VisitTable],
    options: CohortOptions,
    described: Table,
    choice: Choice,
    features: Features,
    grouping: Grouping,
) -> pd.DataFrame:
    """List what every column of the tables was taken for.

    Parameters
    ----------
    tables
        The table of volumes, then that of participants if there is one.
    options
        Options of the user, which name further tables of measures.
    described
        Facts about visits, joined from `tables`.
    choice, features, grouping
        Columns about participants that are used, features, and groups.
    """
    volumes = tables[0]
    regions = region_columns(volumes.table, features.wanted)
    roles = _roles(choice, grouping.column)
    uses = _Uses(roles, regions, features.judged, grouping.lacking)
    rows: list[tuple[str, str, str, str]] = []
    for each in (*tables, *map(read_visit_table, options.phenotype)):
        ids = {each.id_column: 'id', each.session_column: 'session'}
        rows += [(each.source.name, name, use, '') for name, use in ids.items() if name]
        for name in each.table.columns:
            use = uses.roles.get(name) if described.source_of(name) == each.source else None
            if use is None and each is volumes:
                use = _use_of_volumes(name, uses, alone=len(tables) == 1)
            use = use or _use_of_fact(name, uses)
            if use == (MEASURE, '') and each.table.text[name].isna().all():
                use = NOT_USED, 'no values'
            rows.append((each.source.name, name, *use))
    return pd.DataFrame(rows, columns=list(FRAME), dtype=object)


def _roles(choice: Choice, group_column: str) -> dict[str, Use]:
    """Return the use of columns about participants, and why."""
    extra = {choice.options.icv_column: 'head size', choice.options.site_column: 'site'}
    roles: dict[str, Use] = {group_column: ('diagnosis', '')} if group_column else {}
    for name, own in choice.columns.items():
        use = extra.get(name) or f'covariate {noun_of(own)}'.rstrip()
        roles[own] = use, 'by default' if own in choice.defaults else ''
    return roles


def _use_of_volumes(name: str, uses: _Uses, alone: bool) -> Use | None:
    """Return the use of a column of the table of volumes; None for facts about participants."""
    if name in uses.regions:
        return REGION, ''
    if alone and describes_participants(name):
        return None
    return NOT_USED, uses.judged.get(name, noun_of(name))


def _use_of_fact(name: str, uses: _Uses) -> Use:
    """Return the use of a column without a role: measures are compared with R-indices."""
    meaning = meaning_of(name)
    if meaning in (None, MEASURE):
        return MEASURE, ''
    used = column_of(uses.roles, meaning)
    if used:
        return NOT_USED, f'{noun_of(name)}: {used} is used'
    if meaning == 'diagnosis':
        return NOT_USED, uses.no_groups
    return noun_of(name), ''


def group_uses(uses: pd.DataFrame) -> pd.DataFrame:
    """List the columns of each table with the same use in one row."""
    rows = []
    for (table, use, why), part in uses.groupby(list(FRAME[:1] + FRAME[2:]), sort=False):
        names = part['column'].tolist()
        number = f'{len(names)}: ' if len(names) > LISTED else ''
        rows.append((table, use, number + list_briefly(names, LISTED), why))
    return pd.DataFrame(rows, columns=['Table', 'Taken for', 'Columns', 'Why'])


def describe_uses(uses: pd.DataFrame) -> Iterator[str]:
    """Write what columns were taken for, as lines of text."""
    for table, part in group_uses(uses).groupby('Table', sort=False):
        kinds = part['Taken for'] + part['Why'].map(lambda why: f' ({why})' if why else '')
        yield f'Columns of {table}, as they were read:'
        yield from (f'  {line}' for line in align(list(zip(kinds, part['Columns']))).splitlines())
