"""The report of the group: what was found, in whom, and how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nibabel as nib
import pandas as pd

from surreal_bids import __version__
from surreal_bids.analysis.engine import GroupResults
from surreal_bids.bids.outputs import output_path
from surreal_bids.bids.tabular import CONTROL, PARTICIPANT, PATIENT, SPREAD_SUFFIX
from surreal_bids.reports import figures
from surreal_bids.reports.flags import FEW_ROWS, exclusion_table, people_table, report_links
from surreal_bids.reports.methods import GroupMethods, MethodsOptions, methods_html, methods_text
from surreal_bids.reports.model_card import (
    against_chance,
    agreement_table,
    chance_of,
    linear_table,
    model_facts,
    stability_table,
    verdict,
)
from surreal_bids.reports.pages import (
    Block,
    Code,
    Facts,
    Figure,
    Html,
    Notice,
    Number,
    Numbers,
    Paragraph,
    Section,
    Table,
    write_page,
)
from surreal_bids.reports.viewers import (
    Background,
    DrawnMap,
    draw_mosaic,
    write_viewer,
)
from surreal_bids.rindices.control_sensitivity import describe_shift
from surreal_bids.rindices.crossfit import HELD_OUT, NOT_HELD_OUT


@dataclass(frozen=True, eq=False)
class VoxelMaps:
    """Voxelwise maps of one tissue, by contrast, what was found, and what was skipped.

    Images are t of what is a test, and effects of what is a description.
    """

    images: Mapping[str, Path]
    summary: pd.DataFrame
    skipped: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class GroupReport:
    """All that the report shows.

    Attributes
    ----------
    output_dir
        Root of the outputs; figures are written below.
    title
        Name of the dataset.
    found
        What was found.
    card
        Card of the model.
    methods
        What was done.
    pattern_maps
        Images of the patterns in template space, by pattern; empty where there is no atlas.
    voxel_maps
        By tissue.
    background
        What maps are drawn on; None where there are none.
    """

    output_dir: Path
    title: str
    found: GroupResults
    card: Mapping[str, Any]
    methods: GroupMethods
    pattern_maps: Mapping[str, Path] = field(default_factory=dict)
    voxel_maps: Mapping[str, VoxelMaps] = field(default_factory=dict)
    background: Background | None = None

    def figure_path(self, name: str) -> Path:
        """Where a figure of the group is."""
        return output_path(self.output_dir, 'group_figure', figure=name, extension='svg')

    def figure(self, name: str, drawn: Any, title: str, caption: str) -> Figure:
        """Write a figure among those of the group."""
        return Figure(figures.save_figure(self.figure_path(name), drawn), title, caption)


FIGURE_BYTES = 2_500_000
"""Figures in the report are at most as large, so that with its tables it is below 3 MB."""


def write_group_report(report: GroupReport) -> Path:
    """Draw all figures and write the report that shows them."""
    sections = [make(report) for make in SECTIONS]
    return write_page(
        output_path(report.output_dir, 'group_report'),
        f'Group report: {report.title}',
        [section for section in sections if section.blocks or section.parts],
        subtitle='R-indices: how strongly each disease-related brain pattern is expressed',
        footer=f'surreal_bids {__version__}',
        figure_bytes=FIGURE_BYTES,
    )


def _summary(report: GroupReport) -> Section:
    """The numbers that matter, and whether to trust them."""
    cohort, chosen = report.found.cohort, report.card['Selected']
    counts = {'Controls': cohort.counts[CONTROL], 'Patients': cohort.counts[PATIENT]}
    if cohort.n_without_group:
        counts = counts if any(counts.values()) else {}
        counts['Participants whose group is not known'] = cohort.n_without_group
    numbers = [
        *(Number(who, str(count)) for who, count in counts.items()),
        Number('Excluded', str(len(cohort.exclusions))),
        Number('Patterns', str(chosen['n_patterns'])),
    ]
    numbers += against_chance(report.card)
    if chosen['n_patterns'] and chosen['agreement'] is not None:
        note = f'of members; {chance_of(report.card):.2f} if unrelated, 1 if identical'
        numbers.append(Number('Agreement', f'{chosen["agreement"]:.2f}', note=note))
    notices = [Notice(text, 'warning') for text in cohort.warnings]
    notices += verdict(_card_with_folds(report), applied=HELD_OUT not in report.found.results)
    notices.sort(key=lambda notice: ('warning', 'note', 'good').index(notice.level))
    return Section('Summary', (Numbers(tuple(numbers)), *notices, *_not_held_out(report.found)))


def _card_with_folds(report: GroupReport) -> Mapping[str, Any]:
    """Return the card with the note of cross-fitting, which is added to the card when published."""
    found = report.found
    note = found.model.notes.get('CrossFit') if found.fitted is None else found.fitted.note
    return report.card if note is None else {**report.card, 'CrossFit': note}


def _not_held_out(found: GroupResults) -> list[Block]:
    """Return the participants without out-of-fold R-indices, and why."""
    lacking = found.results[found.results['status'] == NOT_HELD_OUT]
    if lacking.empty:
        return []
    table = pd.DataFrame({'participant': lacking.index, 'reason': lacking['reason']})
    title = 'Participants without out-of-fold R-indices'
    fold = f'{title}: {len(lacking)}' if len(lacking) > FEW_ROWS else ''
    return [Table(table, title, fold=fold)]


def _participants(report: GroupReport) -> Section:
    """Who was included and excluded, and what was decided on the way."""
    cohort = report.found.cohort
    first = cohort.first_visits()
    blocks: list[Block] = []
    if first.people.shape[1] and first.visits['group'].notna().any():
        drawn = figures.plot_participants(first.people, first.visits['group'])
        caption = (
            'Groups that differ here may differ in the brain for other reasons than disease: '
            'effects of covariates are removed as learned from controls.'
        )
        blocks.append(report.figure('people', drawn, 'Covariates of the two groups', caption))
    blocks.append(Facts(dict(note.split(': ', 1) for note in cohort.notes)))
    return Section('Participants', (*blocks, exclusion_table(cohort.exclusions)))


def _harmonization(report: GroupReport) -> Section:
    """What ComBat removed and kept."""
    if report.found.quality is None:
        text = (
            'There is no figure of sites: there is only one site, or too few controls in each, or '
            'a model trained on other data was applied.'
        )
        return Section('Harmonization', (Paragraph(text),))
    drawn = figures.plot_harmonization(report.found.quality)
    caption = (
        'Among controls. Left: what site explains of each region. Middle: whether a classifier can '
        'tell sites apart (held out: controls whom ComBat has not seen). Right: whether the effect '
        'of the covariate is preserved.'
    )
    figure = report.figure('harmonization', drawn, 'Before and after ComBat', caption)
    return Section('Harmonization', (figure,))


def _model(report: GroupReport) -> Section:
    """How the number of patterns was chosen, or which model was applied."""
    card = report.card
    facts = model_facts(card)
    if report.methods.model is not None:
        text = f'Nothing was trained: the model {report.methods.model} was applied.'
        return Section('Model', (Paragraph(text), facts))
    agreement, history = pd.DataFrame(card['Agreement']), pd.DataFrame(card['History'])
    blocks: list[Block] = [facts, *stability_table(card), *linear_table(card)]
    if agreement.empty:
        return Section('Model', tuple(blocks))
    if agreement['agreement'].notna().any():
        drawn = figures.plot_agreement(agreement, history, card['Selected'], chance_of(card))
        caption = (
            'Each point is the mean agreement of all pairs of members with the same number of '
            'patterns M and the same λ; the ring is the choice.'
        )
        blocks.append(report.figure('agreement', drawn, 'What was chosen, and why', caption))
    blocks += agreement_table(card)
    return Section('Model', tuple(blocks))


def _r_indices(report: GroupReport) -> Section:
    """How R-indices are distributed."""
    names = report.found.names
    if not names:
        return Section('R-indices')
    first = report.found.first_visits.dropna(subset=report.found.found_again)
    shift = describe_shift(report.found.shift)
    shown = first['group'].notna().any() and report.found.found_again
    blocks = _by_group(report, first) if shown else []
    if shift:
        text = f'{shift}. Differences between samples below twice this mean nothing.'
        blocks.append(Paragraph(text))
    return Section('R-indices', (*blocks, people_table(report.found, report.output_dir)))


def _by_group(report: GroupReport, first: pd.DataFrame) -> list[Block]:
    """R-indices of controls and patients, as a figure and in numbers."""
    names = report.found.found_again
    who = report.found.cohort.visits.loc[first.index, PARTICIPANT]
    links = report_links(report.output_dir, who, report.figure_path('rindices').parent)
    drawn = figures.plot_r_indices(first[names], first['group'], links)
    caption = (
        'Each point is a participant and leads to the report; controls are rings. Dotted lines at '
        '0.4 and 0.7 are the borders of the subgroups. Healthy participants are not at 0, but '
        'where the controls are; about 1: as strong as in the most affected patients of the '
        'training sample. Not a probability.'
    )
    formats = dict.fromkeys(('mean', 'sd', 'spread over members'), '{:.2f}')
    return [
        report.figure('rindices', drawn, 'R-indices of controls and patients', caption),
        Table(describe_indices(first, names), 'Mean and spread', formats),
    ]


def describe_indices(first: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Mean and spread of each R-index in each group, and mean spread over members."""
    nothing = pd.Series(dtype=float)
    rows = [
        {
            'R-index': name,
            'group': group,
            'participants': len(rows),
            'mean': rows[name].mean(),
            'sd': rows[name].std(),
            'spread over members': rows.get(f'{name}{SPREAD_SUFFIX}', nothing).mean(),
        }
        for name in names
        for group, rows in first.groupby('group')
    ]
    return pd.DataFrame(rows)


def _patterns(report: GroupReport) -> Section:
    """What each pattern changes, region by region."""
    if report.found.patterns.empty:
        return Section('Patterns by region')
    whose = report.found.whose
    doubts = [] if whose == 'patients' else [Notice(NO_PATIENTS, 'warning')]
    drawn = figures.plot_regions(report.found.patterns, whose)
    caption = (
        f'The mean change in {whose} that the decomposer assigns to each pattern; thin lines: '
        'spread over members. Where it is shown beside, what the same regions add to the R-index '
        f'of {whose}, relative to the mean control. All regions are in group_patterns.tsv.'
    )
    figure = report.figure('regions', drawn, 'Regions that change most', caption)
    maps = [
        DrawnMap(
            nib.Nifti1Image.from_filename(path),
            f'{name}pattern',
            f'Pattern {name} on the atlas',
            'change in %',
        )
        for name, path in report.pattern_maps.items()
    ]
    caption = f'Mean change in {whose}, in per cent of the mean of controls; blue is less.'
    return Section('Patterns by region', (*doubts, figure, *_maps(report, maps, caption)))


NO_PATIENTS = (
    'Nobody here is known to be a patient, so that this section describes all participants. The '
    'patterns of the patients whom the model was trained on are in the report of its training.'
)
"""Said where what each pattern changes is not that of patients."""


def _maps(report: GroupReport, maps: list[DrawnMap], caption: str) -> list[Block]:
    """Mosaics of maps, each with a link to the viewer of the same."""
    out, background = report.output_dir, report.background
    if background is None:
        return []
    return [
        Figure(
            draw_mosaic(out, each, background),
            each.title,
            caption,
            viewer=write_viewer(out, each, background),
        )
        for each in maps
    ]


def _voxels(report: GroupReport) -> Section:
    """Where tissue differs, voxel by voxel."""
    parts = [_tissue(report, tissue, maps) for tissue, maps in report.voxel_maps.items()]
    return Section('Patterns by voxel', parts=tuple(parts))


def _tissue(report: GroupReport, tissue: str, maps: VoxelMaps) -> Section:
    blocks: list[Block] = []
    if not maps.summary.empty:
        formats = {'t_at_fdr_0.05': '{:.2f}', 'discoveries': '{:,.0f}', 'voxels': '{:,.0f}'}
        blocks += [
            Paragraph(DESCRIPTIONS),
            Table(maps.summary, 'What was compared, and what was found', formats),
        ]
    if maps.skipped:
        skipped = pd.DataFrame({'contrast': list(maps.skipped), 'why': maps.skipped.values()})
        blocks.append(Table(skipped, 'What was not compared, and why'))
    found = maps.summary[maps.summary.get('discoveries', pd.Series(dtype=float)).gt(0)]
    slopes = maps.summary[maps.summary['contrast'].str.endswith('slope')]
    tests = [_drawn(maps, tissue, row, 't', row['t_at_fdr_0.05']) for _, row in found.iterrows()]
    effects = [_drawn(maps, tissue, row, 'change per R = 1') for _, row in slopes.iterrows()]
    caption = 'Voxels that differ at a false discovery rate of 0.05; blue is less tissue.'
    shown = _maps(report, tests, caption)
    caption = 'Effect at every voxel, whatever its size: a description; blue is less tissue.'
    return Section(tissue, (*blocks, *shown, *_maps(report, effects, caption)))


DESCRIPTIONS = (
    'Only the comparison of all patients with controls is a test. R-indices are functions of the '
    'same brains: slopes on them, and subgroups chosen by them, differ even where nobody is ill. '
    'These maps describe the patterns, without a threshold and without p values.'
)


def _drawn(
    maps: VoxelMaps, tissue: str, row: pd.Series, label: str, threshold: float = 0.0
) -> DrawnMap:
    return DrawnMap(
        nib.Nifti1Image.from_filename(maps.images[row['contrast']]),
        f'{row["contrast"]}{tissue}',
        f'{tissue}: {row["description"]}',
        label,
        threshold,
    )


def _associations(report: GroupReport) -> Section:
    """What R-indices correlate with."""
    table, untested = report.found.associations, report.found.untested
    blocks: list[Block] = []
    if not table.empty:
        adjusted = table['adjusted_for'].iloc[0]
        caption = 'Among patients, first visits. Correlation of ranks' + (
            f', at equal {adjusted}.' if isinstance(adjusted, str) else '.'
        )
        drawn = figures.plot_associations(table)
        formats = dict.fromkeys(('r', 'r_low', 'r_high'), '{:.2f}')
        formats |= {'p': '{:.2g}', 'p_fdr': '{:.2g}'}
        blocks.append(report.figure('associations', drawn, 'Correlations', caption))
        blocks.append(Table(table, 'In numbers', formats, fold='In numbers'))
    if untested:
        listed = pd.DataFrame({'what': list(untested), 'why': untested.values()})
        blocks.append(Table(listed, 'What was not tested', fold='What was not tested, and why'))
    blocks = blocks or [Paragraph('There are no measures.')]
    return Section('Associations', (*blocks, *_of_covariates(report.found.covariates)))


def _of_covariates(table: pd.DataFrame) -> list[Block]:
    """What R-indices have to do with head size, sex and other covariates."""
    if table.empty:
        return []
    title = 'Covariates: what preprocessing left of them in R-indices (correlation of ranks)'
    text = (
        'Among controls, R-indices should have nothing to do with age, sex or head size; among '
        'patients they may, where the disease has. This describes the sample and tests nothing: '
        'what preprocessing has learned of a covariate has an error, which all share.'
    )
    return [Paragraph(text), Table(table, title, {'r': '{:.2f}'})]


def _change(report: GroupReport) -> Section:
    """R-indices over visits, and whether they change otherwise in patients than in controls."""
    found, names = report.found, report.found.found_again
    if found.group_change is None or not names:
        return Section('Change over visits')
    blocks: list[Block] = []
    course = found.cohort.visits.join(found.results[names])
    course = course.dropna(subset=[name for name in ('years', 'group', *names) if name in course])
    course = course[course[PARTICIPANT].duplicated(keep=False)]
    if 'years' in course and len(course):
        drawn = figures.plot_trajectories(course, names)
        caption = 'Each line is a participant with several visits; controls are dashed.'
        blocks.append(report.figure('trajectories', drawn, 'R-indices over visits', caption))
    columns = ('controls_per_year', 'patients_per_year', 'difference', 'low', 'high')
    formats = dict.fromkeys(columns, '{:.3f}') | {'p': '{:.2g}'}
    title = (
        'Change per year of patients less that of controls, with its 95 % interval: by a mixed '
        'model, or, where that cannot be fitted, from one slope of each participant. Changes of '
        'each participant are in phenotype/changes.tsv, other columns of this table in '
        'group_change.tsv'
    )
    blocks += _left_out_of_change(found.group_change)
    unneeded = [*LEFT_OUT, 'standard_error']
    shown = found.group_change.drop(columns=unneeded, errors='ignore')
    return Section('Change over visits', (*blocks, Table(shown, title, formats)))


LEFT_OUT = {
    'visits_elsewhere': 'at another site than the first of the participant',
    'visits_without_site': 'whose site is missing, while others of the participant have one',
    'visits_without_time': 'without a date or an age',
}
"""Columns that count visits which do not count in the comparison of change per year, and why."""


def _left_out_of_change(table: pd.DataFrame) -> list[Block]:
    """How many visits do not count in the comparison of change per year."""
    counts = {name: int(table[name].max()) for name in LEFT_OUT if name in table and len(table)}
    listed = [f'{count} {LEFT_OUT[name]}' for name, count in counts.items() if count]
    if not listed:
        return []
    text = f'Visits that are left out of the table: {"; ".join(listed)}.'
    missing = counts.keys() - {'visits_elsewhere'}
    return [Notice(text, 'warning' if any(counts[name] for name in missing) else 'note')]


DIFFERS = 0.05
"""Groups whose covariates differ with a smaller p are said to differ."""


def _diagnosis(report: GroupReport) -> Section:
    """How well groups are told apart, and what else tells them apart."""
    found = report.found
    if found.diagnosis is None:
        return Section('Diagnosis')
    caption = (
        'Area under the curve with its 95 % interval (0.5: chance), in participants held out. '
        'Nothing is learned for the sum of R-indices; the discriminant of all regions and all '
        'preprocessing are learned without the fold.'
    )
    formats = dict.fromkeys(('auc', 'auc_low', 'auc_high'), '{:.2f}')
    blocks: list[Block] = [Table(found.diagnosis, caption, formats)]
    differs = found.differences[found.differences['p'] < DIFFERS]
    if len(differs):
        listed = '; '.join(f'{row.in_words} (p = {row.p:.2g})' for row in differs.itertuples())
        text = (
            f'The groups differ in more than the disease: {listed}. No fold cures that: part of '
            'the area may be due to it.'
        )
        blocks.append(Notice(text, 'warning'))
    columns = [name for name in found.differences if name != 'in_words']
    if len(found.differences):
        table = found.differences[columns]
        blocks.append(Table(table, 'Covariates of the two groups', {'p': '{:.2g}'}))
    return Section('Diagnosis', tuple(blocks))


def _halves(report: GroupReport) -> Section:
    """Whether two halves of the participants show the same patterns."""
    if report.found.halves is None:
        return Section('Split halves')
    text = (
        'The model was trained again on each half of the participants, each with a seed, M and '
        'lambda of its own, and compared in patients of neither half (trained_on: no). Patterns '
        'are matched; a c-index of 1 means that two models put patients in the same order, 0.5 '
        'that they do not agree at all. regions_pearson: whether they change the same regions.'
    )
    formats = dict.fromkeys(('c_index', 'pearson', 'regions_pearson'), '{:.3f}')
    table = Table(report.found.halves, 'Models of different participants compared', formats)
    return Section('Split halves', (Paragraph(text), table))


def _methods(report: GroupReport) -> Section:
    """Words for a paper."""
    options = MethodsOptions(__version__, group=report.methods)
    return Section(
        'Methods', (Html(methods_html(options)), Code(methods_text(options), 'As Markdown'))
    )


SECTIONS = (
    _summary,
    _participants,
    _harmonization,
    _model,
    _r_indices,
    _diagnosis,
    _patterns,
    _voxels,
    _associations,
    _change,
    _halves,
    _methods,
)
"""Sections of the report in order; those that stay empty are not shown."""
