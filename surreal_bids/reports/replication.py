"""The report of a replication: verdicts on patterns, brains of both studies, and the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.analysis.patterns import values_by_region
from surreal_bids.analysis.replication import (
    FORWARD,
    LEAST_AGREEMENT,
    NO_AREA,
    NOT_REPLICATED,
    REPLICATED,
    UNCERTAIN,
    Comparison,
    Replication,
    is_shown,
)
from surreal_bids.bids.outputs import output_path
from surreal_bids.cautions import unite
from surreal_bids.model.number import PERMUTATIONS, Stability, explain_choice
from surreal_bids.names import CONTROL, PATIENT
from surreal_bids.reports import figures
from surreal_bids.reports.card import formats_of_tried, pattern_words
from surreal_bids.reports.mosaics import CHANGE as CHANGE_COLOURS
from surreal_bids.reports.mosaics import Background, RegionPainter, Scale
from surreal_bids.reports.pages import TABLES, listing, render, write_page
from surreal_bids.text import DECIMALS, counted, decimals_apart

EXPLANATION = (
    'Agreement: correlation, in patients of the second cohort, of the R-indices of the original '
    'model with those of a model that was trained on the second cohort, both out of fold. Brains '
    'differ in size and general atrophy, so unrelated patterns agree to some extent, too: the '
    f'reference is the 95th centile of {PERMUTATIONS} permutations of the second cohort, or the '
    'agreement with another pattern if this is larger. A pattern is replicated if the lower limit '
    f'of its agreement exceeds the reference, the agreement is at least {LEAST_AGREEMENT:g}, the '
    'regions change alike beyond their reference, and the AUC is above 0.5 with its interval. It '
    'is not replicated if an estimate does not reach its reference.'
)

STUDIES = {'original': 'original', 'second cohort': 'second'}
"""Columns of the changes of regions, by how reports call the study."""

REASONS = {
    REPLICATED: ' in the second cohort.',
    UNCERTAIN: ': better than unrelated patterns, but not clearly enough.',
    NOT_REPLICATED: ': no better than unrelated patterns.',
}
"""What a verdict means, in the sentence that begins with it."""


@dataclass(frozen=True, eq=False)
class ReplicationReport:
    """Content of the report.

    Attributes
    ----------
    path
        File of the report; figures are written in its folder.
    found
        Results.
    model
        How the original model is called.
    title
        How the second cohort is called.
    """

    path: Path
    found: Replication
    model: str
    title: str


def write_replication_report(report: ReplicationReport) -> Path:
    """Draw the patterns of both studies and write the report."""
    found = report.found
    n_patients = found.forward.cohort.counts[PATIENT]
    tried = explain_choice(found.number, found.number.n_patterns, n_patients).rows
    comparisons = [each for each in (found.forward, found.backward) if each is not None]
    content = render(
        'replication.html',
        report.path.parent,
        quote=quote(found),
        number=describe_own_number(found),
        cards=_cards(report),
        is_compared=found.has_patterns,
        explanation=EXPLANATION,
        cautions=list(unite(found.cautions)),
        comparisons=[_comparison(each, report.model) for each in comparisons],
        tried=pd.DataFrame(tried),
        tried_formats=formats_of_tried(tried),
        notes=dict(note.split(': ', 1) for note in found.forward.cohort.notes),
        regions=_regions(found.maps),
    )
    subtitle = f'Replication of {report.model} in {describe_groups(found.forward)}'
    return write_page(report.path, report.title, content, subtitle, [TABLES])


def describe_own_number(found: Replication) -> list[str]:
    """Describe how many patterns the second cohort shows on its own, as sentences."""
    tried = {each.n_patterns: each for each in found.number.stabilities}
    chosen, asked = found.number.n_patterns, len(found.model.pattern_names)
    if chosen:
        sentences = [
            f'On its own, the second cohort shows {counted(chosen, "pattern")} '
            f'({_stability(tried[chosen])}).'
        ]
    else:
        best = max(tried.values(), key=lambda each: each.value - each.needed)
        sentences = [
            'No number of patterns is reproduced in subsamples of the second cohort and more '
            f'stable than in permuted data; closest is {counted(best.n_patterns, "pattern")} '
            f'({_stability(best)}). Either it has no disease that changes these regions, or too '
            'few participants.'
        ]
    if chosen not in (0, asked) and asked in tried:
        sentences.append(
            f'It was compared with the same number of patterns as in the original model, '
            f'{asked} ({_stability(tried[asked])}).'
        )
    return sentences


def _stability(tried: Stability) -> str:
    """Return the stability of a number of patterns with its references."""
    highest = max(tried.null, default=None)
    decimals = decimals_apart(tried.value, tried.needed)
    if highest is not None:
        decimals = max(decimals, decimals_apart(tried.value, highest))
    text = f'stability {tried.value:.{decimals}f}, at least {tried.needed:g} needed'
    if highest is None:
        return text
    return f'{text}; permuted data: up to {highest:.{decimals}f}'


def describe_groups(comparison: Comparison) -> str:
    """Return the size of the groups in words."""
    counts = comparison.cohort.counts
    controls = counted(counts[CONTROL], 'control')
    return f'{controls} and {counted(counts[PATIENT], "patient")}'


def quote(found: Replication) -> str:
    """Return the result as text for a paper."""
    groups, rows = describe_groups(found.forward), found.forward.patterns
    if not found.has_patterns:
        text = f'The second cohort ({groups}) shows no pattern of its own'
        if _are_at_chance(rows):
            text += ', and its patients express no original pattern more than its controls'
        else:
            text += ', so that it neither supports nor contradicts the original patterns'
        return f'{text}.{_quote_areas(rows)}'
    was = 'was' if found.forward.n_replicated == 1 else 'were'
    total = counted(len(rows), 'pattern')
    text = f'{found.forward.n_replicated} of {total} {was} replicated in a second cohort ({groups})'
    for verdict in (REPLICATED, UNCERTAIN, NOT_REPLICATED):
        patterns = [
            _quote_pattern(row) for row in rows[rows['verdict'] == verdict].to_dict('records')
        ]
        if patterns:
            text += f'. {verdict.capitalize()}: {listing(patterns)}'
    return f'{text}.'


def _are_at_chance(rows: pd.DataFrame) -> bool:
    """Check whether no original R-index separates the groups of the second cohort."""
    if 'auc_low' not in rows or rows['auc_low'].isna().any():
        return False
    return bool((rows['auc_low'] <= NO_AREA).all())


def _quote_pattern(row: Mapping[Any, Any]) -> str:
    """Return the numbers of a pattern, as a paper reports them."""
    decimals = _decimals_of([row])
    return (
        f'{row["pattern"]} (correlation with the R-indices of a model trained on this cohort '
        f'{_interval(row, "agreement", decimals)}; unrelated patterns up to '
        f'{row["agreement_reference"]:.{decimals}f}; AUC {_quote_area(row)})'
    )


def _decimals_of(rows: Iterable[Mapping[Any, Any]]) -> int:
    """Return how many decimals show on which side of its reference each agreement lies."""
    decimals = DECIMALS
    for row in rows:
        decimals = max(
            decimals,
            decimals_apart(row['agreement'], LEAST_AGREEMENT),
            decimals_apart(row['agreement'], row['agreement_reference']),
            decimals_apart(row['agreement_low'], row['agreement_reference']),
            decimals_apart(row['similarity'], row['similarity_reference']),
        )
    return decimals


def _quote_area(row: Mapping[Any, Any]) -> str:
    """Return the AUC with its interval, and decimals that show whether it is above chance."""
    decimals = max(decimals_apart(row['auc'], NO_AREA), decimals_apart(row['auc_low'], NO_AREA))
    return _interval(row, 'auc', decimals)


def _quote_areas(rows: pd.DataFrame) -> str:
    """Return how well the original R-indices separate the groups, as a sentence."""
    with_area = rows.dropna(subset='auc').to_dict('records')
    areas = [f'{row["pattern"]} {_quote_area(row)}' for row in with_area]
    return f' AUC of the original R-indices: {"; ".join(areas)}.' if areas else ''


def _interval(row: Mapping[Any, Any], name: str, decimals: int) -> str:
    """Return an estimate with its interval."""
    low, high = (f'{row[f"{name}_{end}"]:.{decimals}f}' for end in ('low', 'high'))
    return f'{row[name]:.{decimals}f}, 95% interval {low} to {high}'


def _cards(report: ReplicationReport) -> list[dict[str, Any]]:
    """Return what the report shows of each pattern first."""
    rows = report.found.forward.patterns.to_dict('records')
    names = [row['pattern'] for row in rows]
    brains = _draw_patterns(report)
    return [
        {
            'name': row['pattern'],
            'colour': figures.pattern_colour(names, row['pattern']),
            'brain': brains.get(row['pattern']),
            'verdict': row['verdict'],
            'is_replicated': row['verdict'] == REPLICATED,
            'reason': REASONS.get(row['verdict'], ': the second cohort has no pattern of its own.'),
            'sentences': [*describe_pattern(row), *_describe_regions(report.found.maps, row)],
        }
        for row in rows
    ]


def describe_pattern(row: Mapping[Any, Any]) -> list[str]:
    """Return what the verdict on a pattern rests on, as sentences."""
    sentences = []
    if 'agreement' in row:
        decimals = _decimals_of([row])
        agreement = f'{row["agreement"]:.{decimals}f} ({row["agreement_low"]:.{decimals}f} to '
        agreement += f'{row["agreement_high"]:.{decimals}f})'
        sentences = [
            f'Agreement with pattern {row["matched_pattern"]} of the second cohort: {agreement}; '
            f'unrelated patterns: up to {row["agreement_reference"]:.{decimals}f}.',
            f'Regions: changes correlate at {row["similarity"]:.{decimals}f}; unrelated patterns: '
            f'up to {row["similarity_reference"]:.{decimals}f}.',
        ]
    if pd.notna(row['auc']):
        decimals = max(decimals_apart(row['auc'], NO_AREA), decimals_apart(row['auc_low'], NO_AREA))
        ends = f'{row["auc_low"]:.{decimals}f} to {row["auc_high"]:.{decimals}f}'
        area = f'{row["auc"]:.{decimals}f} ({ends})'
        sentences.append(f'AUC of patients against controls: {area}; chance: 0.50.')
    return sentences


def _describe_regions(maps: pd.DataFrame, row: Mapping[Any, Any]) -> list[str]:
    """Name the regions that a pattern changes in either study, the largest changes first."""
    if maps.empty:
        return []
    rows = maps[maps['pattern'] == row['pattern']]
    sentences = []
    for title, column in STUDIES.items():
        changes = rows.assign(change_sd=rows[column], change_percent=np.nan)
        words = pattern_words(changes.assign(shown=is_shown(rows[column])))
        sentences.append(f'{title.capitalize()}: {words[0].lower()}{words[1:]}.')
    return sentences


def _draw_patterns(report: ReplicationReport) -> dict[str, Path]:
    """Draw each pattern as both studies show it, if its regions are those of the atlas."""
    maps = report.found.maps
    if maps.empty or not maps['muse_regions'].notna().any():
        return {}
    from surreal_bids.templates import muse_labels

    painter = RegionPainter(Background.read(), muse_labels())
    largest = maps[['original', 'second']].abs().to_numpy(dtype=float).max()
    limit = max(np.ceil(2 * largest) / 2, 0.5)
    scale = Scale(CHANGE_COLOURS, -limit, limit, 'change (SD of controls)')
    drawn = {}
    for name, rows in maps.groupby('pattern', sort=False):
        path = output_path(
            report.path.parent, 'group_figure', figure=f'{name}replication', extension='jpg'
        )
        brains = {
            title: values_by_region(rows[is_shown(rows[column])], column)
            for title, column in STUDIES.items()
        }
        drawn[str(name)] = painter.draw(path, brains, scale)
    return drawn


def _comparison(comparison: Comparison, model: str) -> dict[str, Any]:
    """Return the numbers of one direction for the report."""
    groups = describe_groups(comparison)
    title = 'Original patterns in the second cohort'
    introduction = f'The model {model} was applied to {groups} of the second cohort.'
    if comparison.direction != FORWARD:
        title = 'The other way round'
        introduction = (
            f'The model of the second cohort was applied to {groups} of the original one.'
        )
    introduction += (
        ' The effects of sites were learned from controls of other folds, so that no participant '
        'had a part in their own R-indices.'
    )
    columns = {
        'pattern': 'pattern',
        'matched_pattern': 'matched pattern',
        'agreement': 'agreement',
        'agreement_low': 'low',
        'agreement_high': 'high',
        'agreement_reference': 'reference',
        'similarity': 'regions',
        'similarity_reference': 'reference of regions',
        'verdict': 'verdict',
    }
    patterns = comparison.patterns
    decimals = DECIMALS
    if 'agreement' not in patterns:
        patterns = pd.DataFrame()
    else:
        decimals = _decimals_of(patterns.to_dict('records'))
        patterns = patterns[list(columns)].rename(columns=columns)
    areas = {'index': 'R-index', 'estimate': 'AUC'}
    related = {'index': 'R-index', 'estimate': 'r', 'p_corrected': 'p (FDR)'}
    unused = ['higher_level', 'adjusted_for']
    return {
        'title': title,
        'introduction': introduction,
        'patterns': patterns,
        'formats': dict.fromkeys(columns.values(), f'{{:.{decimals}f}}')
        | {'pattern': '{}', 'matched pattern': '{}', 'verdict': '{}'},
        'separation': comparison.separation.drop(columns='measure').rename(columns=areas),
        'associations': comparison.associations.drop(columns=unused).rename(columns=related),
    }


def _regions(maps: pd.DataFrame) -> pd.DataFrame:
    """Return all regions of all patterns, for a table."""
    if maps.empty:
        return maps
    shown = maps.drop(columns='muse_regions')
    return shown.rename(columns={'second': 'second cohort'})
