"""Results as files and as text: tables with their sidecars, summaries, and rows of participants."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from surreal_bids import __version__
from surreal_bids.analysis.asymmetry import DIFFERENCE, MIN_CONTROLS, SIDE, USUAL
from surreal_bids.analysis.engine import Analysis, describe_flags
from surreal_bids.analysis.image_quality import FEWEST_IMAGES, OUTLYING
from surreal_bids.analysis.limits import FALSE_ALARMS, MIN_PAIRS, MOST_YEARS
from surreal_bids.analysis.patterns import LEAST_CHANGE, LEAST_ENLARGEMENT
from surreal_bids.analysis.replication import LEAST_AGREEMENT
from surreal_bids.bids.outputs import Column, describe_columns, output_path
from surreal_bids.cautions import R_INDICES, Caution
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.roles import describe_uses
from surreal_bids.cohort.volumes import ICV
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.imaging.quality import NORM_PEOPLE
from surreal_bids.model.number import PERMUTATIONS
from surreal_bids.names import CONTROL, GROUP_NAMES, PARTICIPANT, PATIENT, SESSION, without_prefix
from surreal_bids.regions import Feature, FeatureList, readable_name, recognise, region_names
from surreal_bids.rindices.crossfit import HELD_OUT
from surreal_bids.rindices.measurement_noise import describe_noise
from surreal_bids.rindices.model import INTERVALS, SHARE, VISIT, TableModel
from surreal_bids.rindices.preprocessing import COMPLETE, INCOMPLETE
from surreal_bids.rindices.uncertainty import INCLUDED, MIN_FOR_CENTILES
from surreal_bids.stats.mixed import MIN_YEARS
from surreal_bids.text import counted, list_briefly

LOGGER = logging.getLogger(__name__)

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
    'controls_for_sides': MIN_CONTROLS,
    'false_alarms': FALSE_ALARMS,
    'fewest_images': FEWEST_IMAGES,
    'included': INCLUDED,
    'least_agreement': LEAST_AGREEMENT,
    'least_change': LEAST_CHANGE,
    'least_enlargement': LEAST_ENLARGEMENT,
    'min_for_centiles': MIN_FOR_CENTILES,
    'min_pairs': MIN_PAIRS,
    'min_years': MIN_YEARS,
    'most_years': MOST_YEARS,
    'noise': describe_noise(),
    'norm_people': NORM_PEOPLE,
    'outlying': OUTLYING,
    'permutations': PERMUTATIONS,
    'share': SHARE,
    'usual_difference': USUAL,
}
"""Values that descriptions of columns mention."""


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
    write_json(path.with_suffix('.json'), describe_table(name, table.columns))
    write_tsv(path, table)


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
        steps = ', after ComBat (if sites were harmonized); covariates not removed'
        steps = steps if name == 'harmonized_volumes' else ''
        return describe_table('volumes', table.columns, unit=unit, steps=steps)
    if name == 'rindices':
        return describe_results(table.columns, found.names, found.model)
    whose = OWN_CONTROLS if found.has_own_controls else CONTROLS_OF_MODEL
    return describe_table(name, table.columns, controls=whose)


def describe_results(
    columns: Iterable[str], pattern_names: Sequence[str], model: TableModel
) -> dict[str, Column]:
    """Return the sidecar of a table of R-indices; models of 0.1.0 have other intervals."""
    known = describe_columns('rindices', **CONSTANTS)
    values = CONSTANTS | {'share': model.notes.get(INTERVALS, {}).get('Share', SHARE)}
    for pattern in pattern_names:
        known |= describe_columns('rindices_pattern', pattern=pattern, **values)
    for pattern, meaning in model.meanings.items():
        known[pattern] = {'LongName': meaning, **known[pattern]}
    return {column: known[column] for column in columns}


def _rindices(found: Analysis) -> pd.DataFrame:
    """R-indices of every visit, of other groups too, with flags; and who was excluded, and why."""
    cohort = found.cohort
    # The rounding error of R-indices is a tenth of a millionth.
    table = found.all_results.round(6)
    if HELD_OUT in table:
        table[HELD_OUT] = table[HELD_OUT].map(str, na_action='ignore').str.lower()
    out = cohort.exclusions
    if len(out):
        excluded = pd.DataFrame({'status': EXCLUDED, 'reason': out['reason']}, out.index)
        table = pd.concat([table, excluded])
    visits = pd.concat([found.scored.visits, out]).loc[table.index]
    # By participant, as measured; the visits of each stay in order of time.
    measured = enumerate(cohort.measured.get(PARTICIPANT, ()))
    place = {who: number for number, who in reversed([*measured])}
    order = visits[PARTICIPANT].map(place).fillna(len(place)).argsort(kind='stable')
    table, visits = table.iloc[order], visits.iloc[order]
    table['flags'] = found.flags.map(describe_flags).reindex(table.index).replace('', None)
    known = [name for name in (PARTICIPANT, SESSION, 'group') if name in visits]
    if found.asymmetry is not None:
        table = table.join(found.asymmetry.table.round(3))
    suffixes = ('', '_low', '_high', '_centile', DIFFERENCE, SIDE)
    own = [f'{name}{end}' for name in found.names for end in suffixes]
    own += ['fold', HELD_OUT, 'status', 'reason', 'flags']
    return pd.concat([visits[known], table[[name for name in own if name in table]]], axis=1)


def _contributions(found: Analysis) -> pd.DataFrame | None:
    """Contribution of each region to each R-index, one row per visit and R-index."""
    if not found.names:
        return None
    table = found.contributions
    visits = _identifiers(found.scored.visits).loc[table.index.get_level_values(VISIT)]
    # The sum over hundreds of regions equals the R-index to the millionth.
    numbers = table.round(8).reset_index().drop(columns=VISIT)
    return pd.concat([visits.reset_index(drop=True), numbers], axis=1)


def _deviations(found: Analysis) -> pd.DataFrame:
    """How far each region that was measured is from controls and norms, one row per reference.

    Visits of sites that are not harmonized are not compared with controls.
    """
    measured = found.scored.features.reindex(columns=found.z_scores.columns).notna()
    harmonized = ~found.all_results['status'].isin([UNHARMONIZED, INCOMPLETE])
    by_controls = found.z_scores.where(measured).where(harmonized)
    parts = {
        measure: z.round(3) + 0.0  # No minus zero.
        for measure, z in {'z_controls': by_controls, 'z_norms': found.z_norms}.items()
        if z is not None and z.notna().any(axis=None)
    }
    table = pd.DataFrame(columns=['measure'])
    if parts:
        table = pd.concat(parts, names=['measure']).reset_index('measure')
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
    return pd.concat([visits, volumes.round(dict.fromkeys(rounded, 2))], axis=1)


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
    short = table[numbers].astype(float).map(lambda x: float(f'{x:.6g}'))
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
        *(f'  {line}' for line in (*cohort.notes, *describe_uses(cohort.uses))),
        f'{len(out)} excluded' + (':' if len(out) else ''),
        *(f'  {visit}: {reason}' for visit, reason in out['reason'].head(SHOWN).items()),
    ]
    if len(out) > SHOWN:
        lines.append(f'  and {len(out) - SHOWN} more')
    return '\n'.join(lines) + '\n'


def summarise_results(
    results: pd.DataFrame,
    excluded: pd.DataFrame,
    notes: Sequence[str] = (),
    has_patterns: bool = True,
) -> str:
    """Of how many participants R-indices were computed, and who needs a second look.

    Parameters
    ----------
    results, excluded
        R-indices of visits, and visits that were excluded, with a `reason`.
    notes
        Lines about the model and the tables.
    has_patterns
        Whether the model has any pattern.
    """
    status = results['status']
    whose = 'participant or visit' if len(results) == 1 else 'participants or visits'
    first_line = f'R-indices of {len(results)} {whose}'
    if not has_patterns:
        have = 'has' if len(results) == 1 else 'have'
        first_line = f'{len(results)} {whose} {have} no R-indices, as the model has no pattern'
    lines = [first_line, *notes]
    reasons = excluded['reason'] if len(excluded) else pd.Series(dtype=object)
    lines += [f'excluded: {name}: {reason}' for name, reason in reasons.head(SHOWN).items()]
    if len(excluded) > SHOWN:
        lines.append(f'excluded: {len(excluded) - SHOWN} more')
    for value in sorted(set(status) - {COMPLETE}):
        lines.append(f'{value}: {list_briefly(status.index[status == value])}')
    in_range = results.get('brain_in_range', pd.Series(dtype=object)).dropna().astype(bool)
    if not in_range.all():
        lines.append(f'outside the training population: {list_briefly(in_range.index[~in_range])}')
    if len(in_range) > 1 and not in_range.any():
        LOGGER.warning(
            Caution(
                'All participants lie outside the training population',
                'Their R-indices are extrapolated and probably wrong',
                'Check that units and regions match those of the model (surreal-gan card -v)',
                R_INDICES,
            )
        )
    return '\n  '.join(lines) + '\n'


class Reference(NamedTuple):
    """Participants to compare with: the sample, their `group` and R-indices, and their number.

    `rows` may hold percentiles instead of participants, and may lack R-indices. If R-indices have
    different numbers of participants, `counts` has the smallest.
    """

    whose: str
    rows: pd.DataFrame
    counts: Mapping[str, int] = {}


@dataclass(frozen=True, eq=False)
class GroupTables:
    """Results of the group level that reports of participants show.

    Attributes
    ----------
    root
        The output folder.
    results : frame
        `Analysis.of_individuals`, one row per visit.
    card
        Card of the model.
    contributions, changes : frame
        `contributions.tsv` and `changes.tsv`; empty where there is none.
    reference
        Participants to compare with.
    model
        Name of the model that was applied; None where it was trained on this dataset.
    adapted
        Whether the model has learned the scanners of this dataset.
    """

    root: Path
    results: pd.DataFrame
    card: Mapping[str, Any]
    contributions: pd.DataFrame = field(default_factory=pd.DataFrame)
    changes: pd.DataFrame = field(default_factory=pd.DataFrame)
    reference: Reference = field(default_factory=lambda: Reference('', pd.DataFrame()))
    model: str | None = None
    adapted: bool = True

    @classmethod
    def read(
        cls, root: Path, results: Path, card: Path, model: str | None, adapted: bool
    ) -> GroupTables:
        """Read the results and the card from their files, and the tables from the outputs."""
        known, table = json.loads(card.read_text(encoding='utf-8')), _read_table(results)
        parts, changes = (
            _read_table(output_path(root, name)) for name in ('contributions', 'changes')
        )
        reference = find_reference(table, known, model)
        return cls(root, table, known, parts, changes, reference, model, adapted)

    @property
    def names(self) -> list[str]:
        """Names of the R-indices."""
        return list(self.card['PatternNames'])

    @cached_property
    def feature_names(self) -> dict[str, str]:
        """Readable name of each feature of the model."""
        features = {each['Name']: each['MUSERegions'] for each in self.card['FeatureDetails']}
        return {name: readable_name(Feature(name, tuple(k))) for name, k in features.items()}

    @cached_property
    def region_names(self) -> dict[str, str]:
        """Readable name of each single region that has z-scores."""
        regions = FeatureList.from_json(self.card['Preprocessing']['features']).features
        return {region.name: readable_name(region) for region in regions}

    @cached_property
    def digest(self) -> str:
        """Changes whenever that does which all reports show: the model, and whom it compares with.

        Of one participant see :meth:`Individual.digest`.
        """
        shown = [__version__, self.model, self.adapted, self.card['CardSHA256']]
        text = json.dumps(shown) + self.reference.rows.to_csv()
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _rows_of(self) -> list[tuple[pd.DataFrame, Mapping[Any, Any]]]:
        """Each table, and the places of the rows of each participant, which are found once."""
        places_in = []
        for table in (self.results, self.contributions, self.changes):
            places: Mapping[Any, Any] = {}
            if len(table):
                places = table.groupby(PARTICIPANT).indices
            places_in.append((table, places))
        return places_in

    def of(self, participant: str) -> Individual:
        """Return the rows of one participant."""
        rows = [table.iloc[places.get(participant, [])] for table, places in self._rows_of]
        return Individual(self, participant, *rows)


def _read_table(path: Path) -> pd.DataFrame:
    """A table of ours; empty where there is none."""
    if not path.is_file():
        return pd.DataFrame()
    text = dict.fromkeys((PARTICIPANT, SESSION, 'from_session', 'to_session', 'site'), str)
    return pd.read_csv(path, sep='\t', na_values=['n/a'], keep_default_na=False, dtype=text)


def find_reference(results: pd.DataFrame, card: Mapping[str, Any], model: str | None) -> Reference:
    """Return the participants to compare R-indices with: the training sample, or else the dataset.

    Parameters
    ----------
    results
        R-indices of the dataset.
    card
        Card of the model, which may have percentiles of the training sample.
    model
        Name of the model that was applied; None where it was trained on this dataset.
    """
    stored = card.get('Reference')
    if model is not None and stored:
        rows = [pd.DataFrame(each['Percentiles']).assign(group=k) for k, each in stored.items()]
        counts = {group: int(each['Number']) for group, each in stored.items()}
        return Reference('the training sample', pd.concat(rows, ignore_index=True), counts)
    first = results.drop_duplicates(PARTICIPANT)
    if HELD_OUT in first:
        first = first[first[HELD_OUT].eq(True)]
    if 'group' not in first or (model is not None and first['group'].nunique() < 2):
        return Reference('', pd.DataFrame())
    known = first.loc[first['group'].isin(GROUP_NAMES), ['group', *card['PatternNames']]].dropna()
    whose = 'this dataset' if model else 'the training sample, out of fold'
    return Reference(whose, known, Counter(known['group']))


@dataclass(frozen=True, eq=False)
class Individual:
    """Results of one participant; frames have at least one row per visit."""

    tables: GroupTables
    name: str
    results: pd.DataFrame
    contributions: pd.DataFrame
    changes: pd.DataFrame

    @property
    def label(self) -> str:
        """The participant without `sub-`."""
        return without_prefix(self.name, 'sub')

    @cached_property
    def last(self) -> pd.Series:
        """Results of the last visit that has R-indices, or of the last."""
        known = self.results.dropna(subset=self.tables.names, how='all')
        return (known if len(known) else self.results).iloc[-1]

    @property
    def names(self) -> list[str]:
        """Names of the R-indices; none where no visit has any."""
        return self.tables.names if self.last[self.tables.names].notna().any() else []

    def at_last(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows of the last visit."""
        if SESSION not in table or pd.isna(self.last.get(SESSION)):
            return table
        return table[table[SESSION] == self.last[SESSION]]

    def digest(self) -> str:
        """Changes whenever the section would."""
        parts = [self.results, self.contributions, self.changes]
        text = self.tables.digest + ''.join(part.to_csv() for part in parts)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
