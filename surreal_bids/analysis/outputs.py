"""Results as files and as text: R-indices, volumes, summaries and model cards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.analysis.descriptions import (
    CONTROLS_OF_MODEL,
    EXCLUDED,
    OWN_CONTROLS,
    describe_regions,
    describe_results,
    describe_table,
    describe_volumes,
)
from surreal_bids.analysis.deviations import with_centiles
from surreal_bids.analysis.engine import Analysis
from surreal_bids.cautions import R_INDICES, Caution
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.uses import describe_uses
from surreal_bids.cohort.volumes import ICV
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.names import CONTROL, PARTICIPANT, PATIENT, SESSION
from surreal_bids.regions import recognise
from surreal_bids.rindices.crossfit import HELD_OUT
from surreal_bids.rindices.measurement_noise import describe_noise
from surreal_bids.rindices.model import VISIT
from surreal_bids.rindices.preprocessing import COMPLETE, INCOMPLETE
from surreal_bids.text import counted, list_briefly

LOGGER = logging.getLogger(__name__)


DECIMALS = 6
"""R-indices are written to the millionth: their rounding error is a tenth of that."""

CONTRIBUTION_DECIMALS = 8
"""Enough for the sum over hundreds of regions to equal the R-index to the millionth."""

VOLUME_DECIMALS = 2
"""Volumes of known regions are written to 0.01 mm3; the unit of others is not known."""

SHOWN = 10
"""Excluded participants who are listed on the screen; the table has all."""


def write_tables(found: Analysis, places: Mapping[str, Path]) -> None:
    """Write tables, each with a JSON file beside it that describes its columns.

    Parameters
    ----------
    found
        All results.
    places
        File of each table to write, by its name in `TABLES`. A table that does not apply to these
        results is not written. A CSV file has the columns of NiChart.
    """
    for name, path in places.items():
        table = TABLES[name](found)
        if table is not None:
            described = _describe(name, table, found)
            if path.suffix.lower() == '.csv':
                names = nichart_names(table.columns, found.names)
                table = table[list(names)].rename(columns=names)
                described = {names[column]: described[column] for column in names}
            write_json(path.with_suffix('.json'), described)
            write_tsv(path, table)


def nichart_names(columns: Iterable[str], patterns: Iterable[str]) -> dict[str, str]:
    """Return the names of columns in tables of NiChart, with the R-indices in their order."""
    numbered = sorted(patterns, key=lambda name: (len(name), name))
    changed = {PARTICIPANT: 'MRID'} | {name: f'SurrealGAN_{name.upper()}' for name in numbered}
    return {name: changed.get(name, name) for name in dict.fromkeys((*changed, *columns))}


def _describe(name: str, table: pd.DataFrame, found: Analysis) -> dict[str, Any]:
    """Describe the columns of a table."""
    if name == 'rindices':
        return describe_results(table.columns, found.names, found.model.meanings)
    if name == 'contributions':
        return describe_regions(name, table.columns)
    if name == 'deviations':
        whose = OWN_CONTROLS if found.has_own_controls else CONTROLS_OF_MODEL
        return describe_regions(name, table.columns, controls=whose)
    if name in ('roi_volumes', 'harmonized_volumes'):
        is_volume = _are_volumes(name, found.cohort)
        return describe_volumes(table.columns, is_volume, name == 'harmonized_volumes')
    return describe_table(name, table.columns, noise=describe_noise(found.cohort.retest_pairs))


def _rindices(found: Analysis) -> pd.DataFrame:
    """R-indices of every visit, after the columns that identify it."""
    table = found.results.round(DECIMALS)
    for name in ('brain_in_range', HELD_OUT):
        if name in table:
            table[name] = table[name].map(str, na_action='ignore').str.lower()
    visits = pd.concat([found.cohort.visits, found.cohort.exclusions]).loc[table.index]
    known = [name for name in (PARTICIPANT, SESSION, 'group') if name in visits]
    return pd.concat([visits[known], table], axis=1)


def with_excluded(results: pd.DataFrame, cohort: Cohort) -> pd.DataFrame:
    """Add participants who have volumes but were excluded, without R-indices."""
    excluded = [name for name in cohort.exclusions.index if name in cohort.measured.index]
    if not excluded:
        return results
    everyone = [name for name in cohort.measured.index if name in {*results.index, *excluded}]
    table = results.reindex(everyone)
    table.loc[excluded, 'status'] = EXCLUDED
    reasons = cohort.exclusions['reason'].reindex(everyone)
    return table.assign(
        reason=reasons.combine_first(table['reason']) if 'reason' in table else reasons
    )


def _contributions(found: Analysis) -> pd.DataFrame | None:
    """Contribution of each region to each R-index, one row per visit and R-index."""
    if not found.names:
        return None
    table = found.contributions
    visits = _identifiers(found.cohort.visits).loc[table.index.get_level_values(VISIT)]
    numbers = table.round(CONTRIBUTION_DECIMALS).reset_index().drop(columns=VISIT)
    return pd.concat([visits.reset_index(drop=True), numbers], axis=1)


def _deviations(found: Analysis) -> pd.DataFrame:
    """How far each region that was measured is from controls and norms, one row per measure.

    Visits of sites that are not harmonized are not compared with controls.
    """
    measured = found.cohort.features.reindex(columns=found.z_scores.columns).notna()
    harmonized = ~found.results['status'].isin([UNHARMONIZED, INCOMPLETE])
    z_scores = {'controls': found.z_scores.where(measured).where(harmonized)}
    if found.z_norms is not None:
        z_scores['norms'] = found.z_norms
    return _identifiers(found.cohort.visits).join(with_centiles(z_scores), how='inner')


def _roi_volumes(found: Analysis) -> pd.DataFrame:
    """Volumes as measured, of everyone, excluded or not."""
    visits = _identifiers(found.cohort.measured)
    measured = found.cohort.measured.drop(columns=visits.columns)
    return _volumes('roi_volumes', visits, measured, found.cohort)


def _harmonized_volumes(found: Analysis) -> pd.DataFrame:
    """Volumes without site effects."""
    visits = _identifiers(found.cohort.visits)
    return _volumes('harmonized_volumes', visits, found.harmonized, found.cohort)


def _volumes(
    name: str, visits: pd.DataFrame, volumes: pd.DataFrame, cohort: Cohort
) -> pd.DataFrame:
    known = {*recognise(volumes.columns), ICV}
    rounded = [column for column in volumes if column in known and _are_volumes(name, cohort)]
    return pd.concat([visits, volumes.round(dict.fromkeys(rounded, VOLUME_DECIMALS))], axis=1)


def _are_volumes(name: str, cohort: Cohort) -> bool:
    """Whether a table holds volumes; harmonized ones may be proportions of the ICV."""
    is_proportion = name == 'harmonized_volumes' and cohort.options.icv == 'proportion'
    return not (is_proportion or cohort.wanted.are_z_scores)


def _identifiers(visits: pd.DataFrame) -> pd.DataFrame:
    """The columns that identify a visit."""
    return visits[[name for name in (PARTICIPANT, SESSION) if name in visits]]


def _separation(found: Analysis) -> pd.DataFrame | None:
    """How well patients and controls are told apart; None where that is not known."""
    return None if found.separation.empty else found.separation.round(DECIMALS)


TABLES: Mapping[str, Callable[[Analysis], pd.DataFrame | None]] = {
    'roi_volumes': _roi_volumes,
    'harmonized_volumes': _harmonized_volumes,
    'rindices': _rindices,
    'contributions': _contributions,
    'deviations': _deviations,
    'exclusions': lambda found: found.cohort.exclusions,
    'patterns': lambda found: found.patterns,
    'associations': lambda found: found.associations,
    'diagnosis': _separation,
    'differences': lambda found: found.differences,
    'group_change': lambda found: found.group_change,
    'changes': lambda found: found.changes,
}
"""Every table of results, by its name in the table of output names."""


def summarise_cohort(cohort: Cohort) -> str:
    """Who is included and excluded, and what was decided, in words."""
    counts, out = cohort.counts, cohort.exclusions
    who = f'{counted(counts[CONTROL], "control")} and {counted(counts[PATIENT], "patient")}'
    if cohort.n_without_group:
        others = f'{counted(cohort.n_without_group, "participant")} whose group is not known'
        who = f'{who}, {others}' if any(counts.values()) else others
    n_people = cohort.visits[PARTICIPANT].nunique()
    visits = f', {counted(len(cohort), "visit")}' if len(cohort) > n_people else ''
    lines = [
        f'{who}{visits}, {counted(len(cohort.wanted), "region")}',
        *(f'  {note}' for note in cohort.notes),
        *(f'  {line}' for line in describe_uses(cohort.uses)),
        *([f'  {describe_noise(cohort.retest_pairs)}'] if cohort.retest_pairs else []),
        f'{len(out)} excluded' + (':' if len(out) else ''),
        *(f'  {visit}: {reason}' for visit, reason in out['reason'].head(SHOWN).items()),
    ]
    if len(out) > SHOWN:
        lines.append(f'  and {len(out) - SHOWN} more')
    return '\n'.join(lines) + '\n'


def summarise_results(results: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """Of how many participants R-indices were computed, and who needs a second look."""
    status = results['status']
    excluded = status.index[status == EXCLUDED]
    computed = len(results) - len(excluded)
    whose = 'participant or visit' if computed == 1 else 'participants or visits'
    lines = [f'R-indices of {computed} {whose}', *notes]
    lines += [f'excluded: {name}: {results.loc[name, "reason"]}' for name in excluded[:SHOWN]]
    if len(excluded) > SHOWN:
        lines.append(f'excluded: {len(excluded) - SHOWN} more')
    for value in sorted(set(status) - {COMPLETE, EXCLUDED}):
        lines.append(f'{value}: {list_briefly(status.index[status == value])}')
    if 'brain_in_range' in results:
        lines += _outside_population(results)
    return '\n  '.join(lines) + '\n'


def _outside_population(results: pd.DataFrame) -> list[str]:
    people = results.index[results['brain_in_range'].eq(False)]
    if len(people) == results['brain_in_range'].notna().sum() > 1:
        LOGGER.warning(
            Caution(
                'All participants lie outside the training population',
                'Their R-indices are extrapolated and probably wrong',
                'Check that units and regions match those of the model (surreal-gan card -v)',
                R_INDICES,
            )
        )
    return [f'outside the training population: {list_briefly(people)}'] if len(people) else []
