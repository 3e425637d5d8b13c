"""Results as files and as text: tables with their sidecars, and summaries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.analysis.change import FALSE_ALARMS, LEAST_YEARS
from surreal_bids.analysis.engine import Analysis
from surreal_bids.analysis.image_quality import FEWEST_IMAGES, OUTLYING
from surreal_bids.analysis.patterns import LEAST_CHANGE
from surreal_bids.bids.outputs import Column, describe_columns
from surreal_bids.cautions import R_INDICES, Caution
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.roles import describe_uses
from surreal_bids.cohort.volumes import ICV
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.imaging.quality import NORM_PEOPLE
from surreal_bids.names import CONTROL, PARTICIPANT, PATIENT, SESSION
from surreal_bids.regions import recognise, region_names
from surreal_bids.rindices.crossfit import HELD_OUT
from surreal_bids.rindices.intervals import INCLUDED
from surreal_bids.rindices.measurement_noise import describe_noise
from surreal_bids.rindices.model import VISIT
from surreal_bids.rindices.preprocessing import COMPLETE, INCOMPLETE
from surreal_bids.rindices.uncertainty import MIN_FOR_CENTILES, SHARE
from surreal_bids.text import counted, list_briefly

LOGGER = logging.getLogger(__name__)

DECIMALS = 6
"""R-indices are written to the millionth: their rounding error is a tenth of that."""

CONTRIBUTION_DECIMALS = 8
"""Enough for the sum over hundreds of regions to equal the R-index to the millionth."""

VOLUME_DECIMALS = 2
"""Volumes of known regions are written to 0.01 mm3; the unit of others is not known."""

DIGITS = 6
"""Significant digits of statistics."""

SHOWN = 10
"""Excluded participants who are listed on the screen; the table has all."""

EXCLUDED = 'excluded'
"""Status of a participant who was screened out."""

OWN_CONTROLS = (
    'the controls of this study, with the error of the prediction. Controls are compared with the '
    'other controls'
)
CONTROLS_OF_MODEL = (
    'the controls that the model learned from (this study has too few), without the error of the '
    'prediction'
)
"""Whom z-scores refer to."""

CONSTANTS = {
    'controls': OWN_CONTROLS,
    'false_alarms': FALSE_ALARMS,
    'fewest_images': FEWEST_IMAGES,
    'included': INCLUDED,
    'least_change': LEAST_CHANGE,
    'min_for_centiles': MIN_FOR_CENTILES,
    'min_years': LEAST_YEARS,
    'noise': describe_noise(),
    'norm_people': NORM_PEOPLE,
    'outlying': OUTLYING,
    'share': SHARE,
}
"""Values that descriptions of columns mention."""

HARMONIZED = ', after ComBat (if sites were harmonized); covariates not removed'


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
        if table is None or table.shape[1] == 0:
            continue
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


def write_described(name: str, path: Path, table: pd.DataFrame) -> None:
    """Write a table whose columns are all in `columns.yaml`, and its JSON sidecar."""
    described = describe_table(name, table.columns)
    write_tsv(path, table)
    write_json(path.with_suffix('.json'), described)


def describe_table(name: str, columns: Iterable[str], **values: object) -> dict[str, Column]:
    """Return the sidecar of a table; columns of regions have a description of their own.

    Parameters
    ----------
    name
        Name of the table in `columns.yaml`.
    columns
        Columns of the table.
    **values
        Values that replace some of `CONSTANTS`.
    """
    columns, known = list(map(str, columns)), describe_columns(name, **CONSTANTS | values)
    regions = {column: region_names()[index] for column, index in recognise(columns).items()}
    for column in columns:
        if column not in known:
            part = 'region' if column in regions or name != 'volumes' else 'other'
            region = regions.get(column, column)
            known |= describe_columns(f'{name}_{part}', column=column, region=region, **values)
    return {column: known[column] for column in columns}


def _describe(name: str, table: pd.DataFrame, found: Analysis) -> dict[str, Any]:
    """Describe the columns of a table."""
    if name in ('roi_volumes', 'harmonized_volumes'):
        unit = 'mm^3' if _are_volumes(name, found.cohort) else '1'
        steps = HARMONIZED if name == 'harmonized_volumes' else ''
        return describe_table('volumes', table.columns, unit=unit, steps=steps)
    if name == 'rindices':
        return describe_results(table.columns, found.names, found.model.meanings)
    whose = OWN_CONTROLS if found.has_own_controls else CONTROLS_OF_MODEL
    noise = describe_noise()
    return describe_table(name, table.columns, controls=whose, noise=noise)


def describe_results(
    columns: Iterable[str], pattern_names: Sequence[str], meanings: Mapping[str, str]
) -> dict[str, Column]:
    """Return the sidecar of a table of R-indices, whose `meanings` the model may tell."""
    known = describe_columns('rindices', **CONSTANTS)
    for pattern in pattern_names:
        known |= describe_columns('rindices_pattern', pattern=pattern, **CONSTANTS)
    for pattern, meaning in meanings.items():
        known[pattern] = {'LongName': meaning, **known[pattern]}
    return {column: known[column] for column in columns}


def _rindices(found: Analysis) -> pd.DataFrame:
    """R-indices of every visit, of other groups too, with flags; and who was excluded, and why."""
    cohort = found.cohort
    table = found.all_results.round(DECIMALS)
    if HELD_OUT in table:
        table[HELD_OUT] = table[HELD_OUT].map(str, na_action='ignore').str.lower()
    out = cohort.exclusions
    if len(out):
        excluded = pd.DataFrame({'status': EXCLUDED, 'reason': out['reason']}, out.index)
        table = pd.concat([table, excluded])
    visits = pd.concat([found.scored.visits, out]).loc[table.index]
    # By participant, as measured; the visits of each stay in order of time.
    place = {who: n for n, who in reversed([*enumerate(cohort.measured[PARTICIPANT])])}
    order = visits[PARTICIPANT].map(place).fillna(len(place)).argsort(kind='stable')
    table, visits = table.iloc[order], visits.iloc[order]
    table['flags'] = found.flags.reindex(table.index).replace('', None)
    known = [name for name in (PARTICIPANT, SESSION, 'group') if name in visits]
    suffixes = ('', '_low', '_high', '_centile')
    own = [f'{name}{end}' for name in found.names for end in suffixes]
    own += ['fold', HELD_OUT, 'status', 'reason', 'flags']
    return pd.concat([visits[known], table[[name for name in own if name in table]]], axis=1)


def _contributions(found: Analysis) -> pd.DataFrame | None:
    """Contribution of each region to each R-index, one row per visit and R-index."""
    if not found.names:
        return None
    table = found.contributions
    visits = _identifiers(found.scored.visits).loc[table.index.get_level_values(VISIT)]
    numbers = table.round(CONTRIBUTION_DECIMALS).reset_index().drop(columns=VISIT)
    return pd.concat([visits.reset_index(drop=True), numbers], axis=1)


def _deviations(found: Analysis) -> pd.DataFrame:
    """How far each region that was measured is from controls and norms, one row per reference.

    Visits of sites that are not harmonized are not compared with controls.
    """
    measured = found.scored.features.reindex(columns=found.z_scores.columns).notna()
    harmonized = ~found.all_results['status'].isin([UNHARMONIZED, INCOMPLETE])
    z_scores = {'z_controls': found.z_scores.where(measured).where(harmonized)}
    if found.z_norms is not None:
        z_scores['z_norms'] = found.z_norms
    parts = [
        (z.round(3) + 0.0).assign(measure=measure)  # No minus zero.
        for measure, z in z_scores.items()
        if z.notna().any(axis=None)
    ]
    table = pd.concat(parts) if parts else pd.DataFrame(columns=['measure'])
    table = table[['measure', *table.columns.drop('measure')]]
    return _identifiers(found.scored.visits).join(table, how='inner')


def _roi_volumes(found: Analysis) -> pd.DataFrame:
    """Volumes as measured, of everyone, excluded or not."""
    visits = _identifiers(found.cohort.measured)
    measured = found.cohort.measured.drop(columns=visits.columns)
    return _volumes('roi_volumes', visits, measured, found.cohort)


def _harmonized_volumes(found: Analysis) -> pd.DataFrame:
    """Volumes without site effects."""
    visits = _identifiers(found.scored.visits)
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


def _patterns(found: Analysis) -> pd.DataFrame:
    """What each pattern changes, with words for truth values."""
    shown = found.patterns['shown'].map({True: 'true', False: 'false'})
    return found.patterns.assign(shown=shown)


def _statistics(found: Analysis) -> pd.DataFrame:
    """All statistics of groups, to six digits."""
    numbers = ['estimate', 'low', 'high', 'p', 'p_corrected']
    table = found.statistics
    short = table[numbers].astype(float).map(lambda x: float(f'{x:.{DIGITS}g}'))
    return table.assign(**{name: short[name] for name in numbers})


TABLES: Mapping[str, Callable[[Analysis], pd.DataFrame | None]] = {
    'roi_volumes': _roi_volumes,
    'harmonized_volumes': _harmonized_volumes,
    'rindices': _rindices,
    'contributions': _contributions,
    'deviations': _deviations,
    'image_quality': lambda found: None if found.images is None else found.images.table,
    'changes': lambda found: found.changes,
    'patterns': _patterns,
    'statistics': _statistics,
}
"""Every table of results, by its name in the table of output names."""


def summarise_cohort(cohort: Cohort) -> str:
    """Who is included and excluded, and what was decided, in words."""
    counts, out = cohort.counts, cohort.exclusions
    who = f'{counted(counts[CONTROL], "control")} and {counted(counts[PATIENT], "patient")}'
    if cohort.n_without_group:
        others = f'{counted(cohort.n_without_group, "participant")} whose group is not known'
        who = f'{who}, {others}' if any(counts.values()) else others
    if cohort.apart is not None:
        groups = cohort.apart.first_visits().visits['group'].value_counts()
        who += ''.join(f', {count} {group}' for group, count in groups.items())
    n_people = cohort.visits[PARTICIPANT].nunique()
    visits = f', {counted(len(cohort), "visit")}' if len(cohort) > n_people else ''
    lines = [
        f'{who}{visits}, {counted(len(cohort.wanted), "region")}',
        *(f'  {note}' for note in cohort.notes),
        *(f'  {line}' for line in describe_uses(cohort.uses)),
        f'{len(out)} excluded' + (':' if len(out) else ''),
        *(f'  {visit}: {reason}' for visit, reason in out['reason'].head(SHOWN).items()),
    ]
    if len(out) > SHOWN:
        lines.append(f'  and {len(out) - SHOWN} more')
    return '\n'.join(lines) + '\n'


def summarise_results(
    results: pd.DataFrame, excluded: pd.DataFrame, notes: Sequence[str] = ()
) -> str:
    """Of how many participants R-indices were computed, and who needs a second look.

    Parameters
    ----------
    results, excluded
        R-indices of visits, and visits that were excluded, with a `reason`.
    notes
        Lines about the model and the tables.
    """
    status = results['status']
    whose = 'participant or visit' if len(results) == 1 else 'participants or visits'
    lines = [f'R-indices of {len(results)} {whose}', *notes]
    reasons = excluded['reason'] if len(excluded) else pd.Series(dtype=object)
    lines += [f'excluded: {name}: {reason}' for name, reason in reasons.head(SHOWN).items()]
    if len(excluded) > SHOWN:
        lines.append(f'excluded: {len(excluded) - SHOWN} more')
    for value in sorted(set(status) - {COMPLETE}):
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
