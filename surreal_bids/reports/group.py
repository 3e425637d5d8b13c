"""The group report: participants, model, R-indices, patterns and associations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import nibabel as nib
import pandas as pd

from surreal_bids import __version__
from surreal_bids.analysis.change import EXCLUDED_VISITS, describe_excluded
from surreal_bids.analysis.engine import Analysis
from surreal_bids.analysis.image_quality import FEWEST_IMAGES, OUTLIERS, ImageQuality
from surreal_bids.analysis.maps import VoxelMaps
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
from surreal_bids.cohort.uses import group_uses
from surreal_bids.model.number import stored_number, warn_of_chance
from surreal_bids.names import CONTROL, PARTICIPANT, PATIENT, SESSION, is_label, without_prefix
from surreal_bids.reports import figures
from surreal_bids.reports.assembly import ANATOMY, read_fragment
from surreal_bids.reports.flags import (
    FEW_ROWS,
    HOW_TO_READ,
    exclusion_table,
    not_held_out,
    participant_table,
    report_links,
    visit_flags,
    warn_of_flags,
)
from surreal_bids.reports.methods import GroupMethods, MethodsOptions, methods_html, methods_text
from surreal_bids.reports.model_card import (
    against_chance,
    assurances,
    describe_reproducibility,
    explain_number,
    how_scored,
    model_facts,
    stability_table,
)
from surreal_bids.reports.mosaics import Background, StatisticalMap
from surreal_bids.reports.pages import (
    Block,
    Code,
    Facts,
    Figure,
    Html,
    Number,
    Numbers,
    Paragraph,
    Section,
    Table,
    list_checks,
    write_page,
)
from surreal_bids.reports.viewers import draw_maps, tissue_section
from surreal_bids.rindices.crossfit import HELD_OUT
from surreal_bids.rindices.model import REPRODUCIBILITY
from surreal_bids.stats.concordance import chance_agreement

IMAGE_QUALITY = output_path('', 'image_quality').as_posix()
"""Table of the quality of images, relative to the report."""


def _group_tables() -> dict[str, str]:
    """Return the names of the tables of the group level, relative to its report."""
    names = ('rindices', 'deviations', 'patterns', 'changes', 'group_change')
    return {name: output_path('', name).as_posix() for name in names}


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
    card
        Card of the model.
    methods
        Settings for the methods text.
    pattern_maps
        Images of the patterns in template space, by pattern; empty without an atlas.
    voxel_maps
        By tissue.
    images
        Quality of the images; None without images.
    background
        Template that maps are drawn on; None without maps.
    tables
        Names of the tables of results that the text refers to, as far as they were written.
    has_individuals
        Whether participants have reports of their own, below `output_dir`.
    """

    output_dir: Path
    title: str
    found: Analysis
    card: Mapping[str, Any]
    methods: GroupMethods
    pattern_maps: Mapping[str, Path] = field(default_factory=dict)
    voxel_maps: Mapping[str, VoxelMaps] = field(default_factory=dict)
    images: ImageQuality | None = None
    background: Background | None = None
    tables: Mapping[str, str] = field(default_factory=_group_tables)
    has_individuals: bool = True

    @cached_property
    def flags(self) -> pd.Series:
        """Quality flags of every visit."""
        outliers = None if self.images is None else self.images.table[OUTLIERS]
        return visit_flags(self.found, self.output_dir, outliers)

    def links(self, visits: pd.Index, folder: Path) -> list[str | None]:
        """Return links from files in `folder` to the reports of the participants of visits."""
        who = self.found.cohort.visits.loc[visits, PARTICIPANT]
        return report_links(self.output_dir, who, folder) if self.has_individuals else []

    @cached_property
    def cautions(self) -> list[Caution]:
        """What to check."""
        return list(unite([*self.found.cautions, *warn_of_flags(self.found, self.flags)]))

    def figure_path(self, name: str) -> Path:
        """Return the path of a figure."""
        return output_path(self.output_dir, 'group_figure', figure=name, extension='svg')

    def figure(self, name: str, drawn: Any, title: str, caption: str) -> Figure:
        """Write a figure and return its block."""
        return Figure(figures.save_figure(self.figure_path(name), drawn), title, caption)


FIGURE_BYTES = 2_500_000
"""Maximum size of the figures in the report, which stays below 3 MB with its tables."""


def write_group_report(report: GroupReport) -> Path:
    """Draw all figures and write the report."""
    sections = [make(report) for make in SECTIONS]
    return write_page(
        output_path(report.output_dir, 'group_report'),
        f'Group report: {report.title}',
        [section for section in sections if section.blocks or section.parts],
        subtitle='R-indices: how strongly each disease-related brain pattern is expressed',
        footer=f'surreal_bids {__version__}. Not for diagnosis.',
        figure_bytes=FIGURE_BYTES,
    )


def _summary(report: GroupReport) -> Section:
    """Return the main numbers and warnings."""
    cohort, chosen = report.found.cohort, report.card['Selected']
    counts = {'Controls': cohort.counts[CONTROL], 'Patients': cohort.counts[PATIENT]}
    if cohort.n_without_group:
        if any(counts.values()):
            counts['Participants of unknown group'] = cohort.n_without_group
        else:
            counts = {'Participants': cohort.n_without_group}
    numbers = [
        *(Number(who, str(count)) for who, count in counts.items()),
        Number('Excluded', str(len(cohort.exclusions))),
        Number('Patterns', str(chosen['n_patterns'])),
    ]
    numbers += [*against_chance(report.card), *_reproducibility(report.card)]
    applied = HELD_OUT not in report.found.results
    # The reproducibility is among the numbers.
    describe = how_scored if report.card.get(REPRODUCIBILITY) else assurances
    found = describe(report.card, applied)
    blocks: list[Block] = [Numbers(tuple(numbers)), *list_checks(report.cautions)]
    if found:
        blocks.append(Paragraph(' '.join(found)))
    if explained := explain_number(report.card):
        blocks.append(Paragraph(' '.join(explained.sentences)))
    return Section('Summary', (*blocks, *not_held_out(report.found)))


def _reproducibility(card: Mapping[str, Any]) -> list[Number]:
    """Return the reproducibility of each pattern, or the agreement of members if unknown."""
    reproduced = card.get(REPRODUCIBILITY)
    if not reproduced:
        return _concordance(card)
    values = ', '.join(f'{name} {each["Median"]:.2f}' for name, each in reproduced.items())
    return [Number('Reproducibility', values, note=describe_reproducibility(reproduced))]


def _concordance(card: Mapping[str, Any]) -> list[Number]:
    """Return how similarly the members rank patients."""
    chosen = card['Selected']
    if not chosen['n_patterns'] or chosen['agreement'] is None:
        return []
    pair = chosen['n_patterns'], chosen['ortho']
    rows = [row for row in card['Agreement'] if (row['n_patterns'], row['ortho']) == pair]
    count = f'{rows[0]["n_healthy"]} ' if rows else ''
    note = (
        f'mean concordance of the {count}training runs (members): how alike they rank patients '
        f'(unrelated runs {_chance(card):.2f}, identical runs 1)'
    )
    return [Number('Agreement of members', f'{chosen["agreement"]:.2f}', note=note)]


def _chance(card: Mapping[str, Any]) -> float:
    """Return the agreement of unrelated members for this number of patients and patterns."""
    return chance_agreement(card['Sample']['n_pt'], card['Selected']['n_patterns'])


def _participants(report: GroupReport) -> Section:
    """Return who was included and excluded."""
    cohort, first = report.found.cohort, report.found.described.first_visits()
    known = first.select(first.groups.notna())
    blocks: list[Block] = []
    if len(known) and not known.people.empty:
        drawn = figures.plot_participants(known.people, known.groups)
        whose = 'controls' if report.methods.model is None else 'controls of the training sample'
        caption = (
            'Groups that differ in covariates may differ in brain structure for reasons other than '
            f'disease. Effects of covariates were estimated in {whose} and removed.'
        )
        blocks.append(report.figure('people', drawn, 'Covariates of the two groups', caption))
    blocks.append(Facts(dict(note.split(': ', 1) for note in cohort.notes)))
    if len(cohort.uses):
        blocks.append(Table(group_uses(cohort.uses), fold='What each column was taken for'))
    blocks += [exclusion_table(cohort.exclusions), *_images(report)]
    return Section(PARTICIPANTS, tuple(blocks))


def _images(report: GroupReport) -> list[Block]:
    """Return the quality of images, and which of them to look at."""
    if report.images is None:
        return []
    (images, scores), root = report.images, report.output_dir
    compared = int(scores.notna().any(axis=1).sum())
    if not compared:
        few = f'fewer than {FEWEST_IMAGES} images of a known scanner'
        return [Paragraph(f'The quality of images was not compared: {few} ({IMAGE_QUALITY}).')]
    caption = (
        f'Each point is one of {compared} images that can be compared; beyond the dashed line it '
        f'is an outlier. {IMAGE_QUALITY} has the values, and a file beside it explains the '
        'metrics. Distances are from the median of the scanner, or of all small sites together '
        f'if it has fewer than {FEWEST_IMAGES} images.'
    )
    links = report_links(root, images[PARTICIPANT], report.figure_path('quality').parent)
    drawn = figures.plot_quality(scores, links)
    figure = report.figure('quality', drawn, 'Image quality', caption)
    found = images[images[OUTLIERS].notna()]
    if found.empty:
        return [figure, Paragraph('None of these images is an outlier in any metric.')]
    shown = found[[name for name in (PARTICIPANT, SESSION, OUTLIERS) if name in found]]
    links = report_links(root, found[PARTICIPANT], root)
    labels = [without_prefix(name, 'sub') for name in found[PARTICIPANT]]
    in_reports = any(is_label(each) and read_fragment(root, each, ANATOMY) for each in labels)
    how = 'rate them in their reports' if in_reports else 'list them in a table'
    text = f'Images to look at. To exclude those that failed, {how} (--exclude)'
    return [figure, Table(shown.reset_index(drop=True), text, links={PARTICIPANT: links})]


def _harmonization(report: GroupReport) -> Section:
    """Return how ComBat changed site effects."""
    sites = report.found.sites
    fold = f'{len(sites)} sites' if len(sites) > FEW_ROWS else ''
    listed: list[Block] = [Table(sites, 'Participants of each site', fold=fold)]
    listed = listed if len(sites) else []
    if report.found.quality is None:
        why = report.found.not_assessed
        text = f'Harmonization was not assessed{f": {why}" if why else ""}.'
        return Section(HARMONIZATION, (Paragraph(text), *listed))
    drawn = figures.plot_harmonization(report.found.quality)
    caption = (
        'In controls. Left: variance of each region explained by site. Right: cross-validated '
        'balanced accuracy of predicting the site from volumes; at chance (the dashed line) sites '
        'cannot be told apart. Held out: controls that were not used to fit ComBat.'
    )
    figure = report.figure('harmonization', drawn, 'Before and after ComBat', caption)
    return Section(HARMONIZATION, (figure, *listed))


def _model(report: GroupReport) -> Section:
    """Return how the number of patterns was chosen, or which model was applied."""
    card = report.card
    facts = model_facts(card)
    if report.methods.model is not None:
        text = f'No model was trained: the model {report.methods.model} was applied.'
        return Section(MODEL, (Paragraph(text), facts))
    return Section(MODEL, (facts, *stability_table(card)))


def _r_indices(report: GroupReport) -> Section:
    """Return the distribution of R-indices."""
    names = report.found.names
    if not names:
        return Section(R_INDICES)
    first = report.found.first_visits.dropna(subset=[*names, 'group'])
    blocks = _by_group(report, first) if len(first) else []
    links = report.links(report.found.results.index, report.output_dir)
    table = participant_table(report.found, report.flags, links, report.tables['rindices'])
    deviations = report.tables.get('deviations')
    regions = [Paragraph(f'{deviations} {DEVIATIONS}')] if deviations else []
    return Section(R_INDICES, (*blocks, table, *regions))


DEVIATIONS = (
    'has the z-score and the centile of each region of each participant: at a z-score of -1.64, '
    'the 5th centile, 5% of controls with the same covariates have a smaller region '
    '(docs/outputs.md, "deviations.tsv").'
)
"""What a table of deviations has."""


def _by_group(report: GroupReport, first: pd.DataFrame) -> list[Block]:
    """Return R-indices of controls and patients, as a figure and as a table."""
    names = report.found.names
    links = report.links(first.index, report.figure_path('rindices').parent)
    drawn = figures.plot_r_indices(first[names], first['group'], links)
    caption = (
        f'Each point is a participant{" and links to the report" if links else ""}; controls are '
        f'rings. Dotted lines mark {figures.LOW:g} and {figures.HIGH:g}, the thresholds of the '
        'paper for subgroups (low, intermediate, high); they are not clinical cut-offs. '
        f'{HOW_TO_READ} An R-index is not a probability.'
    )
    formats = dict.fromkeys(('mean', 'sd'), '{:.2f}')
    return [
        report.figure('rindices', drawn, 'R-indices of controls and patients', caption),
        Table(describe_indices(first, names), 'Mean and standard deviation', formats),
    ]


def _patterns(report: GroupReport) -> Section:
    """Return the regional changes of each pattern."""
    if report.found.patterns.empty:
        return Section(PATTERNS)
    whose = report.found.whose
    doubts = [] if whose == 'patients' else [Paragraph(NO_PATIENTS)]
    attributed = (
        f'Mean regional volume difference that the model attributes to the pattern in {whose}, in '
        '% of the control mean'
    )
    drawn = figures.plot_regions(report.found.patterns, whose)
    caption = (
        f'{attributed}. Thin lines are the standard deviation over members. If shown, the right '
        f'panel is the mean contribution of the same regions to the R-index in {whose}.'
    )
    if 'patterns' in report.tables:
        caption = f'{caption} All regions are in {report.tables["patterns"]}.'
    figure = report.figure('regions', drawn, 'Regions with the largest changes', caption)
    maps = {
        f'{name}pattern': StatisticalMap(
            nib.Nifti1Image.from_filename(path),
            f'Pattern {name} on the atlas',
            'difference in %',
        )
        for name, path in report.pattern_maps.items()
    }
    caption = f'{attributed}. Blue: smaller than without the pattern.'
    drawn_maps = draw_maps(report.output_dir, report.background, maps, caption)
    return Section(PATTERNS, (*doubts, figure, *drawn_maps))


NO_PATIENTS = (
    'This dataset has no known patients, so this section describes all participants. Patterns in '
    'the patients of the training sample are in the group report of the training.'
)
"""Note where regional changes are not those of patients."""


def _voxels(report: GroupReport) -> Section:
    """Return voxelwise differences of tissue."""
    parts = [
        tissue_section(report.output_dir, report.background, tissue, maps)
        for tissue, maps in report.voxel_maps.items()
    ]
    return Section('Patterns by voxel', parts=tuple(parts))


def _chance_warning(report: GroupReport) -> list[Block]:
    """Return the verdict of the permutation test, if it supports no pattern."""
    found = warn_of_chance(stored_number(report.card.get('Stability')))
    return [Paragraph(each.statement) for each in found]


def _associations(report: GroupReport) -> Section:
    """Return correlations of R-indices with other measures."""
    table, untested = report.found.associations, report.found.untested
    blocks: list[Block] = []
    if not table.empty:
        blocks += _chance_warning(report)
        adjusted = table['adjusted_for'].iloc[0]
        caption = (
            f'Partial rank correlation in patients at the first visit, adjusted for {adjusted}.'
            if isinstance(adjusted, str)
            else 'Rank correlation in patients at the first visit.'
        )
        drawn = figures.plot_associations(table)
        formats = dict.fromkeys(('r', 'r_low', 'r_high'), '{:.2f}')
        formats |= {'p': '{:.2g}', 'p_fdr': '{:.2g}'}
        blocks.append(report.figure('associations', drawn, 'Correlations', caption))
        blocks.append(Table(table, 'Correlations', formats, fold='Table of correlations'))
    if untested:
        listed = pd.DataFrame({'measure': list(untested), 'reason': untested.values()})
        blocks.append(
            Table(listed, 'Measures that were not tested', fold='Measures that were not tested')
        )
    blocks = blocks or [
        Paragraph('The tables have no measures to correlate with R-indices (see --phenotype).')
    ]
    return Section('Associations', tuple(blocks))


def _change(report: GroupReport) -> Section:
    """Return R-indices over visits, and change per year in patients and controls."""
    found, names = report.found, report.found.names
    if found.group_change is None or not names:
        return Section(CHANGE)
    blocks: list[Block] = []
    course = found.cohort.visits.join(found.results[names])
    course = course.dropna(subset=[name for name in ('years', 'group', *names) if name in course])
    course = course[course[PARTICIPANT].duplicated(keep=False)]
    if 'years' in course and len(course):
        drawn = figures.plot_trajectories(course, names)
        caption = 'Each line is a participant with several visits; controls are dashed.'
        blocks.append(report.figure('trajectories', drawn, 'R-indices over visits', caption))
    columns = ('controls_per_year', 'patients_per_year', 'difference', 'low', 'high')
    formats = dict.fromkeys(columns, '{:.3f}') | dict.fromkeys(('p', 'p_holm'), '{:.2g}')
    title = (
        'Change per year in patients minus change per year in controls, with its 95% interval, '
        'from a mixed model or, if that cannot be fitted, from one slope per participant. p_holm '
        'is corrected for the number of R-indices. '
        f'{report.tables["changes"]} has the changes of each participant, '
        f'{report.tables["group_change"]} all columns of this table'
    )
    if excluded := describe_excluded(found.group_change):
        blocks.append(Paragraph(excluded))
    unneeded = [*EXCLUDED_VISITS]
    shown = found.group_change.drop(columns=unneeded, errors='ignore')
    return Section(CHANGE, (*blocks, Table(shown, title, formats)))


def _separation(report: GroupReport) -> Section:
    """Return how well groups are distinguished, and covariates in which they differ."""
    found = report.found
    blocks: list[Block] = []
    if not found.separation.empty:
        scores = OUT_OF_FOLD if report.methods.model is None else APPLIED
        caption = (
            'Area under the ROC curve (AUC; 0.5 is chance) with its 95% interval (Newcombe 2006, '
            f'method 5). {scores}'
        )
        formats = dict.fromkeys(('auc', 'low', 'high'), '{:.3f}')
        blocks += [*_chance_warning(report), Table(found.separation, caption, formats)]
    if not found.differences.empty:
        table = found.differences.drop(columns='in_words')
        formats = dict.fromkeys(('p', 'p_corrected'), '{:.2g}')
        blocks.append(Table(table, 'Covariates of the two groups', formats))
    return Section(SEPARATION, tuple(blocks))


OUT_OF_FOLD = (
    'R-indices are out of fold: each participant was scored by models and preprocessing that did '
    'not use them.'
)
APPLIED = (
    'Scores: the sum of the R-indices, and each of them, of all participants who have them, '
    'also of sites that are not harmonized. The AUC is too high if the model was trained on these '
    'participants, and the interval does not include errors of scanner effects.'
)
"""What patients and controls were told apart by, where a model was trained and where not."""


def _methods(report: GroupReport) -> Section:
    """Return the methods text."""
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
    _separation,
    _patterns,
    _voxels,
    _associations,
    _change,
    _methods,
)
"""Sections of the report in order; empty ones are not shown."""
