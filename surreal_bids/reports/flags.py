"""Participants in reports: what to know of each, and a table of all with their R-indices."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pandas as pd

from surreal_bids.analysis.engine import GroupResults
from surreal_bids.bids.layout import is_label, without_prefix
from surreal_bids.bids.outputs import Record, output_path
from surreal_bids.bids.tabular import PARTICIPANT, SESSION
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.imaging.norms import UNCERTAIN
from surreal_bids.reports.pages import Block, Notice, Table
from surreal_bids.rindices.crossfit import FOUND_AGAIN, NOT_HELD_OUT
from surreal_bids.rindices.preprocessing import INCOMPLETE, NONE_BEYOND

FEW_ROWS = 12
"""Longer tables are folded."""


class Flag(NamedTuple):
    """What to know before an R-index is used: in a few words, and in a sentence."""

    short: str
    long: str


NOT_HARMONIZED = Flag(
    'site not harmonized',
    'The model does not know the site: volumes were used as measured, and the R-indices hold '
    'whatever the scanner does.',
)
STATUS_FLAGS = {
    UNHARMONIZED: NOT_HARMONIZED,
    INCOMPLETE: Flag(
        'a covariate, the ICV or the site is missing',
        'A covariate, the intracranial volume or the site is missing: there are no R-indices.',
    ),
    NOT_HELD_OUT: Flag(
        'could not be held out',
        'No model could be learned without this participant: there are no R-indices.',
    ),
}
"""Flags that follow from the status of a visit."""

OUTSIDE = Flag(
    'outside the training population',
    'The brain lies outside the population that the model was trained on: the R-indices are an '
    'extrapolation.',
)
ANOTHER_FOLD = Flag(
    'other patterns without the fold',
    'When this participant and others of the fold were held out, the model did not find all '
    'patterns again: there is no R-index of those that it lost',
)


def flags_of(row: Mapping[Any, Any]) -> list[Flag]:
    """What to know before the R-indices of a visit are used.

    Parameters
    ----------
    row
        The visit's row of what `TableModel.compute` or `cross_fit` returned.
    """
    flags = [STATUS_FLAGS[row['status']]] if row['status'] in STATUS_FLAGS else []
    in_range = row.get('brain_in_range')
    if not (pd.isna(in_range) or in_range):
        flags.append(OUTSIDE)
    beyond = row.get('covariates_out_of_range', NONE_BEYOND)
    if isinstance(beyond, str) and beyond != NONE_BEYOND:
        text = f'{beyond} outside the training range'
        long = 'Outside the training range of controls, so that effects are extrapolated: '
        flags.append(Flag(text, f'{long}{beyond}.'))
    if row.get('n_imputed', 0) > 0:
        text = f'{row["n_imputed"]:.0f} regions were missing'
        flags.append(Flag(text, f'{text}, and filled in with what is usual for controls.'))
    if row.get('fold_correlation', 1.0) < FOUND_AGAIN:
        reason = row.get('reason')
        which = f' ({reason})' if isinstance(reason, str) else ''
        flags.append(ANOTHER_FOLD._replace(long=f'{ANOTHER_FOLD.long}{which}.'))
    return flags


UNCERTAIN_SHARE = 0.1
"""An image is called poor where more than this part of its regions is uncertain."""


def image_flags(output_dir: Path, participant: str, session: object = None) -> list[Flag]:
    """What the participant level has to say of an image; nothing where there is none."""
    label = without_prefix(participant, 'sub')
    if not is_label(label):
        return []
    name = without_prefix(session, 'ses') if isinstance(session, str) else None
    record = Record.read(output_dir, (label, name))
    flags = [Flag('warning on the image', f'The image: {text}') for text in record.warnings]
    for path in record.outputs:
        if path.endswith('_dseg.tsv') and (output_dir / path).is_file():
            confidence = pd.read_csv(output_dir / path, sep='\t').get('confidence')
            flags += [] if confidence is None else _uncertain(confidence)
    return flags


def _uncertain(confidence: pd.Series) -> list[Flag]:
    count = int((confidence < UNCERTAIN).sum())
    if count <= UNCERTAIN_SHARE * len(confidence):
        return []
    text = (
        f'The image is poor, or unlike those that the network knows: it is not sure of {count} of '
        f'{len(confidence)} regions.'
    )
    return [Flag('poor image', text)]


def report_of(output_dir: Path, participant: str) -> Path | None:
    """Where the report of a participant is, or will be; None where the name is no BIDS label."""
    label = without_prefix(participant, 'sub')
    return output_path(output_dir, 'report', participant=label) if is_label(label) else None


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
        table[name] = results[name].round(2) + 0.0  # No minus zero.
        formats[name] = '{:.2f}'
        if f'{name}_low' in results:
            table[f'{name}, 68 %'] = _intervals(results[f'{name}_low'], results[f'{name}_high'])
        if f'{name}_centile' in results:
            table[f'{name} centile'] = results[f'{name}_centile']
            formats[f'{name} centile'] = '{:.0f}'
    flags = [
        [*flags_of(row), *image_flags(output_dir, visit[PARTICIPANT], visit.get(SESSION))]
        for row, visit in zip(
            results.to_dict('records'), visits.loc[results.index].to_dict('records')
        )
    ]
    links = report_links(output_dir, visits.loc[results.index, PARTICIPANT], output_dir)
    table['flags'] = ['; '.join(dict.fromkeys(flag.short for flag in each)) for each in flags]
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
    ends = zip(low.round(2) + 0.0, high.round(2) + 0.0)  # No minus zero.
    return [None if pd.isna(a) or pd.isna(b) else f'{a:.2f} to {b:.2f}' for a, b in ends]


def exclusion_table(exclusions: pd.DataFrame) -> Block:
    """Who was excluded, and why."""
    if exclusions.empty:
        return Notice('Nobody was excluded.', 'good')
    fold = f'{len(exclusions)} excluded' if len(exclusions) > FEW_ROWS else ''
    return Table(exclusions, 'Who was excluded, and why', fold=fold)
