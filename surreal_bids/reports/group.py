"""The report of the group: one page that tells what was found, in whom, and how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd

from surreal_bids import __version__
from surreal_bids.bids.derivatives import output_path
from surreal_bids.bids.people import CONTROL, PATIENT
from surreal_bids.harmonization.quality import HarmonizationQuality
from surreal_bids.model.agreement import LOW_AGREEMENT
from surreal_bids.reports.figures import (
    Background,
    DrawnMap,
    draw_mosaic,
    embed_viewers,
    plot_agreement,
    plot_associations,
    plot_harmonization,
    plot_people,
    plot_r_indices,
    plot_regions,
    save_figure,
    write_viewer,
)
from surreal_bids.reports.methods import GroupMethods, MethodsOptions, methods_html, methods_text
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
from surreal_bids.tables.cohort import Cohort
from surreal_bids.tables.preprocessing import COMPLETE, NONE_BEYOND


@dataclass(frozen=True, eq=False)
class VoxelMaps:
    """Voxelwise maps of one tissue: images by contrast, what was found, what was skipped."""

    t: Mapping[str, Path]
    summary: pd.DataFrame
    skipped: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class GroupResults:
    """All that the report tells of.

    Attributes
    ----------
    cohort, exclusions
        Who was in, and who was not and why.
    card
        Card of the model.
    results : frame
        R-indices of every visit, as `TableModel.apply` gives them.
    patterns : frame
        What each pattern changes in each region.
    associations, untested
        Correlations with other measures, and what could not be tested.
    methods
        What was done, for the methods text.
    quality, halves
        Harmonization and split halves; None where not done.
    pattern_maps
        Images of `patterns` in template space, by pattern; empty where there is no atlas.
    voxel_maps
        By tissue.
    """

    cohort: Cohort
    exclusions: pd.DataFrame
    card: Mapping[str, Any]
    results: pd.DataFrame
    patterns: pd.DataFrame
    associations: pd.DataFrame
    untested: Mapping[str, str]
    methods: GroupMethods
    quality: HarmonizationQuality | None = None
    halves: pd.DataFrame | None = None
    pattern_maps: Mapping[str, Path] = field(default_factory=dict)
    voxel_maps: Mapping[str, VoxelMaps] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the R-indices."""
        return list(self.card['PatternNames'])

    @property
    def first_visits(self) -> pd.DataFrame:
        """Results of first visits, a row a person, with the group."""
        first = self.cohort.first_visits().visits
        return self.results.loc[first.index].assign(group=first['group'])


def describe_indices(first: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Mean, spread and mean uncertainty of each R-index in each group."""
    rows = [
        {
            'R-index': name,
            'group': group,
            'people': len(rows),
            'mean': rows[name].mean(),
            'sd': rows[name].std(),
            'uncertainty': rows[f'{name}_std'].mean() if f'{name}_std' in rows else np.nan,
        }
        for name in names
        for group, rows in first.groupby('group')
    ]
    return pd.DataFrame(rows)


def card_facts(card: Mapping[str, Any]) -> dict[str, Any]:
    """What a card says of the model, in few words."""
    chosen = card['Selected']
    facts = {
        'Patterns (M)': chosen['n_patterns'],
        'λ': 'not known' if chosen['ortho'] is None else f'{chosen["ortho"]:g}',
        'Members averaged': f'{len(chosen["members"])} of {card["Repetitions"]}',
        'Iterations': f'{card["Iterations"]:,}',
        'Settings': card['Preset'],
        'Features': card['NumberOfFeatures'],
    }
    imported = card.get('Imported')
    return facts | ({'Origin': imported['Title'] or imported['File']} if imported else {})


GOOD_AGREEMENT = 0.8
"""From here on members found the same patterns."""

FEW_ROWS = 12
"""Longer tables are folded."""


def write_group_report(
    output_dir: Path, found: GroupResults, background: Background | None, title: str
) -> Path:
    """Draw all figures below `output_dir` and write the page that shows them.

    Parameters
    ----------
    output_dir
        Root of the outputs.
    found
        What to show.
    background
        What maps are drawn on; None where there are none.
    title
        Name of the dataset.
    """
    draw = _Drawing(output_dir, found, background)
    sections = [
        draw.summary(),
        draw.people(),
        draw.harmonization(),
        draw.model(),
        draw.r_indices(),
        draw.patterns(),
        draw.voxel_maps(),
        draw.associations(),
        draw.halves(),
        draw.methods(),
    ]
    return write_page(
        output_path(output_dir, 'group_report'),
        f'Group report: {title}',
        [section for section in sections if section is not None],
        subtitle='R-indices: how strongly each disease-related brain pattern is expressed',
        footer=f'surreal_bids {__version__}',
    )


class _Drawing:
    """Sections of the page, each with its figures drawn."""

    def __init__(
        self, output_dir: Path, found: GroupResults, background: Background | None
    ) -> None:
        self.output_dir = output_dir
        self.found = found
        self.background = background

    def _figure(self, name: str, drawn: Any, title: str, caption: str) -> Figure:
        path = output_path(self.output_dir, 'group_figure', figure=name, extension='svg')
        return Figure(save_figure(path, drawn), title, caption)

    def summary(self) -> Section:
        """The numbers that matter, and whether to trust them."""
        found = self.found
        counts, chosen = found.cohort.counts, found.card['Selected']
        numbers = [
            Number('Controls', str(counts[CONTROL])),
            Number('Patients', str(counts[PATIENT])),
            Number('Left out', str(len(found.exclusions))),
            Number('Patterns', str(chosen['n_patterns'])),
        ]
        if chosen['agreement'] is not None:
            note = 'of members: 0.52 if unrelated, 1 if the same'
            numbers.append(Number('Agreement', f'{chosen["agreement"]:.2f}', note=note))
        return Section('Summary', (Numbers(tuple(numbers)), *self._trust(chosen['agreement'])))

    def _trust(self, agreement: float | None) -> list[Block]:
        if agreement is None:
            return []
        if agreement < LOW_AGREEMENT:
            text = (
                'The members hardly agree: the patterns were not found, and the R-indices below '
                'should not be used. Train longer (--iterations), or with more people.'
            )
            return [Notice(text, 'warning')]
        if agreement >= GOOD_AGREEMENT:
            return [Notice('Members trained from different seeds found the same patterns.', 'good')]
        text = 'Members agree fairly. Compare groups rather than persons, and show the uncertainty.'
        return [Notice(text)]

    def people(self) -> Section:
        """Who was in and out, and what was decided on the way."""
        found, first = self.found, self.found.cohort.first_visits()
        blocks: list[Block] = []
        if first.people.shape[1]:
            figure = plot_people(first.people, first.visits['group'])
            caption = (
                'Groups that differ here may differ in the brain for other reasons than disease: '
                'effects of covariates are taken out as learned from controls.'
            )
            blocks.append(self._figure('people', figure, 'Who the people are', caption))
        decisions = dict(note.split(': ', 1) for note in found.cohort.notes)
        blocks += [Facts(decisions), self._exclusions(), *self._unusual()]
        return Section('People', tuple(blocks))

    def _exclusions(self) -> Block:
        table = self.found.exclusions
        if table.empty:
            return Notice('Nobody was left out.', 'good')
        fold = f'{len(table)} left out' if len(table) > FEW_ROWS else ''
        return Table(table, 'Who was left out, and why', fold=fold)

    def _unusual(self) -> list[Block]:
        """People who are in, but of whom R-indices are an extrapolation."""
        results = self.found.results
        flags = pd.DataFrame(index=results.index)
        if 'in_range' in results:
            outside = results['in_range'].astype(str).str.lower().eq('false')
            flags['outside the population of the model'] = outside
        if 'beyond_range' in results:
            beyond = results['beyond_range'].fillna(NONE_BEYOND) != NONE_BEYOND
            flags['covariate beyond those of controls'] = beyond
        flags['not complete'] = results['status'] != COMPLETE
        listed = flags[flags.any(axis=1)]
        if listed.empty:
            return []
        why = [', '.join(flags.columns[row]) for row in listed.to_numpy(dtype=bool)]
        table = pd.DataFrame({'who': listed.index, 'why': why})
        caption = 'Their R-indices are an extrapolation, or missing'
        return [Table(table, caption, fold=f'{len(table)} to look at with care')]

    def harmonization(self) -> Section:
        """What ComBat removed and kept."""
        if self.found.quality is None:
            text = (
                'There are no figures of sites: there is one site only, or too few controls in '
                'each, or a model of other people was applied.'
            )
            return Section('Harmonization', (Paragraph(text),))
        figure = plot_harmonization(self.found.quality)
        caption = (
            'Among controls. Left: what site explains of each region. Middle: whether a classifier '
            'can tell sites apart (held out: people whom ComBat has not seen). Right: that the '
            'effect of the covariate is kept.'
        )
        return Section(
            'Harmonization',
            (self._figure('harmonization', figure, 'Before and after ComBat', caption),),
        )

    def model(self) -> Section:
        """How the number of patterns was chosen, or which model was applied."""
        card = self.found.card
        if self.found.methods.model is not None:
            text = f'Nothing was trained: the model {self.found.methods.model} was applied.'
            return Section('Model', (Paragraph(text), Facts(card_facts(card))))
        agreement, history = pd.DataFrame(card['Agreement']), pd.DataFrame(card['History'])
        blocks: list[Block] = [Facts(card_facts(card))]
        if agreement['agreement'].notna().any():
            figure = plot_agreement(agreement, history, card['Selected'])
            caption = (
                'Each point is the mean agreement of all pairs of members with the same number of '
                'patterns M and the same λ; the ring is the choice.'
            )
            blocks.append(self._figure('agreement', figure, 'What was chosen, and why', caption))
        formats = {'agreement': '{:.3f}', 'score': '{:.3f}', 'ortho': '{:g}'}
        blocks.append(Table(agreement, 'All settings', formats, fold='All settings in numbers'))
        return Section('Model', tuple(blocks))

    def r_indices(self) -> Section:
        """How R-indices are distributed."""
        first = self.found.first_visits.dropna(subset=self.found.names)
        figure = plot_r_indices(first[self.found.names], first['group'])
        caption = (
            'Below the diagonal each point is a person; dotted lines at 0.4 and 0.7 are the '
            'borders of the subgroups. About 0: the pattern is absent; about 1: as strong as in '
            'the most affected patients of the training sample. Not a probability.'
        )
        return Section(
            'R-indices',
            (
                self._figure('rindices', figure, 'R-indices of controls and patients', caption),
                Table(describe_indices(first, self.found.names), 'Mean and spread', _TWO_DIGITS),
            ),
        )

    def patterns(self) -> Section:
        """What each pattern changes, region by region."""
        found = self.found
        figure = plot_regions(found.patterns)
        caption = (
            'The mean change in patients that the decomposer assigns to each pattern. Thin lines: '
            'spread over members. All regions are in group_patterns.tsv.'
        )
        title = 'Regions that change most'
        blocks: list[Block] = [self._figure('regions', figure, title, caption)]
        maps = [
            DrawnMap(
                nib.Nifti1Image.from_filename(path),
                f'{name}pattern',
                f'Pattern {name} on the atlas',
                'change in %',
            )
            for name, path in found.pattern_maps.items()
        ]
        caption = 'Mean change in patients, in per cent of the mean of controls; blue is less.'
        return Section('Patterns by region', (*blocks, *self._draw_maps(maps, caption)))

    def _draw_maps(self, maps: list[DrawnMap], caption: str) -> list[Block]:
        """Mosaics of maps, then viewers of the same."""
        if self.background is None or not maps:
            return []
        blocks: list[Block] = [
            Figure(draw_mosaic(self.output_dir, each, self.background), each.title, caption)
            for each in maps
        ]
        viewers = {
            f'Move through: {each.title}': write_viewer(self.output_dir, each, self.background)
            for each in maps
        }
        return [*blocks, Html(embed_viewers(viewers))]

    def voxel_maps(self) -> Section | None:
        """Where tissue differs, voxel by voxel."""
        parts = [self._tissue(tissue, maps) for tissue, maps in self.found.voxel_maps.items()]
        return Section('Patterns by voxel', parts=tuple(parts)) if parts else None

    def _tissue(self, tissue: str, maps: VoxelMaps) -> Section:
        blocks: list[Block] = []
        if not maps.summary.empty:
            formats = {'t_at_fdr_0.05': '{:.2f}', 'discoveries': '{:,.0f}'}
            blocks.append(Table(maps.summary, 'What was compared, and what was found', formats))
        if maps.skipped:
            skipped = pd.DataFrame({'contrast': list(maps.skipped), 'why': maps.skipped.values()})
            blocks.append(Table(skipped, 'What was not compared, and why'))
        drawn = [
            DrawnMap(
                nib.Nifti1Image.from_filename(maps.t[row['contrast']]),
                f'{row["contrast"]}{tissue}',
                f'{tissue}: {row["description"]}',
                't',
                row['t_at_fdr_0.05'],
            )
            for _, row in maps.summary.iterrows()
            if row.get('discoveries', 0)
        ]
        caption = 'Voxels that differ at a false discovery rate of 0.05; blue is less tissue.'
        return Section(tissue, (*blocks, *self._draw_maps(drawn, caption)))

    def associations(self) -> Section:
        """What R-indices go along with."""
        found = self.found
        blocks: list[Block] = []
        if not found.associations.empty:
            figure = plot_associations(found.associations)
            caption = (
                'Among patients, first visits. Point-biserial correlation for measures with two '
                'values. A correlation with a covariate is what its linear effect left behind.'
            )
            blocks.append(self._figure('associations', figure, 'Correlations', caption))
            formats = dict.fromkeys(('r', 'r_low', 'r_high'), '{:.2f}')
            formats |= {'p': '{:.2g}', 'p_fdr': '{:.2g}'}
            blocks.append(Table(found.associations, 'In numbers', formats, fold='In numbers'))
        if found.untested:
            table = pd.DataFrame({'what': list(found.untested), 'why': found.untested.values()})
            blocks.append(Table(table, 'What was not tested', fold='What was not tested, and why'))
        return Section('Associations', tuple(blocks) or (Paragraph('There are no measures.'),))

    def halves(self) -> Section | None:
        """Whether two halves of the people show the same patterns."""
        if self.found.halves is None:
            return None
        text = (
            'The model was trained again on each half of the people. Patterns are matched; a '
            'c-index of 1 means that two models put patients in the same order, 0.5 that they do '
            'not agree at all.'
        )
        formats = {'c_index': '{:.3f}', 'pearson': '{:.3f}'}
        table = Table(self.found.halves, 'Models of different people compared', formats)
        return Section('Split halves', (Paragraph(text), table))

    def methods(self) -> Section:
        """Words for a paper."""
        options = MethodsOptions(__version__, group=self.found.methods)
        return Section(
            'Methods', (Html(methods_html(options)), Code(methods_text(options), 'As Markdown'))
        )


_TWO_DIGITS = dict.fromkeys(('mean', 'sd', 'uncertainty'), '{:.2f}')
