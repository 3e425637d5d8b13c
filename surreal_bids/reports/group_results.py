"""What the group level found, as the report takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.harmonization.quality import HarmonizationQuality
from surreal_bids.reports.methods import GroupMethods
from surreal_bids.tables.cohort import Cohort


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
    quality, diagnosis, halves
        Harmonization, diagnosis and split halves; None where not done.
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
    diagnosis: pd.DataFrame | None = None
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
