"""What a report shows of an analysis, as values that can be stored; volumes are not among them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from surreal_bids.analysis.change import sites_of
from surreal_bids.analysis.engine import Analysis
from surreal_bids.cautions import Caution
from surreal_bids.cohort.cohort import FRAMES, Cohort
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.harmonization.quality import N_FOLDS, HarmonizationQuality, SiteClassification
from surreal_bids.names import CONTROL
from surreal_bids.rindices.preprocessing import INCOMPLETE

COHORT_FRAMES = ('visits', 'exclusions', 'uses')
"""Frames of a cohort that reports show, apart from those in :class:`Findings`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """Results of an analysis, computed.

    Attributes
    ----------
    cohort
        The participants, without volumes, covariates and other facts.
    people : frame
        Covariates, ICV and site at the first visit, indexed by group. Each column is sorted within
        the group, so that no row is a participant.
    names
        Names of the R-indices.
    whose
        In whom patterns are described.
    sites : frame
        Of each site `participants`, `controls` (where groups are known), and whether they were
        `harmonized`; empty where the sites are not known.
    not_assessed
        Why harmonization was not assessed, in words; empty where it was.
    results, patterns, associations, untested, covariates, quality, diagnosis, differences, \
    group_change, cautions
        As in :class:`~surreal_bids.analysis.engine.Analysis`.
    """

    cohort: Cohort
    people: pd.DataFrame
    names: list[str]
    whose: Literal['patients', 'participants']
    results: pd.DataFrame
    patterns: pd.DataFrame
    associations: pd.DataFrame
    untested: Mapping[str, str]
    covariates: pd.DataFrame
    sites: pd.DataFrame = field(default_factory=pd.DataFrame)
    not_assessed: str = ''
    quality: HarmonizationQuality | None = None
    diagnosis: pd.DataFrame | None = None
    differences: pd.DataFrame = field(default_factory=pd.DataFrame)
    group_change: pd.DataFrame | None = None
    cautions: list[Caution] = field(default_factory=list)

    @property
    def first_visits(self) -> pd.DataFrame:
        """Results of first visits, one row per participant, with the group."""
        first = self.cohort.visits[self.cohort.visits['is_first']]
        return self.results.loc[first.index].assign(group=first['group'])

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, exact to the last digit."""
        stored = {each.name: _to_json(getattr(self, each.name)) for each in fields(self)}
        frames = {name: _to_json(getattr(self.cohort, name)) for name in COHORT_FRAMES}
        return stored | {'cohort': {'record': self.cohort.record(), **frames}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Findings:
        """Restore what `to_json` returned."""
        values = {name: _from_json(value) for name, value in stored.items()}
        record, frames = values['cohort'].pop('record'), values['cohort']
        empty = pd.DataFrame(index=frames['visits'].index)
        cohort = Cohort.from_record(record, {**dict.fromkeys(FRAMES, empty), **frames})
        values['cautions'] = [Caution(*each) for each in values['cautions']]
        return cls(**{**values, 'cohort': cohort, 'quality': _quality(values['quality'])})


def findings_of(found: Analysis) -> Findings:
    """Compute everything that a report shows."""
    first = found.described.first_visits()
    groups = first.groups.dropna()
    people = [
        first.people.loc[rows.index].apply(_sorted).set_axis(rows.to_list(), axis=0)
        for _, rows in groups.groupby(groups)
    ]
    none = pd.DataFrame(index=found.cohort.visits.index)
    stripped: dict[str, Any] = {**dict.fromkeys(FRAMES, none), 'measured': pd.DataFrame()}
    stripped['visits'] = found.cohort.visits.assign(group=found.cohort.groups)
    return Findings(
        cohort=replace(found.cohort, **stripped),
        people=pd.concat(people) if people else first.people.iloc[:0],
        names=found.names,
        whose=found.whose,
        results=found.results,
        patterns=found.patterns,
        associations=found.associations,
        untested=found.untested,
        covariates=found.covariates,
        sites=_sites(found),
        not_assessed=_why_not_assessed(found),
        quality=found.quality,
        diagnosis=found.diagnosis,
        differences=pd.DataFrame() if found.diagnosis is None else found.differences,
        group_change=found.group_change,
        cautions=found.cautions,
    )


def _sites(found: Analysis) -> pd.DataFrame:
    """Return who is at each site, by first visits."""
    first = found.cohort.first_visits()
    sites = sites_of(first)
    status = found.results['status'].reindex(first.visits.index)
    was_done = found.model.preprocessing.combat is not None
    people = pd.DataFrame(
        {
            'participants': 1,
            'controls': (first.groups == CONTROL).astype(int),
            'harmonized': was_done & ~status.isin([UNHARMONIZED, INCOMPLETE]),
        }
    )
    if first.groups.isna().all():
        people = people.drop(columns='controls')
    table = people.groupby(sites.astype(str).where(sites.notna())).sum()
    table['harmonized'] = [
        'yes' if done == n else f'{done} of {n}' if done else 'no'
        for done, n in zip(table['harmonized'], table['participants'])
    ]
    return table.rename_axis('site').reset_index()


def _why_not_assessed(found: Analysis) -> str:
    """Return why there is no figure of site effects."""
    if found.quality is not None:
        return ''
    if not found.trained_here:
        if found.model.preprocessing.combat is None:
            return 'the model was trained without sites and harmonizes nothing'
        return 'the model was trained on other data, whose site effects it has learned'
    if sites_of(found.cohort).nunique() < 2:
        return 'there is only one site, or no column of sites'
    return (
        f'fewer than two sites have {N_FOLDS} controls, a covariate has rare values, or no '
        'covariate is a number'
    )


def _sorted(column: pd.Series) -> pd.Series:
    return column.sort_values(ignore_index=True)


FRAME = 'columns'
"""Key that tells a stored frame from other values."""


def _to_json(value: Any) -> Any:
    """Return a value, which may be a frame or hold frames, as plain JSON values."""
    if isinstance(value, pd.DataFrame):
        return {
            FRAME: [str(name) for name in value],
            'types': [_type_of(value[name]) for name in value],
            'index': [_scalar(each) for each in value.index],
            'values': [[_scalar(each) for each in value[name]] for name in value],
        }
    if isinstance(value, (HarmonizationQuality, SiteClassification)):
        return {name: _to_json(each) for name, each in vars(value).items()}
    return value if isinstance(value, (str, list, Mapping, Cohort)) else _scalar(value)


def _type_of(column: pd.Series) -> str:
    """Return the name of a type of numbers; other columns hold Python objects."""
    return str(column.dtype) if pd.api.types.is_numeric_dtype(column) else 'object'


def _scalar(value: Any) -> Any:
    """Return a cell of a frame as a JSON value; infinite numbers become words."""
    value = value.item() if isinstance(value, np.generic) else value
    if pd.isna(value):
        return None
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _from_json(value: Any) -> Any:
    """Restore frames."""
    if not isinstance(value, dict):
        return value
    if FRAME not in value:
        return {name: _from_json(each) for name, each in value.items()}
    columns = [pd.Series(cells, dtype=kind) for cells, kind in zip(value['values'], value['types'])]
    frame = pd.DataFrame(dict(enumerate(columns)), range(len(value['index'])))
    return frame.set_axis(value['index'], axis=0).set_axis(value[FRAME], axis=1)


def _quality(stored: Mapping[str, Any] | None) -> HarmonizationQuality | None:
    if stored is None:
        return None
    parts: dict[str, Any] = {
        name: SiteClassification(**value) if isinstance(value, dict) else value
        for name, value in stored.items()
    }
    return HarmonizationQuality(**parts)
