"""Participants in the report of the group: a table of all, with R-indices, intervals and flags."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from surreal_bids.bids.derivatives import output_path
from surreal_bids.bids.layout import is_label, without_prefix
from surreal_bids.bids.people import PARTICIPANT, SESSION
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.reports.pages import Block, Notice, Table
from surreal_bids.tables.analysis import GroupResults
from surreal_bids.tables.folds import FOUND_AGAIN, NOT_HELD_OUT
from surreal_bids.tables.preprocessing import INCOMPLETE, NONE_BEYOND

FEW_ROWS = 12
"""Longer tables are folded."""

STATUS_WORDS = {
    UNHARMONIZED: 'site not harmonized',
    INCOMPLETE: 'a covariate, the ICV or the site is missing',
    NOT_HELD_OUT: 'could not be held out',
}
"""Flags that follow from the status of a visit."""


def flags_of(row: Mapping[Any, Any]) -> list[str]:
    """What to know before the R-indices of a visit are used, each in a few words.

    Parameters
    ----------
    row
        The visit's row of what `TableModel.compute` or `cross_fit` returned.
    """
    flags = [STATUS_WORDS[row['status']]] if row['status'] in STATUS_WORDS else []
    in_range = row.get('in_range')
    if not (pd.isna(in_range) or in_range):
        flags.append('outside the training population')
    beyond = row.get('beyond_range', NONE_BEYOND)
    if isinstance(beyond, str) and beyond != NONE_BEYOND:
        flags.append(f'{beyond} outside the training range')
    if row.get('n_imputed', 0) > 0:
        flags.append(f'{row["n_imputed"]:.0f} regions were missing')
    if row.get('fold_correlation', 1.0) < FOUND_AGAIN:
        flags.append('other patterns without the fold')
    return flags


def report_of(output_dir: Path, participant: str) -> Path | None:
    """Where the report of a participant is; None where it is not there."""
    label = without_prefix(participant, 'sub')
    if not is_label(label):
        return None
    path = output_path(output_dir, 'report', participant=label)
    return path if path.is_file() else None


def report_links(output_dir: Path, participants: Iterable[str], folder: Path) -> list[str | None]:
    """Links to the reports of participants from files in `folder`; None where there is none."""
    reports = [report_of(output_dir, participant) for participant in participants]
    return [None if path is None else quote(os.path.relpath(path, folder)) for path in reports]


def people_table(found: GroupResults, output_dir: Path) -> Table:
    """All visits with R-indices, intervals and centiles as far as known, and flags."""
    visits, results = found.cohort.visits, found.results
    known = [name for name in (PARTICIPANT, SESSION, 'group') if name in visits]
    table = visits.loc[results.index, known].rename(
        columns={PARTICIPANT: 'participant', SESSION: 'session'}
    )
    formats = {}
    for name in found.names:
        table[name] = results[name]
        formats[name] = '{:.2f}'
        if f'{name}_low' in results:
            table[f'{name}, 68 %'] = _intervals(results[f'{name}_low'], results[f'{name}_high'])
        if f'{name}_centile' in results:
            table[f'{name} centile'] = results[f'{name}_centile']
            formats[f'{name} centile'] = '{:.0f}'
    flags = [flags_of(row) for row in results.to_dict('records')]
    links = report_links(output_dir, visits.loc[results.index, PARTICIPANT], output_dir)
    table['flags'] = ['; '.join(each) for each in flags]
    return Table(
        table.reset_index(drop=True),
        'All participants; choose one to open the report. Numbers to more digits are in '
        'phenotype/rindices.tsv',
        formats,
        marked=[bool(each) for each in flags],
        links={'participant': links},
        interactive=True,
    )


def _intervals(low: pd.Series, high: pd.Series) -> list[str | None]:
    return [None if pd.isna(a) or pd.isna(b) else f'{a:.2f} to {b:.2f}' for a, b in zip(low, high)]


def exclusion_table(exclusions: pd.DataFrame) -> Block:
    """Who was excluded, and why."""
    if exclusions.empty:
        return Notice('Nobody was excluded.', 'good')
    fold = f'{len(exclusions)} excluded' if len(exclusions) > FEW_ROWS else ''
    return Table(exclusions, 'Who was excluded, and why', fold=fold)
