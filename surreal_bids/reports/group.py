"""The group report: patterns, what to check, participants, R-indices, statistics, maps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd

from surreal_bids.analysis.asymmetry import in_words
from surreal_bids.analysis.engine import Analysis, describe_flags
from surreal_bids.analysis.headlines import headline
from surreal_bids.analysis.image_quality import FEWEST_IMAGES, OUTLIERS
from surreal_bids.analysis.limits import FALSE_ALARMS, describe_source
from surreal_bids.analysis.maps import VoxelMaps
from surreal_bids.analysis.patterns import values_by_region
from surreal_bids.analysis.statistics import describe_indices
from surreal_bids.bids.outputs import output_path
from surreal_bids.cautions import (
    CHANGE,
    HARMONIZATION,
    MODEL,
    PARTICIPANTS,
    PATTERNS,
    R_INDICES,
    SEPARATION,
    Caution,
    unite,
)
from surreal_bids.cohort.roles import group_uses
from surreal_bids.model.number import stored_number, warn_of_chance
from surreal_bids.names import (
    CONTROL,
    GROUP_NAMES,
    PARTICIPANT,
    PATIENT,
    SESSION,
    SINGULAR,
    is_label,
    without_prefix,
)
from surreal_bids.reports import figures
from surreal_bids.reports.card import (
    Reproducibility,
    explain_number,
    formats_of_tried,
    how_scored,
    model_facts,
    pattern_words,
    preprocessing_facts,
    published_meanings,
    reproducibility_of,
)
from surreal_bids.reports.flags import warn_of_flags
from surreal_bids.reports.methods import Methods
from surreal_bids.reports.mosaics import CHANGE as CHANGE_COLOURS
from surreal_bids.reports.mosaics import Background, RegionPainter, Scale, StatisticalMap
from surreal_bids.reports.pages import TABLES, link_to, render, slug, write_page
from surreal_bids.text import counted, list_briefly

FEWEST_CONTROLS = 20
"""Controls whose 95th centile is given."""


@dataclass(frozen=True, eq=False)
class GroupReport:
    """Content of the report.

    Attributes
    ----------
    output_dir
        Root of the outputs; figures are written below.
    title
        Name of the dataset.
    found
        Results of the analysis.
    methods
        What was done; see :func:`surreal_bids.reports.methods.describe_group_methods`.
    voxel_maps
        By tissue.
    tables
        Names of the tables of results that the text refers to, as far as they were written.
    has_individuals
        Whether participants have reports of their own, below `output_dir`.
    """

    output_dir: Path
    title: str
    found: Analysis
    methods: Mapping[str, Any]
    voxel_maps: Mapping[str, VoxelMaps] = field(default_factory=dict)
    tables: Mapping[str, str] = field(
        default_factory=lambda: {'rindices': output_path('', 'rindices').as_posix()}
    )
    has_individuals: bool = True

    @cached_property
    def card(self) -> dict[str, Any]:
        """Card of the model."""
        return dict(self.found.model.state()[1])

    @cached_property
    def cautions(self) -> list[Caution]:
        """What to check."""
        flagged = warn_of_flags(self.found, self.found.flags, self.tables['rindices'])
        return list(unite([*self.found.cautions, *flagged]))

    @cached_property
    def background(self) -> Background:
        """The template."""
        return Background.read()

    def figure_path(self, name: str, extension: str = 'svg') -> Path:
        """Return the path of a figure."""
        return output_path(self.output_dir, 'group_figure', figure=name, extension=extension)

    def links(self, participants: Iterable[str]) -> list[str | None]:
        """Return links to the reports of participants, or None."""
        labels = [without_prefix(name, 'sub') for name in participants]
        return [
            link_to(output_path(self.output_dir, 'report', participant=label), self.output_dir)
            if self.has_individuals and is_label(label)
            else None
            for label in labels
        ]


def write_group_report(report: GroupReport) -> Path:
    """Draw all figures and write the report."""
    found, path = report.found, output_path(report.output_dir, 'group_report')
    explained = explain_number(report.card)
    change = _change(report)
    titles = [PATTERNS, PARTICIPANTS, HARMONIZATION, MODEL]
    if found.names:
        titles += [R_INDICES, SEPARATION]
    if change:
        titles.append(CHANGE)
    content = render(
        'group.html',
        path.parent,
        found=found,
        model=report.methods['model'],
        tables=report.tables,
        cards=_cards(report),
        explained=explained,
        tried=None if explained is None else pd.DataFrame(explained.rows),
        tried_formats={} if explained is None else formats_of_tried(explained.rows),
        scored=how_scored(report.card) if found.trained_here else [],
        cautions=report.cautions,
        anchors={title: slug(title) for title in titles},
        chance=warn_of_chance(stored_number(report.card.get('Stability'))),
        excluded=_excluded(found.cohort.exclusions),
        images=_images(report),
        groups=_plot_groups(report),
        means=describe_indices(found.first_visits.dropna(subset=['group']), found.names),
        participants=_participants(report),
        associations=_associations(found.associations),
        associations_of_others=_associations(found.associations_of_others),
        untested=pd.DataFrame(found.untested.items(), columns=['measure', 'reason']),
        change=change,
        maps=[_tissue(report, tissue, maps) for tissue, maps in report.voxel_maps.items()],
        harmonization=_harmonization(report),
        facts=model_facts(report.card) | preprocessing_facts(report.card['Preprocessing']),
        uses=group_uses(found.cohort.uses) if len(found.cohort.uses) else None,
        notes=dict(note.split(': ', 1) for note in found.cohort.notes),
        methods=Methods(group=report.methods).html,
        sides=[] if found.asymmetry is None else in_words(found.asymmetry),
        patterns=_regions(found.patterns),
    )
    return write_page(path, report.title, content, _subtitle(report), [TABLES])


def _subtitle(report: GroupReport) -> str:
    cohort, names = report.found.cohort, report.found.names
    counts = {GROUP_NAMES[group]: cohort.counts[group] for group in (CONTROL, PATIENT)}
    apart = 0 if cohort.apart is None else cohort.apart.visits[PARTICIPANT].nunique()
    counts['participants of other or unknown groups'] = cohort.n_without_group + apart
    listed = [f'{count} {who}' for who, count in counts.items() if count]
    patterns = counted(len(names), 'pattern') if names else 'no pattern'
    how = f' (R-indices {"in sample" if report.found.fitted is None else "out of fold"})'
    if report.methods['model']:
        how = f' (model {report.methods["model"]})'
    elif not names:
        how = ''
    return f'Group report: {", ".join(listed)}; {patterns}{how}'


def _cards(report: GroupReport) -> list[dict[str, Any]]:
    """Return what the report shows of each pattern first."""
    found = report.found
    reproduced, meanings = reproducibility_of(report.card), published_meanings(report.card)
    brains, patterns = _draw_patterns(report), found.patterns
    return [
        {
            'name': name,
            'colour': figures.pattern_colour(found.names, name),
            'brain': brains.get(name),
            'headline': _headline(patterns[patterns['pattern'] == name], reproduced.get(name)),
            'expected': _expected_share(found.first_visits, name),
            'regions': pattern_words(patterns[patterns['pattern'] == name]),
            'meaning': meanings.get(name, ''),
            'shares': _shares(found.first_visits, name),
            'reproduced': reproduced.get(name),
        }
        for name in found.names
    ]


def _draw_patterns(report: GroupReport) -> dict[str, Path]:
    """Draw each pattern on the template if its regions are those of the atlas."""
    patterns = report.found.patterns
    if patterns.empty or not patterns['muse_regions'].notna().any():
        return {}
    from surreal_bids.templates import muse_labels

    painter = RegionPainter(report.background, muse_labels())
    shown = patterns[patterns['shown'].astype(bool)]
    limit = float(np.ceil(2 * shown['change_sd'].abs().max()) / 2) if len(shown) else 1.0
    scale = Scale(CHANGE_COLOURS, -limit, limit, 'change (SD of controls)')
    return {
        name: painter.draw(
            report.figure_path(f'{name}pattern', 'jpg'),
            {'': values_by_region(shown[shown['pattern'] == name], 'change_sd')},
            scale,
        )
        for name in report.found.names
    }


def _shares(first: pd.DataFrame, name: str) -> list[str]:
    """Return how many participants of each group exceed the 95th centile of controls.

    Participants without a centile, such as those of an unknown site, are not counted.
    """
    controls = first.loc[first['group'] == CONTROL, name].dropna()
    if len(controls) < FEWEST_CONTROLS or f'{name}_centile' not in first:
        return []
    scored = first[first[name].notna()]
    shares = []
    for group in figures.group_colours([str(group) for group in first['group'].dropna()]):
        centiles = scored.loc[scored['group'] == group, f'{name}_centile']
        compared = centiles.dropna()
        if group == CONTROL or compared.empty:
            continue
        above = int((compared > 95).sum())
        whom = GROUP_NAMES.get(group, group)
        if len(compared) < len(centiles):
            whom = f'{whom} with a centile'
        shares.append(f'{above} of {len(compared)} {whom} ({above / len(compared):.0%})')
    return shares


def _expected_share(first: pd.DataFrame, name: str) -> float:
    """Return the share of healthy participants above the 95th centile of so few controls.

    The number of controls below a new healthy participant is uniform on 0 to n, and the centile is
    100 (k + 0.5) / (n + 1) if it is k.
    """
    numbers = first.get('centile_controls', pd.Series(dtype=float)).dropna()
    if numbers.empty or f'{name}_centile' not in first:
        return 0.05
    n_controls = int(numbers.iloc[0])
    below = np.arange(n_controls + 1)
    return float(np.mean(100 * (below + 0.5) / (n_controls + 1) > 95))


def _headline(rows: pd.DataFrame, reproduced: Reproducibility | None) -> str:
    """Return where a pattern is; empty if it should not be interpreted."""
    if reproduced is not None and not reproduced.is_enough:
        return ''
    return headline(rows)


def _regions(patterns: pd.DataFrame) -> pd.DataFrame:
    """Return all regions of all patterns, for a table."""
    names = {
        'pattern': 'pattern',
        'region': 'region',
        'change_percent': 'change (%)',
        'change_sd': 'change (SD of controls)',
        'contribution': 'contribution',
        'shown': 'shown',
    }
    shown = patterns['shown'].map({True: 'yes', False: ''})
    table = patterns.assign(shown=shown)[list(names)].rename(columns=names)
    return table if table.empty else table.dropna(axis=1, how='all')


def _excluded(exclusions: pd.DataFrame) -> pd.DataFrame:
    """Return how many participants were excluded for each reason, and who."""
    rows = [
        {
            'reason': reason,
            'participants': rows[PARTICIPANT].nunique(),
            'who': list_briefly(rows[PARTICIPANT].unique()),
        }
        for reason, rows in exclusions.groupby('reason', sort=False)
    ]
    return pd.DataFrame(rows, columns=['reason', 'participants', 'who'])


def _plot_groups(report: GroupReport) -> Path | None:
    """Draw the R-indices of all groups at the first visit."""
    first = report.found.first_visits.dropna(subset=[*report.found.names, 'group'])
    if first.empty or not report.found.names:
        return None
    counts = first['group'].value_counts()
    words = {str(k): f'{GROUP_NAMES.get(str(k), str(k))} (n = {n})' for k, n in counts.items()}
    drawn = figures.plot_r_indices(first[report.found.names], first['group'], words)
    return figures.save_figure(report.figure_path('rindices'), drawn)


def _participants(report: GroupReport) -> dict[str, Any]:
    """Return the table of all visits with R-indices, centiles and flags."""
    found = report.found
    visits, results = found.scored.visits, found.all_results
    known = [name for name in (PARTICIPANT, SESSION) if name in visits]
    table = visits.loc[results.index, known].rename(
        columns={PARTICIPANT: 'participant', SESSION: 'session'}
    )
    groups = found.scored.groups.reindex(results.index)
    if groups.notna().any():
        table['group'] = [SINGULAR.get(group, group) for group in groups]
    formats = {}
    for name in found.names:
        table[name], formats[name] = results[name].round(2) + 0.0, '{:.2f}'  # No minus zero.
        # With more than three patterns, centiles would hide the flags.
        if f'{name}_centile' in results and len(found.names) <= 3:
            table[f'{name} centile'] = results[f'{name}_centile']
            formats[f'{name} centile'] = '{:.1f}'
    table['flags'] = found.flags.map(describe_flags)
    return {
        'frame': table,
        'formats': formats,
        'links': {'participant': report.links(visits.loc[results.index, PARTICIPANT])},
        'marked': table['flags'].ne('').tolist(),
    }


def _images(report: GroupReport) -> dict[str, Any] | None:
    """Return the quality of images, and which of them to look at."""
    if report.found.images is None:
        return None
    table, scores = report.found.images
    compared = int(scores.notna().any(axis=1).sum())
    found = table[table[OUTLIERS].notna()]
    shown = found[[name for name in (PARTICIPANT, SESSION, OUTLIERS) if name in found]]
    path = None
    if compared:
        path = figures.save_figure(report.figure_path('quality'), figures.plot_quality(scores))
    return {
        'path': path,
        'compared': compared,
        'fewest': FEWEST_IMAGES,
        'outliers': shown,
        'links': {PARTICIPANT: report.links(found[PARTICIPANT])},
        'source': output_path('', 'image_quality').as_posix(),
    }


def _associations(table: pd.DataFrame) -> pd.DataFrame:
    """Return correlations with the interval in one column."""
    if table.empty:
        return table
    higher = [f' = {level}' if isinstance(level, str) else '' for level in table['higher_level']]
    columns = {
        'measure': table['measure'].astype(str) + higher,
        'R-index': table['index'],
        'n': table['n'],
        'r': table['estimate'],
        '95% interval': _intervals(table['low'], table['high']),
        'p': table['p'],
        'p (FDR)': table['p_corrected'],
    }
    if 'group' in table:
        columns = {'group': table['group'], **columns}
    return pd.DataFrame(columns)


def _intervals(low: pd.Series, high: pd.Series) -> list[str | None]:
    ends = zip(low.round(2) + 0.0, high.round(2) + 0.0)  # No minus zero.
    return [None if pd.isna(a) or pd.isna(b) else f'{a:.2f} to {b:.2f}' for a, b in ends]


def _change(report: GroupReport) -> dict[str, Any] | None:
    """Return R-indices over visits, change per year of groups, and counts of reliable changes."""
    found, names = report.found, report.found.names
    changes, reliable = found.changes, found.reliable_changes
    if found.group_change is None or changes is None or reliable is None or not names:
        return None
    visits = found.scored.visits
    # Who is of two groups in turn is drawn in the first.
    group = found.scored.groups.groupby(visits[PARTICIPANT]).transform('first')
    course = visits.assign(group=group).join(found.all_results[names])
    course = course.sort_values('years', kind='stable') if 'years' in course else course
    course = course.dropna(subset=[name for name in ('years', 'group', *names) if name in course])
    course = course[course[PARTICIPANT].duplicated(keep=False)]
    path = None
    if 'years' in course and len(course):
        drawn = figures.plot_trajectories(course, names)
        path = figures.save_figure(report.figure_path('trajectories'), drawn)
    formats = dict.fromkeys(('estimate', 'low', 'high'), '{:.3f}')
    formats |= dict.fromkeys(('p', 'p (Holm)'), '{:.2g}')
    table = found.group_change.rename(columns={'index': 'R-index', 'p_corrected': 'p (Holm)'})
    return {
        'path': path,
        'table': table,
        'formats': formats,
        'limits': describe_source(changes),
        'reliable': _reliable(reliable),
        'false_alarms': FALSE_ALARMS,
    }


def _reliable(table: pd.DataFrame) -> pd.DataFrame:
    """Return how many participants have a reliable change, beside the number expected by chance."""
    share = [f'{share:.0%}' for share in table['estimate']]
    low, high = (table[end].map('{:.0%}'.format) for end in ('low', 'high'))
    return pd.DataFrame(
        {
            'group': table['group'],
            'participants': table['n'],
            'with a reliable change': table['n_reliable'],
            'expected by chance': table['n_expected'],
            'share': share,
            '95% interval': low + ' to ' + high,
        }
    )


def _harmonization(report: GroupReport) -> Path | None:
    """Draw site effects before and after ComBat."""
    if report.found.quality is None:
        return None
    drawn = figures.plot_harmonization(report.found.quality)
    return figures.save_figure(report.figure_path('harmonization'), drawn)


def _tissue(report: GroupReport, tissue: str, maps: VoxelMaps) -> dict[str, Any]:
    """Draw the voxelwise test of a tissue and the slopes on R-indices."""
    summary, root = maps.summary, report.output_dir
    found = summary[summary.get('discoveries', pd.Series(dtype=float)).gt(0)]
    slopes = summary[summary['contrast'].str.endswith('slope')]
    drawn = []
    for row in [*found.to_dict('records'), *slopes.to_dict('records')]:
        is_test = row['kind'] == 'test'
        image = nib.Nifti1Image.from_filename(maps.images[row['contrast']])
        title, label = f'{tissue}: {row["description"]}', 't' if is_test else 'change per R = 1'
        shown = StatisticalMap(image, title, label, row['t_at_fdr_0.05'] if is_test else 0.0)
        name = f'{row["contrast"]}{tissue}'
        path = shown.draw(report.figure_path(name, 'jpg'), report.background)
        viewer = report.figure_path(name, 'html')
        shown.write_viewer(viewer, report.background, output_path(root, 'group_report'))
        drawn.append({'title': title, 'is_test': is_test, 'path': path, 'viewer': viewer})
    skipped = pd.DataFrame(maps.skipped.items(), columns=['contrast', 'reason'])
    return {'tissue': tissue, 'summary': summary, 'skipped': skipped, 'drawn': drawn}
