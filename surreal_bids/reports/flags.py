"""Quality flags of participants, and the table of all participants with R-indices and flags."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pandas as pd

from surreal_bids.analysis.engine import Analysis
from surreal_bids.bids.outputs import (
    Record,
    output_path,
    read_quality,
    sidecar_path,
    visit_output,
)
from surreal_bids.cautions import FIGURES, R_INDICES, Caution
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.harmonization.encoding import TOLERATED
from surreal_bids.imaging.norms import norms
from surreal_bids.names import PARTICIPANT, SESSION, is_label, without_prefix
from surreal_bids.reports.pages import Block, Paragraph, Table
from surreal_bids.rindices.crossfit import HELD_OUT, MIN_REPRODUCED, NOT_HELD_OUT
from surreal_bids.rindices.preprocessing import INCOMPLETE, NONE_BEYOND
from surreal_bids.text import counted

HOW_TO_READ = (
    '0 is not a normal value and 1 is not a maximum: compare with the controls. About 1 is the '
    'level of the most affected training patients.'
)
"""How to read an R-index."""

CONTRIBUTIONS = 'Regional contributions'
"""Title of a part of the section of R-indices."""

FEW_ROWS = 12
"""Longer tables are folded."""


class Flag(NamedTuple):
    """A quality flag: in a few words, and as a warning."""

    short: str
    caution: Caution


NO_INDICES = 'There are no R-indices'

NOT_HARMONIZED = Flag(
    'site not harmonized',
    Caution(
        'The model does not include this site',
        'Volumes were not harmonized, and the R-indices include scanner effects',
        'Compare within this scanner only, or add the site with controls (surreal-gan add-site)',
    ),
)
STATUS_FLAGS = {
    UNHARMONIZED: NOT_HARMONIZED,
    INCOMPLETE: Flag(
        'covariate, ICV or site missing',
        Caution(
            'A covariate, the intracranial volume or the site is missing',
            NO_INDICES,
            'Complete the table of participants, and run the group level again',
        ),
    ),
    NOT_HELD_OUT: Flag(
        'no out-of-fold model',
        Caution(
            'No model could be trained without this participant',
            NO_INDICES,
            'Add controls of the same site and covariates to the study',
        ),
    ),
}
"""Flags by the status of a visit."""

OUTSIDE = Flag(
    'regional volumes unlike those of the training participants',
    Caution(
        'The regional volumes are unlike those of the participants that this model was trained on',
        'The R-indices are extrapolated',
        'Check the segmentation',
        CONTRIBUTIONS,
    ),
)
ANOTHER_FOLD = Flag(
    'pattern not reproduced in the fold',
    Caution(
        'Not all patterns were reproduced in the fold of this participant',
        'The model trained without this participant partly describes other patterns, so these '
        'R-indices cannot be compared with those of other participants',
        'Do not use them alone; the study needs more participants',
    ),
)


def flags_of(row: Mapping[Any, Any]) -> list[Flag]:
    """Return the quality flags of a visit.

    Parameters
    ----------
    row
        The visit's row of the table of R-indices.
    """
    flags = [STATUS_FLAGS[row['status']]] if row['status'] in STATUS_FLAGS else []
    in_range = row.get('brain_in_range')
    if not (pd.isna(in_range) or in_range):
        flags.append(OUTSIDE)
    flags += [*_extrapolated(row), *_imputed(row)]
    if row['status'] != NOT_HELD_OUT and row.get('fold_correlation', 1.0) < MIN_REPRODUCED:
        flags.append(ANOTHER_FOLD)
    return [_with_reason(flag, row.get('reason')) for flag in flags]


def _extrapolated(row: Mapping[Any, Any]) -> list[Flag]:
    """Return the flag of covariates beyond the range of the controls of the model."""
    beyond = row.get('covariates_out_of_range', NONE_BEYOND)
    if not isinstance(beyond, str) or beyond == NONE_BEYOND:
        return []
    is_held_out = row.get(HELD_OUT) in (True,)
    whose = 'controls of the other folds' if is_held_out else 'training controls'
    text = f'{beyond} more than {TOLERATED:.0%} beyond the range of the {whose}'
    remedy = 'Interpret the R-indices with care, or add controls in this range'
    return [Flag(text, Caution(text, 'Effects on volumes are extrapolated', remedy))]


def _imputed(row: Mapping[Any, Any]) -> list[Flag]:
    """Return the flag of imputed regions."""
    count = row.get('n_imputed', 0)
    if not count > 0:
        return []
    text = '1 region was missing' if count == 1 else f'{count:.0f} regions were missing'
    bias = 'Missing regions were imputed from controls, so the R-indices may be too low'
    return [Flag(text, Caution(text, bias, 'Check the segmentation or the table'))]


def _with_reason(flag: Flag, reason: object) -> Flag:
    """Add why there is no out-of-fold R-index, as the table of R-indices says."""
    if not isinstance(reason, str) or flag != STATUS_FLAGS[NOT_HELD_OUT]:
        return flag
    found = f'{flag.caution.found} ({reason})'
    return flag._replace(caution=flag.caution._replace(found=found))


OUTLIER = 'image quality is an outlier'
"""Flag of images that differ from the others of their scanner."""

AFFECTED_SHARE = 0.05
"""Share of a region above which a lesion affects it."""

UNCERTAIN_SHARE = 0.1
"""Proportion of uncertain regions above which an image is flagged."""


def image_flags(output_dir: Path, participant: str, session: object = None) -> list[Flag]:
    """Return the flags of an image; none for participants without images."""
    label = without_prefix(participant, 'sub')
    if not is_label(label):
        return []
    name = without_prefix(session, 'ses') if isinstance(session, str) else None
    record = Record.read(output_dir, (label, name))
    flags = [Flag('warning on the image', caution) for caution in record.warnings]
    path = visit_output(output_dir, 'quality', participant, session)
    quality = {} if path is None else read_quality(path)
    flags += _uncertain(quality.get('uncertain_regions'))
    if quality.get('lesion_ml'):
        tables = [output_dir / name for name in record.outputs if name.endswith('_dseg.tsv')]
        for table in filter(Path.is_file, tables):
            flags += _lesion(table, quality['lesion_ml'])
    return flags


def _lesion(table: Path, volume_ml: float) -> list[Flag]:
    sidecar = sidecar_path(table)
    described = json.loads(sidecar.read_text('utf-8')) if sidecar.is_file() else {}
    if described.get('RegionsComputed', True):
        return _affected(pd.read_csv(table, sep='\t'))
    caution = Caution(
        f'there is a lesion of {volume_ml:.1f} ml, and the regions are those of '
        f'{described["Atlas"]}',
        'That program may have left the lesion out or labelled it wrongly, so that volumes and '
        'R-indices may be wrong',
        'Check the figure of the regions, or leave the participant out',
        FIGURES,
    )
    return [Flag('lesion', caution)]


def _affected(table: pd.DataFrame) -> list[Flag]:
    affected = table[table['lesion_share'] > AFFECTED_SHARE]
    if affected.empty:
        return []
    share, name = max(zip(affected['lesion_share'], affected['name']))
    caution = Caution(
        f'a lesion takes more than {AFFECTED_SHARE:.0%} of {counted(len(affected), "region")}, '
        f'most of {name} ({share:.0%})',
        'Volumes of these regions are estimates of what was there before the lesion, and R-indices '
        'that depend on them do not show its effect',
        'Look the regions up in column lesion_share of dseg.tsv, or leave the participant out',
        FIGURES,
    )
    return [Flag('lesion', caution)]


def _uncertain(count: float | None) -> list[Flag]:
    """Return the flag of an image with this number of uncertain regions; None: not known."""
    n_regions = len(norms())
    if count is None or count <= UNCERTAIN_SHARE * n_regions:
        return []
    caution = Caution(
        f'the network is uncertain about {count:.0f} of {n_regions} regions',
        'The image quality is poor or unusual, and volumes may be wrong',
        'Check the figure of the regions',
        FIGURES,
    )
    return [Flag('uncertain segmentation', caution)]


def report_of(output_dir: Path, participant: str) -> Path | None:
    """Return the path of a report; None if the name of the participant is not a BIDS label."""
    label = without_prefix(participant, 'sub')
    return output_path(output_dir, 'report', participant=label) if is_label(label) else None


def report_links(output_dir: Path, participants: Iterable[str], folder: Path) -> list[str | None]:
    """Return links from files in `folder` to the reports of participants, or None."""
    reports = [report_of(output_dir, participant) for participant in participants]
    return [None if path is None else quote(os.path.relpath(path, folder)) for path in reports]


def visit_flags(found: Analysis, output_dir: Path, outliers: pd.Series | None = None) -> pd.Series:
    """Return the flags of every visit with results, in a few words; empty if there are none.

    Parameters
    ----------
    found
        Results of the analysis.
    output_dir
        The output folder.
    outliers
        Metrics of quality in which the image of a visit is an outlier; missing where in none.
    """
    visits = found.cohort.visits.loc[found.results.index].to_dict('records')
    flags = [
        [*flags_of(row), *image_flags(output_dir, visit[PARTICIPANT], visit.get(SESSION))]
        for row, visit in zip(found.results.to_dict('records'), visits)
    ]
    words = [list(dict.fromkeys(flag.short for flag in each)) for each in flags]
    if outliers is not None:
        outlying = outliers.reindex(found.results.index).notna()
        words = [[*each, OUTLIER] if bad else each for each, bad in zip(words, outlying)]
    return pd.Series(['; '.join(each) for each in words], found.results.index, dtype=object)


OF_ALL = {ANOTHER_FOLD.short, STATUS_FLAGS[NOT_HELD_OUT].short, ''}
"""Flags that a warning about the whole study explains."""


def warn_of_flags(found: Analysis, flags: pd.Series) -> list[Caution]:
    """Warn of participants with quality flags of their own."""
    who = found.cohort.visits.loc[flags.index, PARTICIPANT]
    of_kind: dict[str, set[str]] = {}
    for participant, words in zip(who, flags):
        for kind in set(words.split('; ')) - OF_ALL:
            of_kind.setdefault(kind, set()).add(participant)
    count = len(set().union(*of_kind.values()))
    if not count:
        return []
    kinds = ', '.join(f'{kind}: {len(named)}' for kind, named in sorted(of_kind.items()))
    return [
        Caution(
            f'{count} of {counted(who.nunique(), "participant")} '
            f'{"has" if count == 1 else "have"} a quality flag ({kinds})',
            'Their R-indices may be less reliable',
            'Look them up in the table of participants in the report, column flags',
            R_INDICES,
        )
    ]


def participant_table(
    found: Analysis, flags: pd.Series, links: Sequence[str | None], source: str
) -> Table:
    """Return the table of all visits with R-indices, intervals, centiles and flags.

    Parameters
    ----------
    found
        Results of the analysis.
    flags
        What :func:`visit_flags` returned.
    links
        The report of each visit's participant, if there is one.
    source
        Name of the table with the same results.
    """
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
            table[f'{name}, 68% interval'] = _intervals(
                results[f'{name}_low'], results[f'{name}_high']
            )
        if f'{name}_centile' in results:
            centile = f'{name}, centile among controls'
            table[centile] = results[f'{name}_centile']
            formats[centile] = '{:.1f}'
    table['flags'] = flags
    return Table(
        table.reset_index(drop=True),
        f'All participants{", with links to their reports" if any(links) else ""}. For training '
        f'participants, flags refer to the model of their fold. {source} has more digits',
        formats,
        marked=flags.ne('').tolist(),
        links={'participant': links},
        interactive=True,
    )


def _intervals(low: pd.Series, high: pd.Series) -> list[str | None]:
    ends = zip(low.round(2) + 0.0, high.round(2) + 0.0)  # No minus zero.
    return [None if pd.isna(a) or pd.isna(b) else f'{a:.2f} to {b:.2f}' for a, b in ends]


def exclusion_table(exclusions: pd.DataFrame) -> Block:
    """Return the table of excluded participants, with reasons."""
    if exclusions.empty:
        return Paragraph('No participant was excluded.')
    fold = f'{len(exclusions)} excluded' if len(exclusions) > FEW_ROWS else ''
    return Table(exclusions, 'Excluded participants', fold=fold)


def not_held_out(found: Analysis) -> list[Block]:
    """Return the participants without out-of-fold R-indices, and why."""
    lacking = found.results[found.results['status'] == NOT_HELD_OUT]
    if lacking.empty:
        return []
    table = pd.DataFrame({'participant': lacking.index, 'reason': lacking['reason']})
    title = 'Participants without out-of-fold R-indices'
    fold = f'{title}: {len(lacking)}' if len(lacking) > FEW_ROWS else ''
    return [Table(table, title, fold=fold)]
